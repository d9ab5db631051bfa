# %% [markdown]
# # Without projections, on a nuclear ball
#
# A matrix of low rank is seen through three instruments of different quality, each at some of its entries. We look for
# a matrix of small nuclear norm that explains the worst instrument as well as possible:
#
# $$ \min_{\lVert V \rVert_* \le r} \max_{y \in \Delta} \sum_i y_i \, \text{loss}_i(V) $$
#
# There is no lower level. To project onto the nuclear ball takes all singular values of a matrix; a linear
# minimisation takes one pair. `bs.sets.NuclearBall` can do both. Here we leave it only the second, so that nothing can
# project by accident.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot as plt

import bisaddle as bs

jax.config.update("jax_enable_x64", True)

rng = np.random.default_rng(0)
rows, columns, rank = 40, 30, 3
truth = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns)) / rank**0.5
noise = np.array([0.05, 0.1, 0.3])
seen = rng.uniform(size=(3, rows, columns)) < 0.4
data = {"seen": seen.astype(float), "value": truth + noise[:, None, None] * rng.normal(size=(3, rows, columns))}
radius = np.linalg.svd(truth, compute_uv=False).sum()
print(
    f"nuclear norm of the truth {radius:.1f}, of what the first instrument saw "
    f"{np.linalg.svd(data['seen'][0] * data['value'][0], compute_uv=False).sum():.1f}"
)


def losses(x, data):
    return jnp.sum(data["seen"] * (x - data["value"]) ** 2, axis=(1, 2)) / jnp.sum(data["seen"], axis=(1, 2))


def upper(x, y, data):  # the weights may not stray too far from even ones
    return y @ losses(x, data) - 0.2 * jnp.sum((y - 1 / 3) ** 2)


ball = bs.sets.Custom(lmo=bs.sets.NuclearBall(radius).lmo, diameter=2 * radius, name="nuclear ball, LMO only")
problem = bs.Problem(upper, x_set=ball, y_set=bs.sets.Simplex(), data=data)
start = bs.Point(x=np.zeros((rows, columns)), y=np.full(3, 1 / 3))

# %% [markdown]
# `OneSidedProjectionFree` is the paper's method, one linear minimisation a step, here with the usual step of Frank and
# Wolfe. `Adaptive` mixes the vertices that it has met, and has nothing to choose. Without a projection the gap of `x`
# is the Frank-Wolfe gap $\max_s \langle \nabla_x, x - s \rangle$, which grows with the size of the ball.

# %%
steps = bs.StepSizes(gamma=lambda k: 2 / (k + 2), sigma=0.5, mu=0.0)
free = bs.solve(problem, start, bs.methods.OneSidedProjectionFree(steps), tol=1e-2, max_steps=2000, every=25)
adaptive = bs.solve(problem, start, tol=1e-2)
for result in (free, adaptive):
    trace = result.trace
    print(
        f"{result.method.name}: {result.status}, gap {result.gap:.1e} after {result.steps} steps, "
        f"{trace.lmos[-1]} linear minimisations"
    )

# %% [markdown]
# Neither is far ahead: every step buys one vertex, and the answer is a mixture of many. With projections allowed
# (`x_set=bs.sets.NuclearBall(radius)`) `Adaptive` needs a few dozen steps, each of which costs a full SVD. For small
# matrices that is the better bargain.
#
# How good is the matrix? The error is taken over all entries, also those nobody saw.

# %%
error = lambda V: np.linalg.norm(V - truth) / np.linalg.norm(truth)
mean = np.nansum(np.where(seen, data["value"], 0), axis=0) / np.maximum(seen.sum(axis=0), 1)
print(f"relative error with gaps filled with 0: {error(mean):.3f}")
print(f"projection-free: {error(free.x):.3f}, Adaptive: {error(adaptive.x):.3f}")
print("weights of the instruments:", adaptive.y.round(3))

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
left.loglog(free.trace.k[1:], free.trace.gap[1:], label="OneSidedProjectionFree")
left.loglog(adaptive.trace.k[1:], adaptive.trace.gap[1:], label="Adaptive")
left.axhline(1e-2, color="grey", linewidth=1)
left.set(xlabel="step", ylabel="gap", title="Gap")
left.legend(frameon=False)
for V, style, name in (
    (truth, "ko-", "truth"),
    (mean, "s--", "gaps filled with 0"),
    (np.asarray(adaptive.x), "^-", "found"),
):
    right.plot(np.arange(1, 13), np.linalg.svd(V, compute_uv=False)[:12], style, label=name, markersize=4)
right.set(xlabel="singular value", title="The rank is found", xticks=range(1, 13))
right.legend(frameon=False)
figure
