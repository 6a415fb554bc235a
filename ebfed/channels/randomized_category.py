"""The category of an answer, or any other; or whether two answers are alike."""

from __future__ import annotations

import math
from random import SystemRandom
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import secure
from ebfed.channels.base import Channel, Message, public_figures
from ebfed.channels.one_bit import odds
from ebfed.channels.report import CERTAIN, check_report_epsilon
from ebfed.families import Family
from ebfed.likelihoods import ReportedCategories
from ebfed.likelihoods.multinomial import truths
from ebfed.privacy import events
from ebfed.privacy.calibration import check_count, is_number
from ebfed.streams import Stream, make_key
from ebfed.tables.clients import Summary

__all__ = ["RandomizedCategory"]

# Reports of more answers have too many patterns for their exact likelihood.
MOST_ANSWERS = 64


class RandomizedCategory(Channel):
    r"""Send the category of an answer with odds ``e**epsilon`` against each other category.

    This is k-ary (generalised) randomised response. A client with several answers draws one of them
    at random. One category of each client says nothing of how much clients differ. So a share
    `compare` of the clients, chosen at random, draw two of their answers instead and state by a
    randomised bit whether these are alike, with the same odds. Each client answers one of the two
    questions, with the whole epsilon.

    With `answers` of m, clients that are asked for categories draw m of their answers without
    replacement (all of them, m, if they have fewer), and randomise each with ``epsilon / m``.
    Epsilon is then that of all rows of the client together. That of one row is ``epsilon / m`` only
    with ``compare=0``: one row decides whether two answers are alike.

    With k categories, an answer of category j is reported as j with probability
    ``a = e**epsilon / (e**epsilon + k - 1)``, and as each other one with ``b = a e**-epsilon``: the
    shares of reports are ``b + (a - b) theta_j``, which are fitted, not their inversion. Which
    categories there are is public.

    Parameters
    ----------
    epsilon : float
        Local privacy of the report: its odds move by at most ``e**epsilon`` with the client's data.
    answers : int
        Number of answers that a client sends, if it is asked for them.
    compare : float
        Share of the clients with two answers or more that are asked whether two are alike, from 0
        to below 1. At 0 with one answer the spread of the population is not identified.

    References
    ----------
    Kairouz, Bonawitz, Ramage (2016), Discrete distribution estimation under local privacy; Wang,
    Blocki, Li, Jha (2017), Locally differentially private protocols for frequency estimation.

    Examples
    --------
    A report counts the categories; the last two places are of "not alike" and "alike".

    >>> from ebfed.families import Categorical
    >>> rows = np.array([[4.0, 0.0, 1.0], [0.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    >>> votes = Categorical().summarise(rows, np.array(["a", "b", "c"]))
    >>> RandomizedCategory(epsilon=6).encode(votes, rng=2)["report"]
    array([[0, 0, 0, 1, 0],
           [0, 1, 0, 0, 0],
           [1, 0, 0, 0, 0]])
    """

    of_shares = True

    def __init__(self, epsilon: float, *, answers: int = 1, compare: float = 0.5):
        self.epsilon = epsilon
        self.answers = answers
        self.compare = compare

    @property
    def identifies_spread(self) -> bool:  # type: ignore[override]
        """Whether two answers of some clients are reported."""
        answers, compare = self._checked()
        return answers > 1 or compare > 0

    def _checked(self) -> tuple[int, float]:
        """Return `answers` and `compare`."""
        answers = check_count("answers", self.answers)
        if answers > MOST_ANSWERS:
            raise ValueError(f"answers must be at most {MOST_ANSWERS}; got {self.answers}.")
        if not (is_number(self.compare) and 0 <= self.compare < 1):
            raise ValueError(f"compare must be from 0 to below 1; got {self.compare!r}.")
        return answers, float(self.compare)

    # Clients ----------------------------------------------------------------------------------

    def encode(self, summary: Summary, rng: Any = None) -> Message:
        """Send ``n`` and ``report``: counts of reported categories, of "not alike" and "alike".

        Raises
        ------
        ValueError
            If means are not shares of two categories or more, or an argument is wrong.
        """
        answers, compare = self._checked()
        counts, epsilon = _counts(summary), check_report_epsilon(self.epsilon)
        if isinstance(rng, str):
            if rng != "secure":
                raise ValueError(f"rng must be a seed, a Stream or 'secure'; got {rng!r}.")
            rows = [_secure(own, answers, compare, epsilon) for own in counts]
            report = np.array(rows, np.int64).reshape(len(counts), counts.shape[1] + 2)
            return public_figures(summary) | {"report": report}
        stream = rng if isinstance(rng, Stream) else Stream(make_key(rng), 0)
        n, k = counts.shape
        size, at = summary.n, np.arange(n)
        report = np.zeros((n, k + 2), np.int64)
        compares = stream.bernoulli(np.full(n, compare)) & (size > 1)
        asked = np.minimum(size, answers)
        _, other = truths(epsilon, asked, k)
        left, drawn = counts.copy(), []
        for place in range(max(answers, 2 if compare else 1)):
            pick, lie, where = stream.uniforms(n, 3).T
            ends = left.cumsum(axis=1)
            own = np.minimum((pick[:, None] * ends[:, -1:] >= ends).sum(axis=1), k - 1)
            left[at, own] = np.maximum(left[at, own] - 1, 0)
            drawn.append(own)
            shown = (where * (k - 1)).astype(np.int64)
            shown += shown >= own
            shown = np.where(lie < (k - 1) * other, shown, own)
            report[at, shown] += (place < asked) & ~compares
        alike = drawn[0] == drawn[-1] if len(drawn) == 1 else drawn[0] == drawn[1]
        bit = stream.bernoulli(np.where(alike, *odds(min(epsilon, CERTAIN)))).astype(np.int64)
        report[at, k + bit] += compares
        return public_figures(summary) | {"report": report}

    def variance(self, summary: Summary) -> NDArray:
        """Variance of `decode` around each client's shares, shape (n_clients, k)."""
        answers, compare = self._checked()
        shares, size, k = summary.mean, summary.n[:, None], summary.n_features
        asked = np.maximum(np.minimum(size, answers), 1)
        truth, other = truths(check_report_epsilon(self.epsilon), asked, k)
        slope = truth - other
        each = other + slope * shares
        # two answers drawn without replacement are not independent
        pairs = -shares * (1 - shares) / np.maximum(size - 1, 1)
        noise = (each * (1 - each) / slope**2 + (asked - 1) * pairs) / asked
        taken = np.where(size > 1, 1 - compare, 1.0)
        return np.where(size > 0, (noise + shares**2) / taken - shares**2, 0.0)

    def report_bits(self, summary: Summary) -> NDArray:
        answers, compare = self._checked()
        k, size = summary.n_features, summary.n
        asked = np.minimum(size, answers).tolist()
        patterns = np.array([float(math.comb(m + k - 1, m)) for m in asked])
        patterns += np.where((size > 1) & (compare > 0), 2, 0)
        return np.where(size > 0, np.ceil(np.log2(patterns)), np.nan)

    @property
    def bits(self) -> float:
        """NaN: they depend on the number of categories."""
        return math.nan

    # Server -----------------------------------------------------------------------------------

    def decode(self, message: Message) -> NDArray:
        """Estimate each client's shares without bias, shape (n_clients, k).

        Raises
        ------
        ValueError
            If no client can have sent such a report.
        """
        answers, compare = self._checked()
        report, size = message["report"], message["n"]
        counts = report[:, :-2]
        asked, compared = np.minimum(size, answers), report[:, -2:].sum(axis=1)
        fits = np.where(compared > 0, (compared == 1) & (size > 1), True) & (report >= 0).all(
            axis=1
        )
        if not (fits & (counts.sum(axis=1) == np.where(compared > 0, 0, asked))).all():
            raise ValueError(f"report must be one of the reports of {self!r}.")
        asked = np.maximum(asked, 1)[:, None]
        truth, other = truths(check_report_epsilon(self.epsilon), asked, counts.shape[1])
        found = (counts / asked - other) / (truth - other)
        taken = np.where(size > 1, 1 - compare, 1.0)[:, None]
        silent = (compared > 0) | (size == 0)
        return np.where(silent[:, None], 0.0, found / taken)

    def likelihood(self, message: Message, family: Family) -> ReportedCategories:
        if not family.adds_up:
            raise TypeError(f"{self!r} reports on categories; rows are {family.name} here.")
        answers, compare = self._checked()
        return ReportedCategories(
            message["report"], message["n"], check_report_epsilon(self.epsilon), answers, compare
        )

    def guarantee(self, n_features: int = 1) -> tuple[float, float]:
        """Return epsilon, and delta = 0."""
        return check_report_epsilon(self.epsilon), 0.0

    def event(self, n_features: int = 1) -> Any:
        return events.pure(check_report_epsilon(self.epsilon))


def _counts(summary: Summary) -> NDArray[np.int64]:
    """Answers of each client by category, shape (n, k).

    Raises
    ------
    ValueError
        If means are no shares.
    """
    total = summary.mean.sum(axis=1)
    # figures of blank summaries are all 0
    shares = (np.abs(total - 1) < 1e-9) | (total == 0)
    if summary.n_features < 2 or not shares.all() or np.any(summary.mean < 0):
        raise ValueError(
            "RandomizedCategory reports on shares of two categories or more, as CategoricalEB "
            "has; got other figures."
        )
    return np.rint(summary.mean * summary.n[:, None]).astype(np.int64)


def _secure(counts: NDArray, answers: int, compare: float, epsilon: float) -> list[int]:
    """Draw the report of one client from the operating system's randomness."""
    random, size, k = SystemRandom(), int(counts.sum()), len(counts)
    report = [0] * (k + 2)
    if not size:
        return report
    compares = size > 1 and random.random() < compare
    asked = 2 if compares else min(size, answers)
    drawn = random.sample(range(k), asked, counts=counts.tolist())
    if compares:
        report[k + secure.answer(drawn[0] == drawn[1], min(epsilon, CERTAIN))] = 1
        return report
    truth, _ = truths(epsilon, np.array(asked), k)
    for own in drawn:
        report[secure.choose(own, k, float(truth))] += 1
    return report
