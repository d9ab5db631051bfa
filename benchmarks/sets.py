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
import sets_by_hand as by_hand
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


def common_rows(v: np.ndarray) -> dict[str, tuple]:
    """The sets that optax and JAXopt have too: (ours, {projection alternatives}, {linear minimisation alternatives})"""
    from_jaxopt = lambda function: {} if jp is None else {"jaxopt": compiled(function, v)}
    simplex = {"optax": compiled(op.projection_simplex, v), "numpy": lambda: by_hand.numpy_simplex(v)}
    return {
        "Simplex": (
            sets.Simplex(),
            simplex | from_jaxopt(lambda v: jp.projection_simplex(v)),
            {"numpy": lambda: by_hand.numpy_vertex(v)},
        ),
        "UnitSimplex": (sets.UnitSimplex(), simplex, {"numpy": lambda: by_hand.numpy_vertex(v)}),
        "L1Ball": (
            sets.L1Ball(1.0),
            {"optax": compiled(lambda v: op.projection_l1_ball(v, 1.0), v), "numpy": lambda: by_hand.numpy_l1(v)}
            | from_jaxopt(lambda v: jp.projection_l1_ball(v, 1.0)),
            {"numpy": lambda: by_hand.numpy_l1_vertex(v)},
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
    }


def vector_rows(n: int, rng: np.random.Generator) -> dict[str, tuple]:
    """set: (ours, v, {projection alternatives}, {linear minimisation alternatives})"""
    v, values = rng.normal(size=n), rng.normal(size=n)
    q, w = rng.uniform(0.5, 1.5, n), rng.uniform(0.5, 1.5, n)
    q /= q.sum()
    cap, width = 4.0 / n, 10
    starts, ascending, descending = np.arange(0, n, width), np.sort(values), np.sort(w)[::-1].copy()
    section = {}
    if jp is not None and n <= 10_000:
        parameters = (jnp.zeros(n), jnp.full(n, cap), jnp.ones(n), 1.0)
        section = {"jaxopt": compiled(lambda v: jp.projection_box_section(v, parameters, check_feasible=False), v)}
    rows = common_rows(v) | {
        "LpBall(1.5)": (sets.LpBall(1.5, 1.0), {}, {"numpy": lambda: -np.sign(v) * (v / np.sum(v**3)) ** 2}),
        "WeightedL1Ball": (
            sets.WeightedL1Ball(w, 1.0),
            {"scipy": lambda: by_hand.numpy_weighted_l1(v, w)},
            {"numpy": lambda: by_hand.numpy_l1_vertex(v / w)},
        ),
        "CappedSimplex": (
            sets.CappedSimplex(cap),
            {**section, "scipy": lambda: by_hand.numpy_capped(v, cap)},
            {"numpy": lambda: by_hand.numpy_fill(v, cap, 1.0)},
        ),
        "HyperSimplex": (
            sets.HyperSimplex(n // 4),
            {"scipy": lambda: by_hand.numpy_capped(v, 1.0, n // 4)},
            {"numpy": lambda: by_hand.numpy_fill(v, 1.0, n // 4)},
        ),
        "HyperplaneBox": (
            sets.HyperplaneBox(w, 0.0, -1.0, 1.0),
            {"scipy": lambda: by_hand.numpy_section(v, w)},
            {"numpy": lambda: by_hand.numpy_fill(v / w, 2 * w, w.sum()) / w - 1},
        ),
        "Ellipsoid": (
            sets.Ellipsoid(w),
            {"scipy": lambda: by_hand.numpy_ellipsoid(v, w)},
            {"numpy": lambda: -(w**2) * v / np.linalg.norm(w * v)},
        ),
        "GroupBall": (
            sets.GroupBall(np.arange(n) // width, 1.0),
            {"numpy": lambda: by_hand.numpy_groups(v, starts, width)},
            {"numpy": lambda: by_hand.numpy_group_vertex(v, starts, width)},
        ),
        "Permutahedron": (
            sets.Permutahedron(values),
            {"scipy": lambda: by_hand.numpy_permutahedron(v, values)},
            {"numpy": lambda: ascending[np.argsort(np.argsort(-v))]},
        ),
        "OrderedWeightedL1Ball": (
            sets.OrderedWeightedL1Ball(descending, 1.0),
            {},
            {"numpy": lambda: by_hand.numpy_ordered_vertex(v, descending)},
        ),
        "KLBall": (sets.KLBall(q, 0.1), {}, {"scipy": lambda: by_hand.numpy_kl_tilt(v, q, 0.1)}),
        "ChiSquareBall": (sets.ChiSquareBall(q, 0.1), {}, {}),
        "TVBall": (sets.TVBall(q, 0.1), {}, {"numpy": lambda: by_hand.numpy_tv_vertex(v, q, 0.1)}),
        "CVaRSet": (
            sets.CVaRSet(0.75),
            {"scipy": lambda: by_hand.numpy_capped(v, cap)},
            {"numpy": lambda: by_hand.numpy_fill(v, cap, 1.0)},
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
            {"numpy.linalg.svd": lambda v=v: by_hand.numpy_nuclear(v)},
            {"svds": lambda v=v: by_hand.svds_vertex(v)},
        )
        rows[f"Spectrahedron{words}"] = (
            sets.Spectrahedron(1.0),
            symmetric(v),
            {"numpy.linalg.eigh": lambda v=v: by_hand.numpy_spectrahedron(symmetric(v))},
            {"eigsh": lambda v=v: by_hand.eigsh_vertex(symmetric(v))},
        )
    if n <= 1000:
        svd = {"numpy.linalg.svd": lambda: np.linalg.svd(noise, full_matrices=False)}
        rows["SpectralBall"] = (sets.SpectralBall(1.0), noise, svd, svd)
        rows["SchattenBall(3)"] = (sets.SchattenBall(3, 1.0), noise, svd, svd)
        rows["Fantope(5)"] = (
            sets.Fantope(5),
            symmetric(noise),
            {"numpy.linalg.eigh": lambda: by_hand.numpy_fantope(symmetric(noise), 5)},
            {"numpy.linalg.eigh": lambda: by_hand.numpy_fantope_vertex(symmetric(noise), 5)},
        )
        rows["BirkhoffPolytope"] = (sets.BirkhoffPolytope(), noise, {}, {"scipy": lambda: by_hand.hungarian(noise)})
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
            {"HiGHS": lambda: by_hand.linear_program(v, A, b)},
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
