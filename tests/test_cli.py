"""The command line: what it prints, writes and refuses."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ebfed as eb
from ebfed import kernels
from ebfed.cli import app

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


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    number = np.repeat(np.arange(1, 21), 6)
    return pd.DataFrame(
        {
            "fips": [f"{k:05d}" for k in number],
            "number": number,
            "score": rng.normal(number, 4.0).round(3),
            "won": rng.integers(0, 2, len(number)),
        }
    )


@pytest.fixture
def file(rows, tmp_path):
    path = tmp_path / "rows.csv"
    rows.to_csv(path, index=False)
    return path


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_help_loads_nothing_heavy():
    command = [sys.executable, "-X", "importtime", "-m", "ebfed", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {
        line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()
    }
    assert "typer" in loaded
    assert not loaded & {"numpy", "pandas", "numba", "sklearn", "scipy", "matplotlib", "narwhals"}
    for command in ("county", "fit", "warm"):
        assert command in done.stdout


def test_version():
    assert invoke("--version").stdout == f"ebfed {eb.__version__}\n"


@pytest.mark.parametrize("command", ["county", "fit", "warm"])
def test_help_of_commands(command):
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 100


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
    parquet = tmp_path / "rows.parquet"
    rows.to_parquet(parquet)
    outputs = []
    indexed = tmp_path / "indexed.parquet"
    rows.set_index("number").to_parquet(indexed)
    for path in (file, parquet, indexed):
        result = invoke("fit", path, "--group", "number", "--value", "score")
        assert result.exit_code == 0, result.output
        outputs.append(result.stdout)
    assert outputs[0] == outputs[1] == outputs[2]


@pytest.mark.parametrize("prior", ["beta", "npmle"])
def test_fit_rates(file, rows, prior):
    options = ["--model", "bernoulli", "--prior", prior]
    result = invoke("fit", file, "--group", "fips", "--value", "won", *options)
    assert result.exit_code == 0, result.output
    expected = eb.BernoulliEB(prior=prior).fit(rows[["won"]], groups=rows["fips"])
    assert str(expected.summary()) in result.stdout


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


def test_missing_rows_are_refused_or_counted(rows, tmp_path):
    rows["score"] = rows["score"].astype(object)
    rows.loc[[0, 1], "score"] = ["NA", None]
    rows.loc[[1, 2, 3], "fips"] = ["", " ", None]
    path = tmp_path / "rows.csv"
    rows.to_csv(path, index=False)
    columns = ("--group", "fips", "--value", "score")
    line = refusal("fit", path, *columns)
    assert "4 of 120 rows are incomplete (3 without 'fips' and 2 without 'score')" in line
    assert "--drop-missing" in line
    result = invoke("fit", path, *columns, "--drop-missing")
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("Left out 4 of 120 rows")
    complete = rows.iloc[4:].astype({"score": float})
    expected = eb.GaussianEB().fit(complete[["score"]], groups=complete["fips"])
    assert str(expected.summary()) in result.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "No columns"),
        ("g,x\n", "no rows"),
        ("h,x\na,1\n", "no column 'g' (--group) among 'h', 'x'"),
        ("g,y\na,1\n", "no column 'x' (--value) among 'g', 'y'"),
        ("g,x\na,1\na,2\nb,n.a.\nb,3\n", "1 of 4 values are not finite numbers, the first 'n.a.'"),
        ("g,x\na,1\na,inf\n", "the first 'inf' in row 2"),
        ("g,x\na,\n,1\n", "2 of 2 rows are incomplete"),
        ("g,x\na,1\na,1,5\n", "Expected 2 fields in line 3, saw 3"),
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
    line = refusal("fit", path, "--group", "g", "--value", "x", "--drop-missing")
    assert "no complete rows" in line


def test_other_mistakes(file, rows, tmp_path, monkeypatch):
    columns = ("--group", "fips", "--value", "score")
    assert "no such file" in refusal("fit", tmp_path / "none.csv", *columns)
    assert "both name" in refusal("fit", file, "--group", "fips", "--value", "fips")
    assert "only 0 and 1" in refusal("fit", file, *columns, "--model", "bernoulli")
    assert "'beta' came" in refusal("fit", file, *columns, "--prior", "beta")
    assert "level must lie" in refusal("fit", file, *columns, "--level", 2)
    assert ".parquet, not '.xlsx'" in refusal("fit", file, *columns, "--out", "a.xlsx")
    assert "no such directory" in refusal("fit", file, *columns, "--out", tmp_path / "a" / "b.csv")
    write(latin := tmp_path / "latin.csv", "").write_bytes("fips,score\nKöln,1\n".encode("latin1"))
    assert "codec can't decode" in refusal("fit", latin, *columns)
    write(fake := tmp_path / "fake.parquet", "no parquet")
    assert "fake.parquet" in refusal("fit", fake, *columns)
    rows.assign(score=pd.Timestamp("2024-01-01")).to_parquet(dates := tmp_path / "dates.parquet")
    assert "dates, not numbers" in refusal("fit", dates, *columns)
    assert invoke("fit", file, "--group", "fips").exit_code == 2
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert 'pip install "ebfed[parquet]"' in refusal("fit", fake, *columns)


def test_one_group_is_said_not_warned(tmp_path):
    path = write(tmp_path / "rows.csv", "g,x\na,1\na,2\n")
    result = invoke("fit", path, "--group", "g", "--value", "x")
    assert result.exit_code == 0, result.output
    assert "Note: Only one group has data" in result.stdout
    assert result.stderr == ""


def test_county(tmp_path):
    result = invoke("county", "--json", "--out", tmp_path / "results")
    assert result.exit_code == 0, result.output
    study = json.loads(result.stdout)
    assert study["n_counties"] == 3111
    assert len(study["folds"]) == 42
    assert result.stderr.count("Wrote ") == 6
    assert len(list((tmp_path / "results").iterdir())) == 6


def test_county_refuses_a_file_for_a_directory(file):
    assert "File exists" in refusal("county", "--out", file)


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_warm_leaves_nothing_to_compile(rows):
    result = invoke("warm")
    assert result.exit_code == 0, result.output
    assert "Cache: " in result.stdout
    ready = {name: list(getattr(kernels, name).signatures) for name in kernels.__all__}
    assert all(ready.values()), "ebfed warm reaches every kernel"
    eb.GaussianEB().fit(rows[["score", "won"]], groups=rows["number"]).predict()
    eb.GaussianEB().fit(rows["score"], groups=rows["number"] * 10**9)
    eb.BernoulliEB().fit(rows[["won", "fips"]], groups="fips").predict()
    eb.GaussianEB().fit(rows["score"].to_list(), groups=rows["fips"].to_list())
    assert ready == {name: list(getattr(kernels, name).signatures) for name in kernels.__all__}
