"""Tables that the package ships, and the batting averages among them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load_batting", "read_shipped"]


def read_shipped(name: str) -> pd.DataFrame:
    """Read a CSV file of the folder ``data``."""
    import pandas as pd

    package = Path(__file__).parents[1]
    path = package / "data" / name
    if not path.is_file():  # an editable install: the file lies beside the package
        path = package.parent / "data" / name
    return pd.read_csv(path)


def load_batting() -> pd.DataFrame:
    """Load the hits and at-bats of all baseball players who batted in the major leagues in 2015.

    Estimates from 2015 can be compared with what the same players hit in 2016.

    Returns
    -------
    DataFrame of shape (953, 5)
        ``player``: name; ``hits`` of ``at_bats`` in 2015; ``hits_2016`` of ``at_bats_2016``, both 0
        for 259 players who did not bat in 2016.

    References
    ----------
    S. Lahman's *Baseball Database*, which includes the Chadwick Baseball Bureau's *Baseball
    Databank* (CC BY-SA 3.0). So is this table.

    Examples
    --------
    >>> batters = load_batting()
    >>> batters.head(2)
              player  hits  at_bats  hits_2016  at_bats_2016
    0  David Aardsma     0        1          0             0
    1     Jose Abreu   178      613        183           624
    >>> int((batters["at_bats_2016"] == 0).sum())
    259
    """
    return read_shipped("batting.csv")
