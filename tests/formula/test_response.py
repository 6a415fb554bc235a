"""The response of a formula: what `predict` says of it, labels, shares of trials, exposures."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.metrics import r2_score

import ebfed as eb
from ebfed.report.view import view_of

RNG = np.random.default_rng(4)
M, N = 30, 240
G = np.repeat(np.arange(M), 8)
X = RNG.normal(size=N)
YEARS = RNG.uniform(1, 40, N)
U = RNG.normal(0, 0.5, M)
CHANCE = 1 / (1 + np.exp(-U[G] - X))
ROWS = pd.DataFrame({"g": G, "h": np.arange(N) % 7, "x": X, "years": YEARS})
ROWS["events"] = RNG.poisson(YEARS * np.exp(-1 + U[G] + 0.4 * X))
ROWS["hit"] = (RNG.random(N) < CHANCE).astype(int)
ROWS["word"] = np.where(ROWS["hit"] == 1, "yes", "no")
ROWS["n"] = RNG.integers(2, 9, N)
ROWS["k"] = RNG.binomial(ROWS["n"], CHANCE)
ROWS["p"] = ROWS["k"] / ROWS["n"]
# One formula for each estimator of counts: PoissonEB, GeneralizedEB and CrossedEB.
COUNTED = {
    "PoissonEB": "events ~ offset(log(years)) | g",
    "GeneralizedEB": "events ~ x + offset(log(years)) + (1 | g)",
    "CrossedEB": "events ~ x + offset(log(years)) + (1 | g) + (1 | h)",
}
BINARY = ["{} | g", "{} ~ 1 + (1 | g)", "{} ~ x + (1 | g)", "{} ~ x + (1 | g) + (1 | h)"]


@pytest.mark.parametrize("formula", COUNTED.values(), ids=COUNTED)
def test_predictions_of_counts_have_their_exposure(formula, tmp_path):
    fit = eb.from_formula(formula, ROWS, family="poisson")
    found = fit.predict()
    assert abs((ROWS["events"] - found).sum()) < 0.02 * ROWS["events"].sum()
    np.testing.assert_allclose(fit.predict(type="rate") * YEARS, found, rtol=1e-9)
    shown = fit.augment()
    np.testing.assert_array_equal(shown[".fitted"], found)
    np.testing.assert_allclose(shown[".resid"], ROWS["events"] - found)
    twice = ROWS.assign(years=2 * YEARS)
    np.testing.assert_allclose(fit.predict(twice), 2 * found, rtol=1e-9)
    without = ROWS.drop(columns=["years", "events"])
    np.testing.assert_allclose(fit.predict(without, type="rate"), fit.predict(type="rate"))
    with pytest.raises(ValueError, match="'years' is neither a column of data"):
        fit.predict(without)
    strangers = without.assign(years=5.0).drop(columns="g")
    assert (fit.predict(strangers) > 2 * fit.predict(strangers, type="rate")).all()
    with pytest.raises(
        ValueError, match="type must be one of 'response', 'rate', 'link'; got 'count'"
    ):
        fit.predict(type="count")
    fit.save(tmp_path / "fit.json")
    again = eb.load_fit(tmp_path / "fit.json")
    np.testing.assert_array_equal(again.predict(ROWS), found)
    np.testing.assert_array_equal(again.predict(ROWS, type="rate"), fit.predict(type="rate"))
    assert fit.score(ROWS) == pytest.approx(r2_score(ROWS["events"], found), rel=1e-9)
    if hasattr(fit.estimator_, "predict_interval"):
        low, high = fit.predict_interval(kind="mean")
        rate = fit.predict_interval(without, kind="rate")
        np.testing.assert_allclose(np.array(rate) * YEARS, [low, high], rtol=1e-9)


@pytest.mark.parametrize("formula", COUNTED.values(), ids=COUNTED)
def test_offsets_that_are_missing(formula):
    data = ROWS.assign(le=np.log(YEARS))
    fit = eb.from_formula(formula.replace("log(years)", "le"), data, family="poisson")
    gap = data.assign(le=data["le"].where(G != 3))
    for call in (fit.predict, fit.augment):
        with pytest.raises(ValueError, match="offset 'le' must be a finite number in each row"):
            call(gap)
    with pytest.raises(ValueError, match="column 'le' has 8 missing values"):
        fit.score(gap)


@pytest.mark.parametrize("family", ["negative_binomial", "poisson"])
def test_formulas_of_counts_have_one_kind_of_score(family):
    """The model that has the covariate wins, whichever estimator it is."""
    seen = np.arange(N) % 4 > 0
    data = ROWS.assign(years=YEARS[G])  # the negative binomial has one exposure for a group
    fits = [
        eb.from_formula(text, data[seen], family=family)
        for text in (COUNTED["PoissonEB"], COUNTED["GeneralizedEB"])
    ]
    table = eb.compare(*fits, held_out=data[~seen])
    error = [np.mean((fit.predict(data[~seen]) - data["events"][~seen]) ** 2) for fit in fits]
    expected = 1 - np.array(error) / np.var(data["events"][~seen])
    np.testing.assert_allclose(table["score"], expected, rtol=1e-9)
    assert table["score"].is_monotonic_increasing == (error[0] > error[1])
    assert table["density"].notna().tolist() == [True, False]
    assert table["density"].iloc[0] == fits[0].log_density(data[~seen])
    with pytest.raises(TypeError, match="has no log predictive density"):
        fits[1].log_density(data)


@pytest.mark.parametrize("formula", BINARY)
def test_two_labels_are_an_event_and_the_other(formula, tmp_path):
    """The same fit as of 0 and 1, and probabilities of the second label, by every formula."""
    expected = eb.from_formula(formula.format("hit"), ROWS, family="binomial")
    chance = expected.predict()
    assert chance.dtype == float
    assert 0 < chance.min() < chance.max() < 1
    np.testing.assert_array_equal(expected.augment()[".fitted"], chance)
    np.testing.assert_allclose(expected.predict_proba(), np.column_stack([1 - chance, chance]))
    np.testing.assert_allclose(expected.augment()[".resid"], ROWS["hit"] - chance)
    assert expected.score(ROWS) == pytest.approx(r2_score(ROWS["hit"], chance), rel=1e-9)
    upside_down = pd.Categorical(np.where(ROWS["hit"] == 1, "a", "b"), ["b", "a"])
    for label in (
        ROWS["word"],
        ROWS["hit"] == 1,
        ROWS["hit"] + 1,
        ROWS["word"].astype("category"),
        upside_down,
    ):
        fit = eb.from_formula(formula.format("y"), ROWS.assign(y=label), family="binomial")
        np.testing.assert_allclose(fit.predict(), chance, rtol=1e-10)
        np.testing.assert_allclose(fit.augment()[".resid"], expected.augment()[".resid"])
        assert fit.score(ROWS.assign(y=label)) == pytest.approx(expected.score(ROWS))
    assert fit.classes_.tolist() == ["b", "a"]
    assert "The event is y = 'a'." in " ".join(str(fit.summary()).split())
    fit.save(tmp_path / "fit.json")
    again = eb.load_fit(tmp_path / "fit.json")
    assert again.score(ROWS.assign(y=upside_down)) == fit.score(ROWS.assign(y=upside_down))
    with pytest.raises(ValueError, match=r"has 'c'; the fit had 'b', 'a'"):
        fit.score(ROWS.assign(y="c"))
    new = view_of(fit.estimator_).is_server or fit.predict(ROWS.head(3).drop(columns="hit"))
    np.testing.assert_allclose(new, chance[:3], rtol=1e-10)


def test_labels_of_polars_and_others():
    table = pl.from_pandas(ROWS)
    expected = eb.from_formula("hit ~ 1 + (1 | g)", ROWS, family="binomial").predict()
    order = pl.Enum(["yes", "no"])  # the event is the second level: no
    for column, chance in ((table["word"], expected), (table["word"].cast(order), 1 - expected)):
        data = table.with_columns(y=column)
        found = eb.from_formula("y ~ 1 + (1 | g)", data, family="binomial").predict()
        np.testing.assert_allclose(found, chance, rtol=1e-6)
    message = (
        r"response 'y' must be 0 or 1, or have two labels, for BernoulliEB; it has 3: 'a', 'b'"
    )
    with pytest.raises(ValueError, match=message):
        eb.from_formula("y | g", ROWS.assign(y=list("abc") * 80), family="binomial")
    with pytest.raises(ValueError, match="must be numbers for LinearEB"):
        eb.from_formula("word ~ x + (1 | g)", ROWS)
    cut = eb.from_formula("x | g", ROWS, eb.BernoulliEB(binarize=0.0))
    np.testing.assert_allclose(
        cut.predict(),
        eb.from_formula("y | g", ROWS.assign(y=X > 0), family="binomial").predict(),
    )


def test_durations_are_predicted_as_events():
    data = pd.DataFrame({"g": G, "hours": RNG.exponential(1.0, N)})
    fit = eb.from_formula("hours ~ 1 + (1 | g)", data, eb.DurationEB())
    own = eb.DurationEB().fit(data[["g", "hours"]], groups="g")
    np.testing.assert_allclose(fit.predict(), own.predict(data[["g", "hours"]]))
    np.testing.assert_allclose(fit.predict(type="rate"), own.predict()[G])
    np.testing.assert_allclose(fit.augment()[".resid"], own.augment(data[["g", "hours"]])[".resid"])
    assert fit.score(data) == pytest.approx(own.score(data[["g", "hours"]]))
    table = eb.compare(fit, own, held_out=data[["g", "hours"]])
    assert table["score"].iloc[0] == pytest.approx(table["score"].iloc[1])


def test_probabilities_of_more_classes():
    kinds = np.array(["a", "b", "c"])[RNG.integers(0, 3, N)]
    data = ROWS.assign(kind=kinds)
    fit = eb.from_formula("kind | g", data, family="categorical")
    share = fit.predict()
    assert share.shape == (N, 3)
    np.testing.assert_allclose(share.sum(axis=1), 1)
    np.testing.assert_array_equal(share[0], fit.estimator_.predict()[0])
    assert fit.augment()[".fitted"].tolist() == np.array(["a", "b", "c"])[share.argmax(1)].tolist()
    one_hot = kinds[:, None] == np.array(["a", "b", "c"])
    off = ((one_hot - share) ** 2).sum() / ((one_hot - one_hot.mean(0)) ** 2).sum()
    assert fit.score(data) == pytest.approx(1 - off)


def test_categories_in_order_are_those_of_the_fit():
    grade = pd.Categorical(np.array(["low", "mid", "top"])[RNG.integers(0, 3, N)])
    grade = grade.reorder_categories(["low", "mid", "top"], ordered=True)
    data = ROWS.assign(grade=grade)
    fit = eb.from_formula("grade ~ x + (1 | g)", data, family="ordinal")
    few = data[data["grade"] != "low"].assign(grade=lambda d: d["grade"].astype(str))
    expected = fit.augment()[".resid"][few.index]
    np.testing.assert_allclose(fit.augment(few)[".resid"], expected)


@pytest.mark.parametrize(
    "formula", ["{} ~ 1 + (1 | g)", "{} ~ x + (1 | g)", "{} ~ x + (1|g) + (1|h)"]
)
def test_shares_with_weights_are_those_of_trials(formula):
    """As ``glm(p ~ x, weights = n)`` of R: the fit of ``cbind(k, trials=n)``."""
    counts = eb.from_formula(formula.format("cbind(k, trials=n)"), ROWS)
    named = eb.from_formula(formula.format("p"), ROWS, family="binomial", weights="n")
    given = eb.from_formula(formula.format("p"), ROWS, family="binomial", weights=ROWS["n"])
    rounded = ROWS.assign(p=ROWS["p"].round(4))
    rough = eb.from_formula(formula.format("p"), rounded, family="binomial", weights="n")
    for fit in (named, given, rough):
        assert fit.log_likelihood_ == pytest.approx(counts.log_likelihood_, rel=1e-12)
        np.testing.assert_allclose(fit.predict(), counts.predict(), rtol=1e-9)
        np.testing.assert_allclose(fit.augment()[".resid"], counts.augment()[".resid"], atol=1e-4)
    assert named.score(ROWS) == pytest.approx(counts.score(ROWS), rel=1e-9)
    with pytest.raises(ValueError, match="must be a whole number of successes; row 0 has"):
        eb.from_formula(formula.format("p"), ROWS.assign(p=0.3), family="binomial", weights="n")


def test_residuals_of_shares_are_of_rows():
    """Those of the same model by GeneralizedEB, whose rows have trials."""
    formula = "cbind(k, trials=n) ~ x + (1 | g)"
    fit = eb.from_formula(formula, ROWS)
    shares = eb.from_formula("p ~ x + (1 | g)", ROWS, family="binomial", weights="n")
    other = eb.from_formula(formula, ROWS, eb.GeneralizedEB("binomial"))
    assert isinstance(fit.estimator_, eb.GeneralizedEB)
    with pytest.raises(ValueError, match=r"GeneralizedEB\('binomial'\) fits rows of several"):
        eb.from_formula(formula, ROWS, eb.LogisticEB())
    for kind in ("response", "pearson", "deviance"):
        found = fit.residuals(kind=kind)
        np.testing.assert_allclose(found, other.residuals(kind=kind), atol=1e-3)
        np.testing.assert_allclose(found, shares.residuals(kind=kind), atol=1e-9)
        marginal = fit.residuals(kind=kind, conditional=False)
        np.testing.assert_allclose(
            marginal, other.residuals(kind=kind, conditional=False), atol=1e-3
        )
    np.testing.assert_array_equal(fit.residuals(), fit.augment()[".resid"])
    assert fit.residuals(ROWS[:7], kind="quantile").shape == (7,)
    assert np.std(fit.residuals(kind="quantile")) == pytest.approx(1, abs=0.15)  # three errors
    with pytest.raises(ValueError, match="has shares: weights= must be the numbers of trials"):
        eb.from_formula("p ~ x + (1 | g)", ROWS, family="binomial")
    for formula in ("h ~ x + (1 | g)", "h | g"):  # of two values, too
        with pytest.raises(ValueError, match="has shares: weights= must be the numbers of trials"):
            eb.from_formula(formula, ROWS.assign(h=0.5 * (ROWS["p"] > 0.5)), family="binomial")


@pytest.mark.parametrize("formula", ["{} ~ x + (1 | g)", "{} ~ x + (1 | h/g)"])
def test_rows_of_several_trials_are_rows(formula):
    """Likelihood and number of rows are those of crossed fits, and of nested ones, of the rows."""
    other = eb.from_formula("cbind(k, trials=n) ~ x + (1 | g) + (1 | h)", ROWS)
    for response, options in (
        ("cbind(k, trials=n)", {}),
        ("p", {"family": "binomial", "weights": "n"}),
    ):
        fit = eb.from_formula(formula.format(response), ROWS, **options)
        assert fit.glance()["nobs"].item() == other.glance()["nobs"].item() == N
        # the models differ by a few units; that of single trials was 400 lower
        assert fit.log_likelihood_ == pytest.approx(other.log_likelihood_, abs=10)


def test_score_compares_among_formulas_of_one_response():
    """BernoulliEB and LogisticEB; of estimators it stays their own, and does not mix."""
    rates = eb.from_formula("hit | g", ROWS, family="binomial")
    logits = eb.from_formula("hit ~ 1 + (1 | g)", ROWS, family="binomial")
    table = eb.compare(beta=rates, logit=logits, held_out=ROWS)
    assert table["score"].iloc[0] == pytest.approx(table["score"].iloc[1], abs=0.01)
    own = eb.BernoulliEB().fit(ROWS[["g", "hit"]], groups="g")
    assert rates.log_density(ROWS) == pytest.approx(own.score(ROWS[["g", "hit"]]))
    with pytest.raises(ValueError, match="held_out needs fits whose scores compare"):
        eb.compare(rates, own, held_out=ROWS[["g", "hit"]])
    spread = eb.from_formula("x ~ 1 + (1 | g)", ROWS, family="variance")
    assert spread.score(ROWS) == spread.log_density(ROWS)


def test_expressions_keep_what_they_learned_from_the_rows_of_the_fit(tmp_path):
    """The mean of a response, or of an offset, is that of the fit, for whatever rows."""
    rng = np.random.default_rng(8)
    groups = np.repeat(np.arange(12), 6)
    x, days = rng.normal(size=72), rng.uniform(1, 9, 72)
    rows = pd.DataFrame({"x": x, "g": groups, "days": days, "y": 5 + x + rng.normal(size=72)})
    rows["n"] = rng.poisson(days)
    some, mean = rows.iloc[:9], rows["y"].mean()
    fit = eb.from_formula("center(y) ~ x + (1 | g)", rows)
    direct = eb.from_formula("y0 ~ x + (1 | g)", rows.assign(y0=rows["y"] - mean))
    expected = direct.score(some.assign(y0=some["y"] - mean))
    assert fit.score(some) == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(fit.augment(some)[".resid"], fit.augment()[".resid"][:9], atol=1e-12)
    counts = eb.from_formula("n ~ x + offset(center(days)) + (1 | g)", rows, family="poisson")
    np.testing.assert_allclose(counts.predict(some), counts.predict()[:9], rtol=1e-12)
    counts.save(tmp_path / "fit.json")
    again = eb.load_fit(tmp_path / "fit.json")
    np.testing.assert_array_equal(again.predict(some), counts.predict(some))


def test_a_mean_of_a_private_response_stays_with_its_owner():
    rng = np.random.default_rng(8)
    rows = pd.DataFrame({"g": np.repeat(np.arange(12), 6), "y": rng.uniform(0, 1, 72)})
    channel = eb.channels.Gaussian(epsilon=1.0, delta=1e-6)
    guess = eb.channels.Guess(mean=(-1, 1), spread=1)
    private = {"channel": channel, "guess": guess, "random_state": 0, "variances": 1.0}
    fit = eb.from_formula("center(y) ~ 1 + (1 | g)", rows, **private)
    with pytest.raises(ValueError, match=r"'center\(y\)' keeps figures of the rows"):
        fit.published()
    assert eb.from_formula("y ~ 1 + (1 | g)", rows, **private).published().predict is not None


def test_levels_of_an_order_that_no_row_has():
    """They are dropped, in the middle, at the ends, or by a subset."""
    grade = np.where(ROWS["years"] > 28, "d", np.where(ROWS["years"] > 15, "b", "a"))

    def fit(levels, **options):
        y = pd.Categorical(grade, list(levels), ordered=True)
        return eb.from_formula("y ~ x + (1 | g)", ROWS.assign(y=y), family="ordinal", **options)

    plain = fit("abd")
    for levels in ("zabd", "abcd", "abdz"):
        found = fit(levels)
        assert found.log_likelihood_ == plain.log_likelihood_
        assert found.response.levels == ("a", "b", "d")
    assert fit("abd", subset="years > 15").response.levels == ("b", "d")


@pytest.mark.parametrize("kind", ["mean", "row"])
def test_intervals_of_binary_rows_are_those_of_one_trial(kind):
    """They were refused, where rows of trials had them."""
    fit = eb.from_formula("hit ~ x + (1 | g)", ROWS, family="binomial")
    twin = eb.from_formula("hit ~ x + (1 | g)", ROWS, eb.GeneralizedEB("binomial"))
    assert type(fit.estimator_) is eb.LogisticEB
    found, expected = (each.predict_interval(ROWS, kind=kind) for each in (fit, twin))
    # the two searches end within 1e-4 of the spread
    np.testing.assert_allclose(found, expected, atol=1e-4)
    low, high = found
    assert ((low <= fit.predict()) & (fit.predict() <= high)).all()
    with pytest.raises(ValueError, match="type='rate' is for rows that may have exposures"):
        fit.predict_interval(ROWS, kind="rate")


@pytest.mark.parametrize("formula", BINARY)
def test_predictions_of_no_rows(formula):
    fit = eb.from_formula(formula.format("hit"), ROWS, family="binomial")
    assert fit.predict(ROWS.head(0)).shape == (0,)
    assert fit.predict_proba(ROWS.head(0)).shape == (0, 2)


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_a_response_is_evaluated_once_in_a_fit(family):
    asked = []

    def halved(values):
        asked.append(len(values))
        return values / 2

    rows = ROWS.assign(y=2.0 * (ROWS["p"] if family == "binomial" else X + U[G]))
    given = {"weights": "n", "family": family, "context": {"halved": halved}}
    fit = eb.from_formula("halved(y) ~ x + (1 | g)", rows, **given)
    assert asked == [N]
    expected = eb.from_formula("y ~ x + (1 | g)", rows.assign(y=rows["y"] / 2), **given)
    np.testing.assert_array_equal(fit.mean_, expected.mean_)


@pytest.mark.parametrize("cell", [".", "1_000", "\N{ARABIC-INDIC DIGIT THREE}"])
def test_a_response_that_is_no_number_is_shown_with_its_row(cell):
    rows = ROWS.assign(y=ROWS["x"].astype(str).where(ROWS.index != 4, cell))
    wrong = f"'y' must be numbers for LinearEB; got {cell!r} in row 4."
    with pytest.raises(ValueError, match=re.escape(wrong)):
        eb.from_formula("y ~ x + (1 | g)", rows)
