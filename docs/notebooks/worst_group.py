# %% [markdown]
# # Hyper-parameters for the worst group
#
# A ridge regression with two penalties: one for five features that matter, one for thirty that do not. Three groups of
# patients, machines or cities share the model. Which penalties are best for the group that fares worst on held-out
# rows?
#
# A grid needs a fit for every pair of penalties, and grows with a power of their number. Here `x` holds the logarithms
# of the penalties, the lower level is the fit, and the opponent weighs the groups.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot as plt

import bisaddle as bs

jax.config.update("jax_enable_x64", True)

rng = np.random.default_rng(3)
groups, useful, useless = 3, 5, 30
size = useful + useless
coefficients = np.concatenate([rng.normal(size=useful), np.zeros(useless)])
noise = np.array([0.5, 1.0, 1.5])


def draw(count):
    rows = rng.normal(size=(groups, count, size))
    rows[1, :, :useful] *= 0.5  # the second group varies less
    return rows, rows @ coefficients + noise[:, None] * rng.normal(size=(groups, count))


data = {"train": draw(15), "held_out": draw(40)}


# %%
def losses(theta, part):
    return jnp.mean((part[0] @ theta - part[1]) ** 2, axis=1)


def upper(theta, y, data):
    return y @ losses(theta, data["held_out"])


def lower(x, theta, data):
    penalty = jnp.concatenate([jnp.full(useful, x[0]), jnp.full(useless, x[1])])
    return jnp.mean(losses(theta, data["train"])) + jnp.sum(jnp.exp(penalty) * theta**2)


problem = bs.Problem(upper, lower, x_set=bs.sets.Box(-6.0, 3.0), y_set=bs.sets.Simplex(), data=data)
start = bs.Point(x=np.array([1.5, -5.0]), theta=np.zeros(size), y=np.full(groups, 1 / groups))
path = []
result = bs.solve(problem, start, tol=1e-5, every=1, callback=lambda record: path.append(np.asarray(record.point.x)))
print(result.status, f"gap {result.gap:.1e} after {result.steps} steps")
print("penalties found:", np.exp(result.x).round(4))
before = bs.certify(problem, start).worst_value
print(f"worst group: {before:.3f} at the start, {result.certificate.worst_value:.3f} found")

# %% [markdown]
# Two penalties can be drawn. The map shows the worst group's loss on a grid, every point by an exact fit in NumPy,
# apart from bisaddle's code. The path is that of the solver.

# %%
rows, targets = (part.reshape(-1, *part.shape[2:]) for part in data["train"])


def worst(first, second):
    penalty = np.exp(np.repeat([first, second], [useful, useless]))
    theta = np.linalg.solve(rows.T @ rows / len(rows) + np.diag(penalty), rows.T @ targets / len(rows))
    return np.max(np.mean((data["held_out"][0] @ theta - data["held_out"][1]) ** 2, axis=1))


axis = np.linspace(-6, 3, 46)
grid = np.array([[worst(a, b) for a in axis] for b in axis])
print(f"best of {grid.size} fits on the grid: {grid.min():.4f}; found: {result.certificate.worst_value:.4f}")

# %%
figure, panel = plt.subplots(figsize=(5.4, 4.4), layout="constrained")
drawn = panel.contourf(axis, axis, grid, levels=12, cmap="cividis_r")
figure.colorbar(drawn, label="loss of the worst group")
steps = np.array(path)
panel.plot(steps[:, 0], steps[:, 1], "o-", color="white", markersize=3, linewidth=1, label="path of the solver")
panel.plot(*steps[0], "s", color="white")
panel.plot(*result.x, "*", color="#D55E00", markersize=14, label="certified")
panel.set(
    xlabel="log penalty, features that matter",
    ylabel="log penalty, features that do not",
    title="One run instead of a grid",
)
panel.legend(loc="lower left", labelcolor="white", facecolor="#444444")
panel.grid(False)
figure
