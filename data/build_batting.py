"""Sum the hits and at-bats of each player over the teams of a season, for 2015 and 2016.

Usage: python data/build_batting.py Batting.csv People.csv > data/batting.csv
"""

import argparse
import sys

import pandas as pd


def count_hits(batting: pd.DataFrame, people: pd.DataFrame) -> pd.DataFrame:
    """Count hits and at-bats of all players who were at bat in 2015.

    Parameters
    ----------
    batting : DataFrame
        Table "Batting" of the Lahman database: ``playerID``, ``yearID``, ``AB``, ``H``.
    people : DataFrame
        Its table "People": ``playerID``, ``nameFirst``, ``nameLast``.

    Returns
    -------
    DataFrame
        ``player`` (the name; with its identifier, if several have it), ``hits`` and ``at_bats`` in
        2015, ``hits_2016`` and ``at_bats_2016`` (0 of a player who was not at bat then).
    """
    seasons = [
        batting[batting["yearID"] == year].groupby("playerID")[["H", "AB"]].sum()
        for year in (2015, 2016)
    ]
    table = seasons[0][seasons[0]["AB"] > 0].join(
        seasons[1].rename(columns={"H": "hits_2016", "AB": "at_bats_2016"})
    )
    table = table.fillna(0).astype(int).reset_index().merge(people, on="playerID", how="left")
    name = table["nameFirst"] + " " + table["nameLast"]
    several = name.duplicated(keep=False)
    table["player"] = name.where(~several, name + " (" + table["playerID"] + ")")
    table = table.rename(columns={"H": "hits", "AB": "at_bats"}).sort_values("playerID")
    return table[["player", "hits", "at_bats", "hits_2016", "at_bats_2016"]]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Count the hits of 2015 and 2016.")
    parser.add_argument("batting", help="Batting.csv")
    parser.add_argument("people", help="People.csv")
    paths = parser.parse_args()
    tables = [pd.read_csv(path, encoding="utf-8") for path in (paths.batting, paths.people)]
    count_hits(*tables).to_csv(sys.stdout, index=False, lineterminator="\n")
