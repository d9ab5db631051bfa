"""What the methods with stochastic oracles share: a sampler, and a key in the state."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bisaddle.methods.base import S, State
from bisaddle.methods.sampler import Sampler
from bisaddle.methods.stepped import SteppedMethod
from bisaddle.problem import Problem
from bisaddle.schedules import Schedule, as_schedule
from bisaddle.sets.base import Leaf


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
    # jax adds its options to jax.config where no type checker sees them
    plain = jax.config.jax_default_prng_impl == "threefry2x32"  # pyright: ignore[reportAttributeAccessIssue]
    if plain and isinstance(seed, np.ndarray) and seed.shape == ():
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


Kept = TypeVar("Kept", bound=SampledState)


class SampledMethod(SteppedMethod[S]):
    """A method with an optional sampler, and a seed that makes the trajectory."""

    streams = True
    sampler: Sampler = eqx.field(converter=as_sampler, default_factory=Sampler, kw_only=True)
    seed: Leaf | None = eqx.field(converter=as_seed, default=None, kw_only=True)

    def check(self, problem: Problem) -> None:
        super().check(problem)
        self.sampler.check(problem)

    def lower_samples(self, problem: Problem, key: Array) -> Callable[[Array], Problem]:
        """The problem with a sample of g of its own for every t."""
        return lambda t: self.sampler.for_lower(problem, jax.random.fold_in(key, t))

    def keyed(self, state: State, kind: type[Kept], **more: Any) -> Kept:
        """The state with the key of the seed, and the fields that this kind of state has besides."""
        return state.extended(kind, key=first_key(self.seed), **more)
