"""Adaptive beside Adam on the networks of adaptive_networks.py: the worst task, class or group in the same time.

    python benchmarks/adaptive_networks_adam.py [--seeds training | held-out] [--only KIND ...] [--count 10] [--free]

Adam minimises a soft maximum through the heads in closed form, and projects onto X: weights softmax(10 losses / largest
loss), which follow the losses as they fall. It has three learning rates, of which the best on the instance counts, and
runs in one compiled loop. Its time is that of one run, compilation included; Adaptive's is that of a first solve, too.
Then Adaptive goes on until the gap is certified. Seconds of CPU. --free: without the limit on steps of networks.
"""

import argparse
import os
import time
from functools import partial
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import jax
import jax.numpy as jnp
import numpy as np
import optax
from adaptive_networks import NETWORKS, make

import bisaddle as bs
from bisaddle import programs
from bisaddle.methods.adaptive import constants
from bisaddle.methods.adaptive.method import Search
from bisaddle.oracle.kernels import Kernels

jax.config.update("jax_enable_x64", True)
RATES = (3e-3, 1e-2, 3e-2)
SHARPNESS = 10.0  # of the soft maximum, in units of the largest loss
ADAM_STEPS = 3000
TOL, MOST_STEPS = 1e-3, 20_000
PATIENCE = 5000  # evaluations without Adam's value
KINDS = ("sinusoid", "digits", "deep", "patches")  # softmax heads have no closed form


class Adam(NamedTuple):
    """worst: the lowest largest loss on the way with the best rate; seconds: of one run, compilation included."""

    worst: float
    rate: float
    seconds: float


class Ours(NamedTuple):
    """Until the worst value was Adam's: seconds and evaluations; worst: in Adam's time, and evaluations until then."""

    seconds: float
    evaluations: float
    worst: float
    in_time: int


def adam(kind: str, problem: bs.Problem, start: bs.Point) -> Adam:
    network, x_set = NETWORKS[kind], problem.x_set

    def soft(x: Any, data: Any):
        losses = network.losses(x, network.heads and network.heads(x, data), data, jnp)
        largest = jnp.max(losses)
        weights = jax.lax.stop_gradient(jax.nn.softmax(SHARPNESS * losses / largest))
        return weights @ losses, largest

    def run(x: Any, data: Any, rate: Any):
        rule = optax.adam(rate)

        def step(carry, _):
            x, state = carry
            (_, largest), gradient = jax.value_and_grad(soft, has_aux=True)(x, data)
            updates, state = rule.update(gradient, state)
            return (x_set.project(optax.apply_updates(x, updates)), state), largest

        return jnp.min(jax.lax.scan(step, (x, rule.init(x)), None, ADAM_STEPS)[1])

    x = jax.tree.map(jnp.asarray, start.x)
    jax.clear_caches()
    clock = time.process_time()
    compiled = jax.jit(run).lower(x, problem.data, RATES[0]).compile()
    compiling, found = time.process_time() - clock, []
    for rate in RATES:
        clock = time.process_time()
        worst = float(compiled(x, problem.data, rate))
        found.append(Adam(worst, rate, compiling + time.process_time() - clock))
    return min(found)


def ours(problem: bs.Problem, start: bs.Point, goal: Adam) -> Ours:
    """From nothing compiled; certificates are left to the solve that follows."""
    jax.clear_caches()
    programs.clear()
    clock, best, met, in_time = time.process_time(), np.inf, None, None
    kernels = Kernels(problem, start)
    x, theta, y = kernels.flat(start)
    search = Search(kernels, x)
    for look in search.from_start(x, theta, y, problem.constants.mu_g, TOL):
        spent = time.process_time() - clock
        if in_time is None and spent > goal.seconds:
            in_time = best, look.k
        best = min(best, float(np.max(search.here.inner.upper.f_y)))  # f is linear in y
        if met is None and best <= goal.worst:
            met = spent, look.k
        if in_time and (met or look.k >= PATIENCE):
            break
    return Ours(*(met or (np.inf, np.inf)), *(in_time or (best, search.k)))


def row(kind: str, seed: int) -> str:
    problem, start, check = make(kind, seed)
    goal = adam(kind, problem, start)
    found = ours(problem, start, goal)
    clock = time.process_time()
    method = bs.methods.Adaptive(np.asarray(TOL))
    result = bs.solve(problem, start, method, tol=TOL, max_steps=MOST_STEPS, progress=False)
    seconds = time.process_time() - clock
    cells = [kind, str(seed), f"{goal.worst:.2g}", f"{goal.rate:g}", f"{goal.seconds:.2f}"]
    cells += [f"{found.worst:.2g}", str(found.in_time), f"{found.seconds:.2f}", f"{found.evaluations:g}"]
    worst = float(result.certificate.worst_value)
    cells += [str(result.status), str(result.steps), f"{seconds:.1f}", f"{worst:.2g}", f"{check(result.point):.1e}"]
    return "| " + " | ".join(cells) + " |"


HEADS = ("network", "seed", "Adam's worst", "rate", "s", "ours then", "evaluations", "s until Adam's", "evaluations")
HEADS += ("to 1e-3", "steps", "s, programs compiled", "worst", "dense check of the gap")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", choices=("training", "held-out"), default="training")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--free", action="store_true", help="steps of networks without a limit")
    options = parser.parse_args()
    if options.free:
        constants.LAYER_REACH = constants.LAYER_GROWTH = np.inf
    first = 1000 if options.seeds == "held-out" else 0
    say = partial(print, flush=True)
    say("| " + " | ".join(HEADS) + " |\n|---" + "|---:" * (len(HEADS) - 1) + "|")
    for kind in options.only:
        for seed in range(first, first + options.count):
            say(row(kind, seed))


if __name__ == "__main__":
    main()
