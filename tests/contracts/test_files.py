"""One table in a file gives the same estimates, whichever options of the command line read it."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ebfed as eb
from ebfed.cli.app import app

RNG = np.random.default_rng(11)
# What spreadsheets, R and Python write for a missing number, and others write for a place.
ODD = ["NA", "nan", "NaN", "None", "null", "N/A", "n/a", "<NA>", "n", " x", "x", "True", "1", "007"]
KINDS = {
    "odd": ODD,
    "countries": ["DE", "FR", "NA", "ZA"],
    "integers": [3, 1, 12, 5],
    "zeros": ["03", "01", "12"],
    "truths": [True, False],
    "dates": ["2024-01-31", "2023-12-01", "2024-02-01"],
    "mixed": ["a", 1, 2, "b"],
    "decimals": [1.5, 2.5, 10.0],
}
every = pytest.mark.parametrize("kind", KINDS)


def table(kind, n=12):
    labels = KINDS[kind] * n
    return pd.DataFrame(
        {"g": labels, "v": RNG.normal(np.arange(len(labels)) % len(KINDS[kind]), 1).round(3)}
    )


def fitted(path, *options):
    out = path.with_suffix(".out.csv")
    result = CliRunner().invoke(app, ["fit", *map(str, (path, *options, "--out", out))])
    assert result.exit_code == 0, result.output
    return pd.read_csv(out, dtype={"g": str}, keep_default_na=False)


@pytest.mark.filterwarnings("ignore:g has labels that differ by white space:UserWarning")
@every
@pytest.mark.parametrize("blank", [False, True])
def test_options_and_formula_read_the_same_labels(kind, blank, tmp_path):
    """Also where a label and a value are missing, and the rows are dropped."""
    rows = table(kind)
    expected = {str(label) for label in KINDS[kind]}
    if blank:
        rows["g"], rows["v"] = rows["g"].astype(object), rows["v"].astype(object)
        rows.loc[0, "g"], rows.loc[1, "g"] = "", "  "
        rows.loc[2, "v"], rows.loc[3, "v"] = "", "NA"
    rows.to_csv(path := tmp_path / "rows.csv", index=False)
    dropping = ["--na-action", "drop"] * blank
    named = fitted(path, "--group", "g", "--value", "v", *dropping)
    written = fitted(path, "--formula", "v | g", *dropping)
    assert set(named["g"]) == set(written["g"]) == expected
    pd.testing.assert_frame_equal(named, written, rtol=1e-12)


# Cells, options, and the formula of the model that --group and --value are.
VALUES = {
    "blank": (["1,5", " ", "NA", "2,5"], ["--decimal", ","], "v | g"),
    "truths": (["TRUE", "FALSE", "NA", " "], ["--family", "binomial"], "v | g"),
    "spaces": ([" 1.5", "2.5 ", "3", "None"], [], "v | g"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_options_and_formula_read_the_same_values(kind, tmp_path):
    cells, options, formula = VALUES[kind]
    rows = "".join(f"{'abcd'[i // 8 % 4]};{cells[(i * i + i // 5) % 4]}\n" for i in range(96))
    (path := tmp_path / "rows.csv").write_text("g;v\n" + rows)
    options = ["--sep", ";", *options, "--na-action", "drop"]
    named = fitted(path, "--group", "g", "--value", "v", *options)
    written = fitted(path, "--formula", formula, *options)
    pd.testing.assert_frame_equal(named, written, rtol=1e-12)
    assert 0 < named["n"].sum() < 96


@pytest.mark.parametrize("kind", ["countries", "integers", "truths", "dates"])
def test_parquet_and_text_give_the_same_estimates(kind, tmp_path):
    rows = table(kind)
    if kind == "dates":
        rows["g"] = pd.to_datetime(rows["g"]).dt.date
    rows["g"] = rows["g"].astype(object)
    rows.loc[5, "g"] = None
    rows.to_csv(text := tmp_path / "rows.csv", index=False)
    rows.to_parquet(binary := tmp_path / "rows.parquet", index=False)
    rows.set_index("g").to_parquet(indexed := tmp_path / "indexed.parquet")
    options = ["--group", "g", "--value", "v", "--na-action", "drop"]
    expected = fitted(text, *options)
    formula = ["--formula", "v | g", "--na-action", "drop"]
    for path in (binary, indexed):
        pd.testing.assert_frame_equal(fitted(path, *options), expected, rtol=1e-12)
        pd.testing.assert_frame_equal(fitted(path, *formula), expected, rtol=1e-12)


def test_levels_of_a_factor_are_text_and_numbers_are_missing(tmp_path):
    """A treatment called None is one; NA among numbers is missing, also beside true and false."""
    n = 40
    rows = pd.DataFrame(
        {"g": np.repeat(list("abcd"), 10), "arm": ["None", "NA", "drug", "nan"] * 10}
    )
    rows["x"] = RNG.normal(size=n).round(3).astype(object)
    rows["open"] = np.where(RNG.random(n) < 0.5, "TRUE", "FALSE")
    rows["y"] = RNG.normal(size=n).round(3)
    rows.loc[0, "x"], rows.loc[1, "open"], rows.loc[2, "arm"] = "NA", "NA", ""
    rows.to_csv(path := tmp_path / "rows.csv", index=False)
    formula = "y ~ arm + x + open + (1 | g)"
    result = CliRunner().invoke(
        app, ["fit", str(path), "--formula", formula, "--na-action", "drop"]
    )
    assert result.exit_code == 0, result.output
    for name in ("arm[T.None]", "arm[T.drug]", "arm[T.nan]", " open "):
        assert name in result.stdout, result.stdout
    assert "(3 rows with missing values left" in result.stdout
    kept = rows[3:].astype({"x": float}).assign(open=lambda each: each["open"] == "TRUE")
    expected = eb.from_formula(formula, kept).fixef()
    for term, estimate in zip(expected["term"], expected["estimate"], strict=True):
        assert f"{estimate:.4g}"[:5] in result.stdout, (term, result.stdout)


@pytest.mark.parametrize(
    ("formula", "more", "written"),
    [
        ("y ~ x + z + (1 + x + z | g)", "and 21 more groups", "Wrote 25 groups"),
        ("y ~ 1 + (1 | s/g)", "and 40 more groups", "Wrote 50 groups"),
        ("y ~ x + (1 | g) + (1 | s)", "and 17 more groups", "Wrote 27 groups"),
    ],
)
def test_groups_are_counted_not_rows(formula, more, written, tmp_path):
    rng = np.random.default_rng(5)
    s, g = np.repeat([0, 1], 250), np.tile(np.arange(25), 20)
    rows = pd.DataFrame({"s": s, "g": g, "x": rng.normal(size=500), "z": rng.normal(size=500)})
    rows["y"] = rng.normal(size=25)[g] + rows["x"] + rng.normal(size=500)
    rows.to_csv(path := tmp_path / "rows.csv", index=False)
    command = ["fit", str(path), "--formula", formula]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert more in result.stdout, result.stdout
    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out.parquet")])
    assert written in result.stdout, result.output


def test_parquet_with_an_infinite_value_says_where(tmp_path):
    rows = table("countries").assign(v=lambda each: each["v"].where(each.index != 3, np.inf))
    rows.to_parquet(path := tmp_path / "rows.parquet")
    result = CliRunner().invoke(app, ["fit", str(path), "--group", "g", "--value", "v"])
    assert result.exit_code == 2
    assert "1 of 48 values are not finite numbers, the first 'inf' in row 4" in " ".join(
        result.stderr.split()
    )
