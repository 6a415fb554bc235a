"""What a file has of a fit of a parameter for every group."""

from __future__ import annotations

from typing import Any

import numpy as np

from ebfed.engines.publishing import FitFile
from ebfed.tables.intake import Intake

__all__ = ["LocationFile"]

# Keys of a state that have an entry for each client, and keys that the last broadcast lacks.
OF_CLIENTS = ("n", "weight", "consent", "turn", "covariates")
OF_STATE = ("round", "n_rounds", "done", "n_features", "columns", "covariate_names")


class LocationFile(FitFile):
    """Takes a fit apart, and puts it together again; see `ebfed.engines.portable`."""

    def population(self, fit: Any) -> dict[str, Any]:
        """Return what is of all groups together."""
        names = (*OF_STATE, *fit.protocol().results)
        return {name: fit._kept[name] for name in names}

    def columns(self, fit: Any, groups: bool) -> dict[str, Any]:
        columns = fit._intake.as_data()
        columns["output"] = dict(getattr(fit, "_sklearn_output_config", {}))
        if not groups:
            columns["style"] = fit._intake.style.unlabelled().as_data()
        return columns

    def groups(self, fit: Any) -> dict[str, Any]:
        """Return what the fit has of groups; of a server's copy, what they stated."""
        of_groups = {name: fit._kept[name] for name in OF_CLIENTS}
        if not fit._learned.is_server:
            of_groups |= {"figures": fit.summaries_, "memory": fit._learned.memory}
        return of_groups

    def of_nobody(self, columns: dict[str, Any]) -> dict[str, Any]:
        nobody, k = np.zeros(0, np.int8), len(columns["covariate_names"])
        parts = {"weight": None, "consent": nobody, "turn": nobody, "covariates": np.zeros((0, k))}
        return super().of_nobody(columns) | parts

    def name(self, fit: Any, columns: dict[str, Any]) -> None:
        fit._intake = Intake.of_data(columns)
        if columns["output"]:
            fit._sklearn_output_config = columns["output"]
