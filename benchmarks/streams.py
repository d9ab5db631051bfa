"""How much memory a stream takes: Gram matrices of a file larger than what may be resident, and a run with records.

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
    features, targets, task = opened(folder)
    cut = 3 * len(targets) // 4
    clock, cpu = time.perf_counter(), time.process_time()
    train, valid = (
        bs.streams.gram(bs.streams.rows(features[part], targets[part], task[part]), tasks=TASKS)
        for part in (slice(cut), slice(cut, None))
    )
    took = time.perf_counter() - clock
    size, cpu = features.nbytes / 2**30, time.process_time() - cpu
    print(f"  {size:.2f} GB in {took:.1f} s ({cpu:.1f} s of CPU): peak {peak():.0f} MB", flush=True)
    problem, start = grams.regression(train, valid)
    result = bs.solve(problem, start, tol=1e-6, progress=False)
    print(f"  solved: {result.status.name}, gap {result.gap:.1e}: peak {peak():.0f} MB; {mapped()}", flush=True)


def records_of(folder: Path, count: int = 1000) -> None:
    """In a process of its own: a run over chunks of the first rows, whose certificate is taken so many times."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    import bisaddle as bs

    features, targets, _ = opened(folder)
    arrays = {"rows": features[:40_000], "targets": targets[:40_000]}

    def loss(theta, data):
        return 0.5 * jnp.mean(jnp.square(data["rows"] @ theta - data["targets"]))

    upper = lambda x, theta, y, data: y @ jnp.stack([loss(theta, data), jnp.sum(x**2)])
    lower = lambda x, theta, data: loss(theta, data) + 0.1 * jnp.sum(jnp.square(theta - x))
    problem = bs.Problem(upper, lower, bs.sets.L2Ball(1.0), bs.sets.Simplex())
    start = bs.Point(x=np.zeros(COLUMNS), theta=np.zeros(COLUMNS), y=np.full(2, 0.5))
    steps = bs.StepSizes(alpha=0.3, eta=0.3, gamma=0.1, tau=0.3, sigma=0.3, mu=0.0)
    chunks = bs.streams.Chunks(arrays, 10_000, steps=2)
    seen = []
    look = lambda record: seen.append(resident()) and None
    options = {"data": chunks, "tol": 1e-12, "max_steps": count, "every": 1, "callback": look, "progress": False}
    bs.solve(problem, start, bs.methods.FullyProjected(steps), **options)
    early, late = np.mean(seen[10:60]), np.mean(seen[-50:])
    print(
        f"  {len(seen)} records: {early:.0f} MB after 10 to 60 of them, {late:.0f} MB at the end, peak {peak():.0f} MB"
    )


def opened(folder: Path) -> list[np.ndarray]:
    return [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("features", "targets", "task")]


def resident() -> float:
    """MB, now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def peak() -> float:
    """MB, of the kernel's account of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def mapped() -> str:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    wanted = {line.split(":")[0]: int(line.split()[1]) // 1024 for line in lines[1:]}
    return ", ".join(f"{name} {wanted[name]} MB" for name in ("Rss", "Anonymous"))


# each in a process of its own
PARTS = {
    "write": write,
    "gram": lambda folder, _: gram_of(folder),
    "records": lambda folder, _: records_of(folder),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    parser.add_argument("--part", choices=tuple(PARTS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part is not None:
        return PARTS[options.part](options.folder, options.gigabytes)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for part in PARTS:
            command = [sys.executable, __file__, "--part", part, "--folder", folder]
            subprocess.run([*command, "--gigabytes", str(options.gigabytes)], check=True)


if __name__ == "__main__":
    main()
