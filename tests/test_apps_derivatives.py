"""Derivatives written by hand in the applications, against automatic ones of the same f and g; all options."""

import jax
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import oracle
from bisaddle.apps import auc, hyperparameter, multitask, pooling
from bisaddle.apps.folds import CHUNK
from tests.app_checks import sampled
from tests.registry import flat, tasks
from tests.test_apps_multitask import labelled
from tests.test_hyperparameter import labels, table

LOSSES = ("squared", "logistic", "softmax")


def tuned(loss, many=0, **options):
    features, targets, groups = table(n=many or 36)
    return hyperparameter.tuning(features, labels(targets, loss), groups, loss=loss, bounds=(-2.0, 1.0), **options)


def pooled(loss, many=0, **options):
    features, targets, groups = table(n=many or 36)
    return pooling.pooled(features, labels(targets, loss), groups, loss=loss, **options)


CASES = {
    **{
        f"regression, {form}, {shared}": (
            lambda form=form, shared=shared: multitask.regression(
                tasks(0), 2.0, divergence=0.3, form=form, shared=shared
            )
        )
        for form in ("gram", "rows")
        for shared in ("vector", "matrix")
    },
    **{
        f"{head}, {shared}": (
            lambda head=head, shared=shared: getattr(multitask, head)(
                labelled(head), 1.0, divergence=0.3, shared=shared
            )
        )
        for head in ("logistic", "softmax", "poisson")
        for shared in ("vector", "matrix")
    },
    "auc.linear": lambda: auc.linear([(A, b > 0, C, d > 0) for A, b, C, d in tasks(0)], 2.0, divergence=0.1),
    **{
        f"tuning, {loss}, {against}": (
            lambda loss=loss, against=against: tuned(loss, against=against, penalties=[0, 1, 1, 0])
        )
        for loss in LOSSES
        for against in hyperparameter.AGAINST
    },
    **{
        f"pooling, {loss}, {protection}": (lambda loss=loss, protection=protection: pooled(loss, protection=protection))
        for loss in LOSSES
        for protection in (0.0, 0.5)
    },
    "tuning, softmax, in chunks": lambda: tuned("softmax", CHUNK + 40),
    "pooling, logistic, in chunks": lambda: pooled("logistic", CHUNK + 40, protection="worst"),
}


def all_of(problem, x, theta, y, w):
    first = oracle.upper_gradients(problem, x, theta, y), oracle.lower_gradient(problem, x, theta)
    return *first, oracle.hessian_product(problem, x, theta, w), oracle.cross_product(problem, x, theta, w)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_by_hand_are_those_of_f_and_g(name):
    problem, start = CASES[name]()
    assert any(given is not None for given in vars(problem.derivatives).values())
    rng = np.random.default_rng(0)
    x, theta, y = sampled(problem, start, rng, 2.0)
    w = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), theta)
    bare = bs.Problem(**{**vars(problem), "derivatives": None})
    by_hand, automatic = (jax.jit(all_of)(given, x, theta, y, w) for given in (problem, bare))
    for found, wanted in zip(by_hand, automatic, strict=True):
        np.testing.assert_allclose(flat(found), flat(wanted), rtol=1e-9, atol=1e-11)
