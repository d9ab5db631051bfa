"""What the methods with stochastic oracles share: a sampler, a key in the state, and where default steps come from."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bisaddle.methods.base import Method, State, require_steps
from bisaddle.methods.sampler import Sampler
from bisaddle.oracle.validate import check_problem_at
from bisaddle.problem import Point, Problem
from bisaddle.schedules import Schedule, StepSizes, as_schedule
from bisaddle.sets.base import Leaf
from bisaddle.trees import Number


class SampledState(State):
    """State with the key that all samples of a run come from, as raw numbers; step k folds k into it."""

    key: Array


def as_seed(seed) -> Leaf | None:
    """A whole number as an array leaf; None stays None, so that a sweep of step sizes has only them to map over."""
    if seed is None or isinstance(seed, jax.Array):
        return seed
    if not np.issubdtype(np.asarray(seed).dtype, np.integer) or not np.all((0 <= seed) & (seed < 2**32)):
        raise ValueError(f"seed must be a whole number from 0 to 2^32 - 1, given {seed}")
    return np.asarray(seed, dtype=np.uint32)


def as_sampler(sampler) -> Sampler:
    if not isinstance(sampler, Sampler):
        raise ValueError(
            f"sampler must be a bs.methods.Sampler(...), given {type(sampler).__name__}; use Sampler() for everything"
        )
    return sampler


def first_key(seed: Leaf | None) -> Array:
    """None is the seed 0."""
    seed = np.zeros((), np.uint32) if seed is None else seed
    if isinstance(seed, np.ndarray) and seed.shape == () and jax.config.jax_default_prng_impl == "threefry2x32":  # pyright: ignore[reportAttributeAccessIssue]
        return jax.device_put(np.array([0, seed], np.uint32))  # as below, with nothing to compile
    return jax.random.key_data(jax.random.key(jnp.asarray(seed)))


def step_keys(state: SampledState, count: int) -> Array:
    """The keys of this step."""
    return jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(state.key), state.k), count)


def as_positive(value, name: str) -> Leaf | None:
    """A number > 0 as an array leaf; None stays None."""
    if value is None or isinstance(value, jax.Array):
        return value
    number = np.asarray(value, dtype=np.float64)
    if number.shape == () and not (np.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be finite and > 0, given {value}")
    return number


def as_rate(value, name: str) -> Schedule:
    """A number in (0, 1] or a function of k, as a schedule."""
    schedule = as_schedule(value)
    if isinstance(value, float | int | np.number) and not 0 < value <= 1:
        raise ValueError(f"{name} must lie in (0, 1], given {value}")
    if schedule is None:
        raise ValueError(f"{name} must be a number in (0, 1] or a function of k, given None")
    return schedule


class SampledMethod(Method):
    """A method with step sizes, an optional sampler, and a seed that makes the trajectory."""

    steps: StepSizes
    sampler: Sampler = eqx.field(converter=as_sampler, default_factory=Sampler, kw_only=True)
    seed: Leaf | None = eqx.field(converter=as_seed, default=None, kw_only=True)

    def used_steps(self) -> tuple[str, ...]:
        """The names of the step sizes without which there is no step."""
        raise NotImplementedError

    def __check_init__(self):
        require_steps(self.name, self.steps, self.used_steps(), ())

    def check(self, problem: Problem) -> None:
        super().check(problem)
        self.sampler.check(problem)

    def check_start(self, problem: Problem, start: Point) -> None:
        check_problem_at(problem, start)
        self.check(problem)


def lower_step(name: str, problem: Problem) -> float:
    """2 / (mu_g + L_g), where default step sizes begin."""
    return 2 / sum(lower_constants(name, problem))


def lower_constants(name: str, problem: Problem) -> tuple[float, float]:
    """(mu_g, L_g); ValueError where the problem does not know them."""
    mu_g, L_g = problem.constants.mu_g, problem.constants.L_g
    if mu_g is None or L_g is None:
        raise ValueError(
            f"{name}.with_default_steps needs the constants mu_g and L_g of the problem, given None; set "
            "Problem(constants=bs.Constants(mu_g=..., L_g=...)), or use theory.estimate_constants"
        )
    return float(mu_g), float(L_g)


def horizon(K: Number, nu: Number) -> tuple[float, float]:
    """(K, nu) as numbers; ValueError unless both are finite and positive."""
    for name, value in (("K", K), ("nu", nu)):
        if not 0 < value < np.inf:
            raise ValueError(f"{name} must be finite and > 0, given {value}")
    return float(K), float(nu)
