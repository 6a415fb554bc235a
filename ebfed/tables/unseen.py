"""Labels of groups that were not in a fit: whether they are new, or mistyped."""

from __future__ import annotations

import sys
import warnings
from difflib import get_close_matches
from functools import partial
from typing import Any

from numpy.typing import NDArray

__all__ = ["UnseenGroupWarning", "warn_of_blanks", "warn_of_mistyped", "warn_of_unseen"]

# Packages of functions between the user's line and a warning.
PACKAGES = ("ebfed.", "sklearn.")
# Labels that a warning shows.
SHOWN = 3
# Labels of the fit among which a near one is looked for.
SEARCHED = 10_000


class UnseenGroupWarning(UserWarning):
    """A group was asked for that was not in the fit: it gets the population.

    Where that is meant, ``warnings.simplefilter("ignore", ebfed.UnseenGroupWarning)``.
    """


def warn_of_blanks(ids: NDArray, name: str = "groups") -> None:
    """Warn if labels of a fit are the same text but for white space: they are different groups.

    Parameters
    ----------
    ids : ndarray of shape (n_groups,)
        Labels, all different.
    name : str
        Name of the labels.

    Examples
    --------
    >>> import numpy as np
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_blanks(np.array(["a", "a ", "b"], object))
    >>> print(caught[0].message)
    groups has labels that differ by white space alone, such as 'a' and 'a ': they are different \
groups.
    """
    if ids.dtype.kind not in "OU":
        return
    known: dict[Any, Any] = {}
    for text in ids.tolist():
        if not isinstance(text, str | tuple):
            continue
        first = known.setdefault(_without_blanks(text), text)
        if first != text:
            _warn(
                f"{name} has labels that differ by white space alone, such as {first!r} and "
                f"{text!r}: they are different groups.",
                UserWarning,
            )
            return


def warn_of_unseen(asked: NDArray, known: NDArray) -> None:
    """Warn if groups that were asked for by name were not in the fit.

    Parameters
    ----------
    asked, known : ndarray of shape (n,) and (m,)
        Labels that were asked for, and those of the fit; each all different.

    Examples
    --------
    >>> import numpy as np
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_unseen(np.array(["IBM", "Genral Motors"]), np.array(["General Motors", "IBM"]))
    >>> print(caught[0].message)
    1 of the 2 groups asked for was not in the fit and gets the population: 'Genral Motors' (is it \
'General Motors'?).
    """
    unseen = _unseen(asked, known)
    if not len(unseen):
        return
    alike = _alike(unseen[:SHOWN], known)
    shown = [
        repr(label) + (f" (is it {near!r}?)" if (near := _near(label, alike, known)) else "")
        for label in unseen[:SHOWN].tolist()
    ]
    more = ", …" if len(unseen) > SHOWN else ""
    were = "was not in the fit and gets" if len(unseen) == 1 else "were not in the fit and get"
    groups = "group" if len(asked) == 1 else "groups"
    _warn(
        f"{len(unseen)} of the {len(asked)} {groups} asked for {were} the population: "
        f"{', '.join(shown)}{more}."
    )


def warn_of_mistyped(asked: NDArray, known: NDArray) -> None:
    """Warn if labels of rows differ from those of the fit by their type, capitals or blanks alone.

    Rows of new groups are as they should be, and give no warning.

    Parameters
    ----------
    asked, known : ndarray of shape (n,) and (m,)
        Labels of the rows, and those of the fit; each all different.

    Examples
    --------
    >>> import numpy as np
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_mistyped(np.array(["ibm", "a new firm"]), np.array(["General Motors", "IBM"]))
    >>> print(caught[0].message)
    1 of the groups of these rows was not in the fit, but one of nearly the same label was: 'ibm' \
(is it 'IBM'?). It gets the population.
    """
    if asked.dtype.kind not in "OUS" and known.dtype.kind not in "OUS":
        return
    alike = _alike(_unseen(asked, known), known)
    if not alike:
        return
    shown = [f"{label!r} (is it {near!r}?)" for label, near in list(alike.items())[:SHOWN]]
    more = ", …" if len(alike) > SHOWN else ""
    one = len(alike) == 1
    _warn(
        f"{len(alike)} of the groups of these rows {'was' if one else 'were'} not in the fit, but "
        f"{'one' if one else 'others'} of nearly the same label {'was' if one else 'were'}: "
        f"{', '.join(shown)}{more}. {'It gets' if one else 'They get'} the population."
    )


def _unseen(asked: NDArray, known: NDArray) -> NDArray:
    import pandas as pd

    _index = partial(pd.Index, tupleize_cols=False)
    return asked[_index(known).get_indexer(_index(asked)) < 0]


def _alike(unseen: NDArray, known: NDArray) -> dict[Any, Any]:
    """Labels of the fit that are the same text as these but for capitals and blanks."""
    if not len(unseen):
        return {}
    plain = {_plain(label): label for label in known.tolist()}
    found = {label: plain.get(_plain(label)) for label in unseen.tolist()}
    return {label: near for label, near in found.items() if near is not None}


def _near(label: Any, alike: dict[Any, Any], known: NDArray) -> Any:
    """Return a label of the fit that may be meant, else None."""
    if label in alike or not isinstance(label, str) or len(known) > SEARCHED:
        return alike.get(label)
    near = get_close_matches(label, [str(each) for each in known.tolist()], 1, cutoff=0.75)
    return near[0] if near else None


def _without_blanks(label: Any) -> Any:
    """Return text without the blanks that nobody sees, also in a tuple of the labels of levels."""
    if isinstance(label, tuple):
        return tuple(map(_without_blanks, label))
    return " ".join(label.split()) if isinstance(label, str) else label


def _plain(label: Any) -> Any:
    if isinstance(label, tuple):  # labels of levels
        return tuple(map(_plain, label))
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return "".join(str(label).split()).casefold()


def _warn(message: str, kind: type[UserWarning] = UnseenGroupWarning) -> None:
    """Warn at the line that called the package, perhaps through scikit-learn's wrappers."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(PACKAGES):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, kind, stacklevel=level)
