"""Formula fits as estimators of scikit-learn: arguments, clones, pickles; and rows they read."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

import ebfed as eb

RNG = np.random.default_rng(5)
G = np.repeat(np.arange(24), 5)
X = RNG.normal(size=120)
ROWS = pd.DataFrame({"g": G, "x": X, "kind": list("ab") * 60, "w": RNG.integers(1, 4, 120)})
ROWS["y"] = 2 + RNG.normal(size=24)[G] + X + RNG.normal(size=120)
ROWS["count"] = RNG.poisson(np.exp(0.3 * X))
ROWS["won"] = np.where(RNG.random(120) < 0.5, "won", "lost")
scale = 2.0
FITS = {
    "linear": ("y ~ x * kind + (1 + x | g)", {"method": "ml"}),
    "context": ("y ~ np.log(abs(x) + scale) + (1 | g)", {"subset": "x < scale"}),
    "labels": ("won ~ x + (1 | g)", {"family": "binomial"}),
    "rates": ("won | g", {"family": "binomial", "prior": "npmle"}),
    "counts": ("count ~ x + (1 | g)", {"family": "poisson", "weights": "w"}),
    "given": ("y ~ x + (1 | g)", {"estimator": eb.LinearEB(method="ml")}),
}


@pytest.mark.parametrize("name", FITS)
def test_clones_fit_again(name):
    formula, options = FITS[name]
    fit = eb.from_formula(formula, ROWS, **options)
    for twin in (
        clone(fit),
        pickle.loads(pickle.dumps(clone(fit))),
        eb.formula.FormulaFit(formula, **options),
    ):
        assert not hasattr(twin, "estimator_")
        assert repr(twin) == f"<FormulaFit of {formula!r}, not fitted>"
        with pytest.raises(NotFittedError, match="call fit with the rows of a frame first"):
            twin.predict(ROWS)
        assert twin.fit(ROWS) is twin
        np.testing.assert_array_equal(twin.predict(ROWS), fit.predict(ROWS))
        assert str(twin.summary()) == str(fit.summary())
    half = clone(fit).fit(ROWS[: 60 * 1])
    assert len(half.groups_) < len(fit.groups_)
    again = pickle.loads(pickle.dumps(fit))
    np.testing.assert_array_equal(clone(again).fit(ROWS).predict(ROWS), fit.predict(ROWS))


def test_arguments_are_those_of_from_formula():
    fit = eb.from_formula("y ~ x + (1 | g)", ROWS, method="ml", weights="w")
    params = fit.get_params()
    assert params["formula"] == "y ~ x + (1 | g)"
    assert params["method"] == "ml"
    assert params["weights"] == "w"
    assert params["family"] is None
    assert eb.formula.FormulaFit(**params).get_params() == params
    changed = clone(fit).set_params(formula="y ~ x + kind + (1 | g)", method="reml", weights=None)
    expected = eb.from_formula("y ~ x + kind + (1 | g)", ROWS)
    np.testing.assert_array_equal(changed.fit(ROWS).predict(), expected.predict())
    own = eb.from_formula("y ~ x + (1 | g)", ROWS, eb.LinearEB())
    assert own.get_params()["estimator__method"] == "reml"
    assert own.set_params(estimator__method="ml").fit(ROWS).estimator_.method == "ml"
    with pytest.raises(ValueError, match="LinearEB has no argument 'nonsense'"):
        clone(fit).set_params(nonsense=1).fit(ROWS)
    assert is_regressor(fit)
    assert not is_classifier(fit)


def test_validation_by_scikit_learn():
    fit = eb.from_formula("y ~ x + (1 | g)", ROWS)
    scores = cross_val_score(fit, ROWS, cv=3)
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()
    search = GridSearchCV(fit, {"formula": ["y ~ x + (1 | g)", "y ~ 1 + (1 | g)"]}, cv=4)
    assert search.fit(ROWS).best_params_ == {"formula": "y ~ x + (1 | g)"}


def test_what_a_clone_keeps_of_its_caller():
    """Names that the formula uses, and no others."""
    fit = eb.from_formula(*FITS["context"][:1], ROWS, subset="x < scale")
    assert set(fit.get_params()["context"]) == {"np", "scale"}


def test_clones_of_fits_from_files(tmp_path):
    fit = eb.from_formula("won ~ x + (1 | g)", ROWS, family="binomial", weights="w")
    fit.save(tmp_path / "fit.json")
    again = clone(eb.load_fit(tmp_path / "fit.json")).fit(ROWS)
    np.testing.assert_allclose(again.predict(), fit.predict(), rtol=1e-12)


def test_published_fits_keep_nothing_of_single_rows():
    channel = eb.channels.Gaussian(epsilon=1.0, delta=1e-5)
    given = {"subset": X > -9, "channel": channel, "variances": 1.0}
    private = eb.from_formula(
        "y | g", ROWS, guess=eb.channels.Guess(mean=(-5, 5), spread=1.0), **given
    )
    assert private.get_params()["subset"] is given["subset"]
    assert private.published().get_params()["subset"] is None
    weighed = eb.from_formula("y | g", ROWS, weights=ROWS["w"])
    assert weighed.published().get_params()["weights"] == "(weights)"


@pytest.mark.parametrize("formula", ["y ~ x * kind + (1 | g)", "y ~ 1 + (1 | g)", "won | g"])
def test_rows_as_mappings_and_series(formula):
    family = "binomial" if "won" in formula else None
    fit = eb.from_formula(formula, ROWS, family=family)
    expected = fit.predict(ROWS.iloc[[7, 8]])
    some = {"x": X[7:9], "kind": ["b", "a"], "g": G[7:9]}
    np.testing.assert_array_equal(fit.predict(some), expected)
    np.testing.assert_array_equal(fit.predict(some | {"x": X[7:9].tolist()}), expected)
    np.testing.assert_array_equal(fit.predict(ROWS.iloc[7]), expected[:1])
    np.testing.assert_array_equal(fit.predict({"x": X[7], "kind": "b", "g": G[7]}), expected[:1])
    np.testing.assert_array_equal(fit.predict(pl.DataFrame(some)), expected)
    both = fit.predict({"x": X[7:9], "kind": "b", "g": 1})
    np.testing.assert_array_equal(both[:1], fit.predict(ROWS.iloc[[7]].assign(g=1)))
    assert len(fit.augment(ROWS.iloc[7])) == 1
    for wrong in ([1.0, 2.0], ROWS["x"], 3.0, "x"):
        with pytest.raises((TypeError, ValueError), match=r"data must be a frame|column of data"):
            fit.predict(wrong)


@pytest.mark.parametrize("library", ["pandas", "polars", "dates", "zone", "period"])
def test_dates_are_days_since_1970(library):
    day = RNG.integers(0, 700, 120)
    date = pd.Series(pd.Timestamp("2019-03-01") + pd.to_timedelta(day, unit="D"))
    rows = ROWS.assign(day=date, number=(date - pd.Timestamp("1970-01-01")).dt.days, span=0)
    rows["span"] = date - date.min()
    expected = eb.from_formula("y ~ number * kind + (1 | g)", rows)
    data = {
        "pandas": rows,
        "polars": pl.from_pandas(rows),
        "dates": rows.assign(day=rows["day"].dt.date),
        "period": rows.assign(day=rows["day"].dt.to_period("D")),
        "zone": rows.assign(day=rows["day"].dt.tz_localize("UTC")),
    }[library]
    fit = eb.from_formula("y ~ day * kind + (1 | g)", data)
    np.testing.assert_allclose(fit.predict(), expected.predict(), rtol=1e-8)
    np.testing.assert_allclose(fit.predict(data[:3]), expected.predict()[:3], rtol=1e-8)
    later = {"day": [pd.Timestamp("2021-06-01")], "kind": ["a"], "g": [3]}
    days = {"number": [(later["day"][0] - pd.Timestamp("1970-01-01")).days]}
    np.testing.assert_allclose(fit.predict(later), expected.predict(later | days), rtol=1e-8)
    np.testing.assert_allclose(
        fit.margins("kind").frame()["estimate"],
        expected.margins("kind").frame()["estimate"],
        rtol=1e-6,
    )
    slope = fit.margins(slope="day").frame()["estimate"]
    np.testing.assert_allclose(
        slope, expected.margins(slope="number").frame()["estimate"], rtol=1e-5
    )
    span = eb.from_formula("y ~ span * kind + (1 | g)", data)
    np.testing.assert_allclose(span.predict(), expected.predict(), rtol=1e-8)
    levels = eb.from_formula("y ~ C(day > '2020-01-01') + (1 | g)", rows)
    assert len(levels.fixef()) == 2


def test_pairs_of_labels_that_look_alike_are_refused():
    rows = pd.DataFrame({"y": np.arange(24.0) % 7, "day": np.arange(24) % 4})
    rows["f"], rows["h"] = np.repeat(["a:b", "a", "z"], 8), np.repeat(["c", "b:c", "c"], 8)
    with pytest.raises(ValueError, match=r"'f:h' has one label, 'a:b:c', for two pairs"):
        eb.from_formula("y ~ 1 + (1 | f:h) + (1 | day)", rows)
    rows["f"] = rows["f"].replace("a", "12:30")  # colons alone are no harm
    fit = eb.from_formula("y ~ 1 + (1 | f:h) + (1 | day)", rows)
    assert len(fit.posterior(level="f:h").mean) == 3
