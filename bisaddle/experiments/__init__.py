"""The paper's experiments and your own: TOML files, one runner, results as plain JSON."""

from bisaddle.experiments import reproduction as reproduction
from bisaddle.experiments.errors import ExperimentError as ExperimentError
from bisaddle.experiments.orders import sensitivity as sensitivity
from bisaddle.experiments.runner import run as run
from bisaddle.experiments.spec import Case as Case
from bisaddle.experiments.spec import Experiment as Experiment
from bisaddle.experiments.spec import MethodSpec as MethodSpec
from bisaddle.experiments.spec import names as names
from bisaddle.experiments.spec import read as read
from bisaddle.experiments.store import load as load
from bisaddle.experiments.store import load_sensitivity as load_sensitivity
from bisaddle.experiments.store import save as save
from bisaddle.experiments.store import save_sensitivity as save_sensitivity
