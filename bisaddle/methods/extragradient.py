"""Methods that look ahead: extragradient, optimistic GDA, mirror-prox, primal-dual hybrid gradient."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.devices import whole
from bisaddle.methods.about import SADDLE
from bisaddle.methods.base import Counts, State, able, unaliased
from bisaddle.methods.saddle import SaddleMethod, gradients, lipschitz, numbers_of
from bisaddle.methods.stepped import ascend, descend
from bisaddle.problem import Constants, Point, Problem
from bisaddle.schedules import StepSizes
from bisaddle.sets.base import ConvexSet, Leaf, as_leaf, like, traced
from bisaddle.sets.product import Product
from bisaddle.sets.simplex import Simplex


class Extragradient(SaddleMethod[State]):
    """A trial step, then the step with the gradients found there.

        u  = P_X(x - tau f_x(x, y)),        v  = P_Y(y + sigma f_y(x, y))
        x+ = P_X(x - tau f_x(u, v)),        y+ = P_Y(y + sigma f_y(u, v))

    Needs: projections on x_set and y_set; tau, sigma (the paper has tau = sigma < 1 / L, L the Lipschitz constant of
    (f_x, f_y)).
    Promises: converges if convex-concave  [Kor76]; O(kappa log 1/eps) steps if strongly convex-concave  [MOP20].
    """

    about = SADDLE._replace(
        complexity="eps^-1 to a duality gap of eps, averaged, if convex-concave; linear if strongly",
        steps="Extragradient.from_constants: 1/(2 L), within the 1/L of Kor76",
        reference="Kor76",
    )
    each = Counts(gradients=2, projections=4)

    def step(self, problem: Problem, state: State) -> State:
        x, y = state.x, state.y
        steps = self.steps.at(state.k)
        moved = lambda f_x, f_y: (descend(problem, x, steps["tau"], f_x), ascend(problem, y, steps["sigma"], f_y))
        trial = moved(*gradients(problem, x, y))
        new_x, new_y = moved(*gradients(problem, *trial))
        return State(state.k + 1, new_x, None, new_y, None)


class OptimisticState(State):
    """State with the gradients at the iterate before."""

    f_x: PyTree
    f_y: PyTree


class OptimisticGDA(SaddleMethod[OptimisticState]):
    """Gradient descent ascent with the last change of the gradients added once more (forward-reflected-backward).

        x+ = P_X(x - tau_k f_x(x, y) - tau_{k-1} (f_x(x, y) - f_x(x-, y-))),              (x-, y-)_0 = (x, y)_0
        y+ = P_Y(y + sigma_k f_y(x, y) + sigma_{k-1} (f_y(x, y) - f_y(x-, y-)))

    With constant steps the familiar 2 F(z) - F(z-), and OGDA where no constraint is active. Other projected forms of
    OGDA (Popov's, with two projections) are not this one.
    Needs: projections on x_set and y_set; tau, sigma (the papers have tau = sigma < 1 / (2 L)).
    Promises: converges if convex-concave, linear if strongly so  [MT20]; O(kappa log 1/eps) steps without active
    constraints  [MOP20].
    """

    about = SADDLE._replace(
        complexity="eps^-1 to a duality gap of eps, averaged, if convex-concave; linear if strongly",
        steps="OptimisticGDA.from_constants: 1/(4 L) (MOP20), within the 1/(2 L) of MT20",
        reference="MT20",
    )
    each = Counts(gradients=1, projections=2)
    lengths = 4.0

    def first(self, problem: Problem, state: State) -> OptimisticState:
        return state.extended(OptimisticState, f_x=trees.zeros_like(state.x), f_y=trees.zeros_like(state.y))

    def step(self, problem: Problem, state: OptimisticState) -> OptimisticState:
        x, y, k = state.x, state.y, state.k
        steps, last = self.steps.at(k), self.steps.at(jnp.maximum(k - 1, 0))
        f_x, f_y = gradients(problem, x, y)
        old_x, old_y = jax.tree.map(lambda new, old: jnp.where(k == 0, new, old), (f_x, f_y), (state.f_x, state.f_y))
        # P_X and P_Y of the step with tau_k and sigma_k: the change enters in their units
        Gx = trees.add_scaled(f_x, last["tau"] / steps["tau"], trees.subtract(f_x, old_x))
        Gy = trees.add_scaled(f_y, last["sigma"] / steps["sigma"], trees.subtract(f_y, old_y))
        x, y = descend(problem, x, steps["tau"], Gx), ascend(problem, y, steps["sigma"], Gy)
        return OptimisticState(k + 1, x, None, y, None, f_x, f_y)


class MirrorProxState(State):
    """State with the mean of the trial points, weighted with the steps tau, and the sum of these steps.

    Its point, which solve certifies, is that mean; without averaging there is none, and the point is the iterate.
    """

    mean_x: PyTree
    mean_y: PyTree
    total: Array | None

    @property
    def point(self) -> Point:
        return Point(self.x, self.theta, self.y) if self.total is None else Point(self.mean_x, None, self.mean_y)


class MirrorProx(SaddleMethod[MirrorProxState]):
    """Extragradient in the geometry of the sets: multiplicative steps on simplices, projected ones elsewhere.

        u  = M_X(x, tau f_x(x, y)),        v  = M_Y(y, -sigma f_y(x, y))
        x+ = M_X(x, tau f_x(u, v)),        y+ = M_Y(y, -sigma f_y(u, v)),      mean of the (u, v) weighted with tau
        M(z, g) = radius z exp(-g) / sum z exp(-g)   on a Simplex (entropy; each block of a Product by itself),
                = P(z - g)                           on another set (Euclidean; prox_{sigma h} for a penalty h)

    The result is the mean unless average=False: then the last iterate. Entropic steps never leave a face, so that the
    start must be positive on simplices.
    Needs: projections on the parts of x_set and y_set that are no simplices; tau, sigma, their ratio constant in k.
    Promises: duality gap of the mean O(L / k) if convex-concave, L the Lipschitz constant in the norms of the maps
    (l1 on simplices), tau = sigma <= 1 / L  [Nem04]. from_constants has the Euclidean L, which is at least that in l1
    on simplices of radius at most 1.
    """

    average: bool = eqx.field(static=True, default=True)
    about = SADDLE._replace(
        complexity="eps^-1 to a duality gap of eps, averaged",
        steps="MirrorProx.from_constants: 1/(2 L), within the 1/L of Nem04",
        reference="Nem04",
    )
    each = Counts(gradients=2, projections=4)

    def check_start(self, problem: Problem, start: Point) -> None:
        _require_positive("x", problem.x_set, start.x)
        _require_positive("y", problem.y_set, start.y)

    def first(self, problem: Problem, state: State) -> MirrorProxState:
        if not self.average:
            return state.extended(MirrorProxState, mean_x=None, mean_y=None, total=None)
        total = jnp.zeros((), trees.dtype_of(state.x))
        return state.extended(MirrorProxState, mean_x=unaliased(state.x), mean_y=unaliased(state.y), total=total)

    def step(self, problem: Problem, state: MirrorProxState) -> MirrorProxState:
        x, y = state.x, state.y
        steps = self.steps.at(state.k)
        tau, sigma = steps["tau"], steps["sigma"]
        f_x, f_y = gradients(problem, x, y)
        u, v = mirror_step(problem.x_set, x, tau, f_x), mirror_step(problem.y_set, y, sigma, trees.scale(-1.0, f_y))
        f_x, f_y = gradients(problem, u, v)
        x, y = mirror_step(problem.x_set, x, tau, f_x), mirror_step(problem.y_set, y, sigma, trees.scale(-1.0, f_y))
        mean_x, mean_y, total = state.mean_x, state.mean_y, state.total
        if total is not None:
            total = total + tau.astype(total.dtype)
            mean_x, mean_y = trees.mix(tau / total, (u, v), (mean_x, mean_y))
        return MirrorProxState(state.k + 1, x, None, y, None, mean_x, mean_y, total)


def mirror_step(convex_set: ConvexSet | None, v: PyTree, step: Array, gradient: PyTree) -> PyTree:
    """argmin_u step <gradient, u> + D(u, v), D the Kullback-Leibler divergence on a Simplex, else |u - v|^2 / 2"""
    assert convex_set is not None
    if isinstance(convex_set, Product):
        return convex_set.join(mirror_step(block, a, step, g) for block, a, g in convex_set.split(v, gradient))
    moved = trees.add_scaled(v, -step, gradient)
    if not isinstance(convex_set, Simplex):
        return convex_set.prox(moved, step)
    logits = jnp.log(v) - step.astype(v.dtype) * gradient
    return convex_set._each(lambda row: like(convex_set.radius, row) * jax.nn.softmax(row), logits)


def _require_positive(variable: str, convex_set: ConvexSet | None, v: PyTree) -> None:
    if isinstance(convex_set, Product):
        for block, part in convex_set.split(v):
            _require_positive(variable, block, part)
    elif isinstance(convex_set, Simplex) and not traced(v) and not np.all(whole(v) > 0):
        raise ValueError(
            f"MirrorProx needs a start with {variable} > 0 on a Simplex, given {whole(v).min():.3g} as the least "
            "entry: multiplicative steps never leave a face; use equal entries, or Extragradient"
        )


class PDHGState(State):
    """State with xbar, the extrapolated x."""

    xbar: PyTree


class PDHG(SaddleMethod[PDHGState]):
    """Primal-dual hybrid gradient for f(x, y) = a(x) + <Kx, y> - b(y), a and b by their gradients.

        y+    = P_Y(y + sigma f_y(xbar, y)),                       xbar_0 = x_0
        x+    = P_X(x - tau f_x(x, y+))
        xbar+ = x+ + momentum (x+ - x)

    For a = b = 0 the method of the first paper [CP11], whose theta is the momentum here; the gradients of a and b are
    the explicit terms of the second [CP16], in the first one's order (dual, then primal). For another coupling f_y at
    (xbar, y) is not what the theory asks for: init refuses it, unless the start is traced.
    Needs: projections on x_set and y_set; 0 <= momentum <= 1; tau, sigma, (1/tau - L_xx) (1/sigma - L_yy) >= L_xy^2.
    Promises: duality gap of the mean O(1/k) for momentum = 1 if convex-concave, linear if strongly so  [CP11, CP16].
    """

    momentum: Leaf = eqx.field(converter=lambda v: as_leaf(v, "PDHG momentum"), default=1.0)
    about = SADDLE._replace(
        complexity="eps^-1 to a duality gap of eps, averaged; linear if strongly; bilinear coupling",
        steps="PDHG.from_constants: tau = 1/(L_xx + L_xy), sigma = 1/(L_yy + L_xy) (CP16)",
        reference="CP11",
    )
    each = Counts(gradients=2, projections=2)

    def __check_init__(self):
        momentum = self.momentum
        if not (traced(momentum) or momentum.ndim) and not 0 <= float(np.asarray(momentum)) <= 1:
            raise ValueError(f"PDHG: momentum must lie in [0, 1], given {momentum}")

    def check_start(self, problem: Problem, start: Point) -> None:
        if any(traced(leaf) for leaf in jax.tree.leaves((problem, start))):
            return
        with jax.ensure_compile_time_eval():  # also inside the user's own jit
            defect = float(_coupling_defect(problem, start.x, start.y))
        if not defect <= 1e-3:
            others = ", ".join(name for name in able(problem) if name != "PDHG")
            raise ValueError(
                "PDHG needs f(x, y) = a(x) + <Kx, y> - b(y), given an f whose mixed derivative is not constant "
                f"(it changes by {defect:.1e} of its size between two points); use {others}"
            )

    def first(self, problem: Problem, state: State) -> PDHGState:
        return state.extended(PDHGState, xbar=unaliased(state.x))

    def step(self, problem: Problem, state: PDHGState) -> PDHGState:
        old_x, y, xbar = state.x, state.y, state.xbar
        steps = self.steps.at(state.k)
        y = ascend(problem, y, steps["sigma"], gradients(problem, xbar, y)[1])
        x = descend(problem, old_x, steps["tau"], gradients(problem, old_x, y)[0])
        xbar = trees.add_scaled(x, self.momentum, trees.subtract(x, old_x))
        return PDHGState(state.k + 1, x, None, y, None, xbar)

    @classmethod
    def from_constants(cls, constants: Constants) -> "PDHG":
        """tau = 1 / (L_xx + L_xy), sigma = 1 / (L_yy + L_xy), momentum = 1"""
        L_xx, L_xy, L_yy = numbers_of(cls.name, constants, "L_xx", "L_xy", "L_yy")
        lipschitz(cls.name, constants)  # that it is positive
        return cls(StepSizes(tau=1 / (L_xx + L_xy), sigma=1 / (L_yy + L_xy)))


@jax.jit
def _coupling_defect(problem: Problem, x: PyTree, y: PyTree) -> Array:
    """How far f_x(x, y) - f_x(x, y') is from linear in y - y' and the same at x', relative to its size."""
    assert problem.y_set is not None
    keys = jax.random.split(jax.random.key(3))
    other_x = problem.x_set.project(trees.add_scaled(x, 1.0, trees.random_like(keys[0], x)))
    other_y = problem.y_set.project(trees.add_scaled(y, 1.0, trees.random_like(keys[1], y)))
    middle = trees.mix(0.5, y, other_y)

    def f_x(x, y):
        return gradients(problem, x, y)[0]

    whole = trees.subtract(f_x(x, y), f_x(x, other_y))
    elsewhere = trees.subtract(f_x(other_x, y), f_x(other_x, other_y))
    half = trees.subtract(f_x(x, y), f_x(x, middle))
    defect = trees.norm(trees.subtract(whole, elsewhere)) + trees.norm(trees.add_scaled(whole, -2.0, half))
    rounding = jnp.finfo(trees.dtype_of(x)).eps * (trees.norm(f_x(x, y)) + trees.norm(f_x(other_x, y)))
    return defect / (trees.norm(whole) + trees.norm(elsewhere) + 1e5 * rounding + jnp.finfo(trees.dtype_of(x)).tiny)
