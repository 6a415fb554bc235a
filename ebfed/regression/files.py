"""What a file has of a regression in every group."""

from __future__ import annotations

from typing import Any

from ebfed.engines.publishing import FitFile
from ebfed.regression.group_covariates import GroupCovariates

__all__ = ["RegressionFile"]

# Keys of the last state, of all clients together.
OF_STATE = (
    *("round", "done", "n_features", "columns", "history", "converged"),
    *("log_likelihood", "result"),
)


class RegressionFile(FitFile):
    """Takes a fit apart, and puts it together again; see `ebfed.engines.portable`."""

    def population(self, fit: Any) -> dict[str, Any]:
        """Return what is of all groups together."""
        return {name: fit._kept[name] for name in OF_STATE} | {"n_clients": fit._n_clients}

    def columns(self, fit: Any, groups: bool) -> dict[str, Any]:
        covariates = getattr(fit, "_covariates", None)
        if covariates is not None and not groups:
            covariates = covariates.without_groups()
        return super().columns(fit, groups) | {"covariates": covariates}

    def groups(self, fit: Any) -> dict[str, Any]:
        """Return what the fit has of groups; of a server's copy, what they stated."""
        of_groups = {"n": fit._kept["n"]}
        if not fit._is_server:
            of_groups |= {"figures": fit.clients_, "memory": fit._memory}
        return of_groups

    def name(self, fit: Any, columns: dict[str, Any]) -> None:
        super().name(fit, columns)
        if isinstance(columns["covariates"], GroupCovariates):
            fit._covariates = columns["covariates"]
