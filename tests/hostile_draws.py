"""Hypothesis chooses: what makers of malformed calls pick, and values of its own that no argument may have."""

import datetime
import string
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from hypothesis.extra import numpy as arrays

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
# no number > 0, whatever the argument; None and infinity mean something to some
NO_POSITIVE = st.one_of(
    TEXT,
    st.binary(max_size=20),
    st.floats(max_value=0.0),
    st.just(float("nan")),
    st.integers(max_value=0),
    st.integers(min_value=10**310, max_value=10**400),
    st.complex_numbers(),
    st.lists(st.floats(), max_size=3),
    st.tuples(st.floats()),
    st.dictionaries(TEXT, st.floats(), max_size=2),
    st.sets(st.integers(), max_size=3),
    st.dates(),
    st.timedeltas(),
    st.just(datetime),
    arrays.arrays(np.float64, st.integers(1, 3)),
)
NO_WHOLE = st.one_of(NO_POSITIVE, st.floats(min_value=1e-300).filter(lambda v: v != int(v) if v < 1e300 else True))
NO_FLOATS = st.sampled_from(["i4", "u1", "?", "c8", "c16", "f2", "U3", "S2", "M8[D]", "m8[s]", "O"]).flatmap(
    lambda kind: arrays.arrays(kind, 2) if kind != "O" else st.just(np.array([0.5, None], object))
)
# what stands for a number on a command line and is none, or none > 0
NO_OPTION = st.one_of(
    st.text(string.printable.replace("\0", ""), max_size=20), TEXT, st.floats(max_value=0.0).map(str), st.just("nan")
).filter(lambda text: not _is_positive(text))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def _is_positive(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


class Draws:
    """What a maker asks of a NumPy generator, chosen by hypothesis; and values of a strategy."""

    def __init__(self, data: st.DataObject):
        self.data = data

    def integers(self, end: int) -> int:
        return self.data.draw(st.integers(0, end - 1))

    def random(self) -> float:
        return self.data.draw(st.floats(0, 1, exclude_max=True))

    def value(self, strategy: st.SearchStrategy) -> Any:
        return self.data.draw(strategy)


def many(count: int, one: Callable[[Draws], None]) -> int:
    """one(draws) that many times, the same every time; how often it was."""
    done = 0

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        nonlocal done
        one(Draws(data))
        done += 1

    run()
    return done
