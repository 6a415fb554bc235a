"""The same file through `--group` and `--formula` gives equal estimates, or is refused by both."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import ebfed as eb
from ebfed.cli.app import app

RNG = np.random.default_rng(1)
N, AT = 60, 3
PLACE = np.repeat(np.arange(6), 10)
VALUES = (RNG.normal(size=N) + RNG.normal(size=6)[PLACE]).round(3)
CELLS = [repr(value) for value in VALUES.tolist()]
WON = ["TRUE" if value > 0 else "FALSE" for value in VALUES]
LABELS = ["abcdef"[i] for i in PLACE]


def put(cells, cell):
    return [*cells[:AT], cell, *cells[AT + 1 :]]


def lines(labels, cells):
    return "g,y\n" + "".join(f"{a},{b}\n" for a, b in zip(labels, cells, strict=True))


def named(*names):
    return lines([names[i] for i in PLACE], CELLS)


TEXTS = {
    "whole labels": named(*range(6)),
    "padded labels": named("00", "01", "02", "03", "04", "05"),
    "labels of one number": named("1", "1.0", "01", "+1", "1e0", "-1"),
    "words for missing": named("NA", "None", "nan", "NULL", "N/A", "null"),
    "labels of truth": named("True", "False", "true", "false", "TRUE", "T"),
    "days": named(*(f"2024-01-0{i}" for i in range(1, 7))),
    "large labels": named(*(2**53 + i for i in range(6))),
    "larger labels": named(*(10**19 + i for i in range(6))),
    "a stray blank": lines(put(LABELS, "a "), CELLS),
    "a label of blanks": lines(put(LABELS, "  "), CELLS),
    "a blank cell": lines(LABELS, put(CELLS, " ")),
    "NA": lines(LABELS, put(CELLS, "NA")),
    "infinity": lines(LABELS, put(CELLS, "inf")),
    "a word": lines(LABELS, put(CELLS, "no")),
    "thousands": lines(LABELS, put(CELLS, '"1,000"')),
    "blanks around": lines(LABELS, [f" {cell} " for cell in CELLS]),
    "huge numbers": lines(LABELS, [str(10**20 + int(value * 1e18)) for value in VALUES]),
    "truth": lines(LABELS, WON),
    "truth and NA": lines(LABELS, put(WON, "NA")),
    "truth and a blank": lines(LABELS, put(WON, "")),
}


def column(kind, make=lambda value: value):
    return pa.table({"g": LABELS, "y": pa.array([make(value) for value in VALUES.tolist()], kind)})


def labelled(*labels, kind=None):
    return pa.table({"g": pa.array([labels[i] for i in PLACE], kind), "y": VALUES})


def whole(value):
    return int(10 * value)


def without(table, cell):
    kind = table["y"].type
    return table.set_column(1, "y", pa.array(put(table["y"].to_pylist(), cell), kind))


TABLES = {
    "float32": column(pa.float32()),
    "int8": column(pa.int8(), whole),
    "decimal": column(pa.decimal128(9, 3), lambda value: Decimal(str(value))),
    "truth values": column(pa.bool_(), lambda value: value > 0),
    "text of digits": column(pa.string(), str),
    "dictionary of digits": column(pa.dictionary(pa.int8(), pa.string()), str),
    "dates": column(pa.date32(), lambda value: dt.date(2024, 1, 1 + abs(int(value)))),
    "time spans": column(pa.duration("s"), whole),
    "null": without(column(pa.float64()), None),
    "NaN": without(column(pa.float64()), np.nan),
    "R's missing integer": without(column(pa.int32(), whole), -(2**31)),
    "missing decimal": without(column(pa.decimal128(9, 3), lambda x: Decimal(str(x))), None),
    "labels of int": labelled(*range(6)),
    "missing labels of R": labelled(-(2**31), 1, 2, 3, 4, 5, kind=pa.int32()),
    "labels of decimals": labelled(*map(Decimal, range(6))),
    "labels of dates": labelled(*(dt.date(2024, 1, 1 + i) for i in range(6))),
    "dictionary of labels": labelled(*"fedcba", kind=pa.dictionary(pa.int8(), pa.string())),
}
drops = pytest.mark.parametrize("options", [(), ("--na-action", "drop")], ids=["raise", "drop"])


def estimates(files, arguments, out):
    """The table that a command writes; None if it is refused in a line."""
    done = CliRunner().invoke(app, ["fit", *map(str, files), *arguments, "--out", str(out)])
    if done.exit_code:
        assert isinstance(done.exception, SystemExit)
        return None
    return pd.read_csv(out, dtype={"g": str}, keep_default_na=False)


def assert_one_answer(files, options, tmp_path):
    first = estimates(files, ["--group", "g", "--value", "y", *options], tmp_path / "out.csv")
    second = estimates(files, ["--formula", "y | g", *options], tmp_path / "out.csv")
    assert (first is None) == (second is None)
    if first is not None:
        assert first["g"].tolist() == second["g"].tolist()
        for name in ("n", "estimate", "sd"):
            np.testing.assert_allclose(first[name], second[name], rtol=1e-9)


@pytest.mark.filterwarnings("ignore:g has labels that differ by white space:UserWarning")
@drops
@pytest.mark.parametrize("text", TEXTS)
def test_a_csv_file(text, options, tmp_path):
    (tmp_path / "rows.csv").write_text(TEXTS[text])
    assert_one_answer([tmp_path / "rows.csv"], options, tmp_path)


@pytest.mark.filterwarnings("ignore:g has labels that differ by white space:UserWarning")
@drops
@pytest.mark.parametrize("missing", [("NA",), ("-99", "a"), ("b", "none")])
@pytest.mark.parametrize("text", ["words for missing", "NA", "a stray blank", "a word"])
def test_values_that_are_missing(text, missing, options, tmp_path):
    text = TEXTS[text].replace(f",{CELLS[7]}\n", ",-99\n")
    (tmp_path / "rows.csv").write_text(text)
    given = [part for each in missing for part in ("--na-values", each)]
    assert_one_answer([tmp_path / "rows.csv"], [*options, *given], tmp_path)


def test_files_and_frames_lack_the_same_values(tmp_path):
    cells = put(CELLS, "-99")
    (tmp_path / "rows.csv").write_text(lines(LABELS, cells))
    options = ["--formula", "y | g", "--na-action", "drop", "--na-values", "-99"]
    found = estimates([tmp_path / "rows.csv"], [*options, "--na-values", "f"], tmp_path / "out.csv")
    rows = pd.DataFrame({"g": LABELS, "y": list(map(float, cells))})
    given = {"na_action": "drop", "na_values": [-99, "f"]}
    expected = eb.from_formula("y | g", rows, **given).posterior().to_frame()
    assert found["g"].tolist() == expected["g"].tolist() == list("abcde")
    np.testing.assert_allclose(found["estimate"], expected["estimate"], rtol=1e-12)
    alone = eb.from_formula("y | g", rows, na_action="drop", na_values="f")
    assert alone.posterior().to_frame()["g"].tolist() == list("abcde")


@drops
@pytest.mark.parametrize("table", TABLES)
def test_a_parquet_file(table, options, tmp_path):
    parquet.write_table(TABLES[table], tmp_path / "rows.parquet")
    assert_one_answer([tmp_path / "rows.parquet"], options, tmp_path)


@drops
@pytest.mark.parametrize("other", ["a word", "truth and a blank", "whole labels", "another column"])
def test_two_csv_files(other, options, tmp_path):
    (tmp_path / "one.csv").write_text(TEXTS["truth" if "truth" in other else "padded labels"])
    text = TEXTS.get(other, lines(LABELS, CELLS).replace("y", "z"))
    (tmp_path / "two.csv").write_text(text)
    assert_one_answer([tmp_path / "one.csv", tmp_path / "two.csv"], options, tmp_path)
