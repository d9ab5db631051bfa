"""Every case, for the registry and the common tests."""

from tests.set_cases import general, matrices, probability, vectors

CASES = {**vectors.CASES, **probability.CASES, **matrices.CASES, **general.CASES}
