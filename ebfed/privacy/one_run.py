r"""Lower bounds on epsilon from one training, with many canaries in it.

Each of m canaries (clients that are easy to recognise) is in the training if a fair coin says so.
An attacker sees what is published, guesses r of the coins, and is right W times. If the training is
private, W cannot be large, however the attacker guesses and however canaries influence one another.

*Any mechanism.* If flipping one coin is (epsilon, delta)-private, then with B binomial of r and
:math:`e^\varepsilon / (1 + e^\varepsilon)`,

.. math:: P(W \ge v) \le P(B \ge v)
    + 2 m \delta \max_{1 \le i \le v} \frac1i P(v > B \ge v - i).

*A known curve.* Let g(y) be the least probability with one side of a coin of an event that has
probability y with the other side, and :math:`p_j = P(W = j)`. For every v

.. math:: \frac1m \sum_{j \ge v} (r - j + 1)\, p_{j-1}
    \ge g\Big(\frac1m \sum_{j \ge v} j p_j\Big),

so that large values of W are possible only if smaller ones have some probability, and so on down to
0, and all must add up to one. For Gaussian noise :math:`g(y) = \Phi(\Phi^{-1}(y) - \mu)`, which
gives larger bounds than epsilon and delta alone. Every (epsilon, delta) has a curve, too; of its
two bounds on the same probability the smaller one counts.

A bound is valid if r does not depend on the coins. It stays below epsilon: the attacker who guesses
as well as epsilon permits shows `one_run_limit`, about half of 8 with 1,000 canaries.

References
----------
Steinke, Nasr and Jagielski (2023), Privacy auditing with one (1) training run.
Mahloujifar, Melis and Chaudhuri (2025), Auditing f-differential privacy in one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, singledispatch
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ebfed.privacy.audit import LowerBound
from ebfed.privacy.calibration import (
    check_count,
    check_delta,
    check_epsilon,
    check_error,
    gaussian_sigma,
)
from ebfed.privacy.curves import GAUSSIAN, Curve, Family, approximate_curve, gaussian_curve

__all__ = [
    "Mechanism",
    "OneRunAudit",
    "Played",
    "audit_one_run",
    "one_run_bound",
    "one_run_limit",
    "play",
    "right_guesses_p_value",
]

Mechanism: TypeAlias = Literal["gaussian", "any"]
FEWEST = 100  # canaries


@dataclass(frozen=True)
class OneRunAudit(LowerBound):
    """Lower bound on the epsilon of one training.

    Attributes
    ----------
    channel : str
        Estimator with all its arguments.
    n_features : int
        Columns of the clients' data.
    epsilon, delta : float
        Guarantee that is tested.
    lower : float
        Lower bound on epsilon, wrong with probability `error`; 0 if nothing was shown.
    canaries, guesses, right : int
        Number of canaries, of guesses, and of right guesses.
    mechanism : {"gaussian", "any"}
        What the bound assumes.
    error : float

    Examples
    --------
    >>> found = OneRunAudit("DPFedAvg(...)", 1100, 4.0, 1e-5, 4.7, 1000, 200, 196, "gaussian", 0.05)
    >>> found.passed, found.event
    (False, '196 of 200 guesses are right')
    """

    canaries: int
    guesses: int
    right: int
    mechanism: Mechanism
    error: float

    @property
    def event(self) -> str:
        """Describe how often the attacker was right."""
        return f"{self.right:,} of {self.guesses:,} guesses are right"


@dataclass(frozen=True)
class Played:
    """What an attacker made of one training.

    Attributes
    ----------
    scores : ndarray of shape (m,)
        Larger where a canary seems to be in, 0 where nothing is known.
    epsilon, delta : float
        Guarantee of the estimator's ledger.
    family : Family
        Mechanisms of the account, with any noise.
    n_features : int
        Columns of the clients' data.
    """

    scores: NDArray[np.float64]
    epsilon: float
    delta: float
    family: Family
    n_features: int


@singledispatch
def play(
    estimator: Any, coins: NDArray[np.bool_], rng: np.random.Generator, progress: bool | None
) -> Played:
    """Train once with canaries, and score each from what is published.

    Learners of `ebfed.learning` are registered; register a function for estimators of your own.

    Parameters
    ----------
    estimator : object
    coins : bool ndarray of shape (m,)
        Which canaries are in.
    rng : Generator
    progress : bool or None
        Whether to show a progress bar; None: only on a terminal.

    Raises
    ------
    TypeError
        If no function is registered for the estimator.
    """
    raise TypeError(
        "estimator must be a learner with privacy, such as "
        f"FedAvg(privacy=ClientPrivacy(epsilon=1.0)); got {estimator!r}."
    )


def audit_one_run(
    estimator: Any,
    *,
    claim: tuple[float, float] | None = None,
    canaries: int = 1000,
    guesses: int | Sequence[int] | None = None,
    mechanism: Mechanism = "gaussian",
    error: float = 0.05,
    progress: bool | None = None,
    rng: Any = 0,
) -> OneRunAudit:
    """Bound the epsilon of a private learner from below, by one training.

    The learner trains on canaries, each of which is present or absent by a fair coin (or far above
    or far below, where the guarantee is about clients exchanged). An attacker scores them by the
    shared parameters of all rounds, or by all messages where ``trust="none"``, and guesses the
    coins with the largest scores, positive or negative. How the canaries are made is in
    `ebfed.learning.canaries`.

    Parameters
    ----------
    estimator : Learner
        Learner with `privacy`, not fitted. Its model is replaced by a linear one with a column for
        each canary.
    claim : (float, float), optional
        Epsilon and delta to test; those of the learner's ledger if None.
    canaries : int
        Number of canaries, at least 100. Time and memory grow with its square.
    guesses : int or sequence of int, optional
        Number r of guesses, fixed before the training. With several numbers the largest bound
        counts, and each may fail with an equal part of `error`. None: two numbers, which show most
        if the claim is right and if the noise is half of what it should be.
    mechanism : {"gaussian", "any"}
        What is assumed: "gaussian" that the privacy is that of Gaussian noise of any size, with
        rounds and samples as in the learner's account; "any" nothing.
    error : float
        Probability that the bound exceeds the true epsilon, so that a correct learner fails. It is
        much smaller if noise is independent between canaries.
    progress : bool or None
        Whether to show a progress bar over rounds; None: only on a terminal.
    rng : int, Generator or None
        Seed of all random numbers.

    Returns
    -------
    OneRunAudit

    Raises
    ------
    TypeError
        If `estimator` is no learner with privacy.
    ValueError
        If it gives no guarantee, or one that so many canaries cannot refute, or an argument is out
        of range.

    See Also
    --------
    ebfed.evaluation.training_audit.audit_training : Bounds by thousands of trainings, which are
        nearer to epsilon.

    References
    ----------
    Steinke, Nasr and Jagielski (2023), Privacy auditing with one (1) training run. Mahloujifar,
    Melis and Chaudhuri (2025), Auditing f-differential privacy in one run.

    Examples
    --------
    >>> from ebfed.learning import ClientPrivacy, DPFedAvg
    >>> learner = DPFedAvg(n_rounds=2, privacy=ClientPrivacy(epsilon=4.0))
    >>> found = audit_one_run(learner, canaries=300)
    >>> found.passed, found.lower > 1
    (True, True)
    """
    if check_count("canaries", canaries) < FEWEST:
        raise ValueError(f"canaries must be at least {FEWEST}; got {canaries}.")
    error = check_error(error)
    if mechanism not in get_args(Mechanism):
        raise ValueError(f"mechanism must be one of {get_args(Mechanism)}; got {mechanism!r}.")
    numbers = None if guesses is None else _check_guesses(guesses, canaries)
    draw = np.random.default_rng(rng)
    coins = draw.random(canaries) < 0.5
    played = play(estimator, coins, draw, progress)
    epsilon, delta = (played.epsilon, played.delta) if claim is None else claim
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    family = played.family if mechanism == "gaussian" else None
    if numbers is None:
        numbers = _best_guesses(epsilon, delta, canaries, error, family is not None)
    each = error / len(numbers)
    strongest = max(_strength(r, r, canaries, delta, each, family) for r in numbers)
    if epsilon >= (most := _epsilon(strongest, delta, family)):
        raise ValueError(
            f"epsilon={epsilon:g} cannot be refuted by {canaries:,} canaries, which show at most "
            f"{most:.3g}: passing would mean nothing. Use more canaries or a larger error."
        )
    found = []
    for r in numbers:
        surest = np.argsort(-np.abs(played.scores), kind="stable")[:r]
        right = int(((played.scores[surest] > 0) == coins[surest]).sum())
        found.append((_strength(right, r, canaries, delta, each, family), r, right))
    strength, r, right = max(found)
    return OneRunAudit(
        channel=" ".join(repr(estimator).split()),
        n_features=played.n_features,
        epsilon=epsilon,
        delta=delta,
        lower=_epsilon(strength, delta, family),
        canaries=canaries,
        guesses=r,
        right=right,
        mechanism=mechanism,
        error=error,
    )


# Bounds -------------------------------------------------------------------------------------


def right_guesses_p_value(
    right: int, guesses: int, canaries: int, epsilon: float, delta: float
) -> float:
    """Bound the probability of so many right guesses if the training is (epsilon, delta)-private.

    Parameters
    ----------
    right, guesses, canaries : int
    epsilon, delta : float

    Returns
    -------
    float

    References
    ----------
    Steinke, Nasr and Jagielski (2023), Privacy auditing with one (1) training run.

    Examples
    --------
    >>> right_guesses_p_value(95, 100, 1000, epsilon=1.0, delta=1e-5)
    0.00066...
    """
    from scipy.special import expit
    from scipy.stats import binom

    q = expit(epsilon)
    tail = float(binom.sf(right - 1, guesses, q))
    steps = np.arange(1, right + 1)
    below = binom.sf(right - steps - 1, guesses, q) - tail
    return min(1.0, tail + 2 * canaries * delta * float(np.max(below / steps, initial=0.0)))


def one_run_bound(
    right: int,
    guesses: int,
    canaries: int,
    delta: float,
    error: float = 0.05,
    mechanism: Mechanism = "any",
) -> float:
    """Bound epsilon from below by the number of right guesses.

    Parameters
    ----------
    right, guesses, canaries : int
        Number of right guesses, of guesses, and of canaries, each in by a fair coin.
    delta : float
    error : float
        Probability that the bound exceeds the true epsilon.
    mechanism : {"gaussian", "any"}
        What is assumed, as for `audit_one_run`.

    Returns
    -------
    float
        Largest epsilon with which so many right guesses have a probability of at most `error`; 0 if
        there is none.

    Examples
    --------
    >>> one_run_bound(196, 200, 1000, delta=1e-5)
    3.0...
    >>> one_run_bound(196, 200, 1000, delta=1e-5, mechanism="gaussian")
    5.0...
    """
    family = _family(mechanism)
    return _epsilon(_strength(right, guesses, canaries, delta, error, family), delta, family)


def _family(mechanism: Mechanism) -> Family | None:
    return GAUSSIAN if mechanism == "gaussian" else None


def _epsilon(strength: float, delta: float, family: Family | None) -> float:
    if family is None or strength == 0:
        return strength
    return family.epsilon(strength, delta)


def _strength(
    right: int, guesses: int, canaries: int, delta: float, error: float, family: Family | None
) -> float:
    """Return the largest strength that is refuted; epsilon itself if all mechanisms may be."""
    if family is not None:
        return family.strongest(lambda curve: _refuted(right, guesses, canaries, curve, error))
    low, high = 0.0, 64.0
    while high - low > 1e-5:
        epsilon = (low + high) / 2
        value = right_guesses_p_value(right, guesses, canaries, epsilon, delta)
        curve = approximate_curve(epsilon, delta)
        if value <= error or _refuted(right, guesses, canaries, curve, error):
            low = epsilon
        else:
            high = epsilon
    return low


def one_run_limit(
    epsilon: float,
    delta: float,
    canaries: int,
    error: float = 0.05,
    mechanism: Mechanism = "gaussian",
    guesses: int | None = None,
) -> float:
    """Return the bound of an attacker who guesses as well as epsilon permits.

    The largest share of r guesses of m canaries that can be right on average is a m / r, where
    ``a + g(a) = r / m``.

    Parameters
    ----------
    epsilon, delta : float
        True privacy: that of a Gaussian release, or of randomised response for "any".
    canaries : int
    error : float
    mechanism : {"gaussian", "any"}
    guesses : int, optional
        The best number if None.

    Returns
    -------
    float
        Bound of the expected number of right guesses.

    Examples
    --------
    >>> one_run_limit(8.0, 1e-5, 1000)
    4.5...
    >>> one_run_limit(8.0, 1e-5, 1000, mechanism="any")
    5.3...
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    if mechanism == "gaussian":
        curve = gaussian_curve(1 / gaussian_sigma(epsilon, delta))
    else:
        curve = approximate_curve(epsilon, delta)
    numbers = _grid(canaries) if guesses is None else _check_guesses(guesses, canaries)
    family = _family(mechanism)
    return _epsilon(
        max(_expected(curve, r, canaries, delta, error, family) for r in numbers), delta, family
    )


@lru_cache(maxsize=64)
def _best_guesses(
    epsilon: float, delta: float, canaries: int, error: float, gaussian: bool
) -> list[int]:
    """Return numbers of guesses that show most of Gaussian noise: as claimed, and half as much."""
    family = GAUSSIAN if gaussian else None
    mu = 1 / gaussian_sigma(epsilon, delta)
    return sorted(
        {
            max(
                _grid(canaries),
                key=lambda r: _expected(curve, r, canaries, delta, error / 2, family),
            )
            for curve in (gaussian_curve(mu), gaussian_curve(2 * mu))
        }
    )


def _grid(canaries: int) -> list[int]:
    """Return numbers of guesses among which the best one is chosen."""
    return [max(1, canaries * share // 100) for share in (5, 7, 10, 14, 20, 28, 40, 56, 80, 100)]


def _expected(
    curve: Curve, guesses: int, canaries: int, delta: float, error: float, family: Family | None
) -> float:
    """Return the strength refuted by as many right guesses as a curve permits on average."""
    from scipy.optimize import brentq

    share = guesses / canaries
    a = brentq(lambda a: a + curve(a) - share, share / 2, share, xtol=1e-12)
    return _strength(int(a * canaries), guesses, canaries, delta, error, family)


def _refuted(right: int, guesses: int, canaries: int, curve: Curve, error: float) -> bool:
    """Whether a curve excludes that so many guesses are right with probability `error`.

    Suppose that they are. Then the probabilities of one right guess less, two less, ... have lower
    bounds, and the curve is excluded if these add up to more than one.
    """
    whole = guesses / canaries
    hits, misses = error * right / canaries, error * (guesses - right) / canaries
    for j in range(right - 1, -1, -1):
        needed = curve(hits)
        if needed <= misses:
            break  # nothing more is needed
        hits += j / (guesses - j) * (needed - misses)
        misses = needed
        if hits + misses > whole:
            return True
    return False


# Arguments ----------------------------------------------------------------------------------


def _check_guesses(guesses: Any, canaries: int) -> list[int]:
    numbers = [guesses] if np.ndim(guesses) == 0 else list(guesses)
    if not numbers:
        raise ValueError("guesses must name at least one number of guesses.")
    for number in numbers:
        if check_count("guesses", number) > canaries:
            raise ValueError(f"guesses must be at most canaries, {canaries:,}; got {number}.")
    return sorted({int(number) for number in numbers})
