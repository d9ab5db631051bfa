"""float64 for the whole session, and a table of the worst errors met, printed after the tests."""

import os

import jax
import jaxtyping
import pytest

from tests import typechecks

typechecks.install()
# the tests compare to 1e-10; tests of float32 ask for it by dtype
jax.config.update("jax_enable_x64", True)
# commands that tests start do not write to the user's cache; this process has loaded JAX, and its commands never do
os.environ["BISADDLE_COMPILE_CACHE"] = "off"

_WORST: dict[str, float] = {}

# XLA maps memory for every program it compiles, three or four times, and crashes when a process has too many maps.
# Linux allows 65,530 unless told otherwise; a worker of `make test` has fewer than 20,000 in the end.
MOST_MAPS = 30_000
LOOK_EVERY = 10  # some tests of sets add thousands
_finished = 0


def _maps():
    try:
        with open("/proc/self/maps", "rb") as file:
            return sum(1 for _ in file)
    except OSError:  # not on Linux, where there is no such limit
        return 0


def pytest_runtest_teardown():
    global _finished
    _finished += 1
    if _finished % LOOK_EVERY == 0 and _maps() > MOST_MAPS:
        from bisaddle import programs  # not above: the import hook that checks annotations comes first

        jax.clear_caches()
        programs.clear()


@pytest.fixture
def unchecked_types():
    """Without the run-time type checks of the test suite, which would speak before the messages that users see."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def record():
    """record(what, value): keep the largest value of each kind for the summary."""

    def keep(what, value):
        _WORST[what] = max(_WORST.get(what, -float("inf")), float(value))

    return keep


def pytest_terminal_summary(terminalreporter):
    if _WORST:
        terminalreporter.section("worst errors measured")
        for what, value in _WORST.items():
            terminalreporter.write_line(f"{value:9.2e}  {what}")
