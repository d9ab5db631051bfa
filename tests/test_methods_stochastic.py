"""Methods on mini-batches against NumPy loops on the same batches, and what variance reduction buys."""

import inspect

import jax
import jax.numpy as jnp
import pytest

import bisaddle as bs
from bisaddle.methods.base import public_methods
from tests import reference_methods_bilevel as loops
from tests.method_cases import sampled
from tests.method_cases.runs import deviation, numbers, run, trajectory, unless_quick
from tests.registry import METHODS, REGULARIZED, flat

STEPS = 40
SEED = 5
TERMS = 3


def drawn(sampler, problem, keys_of):
    """draw(k) -> the References that a method sees at step k; keys_of: functions (key of the step) -> (level, key)."""
    lower, upper = jax.jit(sampler.for_lower), jax.jit(sampler.for_upper)

    def draw(k):
        key = jax.random.fold_in(jax.random.key(SEED), k)
        chosen = (of(key) for of in keys_of)
        problems = ((lower if level == "g" else upper)(problem, sample) for level, sample in chosen)
        return tuple(Twin(problem.data, problem.y_set is not None) for problem in problems)

    return draw


class Twin:
    """sampled.twin with the gradient of g in x, which the penalty methods need."""

    def __init__(self, data, saddle):
        self.__dict__.update(vars(sampled.twin(data, saddle)), g_x=sampled.g_x(data))


def part(level, i, count=4):
    """The i-th of the keys that a step is split into."""
    return lambda key: (level, jax.random.split(key, count)[i])


def nested(level, i, j, of=None):
    """The j-th fold of the i-th of four keys, and the `of`-th of the three it is split into."""

    def key_of(key):
        folded = jax.random.fold_in(jax.random.split(key, 4)[i], j)
        return level, folded if of is None else jax.random.split(folded, 3)[of]

    return key_of


def product(j):
    """The sample of the j-th product of the Neumann series, whose key is the third of four."""
    return lambda key: ("g", jax.random.fold_in(jax.random.split(jax.random.split(key, 4)[2])[1], j))


def inner(count):
    """theta, p and f_theta of each inner step of F2SA."""
    return [nested(level, 3, t, of) for t in range(count) for of, level in ((0, "g"), (1, "g"), (2, "f"))]


def third(i):
    """As `nested`, without inner steps."""
    return lambda key: ("f" if i == 2 else "g", jax.random.split(jax.random.split(key, 4)[3], 3)[i])


gx = lambda p, x, theta: p.g_x(x, theta)
SERIES = [product(j) for j in range(1, TERMS)]
NEUMANN = [part("g", 0), part("f", 1), part("g", 3), *SERIES]
PENALTY = [part("f", 0), part("g", 1), part("g", 2)]
BLOCKS = [part("f", 1, 5), part("g", 2, 5), part("g", 3, 5), part("g", 4, 5)]
REGULAR = [part("f", 0), part("g", 1), part("g", 2), part("g", 3)]
# name -> (options, the samples of a step, loop(draw, start, steps, L_g, everything))
LOOPS = {
    "SOBA": ({}, [part("g", 0, 2), part("f", 1, 2)], lambda d, at, s, L, p: loops.soba(d, *at[:2], s, STEPS)),
    "FSLA": (
        {"momentum": 0.3},
        [part("g", 0), part("g", 1), part("g", 2), part("f", 3)],
        lambda d, at, s, L, p: loops.fsla(d, *at[:2], s, STEPS, 0.3),
    ),
    "SUSTAIN": (
        {"momentum": 0.3, "neumann_terms": TERMS},
        NEUMANN,
        lambda d, at, s, L, p: loops.sustain(d, *at[:2], s, STEPS, L, TERMS, 0.3),
    ),
    "SBFW": (
        {"momentum": 0.3, "neumann_terms": TERMS},
        NEUMANN,
        lambda d, at, s, L, p: loops.sustain(d, *at[:2], s, STEPS, L, TERMS, 0.3, lmo=True),
    ),
    "TTSA": ({"neumann_terms": TERMS}, NEUMANN, lambda d, at, s, L, p: loops.morbit(d, *at, s, STEPS, L, TERMS)),
    "MORBiT": ({"neumann_terms": TERMS}, NEUMANN, lambda d, at, s, L, p: loops.morbit(d, *at, s, STEPS, L, TERMS)),
    "F2SA": (
        {"penalty": 5.0, "inner_steps": 2},
        PENALTY + inner(2),
        lambda d, at, s, L, p: loops.penalty(d, *at, s, STEPS, 5.0, gx, 2),
    ),
    "FirstOrderPenalty": (
        {"penalty": 5.0},
        PENALTY + [third(i) for i in range(3)],
        lambda d, at, s, L, p: loops.penalty(d, *at, s, STEPS, 5.0, gx),
    ),
    "BSA": (
        {"neumann_terms": TERMS, "inner_steps": 2},
        [part("f", 1), part("g", 3), nested("g", 0, 0), nested("g", 0, 1), *SERIES],
        lambda d, at, s, L, p: loops.sampled_inner_loops(d, *at[:2], s, STEPS, 2, L_g=L),
    ),
    "AmIGO": (
        {"inner_steps": 2, "linear_steps": 3},
        [part("f", 1), part("g", 3), *(nested("g", i, t) for i, n in ((0, 2), (2, 3)) for t in range(n))],
        lambda d, at, s, L, p: loops.sampled_inner_loops(d, *at[:2], s, STEPS, 2, 3),
    ),
    "MultiBlockV1": (
        {"momentum": 0.3, "averaging": 0.2},
        BLOCKS,
        lambda d, at, s, L, p: loops.multi_block(d, *at, s, STEPS, 0.3, 0.2, first=p),
    ),
    "MultiBlockV2": (
        {"momentum": 0.3},
        BLOCKS,
        lambda d, at, s, L, p: loops.multi_block(d, *at, s, STEPS, 0.3, first=p),
    ),
    "FullyProjected": (
        {"mu": 0.2},
        REGULAR,
        lambda d, at, s, L, p: loops.sampled_regularized(d, *at, s, STEPS, lmo=False),
    ),
    "OneSidedProjectionFree": (
        {"mu": 0.2},
        REGULAR,
        lambda d, at, s, L, p: loops.sampled_regularized(d, *at, s, STEPS, lmo=True),
    ),
}


@pytest.mark.parametrize("name", unless_quick(LOOPS, ("SOBA",)))
def test_a_sampled_trajectory_equals_the_numpy_loop_on_the_same_batches(name, record):
    saddle = "bilevel saddle" in getattr(bs.methods, name).about.problems
    problem, start = sampled.regressions(0, saddle)
    options, keys, loop = LOOPS[name]
    sampler = sampled.both(2, 2) if name in REGULARIZED else sampled.rows(2)
    method = METHODS[name](problem, sampler=sampler, seed=SEED, **options)
    begin = (flat(start.x), flat(start.theta), flat(start.y))
    draw, everything = drawn(sampler, problem, keys), sampled.twin(problem.data, saddle)
    wanted = loop(draw, begin, numbers(method), float(problem.constants.L_g), everything)
    worst = deviation(trajectory(method, problem, start, STEPS)[: len(wanted)], wanted)
    record("sampled trajectories against NumPy on the same batches", worst)
    assert worst <= 1e-10


def test_every_method_with_a_sampler_is_compared():
    bilevel = {name: kind for name, kind in public_methods().items() if kind.about.problems != ("saddle",)}
    taking = {name for name, kind in bilevel.items() if "sampler" in inspect.signature(kind).parameters}
    assert taking <= set(LOOPS) | {"SABA"}


@pytest.mark.slow
def test_saba_equals_the_numpy_loop_on_the_same_blocks(record):
    problem, start = sampled.regressions(0, saddle=False)
    sampler = sampled.rows(1)
    method = METHODS["SABA"](problem, sampler=sampler, seed=SEED)
    blocks = [
        [sampled.twin(batch.block(jnp.asarray(i), problem.data)) for i in range(4)]
        for batch in (sampler.lower[0], sampler.upper[0])
    ]
    keys = [jax.random.split(jax.random.fold_in(jax.random.key(SEED), k)) for k in range(STEPS)]
    order = [tuple(int(jax.random.randint(key, (), 0, 4)) for key in pair) for pair in keys]
    assert len(set(order)) > 8
    wanted = loops.saba(*blocks, order, flat(start.x), flat(start.theta), numbers(method))
    worst = deviation(trajectory(method, problem, start, STEPS), wanted)
    record("trajectory of SABA against NumPy on the same blocks", worst)
    assert worst <= 1e-10


@pytest.mark.slow
def test_memory_takes_saba_where_soba_cannot_go():
    problem, start = sampled.regressions(0, saddle=False)
    gaps = {}
    for name in ("SOBA", "SABA"):
        steps = bs.StepSizes(alpha=0.05, eta=0.05, tau=0.05)
        method = getattr(bs.methods, name)(steps, sampler=sampled.rows(1), seed=1)
        point = run(method, problem, start, 30_000)[0].point
        gaps[name] = float(bs.certify(problem, point).gap)
    assert gaps["SABA"] <= 1e-8 and gaps["SOBA"] > 1e-4
