"""How much memory a stream takes: Gram matrices of a file that is larger than what may be resident, and epochs of chunks.

    python benchmarks/streams.py [--gigabytes 4] [--folder DIR]

The file is written to a temporary folder and removed. What is measured runs in a process of its own. Its peak is that
of the kernel (ru_maxrss): all pages that were resident at one time, those of mapped files among them; the page cache,
which no process holds, is not. A process starts with the peak of its parent: so another one writes the file.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COLUMNS, TASKS = 50, 5


def write(folder: Path, gigabytes: float) -> None:
    """features.npy of so many GB, targets.npy and task.npy, a million rows at a time."""
    n = int(gigabytes * 2**30 / (8 * COLUMNS))
    rng = np.random.default_rng(0)
    coefficients = rng.normal(size=(TASKS, COLUMNS)) / COLUMNS**0.5
    make = np.lib.format.open_memmap
    features = make(folder / "features.npy", "w+", np.float64, (n, COLUMNS))
    targets, task = np.empty(n), rng.integers(0, TASKS, n).astype(np.int8)
    for at in range(0, n, 10**6):
        part = slice(at, min(at + 10**6, n))
        features[part] = rows = rng.normal(size=(part.stop - at, COLUMNS))
        targets[part] = np.einsum("nd,nd->n", rows, coefficients[task[part]]) + rng.normal(size=len(rows))
    features.flush()
    np.save(folder / "targets.npy", targets)
    np.save(folder / "task.npy", task)
    print(f"{n} rows of {COLUMNS} columns, {features.nbytes / 2**30:.2f} GB:", flush=True)


def gram_of(folder: Path) -> None:
    """In a process of its own: one pass, a problem of Gram matrices, a certified solution."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import bisaddle as bs
    from bisaddle.apps import grams

    print(f"  with jax and bisaddle imported: {peak():.0f} MB", flush=True)
    features, targets, task = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("features", "targets", "task"))
    cut = 3 * len(targets) // 4
    clock, cpu = time.perf_counter(), time.process_time()
    train, valid = (
        bs.streams.gram(bs.streams.rows(features[part], targets[part], task[part]), tasks=TASKS)
        for part in (slice(cut), slice(cut, None))
    )
    took = time.perf_counter() - clock
    size = features.nbytes / 2**30
    print(f"  {size:.2f} GB in {took:.1f} s ({time.process_time() - cpu:.1f} s of CPU): peak {peak():.0f} MB", flush=True)
    problem, start = grams.regression(train, valid)
    result = bs.solve(problem, start, tol=1e-6, progress=False)
    print(f"  solved: {result.status.name}, gap {result.gap:.1e}: peak {peak():.0f} MB; {mapped()}", flush=True)


def peak() -> float:
    """MB, of the kernel's account of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def mapped() -> str:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    wanted = {line.split(":")[0]: int(line.split()[1]) // 1024 for line in lines[1:]}
    return ", ".join(f"{name} {wanted[name]} MB" for name in ("Rss", "Anonymous"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    parser.add_argument("--part", choices=("write", "gram"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "write":
        return write(options.folder, options.gigabytes)
    if options.part == "gram":
        return gram_of(options.folder)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for part in ("write", "gram"):
            command = [sys.executable, __file__, "--part", part, "--folder", folder]
            subprocess.run([*command, "--gigabytes", str(options.gigabytes)], check=True)


if __name__ == "__main__":
    main()
