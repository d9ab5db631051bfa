"""A run that was stopped and taken up again is, bit by bit, the run that was not."""

import os
import shutil
import signal
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.run import blocks, checkpoint, loop
from bisaddle.run.checkpoint import Checkpoints
from bisaddle.run.plain import described, difference
from bisaddle.sets.base import ConvexSet
from tests.registry import PROBLEMS
from tests.test_certificate_wide import posed as in_float32
from tests.test_several import two_valleys
from tests.test_solve import fully_projected, quadratic


def timeless(result):
    """Without the seconds, which are never the same."""
    trace = replace(result.trace, seconds=np.zeros(len(result.trace)))
    starts = tuple(map(timeless, result.starts))
    return replace(result, trace=trace, starts=starts, seconds=0.0, compile_seconds=0.0)


def assert_same(first, second):
    """Every array, number and word of two results, to the last bit."""
    assert not difference(described(timeless(first)), described(timeless(second)))


@pytest.fixture
def copies(monkeypatch, tmp_path):
    """Every checkpoint that is written, in files of their own."""
    kept, write = [], Checkpoints._write

    def write_and_copy(self):
        write(self)
        kept.append(shutil.copy(self.path, tmp_path / f"copy {len(kept)}"))

    monkeypatch.setattr(Checkpoints, "_write", write_and_copy)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # for speed: nobody pulls the plug here
    return kept


def linear():
    """Rows for a sampler: f and g are means over them."""
    rng = np.random.default_rng(0)
    data = {"rows": jnp.asarray(rng.normal(size=(12, 3))), "targets": jnp.asarray(rng.normal(size=12))}
    lower = lambda x, theta, data: jnp.mean((data["rows"] @ theta - data["targets"] - x[0]) ** 2) + jnp.sum(theta**2)
    upper = lambda x, theta, y, data: y @ theta[:2] + 0.5 * jnp.sum(x**2) - 0.5 * jnp.sum(y**2)
    problem = bs.Problem(upper, lower, bs.sets.L2Ball(2.0), bs.sets.L2Ball(1.0), data)
    return problem, bs.Point(jnp.ones(2), jnp.zeros(3), jnp.zeros(2))


def sampled():
    batch = bs.methods.Batch(lambda data: (data["rows"], data["targets"]), 4)
    sizes = bs.StepSizes(alpha=0.1, eta=0.1, gamma=0.2, tau=0.5, sigma=0.5, mu=0.01)
    return bs.methods.FullyProjected(sizes, sampler=bs.methods.Sampler(lower=batch), seed=3)


KNOWN = bs.Constants(mu_g=1.0, L_g=3.0)
POWERS = bs.StepSizes(
    alpha=0.5, eta=0.5, gamma=bs.schedules.Power(0.9, -0.5), sigma=0.5, mu=bs.schedules.Power(0.1, -0.25)
)
CASES = {
    "FullyProjected": lambda: (*quadratic(), fully_projected()),
    "OneSidedProjectionFree": lambda: (*quadratic(), bs.methods.OneSidedProjectionFree(POWERS)),
    "MORBiT": lambda: (*quadratic(constants=KNOWN), bs.methods.MORBiT.default(quadratic(constants=KNOWN)[0], 200)),
    "a sampler": lambda: (*linear(), sampled()),
}


@pytest.mark.parametrize(("case", "every"), [*((case, 20) for case in CASES), ("FullyProjected", 7)])
def test_a_method_with_a_step_goes_on_from_every_checkpoint(case, every, copies, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_SECONDS", 1e-5)  # many blocks, of any length
    problem, start, method = CASES[case]()
    options = {"tol": None, "max_steps": 150, "every": every}
    whole = bs.solve(problem, start, method, **options)
    kept = bs.solve(problem, start, method, **options, checkpoint=tmp_path / "run.ckpt", checkpoint_every=0)
    assert_same(whole, kept)
    assert len(copies) >= 8
    for copy in list(copies[:: max(len(copies) // 4, 1)]):
        assert_same(whole, bs.resume(copy, problem, method))


@pytest.mark.parametrize("every", [10, 9])
def test_steps_that_are_unrolled_are_cut_where_no_digit_changes(every, copies, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_SECONDS", 1e-5)
    monkeypatch.setattr(blocks, "FEW_STEPS", 10)
    problem, start = quadratic()
    options = {"tol": None, "max_steps": 100, "every": every, "checkpoint": tmp_path / "run.ckpt"}
    whole = bs.solve(problem, start, fully_projected(), **options, checkpoint_every=0)
    for copy in list(copies[:: max(len(copies) // 4, 1)]):
        assert_same(whole, bs.resume(copy, problem))


ADAPTIVE = ("logistic", "CB2", "generator, ball active", "quadratic saddle on simplices")


@pytest.mark.parametrize("name", ADAPTIVE)
def test_adaptive_goes_on_from_every_look_between_two_steps(name, copies, tmp_path):
    problem, start, _ = PROBLEMS[name](0)
    whole = bs.solve(problem, start, tol=1e-8)
    options = {"checkpoint": tmp_path / "run.ckpt", "checkpoint_every": 0}
    assert_same(whole, bs.solve(problem, start, tol=1e-8, **options))
    assert len(copies) > 5
    for copy in list(copies[:: max(len(copies) // 5, 1)]):
        assert_same(whole, bs.resume(copy, problem))


def test_adaptive_goes_on_with_atoms_an_inverse_and_a_long_line_search(copies, tmp_path):
    problem, start = quadratic(n=4, m=12, x_set=bs.sets.KSparsePolytope(2, 1.0))
    problem = replace(problem, x_set=WithoutProjection(problem.x_set))
    start = replace(start, x=jnp.zeros(4))
    method = bs.methods.Adaptive(1e-9)
    options = {"tol": None, "max_steps": 30, "every": 5}
    whole = bs.solve(problem, start, method, **options)
    bs.solve(problem, start, method, **options, checkpoint=tmp_path / "run.ckpt", checkpoint_every=0)
    for copy in list(copies[:: max(len(copies) // 4, 1)]):
        assert_same(whole, bs.resume(copy, problem))


def test_a_run_goes_on_where_it_has_left_float32(copies, tmp_path, monkeypatch, recwarn):
    monkeypatch.setattr(loop, "COARSE", 5)
    problem, start = in_float32()
    whole = bs.solve(problem, start, tol=1e-7)
    assert str(whole.status) == "CERTIFIED"
    bs.solve(problem, start, tol=1e-7, checkpoint=tmp_path / "run.ckpt", checkpoint_every=0)
    for copy in list(copies[:: max(len(copies) // 8, 1)]):
        assert_same(whole, bs.resume(copy, problem))


class WithoutProjection(ConvexSet):
    """A set that shows only its linear minimisation oracle."""

    capabilities = frozenset({"lmo"})
    of: ConvexSet

    def lmo(self, direction):
        return self.of.lmo(direction)

    def diameter(self, v):
        return self.of.diameter(v)

    def sample(self, key, shape):
        return self.of.sample(key, shape)


@pytest.mark.parametrize("method", [None, fully_projected(gamma=1.0, tau=0.05)], ids=["Adaptive", "FullyProjected"])
def test_several_starts_go_on_together(method, copies, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_SECONDS", 1e-4)
    problem, start = two_valleys()
    starts, options = bs.start_points(problem, start, 3, jax.random.key(1)), {"tol": 1e-6, "max_steps": 300}
    whole = bs.solve(problem, starts, method, **options)
    kept = {"checkpoint": tmp_path / "run.ckpt", "checkpoint_every": 0}
    assert_same(whole, bs.solve(problem, starts, method, **options, **kept))
    for copy in list(copies[:: max(len(copies) // 4, 1)]):
        assert_same(whole, bs.resume(copy, problem))


@pytest.mark.parametrize("method", [None, fully_projected()], ids=["Adaptive", "FullyProjected"])
def test_more_steps_are_those_of_a_run_that_was_meant_to_be_longer(method, tmp_path):
    problem, start = quadratic()
    options = {"tol": None, "every": 10}
    longer = bs.solve(problem, start, method, max_steps=90, **options)
    bs.solve(problem, start, method, max_steps=33, **options, checkpoint=tmp_path / "run.ckpt")
    assert_same(longer, bs.resume(tmp_path / "run.ckpt", problem, max_steps=90))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("method", [None, fully_projected()], ids=["Adaptive", "FullyProjected"])
def test_a_signal_leaves_a_checkpoint_behind(method, number, tmp_path):
    problem, start = quadratic()
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    options = {"tol": None, "max_steps": 200, "every": 5}
    stop = lambda record: signal.raise_signal(number) if record.k == 50 else None
    try:
        stopped = bs.solve(problem, start, method, **options, callback=stop, checkpoint=tmp_path / "run.ckpt")
    finally:
        signal.signal(signal.SIGINT, usual)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert stopped.status is bs.Status.INTERRUPTED and stopped.steps == 50
    whole = bs.solve(problem, start, method, **options)
    assert_same(whole, bs.resume(tmp_path / "run.ckpt", problem))


def test_a_callback_that_raises_leaves_a_checkpoint_behind(tmp_path):
    problem, start = quadratic()
    with pytest.raises(ZeroDivisionError):
        bs.solve(problem, start, callback=lambda record: 1 / 0, every=5, checkpoint=tmp_path / "run.ckpt")
    assert not (tmp_path / "run.ckpt").exists()  # the start was all there was
    later = lambda record: 1 / (record.k - 20) == 0
    with pytest.raises(ZeroDivisionError):
        bs.solve(problem, start, callback=later, tol=None, every=5, checkpoint=tmp_path / "run.ckpt")
    whole = bs.solve(problem, start, tol=None, every=5, max_steps=40)
    assert_same(whole, bs.resume(tmp_path / "run.ckpt", problem, max_steps=40))


def test_the_last_two_are_kept_and_seconds_say_how_often(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(checkpoint.time, "perf_counter", lambda: clock[0])
    file = Checkpoints(tmp_path / "run.ckpt", every=60)
    problem, start = quadratic()
    settings = checkpoint.Settings(None, 10, None, 1, True, bs.Gap("projection"), False, 10)
    file.about(problem, fully_projected(), [start], settings)
    written = []
    for clock[0] in range(0, 200, 7):
        if file.due():
            file.keep({0: {"k": int(clock[0])}})
        written.append(checkpoint.read(file.path).runs[0]["k"])
    assert sorted(set(written)) == [0, 63, 126, 189]
    assert checkpoint.read(file.previous).runs[0]["k"] == 126


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    problem, start = quadratic()
    path = tmp_path_factory.mktemp("stopped") / "run.ckpt"
    bs.solve(problem, start, fully_projected(), tol=None, max_steps=20, checkpoint=path)
    return path, problem


def changed_function(x, theta, y, data):
    return theta @ data["P"] @ y + x @ data["R"] @ y - 0.5 * jnp.sum(y**2) + 0.25 * jnp.sum(x**2)


CHANGES = {
    "x_set.radius": lambda p: replace(p, x_set=bs.sets.L2Ball(9.0)),
    "x_set is L2Ball in the file, L1Ball here": lambda p: replace(p, x_set=bs.sets.L1Ball(10.0)),
    "y_set": lambda p: replace(p, y_set=None),
    r"data\['c'\] is float64\[4\]": lambda p: replace(p, data={**p.data, "c": p.data["c"] + 1e-15}),
    r"data\['P'\] is float64\[4, 2\].*float32": lambda p: replace(
        p, data={**p.data, "P": jax.device_put(np.asarray(p.data["P"], np.float32))}
    ),
    r"data\['B'\]": lambda p: replace(p, data={key: p.data[key] for key in ("A", "c", "P", "R")}),
    "constants.mu_g is None in the file": lambda p: replace(p, constants=bs.Constants(mu_g=0.5)),
    "upper is _upper": lambda p: replace(p, upper=changed_function),
    "derivatives.f_x": lambda p: replace(p, derivatives=bs.Derivatives(f_x=lambda x, theta, y, data: x)),
}


@pytest.mark.parametrize("words", CHANGES)
def test_another_problem_is_refused_with_the_difference(words, stopped):
    path, problem = stopped
    with pytest.raises(ValueError, match=f"the problem is not that of .*run.ckpt: .*{words}"):
        bs.resume(path, CHANGES[words](problem))


def test_another_method_is_refused_with_the_difference(stopped):
    path, problem = stopped
    assert bs.resume(path, problem, fully_projected()).steps == 20
    with pytest.raises(ValueError, match=r"the method is not that of .*: steps.alpha.value is float64\[\] 0.5 in"):
        bs.resume(path, problem, fully_projected(alpha=0.4))
    with pytest.raises(ValueError, match="it is FullyProjected in the file, Adaptive here"):
        bs.resume(path, problem, bs.methods.Adaptive())


def test_a_method_with_functions_has_to_be_given(tmp_path):
    problem, start = quadratic()
    method = fully_projected(gamma=lambda k: 0.2 / (k + 1))
    whole = bs.solve(problem, start, method, tol=None, max_steps=50)
    bs.solve(problem, start, method, tol=None, max_steps=50, checkpoint=tmp_path / "run.ckpt")
    with pytest.raises(ValueError, match="holds functions .*lambda.* use bs.resume"):
        bs.resume(tmp_path / "run.ckpt", problem)
    with pytest.raises(ValueError, match="steps.gamma.function is"):
        bs.resume(tmp_path / "run.ckpt", problem, fully_projected(gamma=lambda k: 0.1 / (k + 1)))
    assert_same(whole, bs.resume(tmp_path / "run.ckpt", problem, method))


class Restless(bs.methods.base.HostMethod):
    """Looks at the start for ever, and cannot be taken up again."""

    name = "Restless"

    def looks(self, problem, kernels, x, theta, y, state=None):
        raise NotImplementedError


def test_what_cannot_be_kept_is_refused_before_the_work(tmp_path):
    problem, start = quadratic()
    solve = lambda method=None, **options: bs.solve(problem, start, method, max_steps=5, tol=None, **options)
    with pytest.raises(ValueError, match="Restless is not resumable"):
        solve(Restless(), checkpoint=tmp_path / "run.ckpt")
    with pytest.raises(ValueError, match="checkpoint_every must be a number of seconds >= 0, given -1"):
        solve(checkpoint=tmp_path / "run.ckpt", checkpoint_every=-1)
    with pytest.raises(OSError, match="is a folder"):
        solve(checkpoint=tmp_path)
    with pytest.raises(OSError, match="cannot be written"):
        solve(checkpoint="/proc/none/run.ckpt")
    solve(checkpoint=tmp_path / "run.ckpt")
    with pytest.raises(ValueError, match="run.ckpt is there already; go on with bs.resume"):
        solve(checkpoint=tmp_path / "run.ckpt")
    with pytest.raises(FileNotFoundError):
        bs.resume(tmp_path / "none.ckpt", problem)
