"""Certificates as they are written to files, and in a sentence."""

from collections.abc import Mapping
from typing import Any

from bisaddle.report.files import finite

NUMBERS = ("gap", "x_gap", "y_gap", "error_bound", "value", "worst_value", "lower_error", "violation")


def certificate_document(certificate: Any, sigma: float = 1.0, tau: float = 1.0) -> dict[str, Any]:
    """The numbers of a Certificate, its measure, and the sigma and tau of its gaps; JSON."""
    numbers = {name: finite(float(getattr(certificate, name))) for name in NUMBERS}
    words = {"measure": certificate.measure, "error_is_bound": certificate.error_is_bound}
    if certificate.refutation:
        words["refutation"] = certificate.refutation
    return numbers | words | {"sigma": sigma, "tau": tau}


def certificate_sentence(certificate: Mapping[str, Any]) -> str:
    """What the numbers of a certificate say about the point, for someone who has not read the definitions."""
    if refutation := certificate.get("refutation"):
        return f"Nothing can be certified: {refutation}."
    gap, error = certificate.get("gap"), certificate.get("error_bound")
    if gap is None or error is None:
        return "Nothing can be said: the gap or its error is not a finite number."
    if certificate.get("measure") == "lmo":
        inside = f"to first order no point of X lowers the objective by more than {_number(certificate.get('x_gap'))}"
    else:
        inside = f"a projected gradient step in x moves at most {_number(certificate.get('x_gap'))} per unit of step"
    y_gap = certificate.get("y_gap")
    player = f", and one in y {_number(y_gap)}" if y_gap else ""
    kind = "at most" if certificate.get("error_is_bound", True) else "about"
    return (
        f"Stationary to {_number(gap)}: {inside}{player}; the lower level was solved again for this, and what was left "
        f"there changes the gap by {kind} {_number(error)}."
    )


def _number(value: float | None) -> str:
    return "an unknown amount" if value is None else "0" if value == 0 else f"{value:.2e}"
