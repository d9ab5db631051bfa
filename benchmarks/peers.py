"""bs.solve beside SciPy, JAXopt and an extragradient loop: CPU seconds of a first and of a later answer, and its gap.

    python benchmarks/peers.py [--runs 1] [--only NAME ...]

The problems are those of peers_problems.py: ridge strengths of a logistic regression, cleaning of digits (640 lower
variables), and the worst of six groups; a NAME is a problem or a contestant. Each contestant runs in a process of its
own, in several with --runs, and the medians count. "import" is what it imports after NumPy, "first" the first answer
from NumPy arrays, with all compilation, "warm" the median of five more, or of those that begin within ten seconds.
Seconds are CPU seconds of all threads together; BLAS has one thread unless the caller's environment says otherwise. All
aim at a gap of 1e-6; one judge, with dense matrices in NumPy, computes the gap and the value that are printed. bs.solve
is given only the functions and the sets. SciPy runs L-BFGS-B on the exact hypergradient and SLSQP on the epigraph, with
derivatives by hand or by JAX from the same functions. JAXopt, if the caller has installed it, gets implicit
differentiation and its own line searches, in one compiled program. Where a step size or a weight was tuned on the very
instance, the table says so; tuning is not timed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import peers_problems as problems
from peers_problems import CLASSES, GROUPS, HIGH, IN_GROUP, LOW, RADIUS, RIDGE, WIDTH, Data

TOL = 1e-6
WARM, WARM_SECONDS = 5, 10.0
PATIENCE = 240  # wall seconds for a process, so that one contestant cannot keep the table from the others
EXTRAGRADIENT = (3.0, 1.0)  # steps of x and of y
PROXIMAL = 0.1  # weight of JAXopt's proximal term in y


# --- the problems in JAX, which is imported when a contestant asks for it ---------------------------------------------


def jax_functions(problem: str) -> tuple[Callable, Callable | None]:
    """f(x, theta, y, data) and g(x, theta, data)."""
    import jax
    import jax.numpy as jnp

    def losses(rows, theta):
        return jnp.mean(jax.nn.softplus(-(rows @ theta)), axis=-1)

    def entropy(rows, labels, weights, theta):
        logits = rows @ theta
        return weights @ (jax.nn.logsumexp(logits, axis=1) - jnp.sum(labels * logits, axis=1))

    def ridge_lower(x, theta, data):
        return losses(data["train"], theta) + 0.5 * jnp.sum(jnp.repeat(jnp.exp(x), WIDTH) * theta**2)

    def cleaning_upper(x, theta, y, data):
        rows = data["valid"]
        return entropy(rows, data["valid_labels"], jnp.full(len(rows), 1 / len(rows)), theta)

    def cleaning_lower(x, theta, data):
        weights = jnp.repeat(x, IN_GROUP) / len(data["train"])
        return entropy(data["train"], data["labels"], weights, theta) + 0.5 * RIDGE * jnp.sum(theta**2)

    if problem == "logistic":
        return lambda x, theta, y, data: losses(data["valid"], theta), ridge_lower
    if problem == "cleaning":
        return cleaning_upper, cleaning_lower
    return lambda x, theta, y, data: y @ losses(data["rows"], x), None


def start_of(problem: str, data: Data) -> dict[str, np.ndarray]:
    if problem == "groups":
        return {"x": np.zeros(data["rows"].shape[2]), "y": np.full(GROUPS, 1 / GROUPS)}
    d = data["train"].shape[1]
    return {"x": problems.STARTS[problem], "theta": np.zeros(d if problem == "logistic" else (d, CLASSES))}


def bounds_of(problem: str) -> tuple[float, float]:
    return (LOW, HIGH) if problem == "logistic" else (0.0, 1.0)


# --- the contestants: prepare(problem) imports, and gives answer(data) ------------------------------------------------


def by_bisaddle(problem: str) -> Callable[[Data], dict]:
    import jax

    import bisaddle as bs

    _ = bs.solve, bs.Problem, bs.Point, bs.sets  # names load when they are first used
    jax.config.update("jax_enable_x64", True)
    upper, lower = jax_functions(problem)

    def answer(data: Data) -> dict:
        x_set = bs.sets.L2Ball(RADIUS) if problem == "groups" else bs.sets.Box(*bounds_of(problem))
        y_set = bs.sets.Simplex() if problem == "groups" else None
        made = bs.Problem(upper, lower, x_set, y_set, data)
        result = bs.solve(made, bs.Point(**start_of(problem, data)), tol=TOL, progress=False)
        parts = {"x": result.x, "theta": result.theta, "y": result.y}
        note = f"{result.status}, {result.steps} steps"
        return {name: np.asarray(value) for name, value in parts.items() if value is not None} | {"note": note}

    return answer


def by_scipy(problem: str) -> Callable[[Data], dict]:
    return problems.SCIPY[problem]()


def by_scipy_and_jax(problem: str) -> Callable[[Data], dict]:
    import jax
    import peers_scipy_jax as theirs

    jax.config.update("jax_enable_x64", True)
    upper, lower = jax_functions(problem)
    start = partial(start_of, problem)
    if lower is None:
        return theirs.groups(upper, GROUPS, start)
    return theirs.bilevel(upper, lower, bounds_of(problem), start)


def import_jaxopt() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAXopt warns on import that it is no longer maintained
        import jaxopt
    return jaxopt


def by_jaxopt(outer: str, problem: str) -> Callable[[Data], dict]:
    """outer: the solver for x; theta by JAXopt's L-BFGS from zero, its derivative implicitly by conjugate gradients."""
    import jax

    jaxopt = import_jaxopt()
    jax.config.update("jax_enable_x64", True)
    if problem == "groups":
        return jaxopt_groups(jaxopt)
    upper, lower = jax_functions(problem)
    assert lower is not None
    adjoint = partial(jaxopt.linear_solve.solve_cg, tol=1e-9, maxiter=1000)
    g = lambda theta, x, data: lower(x, theta, data)
    inner = jaxopt.LBFGS(g, tol=1e-9, maxiter=500, implicit_diff_solve=adjoint)

    def F(x, theta, data):
        return upper(x, inner.run(theta, x, data).params, None, data)

    options = {"tol": 0.5 * TOL, "maxiter": 200}
    if outer == "LBFGSB":
        solver = jaxopt.LBFGSB(F, **options)
    else:
        solver = jaxopt.ProjectedGradient(F, jaxopt.projection.projection_box, **options)
    low, high = bounds_of(problem)

    @jax.jit  # without it every call of run would trace its loop again
    def run(x, theta, data):
        x, state = solver.run(x, (jax.numpy.full_like(x, low), jax.numpy.full_like(x, high)), theta, data)
        return x, inner.run(theta, x, data).params, state.iter_num

    def answer(data: Data) -> dict:
        start = start_of(problem, data)
        x, theta, steps = run(start["x"], start["theta"], data)
        return {"x": np.asarray(x), "theta": np.asarray(theta), "note": f"{int(steps)} steps of at most 200"}

    return answer


def jaxopt_groups(jaxopt: Any) -> Callable[[Data], dict]:
    """Proximal points in y, each a smooth problem in x for ProjectedGradient; max over y is a projection.

    y+ = P(centre + losses(x) / weight),      x minimises <y+, losses(x)> - weight / 2 |y+ - centre|^2
    """
    import jax
    import jax.numpy as jnp

    simplex, ball = jaxopt.projection.projection_simplex, jaxopt.projection.projection_l2_ball
    upper, _ = jax_functions("groups")

    def losses(x, data):
        return jax.vmap(lambda y: upper(x, None, y, data))(jnp.eye(GROUPS))

    def envelope(x, centre, data):
        found = losses(x, data)
        y = jax.lax.stop_gradient(simplex(centre + found / PROXIMAL))  # its derivative drops out at the maximum
        return y @ found - 0.5 * PROXIMAL * jnp.sum((y - centre) ** 2)

    solver = jaxopt.ProjectedGradient(envelope, ball, tol=0.1 * TOL, maxiter=500)

    def gap(x, y, data):
        Gx = jax.grad(upper)(x, None, y, data)
        x_gap = jnp.linalg.norm(x - ball(x - Gx, RADIUS))
        return x_gap + jnp.linalg.norm(y - simplex(y + losses(x, data)))

    @jax.jit
    def run(x, y, data):
        def one(carry):
            x, y, _, k = carry
            x = solver.run(x, RADIUS, y, data).params
            y = simplex(y + losses(x, data) / PROXIMAL)
            return x, y, gap(x, y, data), k + 1

        unfinished = lambda carry: (carry[2] > 0.5 * TOL) & (carry[3] < 100)
        return jax.lax.while_loop(unfinished, one, (x, y, jnp.asarray(jnp.inf), jnp.asarray(0)))

    def answer(data: Data) -> dict:
        start = start_of("groups", data)
        x, y, _, steps = run(start["x"], start["y"], data)
        return {"x": np.asarray(x), "y": np.asarray(y), "note": f"{int(steps)} proximal points in y"}

    return answer


def by_extragradient(problem: str) -> Callable[[Data], dict]:
    """One compiled loop that stops by itself."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    upper, _ = jax_functions(problem)
    tau, sigma = EXTRAGRADIENT

    def simplex(v):
        falling = jnp.sort(v)[::-1]
        thresholds = (jnp.cumsum(falling) - 1) / jnp.arange(1, v.size + 1)
        return jnp.maximum(v - thresholds[jnp.sum(falling > thresholds) - 1], 0)

    def ball(v):
        return v * jnp.minimum(1, RADIUS / jnp.maximum(jnp.linalg.norm(v), 1e-300))

    @jax.jit
    def run(x, y, data):
        gradients = jax.grad(lambda x, y: upper(x, None, y, data), (0, 1))

        def one(carry):
            x, y, _, k = carry
            Gx, Gy = gradients(x, y)
            gap = jnp.linalg.norm(x - ball(x - Gx)) + jnp.linalg.norm(y - simplex(y + Gy))
            Hx, Hy = gradients(ball(x - tau * Gx), simplex(y + sigma * Gy))
            done = gap <= 0.5 * TOL  # stay where the gap was taken
            x = jnp.where(done, x, ball(x - tau * Hx))
            return x, jnp.where(done, y, simplex(y + sigma * Hy)), gap, k + 1

        unfinished = lambda carry: (carry[2] > 0.5 * TOL) & (carry[3] < 100_000)
        return jax.lax.while_loop(unfinished, one, (x, y, jnp.asarray(jnp.inf), jnp.asarray(0)))

    def answer(data: Data) -> dict:
        start = start_of(problem, data)
        x, y, _, steps = run(start["x"], start["y"], data)
        return {"x": np.asarray(x), "y": np.asarray(y), "note": f"{int(steps)} steps"}

    return answer


class Contestant(NamedTuple):
    prepare: Callable[[str], Callable[[Data], dict]]
    tuned: dict[str, str]  # by problem: only these are its own


FREE = "nothing"
CONTESTANTS = {
    "bisaddle": Contestant(by_bisaddle, dict.fromkeys(problems.DATA, FREE)),
    "SciPy": Contestant(by_scipy, dict.fromkeys(problems.DATA, "nothing; derivatives by hand")),
    "SciPy with JAX": Contestant(by_scipy_and_jax, dict.fromkeys(problems.DATA, "nothing; derivatives by JAX")),
    "JAXopt LBFGSB": Contestant(partial(by_jaxopt, "LBFGSB"), dict.fromkeys(("logistic", "cleaning"), FREE)),
    "JAXopt ProjectedGradient": Contestant(
        partial(by_jaxopt, "ProjectedGradient"),
        {"logistic": FREE, "cleaning": FREE, "groups": f"weight {PROXIMAL:g} of y"},
    ),
    "extragradient": Contestant(by_extragradient, {"groups": "steps {:g} and {:g}".format(*EXTRAGRADIENT)}),
}


# --- one process ------------------------------------------------------------------------------------------------------


@contextmanager
def clocked() -> Iterator[list[float]]:
    """A list that gets the CPU seconds of the block."""
    seconds: list[float] = []
    begun = time.process_time()
    yield seconds
    seconds.append(time.process_time() - begun)


def read(problem: str, name: str, file: str) -> dict[str, Any]:
    with np.load(file) as kept:
        data = dict(kept)
    with clocked() as imports:
        try:
            answer = CONTESTANTS[name].prepare(problem)
        except ModuleNotFoundError as error:
            return {"missing": f"not measured: {error.name} is not installed"}
    with clocked() as first:
        found = answer(data)
    warm: list[float] = []
    while len(warm) < WARM and sum(warm) < WARM_SECONDS:
        with clocked() as later:
            answer(data)
        warm += later
    parts = {part: value.tolist() if isinstance(value, np.ndarray) else value for part, value in found.items()}
    return {"import": imports[0], "first": first[0], "warm": statistics.median(warm), "answer": parts}


# --- the table --------------------------------------------------------------------------------------------------------


def fresh(problem: str, name: str, file: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", problem, name, str(file)]
    # threads of BLAS wait for each other when the cores are shared; with a cache on disk no answer would be a first one
    kept = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    try:
        found = subprocess.run(
            command,
            env={"OPENBLAS_NUM_THREADS": "1"} | kept,
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"missing": f"no end within {PATIENCE} s"}
    if found.returncode:
        return {"missing": f"failed: the process ended with {found.returncode}"}
    return json.loads(found.stdout.splitlines()[-1])


def row(problem: str, name: str, data: Data, runs: list[dict]) -> str:
    cells = [problem, name, CONTESTANTS[name].tuned[problem]]
    failed = next((run["missing"] for run in runs if "missing" in run), None)
    if failed:
        return f"| {' | '.join([*cells, *['-'] * 5, failed])} |"
    cells += [f"{statistics.median(run[part] for run in runs):.3g}" for part in ("import", "first", "warm")]
    answer = runs[0]["answer"]
    gap, value = problems.judge(problem, data, answer)
    return f"| {' | '.join([*cells, f'{gap:.1e}', f'{value:.8f}', answer['note']])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=[*problems.DATA, *CONTESTANTS], default=[], metavar="NAME")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(read(*options.child)))
        return
    chosen = [problem for problem in problems.DATA if problem in options.only] or list(problems.DATA)
    names = [name for name in CONTESTANTS if name in options.only] or list(CONTESTANTS)
    print("| problem | by | tuned | import | first | warm | gap | value | |")
    print("|---" * 9 + "|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for problem in chosen:
            data, file = problems.DATA[problem](), Path(folder, f"{problem}.npz")
            np.savez(file, **data)
            for name in names:
                if problem in CONTESTANTS[name].tuned:
                    found = [fresh(problem, name, file) for _ in range(options.runs)]
                    print(row(problem, name, data, found), flush=True)


if __name__ == "__main__":
    main()
