"""What objects print: numbers instead of dtypes, the call that makes them, cards for notebooks."""

import re
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.showing import WIDTH, changed, shown, sparkline
from tests.registry import PROBLEMS


@pytest.fixture(scope="module")
def solved():
    problem, start, _ = PROBLEMS["CB2"](0)
    records = []
    return problem, start, bs.solve(problem, start, tol=1e-6, callback=records.append), records


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (bs.sets.L1Ball(5.0), "L1Ball(radius=5.0)"),
        (bs.sets.Simplex(axis=-1), "Simplex(axis=-1, radius=1.0)"),
        (bs.sets.Box(0.0, np.array([1.0, 2.5])), "Box(lower=0.0, upper=[1.0, 2.5])"),
        (bs.sets.KLBall(np.full(8, 1 / 8), 0.1), "KLBall(reference=float64[8], radius=0.1)"),
        (bs.sets.Product({"a": bs.sets.L2Ball(2)}), "Product(sets={'a': L2Ball(radius=2.0)})"),
        (bs.StepSizes(alpha=0.5, tau=1e-7, mu=0), "StepSizes(alpha=0.5, tau=1e-07, mu=0.0)"),
        (bs.Point(x=np.zeros((3, 5)), y=np.array([1 / 3])), "Point(x=float64[3,5], y=[0.333333])"),
        (bs.Constants(mu_g=0.1), "Constants(mu_g=0.1)"),
        (bs.methods.Adaptive(1e-6), "Adaptive(tol=1e-06)"),
    ],
)
def test_a_repr_is_the_call_with_numbers(value, words):
    assert repr(value) == words


def test_a_repr_of_numbers_can_be_evaluated():
    names = vars(bs.sets) | {name: getattr(bs.sets, name) for name in ("L1Ball", "Box", "Product")}
    made = bs.sets.Product({"a": bs.sets.L1Ball(0.25), "b": bs.sets.Box(-1.0, 1.0)})
    assert hash(eval(repr(made), names)) == hash(made)


def test_what_has_its_default_is_left_out_and_functions_have_names():
    def upper(x, theta, y, data):
        return jnp.sum(x)

    words = repr(bs.Problem(upper, None, bs.sets.L2Ball(1.0), None))
    assert words == "Problem(upper=upper, x_set=L2Ball(radius=1.0))"


def test_traced_numbers_are_called_so():
    seen = []
    jax.jit(lambda r: (seen.append(repr(bs.sets.L1Ball(r))), r)[1])(1.0)
    assert seen == ["L1Ball(radius=traced float64[])"]


def test_a_result_prints_what_is_asked_first(solved):
    *_, result, records = solved
    for value in (result, result.certificate, result.trace, records[-1], result.point):
        assert all(len(line) <= WIDTH + 20 for line in repr(value).splitlines())
    assert "CERTIFIED" in repr(result) and f"steps={result.steps}" in repr(result)
    assert shown(result.gap) in repr(result.certificate) and f"rows={len(result.trace)}" in repr(result.trace)
    assert f"k={records[-1].k}" in repr(records[-1])


def test_cards_are_sound_markup_with_the_numbers(solved):
    problem, start, result, records = solved
    for value in (problem, start, result, result.certificate, records[-1]):
        ElementTree.fromstring(value._repr_html_())
    page = result._repr_html_()
    assert "CERTIFIED" in page and f"{result.certificate.worst_value:.6g}" in page and "<polyline" in page


def test_words_in_a_card_are_escaped():
    problem = bs.Problem(lambda x, theta, y, data: x @ x, None, bs.sets.L2Ball(1.0), None, data={"a<b": np.ones(2)})
    assert "a&lt;b" in problem._repr_html_() and "<lambda>" not in problem._repr_html_()


def test_a_sparkline_falls_where_the_values_fall():
    points = re.search('points="([^"]+)"', sparkline([1.0, 0.1, np.nan, 0.001]))
    assert points is not None
    across, down = np.array([pair.split(",") for pair in points[1].split()], float).T
    assert np.allclose(down, 2 + 40 * np.array([0, 1, 3]) / 3, atol=0.06) and np.all(np.diff(across) > 0)
    assert sparkline([1.0]) == sparkline([0.0, -1.0]) == ""


# --- objects made without a check of each field ----------------------------------------------------------------------


def test_what_is_made_of_fields_is_what_the_class_makes_of_them(solved):
    problem, start, result, records = solved
    for module in (problem, start, result, result.trace, result.certificate, records[0].point):
        fields = vars(module)
        made = type(module).made(**dict(reversed(fields.items())))
        assert list(vars(made)) == list(fields) and all(vars(made)[name] is fields[name] for name in fields)
        assert jax.tree.structure(made) == jax.tree.structure(type(module)(**fields))


def test_all_fields_are_needed_and_no_other():
    point = bs.Point(x=np.zeros(2), y=np.ones(3))
    assert changed(point, y=None).y is None and changed(point, y=None).x is point.x
    for fields in ({"x": point.x}, vars(point) | {"z": None}):
        with pytest.raises(AssertionError):
            bs.Point.made(**fields)
