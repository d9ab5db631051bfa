"""A warm WorstGroupRegressor.fit against scikit-learn's RidgeCV on the same rows: CPU seconds, and memory by the data.

python benchmarks/estimators.py [--rows 5000 --columns 50 --groups 10] [--memory PartialPoolingClassifier]

RidgeCV tries as many penalties as the fit took steps. Memory: the peak of what the fit allocates, by tracemalloc, and
what the process has grown by, by ru_maxrss, after a first, compiling fit on few rows. --memory: of one estimator,
by the kernel's own peak (Linux) over what is resident after a first fit, whose programs it finds compiled.
"""

import argparse
import ctypes
import gc
import resource
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
from sklearn.linear_model import RidgeCV

import bisaddle.estimators as be
from bisaddle.estimators import WorstGroupRegressor


def rows(count: int, columns: int, groups: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X, group = rng.normal(size=(count * groups, columns)), np.arange(count * groups) % groups
    coef = rng.normal(size=(groups, columns)) * 0.3 + rng.normal(size=columns)
    return X, np.einsum("nd,nd->n", X, coef[group]) + rng.normal(size=len(X)) * (1 + group / groups), group


def seconds(call, repeats: int = 5) -> float:
    """The least CPU time of several calls."""
    found = []
    for _ in range(repeats):
        clock = time.process_time()
        call()
        found.append(time.process_time() - clock)
    return min(found)


def resident(field: str) -> int:
    """Bytes by /proc/self/status: VmRSS now, VmHWM at most since the mark was reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def memory(name: str, count: int, columns: int, groups: int) -> None:
    X, y, group = rows(count, columns, groups)
    if name.endswith("Classifier"):
        y = y > np.median(y)
    given = {} if name.startswith("Adversarial") else {"tasks" if name.startswith("Partial") else "groups": group}
    fit = lambda: getattr(be, name)().fit(X, y, **given)
    fit()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before, clock = resident("VmRSS"), time.process_time()
    found = fit()
    grown, spent = resident("VmHWM") - before, time.process_time() - clock
    print(f"{name}: grown by {grown / X.nbytes:.2f} of the data, {spent:.1f} CPU s ({found.status_})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("rows", 5000), ("columns", 50), ("groups", 10)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--memory", choices=[name for name in dir(be) if name.endswith(("Regressor", "Classifier"))])
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")  # what protection costs here is not the question
    if chosen.memory:
        return memory(chosen.memory, chosen.rows, chosen.columns, chosen.groups)
    few = rows(100, chosen.columns, chosen.groups)
    WorstGroupRegressor().fit(few[0], few[1], groups=few[2])  # compiles: the number of rows does not matter
    X, y, group = rows(chosen.rows, chosen.columns, chosen.groups)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = WorstGroupRegressor().fit(X, y, groups=group)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    tracemalloc.start()
    WorstGroupRegressor().fit(X, y, groups=group)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    ours = seconds(lambda: WorstGroupRegressor().fit(X, y, groups=group))
    theirs = seconds(lambda: RidgeCV(np.logspace(-4, 4, found.n_steps_)).fit(X, y))
    print(f"{chosen.groups} groups x {chosen.rows} rows x {chosen.columns} columns, {X.nbytes / 1e6:.0f} MB")
    print(f"WorstGroupRegressor {ours:.3f} CPU s ({found.status_}, {found.n_steps_} steps)")
    print(f"RidgeCV             {theirs:.3f} CPU s ({found.n_steps_} penalties); ratio {ours / theirs:.2f}")
    print(
        f"memory beyond the data, by its size: {peak / X.nbytes:.2f} (tracemalloc), {grown / X.nbytes:.2f} (ru_maxrss)"
    )


if __name__ == "__main__":
    main()
