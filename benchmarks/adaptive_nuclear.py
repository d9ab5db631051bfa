"""Worst-task regression with a shared low-rank map: x is a matrix in a nuclear ball. And the check of a point."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from adaptive_dense import onto_l1, onto_simplex

import bisaddle as bs

# rows of x (what is known of a task), columns (what a task's weights are), tasks, radius beside the truth's norm: small
# enough that no x fits all tasks
SIZES = {"30 x 12": (30, 12, 25, 0.5), "60 x 30": (60, 30, 40, 0.5), "300 x 200": (300, 200, 20, 0.1)}


def upper(x, theta, y, d):
    """sum_i y_i (theta_i' V_i theta_i / 2 - v_i' theta_i + c_i)"""
    quadratic = jnp.einsum("ta,tab,tb->t", theta, d["V"], theta)
    return y @ (0.5 * quadratic - jnp.sum(d["v"] * theta, axis=1) + d["c"])


def lower(x, theta, d):
    """sum_i theta_i' H_i theta_i / 2 - h_i' theta_i + rho/2 |theta_i - x' p_i|^2"""
    away = theta - d["P"] @ x
    quadratic = jnp.einsum("ta,tab,tb->", theta, d["H"], theta)
    return 0.5 * quadratic - jnp.sum(d["h"] * theta) + 0.5 * d["rho"] * jnp.sum(away**2)


def make(size: str, rho: float, seed: int, radius: float | None = None):
    """(problem, start, check). The truth has rank 3; tasks have fewer rows than weights, so that x matters."""
    m, n, T, share = SIZES[size]
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(m, 3)) @ rng.normal(size=(3, n)) / np.sqrt(3 * n)
    d = tasks(truth, T, rho, rng)
    if radius is None:
        radius = share * float(np.linalg.svd(truth, compute_uv=False).sum())
    return *posed(d, bs.sets.NuclearBall(radius), np.zeros((m, n))), Check(d, radius)


def tasks(truth: np.ndarray, T: int, rho: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Rows of T tasks whose weights are truth' p_i and a little more, as the matrices that f and g are made of."""
    m, n = truth.shape
    P = rng.normal(size=(T, m)) / np.sqrt(m)
    rows = max(4, n // 2)
    d: dict[str, np.ndarray] = {"P": P, "rho": np.array(rho)}
    parts = {name: [] for name in ("H", "h", "V", "v", "c")}
    for i in range(T):
        weights = truth.T @ P[i] + 0.1 * rng.normal(size=n) / np.sqrt(n)
        noise = 0.05 + 0.2 * rng.uniform()
        (A, b), (B, c) = ((M, M @ weights + noise * rng.normal(size=len(M))) for M in rng.normal(size=(2, rows, n)))
        parts["H"].append(A.T @ A / rows)
        parts["h"].append(A.T @ b / rows)
        parts["V"].append(B.T @ B / rows)
        parts["v"].append(B.T @ c / rows)
        parts["c"].append(0.5 * c @ c / rows)
    return d | {name: np.stack(part) for name, part in parts.items()}


def posed(d: dict[str, np.ndarray], x_set: bs.sets.ConvexSet, x: np.ndarray) -> tuple[bs.Problem, bs.Point]:
    T, n = d["h"].shape
    data = {name: jnp.asarray(part) for name, part in d.items()}
    problem = bs.Problem(upper, lower, x_set, bs.sets.Simplex(), data, bs.Constants(mu_g=d["rho"]))
    return problem, bs.Point(x=jnp.asarray(x), theta=jnp.zeros((T, n)), y=jnp.full(T, 1 / T))


class Check(NamedTuple):
    """The gap in NumPy, by dense solves a task and a full SVD."""

    d: dict[str, np.ndarray]
    radius: float

    def gradients(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        d, rho = self.d, float(self.d["rho"])
        hessians = d["H"] + rho * np.eye(x.shape[1])
        theta = np.linalg.solve(hessians, (d["h"] + rho * d["P"] @ x)[..., None])[..., 0]
        slopes = np.einsum("tab,tb->ta", d["V"], theta) - d["v"]
        w = np.linalg.solve(hessians, (y[:, None] * slopes)[..., None])[..., 0]
        losses = np.sum((0.5 * (slopes - d["v"])) * theta, axis=1) + d["c"]
        return rho * d["P"].T @ w, losses

    def onto_ball(self, v: np.ndarray) -> np.ndarray:
        u, s, w = np.linalg.svd(v, full_matrices=False)
        return (u * onto_l1(s, self.radius)) @ w

    def __call__(self, point) -> float:
        """The projection gap, sigma = tau = 1, and how far x and y are outside."""
        x, y = np.asarray(point.x), np.asarray(point.y)
        Gx, Gy = self.gradients(x, y)
        gap = np.linalg.norm(x - self.onto_ball(x - Gx)) + np.linalg.norm(y - onto_simplex(y + Gy))
        return float(max(gap, self.outside(x, y)))

    def outside(self, x: np.ndarray, y: np.ndarray) -> float:
        return max(np.linalg.svd(x, compute_uv=False).sum() - self.radius, np.linalg.norm(y - onto_simplex(y)))

    def lmo_gap(self, point) -> float:
        """The Frank-Wolfe gap in x plus the gap in y, and how far x and y are outside."""
        x, y = np.asarray(point.x), np.asarray(point.y)
        Gx, Gy = self.gradients(x, y)
        largest = np.linalg.svd(Gx, compute_uv=False)[0]
        gap = np.sum(Gx * x) + self.radius * largest + np.linalg.norm(y - onto_simplex(y + Gy))
        return float(max(gap, self.outside(x, y)))
