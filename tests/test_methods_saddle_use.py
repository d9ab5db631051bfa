"""The methods for plain saddle problems as a user meets them: refusals, sweeps, dtypes, pytrees, step sizes, counts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import bisaddle as bs
from bisaddle.run.blocks import advance
from tests.jaxprs import equations
from tests.method_cases.saddle import SADDLE_METHODS, quadratic
from tests.reference import project_simplex
from tests.registry import NOT_BILINEAR, PROBLEMS

SLOW = pytest.mark.slow
PROJECTED = [name for name in SADDLE_METHODS if name not in ("CGRPGA", "SPFW")]


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_a_problem_of_another_class_is_refused_by_solve_too():
    problem, start, _ = PROBLEMS["logistic"](0)
    words = "^GDA is for saddle problems, given a bilevel saddle problem; use .*FullyProjected"
    with pytest.raises(ValueError, match=words):
        bs.solve(problem, start, SADDLE_METHODS["GDA"]())


@pytest.mark.parametrize("name", SADDLE_METHODS)
def test_a_problem_without_a_max_player_is_refused(name):
    plain = bs.Problem(lambda x, theta, y, data: jnp.sum(x**2), None, bs.sets.Box(-1.0, 1.0), None)
    with pytest.raises(ValueError, match="given one with neither a lower level nor a max player; use .*FullyProjected"):
        SADDLE_METHODS[name]().check(plain)


@pytest.mark.parametrize("name", SADDLE_METHODS)
def test_a_missing_oracle_is_named_with_methods_that_do_without(name):
    lmo_only = bs.sets.Image(np.eye(3), bs.sets.L2Ball(1.0))
    projection_only = bs.sets.Custom(project=lambda v: v, diameter=1.0)
    needs_projection = name in PROJECTED
    upper = lambda x, theta, y, data: jnp.sum(x) * jnp.sum(y)
    problem = bs.Problem(upper, None, lmo_only if needs_projection else projection_only, bs.sets.Simplex())
    other = "CGRPGA" if needs_projection else "Extragradient"
    with pytest.raises(ValueError, match=f"{name} needs .* on x_set: .* use .*{other}"):
        SADDLE_METHODS[name]().check(problem)
    lacking = projection_only if name == "SPFW" else lmo_only
    problem = bs.Problem(upper, None, bs.sets.Simplex(), lacking)
    with pytest.raises(ValueError, match=f"{name} needs .* on y_set"):
        SADDLE_METHODS[name]().check(problem)


@pytest.mark.parametrize("name", [name for name in SADDLE_METHODS if name != "SPFW"])
def test_a_missing_step_size_raises_at_construction(name):
    kind = getattr(bs.methods, name)
    options = {"p": 1.0, "beta": 0.5} if name == "SmoothedGDA" else {}
    full = {"tau": 0.1, "sigma": 0.1, "gamma": 0.1, "mu": 0.1}
    for lacking in kind.needs:
        steps = {key: value for key, value in full.items() if key != lacking}
        with pytest.raises(ValueError, match=f"{name} needs the step sizes {lacking}"):
            kind(bs.StepSizes(**steps), **options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda m, s: m.SmoothedGDA(s, p=-1.0, beta=0.5), "p must be a finite number >= 0"),
        (lambda m, s: m.SmoothedGDA(s, p=1.0, beta=0.0), r"beta must be a finite number in \(0, 1\]"),
        (lambda m, s: m.SmoothedGDA(s, p=1.0, beta=1.5), r"beta must be a finite number in \(0, 1\]"),
        (lambda m, s: m.PDHG(s, momentum=1.5), r"momentum must lie in \[0, 1\]"),
        (lambda m, s: m.AGP(s, b=-1.0), "must lie in"),
        (lambda m, s: m.SPFW(s, curvature=1.0), "steps or a curvature"),
        (lambda m, s: m.SPFW(bs.StepSizes(tau=0.1)), "gamma"),
        (lambda m, s: m.SPFW(curvature=-1.0), "curvature must be finite and > 0"),
        (lambda m, s: m.SPFW(capacity=1), "at least 2 atoms"),
        (lambda m, s: m.CGRPGA.from_constants(bs.Constants(L_yy=1.0), K=0), "K >= 1"),
        (lambda m, s: m.GDA.from_constants(bs.Constants()), "needs L_xx, L_xy, L_yx, L_yy, given none"),
        (lambda m, s: m.GDA.from_constants(bs.Constants(L_xx=1, L_xy=1, L_yx=1, L_yy=0)), "merely concave"),
        (lambda m, s: m.PDHG.from_constants(bs.Constants(L_xx=0, L_xy=0, L_yx=0, L_yy=0)), "positive Lipschitz"),
        (
            lambda m, s: m.SPFW.from_constants(bs.Constants(L_xx=1, L_xy=1, L_yy=1, D_X=1, D_Y=1), mu_x=0.0),
            "mu_x > 0 and mu_y > 0",
        ),
    ],
)
def test_bad_numbers_raise(make, words):
    with pytest.raises(ValueError, match=words):
        make(bs.methods, bs.StepSizes(tau=0.1, sigma=0.1, mu=0.1, gamma=0.1))


def test_lipschitz_constant_of_the_operator_is_the_norm_of_the_blocks():
    constants = bs.Constants(L_xx=2.0, L_xy=3.0, L_yx=1.0, L_yy=0.5)
    step = float(bs.methods.Extragradient.from_constants(constants).steps.tau(jnp.asarray(0)))
    np.testing.assert_allclose(1 / (2 * step), np.linalg.norm([[2.0, 3.0], [1.0, 0.5]], 2), rtol=1e-12)


def test_smoothed_steps_meet_the_conditions_of_the_paper():
    constants = bs.Constants(L_xx=2.0, L_xy=3.0, L_yx=3.0, L_yy=0.5)
    L = np.linalg.norm([[2.0, 3.0], [3.0, 0.5]], 2)
    method = bs.methods.SmoothedGDA.from_constants(constants)
    c, alpha = (float(method.steps.at(jnp.asarray(0))[name]) for name in ("tau", "sigma"))
    p, beta = float(method.p), float(method.beta)
    assert p > 3 * L and c < 1 / (p + L)
    assert alpha < min(1 / (11 * L), c**2 * (p - L) ** 2 / (4 * L * (1 + c * (p - L)) ** 2))
    assert 0 < beta <= min(1 / 36, (p - L) ** 2 / (384 * alpha * p * (p + L) ** 2))


# -- penalties, mirror maps, coupling ---------------------------------------------------------------------------------


def entropy_problem():
    data = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)))
    upper = lambda x, theta, y, data: x @ data @ y + 0.5 * jnp.sum(x**2)
    problem = bs.Problem(upper, None, bs.sets.Box(-1.0, 1.0), bs.sets.Entropy(0.5), data)
    return problem, bs.Point(x=jnp.zeros(3), y=jnp.full(4, 0.25))


def quick(names, chosen):
    """All names, those not chosen only among the slow tests: each compiles anew."""
    return [name if name in chosen else pytest.param(name, marks=SLOW) for name in names]


@pytest.mark.parametrize("name", quick(["Extragradient", "OptimisticGDA", "PDHG", "AlternatingGDA", "MirrorProx"], []))
def test_a_penalty_takes_its_prox(name):
    problem, start = entropy_problem()
    options = {"average": False} if name == "MirrorProx" else {}
    result = bs.solve(problem, start, SADDLE_METHODS[name](tau=0.1, sigma=0.1, **options), tol=1e-8, max_steps=4000)
    assert result.status is bs.Status.CERTIFIED
    # f - h is greatest in y at a softmax
    np.testing.assert_allclose(result.y, jax.nn.softmax(result.x @ problem.data / 0.5), atol=1e-7)


def test_frank_wolfe_refuses_a_penalty_in_a_product_too():
    problem, start = entropy_problem()
    with pytest.raises(ValueError, match="penalty Entropy; .* CGRPGA"):
        bs.methods.SPFW().init(problem, start)
    product = bs.sets.Product({"a": bs.sets.Simplex(), "b": bs.sets.Entropy(0.5)})
    pair = bs.Problem(lambda x, theta, y, data: jnp.sum(x) * jnp.sum(y["a"]), None, bs.sets.Simplex(), product)
    with pytest.raises(ValueError, match="penalty Entropy"):
        bs.methods.SPFW().check(pair)


def mixed_problem():
    """x: rows of a matrix on simplices of radius 2, and a box; y: an l2 ball."""
    sets = {"rows": bs.sets.Simplex(2.0, axis=-1), "box": bs.sets.Box(0.0, 1.0)}

    def upper(x, theta, y, data):
        return jnp.sum(x["rows"] @ data * y) + 0.5 * jnp.sum(x["box"] ** 2) * jnp.sum(y)

    data = jnp.asarray(np.random.default_rng(1).normal(size=3))
    problem = bs.Problem(upper, None, bs.sets.Product(sets), bs.sets.L2Ball(1.0), data)
    rows = jnp.asarray([[0.5, 1.0, 0.5], [0.2, 0.3, 1.5]])
    return problem, bs.Point(x={"rows": rows, "box": jnp.full(2, 0.5)}, y=jnp.array([0.1, -0.2]))


def test_the_mirror_map_is_chosen_block_by_block():
    problem, start = mixed_problem()
    method = SADDLE_METHODS["MirrorProx"](tau=0.3, sigma=0.2, average=False)
    state = jax.jit(method.step)(problem, method.init(problem, start))
    rows, box, y = np.asarray(start.x["rows"]), np.asarray(start.x["box"]), np.asarray(start.y)
    data = np.asarray(problem.data)
    project = lambda v: v / max(1.0, np.linalg.norm(v))
    step = lambda z, g: 2 * z * np.exp(-g) / (z * np.exp(-g)).sum(axis=1, keepdims=True)
    u_rows, u_box = step(rows, 0.3 * np.outer(y, data)), np.clip(box - 0.3 * box * y.sum(), 0, 1)
    v = project(y + 0.2 * (rows @ data + 0.5 * (box**2).sum()))
    np.testing.assert_allclose(state.x["rows"], step(rows, 0.3 * np.outer(v, data)), rtol=1e-13)
    np.testing.assert_allclose(state.x["box"], np.clip(box - 0.3 * u_box * v.sum(), 0, 1), rtol=1e-13)
    np.testing.assert_allclose(state.y, project(y + 0.2 * (u_rows @ data + 0.5 * (u_box**2).sum())), rtol=1e-13)


def test_mirror_prox_refuses_a_start_on_a_face():
    problem, start = mixed_problem()
    rows = jnp.asarray([[0.0, 1.5, 0.5], [0.2, 0.3, 1.5]])
    with pytest.raises(ValueError, match="x > 0 on a Simplex, given 0 .* use equal entries, or Extragradient"):
        SADDLE_METHODS["MirrorProx"]().init(problem, bs.Point(x={**start.x, "rows": rows}, y=start.y))


@SLOW
def test_the_mean_is_what_solve_certifies():
    problem, start, _ = PROBLEMS["two by two"](0)
    method = SADDLE_METHODS["MirrorProx"](tau=0.2, sigma=0.2)
    result = bs.solve(problem, start, method, tol=None, max_steps=50, every=50)
    state = method.init(problem, start)
    np.testing.assert_array_equal(state.point.x, start.x)
    state = advance(problem, method, state, 50)
    np.testing.assert_allclose(result.last.x, state.mean_x, atol=1e-14)
    assert not np.allclose(state.x, state.mean_x, atol=1e-3)


@SLOW
def test_pdhg_refuses_a_coupling_that_is_not_bilinear():
    for name in NOT_BILINEAR:
        problem, start, _ = PROBLEMS[name](0)
        with pytest.raises(ValueError, match="mixed derivative is not constant .* use .*Extragradient") as error:
            SADDLE_METHODS["PDHG"]().init(problem, start)
        assert "PDHG," not in str(error.value).split("; use ")[1]
    curved = bs.Problem(
        lambda x, theta, y, data: jnp.sum(x) * jnp.sum(y**3), None, bs.sets.Box(-1.0, 1.0), bs.sets.Box(0.0, 1.0)
    )
    with pytest.raises(ValueError, match="mixed derivative is not constant"):
        SADDLE_METHODS["PDHG"]().init(curved, bs.Point(x=jnp.zeros(2), y=jnp.full(2, 0.5)))


@SLOW
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pdhg_takes_every_bilinear_coupling(dtype):
    cast = lambda tree: jax.tree.map(lambda a: jnp.asarray(a).astype(dtype), tree)
    for name in ("wavy saddle", "QL"):
        problem, start, _ = PROBLEMS[name](0)  # QL's curvature is the same in every piece: bilinear on the simplex
        SADDLE_METHODS["PDHG"]().init(cast(problem), cast(start))
    uncoupled = bs.Problem(
        lambda x, theta, y, data: jnp.sum(x**2) - jnp.sum(y**2), None, bs.sets.Box(-1.0, 1.0), bs.sets.Box(0.0, 1.0)
    )
    SADDLE_METHODS["PDHG"]().init(uncoupled, cast(bs.Point(x=np.zeros(2), y=np.full(2, 0.5))))


# -- jit, vmap, dtypes, pytrees ---------------------------------------------------------------------------------------


def positive_start():
    problem, _, _, _ = quadratic(0, "simplex", "simplex")
    return problem, bs.Point(x=jnp.array([0.4, 0.3, 0.2, 0.1]), y=jnp.array([0.2, 0.5, 0.3]))


@pytest.mark.parametrize("name", quick(SADDLE_METHODS, ["SmoothedGDA"]))
def test_a_sweep_of_numbers_traces_once_and_equals_single_runs(name):
    problem, start = positive_start()
    traces = []

    @jax.jit
    def sweep(method):
        traces.append(None)
        run = lambda m: lax.fori_loop(0, 20, lambda _, s: m.step(problem, s), m.init(problem, start))
        return jax.vmap(run)(method)

    if name == "SPFW":
        make = lambda scale: bs.methods.SPFW(curvature=10 * scale)
    else:
        make = lambda scale: SADDLE_METHODS[name](
            **{key: 0.1 * scale for key in getattr(bs.methods, name).needs},
            **({"p": scale, "beta": 0.5 * scale} if name == "SmoothedGDA" else {}),
            **({"momentum": 0.5 * scale} if name == "PDHG" else {}),
        )
    scales = jnp.array([0.5, 1.0, 1.5])
    together = sweep(jax.vmap(make)(scales))
    sweep(jax.vmap(make)(2 / 3 * scales))
    assert len(traces) == 1
    method = make(1.0)
    state = method.init(problem, start)
    step = jax.jit(method.step)
    for _ in range(20):
        state = step(problem, state)
    np.testing.assert_allclose(together.x[1], state.x, atol=1e-13)
    np.testing.assert_allclose(together.y[1], state.y, atol=1e-13)
    assert not np.allclose(together.x[0], together.x[2])


@pytest.mark.parametrize("name", SADDLE_METHODS)
def test_float32_stays_float32_with_x64_on(name):
    problem, start = jax.tree.map(lambda a: jnp.asarray(a).astype(jnp.float32), positive_start())
    method = SADDLE_METHODS[name]()
    state = method.init(problem, start)
    stepped = jax.eval_shape(method.step, problem, state)
    for before, after in zip(jax.tree.leaves(state), jax.tree.leaves(stepped), strict=True):
        assert before.dtype == after.dtype and before.shape == after.shape
        assert after.dtype in (jnp.float32, jnp.int32)
    assert stepped.theta is None and stepped.w is None


@pytest.mark.parametrize("name", SADDLE_METHODS)
def test_a_method_may_be_built_inside_a_jit(name):
    """From numbers, concrete arrays and traced ones; a concrete problem is checked as outside."""
    problem, start = positive_start()

    def build(size):
        options = {"SmoothedGDA": {"p": jnp.ones(()), "beta": size}, "PDHG": {"momentum": jnp.ones(())}}
        sizes = {"curvature": 1 + size} if name == "SPFW" else {key: size for key in getattr(bs.methods, name).needs}
        method = SADDLE_METHODS[name](**sizes, **options.get(name, {}))
        return method.step(problem, method.init(problem, start)).x

    assert jax.eval_shape(build, jax.ShapeDtypeStruct((), jnp.float64)).shape == start.x.shape


def pair_problem():
    """Trees on both sides, whose flat form is the quadratic saddle on simplices times one on boxes."""

    def upper(x, theta, y, data):
        inner = x["a"] @ data @ y[0] + 0.5 * jnp.sum(x["a"] ** 2) - 0.5 * jnp.sum(y[0] ** 2)
        return inner + jnp.sum(x["b"] * y[1]) + 0.5 * jnp.sum(x["b"] ** 2) - 0.5 * jnp.sum(y[1] ** 2) + x["b"][0, 0]

    box = bs.sets.Box(-1.0, 1.0)
    x_set = bs.sets.Product({"a": bs.sets.Simplex(), "b": box})
    data = jnp.asarray(np.random.default_rng(3).normal(size=(3, 2)))
    problem = bs.Problem(upper, None, x_set, bs.sets.Product((bs.sets.Simplex(), box)), data)
    start = bs.Point(x={"a": jnp.full(3, 1 / 3), "b": jnp.full((2, 2), 0.5)}, y=(jnp.full(2, 0.5), jnp.zeros((2, 2))))
    return problem, start


# away from the defaults of the registry, for 1e-2 within 4000 steps
SIZES = {"MirrorProx": {"average": False}, "SPFW": {"curvature": 40.0}, "CGRPGA": {"gamma": 2e-3, "mu": 0.0}}
SIZES |= {"AGP": {"mu": 0.0}}


@pytest.mark.parametrize("name", quick(SADDLE_METHODS, []))
def test_variables_are_pytrees(name):
    problem, start = pair_problem()
    method = SADDLE_METHODS[name](**SIZES.get(name, {}))
    state = advance(problem, method, method.init(problem, start), 4000)
    # in b the saddle is x = y = -1/2 at (0, 0)
    np.testing.assert_allclose(state.x["b"], [[-0.5, 0], [0, 0]], atol=1e-2)
    np.testing.assert_allclose(state.y[1], [[-0.5, 0], [0, 0]], atol=1e-2)
    # in a, y is the projection of data'x, and x of -data y
    a, y = np.asarray(state.x["a"]), np.asarray(state.y[0])
    np.testing.assert_allclose(y, project_simplex(np.asarray(problem.data).T @ a), atol=1e-2)
    np.testing.assert_allclose(a, project_simplex(-np.asarray(problem.data) @ y), atol=1e-2)


@pytest.mark.parametrize("name", quick(SADDLE_METHODS, []))
def test_solve_runs_every_method(name):
    problem, start = pair_problem()
    method = SADDLE_METHODS[name](**SIZES.get(name, {}))
    result = bs.solve(problem, start, method, tol=2e-2, max_steps=10_000, measure="projection")
    assert result.status is bs.Status.CERTIFIED, str(result.certificate)
    assert jax.tree.structure(result.y) == jax.tree.structure(start.y)


COUNTS = {
    "GDA": (1, 0, 0, 2, 0),
    "AlternatingGDA": (2, 0, 0, 2, 0),
    "AGP": (2, 0, 0, 2, 0),
    "SmoothedGDA": (2, 0, 0, 2, 0),
    "Extragradient": (2, 0, 0, 4, 0),
    "OptimisticGDA": (1, 0, 0, 2, 0),
    "MirrorProx": (2, 0, 0, 4, 0),
    "CGRPGA": (1, 0, 0, 1, 1),
    "SPFW": (1, 0, 0, 0, 2),
    "PDHG": (2, 0, 0, 2, 0),
}


@pytest.mark.parametrize("name", SADDLE_METHODS)
def test_counts_are_the_oracle_calls_made(name):
    """Counted while a step is traced: by sets that note every call, and by an erf that stands in f_x alone."""
    calls = {"project": 0, "lmo": 0}

    def counted(oracle):
        def call(v):
            calls[oracle] += 1
            return v

        return call

    def f_x(x, theta, y, data):
        return y + lax.erf(x)

    sets = [bs.sets.Custom(project=counted("project"), lmo=counted("lmo"), diameter=4.0) for _ in range(2)]
    by_hand = bs.Derivatives(f_x=f_x, f_y=lambda x, theta, y, data: x - y, f_theta=lambda x, theta, y, data: None)
    problem = bs.Problem(lambda x, theta, y, data: x @ y, None, *sets, derivatives=by_hand)
    start = bs.Point(x=jnp.array([0.3, -0.2]), y=jnp.array([0.1, 0.4]))
    method = SADDLE_METHODS[name]()
    state = method.init(problem, start)
    calls.update(project=0, lmo=0)
    step = jax.make_jaxpr(method.step)(problem, state).jaxpr
    gradients, _, _, projections, lmos = COUNTS[name]
    assert calls == {"project": projections, "lmo": lmos}
    assert [equation.primitive.name for equation in equations(step)].count("erf") == gradients
    for k in (0, 1, 3):
        state = eqx.tree_at(lambda s: s.k, state, jnp.asarray(k))
        assert tuple(method.counts(problem, state)) == tuple(k * count for count in COUNTS[name])
