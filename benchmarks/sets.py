"""Every oracle of the sets against the best alternative that can be installed; ratios within one process, float64.

    python benchmarks/sets.py [--quick] [--only NAME ...]

Vectors have 1e2, 1e4, 1e6 entries, matrices side 100, 1000, 3000 (--quick leaves the largest out). Ours, optax and
jaxopt are timed as compiled calls from Python, without compilation, NumPy and SciPy as they are. "in a loop" is a call
inside a compiled loop, as the methods make it, without the 6 us or so that any call of JAX from Python costs. Ratios
are ours / alternative, per call and, in brackets, in a loop; below 1 ours is faster. A star marks what is above 1.2 in
both, at 1e4 entries and beyond.
Projection and linear minimisation stand side by side: their ratio shows where projection-free methods pay.
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
import scipy.optimize
import scipy.sparse.linalg
from jax import lax

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


def compiled(function: Callable, *arguments) -> Callable[[], Any]:
    run, on_device = jax.jit(function), jax.tree.map(jnp.asarray, arguments)
    return lambda: jax.block_until_ready(run(*on_device))


def in_a_loop(function: Callable, convex_set, v: np.ndarray, times: int = 20) -> float:
    """Seconds of a call inside a compiled loop; one entry of v changes at a time, so that every call is made."""

    def loop(convex_set, v):
        def body(i, carry):
            v = carry[0].at[(0,) * axes].add(1e-3 * i)
            return v, function(convex_set, v)

        return lax.fori_loop(0, times, body, (v, v))

    axes = v.ndim
    return best_seconds(compiled(loop, convex_set, v)) / times


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


def numpy_capped(v: np.ndarray, cap: float, total: float = 1.0) -> np.ndarray:
    excess = lambda t: np.clip(v - t, 0, cap).sum() - total
    return np.clip(v - scipy.optimize.brentq(excess, v.min() - cap, v.max(), xtol=1e-15), 0, cap)


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


def root(excess: Callable[[float], float], low: float, high: float) -> float:
    return scipy.optimize.brentq(excess, low, high, xtol=1e-15)


def numpy_weighted_l1(v: np.ndarray, w: np.ndarray) -> np.ndarray:
    shrunk = lambda t: np.maximum(np.abs(v) - t * w, 0)
    return np.sign(v) * shrunk(root(lambda t: w @ shrunk(t) - 1, 0, np.max(np.abs(v) / w)))


def numpy_section(v: np.ndarray, normal: np.ndarray) -> np.ndarray:
    clipped = lambda t: np.clip(v - t * normal, -1, 1)
    far = np.max((np.abs(v) + 1) / np.abs(normal))
    return clipped(root(lambda t: normal @ clipped(t), -far, far))


def numpy_ellipsoid(v: np.ndarray, axes: np.ndarray) -> np.ndarray:
    shrunk = lambda t: v * axes**2 / (axes**2 + t)
    outside = lambda t: np.sum((shrunk(t) / axes) ** 2) - 1
    return shrunk(root(outside, 0, np.linalg.norm(v) * axes.max()))


def numpy_groups(v: np.ndarray, starts: np.ndarray, width: int) -> np.ndarray:
    lengths = np.sqrt(np.add.reduceat(v * v, starts))
    return v * np.repeat(numpy_l1(lengths) / lengths, width)


def numpy_group_vertex(d: np.ndarray, starts: np.ndarray, width: int) -> np.ndarray:
    squares = np.add.reduceat(d * d, starts)
    first = starts[np.argmax(squares)]
    vertex = np.zeros_like(d)
    vertex[first : first + width] = -d[first : first + width] / np.sqrt(np.max(squares))
    return vertex


def numpy_ordered_vertex(d: np.ndarray, weights: np.ndarray) -> np.ndarray:
    order, totals = np.argsort(-np.abs(d)), np.cumsum(weights)
    last = np.argmax(np.cumsum(np.abs(d)[order]) / totals)
    vertex = np.zeros_like(d)
    vertex[order[: last + 1]] = -np.sign(d[order[: last + 1]]) / totals[last]
    return vertex


def numpy_fantope(v: np.ndarray, k: int) -> np.ndarray:
    values, vectors = np.linalg.eigh(v)
    return (vectors * numpy_capped(values, 1.0, k)) @ vectors.T


def numpy_fantope_vertex(d: np.ndarray, k: int) -> np.ndarray:
    vectors = np.linalg.eigh(d)[1][:, :k]
    return vectors @ vectors.T


def numpy_tv_vertex(d: np.ndarray, q: np.ndarray, radius: float) -> np.ndarray:
    order = np.argsort(-d)
    leaving = np.clip(radius - (np.cumsum(q[order]) - q[order]), 0, q[order])
    p = q.copy()
    p[order] -= leaving
    p[order[-1]] += leaving.sum()
    return p


def numpy_fill(d: np.ndarray, cap: np.ndarray | float, total: float) -> np.ndarray:
    order = np.argsort(d)
    caps = np.broadcast_to(cap, d.shape)[order]
    answer = np.empty_like(d)
    answer[order] = np.clip(total - (np.cumsum(caps) - caps), 0, caps)
    return answer


def linear_program(d: np.ndarray, A: np.ndarray, b: np.ndarray) -> np.ndarray:
    return scipy.optimize.linprog(d, A_ub=A, b_ub=b, bounds=(-1, 1), method="highs").x


def vector_rows(n: int, rng: np.random.Generator) -> dict[str, tuple]:
    """set: (ours, v, {projection alternatives}, {linear minimisation alternatives})"""
    v, values = rng.normal(size=n), rng.normal(size=n)
    q, w = rng.uniform(0.5, 1.5, n), rng.uniform(0.5, 1.5, n)
    q /= q.sum()
    cap, width = 4.0 / n, 10
    starts, ascending, descending = np.arange(0, n, width), np.sort(values), np.sort(w)[::-1].copy()
    from_jaxopt = lambda function: {} if jp is None else {"jaxopt": compiled(function, v)}
    section = {}
    if jp is not None and n <= 10_000:
        parameters = (jnp.zeros(n), jnp.full(n, cap), jnp.ones(n), 1.0)
        section = {"jaxopt": compiled(lambda v: jp.projection_box_section(v, parameters, check_feasible=False), v)}
    simplex = {"optax": compiled(op.projection_simplex, v), "numpy": lambda: numpy_simplex(v)}
    rows = {
        "Simplex": (
            sets.Simplex(),
            simplex | from_jaxopt(lambda v: jp.projection_simplex(v)),
            {"numpy": lambda: numpy_vertex(v)},
        ),
        "UnitSimplex": (sets.UnitSimplex(), simplex, {"numpy": lambda: numpy_vertex(v)}),
        "L1Ball": (
            sets.L1Ball(1.0),
            {"optax": compiled(lambda v: op.projection_l1_ball(v, 1.0), v), "numpy": lambda: numpy_l1(v)}
            | from_jaxopt(lambda v: jp.projection_l1_ball(v, 1.0)),
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
        "LpBall(1.5)": (sets.LpBall(1.5, 1.0), {}, {"numpy": lambda: -np.sign(v) * (v / np.sum(v**3)) ** 2}),
        "WeightedL1Ball": (
            sets.WeightedL1Ball(w, 1.0),
            {"scipy": lambda: numpy_weighted_l1(v, w)},
            {"numpy": lambda: numpy_l1_vertex(v / w)},
        ),
        "CappedSimplex": (
            sets.CappedSimplex(cap),
            {**section, "scipy": lambda: numpy_capped(v, cap)},
            {"numpy": lambda: numpy_fill(v, cap, 1.0)},
        ),
        "HyperSimplex": (
            sets.HyperSimplex(n // 4),
            {"scipy": lambda: numpy_capped(v, 1.0, n // 4)},
            {"numpy": lambda: numpy_fill(v, 1.0, n // 4)},
        ),
        "HyperplaneBox": (
            sets.HyperplaneBox(w, 0.0, -1.0, 1.0),
            {"scipy": lambda: numpy_section(v, w)},
            {"numpy": lambda: numpy_fill(v / w, 2 * w, w.sum()) / w - 1},
        ),
        "Ellipsoid": (
            sets.Ellipsoid(w),
            {"scipy": lambda: numpy_ellipsoid(v, w)},
            {"numpy": lambda: -(w**2) * v / np.linalg.norm(w * v)},
        ),
        "GroupBall": (
            sets.GroupBall(np.arange(n) // width, 1.0),
            {"numpy": lambda: numpy_groups(v, starts, width)},
            {"numpy": lambda: numpy_group_vertex(v, starts, width)},
        ),
        "Permutahedron": (
            sets.Permutahedron(values),
            {"scipy": lambda: numpy_permutahedron(v, values)},
            {"numpy": lambda: ascending[np.argsort(np.argsort(-v))]},
        ),
        "OrderedWeightedL1Ball": (
            sets.OrderedWeightedL1Ball(descending, 1.0),
            {},
            {"numpy": lambda: numpy_ordered_vertex(v, descending)},
        ),
        "KLBall": (sets.KLBall(q, 0.1), {}, {"scipy": lambda: numpy_kl_tilt(v, q, 0.1)}),
        "ChiSquareBall": (sets.ChiSquareBall(q, 0.1), {}, {}),
        "TVBall": (sets.TVBall(q, 0.1), {}, {"numpy": lambda: numpy_tv_vertex(v, q, 0.1)}),
        "CVaRSet": (
            sets.CVaRSet(0.75),
            {"scipy": lambda: numpy_capped(v, cap)},
            {"numpy": lambda: numpy_fill(v, cap, 1.0)},
        ),
    }
    return {name: (ours, v, *others) for name, (ours, *others) in rows.items()}


def matrix_rows(n: int, rng: np.random.Generator) -> dict[str, tuple]:
    noise = rng.normal(size=(n, n))
    low = noise + rng.normal(size=(n, 5)) @ rng.normal(size=(5, n))
    symmetric = lambda a: 0.5 * (a + a.T)
    rows = {}
    for words, v in (("", low), (", Gaussian", noise)):
        rows[f"NuclearBall{words}"] = (
            sets.NuclearBall(1.0),
            v,
            {"numpy.linalg.svd": lambda v=v: numpy_nuclear(v)},
            {"svds": lambda v=v: svds_vertex(v)},
        )
        rows[f"Spectrahedron{words}"] = (
            sets.Spectrahedron(1.0),
            symmetric(v),
            {"numpy.linalg.eigh": lambda v=v: numpy_spectrahedron(symmetric(v))},
            {"eigsh": lambda v=v: eigsh_vertex(symmetric(v))},
        )
    if n <= 1000:
        svd = {"numpy.linalg.svd": lambda: np.linalg.svd(noise, full_matrices=False)}
        rows["SpectralBall"] = (sets.SpectralBall(1.0), noise, svd, svd)
        rows["SchattenBall(3)"] = (sets.SchattenBall(3, 1.0), noise, svd, svd)
        rows["Fantope(5)"] = (
            sets.Fantope(5),
            symmetric(noise),
            {"numpy.linalg.eigh": lambda: numpy_fantope(symmetric(noise), 5)},
            {"numpy.linalg.eigh": lambda: numpy_fantope_vertex(symmetric(noise), 5)},
        )
        rows["BirkhoffPolytope"] = (sets.BirkhoffPolytope(), noise, {}, {"scipy": lambda: hungarian(noise)})
    return rows


def general_rows(rng: np.random.Generator) -> dict[str, tuple]:
    vertices, v = rng.normal(size=(200, 50)), 3 * rng.normal(size=50)
    A = rng.normal(size=(40, 50))
    b = np.ones(40)
    stacked, target = np.vstack([vertices.T, 1e4 * np.ones(200)]), np.append(v, 1e4)
    return {
        "ConvexHull": (
            sets.ConvexHull(vertices),
            v,
            {"scipy nnls": lambda: scipy.optimize.nnls(stacked, target)},
            {"numpy": lambda: vertices[np.argmin(vertices @ v)]},
        ),
        "Polyhedron": (
            sets.Polyhedron(A, b, lower=-1.0, upper=1.0),
            v,
            {},
            {"HiGHS": lambda: linear_program(v, A, b)},
        ),
    }


def ratios(call: float, loop: float | None, others: dict[str, Callable], large: bool) -> str:
    """ours / alternative by the call, in brackets in a loop; a star where neither is within 1.2."""
    if not others:
        return "-"
    seconds = {who: best_seconds(other) for who, other in others.items()}
    star = "*" if large and min(call, loop or call) > 1.2 * min(seconds.values()) else ""
    words = [f"{who} {call / t:.2f}" + ("" if loop is None else f" ({loop / t:.2f})") for who, t in seconds.items()]
    return ", ".join(words) + star


def report(title: str, rows: dict[str, tuple], only: list[str], large: bool = False) -> None:
    rows = {name: row for name, row in rows.items() if not only or name.split("(")[0].split(",")[0] in only}
    if not rows:
        return
    print(f"\n{title}\n  {'':24}{'projection':>12}{'in a loop':>12}{'LMO':>12}{'in a loop':>12}{'proj / LMO':>12}")
    for name, (ours, v, *alternatives) in rows.items():
        calls = [lambda s, v: s.project(v), lambda s, v: s.lmo(v)]
        times = [best_seconds(compiled(call, ours, v)) for call in calls]
        loops = [in_a_loop(call, ours, v) if v.size <= 10_000 else None for call in calls]
        cells = [
            f"{1e3 * a:9.3f} ms" + ("           -" if b is None else f"{1e3 * b:9.3f} ms")
            for a, b in zip(times, loops, strict=True)
        ]
        print(f"  {name:24}{''.join(cells)}{times[0] / times[1]:12.1f}", end="", flush=True)
        notes = [ratios(*row, large) for row in zip(times, loops, alternatives, strict=True)]
        print(f"   {notes[0]};  {notes[1]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave the largest sizes out")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these sets alone")
    options = parser.parse_args()
    quick, only = options.quick, options.only
    rng = np.random.default_rng(0)
    for n in (100, 10_000) if quick else (100, 10_000, 1_000_000):
        report(f"vectors of {n} entries", vector_rows(n, rng), only, n >= 10_000)
    for n in (100, 1000) if quick else (100, 1000, 3000):
        report(f"matrices, {n} x {n}, of rank 5 and noise unless it says Gaussian", matrix_rows(n, rng), only, n >= 100)
    report("polytopes in 50 dimensions", general_rows(rng), only)


if __name__ == "__main__":
    main()
