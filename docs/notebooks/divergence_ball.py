# %% [markdown]
# # Adversarial learning with a divergence ball
#
# The data we learn from are a sample, and those we meet later may weigh things differently. Distributionally robust
# learning prepares for it: an opponent may shift the weights of the rows, as far as a KL divergence of `radius` from
# the even ones:
#
# $$ \min_{\lVert x \rVert \le 5} \max_{\text{KL}(y \| 1/n) \le \rho} \sum_i y_i \, \text{loss}_i(x) $$
#
# The paper (section 1) moves the divergence into the objective, since projecting onto such a ball is expensive.
# `bs.sets.KLBall` has the projection, and so the ball can be kept as it is.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot as plt

import bisaddle as bs

jax.config.update("jax_enable_x64", True)


def draw(rng, count, minority):
    """Two classes in the plane; a minority of the second one lies where nobody expects it."""
    label = rng.uniform(size=count) < 0.5
    odd = label & (rng.uniform(size=count) < minority)
    centre = np.where(odd[:, None], [-1.0, -2.2], np.where(label[:, None], [1.5, 1.0], [-1.2, 0.8]))
    return np.column_stack([centre + 0.7 * rng.normal(size=(count, 2)), np.ones(count)]), np.where(label, 1.0, -1.0)


rng = np.random.default_rng(1)
rows, label = draw(rng, 120, minority=0.15)
data = {"rows": rows, "label": label}


def losses(x, data):
    return jnp.logaddexp(0.0, -data["label"] * (data["rows"] @ x))


def upper(x, y, data):
    return y @ losses(x, data)


# %% [markdown]
# A path over radii. The radius is a number like any other, so that one compilation serves all; each problem starts
# from the answer to the one before.

# %%
even = np.full(120, 1 / 120)
radii = [0.001, 0.03, 0.1, 0.2, 0.3, 0.4]
ball = bs.sets.L2Ball(5.0)
problems = [bs.Problem(upper, x_set=ball, y_set=bs.sets.KLBall(even, r), data=data) for r in radii]
path = bs.solve_path(problems, bs.Point(x=np.zeros(3), y=even), tol=1e-5)
print("certified:", sum(result.status is bs.Status.CERTIFIED for result in path), "of", len(path))
print("compiled:", [result.compile_seconds > 0.01 for result in path].count(True), "time")
for r, result in zip(radii, path, strict=True):
    largest = 120 * float(result.y.max())
    print(f"radius {r:5}: worst loss {result.certificate.worst_value:.3f}, largest weight {largest:.1f} of even")

# %% [markdown]
# New data, with the minority rarer than it was, as rare, and more and more common. The robust classifiers lose a little
# where it is rarer, and gain much where it is common.

# %%
shares = np.linspace(0.0, 0.8, 9)
chosen = [0, 2, 4]
tests = [draw(np.random.default_rng(100 + i), 20_000, share) for i, share in enumerate(shares)]
loss = lambda x, test: float(np.mean(losses(x, {"rows": test[0], "label": test[1]})))
curves = {radii[i]: [loss(path[i].x, test) for test in tests] for i in chosen}
for r, curve in curves.items():
    print(f"radius {r:5}: loss {curve[1]:.3f} with a minority of 10 %, {curve[-1]:.3f} with 80 %")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained")
weights = 120 * np.asarray(path[2].y)
for value, colour, name in ((-1.0, "#56B4E9", "class 1"), (1.0, "#E69F00", "class 2")):
    for size in (3, 5, 7, 10):  # four sizes, by the opponent's weight
        of = (label == value) & (np.select([weights < 0.5, weights < 1.5, weights < 3.0], [3, 5, 7], 10) == size)
        left.plot(
            *rows[of, :2].T,
            "o",
            color=colour,
            markersize=size,
            markeredgecolor="white",
            label=name if size == 3 else None,
        )
span = np.array([-3.5, 4.0])
for i, style in zip(chosen, ("--", "-", ":"), strict=True):
    a, b, c = np.asarray(path[i].x)
    left.plot(span, -(a * span + c) / b, "k" + style, linewidth=1.2, label=f"radius {radii[i]:g}")
left.set(xlim=span, ylim=(-4.5, 3.6), title="Size: weight from the opponent, radius 0.1")
left.legend(frameon=False, fontsize=8, loc="lower right")
for (r, curve), style in zip(curves.items(), ("--", "-", ":"), strict=True):
    right.plot(shares, curve, "k" + style, label=f"radius {r:g}")
right.set(xlabel="share of the minority in class 2", ylabel="loss on new data", title="When the world shifts")
right.legend(frameon=False)
figure
