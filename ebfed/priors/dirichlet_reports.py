"""Dirichlet populations of shares, from reports that a channel randomised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from ebfed.likelihoods import Joined, Likelihood, Multinomial, ReportedCategories
from ebfed.priors import beta_binomial
from ebfed.priors.dirichlet_multinomial import plausible_dispersions

__all__ = ["Reports", "dirichlet_scores"]

# Correlations of two answers of a client from which the likelihood is climbed.
STARTS = (0.02, 0.2, 0.6)
# Largest correlation, and largest absolute logit of a mean share.
MOST, REACH = 1 - 1e-6, 30.0


def dirichlet_scores(
    likelihood: Likelihood, mean: NDArray, correlation: float
) -> tuple[NDArray, NDArray, NDArray]:
    """Log-probability of each message over a Dirichlet population, and its derivatives.

    See `ReportedCategories.dirichlet_scores`.

    Raises
    ------
    TypeError
        If messages are neither counts nor reports of categories.
    """
    if isinstance(likelihood, Joined):
        found = [dirichlet_scores(part, mean, correlation) for part in likelihood.parts]
        value, by_mean, by_correlation = zip(*found, strict=True)
        joined = (np.concatenate(each) for each in (value, by_mean, by_correlation))
        return next(joined), next(joined), next(joined)
    if not isinstance(likelihood, Multinomial | ReportedCategories):
        raise TypeError(f"{type(likelihood).__name__} messages are not of categories.")
    return likelihood.dirichlet_scores(mean, correlation)


@dataclass(frozen=True)
class Reports:
    """Different messages about shares of d categories, and how many clients sent each.

    Some may be exact counts.

    Examples
    --------
    >>> votes = Multinomial(np.array([[9, 1, 0], [2, 4, 4], [5, 0, 5], [1, 9, 0]]))
    >>> shares, correlation = Reports.of(votes).maximise()
    >>> shares.round(3), round(correlation / (1 - correlation), 3)
    (array([0.471, 0.324, 0.205]), 0.565)
    """

    rows: Likelihood
    counts: NDArray

    @classmethod
    def of(cls, likelihood: Likelihood) -> Reports:
        """Tabulate the messages of clients."""
        for part in likelihood.parts if isinstance(likelihood, Joined) else [likelihood]:
            if isinstance(part, Multinomial) and len(part):
                beta_binomial.check_size(part.column(0))
        return cls(*likelihood.compress())

    @property
    def shows_pairs(self) -> bool:
        """Whether some message is about two answers of one client."""
        parts = self.rows.parts if isinstance(self.rows, Joined) else [self.rows]
        return any(
            bool(np.any(part.trials > 1)) if isinstance(part, Multinomial) else part.shows_pairs
            for part in parts
            if isinstance(part, Multinomial | ReportedCategories)
        )

    def maximise(self) -> tuple[NDArray, float]:
        """Mean shares, and correlation of two answers of a client, of greatest likelihood."""
        d = self.rows.n_features
        even, single = np.full(d, 1 / d), not self.shows_pairs
        found = [self._climb(even, start) for start in ((0.0,) if single else STARTS)]
        shares, correlation, _ = max(found, key=lambda each: each[2])
        return shares, correlation

    def _climb(
        self, shares: NDArray, correlation: float, fixed: bool = False
    ) -> tuple[NDArray, float, float]:
        """Climb to a maximum: shares, correlation (or as given), and log-likelihood there."""
        from scipy.optimize import minimize

        fixed = fixed or correlation == 0
        total = self.counts.sum()

        def loss(x: NDArray) -> tuple[float, NDArray]:
            mean, at = softmax(x[:-1]), correlation if fixed else float(x[-1])
            value, by_mean, by_correlation = self._sums(mean, at)
            slope = np.append(mean * (by_mean - mean @ by_mean), 0 if fixed else by_correlation)
            return -value / total, -slope / total

        start = np.append(np.log(np.maximum(shares, np.exp(-REACH / 2))), correlation)
        bounds = [(-REACH, REACH)] * len(shares) + [(0.0, MOST)]
        best = minimize(
            loss,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"ftol": 1e-14, "gtol": 1e-9, "maxiter": 500},
        )
        return softmax(best.x[:-1]), float(best.x[-1]), -float(best.fun) * float(total)

    def _sums(self, mean: NDArray, correlation: float) -> tuple[float, NDArray, float]:
        """Log-likelihood of all messages, and its derivatives."""
        value, by_mean, by_correlation = dirichlet_scores(self.rows, mean, correlation)
        counts = self.counts
        return float(counts @ value), counts @ by_mean, float(counts @ by_correlation)

    def covariance(self, mean: NDArray, correlation: float, both: bool = True) -> NDArray:
        """Covariance of mean shares, and of the correlation at the end if that is open too.

        It is the inverse of the sum of squared scores, to which flat priors add what they know:
        of directions that messages say nothing about.
        """
        d = len(mean)
        _, by_mean, by_correlation = dirichlet_scores(self.rows, mean, correlation)
        scores = np.column_stack([by_mean, by_correlation]) if both else by_mean
        # moves of shares leave their sum as it is
        free = np.linalg.svd(np.ones((1, d)))[2][1:].T
        basis = np.zeros((scores.shape[1], d - 1 + both))
        basis[:d, : d - 1] = free
        if both:
            basis[-1, -1] = 1.0
        inside = scores @ basis
        known = np.append(np.full(d - 1, d * (d + 1.0)), [12.0] * both)
        information = (inside * self.counts[:, None]).T @ inside + np.diag(known)
        return basis @ np.linalg.inv(information) @ basis.T

    def plausible(self, near: float) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Find overdispersions that messages leave plausible, with the shares given each.

        As of `Tables.plausible`. Given the overdispersion, shares have a flat prior and are
        integrated out by Laplace's method.
        """
        d = self.rows.n_features
        last, held = np.full(d, 1 / d), {}

        def given(dispersion: float) -> tuple[float, NDArray, NDArray]:
            nonlocal last
            if dispersion not in held:
                correlation = min(dispersion / (1 + dispersion), MOST)
                shares, _, value = self._climb(last, correlation, fixed=True)
                covariance = self.covariance(shares, correlation, both=False)
                roots = np.linalg.eigvalsh(covariance)[1:]  # the first is that of the sum
                last = shares
                held[dispersion] = value + 0.5 * np.log(roots).sum(), shares, np.diag(covariance)
            return held[dispersion]

        dispersions, weights = plausible_dispersions(lambda each: given(each)[0], near)
        shares, variances = (np.array([given(float(x))[k] for x in dispersions]) for k in (1, 2))
        # as the average of shares whose likeliest may be 0
        many = (shares * (1 - shares)).sum(axis=1) / variances.sum(axis=1)
        means = (many[:, None] * shares + 1) / (many[:, None] + d)
        variances = np.minimum(variances, means * (1 - means) / 2)
        return dispersions, means, variances, weights
