"""Offsets of numbers: what is left of the response is regressed, and predictions add them again."""

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

import ebfed as eb

RNG = np.random.default_rng(5)
ROWS = pd.DataFrame({"g": np.repeat(np.arange(20), 6), "x": RNG.normal(size=120)})
ROWS["s"], ROWS["z"] = ROWS["g"] // 5, RNG.normal(0, 3, 120)
ROWS["w"] = RNG.uniform(0.5, 2, 120)
ROWS["y"] = ROWS["z"] + ROWS["x"] + RNG.normal(size=20)[ROWS["g"]] + RNG.normal(size=120)
LEFT = ROWS.assign(y=ROWS["y"] - 2 * ROWS["z"])
MODELS = {
    "y ~ x + {}(1 | g)": {},
    "y ~ 1 + {}(1 + x | g)": {"method": "ml"},
    "y ~ x + {}(1 | s/g)": {},
    "y ~ {}(1 | g)": {"weights": "w"},
    "y ~ x + {}(1 | g) ": {"dispersion": "s"},
}


@pytest.mark.parametrize("formula", MODELS)
def test_a_formula_with_an_offset_is_that_of_the_response_less_it(formula):
    """As ``lmer(y ~ x + offset(2 * z) + (1 | g))``; it was refused."""
    given = MODELS[formula]
    fit = eb.from_formula(formula.format("offset(2 * z) + "), ROWS, **given)
    left = eb.from_formula(formula.format(""), LEFT, **given)
    pd.testing.assert_frame_equal(fit.tidy(), left.tidy())
    assert fit.log_likelihood_ == left.log_likelihood_
    moved = 2 * ROWS["z"].to_numpy()
    np.testing.assert_allclose(fit.predict(), left.predict() + moved)
    np.testing.assert_allclose(fit.residuals(), left.residuals(), atol=1e-12)
    np.testing.assert_allclose(
        fit.residuals(conditional=False), left.residuals(conditional=False), atol=1e-12
    )
    for found, expected in zip(fit.predict_interval(), left.predict_interval(), strict=True):
        np.testing.assert_allclose(found, expected + moved)
    for kept in (True, False):
        found, expected = (each.simulate(conditional=kept)["sim_1"] for each in (fit, left))
        np.testing.assert_allclose(found, expected + moved)
    augmented = fit.augment()
    np.testing.assert_allclose(augmented[".resid"], ROWS["y"] - augmented[".fitted"])
    np.testing.assert_allclose(augmented[".fixed"], left.augment()[".fixed"] + moved)
    ones, others = fit.posterior(ROWS), left.posterior(LEFT)
    np.testing.assert_allclose(ones.mean, others.mean)
    total, rest = (np.sum((ROWS["y"] - c) ** 2) for c in (ROWS["y"].mean(), fit.predict()))
    if "weights" not in given:
        assert fit.score(ROWS) == pytest.approx(1 - rest / total)


def test_an_estimator_takes_offsets_as_arrays_or_columns(tmp_path):
    frame = ROWS[["x", "z", "g", "y"]]
    by_name = eb.LinearEB().fit(frame, "y", groups="g", offset="z")
    by_array = eb.LinearEB().fit(
        ROWS[["x"]], ROWS["y"].to_numpy(), groups=ROWS["g"], offset=ROWS["z"].to_numpy()
    )
    left = eb.LinearEB().fit(ROWS[["x"]], ROWS["y"] - ROWS["z"], groups=ROWS["g"])
    for fit in (by_name, by_array):
        np.testing.assert_array_equal(fit.mean_, left.mean_)
    expected = left.predict(ROWS[["x"]], groups=ROWS["g"]) + ROWS["z"]
    np.testing.assert_allclose(by_name.predict(frame), expected)
    by_name.save(tmp_path / "fit.json")
    np.testing.assert_allclose(eb.load_fit(tmp_path / "fit.json").predict(frame), expected)
    np.testing.assert_allclose(
        by_array.predict(ROWS[["x"]], groups=ROWS["g"], offset=ROWS["z"]), expected
    )
    np.testing.assert_allclose(by_name.augment(frame, "y")[".fitted"], expected)
    assert by_name.score(frame, "y") == pytest.approx(
        by_array.score(ROWS[["x"]], ROWS["y"], groups=ROWS["g"], offset=ROWS["z"])
    )
    parts = eb.LinearEB()
    for half in (ROWS["g"] < 10, ROWS["g"] >= 10):
        parts.partial_fit(frame[half], "y", groups="g", offset="z")
    np.testing.assert_allclose(parts.mean_, left.mean_, rtol=1e-9)


@pytest.mark.parametrize("kind", ["polars", "duckdb"])
def test_tables_whose_rows_are_elsewhere(kind, tmp_path):
    ROWS.to_parquet(path := tmp_path / "rows.parquet", index=False)
    table = pl.scan_parquet(path) if kind == "polars" else duckdb.sql(f"FROM '{path}'")
    formula = "y ~ x + offset(2 * z) + (1 + x | g)"
    fit, here = eb.from_formula(formula, table), eb.from_formula(formula, ROWS)
    np.testing.assert_allclose(fit.tidy()["estimate"], here.tidy()["estimate"], rtol=1e-6)
    found = fit.predict(table)
    found = found.collect() if kind == "polars" else found.pl()
    found = found.sort("y")[".fitted"].to_numpy()
    np.testing.assert_allclose(found, here.predict(ROWS.sort_values("y")), rtol=1e-6)
    with pytest.raises(ValueError, match="offset= needs the rows of X in memory"):
        eb.LinearEB().fit(table, "y", groups="g", offset="z")
