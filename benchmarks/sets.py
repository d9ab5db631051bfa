"""Every oracle of the common sets against the best alternative installable here; ratios within one process, float64.

    python benchmarks/sets.py [--quick]

Vectors of 1e2, 1e4, 1e6 entries, matrices of side 100, 1000, 3000 (--quick leaves the largest out). Ours is timed as a
compiled call, compilation left out; optax and jaxopt likewise; NumPy and SciPy as they are. A ratio below 1 means that
ours is faster. Projection and linear minimisation stand side by side: their ratio is where projection-free pays.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax.projections as op
import scipy.linalg
import scipy.optimize
import scipy.sparse.linalg

from bisaddle import sets

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it announces the end of its maintenance
        import jaxopt.projection as jp
except ImportError:
    jp = None

jax.config.update("jax_enable_x64", True)
SECONDS_A_ROW = 0.4


def best_seconds(call: Callable[[], Any], repeats: int = 30) -> float:
    """The least time of a call, over as many as fit in SECONDS_A_ROW (at least two)."""
    call()
    times = []
    while len(times) < 2 or (sum(times) < SECONDS_A_ROW and len(times) < repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
        if times[0] > 5:
            break
    return min(times)


def compiled(function: Callable, v: np.ndarray) -> Callable[[], Any]:
    run, on_device = jax.jit(function), jnp.asarray(v)
    return lambda: jax.block_until_ready(run(on_device))


def numpy_simplex(v: np.ndarray, radius: float = 1.0) -> np.ndarray:
    descending = np.sort(v)[::-1]
    thresholds = (np.cumsum(descending) - radius) / np.arange(1, v.size + 1)
    return np.maximum(v - thresholds[np.count_nonzero(descending > thresholds) - 1], 0)


def numpy_l1(v: np.ndarray, radius: float = 1.0) -> np.ndarray:
    return v if np.abs(v).sum() <= radius else np.sign(v) * numpy_simplex(np.abs(v), radius)


def numpy_vertex(d: np.ndarray) -> np.ndarray:
    vertex = np.zeros_like(d)
    vertex[np.argmin(d)] = 1.0
    return vertex


def numpy_l1_vertex(d: np.ndarray) -> np.ndarray:
    vertex = np.zeros_like(d)
    best = np.argmax(np.abs(d))
    vertex[best] = -np.sign(d[best])
    return vertex


def numpy_capped(v: np.ndarray, cap: float) -> np.ndarray:
    excess = lambda t: np.clip(v - t, 0, cap).sum() - 1.0
    return np.clip(v - scipy.optimize.brentq(excess, v.min() - 1, v.max(), xtol=1e-15), 0, cap)


def numpy_permutahedron(v: np.ndarray, values: np.ndarray) -> np.ndarray:
    order = np.argsort(-v)
    fitted = scipy.optimize.isotonic_regression(v[order] - np.sort(values)[::-1], increasing=False).x
    answer = np.empty_like(v)
    answer[order] = v[order] - fitted
    return answer


def numpy_kl_tilt(d: np.ndarray, q: np.ndarray, radius: float) -> np.ndarray:
    def tilted(t):
        weights = q * np.exp(-(d - d.min()) * t)
        return weights / weights.sum()

    def excess(t):
        p = tilted(t)
        return np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p / q, 1)), 0)) - radius

    high = 1.0
    while excess(high) < 0 and high < 1e12:
        high *= 2
    return tilted(scipy.optimize.brentq(excess, 0, high, xtol=1e-15))


def numpy_nuclear(v: np.ndarray) -> np.ndarray:
    u, s, w = np.linalg.svd(v, full_matrices=False)
    return (u * numpy_l1(s)) @ w


def numpy_spectrahedron(v: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(0.5 * (v + v.T))
    return (vectors * numpy_simplex(values)) @ vectors.T


def svds_vertex(d: np.ndarray) -> np.ndarray:
    u, _, w = scipy.sparse.linalg.svds(d, k=1, tol=1e-10)
    return -np.outer(u[:, 0], w[0])


def eigsh_vertex(d: np.ndarray) -> np.ndarray:
    _, vectors = scipy.sparse.linalg.eigsh(d, k=1, which="SA", tol=1e-10)
    return np.outer(vectors[:, 0], vectors[:, 0])


def hungarian(d: np.ndarray) -> np.ndarray:
    rows, columns = scipy.optimize.linear_sum_assignment(d)
    answer = np.zeros_like(d)
    answer[rows, columns] = 1
    return answer


def vector_rows(n: int, rng: np.random.Generator) -> dict[str, tuple]:
    """set: (ours, {projection alternatives}, {linear minimisation alternatives}, v)"""
    v = rng.normal(size=n)
    q = rng.uniform(0.5, 1.5, n)
    q /= q.sum()
    values = rng.normal(size=n)
    cap = 4.0 / n
    by_jaxopt = {} if jp is None else {"jaxopt": compiled(lambda v: jp.projection_simplex(v), v)}
    l1_jaxopt = {} if jp is None else {"jaxopt": compiled(lambda v: jp.projection_l1_ball(v, 1.0), v)}
    section = {}
    if jp is not None and n <= 10_000:
        parameters = (jnp.zeros(n), jnp.full(n, cap), jnp.ones(n), 1.0)
        section = {"jaxopt": compiled(lambda v: jp.projection_box_section(v, parameters, check_feasible=False), v)}
    rows = {
        "Simplex": (
            sets.Simplex(),
            {"optax": compiled(op.projection_simplex, v), **by_jaxopt, "numpy": lambda: numpy_simplex(v)},
            {"numpy": lambda: numpy_vertex(v)},
        ),
        "L1Ball": (
            sets.L1Ball(1.0),
            {"optax": compiled(lambda v: op.projection_l1_ball(v, 1.0), v), **l1_jaxopt, "numpy": lambda: numpy_l1(v)},
            {"numpy": lambda: numpy_l1_vertex(v)},
        ),
        "L2Ball": (
            sets.L2Ball(1.0),
            {"optax": compiled(lambda v: op.projection_l2_ball(v, 1.0), v), "numpy": lambda: v / np.linalg.norm(v)},
            {"numpy": lambda: -v / np.linalg.norm(v)},
        ),
        "LinfBall": (
            sets.LinfBall(1.0),
            {"optax": compiled(lambda v: op.projection_linf_ball(v, 1.0), v), "numpy": lambda: np.clip(v, -1, 1)},
            {"numpy": lambda: -np.sign(v)},
        ),
        "Box": (
            sets.Box(0.0, 1.0),
            {"optax": compiled(lambda v: op.projection_box(v, 0.0, 1.0), v), "numpy": lambda: np.clip(v, 0, 1)},
            {"numpy": lambda: np.where(v > 0, 0.0, 1.0)},
        ),
        "CappedSimplex": (
            sets.CappedSimplex(cap),
            {**section, "scipy": lambda: numpy_capped(v, cap)},
            {"numpy": lambda: np.argsort(v)},
        ),
        "Permutahedron": (
            sets.Permutahedron(values),
            {"scipy": lambda: numpy_permutahedron(v, values)},
            {"numpy": lambda: np.sort(values)[np.argsort(np.argsort(-v))]},
        ),
        "KLBall": (sets.KLBall(q, 0.1), {}, {"scipy": lambda: numpy_kl_tilt(v, q, 0.1)}),
    }
    return {name: (*row, v) for name, row in rows.items()}


def matrix_rows(n: int, rng: np.random.Generator) -> dict[str, tuple]:
    v = rng.normal(size=(n, n))
    symmetric = 0.5 * (v + v.T)
    rows = {
        "NuclearBall": (
            sets.NuclearBall(1.0),
            {"numpy.linalg.svd": lambda: numpy_nuclear(v)},
            {"svds": lambda: svds_vertex(v), "numpy.linalg.svd": lambda: np.linalg.svd(v, full_matrices=False)},
            v,
        ),
        "SpectralBall": (sets.SpectralBall(1.0), {"numpy.linalg.svd": lambda: np.linalg.svd(v)}, {}, v),
        "Spectrahedron": (
            sets.Spectrahedron(1.0),
            {"numpy.linalg.eigh": lambda: numpy_spectrahedron(symmetric)},
            {"eigsh": lambda: eigsh_vertex(symmetric)},
            symmetric,
        ),
    }
    if n <= 1000:
        rows["BirkhoffPolytope"] = (sets.BirkhoffPolytope(), {}, {"scipy": lambda: hungarian(v)}, v)
    return rows


def report(title: str, rows: dict[str, tuple]) -> None:
    print(f"\n{title}")
    print(f"  {'set':18}{'projection':>14}{'LMO':>14}{'proj / LMO':>12}   ours / alternative (projection; LMO)")
    for name, (ours, projections, minimisers, v) in rows.items():
        times = {oracle: best_seconds(compiled(getattr(ours, oracle), v)) for oracle in ("project", "lmo")}
        notes = []
        for oracle, others in (("project", projections), ("lmo", minimisers)):
            ratios = {who: times[oracle] / best_seconds(call) for who, call in others.items()}
            notes.append(", ".join(f"{who} {ratio:.2f}" for who, ratio in ratios.items()) or "no alternative")
        print(
            f"  {name:18}{1e3 * times['project']:11.3f} ms{1e3 * times['lmo']:11.3f} ms"
            f"{times['project'] / times['lmo']:12.1f}   {notes[0]};  {notes[1]}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave the largest sizes out")
    quick = parser.parse_args().quick
    rng = np.random.default_rng(0)
    for n in (100, 10_000) if quick else (100, 10_000, 1_000_000):
        report(f"vectors of {n} entries", vector_rows(n, rng))
    for n in (100, 1000) if quick else (100, 1000, 3000):
        report(f"matrices, {n} x {n}", matrix_rows(n, rng))


if __name__ == "__main__":
    main()
