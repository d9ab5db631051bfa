"""Methods for bilevel problems, with and without a max player: name -> function(problem, sizes, options) -> method."""

import bisaddle as bs


def lower_step(problem):
    """2 / (mu_g + L_g), the best constant step of gradient descent; every problem here knows both."""
    return 2 / (float(problem.constants.mu_g) + float(problem.constants.L_g))


def _steps(problem, *names, **sizes):
    """The step sizes given, and alpha, eta = 2 / (mu_g + L_g) where they are used and not given."""
    lower = {name: lower_step(problem) for name in names}
    return bs.StepSizes(**(lower | {name: size for name, size in sizes.items() if size is not None}))


def morbit(problem, tau=0.05, sigma=0.05, neumann_terms=None, **options):
    return bs.methods.MORBiT(_steps(problem, "alpha", tau=tau, sigma=sigma), neumann_terms, **options)


def ttsa(problem, tau=0.05, neumann_terms=None, **options):
    return bs.methods.TTSA(_steps(problem, "alpha", tau=tau), neumann_terms, **options)


def double_loop(problem, tau=0.05, sigma=0.05, **options):
    return bs.methods.DoubleLoop(_steps(problem, "alpha", tau=tau, sigma=sigma), **options)


def multi_block_v1(problem, tau=0.05, sigma=0.05, momentum=0.5, averaging=0.5, **options):
    steps = _steps(problem, "alpha", tau=tau, sigma=sigma)
    return bs.methods.MultiBlockV1(steps, momentum=momentum, averaging=averaging, **options)


def multi_block_v2(problem, tau=0.05, sigma=0.05, momentum=0.5, **options):
    return bs.methods.MultiBlockV2(_steps(problem, "alpha", "eta", tau=tau, sigma=sigma), momentum=momentum, **options)


def first_order_penalty(problem, tau=0.01, sigma=0.01, penalty=10.0, alpha=None, eta=None, **options):
    """alpha = eta c, so that the lags of theta and p cancel; eta leaves room for the curvature of f."""
    lower = lower_step(problem) / 2 if alpha is None else alpha
    steps = bs.StepSizes(alpha=lower, eta=lower / penalty if eta is None else eta, tau=tau, sigma=sigma)
    return bs.methods.FirstOrderPenalty(steps, penalty, **options)


def f2sa(problem, tau=0.01, penalty=10.0, alpha=None, eta=None, **options):
    lower = lower_step(problem) / 2 if alpha is None else alpha
    steps = bs.StepSizes(alpha=lower, eta=lower / penalty if eta is None else eta, tau=tau)
    return bs.methods.F2SA(steps, penalty, **options)


def ba(problem, tau=0.05, **options):
    return bs.methods.BA(_steps(problem, "alpha", tau=tau), **options)


def bsa(problem, tau=0.05, neumann_terms=None, **options):
    return bs.methods.BSA(_steps(problem, "alpha", tau=tau), neumann_terms, **options)


def aid(problem, tau=0.05, **options):
    return bs.methods.AID(_steps(problem, "alpha", tau=tau), **options)


def itd(problem, tau=0.05, **options):
    return bs.methods.ITD(_steps(problem, "alpha", tau=tau), **options)


def amigo(problem, tau=0.05, **options):
    return bs.methods.AmIGO(_steps(problem, "alpha", "eta", tau=tau), **options)


def soba(problem, tau=0.05, alpha=None, eta=None, **options):
    return bs.methods.SOBA(_steps(problem, "alpha", "eta", tau=tau, alpha=alpha, eta=eta), **options)


def saba(problem, tau=0.05, alpha=None, eta=None, **options):
    return bs.methods.SABA(_steps(problem, "alpha", "eta", tau=tau, alpha=alpha, eta=eta), **options)


def fsla(problem, tau=0.05, momentum=0.5, alpha=None, eta=None, **options):
    steps = _steps(problem, "alpha", "eta", tau=tau, alpha=alpha, eta=eta)
    return bs.methods.FSLA(steps, momentum=momentum, **options)


def sustain(problem, tau=0.05, momentum=0.5, neumann_terms=None, **options):
    return bs.methods.SUSTAIN(_steps(problem, "alpha", tau=tau), neumann_terms, momentum=momentum, **options)


def ibcg(problem, gamma=0.01):
    return bs.methods.IBCG(_steps(problem, "alpha", "eta", gamma=gamma))


def sbfw(problem, gamma=0.01, momentum=0.5, neumann_terms=None, **options):
    steps = _steps(problem, "alpha", gamma=gamma)
    return bs.methods.SBFW(steps, neumann_terms, momentum=momentum, **options)


METHODS = {
    "AID": aid,
    "AmIGO": amigo,
    "BA": ba,
    "BSA": bsa,
    "DoubleLoop": double_loop,
    "F2SA": f2sa,
    "FSLA": fsla,
    "FirstOrderPenalty": first_order_penalty,
    "IBCG": ibcg,
    "ITD": itd,
    "MORBiT": morbit,
    "MultiBlockV1": multi_block_v1,
    "MultiBlockV2": multi_block_v2,
    "SABA": saba,
    "SBFW": sbfw,
    "SOBA": soba,
    "SUSTAIN": sustain,
    "TTSA": ttsa,
}
