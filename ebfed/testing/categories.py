"""Contract of channels whose reports are about categories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import Channel
from ebfed.families import Family
from ebfed.tables.clients import Summary
from ebfed.testing.seed import SEED

__all__ = ["check_categories"]

# Concentration of the population over which reports are averaged.
CONCENTRATION = 3.0


def check_categories(
    channel: Channel, summary: Summary, family: Family, size: int, secure: int
) -> None:
    """Check that reports of randomised categories have the probabilities of the likelihood.

    At fixed shares, and over a Dirichlet population. Probabilities are of the reports that were
    drawn: they add up to 1 where all possible ones were.
    """
    rng = np.random.default_rng(SEED)
    likelihood = channel.likelihood(channel.encode(summary, SEED), family)
    assert len(likelihood) == len(summary), "likelihood has one row per client"
    k, n = summary.n_features, int(summary.n.max())
    shares = (summary.n @ summary.mean + 1) / (summary.n.sum() + k)
    theta = np.broadcast_to(shares, (size, k))
    _check(channel, family, theta, n, rng, SEED, 1e-6, shares)
    if secure:
        _check(channel, family, theta[:secure], n, rng, "secure", 1e-9, shares)
    theta = rng.dirichlet(CONCENTRATION * shares, size)
    _check(channel, family, theta, n, rng, SEED, 1e-6, shares, 1 / (1 + CONCENTRATION))


def _check(
    channel: Channel,
    family: Family,
    theta: NDArray,
    n: int,
    rng: np.random.Generator,
    how: Any,
    alarm: float,
    mean: NDArray,
    correlation: float = 0.0,
) -> None:
    """Compare frequencies of reports with probabilities by chi-square."""
    from scipy.stats import chi2

    sizes = np.full(len(theta), n)
    counts = rng.multinomial(sizes, theta)
    clients = replace(family.blank(sizes, theta.shape[1]), mean=counts / n)
    message = channel.encode(clients, how)
    report, first, seen = np.unique(
        message["report"], axis=0, return_index=True, return_counts=True
    )
    said = channel.likelihood({"n": sizes[first], "report": report}, family)
    variance = mean * (1 - mean) * correlation
    chance = np.exp(said.marginal(mean, variance))
    assert chance.sum() < 1 + 1e-9, "probabilities of different reports must not exceed 1"
    if not correlation:
        np.testing.assert_allclose(
            np.exp(said.logpdf(mean[None])[:, 0]), chance, rtol=1e-9, err_msg="a point is a point"
        )
    expected = chance * len(theta)
    kept = expected >= 10
    observed = np.append(seen[kept], len(theta) - seen[kept].sum())
    expected = np.append(expected[kept], len(theta) - expected[kept].sum())
    if expected[-1] < 10:  # rare reports join the last bin
        observed, expected = (
            np.append(x[:-2], x[-2:].sum()) for x in (observed.astype(float), expected)
        )
    statistic = ((observed - expected) ** 2 / expected).sum()
    assert chi2.sf(statistic, max(len(observed) - 1, 1)) >= alarm, (
        "reports do not have the frequencies of the likelihood"
    )
