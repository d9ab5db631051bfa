"""Functions in extended precision, held to JAX in float64 and to a cancellation that float64 cannot see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from bisaddle.auditing.extended import IS_WIDER, WIDE, extended

FUNCTIONS = {
    "arithmetic": lambda a: (a - 2) * a / (1 + a**2) + jnp.power(jnp.abs(a), 1.5) - a**-2,
    "transcendental": lambda a: jnp.exp(-a) + jnp.log1p(a**2) + jnp.tanh(a) * jax.nn.sigmoid(a) + jax.nn.softplus(a),
    "indices": lambda a: jnp.stack([a[0], a[2] * a[1]])[::-1] + jnp.concatenate([a[3:], a[:1]]),
    "products": lambda a: jnp.einsum("i,jk,k->ji", a, jnp.outer(a, a + 1), a) + jnp.cumsum(a)[None, 0],
    "reductions": lambda a: jnp.max(a) - jnp.mean(a) + jax.nn.logsumexp(a) + jnp.where(a > 0, a, 0.5 * a).sum(),
    "branches": lambda a: lax.cond(a[0] > 0, jnp.sin, jnp.cos, a) + jax.jit(jnp.sqrt)(jnp.abs(a)),
    "loops": lambda a: lax.fori_loop(0, 3, lambda i, v: v * a, a) + a[jnp.argmax(a)],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_those_of_jax(name):
    function = FUNCTIONS[name]
    a = np.random.default_rng(0).normal(size=4)
    both = lambda a: (function(a), jax.grad(lambda a: jnp.sum(function(a) ** 2))(a))
    ours, everywhere = extended(both, a)
    for mine, theirs in zip(ours, jax.jit(both)(a), strict=True):
        assert mine.dtype == WIDE and mine.shape == theirs.shape
        np.testing.assert_allclose(mine.astype(float), theirs, rtol=1e-14, atol=1e-14)
    assert everywhere == (name not in ("loops", "products"))  # which are JAX's own: while, gather, cumsum


@pytest.mark.skipif(not IS_WIDER, reason="no extended precision on this machine")
def test_cancellation_in_float64_is_seen():
    x, offset = np.array(0.3), np.array(1e10)
    [value], everywhere = extended(lambda x: (x + offset) - offset, x)
    assert everywhere and abs(float(value) - 0.3) <= 1e-9
    assert abs(float((x + offset) - offset) - 0.3) >= 1e-7
