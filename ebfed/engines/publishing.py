"""Copies of fits without the rows: what `published` returns, and what is pickled.

A fit in this process has the clients' rows, their own parameters and how far their losses fell. A
published copy has nothing that did not leave the clients: it is the copy that a server of a
federation would have. A private fit is pickled like that.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from sklearn.base import clone

from ebfed.privacy.promises import is_private
from ebfed.tables.frames import Style

__all__ = ["deep_copied", "pickled", "published", "shallow_copied"]

# Names of columns, which are public.
NAMES = ("_y_name", "_group_name", "_set_aside")


def published(fit: Any) -> Any:
    """Return a fit as a server would have it.

    Parameters
    ----------
    fit : Estimator
        Fitted.

    Raises
    ------
    ValueError
        If this is the copy of a node of a federation.
    """
    if fit.view().is_server:
        return copy.deepcopy(fit)
    if fit._kept is None:
        raise ValueError("this is the copy of a node; what is published is that of the server.")
    twin = clone(fit)
    twin._simulated, state = fit._simulated, fit._kept
    if hasattr(fit, "log_likelihood_"):
        state = state | {"log_likelihood": fit.log_likelihood_}
    twin.conclude(state)
    for name in NAMES:
        if hasattr(fit, name):
            setattr(twin, name, getattr(fit, name))
    if hasattr(fit, "_style_"):  # without the type of labels, which may have all of them
        twin._style_ = Style(fit._style_.backend, fit._style_.group)
    return twin


def pickled(
    fit: Any, attributes: dict[str, Any], ledger: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return those attributes of an estimator that its pickle holds.

    Parameters
    ----------
    fit : Estimator
        Fitted or not.
    attributes : dict
        All of them.
    ledger : list of dict
        Of what its clients sent, if it was fitted.
    """
    if fit._kept is None or fit.keep_rows or not is_private(ledger):
        return attributes
    return dict(vars(published(fit)))


def deep_copied(fit: Any, memo: dict[int, Any]) -> Any:
    """Copy all attributes: what stays in this process keeps its rows."""
    twin = memo[id(fit)] = object.__new__(type(fit))
    twin.__dict__.update(copy.deepcopy(vars(fit), memo))
    return twin


def shallow_copied(fit: Any) -> Any:
    """Copy an estimator, which shares its attributes with the copy."""
    twin = object.__new__(type(fit))
    twin.__dict__.update(vars(fit))
    return twin
