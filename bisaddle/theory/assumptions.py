"""check_assumptions: evidence for or against each assumption, from samples, with a witness where one fails  [AYH25]."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.oracle.validate import check_key, check_problem_at, require_whole
from bisaddle.problem import Point, Problem
from bisaddle.theory.norms import derivative_norms, operator_norm, unit
from bisaddle.theory.sampling import Samples, bare, diameters, pick, sampled
from bisaddle.theory.spectrum import lower_ends, lower_spectrum, upper_ends

# a derivative that grows by more than this when theta goes ten times as far is not Lipschitz over all theta
GROWTH = 3.0
FAR = (0.0, 1.0, 10.0, 100.0)
STRONGLY_CONVEX = "2.2 g strongly convex in theta"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One assumption: verdict is "supported", "fails" or "bounded theta only"; witness, where it fails."""

    assumption: str
    verdict: str
    evidence: str
    witness: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class AssumptionReport:
    """The findings. Samples can refute an assumption, never prove it: ok means that none was refuted."""

    findings: tuple[Finding, ...]
    samples: int

    @property
    def failed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.verdict == "fails")

    @property
    def ok(self) -> bool:
        return not self.failed

    def __str__(self) -> str:
        lines = [f"assumptions on {self.samples} sampled points:"]
        for finding in self.findings:
            lines.append(f"  {finding.verdict:18}  {finding.assumption}: {finding.evidence}")
            for name, value in (finding.witness or {}).items():
                lines.append(f"{'':22}{name} = {_shown(value)}")
        return "\n".join(lines)


def check_assumptions(problem: Problem, key: Array, point: Point, *, samples: int | np.integer = 8) -> AssumptionReport:
    """Assumptions 2.1-2.4 tried at `samples` points of X x Y, half of them extreme points  [AYH25].

        finite values        f, g and their gradients at every sample
        2.1 concavity        <f_y(y) - f_y(y'), y - y'> <= 0 for sampled pairs, and along the least curvature of -f_yy
        2.1, 2.2 Lipschitz   norms of the derivatives; do they grow when theta is moved ten and a hundred times as far?
        2.2 strong convexity smallest eigenvalue of g_theta_theta (Lanczos, over corners of X too)
        2.3 |f_theta|        at theta*(x)
        2.4 compact sets     diameters

    point fixes the shapes, and where theta starts. A finding that fails comes with its witness.
    """
    check_problem_at(problem, point)
    check_key(key)
    samples = require_whole("samples", samples, 2)
    return AssumptionReport(tuple(_findings(bare(problem), key, point, samples, quick=False)), samples)


def quick_check(problem: Problem, point: Point) -> AssumptionReport:
    """The cheap form that solve(..., check=True) runs: finite values, curvature of g, concavity in y, at 4 points."""
    check_problem_at(problem, point)
    return AssumptionReport(tuple(_findings(bare(problem), jax.random.key(0), point, 4, quick=True)), 4)


def _findings(problem: Problem, key: Array, point: Point, samples: int, quick: bool) -> Iterator[Finding]:
    taken = sampled(problem, key, point, samples)
    finite = _finite(problem, taken.points)
    yield finite
    if finite.verdict == "fails":  # nothing else can be computed
        return
    if problem.lower is not None:
        yield _curvature_seen(taken) if quick else _strongly_convex(taken)
    if problem.y_set is not None:
        yield _concave(problem, taken.points, key)
    if quick:
        return
    yield _lipschitz(problem, taken, key)
    if problem.lower is not None:
        yield _bounded(taken)
    yield _compact(problem, point)


@jax.jit
def _all_finite(problem: Problem, points: Point) -> Array:
    def one(p):
        values = [oracle.upper_value(problem, p.x, p.theta, p.y), *oracle.upper_gradients(problem, p.x, p.theta, p.y)]
        if problem.lower is not None:
            values += [problem.lower(p.x, p.theta, problem.data), oracle.lower_gradient(problem, p.x, p.theta)]
        return trees.all_finite((p, values))

    return lax.map(one, points)


def _finite(problem: Problem, points: Point) -> Finding:
    fine = np.asarray(_all_finite(problem, points))
    if np.all(fine):
        return Finding("finite values", "supported", "f, g and their gradients are finite at every sample")
    where = pick(points, int(np.argmin(fine)))
    evidence = f"NaN or infinity at {int(np.sum(~fine))} of {len(fine)} samples"
    return Finding("finite values", "fails", evidence, {"x": where.x, "theta": where.theta, "y": where.y})


def _strongly_convex(taken: Samples) -> Finding:
    found = lower_spectrum(taken, tolerance=1e-2)
    witness = {"x": found.mu_point.x, "theta": found.mu_point.theta, "direction": found.mu_direction}
    spent = f"{found.tried} points, {found.hvps} products"
    return _curvature(taken, found.mu_g, found.L_g, "the eigenvalue", spent, witness)


def _curvature_seen(taken: Samples) -> Finding:
    lows, highs = np.array([lower_ends(taken.kernels, x, theta) for x, theta, _ in taken.places]).T
    i = int(np.argmin(lows))
    witness = {"x": taken.point(i).x, "theta": taken.point(i).theta}
    return _curvature(taken, lows[i], np.max(highs), "an eigenvalue of at most", f"{len(lows)} points", witness)


def _curvature(taken: Samples, least: float, most: float, seen: str, spent: str, witness: dict[str, Any]) -> Finding:
    rounding = 10 * taken.kernels.theta.size**0.5 * float(jnp.finfo(taken.kernels.dtype).eps) * abs(most)
    if least > rounding:
        return Finding(STRONGLY_CONVEX, "supported", f"eigenvalues within [{least:.4g}, {most:.4g}] at {spent}")
    evidence = f"g_theta_theta has {seen} {least:.3g} (largest: {most:.3g}); add a ridge term"
    return Finding(STRONGLY_CONVEX, "fails", evidence, witness)


@jax.jit
def _bends(problem: Problem, points: Point, key: Array) -> tuple[Array, Array, PyTree, PyTree]:
    """The largest <f_y(y) - f_y(y'), y - y'> / |y - y'|^2 at each sample, the scale of f_y's changes, and its pair."""
    y_set = problem.y_set
    assert y_set is not None

    def one(arguments):
        p, key = arguments
        f_y = lambda y: oracle.upper_gradients(problem, p.x, p.theta, y)[2]
        curved = lambda e: jax.jvp(f_y, (p.y,), (e,))[1]
        most = operator_norm(curved, p.y, 12)
        # towards the direction in which f bends up most
        climb = lambda _, e: unit(trees.add_scaled(curved(e), most, e))
        direction = lax.fori_loop(0, 30, climb, trees.random_like(key, p.y))
        reach = 0.1 * y_set.diameter(p.y)
        others = [y_set.project(trees.add_scaled(p.y, sign * reach, direction)) for sign in (1.0, -1.0)]
        others.append(y_set.project(trees.add_scaled(p.y, 10 * reach, trees.random_like(key, p.y))))

        def bend(other):
            apart = trees.subtract(other, p.y)
            change = trees.subtract(f_y(other), f_y(p.y))
            square = trees.dot(apart, apart)
            safe = jnp.where(square > 0, square, jnp.inf)
            return trees.dot(change, apart) / safe, trees.norm(change) / jnp.sqrt(safe)

        bends, scales = (jnp.stack(part) for part in zip(*(bend(other) for other in others), strict=True))
        worst = jnp.argmax(bends)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *others)
        return bends[worst], jnp.maximum(jnp.max(scales), most), p.y, jax.tree.map(lambda leaf: leaf[worst], stacked)

    count = jax.tree.leaves(points)[0].shape[0]
    return lax.map(one, (points, jax.random.split(key, count)))


def _concave(problem: Problem, points: Point, key: Array) -> Finding:
    bends, scales, here, there = _bends(problem, points, key)
    bends, scales = np.asarray(bends), np.asarray(scales)
    rounding = float(jnp.sqrt(jnp.finfo(trees.dtype_of(points.y)).eps))
    i = int(np.argmax(bends))
    name = "2.1 f concave in y"
    if bends[i] > rounding * (1e-3 + scales[i]):
        where = pick(points, i)
        evidence = f"<f_y(y) - f_y(y'), y - y'> = {bends[i]:.3g} |y - y'|^2 > 0 for the pair below"
        return Finding(
            name, "fails", evidence, {"x": where.x, "theta": where.theta, "y": pick(here, i), "y'": pick(there, i)}
        )
    kind = "linear" if np.max(scales) <= rounding else "concave"
    evidence = f"{kind} along {3 * len(bends)} pairs, those of least curvature among them; curvature at most "
    return Finding(name, "supported", evidence + f"{np.max(scales):.3g}")


@jax.jit
def _norms_far_out(problem: Problem, points: Point, key: Array) -> tuple[dict[str, Array], PyTree]:
    """Norms of the derivatives with theta moved by FAR times 1 + |theta|: [sample, distance]; and those theta."""

    def one(arguments):
        p, key = arguments
        if problem.lower is None:  # there is nothing to move
            return {name: value[None] for name, value in derivative_norms(problem, p).items()}, None
        direction = trees.random_like(key, p.theta)
        one_step = trees.scale((1 + trees.norm(p.theta)) / trees.norm(direction), direction)

        def at(far):
            theta = trees.add_scaled(p.theta, far, one_step)
            return derivative_norms(problem, Point(p.x, theta, p.y)), theta

        return lax.map(at, jnp.array(FAR))

    count = jax.tree.leaves(points)[0].shape[0]
    return lax.map(one, (points, jax.random.split(key, count)))


def _lipschitz(problem: Problem, taken: Samples, key: Array) -> Finding:
    kernels = taken.kernels
    norms, thetas = jax.device_get(_norms_far_out(problem, taken.points, key))
    distances = range(len(FAR) if kernels.has_lower else 1)
    moved = [
        [(x, kernels.theta.ravel(pick(pick(thetas, i), j)), y) for j in distances]
        for i, (x, _, y) in enumerate(taken.places)
    ]
    if problem.y_set is not None:
        most = np.array([[upper_ends(kernels, *place)[1] for place in row] for row in moved])
        norms["L_yy"] = np.maximum(norms["L_yy"], most)
    if kernels.has_lower:
        norms["L_g"] = np.array([[lower_ends(kernels, x, theta)[1] for x, theta, _ in row] for row in moved])
    norms = {name: np.max(value, axis=0) for name, value in sorted(norms.items())}
    growing = [name for name, v in norms.items() if len(v) > 1 and v[3] > GROWTH * v[2] > GROWTH * v[1]]
    shown = ", ".join(f"{name} {value[0]:.3g}" for name, value in norms.items())
    name = "2.1, 2.2 Lipschitz derivatives"
    if growing:
        evidence = (
            f"{', '.join(growing)} grow with |theta|, so the constants hold on bounded sets of theta only, as the runs "
            f"stay in one (Lemma 4.1); near the start {shown}"
        )
        return Finding(name, "bounded theta only", evidence)
    return Finding(name, "supported", f"no growth far out; near the start {shown}")


def _bounded(taken: Samples) -> Finding:
    largest = float(np.max(taken.slopes))
    verdict = "supported" if np.isfinite(largest) else "fails"
    return Finding("2.3 f_theta bounded", verdict, f"largest |f_theta(x, theta*(x), y)| met: {largest:.3g}")


def _compact(problem: Problem, point: Point) -> Finding:
    found = diameters(problem, point)
    fine = all(np.isfinite(value) for value in found.values())
    evidence = ", ".join(f"{name} = {value:.4g}" for name, value in found.items())
    return Finding("2.4 compact sets", "supported" if fine else "fails", evidence)


def _shown(value: PyTree) -> str:
    shown = jax.tree.map(lambda a: np.array2string(np.asarray(a), precision=4, threshold=8), value)
    return str(shown).replace("'", "").replace("\n", "")
