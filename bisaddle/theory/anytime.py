"""Schedules that need no K. They are ours, not the paper's: its corollaries fix K before the first step."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from bisaddle.oracle.validate import as_number, is_whole
from bisaddle.problem import Constants, Problem
from bisaddle.schedules import Power, Schedule, StepSizes
from bisaddle.sets.base import Leaf, as_leaf
from bisaddle.theory.steps import PROMISES, Plan, Promise, basics, check_method, one_of, powers, regime_of
from bisaddle.trees import Number

KINDS = ("decreasing", "doubling")


class Doubling(Schedule):
    """scale K_e^exponent, K_e = first 2^e the length of the epoch e = 0, 1, .. that step k falls in"""

    scale: Leaf = eqx.field(converter=lambda v: as_leaf(v, "Doubling scale"))
    exponent: Leaf = eqx.field(converter=lambda v: as_leaf(v, "Doubling exponent"))
    first: int = eqx.field(static=True, default=64)

    def __call__(self, k: Array) -> Array:
        # epoch e begins at first (2^e - 1); counted in whole numbers, where a logarithm would round
        epoch = 31 - lax.clz(jnp.asarray(k, jnp.int32) // self.first + 1)
        length = self.first * 2.0 ** epoch.astype(jnp.result_type(float))
        return jnp.asarray(self.scale) * length ** jnp.asarray(self.exponent)


class Capped(Schedule):
    """min(schedule(k), most)"""

    schedule: Schedule
    most: Leaf = eqx.field(converter=lambda v: as_leaf(v, "Capped most"), default=1.0)

    def __call__(self, k: Array) -> Array:
        return jnp.minimum(self.schedule(k), jnp.asarray(self.most))


class AscentStep(Schedule):
    """2 / (L_yy + 2 mu(k)), the longest that Lemma 4.5 allows"""

    mu: Schedule
    L_yy: Leaf = eqx.field(converter=lambda v: as_leaf(v, "AscentStep L_yy"))

    def __call__(self, k: Array) -> Array:
        return 2 / (jnp.asarray(self.L_yy) + 2 * self.mu(k))


def anytime_steps(
    given: Constants | Problem,
    method: str = "fp",
    *,
    regime: str = "auto",
    kind: str = "decreasing",
    first: int | np.integer = 64,
    tau: Number | None = None,
) -> Plan:
    """The corollaries' step sizes for a run of unknown length (ours).

        decreasing   K -> k + 1 in mu, gamma and sigma: the corollary's rate times log K, or its root for fp
        doubling     K -> K_e, constant over epochs of first 2^e steps: the corollary's rate, at most
                     4^exponent times as large, since each epoch is a run of the theorem from where the last one ended

    The method goes on from epoch to epoch: nothing restarts, and y0 stays. docs/theory.md has the argument.
    Needs: what steps_for needs.
    """
    check_method(method)
    if method == "morbit" or regime == "experiment":
        raise ValueError('anytime_steps follows the corollaries of "opf" and "fp"; for others use steps_for with a K')
    one_of("kind", kind, KINDS)
    if not is_whole(first) or not 1 <= first < 2**30:
        raise ValueError(f"first must be a whole number from 1 to 2^30, given {first!r}")
    if tau is not None and (method != "fp" or not 0 < as_number("tau", tau) < np.inf):
        raise ValueError(f'tau is a step size > 0 of method="fp", given tau = {tau} with {method!r}')
    regime = regime_of(given, method, regime)
    c, has_lower, has_ascent = basics(given, method, regime)
    found = powers(c["L_g"] / c["mu_g"], method, regime, 1.0, None if tau is None else float(tau))

    def schedule(name: str) -> Schedule:
        scale, exponent = found[name]
        return Power(scale, exponent) if kind == "decreasing" else Doubling(scale, exponent, int(first))

    steps: dict = {"gamma": Capped(schedule("gamma"))}
    if method == "fp":
        steps["tau"] = found["tau"][0]
    if has_lower:
        steps["alpha"] = steps["eta"] = 2 / (c["mu_g"] + c["L_g"])
    if has_ascent and regime == "strongly-concave":
        steps |= {"mu": 0.0, "sigma": 2 / (c["L_yy"] + 2 * c["mu_y"])}
    elif has_ascent:
        steps |= {"mu": schedule("mu"), "sigma": AscentStep(schedule("mu"), c["L_yy"])}
    return Plan(StepSizes(**steps), _promise(method, regime, kind), method, regime, None)


def _promise(method: str, regime: str, kind: str) -> Promise:
    base = PROMISES[method, regime]
    if kind == "doubling":
        rate, note = base.rate, f"at most {4**base.exponent:.3g} times the rate of the corollary"
    else:
        factor = "log K" if method == "opf" else "(log K)^(1/2)"
        rate, note = f"({base.rate}) {factor}", "the weighted average by gamma_k takes the place of the average"
    caveat = f"{note}; {base.caveat}" if base.caveat else note
    return Promise(f"ours, after {base.source}", rate, base.iterations, base.exponent, caveat)
