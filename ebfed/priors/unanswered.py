"""Searches whose figures are somewhere else: where they end until these are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

__all__ = ["Unanswered", "together"]

Found = TypeVar("Found")


class Unanswered(Exception):
    """A search has come to a question whose answer is not known.

    Who caught it asks, and repeats the search with the answer. A search that draws nothing comes to
    the same questions again, and then further.

    Attributes
    ----------
    question : object
        A list of questions, where several searches are held `together`.
    """

    def __init__(self, question: Any):
        super().__init__("figures are asked for that are not known")
        self.question = question


def together(searches: Iterable[Callable[[], Found]]) -> list[Found]:
    """Run searches that do not depend on one another, and return what they found.

    Raises
    ------
    Unanswered
        With the questions of all of them, if some have come to one.
    """
    found, asked = [], []
    for search in searches:
        try:
            found.append(search())
        except Unanswered as open_:
            asked += open_.question
    if asked:
        raise Unanswered(asked)
    return found
