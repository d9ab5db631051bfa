"""Ten million steps of a small problem, with trace and checkpoints, in the memory of the first hundred thousand.

python -m tests.stress_memory 10000000
"""

import sys
import tempfile
from pathlib import Path

FIRST = 100_000
GROWTH = 0.05


def resident():
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def measured(steps, every=None, checkpoint_every=1.0):
    """(bytes after the first steps, the most after them, rows of the trace)"""
    import bisaddle as bs
    from tests.test_solve import fully_projected, quadratic

    problem, start = quadratic()
    seen = {}
    with tempfile.TemporaryDirectory() as folder:
        kept = {"checkpoint": Path(folder) / "run.ckpt", "checkpoint_every": checkpoint_every}
        look = lambda record: seen.update({record.k: resident()}) if record.k >= FIRST else None
        method = fully_projected(gamma=1e-7, tau=1e-3, sigma=1e-3)  # still far away at the end
        result = bs.solve(problem, start, method, tol=None, max_steps=steps, every=every, callback=look, **kept)
    begin = next(iter(seen.values()))
    return begin, max(seen.values()), len(result.trace)


def main(steps=10_000_000):
    """Memory after the first steps and at most, printed; 0 if it grew by less than a twentieth."""
    import jax

    jax.config.update("jax_enable_x64", True)
    begin, most, rows = measured(steps)
    print(f"{begin / 2**20:.1f} MB after {FIRST} steps, {most / 2**20:.1f} MB at most in {steps}, {rows} rows of trace")
    return int(most > (1 + GROWTH) * begin)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
