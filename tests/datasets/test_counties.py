import json
import sys
import threading
from hashlib import md5
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pandas as pd
import pytest

from ebfed.datasets import (
    counties,
    fetch_county_returns,
    load_county_outcomes,
    load_county_patterns,
    load_county_patterns_2024,
    tidy_county_returns,
)

ELECTIONS = [2000, 2004, 2008, 2012, 2016, 2020]
COLUMNS = ["fips", "state", "county", "year", "winner", "dem_pct", "rep_pct"]
VISITOR = {"name": "A", "email": "a@example.org", "institution": "B", "position": "C"}


# --- the shipped facts ---------------------------------------------------------------------------


def test_patterns_are_those_shipped():
    patterns = load_county_patterns()
    assert list(patterns) == ["state", "pattern", "n_counties"]
    assert len(patterns) == 358
    assert patterns["n_counties"].sum() == 3111
    assert patterns["n_counties"].min() == 1
    assert patterns["pattern"].str.fullmatch("[DR]{6}").all()
    assert patterns["state"].nunique() == 50  # Hawaii and DC, without Alaska
    assert "AK" not in set(patterns["state"])
    assert not patterns.duplicated(["state", "pattern"]).any()


def test_patterns_of_2024_are_the_same_counties_but_those_of_connecticut():
    before = load_county_patterns().set_index(["state", "pattern"])["n_counties"]
    later = load_county_patterns_2024().set_index(["state", "pattern"])
    both = later.join(before.rename("before"))
    assert (both["n_counties"] == both["before"]).all()
    gone = before.drop(both.index)
    assert set(gone.index.get_level_values("state")) == {"CT"}
    assert gone.sum() == 8
    assert later["republican_2024"].between(0, later["n_counties"]).all()


def test_outcomes_are_the_patterns_spelled_out():
    outcomes = load_county_outcomes()
    assert outcomes.shape == (3111 * 6, 4)
    assert outcomes["county"].nunique() == 3111
    assert (outcomes.groupby("county")["year"].agg(list).map(tuple) == tuple(ELECTIONS)).all()
    assert (outcomes.groupby("county")["state"].nunique() == 1).all()

    letters = outcomes.assign(winner=np.where(outcomes["republican"] == 1, "R", "D"))
    records = letters.groupby(["state", "county"])["winner"].agg("".join).rename("pattern")
    counted = records.reset_index().groupby(["state", "pattern"]).size().reset_index(name="n")
    patterns = load_county_patterns()
    assert counted["pattern"].tolist() == patterns["pattern"].tolist()
    assert counted["n"].tolist() == patterns["n_counties"].tolist()


# --- the named returns ---------------------------------------------------------------------------


def unit(fips, name, votes, *, state="AL", modes=("TOTAL",), years=ELECTIONS):
    """Raw rows of one reporting unit: (democrat, republican, total) for each mode."""
    democrat, republican, total = votes
    parties = {"DEMOCRAT": democrat, "REPUBLICAN": republican, "OTHER": 1}
    return pd.DataFrame(
        [
            {
                "year": year,
                "state": "SOMEWHERE",
                "state_po": state,
                "county_name": name,
                "county_fips": fips,
                "office": "US PRESIDENT",
                "candidate": "SOMEONE",
                "party": party,
                "candidatevotes": count,
                "totalvotes": total,
                "version": 20260225,
                "mode": mode,
            }
            for year in years
            for mode in modes
            for party, count in parties.items()
        ]
    )


@pytest.fixture
def raw():
    """A sample with the peculiarities of the real file."""
    early = [2000, 2004, 2008, 2012, 2016]
    both = unit("1003", "BALDWIN", (20, 50, 100), years=[2020])
    parts = unit("1003", "BALDWIN", (10, 25, 100), modes=["EARLY", "MAIL"], years=[2020])
    return pd.concat(
        [
            unit("1001", "AUTAUGA", (40, 50, 100)),
            unit("1001", "AUTAUGA", (99, 0, 100), years=[1996, 2024]),
            unit("1003", "BALDWIN", (45, 50, 100), years=early),
            both,
            parts,
            # Georgia counted 2020 by mode only
            unit("13001", "APPLING", (30, 60, 100), state="GA", years=early),
            unit("13001", "APPLING", (20, 11, 100), state="GA", modes=list("ABC"), years=[2020]),
            # 2008: without Kansas City the Republican leads, with it the Democrat
            unit("29095", "JACKSON", (90722, 92833, 186047), state="MO"),
            unit("2938000", "KANSAS CITY", (120102, 31854, 153219), state="MO"),
            unit("46113", "SHANNON", (80, 15, 100), state="SD", years=early[:4]),
            unit("46102", "OGLALA LAKOTA", (90, 8, 100), state="SD", years=[2016, 2020]),
            unit("51019", "BEDFORD", (30, 60, 100), state="VA"),
            unit("51515", "BEDFORD", (50, 45, 100), state="VA", years=early[:4]),
            unit("24033", "PRINCE GEORGE'S", (80, 15, 100), state="MD"),
            unit("27077", "LAKE OF THE WOODS", (30, 60, 100), state="MN"),
            unit("8014", "BROOMFIELD", (50, 40, 100), state="CO", years=ELECTIONS[1:]),
            unit("2020", "DISTRICT 20", (50, 40, 100), state="AK"),
            unit(np.nan, "FEDERAL PRECINCT", (50, 40, 100), state="RI"),
        ],
        ignore_index=True,
    )


def test_tidy_returns_have_a_row_for_each_county_and_election(raw):
    returns = tidy_county_returns(raw.sample(frac=1, random_state=0))
    assert list(returns) == COLUMNS
    counties = returns.groupby("fips")
    assert counties["year"].agg(list).map(tuple).unique().tolist() == [tuple(ELECTIONS)]
    assert counties["county"].unique().map(list).to_dict() == {
        "01001": ["Autauga"],
        "01003": ["Baldwin"],
        "13001": ["Appling"],
        "24033": ["Prince George's"],
        "27077": ["Lake of the Woods"],
        "29095": ["Jackson"],
        "46102": ["Oglala Lakota"],
        "51019": ["Bedford"],
    }
    assert set(returns["state"]) == {"AL", "GA", "MD", "MN", "MO", "SD", "VA"}


def result(returns, fips, year):
    row = returns[(returns["fips"] == fips) & (returns["year"] == year)].iloc[0]
    return row["winner"], row["dem_pct"], row["rep_pct"]


@pytest.mark.parametrize(
    ("fips", "year", "expected"),
    [
        ("01001", 2020, ("R", 40, 50)),
        ("01003", 2020, ("R", 20, 50)),  # the total, not total and modes
        ("13001", 2016, ("R", 30, 60)),
        ("13001", 2020, ("D", 60, 33)),  # the sum of three modes
        ("29095", 2008, ("D", 62.1, 36.8)),
        ("46102", 2012, ("D", 80, 15)),
        ("46102", 2020, ("D", 90, 8)),
        ("51019", 2012, ("R", 40, 52.5)),
        ("51019", 2016, ("R", 30, 60)),
    ],
)
def test_tidy_returns_count_every_vote_once(raw, fips, year, expected):
    assert result(tidy_county_returns(raw), fips, year) == expected


def test_tidying_reads_every_spelling_of_codes_and_counts(raw):
    expected = tidy_county_returns(raw)
    as_numbers = raw.assign(county_fips=pd.to_numeric(raw["county_fips"]))
    padded = raw.assign(county_fips=raw["county_fips"].str.zfill(5))
    as_text = raw.assign(
        county_fips=raw["county_fips"].fillna("NA"),
        candidatevotes=raw["candidatevotes"].astype(str),
    )
    later = raw.assign(mode=raw["mode"].replace("TOTAL", "TOTAL VOTES"))
    for spelling in (as_numbers, padded, as_text, later):
        pd.testing.assert_frame_equal(tidy_county_returns(spelling), expected)


def test_a_missing_count_is_no_vote(raw):
    raw["candidatevotes"] = raw["candidatevotes"].astype(object)
    absent = (raw["county_fips"] == "1001") & (raw["party"] == "DEMOCRAT") & (raw["year"] == 2004)
    raw.loc[absent, "candidatevotes"] = "NA"
    assert result(tidy_county_returns(raw), "01001", 2004) == ("R", 0, 50)


def test_tidying_leaves_its_argument_alone(raw):
    before = raw.copy()
    tidy_county_returns(raw)
    pd.testing.assert_frame_equal(raw, before)


def test_tidying_names_missing_columns(raw):
    with pytest.raises(ValueError, match=r"lack the columns \['mode', 'totalvotes'\]"):
        tidy_county_returns(raw.drop(columns=["mode", "totalvotes"]))


def test_named_returns_in_the_data_folder_come_first(tmp_path, monkeypatch):
    outcomes = load_county_outcomes()
    named = pd.DataFrame(
        {
            "fips": outcomes["county"].astype(str).str.zfill(5),
            "state": outcomes["state"],
            "county": "Someplace",
            "year": outcomes["year"],
            "winner": np.where(outcomes["republican"] == 1, "R", "D"),
            "dem_pct": 40.0,
            "rep_pct": 60.0,
        }
    )
    named.to_csv(tmp_path / "county_returns.csv", index=False)
    monkeypatch.setenv("EBFED_DATA", str(tmp_path))
    returns = fetch_county_returns()
    assert returns["fips"].iloc[0] == "00000"  # leading zeros survive
    pd.testing.assert_frame_equal(returns, named, check_dtype=False)


class Dataverse(BaseHTTPRequestHandler):
    """Ask for the guestbook, then hand out the file at a signed address."""

    requests: list
    content: bytes

    def _answer(self, content, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self):
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append((self.path, sent, self.headers["User-Agent"]))
        if sent["guestbookResponse"]["name"] == "refused":
            self._answer(b'{"status": "ERROR", "message": "not you"}', 400)
            return
        address = f"http://{self.headers['Host']}/signed"
        self._answer(json.dumps({"status": "OK", "data": {"signedUrl": address}}).encode())

    def do_GET(self):
        self.requests.append((self.path, None, self.headers["User-Agent"]))
        self._answer(self.content)

    def log_message(self, *args):
        pass


@pytest.fixture
def dataverse(raw, tmp_path, monkeypatch):
    pytest.importorskip("pooch")
    content = raw.to_csv(index=False).encode()
    handler = type("Handler", (Dataverse,), {"requests": [], "content": content})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("EBFED_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    url = f"http://127.0.0.1:{server.server_port}/file?format=original"
    monkeypatch.setattr(counties, "_COUNTYPRES_URL", url)
    monkeypatch.setattr(counties, "_COUNTYPRES_HASH", f"md5:{md5(content).hexdigest()}")
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


def test_returns_are_downloaded_once(dataverse, raw):
    returns = fetch_county_returns(VISITOR)
    pd.testing.assert_frame_equal(returns, tidy_county_returns(raw))
    assert dataverse.requests == [
        ("/file?format=original", {"guestbookResponse": VISITOR}, "ebfed"),
        ("/signed", None, "ebfed"),
    ]
    pd.testing.assert_frame_equal(fetch_county_returns(), returns)
    assert len(dataverse.requests) == 2


def test_a_file_saved_by_hand_needs_no_guestbook(dataverse, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "countypres_2000-2024.csv").write_bytes(dataverse.content)
    assert len(fetch_county_returns()) == 6 * 8
    assert dataverse.requests == []


def test_no_request_without_a_complete_guestbook(dataverse):
    with pytest.raises(ValueError, match=r"guestbook lacks \['institution', 'position'\]"):
        fetch_county_returns({"name": "A", "email": "a@example.org"})
    with pytest.raises(ValueError, match="EBFED_DATA"):
        fetch_county_returns()
    assert dataverse.requests == []


def test_a_refusal_is_passed_on(dataverse):
    with pytest.raises(OSError, match=r"refused the download \(400\).*not you"):
        fetch_county_returns({**VISITOR, "name": "refused"})


def test_a_file_that_is_not_the_published_one_is_not_kept(dataverse, tmp_path):
    dataverse.content = b"something else"
    with pytest.raises(ValueError, match="hash"):
        fetch_county_returns(VISITOR)
    assert list((tmp_path / "cache").iterdir()) == []


def test_without_pooch_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("EBFED_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pooch", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r'pip install "ebfed\[data\]"'):
        fetch_county_returns()
