"""Sampler and Batch: unbiased by enumeration, everything in the full-batch limit, mistakes named."""

import inspect
import itertools
import math

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import oracle
from bisaddle.methods import Batch, Sampler, sampler as module
from bisaddle.methods.base import public_methods
from bisaddle.methods.sampler import distinct_rows
from tests.method_cases import sampled
from tests.method_cases.runs import trajectory, unless_quick
from tests.registry import METHODS, multitask


def _point(problem, start, seed=0):
    """Somewhere without symmetry."""
    rng = np.random.default_rng(seed)
    theta = jnp.asarray(rng.normal(size=start.theta.shape))
    return start.x, theta, jnp.asarray(rng.dirichlet(np.ones(start.y.size))), jnp.asarray(rng.normal(size=theta.shape))


def _quantities(f_problem, g_problem, x, theta, y, w):
    """Everything a method may sample, as one vector."""
    parts = (
        oracle.upper_gradients(f_problem, x, theta, y),
        oracle.lower_gradient(g_problem, x, theta),
        oracle.hessian_product(g_problem, x, theta, w),
        oracle.cross_product(g_problem, x, theta, w),
    )
    return jax.flatten_util.ravel_pytree(parts)[0]


@jax.jit
def _drawn(sampler, problem, point, keys):
    """The quantities under every key."""

    def one(key):
        upper, lower = jax.random.split(key)
        return _quantities(sampler.for_upper(problem, upper), sampler.for_lower(problem, lower), *point)

    return jax.vmap(one)(keys)


@jax.jit
def _exact(problem, point):
    return _quantities(problem, problem, *point)


def test_rows_without_replacement_are_any_subset_as_likely():
    n, size, draws = 12, 3, 44_000
    rows = jax.jit(jax.vmap(lambda key: distinct_rows(key, n, size)))(jax.random.split(jax.random.key(5), draws))
    subsets, counts = np.unique(np.sort(rows, axis=1), axis=0, return_counts=True)
    assert np.all(np.diff(subsets, axis=1) > 0) and len(subsets) == math.comb(n, size)
    # chi square of that many equally likely outcomes: its mean and 5 standard deviations
    freedom = len(subsets) - 1
    assert np.sum((counts - draws / len(subsets)) ** 2) * len(subsets) / draws < freedom + 5 * np.sqrt(2 * freedom)
    for place in range(size):  # every place in the order too
        spread = np.bincount(rows[:, place], minlength=n) - draws / n
        assert np.sum(spread**2) * n / draws < n - 1 + 5 * np.sqrt(2 * (n - 1))


@pytest.mark.parametrize(("n", "size"), [(2_000, 300), (10**6, 64), (400, 399), (40, 11)])
def test_rows_without_replacement_are_distinct(n, size):
    rows = np.asarray(jax.jit(lambda key: distinct_rows(key, n, size))(jax.random.key(6)))
    assert len(set(rows.tolist())) == size and rows.min() >= 0 and rows.max() < n


def test_repeats_are_found_by_comparing_and_by_sorting(monkeypatch):
    rows = jnp.asarray(np.random.default_rng(0).integers(0, 40, 60))
    known = np.array([row in rows[:i] for i, row in enumerate(np.asarray(rows))])
    np.testing.assert_array_equal(module._repeats(rows), known)
    monkeypatch.setattr(module, "SMALL", 0)
    np.testing.assert_array_equal(module._repeats(rows), known)


def test_a_step_on_a_batch_never_orders_all_rows():
    """Neither a permutation nor anything else as long as the data: no operation makes n numbers."""
    n = 4096
    few, many = (str(jax.make_jaxpr(lambda key, m=m: distinct_rows(key, n, m))(jax.random.key(0))) for m in (64, 2048))
    assert f"[{n}]" not in few and f"[{n}]" in many


def test_a_batch_takes_a_tuple_of_the_data_as_it_stands():
    data = {"train": (np.arange(12.0).reshape(6, 2), np.arange(6.0)), "other": np.ones(3)}
    rows, targets = Batch(lambda data: data["train"], 2).draw(jax.random.key(0), data)["train"]
    assert rows.shape == (2, 2)
    np.testing.assert_array_equal(rows[:, 0], 2 * targets)


@pytest.mark.parametrize(
    ("sampler", "outcomes"),
    [
        (sampled.rows(2), 6),
        pytest.param(sampled.tasks(1, replace=True), 3, marks=pytest.mark.slow),
        pytest.param(sampled.tasks(2), 3, marks=pytest.mark.slow),
        pytest.param(sampled.both(2, 3), 12, marks=pytest.mark.slow),
    ],
)
def test_sampled_gradients_are_unbiased_by_enumeration(sampler, outcomes):
    """f and g are sampled apart, so that the mean over all pairs of outcomes is the mean over the outcomes of each."""
    problem, start = sampled.regressions(0)
    point = _point(problem, start)
    values = np.asarray(_drawn(sampler, problem, point, jax.random.split(jax.random.key(1), 600)))
    upper = start.x.size + start.theta.size + start.y.size
    exact = np.asarray(_exact(problem, point))
    for columns in (slice(0, upper), slice(upper, None)):
        distinct, counts = np.unique(np.round(values[:, columns], 9), axis=0, return_counts=True)
        assert len(distinct) == outcomes
        # each as likely as the others: 5 standard deviations
        expected = 600 / outcomes
        assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected))
        np.testing.assert_allclose(distinct.mean(axis=0), exact[columns], atol=2e-9)
        assert np.max(np.abs(distinct - exact[columns])) > 0.01


@pytest.mark.parametrize(
    ("task_size", "row_size"), [(2, 3), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((1, 2), (2, 1)))]
)
def test_batches_of_tasks_and_rows_are_unbiased_over_all_subsets(task_size, row_size):
    problem, start = sampled.regressions(1)
    point = _point(problem, start, 1)
    sampler = sampled.both(task_size, row_size)
    choices = [
        (np.array(t), np.array(r))
        for t in itertools.combinations(range(3), task_size)
        for r in itertools.combinations(range(4), row_size)
    ]
    tasks, rows = (jnp.asarray(np.stack(part)) for part in zip(*choices, strict=True))

    @jax.jit
    @jax.vmap
    def at(task, row):
        problems = []
        for by_task, by_row in (sampler.upper, sampler.lower):
            data = by_row.take(by_task.take(problem.data, task), row)
            problems.append(bs.Problem(problem.upper, problem.lower, problem.x_set, problem.y_set, data))
        return _quantities(*problems, *point)

    np.testing.assert_allclose(at(tasks, rows).mean(axis=0), _exact(problem, point), atol=1e-13)


@pytest.mark.slow
def test_counts_make_the_padded_rows_of_an_application_unbiased():
    """apps.multitask divides sums over padded rows by counts kept in data."""
    problem, start, _ = multitask(0, 0.3, "rows")
    n = problem.data.train_rows.shape[1]
    batch = Batch(lambda d: (d.train_rows, d.train_targets), 2, axis=1, counts=lambda d: d.train_counts)
    x = {"x": jnp.full(4, 0.1), "lam": jnp.array([0.2, 0.5, 0.9])}
    theta = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)))
    pairs = jnp.asarray(list(itertools.combinations(range(n), 2)))

    @jax.jit
    @jax.vmap
    def sampled_gradient(rows):
        return jax.grad(problem.lower, (0, 1))(x, theta, batch.take(problem.data, rows))

    exact = jax.grad(problem.lower, (0, 1))(x, theta, problem.data)
    for given, wanted in zip(jax.tree.leaves(sampled_gradient(pairs)), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(given.mean(axis=0), wanted, atol=1e-12)


def test_the_sampler_without_batches_and_the_full_batch_give_everything():
    problem, _ = sampled.regressions(0)
    key = jax.random.key(0)
    assert Sampler().for_upper(problem, key) is problem and Sampler().for_lower(problem, key) is problem
    for sampler in (sampled.rows(4), sampled.tasks(3), sampled.both(3, 4)):
        for drawn in (sampler.for_upper(problem, key), sampler.for_lower(problem, key)):
            for given, wanted in zip(jax.tree.leaves(drawn.data), jax.tree.leaves(problem.data), strict=True):
                np.testing.assert_array_equal(given, wanted)


def test_the_same_rows_of_every_array_and_only_of_its_own_level():
    problem, _ = sampled.regressions(0, T=1, n=50, valid=50)
    sampler = sampled.rows(5)
    data = sampler.for_lower(problem, jax.random.key(3)).data
    positions = [int(np.flatnonzero(problem.data["train_targets"][0] == t)[0]) for t in data["train_targets"][0]]
    assert len(set(positions)) == 5
    np.testing.assert_array_equal(data["train"], problem.data["train"][:, positions])
    np.testing.assert_array_equal(data["valid"], problem.data["valid"])


def test_blocks_cover_the_rows_once():
    problem, _ = sampled.regressions(0)
    batch = sampled.rows(2).lower[0]
    assert batch.blocks(problem.data) == 2
    parts = [batch.block(jnp.asarray(i), problem.data)["train"] for i in range(2)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), problem.data["train"])


def test_data_that_is_one_array():
    data = jnp.arange(6.0)
    drawn = Batch(lambda d: d, 2).draw(jax.random.key(0), data)
    assert drawn.shape == (2,) and set(np.asarray(drawn)) <= set(range(6))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Batch(sampled.TRAIN_ROWS, 0), "size must be a whole number >= 1, given 0"),
        (lambda: sampled.rows(5), "size must be at most the number of rows 4, given 5"),
        (lambda: Sampler(Batch(lambda d: d["nothing"], 1)), "leaves must pick arrays of data .* KeyError"),
        (lambda: Sampler(Batch(lambda d: (d["train"], d["task"]), 1, axis=1)), "leaves must pick arrays"),
        (lambda: Sampler(lower=Batch(lambda d: (d["train"], d["task"][:2]), 1)), "as many rows .* given \\[2, 3\\]"),
    ],
)
def test_mistakes_are_named_before_anything_compiles(make, words):
    problem, start = sampled.regressions(0)
    with pytest.raises(ValueError, match=words):
        steps = bs.StepSizes(alpha=0.1, tau=0.1, sigma=0.1)
        bs.methods.MORBiT(steps, sampler=make()).init(problem, start)


def test_blocks_need_a_size_that_divides_the_rows():
    problem, _ = sampled.regressions(0)
    with pytest.raises(ValueError, match="size must divide the number of rows .* given 3 and 4 rows"):
        sampled.rows(3).lower[0].blocks(problem.data)


def test_a_sampler_of_another_type_is_refused():
    with pytest.raises(ValueError, match="sampler must be a bs.methods.Sampler.* given NoneType"):
        bs.methods.MORBiT(bs.StepSizes(alpha=0.1, tau=0.1, sigma=0.1), sampler=None)


@pytest.mark.parametrize("seed", [-1, 0.5, 2**32])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(ValueError, match=f"seed must be a whole number from 0 to .* given {seed}"):
        bs.methods.MORBiT(bs.StepSizes(alpha=0.1, tau=0.1, sigma=0.1), seed=seed)


# -- methods with a sampler -------------------------------------------------------------------------------------------


def _on(name, saddle, sampler):
    problem, start = sampled.regressions(2, saddle)
    return METHODS[name](problem, sampler=sampler), problem, start


# every method with a sampler, with a max player or without
SAMPLED = [
    (name, kind == "bilevel saddle")
    for name, method in public_methods().items()
    for kind in ("bilevel saddle", "bilevel")
    if "sampler" in inspect.signature(method).parameters and kind in method.about.problems
]


@pytest.mark.parametrize(("name", "saddle"), unless_quick(SAMPLED, ("FullyProjected",)))
def test_the_full_batch_limit_is_the_deterministic_method(name, saddle):
    everything = trajectory(*_on(name, saddle, Sampler()), 30)
    full = trajectory(*_on(name, saddle, sampled.rows(4)), 30)
    for given, wanted in zip(jax.tree.leaves(full), jax.tree.leaves(everything), strict=True):
        np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("name", "saddle"), unless_quick(SAMPLED, ("SOBA",)))
def test_the_same_seed_is_the_same_trajectory_and_another_seed_is_not(name, saddle):
    method, problem, start = _on(name, saddle, sampled.rows(2))
    first, again = (trajectory(method, problem, start, 30) for _ in range(2))
    other = trajectory(METHODS[name](problem, sampler=sampled.rows(2), seed=1), problem, start, 30)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.max(np.abs(first[0] - other[0])) > 1e-6
    assert np.max(np.abs(first[1] - other[1])) > 1e-6
