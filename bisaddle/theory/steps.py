"""Step sizes from constants: one schedule per corollary, and those of the paper's experiments  [AYH25]."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np

from bisaddle.oracle.validate import as_number, require_positive
from bisaddle.problem import Constants, Problem
from bisaddle.schedules import StepSizes
from bisaddle.theory.constants import constants_of
from bisaddle.trees import Number

METHODS = ("opf", "fp", "morbit")
REGIMES = ("linear", "concave", "strongly-concave", "experiment")


@dataclasses.dataclass(frozen=True)
class Promise:
    """What the paper says of a schedule: best gap after K steps = O(rate), of which K^-exponent is the part in K.

    caveat: where the statement and its proof part, or what the schedule breaks; docs/theory.md has the details.
    """

    source: str
    rate: str
    iterations: str
    exponent: float
    caveat: str = ""

    def __str__(self) -> str:
        text = f"{self.source}: gap O({self.rate}) after K steps, gap <= eps in O({self.iterations}) steps"
        return f"{text}; {self.caveat}" if self.caveat else text


@dataclasses.dataclass(frozen=True)
class Plan:
    """steps, for the methods; K, the number of steps they are meant for (None: any); promise, what is known of them."""

    steps: StepSizes
    promise: Promise
    method: str
    regime: str
    K: int | None

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} = {value:.4g}" for name, value in self.steps.at(jnp.asarray(0)).items())
        return f"{self.method}, {self.regime}, K = {self.K}: {numbers}\n{self.promise}"


PROMISES = {
    ("opf", "concave"): Promise(
        "Corollary 5.2", "kappa^(3/4) K^(-1/4) + kappa^(5/2) K^(-1/2)", "kappa^3 eps^-4 + kappa^5 eps^-2", 1 / 4
    ),
    ("opf", "linear"): Promise(
        "Corollary 5.3",
        "kappa^(4/3) K^(-1/3)",
        "kappa^4 eps^-3",
        1 / 3,
        "with the printed mu = kappa^2 K^(-1/3) the term mu D_Y alone is kappa^2 K^(-1/3), so kappa^6 eps^-3 steps",
    ),
    ("fp", "concave"): Promise(
        "Corollary 5.5",
        "kappa^(3/5) K^(-1/5)",
        "kappa^3 eps^-5",
        1 / 5,
        "with the printed tau = kappa^-3 the dual term gamma kappa / mu^2 is kappa mu, so kappa^8 eps^-5 steps; "
        "the printed rate needs a tau that does not shrink with kappa",
    ),
    ("fp", "strongly-concave"): Promise(
        "Corollary 5.6",
        "kappa^(3/4) K^(-1/4) + kappa^(7/2) K^(-1/2)",
        "kappa^3 eps^-4 + kappa^7 eps^-2",
        1 / 4,
        "the corollary prints only kappa^3 eps^-4; with Gamma_5 = O(gamma kappa^4), as in Lemma 4.8, it is "
        "kappa^5 eps^-4",
    ),
    ("opf", "experiment"): Promise(
        "Section 6 by Theorem 5.1",
        "K^(-1/3)",
        "eps^-3",
        1 / 3,
        "for f linear in y; if L_yy > mu, sigma = 1 / mu breaks the theorem's condition and nothing is promised",
    ),
    ("fp", "experiment"): Promise(
        "Section 6 by Theorem 5.4",
        "K^(-1/8)",
        "eps^-8",
        1 / 8,
        "for f linear in y, and no corollary has this schedule; if L_yy > mu, sigma = 1 / mu breaks the condition",
    ),
    ("morbit", "experiment"): Promise(
        "Section 6 by GLRW23", "K^(-1/5)", "eps^-5", 1 / 5, "in MORBiT's own measure, whose square is K^(-2/5)"
    ),
}


def steps_for(
    given: Constants | Problem,
    method: str = "fp",
    *,
    K: Number | None = None,
    eps: Number | None = None,
    regime: str = "auto",
    nu: Number = 1.0,
    tau: Number | None = None,
) -> Plan:
    """The step sizes of the corollary that fits, for K steps or for gap eps  [AYH25, Corollaries 5.2-5.6, section 6].

        alpha = eta = 2 / (mu_g + L_g),      sigma = 2 / (L_yy + 2 mu),      kappa = L_g / mu_g,     gamma <= 1
        opf concave            mu = kappa^(3/4) K^(-1/4),   gamma = (kappa K)^(-3/4)
        opf linear             mu = kappa^2 K^(-1/3),       gamma = (kappa K)^(-2/3)          (then sigma = 1 / mu)
        fp  concave            mu = kappa^(3/5) K^(-1/5),   gamma = mu^3 / (tau kappa^3),     tau = kappa^-3
        fp  strongly-concave   mu = 0,                      gamma = kappa^(3/2) K^(-1/2),     tau = kappa^-3,
                               sigma = 2 / (L_yy + 2 mu_y)
        experiment             opf gamma = nu K^(-2/3), mu = nu K^(-1/3);  fp gamma = nu K^(-1/2), mu = nu K^(-1/4),
                               tau = 0.7; both sigma = 1 / mu;  morbit alpha = K^(-2/5), tau = sigma = nu K^(-3/5)

    regime: "auto" finds it from L_yy (0: linear) and mu_y (> 0: strongly concave). eps sets K, by the corollary's
    order. nu: of the experiment only. tau: of fp, instead of the default. morbit's alpha, tau, sigma are its lower,
    upper and weight steps  [GLRW23].
    Needs: mu_g and L_g with a lower level, L_yy with a max player; mu_y > 0 for "strongly-concave".
    """
    check_method(method)
    regime = regime_of(given, method, regime)
    if (K is None) == (eps is None):
        raise ValueError(f"steps_for needs K or eps, and not both, given K = {K} and eps = {eps}")
    nu, tau = require_positive("nu", nu), None if tau is None else require_positive("tau", tau)
    if nu != 1 and regime != "experiment":
        raise ValueError(f'nu scales the schedules of regime="experiment" only, given nu = {nu} with {regime!r}')
    if tau is not None and method != "fp":
        raise ValueError(f'tau is a step size of method="fp" only here, given tau = {tau} with {method!r}')
    c, has_lower, has_ascent = basics(given, method, regime)
    kappa = c["L_g"] / c["mu_g"]
    K = check_K(order_of(kappa, require_positive("eps", eps), method, regime) if K is None else K)
    found = powers(kappa, method, regime, nu, tau)
    numbers = {name: scale * float(K) ** exponent for name, (scale, exponent) in found.items()}
    if method != "morbit":
        numbers["gamma"] = min(numbers["gamma"], 1.0)
        if has_lower:
            numbers["alpha"] = numbers["eta"] = 2 / (c["mu_g"] + c["L_g"])
        if has_ascent:
            mu = numbers.setdefault("mu", 0.0)
            # the proof of Corollary 5.6 puts the modulus of f in the place of mu
            strength = c["mu_y"] if regime == "strongly-concave" else mu
            numbers["sigma"] = 1 / mu if regime == "experiment" else 2 / (c["L_yy"] + 2 * strength)
    if not has_ascent:
        numbers = {name: value for name, value in numbers.items() if name not in ("mu", "sigma")}
    return Plan(StepSizes(**numbers), PROMISES[method, regime], method, regime, K)


def powers(kappa: float, method: str, regime: str, nu: float, tau: float | None) -> dict[str, tuple[float, float]]:
    """name -> (scale, exponent) of each schedule that is scale K^exponent."""
    if tau is None:
        tau = 0.7 if regime == "experiment" else kappa**-3
    return {
        ("morbit", "experiment"): {"alpha": (1.0, -2 / 5), "tau": (nu, -3 / 5), "sigma": (nu, -3 / 5)},
        ("opf", "experiment"): {"gamma": (nu, -2 / 3), "mu": (nu, -1 / 3)},
        ("fp", "experiment"): {"gamma": (nu, -1 / 2), "mu": (nu, -1 / 4), "tau": (tau, 0.0)},
        ("opf", "linear"): {"gamma": (kappa ** (-2 / 3), -2 / 3), "mu": (kappa**2, -1 / 3)},
        ("opf", "concave"): {"gamma": (kappa ** (-3 / 4), -3 / 4), "mu": (kappa ** (3 / 4), -1 / 4)},
        ("fp", "strongly-concave"): {"gamma": (kappa ** (3 / 2), -1 / 2), "tau": (tau, 0.0)},
        ("fp", "concave"): {  # gamma = mu^3 / (tau kappa^3)
            "gamma": (kappa ** (-6 / 5) / tau, -3 / 5),
            "mu": (kappa ** (3 / 5), -1 / 5),
            "tau": (tau, 0.0),
        },
    }[method, regime]


def order_of(kappa: float, eps: float, method: str, regime: str) -> float:
    """The corollary's number of steps with every hidden constant taken as 1."""
    kappa = float(kappa)
    if regime == "experiment":
        return eps ** -(1 / PROMISES[method, regime].exponent)
    return {
        ("opf", "concave"): kappa**3 / eps**4 + kappa**5 / eps**2,
        ("opf", "linear"): kappa**4 / eps**3,
        ("fp", "concave"): kappa**3 / eps**5,
        ("fp", "strongly-concave"): kappa**3 / eps**4 + kappa**7 / eps**2,
    }[method, regime]


def regime_of(given: Constants | Problem, method: str, regime: str = "auto") -> str:
    """The regime asked for, if the paper has it for this method; "auto" looks at L_yy and mu_y."""
    one_of("regime", regime, ("auto", *REGIMES))
    if method == "morbit":
        if regime not in ("auto", "experiment"):
            raise ValueError(f'method="morbit" has the schedule of regime="experiment" only, given {regime!r}')
        return "experiment"
    if regime == "auto":
        if isinstance(given, Problem) and given.y_set is None:
            return "strongly-concave" if method == "fp" else "linear"  # no max player: nothing to regularise
        c = constants_of(given, ("L_yy",))
        if method == "opf":
            return "linear" if c["L_yy"] == 0 else "concave"
        return "strongly-concave" if c["mu_y"] > 0 else "concave"
    if (method, regime) not in PROMISES:
        other = "concave" if method == "opf" else "concave, or strongly-concave"
        raise ValueError(f'the paper has no {regime!r} schedule for method="{method}"; use regime={other}')
    return regime


def basics(given: Constants | Problem, method: str, regime: str) -> tuple[dict[str, float], bool, bool]:
    """The constants that every schedule needs, and whether there is a lower level and a max player."""
    has_lower = not (isinstance(given, Problem) and given.lower is None)
    has_ascent = not (isinstance(given, Problem) and given.y_set is None)
    c = constants_of(given, () if method == "morbit" else ("mu_g", "L_g", "L_yy"))
    if regime == "linear" and c["L_yy"] > 0:
        raise ValueError(
            f'regime="linear" is for f linear in y, given L_yy = {c["L_yy"]:.6g}: its sigma = 1 / mu would break '
            'sigma <= 2 / (L_yy + 2 mu); use regime="concave"'
        )
    if has_ascent and regime == "strongly-concave" and not c["mu_y"] > 0:
        raise ValueError(
            f'regime="strongly-concave" needs mu_y > 0, given {c["mu_y"]:.6g}; set Constants(mu_y=...) or use '
            'regime="concave"'
        )
    return c, has_lower, has_ascent


def one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, given {value!r}")


def check_method(method: str) -> None:
    one_of("method", method, METHODS)


def check_K(K: Number) -> int:
    if not 0 < as_number("K", K) < np.inf:
        raise ValueError(f"K must be a finite number of steps >= 1, given {K}")
    return max(1, math.ceil(K))
