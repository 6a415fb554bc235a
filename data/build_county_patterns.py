"""Count the counties of each state that share one record of winners.

Usage: python data/build_county_patterns.py county_returns.csv > data/county_patterns.csv
"""

import argparse
import sys

import pandas as pd


def count_patterns(returns: pd.DataFrame) -> pd.DataFrame:
    """Count counties by state and record.

    Parameters
    ----------
    returns : DataFrame
        A row for each county and election, with ``fips``, ``state``, ``year`` and ``winner``.

    Returns
    -------
    DataFrame
        ``state``, ``pattern`` (the winners in order of the elections) and ``n_counties``.
    """
    counties = returns.sort_values("year").groupby(["state", "fips"], as_index=False)
    records = counties.agg(pattern=("winner", "".join))
    return records.groupby(["state", "pattern"]).size().reset_index(name="n_counties")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Count counties by state and record of winners.")
    parser.add_argument("returns", help="the named returns (csv)")
    returns = pd.read_csv(parser.parse_args().returns, dtype={"fips": str})
    count_patterns(returns).to_csv(sys.stdout, index=False, lineterminator="\n")
