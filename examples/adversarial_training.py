"""Accuracy under attack: a plain logistic classifier, the classical saddle problem, and the bilevel form.

Ten features are the attacker's to change, such as the words of a message, ten weaker ones are not, such as its route. A
plain fit leans on the ten that can be changed. Attacks on a linear score are exact: margin minus length |s w|. Sizes
were chosen on other rows than those shown.
"""

from pathlib import Path

import jax
import numpy as np

import bisaddle as bs

jax.config.update("jax_enable_x64", True)

LENGTHS = np.linspace(0, 3, 61)
SCALES = np.repeat([1.0, 0.0], 10)


def rows(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    b = np.where(rng.uniform(size=count) < 0.5, -1.0, 1.0)
    return b[:, None] * np.repeat([0.5, 0.35], 10) + rng.normal(size=(count, 20)), b


def main(path: str = "results/adversarial_training.png") -> None:
    import matplotlib.pyplot as plt

    from bisaddle.apps import adversarial

    A, b = rows(200, seed=0)
    fresh, fresh_b = rows(20_000, seed=1)
    options = {"radius": 0.5, "scales": SCALES}
    problems = {
        r"plain logistic, $|w| \leq 4$": adversarial.saddle(A, b, radius=4.0, reach=1e-9),  # no length, no attack
        r"plain logistic, $|w| \leq 0.5$": adversarial.saddle(A, b, radius=0.5, reach=1e-9),
        "saddle, attacks up to 2": adversarial.saddle(A, b, reach=2.0, **options),
        "bilevel, mean of rows": adversarial.bilevel(A, b, weights="mean", **options),
        r"bilevel, rows within $\chi^2 \leq 0.5$": adversarial.bilevel(A, b, weights=("chi2", 0.5), **options),
    }
    lines = ("k:", "k--", "C0-", "C1-", "C2-")
    figure, axis = plt.subplots(figsize=(6.4, 3.6), constrained_layout=True)
    for (name, (problem, start)), line in zip(problems.items(), lines, strict=True):
        result = bs.solve(problem, start, tol=1e-4)
        accuracy = [np.mean(adversarial.margins(result.x, fresh, fresh_b, length, SCALES) > 0) for length in LENGTHS]
        at = {length: float(np.interp(length, LENGTHS, accuracy)) for length in (0, 1, 2)}
        told = ", ".join(f"{100 * value:.1f} % at {length}" for length, value in at.items())
        print(f"{name:42} {result.status}, {result.steps} steps: accuracy {told}")
        axis.plot(LENGTHS, 100 * np.array(accuracy), line, label=name)
    axis.axhline(50, color="0.8", linewidth=0.8, zorder=0)
    axis.set(xlabel="length of the attack on a fresh row", ylabel="classified correctly, %", ylim=(0, 101), xlim=(0, 3))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower left")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    print(f"drawn in {path}")


if __name__ == "__main__":
    main()
