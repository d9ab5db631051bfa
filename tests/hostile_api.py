"""Malformed calls of the public API, made by hypothesis: each must be a ValueError that names the argument.

`python -m tests.hostile_api 300` runs so many and prints those that ended otherwise.
"""

import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np

import bisaddle as bs
from bisaddle.methods.base import public_methods
from tests.hostile_draws import NO_FLOATS, NO_POSITIVE, NO_WHOLE as NO_WHOLE_DRAWN, Draws, many
from tests.hostile_values import (
    BALL,
    CERTIFY,
    CHECK,
    CONSTANT,
    NO_ARRAY,
    NO_CHOICE,
    NO_DATA,
    NO_FUNCTION,
    NO_KEY,
    NO_NUMBER,
    NO_POINT,
    NO_PROBLEM,
    NO_SCALAR,
    NO_SET,
    SOLVE,
    lower,
    upper,
)


class Case(NamedTuple):
    """A call, the words of which one must stand in its message, and what it is called where it fails."""

    call: Callable[[], Any]
    words: tuple[str, ...]
    name: str


CONSTANTS = {name: 1.0 for name, _ in bs.Constants().items()}
PARTS = {"upper": upper, "lower": lower, "x_set": BALL, "y_set": BALL, "data": {"c": 1.0}}
START = {"x": np.full(2, 0.5), "theta": np.zeros(2), "y": np.full(2, 0.5)}
STEPS = {name: 0.1 for name in ("alpha", "eta", "gamma", "tau", "sigma", "mu")}


def problem(**changes: Any) -> bs.Problem:
    return bs.Problem(**{**PARTS, "constants": bs.Constants(**CONSTANTS), **changes})


def point(**changes: Any) -> bs.Point:
    return bs.Point(**{**START, **changes})


def pick(rng: Draws, items: Any) -> Any:
    return items[rng.integers(len(items))]


def _case(call: Callable[[], Any], words: Any, what: str, value: Any = ...) -> Case:
    shown = "" if value is ... else f" = {str(value)[:30]} ({type(value).__name__})"
    return Case(call, (words,) if isinstance(words, str) else tuple(words), what + shown)


def arguments_of_solve(rng):
    name = pick(rng, list(SOLVE))
    value = pick(rng, SOLVE[name])
    return _case(lambda: bs.solve(problem(), point(), **{"max_steps": 2, name: value}), name, f"solve {name}", value)


def arguments_of_certify(rng):
    name = pick(rng, list(CERTIFY))
    value = pick(rng, CERTIFY[name])
    return _case(lambda: bs.certify(problem(), point(), **{name: value}), name, f"certify {name}", value)


def arguments_of_check(rng):
    name = pick(rng, list(CHECK))
    value = pick(rng, CHECK[name])
    return _case(lambda: bs.check_derivatives(problem(), point(), **{name: value}), name, f"check {name}", value)


def a_part_of_the_start(rng):
    part, value = pick(rng, ("x", "theta", "y")), pick(rng, NO_ARRAY)
    calls = (
        lambda: bs.solve(problem(), point(**{part: value}), max_steps=2),
        lambda: bs.methods.FullyProjected(bs.StepSizes(**STEPS)).init(problem(), point(**{part: value})),
        lambda: bs.theory.check_assumptions(problem(), jax.random.key(0), point(**{part: value})),
    )
    return _case(pick(rng, calls), part, f"point.{part}", value)


def a_part_of_a_point_to_certify(rng):
    # a point that is not finite has a certificate of NaN
    finite = [value for value in NO_ARRAY if getattr(value, "dtype", None) != np.float64 or np.all(np.isfinite(value))]
    part, value = pick(rng, ("x", "theta", "y")), pick(rng, finite)
    return _case(lambda: bs.certify(problem(), point(**{part: value})), part, f"certify point.{part}", value)


def data(rng):
    value = pick(rng, NO_DATA)
    call = pick(rng, (bs.solve, bs.certify, bs.check_derivatives))
    return _case(
        lambda: call(problem(data={"c": 1.0, "d": [value]}), point()), "data['d']", f"{call.__name__} data", value
    )


def no_problem_or_point(rng):
    value, other = pick(rng, NO_PROBLEM), pick(rng, NO_POINT)
    key, x, y, theta = jax.random.key(0), START["x"], START["y"], START["theta"]
    fp = bs.methods.FullyProjected(bs.StepSizes(**STEPS))
    calls = (
        (lambda: bs.solve(value, point()), "Problem", value),
        (lambda: bs.solve(problem(), other), "Point", other),
        (lambda: bs.solve(problem(), [point(), other]), "Point", other),
        (lambda: bs.start_points(problem(), other, 3, key), "Point", other),
        (lambda: bs.solve(value, point(), check=True), "Problem", value),
        (lambda: bs.certify(value, point()), "Problem", value),
        (lambda: bs.certify(problem(), other), "Point", other),
        (lambda: bs.check_derivatives(value, point()), "Problem", value),
        (lambda: bs.check_derivatives(problem(), other), "Point", other),
        (lambda: bs.hypergradient(value, x, y, theta), "Problem", value),
        (lambda: bs.solve_path(value, point()), "roblem", value),
        (lambda: bs.solve_path([value], point()), "Problem", value),
        (lambda: bs.theory.check_assumptions(value, key, point()), "Problem", value),
        (lambda: bs.theory.estimate_constants(problem(), key, other), "Point", other),
        (lambda: bs.theory.exact_constants(value, point()), "Problem", value),
        (lambda: fp.init(value, point()), "Problem", value),
        (lambda: fp.init(problem(), other), "Point", other),
        (lambda: bs.theory.steps_for(value, K=100), "Problem", value),
        (lambda: bs.theory.smoothness(value), "Problem", value),
        (lambda: bs.theory.describe(value), "Problem", value),
    )
    i = int(rng.integers(len(calls)))
    call, words, given = calls[i]
    return _case(call, words, f"no problem or point, number {i}", given)


def a_part_of_the_problem(rng):
    name, values = pick(
        rng,
        (
            ("upper", (*NO_FUNCTION, None)),
            ("lower", NO_FUNCTION),
            ("x_set", NO_SET),
            ("y_set", tuple(value for value in NO_SET if value is not None)),
            ("constants", (3, {"mu_g": 1.0}, "c", bs.Constants, [])),
            ("derivatives", (3, {"f_x": upper}, upper, bs.Derivatives, [])),
        ),
    )
    value = pick(rng, values)
    return _case(lambda: problem(**{name: value}), name, f"Problem {name}", value)


def a_function(rng):
    name, kind = pick(rng, ("upper", "lower")), pick(rng, list(NO_SCALAR))
    call = pick(rng, (bs.solve, bs.certify, bs.check_derivatives))
    return _case(
        lambda: call(problem(**{name: NO_SCALAR[kind]}), point()), name, f"{call.__name__}: {name} with {kind}"
    )


def a_derivative(rng):
    name = pick(rng, ("f_x", "f_theta", "f_y", "g_theta", "g_theta_theta", "g_theta_x"))
    if rng.random() < 0.3:
        value = pick(rng, NO_FUNCTION)
        return _case(lambda: bs.Derivatives(**{name: value}), name, f"Derivatives {name}", value)
    kind = pick(rng, ("nothing", "a text", "a whole number", "no arguments", "its own error", "other shapes"))
    made = lambda: problem(derivatives=bs.Derivatives(**{name: NO_SCALAR[kind]}))
    return _case(lambda: bs.certify(made(), point()), name, f"derivative {name} with {kind}")


def a_set_that_does_not_fit(rng):
    several = bs.sets.Product({"a": BALL, "b": BALL})
    sets = (bs.sets.Box(0.0, np.ones(3)), several, bs.sets.NuclearBall(1.0), bs.sets.Simplex(axis=3))
    name, value = pick(rng, ("x_set", "y_set")), pick(rng, sets)
    return _case(lambda: bs.solve(problem(**{name: value}), point()), name, f"{name} that does not fit", value)


def a_size_of_a_set(rng):
    balls = ("L1Ball", "L2Ball", "LinfBall", "NuclearBall", "SpectralBall")
    name, value = pick(rng, [ball for ball in balls if hasattr(bs.sets, ball)]), pick(rng, (*NO_NUMBER, None))
    return _case(lambda: getattr(bs.sets, name)(value), "radius", f"{name} radius", value)


def a_key(rng):
    value = pick(rng, NO_KEY)
    calls = (
        lambda: bs.start_points(problem(), point(), 3, value),
        lambda: bs.theory.check_assumptions(problem(), value, point()),
        lambda: bs.theory.estimate_constants(problem(), value, point()),
    )
    return _case(pick(rng, calls), "key", "key", value)


def a_constant(rng):
    name, value = pick(rng, list(CONSTANTS)), pick(rng, CONSTANT)
    if rng.random() < 0.2:
        value = pick(rng, (3, "mu_g", None, [1], [("mu_g",)], [("mu_g", "guessed")], {"mu_g": "exact"}, np.ones(2)))
        return _case(lambda: bs.Constants(mu_g=1.0, origin=value), "origin", "Constants origin", value)
    return _case(lambda: bs.Constants(**{name: value}), (name, "Constants"), f"Constants {name}", value)


def a_step_size(rng):
    name = pick(rng, list(STEPS))
    bad = [
        value for value in NO_NUMBER if not isinstance(value, list | np.ndarray) and value is not upper
    ]  # sweeps are lists
    value = pick(rng, (*bad, float("inf"), lambda k: k[0], lambda: 1.0, lambda k: jnp.ones(3)))
    calls = (
        (lambda: bs.StepSizes(**{name: value}), (name, "StepSizes")),
        (lambda: bs.StepSizes(**{name: bs.schedules.Constant(value)}), (name, "Constant")),
        (lambda: bs.StepSizes(**{name: bs.schedules.Power(value, -0.5)}), (name, "Power")),
    )
    call, words = pick(rng, calls if not callable(value) else calls[:1])
    return _case(call, words, f"StepSizes {name}", value)


def a_method(rng):
    methods = {name: cls for name, cls in public_methods().items() if "steps" in inspect.signature(cls).parameters}
    name = pick(rng, list(methods))
    cls: Any = methods[name]
    value = pick(rng, (3, "steps", {}, 0.1, [0.1], upper, bs.StepSizes))
    number = pick(rng, (*NO_NUMBER, 0, float("inf")))
    options = (
        (lambda: cls(value), (name, "StepSizes"), value),
        (lambda: cls.default(problem(), K=number), "K", number),
        (lambda: cls.default(problem(), nu=number), "nu", number),
        (lambda: cls.default(value), "Problem", value),
        (lambda: bs.methods.Adaptive(number), "tol", number),
    )
    call, words, given = pick(rng, options)
    if "missing" in str(_signature_error(cls, value)):
        call, words, given = options[4]
    return _case(call, words, f"method {name} ({words})", given)


def _signature_error(cls, value) -> Exception | None:
    """Whether the class asks for more than step sizes."""
    try:
        inspect.signature(cls).bind(value)
    except TypeError as error:
        return error
    return None


def theory(rng):
    number = pick(rng, (*NO_NUMBER, 0, float("inf")))
    choice = pick(rng, NO_CHOICE)
    key, steps = jax.random.key(0), bs.StepSizes(**STEPS)
    calls = (
        (lambda: bs.theory.steps_for(problem(), K=number), "K", number),
        (lambda: bs.theory.steps_for(problem(), eps=number), "eps", number),
        (lambda: bs.theory.steps_for(problem(), K=100, tau=number), "tau", number),
        (lambda: bs.theory.steps_for(problem(), K=100, nu=number, regime="experiment"), "nu", number),
        (lambda: bs.theory.steps_for(problem(), choice, K=100), "method", choice),
        (lambda: bs.theory.steps_for(problem(), K=100, regime=choice), "regime", choice),
        (lambda: bs.theory.anytime_steps(problem(), choice), "method", choice),
        (lambda: bs.theory.anytime_steps(problem(), kind=choice), "kind", choice),
        (lambda: bs.theory.anytime_steps(problem(), tau=number), "tau", number),
        (lambda: bs.theory.anytime_steps(problem(), kind="doubling", first=number), "first", number),
        (lambda: bs.theory.iterations_for(problem(), number), "eps", number),
        (lambda: bs.theory.iterations_for(problem(), 0.1, choice), "method", choice),
        (lambda: bs.theory.bound(problem(), steps, number, point(), method="fp"), "K", number),
        (lambda: bs.theory.bound(problem(), choice, 100, point(), method="fp"), "steps", choice),
        (lambda: bs.theory.tracking(problem(), choice), "steps", choice),
        (lambda: bs.theory.check_assumptions(problem(), key, point(), samples=number), "samples", number),
        (lambda: bs.theory.estimate_constants(problem(), key, point(), samples=number), "samples", number),
        (lambda: bs.theory.estimate_constants(problem(), key, point(), tolerance=number), "tolerance", number),
    )
    i = int(rng.integers(len(calls)))
    call, words, given = calls[i]
    return _case(call, words, f"theory, number {i} ({words})", given)


def traced(rng):
    """Inside the user's own jit, vmap and grad: what is driven from the host says what to use instead."""
    who = pick(rng, (bs.solve, bs.certify, bs.check_derivatives))
    at = lambda x: who(problem(), point(x=x))
    ways = (
        lambda: jax.jit(at)(START["x"]),
        lambda: jax.vmap(at)(jnp.stack([START["x"]] * 2)),
        lambda: jax.grad(at)(jnp.asarray(START["x"])),
        lambda: jax.jit(lambda c: who(problem(data={"c": c}), point()))(1.0),
        lambda: jax.jit(lambda: who(problem(), point()))(),
    )
    return _case(pick(rng, ways), who.__name__, f"{who.__name__} inside a transformation")


def a_number(rng):
    """A value that hypothesis thought of, where a number > 0 or a whole one has to be."""
    positive, whole = rng.value(NO_POSITIVE), rng.value(NO_WHOLE_DRAWN)
    name = pick(rng, ("tol", "max_seconds", "sigma", "tau"))
    counted = pick(rng, ("max_steps", "every"))
    calls = (
        (lambda: bs.solve(problem(), point(), **{"max_steps": 2, name: positive}), name, positive),
        (lambda: bs.solve(problem(), point(), **{"max_steps": 2, counted: whole}), counted, whole),
        (lambda: bs.certify(problem(), point(), sigma=positive), "sigma", positive),
        (lambda: bs.certify(problem(), point(), tau=positive), "tau", positive),
        (lambda: bs.theory.steps_for(problem(), K=whole), "K", whole),
        (lambda: bs.check_derivatives(problem(), point(), directions=whole), "directions", whole),
        (lambda: bs.methods.Adaptive(positive), "tol", positive),
    )
    call, words, given = pick(rng, calls)
    return _case(call, words, f"a number: {words}", given)


def an_array(rng):
    part, value = pick(rng, ("x", "theta", "y")), rng.value(NO_FLOATS)
    call = pick(rng, (bs.solve, bs.certify, bs.check_derivatives))
    return _case(lambda: call(problem(), point(**{part: value})), part, f"{call.__name__} {part}", value)


MAKERS = (
    a_number,
    an_array,
    arguments_of_solve,
    a_part_of_the_start,
    a_part_of_the_problem,
    a_function,
    arguments_of_certify,
    theory,
    no_problem_or_point,
    a_step_size,
    arguments_of_solve,
    data,
    a_constant,
    a_method,
    a_key,
    traced,
    a_part_of_a_point_to_certify,
    a_set_that_does_not_fit,
    a_size_of_a_set,
    a_derivative,
    arguments_of_check,
    theory,
)


def verdict(case: Case) -> str:
    """What is wrong with how the call ended; "" where nothing is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = case.call()
    except ValueError as error:
        said = str(error)
        if len(said) > 1500:
            return f"no short message: {said[:200]} ..."
        return "" if any(word in said for word in case.words) else f"does not name {' or '.join(case.words)}: {said}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return f"was taken: {str(found)[:80]}"


def main(count: int = 300, show: Callable[[str], None] = print) -> int:
    """Make so many malformed calls; the number of those that did not end as they should, which are shown."""
    failed = 0

    def one(draws: Draws) -> None:
        nonlocal failed
        with jax.enable_x64(True):  # float32 beside float64 is one of the mistakes
            case = pick(draws, MAKERS)(draws)
            found = verdict(case)
        if found:
            failed += 1
            show(f"{case.name}: {found}")

    checked = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)  # the type checks of the tests would speak first
    try:
        done = many(count, one)
    finally:
        jaxtyping.config.update("jaxtyping_disable", checked)
    show(f"{done - failed} of {done} malformed calls were refused by name")
    return failed + (done < count)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 300) > 0)
