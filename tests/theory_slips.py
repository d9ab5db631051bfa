"""Counterexamples to printed statements of AYH25: name -> (left side, printed right side, corrected right side).

All but the last run Algorithm 1 or 2 on a problem of tests/theory_family.py; docs/theory.md shows the numbers.
"""

import functools

import numpy as np

import bisaddle as bs
from bisaddle import theory
from tests import theory_family as family

N, M, Q = family.N, family.M, family.Q
LONGEST = 400


def _first(size):
    return np.eye(size)[0]


def _run(count, *, kappa=1.0, half=1.0, method="opf", steps=(), start=(), **changes):
    """A run on the zero problem with the named parts put in: (seen, constants, smoothness, tracking, steps)."""
    shapes = {"Q": (N, N), "R": (N, M), "S": (M, M), "M": (N, Q), "P": (M, Q), "b": (Q,), "n": (Q,)}
    data = {name: np.zeros(shape) for name, shape in shapes.items()}
    data |= {"A0": np.diag([1.0, *[kappa] * (M - 1)]), "A1": np.zeros((M, M)), "B": np.zeros((M, N)), "c": np.zeros(M)}
    data |= changes
    begin = {"x": np.full(N, half), "theta": np.zeros(M), "y": np.zeros(Q)} | dict(start)
    known = family.constants(data, begin, half)
    limit = 2 / float(known.mu_g + known.L_g)
    numbers = {"alpha": limit, "eta": limit, "gamma": 1e-6, "mu": 0.1} | dict(steps)
    numbers.setdefault("sigma", 2 / (float(known.L_yy) + 2 * numbers["mu"]))
    if method == "fp":
        numbers.setdefault("tau", 0.1)
    kind = {"opf": "OneSidedProjectionFree", "fp": "FullyProjected"}[method]
    seen = family.runs(
        kind, [(data, begin, half)], [numbers], LONGEST
    )  # one length, so that one compilation serves all
    seen = {name: value[0][:count] for name, value in seen.items() if name != "last_value"}
    return seen, known, theory.smoothness(known), theory.tracking(known, bs.StepSizes(**numbers)), numbers


def _sums(known, steps, seen):
    start = theory.Start(seen["theta"][0], seen["w_old"][0], seen["y"][0], 0.0)
    return theory.sums(known, bs.StepSizes(**steps), start)


def lemma_4_2():
    """k rho^k for sum_{i=0}^k rho^(k-i) beta^i: at k = 0 the error of theta_0 is forgotten."""
    seen, _, _, t, _ = _run(1, kappa=4.0, S=np.eye(M), start={"theta": _first(M)})
    start = t.rho * seen["w_old"][0]
    return seen["w"][0], start, start + t.C_tilde * seen["theta"][0]


def lemma_4_5_rho_D():
    """rho_D = L_yy / (L_yy + 2 mu) whatever sigma: a short step contracts by 1 - sigma mu only."""
    n, steps = np.array([0.0, 1.0, 1.0]), {"sigma": 0.01, "mu": 0.1}
    seen, known, _, t, _ = _run(1, n=n, b=0.05 * _first(Q), start={"x": np.zeros(N)}, steps=steps)
    printed = float(known.L_yy) / (float(known.L_yy) + 2 * 0.1)
    return seen["y_after"][0], printed * seen["y_to_new"][0], t.rho_D * seen["y"][0]


def lemma_4_5_old_gradient():
    """y_k is a step along the gradient at (x_{k-1}, theta_{k-1}), compared with y*_mu(x_k): the move of x is lost."""
    coupled = np.zeros((N, Q))
    coupled[0, 0] = 0.05
    seen, _, _, t, steps = _run(1, M=coupled, Q=np.eye(N), steps={"gamma": 0.1})
    return seen["y_after"][0], t.rho_D * seen["y_to_new"][0], t.y_drift * steps["gamma"] * seen["A"][0]


def lemma_4_5_start():
    """L_yy = 0, k = 0: |y_0 - y*_mu(x_0)| <= L_ytheta |theta_0 - theta*(x_0)| / mu, though nothing ties y_0."""
    seen, known, _, _, steps = _run(1, b=_first(Q))
    printed = float(known.L_ytheta) * seen["theta"][0] / steps["mu"]
    return seen["y"][0], printed, float(known.D_Y)


def lemma_4_7_sum():
    """2 Gamma_1 for the sum of rho^(k-i) |y_{i+1} - y_i|: the sum of rho^k is missing."""
    seen, known, _, t, steps = _run(200, kappa=20.0, Q=np.eye(N), b=0.05 * _first(Q))
    A, s = seen["A"], _sums(known, steps, seen)
    history = np.array([sum(t.rho ** (k - i) * seen["y_step"][i] for i in range(k)) for k in range(len(A))])
    slope = s.Gamma_3 * np.sum(A**2)
    return np.sum(A * history), 2 * s.Gamma_1 + slope, 2 * t.rho / (1 - t.rho) * s.Gamma_1 + slope


def lemma_4_8_Gamma_4():
    """Gamma_4 without C_thetax and with k for k + 1: kappa = 1 makes the printed right side 0."""
    B = np.zeros((M, N))
    B[0, 0] = 1.0
    seen, known, smooth, t, steps = _run(1, Q=np.eye(N), S=np.eye(M), B=B, start={"theta": 3 * _first(M)})
    s, D_X = _sums(known, steps, seen), float(known.D_X)
    printed = D_X * seen["theta"][0] * (t.C_tilde_2 / (1 - t.beta) + t.rho * t.C_tilde / (1 - t.rho) ** 2)
    printed += t.rho * float(known.C_thetax) * D_X / (1 - t.rho) * seen["w_old"][0] + 2 * smooth.C_v2 * s.Gamma_1
    slope = t.beta * smooth.L_theta / (1 - t.beta) * (1 + t.C_tilde / (1 - t.rho))
    slope += t.rho * smooth.C_v1 * float(known.C_thetax) / (1 - t.rho) + smooth.C_v2 * s.Gamma_3 / steps["gamma"]
    left = np.sum(seen["A"] * seen["Gx_error"])
    square = np.sum(seen["A"] ** 2)
    corrected = s.Gamma_4 + 2 * float(known.C_thetax) * smooth.C_v2 * t.rho / (1 - t.rho) * s.Gamma_1
    corrected += (float(known.C_thetax) * smooth.C_v2 * s.Gamma_3 + s.Gamma_5) * square
    return left, printed + steps["gamma"] * slope * square, corrected


def lemma_4_8_Gamma_5():
    """Gamma_5 without C_tilde_2 (and C_thetax): theta and w lag behind a slow x, in step; the rest starts exact."""
    B, R = np.zeros((M, N)), np.zeros((N, M))
    B[0, 0], R[0, 0] = 1.0, 10.0
    # theta_0 = theta*(x_0) = v(x_0, y_0)
    exact = {"c": 9 * _first(M), "start": {"theta": 10 * _first(M)}}
    seen, known, smooth, t, steps = _run(400, kappa=20.0, B=B, R=R, steps={"gamma": 1e-5}, **exact)
    s, C_thetax, square = _sums(known, steps, seen), float(known.C_thetax), np.sum(seen["A"] ** 2)
    printed = t.beta * smooth.L_theta / (1 - t.beta) * (1 + t.C_tilde / (1 - t.rho))
    printed += t.rho * smooth.C_v1 * C_thetax / (1 - t.rho)
    left = np.sum(seen["A"] * seen["Gx_error"])
    return left, s.Gamma_4 + steps["gamma"] * printed * square, s.Gamma_4 + s.Gamma_5 * square


def lemma_4_8_C_v2():
    """C_v2 (2 Gamma_1 + Gamma_3 ..) without C_thetax, and without the sum of rho^k: only y starts out of place."""
    B, P = np.zeros((M, N)), np.zeros((M, Q))
    B[0, 0], P[0, 0] = 100.0, 1.0
    more = {"c": -100 * _first(M), "b": 0.05 * _first(Q), "Q": np.eye(N)}  # theta*(x_0) = v(x_0, y_0) = 0
    seen, known, smooth, t, steps = _run(100, kappa=4.0, B=B, P=P, steps={"gamma": 1e-9}, **more)
    s, C_thetax, square = _sums(known, steps, seen), float(known.C_thetax), np.sum(seen["A"] ** 2)
    printed = s.Gamma_4 + 2 * smooth.C_v2 * s.Gamma_1 + (smooth.C_v2 * s.Gamma_3 + s.Gamma_5) * square
    corrected = s.Gamma_4 + 2 * C_thetax * smooth.C_v2 * t.rho / (1 - t.rho) * s.Gamma_1
    corrected += (C_thetax * smooth.C_v2 * s.Gamma_3 + s.Gamma_5) * square
    return np.sum(seen["A"] * seen["Gx_error"]), printed, corrected


def lemma_4_9():
    """beta^k |theta_0 - theta*(x_0)| without L_ytheta."""
    P = np.zeros((M, Q))
    P[0, 0] = 10.0
    seen, known, _, _, steps = _run(1, P=P, start={"theta": _first(M)}, steps={"mu": 0.01})
    regularised = steps["mu"] * float(known.D_Y)
    return seen["Gy_error"][0], seen["theta"][0] + regularised, 10 * seen["theta"][0] + regularised


def theorem_5_4_diameter():
    """sum |grad_x L - Gx| <= Gamma_4 + ..: Gamma_4 has a factor D_X that the unweighted sum has not."""
    B = np.zeros((M, N))
    B[0, 0] = 1.0
    more = {"start": {"theta": 3 * _first(M)}, "half": 1e-3}
    seen, known, smooth, t, steps = _run(100, method="fp", kappa=4.0, S=np.eye(M), B=B, **more)
    s, gamma, tau, top = _sums(known, steps, seen), steps["gamma"], steps["tau"], np.max(seen["M"])
    rest = gamma * tau * top * len(seen["A"]) * s.B_4
    # even with Gamma_4 corrected
    return np.sum(seen["Gx_error"]), s.Gamma_4 + rest, s.Gamma_6 + gamma * s.B_4 * np.sum(seen["A"])


def theorem_5_4_first_step():
    """|y_{k+1} - y_k| <= sigma gamma tau L_L2 M / (1 - rho_D): takes |y_1 - y_0| for 0."""
    coupled = np.zeros((N, Q))
    coupled[0, 0] = 0.05
    seen, known, smooth, t, steps = _run(1, method="fp", M=coupled, Q=np.eye(N), steps={"gamma": 1e-3})
    printed = steps["sigma"] * steps["gamma"] * steps["tau"] * smooth.L_L2 * np.max(seen["M"]) / (1 - t.rho_D)
    return seen["y_step"][0], printed, (1 + t.rho_D) * seen["y"][0] + steps["sigma"] * float(known.L_ytheta) * 0


def corollary_5_6_sigma():
    """sigma <= 2 / (L_yy + 2 mu) with mu = 0: at sigma = 2 / L_yy the ascent on -y^2 L_yy / 2 only changes sign."""
    y, L_yy, mu_y = np.array([0.5]), 2.0, 2.0
    first = y
    for _ in range(100):
        y = np.clip(y + 2 / L_yy * (-L_yy * y), -1, 1)
    printed = (L_yy / (L_yy + 2 * mu_y)) ** 100 * abs(first[0])
    return abs(y[0]), printed, max(abs(1 - 2 / L_yy * mu_y), abs(1 - 2)) ** 100 * abs(first[0])


SLIPS = {
    "Lemma 4.2": lemma_4_2,
    "Lemma 4.5, rho_D": lemma_4_5_rho_D,
    "Lemma 4.5, old gradient": lemma_4_5_old_gradient,
    "Lemma 4.5, start": lemma_4_5_start,
    "Lemma 4.7, sum": lemma_4_7_sum,
    "Lemma 4.8, Gamma_4": lemma_4_8_Gamma_4,
    "Lemma 4.8, Gamma_5": lemma_4_8_Gamma_5,
    "Lemma 4.8, C_v2": lemma_4_8_C_v2,
    "Lemma 4.9": lemma_4_9,
    "Theorem 5.4, diameter": theorem_5_4_diameter,
    "Theorem 5.4, first step": theorem_5_4_first_step,
    "Corollary 5.6, sigma": corollary_5_6_sigma,
}


@functools.cache
def sides(name):
    return tuple(float(value) for value in SLIPS[name]())


def row(name):
    """The line of the table in docs/theory.md."""
    left, printed, corrected = sides(name)
    return f"| {name} | {left:.4g} | {printed:.4g} | {corrected:.4g} |"


if __name__ == "__main__":
    import jax

    jax.config.update("jax_enable_x64", True)
    for slip in SLIPS:
        print(row(slip))
