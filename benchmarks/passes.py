"""How often the derivatives of row-form regression read the data: CPU time in read passes, all in one run.

    python benchmarks/passes.py [--rows 1000000] [--width 50] [--tasks 5] [--rounds 9]

A pass is what XLA's, or NumPy's, sum over the same array takes. f reads the validation rows, g the training rows. "by
hand": as bisaddle.apps.multitask writes them; "automatic": by differentiation of the same f and g.
"""

import argparse
import os
import time
from dataclasses import replace
from functools import partial

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import jax
import jax.numpy as jnp
import numpy as np

import bisaddle as bs
from bisaddle import oracle
from bisaddle.apps import multitask

jax.config.update("jax_enable_x64", True)
ORACLES = {
    "f and its gradients": lambda p, x, theta, y, w: oracle.upper_value_and_gradients(p, x, theta, y),
    "g_theta": lambda p, x, theta, y, w: oracle.lower_gradient(p, x, theta),
    "Hessian product": lambda p, x, theta, y, w: oracle.hessian_product(p, x, theta, w),
    "cross product": lambda p, x, theta, y, w: oracle.cross_product(p, x, theta, w),
    "Hessian and cross product": lambda p, x, theta, y, w: oracle.second_order_products(p, x, theta, w),
}
PRODUCTS = {
    'einsum("tnd,td->tn", A, v)': lambda A, v, r: jnp.einsum("tnd,td->tn", A, v),
    'einsum("tnd,tn->td", A, r)': lambda A, v, r: jnp.einsum("tnd,tn->td", A, r),
    "the same beside a row of zeros": lambda A, v, r: multitask._summed_rows(A, r),
}


def cpu(call) -> float:
    clock = time.process_time()
    jax.block_until_ready(call())
    return time.process_time() - clock


def measured(calls: dict, rounds: int) -> dict[str, float]:
    """The least CPU seconds of each, taken in turns: another process can only make them longer."""
    for call in calls.values():
        jax.block_until_ready(call())
    rows = [{name: cpu(call) for name, call in calls.items()} for _ in range(rounds)]
    return {name: min(row[name] for row in rows) for name in calls}


def table(rows: int, width: int, tasks: int, rounds: int) -> str:
    made = multitask.synthetic(rows, width, tasks)
    by_hand, start = multitask.regression(made, form="rows")
    automatic = replace(by_hand, derivatives=bs.Derivatives())
    data = by_hand.data
    rng = np.random.default_rng(0)
    theta, w = (jnp.asarray(rng.normal(size=start.theta.shape)) for _ in range(2))
    residual = jnp.asarray(rng.normal(size=data.train_targets.shape))
    total = jax.jit(jnp.sum)
    host = np.asarray(data.train_rows)
    calls = {"XLA": lambda: total(data.train_rows), "NumPy": lambda: host.sum()}
    for name, product in PRODUCTS.items():
        calls[name] = partial(jax.jit(product), data.train_rows, theta, residual)
    for form, problem in (("by hand", by_hand), ("automatic", automatic)):
        for name, function in ORACLES.items():
            calls[f"{name}, {form}"] = partial(jax.jit(function), problem, start.x, theta, start.y, w)
    seconds = measured(calls, rounds)
    # f has the validation rows to read: a share of a pass over the training rows
    share = data.valid_rows.size / data.train_rows.size
    lines = [f"{tasks} tasks, {rows} rows, {width} columns; a pass over {host.nbytes / 1e6:.0f} MB takes XLA "]
    lines[0] += f"{1e3 * seconds['XLA']:.1f} ms, NumPy {1e3 * seconds['NumPy']:.1f} ms of CPU time"
    lines += ["", "| | ms | passes of XLA | passes of NumPy |", "|---|---:|---:|---:|"]
    for name, took in list(seconds.items())[2:]:
        passes = took / (share if name.startswith("f and") else 1)
        cells = f"{1e3 * took:.1f} | {passes / seconds['XLA']:.1f} | {passes / seconds['NumPy']:.1f}"
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(table(options.rows, options.width, options.tasks, options.rounds))
