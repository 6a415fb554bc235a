"""`ebfed fit`: what it prints, writes and refuses."""

import decimal
import gzip
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import ebfed as eb
from ebfed.cli.app import app
from ebfed.cli.fit import _progress
from ebfed.tables import files

runner = CliRunner()


def invoke(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


def refusal(*arguments):
    """The one line that a mistake ends with."""
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("ebfed: ")
    return line


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_fit_prints_summary_and_first_groups(file, rows):
    result = invoke("fit", file, "--group", "fips", "--value", "score")
    assert result.exit_code == 0, result.output
    expected = eb.GaussianEB().fit(rows[["score"]], groups=rows["fips"])
    assert str(expected.summary()) in result.stdout
    assert "00010" in result.stdout
    assert "00011" not in result.stdout
    assert "10 more groups" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_fit_writes_every_group(file, rows, tmp_path, suffix):
    out = tmp_path / f"estimates{suffix}"
    result = invoke(
        "fit", file, "--group", "fips", "--value", "score", "--out", out, "--level", 0.5
    )
    assert result.exit_code == 0, result.output
    assert f"Wrote 20 groups to {out}" in result.stdout
    estimates = (
        pd.read_parquet(out) if suffix == ".parquet" else pd.read_csv(out, dtype={"fips": str})
    )
    expected = eb.GaussianEB().fit(rows[["score"]], groups=rows["fips"]).posterior()
    pd.testing.assert_frame_equal(estimates, expected.to_frame(level=0.5), check_dtype=False)
    assert estimates["fips"].iloc[0] == "00001"


def test_fit_reads_parquet_like_csv(file, rows, tmp_path):
    plain = tmp_path / "rows.parquet"
    rows.to_parquet(plain)
    outputs = []
    indexed = tmp_path / "indexed.parquet"
    rows.set_index("number").to_parquet(indexed)
    for path in (file, plain, indexed):
        result = invoke("fit", path, "--group", "number", "--value", "score")
        assert result.exit_code == 0, result.output
        outputs.append(result.stdout)
    assert outputs[0] == outputs[1] == outputs[2]


@pytest.mark.parametrize("prior", ["beta", "log_spline", "npmle"])
def test_fit_rates(file, rows, prior):
    options = ["--family", "binomial", "--prior", prior]
    result = invoke("fit", file, "--group", "fips", "--value", "won", *options)
    assert result.exit_code == 0, result.output
    expected = eb.BernoulliEB(prior=prior).fit(rows[["won"]], groups=rows["fips"])
    assert str(expected.summary()) in result.stdout


def test_populations_of_rates_by_formula(file, rows):
    options = ("--family", "binomial", "--prior", "logit-normal")
    result = invoke("fit", file, "--formula", "won ~ 1 + (1 | fips)", *options)
    assert result.exit_code == 0, result.output
    assert "Population:     logit-normal" in result.stdout
    line = refusal("fit", file, "--group", "fips", "--value", "won", *options)
    assert "--prior logit-normal goes with --formula" in line


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["10", "2", "2", "-1"], [-1, 2, 10]),
        (["10", "2", "2", "01"], ["01", "10", "2"]),
        (["1.0", "1", "2", "2"], ["1", "1.0", "2"]),
        (["NA", "DE", "None", "NA"], ["DE", "NA", "None"]),
        (["12345678901234567890"] * 4, ["12345678901234567890"]),
    ],
)
def test_labels_stay_what_they_are(tmp_path, labels, expected):
    values = [1.0, 2.0, 3.5, 5.0]
    table = pd.DataFrame({"place": labels, "x": values})
    path, out = tmp_path / "rows.csv", tmp_path / "out.parquet"
    table.to_csv(path, index=False)
    result = invoke("fit", path, "--group", "place", "--value", "x", "--out", out)
    assert result.exit_code == 0, result.output
    assert pd.read_parquet(out)["place"].tolist() == expected


def test_damaged_files_are_refused_by_name(rows, tmp_path):
    rows.to_csv(path := tmp_path / "rows.csv.gz", index=False)
    whole, columns = path.read_bytes(), ("--group", "fips", "--value", "score")
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    for content in (whole[: len(whole) // 2], whole[:-4], bytes(flipped), b"no gz"):
        path.write_bytes(content)
        for options in (columns, ("--formula", "score ~ 1 + (1 | fips)")):
            line = refusal("fit", path, *options)
            assert f"{path}: the compressed file is damaged or cut off" in line


def test_labels_are_no_lists(rows, tmp_path):
    for name, labels in (("list", [[1, 2]]), ("struct", [{"a": 1}])):
        path = tmp_path / f"{name}.parquet"
        rows.assign(fips=labels * len(rows)).to_parquet(path)
        for options in (
            ("--group", "fips", "--value", "score"),
            ("--formula", "score ~ 1 + (1 | fips)"),
        ):
            line = refusal("fit", path, *options)
            assert f"column 'fips' holds {name}<" in line
            assert "not labels of groups" in line


def test_columns_of_one_name_are_refused(tmp_path):
    write(path := tmp_path / "rows.csv", "g,v,v\na,1,2\nb,2,3\n")
    for options in (("--group", "g", "--value", "v"), ("--formula", "v ~ 1 + (1 | g)")):
        assert "2 columns are called 'v'" in refusal("fit", path, *options)


def test_no_text_of_the_output_is_computed_by_a_spreadsheet(tmp_path):
    labels = ["=cmd|' /C calc'!A0", "@SUM(A1)", "-7", "+a", "plain"]
    rows = pd.DataFrame({"=g": np.repeat(labels, 3), "v": np.arange(15.0)})
    rows.to_csv(path := tmp_path / "rows.csv", index=False)
    for suffix, quote in ((".csv", "'"), (".parquet", "")):
        out = tmp_path / f"out{suffix}"
        result = invoke("fit", path, "--group", "=g", "--value", "v", "--out", out)
        assert result.exit_code == 0, result.output
        read = pd.read_parquet(out) if suffix == ".parquet" else pd.read_csv(out)
        names = [quote + name if name[0] in "=@+" else name for name in sorted(labels)]
        assert read[f"{quote}=g"].tolist() == names
        assert read["local"].tolist() == rows.groupby("=g")["v"].mean().tolist()


def test_missing_rows_are_refused_or_counted(rows, tmp_path):
    rows["score"] = rows["score"].astype(object)
    rows.loc[[0, 1], "score"] = ["NA", None]
    rows.loc[[1, 2, 3], "fips"] = ["", " ", None]
    path = tmp_path / "rows.csv"
    rows.to_csv(path, index=False)
    columns = ("--group", "fips", "--value", "score")
    line = refusal("fit", path, *columns)
    assert "4 of 120 rows are incomplete (3 without 'fips' and 2 without 'score')" in line
    assert "--na-action drop" in line
    result = invoke("fit", path, *columns, "--na-action", "drop")
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("Left out 4 of 120 rows")
    complete = rows.iloc[4:].astype({"score": float})
    expected = eb.GaussianEB().fit(complete[["score"]], groups=complete["fips"])
    assert str(expected.summary()) in result.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("g,x\n", "no rows"),
        ("h,x\na,1\n", "no column 'g' (--group) among 'h', 'x'"),
        ("g,y\na,1\n", "no column 'x' (--value) among 'g', 'y'"),
        ("g,x\na,1\na,2\nb,n.a.\nb,3\n", "1 of 4 values are not finite numbers, the first 'n.a.'"),
        ("g,x\na,1\na,inf\n", "the first 'inf' in row 2"),
        ("g,x\na,\n,1\n", "2 of 2 rows are incomplete"),
        ("g,x\na,1\na,1,5\n", "line 3 has 3 fields, but the lines before it have 2"),
        ("g,x\na,1,5\na,2,5\n", "more fields than the header"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, message):
    path = write(tmp_path / "rows.csv", text)
    line = refusal("fit", path, "--group", "g", "--value", "x")
    assert str(path) in line
    assert message in line


def test_nothing_left_to_fit(tmp_path):
    path = write(tmp_path / "rows.csv", "g,x\na,\n,1\n")
    line = refusal("fit", path, "--group", "g", "--value", "x", "--na-action", "drop")
    assert "no complete rows" in line


def test_other_mistakes(file, rows, tmp_path, monkeypatch):
    columns = ("--group", "fips", "--value", "score")
    assert "no such file" in refusal("fit", tmp_path / "none.csv", *columns)
    assert "both name" in refusal("fit", file, "--group", "fips", "--value", "fips")
    assert "only 0 and 1" in refusal("fit", file, *columns, "--family", "binomial")
    assert "got 'beta'" in refusal("fit", file, *columns, "--prior", "beta")
    assert "level must lie" in refusal("fit", file, *columns, "--level", 2)
    assert ".parquet, not '.xlsx'" in refusal("fit", file, *columns, "--out", "a.xlsx")
    assert "no such directory" in refusal("fit", file, *columns, "--out", tmp_path / "a" / "b.csv")
    write(latin := tmp_path / "latin.csv", "").write_bytes("fips,score\nKöln,1\n".encode("latin1"))
    assert "the text is not in utf-8" in refusal("fit", latin, *columns)
    write(fake := tmp_path / "fake.parquet", "no parquet")
    assert "fake.parquet" in refusal("fit", fake, *columns)
    rows.assign(score=pd.Timestamp("2024-01-01")).to_parquet(dates := tmp_path / "dates.parquet")
    assert "dates, not numbers" in refusal("fit", dates, *columns)
    assert invoke("fit", file, "--group", "fips").exit_code == 2
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert 'pip install "ebfed[parquet]"' in refusal("fit", fake, *columns)


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(files, "ROWS", 7)


def fit_all(paths, out, *options):
    columns = ("--group", "g", "--value", "x")
    result = invoke("fit", *paths, *columns, "--out", out, *options)
    assert result.exit_code == 0, result.output
    return pd.read_parquet(out)


ZONED = pd.date_range("2020-03-29", periods=20, freq="h", tz="Europe/Berlin")
KINDS = {
    "small integers": pa.array(range(20), pa.int8()),
    "far integers": pa.array([code * 10**15 - 7 for code in range(20)]),
    "large integers": pa.array([2**63 + code for code in range(20)], pa.uint64()),
    "floats": pa.array([-0.5 + code for code in range(20)], pa.float32()),
    "strings": pa.array([f"ö{code}" for code in range(20)]),
    "large strings": pa.array([str(code) for code in range(20)], pa.large_string()),
    "categories": pa.array([f"{code:02d}" for code in range(20)]).dictionary_encode(),
    "days": pa.array(np.datetime64("1969-12-25") + np.arange(20)),
    "times": pa.array(np.datetime64("1969-12-31T23:59:50", "us") + np.arange(20)),
    "zoned times": pa.array(ZONED),
    "booleans": pa.array([code > 9 for code in range(20)]),
    "decimals": pa.array([decimal.Decimal(code) for code in range(20)]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_fit_of_many_batches_in_many_files_is_that_of_one_table(kind, small_batches, tmp_path):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 20, 200)
    x = 1e8 * (codes % 3) + rng.normal(size=200)
    table = pa.table({"other": codes, "x": x, "g": KINDS[kind].take(pa.array(codes))})
    paths = [tmp_path / f"{part}.parquet" for part in range(3)]
    for path, piece in zip(paths, (table[:90], table[90:90], table[90:]), strict=True):
        parquet.write_table(piece, path, row_group_size=40)
    found = fit_all(paths, tmp_path / "out.parquet")
    rows = table.to_pandas()
    expected = eb.GaussianEB().fit(rows[["x"]], groups=rows["g"].astype(str)).posterior()
    pd.testing.assert_frame_equal(
        found.assign(g=found["g"].astype(str)).sort_values("g", ignore_index=True),
        expected.to_frame(),
        rtol=1e-10,
        check_dtype=False,
    )
    assert found["g"].is_monotonic_increasing
    assert type(found["g"].iloc[0]) is type(rows["g"].iloc[0])


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_labels_of_many_files_are_numbers_if_all_are(suffix, small_batches, rows, tmp_path):
    rows = rows.rename(columns={"number": "g", "score": "x"})
    paths = [tmp_path / f"{part}{suffix}" for part in range(3)]
    for path, piece in zip(paths, (rows[:50], rows[50:50], rows[50:]), strict=True):
        piece.to_csv(path, index=False)
    out = tmp_path / "out.parquet"
    expected = eb.GaussianEB().fit(rows[["x"]], groups=rows["g"]).posterior().to_frame()
    pd.testing.assert_frame_equal(fit_all(paths, out), expected)
    last = write(tmp_path / "last.csv", "g,x\n01,1\n01,2\n")
    assert fit_all([*paths, last], out)["g"].tolist()[:3] == ["01", "1", "10"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_what_is_wrong_is_counted_over_batches(suffix, small_batches, rows, tmp_path):
    rows = rows[["fips", "score"]].set_axis(["g", "x"], axis=1)
    holes = rows.copy()
    holes.loc[[3, 20, 21, 22], "x"] = np.nan
    holes.loc[[21, 100], "g"] = None
    holes.loc[20, "g"] = "nobody"  # whose only row has no value
    paths = [tmp_path / f"{name}{suffix}" for name in ("whole", "holes")]
    for path, table in zip(paths, (rows, holes), strict=True):
        table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path)
    columns = ("--group", "g", "--value", "x")
    line = refusal("fit", *paths, *columns)
    assert line.startswith(f"ebfed: {paths[1]}: 5 of 120 rows are incomplete (2 without 'g' and 4")
    result = invoke("fit", *paths, *columns, "--na-action", "drop")
    assert result.stderr == "Left out 5 of 240 rows (2 without 'g' and 4 without 'x').\n"
    whole = pd.concat([rows, holes.dropna()])
    expected = eb.GaussianEB().fit(whole[["x"]], groups=whole["g"])
    assert str(expected.summary()) in result.stdout
    assert "nobody" not in result.stdout


def test_strange_values_are_counted_over_batches(small_batches, tmp_path):
    text = "g,x\n" + "a,1\n" * 30 + "a,n.a.\n" + "a,2\n" * 30 + "a,inf\n"
    line = refusal("fit", write(tmp_path / "a.csv", text), "--group", "g", "--value", "x")
    assert "2 of 62 values are not finite numbers, the first 'n.a.' in row 31" in line
    path = write(tmp_path / "b.csv", "g,x\na,1e308\na,1e308\na,-1e308\n")
    assert "too large for float64" in refusal("fit", path, "--group", "g", "--value", "x")


def test_files_that_do_not_belong_together(file, rows, tmp_path):
    columns = ("--group", "number", "--value", "score")
    rows.to_parquet(first := tmp_path / "first.parquet")
    rows.astype({"number": str}).to_parquet(second := tmp_path / "second.parquet")
    line = refusal("fit", first, second, *columns)
    assert line == f"ebfed: {second}: labels in 'number' are string, but int64 in {first}"
    assert "files of one kind" in refusal("fit", file, first, *columns)
    assert "is given twice" in refusal("fit", first, first, *columns)
    assert "2 files: no rows" in refusal(
        "fit", *[write(tmp_path / f"{k}.csv", "number,score\n") for k in "ab"], *columns
    )


def test_progress_is_shown_on_a_terminal_only(file, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for shown in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda shown=shown: shown)
        with _progress([file], delay=0) as progress:
            progress(file.stat().st_size / 2)
        assert ("B/s" in capsys.readouterr().err) == shown


def test_one_group_is_said_not_warned(tmp_path):
    path = write(tmp_path / "rows.csv", "g,x\na,1\na,2\n")
    result = invoke("fit", path, "--group", "g", "--value", "x")
    assert result.exit_code == 0, result.output
    assert "Note: Only one group has data" in result.stdout
    assert result.stderr == ""


def test_fit_a_subset(file, rows):
    options = ("--formula", "score ~ 1 + (1 | fips)")
    some = invoke("fit", file, *options, "--subset", "won == 1 & score > 0")
    assert some.exit_code == 0, some.output
    chosen = rows[(rows["won"] == 1) & (rows["score"] > 0)]
    assert f"{len(chosen)}" in some.stdout
    line = refusal("fit", file, *options, "--subset", "score >")
    assert "cannot be read" in line
    line = refusal("fit", file, "--group", "fips", "--value", "score", "--subset", "won == 1")
    assert "--subset goes with --formula" in line


def test_fit_a_formula(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"school": [f"0{i}" for i in range(10)] * 8, "hours": rng.normal(size=80)})
    rows["score"] = 3 + rows["hours"] + rng.normal(size=10).tolist() * 8 + rng.normal(size=80)
    rows.to_csv(tmp_path / "scores.csv", index=False)
    formula = "score ~ hours + (1 | school)"
    out, report = tmp_path / "out.csv", tmp_path / "fit.html"
    options = ["--formula", formula, "--out", str(out), "--report", str(report)]
    result = invoke("fit", tmp_path / "scores.csv", *options)
    assert result.exit_code == 0, result.output
    assert f"Formula:        {formula}" in result.stdout
    assert f"Wrote 10 groups to {out}" in result.stdout
    expected = eb.from_formula(formula, rows).posterior().to_frame()
    found = pd.read_csv(out, dtype={"school": str})
    assert found["school"].tolist() == expected["school"].tolist()
    np.testing.assert_allclose(found["estimate"], expected["estimate"])
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--formula", "y ~ x"], "no part that says who the groups are"),
        (["--formula", "value ~ zz + (1 | group)"], "term 'zz'"),
        (["--formula", "value | group", "--group", "group"], "give no --group"),
        (["--group", "group"], "give --group and --value, or --formula"),
        (["--formula", "value | group", "--report", "fit.txt"], "a report is an .html file"),
        (["--formula", "value | group", "--level", "2"], "between 0 and 1"),
    ],
)
def test_formulas_and_reports_that_cannot_be(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"group": [1, 1, 2, 2], "value": [1.0, 2, 3, 5]}).to_csv("rows.csv", index=False)
    assert message in refusal("fit", "rows.csv", *options)


@pytest.mark.parametrize("name", ["rows.csv", "./rows.csv", "link.csv"])
def test_data_are_not_overwritten(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    rows = write(tmp_path / "rows.csv", "g,v\n" + "".join(f"{i % 5},{i}\n" for i in range(20)))
    (tmp_path / "link.csv").symlink_to(rows)
    before = rows.read_text()
    line = refusal("fit", rows, "--group", "g", "--value", "v", "--out", name)
    assert "this is a file of the data" in line
    assert rows.read_text() == before


def test_results_may_be_compressed(tmp_path):
    rows = write(tmp_path / "rows.csv", "g,v\n" + "".join(f"{i % 5},{i}\n" for i in range(20)))
    assert invoke("fit", rows, "--group", "g", "--value", "v", "--out", tmp_path / "o.csv.gz")
    assert len(pd.read_csv(tmp_path / "o.csv.gz")) == 5


GERMAN = "schule;note;gewicht\nKöln;1,5;1\nKöln;2,5;2\nBonn;3,5;3\nBonn;4;4\nUlm;2;5\nUlm;1,25;6\n"
OF_GERMAN = ("--sep", ";", "--decimal", ",", "--encoding", "latin-1")


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
@pytest.mark.parametrize(
    "columns", [("--group", "schule", "--value", "note"), ("--formula", "note ~ 1 + (1 | schule)")]
)
def test_tables_of_a_german_spreadsheet(suffix, columns, small_batches, tmp_path):
    content = GERMAN.encode("latin-1")
    path, out = tmp_path / f"noten{suffix}", tmp_path / "out.parquet"
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    result = invoke("fit", path, *columns, *OF_GERMAN, "--out", out)
    assert result.exit_code == 0, result.output
    found = pd.read_parquet(out)
    assert found["schule"].tolist() == ["Bonn", "Köln", "Ulm"]
    plain = write(tmp_path / "plain.csv", GERMAN.replace(",", ".").replace(";", ","))
    assert invoke("fit", plain, *columns, "--out", out).exit_code == 0
    pd.testing.assert_frame_equal(found, pd.read_parquet(out))


@pytest.mark.parametrize(
    ("encoding", "sep", "given"),
    [("utf-8-sig", "\t", "tab"), ("utf-8-sig", "\t", "\\t"), ("utf-16", "|", "|")],
)
def test_other_separators_and_encodings(encoding, sep, given, tmp_path):
    (path := tmp_path / "rows.csv").write_bytes(GERMAN.replace(";", sep).encode(encoding))
    options = ("--sep", given, "--encoding", "utf-8" if "8" in encoding else encoding)
    columns = ("--group", "schule", "--value", "note", "--decimal", ",")
    result = invoke("fit", path, *columns, *options)
    assert result.exit_code == 0, result.output
    assert "Köln" in result.stdout


def test_numbers_with_the_other_decimal_sign_are_counted_alone(small_batches, tmp_path):
    text = "g;x\n" + "a;1,5\n" * 20 + "a;1.5\n" + "b;2,5\n" * 9
    path = write(tmp_path / "rows.csv", text)
    line = refusal("fit", path, "--group", "g", "--value", "x", "--sep", ";", "--decimal", ",")
    assert "1 of 30 values are not finite numbers, the first '1.5' in row 21" in line
    assert line.endswith("if this is a decimal point, give --decimal .")


def test_errors_name_the_option_that_helps(tmp_path):
    (path := tmp_path / "noten.csv").write_bytes(GERMAN.encode("latin-1"))
    ways = [("--group", "schule", "--value", "note"), ("--formula", "note ~ 1 + (1 | schule)")]
    for columns in ways:
        line = refusal("fit", path, *columns)
        assert "if ';' is between the columns, give --sep ';'" in line
        line = refusal("fit", path, *columns, "--sep", ";")
        assert "not in utf-8; give the encoding of the file, such as --encoding latin-1" in line
        line = refusal("fit", path, *columns, *OF_GERMAN[:2], *OF_GERMAN[4:])
        assert "if this is a decimal comma, give --decimal ," in line
    tabs = write(tmp_path / "tabs.csv", "g\tx\na\t1\n")
    assert refusal("fit", tabs, "--group", "g", "--value", "x").endswith("give --sep tab")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sep", "::"), "--sep must be one character, or tab; got '::'"),
        (("--sep", ""), "--sep must be one character"),
        (("--decimal", ";"), "--decimal must be a point or a comma; got ';'"),
        (("--decimal", ","), "--sep and --decimal are both ','"),
        (("--encoding", "klingon"), "--encoding must be one that Python knows"),
    ],
)
def test_dialects_that_cannot_be(options, message, file):
    assert message in refusal("fit", file, "--group", "fips", "--value", "score", *options)


def test_parquet_has_no_separator(rows, tmp_path):
    rows.to_parquet(path := tmp_path / "rows.parquet")
    for columns in (("--group", "fips", "--value", "score"), ("--formula", "score | fips")):
        line = refusal("fit", path, *columns, "--sep", ";")
        assert "--sep, --encoding and --decimal are for .csv files" in line


def test_text_files_that_are_cut_off(tmp_path):
    columns = ("--group", "g", "--value", "x")
    quoted = write(tmp_path / "quoted.csv", 'g,x\na,1\na,2\n"b,3\nb,4\n')
    assert "a quotation mark in row" in refusal("fit", quoted, *columns)
    short = write(tmp_path / "short.csv", "g,x\na,1\na,2\nb,3\nb")
    assert "1 of 4 rows are incomplete (1 without 'x')" in refusal("fit", short, *columns)


def test_parquet_files_that_are_cut_off(rows, tmp_path):
    rows = pd.concat([rows] * 50)
    rows["score"] += np.arange(len(rows)) * 1e-5
    rows.to_parquet(path := tmp_path / "rows.parquet")
    whole = path.read_bytes()
    columns = ("--group", "fips", "--value", "score")
    for content in (whole[: len(whole) // 2], b"", whole[:-4]):
        path.write_bytes(content)
        line = refusal("fit", path, *columns)
        assert f"{path}: this is no parquet file, or one that is cut off" in line
    middle = bytearray(whole)
    middle[200:2000] = bytes(1800)
    path.write_bytes(bytes(middle))
    assert f"{path}: " in refusal("fit", path, *columns)


TRIALS = pd.DataFrame(
    {
        "school": list("ABCDEFGH"),
        "effect": [28.0, 8, -3, 7, -1, 1, 18, 12],
        "se": [15.0, 10, 16, 11, 9, 11, 10, 18],
    }
)


@pytest.mark.parametrize("prior", [None, "npmle"])
def test_a_table_of_estimates_and_standard_errors(prior, tmp_path):
    TRIALS.to_csv(path := tmp_path / "trials.csv", index=False)
    columns = ("--group", "school", "--value", "effect", "--std-error", "se", "--level", 0.8)
    options = () if prior is None else ("--prior", prior)
    result = invoke("fit", path, *columns, *options, "--out", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    expected = eb.posterior_from(
        TRIALS["effect"], TRIALS["se"], prior or "normal", labels=TRIALS["school"]
    )
    found = pd.read_csv(tmp_path / "out.csv")
    pd.testing.assert_frame_equal(found, expected.to_frame(level=0.8), check_dtype=False)
    assert result.stdout.endswith(f"\n{expected.summary()}\n")
    printed = invoke("fit", path, *columns, *options).stdout
    assert printed.startswith("Estimates, with intervals of 80 %:\nschool ")
    assert "0 more groups" not in printed
    assert all(f"Note: {note}" in " ".join(printed.split()) for note in expected.notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--std-error", "sd"), "no column 'sd' (--std-error) among"),
        (("--std-error", "school"), "must name different columns"),
        (("--std-error", "city"), "column 'city' is not numeric"),
        (("--std-error", "se", "--family", "binomial"), "--std-error goes with"),
        (("--std-error", "se", "--report", "a.html"), "--report needs rows"),
        (("--std-error", "hole"), "1 of 8 rows are incomplete"),
        (("--std-error", "minus"), "std_errors must"),
        (("--std-error", "se", "--prior", "beta"), "got 'beta'"),
    ],
)
def test_standard_errors_that_cannot_be(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = TRIALS.assign(hole=[np.nan, *TRIALS["se"][1:]], minus=-TRIALS["se"], city="Ulm")
    table.to_csv("trials.csv", index=False)
    line = refusal("fit", "trials.csv", "--group", "school", "--value", "effect", *options)
    assert message in line


def test_estimates_may_share_a_label(tmp_path):
    """As two studies of one author: each has its own parameter, and no row is lost."""
    pd.concat([TRIALS, TRIALS]).to_csv(path := tmp_path / "trials.csv", index=False)
    out = tmp_path / "out.csv"
    columns = ("--group", "school", "--value", "effect", "--std-error", "se")
    assert invoke("fit", path, *columns, "--out", out).exit_code == 0
    assert pd.read_csv(out)["school"].tolist() == [*TRIALS["school"], *TRIALS["school"]]


def test_groups_of_one_row_are_advised_what_the_command_takes(tmp_path):
    TRIALS.to_csv(path := tmp_path / "trials.csv", index=False)
    result = invoke("fit", path, "--group", "school", "--value", "effect")
    assert result.exit_code == 0, result.output
    assert "at the command line --std-error" in " ".join(result.stdout.split())


def test_the_estimates_come_first(file):
    result = invoke("fit", file, "--group", "fips", "--value", "score")
    assert result.stdout.startswith("Estimates, with intervals of 95 %:\n fips")
    assert result.stdout.index("more groups") < result.stdout.index("GaussianEB")


def test_a_reader_that_has_enough_is_no_error(file, tmp_path):
    """As in `ebfed fit … | head -1`: the pipe is closed before anything is written."""
    code = "from ebfed.cli.app import app; app()"
    options = ["fit", str(file), "--group", "fips", "--value", "score"]
    for arguments in (options, ["study"], ["--help"]):
        read, written = os.pipe()
        os.close(read)
        command = [sys.executable, "-c", code, *arguments]
        ended = subprocess.run(command, stdout=written, stderr=subprocess.PIPE, check=False)
        os.close(written)
        assert ended.stderr == b"", arguments
