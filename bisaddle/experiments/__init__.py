"""The paper's experiments and your own: TOML files, one runner, results as plain JSON."""

from typing import TYPE_CHECKING

from bisaddle.lazy import lazy

if TYPE_CHECKING:
    from bisaddle.experiments import reproduction as reproduction
    from bisaddle.experiments.errors import ExperimentError as ExperimentError
    from bisaddle.experiments.orders import sensitivity as sensitivity
    from bisaddle.experiments.runner import run as run
    from bisaddle.experiments.spec import (
        Case as Case,
        Experiment as Experiment,
        MethodSpec as MethodSpec,
        names as names,
        read as read,
    )
    from bisaddle.experiments.store import (
        load as load,
        load_sensitivity as load_sensitivity,
        save as save,
        save_sensitivity as save_sensitivity,
    )

# the names above, by the module that defines them: reading results needs no JAX
_NAMES = {
    "errors": ("ExperimentError",),
    "orders": ("sensitivity",),
    "runner": ("run",),
    "spec": ("Case", "Experiment", "MethodSpec", "names", "read"),
    "store": ("load", "load_sensitivity", "save", "save_sensitivity"),
}

__getattr__, __dir__ = lazy(__name__, _NAMES, ("reproduction",))
