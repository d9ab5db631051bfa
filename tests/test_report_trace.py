"""The figure of one run: every recorded step, names on the axes, the tolerance; and that a notebook shows it."""

import numpy as np
import pytest

from bisaddle.report.trace import plot_trace

pytest.importorskip("matplotlib")


def made(estimated):
    rng = np.random.default_rng(0)
    k = np.arange(len(estimated))
    columns = {name: np.exp(rng.normal(size=len(k))) for name in ("gap", "x_gap", "y_gap", "value", "worst_value")}
    return columns | {"k": k, "seconds": 0.1 * k, "estimated": np.array(estimated)}


@pytest.mark.parametrize("against", ["steps", "seconds"])
@pytest.mark.parametrize("estimated", [7 * [False], [False, True, True, False, True, True, False]])
def test_every_recorded_step_is_marked_and_the_axes_and_the_tolerance_are_named(against, estimated):
    trace = made(estimated)
    gaps, values = plot_trace(trace, "a run", against, tol=1e-3).axes
    assert gaps.get_xlabel() == values.get_xlabel() == against
    assert gaps.get_ylabel() == "stationarity gap" and values.get_ylabel() == "upper objective"
    lines = {line.get_label().split(",")[0]: line for line in gaps.get_lines()}
    for name, column in (("gap", "gap"), ("x gap", "x_gap"), ("y gap", "y_gap")):
        np.testing.assert_array_equal(lines[name].get_ydata(), trace[column])
        np.testing.assert_array_equal(lines[name].get_xdata(), trace["k" if against == "steps" else "seconds"])
        assert lines[name].get_marker() not in ("", "None", None)
    assert set(lines["tolerance 0.001"].get_ydata()) == {1e-3}
    assert ("certified" in lines) == any(estimated)
    if any(estimated):
        np.testing.assert_array_equal(lines["certified"].get_ydata(), trace["gap"][~trace["estimated"]])


def test_a_notebook_shows_it_without_pyplot():
    figure = plot_trace(made([False, False]))
    assert figure._repr_png_().startswith(b"\x89PNG")
