"""Copies of fits without the rows: what `published` returns, and what is pickled; and clones.

A fit in this process has the clients' rows, their own parameters and how far their losses fell. A
published copy has nothing that did not leave the clients: it is the copy that a server of a
federation would have. A private fit is pickled like that.

Without metadata routing, scikit-learn's searches and cross-validation give `groups` to the folds
alone. An estimator would then be fitted or scored as if every row were a group of its own.
"""

from __future__ import annotations

import copy
import sys
from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from ebfed.arguments import WithArguments
from ebfed.privacy.ledger import is_private
from ebfed.tables.frames import Style
from ebfed.tables.roles import Roles

__all__ = [
    "FitFile",
    "Published",
    "cloned",
    "deep_copied",
    "name_columns",
    "published",
    "shallow_copied",
]


def published(fit: Any) -> Any:
    """Return a fit as a server would have it.

    Raises
    ------
    ValueError
        If this is the copy of a node of a federation, or a fit that is not made in rounds.
    """
    if not hasattr(fit, "protocol"):
        raise ValueError(
            "the effects of crossed factors are estimated together: a fit without its levels is "
            "none; save it with groups=True."
        )
    if fit.__ebfed_view__().is_server:
        return copy.deepcopy(fit)
    if fit._kept is None:
        raise ValueError("this is the copy of a node; what is published is that of the server.")
    twin = clone(fit)
    twin._simulated, state = fit._simulated, fit._kept
    if hasattr(fit, "log_likelihood_"):
        state = state | {"log_likelihood": fit.log_likelihood_}
    twin.protocol().conclude(state)
    if hasattr(fit, "_roles"):  # names of columns are public
        twin._roles = fit._roles
    if hasattr(fit, "_style_"):
        twin._style_ = fit._style_.unlabelled()
    if hasattr(fit, "_intake"):
        twin._intake.roles, twin._intake.style = fit._intake.roles, fit._intake.style.unlabelled()
    return twin


def name_columns(fit: Any, state: Mapping[str, Any]) -> None:
    """Set the number and names of columns that clients stated."""
    fit.n_features_in_ = state["n_features"]
    if state["columns"]:
        fit.feature_names_in_ = np.array(state["columns"].split("\n"), object)


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


class Published(WithArguments, ABC):
    """An estimator whose copies for others have nothing that did not leave the clients."""

    # Whether the pickle of a private fit has what its clients kept.
    keep_rows: bool = False
    # What a server would keep of the fit.
    _kept: dict[str, Any] | None = None
    # Notes of who held the fit, on nodes and their labels.
    _remarks: tuple[str, ...] = ()
    # Whether noise was drawn from a fixed seed.
    _simulated: bool = False
    # Numbers of groups and rows, where not all groups are known, as at one node of several.
    _totals: tuple[int, int] | None = None
    # An attribute that fits have.
    _mark: ClassVar[str] = "clients_"
    __copy__, __deepcopy__ = shallow_copied, deep_copied

    def __sklearn_clone__(self) -> Any:
        return cloned(self)

    def published(self) -> Self:
        """Return a copy with nothing in it that did not leave the clients: that of a server.

        It estimates any group from given rows, and numbers the groups of the fit. It has no rows,
        no estimates of groups, and no key of noise. A private fit is pickled like this, unless
        ``fit.keep_rows = True`` was set before.
        """
        check_is_fitted(self, self._mark)
        return published(self)

    def __getstate__(self) -> dict[str, Any]:
        whole = super().__getstate__()
        if self._kept is None or self.keep_rows or not is_private(getattr(self, "_ledger", ())):
            return whole
        return dict(vars(published(self)))


class FitFile:
    """Takes a fit apart, and puts it together again; see `ebfed.engines.portable`.

    What is here is of estimators whose features and response are read with `_roles`.
    """

    def of_nobody(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the parts of the last state with an entry for each client, of no clients."""
        return {"n": np.zeros(0, np.int64)}

    def columns(self, fit: Any, groups: bool) -> dict[str, Any]:
        """Return names of columns and how frames look; without groups, not the type of labels."""
        style = fit._style_ if groups else fit._style_.unlabelled()
        return {"style": style.as_data(), "roles": dict(fit._roles.columns)}

    def name(self, fit: Any, columns: dict[str, Any]) -> None:
        """Set the names of the columns of the fit, and how its frames look."""
        fit._style_, fit._roles = Style.of_data(columns["style"]), Roles(columns["roles"])

    def restore(self, fit: Any, population: Any, columns: dict[str, Any], groups: Any) -> None:
        """Set the learned attributes of an estimator."""
        of_clients = self.of_nobody(columns)
        if groups is not None:
            of_clients = {name: groups[name] for name in of_clients}
        state = population | of_clients
        if groups is None or "figures" not in groups:
            fit.protocol().conclude(state)
            self.name(fit, columns)
        else:
            fit._kept = state
            name_columns(fit, state)
            self.name(fit, columns)
            protocol = fit.protocol()
            protocol.finish(protocol.broadcast(state), groups["memory"], groups["figures"])


def cloned(estimator: Any) -> Any:
    """Return a clone, as `sklearn.base.clone` does.

    Parameters
    ----------
    estimator : Estimator

    Raises
    ------
    ValueError
        If a function of `sklearn.model_selection` was given groups, and does not pass them on.

    Examples
    --------
    >>> from ebfed.location import BernoulliEB
    >>> cloned(BernoulliEB(prior="npmle"))
    BernoulliEB(prior='npmle')
    """
    if not get_config()["enable_metadata_routing"] and (caller := _keeper_of_groups()):
        name = type(estimator).__name__
        raise ValueError(
            f"{caller} was given groups, but would not pass them on to {name}, for which every row "
            "would be a group of its own. Call sklearn.set_config(enable_metadata_routing=True) "
            "first; functions such as cross_val_score then take params={'groups': groups}. If the "
            f"groups are for the folds alone, give {name}().set_fit_request(groups=False)"
            ".set_score_request(groups=False)."
        )
    return BaseEstimator.__sklearn_clone__(estimator)


def _keeper_of_groups() -> str:
    """Name the outermost function of scikit-learn that was given groups; empty if there is none.

    It clones an estimator before it fits it, so it is among the callers of this function.
    """
    found, frame = "", sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("sklearn.model_selection."):
            known = frame.f_locals
            params = known.get("params")
            given = {"groups": known.get("groups")} | (params if isinstance(params, dict) else {})
            if any(
                name.split("__")[-1] == "groups" and values is not None
                for name, values in given.items()
            ):
                caller = known.get("self")
                found = frame.f_code.co_name if caller is None else type(caller).__name__
        frame = frame.f_back  # type: ignore[assignment]
    return found
