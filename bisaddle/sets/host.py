"""Calls of NumPy and SciPy out of compiled programs, where they do better than what XLA makes for a CPU."""

from collections.abc import Callable

import jax
import numpy as np
from jax import lax
from jaxtyping import Array

# below this size a call costs more than it saves
WORTH_A_CALL = 1000


def on_cpu() -> bool:
    """Whether programs run where NumPy does: elsewhere the data would have to travel."""
    return jax.default_backend() == "cpu"


def on_host(
    function: Callable, answer: jax.ShapeDtypeStruct, *arguments: Array | np.ndarray, vmap_method: str = "sequential"
) -> Array:
    """function(*arguments) on NumPy arrays, outside the device; its derivatives are 0.

    On a CPU not by pure_callback: it makes JAX arrays of the arguments, for which it may wait on the very threads that
    wait for it, and two callbacks on two cores stand still for good (jaxlib 0.10.2).
    """
    if not on_cpu():
        return jax.pure_callback(function, answer, *lax.stop_gradient(arguments), vmap_method=vmap_method)

    from jax.experimental.buffer_callback import buffer_callback  # seldom needed, and slow to load

    def write(_, out, *buffers):
        np.asarray(out)[...] = function(*(np.asarray(buffer) for buffer in buffers))

    return buffer_callback(write, answer, vmap_method=vmap_method)(*lax.stop_gradient(arguments))
