"""Targets of `GroupEncoder`: what they are, as columns of numbers, and weights of their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import type_of_target

from ebfed.tables.clients import LARGEST, SMALLEST
from ebfed.tables.of_rows import check_whole
from ebfed.tables.scans import NotPushedError, Scan
from ebfed.tables.values import column, read_response

__all__ = ["Target", "lazy_target"]

# More different integers than these are a quantity, and not the names of classes.
MOST_CLASSES = 30
TARGETS = ("auto", "continuous", "binary", "count", "multiclass")


@dataclass(frozen=True)
class Target:
    """A target as columns of numbers: itself, or an indicator of each class.

    Attributes
    ----------
    kind : {"continuous", "binary", "count", "multiclass"}
    columns : list of float64 ndarrays of shape (n_rows,)
    classes : ndarray or None
    """

    kind: str
    columns: list[NDArray[np.float64]]
    classes: NDArray | None = None

    @property
    def population(self) -> str:
        """Kind of each column."""
        return "binary" if self.kind == "multiclass" else self.kind

    @classmethod
    def of(cls, y: Any, kind: str) -> Self:
        """Read a target."""
        given, y = y, column_or_1d(read_response(y, "y"), warn=True)
        if kind not in TARGETS:
            raise ValueError(
                f"target must be one of {', '.join(map(repr, TARGETS))}; got {kind!r}."
            )
        if kind == "auto":
            with np.errstate(invalid="ignore"):  # in the cast that looks for whole numbers
                kind = type_of_target(y, input_name="y", raise_unknown=True)
            if kind == "multiclass" and (
                y.dtype.kind == "f" or (y.dtype.kind in "iu" and len(pd.unique(y)) > MOST_CLASSES)
            ):
                kind = "continuous"
        if kind in ("binary", "multiclass"):
            codes, classes = pd.factorize(y, sort=True)
            if (codes < 0).any():
                raise ValueError(f"y has a missing value, the first in row {np.argmin(codes)}.")
            if kind == "binary" and len(classes) > 2:
                raise ValueError(
                    f"a binary target has two values; y has {len(classes)}: target='multiclass'?"
                )
            if kind == "binary" and list(classes) == [1]:  # of 0 and 1
                codes, classes = codes + 1, np.array([0, 1], classes.dtype)
            wanted = [1] if kind == "binary" else range(len(classes))
            return cls(kind, [(codes == c).astype(float) for c in wanted], np.asarray(classes))
        values = np.ascontiguousarray(column(given, "y"))
        wrong = ~(np.abs(values) < LARGEST)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"y must hold finite numbers below {LARGEST:g}; row {row} has {y[row]}."
            )
        if 0 < np.abs(values).max() < SMALLEST:
            raise ValueError(f"y is too small for float64 arithmetic (below {SMALLEST:g}).")
        other = (values < 0) | (values != np.floor(values))
        if kind == "count" and other.any():
            row = int(np.argmax(other))
            raise ValueError(f"y must hold counts, whole numbers from 0; row {row} has {y[row]}.")
        return cls(kind, [values])

    def weights(self, sample_weight: NDArray | None) -> NDArray | None:
        """Check weights of rows: precisions, or frequencies of another than a continuous target."""
        if sample_weight is None:
            return None
        if sample_weight.shape != (n_rows := self.columns[0].shape):
            raise ValueError(
                f"sample_weight must be one number per row, {n_rows[0]}; it has shape "
                f"{sample_weight.shape}."
            )
        if self.kind != "continuous":
            check_whole(sample_weight, self.kind)
        return sample_weight


def lazy_target(X: Any, name: str, kind: str) -> tuple[Target, dict[str, Any], Scan]:
    """Read what the target of a lazy table is from its different values, or from a few rows.

    Parameters
    ----------
    X : lazy table
    name : str
        Column of the target.
    kind : str
        As of `Target.of`.

    Returns
    -------
    target : Target
        Of a few rows.
    columns : dict of Expr
        Its columns, as expressions of the engine.
    scan : Scan

    Raises
    ------
    ValueError
        If there are too many classes, or the target is not what `kind` says.
    """
    scan = Scan.of(X, [name], [], [], "raise")
    values = read_response(scan.sample.series(name), "y")
    different = len(pd.unique(values))
    many = MOST_CLASSES if values.dtype.kind in "iu" else 2
    if kind not in ("continuous", "count") and (
        values.dtype.kind not in "iuf" or different <= many
    ):
        try:
            scan = Scan.of(X, [name], [], [name], "raise")
        except NotPushedError:
            if values.dtype.kind not in "iuf":
                raise ValueError(f"y has too many classes: {name!r} is text.") from None
    target = Target.of(scan.sample.series(name), kind)
    if target.classes is None or target.classes.tolist() in ([0, 1], [False, True]):
        return target, {name: scan.number(name)}, scan
    wanted = target.classes.tolist()[-1:] if target.kind == "binary" else target.classes.tolist()
    return target, {f"{name}_{each}": scan.is_level(name, each) for each in wanted}, scan
