"""What a file has of a fit of crossed factors."""

from __future__ import annotations

from typing import Any

from ebfed.engines.publishing import name_columns
from ebfed.regression.crossed_fitting import CrossedFit
from ebfed.tables.frames import Style

__all__ = ["CrossedFile"]


class CrossedFile:
    """Takes a fit apart, and puts it together again; see `ebfed.engines.portable`."""

    def population(self, fit: Any) -> dict[str, Any]:
        """Return the sums over rows, the variances, and what was learned with them."""
        names = {
            "n_features": fit.n_features_in_,
            "columns": "\n".join(getattr(fit, "feature_names_in_", ())),
        }
        return fit._fit.as_data() | names

    def columns(self, fit: Any, groups: bool) -> dict[str, Any]:
        """Return names of columns, and how frames look."""
        return {"styles": [style.as_data() for style in fit._styles]} | fit._kept

    def groups(self, fit: Any) -> dict[str, Any]:
        """Return labels of levels, and their numbers of rows."""
        return {"labels": fit._ids, "n": fit._n}

    def restore(self, fit: Any, population: Any, columns: dict[str, Any], groups: Any) -> None:
        """Set the learned attributes of an estimator."""
        kept = dict(columns)
        styles = [Style.of_data(each) for each in kept.pop("styles")]
        found = CrossedFit.of_data(population)
        name_columns(fit, population)
        fit._learn(found, kept, styles, groups["labels"], groups["n"])
