"""Contract of likelihoods."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Joined, Likelihood, Reported
from ebfed.testing.seed import SEED

__all__ = ["check_likelihood"]


def check_likelihood(likelihood: Likelihood) -> None:
    """Check that a likelihood is consistent with itself.

    Parameters
    ----------
    likelihood : Likelihood of at least two clients
        At least one of them has data.

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> check_likelihood(Gaussian(np.array([[0.0], [1.0]]), np.array([[1.0], [2.0]])))
    """
    n, d = len(likelihood), likelihood.n_features
    low, high = likelihood.support
    if d == 1:
        nodes = likelihood.nodes(50)
        assert nodes.ndim == 1, "nodes must be one-dimensional"
        assert len(nodes) >= 50, "nodes must give at least as many as asked for"
        assert np.all(np.diff(nodes) > 0), "nodes must increase"
        assert low <= nodes[0] <= nodes[-1] <= high, "nodes must lie in the support"
    local = likelihood.local
    assert local.shape == (n, d), "local must have shape (n, d)"
    has_data = np.isfinite(local).any(axis=1)
    # a client may report one coordinate only: any value serves for the others
    inside = np.where(np.isfinite(local), local, _middle(local))[has_data]
    inside = np.clip(inside, *_inner(low, high))
    theta = inside[: min(5, len(inside))]
    values = likelihood.logpdf(theta)
    assert values.shape == (n, len(theta)), "logpdf must have shape (n, k)"
    assert not np.isnan(values).any(), "logpdf must never be NaN"
    assert np.all(values[~has_data] == 0), "a client without data must have logpdf 0"

    by_client = np.array(
        [likelihood.take(slice(i, i + 1)).logpdf(inside)[0] for i in range(len(inside))]
    )
    if has_data.all():
        best = np.diag(by_client)
        np.testing.assert_allclose(likelihood.log_peak(), best, rtol=1e-6, atol=1e-6)
        # the best of nodes a quarter of a standard error apart misses at most an eighth, 1/128 in
        # the log-likelihood; one that always rises is cut four errors beyond the range
        coarse = isinstance(likelihood, Reported | Joined)
        slack = 0.03 if coarse else 1e-9 * (1 + np.abs(best[:, None]))
        assert np.all(by_client <= best[:, None] + slack), (
            "a client's local estimate must maximise its likelihood"
        )
    parts = np.concatenate([block.logpdf(theta) for block in likelihood.split(3)])
    np.testing.assert_allclose(
        parts, values, rtol=1e-12, atol=1e-12, err_msg="blocks must give the same log-likelihood"
    )

    rows, counts = likelihood.compress()
    exact = likelihood.exact
    free = has_data if exact is None else has_data & np.isnan(exact).all(axis=1)
    assert counts.sum() == free.sum(), "compress must count every client with data"
    # merging may move a message by a hundredth of its standard error
    np.testing.assert_allclose(
        counts @ rows.logpdf(theta),
        likelihood.take(free).logpdf(theta).sum(axis=0),
        rtol=1e-3,
        err_msg="compress must keep the total log-likelihood",
    )
    _check_combine(rows, counts)


def _middle(values: NDArray) -> NDArray:
    """Return a middle value of each column, one of those there."""
    return np.nanquantile(values, 0.5, axis=0, method="nearest")


def _inner(low: float, high: float) -> tuple[float, float]:
    return (low + 1e-9 if np.isfinite(low) else low, high - 1e-9 if np.isfinite(high) else high)


def _check_combine(rows: Likelihood, counts: NDArray) -> None:
    rng = np.random.default_rng(SEED)
    weights = counts[:, None] * rng.random((len(rows), 3))
    best = np.clip(rows.combine(weights), *_inner(*rows.support))
    assert best.shape == (3, rows.n_features), "combine must have shape (k, d)"
    top = np.diag(weights.T @ rows.logpdf(best))
    nodes = [rows.column(j).nodes(50) for j in range(rows.n_features)]
    # a likelihood may rise without end: search between the nodes only
    low, high = np.minimum([x[0] for x in nodes], best), np.maximum([x[-1] for x in nodes], best)
    for shift in (-1e-3, 1e-3):
        moved = np.clip(best + shift * (1 + np.abs(best)), low, high)
        assert np.all(np.diag(weights.T @ rows.logpdf(moved)) <= top + 1e-9 * (1 + np.abs(top))), (
            "combine must maximise the weighted log-likelihood"
        )
