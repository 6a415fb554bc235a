"""Consent: the class of privacy, or the epsilon, that each client chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.labels import number_labels, one_of_each

__all__ = ["classes_of", "epsilons_of", "levels_of"]


def classes_of(
    consent: Any, classes: Sequence[Any], ids: NDArray, labels: NDArray | None
) -> NDArray[np.int8]:
    """Number the class that each client chose.

    Parameters
    ----------
    consent : ndarray of shape (n_rows,), or dict from client to class
    classes : sequence
        Classes, the keys of `channel`.
    ids : ndarray of shape (n_clients,)
    labels : ndarray of shape (n_rows,) or None
        Client of each row; None if `consent` has one entry per client.

    Returns
    -------
    int8 ndarray of shape (n_clients,)

    Raises
    ------
    ValueError
        If a client chose no class, two classes, or an unknown class.

    Examples
    --------
    >>> groups, choice = np.array([7, 5, 7]), np.array(["open", "private", "open"])
    >>> classes_of(choice, ["private", "open"], np.array([5, 7]), groups)
    array([0, 1], dtype=int8)
    """
    consent, labels = _by_client(consent, ids, labels)
    kinds, chosen = number_labels(consent, "consent")
    unknown = [kind for kind in kinds.tolist() if kind not in classes]
    if unknown:
        raise ValueError(
            f"consent must be one of the classes ({', '.join(map(repr, classes))}); "
            f"got {unknown[0]!r}."
        )
    order = [list(classes).index(kind) for kind in kinds.tolist()]
    chose = np.asarray(order, np.int8)[chosen]
    return _of_clients(chose, ids, labels)


def levels_of(name: str, given: Any) -> dict[str, Any]:
    """Return levels of privacy that clients choose from, with the number of each.

    Parameters
    ----------
    name : str
        Argument of the numbers, for the error.
    given : number, or dict from level to number
        One number is of the level "private".

    Raises
    ------
    ValueError
        If a level has no name, or that of clients that opted out.

    Examples
    --------
    >>> levels_of("epsilon", 1.0), levels_of("epsilon", {"strict": 0.5, "lax": 4.0})
    ({'private': 1.0}, {'strict': 0.5, 'lax': 4.0})
    """
    if not isinstance(given, Mapping):
        return {"private": given}
    if not (given and all(isinstance(key, str) and key != "open" for key in given)):
        raise ValueError(
            f"{name} must be a number, or name levels of privacy by words other than 'open'; "
            f"got {given!r}."
        )
    return dict(given)


def epsilons_of(consent: Any, ids: NDArray, labels: NDArray | None) -> NDArray[np.float64]:
    """Return the epsilon that each client chose, shape (n_clients,).

    Parameters
    ----------
    consent, ids, labels
        As for `classes_of`, with numbers above 0 in place of classes; inf for no limit.

    Raises
    ------
    ValueError
        If a client chose no epsilon, two, or one that is not above 0.

    Examples
    --------
    >>> groups, choice = np.array([7, 5, 7]), np.array([2.0, 0.5, 2.0])
    >>> epsilons_of(choice, np.array([5, 7]), groups)
    array([0.5, 2. ])
    """
    consent, labels = _by_client(consent, ids, labels)
    try:
        chose = np.asarray(consent, float)
    except (TypeError, ValueError):
        raise ValueError("consent must be numbers, the epsilon of each group.") from None
    if chose.ndim != 1 or not np.all(chose > 0):
        raise ValueError("consent must be one number above 0 for each group, its epsilon.")
    return _of_clients(chose, ids, labels)


def _by_client(consent: Any, ids: NDArray, labels: NDArray | None) -> tuple[Any, NDArray | None]:
    """Return one entry for each client or row; labels are None where it is for each client."""
    if isinstance(consent, Mapping):
        missing = [each for each in ids.tolist() if each not in consent]
        if missing:
            raise ValueError(
                f"consent is missing for {len(missing)} groups, the first {missing[0]!r}."
            )
        consent, labels = [consent[each] for each in ids.tolist()], None
    owners = len(ids) if labels is None else len(labels)
    if len(consent) != owners:
        what = "groups" if labels is None else "rows"
        raise ValueError(f"consent has {len(consent)} entries for {owners} {what}.")
    return consent, labels


def _of_clients(chose: NDArray, ids: NDArray, labels: NDArray | None) -> NDArray:
    """Return what each client chose, which must be the same in all its rows."""
    if labels is None:
        return chose
    owner = number_labels(labels)[1]
    own = chose[one_of_each(owner)]
    differs = chose != own[owner]
    if differs.any():
        raise ValueError(
            "consent must be the same in all rows of a group; "
            f"{ids[owner[np.argmax(differs)]]!r} has two."
        )
    return own
