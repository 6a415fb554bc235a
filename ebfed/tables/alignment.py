"""Arguments that belong together, entry by entry: which entry goes with which.

One rule holds in the whole package. It is that of pandas, whose series and frames have an index:

- equal indexes pair by position, even if a label occurs twice;
- indexes with the same labels in another order pair by label, and the first has the order;
- other indexes are refused. For rows there is one exception: an index that only counts them (0, 1,
  …) holds no labels, and pairs by position with an index of other labels;
- arrays, lists and series of other libraries have no index, and pair by position.

So ``fit(X, y, groups=g)`` of a frame `X` and series `y` and `g` in another order is right, where
scikit-learn pairs them by position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["aligned", "counts_only", "index_of", "of_groups"]


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
    with_index = [name for name, each in arguments.items() if index_of(each) is not None]
    result = dict(arguments)
    for name in with_index[1:]:
        result[name] = _like(arguments[name], name, arguments[with_index[0]], with_index[0], rows)
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

    if index_of(values) is None:
        return values
    return aligned({"the groups": pd.Series(0, index=ids), name: values})[name]


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
    """Return whether values have no index, or one that only counts them: 0, 1, ….

    Examples
    --------
    >>> import pandas as pd
    >>> counts_only([7, 5]), counts_only(pd.Series([7, 5], index=["a", "b"]))
    (True, False)
    """
    import pandas as pd

    index = index_of(values)
    return index is None or bool(index.equals(pd.RangeIndex(len(index))))


def _like(values: Any, name: str, first: Any, its_name: str, rows: bool) -> Any:
    """Return a series or frame in the order of another."""
    index, other = first.index, values.index
    if len(index) != len(other) or index.equals(other):
        return values
    if index.is_unique and other.is_unique:
        place = other.get_indexer(index)
        if (place >= 0).all():
            return values.iloc[place]
    if rows and (counts_only(first) or counts_only(values)):
        return values
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
