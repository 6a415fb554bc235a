"""What a file has of a fit of crossed factors."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from ebfed.engines.publishing import name_columns
from ebfed.inference.spread_degrees import NearbySpreads
from ebfed.regression.crossed_fitting import CrossedFit
from ebfed.regression.crossed_slopes import SlopedFit
from ebfed.regression.numerics.crossed_model import CrossedEquations, CrossedSystem
from ebfed.regression.numerics.crossed_sums import CrossedSums
from ebfed.tables.frames import Style

__all__ = ["CrossedFile"]

OF_FIT = (
    *("first", "others", "triangle", "mean", "mean_covariance"),
    *("noise", "unit", "criterion", "converged", "history"),
)


class CrossedPopulation(TypedDict):
    """What a file has of all levels together, besides what `CrossedFit` has by the same names.

    Attributes
    ----------
    gamma : ndarray of shape (n_factors,)
        Variances over that of the noise.
    linear : bool
        Whether rows are Gaussian, and the last column of the sums is the response.
    first_weights, outer, owner, n_rows
        Those of `CrossedSums`; the first is its `first`.
    table, among : dict
        Its table, and its products among levels of the other factors: sparse matrices.
    columns_with_levels : ndarray of shape (c, q + c)
        The other rows of its `inner`.
    nearby : dict or None
        `NearbySpreads` by name.
    n_features : int
    columns : str
        Names of the columns of X, one a line.
    """

    gamma: NDArray
    linear: bool
    first_weights: NDArray
    outer: NDArray
    owner: NDArray
    n_rows: int
    table: dict[str, Any]
    among: dict[str, Any]
    columns_with_levels: NDArray
    nearby: dict[str, NDArray] | None
    n_features: int
    columns: str


class CrossedFile:
    """Takes a fit apart, and puts it together again; see `ebfed.engines.portable`."""

    def population(self, fit: Any) -> dict[str, Any]:
        """Return the sums over rows, the variances, and what was learned with them."""
        names = {
            "n_features": fit.n_features_in_,
            "columns": "\n".join(getattr(fit, "feature_names_in_", ())),
        }
        if isinstance(fit._fit, SlopedFit):
            return fit._fit.as_data() | names
        found: CrossedFit = fit._fit
        sums, q = found.equations.sums, found.equations.sums.q
        among = csr_matrix(sums.inner[:q, :q])
        state: CrossedPopulation = {
            "gamma": found.equations.gamma,
            "linear": isinstance(found.equations, CrossedSystem),
            "first_weights": sums.first,
            "owner": sums.owner,
            "table": _of_sparse(sums.table),
            "outer": sums.outer,
            "among": _of_sparse(among),
            "columns_with_levels": sums.inner[q:, :],
            "n_rows": sums.n_rows,
            "nearby": None if found.nearby is None else found.nearby._asdict(),
            **names,  # type: ignore[typeddict-item]
        }
        return {name: getattr(found, name) for name in OF_FIT} | state

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
        sloped = "slopes" in population
        found = SlopedFit.of_data(population) if sloped else _intercepts(fit, population)
        name_columns(fit, population)
        fit._learn(found, kept, styles, groups["labels"], groups["n"])


def _intercepts(fit: Any, state: Any) -> CrossedFit:
    """Make the fit of intercepts alone."""
    table, among = _sparse(state["table"]), _sparse(state["among"]).toarray()
    below, q = state["columns_with_levels"], len(state["owner"])
    inner = np.block([[among, below[:, :q].T], [below]])
    sums = CrossedSums(
        state["first_weights"], table, state["outer"], inner, state["owner"], state["n_rows"]
    )
    gamma, restricted = state["gamma"], fit.method == "reml"
    linear = state["linear"]
    equations = CrossedSystem(sums, gamma, restricted) if linear else CrossedEquations(sums, gamma)
    nearby = None if state["nearby"] is None else NearbySpreads(**state["nearby"])
    return CrossedFit(equations, **{name: state[name] for name in OF_FIT}, nearby=nearby)


def _of_sparse(matrix: csr_matrix) -> dict[str, Any]:
    return {
        "shape": list(matrix.shape),
        "ends": matrix.indptr,
        "places": matrix.indices,
        "values": matrix.data,
    }


def _sparse(data: dict[str, Any]) -> csr_matrix:
    """Make a sparse matrix again; kernels do not check its places."""
    made = csr_matrix((data["values"], data["places"], data["ends"]), tuple(data["shape"]))
    made.check_format(full_check=True)
    return made
