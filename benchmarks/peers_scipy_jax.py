"""SciPy with derivatives from JAX: what you do if f and g are JAX functions and you have no bilevel solver."""

from collections.abc import Callable
from typing import Any

import numpy as np
from peers_problems import RADIUS, Data


def bilevel(upper: Callable, lower: Callable, bounds: tuple[float, float], start: Callable) -> Callable[[Data], dict]:
    """L-BFGS-B on the hypergradient; theta by Newton-CG from the last one, polished; w by conjugate gradients."""
    import jax
    from scipy.optimize import minimize
    from scipy.sparse.linalg import LinearOperator, cg

    f = jax.jit(jax.value_and_grad(lambda x, theta, data: upper(x, theta, None, data), (0, 1)))
    g = jax.jit(jax.value_and_grad(lower, 1))
    product = jax.jit(lambda x, t, v, data: jax.jvp(lambda t: jax.grad(lower, 1)(x, t, data), (t,), (v,))[1])
    cross = jax.jit(lambda x, t, v, data: jax.jvp(lambda t: jax.grad(lower)(x, t, data), (t,), (v,))[1])

    def answer(data: Data) -> dict:
        first = start(data)
        shape = first["theta"].shape
        theta, w = first["theta"].ravel(), np.zeros(first["theta"].size)

        def hyper(x):
            nonlocal theta, w
            at = lambda t: t.reshape(shape)
            times = lambda v: np.asarray(product(x, at(theta), at(v), data)).ravel()
            slope = lambda t: np.asarray(g(x, at(t), data)[1]).ravel()
            value = lambda t: (float(g(x, at(t), data)[0]), slope(t))
            theta = minimize(value, theta, jac=True, method="L-BFGS-B", options={"gtol": 1e-5, "ftol": 0.0}).x
            matrix = LinearOperator((theta.size, theta.size), matvec=times, dtype=float)
            for _ in range(8):  # the line search is lost in rounding before the gradient is small enough
                if np.linalg.norm(slope(theta)) <= 1e-11:
                    break
                theta = theta - cg(matrix, slope(theta), rtol=1e-3, maxiter=1000)[0]
            found, (f_x, f_theta) = f(x, at(theta), data)
            w = cg(matrix, np.asarray(f_theta).ravel(), x0=w, rtol=1e-9, maxiter=2000)[0]
            return float(found), np.asarray(f_x) - np.asarray(cross(x, at(theta), at(w), data))

        options = {"ftol": 0.0, "gtol": 2e-7, "maxiter": 1000}
        box = [bounds] * first["x"].size
        found = minimize(hyper, first["x"], jac=True, method="L-BFGS-B", bounds=box, options=options)
        hyper(found.x)
        return {"x": found.x, "theta": theta.reshape(shape), "note": f"{found.nfev} hypergradients"}

    return answer


def groups(upper: Callable, count: int, start: Callable) -> Callable[[Data], dict]:
    """SLSQP on min t subject to l_i(x) <= t and |x|^2 <= R^2; y are the multipliers."""
    import jax
    import jax.numpy as jnp
    from scipy.optimize import minimize

    losses = lambda x, data: jax.vmap(lambda y: upper(x, None, y, data))(jnp.eye(count))
    values, slopes = jax.jit(losses), jax.jit(jax.jacrev(losses))

    def answer(data: Data) -> dict:
        d = start(data)["x"].size
        unit = np.append(np.zeros(d), 1.0)

        def slope(z):
            above = np.column_stack([-np.asarray(slopes(z[:d], data)), np.ones(count)])
            return np.vstack([above, np.append(-2 * z[:d], 0.0)])

        limits = {
            "type": "ineq",
            "fun": lambda z: np.append(z[d] - np.asarray(values(z[:d], data)), RADIUS**2 - z[:d] @ z[:d]),
            "jac": slope,
        }
        options = {"ftol": 1e-14, "maxiter": 500}
        found: Any = minimize(
            lambda z: (z[d], unit), unit, jac=True, method="SLSQP", constraints=limits, options=options
        )
        y = np.maximum(found.multipliers[:count], 0)
        return {"x": found.x[:d], "y": y / y.sum(), "note": f"SLSQP, {found.nit} steps, y from its multipliers"}

    return answer
