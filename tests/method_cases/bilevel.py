"""Methods for bilevel problems, with and without a max player: name -> function(problem) -> method."""

import bisaddle as bs


def lower_step(problem):
    """2 / (mu_g + L_g), the best constant step of gradient descent; every problem here knows both."""
    return 2 / (float(problem.constants.mu_g) + float(problem.constants.L_g))


def morbit(problem, tau=0.05, sigma=0.05, neumann_terms=None, **options):
    steps = bs.StepSizes(alpha=lower_step(problem), tau=tau, sigma=sigma)
    return bs.methods.MORBiT(steps, neumann_terms, **options)


def ttsa(problem, tau=0.05, neumann_terms=None, **options):
    return bs.methods.TTSA(bs.StepSizes(alpha=lower_step(problem), tau=tau), neumann_terms, **options)


METHODS = {"MORBiT": morbit, "TTSA": ttsa}
