"""Streamed runs as the tests start them in several processes: see tests/parallel_worker.py."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from tests.parallel_worker import collectives, told

SIZE = 60  # rows of a chunk of all processes


def own_rows(folder: str, process: int, processes: int) -> dict[str, np.ndarray]:
    """Files of this process alone, as memory maps: of every SIZE rows its own share."""
    from tests.test_streams import ARRAYS

    found = {}
    for name, array in ARRAYS.items():
        rows = array.reshape(-1, processes, SIZE // processes, *array.shape[1:])[:, process]
        path = Path(folder) / f"{name}-{process}-of-{processes}.npy"
        np.save(path, rows.reshape(-1, *array.shape[1:]))
        found[name] = np.load(path, mmap_mode="r")
    return found


def streaming(
    folder: str, options: dict[str, Any], resume=False, sampled=False, over=True, odd: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A run over chunks, each process with its own part. over: all devices; odd: choices of the last process alone."""
    import bisaddle as bs
    from bisaddle import programs
    from bisaddle.run.blocks import _block
    from tests.test_streams import PART, START, STEPS, WHOLE

    i, processes = jax.process_index(), jax.process_count()
    choices: dict[str, Any] = {"size": SIZE // processes, "steps": 5, "seed": 3}
    if odd is not None and i == processes - 1:
        choices |= odd
    arrays = own_rows(folder, i, processes)
    if rows := choices.pop("rows", None):
        arrays = {name: array[:rows] for name, array in arrays.items()}
    mesh = bs.parallel.mesh("rows") if over and jax.device_count() > 1 else None
    try:
        chunks = bs.streams.Chunks(arrays, mesh=mesh, **choices)
        batch = bs.methods.Batch(lambda data: (data["rows"], data["labels"]), 16)
        sampler = bs.methods.Sampler(upper=batch, lower=batch) if sampled else bs.methods.Sampler()
        method = bs.methods.FullyProjected(STEPS, sampler=sampler, seed=2)
        if resume:
            steps, file = options["max_steps"], options["checkpoint"]
            result = bs.resume(file, PART, method, max_steps=steps, data=chunks, progress=False)
        else:
            result = bs.solve(PART, START, method, data=chunks, progress=False, **options)
    except ValueError as error:
        return {"error": str(error), "programs": len(programs._PROGRAMS)}
    certificate = bs.certify(PART, result.point, data=chunks)
    plain = bs.certify(WHOLE, result.point)
    return {
        **told(result),
        "last": np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(result.last)]).tolist(),
        "gaps": [float(certificate.gap), float(plain.gap), float(result.certificate.gap)],
        "values": [float(certificate.worst_value), float(plain.worst_value)],
        "blocks": sum(key[0] is _block for key in programs._PROGRAMS),
        "collectives": collectives(),
        "words": repr(chunks.beside(None)),
    }


def gram(folder: str) -> dict[str, Any]:
    """The Gram of all rows, each process with files of its own."""
    import bisaddle as bs

    arrays = own_rows(folder, jax.process_index(), jax.process_count())
    found = bs.streams.gram(bs.streams.rows(arrays["rows"], arrays["labels"], size=17))
    first, count = found.sums()
    return {"sums": first.ravel().tolist(), "counts": count.tolist(), "mean": found.mean.tolist()}
