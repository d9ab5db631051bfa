# %% [markdown]
# # Your own set and method
#
# bisaddle comes with [40 sets](../sets.md) and [30 methods](../methods.md). This is how to add one of each, without
# touching the library.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot as plt

import bisaddle as bs

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## A set
#
# The quarter of a disc where nothing is negative. Projecting onto a cone and then onto a ball around its tip projects
# onto what they have in common. The least $\langle d, u \rangle$ is reached on the arc, against the negative part of
# $d$, or at a corner where there is none.


# %%
def project(v):
    v = jnp.maximum(v, 0.0)
    return v / jnp.maximum(jnp.linalg.norm(v), 1.0)


def lmo(d):
    descent = jnp.maximum(-d, 0.0)
    length = jnp.linalg.norm(descent)
    return jnp.where(length > 0, descent / jnp.where(length > 0, length, 1.0), 0.0)


quarter = bs.sets.Custom(project=project, lmo=lmo, diameter=2**0.5, name="quarter disc")

# %% [markdown]
# Are these functions right? The laws of a set can be tried on random vectors: what is projected lies in the set, is
# nearer than any other point of it, and no point of the set beats the LMO.

# %%
rng = np.random.default_rng(0)
worst = 0.0
for v in 2 * rng.normal(size=(200, 2)):
    p, s = np.asarray(quarter.project(v)), np.asarray(quarter.lmo(v))
    angle, length = rng.uniform(0, np.pi / 2, 300), np.sqrt(rng.uniform(size=300))
    others = length[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    worst = max(worst, ((v - p) @ (others - p).T).max(), (v @ s - others @ v).max(), float(quarter.violation(s)))
print(f"largest violation of a law: {worst:.1e}")

# %% [markdown]
# ## A method
#
# A method is a class with one `step`. This one is gradient descent ascent with a memory: both players move along the
# last gradient, plus the change since the one before (it is known as optimistic). Its state needs two more fields. The
# loop, the stopping rule, the trace and the certificate come from `bs.solve`.


# %%
class Remembering(bs.methods.State):
    old_x: jax.Array
    old_y: jax.Array


class Optimistic(bs.methods.Method):
    """x+ = P_X(x - step (2 Gx - Gx_old)), y+ = P_Y(y + step (2 Gy - Gy_old))"""

    step_size: float

    def gradients(self, problem, x, y):
        return jax.grad(problem.upper, argnums=(0, 2))(x, None, y, problem.data)

    def first(self, problem, state):
        old_x, old_y = self.gradients(problem, state.x, state.y)
        return state.extended(Remembering, old_x=old_x, old_y=old_y)

    def step(self, problem, state):
        Gx, Gy = self.gradients(problem, state.x, state.y)
        x = problem.x_set.project(state.x - self.step_size * (2 * Gx - state.old_x))
        y = problem.y_set.project(state.y + self.step_size * (2 * Gy - state.old_y))
        return Remembering(state.k + 1, x, state.theta, y, state.w, Gx, Gy)

    def counts(self, problem, state):
        return bs.methods.Counts(gradients=int(state.k), projections=2 * int(state.k))


# %% [markdown]
# ## Both at work
#
# A bilinear game, on which plain descent ascent goes round in circles for ever.


# %%
def upper(x, y):
    return (x - jnp.array([0.45, 0.35])) @ jnp.array([[1.0, 0.3], [-0.3, 1.0]]) @ y


problem = bs.Problem(upper, x_set=quarter, y_set=bs.sets.Box(-1.0, 1.0))
start = bs.Point(x=np.array([0.9, 0.1]), y=np.array([0.0, 0.6]))
plain = bs.StepSizes(tau=0.1, sigma=0.1)
methods = {"descent ascent": bs.methods.GDA(plain), "your own": Optimistic(0.1), "Adaptive": None}
results, paths = {}, {}
for name, method in methods.items():
    path = paths[name] = []
    note = lambda record, path=path: path.append(np.asarray(record.point.x))
    results[name] = bs.solve(
        problem, start, method, tol=1e-6, max_steps=4000, every=1 if method is None else 4, callback=note
    )
    path.append(np.asarray(results[name].x))
    print(f"{name:15} {results[name].status}, gap {results[name].gap:.1e} after {results[name].steps} steps")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.8), layout="constrained")
angle = np.linspace(0, np.pi / 2, 60)
left.fill(np.append(np.cos(angle), 0), np.append(np.sin(angle), 0), color="#f0f0f0", edgecolor="grey")
for (name, path), style in zip(paths.items(), ("-", "-", "o-"), strict=True):
    steps = np.array(path)[:80]
    left.plot(steps[:, 0], steps[:, 1], style, linewidth=1, markersize=3, label=name)
    trace = results[name].trace
    right.loglog(np.maximum(trace.k, 1), np.maximum(trace.gap, 1e-9), label=name)
left.plot(0.45, 0.35, "k*", markersize=10)
left.set(title="Paths of x in the quarter disc", xlabel="first coordinate", ylabel="second")
left.set_aspect("equal")
left.grid(False)
right.axhline(1e-6, color="grey", linewidth=1)
right.set(xlabel="step", ylabel="gap", title="Gap")
right.legend(frameon=False, loc="center", bbox_to_anchor=(0.5, 0.6))
figure
