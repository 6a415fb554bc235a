"""Checks of the classes of a response."""

from __future__ import annotations

from numpy.typing import NDArray

__all__ = ["check_not_one_class", "check_two_classes"]


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
