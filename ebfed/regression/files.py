"""What a file has of a regression in every group."""

from __future__ import annotations

from typing import Any

import numpy as np

from ebfed.engines.publishing import name_columns
from ebfed.regression.group_covariates import GroupCovariates
from ebfed.tables.frames import Style
from ebfed.tables.roles import Roles

__all__ = ["RegressionFile"]

# Keys of the last state, of all clients together.
OF_STATE = (
    *("round", "done", "n_features", "columns", "history", "converged"),
    *("log_likelihood", "result"),
)


class RegressionFile:
    """Takes a fit apart, and puts it together again; see `ebfed.engines.portable`."""

    def population(self, fit: Any) -> dict[str, Any]:
        """Return what is of all groups together."""
        return {name: fit._kept[name] for name in OF_STATE} | {"n_clients": fit._n_clients}

    def columns(self, fit: Any, groups: bool) -> dict[str, Any]:
        """Return names of columns and how frames look; without groups, not the type of labels."""
        style, covariates = fit._style_, getattr(fit, "_covariates", None)
        if not groups:
            style = style.unlabelled()
            covariates = None if covariates is None else covariates.without_groups()
        return {
            "style": style.as_data(),
            "roles": dict(fit._roles.columns),
            "covariates": covariates,
        }

    def groups(self, fit: Any) -> dict[str, Any]:
        """Return what the fit has of groups; of a server's copy, what they stated."""
        of_groups = {"n": fit._kept["n"]}
        if not fit._is_server:
            of_groups |= {"figures": fit.clients_, "memory": fit._memory}
        return of_groups

    def restore(self, fit: Any, population: Any, columns: dict[str, Any], groups: Any) -> None:
        """Set the learned attributes of an estimator."""
        state = population | {"n": np.zeros(0, np.int64) if groups is None else groups["n"]}
        if groups is None or "figures" not in groups:
            fit.protocol().conclude(state)
            self._name(fit, columns)
        else:
            fit._kept = state
            name_columns(fit, state)
            self._name(fit, columns)
            protocol = fit.protocol()
            protocol.finish(protocol.broadcast(state), groups["memory"], groups["figures"])

    def _name(self, fit: Any, columns: dict[str, Any]) -> None:
        """Set the names of the columns of the fit, and how its frames look."""
        fit._style_ = Style.of_data(columns["style"])
        fit._roles = Roles(columns["roles"])
        if isinstance(columns["covariates"], GroupCovariates):
            fit._covariates = columns["covariates"]
