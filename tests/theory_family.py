"""Quadratic problems where theta*, v, grad L, y*_mu and every constant have a closed form, and runs of the methods.

f = x'Qx/2 + x'R theta + x'My + theta'Py + theta'S theta/2 + b'y - sum n_i y_i^2/2,     Q, S indefinite
g = theta'(A0 + x_1 A1) theta/2 - theta'(Bx + c),       |x_i| <= half,  |y_i| <= 1
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import bisaddle as bs

N, M, Q = 3, 4, 3  # sizes of x, theta, y
KINDS = ("linear", "concave", "strongly-concave")


def upper(x, theta, y, d):
    own = 0.5 * x @ d["Q"] @ x + x @ d["R"] @ theta + 0.5 * theta @ d["S"] @ theta
    return own + x @ d["M"] @ y + theta @ d["P"] @ y + d["b"] @ y - 0.5 * jnp.sum(d["n"] * y**2)


def lower(x, theta, d):
    return 0.5 * theta @ (d["A0"] + x[0] * d["A1"]) @ theta - theta @ (d["B"] @ x + d["c"])


def _symmetric(rng, size, low, high):
    basis = np.linalg.qr(rng.normal(size=(size, size)))[0]
    return (basis * rng.uniform(low, high, size)) @ basis.T


def draw(seed, kind, kappa=None):
    """Data and a start; a larger seed reaches ill-conditioned and strongly coupled problems too."""
    rng = np.random.default_rng((seed, KINDS.index(kind)))
    scale = lambda: 10.0 ** rng.uniform(-1.0, 0.5)
    spread = 10.0 ** rng.uniform(0.1, 1.3) if kappa is None else kappa
    half = rng.uniform(0.2, 1.5)
    eigenvalues = np.concatenate([[1.0, spread], rng.uniform(1.0, spread, M - 2)])
    basis = np.linalg.qr(rng.normal(size=(M, M)))[0]
    A1 = _symmetric(rng, M, -1, 1)
    A1 *= rng.choice([0.0, 0.4]) / (half * np.linalg.norm(A1, 2))  # keeps A0 + x_1 A1 >= 0.6
    n = {"linear": np.zeros(Q), "concave": np.r_[0.0, rng.uniform(0.2, 3, Q - 1)], "strongly-concave": None}[kind]
    n = rng.uniform(0.3, 3, Q) if n is None else n
    data = {
        "Q": _symmetric(rng, N, -1, 1) * scale(),
        "R": rng.normal(size=(N, M)) * scale(),
        "S": _symmetric(rng, M, -1, 1) * scale(),
        "M": rng.normal(size=(N, Q)) * scale(),
        "P": rng.normal(size=(M, Q)) * scale(),
        "b": rng.normal(size=Q),
        "n": n,
        "A0": (basis * eigenvalues) @ basis.T,
        "A1": A1,
        "B": rng.normal(size=(M, N)) * scale(),
        "c": rng.normal(size=M),
    }
    start = {
        "x": half * rng.uniform(-1, 1, N),
        "theta": rng.normal(size=M) * rng.choice([0.1, 3.0]),
        "y": rng.uniform(-1, 1, Q),
    }
    return data, start, half


def constants(data, start, half):
    """Exact norms; |theta| <= R holds along every run, since |theta+| <= beta |theta| + alpha |Bx + c|."""
    norm = lambda name: np.linalg.norm(data[name], 2)
    ends = np.linalg.eigvalsh(np.stack([data["A0"] + s * half * data["A1"] for s in (-1, 1)]))
    mu_g, L_g = ends.min() * (1 - 1e-12), ends.max() * (1 + 1e-12)  # concave and convex in x_1
    x_most, y_most = half * np.sqrt(N), np.sqrt(Q)
    theta_star = (norm("B") * x_most + np.linalg.norm(data["c"])) / mu_g
    R = max(np.linalg.norm(start["theta"]), theta_star)
    return bs.Constants(
        mu_g=mu_g,
        L_g=L_g,
        L_yy=data["n"].max(),
        mu_y=data["n"].min(),
        L_xx=norm("Q"),
        L_xtheta=norm("R"),
        L_xy=norm("M"),
        L_thetax=norm("R"),
        L_thetatheta=norm("S"),
        L_thetay=norm("P"),
        L_yx=norm("M"),
        L_ytheta=norm("P"),
        C_thetax=norm("B") + norm("A1") * R,
        L_g_thetax=norm("A1"),
        L_g_thetatheta=norm("A1"),
        C_theta=norm("R") * x_most + norm("P") * y_most + norm("S") * theta_star,
        D_X=2 * half * np.sqrt(N),
        D_Y=2 * np.sqrt(Q),
    )


def problem_of(data, half, known=None):
    traced = {name: jnp.asarray(value) for name, value in data.items()}
    return bs.Problem(upper, lower, bs.sets.Box(-half, half), bs.sets.Box(-1.0, 1.0), traced, known)


def point_of(start):
    return bs.Point(**{name: jnp.asarray(value) for name, value in start.items()})


def hessian(d, x):
    return d["A0"] + x[0] * d["A1"]


def theta_star(d, x):
    return jnp.linalg.solve(hessian(d, x), d["B"] @ x + d["c"])


def exact(d, x, y):
    """theta*, v, grad_x L, grad_y L, written out."""
    theta = theta_star(d, x)
    v = jnp.linalg.solve(hessian(d, x), d["R"].T @ x + d["P"] @ y + d["S"] @ theta)
    cross = jnp.outer(d["A1"] @ theta, jnp.zeros(N).at[0].set(1.0)) - d["B"]  # d g_theta / d x
    Gx = d["Q"] @ x + d["R"] @ theta + d["M"] @ y - cross.T @ v
    return theta, v, Gx, d["M"].T @ x + d["P"].T @ theta + d["b"] - d["n"] * y


def best_y(d, x, mu, y0):
    """argmax over Y of L(x, .) - mu/2 |. - y0|^2, coordinate by coordinate (mu + n > 0)."""
    slope = d["M"].T @ x + d["P"].T @ theta_star(d, x) + d["b"]
    return jnp.clip((slope + mu * y0) / (d["n"] + mu), -1, 1)


def regularised_value(d, x, mu, y0):
    y = best_y(d, x, mu, y0)
    return upper(x, theta_star(d, x), y, d) - 0.5 * mu * jnp.sum((y - y0) ** 2)


def _run(method_name, data, start, half, steps, count):
    problem = bs.Problem(upper, lower, bs.sets.Box(-half, half), bs.sets.Box(-1.0, 1.0), data)
    method = getattr(bs.methods, method_name)(bs.StepSizes(**steps))
    state = method.init(problem, bs.Point(**start))
    gamma, mu, sigma, y0 = steps["gamma"], steps["mu"], steps["sigma"], start["y"]
    size = jnp.linalg.norm

    def step(state, _):
        x, theta, y = state.x, state.theta, state.y
        after = method.step(problem, state)
        theta_x, v, grad_x, grad_y = exact(data, x, y)
        Gx = data["Q"] @ x + data["R"] @ theta + data["M"] @ y
        Gx = Gx - (jnp.outer(data["A1"] @ theta, jnp.zeros(N).at[0].set(1.0)) - data["B"]).T @ after.w
        best, best_after = best_y(data, x, mu, y0), best_y(data, after.x, mu, y0)
        Gy = data["M"].T @ x + data["P"].T @ theta + data["b"] - data["n"] * y - mu * (y - y0)
        moved_y = jnp.clip(y + sigma * grad_y, -1, 1)
        seen = {
            "A": size(after.x - x) / gamma,
            "theta": size(theta - theta_x),
            "w": size(after.w - v),
            "w_old": size(state.w - v),
            "y": size(y - best),
            "y_to_new": size(y - best_after),
            "y_step": size(after.y - y),
            "y_after": size(after.y - best_after),
            "theta_step": size(after.theta - theta),
            "Gx_error": size(grad_x - Gx),
            "Gy_error": size(grad_y - Gy),
            "M": jnp.maximum(size(Gx), size(grad_x)),
            "y_gap": size(y - moved_y) / sigma,
            "lmo_gap": grad_x @ x + half * jnp.sum(jnp.abs(grad_x)),
            "value": regularised_value(data, x, mu, y0),
        }
        if method_name == "FullyProjected":
            tau = steps["tau"]
            seen["x_gap"] = size(x - jnp.clip(x - tau * grad_x, -half, half)) / tau
        return after, seen

    last, seen = lax.scan(step, state, None, count)
    return seen | {"last_value": regularised_value(data, last.x, mu, y0)}


def runs(method_name, problems, steps, count):
    """Everything the lemmas speak of, along runs of `count` steps, for a list of (data, start, half) at once."""
    stack = lambda trees: jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)
    data, starts, halves = (stack(part) for part in zip(*problems, strict=True))
    seen = _batched(method_name, count)(data, starts, halves, stack(steps))
    return jax.tree.map(np.asarray, seen)


_COMPILED = {}


def _batched(method_name, count):
    if (method_name, count) not in _COMPILED:
        one = lambda data, start, half, steps: _run(method_name, data, start, half, steps, count)
        _COMPILED[method_name, count] = jax.jit(jax.vmap(one))
    return _COMPILED[method_name, count]


def random_steps(rng, known, method):
    """Steps that the theorems allow, from timid to bold."""
    limit = 2 / (float(known.mu_g) + float(known.L_g))
    mu = 10.0 ** rng.uniform(-2, 0.5)
    sigma = 2 / (float(known.L_yy) + 2 * mu) * rng.choice([1.0, rng.uniform(0.1, 1)])
    gamma, eta = 10.0 ** rng.uniform(-3, 0), limit * rng.choice([1.0, rng.uniform(0.2, 1)])
    steps = {"alpha": limit, "eta": eta, "gamma": gamma, "sigma": sigma, "mu": mu}
    return steps | ({"tau": 10.0 ** rng.uniform(-2, 0.3)} if method == "fp" else {})
