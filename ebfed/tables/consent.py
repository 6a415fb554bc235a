"""Consent: the class of privacy that each client chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.labels import number_labels

__all__ = ["classes_of"]


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
    kinds, chosen = number_labels(consent, "consent")
    unknown = [kind for kind in kinds.tolist() if kind not in classes]
    if unknown:
        raise ValueError(
            f"consent must be one of the classes ({', '.join(map(repr, classes))}); "
            f"got {unknown[0]!r}."
        )
    order = [list(classes).index(kind) for kind in kinds.tolist()]
    chose = np.asarray(order, np.int8)[chosen]
    if labels is None:
        return chose
    owner = number_labels(labels)[1]
    least = np.full(len(ids), len(classes), np.int8)
    most = np.full(len(ids), -1, np.int8)
    np.minimum.at(least, owner, chose)
    np.maximum.at(most, owner, chose)
    if np.any(least != most):
        raise ValueError(
            f"consent must be the same in all rows of a group; {ids[np.argmax(least != most)]!r} "
            "has two."
        )
    return least
