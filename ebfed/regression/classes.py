"""The classes of a response: checks, and labels that rows may lack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["check_not_one_class", "check_two_classes", "declaring"]


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
