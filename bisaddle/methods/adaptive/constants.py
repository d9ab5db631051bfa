"""Every number in Adaptive that was chosen rather than derived: the same for all problems, none for the user to tune.

docs/adaptive.md says which of them the proofs use. None can make a wrong answer certified.
"""

# --- gaps, and how accurate the inner solves are ----------------------------------------------------------------------
FIRST_ACCURACY = 0.1  # relative to the gradients: a guess, as nothing is known of the gap at the start
FIRST_C_LOW = 0.1  # inner residuals relative to the accuracy, so that the gradient errs by less than the gap
LAG_SHARE = 0.1  # of what the centre holds back in the accuracy: small, because y0 moves as soon as x is that accurate
TARGET_SHARE = 0.1  # of the target in the accuracy: at the solution nothing better is needed
REFINED = 0.01  # factor on c_low while a gap is checked
DISTRUST = 0.01  # share of the gradient's change in that check which counts as error of the refined gap
NEXT_TARGET = 0.1  # factor on the target once it is reached: the certificate may need more than the method sees
TARGET_ROUNDING = 100  # in units of rounding, the smallest target
TIGHTER = 0.1  # factor on c_low when the inner solves prove too rough
LEAST_C_LOW = 1e-8  # after a gap that a check did not confirm
LEAST_C_LOW_TRIALS = 1e-6  # after trials that failed, which more often have another reason

# --- the centre y0 and the weight mu ----------------------------------------------------------------------------------
STATIONARY = 0.1  # decrease to be had relative to mu |y - y0|^2 at which the centre moves; less is wasted on this one
STATIONARY_CAREFUL = 0.01  # the same once centres have brought no progress
STATIONARY_VERTEX = 0.2  # Frank-Wolfe gap relative to mu |y - y0| diam Y at which the centre moves
STATIONARY_GAP = 0.3  # x gap relative to mu |y - y0| at which a centre moves by the gap, as in networks
STATIONARY_TARGET = 0.15  # share of the target at which the x gap is small enough for any centre, y's for any mu
STALE = 100  # steps of x at one centre: f_mu is too hard to minimise, mu too small
MU_FACTOR = 4  # of one change of mu
SLOW = 20  # more steps of x at one centre call for a larger mu, with which f_mu is smoother
QUICK = 8  # as few steps of x allow a smaller mu, with which centres move further
LITTLE_PROGRESS = 0.5  # of mu |y - y0| from centre to centre: a factor above this calls for a smaller mu
SAME_WAY = 0.5  # cosine between the moves of y from two centres: below, y turns, and a smaller mu would turn it further
RISEN = 1.2  # x gradient times mu |y - y0| relative to the last centre's: beyond, a smaller mu would make it worse
AHEAD = 3  # how much further y may have come than x, each relative to the most it was off, for a smaller mu
HELD = 10  # centres that ask for a mu with which x was too slow once, before it is tried again
MU_LIMITS = 1e-30, 1e30  # against overflow alone: the first mu may be wrong by any factor
IDLE = 20  # centres without progress: they go round in circles, and care is needed
IDLE_BY_GAP = 40  # the same in networks
SMALLER_GAP = 0.9  # factor below the best measure of a centre that counts as progress

# --- the direction and length of a step of x --------------------------------------------------------------------------
PAIRS = 20  # of L-BFGS: a quarter fewer oracle calls than with 5
PAIR_BYTES = 2**25  # memory for them, which a large x would fill with copies of itself
LEAST_PAIRS = 2
PAIR_CURVATURE = 1e-12  # <s, q> relative to |s| |q|; below, the curvature is rounding
FACE_CURVATURE = 1e-10  # the same inside the face, where s and q are shorter
FLAT = 1e-4  # by which the derivative of a projection onto a flat face may fail to be a projection itself
STEEP = 1e-6  # slope of a quasi-Newton direction d, relative to |d| and the x gap: enough for descent to be certain
STEP_BITS = 20  # of a quasi-Newton step: more would say nothing of f, and rounding would grow by them from step to step
LONGEST = 10  # lengths of x over which f changes by its range over Y at most: near a solution its slope is no guide
FIRST_TAU = 0.3  # decrease that the first step aims for, or its radius allows, relative to the range of f over Y
TAU_LIMITS = 1e-30, 1e10  # relative to the first, or to one that moves x by its length: against overflow alone
TAU_GROWTH = 4  # after a step that met no curvature; less where it was shortened
MOST_GROWN_TAU = 1e8  # relative to the first, or to one that moves x by its length
SHORT_TAU = 0.5  # the short step of Barzilai and Borwein is taken where it is below this share of the long one
TAU_AFTER_FAILURE = 0.1  # factor after a line search without success
LAYER_REACH = 0.05  # longest step of the weights of a network, relative to |x|: a long first one saturates its layers
LAYER_GROWTH = 0.01  # by which |x| grows in a step: layers that grow before they have turned are saturated for good
GROWTH_ROUNDING = 1 - 1e-6  # of that, which a point that was put back into X may miss

# --- second-order steps -----------------------------------------------------------------------------------------------
SECOND_ENTRIES = 64  # of x at most: as many products for the second derivatives, and systems of that size
SECOND_MOST = 1000  # evaluations, after which other steps go on
SECOND_REFUSED = 12  # trials in a row without success, after which other steps go on
SECOND_SHORTER = 0.25  # radius relative to a step that was refused
SECOND_LONGER = 3.0  # radius relative to one that the model foretold well
SECOND_TRUSTED = 0.1  # error of the model, relative to the decrease, up to which the radius may grow at once
SECOND_LONGEST = 30.0  # radius relative to the last step, at the most
SECOND_POOR, SECOND_GOOD = 0.25, 0.7  # decrease relative to the promised one: below, the radius falls; above, it grows
SECOND_CENTRES = 6  # centres that may be left behind without a step of x
SECOND_MU = 10  # by which mu falls: the model knows the pieces of f_mu, so that a small mu does not make it harder
SECOND_EASY = 10  # Newton steps that the model's minimum may take for that
SECOND_SLOW = 8  # steps of x at one centre, not held back by the radius, that call for a larger mu
SECOND_BORDER = 0.99  # of the radius, from which a step is held back by it
SECOND_FORGOTTEN = 0.7  # factor, at every centre, on a mu that was too small
SECOND_LEAST = 1e12  # in units of the rounding in f_y by the diameter of Y, the most that rounding asks of mu
SECOND_LOST = 3  # steps spoilt by rounding, after which other steps go on
SECOND_LEFT = 0.1  # gradient at the model's minimum, relative to that before: beyond, the minimum was not found
SECOND_UNSOLVED = 5  # models in a row of which that is so, after which other steps go on
SECOND_ROUNDING = 1e3  # in units of rounding, a decrease that may be hidden
MODEL_STEPS = 30  # of Newton's method for the model's minimum
MODEL_TRIALS = 25  # of its line search: at a small mu the pieces are short
MODEL_ENOUGH = 1e-3  # slope relative to the decrease so far that is not worth another step
MODEL_NOTHING = 100  # in units of rounding, relative to f, the square root of a decrease that is none
MODEL_FLAT = 1e-6  # relative to what it was before, a gradient or a distance that is none
MODEL_FACES = 5  # of a flat border that one Newton step may come to
MODEL_KEPT = 0.25  # of a direction that the derivative of a projection keeps: less, and it leaves the face
MODEL_LONGER = 1.1  # of the radius, that a step may have before it is put back
MODEL_ROUNDING = 1e-15  # relative to the largest, the smallest curvature
MODEL_SHIFTS = 20  # of Newton's method for the length of a step

# --- the line search --------------------------------------------------------------------------------------------------
HISTORY = 10  # values of f_mu, of which a step has to beat only the largest: spectral steps are not monotone
DECREASE = 1e-4  # share of the decrease promised by the slope that is enough
HIDDEN = 1e-8  # a promised decrease below this share of |f_mu| may be lost in rounding
HIDDEN_RISE = 1e-9  # a rise by this share of |f_mu| may be rounding
HIDDEN_ROUNDING, RISE_ROUNDING = 80, 8  # the same in units of rounding, where that is more: in float32
HIDDEN_SLOPE = 0.8  # slope at the end of such a step relative to that at its start: at most a little past the minimum
SHORTEN = 0.1, 0.5  # limits of the factor on a step that failed
SHORTEN_PARTS = 64  # of which it is a whole number: it comes from values that nearly cancel, few of its digits count
MOST_TRIALS = 30
QUASI_NEWTON_TRIALS = 3  # then the projected gradient step has its turn
RECHECKS = 8, 16, 24  # trials after which x is evaluated again: its gradient may not be what the values say

# --- the inner solves -------------------------------------------------------------------------------------------------
FIRST_RESIDUAL = 1e-2  # of theta and, relative to f_theta, of w at the start, times min(1, mu_g)
LANCZOS_PRODUCTS = 32  # spent on an estimate of mu_g
ROUNDING = 50  # in units of rounding, the smallest residual of theta that is asked for
RELATIVE_ROUNDING = 2  # the same of y and w, relative to the gradients of f that they are solved for
Y_FAR = 0.01  # the most that y may leave, relative to the largest residual that there can be
Y_SHARE = 0.1  # residual of y relative to that of theta: y is cheaper, as it needs no product with the Hessian
NEWTON_STEPS = 200  # far from theta*, an exponential falls by a factor of e in a step
DOUBT = 3  # steps of Newton's method after which a guess is compared with the last theta; a good one needs fewer
UNSOLVED = 1e-2  # distance to theta* relative to |theta|, or residual of w: beyond, more than rounding is left
NEWTON_SHARE = 0.5  # of the target for |g_theta|, left to the linear system: the rest is for what Newton neglects
NEWTON_RELATIVE = 1e-3  # residual of that system relative to its right side: three digits a step are enough
ASCENT_STEPS = 200
CLIMB_AFTER = 20  # of them, after which y takes quasi-Newton steps
CLIMB_STEPS = 200  # of these
LEAST_CLIMB = 1e-6  # share of such a step, halved from trial to trial, below which y stays where it is
LINEAR_ROUNDING = 1e3  # in units of rounding, a change of f_y that is none: f is linear in y as far as can be seen

# --- what helps them --------------------------------------------------------------------------------------------------
RECALLED = 10  # evaluations from which the next solve extrapolates
RECALLED_ENTRIES = 2**22  # in all of them, 32 MB; beyond a third of it, a solve begins where the last one ended
RECALLED_INPUTS = 2**20  # in their x and y, 8 MB: two do for a large x
PIECE = 2**17  # entries of vectors beyond which they are subtracted piece by piece
RECALL_LEAST = 1e-6  # added to normal equations that may be singular: squared, how far directions differ that count
RECALL_ROUNDING = 1e4  # the same in units of rounding, where that is more: in float32
FREE_PRODUCTS = 2  # that a solve takes even with the best preconditioner

# --- the first mu -----------------------------------------------------------------------------------------------------
FAR = 1e6  # diameters of a set, which take a step along a gradient far beyond its border
PROBE = 0.1  # share of the way to the border of X
PROBE_LESS = 1e-3  # mu at the start relative to that at the probe, below which the probe counts
PROBE_RESIDUAL = 0.1  # of theta at the probe, relative to g_theta before the solve: a rough f_y is enough

# --- coordinates ------------------------------------------------------------------------------------------------------
RANK_SHARE = 8  # columns for each triple of the leading part
LEAST_RANK, MOST_RANK = 16, 40  # triples of the leading part
MOST_ATOMS = 128  # slots for the atoms of a block
ATOM_BYTES = 2**27  # memory for them
WORTH_A_SLOT = 2.0  # gap of a new vertex relative to the gap within the atoms at hand

# --- what to divide by in place of 0 ----------------------------------------------------------------------------------
TINY = 1e-30  # a length
TINIEST = 1e-300  # a square, or an entry of a gradient
