"""Saddle methods that ask x_set, or both sets, for linear minimisation only."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.methods.about import SADDLE
from bisaddle.methods.base import Counts, State
from bisaddle.methods.descent_ascent import DescentAscent
from bisaddle.methods.saddle import SaddleMethod, gradients, numbers_of
from bisaddle.problem import Constants, Problem
from bisaddle.schedules import Power, StepSizes
from bisaddle.sets.base import Leaf, positive
from bisaddle.sets.prox import Penalty
from bisaddle.trees import Number

# atoms that SPFW keeps unless told otherwise: twice the variables and two, at most this many
MOST_ATOMS = 256


class CGRPGA(DescentAscent):
    """Conditional gradient in x, regularised projected gradient ascent in y (one-sided CG-RPGA).

        s  = argmin_{u in X} <f_x(x, y), u>,                       x+ = gamma s + (1 - gamma) x
        y+ = P_Y(y + sigma (f_y(x, y) - mu (y - y0)))

    gamma is the paper's tau. It is OneSidedProjectionFree on a problem without a lower level; that f_x and f_y are both
    taken at the old point is from memory, by that identity.
    Needs: an LMO on x_set, a projection on y_set; gamma, sigma, mu.
    Promises: eps-stationary in O(eps^-4) steps if nonconvex-concave  [BYJ23], from the abstract.
    """

    needs = ("gamma", "sigma", "mu")
    about = SADDLE._replace(
        x_oracle="lmo",
        complexity="eps^-4 to a gap of eps",
        steps="CGRPGA.from_constants: exponents of BYJ23, as OneSidedProjectionFree with kappa = 1",
        reference="BYJ23",
    )
    each = Counts(gradients=1, projections=1, lmos=1)
    takes_K = True

    def moved(self, problem: Problem, x: PyTree, steps: dict[str, Array], f_x: PyTree) -> PyTree:
        return trees.mix(steps["gamma"], problem.x_set.lmo(f_x), x)

    @classmethod
    def from_constants(cls, constants: Constants, *, K: Number) -> "CGRPGA":
        """mu = K^(-1/4), gamma = K^(-3/4), sigma = 2 / (L_yy + 2 mu), for K steps"""
        if not 1 <= K < jnp.inf:
            raise ValueError(f"CGRPGA.from_constants needs a finite number of steps K >= 1, given {K}")
        (L_yy,) = numbers_of(cls.name, constants, "L_yy")
        mu = float(K) ** (-1 / 4)
        return cls(StepSizes(gamma=float(K) ** (-3 / 4), mu=mu, sigma=2 / (L_yy + 2 * mu)))


class ActiveState(State):
    """State with the atoms, one (x, y) a slot, their weights (0: a free slot), and the number of steps but drop steps.

    x and y are the weighted sums of the atoms. Without away steps there are no atoms.
    """

    atoms: PyTree
    weights: Array | None
    moves: Array


class SPFW(SaddleMethod[ActiveState]):
    """Frank-Wolfe on both players, with away steps (SP-AFW) or without (SP-FW).

        r   = (f_x, -f_y) at z = (x, y),     s = argmin_{u in X x Y} <r, u>,     v = argmax_{a in atoms} <r, a>
        d   = s - z, cap = 1     if <r, z - s> >= <r, v - z>        (Frank-Wolfe),
              z - v, cap = weight_v / (1 - weight_v)    else        (away; at the cap v is dropped)
        z+  = z + min(1, cap, step) d,       step = -<r, d> / curvature, or gamma(m) without a curvature

    gamma is 2 / (2 + m) unless steps are given, m the number of steps so far that dropped no atom (k(t) in the authors'
    figures; their code counts every step). The atoms are pairs (x, y) and steps at most 1, as in that code; the paper,
    from memory, has one active set per player. The start is the first atom: begin at a vertex, such as x_set.lmo(...).
    There is room for `capacity` atoms (None: 2 (dim x + dim y) + 2, at most 256). When all are in use and a new one
    comes, the two of least weight become one, their weighted mean: z stays what it was and feasible, away steps stay
    allowed, but that atom is no vertex any more and the linear rate is no longer promised (about 1/k is left, in our
    tests).
    Needs: LMOs on x_set and y_set, polytopes for the promise; no penalty in y_set; no step size, or one of steps
    (with gamma) and curvature.
    Promises: linear on polytopes if strongly convex-concave and the coupling is weak enough, nu = 1/2 - M_L/mu_A > 0,
    with step = gap / curvature, curvature = 2 C_L / nu  [GJL17]. For nu <= 0 the authors' code has the heuristic
    curvature of from_constants, without a promise. f must be convex in x.
    """

    curvature: Leaf | None
    away: bool = eqx.field(static=True)
    capacity: int | None = eqx.field(static=True)
    needs = ()
    y_oracle = "lmo"
    asks = ("mu_x",)
    about = SADDLE._replace(
        x_oracle="lmo",
        complexity="linear to a Frank-Wolfe gap on polytopes, strongly convex-concave, weak coupling",
        steps="2/(2 + m), or SPFW.from_constants: the heuristic curvature of GJL17",
        reference="GJL17",
    )
    each = Counts(gradients=1, lmos=2)

    def __init__(
        self,
        steps: StepSizes | None = None,
        *,
        curvature: Number | None = None,
        away: bool = True,
        capacity: int | None = None,
    ):
        if steps is not None and curvature is not None:
            raise ValueError("SPFW takes steps or a curvature, given both; leave one out")
        if steps is not None and (not isinstance(steps, StepSizes) or steps.gamma is None):
            raise ValueError(f"SPFW takes bs.StepSizes(gamma=...), or no steps for gamma = 2 / (2 + m), given {steps}")
        if capacity is not None and capacity < 2:
            raise ValueError(f"SPFW needs a capacity of at least 2 atoms, given {capacity}")
        default = Power(2.0, -1.0, 1.0) if curvature is None else None
        self.steps = StepSizes(gamma=default) if steps is None else steps
        self.curvature = None if curvature is None else positive(curvature, "SPFW curvature")
        self.away, self.capacity = away, capacity

    @classmethod
    def refusal(cls, problem: Problem) -> str:
        parts = jax.tree.leaves(problem.y_set, is_leaf=lambda node: isinstance(node, Penalty))
        found = [type(part).__name__ for part in parts if isinstance(part, Penalty)]
        if not found:
            return ""
        return (
            f"moves by linear minimisation alone, given a y_set with the penalty {found[0]}; subtract the penalty from "
            "upper, if it is smooth"
        )

    def first(self, problem: Problem, state: State) -> ActiveState:
        atoms = weights = None
        if self.away:
            size = trees.size(state.x) + trees.size(state.y)
            slots = min(2 * size + 2, MOST_ATOMS) if self.capacity is None else self.capacity
            alone = lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype).at[0].set(leaf)
            atoms, weights = jax.tree.map(alone, ((state.x, state.y), jnp.ones((), trees.dtype_of(state.x))))
        return state.extended(ActiveState, atoms=atoms, weights=weights, moves=jnp.zeros_like(state.k))

    def step(self, problem: Problem, state: ActiveState) -> ActiveState:
        assert problem.y_set is not None
        z, atoms, weights, moves = (state.x, state.y), state.atoms, state.weights, state.moves
        f_x, f_y = gradients(problem, *z)
        r = (f_x, trees.scale(-1.0, f_y))
        s = (problem.x_set.lmo(r[0]), problem.y_set.lmo(r[1]))
        gap = trees.dot(r, trees.subtract(z, s))
        if weights is None:
            x, y = trees.mix(jnp.minimum(1.0, self._length(gap, moves)), s, z)
            return ActiveState(state.k + 1, x, None, y, None, None, None, moves + 1)
        scores = jnp.where(weights > 0, jax.vmap(lambda atom: trees.dot(atom, r))(atoms), -jnp.inf)
        v = jnp.argmax(scores)
        away_gap = scores[v] - trees.dot(r, z)
        away = away_gap > gap
        rest = 1 - weights[v]
        cap = jnp.where(away, jnp.where(rest > 0, weights[v] / jnp.where(rest > 0, rest, 1), jnp.inf), 1.0)
        step = jnp.minimum(jnp.minimum(1.0, cap), self._length(jnp.where(away, away_gap, gap), moves))
        dropped = away & (step >= cap)
        with_s, place, roomy = _room_for(atoms, weights, s)
        atoms = jax.tree.map(lambda new, old: jnp.where(away, old, new), with_s, atoms)
        slot = jnp.arange(weights.size)
        away_weights = jnp.where((slot == v) & dropped, 0, (1 + step) * weights - jnp.where(slot == v, step, 0))
        forward_weights = (1 - step) * roomy + jnp.where(slot == place, step, 0)
        weights = jnp.where(away, away_weights, forward_weights)
        weights = jnp.maximum(weights, 0)  # of rounding only
        weights = weights / jnp.sum(weights)
        x, y = jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, axes=1), atoms)
        return ActiveState(state.k + 1, x, None, y, None, atoms, weights, moves + ~dropped)

    def _length(self, gap: Array, moves: Array) -> Array:
        if self.curvature is None:
            return self.steps.at(moves)["gamma"].astype(gap.dtype)
        return gap / jnp.asarray(self.curvature).astype(gap.dtype)

    @classmethod
    def from_constants(
        cls, constants: Constants, *, mu_x: Number, away: bool = True, capacity: int | None = None
    ) -> "SPFW":
        """step = gap / C with the heuristic of the authors' experiments, for mu_x, mu_y > 0.

        C = L_xx D_X^2 + L_yy D_Y^2 + L_xy^2 (D_X^2 / mu_y + D_Y^2 / mu_x)
        """
        names = ("L_xx", "L_yy", "L_xy", "D_X", "D_Y", "mu_y")
        L_xx, L_yy, L_xy, D_X, D_Y, mu_y = numbers_of(cls.name, constants, *names)
        if not (mu_x > 0 and mu_y > 0):
            raise ValueError(
                f"SPFW.from_constants needs mu_x > 0 and mu_y > 0, given {mu_x} and {mu_y}; use SPFW() with its "
                "steps 2 / (2 + m)"
            )
        C = L_xx * D_X**2 + L_yy * D_Y**2 + L_xy**2 * (D_X**2 / mu_y + D_Y**2 / float(mu_x))
        return cls(curvature=C, away=away, capacity=capacity)


def _room_for(atoms: PyTree, weights: Array, s: PyTree) -> tuple[PyTree, Array, Array]:
    """(atoms that include s, its slot, the weights of z on them).

    The slot that holds s already, else the first free one, else that of the least weight, whose atom is first merged
    with the one of the next least.
    """
    used = weights > 0
    same = jax.tree.map(lambda rows, leaf: jnp.all(rows == leaf, axis=range(1, rows.ndim)), atoms, s)
    found = used & jnp.all(jnp.stack(jax.tree.leaves(same)), axis=0)
    known, full = jnp.any(found), jnp.all(used)
    least = jnp.argmin(weights)
    slot = jnp.arange(weights.size)
    second = jnp.argmin(jnp.where(slot == least, jnp.inf, weights))
    merge = full & ~known
    both = weights[least] + weights[second]
    share = jnp.where(merge, weights[least] / jnp.where(merge, both, 1), 0)
    weights = jnp.where(merge & (slot == second), both, jnp.where(merge & (slot == least), 0, weights))
    place = jnp.where(known, jnp.argmax(found), jnp.where(full, least, jnp.argmin(used)))

    def placed(a, b):
        return a.at[second].set(share * a[least] + (1 - share) * a[second]).at[place].set(b)

    return jax.tree.map(placed, atoms, s), place, weights
