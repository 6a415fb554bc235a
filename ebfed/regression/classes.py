"""The classes of a response: checks, labels that rows may lack, and predictions of classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.regression.base import RegressionEstimator

__all__ = [
    "ClassRegression",
    "check_not_one_class",
    "check_two_classes",
    "declaring",
    "has_ordered_classes",
]


def check_not_one_class(classes: NDArray) -> None:
    """Raise a ValueError if there is one class only."""
    if len(classes) < 2:
        raise ValueError(
            f"y has one class only, {classes.tolist()[0]!r}: at least two classes are needed. "
            "If later rows have others, name all in partial_fit(..., classes=...)."
        )


def check_two_classes(classes: NDArray) -> None:
    """Raise a ValueError if there are more than two classes."""
    if len(classes) > 2:
        shown = ", ".join(map(repr, classes[:5].tolist()))
        raise ValueError(
            "Only binary classification is supported. The type of the target is multiclass: "
            f"y has {len(classes)} classes, {shown} among them."
        )


def has_ordered_classes(estimator: Any) -> bool:
    """Whether rows have ordered classes; an error that says who has probabilities, if not."""
    if str(estimator.family) != "ordinal":
        raise AttributeError(
            "predict_proba is of family='ordinal'; predict has the probability of a binomial row."
        )
    return True


@contextmanager
def declaring(estimator: Any, classes: Any) -> Iterator[None]:
    """Let an estimator know labels that its rows may lack, while it is fitted."""
    if classes is not None:
        estimator._declared = np.unique(classes)
        estimator._check_classes(estimator._declared)
    try:
        yield
    finally:
        estimator._declared = None


class ClassRegression(RegressionEstimator):
    """A regression of classes, which predicts logarithms of their probabilities."""

    _numeric = False
    classes_: NDArray

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Add a block of rows to those fitted before; the answer is that of one `fit` on all.

        Parameters
        ----------
        X, y, groups, sample_weight : as in `fit`
            Blocks may share groups. Without `groups`, the rows of a block are new groups, with
            numbers after those of the groups before.
        classes : array-like, optional
            All labels of all blocks; needed for a first block that lacks one.
        """
        with declaring(self, classes):
            return super().partial_fit(X, y, groups=groups, sample_weight=sample_weight)

    def predict_log_proba(self, X: Any, *, groups: Any = None) -> NDArray:
        """Logarithm of `predict_proba`; of two classes, with digits where that is 0 or 1."""
        raise NotImplementedError

    def predict_proba(self, X: Any, *, groups: Any = None) -> NDArray:
        """Probability of each class, averaged over the posterior of the row's group.

        The spread of the population is taken to be as fitted.

        Parameters
        ----------
        X, groups : as in `predict`

        Returns
        -------
        ndarray of shape (n_rows, C)
        """
        return np.exp(self.predict_log_proba(X, groups=groups))

    def decision_function(self, X: Any, *, groups: Any = None) -> NDArray:
        """Log-odds of the second of two classes, shape (n_rows,); of more, `predict_log_proba`.

        Not knowing the coefficients draws them towards zero: they are not as far from it as the
        posterior mean of the log-odds, which has the same sign.

        Parameters
        ----------
        X, groups : as in `predict`
        """
        check_is_fitted(self, "mean_")
        found = self.predict_log_proba(X, groups=groups)
        return found if len(self.classes_) > 2 else found[:, 1] - found[:, 0]

    def predict(self, X: Any, *, groups: Any = None) -> NDArray:
        """Predict each row's label with the coefficients of its group: the most probable.

        Parameters
        ----------
        X : as in `fit`
        groups : as in `fit`, optional
            Label of each row. A group that was not in the fit is predicted by the population; so
            are all rows if None (unless `X` has the column that held them in the fit).

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        found = self.decision_function(X, groups=groups)
        return self.classes_[found.argmax(axis=1) if found.ndim == 2 else (found > 0).astype(int)]
