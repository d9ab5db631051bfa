"""The tuned methods of benchmarks/adaptive_compare.py: exact lower solves, step sizes by nu, eight runs at once.

Every rule gives the baseline what it could not know: the exact L_g, and with it alpha = eta = 2 / (mu_g + L_g).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from adaptive_families import Case
from jax import lax
from method_cases import K, free, full, rule

import bisaddle as bs
from bisaddle import oracle, trees
from bisaddle.methods.double_loop import conjugate_gradients
from bisaddle.run.blocks import advance

SPACING = (1, 5, 50, 50, 50, 44)  # steps between two gaps
LOOKS = 50  # gaps with each spacing: K steps in all
FLOOR = 1e-8  # a run that has met it has nothing left to show
MOST_CALLS = 62 * K  # what MORBiT with 60 terms takes; no method is given more
assert LOOKS * sum(SPACING) == K


# --- exact solves -----------------------------------------------------------------------------------------------------


def _split(problem: bs.Problem, x) -> tuple:
    """(data, lam, shared x), lam free or frozen."""
    return (*problem.data, x) if isinstance(x, jax.Array) else (problem.data, x["lam"], x["x"])


def _blocks(problem: bs.Problem, x, theta):
    """g_theta_theta of each task, lifted or logistic."""
    if isinstance(problem.data, jax.Array):
        return problem.data
    data, lam, shared = _split(problem, x)
    A, lam = data["train"], lam[:, None]
    margins = jnp.einsum("tnd,td->tn", A, lam * theta + (1 - lam) * shared)
    weights = jnp.square(lam) * jax.nn.sigmoid(margins) * jax.nn.sigmoid(-margins) / A.shape[1]
    return jnp.einsum("tni,tn,tnj->tij", A, weights, A) + data["rho"] * jnp.eye(A.shape[2])


class Exact(eqx.Module):
    """theta*(x) and products with the inverse of the lower Hessian, near rounding; theta has a row for each task.

    Regressions have g_theta_theta = lam_t^2 H_t + rho for task t: with the eigenvectors of H_t any lam is a division.
    Blocks of the other families are formed and solved with.
    """

    basis: Any = None
    values: Any = None

    def inverse(self, problem: bs.Problem, x, theta, r):
        if self.basis is None:
            return jnp.linalg.solve(_blocks(problem, x, theta), r[..., None])[..., 0]
        data, lam, _ = _split(problem, x)
        along = jnp.einsum("tij,ti->tj", self.basis, r) / (jnp.square(lam)[:, None] * self.values + data.ridge)
        return jnp.einsum("tij,tj->ti", self.basis, along)

    def solution(self, problem: bs.Problem, x, theta):
        """From any theta; for a quadratic one Newton step, and one more for its rounding."""
        gradient = lambda theta: oracle.lower_gradient(problem, x, theta)
        if self.basis is not None:
            for _ in range(2):
                theta = theta - self.inverse(problem, x, theta, gradient(theta))
            return theta

        def newton(carry):
            theta, g, size, _, count = carry
            step = self.inverse(problem, x, theta, g)

            def halved(trial):
                length = 0.5 * trial[0]
                new = gradient(theta - length * step)
                return length, new, trees.norm(new)

            shorter = lambda trial: (trial[2] > (1 - 0.1 * trial[0]) * size) & (trial[0] > 1e-4)
            length, new, new_size = lax.while_loop(shorter, halved, (jnp.full_like(size, 2.0), g, jnp.inf * size))
            better = new_size < size  # or rounding is all that is left
            pick = lambda a, b: jnp.where(better, a, b)
            return pick(theta - length * step, theta), pick(new, g), pick(new_size, size), better, count + 1

        g = gradient(theta)
        size = trees.norm(g)
        unfinished = lambda carry: (carry[2] > 1e-13) & carry[3] & (carry[4] < 50)
        return lax.while_loop(unfinished, newton, (theta, g, size, size > 0, 0))[0]

    def gradients(self, problem: bs.Problem, x, theta, y):
        """(grad_x L, grad_y L) at the exact theta*(x)."""
        theta = self.solution(problem, x, theta)
        f_x, f_theta, f_y = oracle.upper_gradients(problem, x, theta, y)
        w = self.inverse(problem, x, theta, f_theta)
        rest = trees.subtract(f_theta, oracle.hessian_product(problem, x, theta, w))
        w = trees.add_scaled(w, 1.0, self.inverse(problem, x, theta, rest))
        return trees.subtract(f_x, oracle.cross_product(problem, x, theta, w)), f_y

    def gap(self, problem: bs.Problem, x, theta, y):
        """The projection form, sigma = tau = 1."""
        Gx, f_y = self.gradients(problem, x, theta, y)
        assert problem.y_set is not None
        x_step = trees.subtract(x, problem.x_set.project(trees.subtract(x, Gx)))
        y_step = trees.subtract(y, problem.y_set.project(trees.add_scaled(y, 1.0, f_y)))
        return trees.norm(x_step) + trees.norm(y_step)


def prepared(case: Case) -> tuple[bs.Problem, bs.Point, Exact]:
    """The instance with the constants that the baselines' step sizes need, L_g and L_yy exact."""
    problem, start, *_ = case.make()
    s, exact = case.settings, Exact()
    if case.family == "logistic":
        train = (problem.data[0] if s.frozen else problem.data)["train"]
        H = 0.25 * jnp.einsum("tni,tnj->tij", train, train) / train.shape[1]
    elif case.family == "lifted":
        H = problem.data
    else:
        H = (problem.data[0] if s.frozen else problem.data).train_gram
        values, basis = np.linalg.eigh(np.asarray(H))
        exact = Exact(jnp.asarray(basis), jnp.asarray(values))
    L_g, L_yy = float(np.linalg.eigvalsh(np.asarray(H)).max()), 0.0
    if case.family != "lifted":  # lam_t^2 H_t + rho, lam at most 1, or 1/2
        L_g, L_yy = (0.25 if s.frozen else 1.0) * L_g + s.rho, s.beta * H.shape[0]
    mu_g = float(np.asarray(problem.constants.mu_g))
    constants = bs.Constants(mu_g=mu_g, L_g=max(L_g, mu_g), L_yy=L_yy)
    return eqx.tree_at(lambda p: p.constants, problem, constants), start, exact


# --- the methods ------------------------------------------------------------------------------------------------------


class Price(NamedTuple):
    """Hessian products that exact solves are counted as: for w alone, and for theta*(x) and w together.

    The fewer of d, which give the d x d blocks of all tasks at once, and of what conjugate gradients take at the start.
    """

    one: int
    two: int


@jax.jit
def _products_of_a_solve(problem: bs.Problem, start: bs.Point, exact: Exact):
    theta = exact.solution(problem, start.x, start.theta)
    rhs = oracle.upper_gradients(problem, start.x, theta, start.y)[1]
    product = lambda w: oracle.hessian_product(problem, start.x, theta, w)
    zero = trees.zeros_like(rhs)
    return conjugate_gradients(product, rhs, zero, 1e-10 * trees.norm(rhs), 10 * rhs.size)[1] - 1


def price_of(problem: bs.Problem, start: bs.Point, exact: Exact) -> Price:
    iterative, direct = int(_products_of_a_solve(problem, start, exact)), start.theta.shape[-1]
    return Price(min(direct, iterative), min(direct, 2 * iterative))


class ExactMORBiT(bs.methods.MORBiT):
    """MORBiT with Hess^-1 f_theta itself, the limit of its Neumann series; `products` are counted for it."""

    exact: Exact = eqx.field(default_factory=Exact, kw_only=True)
    products: Any = eqx.field(default=1, kw_only=True)

    def inverse_product(self, problem, x, theta, r, key):
        return self.exact.inverse(problem, x, theta, r), jnp.asarray(self.products, jnp.int32)


def _reduced_value(x, theta, y, data):
    problem, exact, start = data
    return oracle.upper_value(problem, x, exact.solution(problem, x, start), y)


def _reduced_x(x, theta, y, data):
    problem, exact, start = data
    return exact.gradients(problem, x, start, y)[0]


def _reduced_theta(x, theta, y, data):
    return None


def _reduced_y(x, theta, y, data):
    problem, exact, start = data
    return oracle.upper_gradients(problem, x, exact.solution(problem, x, start), y)[2]


def reduced(problem: bs.Problem, start: bs.Point, exact: Exact) -> tuple[bs.Problem, bs.Point]:
    """min_x max_y F(x, y), F(x, y) = f(x, theta*(x), y), for methods that know of no lower level."""
    by_hand = bs.Derivatives(_reduced_x, _reduced_theta, _reduced_y)
    data = (problem, exact, start.theta)
    saddle = bs.Problem(_reduced_value, None, problem.x_set, problem.y_set, data, derivatives=by_hand)
    return saddle, bs.Point(x=start.x, y=start.y)


class Baseline(NamedTuple):
    """rule(problem, nu) -> method.

    together: all nu in one vmapped program; otherwise one after another, where the inner loops differ in length.
    """

    rule: Callable
    grid: np.ndarray
    words: str
    together: bool = True


def _extragradient(problem, nu):
    return bs.methods.Extragradient(bs.StepSizes(tau=nu, sigma=nu))


PAPER = np.logspace(-2, 2.5, 8)
STEPS = np.logspace(-2.5, 1.5, 8)
SECTION_6 = "the schedules of section 6, gamma and mu in proportion to nu, sigma = 2 / (L_yy + 2 mu)"
EXACT, REDUCED = "MORBiT, exact", "Extragradient"
BASELINES = {
    "OneSidedProjectionFree": Baseline(free, PAPER, SECTION_6),
    "FullyProjected": Baseline(full, PAPER, SECTION_6 + ", tau = 0.7"),
    "MORBiT, N = 10": Baseline(rule("MORBiT", "alpha", neumann_terms=10), STEPS, "tau = sigma = nu"),
    "MORBiT, N = 60": Baseline(rule("MORBiT", "alpha", neumann_terms=60), STEPS, "tau = sigma = nu"),
    EXACT: Baseline(rule("MORBiT", "alpha"), STEPS, "tau = sigma = nu, Hess^-1 f_theta by an exact solve"),
    REDUCED: Baseline(
        _extragradient,
        STEPS,
        "tau = sigma = nu; it knows of no lower level, and runs on min_x max_y F(x, y) = f(x, theta*(x), y) with exact "
        "solves for theta* and w",
    ),
    "DoubleLoop, 1e-6": Baseline(
        rule("DoubleLoop", "alpha", tolerance=1e-6), STEPS, "tau = sigma = nu, inner solves to 1e-6", together=False
    ),
    "DoubleLoop, 1e-10": Baseline(
        rule("DoubleLoop", "alpha", tolerance=1e-10), STEPS, "tau = sigma = nu, inner solves to 1e-10", together=False
    ),
}


# --- runs -------------------------------------------------------------------------------------------------------------


class Sweep(NamedTuple):
    """A baseline on an instance: for each nu the gaps, the calls at which they were seen, and where the run ended.

    degenerate: whether x had lost its influence there. cheapest: the factor on the calls if an exact solve were one.
    """

    gaps: list[np.ndarray]
    calls: list[np.ndarray]
    degenerate: list[np.ndarray]
    ends: list[bs.Point]
    cheapest: float


def degenerate(x, y):
    """Every task with a weight has lam 0 or 1: the gradient in the shared x is 0 whatever x is.

    lam = 1 leaves a task to its own theta, lam = 0 takes its theta away; the gap may be 0 without any x being found.
    """
    if not isinstance(x, dict):
        return jnp.asarray(False)
    return jnp.all((y <= 1e-6) | (x["lam"] >= 1 - 1e-6) | (x["lam"] <= 1e-6))


def stacked(made: list) -> tuple[Any, tuple]:
    """One pytree for all, numbers that differ along a new first axis, and the axes of its leaves for vmap."""
    leaves = [jax.tree.leaves(method) for method in made]
    structure = jax.tree.structure(made[0])
    columns = list(zip(*leaves, strict=True))
    same = [all(np.array_equal(np.asarray(column[0]), np.asarray(other)) for other in column) for column in columns]
    joined = [column[0] if one else jnp.stack(column) for one, column in zip(same, columns, strict=True)]
    return jax.tree.unflatten(structure, joined), tuple(None if one else 0 for one in same)


@partial(jax.jit, static_argnames="axes")
def _looks(problem, judged, exact, start_theta, method, state, every, axes):
    """LOOKS times `every` steps for all members: the last states, and after each look states, gaps and degeneracy."""

    def one(method, state):
        def look(state, _):
            state = advance(problem, method, state, every)
            theta = start_theta if state.theta is None else state.theta
            gap = exact.gap(judged, state.x, theta, state.y)
            return state, (state, gap, degenerate(state.x, state.y))

        return lax.scan(look, state, None, length=LOOKS)

    if axes is None:  # a single run: loops end when they end, without waiting for others
        found = one(method, jax.tree.map(lambda leaf: leaf[0], state))
        return jax.tree.map(lambda leaf: leaf[None], found)
    return jax.vmap(one, in_axes=(jax.tree.unflatten(jax.tree.structure(method), axes), 0))(method, state)


def sweep(name: str, judged: bs.Problem, start: bs.Point, exact: Exact) -> Sweep:
    """All nu of a baseline: K steps, or fewer once every run has met FLOOR, is not a number or has spent its calls."""
    baseline, price = BASELINES[name], price_of(judged, start, exact)
    problem, begin = reduced(judged, start, exact) if name == REDUCED else (judged, start)
    made = [baseline.rule(judged, nu) for nu in baseline.grid]
    each, cheapest = 1, 1.0
    if name == EXACT:
        made = [ExactMORBiT(method.steps, exact=exact, products=np.asarray(price.one)) for method in made]
        cheapest = (3 + 1) / (3 + price.one)
    if name == REDUCED:  # a gradient of F: of f and g, a cross product, the two solves
        each = 3 + price.two
        cheapest = (3 + 1) / each
    found = Sweep([], [], [], [], cheapest)
    for group in [made] if baseline.together else [[method] for method in made]:
        method, axes = stacked(group) if len(group) > 1 else (group[0], None)
        begun = [member.init(problem, begin) for member in group]
        state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *begun)
        columns = [([], [], []) for _ in group]
        for every in SPACING:
            state, seen = _looks(problem, judged, exact, start.theta, method, state, every, axes)
            states, gaps, flags = jax.tree.map(np.asarray, seen)
            for i, (gap_column, call_column, flag_column) in enumerate(columns):
                for j in range(LOOKS):
                    counts = group[i].counts(problem, jax.tree.map(lambda leaf, i=i, j=j: leaf[i, j], states))
                    call_column.append(each * (counts.gradients + counts.hvps + counts.cross_products))
                gap_column += list(gaps[i])
                flag_column += list(flags[i])
            if all(not g[-1] > FLOOR or c[-1] >= MOST_CALLS for g, c, _ in columns):
                break
        for i, (gap_column, call_column, flag_column) in enumerate(columns):
            within = np.array(call_column) <= max(MOST_CALLS, call_column[0])
            for whole, column in zip(found, (gap_column, call_column, flag_column), strict=False):
                whole.append(np.array(column)[within])
            end = jax.tree.map(lambda leaf, i=i: leaf[i], state.point)
            found.ends.append(bs.Point(end.x, start.theta if end.theta is None else end.theta, end.y))
    return found
