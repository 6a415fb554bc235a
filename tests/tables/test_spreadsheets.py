"""Text of tables for people is text in a spreadsheet."""

import pandas as pd
import pytest

from ebfed.tables.spreadsheets import without_formulas, write_csv

RISKY = ["=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(A1)", "\tx", "\rx", "\n=1", "=", "-7-", "+1\n"]
SAFE = ["a", "'=x", "-7", "+3.5", "-1e-5", ".5", "-.5e3", "", " =1", "1=1", "NA"]


@pytest.mark.parametrize("dtype", [object, "str", "category", "string"])
def test_risky_text_gets_a_quote(dtype):
    table = pd.DataFrame({"g": pd.Series(RISKY + SAFE, dtype=dtype)})
    found = without_formulas(table)["g"].tolist()
    assert found == ["'" + each for each in RISKY] + SAFE
    assert table["g"].tolist() == RISKY + SAFE
    assert without_formulas(without_formulas(table))["g"].tolist() == found


def test_numbers_and_dates_are_untouched():
    table = pd.DataFrame(
        {
            "n": [-1, 2],
            "x": [-0.5, float("nan")],
            "t": pd.to_datetime(["2020-01-01", None]),
            "o": pd.Series([-1, None], dtype=object),
        }
    )
    pd.testing.assert_frame_equal(without_formulas(table), table)


def test_names_of_columns_get_a_quote():
    table = pd.DataFrame([[1, 2, 3]], columns=["=a", "=a", 5])
    assert list(without_formulas(table).columns) == ["'=a", "'=a", 5]


def test_a_table_that_is_read_and_written_again_stays_the_same(tmp_path):
    write_csv(pd.DataFrame({"g": RISKY + SAFE}), tmp_path / "a.csv.gz")
    read = pd.read_csv(tmp_path / "a.csv.gz", keep_default_na=False, dtype=str)
    write_csv(read, tmp_path / "b.csv")
    again = pd.read_csv(tmp_path / "b.csv", keep_default_na=False, dtype=str)
    pd.testing.assert_frame_equal(read, again)
