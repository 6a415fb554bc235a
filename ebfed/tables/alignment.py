"""Arguments that belong together, entry by entry: which entry goes with which.

One rule holds in the whole package. It is that of pandas, whose series and frames have an index:

- equal indexes pair by position, even if a label occurs twice;
- indexes with the same labels in another order pair by label, and the first has the order;
- other indexes are refused. For rows there is one exception: an index that only counts them (0, 1,
  … and without a name) holds no labels, and pairs by position with one of text, dates or other
  labels. It does not with other whole numbers: those are of the same count, of other rows;
- arrays, lists and series of other libraries have no index, and pair by position.

So ``fit(X, y, groups=g)`` of a frame `X` and series `y` and `g` in another order is right, where
scikit-learn pairs them by position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["aligned", "counts_only", "index_of", "labels_groups", "labels_of", "of_groups"]


def aligned(arguments: Mapping[str, Any], *, rows: bool = True) -> dict[str, Any]:
    """Put pandas series and frames in the order of the first of them.

    Parameters
    ----------
    arguments : mapping from name to array-like, series, data frame or anything else
    rows : bool
        Whether an index that only counts holds no labels.

    Returns
    -------
    dict
        The same arguments. What has no index, or not the length of the first, is as it was.

    Raises
    ------
    ValueError
        If indexes have different labels, or differ and a label occurs twice.

    Examples
    --------
    >>> import pandas as pd
    >>> X, groups = pd.Series([1.0, 2.0], index=["a", "b"]), pd.Series([7, 5], index=["b", "a"])
    >>> aligned({"X": X, "groups": groups})["groups"].tolist()
    [5, 7]
    """
    result = dict(arguments)
    leading: list[str] = []  # the first with an index; then the first with labels, if it has none
    for name in arguments:
        index = index_of(arguments[name])
        if index is None:
            continue
        for first in leading:
            if not rows or _comparable(index_of(result[first]), index):
                result[name] = _like(arguments[name], name, result[first], first)
                break
        else:
            leading.append(name)
    return result


def of_groups(values: Any, name: str, ids: NDArray) -> Any:
    """Put a pandas series with an entry for each group in the order of the groups' labels.

    Examples
    --------
    >>> import pandas as pd
    >>> of_groups(pd.Series([1, 2], index=["b", "a"]), "consent", np.array(["a", "b"])).tolist()
    [2, 1]
    """
    import pandas as pd

    if not labels_groups(values, ids):
        return values
    groups = pd.Series(0, index=pd.Index(ids, name="group"))
    return aligned({"the groups": groups, name: values}, rows=False)[name]


def index_of(values: Any) -> Any:
    """Return the index of a pandas series or frame, else None.

    Examples
    --------
    >>> index_of([1.0, 2.0]) is None
    True
    """
    import pandas as pd

    return values.index if isinstance(values, pd.DataFrame | pd.Series) else None


def counts_only(values: Any) -> bool:
    """Return whether values have no index, or one that only counts them: 0, 1, …, without a name.

    Examples
    --------
    >>> import pandas as pd
    >>> counts_only([7, 5]), counts_only(pd.Series([7, 5], index=["a", "b"]))
    (True, False)
    """
    index = index_of(values)
    return index is None or _counts(index)


def labels_groups(values: Any, ids: NDArray) -> bool:
    """Return whether values have an index of labels of groups, and not one that only counts.

    Examples
    --------
    >>> import pandas as pd
    >>> given = pd.Series([7, 5])
    >>> labels_groups(given, np.array(["a", "b"])), labels_groups(given, np.array([1, 0]))
    (False, True)
    """
    import pandas as pd

    if not counts_only(values):
        return True
    index = index_of(values)
    return index is not None and bool(np.all(index.get_indexer(pd.Index(ids)) >= 0))


def labels_of(values: Any, labels: Any = None) -> Any:
    """Return labels as given, or else those in the index of a series or frame; None without.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.Series([7, 5, 6])
    >>> labels_of(rows), labels_of(rows[1:]).tolist()
    (None, [1, 2])
    """
    if labels is not None or counts_only(values):
        return labels
    index = index_of(values)
    return index.to_series(name=index.name if isinstance(index.name, str) else "term")


def _counts(index: Any) -> bool:
    import pandas as pd

    return index.name is None and bool(index.equals(pd.RangeIndex(len(index))))


def _comparable(index: Any, other: Any) -> bool:
    """Return whether indexes of rows hold labels of one kind: neither only counts, or both do."""
    whole = [each.inferred_type == "integer" for each in (index, other)]
    return all(whole) or not (_counts(index) or _counts(other))


def _like(values: Any, name: str, first: Any, its_name: str) -> Any:
    """Return a series or frame in the order of another."""
    index, other = first.index, values.index
    if len(index) != len(other) or index.equals(other):
        return values
    if index.is_unique and other.is_unique:
        place = other.get_indexer(index)
        if (place >= 0).all():
            return values.iloc[place]
    for one, labels in ((its_name, index), (name, other)):
        if not labels.is_unique:
            raise ValueError(
                f"the index of {one} has the label {labels[labels.duplicated()][0]!r} twice, so it "
                f"cannot be paired by label with that of {name if one == its_name else its_name}; "
                "to pair by position, pass .to_numpy() of both."
            )
    lost = index[int(np.argmin(place >= 0))]
    raise ValueError(
        f"the index of {name} has other labels than that of {its_name}: {lost!r} is not in it. To "
        "pair by position, pass .to_numpy() of both."
    )
