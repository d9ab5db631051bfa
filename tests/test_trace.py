"""The trace of a run: a row for every step, and whose gap it is; and the threads that a run gives back."""

from itertools import islice

import jax.numpy as jnp
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import bisaddle as bs
from bisaddle.oracle.kernels import Kernels
from bisaddle.run.result import CERTIFICATE_COLUMNS
from tests.registry import PROBLEMS
from tests.test_first_answer import example
from tests.test_programs import blas_threads

STEPS = bs.StepSizes(alpha=0.5, eta=0.5, gamma=0.5, tau=0.7, sigma=1.0, mu=0.0)
METHODS = {"Adaptive": None, "FullyProjected": bs.methods.FullyProjected(STEPS)}
# --- the trace -------------------------------------------------------------------------------------------------------

TRACED = ("logistic", "CB2", "generator, ball active")


@pytest.mark.parametrize("name", TRACED)
def test_the_trace_has_a_row_for_every_step_and_tells_whose_gap_it_is(name):
    problem, start, _ = PROBLEMS[name](0)
    result = bs.solve(problem, start, tol=1e-6)
    trace = result.trace
    assert result.status is bs.Status.CERTIFIED
    assert trace.k.tolist() == [*range(result.steps + 1)]
    assert trace.estimated.dtype == bool and not trace.estimated[0] and not trace.estimated[-1]
    assert np.all(np.diff(trace.seconds) >= 0) and np.all(np.isfinite(trace.gap[1:]))
    for column in CERTIFICATE_COLUMNS:
        values = getattr(trace, column)
        assert np.all(np.isfinite(values[~trace.estimated]))
        told = column in ("gap", "x_gap", "y_gap", "value")  # by the method itself
        assert np.all(np.isfinite(values[trace.estimated]) if told else np.isnan(values[trace.estimated]))
    np.testing.assert_allclose(trace.gap, trace.x_gap + trace.y_gap, rtol=1e-15)
    for column in ("gradients", "hvps", "cross_products", "projections", "lmos"):
        assert np.all(np.diff(getattr(trace, column)) >= 0)
    certified = trace.certified
    assert not np.any(certified.estimated) and set(certified.k) == set(trace.k[~trace.estimated])
    np.testing.assert_array_equal(certified.gap, trace.gap[~trace.estimated])
    assert len(certified) == np.sum(~trace.estimated) < len(trace)
    np.testing.assert_allclose(certified.gap[-1], result.gap)
    # the method's own are those of its looks
    kernels = Kernels(problem, start)
    looks = bs.methods.Adaptive(1e-6).looks(problem, kernels, *kernels.flat(start))
    for look in islice(looks, result.steps):
        if trace.estimated[look.k]:
            assert (trace.gap[look.k], trace.x_gap[look.k], trace.value[look.k]) == (look.gap, look.x_gap, look.value)


@pytest.mark.parametrize("method", METHODS)
def test_certified_rows_are_the_certificates_that_were_recorded(method):
    problem, start, _ = example()
    records = {}
    keep = lambda record: records.update({record.k: record})
    result = bs.solve(problem, start, METHODS[method], tol=None, max_steps=25, every=10, callback=keep)
    trace = result.trace
    assert list(records) == [0, 10, 20, 25]
    certified = trace.certified
    recorded = np.isin(certified.k, list(records))
    assert certified.k[recorded].tolist() == [0, 10, 20, 25]
    for column in CERTIFICATE_COLUMNS:
        wanted = [getattr(record.certificate, column) for record in records.values()]
        np.testing.assert_array_equal(getattr(certified, column)[recorded], wanted)
    for record in records.values():
        np.testing.assert_allclose(record.certificate.gap, bs.certify(problem, record.point).gap, rtol=1e-9, atol=1e-12)
    if METHODS[method] is None:
        assert trace.k.tolist() == [*range(26)]
        # at the end the place that seems best may get a certificate too, and it is the best
        assert len(certified) <= 5 and np.all(certified.gap[~recorded] == result.gap)
    else:
        assert np.all(recorded) and not np.any(trace.estimated)


@pytest.mark.parametrize("name", TRACED)
def test_what_the_method_says_of_its_gap_is_about_right(name):
    problem, start, _ = PROBLEMS[name](1)
    kernels = Kernels(problem, start)
    seen = 0
    for look in bs.methods.Adaptive(1e-6).looks(problem, kernels, *kernels.flat(start)):
        certificate = bs.certify(problem, kernels.point(look.x, look.theta, look.y))
        gap = certificate.gap
        if gap <= 1e-7 or seen == 40:
            break
        assert gap / 2 <= look.gap <= 2 * gap
        np.testing.assert_allclose(look.value, certificate.value, atol=gap)
        seen += 1
    assert seen >= 5


# --- threads ---------------------------------------------------------------------------------------------------------


def test_a_solve_gives_the_threads_back():
    problem, start, _ = example()
    inside = []
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        bs.solve(problem, start, tol=1e-3, callback=lambda record: inside.append(blas_threads()))
        assert blas_threads() == before
        with pytest.raises(ValueError, match="from the callback"):
            bs.solve(problem, start, tol=1e-3, callback=_raises)
        assert blas_threads() == before
    assert inside and all(threads == {1} for threads in inside)


def _raises(record):
    raise ValueError("from the callback")


def test_a_function_that_is_no_number_at_the_start_is_a_status_at_once():
    """Also where only f_theta is NaN, through which nothing but the linear system goes."""

    def upper(x, theta, y, data):
        return jnp.sum(jnp.sqrt(theta - 0.99))

    def lower(x, theta, data):
        return 0.5 * jnp.sum((theta - x) ** 2)

    problem = bs.Problem(upper, lower, bs.sets.Box(-1.0, 1.0), None)
    result = bs.solve(problem, bs.Point(x=np.zeros(2), theta=np.zeros(2)))
    assert result.status is bs.Status.NONFINITE and result.steps <= 1
    assert np.all(np.isfinite(result.last.x))
