"""Slow, obvious NumPy: what the package must agree with. Imports nothing of bisaddle.

Every problem here is a Reference: functions of flat vectors x, theta, y, with second derivatives as dense matrices. The
flat order of a dict is that of its sorted keys, as in jax.flatten_util.ravel_pytree.
"""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np

EXTENDED = np.longdouble  # 64 bits of mantissa on x86: the reference is then exact where the package rounds


@dataclasses.dataclass(frozen=True)
class Reference:
    """min_x max_y f(x, theta*(x), y); g_tt is the Hessian (m, m), g_tx the mixed derivative d g_theta / d x (m, n).

    Without a lower level g_theta is None, without a max player f_y is. f is -curvature/2 |y|^2 + affine in y.
    """

    f: Callable
    f_x: Callable
    project_x: Callable
    lmo_x: Callable
    f_theta: Callable | None = None
    f_y: Callable | None = None
    project_y: Callable | None = None
    lmo_y: Callable | None = None
    g_theta: Callable | None = None
    g_tt: Callable | None = None
    g_tx: Callable | None = None
    curvature: float = 0.0


# -- sets ----------------------------------------------------------------------------------------------------------


def project_simplex(v, radius=1.0):
    """By sorting: the largest support whose threshold is below its smallest entry."""
    u = np.sort(v)[::-1]
    thresholds = (np.cumsum(u) - radius) / np.arange(1, len(v) + 1)
    last = np.nonzero(u > thresholds)[0][-1]
    return np.maximum(v - thresholds[last], 0)


def project_l1(v, radius):
    return v if np.abs(v).sum() <= radius else np.sign(v) * project_simplex(np.abs(v), radius)


def project_l2(v, radius):
    length = np.sqrt((v * v).sum())
    return v if length <= radius else v * (radius / length)


def project_box(v, lower, upper):
    return np.minimum(np.maximum(v, lower), upper)


def lmo_simplex(d, radius=1.0):
    return radius * (np.arange(len(d)) == np.argmin(d))


def lmo_l1(d, radius):
    best = np.argmax(np.abs(d))
    return -radius * np.where(d[best] > 0, 1.0, -1.0) * (np.arange(len(d)) == best)


def lmo_l2(d, radius):
    return -radius * d / np.sqrt((d * d).sum())


def lmo_box(d, lower, upper):
    return np.where(d > 0, lower, upper) * np.ones(len(d))


def blocks(sizes, functions):
    """One function per consecutive block of a vector."""
    cuts = np.cumsum(sizes)[:-1]
    return lambda v: np.concatenate([f(part) for f, part in zip(functions, np.split(v, cuts), strict=True)])


def maximise_qp_on_simplex(H, c):
    """argmax c'y - y'Hy/2 over the unit simplex, H positive semidefinite: every support, its KKT system, the best."""
    n, best, best_value = len(c), None, -np.inf
    for size in range(1, n + 1):
        for support in map(list, itertools.combinations(range(n), size)):
            ones = np.ones(size)
            kkt = np.block([[H[np.ix_(support, support)], ones[:, None]], [ones[None, :], np.zeros((1, 1))]])
            part = np.linalg.lstsq(kkt, np.append(c[support], 1.0), rcond=None)[0][:-1]
            if part.min() >= 0 and abs(part.sum() - 1) < 1e-9:
                y = np.zeros(n)
                y[support] = part
                value = c @ y - 0.5 * y @ H @ y
                if value > best_value:
                    best, best_value = y, value
    return best


# -- Algorithms 1 (lmo=True) and 2 of the paper ----------------------------------------------------------------------

WRONG_ORDERS = (
    "Gx with the old w",
    "theta with the old x",
    "Gy at the new x",
    "Gy at the new theta",
    "w at the new x",
    "w starts at 0",
    "y regularised towards 0",
    "y regularised towards the last y",
)


def run(p, x, theta, y, steps, count, lmo, wrong=""):
    """The algorithm box, one line each; `wrong` is one of WRONG_ORDERS, to prove that a test would notice it.

    steps: numbers or functions of k. Returns arrays (count, n) of the iterates x, theta, y, w after each step.
    """
    lower, ascent = p.g_theta is not None, p.f_y is not None
    w, y0 = theta, y
    if wrong == "w starts at 0":
        w = 0 * theta
    if wrong == "y regularised towards 0":
        y0 = 0 * y
    history = []
    for k in range(count):
        s = {name: step(k) if callable(step) else step for name, step in steps.items()}
        old_x, old_theta, old_w = x, theta, w
        if lower:
            w = w - s["eta"] * (p.g_tt(x, theta) @ w - p.f_theta(x, theta, y))
            used_w = old_w if wrong == "Gx with the old w" else w
            Gx = p.f_x(x, theta, y) - p.g_tx(x, theta).T @ used_w
        else:
            Gx = p.f_x(x, theta, y)
        target = p.lmo_x(Gx) if lmo else p.project_x(x - s["tau"] * Gx)
        x = s["gamma"] * target + (1 - s["gamma"]) * x
        if lower:
            theta = theta - s["alpha"] * p.g_theta(old_x if wrong == "theta with the old x" else x, theta)
        if wrong == "w at the new x":
            w = old_w - s["eta"] * (p.g_tt(x, old_theta) @ old_w - p.f_theta(x, old_theta, y))
        if ascent:
            at_x = x if wrong == "Gy at the new x" else old_x
            at_theta = theta if wrong == "Gy at the new theta" else old_theta
            Gy = p.f_y(at_x, at_theta, y)
            centre = y if wrong == "y regularised towards the last y" else y0
            y = p.project_y(y + s["sigma"] * (Gy - s["mu"] * (y - centre)))
        history.append((x, theta, y, w))
    return tuple(None if item[0] is None else np.stack(item) for item in zip(*history, strict=True))


# -- the certificate ---------------------------------------------------------------------------------------------------


def solve_dense(H, rhs):
    """Gaussian elimination in float64, residuals and sum in extended precision."""
    solution = np.zeros(len(rhs), EXTENDED)
    for _ in range(8):
        residual = rhs - H @ solution
        solution = solution + np.linalg.solve(H.astype(float), residual.astype(float))
    return solution


def solve_lower(p, x, theta):
    """Newton's method with halving, to the rounding of extended precision."""
    size = lambda v: np.sqrt((v * v).sum())
    theta = np.asarray(theta, EXTENDED)
    g = p.g_theta(x, theta)
    for _ in range(100):
        step = solve_dense(p.g_tt(x, theta), g)
        while True:
            candidate = theta - step
            candidate_g = p.g_theta(x, candidate)
            if size(candidate_g) < size(g):
                theta, g = candidate, candidate_g
                break
            step = step / 2
            if size(step) < 1e-19 * (1 + size(theta)):
                return theta
    return theta


@dataclasses.dataclass(frozen=True)
class ReferenceCertificate:
    theta: np.ndarray | None
    Gx: np.ndarray
    x_gap: dict
    y_gap: float
    value: float
    worst_value: float


def certificate(p, x, theta, y, sigma=1.0, tau=1.0):
    """Definitions 2.1 ("lmo") and 2.2 ("projection"), the lower level and the linear system solved densely."""
    extended = lambda v: None if v is None else np.asarray(v, EXTENDED)
    size = lambda v: np.sqrt((v * v).sum())
    x, y = extended(x), extended(y)
    if p.g_theta is None:
        Gx = p.f_x(x, theta, y)
    else:
        theta = solve_lower(p, x, theta)
        w = solve_dense(p.g_tt(x, theta), p.f_theta(x, theta, y))
        Gx = p.f_x(x, theta, y) - p.g_tx(x, theta).T @ w
    x_gap = {
        "projection": size(x - p.project_x(x - EXTENDED(tau) * Gx)) / tau,
        "lmo": Gx @ (x - p.lmo_x(Gx)),
    }
    y_gap, worst = 0.0, y
    if p.f_y is not None:
        Gy = p.f_y(x, theta, y)
        y_gap = size(y - p.project_y(y + EXTENDED(sigma) * Gy)) / sigma
        # curvature q everywhere the same: one projected step of length 1/q from anywhere is the maximiser
        worst = p.project_y(y + Gy / p.curvature) if p.curvature > 0 else p.lmo_y(-Gy)
    return ReferenceCertificate(theta, Gx, x_gap, y_gap, p.f(x, theta, y), p.f(x, theta, worst))


# -- problems, derivatives written out --------------------------------------------------------------------------------


def multitask(tasks, radius, ridge, divergence, dtype=float):
    """Experiments 1 (divergence = 0) and 2, from the rows; x is (lam, x), theta the task vectors one after another."""
    tasks = [tuple(np.asarray(array, dtype) for array in task) for task in tasks]
    T, d = len(tasks), tasks[0][0].shape[1]
    hessians = [A.T @ A / len(A) for A, *_ in tasks]
    split = lambda z: (z[:T], z[T:])

    def losses(theta):
        pairs = zip(tasks, theta.reshape(T, d), strict=True)
        return np.array([((A @ t - b) ** 2).sum() / (2 * len(A)) for (_, _, A, b), t in pairs])

    def f(z, theta, y):
        return y @ losses(theta) - divergence / T * ((T * y - 1) ** 2).sum() / 2

    def f_theta(z, theta, y):
        pairs = zip(y, tasks, theta.reshape(T, d), strict=True)
        return np.concatenate([y_i * A.T @ (A @ t - b) / len(A) for y_i, (_, _, A, b), t in pairs])

    def residuals(z, theta):
        lam, x = split(z)
        mixed = [lam[i] * t + (1 - lam[i]) * x for i, t in enumerate(theta.reshape(T, d))]
        return [A.T @ (A @ v - b) / len(A) for (A, b, *_), v in zip(tasks, mixed, strict=True)]

    def g_theta(z, theta):
        return np.concatenate([lam * r for lam, r in zip(z[:T], residuals(z, theta), strict=True)]) + ridge * theta

    def g_tt(z, theta):
        H = ridge * np.eye(T * d, dtype=dtype)
        for i in range(T):
            H[i * d : (i + 1) * d, i * d : (i + 1) * d] += z[i] ** 2 * hessians[i]
        return H

    def g_tx(z, theta):
        lam, x = split(z)
        C = np.zeros((T * d, T + d), np.result_type(dtype, z))
        for i, (t, r) in enumerate(zip(theta.reshape(T, d), residuals(z, theta), strict=True)):
            C[i * d : (i + 1) * d, i] = r + lam[i] * hessians[i] @ (t - x)
            C[i * d : (i + 1) * d, T:] = lam[i] * (1 - lam[i]) * hessians[i]
        return C

    return Reference(
        f=f,
        f_x=lambda z, theta, y: np.zeros(T + d),
        f_theta=f_theta,
        f_y=lambda z, theta, y: losses(theta) - divergence * (T * y - 1),
        g_theta=g_theta,
        g_tt=g_tt,
        g_tx=g_tx,
        project_x=blocks((T, d), (lambda v: project_box(v, 0, 1), lambda v: project_l1(v, radius))),
        lmo_x=blocks((T, d), (lambda v: lmo_box(v, 0, 1), lambda v: lmo_l1(v, radius))),
        project_y=project_simplex,
        lmo_y=lmo_simplex,
        curvature=divergence * T,
    )


def logistic(data, dtype=float):
    """Sample weights exp(x) of a logistic lower level, judged on the worst group of validation rows.

    f = sum_j y_j mean_k l(rows_jk theta) + r/2 |x|^2 - nu/2 |y|^2
    g = mean_i exp(x_i) l(train_i theta) + rho/2 |theta|^2
    with l(m) = log(1 + exp(-m)), labels multiplied into the rows; x in [-1, 1]^n, y in the simplex.
    """
    rows, groups = np.asarray(data["train"], dtype), np.asarray(data["valid"], dtype)
    rho, r, nu = (float(data[name]) for name in ("rho", "r", "nu"))
    n, m = rows.shape
    s = lambda margin: 1 / (1 + np.exp(margin))
    losses = lambda theta: np.log1p(np.exp(-(groups @ theta))).mean(axis=1)

    def f_theta(x, theta, y):
        slopes = -(s(groups @ theta)[:, :, None] * groups).mean(axis=1)
        return slopes.T @ y

    def g_tt(x, theta):
        weight = s(rows @ theta)
        return (rows.T * (np.exp(x) * weight * (1 - weight) / n)) @ rows + rho * np.eye(m)

    return Reference(
        f=lambda x, theta, y: y @ losses(theta) + r / 2 * (x * x).sum() - nu / 2 * (y * y).sum(),
        f_x=lambda x, theta, y: r * x,
        f_theta=f_theta,
        f_y=lambda x, theta, y: losses(theta) - nu * y,
        g_theta=lambda x, theta: -rows.T @ (np.exp(x) * s(rows @ theta)) / n + rho * theta,
        g_tt=g_tt,
        g_tx=lambda x, theta: -rows.T * (np.exp(x) * s(rows @ theta) / n),
        project_x=lambda v: project_box(v, -1, 1),
        lmo_x=lambda d: lmo_box(d, -1, 1),
        project_y=project_simplex,
        lmo_y=lmo_simplex,
        curvature=nu,
    )


def linear_quadratic(data, x_size, y_size=None, dtype=float):
    """f = theta'Py + x'Ry - nu/2 |y|^2 + r/2 |x|^2,  g = theta'A theta/2 - theta'(Bx + c); |x|_inf <= x_size.

    y in the unit simplex, or |y|_inf <= y_size.
    """
    P, R, A, B, c = (np.asarray(data[name], dtype) for name in "PRABc")
    nu, r = float(data["nu"]), float(data["r"])
    box = lambda size: (lambda v: project_box(v, -size, size), lambda d: lmo_box(d, -size, size))
    project_x, lmo_x = box(x_size)
    project_y, lmo_y = (project_simplex, lmo_simplex) if y_size is None else box(y_size)
    return Reference(
        f=lambda x, theta, y: theta @ P @ y + x @ R @ y - nu / 2 * (y * y).sum() + r / 2 * (x * x).sum(),
        f_x=lambda x, theta, y: R @ y + r * x,
        f_theta=lambda x, theta, y: P @ y,
        f_y=lambda x, theta, y: P.T @ theta + R.T @ x - nu * y,
        g_theta=lambda x, theta: A @ theta - B @ x - c,
        g_tt=lambda x, theta: A,
        g_tx=lambda x, theta: -B,
        project_x=project_x,
        lmo_x=lmo_x,
        project_y=project_y,
        lmo_y=lmo_y,
        curvature=nu,
    )


def reduced(data):
    """(M, b) with theta eliminated: L(x, y) = x'My + b'y - nu/2 |y|^2 + r/2 |x|^2."""
    solve = lambda rhs: np.linalg.solve(data["A"], rhs)
    return solve(data["B"]).T @ data["P"] + data["R"], data["P"].T @ solve(data["c"])


def linear_quadratic_saddle(data):
    """(x, y) of the saddle without constraints: My + rx = 0, M'x + b - nu y = 0, one linear system."""
    M, b = reduced(data)
    n, q = M.shape
    system = np.block([[data["r"] * np.eye(n), M], [M.T, -data["nu"] * np.eye(q)]])
    z = np.linalg.solve(system, np.concatenate([np.zeros(n), -b]))
    return z[:n], z[n:]


def linear_quadratic_simplex_saddle(data):
    """(x, y) with y in the simplex and x free: x = -My/r leaves a quadratic programme in y."""
    M, b = reduced(data)
    y = maximise_qp_on_simplex(M.T @ M / data["r"] + data["nu"] * np.eye(len(b)), b)
    return -M @ y / data["r"], y


def generator(data, radius, dtype=float):
    """Bilevel only: f = |theta - d|^2/2 + r/2 |x|^2,  g = theta'A theta/2 - theta'(Bx + c),  |x|_2 <= radius."""
    A, B, c, d = (np.asarray(data[name], dtype) for name in "ABcd")
    r = float(data["r"])
    return Reference(
        f=lambda x, theta, y: ((theta - d) ** 2).sum() / 2 + r / 2 * (x * x).sum(),
        f_x=lambda x, theta, y: r * x,
        f_theta=lambda x, theta, y: theta - d,
        g_theta=lambda x, theta: A @ theta - B @ x - c,
        g_tt=lambda x, theta: A,
        g_tx=lambda x, theta: -B,
        project_x=lambda v: project_l2(v, radius),
        lmo_x=lambda v: lmo_l2(v, radius),
    )


def generator_solution(data):
    """x* of the generator when the ball is inactive."""
    K = np.linalg.solve(data["A"], data["B"])
    k = np.linalg.solve(data["A"], data["c"]) - data["d"]
    return -np.linalg.solve(K.T @ K + data["r"] * np.eye(K.shape[1]), K.T @ k)


def wavy_saddle(data, x_size, y_radius, dtype=float):
    """Saddle only: f = x'Qx/2 + sum sin x + x'My + b'y - nu/2 |y|^2,  |x|_inf <= x_size, |y|_1 <= y_radius."""
    Q, M, b = (np.asarray(data[name], dtype) for name in "QMb")
    nu = float(data["nu"])
    return Reference(
        f=lambda x, theta, y: x @ Q @ x / 2 + np.sin(x).sum() + x @ M @ y + b @ y - nu / 2 * (y * y).sum(),
        f_x=lambda x, theta, y: Q @ x + np.cos(x) + M @ y,
        f_y=lambda x, theta, y: M.T @ x + b - nu * y,
        project_x=lambda v: project_box(v, -x_size, x_size),
        lmo_x=lambda d: lmo_box(d, -x_size, x_size),
        project_y=lambda v: project_l1(v, y_radius),
        lmo_y=lambda d: lmo_l1(d, y_radius),
        curvature=nu,
    )
