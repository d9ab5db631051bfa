# %% [markdown]
# # A first solve
#
# Three groups follow slightly different laws. One linear model has to serve them all. We choose how much each group
# counts when the model is fitted, so that the group that fares worst fares as well as it can.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot as plt

import bisaddle as bs

jax.config.update("jax_enable_x64", True)

rng = np.random.default_rng(0)
coefficients = 1 + 0.5 * rng.normal(size=(3, 5))  # 3 groups, 5 features
rows = rng.normal(size=(3, 40, 5))
targets = np.einsum("gnd,gd->gn", rows, coefficients) + 0.3 * rng.normal(size=(3, 40))
data = {"train": (rows[:, :30], targets[:, :30]), "held_out": (rows[:, 30:], targets[:, 30:])}

# %% [markdown]
# The lower level fits the model with the weights `x`. The upper level is what the opponent sees: the held-out losses,
# weighted by `y`.


# %%
def losses(theta, part):
    return jnp.mean((part[0] @ theta - part[1]) ** 2, axis=1)


def upper(theta, y, data):
    return y @ losses(theta, data["held_out"])


def lower(x, theta, data):
    return x @ losses(theta, data["train"]) + 0.05 * theta @ theta


problem = bs.Problem(upper, lower, x_set=bs.sets.Simplex(), y_set=bs.sets.Simplex(), data=data)
start = bs.Point(x=np.full(3, 1 / 3), theta=np.zeros(5), y=np.full(3, 1 / 3))
result = bs.solve(problem, start, tol=1e-8)
print(result.status, f"gap {result.gap:.1e}", f"worst value {result.certificate.worst_value:.4f}")

# %% [markdown]
# The certificate of the start tells what even weights would have given: it solves the lower level there.

# %%
even = bs.certify(problem, start)
print(f"worst value with even weights {even.worst_value:.4f}")
print("weights found:", result.x.round(3))
print("weights of the opponent:", result.y.round(3))

# %% [markdown]
# The opponent puts no weight on the first group, which is easy, and makes the other two equally bad. Below on the
# left: the loss of each group with even weights and with those found. On the right: the gap, as the method itself sees
# it after every step; the last point is certified.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
place = np.arange(3)
left.bar(place - 0.2, losses(even.theta, data["held_out"]), 0.4, label="even weights", color="#56B4E9")
left.bar(place + 0.2, losses(result.theta, data["held_out"]), 0.4, label="weights found", color="#0072B2")
left.axhline(result.certificate.worst_value, color="#D55E00", linewidth=1)
left.set(
    xticks=place,
    xticklabels=["group 1", "group 2", "group 3"],
    ylabel="held-out loss",
    title="The worst group does better",
    ylim=(0, 1.3),
)
left.legend(frameon=False, ncols=2)
right.semilogy(result.trace.k, result.trace.gap, "-", label="gap")
right.plot(result.steps, result.gap, "o", color="#0072B2", label="certified")
right.axhline(1e-8, color="#D55E00", linewidth=1, label="tol")
right.set(xlabel="step", ylabel="gap", title="Nothing was tuned")
right.legend(frameon=False)
figure
