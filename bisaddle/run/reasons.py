"""Why a run did not end as it should, in words that name what to change: for Result.reason."""

import jax
import numpy as np
from jaxtyping import PyTree

from bisaddle.certificate.certifier import Certificate, Certifier
from bisaddle.problem import Point, Problem
from bisaddle.run.result import Status
from bisaddle.trees import dtype_of

# a value in whose units rounding is more than a small tol
LARGE = 1e6
# an error bound in units of rounding, beyond which f is rounded more than its numbers are
SEEN = 1e5


def reason(status: Status, problem: Problem, certifier: Certifier, point: Point, certificate: Certificate) -> str:
    """What is known beyond the status; nothing if that is all."""
    if status is Status.NONFINITE:
        return _without_numbers(problem.data) or _not_finite(certifier, point)
    if status in (Status.NOT_CONCAVE, Status.NOT_STRONGLY_CONVEX, Status.WRONG_DERIVATIVES):
        return certificate.refutation
    # an acceptable point may be where a run stalled: then its error bound, or float32, is what forbids more
    forbidden = lambda: 2 * certificate.error_bound > certifier.below or dtype_of(point.x) != certifier.kernels.dtype
    if status is Status.STALLED or (status is Status.ACCEPTABLE and forbidden()):
        return _reachable(certifier, point, certificate)
    return ""


def _without_numbers(data: PyTree) -> str:
    """Which array of the data holds NaN or infinity, and where first."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(data):
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            continue  # a part of it lies on other hosts
        array = np.asarray(leaf)
        if array.dtype.kind not in "fc" or np.all(np.isfinite(array)):
            continue
        wrong = ~np.isfinite(array)
        first = tuple(map(int, np.argwhere(wrong)[0]))
        return (
            f"data{jax.tree_util.keystr(path)} holds {np.sum(wrong)} NaN or infinite entries of {array.size}, the "
            f"first at {list(first)}; fill or mask them"
        )
    return ""


def _not_finite(certifier: Certifier, point: Point) -> str:
    """Which of the functions is no number at the point."""
    kernels = certifier.kernels
    x, theta, y = kernels.flat(point)
    upper = kernels.upper(x, theta, y)
    found = {"f": upper.value, "f_x": upper.f_x, "f_theta": upper.f_theta, "f_y": upper.f_y}
    if kernels.has_lower:
        found["g_theta"] = kernels.lower_gradient(x, theta)
    wrong = [name for name, value in found.items() if not np.all(np.isfinite(value))]
    return f"{', '.join(wrong)} is not finite at result.point" if wrong else ""


def _set_that_is_off(certifier: Certifier, point: Point, certificate: Certificate) -> str:
    """x_set or y_set, if what its projection may be off by, as seen from outside, is half of the error bound."""
    kernels, tau, sigma = certifier.kernels, certifier.tau, certifier.sigma
    x, _, y = kernels.flat(point)
    Gx, theta = kernels.x.ravel(certificate.x_gradient), kernels.theta.ravel(certificate.theta)
    to = x - tau * Gx, y + sigma * kernels.upper(x, theta, y).f_y
    for name, a_set, v, step in (("x_set", kernels.x_set, to[0], tau), ("y_set", kernels.y_set, to[1], sigma)):
        if a_set is not None and a_set.estimates & {"project", "prox"}:
            if a_set.prox_error(v, a_set.prox(v, step), step) >= 0.5 * step * certificate.error_bound:
                return name
    return ""


def _reachable(certifier: Certifier, point: Point, certificate: Certificate) -> str:
    kernels = certifier.kernels
    if dtype_of(point.x) != kernels.dtype:
        return f"no point in {dtype_of(point.x)} came closer than a gap of {certificate.gap:.1e}: give float64 arrays"
    what = [f"the error bound is {certificate.error_bound:.1e}, and no smaller tol can be certified"]
    if kernels.dtype == np.float32:
        what.append('the point is float32: call jax.config.update("jax_enable_x64", True) and give float64 arrays')
    elif (size := abs(certificate.value)) > LARGE:
        what.append(f"f is of the size {size:.0e}: divide it, or give solve an rtol")
    elif name := _set_that_is_off(certifier, point, certificate):
        what.append(f"{name}: its projection or prox is not exact, or it is not convex")
    elif kernels.has_lower and certificate.lower_residual > 0:
        what.append("g may be nearly singular, or in large units: a ridge term or other units help")
    elif certifier.noise is None and certificate.error_bound > SEEN * kernels.eps:
        what.append("f seems to be rounded that much inside: give Problem(noise=...) if you know better")
    return "; ".join(what)
