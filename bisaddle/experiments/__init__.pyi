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
