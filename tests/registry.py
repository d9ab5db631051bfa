"""What the common tests run over: METHODS, PROBLEMS, and TWINS, problems that reference.py writes out in NumPy.

Sets are in set_cases/.

The functions live at module level and the data are arguments, so that all seeds of a problem share one compilation.
"""

from typing import Any, NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

import bisaddle as bs
from tests import reference
from tests.finite_minimax import MINIMAX
from tests.method_cases import bilevel, saddle
from tests.method_cases.saddle import quadratic

# -- methods ----------------------------------------------------------------------------------------------------------


def _lower_steps(problem):
    """2 / (mu_g + L_g), the best constant step of gradient descent; every problem here knows both."""
    if problem.lower is None:
        return {}
    step = 2 / (float(problem.constants.mu_g) + float(problem.constants.L_g))
    return {"alpha": step, "eta": step}


def _ascent_steps(problem, sigma, mu):
    return {} if problem.y_set is None else {"sigma": sigma, "mu": mu}


def fully_projected(problem, gamma=0.5, tau=0.05, sigma=0.05, mu=0.0, **options):
    steps = bs.StepSizes(gamma=gamma, tau=tau, **_lower_steps(problem), **_ascent_steps(problem, sigma, mu))
    return bs.methods.FullyProjected(steps, **options)


def one_sided_projection_free(problem, gamma=0.02, sigma=0.05, mu=0.0, **options):
    steps = bs.StepSizes(gamma=gamma, **_lower_steps(problem), **_ascent_steps(problem, sigma, mu))
    return bs.methods.OneSidedProjectionFree(steps, **options)


# the paper's two, for every kind of problem; the others are in method_cases/
REGULARIZED = {"FullyProjected": fully_projected, "OneSidedProjectionFree": one_sided_projection_free}
METHODS = (
    REGULARIZED | saddle.SADDLE_METHODS | bilevel.METHODS | {"Adaptive": lambda problem=None: bs.methods.Adaptive()}
)

# saddle problems that PDHG is not for
NOT_BILINEAR = ("CB2", "DEM", "Mifflin1", "Crescent")


class Answer(NamedTuple):
    """What is known of a problem's solution; None where it is not."""

    x: Any = None
    y: Any = None
    value: float | None = None
    theta: Any = None


# -- finite minimax, plain and lifted ----------------------------------------------------------------------------------


def _start_near(answer, seed, y_size):
    """A start at distance about 0.3 from x*, y uniform: the methods are local, and the starts are fixed by the seed."""
    x = np.asarray(answer) + 0.3 * np.random.default_rng(seed).uniform(-1, 1, len(answer))
    return jnp.asarray(x), jnp.full(y_size, 1 / y_size)


def _minimax(name):
    functions, x_star, y_star, value, size = MINIMAX[name]

    def upper(x, theta, y, data):
        return y @ functions(x)

    def make(seed):
        x, y = _start_near(x_star, seed, len(y_star))
        problem = bs.Problem(upper, None, bs.sets.Box(-size, size), bs.sets.Simplex())
        return problem, bs.Point(x=x, y=y), Answer(np.array(x_star), np.array(y_star), value)

    return make


def _lift_lower(x, theta, data):
    return 0.5 * jnp.einsum("ti,tij,tj->", theta - x, data, theta - x)


def _lifted(name):
    """theta_t(x) = argmin (theta - x)'A_t(theta - x)/2 = x, upper sum_t y_t f_t(theta_t): the same saddle."""
    functions, x_star, y_star, value, size = MINIMAX[name]

    def upper(x, theta, y, data):
        return y @ jnp.diagonal(jax.vmap(functions)(theta))

    def make(seed):
        T = len(y_star)
        A = spd(np.random.default_rng(seed), T, 2)
        x, y = _start_near(x_star, seed, T)
        box = bs.sets.Box(-size, size)
        problem = bs.Problem(upper, _lift_lower, box, bs.sets.Simplex(), jnp.asarray(A), bs.Constants(*extremes(A)))
        answer = Answer(np.array(x_star), np.array(y_star), value, np.tile(x_star, (T, 1)))
        return problem, bs.Point(x=x, theta=jnp.tile(x, (T, 1)) + 0.1, y=y), answer

    return make


def spd(rng, count, size):
    """Symmetric positive definite matrices with eigenvalues in [1, 3]."""
    bases = [np.linalg.qr(rng.normal(size=(size, size)))[0] for _ in range(count)]
    return np.stack([(Q * rng.uniform(1, 3, size)) @ Q.T for Q in bases])


def extremes(matrices):
    """Smallest and largest eigenvalue, a little outwards: constants are bounds."""
    eigenvalues = np.linalg.eigvalsh(matrices)
    return eigenvalues.min() * (1 - 1e-12), eigenvalues.max() * (1 + 1e-12)


# -- smooth saddles and matrix games -----------------------------------------------------------------------------------


def _not_nash(x, theta, y, data):
    return jnp.sum(-3 * x**2 - y**2 + 4 * x * y)


def _cosine(x, theta, y, data):
    return jnp.sum(0.2 * x * y - jnp.cos(y))


def _forsaken(x, theta, y, data):
    psi = lambda z: z**2 / 4 - z**4 / 2 + z**6 / 6
    return jnp.sum(x * (y - 0.45) + psi(x) - psi(y))


def _smooth(upper, x_size, y_size, start, answer):
    def make(seed):
        shift = 0.01 * seed
        problem = bs.Problem(upper, None, bs.sets.Box(-x_size, x_size), bs.sets.Box(-y_size, y_size))
        return problem, bs.Point(x=jnp.array([start[0] + shift]), y=jnp.array([start[1] - shift])), answer

    return make


def _game_upper(x, theta, y, data):
    return x @ data @ y


def _game(payoff, x_star, y_star, value):
    """min over x, max over y of x' payoff y, both on simplices."""
    payoff = np.array(payoff, dtype=float)

    def make(seed):
        rng = np.random.default_rng(seed)
        x, y = rng.dirichlet(np.ones(len(payoff))), rng.dirichlet(np.ones(payoff.shape[1]))
        problem = bs.Problem(_game_upper, None, bs.sets.Simplex(), bs.sets.Simplex(), jnp.asarray(payoff))
        return problem, bs.Point(x=x, y=y), Answer(np.array(x_star), np.array(y_star), value)

    return make


# -- bilevel -----------------------------------------------------------------------------------------------------------


def _bard_upper(x, theta, y, data):
    return jnp.sum((x - 1) ** 2 + (theta - 1) ** 2)


def _bard_lower(x, theta, data):
    return jnp.sum(theta**2 / 2 + 500 * theta - 50 * x * theta)


def _henderson_quandt_upper(x, theta, y, data):
    return jnp.sum(x**2 / 2 + x * theta / 2 - 95 * x)


def _henderson_quandt_lower(x, theta, data):
    return jnp.sum(theta**2 + x * theta / 2 - 100 * theta)


def _scalar_bilevel(upper, lower, low, high, start, curvature, answer):
    def make(seed):
        constants = bs.Constants(mu_g=curvature, L_g=curvature)
        problem = bs.Problem(upper, lower, bs.sets.Box(low, high), None, constants=constants)
        return problem, bs.Point(x=jnp.array([start + seed]), theta=jnp.array([0.0])), answer

    return make


def _generator_upper(x, theta, y, data):
    return 0.5 * jnp.sum((theta - data["d"]) ** 2) + 0.5 * data["r"] * jnp.sum(x**2)


def _quadratic_lower(x, theta, data):
    return 0.5 * theta @ data["A"] @ theta - theta @ (data["B"] @ x + data["c"])


def _generator_data(seed, m=5, n=4):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=shape)
    return {"A": spd(rng, 1, m)[0], "B": draw(m, n), "c": draw(m), "d": draw(m), "r": np.array(0.5)}


def generator(seed, radius=50.0):
    data = _generator_data(seed)
    constants = bs.Constants(*extremes(data["A"]))
    problem = bs.Problem(_generator_upper, _quadratic_lower, bs.sets.L2Ball(radius), None, _traced(data), constants)
    start = bs.Point(x=jnp.full(4, 0.05), theta=jnp.full(5, 0.1))
    x = reference.generator_solution(data)
    return problem, start, Answer(x=x) if np.linalg.norm(x) <= radius else None


# -- bilevel saddles ---------------------------------------------------------------------------------------------------


def _linear_quadratic_upper(x, theta, y, data):
    quadratic = 0.5 * data["r"] * jnp.sum(x**2) - 0.5 * data["nu"] * jnp.sum(y**2)
    return theta @ data["P"] @ y + x @ data["R"] @ y + quadratic


def linear_quadratic_data(seed, nu, m=5, n=4, q=3):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=shape) / 2
    data = {"P": draw(m, q), "R": draw(n, q), "A": spd(rng, 1, m)[0], "B": draw(m, n), "c": draw(m)}
    return data | {"nu": np.array(nu), "r": np.array(1.0)}


def linear_quadratic(seed, nu, y_size=20.0, m=5, x_size=50.0):
    """The closed-form saddle, its sets inactive; y_size=None puts y in the simplex."""
    data = linear_quadratic_data(seed, nu, m)
    y_set = bs.sets.Simplex() if y_size is None else bs.sets.LinfBall(y_size)
    problem = bs.Problem(
        _linear_quadratic_upper,
        _quadratic_lower,
        bs.sets.LinfBall(x_size),
        y_set,
        _traced(data),
        bs.Constants(*extremes(data["A"]), L_yy=nu),
    )
    solve = reference.linear_quadratic_simplex_saddle if y_size is None else reference.linear_quadratic_saddle
    x, y = solve(data)
    start = bs.Point(x=jnp.full(4, 0.3), theta=jnp.full(m, -0.2), y=jnp.full(3, 1 / 3))
    return problem, start, Answer(x=x, y=y, theta=np.linalg.solve(data["A"], data["B"] @ x + data["c"]))


def _logistic_upper(x, theta, y, data):
    losses = jnp.mean(jax.nn.softplus(-(data["valid"] @ theta)), axis=1)
    return y @ losses + 0.5 * data["r"] * jnp.sum(x**2) - 0.5 * data["nu"] * jnp.sum(y**2)


def _logistic_lower(x, theta, data):
    return jnp.mean(jnp.exp(x) * jax.nn.softplus(-(data["train"] @ theta))) + 0.5 * data["rho"] * jnp.sum(theta**2)


def logistic_data(seed, nu=0.0, n=8, m=4, groups=3, rows=6):
    """Labels are multiplied into the rows."""
    rng = np.random.default_rng(seed)
    truth, signs = rng.normal(size=m), lambda z: np.where(z + rng.logistic(size=z.shape) > 0, 1.0, -1.0)[..., None]
    train, valid = rng.normal(size=(n, m)), rng.normal(size=(groups, rows, m))
    data = {"train": train * signs(train @ truth), "valid": valid * signs(valid @ truth)}
    return data | {name: np.array(value) for name, value in (("rho", 0.1), ("r", 0.05), ("nu", nu))}


def logistic(seed, nu=0.0):
    data = logistic_data(seed, nu)
    # weights are at most e, and l'' at most 1/4
    steepest = np.e / 4 * np.linalg.norm(data["train"], 2) ** 2 / len(data["train"]) + 0.1
    constants = bs.Constants(mu_g=0.1, L_g=steepest, L_yy=nu)
    sets = (bs.sets.Box(-1.0, 1.0), bs.sets.Simplex())
    problem = bs.Problem(_logistic_upper, _logistic_lower, *sets, _traced(data), constants)
    return problem, bs.Point(x=jnp.full(8, 0.1), theta=jnp.full(4, 0.2), y=jnp.full(3, 1 / 3)), None


def _wavy_upper(x, theta, y, data):
    smooth = 0.5 * x @ data["Q"] @ x + jnp.sum(jnp.sin(x)) - 0.5 * data["nu"] * jnp.sum(y**2)
    return smooth + x @ data["M"] @ y + data["b"] @ y


def _wavy_data(seed):
    rng = np.random.default_rng(seed)
    M, b = rng.normal(size=(4, 3)), rng.normal(size=3)
    return {"Q": spd(rng, 1, 4)[0] - 2 * np.eye(4), "M": M, "b": b, "nu": np.array(0.5)}


def wavy_saddle(seed):
    sets = (bs.sets.LinfBall(2.0), bs.sets.L1Ball(1.0))
    problem = bs.Problem(_wavy_upper, None, *sets, _traced(_wavy_data(seed)))
    return problem, bs.Point(x=jnp.full(4, 0.3), y=jnp.array([0.2, -0.3, 0.1])), None


def quadratic_saddle(seed, kind):
    problem, start, x, y = quadratic(seed, kind, kind)
    return problem, start, Answer(x, y)


def tasks(seed, counts=((12, 7), (9, 5), (15, 6)), d=4):
    """Ragged regression tasks: counts are (training rows, validation rows)."""
    rng = np.random.default_rng(seed)
    common, made = rng.normal(size=d), []
    for train, valid in counts:
        A, truth = rng.normal(size=(train + valid, d)), common + 0.5 * rng.normal(size=d)
        b = A @ truth + 0.1 * rng.normal(size=len(A))
        made.append((A[:train], b[:train], A[train:], b[train:]))
    return made


def multitask(seed, divergence=0.0, form="gram", radius=2.0):
    problem, start = bs.apps.multitask.regression(tasks(seed), radius, divergence=divergence, form=form)
    return problem, start, None


def multitask_logistic(seed):
    made = [(A, (b > 0) * 1.0, valid, (c > 0) * 1.0) for A, b, valid, c in tasks(seed)]
    return *bs.apps.multitask.logistic(made, 2.0, ridge=0.3), None


def adversarial(seed):
    """The paper's second example: f is neither linear nor strongly concave in y."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(6, 2))
    labels = np.where(rows @ [1.0, 0.5] + 0.3 * rng.normal(size=6) > 0, 1.0, -1.0)
    labels[:2] = 1.0, -1.0
    options = {"weights": ("chi2", 0.5), "form": "lagrangian", "lambda_max": 1.0}
    return *bs.apps.adversarial.bilevel(rows, labels, **options), None


def _traced(data):
    return {name: jnp.asarray(value) for name, value in data.items()}


PROBLEMS = (
    {name: _minimax(name) for name in MINIMAX}
    | {f"{name} lifted": _lifted(name) for name in MINIMAX}
    | {
        "not Nash": _smooth(_not_nash, 1.0, 2.0, (0.4, -0.3), Answer([0.0], [0.0], 0.0)),
        "cosine": _smooth(_cosine, 1.0, 2 * np.pi, (0.5, 2.0), Answer([0.0], None, 1.0)),
        "Forsaken": _smooth(_forsaken, 1.5, 1.5, (0.5, 0.5), Answer([0.07802667], [0.41193385])),
        "rock-paper-scissors": _game([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], [1 / 3] * 3, [1 / 3] * 3, 0.0),
        # the rows of [[3, -1], [-2, 4]] maximise, so the payoff is transposed: x picks its columns
        "two by two": _game([[3, -2], [-1, 4]], [0.5, 0.5], [0.6, 0.4], 1.0),
        "Bard98": _scalar_bilevel(
            _bard_upper, _bard_lower, -100.0, 100.0, 8.0, 1.0, Answer([25051 / 2501], None, 81.327869, [0.819672])
        ),
        "Henderson-Quandt": _scalar_bilevel(
            _henderson_quandt_upper,
            _henderson_quandt_lower,
            0.0,
            200.0,
            50.0,
            2.0,
            Answer([280 / 3], None, -9800 / 3, [80 / 3]),
        ),
        "generator": generator,
        "generator, ball active": lambda seed: generator(seed, 0.2),
        "linear-quadratic, nu = 0": lambda seed: linear_quadratic(seed, 0.0),
        "linear-quadratic, nu > 0": lambda seed: linear_quadratic(seed, 0.5),
        "linear-quadratic on the simplex, nu = 0": lambda seed: linear_quadratic(seed, 0.0, y_size=None),
        "linear-quadratic on the simplex, nu > 0": lambda seed: linear_quadratic(seed, 0.5, y_size=None),
        "logistic": logistic,
        "wavy saddle": wavy_saddle,
        "quadratic saddle": lambda seed: quadratic_saddle(seed, "box"),
        "quadratic saddle on simplices": lambda seed: quadratic_saddle(seed, "simplex"),
        "Experiment 1": multitask,
        "Experiment 1, rows": lambda seed: multitask(seed, form="rows"),
        "Experiment 2": lambda seed: multitask(seed, 0.3),
        "Experiment 2, rows": lambda seed: multitask(seed, 0.3, "rows"),
        "multi-task, logistic": multitask_logistic,
        "adversarial, Lagrangian": adversarial,
    }
)

# the same problems in NumPy: name -> function(seed, dtype) -> reference.Reference
TWINS = {
    "Experiment 1": lambda seed, dtype=float: reference.multitask(tasks(seed), 2.0, 0.1, 0.0, dtype),
    "Experiment 1, rows": lambda seed, dtype=float: reference.multitask(tasks(seed), 2.0, 0.1, 0.0, dtype),
    "Experiment 2": lambda seed, dtype=float: reference.multitask(tasks(seed), 2.0, 0.1, 0.3, dtype),
    "Experiment 2, rows": lambda seed, dtype=float: reference.multitask(tasks(seed), 2.0, 0.1, 0.3, dtype),
    "logistic": lambda seed, dtype=float: reference.logistic(logistic_data(seed), dtype),
    "generator, ball active": lambda seed, dtype=float: reference.generator(_generator_data(seed), 0.2, dtype),
    "wavy saddle": lambda seed, dtype=float: reference.wavy_saddle(_wavy_data(seed), 2.0, 1.0, dtype),
    "linear-quadratic, nu > 0": lambda seed, dtype=float: reference.linear_quadratic(
        linear_quadratic_data(seed, 0.5), 50.0, 20.0, dtype
    ),
    "linear-quadratic on the simplex, nu = 0": lambda seed, dtype=float: reference.linear_quadratic(
        linear_quadratic_data(seed, 0.0), 50.0, None, dtype
    ),
}


def flat(tree):
    """One NumPy vector from a pytree, in the order of reference.py; None stays None."""
    return None if tree is None else np.asarray(jax.flatten_util.ravel_pytree(tree)[0])
