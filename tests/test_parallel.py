"""Several devices and several processes: the answers of one, nothing gathered, nothing that waits for ever."""

import re
from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.devices import Order, content_sums, in_order, summed, total
from bisaddle.oracle.kernels import Kernels
from tests.parallel_start import answer, together, worker
from tests.parallel_worker import ridge_of_tasks


@pytest.mark.slow
def test_memory_does_not_grow_with_the_records():
    for seen in answer(worker({"do": "memory", "devices": 4, "records": 1000})).values():
        assert len(seen) == 11 and seen[-1] - seen[2] <= 4.0, seen


@pytest.fixture(scope="module")
def on_four():
    return answer(worker({"do": "devices", "devices": 4, "divergence": 0.1}))


def test_four_devices_give_the_answers_of_one(on_four):
    for name, found in on_four.items():
        one, many = found["one"], found["many"]
        assert (one["status"], one["steps"]) == (many["status"], many["steps"]), name
        np.testing.assert_allclose(many["point"], one["point"], atol=1e-9, err_msg=name)
        np.testing.assert_allclose(many["numbers"], one["numbers"], atol=1e-9, err_msg=name)


def test_no_program_gathers_an_array_of_the_data(on_four):
    for name, found in on_four.items():
        said = [moved for each in found["collectives"].values() for moved in each]
        assert said, f"{name}: nothing was sent at all; are the data split?"
        assert found["data"]
        for moved in said:
            shapes = [[int(n) for n in shape.split(",")] for shape in re.findall(r"\[([\d,]+)\]", moved)]
            assert not any(shape in found["data"] for shape in shapes), f"{name}: {moved}"


def test_an_evaluation_of_adaptive_takes_few_collectives(on_four):
    for name, found in on_four.items():
        said = found["collectives"]
        # f once; g: its gradient, a product, one with its part in x, and what is left over
        assert len(said["_upper"]) == 1 and len(said["_lower"]) <= 4, name
        assert not any("permute" in moved or "all-to-all" in moved for each in said.values() for moved in each), name


EVERY = ["OneSidedProjectionFree", "FullyProjected", "MORBiT", "Adaptive"]
SPLITS = [["tasks", "gram"], ["tasks", "rows"], ["rows", "rows"]]


@pytest.mark.parametrize(
    ("cases", "seed"),
    [
        ([["tasks", "gram", "FullyProjected"], ["tasks", "rows", "Adaptive"], ["rows", "rows", "Adaptive"]], 0),
        pytest.param([[*split, name] for split in SPLITS for name in EVERY], 1, marks=pytest.mark.slow),
        pytest.param([[*split, "Adaptive"] for split in SPLITS], 2, marks=pytest.mark.slow),
    ],
)
def test_in_a_fixed_order_the_digits_do_not_depend_on_the_number_of_devices(cases, seed):
    found = answer(worker({"do": "in_order", "devices": 4, "cases": cases, "seed": seed}))
    assert len(found) == len(cases)
    for name, (one, two, four) in found.items():
        assert one == two == four, name


@pytest.mark.parametrize(
    "cases",
    [
        [["tasks", "FullyProjected"], ["rows", "Adaptive"]],
        pytest.param([["rows", "FullyProjected"], ["tasks", "Adaptive"]], marks=pytest.mark.slow),
    ],
)
def test_in_a_fixed_order_derivatives_of_own_functions_have_the_same_digits(cases):
    found = answer(worker({"do": "own_in_order", "devices": 4, "cases": cases}))
    assert len(found) == len(cases)
    for name, (one, two, four, plain) in found.items():
        assert one == two == four, name
        np.testing.assert_allclose(one["point"], plain["point"], atol=1e-6, err_msg=name)


def test_two_processes_of_which_one_is_slow_agree_to_the_last_digit():
    order = {"kind": "tasks", "form": "gram", "method": "Adaptive", "slow": True}
    first, second = together(2, 2, options={"tol": 1e-6, "every": 5, "max_seconds": 200}, **order)
    assert first["status"] == "CERTIFIED" and first == second


def rows_problem(weighted):
    """Logistic regression with a penalty to choose, whose rows have weights if that is asked for."""
    rng = np.random.default_rng(0)
    data = {"A": rng.normal(size=(7, 2)), "b": rng.integers(0, 2, 7).astype(float), "scale": np.asarray(1.0)}
    if weighted:
        data["weight"] = np.ones(7)

    def mean(losses, data):
        return jnp.sum(data["weight"] * losses) / jnp.sum(data["weight"]) if weighted else jnp.mean(losses)

    def losses(theta, data):
        z = data["A"] @ theta
        return jnp.logaddexp(0.0, z) - data["b"] * z

    return bs.Problem(
        upper=lambda x, theta, y, data: data["scale"] * mean(losses(theta, data), data),
        lower=lambda x, theta, data: mean(losses(theta, data), data) + 0.5 * jnp.exp(x[0]) * jnp.sum(theta**2),
        x_set=bs.sets.Box(-3.0, 1.0),
        data=data,
    ), bs.Point(jnp.zeros(1), jnp.zeros(2))


def test_rows_are_filled_up_with_weight_zero_or_refused():
    mesh = bs.parallel.mesh("rows")
    problem, start = rows_problem(weighted=True)
    placed, _ = bs.parallel.shard(problem, start, mesh, shards=4)
    assert placed.data["A"].shape == (8, 2) and placed.data["weight"].tolist() == [1] * 7 + [0]
    one, many = bs.solve(problem, start), bs.solve(placed, start)
    np.testing.assert_allclose(many.x, one.x, atol=1e-9)
    problem, start = rows_problem(weighted=False)
    with pytest.raises(ValueError, match="a weight for each of the rows is needed"):
        bs.parallel.shard(problem, start, mesh, shards=4)


def test_axes_say_where_the_rows_are():
    data = {"A": np.ones((3, 6)), "more": (np.ones(3), np.ones(6))}
    placed = bs.parallel.shard_rows(data, bs.parallel.mesh("rows"), {"A": 1, "more": None})
    assert tuple(placed["A"].sharding.spec) == (None, "rows")
    assert not any(placed["more"][1].sharding.spec)
    with pytest.raises(ValueError, match="structure of the data"):
        bs.parallel.shard_rows(data, bs.parallel.mesh("rows"), {"B": 0})


def test_a_mesh_and_ways_to_split_that_cannot_be_are_refused():
    mesh = bs.parallel.mesh("tasks")
    problem, start = ridge_of_tasks("sum", 4)
    with pytest.raises(ValueError, match="a mesh needs a device at least"):
        bs.parallel.mesh("tasks", [])
    with pytest.raises(ValueError, match="shards must be a multiple of the"):
        bs.parallel.shard(problem, start, mesh, shards=0)
    with pytest.raises(ValueError, match="use one of them"):
        bs.parallel.shard(problem, start, mesh, deterministic=True, separable=True)


def test_an_x_as_long_as_there_are_tasks_is_told_from_one_for_each():
    from bisaddle.apps import multitask

    problem, start = multitask.regression(multitask.synthetic(rows=90, width=3, tasks=3), divergence=0.2)
    placed, begin = bs.parallel.shard(problem, start, bs.parallel.mesh("tasks"), shards=4)
    one, many = bs.solve(problem, start, max_steps=20), bs.solve(placed, begin, max_steps=20)
    assert placed.data.train_gram.shape[0] == 4 and one.status is many.status
    np.testing.assert_allclose(many.theta, one.theta, atol=1e-9)


def test_each_process_reads_its_own_part():
    asked = []

    def read(begin, end):
        asked.append((begin, end))
        return {"A": np.arange(2.0 * begin, 2.0 * end).reshape(-1, 2), "weight": np.ones(end - begin)}

    mesh = bs.parallel.mesh("rows")
    data = bs.parallel.load(read, 5, mesh)
    each = -(-5 // mesh.size)
    assert asked == [(min(i * each, 5), min((i + 1) * each, 5)) for i in range(mesh.size)]
    np.testing.assert_array_equal(data["A"][:5], np.arange(10.0).reshape(5, 2))
    with pytest.raises(ValueError, match="must give arrays of"):
        bs.parallel.load(lambda begin, end: np.ones(1), 5, mesh)


def test_sums_in_order_are_sums_and_a_digest_tells_arrays_apart():
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(3, 8))
    values = jnp.asarray(drawn)
    order = Order("rows", 4, bs.parallel.mesh("rows"))
    np.testing.assert_allclose(total(values, 1, order, "rows"), values.sum(axis=1), atol=1e-14)
    np.testing.assert_allclose(total(values, 0, order, "tasks"), values.sum(axis=0), atol=1e-14)
    # derivatives of any order, forwards and backwards, go through it
    v, cubed = jnp.asarray(rng.normal(size=3)), lambda part, v: jnp.sum(v[:, None] ** 3 * part, axis=1)
    both = [lambda v, how=how: jnp.sum(in_order(how, cubed, (values,), (), v)) for how in (order, None)]
    for derive in (jax.grad, jax.jacfwd, jax.hessian, lambda f: jax.jacrev(jax.jacrev(f))):
        np.testing.assert_allclose(derive(both[0])(v), derive(both[1])(v), atol=1e-13)
    # and through sums of own functions, in arrays by rows and in vectors that all of them use
    by_rows, along, w = values.T, jnp.asarray(rng.normal(size=8)), jnp.asarray(rng.normal(size=3))
    bent = lambda part, along, w: jnp.sum(jnp.sin(part @ w) * along**2)
    both = [lambda w, v, how=how: summed(bent, how, (by_rows,), (v,), (w,)) for how in (order, None)]
    for derive in (jax.grad, jax.jacfwd, jax.hessian, lambda f, i: jax.jacrev(jax.jacrev(f, i), i)):
        for i in (0, 1):
            np.testing.assert_allclose(derive(both[0], i)(w, along), derive(both[1], i)(w, along), atol=1e-13)
    other = drawn.copy()
    other[2, 7] = np.nextafter(other[2, 7], 1)
    assert content_sums(values) == content_sums(jax.device_put(values)) != content_sums(other)
    assert content_sums(values[:, ::-1].copy()) != content_sums(values)
    assert content_sums(values.T.copy()) != content_sums(values)


def test_parts_are_added_from_the_first_to_the_last():
    """In any other order, or in pairs, the ones are lost beside 1e16: ((1e16 + 1) - 1e16) + 1 = 1."""
    values = jnp.array([1e16, 1.0, -1e16, 1.0])
    order = Order("rows", 4, bs.parallel.mesh("rows"))
    assert float(total(values, 0, order, "rows")) == 1.0
    assert float(summed(jnp.sum, order, (values,))) == 1.0


def test_many_parts_on_one_device_are_added_one_by_one():
    """XLA adds so many numbers several at a time, which rounds otherwise."""
    values = jnp.asarray(np.random.default_rng(0).normal(size=256))
    one_by_one = reduce(lambda a, b: a + b, values.tolist())
    assert float(jnp.sum(values)) != one_by_one  # or this would show nothing
    order = Order("rows", 256, bs.parallel.mesh("rows"))
    assert float(total(values, 0, order, "rows")) == float(summed(jnp.sum, order, (values,))) == one_by_one
    assert float(in_order(order, lambda part: jnp.sum(part, axis=1), (values[None],), ())[0]) == one_by_one
    steps = {equation.primitive.name for equation in jax.make_jaxpr(order.join)(values).eqns}
    assert steps == {"slice", "squeeze", "add"}


def test_tasks_of_each_device_solve_the_lower_level_of_all():
    found = answer(worker({"do": "solved_apart", "devices": 4}))
    for name, each in found.items():
        assert each["error"] <= 1e-8, name
        least, lowest, highest = each["least"]
        assert lowest - 1e-9 <= least <= highest + 1e-9, name
        many, one = each["products"]
        if name.endswith("True"):
            assert many <= 4, name  # no more than a task has variables
        else:  # step by step as on one device
            assert many == one and each["after two"] <= 1e-12, name
    # in "pairs" of 4 a device has one task of each pair; of 8 it has both, and they are still not apart
    apart = {name: each["apart"] for name, each in found.items()}
    # nor are tasks whose weights add up to more on one device than on another
    assert not any(apart[name] for name in ("pairs 4 None", "pairs 8 None", "sum 8 False", "uneven 7 None"))
    assert all(flags == ["sum" not in name, False, True] for name, flags in apart.items() if flags)
    assert sum(map(bool, apart.values())) == 10


def test_tasks_on_one_device_are_solved_apart_if_that_is_asked_for():
    problem, start = ridge_of_tasks("sum", 4)
    apart, begin = bs.parallel.shard(problem, start, bs.parallel.mesh("tasks"), shards=2, separable=True)
    one, other = Kernels(problem, start), Kernels(apart, begin)
    x, theta, _ = one.flat(start)
    right = np.random.default_rng(2).normal(size=theta.size)
    found = other.solve(x + 0.1, theta, right, 1e-10)
    np.testing.assert_allclose(found.w, np.linalg.solve(one.columns(x + 0.1, theta)[0], right), atol=1e-8)
    assert np.linalg.norm(found.r) <= 1e-10 and found.products <= 4
    first, second = bs.solve(problem, start), bs.solve(apart, begin)
    assert first.status is second.status is bs.Status.CERTIFIED
    assert abs(float(first.certificate.worst_value - second.certificate.worst_value)) <= 1e-4


def test_tasks_that_are_not_apart_are_refused():
    problem, start = ridge_of_tasks("pairs", 4)
    with pytest.raises(ValueError, match="are not those of all"):
        bs.parallel.shard(problem, start, bs.parallel.mesh("tasks"), separable=True)
    problem, start = rows_problem(weighted=True)
    with pytest.raises(ValueError, match="separable=True is for a g that is split by tasks"):
        bs.parallel.shard(problem, start, bs.parallel.mesh("rows"), separable=True)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bs.parallel.mesh("columns"), '"tasks" or "rows"'),
        (lambda: bs.parallel.initialize("127.0.0.1:1", 2, 0, heartbeat=0), "heartbeat must be a whole number"),
        (lambda: bs.parallel.shard_tasks(1.0, bs.parallel.mesh()), "no array in the data"),
        (lambda: bs.parallel.shard_rows(np.ones(3), bs.parallel.mesh("rows"), 1), "has no axis 1"),
        (
            lambda: bs.parallel.shard(*rows_problem(True), bs.parallel.mesh("rows"), deterministic=True),
            "needs data with a field `order`",
        ),
        (lambda: bs.parallel.shard(*rows_problem(True), bs.parallel.mesh("rows"), shards=0), "multiple of"),
    ],
)
def test_what_cannot_be_split_is_refused_with_advice(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_first_process_that_is_not_there_is_an_error_and_not_a_long_wait():
    with pytest.raises(RuntimeError, match="process 0 does not answer"):
        bs.parallel.initialize("127.0.0.1:9", 2, 1, timeout=1)
    with pytest.raises(ValueError, match="host:port"):
        bs.parallel.initialize("localhost", 2, 1)


def test_a_gathered_result_is_the_result():
    problem, start = rows_problem(weighted=True)
    result = bs.solve(problem, start)
    np.testing.assert_array_equal(bs.parallel.gather(result).x, result.x)
