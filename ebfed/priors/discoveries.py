"""Which effects are discoveries: local false discovery rates, and q-values from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NO_NULL", "check_rate", "has_point", "q_values"]

NO_NULL = (
    "a false discovery rate is the probability that a parameter is {null:g}, and {which} has no "
    "point there of which the probability is known; populations that have one are 'point_normal', "
    "'point_laplace', priors.ScaleMixture(null_weight=10), and priors.Discrete with an atom there. "
    "local_false_sign_rate() needs none."
)


def has_point(prior: Any, value: float) -> bool:
    """Return whether a population gives a value a probability that its messages identify.

    Examples
    --------
    >>> from ebfed.priors import Discrete
    >>> prior = Discrete.known(np.array([[0.0], [2.0]]), np.array([0.25, 0.75]))
    >>> has_point(prior, 0.0), has_point(prior, 1.0)
    (True, False)
    """
    if hasattr(prior, "null"):
        return prior.null is not None and prior.null == value
    return bool(np.isin(value, prior.points()[0]))


def q_values(lfdr: NDArray) -> NDArray:
    """Mean of the rates of all effects that are at least as surprising, in each column.

    It is the share of false discoveries that is expected where an effect and all with a smaller
    rate are called discoveries (Newton, Noueiry, Sarkar, Ahlquist 2004; Stephens 2017).

    Parameters
    ----------
    lfdr : ndarray of shape (n, d)

    Returns
    -------
    ndarray of shape (n, d)

    Examples
    --------
    >>> q_values(np.array([[0.0], [0.6], [0.2], [0.2]])).ravel().round(3)
    array([0.   , 0.25 , 0.133, 0.133])
    """
    order = np.argsort(lfdr, axis=0, kind="stable")
    rates = np.take_along_axis(lfdr, order, axis=0)
    means = np.cumsum(rates, axis=0) / np.arange(1, len(rates) + 1)[:, None]
    # effects that are equally surprising are discoveries together
    is_last = np.vstack([rates[1:] > rates[:-1], np.ones((1, rates.shape[1]), bool)])
    means = np.where(is_last, means, np.inf)[::-1]
    found = np.empty(lfdr.shape)
    np.put_along_axis(found, order, np.minimum.accumulate(means, axis=0)[::-1], axis=0)
    return found


def check_rate(fdr: float) -> None:
    """Raise a ValueError unless a rate is a number in (0, 1)."""
    from ebfed.privacy.calibration import is_number

    if not is_number(fdr) or not 0 < fdr < 1:
        raise ValueError(f"fdr must lie between 0 and 1; got {fdr!r}.")
