"""What is asked of every application: constants hold, derivatives agree, methods run, one compilation does."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

import bisaddle as bs
from bisaddle import oracle
from tests.registry import flat, fully_projected, one_sided_projection_free

ALL = ("x", "theta", "y")


@jax.jit
def project(convex_set, v):
    return convex_set.project(v)


@jax.jit
def derivatives(problem, x, theta, y):
    """f_x, f_theta, f_y, and the matrices g_theta_theta and g_theta_x, whose rows belong to theta."""
    gradients = [ravel_pytree(part)[0] for part in oracle.upper_gradients(problem, x, theta, y) if part is not None]
    if problem.lower is None:
        return gradients, None, None
    vector, unravel = ravel_pytree(theta)
    rows = jax.vmap(unravel)(jnp.eye(vector.size))
    both = [
        jax.vmap(lambda w, product=product: ravel_pytree(product(problem, x, theta, w))[0])(rows)
        for product in (oracle.hessian_product, oracle.cross_product)
    ]
    return gradients, *both


def sampled(problem, start, rng, spread):
    """A point of the sets around the start; theta of a length of about `spread`."""
    draw = lambda v, by: jax.tree.map(lambda a: jnp.asarray(a + by * rng.normal(size=a.shape)), v)
    return (
        project(problem.x_set, draw(start.x, rng.choice([0.1, 3.0]))),
        None if start.theta is None else jax.tree.map(lambda a: a / max(1, a.size) ** 0.5, draw(start.theta, spread)),
        None if start.y is None else project(problem.y_set, draw(start.y, rng.choice([0.1, 1.0]))),
    )


def norm(tree):
    return 0.0 if tree is None else float(np.linalg.norm(flat(tree)))


def assert_constants_hold(problem, start, spread=1.0, count=12, seed=0):
    """Every constant that is stated, at random pairs of points near and far; how much of the tightest one is used."""
    rng, known = np.random.default_rng(seed), {k: float(v) for k, v in problem.constants.items() if v is not None}
    used: dict[str, float] = {}

    def holds(name, found, allowed):
        assert found <= allowed * (1 + 1e-9) + 1e-12, f"{name}: {found} found, {allowed} allowed"
        used[name] = max(used.get(name, 0.0), found / allowed if allowed > 0 else 0.0)

    old = None
    for k in range(count):
        point = sampled(problem, start, rng, spread)
        if k % 2 and old is not None:  # beside the last one
            point = jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b, old[0], point)
        x, theta, y = point
        gradients, H, J = derivatives(problem, x, theta, y)
        names = [n for n, part in (("x", x), ("theta", theta), ("y", y)) if part is not None]
        if H is not None:
            eigenvalues = np.linalg.eigvalsh(H)
            assert eigenvalues[0] >= known["mu_g"] * (1 - 1e-9)
            if "L_g" in known:
                holds("L_g", eigenvalues[-1], known["L_g"])
            if "C_thetax" in known:
                holds("C_thetax", np.linalg.norm(J, 2), known["C_thetax"])
            if "C_theta" in known:
                holds("C_theta", np.linalg.norm(gradients[1]), known["C_theta"])
        if "D_X" in known and old is not None:
            holds("D_X", norm(jax.tree.map(jnp.subtract, x, old[0][0])), known["D_X"])
        if old is not None:
            (old_point, old_gradients, old_H, old_J) = old
            moves = {
                n: norm(jax.tree.map(jnp.subtract, a, b))
                for n, a, b in zip("xty", point, old_point, strict=True)
                if a is not None
            }
            lengths = {"x": moves["x"], "theta": moves.get("t", 0.0), "y": moves.get("y", 0.0)}
            for name, new, before in zip(names, gradients, old_gradients, strict=True):
                parts = [f"L_{name}{other}" for other in names]
                if all(part in known for part in parts):
                    allowed = sum(known[part] * lengths[other] for part, other in zip(parts, names, strict=True))
                    holds(f"f_{name}", float(jnp.linalg.norm(new - before)), allowed)
            for other in names:  # one of them alone
                moved = [b if variable == other else a for variable, a, b in zip(ALL, old_point, point, strict=True)]
                for name, new, before in zip(names, derivatives(problem, *moved)[0], old_gradients, strict=True):
                    if (part := f"L_{name}{other}") in known:
                        holds(part, float(jnp.linalg.norm(new - before)), known[part] * lengths[other])
            if H is not None:
                for name, new, before in (("L_g_thetatheta", H, old_H), ("L_g_thetax", J, old_J)):
                    if name in known:
                        holds(name, np.linalg.norm(new - before, 2), known[name] * (lengths["x"] + lengths["theta"]))
        old = (point, gradients, H, J)
    return used


def assert_derivatives_agree(problem, start, seed=0, spread=1.0):
    x, theta, y = sampled(problem, start, np.random.default_rng(seed), spread)
    report = bs.check_derivatives(problem, bs.Point(x=x, theta=theta, y=y), directions=2)
    assert report.ok, str(report)


@jax.jit
def _run(method, problem, start, count):
    return lax.fori_loop(0, count, lambda _, state: method.step(problem, state), method.init(problem, start)).point


def assert_both_methods_improve(problem, start, count=300, measure="projection", **steps):
    """OPF and FP with constant steps lower the worst value, and stay in the sets."""
    before = bs.certify(problem, start)
    for make in (fully_projected, one_sided_projection_free):
        point = _run(make(problem, **steps), problem, start, count)
        after = bs.certify(problem, point)
        assert np.isfinite(after.gap) and float(after.violation) <= 1e-9
        assert float(after.worst_value) < float(before.worst_value), make.__name__


def assert_certified(problem, start, tol=1e-4, **options):
    result = bs.solve(problem, start, tol=tol, **options)
    assert result.status == bs.Status.CERTIFIED, str(result)
    return result


def assert_one_program(first, second):
    """Two instances of the same shapes: the same functions, the same structure, the same shapes."""
    assert jax.tree.structure(first) == jax.tree.structure(second)
    assert jax.tree.map(jnp.shape, first.data) == jax.tree.map(jnp.shape, second.data)
