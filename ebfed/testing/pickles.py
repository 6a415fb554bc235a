"""Contract of pickles: a private fit's has no rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.privacy.promises import is_private
from ebfed.report.view import view_of

__all__ = ["check_pickle", "found_in"]


def check_pickle(fitted: Any, answer: Callable[[Any], NDArray], secrets: Iterable[Any]) -> None:
    """Check that a fitted estimator can be pickled, and what its pickle holds.

    That of a private fit holds nothing that did not leave the clients, unless `keep_rows` is set.
    What is published has the same ledger and a summary.

    Parameters
    ----------
    fitted : Estimator
    answer : callable
        Returns numbers for a copy of the fit, which must be those of the fit.
    secrets : iterable of arrays
        Rows, and what clients have of them.
    """
    if is_private(view_of(fitted).ledger):
        public = pickle.loads(pickle.dumps(fitted))
        for part in secrets:
            assert not found_in(pickle.dumps(fitted), part), "a private fit's pickle has no rows"
            assert not found_in(pickle.dumps(fitted.published()), part)
        assert view_of(public).is_server, "what is published is a server's copy"
        assert str(public.summary()), "what is published has a summary"
        both = zip(view_of(public).ledger, view_of(fitted).ledger, strict=True)
        for row, own in both:  # a server does not count in how many rounds a client answered
            assert row["epsilon"] >= own["epsilon"], "what is published costs as much"
            assert row["assumptions"] == own["assumptions"]
        fitted.keep_rows = True
    copy = pickle.loads(pickle.dumps(fitted))
    fitted.__dict__.pop("keep_rows", None)
    np.testing.assert_array_equal(answer(copy), answer(fitted), "pickling must not matter")


def found_in(content: bytes, values: ArrayLike) -> list[float]:
    """Return which numbers are in some bytes as they are; round ones, as 0.5, do not count.

    Examples
    --------
    >>> found_in(pickle.dumps(np.array([0.1, 0.7])), [0.1, 0.2])
    [0.1]
    """
    plain = np.asarray(values)
    if plain.dtype.kind == "f":
        plain = plain[np.isfinite(plain) & (plain * 2.0**20 % 1 != 0)]
    elif plain.dtype != np.uint64:
        return []
    both = ((x, x.tobytes()) for x in plain.ravel())
    return [x.item() for x, own in both if own in content or own[::-1] in content]
