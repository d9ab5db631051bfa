"""Measured rates: the log-log slope of the best gap after K steps, by the theory's schedules, beside the promised one.

    f = x'Qx/2 + x'My + theta'Py + theta'S theta/2 + b'y - sum n_i y_i^2/2,  g = theta'A theta/2 - theta'(Bx + c)

on boxes, with Q and S indefinite and kappa = 3. The gap is that of Definition 2.1 (opf) or 2.2 (fp) at the exact
theta*(x), computed after every step. `python benchmarks/rates.py [most] [figure]`: K = 10^2 .. most (10^6), and the
figure goes to docs/rates.svg.
"""

import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from pictures import save_svg

import bisaddle as bs
from bisaddle import theory
from bisaddle.report.style import BLUE, GREEN, VERMILLION

SIZE, SEEDS, KAPPA = 3, 5, 3.0
REGIMES = {
    ("opf", "concave"): "OPF, f concave in y (Cor. 5.2)",
    ("opf", "linear"): "OPF, f linear in y (Cor. 5.3)",
    ("fp", "concave"): "FP, f concave in y (Cor. 5.5)",
    ("fp", "strongly-concave"): "FP, f strongly concave in y (Cor. 5.6)",
}
KINDS = ("fixed K", "decreasing (ours)", "doubling (ours)")
CURVATURES = {"linear": (0.0, 0.0, 0.0), "concave": (0.0, 1.0, 2.0), "strongly-concave": (0.5, 1.0, 2.0)}


def upper(x, theta, y, d):
    own = 0.5 * x @ d["Q"] @ x + 0.5 * theta @ d["S"] @ theta + x @ d["M"] @ y
    return own + theta @ d["P"] @ y + d["b"] @ y - 0.5 * jnp.sum(d["n"] * y**2)


def lower(x, theta, d):
    return 0.5 * theta @ d["A"] @ theta - theta @ (d["B"] @ x + d["c"])


def draw(seed, regime):
    rng = np.random.default_rng(seed)
    turn = lambda: np.linalg.qr(rng.normal(size=(SIZE, SIZE)))[0]
    symmetric = lambda eigenvalues: (lambda basis: (basis * eigenvalues) @ basis.T)(turn())
    data = {name: rng.normal(size=(SIZE, SIZE)) / SIZE**0.5 for name in "MPB"}
    data |= {"b": rng.normal(size=SIZE), "c": rng.normal(size=SIZE), "n": np.array(CURVATURES[regime])}
    data |= {"Q": symmetric([-0.5, 0.5, 1.0]), "S": symmetric([-0.5, 0.2, 1.0]), "A": symmetric([1.0, 2.0, KAPPA])}
    start = {name: rng.uniform(-1, 1, SIZE) for name in ("x", "theta", "y")}
    return jax.tree.map(jnp.asarray, (data, start))


def gap(d, x, y, sigma, tau):
    """x gap by linear minimisation where tau is None, else by projection, plus the y gap."""
    theta = jnp.linalg.solve(d["A"], d["B"] @ x + d["c"])
    v = jnp.linalg.solve(d["A"], d["S"] @ theta + d["P"] @ y)
    Gx = d["Q"] @ x + d["M"] @ y + d["B"].T @ v
    Gy = d["M"].T @ x + d["P"].T @ theta + d["b"] - d["n"] * y
    size, clip = jnp.linalg.norm, lambda z: jnp.clip(z, -1, 1)
    x_gap = Gx @ x + jnp.sum(jnp.abs(Gx)) if tau is None else size(x - clip(x - tau * Gx)) / tau
    return x_gap + size(y - clip(y + sigma * Gy)) / sigma


@partial(jax.jit, static_argnames="name")
def best_gaps(data, starts, steps, K, *, name):
    """The smallest gap met in K steps, for every seed; K and the step sizes are traced: one compilation serves all."""
    box = bs.sets.Box(-1.0, 1.0)

    def one(data, start):
        problem = bs.Problem(upper, lower, box, box, data)
        method = (bs.methods.OneSidedProjectionFree if name == "opf" else bs.methods.FullyProjected)(steps)

        def body(_, carry):
            state, best = carry
            now = steps.at(state.k)
            found = gap(data, state.x, state.y, now["sigma"], now.get("tau"))
            return method.step(problem, state), jnp.minimum(best, found)

        begin = (method.init(problem, bs.Point(**start)), jnp.asarray(jnp.inf))
        return jax.lax.fori_loop(0, K, body, begin)[1]

    return jax.vmap(one)(data, starts)


def measure(method, regime, kind, Ks):
    """(K, seed) best gaps"""
    stack = lambda trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    data, starts = (stack(part) for part in zip(*(draw(seed, regime) for seed in range(SEEDS)), strict=True))
    n = CURVATURES[regime]
    known = bs.Constants(mu_g=1.0, L_g=KAPPA, L_yy=max(n), mu_y=min(n))
    rows = []
    for K in Ks:
        if kind == "fixed K":
            plan = theory.steps_for(known, method, K=K, regime=regime)
        else:
            plan = theory.anytime_steps(known, method, regime=regime, kind=kind.split()[0])
        rows.append(np.asarray(best_gaps(data, starts, plan.steps, K, name=method)))
    return np.array(rows)


def slope(Ks, gaps):
    """Least squares of log(median over seeds) in log K, over the gaps that rounding has not reached."""
    medians = np.median(gaps, axis=1)
    above = medians > 1e-12
    return np.polyfit(np.log(np.array(Ks)[above]), np.log(medians[above]), 1)[0]


def draw_figure(Ks, results, path):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "rates", "font.size": 10}
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9, 7), sharex=True, layout="constrained")
    styles = {
        "fixed K": ("o-", BLUE),
        "decreasing (ours)": ("s--", VERMILLION),
        "doubling (ours)": ("^:", GREEN),
    }
    for (key, title), axis in zip(REGIMES.items(), axes.flat, strict=True):
        for kind, (style, colour) in styles.items():
            gaps = results[key][kind]
            label = f"{kind}, slope {slope(Ks, gaps):.2f}"
            axis.loglog(Ks, np.median(gaps, axis=1), style, color=colour, label=label, markersize=5, linewidth=1.4)
        exponent = theory.steps.PROMISES[key].exponent
        guide = np.median(results[key]["fixed K"], axis=1)[0] * (np.array(Ks) / Ks[0]) ** -exponent
        axis.loglog(Ks, guide, color="0.55", linewidth=3, alpha=0.6, label=f"promised slope {-exponent:.2f}")
        axis.set_title(title, fontsize=10.5)
        axis.grid(True, which="major", color="0.9")
        axis.minorticks_off()  # hundreds of elements in the file, and nothing to see
        if min(np.min(gaps) for gaps in results[key].values()) > 1e-3:  # less than two decades: ticks between them
            ticks = (0.05, 0.1, 0.2, 0.5, 1, 2)
            axis.set_ylim(0.03, 2.5)
            axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.legend(fontsize=8.5, loc="lower left")
        else:
            axis.legend(fontsize=8.5, loc="upper right", bbox_to_anchor=(1, 0.86))
    for axis in axes[1]:
        axis.set_xlabel("steps K")
    for axis in axes[:, 0]:
        axis.set_ylabel("best gap in K steps (median of 5)")
    save_svg(figure, path)


def main(most: int = 10**6, path: Path = Path(__file__).parents[1] / "docs" / "rates.svg") -> None:
    jax.config.update("jax_enable_x64", True)
    Ks = [10**n for n in range(2, len(str(most)))]
    results = {}
    print(f"{'regime':42} {'schedule':20} {'promised':>9} {'measured':>9}   best gap at K = {Ks[0]} .. {Ks[-1]}")
    for key, title in REGIMES.items():
        results[key] = {}
        for kind in KINDS:
            clock = time.perf_counter()
            gaps = results[key][kind] = measure(*key, kind, Ks)
            medians = " ".join(f"{value:.2e}" for value in np.median(gaps, axis=1))
            numbers = f"{-theory.steps.PROMISES[key].exponent:9.2f} {slope(Ks, gaps):9.2f}"
            print(f"{title:42} {kind:20} {numbers}   {medians}   {time.perf_counter() - clock:.0f} s", flush=True)
    draw_figure(Ks, results, path)
    print(f"figure: {path.name}")


if __name__ == "__main__":
    main(*(cast(value) for cast, value in zip((int, Path), sys.argv[1:], strict=False)))
