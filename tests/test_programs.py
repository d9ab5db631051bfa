"""Programs: what they are compiled for and when, what is kept; the flat vectors that go in; one thread of BLAS."""

import threading
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib import xla_client
from threadpoolctl import threadpool_info, threadpool_limits

import bisaddle as bs
from bisaddle import programs
from bisaddle.oracle.kernels import RECENT, Kernels
from bisaddle.programs import OutOfTime, Program, Watch, cached, one_blas_thread, watched
from bisaddle.trees import Shape
from tests.registry import PROBLEMS


def doubled(data, v):
    return data + 2 * v


def count(function):
    """How many programs were compiled by it."""
    with watched(Watch()) as watch:
        function()
    return watch.programs


@pytest.fixture
def kept(monkeypatch):
    """No program yet; those of other tests come back afterwards."""
    found = OrderedDict()
    monkeypatch.setattr(programs, "_PROGRAMS", found)
    return found


# --- what is compiled ------------------------------------------------------------------------------------------------


def total(fixed, v):
    return fixed["a"] + fixed["b"] * v


def test_a_program_is_compiled_once_for_each_structure_and_shapes(kept):
    made = lambda fixed: Program(total, "a sum", fixed)
    program = made({"a": np.ones(3), "b": 2.0})
    assert not kept  # nothing before it is called
    assert count(lambda: program(np.ones(3))) == 1
    assert count(lambda: program(np.zeros(3))) == 0
    other = made({"a": jnp.arange(3.0), "b": 5.0})  # other numbers
    assert count(lambda: np.testing.assert_array_equal(other(np.ones(3)), [5.0, 6.0, 7.0])) == 0
    assert count(lambda: program(np.ones((2, 3)))) == 1  # other shapes of the arrays
    assert count(lambda: program(np.ones(3, np.float32))) == 1  # another dtype
    assert count(lambda: made({"a": np.ones(1), "b": 2.0})(np.ones(3))) == 1  # another shape of what is fixed
    assert count(lambda: made({"a": np.ones(3), "b": 2.0, "c": None})(np.ones(3))) == 1  # another structure
    assert count(lambda: Program(doubled, "a sum", np.ones(3))(np.ones(3))) == 1  # another function
    assert len(kept) == 6


def projected(fixed, v):
    return fixed[0].project(v), {"lmo": fixed[0].lmo(v)}


def test_set_sizes_are_arguments_and_static_fields_are_not(kept):
    v = np.array([3.0, -1.0, 0.5])
    found = []
    for radius, programs_needed in ((1.0, 1), (2.5, 0)):
        program = Program(projected, "the l1 ball", (bs.sets.L1Ball(radius), Shape.of(v)))
        assert count(lambda program=program: found.append(program(v))) == programs_needed
    for (point, rest), radius in zip(found, (1.0, 2.5), strict=True):
        assert isinstance(point, np.ndarray) and isinstance(rest["lmo"], np.ndarray)
        np.testing.assert_allclose(np.sum(np.abs(point)), radius)
        np.testing.assert_allclose(rest["lmo"], [-radius, 0.0, 0.0])
    rows = Program(projected, "the l1 ball", (bs.sets.L1Ball(1.0, axis=-1), Shape.of(v)))
    assert count(lambda: rows(v)) == 1
    elsewhere = Program(projected, "the l1 ball", (bs.sets.L1Ball(1.0), Shape.of(np.zeros((3, 1)))))
    assert count(lambda: elsewhere(v)) == 1


def test_the_programs_used_last_are_kept(kept, monkeypatch):
    monkeypatch.setattr(programs, "MOST_PROGRAMS", 2)
    use = lambda size: count(lambda: Program(doubled, "a sum", np.ones(size))(np.ones(size)))
    assert [use(1), use(2), use(1)] == [1, 1, 0]
    assert use(3) == 1  # instead of that for 2, which was not used for longer
    assert len(kept) == 2 and [use(1), use(3), use(2)] == [0, 0, 1]


def scaled(v, *, power):
    return v**power


def test_a_cached_program_has_its_keywords_compiled_in(kept):
    run = lambda v, power: cached(scaled, "a power", v, power=power)(v)
    v = jnp.arange(3.0)
    answers = []
    assert count(lambda: answers.append(run(v, 2))) == 1
    assert count(lambda: answers.append(run(2 * v, 2))) == 0
    assert count(lambda: answers.append(run(v, 3))) == 1
    assert all(isinstance(answer, jax.Array) for answer in answers)
    for answer, wanted in zip(answers, ([0, 1, 4], [0, 4, 16], [0, 1, 8]), strict=True):
        np.testing.assert_array_equal(answer, wanted)


def test_a_program_that_fails_to_compile_is_not_kept(kept):
    def broken(fixed, v):
        raise TypeError("no such thing")

    program = Program(broken, "nothing", ())
    for _ in range(2):
        with watched(Watch()) as watch, pytest.raises(TypeError, match="no such thing"):
            program(np.ones(2))
        assert watch.programs == 1
    assert not kept


# --- options ---------------------------------------------------------------------------------------------------------


def test_an_option_that_the_compiler_does_not_know_is_left_out(monkeypatch):
    monkeypatch.setattr(programs, "LIGHT", {"xla_no_such_option_at_all": True})
    monkeypatch.setattr(programs, "MEDIUM", {"xla_no_such_option_at_all": True})
    monkeypatch.setattr(programs, "_UNKNOWN_OPTIONS", set())
    programs.clear()
    np.testing.assert_array_equal(Program(doubled, "a sum", np.ones(3))(np.arange(3.0)), [1.0, 3.0, 5.0])
    assert programs._UNKNOWN_OPTIONS == {"cpu"}
    np.testing.assert_array_equal(Program(doubled, "a sum", np.ones(4))(np.arange(4.0)), [1.0, 3.0, 5.0, 7.0])
    problem, start, _ = PROBLEMS["CB2"](0)
    assert bs.solve(problem, start, tol=1e-4).status is bs.Status.CERTIFIED
    programs.clear()


def test_what_is_wrong_with_a_program_itself_is_not_blamed_on_the_options(monkeypatch):
    class Lowered:
        def __init__(self):
            self.tried = []

        def compile(self, compiler_options=None):
            self.tried.append(compiler_options)
            raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")

    monkeypatch.setattr(programs, "_UNKNOWN_OPTIONS", set())
    lowered = Lowered()
    with pytest.raises(RuntimeError, match="out of memory"):
        programs._compiled(lowered, [np.ones(3)])
    assert lowered.tried == [programs.LIGHT] and not programs._UNKNOWN_OPTIONS


def test_large_programs_get_all_that_the_compiler_can_do():
    class Lowered:
        def compile(self, compiler_options=None):
            return compiler_options

    def options(size, effort=None):
        return programs._compiled(Lowered(), [np.zeros(size, np.int8)], effort)

    assert options(programs.LIGHT_BYTES) == programs.LIGHT
    assert options(programs.LIGHT_BYTES + 1) == options(programs.MEDIUM_BYTES) == programs.MEDIUM
    assert options(programs.MEDIUM_BYTES + 1) is None
    assert [options(1, effort) for effort in (0, 1, 2)] == [programs.LIGHT, programs.MEDIUM, None]
    assert options(programs.MEDIUM_BYTES + 1, 0) == programs.LIGHT


# --- the thread ------------------------------------------------------------------------------------------------------


def whose(data, v):
    """v, data added; the last entry is the thread that runs it."""
    seen = lambda v: np.append(v, float(threading.get_ident() % 2**40))
    return jax.pure_callback(seen, jax.ShapeDtypeStruct((v.size + 1,), v.dtype), v + data)


def test_a_small_program_runs_in_the_thread_that_calls_it():
    before = jax.devices(), jax.config.values["jax_default_device"]
    found = Program(whose, "a thread", np.ones(3))(np.arange(3.0))
    np.testing.assert_array_equal(found, [1.0, 2.0, 3.0, threading.get_ident() % 2**40])
    # nothing of JAX's own is changed by it
    assert (jax.devices(), jax.config.values["jax_default_device"]) == before
    assert jnp.ones(3).devices() == {jax.devices()[0]} != {programs.caller_device()}
    # also without anything fixed, and with an array of its own
    alone = Program(lambda _, v, w: v + w, "a sum", ())
    kept = alone.put(np.ones(3))
    assert kept.devices() == {programs.caller_device()}
    np.testing.assert_array_equal(alone(np.arange(3.0), kept), [1.0, 2.0, 3.0])


def test_much_data_and_data_that_lie_elsewhere_stay_where_they_are(monkeypatch):
    small, device = jax.device_put(np.ones(3)), programs.caller_device()
    large = jax.device_put(np.ones(programs.NEAR_BYTES // 8 + 1))
    assert programs.near(small).devices() == {device}
    assert programs.near(programs.near(small)) is not small
    assert programs.near({"a": large, "b": small}) == {"a": large, "b": small}
    program = Program(doubled, "a sum", large)
    assert program.leaves[0] is large and program.device is None
    assert program.put(np.ones(3)).devices() == {jax.devices()[0]}
    monkeypatch.setattr(jax, "devices", lambda: [device])  # as if the usual device were another one
    assert programs.near(small) is small


def test_a_number_keeps_its_weak_type_where_it_is_moved():
    narrow = np.ones(3, np.float32)
    for factor, dtype in ((jnp.asarray(2.0), np.float32), (np.float64(2.0), np.float64)):
        assert Program(lambda fixed, v: fixed * v, "a product", factor)(narrow).dtype == dtype


def test_answers_are_those_of_the_usual_device(monkeypatch):
    problem, start, _ = PROBLEMS["logistic"](0)
    here = bs.solve(problem, start, tol=1e-6)
    monkeypatch.setattr(programs, "caller_device", lambda: None)
    usual = bs.solve(problem, start, tol=1e-6)
    assert here.steps == usual.steps and here.certificate.gap == usual.certificate.gap
    np.testing.assert_array_equal(here.x, usual.x)


def test_a_jaxlib_without_such_a_client_is_no_obstacle(monkeypatch):
    monkeypatch.setattr(xla_client, "make_cpu_client", lambda **options: {}["asynchronous"])
    assert programs.caller_device.__wrapped__() is None
    monkeypatch.setattr(jax, "process_count", lambda: 2)  # whose programs run on devices of all of them
    assert programs.caller_device.__wrapped__() is None


# --- the watch -------------------------------------------------------------------------------------------------------


def test_the_deadline_is_looked_at_before_every_program():
    with watched(Watch(deadline=0.0)) as watch, pytest.raises(OutOfTime, match="too late"):
        Program(doubled, "too late", np.ones(7))(np.ones(7))
    assert watch.programs == 0 and watch.seconds == 0
    with watched(Watch()) as watch:
        program = Program(doubled, "a sum", np.ones(7))
        program(np.ones(7))
    assert watch.programs == 1 and watch.seconds > 0
    # also what is compiled already: a program may take as long to run
    with watched(Watch(deadline=0.0)) as watch, pytest.raises(OutOfTime, match="a sum"):
        program(np.ones(7))
    assert watch.programs == 0


def test_the_watch_says_what_is_compiled_and_when_it_is_done():
    said = []
    with watched(Watch(said.append)):
        Program(doubled, "a sum", np.ones(9))(np.ones(9))
    assert said == ["a sum", None]
    assert programs.watch() is programs._NOBODY


# --- flat vectors ----------------------------------------------------------------------------------------------------

TREES = {
    "an array": np.arange(6.0).reshape(2, 3),
    "a number": np.float64(3.0),
    "a dict": {"b": np.arange(2.0), "a": np.arange(6.0).reshape(3, 2) - 1},
    "a tuple": (np.zeros((1, 2)), (np.ones(3), {"z": np.array(7.0)})),
    "nothing": None,
    "with nothing in it": {"a": np.ones(2), "b": None},
    "no entries": np.zeros((0, 3)),
}


@pytest.mark.parametrize("name", TREES)
def test_a_tree_goes_into_a_vector_and_back(name):
    tree = TREES[name]
    shape = Shape.of(tree)
    leaves = jax.tree.leaves(tree)
    flat = shape.ravel(tree)
    assert flat.shape == (shape.size,) and flat.dtype == shape.dtype == np.float64
    np.testing.assert_array_equal(flat, np.concatenate([np.zeros(0), *(np.ravel(leaf) for leaf in leaves)]))
    back = shape.tree(flat)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    jax.tree.map(np.testing.assert_array_equal, back, tree)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(back))
    inside, joined = jax.jit(lambda v: (shape.traced(v), shape.join(shape.traced(2 * v))))(flat)
    assert jax.tree.structure(inside) == jax.tree.structure(tree)
    jax.tree.map(np.testing.assert_array_equal, inside, tree)
    np.testing.assert_array_equal(joined, 2 * flat)
    assert Shape.of(shape.structs) == shape and hash(Shape.of(jax.tree.map(jnp.asarray, tree))) == hash(shape)
    assert jax.tree.leaves(shape) == []  # static
    for path, place in shape.named_slices:
        at = tree
        for key in jax.tree_util.tree_leaves_with_path(tree):
            if jax.tree_util.keystr(key[0]) == path:
                at = key[1]
        np.testing.assert_array_equal(flat[place], np.ravel(at))
    assert len(shape.named_slices) == len(leaves)


def test_the_vector_is_a_copy_and_the_tree_a_view():
    array = np.arange(3.0)
    shape = Shape.of(array)
    flat = shape.ravel(array)
    flat[0] = 5
    assert array[0] == 0
    shape.tree(flat)[1] = 7
    assert flat[1] == 7


def test_leaves_lie_by_name():
    tree = {"lam": np.zeros(3), "x": (np.zeros((2, 2)), np.zeros(1))}
    assert Shape.of(tree).named_slices == [
        ("['lam']", slice(0, 3)), ("['x'][0]", slice(3, 7)), ("['x'][1]", slice(7, 8)),
    ]  # fmt: skip
    assert Shape.of(np.zeros(2)).named_slices == [("", slice(0, 2))]


def test_every_leaf_gets_its_dtype_back():
    tree = {"a": np.ones(2, np.float32), "b": np.full(2, 1 / 3)}
    shape = Shape.of(tree)
    assert shape.dtype == np.float64
    flat = shape.ravel(tree)
    for back in (shape.tree(flat), jax.jit(shape.traced)(flat)):
        assert (back["a"].dtype, back["b"].dtype) == (np.float32, np.float64)
        np.testing.assert_array_equal(back["b"], tree["b"])
    single = Shape.of(np.ones(3, np.float32))
    assert single.dtype == np.float32 and single.ravel(np.ones(3, np.float32)).dtype == np.float32
    assert Shape.of([1, 2]).dtype == np.float64  # whole numbers become floats
    assert Shape.of(np.ones(3, np.float32)) != Shape.of(np.ones(3)) != Shape.of(np.ones((3, 1)))


# --- threads ---------------------------------------------------------------------------------------------------------


def blas_threads():
    """Of the BLAS that NumPy brings, or of every one."""
    found = [(info["filepath"], info["num_threads"]) for info in threadpool_info() if info["user_api"] == "blas"]
    own = {threads for path, threads in found if "numpy" in path}
    return own or {threads for _, threads in found}


def test_small_algebra_takes_one_thread_and_gives_the_others_back():
    with threadpool_limits(2, user_api="blas"):
        before, all_before = blas_threads(), threadpool_info()
        with one_blas_thread():
            assert blas_threads() == {1}
            with one_blas_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == before and threadpool_info() == all_before
        with pytest.raises(RuntimeError, match="inside"), one_blas_thread():
            raise RuntimeError("inside")
        assert blas_threads() == before and threadpool_info() == all_before


def test_threads_come_back_whoever_leaves_first():
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == before


def test_f_is_asked_for_once_at_a_place_and_again_after_many_others(monkeypatch):
    problem, point, _ = PROBLEMS["wavy saddle"](0)
    kernels, calls = Kernels(problem, point), []
    usual = Program.__call__
    monkeypatch.setattr(Program, "__call__", lambda self, *arrays: calls.append(self.name) or usual(self, *arrays))
    x, theta, y = kernels.flat(point)
    first, again = kernels.upper(x, theta, y), kernels.upper(x.copy(), theta, y)
    assert len(calls) == 1
    assert first.value == again.value and all(map(np.array_equal, first[1:], again[1:]))
    values = [kernels.upper(x + i, theta, y).value for i in range(1, RECENT + 1)]
    assert len(calls) == 1 + RECENT and len({first.value, *values}) == len(values) + 1
    assert kernels.upper(x, theta, y).value == first.value and len(calls) == 2 + RECENT


def test_a_program_beside_another_has_its_arrays_and_is_compiled_by_itself(kept):
    program = Program(total, "a sum", {"a": np.ones(3), "b": 2.0})
    other = program.beside(lambda fixed, v: total(fixed, v) - v, "a sum of less")
    assert count(lambda: program(np.ones(3))) == 1 == count(lambda: other(np.ones(3)))
    np.testing.assert_array_equal(program(np.ones(3)) - other(np.ones(3)), np.ones(3))
    assert other.leaves is program.leaves and (other.name, program.name) == ("a sum of less", "a sum")
