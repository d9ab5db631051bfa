"""What stands in a traced program."""

import jax


def equations(jaxpr):
    """All of them, those of inner programs included."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda value: hasattr(value, "eqns")):
            if hasattr(inner, "eqns"):  # a Jaxpr, or one closed over constants
                yield from equations(getattr(inner, "jaxpr", inner))
