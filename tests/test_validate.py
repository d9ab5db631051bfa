"""Static mistakes raise ValueError with what was given, what is needed and what to use instead, and compile nothing."""

import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.oracle.validate import check_problem_at

STEPS = bs.StepSizes(alpha=0.5, eta=0.5, gamma=0.1, tau=0.7, sigma=1.0, mu=0.01)
METHODS = [bs.methods.FullyProjected, bs.methods.OneSidedProjectionFree]


def _upper(x, theta, y, data):
    return jnp.dot(y, theta) + jnp.sum(jnp.square(theta)) + data["weight"] * jnp.sum(jnp.square(x["x"]))


def _lower(x, theta, data):
    return 0.5 * jnp.sum(jnp.square(theta - x["x"] - x["lam"]))


GOOD = {
    "upper": _upper,
    "lower": _lower,
    "x_set": bs.sets.Product({"x": bs.sets.L1Ball(1.0), "lam": bs.sets.Box(0.0, np.ones(3))}),
    "y_set": bs.sets.Simplex(),
    "data": {"weight": 2.0},
}
START = {"x": {"x": jnp.zeros(3), "lam": jnp.full(3, 0.5)}, "theta": jnp.zeros(3), "y": jnp.full(3, 1 / 3)}


class OnlyLmo(bs.sets.ConvexSet):
    """The l1 ball as if its projection were unknown."""

    capabilities = frozenset({"lmo"})

    def lmo(self, direction):
        return bs.sets.L1Ball(1.0).lmo(direction)


class OnlyProject(bs.sets.ConvexSet):
    """The l1 ball as if its linear minimisation oracle were unknown."""

    capabilities = frozenset({"project"})

    def project(self, v):
        return bs.sets.L1Ball(1.0).project(v)


def _derivatives(**by_hand):
    return {"derivatives": bs.Derivatives(**by_hand)}


# name: (changes to the problem, changes to the start, what the message holds)
MISTAKES = {
    "no theta": ({}, {"theta": None}, "the problem has a lower, so the point needs a theta, given None"),
    "no y": ({}, {"y": None}, "the problem has a y_set, so the point needs a y, given None"),
    "theta without lower level": ({"lower": None}, {}, "the problem has lower=None but the point has a theta"),
    "y without max player": ({"y_set": None}, {}, "the problem has y_set=None but the point has a y"),
    "x of another structure": ({}, {"x": jnp.zeros(3)}, "x does not fit x_set: Product has the parts .* given"),
    "x with another key": ({}, {"x": {"x": jnp.zeros(3), "la": jnp.zeros(3)}}, "x does not fit x_set: Product"),
    "x of another shape": (
        {},
        {"x": {"x": jnp.zeros(3), "lam": jnp.zeros(4)}},
        r"x does not fit x_set: \['lam'\]: Box bounds have shape \(3,\) .* \(4,\)",
    ),
    "empty y": ({}, {"y": jnp.zeros(0)}, r"y does not fit y_set: Simplex holds a nonempty array, given shape \(0,\)"),
    "y as a pytree": ({}, {"y": (jnp.ones(3), jnp.ones(3))}, "y does not fit y_set: Simplex holds one array"),
    "integer theta": ({}, {"theta": jnp.zeros(3, jnp.int32)}, "point.theta must have a floating dtype, given int32"),
    "integer block of x": (
        {},
        {"x": {"x": jnp.zeros(3, int), "lam": jnp.zeros(3)}},
        r"point.x\['x'\] must have a floating dtype, given int64",
    ),
    "boolean y": ({}, {"y": jnp.ones(3, bool)}, "point.y must have a floating dtype, given bool"),
    "text as y": ({}, {"y": "uniform"}, "point.y must be an array, given str; use jnp.asarray"),
    "two dtypes": (
        {},
        {"theta": jnp.zeros(3, jnp.float32)},
        "x, theta and y must share one dtype, given .*theta: float32.*y: float64",
    ),
    "text in data": (
        {"data": {"weight": 2.0, "name": "task"}},
        {},
        r"data\['name'\] must be an array or a number, given str; use arrays here, and keep the rest in closures",
    ),
    "vector upper": (
        {"upper": lambda x, theta, y, data: theta},
        {},
        r"upper\(x, theta, y, data\) must return a floating scalar, given .*3",
    ),
    "integer upper": ({"upper": lambda x, theta, y, data: jnp.asarray(1)}, {}, "floating scalar, given .*int64"),
    "upper of two values": ({"upper": lambda x, theta, y, data: (y[0], y[1])}, {}, "must return one scalar, given"),
    "vector lower": ({"lower": lambda x, theta, data: theta}, {}, r"lower\(x, theta, data\) must return a floating"),
    "lower of mismatched shapes": (
        {"lower": lambda x, theta, data: jnp.dot(theta, jnp.ones(7))},
        {},
        r"lower\(x, theta, data\) failed on .*\(3,\).*",
    ),
    "lower that branches on values": (
        {"lower": lambda x, theta, data: jnp.sum(theta) if theta[0] > 0 else 0.0},
        {},
        "failed on .*use jnp.where",
    ),
    "f_theta of another shape": (
        _derivatives(f_theta=lambda x, theta, y, data: theta[:2]),
        {},
        r"derivatives.f_theta must return .*\[3\].* given .*\[2\]",
    ),
    "f_x of another structure": (
        _derivatives(f_x=lambda x, theta, y, data: x["x"]),
        {},
        "derivatives.f_x must return .*lam.*, given",
    ),
    "f_y of another shape": (_derivatives(f_y=lambda x, theta, y, data: y[0]), {}, "derivatives.f_y must return"),
    "g_theta of another shape": (
        _derivatives(g_theta=lambda x, theta, data: theta[None]),
        {},
        r"derivatives.g_theta must return .*\[3\].* given .*\[1, 3\]",
    ),
    "g_theta_theta of a matrix": (
        _derivatives(g_theta_theta=lambda x, theta, w, data: jnp.eye(3)),
        {},
        r"derivatives.g_theta_theta must return .*\[3\].* given .*\[3, 3\]",
    ),
    "g_theta_x in the shape of theta": (
        _derivatives(g_theta_x=lambda x, theta, w, data: w),
        {},
        "derivatives.g_theta_x must return .*, given",
    ),
    "g_theta_theta without w": (
        _derivatives(g_theta_theta=lambda x, theta, data: theta),
        {},
        "derivatives.g_theta_theta failed on",
    ),
    "x outside": (
        {},
        {"x": {"x": jnp.array([3.0, 0.0, 0.0]), "lam": jnp.zeros(3)}},
        r"x is not in x_set: distance 2; use problem.x_set.project\(x\), which is .*'x': '\[1. 0. 0.\]'",
    ),
    "y outside": (
        {},
        {"y": jnp.array([1.0, 1.0, 0.0])},
        r"y is not in y_set: distance 0.707; use problem.y_set.project\(y\), which is \[0.5 0.5 0. \]",
    ),
    "NaN in x": ({}, {"x": {"x": jnp.full(3, jnp.nan), "lam": jnp.zeros(3)}}, "x must be finite at the start, given"),
    "infinity in y": ({}, {"y": jnp.full(3, jnp.inf)}, "y must be finite at the start, given NaN or infinity"),
}


def _build(changes, start_changes):
    return bs.Problem(**{**GOOD, **changes}), bs.Point(**{**START, **start_changes})


def _says_given_needed_and_instead(message):
    assert re.search(r"given|failed on|is not in|but the point has|of shape", message), f"not what was given: {message}"
    assert re.search(r"must|needs?\b|holds|fit|is not in|has [a-z_]+=None|failed on", message), (
        f"nothing needed: {message}"
    )
    ways_out = r"\b(use|cast|keep|add|give|make|write|check|replace)\b|must return .*, given"
    assert re.search(ways_out, message), f"no way out: {message}"


def test_the_problem_behind_the_mistakes_is_sound():
    for kind in METHODS:
        kind(STEPS).init(*_build({}, {}))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_given_needed_and_instead(mistake):
    changes, start_changes, message = MISTAKES[mistake]
    problem, start = _build(changes, start_changes)
    with pytest.raises(ValueError, match=re.compile(message, re.S)) as caught:
        check_problem_at(problem, start)
    _says_given_needed_and_instead(str(caught.value))


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("mistake", ["no y", "x of another structure", "vector upper", "x outside"])
def test_methods_check_the_problem_at_the_start(kind, mistake):
    changes, start_changes, message = MISTAKES[mistake]
    with pytest.raises(ValueError, match=message):
        kind(STEPS).init(*_build(changes, start_changes))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_no_function_of_the_user_is_compiled_or_evaluated_before_the_mistake_is_found(mistake, caplog):
    changes, start_changes, _ = MISTAKES[mistake]
    problem, start = _build(changes, start_changes)
    seen = []

    def watched(function):
        def call(*arguments):
            seen.extend(leaf for leaf in jax.tree.leaves(arguments) if not isinstance(leaf, jax.core.Tracer))
            return function(*arguments)

        return call

    lower = problem.lower and watched(problem.lower)
    problem = bs.Problem(**{**GOOD, **changes, "upper": watched(problem.upper), "lower": lower})
    with jax.log_compiles(), caplog.at_level(logging.WARNING), pytest.raises(ValueError):
        check_problem_at(problem, start)
    assert not seen
    compiled = re.findall(r"Compiling (\S+)", caplog.text)
    if not mistake.startswith(("x outside", "y outside", "NaN", "infinity")):  # those project, with small kernels
        assert not compiled
    assert not [name for name in compiled if re.search("call|upper|lower|step", name)]


@pytest.mark.parametrize("kind", METHODS)
def test_a_traced_start_is_checked_for_shapes_but_not_for_feasibility(kind):
    init = jax.jit(lambda problem, start: kind(STEPS).init(problem, start))
    assert init(*_build({}, {"y": jnp.array([1.0, 1.0, 0.0])})).k == 0
    with pytest.raises(ValueError, match="y does not fit y_set"):
        init(*_build({}, {"y": jnp.zeros(0)}))


@pytest.mark.parametrize("kind", METHODS)
def test_a_known_start_inside_the_users_own_jit_is_checked_in_full(kind):
    inside, outside = _build({}, {}), _build({}, {"y": jnp.array([1.0, 1.0, 0.0])})
    assert jax.jit(lambda: kind(STEPS).init(*inside))().k == 0
    with pytest.raises(ValueError, match="y is not in y_set"):
        jax.jit(lambda: kind(STEPS).init(*outside))()


def test_a_start_within_rounding_of_the_set_is_accepted():
    check_problem_at(*_build({}, {"y": jnp.full(3, 1 / 3) * (1 + 1e-9)}))
    single = jax.tree.map(lambda a: a.astype(jnp.float32), bs.Point(**{**START, "y": jnp.full(3, 0.33333)}))
    check_problem_at(bs.Problem(**GOOD), single)


def test_derivatives_by_hand_in_another_dtype_than_the_point_are_refused_or_cast():
    by_hand = _derivatives(f_theta=lambda x, theta, y, data: y + 2 * theta * data["weight"] / 2)
    problem = bs.Problem(**{**GOOD, **by_hand, "data": {"weight": np.full((), 2.0)}})
    start = jax.tree.map(lambda a: a.astype(jnp.float32), bs.Point(**START))
    method = bs.methods.FullyProjected(STEPS)
    try:
        state = method.init(problem, start)
    except ValueError as error:
        assert re.search("derivatives.f_theta must return .*float32.*given .*float64", str(error))
    else:
        assert method.step(problem, state).w.dtype == jnp.float32


def test_feasibility_is_asked_only_where_wanted():
    check_problem_at(*_build({}, {"y": jnp.array([1.0, 1.0, 0.0])}), feasible=False)


def test_numbers_and_numpy_arrays_are_taken_for_arrays():
    point = bs.Point(x={"x": np.zeros(3), "lam": np.full(3, 0.5)}, theta=np.zeros(3), y=np.full(3, 1 / 3))
    check_problem_at(bs.Problem(**GOOD), point)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(point))


def test_neither_a_problem_nor_a_point_is_refused_by_type(unchecked_types):
    problem, start = _build({}, {})
    with pytest.raises(ValueError, match="a bisaddle.Problem is needed, given dict"):
        check_problem_at({}, start)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"a bisaddle.Point is needed, given tuple; use bs.Point\("):
        check_problem_at(problem, (1, 2, 3))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"upper": None}, r"upper must be a function f\(x, theta, y, data\), given NoneType"),
        ({"upper": 3.0}, "upper must be a function .* given float"),
        ({"lower": 3.0}, "lower must be a function .* given float; use None for a saddle problem"),
        ({"x_set": None}, "x_set is missing; give the set of x"),
        ({"x_set": {"x": bs.sets.Simplex()}}, "x_set must be a set of bisaddle.sets, given dict"),
        ({"y_set": "simplex"}, "y_set must be a set of bisaddle.sets, given str; leave it out for a bilevel problem"),
        ({"constants": {"mu_g": 1.0}}, "constants must be a bisaddle.Constants, given dict"),
        ({"derivatives": _upper}, "derivatives must be a bisaddle.Derivatives, given"),
    ],
)
def test_a_problem_of_wrong_parts_is_refused_at_construction(changes, message, unchecked_types):
    with pytest.raises(ValueError, match=f"Problem: {message}"):
        bs.Problem(**{**GOOD, **changes})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mu_g": 0.0}, "mu_g must be a finite number > 0, given 0.0"),
        ({"mu_g": np.nan}, "mu_g must be a finite number > 0, given nan"),
        ({"L_g": -1.0}, "L_g must be a finite number > 0, given -1.0"),
        ({"L_yy": np.inf}, "L_yy must be a finite number >= 0, given inf"),
        ({"mu_g": [1.0, 2.0]}, "mu_g must be a finite number > 0"),
        ({"mu_g": 2.0, "L_g": 1.0}, "mu_g <= L_g is needed, given mu_g = 2.0 and L_g = 1.0"),
    ],
)
def test_constants_out_of_range_are_refused(given, message, unchecked_types):
    with pytest.raises(ValueError, match=f"Constants: {message}"):
        bs.Constants(**given)


def test_a_derivative_that_is_no_function_is_refused(unchecked_types):
    with pytest.raises(ValueError, match="Derivatives: f_x must be a function, given float"):
        bs.Derivatives(f_x=1.0)  # pyright: ignore[reportArgumentType]


# oracles and step sizes that a method needs


def _saddle(x_set, y_set):
    """min max <x, y>"""
    problem = bs.Problem(lambda x, theta, y, data: jnp.dot(x, y), None, x_set, y_set)
    return problem, bs.Point(x=jnp.zeros(3), y=jnp.full(3, 1 / 3))


def test_a_projection_method_refuses_a_set_without_projection_and_names_the_other_method():
    with pytest.raises(ValueError, match="FullyProjected needs project on x_set: OnlyLmo has no project") as caught:
        bs.methods.FullyProjected(STEPS).init(*_saddle(OnlyLmo(), bs.sets.Simplex()))
    assert "(it has: lmo); use Adaptive, OneSidedProjectionFree" in str(caught.value)


def test_a_projection_free_method_refuses_a_set_without_lmo_and_names_the_other_method():
    with pytest.raises(ValueError, match="OneSidedProjectionFree needs lmo on x_set: OnlyProject has no lmo") as caught:
        bs.methods.OneSidedProjectionFree(STEPS).init(*_saddle(OnlyProject(), bs.sets.Simplex()))
    assert "(it has: project); use Adaptive, FullyProjected" in str(caught.value)


@pytest.mark.parametrize("kind", METHODS)
def test_both_methods_refuse_a_y_set_without_projection(kind):
    with pytest.raises(
        ValueError, match=f"{kind.__name__} needs project on y_set: OnlyLmo has no project .* use a y_set"
    ):
        kind(STEPS).init(*_saddle(bs.sets.L1Ball(1.0), OnlyLmo()))


def test_a_projection_free_method_runs_on_a_set_that_has_only_an_lmo():
    method = bs.methods.OneSidedProjectionFree(STEPS)
    problem, start = _saddle(OnlyLmo(), bs.sets.Simplex())
    assert method.step(problem, method.init(problem, start)).k == 1


def test_a_product_lacks_what_one_block_lacks():
    product = bs.sets.Product((OnlyLmo(), bs.sets.Simplex()))
    problem = bs.Problem(lambda x, theta, y, data: jnp.sum(x[0]), None, product, None)
    with pytest.raises(ValueError, match=r"x_set: Product has no project: \[0\]: OnlyLmo has no project"):
        bs.methods.FullyProjected(STEPS).check(problem)


@pytest.mark.parametrize(
    ("kind", "given", "lacking"),
    [
        (bs.methods.FullyProjected, {"gamma": 0.1}, "tau"),
        (bs.methods.FullyProjected, {"tau": 0.1}, "gamma"),
        (bs.methods.OneSidedProjectionFree, {}, "gamma"),
        (bs.methods.OneSidedProjectionFree, {"alpha": 0.5, "gamma": 0.1}, "eta"),
        (bs.methods.FullyProjected, {"gamma": 0.1, "tau": 1.0, "sigma": 0.5}, "mu"),
    ],
)
def test_a_step_size_a_method_always_needs_is_missed_at_construction(kind, given, lacking):
    with pytest.raises(
        ValueError, match=f"{kind.__name__} needs the step sizes {lacking}, given {', '.join(given) or 'none'}"
    ):
        kind(bs.StepSizes(**given))


def test_step_sizes_of_another_type_are_refused(unchecked_types):
    with pytest.raises(ValueError, match=r"FullyProjected takes bs.StepSizes\(...\), given dict"):
        bs.methods.FullyProjected({"gamma": 0.1})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"sigma": 1.0, "mu": 0.1}, "needs the step sizes alpha, eta for a problem with a lower level; add them"),
        ({"alpha": 1.0, "eta": 0.1}, "needs the step sizes sigma, mu for a problem with a max player; add them"),
    ],
)
def test_step_sizes_for_a_part_that_the_problem_has_are_missed_at_init(steps, message):
    with pytest.raises(ValueError, match=message):
        bs.methods.OneSidedProjectionFree(bs.StepSizes(gamma=0.1, **steps)).init(*_build({}, {}))
