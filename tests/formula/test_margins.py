"""Marginal means, slopes and their contrasts: beside emmeans, and what must hold of them."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from r_fits import data_of, fit_of, stored
from scipy.special import expit
from scipy.stats import norm, t

import ebfed as eb

MARGINS = stored("margins")
ASKED = {
    ("cake", "recipe"): ("recipe", {}),
    ("cake", "recipe:temp"): (["recipe", "temp"], {}),
    ("fewer", "variety"): ("variety", {}),
    ("fewer", "slopes"): ("variety", {"slope": "nitro"}),
    ("fewer", "at"): ("variety", {"at": {"nitro": 0.5}}),
}


@pytest.mark.parametrize(("case", "what"), ASKED)
def test_means_and_slopes_are_those_of_emmeans(case, what):
    """Optimisers of both stop near the optimum: degrees of freedom to 1e-3 of themselves."""
    expected = MARGINS[(MARGINS["case"] == case) & (MARGINS["what"] == what)]
    expected = expected.set_index("label").sort_index()
    terms, options = ASKED[case, what]
    found = fit_of(case).margins(terms, ddf="kenward-roger", **options).frame()
    names = [terms] if isinstance(terms, str) else terms
    found.index = found[names].agg(" ".join, axis=1).str.replace("Golden.rain", "GoldenRain")
    found = found.sort_index()
    assert found.index.tolist() == expected.index.tolist()
    np.testing.assert_allclose(found["estimate"], expected["estimate"], rtol=1e-4)
    np.testing.assert_allclose(found["std.error"], expected["std_error"], rtol=1e-4)
    np.testing.assert_allclose(found["df"], expected["df"], rtol=1e-3)


@pytest.mark.parametrize("adjust", ["none", "tukey"])
def test_pairs_are_those_of_emmeans(adjust):
    what = "pairs" if adjust == "none" else "pairs_tukey"
    expected = MARGINS[(MARGINS["case"] == "cake") & (MARGINS["what"] == what)]
    found = fit_of("cake").margins("recipe", ddf="kenward-roger").pairs(adjust)
    assert found["contrast"].tolist() == expected["label"].tolist()
    for name, in_r in {"estimate": "estimate", "std.error": "std_error"}.items():
        np.testing.assert_allclose(found[name], expected[in_r], rtol=1e-4)
    np.testing.assert_allclose(found["p.value"], expected["p_value"], rtol=1e-3)
    width = found["conf.high"] - found["conf.low"]
    alone = 2 * t.ppf(0.975, found["df"]) * found["std.error"]
    assert np.allclose(width, alone) == (adjust == "none")
    assert (width >= alone * (1 - 1e-12)).all()


def test_adjustments_are_in_their_order():
    means = fit_of("cake").margins(["recipe", "temp"])
    p = {name: means.pairs(name)["p.value"] for name in ("none", "holm", "bonferroni")}
    assert (p["none"] <= p["holm"] + 1e-12).all()
    assert (p["holm"] <= p["bonferroni"] + 1e-12).all()
    n = len(p["none"])
    np.testing.assert_allclose(p["bonferroni"], np.minimum(p["none"] * n, 1))


def test_a_contrast_is_a_weighted_sum():
    means = fit_of("cake").margins("recipe")
    found = means.contrast({"A against the rest": [1, -0.5, -0.5]}).iloc[0]
    estimate = means.frame()["estimate"].to_numpy()
    assert found["estimate"] == pytest.approx(estimate[0] - estimate[1:].mean())
    with pytest.raises(ValueError, match="must be 3 numbers"):
        means.contrast({"short": [1, -1]})
    with pytest.raises(ValueError, match="'tukey' is of all pairs"):
        means.contrast({"A": [1, 0, 0]}, adjust="tukey")


def test_proportional_weights_are_those_of_rows():
    """With an interaction the mean over rows is the mean of the fixed part of rows."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"g": np.repeat(np.arange(40), 5)})
    rows["kind"] = rng.choice(["a", "b", "c"], 200, p=[0.6, 0.3, 0.1])
    rows["y"] = rows["kind"].map({"a": 0.0, "b": 1.0, "c": 4.0}) + rng.normal(size=200)
    fit = eb.from_formula("y ~ kind + (1 | g)", rows)
    expected = fit.augment()[".fixed"].mean()
    assert fit.margins(weights="proportional").frame()["estimate"][0] == pytest.approx(expected)
    equal = fit.margins("kind").frame()["estimate"].mean()
    assert fit.margins().frame()["estimate"][0] == pytest.approx(equal)


def test_a_new_group_has_the_spread_of_groups():
    rows = data_of("sleepstudy")
    fit = eb.from_formula("Reaction ~ 1 + Days + (1 | Subject)", rows)
    typical, new = (
        fit.margins("Days", at={"Days": [0, 9]}, group=group).frame()
        for group in ("typical", "new")
    )
    np.testing.assert_allclose(new["estimate"], typical["estimate"])
    added = new["std.error"] ** 2 - typical["std.error"] ** 2
    np.testing.assert_allclose(added, fit.estimator_.covariance_[0, 0])
    levels = fit_of("oats").margins("variety", group="new").frame()["std.error"] ** 2
    alone = fit_of("oats").margins("variety").frame()["std.error"] ** 2
    spreads = fit_of("oats").tidy().query("group in ('block', 'variety', 'block:variety')")
    np.testing.assert_allclose(levels - alone, (spreads["estimate"] ** 2).sum(), rtol=1e-8)


def test_responses_of_classes_and_counts():
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"g": np.repeat(np.arange(60), 8), "x": rng.normal(size=480)})
    z = -0.5 + rows["x"] + rng.normal(0, 0.5, 60)[rows["g"]]
    rows["won"], rows["n"] = rng.binomial(1, expit(z)), rng.poisson(np.exp(z))
    for response, family, inverse in (("won", "binomial", expit), ("n", "poisson", np.exp)):
        fit = eb.from_formula(f"{response} ~ x + (1 | g)", rows, family=family)
        means = fit.margins("x", at={"x": [-1.0, 0.0, 1.0]}, ddf="asymptotic")
        link, found = means.frame(), means.frame(scale="response")
        np.testing.assert_allclose(found["estimate"], inverse(link["estimate"]))
        np.testing.assert_allclose(found["conf.high"], inverse(link["conf.high"]))
        near = 1e-5
        slope = (inverse(link["estimate"] + near) - inverse(link["estimate"] - near)) / (2 * near)
        np.testing.assert_allclose(found["std.error"], link["std.error"] * slope, rtol=1e-6)
        half = norm.ppf(0.95) * link["std.error"]
        np.testing.assert_allclose(means.frame(0.9)["conf.low"], link["estimate"] - half)
        line = fit.margins(slope="x").frame()["estimate"][0]
        assert line == pytest.approx(fit.fixef()["estimate"].iloc[-1], rel=1e-6)


def test_factors_of_other_columns_and_of_other_frames():
    rng = np.random.default_rng(2)
    rows = pl.DataFrame({"g": np.repeat(np.arange(30), 6), "year": np.tile([1990, 1995, 2000], 60)})
    rows = rows.with_columns(y=pl.lit(rng.normal(size=180)), x=pl.lit(rng.normal(size=180)))
    fit = eb.from_formula("y ~ C(year) + x + (1 | g)", rows)
    found = fit.margins("year").frame()
    assert isinstance(found, pl.DataFrame)
    assert found["year"].to_list() == [1990, 1995, 2000]
    moved = fit.margins("year", data=rows.with_columns(x=pl.col("x") + 1)).frame()
    slope = fit.fixef().filter(pl.col("term") == "x")["estimate"][0]
    np.testing.assert_allclose(moved["estimate"] - found["estimate"], slope)
    assert "estimate" in repr(fit.margins("year"))


@pytest.mark.parametrize("kind", ["bool", "boolean", "bool[pyarrow]"])
def test_truths_have_two_levels(kind):
    rng = np.random.default_rng(3)
    rows = pd.DataFrame({"g": np.repeat(np.arange(12), 8), "x": rng.normal(size=96)})
    rows["late"] = rng.random(96) < 0.3
    rows["y"] = rng.normal(size=96) + rows["late"] * rows["x"]
    named = rows.assign(late=np.where(rows["late"], "yes", "no"))
    terms, text = ("late", ()), "y ~ late * x + (1 | g)"
    fits = [eb.from_formula(text, each) for each in (rows.astype({"late": kind}), named)]
    for term in terms:
        of_truths, of_names = (fit.margins(term).frame() for fit in fits)
        if term:
            assert of_truths["late"].tolist() == [False, True]
        columns = ["estimate", "std.error", "conf.low"]
        np.testing.assert_allclose(of_truths[columns], of_names[columns], rtol=1e-6)
    share = [fit.margins(weights="proportional").frame()["estimate"][0] for fit in fits]
    assert share[0] == pytest.approx(share[1])
    with pytest.raises(ValueError, match="is a factor and has no slope"):
        fits[0].margins(slope="late")


def test_what_cannot_be_is_refused():
    fit = fit_of("fewer")
    with pytest.raises(ValueError, match="'block' is not a column of the terms of all groups"):
        fit.margins("block")
    with pytest.raises(ValueError, match="'depth' is not a column"):
        fit.margins("variety", at={"depth": 3})
    with pytest.raises(ValueError, match="is a factor and has no slope"):
        fit.margins(slope="variety")
    for name in ("weights", "group"):
        with pytest.raises(ValueError, match=f"{name} must be"):
            fit.margins("variety", **{name: "all"})
    means = fit.margins("variety")
    with pytest.raises(ValueError, match="adjust must be"):
        means.pairs("scheffe")
    with pytest.raises(ValueError, match="scale must be"):
        means.frame(scale="logit")
    with pytest.raises(ValueError, match="a level must lie"):
        means.frame(95)
    with pytest.raises(ValueError, match="had no 'Perfection'"):
        fit.margins("variety", at={"variety": ["Perfection"]})
    location = eb.from_formula(
        "Reaction ~ 1 + (1 | Subject)", data_of("sleepstudy"), eb.GaussianEB()
    )
    with pytest.raises(TypeError, match="has no tests"):
        location.margins()


@pytest.mark.parametrize("shift", [0.0, 1e5])
def test_slopes_at_the_ends_of_a_spline_are_those_within(shift):
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 9, 200) + shift
    data = pd.DataFrame({"x": x, "g": np.arange(200) % 9, "y": np.sin(x) + rng.normal(size=200)})
    fit = eb.from_formula("y ~ bs(x, df=5) + (1 | g)", data)
    for end, inward in ((x.min(), 1e-4), (x.max(), -1e-4)):
        found = fit.margins(slope="x", at={"x": end}).frame()["estimate"][0]
        ends = fit.margins("x", at={"x": [end, end + inward]}).frame()["estimate"]
        assert found == pytest.approx((ends[1] - ends[0]) / inward, abs=1e-2)
    middle = 5 + shift
    square = eb.from_formula(f"y ~ x + I((x - {middle})**2) + (1 | g)", data)
    slope = square.margins(slope="x", at={"x": x.min()}).frame()["estimate"][0]
    *_, first, second = square.fixef()["estimate"]
    assert slope == pytest.approx(first + 2 * second * (x.min() - middle), rel=1e-6)
