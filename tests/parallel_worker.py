"""Runs on several devices or in several processes, as the tests start them: python -m tests.parallel_worker JSON."""

import json
import random
import re
import resource
import sys
import time
from typing import Any, NamedTuple

import jax
import numpy as np

# what an XLA program is made of that talks to other devices
COLLECTIVE = re.compile(r" = (.*?) (all-reduce|all-gather|collective-permute|all-to-all|reduce-scatter)(?:-start)?\(")


def problem_of(form: str, tasks: int = 6, divergence: float = 0.0):
    from bisaddle.apps import multitask

    made = multitask.synthetic(rows=tasks * 42, width=5, tasks=tasks)
    return multitask.regression(made, form=form, divergence=divergence)


def methods(problem) -> dict[str, Any]:
    import bisaddle as bs

    M = bs.methods
    first = {name: getattr(M, name).default(problem, K=60) for name in ("OneSidedProjectionFree", "FullyProjected")}
    return {**first, "MORBiT": M.MORBiT.default(problem, K=60), "Adaptive": None}


def flat(point) -> list[float]:
    from bisaddle.devices import whole

    return np.concatenate([whole(leaf).ravel() for leaf in jax.tree.leaves(point)]).tolist()


def told(result) -> dict[str, Any]:
    certificate = result.certificate
    numbers = [float(certificate.gap), float(certificate.error_bound), float(certificate.worst_value)]
    trace = result.trace
    return {
        "status": result.status.name,
        "steps": int(trace.k[-1]),
        "point": flat(result.point),
        "numbers": numbers,
        "trace": np.concatenate([trace.k, trace.gap, trace.value]).tolist(),
    }


def collectives() -> dict[str, list[str]]:
    """Of every program compiled since the last clear: what its collectives move, as XLA writes it."""
    from bisaddle import programs

    found: dict[str, list[str]] = {}
    for key, program in programs._PROGRAMS.items():
        moved = [f"{kind} {what}" for what, kind in COLLECTIVE.findall(program.as_text())]
        found.setdefault(getattr(key[0], "__name__", str(key[0])), []).extend(moved)
    return found


def devices(divergence: float) -> dict[str, Any]:
    """All methods by tasks and by rows, on one device and on all of them; and what the programs say to each other."""
    import bisaddle as bs
    from bisaddle import programs

    found: dict[str, Any] = {}
    for kind, form, tasks in (("tasks", "gram", 6), ("tasks", "rows", 8), ("rows", "rows", 6)):
        problem, start = problem_of(form, tasks, divergence)
        mesh = bs.parallel.mesh(kind)
        placed, begin = bs.parallel.shard(problem, start, mesh)
        for name, method in methods(problem).items():
            if form == "rows" and kind == "tasks" and name in ("MORBiT", "OneSidedProjectionFree"):
                continue  # as with Gram matrices
            options: dict[str, Any] = {"tol": 1e-6 if method is None else None, "max_steps": 60, "every": 30}
            one = told(bs.solve(problem, start, method, **options))
            programs.clear()
            many = told(bs.solve(placed, begin, method, **options))
            # A'b/n has the shape of theta, which may be gathered: nothing as small is looked for
            data = [list(leaf.shape) for leaf in jax.tree.leaves(placed.data) if leaf.size > 8 * 5]
            found[f"{kind} {form} {name}"] = {"one": one, "many": many, "collectives": collectives(), "data": data}
    return found


def in_order(cases: list[list[str]], seed: int = 0) -> dict[str, Any]:
    """Of each (kind, form, method) the answers in a fixed order, four shards on one, two and four devices."""
    import bisaddle as bs
    from bisaddle.apps import multitask

    found: dict[str, Any] = {}
    for kind, form, name in cases:
        made = multitask.synthetic(rows=6 * 42, width=5, tasks=6, seed=seed)
        problem, start = multitask.regression(made, form=form)
        options: dict[str, Any] = {"tol": 1e-9 if name == "Adaptive" else None, "max_steps": 150, "every": 50}
        meshes = [bs.parallel.mesh(kind, jax.devices()[:count]) for count in (1, 2, 4)]
        placed = [bs.parallel.shard(problem, start, mesh, shards=4, deterministic=True) for mesh in meshes]
        answers = [told(bs.solve(*each, methods(problem)[name], **options)) for each in placed]
        found[f"{kind} {form} {name}"] = answers
    return found


class Own(NamedTuple):
    """Data of functions that are not of bs.apps."""

    A: Any
    b: Any
    order: Any = None


def own_functions(kind: str):
    """Functions whose derivatives are JAX's own, with sums by bs.parallel.summed."""
    import jax.numpy as jnp

    import bisaddle as bs

    rng, summed = np.random.default_rng(0), bs.parallel.summed
    constants = bs.Constants(mu_g=0.2, L_g=6.0, L_yy=1.0)
    weights, X = bs.sets.Simplex(), bs.sets.Box(-2.0, 1.0)
    if kind == "rows":
        A, b = rng.normal(size=(203, 5)), rng.integers(0, 2, 203).astype(float)

        def row_losses(A, b, theta, x):
            z = A @ theta  # a row that was filled up is 0, and counts nothing
            loss = (jnp.abs(A[:, 0]) > 0) * (jnp.logaddexp(0.0, z) - jnp.exp(-x[1]) * b * z)
            return jnp.stack([jnp.sum(loss), jnp.sum((A[:, 0] > 0) * (jnp.tanh(z) - b) ** 2)]) / 203

        upper = lambda x, theta, y, data: y @ summed(row_losses, data.order, (data.A, data.b), common=(theta, 0 * x))
        lower = lambda x, theta, data: (
            summed(row_losses, data.order, (data.A, data.b), common=(theta, x))[0] + jnp.exp(x[0]) * jnp.sum(theta**2)
        )
        start = bs.Point(jnp.zeros(2), jnp.zeros(5), jnp.full(2, 0.5))
        return bs.Problem(upper, lower, X, weights, Own(A, b), constants=constants), start
    A, b = rng.normal(size=(6, 20, 4)), rng.normal(size=(6, 20))

    def losses(A, b, theta):
        return jnp.mean(jnp.sqrt(1 + (jnp.einsum("tnd,td->tn", A, theta) - b) ** 2), axis=1)

    def worst(A, b, theta, y):
        return jnp.sum(y * losses(A, b, theta))

    def fit(A, b, theta, x):
        return jnp.sum(losses(A, b, theta) + jnp.exp(x[0]) * jnp.sum((theta - x[1:]) ** 2, axis=1))

    upper = lambda x, theta, y, data: summed(worst, data.order, (data.A, data.b), (theta, y))
    lower = lambda x, theta, data: summed(fit, data.order, (data.A, data.b), (theta,), (x,))
    start = bs.Point(jnp.zeros(5), jnp.zeros((6, 4)), jnp.full(6, 1 / 6))
    return bs.Problem(upper, lower, X, weights, Own(A, b), constants=constants), start


def own_in_order(cases: list[list[str]]) -> dict[str, Any]:
    """As in_order, of (kind, method) with functions whose derivatives are JAX's own; and without an order."""
    import bisaddle as bs

    found: dict[str, Any] = {}
    for kind, name in cases:
        problem, start = own_functions(kind)
        method = None if name == "Adaptive" else getattr(bs.methods, name).default(problem, K=100)
        options: dict[str, Any] = {"tol": 1e-8 if method is None else None, "max_steps": 100, "every": 50}
        meshes = [bs.parallel.mesh(kind, jax.devices()[:count]) for count in (1, 2, 4)]
        placed = [bs.parallel.shard(problem, start, mesh, shards=4, deterministic=True) for mesh in meshes]
        answers = [told(bs.solve(*each, method, **options)) for each in placed]
        found[f"{kind} {name}"] = [*answers, told(bs.solve(problem, start, method, **options))]
    return found


def ridge_of_tasks(kind: str, tasks: int):
    """Ridge regression of tasks, and how much of it is good for the worst one.

    kind: of g, "sum" or "mean" over tasks; "weighted", a mean by weights that are as large for every two tasks as for
    the last of an odd number, and "uneven", by others; or "pairs", in which tasks 0 and 1, 2 and 3, ... touch where x
    is not 0.
    """
    import jax.numpy as jnp

    import bisaddle as bs

    rng = np.random.default_rng(1)
    data = {"A": rng.normal(size=(tasks, 9, 3)), "b": rng.normal(size=(tasks, 9))}
    if kind in ("weighted", "uneven"):
        data["weight"] = weights_of(kind, tasks)

    def losses(theta, data):
        fits = jnp.einsum("tnd,td->tn", data["A"], theta["slope"]) + theta["level"][:, None] - data["b"]
        return jnp.mean(fits**2, axis=1)

    def lower(x, theta, data):
        size = jnp.sum((theta["slope"] - x["common"]) ** 2, axis=1) + theta["level"] ** 2
        each = losses(theta, data) + jnp.exp(x["own"]) * size
        if kind == "pairs":
            pairs = theta["level"].reshape(-1, 2)
            return jnp.sum(each) + jnp.sum(x["common"] ** 2) * jnp.sum((pairs[:, 0] - pairs[:, 1]) ** 2)
        if "weight" in data:
            return data["weight"] @ each / jnp.sum(data["weight"])
        return jnp.mean(each) if kind == "mean" else jnp.sum(each)

    return bs.Problem(
        upper=lambda x, theta, y, data: y @ losses(theta, data) + 0.1 * jnp.sum(theta["level"]),
        lower=lower,
        x_set=bs.sets.Product({"common": bs.sets.L2Ball(1.0), "own": bs.sets.Box(-2.0, 2.0)}),
        y_set=bs.sets.Simplex(),
        data=data,
    ), bs.Point(
        {"common": jnp.zeros(3), "own": jnp.zeros(tasks)},
        {"slope": jnp.zeros((tasks, 3)), "level": jnp.zeros(tasks)},
        jnp.full(tasks, 1 / tasks),
    )


def weights_of(kind: str, tasks: int) -> np.ndarray:
    share = np.linspace(0.2, 0.8, tasks // 2) if kind == "weighted" else np.linspace(0.5, 3.0, tasks // 2)
    return np.r_[np.stack([share, 1 - share if kind == "weighted" else share], axis=1).ravel(), 1.0][:tasks]


def ridge_in_numpy(kind: str, tasks: int, data, x) -> tuple[np.ndarray, np.ndarray]:
    """g_theta_theta, and rows g_theta_x e, of ridge_of_tasks at slope = 1, level = 1, task by task."""
    common, own = x[:3], x[3:]
    weights = {"sum": np.ones(tasks), "mean": np.full(tasks, 1 / tasks)}.get(kind)
    if weights is None:
        weights = weights_of(kind, tasks) / np.sum(weights_of(kind, tasks))
    H, C = np.zeros((4 * tasks, 4 * tasks)), np.zeros((4 * tasks, 3 + tasks))
    for t in range(tasks):
        slope, ridge = [tasks + 3 * t + j for j in range(3)], 2 * np.exp(own[t])
        rows = np.column_stack([np.ones(9), data["A"][t]])
        H[np.ix_([t, *slope], [t, *slope])] = weights[t] * (2 / 9 * rows.T @ rows + ridge * np.eye(4))
        C[slope, [0, 1, 2]] = -weights[t] * ridge
        C[[t, *slope], 3 + t] = weights[t] * ridge * np.r_[1.0, 1 - common]
    return H, C


def solved_apart() -> dict[str, Any]:
    """Solves with tasks on four devices against dense ones: the largest errors, and what was found of the tasks."""
    import bisaddle as bs
    from bisaddle.oracle.kernels import Kernels
    from bisaddle.oracle.separable import Separable

    found: dict[str, Any] = {}
    cases = (("sum", 8, None), ("sum", 8, True), ("sum", 8, False), ("mean", 8, None), ("mean", 8, True))
    few = (("sum", 2, None), ("sum", 2, True))  # x is too large to be sent along by every device
    for kind, tasks, separable in (
        *cases,
        ("pairs", 4, None),
        ("pairs", 8, None),
        ("sum", 6, None),
        ("sum", 6, True),
        *few,
        ("weighted", 7, None),
        ("weighted", 7, True),
        ("uneven", 7, None),
    ):
        problem, start = ridge_of_tasks(kind, tasks)
        placed, begin = bs.parallel.shard(problem, start, bs.parallel.mesh("tasks"), separable=separable)
        one, many = Kernels(problem, start), Kernels(placed, begin)
        rng, (x, theta, _) = np.random.default_rng(2), one.flat(start)
        x, theta, right, first, v = x + 0.1, *(rng.normal(size=theta.size) for _ in range(4))
        H, C = one.columns(x, theta)
        g, errors = one.lower_gradient(x, theta), []
        if kind != "pairs":
            ones = np.ones_like(theta)
            in_numpy = ridge_in_numpy(kind, tasks, problem.data, x)
            solved = many.solve(x, ones, right, 1e-10, cross=True)
            errors += [solved.w - np.linalg.solve(in_numpy[0], right), solved.cross - solved.w @ in_numpy[1]]
            errors += [a - b for a, b in zip(many.columns(x, ones), in_numpy, strict=True)]
        for begun in (None, first):
            solved = many.solve(x, theta, right, 1e-10, start=begun, cross=True)
            errors += [
                solved.w - np.linalg.solve(H, right),
                solved.cross - solved.w @ C,
                right - H @ solved.w - solved.r,
            ]
        by_gradient = many.solve(x, theta, None, 1e-10)
        errors += [by_gradient.w + np.linalg.solve(H, g), by_gradient.right + g]
        both = many.solve(x, theta, None, 1e-10, start=first)
        errors += [both.w + np.linalg.solve(H, g), both.right + g]
        errors += [many.lower_gradient(x, theta) - g, many.hessian_product(x, theta, v) - H @ v]
        errors += [many.cross_product(x, theta, v) - v @ C, many.solve(x, theta, right, enough=1e9).w]
        if kind != "pairs":
            errors += [a - b for a, b in zip(many.columns(x, theta, tasks), one.columns(x, theta, tasks), strict=True)]
        few = many.solve(x, theta, right, 1e-10, limit=2)
        alike = one.solve(x, theta, right, 1e-10, limit=2)
        found[f"{kind} {tasks} {separable}"] = {
            "error": max(float(np.max(np.abs(error))) for error in errors),
            "apart": isinstance(placed.lower, Separable) and [placed.lower.mean, *placed.lower.x],
            "after two": float(np.max(np.abs(few.w - alike.w))),
            "products": [solved.products, one.solve(x, theta, right, 1e-10, start=first).products],
            "least": [solved.least, *np.linalg.eigvalsh(H)[[0, -1]].tolist()],
        }
    return found


def process(
    kind: str, form: str, method: str, options: dict[str, Any], slow=False, resume=False, deterministic=False, tasks=8
) -> dict[str, Any]:
    """One of several processes that run together. slow: all but the first sleep at random."""
    import bisaddle as bs

    problem, start = problem_of(form, tasks)
    mesh = bs.parallel.mesh(kind)
    placed, begin = bs.parallel.shard(problem, start, mesh, shards=4, deterministic=deterministic)
    drawn = random.Random(jax.process_index())

    def sleep(record) -> None:
        if slow and jax.process_index() > 0:
            time.sleep(0.2 * drawn.random())

    if resume:
        more = {"max_steps": options["max_steps"], "checkpoint_every": 0.0}
        return told(bs.resume(options["checkpoint"], placed, callback=sleep, **more))
    return told(bs.solve(placed, begin, methods(problem)[method], callback=sleep, **options))


def memory(records: int) -> dict[str, Any]:
    """Resident MB after every tenth of the records of FullyProjected and of Adaptive."""
    import bisaddle as bs

    problem, start = problem_of("gram")
    placed, begin = bs.parallel.shard(problem, start, bs.parallel.mesh("tasks"))
    found: dict[str, list[float]] = {}
    for name in ("FullyProjected", "Adaptive"):
        seen = found[name] = []

        def look(record, seen=seen) -> None:
            if record.k % (records // 10) == 0:
                with open("/proc/self/statm") as file:
                    seen.append(int(file.read().split()[1]) * resource.getpagesize() / 2**20)

        method = methods(problem)[name]
        bs.solve(placed, begin, method, tol=None, max_steps=records, every=1, callback=look)
    return found


def main() -> None:
    order = json.loads(sys.argv[1])
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", order.pop("devices"))
    if join := order.pop("join", None):
        import bisaddle as bs

        bs.parallel.initialize(*join, timeout=30, heartbeat=order.pop("heartbeat", 10))
    does = {"devices": devices, "process": process, "memory": memory, "in_order": in_order}
    does |= {"solved_apart": solved_apart, "own_in_order": own_in_order}
    from tests import parallel_ends, parallel_folders, parallel_streams  # which import this module

    does |= {"streaming": parallel_streams.streaming, "gram": parallel_streams.gram}
    does |= {"folders": parallel_folders.folders, "folders on devices": parallel_folders.devices}
    does |= {"ending": parallel_ends.ending, "keeping": parallel_folders.keeping}
    do = does[order.pop("do")]
    found = do(**order)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
