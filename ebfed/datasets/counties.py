"""County elections: the winners shipped with the package, and the named returns on request."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ebfed.datasets.shipped import read_shipped

if TYPE_CHECKING:
    import pandas as pd

_ELECTIONS = (2000, 2004, 2008, 2012, 2016, 2020)

# Version 20 (February 2026) of doi:10.7910/DVN/VOQCHQ, with the checksum the Dataverse publishes.
# It is of the file as uploaded, hence the format: by default the server sends a conversion.
_COUNTYPRES = "countypres_2000-2024.csv"
_COUNTYPRES_URL = "https://dataverse.harvard.edu/api/access/datafile/13573089?format=original"
_COUNTYPRES_HASH = "md5:bd6661282936006b4ef4f5ee71418f3e"

# Reporting units that are (now) a part or an earlier name of a county.
_COUNTY_OF_UNIT = {
    2938000: 29095,  # Kansas City, Missouri, is reported apart from Jackson County,
    36000: 29095,  # in some editions under this code
    46113: 46102,  # Shannon County, South Dakota, was renamed Oglala Lakota in 2015
    51515: 51019,  # the city of Bedford, Virginia, joined Bedford County in 2013
}


def load_county_patterns() -> pd.DataFrame:
    """Load the winners of six presidential elections, counted by state and record.

    Returns
    -------
    DataFrame of shape (358, 3)
        ``state``: postal code; ``pattern``: the winners of 2000, 2004, ..., 2020 as six letters, R
        or D; ``n_counties``: counties of the state with that record. They are 3,111 in all; Alaska,
        which reports by district, is left out.

    References
    ----------
    MIT Election Data and Science Lab, *County Presidential Election Returns*,
    doi:10.7910/DVN/VOQCHQ (CC0); for 2020, *US_County_Level_Election_Results_08-24*. The data
    folder's README lists four counties in which these sources are wrong.

    Examples
    --------
    >>> patterns = load_county_patterns()
    >>> patterns.head(3)
      state pattern  n_counties
    0    AL  DDDDDD          11
    1    AL  DRDDDD           1
    2    AL  DRRDRR           2
    >>> int(patterns["n_counties"].sum())
    3111
    """
    return read_shipped("county_patterns.csv")


def load_county_patterns_2024() -> pd.DataFrame:
    """Load the winners of 2024, counted by state and by the record of the six elections before.

    Estimates from 2000 to 2020 can be compared with an election that they did not use.

    Returns
    -------
    DataFrame of shape (355, 4)
        ``state``, ``pattern`` and ``n_counties`` as in `load_county_patterns`;
        ``republican_2024``: in how many of these counties the Republican won in 2024. They are
        3,103 in all: Connecticut no longer reports by its eight counties.

    References
    ----------
    *US_County_Level_Election_Results_08-24*, doi:10.5281/zenodo.14223604 (MIT licence).

    Examples
    --------
    >>> later = load_county_patterns_2024()
    >>> later.head(3)
      state pattern  n_counties  republican_2024
    0    AL  DDDDDD          11                0
    1    AL  DRDDDD           1                1
    2    AL  DRRDRR           2                2
    >>> int(later["n_counties"].sum()), int(later["republican_2024"].sum())
    (3103, 2658)
    """
    return read_shipped("county_patterns_2024.csv")


def load_county_outcomes() -> pd.DataFrame:
    """Load the winners of six presidential elections, a row for each county and election.

    Returns
    -------
    DataFrame of shape (18666, 4)
        ``state``: postal code; ``county``: 0, ..., 3110; ``year``: 2000, 2004, ..., 2020;
        ``republican``: 1 if the Republican won, else 0. Counties are anonymous: those of one state
        with one record are interchangeable.

    See Also
    --------
    load_county_patterns : the same facts counted, and their sources.

    Examples
    --------
    >>> outcomes = load_county_outcomes()
    >>> outcomes.groupby("year")["republican"].mean().round(2).to_dict()
    {2000: 0.78, 2004: 0.81, 2008: 0.72, 2012: 0.78, 2016: 0.84, 2020: 0.83}
    """
    import pandas as pd

    patterns = load_county_patterns()
    records = patterns.loc[patterns.index.repeat(patterns["n_counties"])]
    winners = np.array([list(record) for record in records["pattern"]])
    n_counties, n_elections = winners.shape
    return pd.DataFrame(
        {
            "state": records["state"].repeat(n_elections).to_numpy(),
            "county": np.repeat(np.arange(n_counties), n_elections),
            "year": np.tile(_ELECTIONS, n_counties),
            "republican": (winners == "R").ravel().astype(int),
        }
    )


def fetch_county_returns(guestbook: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Fetch the named county returns of six presidential elections.

    A ``county_returns.csv`` in the folder of the environment variable ``EBFED_DATA`` is read
    first, unchanged. Otherwise the returns are tidied from
    ``countypres_2000-2024.csv``, downloaded once from the Harvard Dataverse and checked against the
    checksum published there. It is kept in that folder, else in the cache of the user, and a copy
    saved there by hand serves as well.

    Parameters
    ----------
    guestbook : mapping, optional
        Your ``name``, ``email``, ``institution`` and ``position``. The Harvard Dataverse
        asks for them at a download; they are sent only there. Not needed if the file is on this
        computer.

    Returns
    -------
    DataFrame of shape (18666, 7)
        Table of `tidy_county_returns`.

    Raises
    ------
    ImportError
        If the returns must be tidied and pooch, of the extra ``data``, is not installed.
    ValueError
        If the file must be downloaded and `guestbook` is not complete, or if the downloaded file
        is not the expected one.
    OSError
        If the Dataverse refuses the download.

    References
    ----------
    MIT Election Data and Science Lab, *County Presidential Election Returns 2000-2024*, version 20,
    doi:10.7910/DVN/VOQCHQ (CC0).

    Examples
    --------
    >>> returns = fetch_county_returns(
    ...     {
    ...         "name": "Ada Lovelace",
    ...         "email": "ada@example.org",
    ...         "institution": "Example University",
    ...         "position": "Researcher",
    ...     }
    ... )  # doctest: +SKIP
    """
    import pandas as pd

    folder = os.environ.get("EBFED_DATA")
    if folder and (named := Path(folder) / "county_returns.csv").is_file():
        return pd.read_csv(named, dtype={"fips": str})
    try:
        import pooch
    except ImportError as error:
        raise ImportError('fetch_county_returns needs pooch: pip install "ebfed[data]"') from error

    def download(url: str, output_file: str, _: object) -> None:
        _download_signed(url, output_file, guestbook or {})

    path = pooch.retrieve(
        _COUNTYPRES_URL,
        known_hash=_COUNTYPRES_HASH,
        fname=_COUNTYPRES,
        path=folder or pooch.os_cache("ebfed"),
        downloader=download,
    )
    return tidy_county_returns(pd.read_csv(path, low_memory=False))


def _download_signed(url: str, output_file: str, guestbook: Mapping[str, str]) -> None:
    """Sign the guestbook of a Dataverse file, then download it from the address that answers."""
    import pooch
    import requests

    missing = {"name", "email", "institution", "position"} - set(guestbook)
    if missing:
        raise ValueError(
            f"The Harvard Dataverse asks who downloads the county returns: guestbook lacks "
            f"{sorted(missing)}. Or save {_COUNTYPRES} (version 20, original format) from "
            f"https://doi.org/10.7910/DVN/VOQCHQ in the folder that EBFED_DATA names."
        )
    headers = {"User-Agent": "ebfed"}  # the Dataverse turns away the default agent of requests
    reply = requests.post(
        url, json={"guestbookResponse": dict(guestbook)}, headers=headers, timeout=60
    )
    try:
        signed = reply.json()["data"]["signedUrl"]
    except (ValueError, KeyError) as error:
        raise OSError(
            f"The Harvard Dataverse refused the download ({reply.status_code}): {reply.text[:200]}"
        ) from error
    pooch.HTTPDownloader(headers=headers)(signed, output_file, None)


def tidy_county_returns(raw: pd.DataFrame) -> pd.DataFrame:
    """Make one row for each county and election of the MIT lab's county returns.

    Counties without a result in one of the six elections are left out, and so are Alaska's
    districts and votes that belong to no county. Where votes are counted by mode (early, by mail,
    ...), a total stands for its parts, and without a total the parts are added.

    Parameters
    ----------
    raw : DataFrame
        An edition of the file ``countypres_2000-20xx`` with the columns ``year``, ``state_po``,
        ``county_name``, ``county_fips``, ``party``, ``candidatevotes``, ``totalvotes`` and
        ``mode``: a row for each candidate, county, election and mode of voting.

    Returns
    -------
    DataFrame of shape (6 * n_counties, 7)
        ``fips``: five digits; ``state``: postal code; ``county``: its name; ``year``: 2000, 2004,
        ..., 2020; ``winner``: R if the Republican had more votes than the Democrat, else D;
        ``dem_pct`` and ``rep_pct``: per cent of all votes, to one decimal.

    Raises
    ------
    ValueError
        If a column is missing.

    Notes
    -----
    A county is what it is now: Kansas City counts with Jackson County, Missouri, the former city of
    Bedford with Bedford County, Virginia, and Shannon County, South Dakota, is Oglala Lakota.

    Examples
    --------
    >>> import pandas as pd
    >>> raw = pd.DataFrame(
    ...     {
    ...         "year": np.repeat([2000, 2004, 2008, 2012, 2016, 2020], 2),
    ...         "state_po": "AL",
    ...         "county_name": "AUTAUGA",
    ...         "county_fips": 1001,
    ...         "party": ["DEMOCRAT", "REPUBLICAN"] * 6,
    ...         "candidatevotes": [30, 60] * 6,
    ...         "totalvotes": 100,
    ...         "mode": "TOTAL",
    ...     }
    ... )
    >>> tidy_county_returns(raw).tail(1)
        fips state   county  year winner  dem_pct  rep_pct
    5  01001    AL  Autauga  2020      R     30.0     60.0
    """
    import pandas as pd

    columns = ["year", "state_po", "county_name", "county_fips", "party", "mode"]
    counts = ["candidatevotes", "totalvotes"]
    missing = [column for column in columns + counts if column not in raw]
    if missing:
        raise ValueError(f"The raw returns lack the columns {missing}.")

    of_interest = raw["year"].isin(_ELECTIONS) & raw["party"].isin(["DEMOCRAT", "REPUBLICAN"])
    votes = raw.loc[of_interest & (raw["state_po"] != "AK"), columns + counts]
    codes = pd.to_numeric(votes["county_fips"], errors="coerce")
    votes = votes.assign(unit=codes).dropna(subset="unit").astype({"unit": int})
    votes[counts] = votes[counts].apply(pd.to_numeric, errors="coerce")

    is_total = votes["mode"].str.startswith("TOTAL", na=False)
    has_total = is_total.groupby([votes["year"], votes["unit"], votes["party"]]).transform("any")
    votes = votes[is_total | ~has_total]

    of_unit = votes.groupby(["unit", "year"])
    units = votes.pivot_table("candidatevotes", ["unit", "year"], "party", "sum", fill_value=0)
    units = units.assign(total=of_unit["totalvotes"].first()).reset_index()
    units["code"] = units["unit"].replace(_COUNTY_OF_UNIT)
    returns = units.groupby(["code", "year"], as_index=False)[
        ["DEMOCRAT", "REPUBLICAN", "total"]
    ].sum()
    returns = returns[returns.groupby("code")["year"].transform("size") == len(_ELECTIONS)]

    # Spellings differ between elections: the last one names the county in all of them.
    named = votes.sort_values("year").drop_duplicates("unit", keep="last").set_index("unit")
    code, democrat, republican = returns["code"], returns["DEMOCRAT"], returns["REPUBLICAN"]
    return pd.DataFrame(
        {
            "fips": code.astype(str).str.zfill(5),
            "state": code.map(named["state_po"]),
            "county": _name_case(code.map(named["county_name"])),
            "year": returns["year"],
            "winner": np.where(republican > democrat, "R", "D"),
            "dem_pct": (100 * democrat / returns["total"]).round(1),
            "rep_pct": (100 * republican / returns["total"]).round(1),
        }
    ).reset_index(drop=True)


def _name_case(names: pd.Series) -> pd.Series:
    """PRINCE GEORGE'S is Prince George's, and LAKE OF THE WOODS is Lake of the Woods."""
    small = r"'S\b|\b(?:And|Of|The)\b"
    return names.str.title().str.replace(small, lambda match: match[0].lower(), regex=True)
