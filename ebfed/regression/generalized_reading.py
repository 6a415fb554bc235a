"""Rows of generalized linear models: responses with weights, offsets and trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.alignment import aligned
from ebfed.tables.clients import Clients, order_of_rows
from ebfed.tables.columns import column_of
from ebfed.tables.of_rows import are_shares, of_rows, won_of_shares

if TYPE_CHECKING:
    from ebfed.regression.generalized import GeneralizedEB

__all__ = ["RowOptions", "read_rows"]


@dataclass(frozen=True)
class RowOptions:
    """What goes with the rows of a generalized linear model; see `GeneralizedEB.fit`."""

    sample_weight: Any = None
    offset: Any = None
    trials: Any = None

    def known(self, fit: GeneralizedEB, X: Any, reset: bool) -> dict[str, Any]:
        """Return what is given; columns of the fit that later frames have need not be named."""
        return fit._known_beside(X, vars(self), reset)

    def offset_of(
        self, fit: GeneralizedEB, X: Any, groups: Any
    ) -> tuple[Any, Any, NDArray[np.float64]]:
        """Return rows, labels, and the offset of each row (or one for all), to predict.

        Raises
        ------
        ValueError
            If it is missing, and rows of the fit had offsets.
        """
        given = self.known(fit, X, False)
        value = given.get("offset")
        if value is None:
            _check_offset(fit)
            return X, groups, np.zeros(1)
        if np.ndim(value) == 0 and not isinstance(value, str):
            value = np.full(1, float(value))
        X, groups, value = aligned({"X": X, "groups": groups, "offset": value}).values()
        value = column_of(X, value) if isinstance(value, str) else value
        return X, groups, of_rows(value, "offset")


def read_rows(
    fit: GeneralizedEB,
    X: Any,
    y: Any,
    groups: Any,
    reset: bool,
    options: RowOptions,
    *,
    keep: bool = False,
) -> tuple[Clients, NDArray | None]:
    """Read rows as clients, whose `y` has columns of response, weight and offset.

    Returns
    -------
    Clients
    codes : int64 ndarray of shape (n_rows,) or None
        Number of each row's group.

    Raises
    ------
    ValueError, TypeError
        If responses cannot be of the family, or what goes with rows does not fit them.

    Rows of weight 0 are left out, unless `keep`.
    """
    family = fit._family
    given = options.known(fit, X, reset)
    if "trials" in given and family.name != "binomial":
        raise ValueError(f"trials= is for family='binomial'; got family={family.name!r}.")
    if given and isinstance(X, Clients):
        raise ValueError(f"{min(given)} must be None: clients have rows without it.")
    if "offset" not in given and not (reset or isinstance(X, Clients)):
        _check_offset(fit)
    clients, codes, beside = fit._read(X, y, groups, reset, beside=given)
    found = dict(beside)
    n, order = len(clients.X), order_of_rows(codes)
    response = np.empty(n)  # in the order of X
    response[order] = np.asarray(clients.y, float)
    trials = found.get("trials")
    weight = found.pop("sample_weight", None)
    alone = family.name == "binomial" and trials is None
    if alone and weight is not None and are_shares(response):
        # of as many trials as the weight says, as in R
        response = won_of_shares(response, weight).astype(float)
        trials, weight = weight, None
    if trials is not None:
        over = response > trials
        if over.any():
            row = int(np.argmax(over))
            raise ValueError(
                f"y must be at most trials; row {row} has {response[row]:g} of {trials[row]:g}."
            )
        response = response / np.maximum(trials, 1)
    family.check(response, np.ones(1) if trials is None else trials)
    rows = np.empty((3, n)).T  # each column in one piece
    rows[:, 0], rows[:, 1], rows[:, 2] = response[order], 1.0, 0.0
    if weight is not None:
        rows[:, 1] = weight[order]
    if trials is not None:
        rows[:, 1] *= trials[order]
    if "offset" in found:
        rows[:, 2] = found["offset"][order]
    whole = Clients(clients.ids, clients.indptr, clients.X, rows)
    return (whole if keep or rows[:, 1].all() else _counted(whole)), codes


def _check_offset(fit: GeneralizedEB) -> None:
    """Refuse rows without offsets where those of the fit had some."""
    if fit._result.get("has_offset"):
        raise ValueError(
            "offset= must give the offset of each row, as in the fit (0 for the response at an "
            "exposure of 1)."
        )


def _counted(clients: Clients) -> Clients:
    """Leave out rows of weight 0; a client without others has no rows."""
    assert clients.y is not None
    keep = clients.y[:, 1] > 0
    ends = np.concatenate(([0], np.cumsum(keep)))[clients.indptr]
    return Clients(clients.ids, ends, clients.X[keep], clients.y[keep])
