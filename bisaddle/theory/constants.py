"""The constants that the analysis derives from those of the assumptions, each with the lemma it comes from  [AYH25].

Where the printed constant is not what the proof needs, the one here is; docs/theory.md lists every such place.
"""

import dataclasses

import numpy as np

from bisaddle.problem import Constants, Point, Problem, described
from bisaddle.schedules import Constant, StepSizes

_LOWER = ("L_xtheta", "L_thetax", "L_thetatheta", "L_thetay", "L_ytheta", "C_thetax", "L_g_thetax", "L_g_thetatheta")
_ASCENT = ("L_xy", "L_thetay", "L_yx", "L_ytheta", "L_yy")
EVERY = tuple(name for name, _ in Constants().items() if name != "mu_y")  # an unknown mu_y is 0
_NOT_OF_SETS = tuple(name for name in EVERY if name not in ("D_X", "D_Y"))
_MOST = 1 + 1e-12  # a step size may exceed its limit by rounding


@dataclasses.dataclass(frozen=True)
class Smoothness:
    """How smooth the implicit function is, whatever the step sizes.

    kappa_g    L_g / mu_g
    L_theta    |theta*(x) - theta*(x')| <= L_theta |x - x'|                                        Lemma 2.2 (I)
    C_v1, C_v2 |v(x, y) - v(x', y')| <= C_v1 |x - x'| + C_v2 |y - y'|,  v = Hess^-1 f_theta         Lemma 2.1
    L_L1, L_L2 |grad_x L(x, y) - grad_x L(x', y')| <= L_L1 |x - x'| + L_L2 |y - y'|                Lemma 2.2 (II)
    L_ymu      |grad_y L(x, y) - grad_y L(x', y)| <= L_ymu |x - x'|                        Lemmas 2.2 (III), 4.3
    v_bound    |v(x, y)| <= C_theta / mu_g                                                         Lemma 2.1
    """

    kappa_g: float
    L_theta: float
    C_v1: float
    C_v2: float
    L_L1: float
    L_L2: float
    L_ymu: float
    v_bound: float


@dataclasses.dataclass(frozen=True)
class Tracking:
    """How fast the inner sequences contract, and what disturbs them, for constant step sizes.

    beta       |theta - alpha g_theta(x, theta) - theta*(x)| <= beta |theta - theta*(x)|              Lemma 4.1
    rho        |I - eta g_theta_theta| <= rho                                                         Lemma 4.2
    rho_D      the same for one ascent step on L(x, .) - mu/2 |. - y0|^2                              Lemma 4.5
    y_drift    |y*_mu(x) - y*_mu(x')| <= y_drift |x - x'|,   L_ymu / (mu + mu_y)                      Lemma 4.3
    L_fmu      Lipschitz constant of the gradient of f_mu(x) = max_y L(x, y) - mu/2 |y - y0|^2        Lemma 4.4
    C_tilde    what |theta - theta*| adds to a step of w                                              Lemma 4.2
    C_tilde_2  what |theta - theta*| adds to Gx directly                                              Lemma 4.8
    """

    beta: float
    rho: float
    rho_D: float
    y_drift: float
    L_fmu: float
    C_tilde: float
    C_tilde_2: float


@dataclasses.dataclass(frozen=True)
class Start:
    """How far the start is from where the method would like it to be.

    theta_error   |theta_0 - theta*(x_0)|            w_error   |w_0 - v(x_0, y_0)|,  w_0 = theta_0
    y_error       |y_0 - y*_mu(x_0)|, at most D_Y    drop      f(x_0) - min f, f(x) = max_y L(x, y)
    """

    theta_error: float
    w_error: float
    y_error: float
    drop: float


@dataclasses.dataclass(frozen=True)
class Sums:
    """The constants of the summed inequalities, A_k = |s_k - x_k|.

    Gamma_1, Gamma_2  sum A_k |y_k - y*_mu(x_k)| <= Gamma_1 + Gamma_2 sum A_k^2                        Lemma 4.6
    Gamma_3           sum A_k sum_{i<k} rho^(k-i) |y_{i+1} - y_i| <= 2 rho Gamma_1 / (1 - rho) + Gamma_3 sum A_k^2
                                                                                                      Lemma 4.7
    Gamma_4, Gamma_5  sum A_k |grad_x L - Gx| <= Gamma_4 + C_thetax C_v2 (2 rho Gamma_1 / (1 - rho))
                          + (C_thetax C_v2 Gamma_3 + Gamma_5) sum A_k^2                                Lemma 4.8
    B_1, B_2, B_3     of Theorem 5.1
    B_4, Gamma_6      sum |grad_x L - Gx| <= Gamma_6 + gamma B_4 sum A_k, for Theorem 5.4
    """

    Gamma_1: float
    Gamma_2: float
    Gamma_3: float
    Gamma_4: float
    Gamma_5: float
    Gamma_6: float
    B_1: float
    B_2: float
    B_3: float
    B_4: float


def constants_of(given: Constants | Problem, needed: tuple[str, ...], point: Point | None = None) -> dict[str, float]:
    """The constants by name as numbers; what a missing lower level or max player makes 0 is filled in.

    needed: the names without which ValueError is raised. D_X and D_Y come from the problem's sets, with a point to give
    the shapes.
    """
    known = _known(given)
    values = {name: None if value is None else float(value) for name, value in known.items()}
    if isinstance(given, Problem):
        if given.lower is None:
            values |= dict.fromkeys(_LOWER, 0.0) | {"mu_g": 1.0, "L_g": 1.0, "C_theta": 0.0}
        if given.y_set is None:
            values |= dict.fromkeys(_ASCENT, 0.0) | {"D_Y": 0.0}
        if point is not None:
            for name, convex_set, value in (("D_X", given.x_set, point.x), ("D_Y", given.y_set, point.y)):
                if values[name] is None and convex_set is not None:
                    values[name] = float(convex_set.diameter(value))
    if values["mu_y"] is None:
        values["mu_y"] = 0.0
    lacking = [name for name in needed if values[name] is None]
    if lacking:
        raise ValueError(
            f"the constants {', '.join(lacking)} are needed, given None; use bs.Constants(...) where you know them, "
            "theory.exact_constants for quadratics, or theory.estimate_constants"
        )
    return {name: np.nan if value is None else value for name, value in values.items()}


def _known(given: Constants | Problem) -> Constants:
    if not isinstance(given, Constants | Problem):
        raise ValueError(f"a bisaddle.Constants or a Problem with constants is needed, given {described(given)}")
    return given.constants if isinstance(given, Problem) else given


def smoothness(given: Constants | Problem) -> Smoothness:
    """Lipschitz constants of theta*, v, grad L and y*_mu  [AYH25, Lemmas 2.1, 2.2, 4.3]."""
    return derive_smoothness(constants_of(given, _NOT_OF_SETS))


def derive_smoothness(c: dict[str, float]) -> Smoothness:
    L_theta = c["C_thetax"] / c["mu_g"]
    v_bound = c["C_theta"] / c["mu_g"]
    C_v1 = (c["L_thetax"] + c["L_thetatheta"] * L_theta + v_bound * c["L_g_thetatheta"] * (1 + L_theta)) / c["mu_g"]
    C_v2 = c["L_thetay"] / c["mu_g"]
    L_L1 = c["L_xx"] + c["L_xtheta"] * L_theta + c["C_thetax"] * C_v1 + v_bound * c["L_g_thetax"] * (1 + L_theta)
    return Smoothness(
        kappa_g=c["L_g"] / c["mu_g"],
        L_theta=L_theta,
        C_v1=C_v1,
        C_v2=C_v2,
        L_L1=L_L1,
        L_L2=c["L_xy"] + c["C_thetax"] * C_v2,
        L_ymu=c["L_yx"] + c["L_ytheta"] * L_theta,
        v_bound=v_bound,
    )


def step_numbers(steps: StepSizes) -> dict[str, float]:
    """The numbers of constant step sizes, by name; alpha = eta = mu = 0 and sigma = 0 where absent."""
    if not isinstance(steps, StepSizes):
        raise ValueError(f"steps must be bs.StepSizes(...), given {described(steps)}")
    numbers: dict[str, float] = {name: 0.0 for name in ("alpha", "eta", "gamma", "tau", "sigma", "mu")}
    for name, schedule in vars(steps).items():
        if schedule is None:
            continue
        if not isinstance(schedule, Constant) or np.ndim(schedule.value) > 0:
            raise ValueError(
                f"the theorems are for constant step sizes, given {name} as {type(schedule).__name__}; "
                "use a number (theory.steps_for gives them)"
            )
        numbers[name] = float(schedule.value)
    return numbers


def tracking(given: Constants | Problem, steps: StepSizes) -> Tracking:
    """Contraction factors of theta, w and y under constant steps  [AYH25, Lemmas 4.1, 4.2, 4.4, 4.5, 4.8].

    Needs: alpha, eta <= 2 / (mu_g + L_g); sigma < 2 / (L_yy + mu) and mu + mu_y > 0, so that the ascent contracts.
    """
    c = constants_of(given, _NOT_OF_SETS)
    return derive_tracking(c, derive_smoothness(c), step_numbers(steps))


def derive_tracking(c: dict[str, float], smooth: Smoothness, step: dict[str, float]) -> Tracking:
    limit = 2 / (c["mu_g"] + c["L_g"])
    for name in ("alpha", "eta"):
        if step[name] > limit * _MOST:
            raise ValueError(f"{name} <= 2 / (mu_g + L_g) = {limit:.6g} is needed, given {step[name]:.6g}")
    sigma, mu, mu_y, L_yy = step["sigma"], step["mu"], c["mu_y"], c["L_yy"]
    strength = mu + mu_y
    # the printed L_yy / (L_yy + 2 mu) is this at sigma = 2 / (L_yy + 2 mu) only
    rho_D = max(abs(1 - sigma * strength), abs(1 - sigma * (L_yy + mu))) if sigma > 0 else 0.0
    if rho_D >= 1:
        raise ValueError(
            f"the ascent must contract: 0 < sigma <= 2 / (L_yy + 2 mu) and mu > 0, or f strongly concave in y, are "
            f"needed, given sigma = {sigma:.6g}, mu = {mu:.6g}, L_yy = {L_yy:.6g}, mu_y = {mu_y:.6g}"
        )
    y_drift = smooth.L_ymu / strength if sigma > 0 else 0.0
    return Tracking(
        beta=max(0.0, 1 - step["alpha"] * c["mu_g"]) if step["alpha"] > 0 else 0.0,
        rho=max(0.0, 1 - step["eta"] * c["mu_g"]) if step["eta"] > 0 else 0.0,
        rho_D=rho_D,
        y_drift=y_drift,
        L_fmu=smooth.L_L1 + smooth.L_L2 * y_drift,
        C_tilde=step["eta"] * (c["L_g_thetatheta"] * smooth.v_bound + c["L_thetatheta"]),
        C_tilde_2=smooth.v_bound * c["L_g_thetax"] + c["L_xtheta"],
    )


def sums(given: Constants | Problem, steps: StepSizes, start: Start) -> Sums:
    """Gamma_1 .. Gamma_6 and B_1 .. B_4 as docs/theory.md corrects them  [AYH25, Lemmas 4.6-4.8, Theorems 5.1, 5.4].

    Every sum over k is a convolution of geometric sequences, and the sum of a convolution is at most the product of the
    sums (Lemma 8.1).
    """
    c = constants_of(given, (*_NOT_OF_SETS, "D_X"))
    smooth = derive_smoothness(c)
    step = step_numbers(steps)
    return derive_sums(c, smooth, derive_tracking(c, smooth, step), step, start)


def derive_sums(c: dict[str, float], smooth: Smoothness, t: Tracking, step: dict[str, float], start: Start) -> Sums:
    sigma, gamma, D_X = step["sigma"], step["gamma"], c["D_X"]
    L_theta, C_thetax, L_ytheta = smooth.L_theta, c["C_thetax"], c["L_ytheta"]
    theta_sum = 1 / (1 - t.beta)  # sum of beta^k
    w_sum = t.rho / (1 - t.rho)  # sum of rho^k from k = 1
    y_sum = 1 / (1 - t.rho_D)
    lag = t.beta * theta_sum * L_theta  # steady |theta - theta*| per length of a step of x
    Gamma_1 = D_X * y_sum * (start.y_error + sigma * L_ytheta * theta_sum * start.theta_error)
    Gamma_2 = gamma * y_sum * (t.y_drift + sigma * L_ytheta * lag)
    Gamma_3 = (2 * Gamma_2 + t.y_drift * gamma) / (1 - t.rho)
    Gamma_4 = D_X * start.theta_error * (t.C_tilde_2 * theta_sum + C_thetax * t.C_tilde / (1 - t.rho) ** 2)
    Gamma_4 += D_X * C_thetax * w_sum * start.w_error
    Gamma_5 = gamma * (lag * (t.C_tilde_2 + C_thetax * t.C_tilde / (1 - t.rho)) + w_sum * smooth.C_v1 * C_thetax)
    B_1 = smooth.L_L2 * Gamma_1 + Gamma_4 + C_thetax * smooth.C_v2 * 2 * w_sum * Gamma_1
    B_2 = t.L_fmu
    B_3 = 0.0
    if gamma > 0:
        B_2 += (smooth.L_L2 * Gamma_2 + C_thetax * smooth.C_v2 * Gamma_3 + Gamma_5) / gamma
    if sigma > 0:
        B_3 = t.y_drift / sigma * (1 + t.rho_D) * y_sum + L_ytheta * lag * (1 + 2 * y_sum)
    # Theorem 5.4 sums |y_{k+1} - y_k| through |theta_{k+1} - theta_k|, which contracts by beta as well
    first = (1 + t.rho_D) * start.y_error + sigma * L_ytheta * start.theta_error
    moved = y_sum * (first + sigma * (1 + t.beta) * L_ytheta * theta_sum * start.theta_error)
    Gamma_6 = (Gamma_4 / D_X if D_X > 0 else 0.0) + C_thetax * smooth.C_v2 * w_sum * moved
    B_4 = (Gamma_5 / gamma if gamma > 0 else 0.0) + C_thetax * smooth.C_v2 * w_sum * sigma * y_sum * smooth.L_ymu
    return Sums(Gamma_1, Gamma_2, Gamma_3, Gamma_4, Gamma_5, Gamma_6, B_1, B_2, B_3, B_4)


def describe(given: Constants | Problem) -> str:
    """A table of the constants, where each comes from, and the smoothness they give when all are known."""
    known = _known(given)
    lines = [f"{'constant':16} {'value':>12}  origin"]
    for name, value in known.items():
        shown = "-" if value is None else f"{float(value):.6g}"
        lines.append(f"{name:16} {shown:>12}  {known.origin_of(name) or 'unknown'}")
    try:
        derived = smoothness(given)
    except ValueError:
        return "\n".join(lines)
    lines += [f"{name:16} {value:>12.6g}  derived" for name, value in dataclasses.asdict(derived).items()]
    return "\n".join(lines)
