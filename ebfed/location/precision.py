"""Whether estimates depend on their precision: tests of mean and spread, and a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Gaussian
from ebfed.priors import Posterior
from ebfed.priors.dependence import ScoreTest, dependence_tests, estimates_of
from ebfed.priors.robust import moments_of
from ebfed.report.plots.dependence import plot_dependence
from ebfed.tables.frames import frame

__all__ = ["Dependence", "dependence"]


def dependence(fit: Any) -> Dependence:
    """Test whether mean and spread of a population depend on the precision of its estimates.

    Scores of a population whose mean and variance are constant are tested against the logarithms of
    standard errors (`priors.dependence.dependence_tests`). The test of the spread allows for a mean
    that depends on them.

    Parameters
    ----------
    fit : Posterior or estimator
        A result of `posterior_from`, or a fitted estimator of means, such as `GaussianEB`.

    Returns
    -------
    Dependence

    Raises
    ------
    TypeError
        If it has no estimates with standard errors.
    ValueError
        If fewer than ten estimates have a positive, finite one, or these are all the same.

    References
    ----------
    Chen (2024), Empirical Bayes when estimation precision predicts parameters.

    Examples
    --------
    >>> import ebfed as eb
    >>> rows = eb.datasets.load_batting().query("at_bats >= 11")
    >>> rate = np.arcsin(np.sqrt((rows.hits + 0.25) / (rows.at_bats + 0.5)))
    >>> found = eb.location.dependence(eb.posterior_from(rate, 0.5 / np.sqrt(rows.at_bats)))
    >>> found.to_frame().round(1)
         what  statistic  df  p_value
    0    mean      198.9   1      0.0
    1  spread        9.7   1      0.0
    """
    if isinstance(fit, Posterior):
        columns = fit._columns
        if "std_error" not in columns:
            raise TypeError("fit must be a posterior of posterior_from, or a fitted estimator.")
        values, errors = np.asarray(columns["local"]), np.asarray(columns["std_error"])
        posterior, population = fit, fit._population
    else:
        learned = getattr(fit, "_learned", None)
        known = None if learned is None else estimates_of(learned.likelihood(fit.summaries_))
        if learned is None or known is None:
            raise TypeError(
                "fit must be a posterior of posterior_from, or a fitted estimator of the means of "
                f"one column; got {fit!r}."
            )
        values, errors = known[0], np.sqrt(known[1])
        posterior = fit.posterior()
        population = learned.population(learned.memory["covariates"])
    seen = np.isfinite(errors) & (errors > 0)
    values, errors = values[seen], errors[seen]
    if len(values) < 10 or errors.min() == errors.max():
        raise ValueError(
            "at least ten estimates must have positive standard errors that differ; got "
            f"{len(values)} from {errors.min(initial=np.inf):g} to {errors.max(initial=0.0):g}."
        )
    moments = moments_of(Gaussian(values[:, None], errors[:, None] ** 2))
    assert moments is not None
    spread = float(moments["second"][0])
    tests = dependence_tests(values, errors**2, np.log(errors)[:, None], spread)
    shape = (len(seen), 1)
    mean, variance = (
        np.broadcast_to(each, shape)[seen, 0] for each in (population.mean_, population.variance_)
    )
    return Dependence(*tests, values, errors, posterior.mean[seen, 0], (mean, np.sqrt(variance)))


@dataclass(frozen=True, eq=False)
class Dependence:
    """Result of `dependence`.

    Attributes
    ----------
    mean, spread : ScoreTest
        Tests, each with `statistic`, `df` and `p_value`.
    values, errors : ndarray of shape (n,)
        Estimates and their standard errors.
    estimates : ndarray of shape (n,)
        Posterior means.
    band : pair of ndarrays of shape (n,)
        Mean and standard deviation of the population that each estimate was shrunk to.
    """

    mean: ScoreTest
    spread: ScoreTest
    values: NDArray
    errors: NDArray
    estimates: NDArray
    band: tuple[NDArray, NDArray]

    def to_frame(self) -> Any:
        """Return both tests: ``what``, ``statistic``, ``df`` and ``p_value``."""
        both = self.mean, self.spread
        columns = {"what": np.array(["mean", "spread"], object)}
        columns |= {name: np.array([getattr(x, name) for x in both]) for name in ScoreTest._fields}
        return frame(columns)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw estimates and the band of the population against precision."""
        return plot_dependence(self, ax=ax)

    def __str__(self) -> str:
        lines = ["Dependence of estimates on their precision (scores over log standard errors)"]
        for name, test in (("mean", self.mean), ("spread", self.spread)):
            lines.append(f"{name:8} chi2({test.df}) = {test.statistic:.1f}, p = {test.p_value:.2g}")
        return "\n".join(lines)

    __repr__ = __str__
