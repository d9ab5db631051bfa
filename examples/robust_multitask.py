"""The paper's Experiment 1 on synthetic data, with both of its methods.

5 tasks, n = 5000 rows, d = 100, 75/25 split; step sizes of section 6 with K = 10^4 and nu = 1 for both methods,
not tuned on this instance.
"""

import jax

import bisaddle as bs

jax.config.update("jax_enable_x64", True)  # the choice of a program, never of an import

STEPS = 10_000


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    tasks = bs.apps.multitask.synthetic(rows=5000, width=100, tasks=5, noise=0.1, seed=0)
    problem, start = bs.apps.multitask.regression(tasks, radius=5.0, ridge=0.1)
    console = Console()
    console.print("Robust multi-task regression, Experiment 1, synthetic data:\n5 tasks, n = 5000, d = 100, float64")
    at_start = bs.certify(problem, start)
    console.print(
        f"at the start: gap {float(at_start.gap):.2e}, worst-task validation loss {float(at_start.worst_value):.5f}\n"
    )
    kinds = {"i-BRPD:OPF": bs.methods.OneSidedProjectionFree, "i-BRPD:FP": bs.methods.FullyProjected}
    methods = {name: kind.default(problem, STEPS) for name, kind in kinds.items()}
    results = {name: bs.solve(problem, start, method, max_steps=STEPS) for name, method in methods.items()}

    table = Table(
        caption="step sizes of section 6, nu = 1, untuned\ngap by projection, sigma = tau = 1, exact lower level"
    )
    for heading in ("", *results):
        table.add_column(heading, justify="left" if heading == "" else "right")
    symbols = {"alpha": "lower step", "eta": "linear-system step", "gamma": "averaging step", "tau": "projection step"}
    symbols |= {"sigma": "ascent step", "mu": "regularisation"}
    for symbol, words in symbols.items():
        schedules = [getattr(result.method.steps, symbol) for result in results.values()]
        table.add_row(f"{words} {symbol}", *("-" if s is None else f"{float(s.value):.4g}" for s in schedules))
    table.add_section()
    rows = {
        "gap of the best iterate": lambda r: f"{float(r.gap):.2e}",
        "  its x part": lambda r: f"{float(r.certificate.x_gap):.2e}",
        "  its y part": lambda r: f"{float(r.certificate.y_gap):.2e}",
        "  its error bound": lambda r: f"{float(r.certificate.error_bound):.0e}",
        "worst-task validation loss": lambda r: f"{float(r.certificate.worst_value):.5f}",
        "distance to theta*(x)": lambda r: f"{float(r.certificate.lower_error):.1e}",
        "status": lambda r: str(r.status),
        "steps": lambda r: f"{r.steps}",
        "Hessian and cross products": lambda r: f"{r.trace.hvps[-1] + r.trace.cross_products[-1]}",
        "seconds in the method": lambda r: f"{r.seconds:.2f}",
        "seconds compiling the loop": lambda r: f"{r.compile_seconds:.2f}",
    }
    for label, show in rows.items():
        table.add_row(label, *(show(result) for result in results.values()))
    console.print(table)
    for name, result in results.items():
        console.print(f"{name}: {result.status}: {result.status.advice}")


if __name__ == "__main__":
    main()
