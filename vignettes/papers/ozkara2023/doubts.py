"""Risks that cannot be right as they stand."""

from typing import Any

import pandas as pd


def doubts(table: pd.DataFrame, along: str, local: pd.Series | None = None) -> list[str]:
    """Say of each risk why it is doubtful: more information must not cost, nor sharing.

    A risk is above another if it is so by more than the standard error of the difference, and by
    more than 5 %.

    The table has columns that name a row, then the risk ``mse`` and its standard error ``mse_se``.
    `along` is a column, such as bits or epsilon, with which the information of a report grows, NaN
    in rows of other methods; `local` has the risk of local estimates beside each row, that of the
    method "local" if None. Returns sentences for a page, "" where there is no doubt.

    >>> table = pd.DataFrame({"method": "two bits", "epsilon": [1.0, 2.0, 4.0]})
    >>> table["mse"], table["mse_se"] = [0.3, 0.2, 0.25], 0.01
    >>> doubts(table, "epsilon", pd.Series(1.0, table.index))
    ['', '', 'two bits, epsilon 4: above its own error at epsilon 2']
    """
    keys = [name for name in table.columns[: table.columns.get_loc("mse")] if name != along]
    if local is None:
        setting = [name for name in keys if name != "method"]
        own = table[table["method"] == "local"].set_index(setting)["mse"].rename("_local")
        local = table.join(own, on=setting)["_local"]
    found = pd.Series("", index=table.index)
    for _, line in table.dropna(subset=[along]).groupby(keys, sort=False, dropna=False):
        for place, row in line.iterrows():
            less = line[line[along] < row[along]]
            error = (less["mse_se"] ** 2 + row["mse_se"] ** 2) ** 0.5
            worse = less[_is_above(row["mse"], less["mse"], error)]
            if len(worse):
                least = worse.loc[worse["mse"].idxmin(), along]
                reason = f"above its own error at {along} {least:g}"
            elif _is_above(row["mse"], local[place], row["mse_se"]):
                reason = "above the error of local estimates"
            else:
                continue
            named = [row["method"], f"{along} {row[along]:g}"]
            named += [
                f"{name} {row[name]}" for name in keys if name != "method" and pd.notna(row[name])
            ]
            found[place] = f"{', '.join(named)}: {reason}"
    return found.tolist()


def _is_above(risk: Any, other: Any, error: Any) -> Any:
    """Whether a risk exceeds others by more than errors and 5 %."""
    return (risk - other > error) & (risk > 1.05 * other)
