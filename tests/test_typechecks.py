"""What the tests check of annotations, in bisaddle and on functions of their own."""

from dataclasses import dataclass

import jax.numpy as jnp
import pytest
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Array, Float, TypeCheckError

from bisaddle import trees
from tests import typechecks

checked = typechecks.checked(typechecker=typechecks.beartype)


@checked
def half(n: int, of: "Number | None" = None) -> int:  # noqa: F821
    return n / 2 if of is None else n // 2  # pyright: ignore[reportReturnType]


@checked
def added(u: Float[Array, " d"], v: Float[Array, " d"]) -> Float[Array, " d"]:
    return jnp.broadcast_to(u + v, (2,))


@checked
@dataclass
class Pair:
    first: int
    second: "list[int]"


@pytest.mark.parametrize("call", [lambda: half("4"), lambda: half(4), lambda: Pair(1, 2), lambda: Pair("1", [2])])
def test_wrong_arguments_and_results_are_caught(call):
    with pytest.raises(BeartypeCallHintViolation):
        call()


def test_shapes_of_one_name_have_to_agree():
    assert added(jnp.ones(2), jnp.ones(2)).shape == (2,)
    for u, v in ((jnp.ones(2), jnp.ones(3)), (jnp.ones(1), jnp.ones(1))):  # among the arguments, and with the result
        with pytest.raises(TypeCheckError):
            added(u, v)


def test_functions_and_classes_of_bisaddle_are_checked():
    with pytest.raises(BeartypeCallHintViolation, match="empty"):
        trees.Shape.of(1.0, empty="float")
    with pytest.raises(BeartypeCallHintViolation, match="shapes"):
        trees.Shape(None, [3], ())
    assert hasattr(trees.Shape.__init__, "unchecked")


def test_the_switch_turns_the_checks_off(unchecked_types):
    assert half(5) == 2.5 and half(4, "a quarter") == 2 and Pair("1", 2).first == "1"
