"""Rows that clients hold back, and how well their predictors do on these during training."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.models import Batch
from ebfed.tables.clients import Clients

__all__ = ["Portion", "check_metric", "has_stalled", "hold_back", "scores_of"]


@dataclass(frozen=True)
class Portion(Clients):
    """Some rows of each client: `count` of them, from `indptr` on."""

    count: NDArray[np.int64] = field(kw_only=True)

    @property
    def n(self) -> NDArray[np.int64]:
        return self.count

    @classmethod
    def training(cls, clients: Clients, fraction: float) -> Clients:
        """Return the rows that are not held back."""
        if not fraction:
            return clients
        count = clients.n - _held(clients.n, fraction)
        rows = clients.ids, clients.indptr, clients.X, clients.y
        return cls(*rows, weight=clients.weight, count=count)

    @classmethod
    def held_back(cls, clients: Clients, fraction: float) -> Self:
        """Return the rows that are held back: the last of each client."""
        count = _held(clients.n, fraction)
        first = np.append(clients.indptr[1:] - count, clients.indptr[-1])
        return cls(clients.ids, first, clients.X, clients.y, weight=clients.weight, count=count)


def _held(n: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
    """Return how many rows are held back; one of two or more at least, and never all."""
    count = np.maximum(np.round(fraction * n).astype(np.int64), 1)
    return np.clip(count, 0, np.maximum(n - 1, 0))


def hold_back(clients: Clients, fraction: float) -> Clients:
    """Put rows that are held back last among their client's; the others keep their order.

    Which rows depends on the number of rows alone, so that a fit that goes on has the same.

    Examples
    --------
    >>> clients = Clients.from_rows(np.arange(5.0), groups=[0, 0, 0, 0, 1])
    >>> hold_back(clients, 0.25).X.ravel().tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    if not fraction:
        return clients
    order = np.arange(len(clients.X))
    for first, n, count in zip(
        clients.indptr[:-1].tolist(), clients.n.tolist(), _held(clients.n, fraction), strict=True
    ):
        back = np.isin(np.arange(n), np.random.default_rng(n).permutation(n)[:count])
        order[first : first + n] = first + np.argsort(back, kind="stable")
    y = None if clients.y is None else np.asarray(clients.y)[order]
    weight = None if clients.weight is None else clients.weight[order]
    return replace(clients, X=clients.X[order], y=y, weight=weight)


def scores_of(
    metric: Any, batch: Batch, expected: NDArray, classes: NDArray | None, weighted: bool
) -> list[float]:
    """Return the metric of each client on the rows of a batch; NaN if it has none.

    Parameters
    ----------
    metric : callable or None
        The user's.
    batch : Batch
    expected : ndarray of shape (c, b, k)
        Predictions of its rows.
    classes : ndarray or None
        None where numbers are predicted.
    weighted : bool
        Whether rows have weights.
    """
    scores = []
    for y, guess, weight in zip(batch.y, expected, batch.weight, strict=True):
        real = weight > 0
        own = weight[real] if weighted else None
        some = real.any()
        scores.append(_metric(metric, y[real], guess[real], classes, own) if some else np.nan)
    return scores


def _metric(
    metric: Any, y: NDArray, expected: NDArray, classes: NDArray | None, weight: NDArray | None
) -> float:
    predicted = expected[:, 0] if classes is None else classes[expected.argmax(axis=1)]
    if metric is not None:
        weights = {} if weight is None else {"sample_weight": weight}
        return float(metric(y, predicted, **weights))
    if classes is None:
        return -float(np.average((y - predicted) ** 2, weights=weight))
    return float(np.average(y == predicted, weights=weight))


def check_metric(metric: Any) -> None:
    """Raise a ValueError if a metric of the user has no weights of rows."""
    if metric is not None and "sample_weight" not in signature(metric).parameters:
        raise ValueError(
            "metric must have an argument sample_weight, as those of scikit-learn, where rows have "
            f"weights; got {metric!r}."
        )


def has_stalled(history: list[dict[str, float]], patience: int | None) -> bool:
    """Whether so many evaluations in a row did not improve on the best before them.

    Examples
    --------
    >>> history = [{"validation": x} for x in (0.5, 0.7, float("nan"), 0.6, 0.7)]
    >>> has_stalled(history, 2), has_stalled(history, 3), has_stalled(history, None)
    (True, False, False)
    """
    if patience is None:
        return False
    seen = [row["validation"] for row in history if np.isfinite(row["validation"])]
    return len(seen) - 1 - int(np.argmax(seen)) >= patience if seen else False
