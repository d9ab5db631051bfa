"""The methods for plain saddle problems, and quadratic saddles with known answers; registry.py takes them in."""

import jax.numpy as jnp
import numpy as np

import bisaddle as bs
from tests import reference_methods_saddle as loops


def _maker(name, **sizes):
    """A function of the problem, as registry.py has them; its keywords change the step sizes."""

    def make(problem=None, **changes):
        changed = sizes | changes
        steps = {key: changed.pop(key) for key in ("tau", "sigma", "gamma", "mu") if key in changed}
        return getattr(bs.methods, name)(bs.StepSizes(**steps), **changed)

    return make


def spfw(problem=None, **options):
    return bs.methods.SPFW(**options)


SADDLE_METHODS = {
    "GDA": _maker("GDA", tau=0.05, sigma=0.05),
    "AlternatingGDA": _maker("AlternatingGDA", tau=0.05, sigma=0.05),
    "AGP": _maker("AGP", tau=0.05, sigma=0.05, mu=0.1),
    "SmoothedGDA": _maker("SmoothedGDA", tau=0.05, sigma=0.05, p=2.0, beta=0.2),
    "Extragradient": _maker("Extragradient", tau=0.05, sigma=0.05),
    "OptimisticGDA": _maker("OptimisticGDA", tau=0.05, sigma=0.05),
    "MirrorProx": _maker("MirrorProx", tau=0.05, sigma=0.05),
    "CGRPGA": _maker("CGRPGA", gamma=0.02, sigma=0.05, mu=0.1),
    "SPFW": spfw,
    "PDHG": _maker("PDHG", tau=0.05, sigma=0.05),
}

SETS = {
    "box": bs.sets.Box(-20.0, 20.0),
    "simplex": bs.sets.Simplex(),
    "l1": bs.sets.L1Ball(1.0),
    "hypersimplex": bs.sets.HyperSimplex(2),
}


def _upper(x, theta, y, data):
    convex = 0.5 * x @ data["A"] @ x + data["c"] @ x
    return convex + x @ data["M"] @ y + data["b"] @ y - 0.5 * y @ data["B"] @ y


def quadratic_data(seed, coupling=1.0, n=4, m=3):
    """Eigenvalues of A and B in [1, 3]."""
    rng = np.random.default_rng(seed)

    def definite(size):
        Q = np.linalg.qr(rng.normal(size=(size, size)))[0]
        return (Q * np.linspace(1, 3, size)) @ Q.T

    draw = lambda *shape: rng.normal(size=shape)
    return {"A": definite(n), "B": definite(m), "M": coupling * draw(n, m), "b": draw(m), "c": draw(n)}


def quadratic(seed, x_kind="box", y_kind="box", coupling=1.0, n=4, m=3):
    """(problem, start, x*, y*): strongly convex-concave; the answer is known on boxes (inactive) and on simplices."""
    data = quadratic_data(seed, coupling, n, m)
    strength = np.linalg.norm(data["M"], 2)
    constants = bs.Constants(L_xx=3.0, L_yy=3.0, mu_y=1.0, L_xy=strength, L_yx=strength)
    traced = {name: jnp.asarray(value) for name, value in data.items()}
    problem = bs.Problem(_upper, None, SETS[x_kind], SETS[y_kind], traced, constants)
    starts = {"hypersimplex": lambda k: jnp.full(k, 2 / k), "l1": lambda k: jnp.full(k, 0.5 / k)}
    even = lambda kind, k: starts.get(kind, lambda k: jnp.full(k, 1 / k))(k)
    x = y = None
    if x_kind == y_kind == "box":
        x, y = loops.quadratic_saddle(data)
    if x_kind == y_kind == "simplex":
        x, y = loops.quadratic_saddle_on_simplices(data)
    return problem, bs.Point(x=even(x_kind, n), y=even(y_kind, m)), x, y
