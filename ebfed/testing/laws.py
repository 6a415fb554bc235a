"""Contract of the law of reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.channels.base import public_figures
from ebfed.channels.law import Law
from ebfed.channels.report import Report
from ebfed.families import Family
from ebfed.tables.clients import Summary
from ebfed.testing.seed import SEED

__all__ = ["check_law", "check_reports"]


def _outcomes(law: Law, size: int) -> tuple[NDArray, NDArray, NDArray]:
    """Return reports, weights and which reports are atoms, on a finer grid than the law's."""
    reports, weights = law.outcomes(size)
    if reports.dtype.kind != "f":
        every = np.arange(int(reports.min()), int(reports.max()) + 1).astype(reports.dtype)
        return every, np.ones(len(every)), np.ones(len(every), bool)
    own = weights == 1
    fine = int(np.ceil(40_000 / max((~own).sum(), 1)))
    parts = (np.arange(fine) + 0.5) / fine - 0.5
    inner = (reports[~own, None] + weights[~own, None] * parts).ravel()
    order = np.argsort(inner, kind="stable")
    inner, widths = inner[order], np.repeat(weights[~own] / fine, fine)[order]
    mask = np.arange(own.sum() + len(inner)) < own.sum()
    return np.append(reports[own], inner), np.append(weights[own], widths), mask


def check_law(law: Law, size: int, epsilon: float, delta: float) -> None:
    """Check that a law sums to one and keeps the guarantee."""
    reports, weights, own = _outcomes(law, size)
    sizes = np.full(len(reports), size)
    grid = np.linspace(-1, 1, (size or 10) + 1)
    noisy = law.variance(grid[:, None] + 1e-3 * (grid[:, None] < 0), np.full(len(grid), size)).any()
    # sums over steps miss up to one step at a jump of the density
    tolerance = 1e-9 if own.all() else 1e-4
    if noisy or size:
        total = weights @ law.density(reports, grid, sizes)
        np.testing.assert_allclose(total, 1, atol=tolerance, err_msg="the law must sum to one")
    if noisy and not size:
        means, variances = np.array([-1.3, 0.02, 0.6, 1.0]), np.full(len(reports), 0.3)
        total = weights @ law.average(reports, means, variances, sizes)
        np.testing.assert_allclose(total, 1, atol=tolerance, err_msg="averages must sum to one")
        _check_average(law, size)
    if not np.isfinite(epsilon):
        return
    density = law.density(reports, grid, sizes)
    if delta == 0:
        ratio = np.exp(epsilon) * density.min(axis=1)
        assert np.all(density.max(axis=1) <= ratio * (1 + 1e-9)), "the law must keep epsilon"
        return
    for p in density.T:
        excess = weights @ np.maximum(p[:, None] - np.exp(epsilon) * density, 0)
        assert np.all(excess <= delta * (1 + 1e-3)), "the law must keep epsilon and delta"


def _check_average(law: Law, size: int) -> None:
    """Check that averages are integrals of the density over normal local values."""
    from scipy.stats import norm

    reports, _ = law.outcomes(size)
    reports = reports[np.unique(np.linspace(0, len(reports) - 1, 40).astype(int))]
    sizes = np.full(len(reports), size)
    means = np.array([-1.27, -0.34, 0.03, 0.71, 1.0])
    points = np.array([-1, -0.733, -0.0213, 0.307, 1])  # no window begins or ends here
    at = law.density(reports, points, sizes)
    near = law.average(reports, points, np.full(len(reports), 1e-18), sizes)
    inner = slice(1, -1)  # at an end, half of the values lie inside: a window may end there
    np.testing.assert_allclose(
        near[:, inner], at[:, inner], rtol=1e-6, err_msg="average must tend to the density"
    )
    for sd in (0.03, 0.4, 3.0):
        ends = law.density(reports, np.array([-1.0, 1.0]), sizes)
        sums = []
        for count in (10_001, 20_001):
            u = np.linspace(-1, 1, count)
            heights = norm.pdf(u[:, None], means, sd)
            heights[[0, -1]] /= 2
            inside = law.density(reports, u, sizes) @ heights * (u[1] - u[0])
            below, above = norm.cdf(-1, means, sd), norm.sf(1, means, sd)
            sums.append(inside + ends[:, [0]] * below + ends[:, [1]] * above)
        average = law.average(reports, means, np.full(len(reports), sd**2), sizes)
        # a jump of the density costs the sum one step; halving the step measures it
        error = 4 * np.abs(sums[1] - sums[0]).max() + 1e-6 * at.max()
        assert np.all(np.abs(average - sums[1]) <= error), "average must integrate the density"


def check_reports(
    channel: Report, summary: Summary, family: Family, n: int, size: int, secure: int
) -> None:
    """Check that reports of clients with n rows have the frequencies of the likelihood."""
    rng = np.random.default_rng(SEED)
    law = channel._law(1)
    reports, weights, own = _outcomes(law, n)
    counts = family.typical(n, 1).counts_rows
    if not counts:
        reports, weights, own = _outcomes(law, 0)
    blank = family.blank(np.full(len(reports), n), 1)
    message = public_figures(blank) | {"report": reports[:, None]}
    likelihood = channel.likelihood(message, family)

    def drawn(theta: NDArray, how: Any) -> NDArray:
        sizes = np.full(len(theta), n)
        local = family.simulate(theta, sizes, rng)
        clients = replace(family.blank(sizes, 1), mean=local[:, None])
        return channel.encode(clients, how)["report"][:, 0]

    middle, top = summary.mean.mean(), summary.mean.max()
    low, high = family.support
    if np.isfinite(high):
        top = min(top, 0.95 * high)
    for theta in (middle, top):
        masses = weights * np.exp(likelihood.logpdf(np.array([[theta]]))[:, 0])
        simulated = drawn(np.full(size, theta), SEED)
        _check_frequencies(simulated, reports, own, masses, 1e-6, f"simulated at {theta:g}")
        if secure and theta == middle:
            real = drawn(np.full(secure, theta), "secure")
            assert real.dtype == simulated.dtype, "secure reports must be of the same type"
            _check_frequencies(real, reports, own, masses, 1e-9, f"secure at {theta:g}")
    bounded = np.isfinite(high)
    variance = 0.2 * (middle - low) * (high - middle) if bounded else summary.mean.var()
    theta = family.draw_population(middle, variance, size, rng)
    masses = weights * np.exp(likelihood.marginal(np.array([middle]), np.array([variance])))
    _check_frequencies(drawn(theta, SEED), reports, own, masses, 1e-6, "over a population")


def _check_frequencies(
    drawn: NDArray, reports: NDArray, own: NDArray, masses: NDArray, alarm: float, what: str
) -> None:
    """Compare frequencies with probabilities by chi-square; `alarm` is the false alarm rate."""
    from scipy.stats import chi2

    assert abs(masses.sum() - 1) < 1e-4, f"probabilities of reports {what} sum to {masses.sum()}"
    values = drawn.astype(float)
    atoms, inner = reports[own].astype(float), reports[~own]
    bins = np.full(len(values), -1)
    if len(atoms):
        order = np.argsort(atoms, kind="stable")
        place = np.clip(np.searchsorted(atoms[order], values - 1e-9), 0, len(atoms) - 1)
        hit = np.abs(atoms[order][place] - values) <= 1e-9
        bins[hit] = order[place[hit]]
    expected = masses[own]
    if len(inner):  # some forty bins of even probability
        below = np.cumsum(masses[~own])
        group = np.minimum((below / below[-1] * 40).astype(int), 39)
        edges = (inner[1:] + inner[:-1]) / 2
        rest = bins < 0
        bins[rest] = len(atoms) + group[np.searchsorted(edges, values[rest])]
        expected = np.append(expected, np.bincount(group, masses[~own], minlength=40))
    assert np.all(bins >= 0), f"a report {what} is not an outcome of the law"
    seen = np.bincount(bins, minlength=len(expected)).astype(float)
    expected = expected * len(values)
    kept = expected >= 10
    seen, expected = (np.append(x[kept], x[~kept].sum()) for x in (seen, expected))
    if expected[-1] < 10:  # rare reports join the last bin
        seen, expected = (np.append(x[:-2], x[-2:].sum()) for x in (seen, expected))
    statistic = ((seen - expected) ** 2 / expected).sum()
    chance = chi2.sf(statistic, max(len(seen) - 1, 1))
    assert chance >= alarm, (
        f"reports {what} do not have the frequencies of the likelihood: chi-square {statistic:.1f} "
        f"in {len(seen)} bins, p = {chance:.1g}"
    )
