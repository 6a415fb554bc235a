"""Meta-analyses: metafor's figures, statsmodels, and the formulas in full matrices."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects

import ebfed as eb
from ebfed.likelihoods import Gaussian

REFERENCE = Path(__file__).parents[1] / "reference"
# sums in another order
ROUNDING = 1e-9

BCG = pd.read_csv(REFERENCE / "bcg.csv")
EFFECTS = eb.effect_sizes(
    BCG["cases"], BCG["vaccinated"], BCG["control_cases"], BCG["controls"], labels=BCG["study"]
)
X, S = EFFECTS["estimate"].to_numpy(), EFFECTS["std_error"].to_numpy()
W = BCG[["latitude", "year"]]


def test_figures_of_metafor_to_their_last_digit():
    found = eb.meta_analysis(X, S)
    values = {"tau2": found.tau2, "estimate": found.estimate, "std_error": found.std_error}
    values |= dict(zip(("lower", "upper"), found.interval, strict=True))
    values |= dict(zip(("new_lower", "new_upper"), found.prediction_interval, strict=True))
    values |= {"q": found.q, "i2": 100 * found.i2, "h2": found.h2}
    figures = pd.read_csv(REFERENCE / "metafor.csv", dtype=str)
    assert set(figures["name"]) == values.keys()
    for name, figure in figures.itertuples(index=False):
        digits = len(figure.split(".")[1])
        assert f"{values[name]:.{digits}f}" == figure, name
    assert found.q_p_value < 1e-4
    assert found.random_effects.degrees == 12


@pytest.mark.parametrize(("method", "theirs"), [("dl", "chi2"), ("pm", "iterated")])
def test_figures_of_statsmodels(method, theirs):
    expected = combine_effects(X, S**2, method_re=theirs)
    # its iteration stops where Q is within 1e-5 of its expectation
    near = 1e-5 if method == "pm" else ROUNDING
    found = eb.meta_analysis(X, S, method=method)
    assert found.tau2 == pytest.approx(expected.tau2, rel=near)
    assert found.estimate == pytest.approx(expected.mean_effect_re, rel=near)
    assert found.std_error == pytest.approx(expected.sd_eff_w_re, rel=near)
    np.testing.assert_allclose(found.share, expected.weights_re / expected.weights_re.sum(), near)
    assert found.q == pytest.approx(expected.q, rel=ROUNDING)
    knha = eb.meta_analysis(X, S, method=method, test="knha")
    assert knha.std_error == pytest.approx(expected.sd_eff_w_re_hksj, rel=near)
    np.testing.assert_allclose(knha.interval, expected.conf_int(use_t=True)[3], rtol=near)
    if method == "dl":
        # theirs are (Q - df) / Q and Q / df, equal to ours for this method
        assert found.i2 == pytest.approx(expected.i2, rel=ROUNDING)
        assert found.h2 == pytest.approx(expected.h2, rel=ROUNDING)


@pytest.mark.parametrize("method", ["reml", "ml", "pm", "dl"])
@pytest.mark.parametrize("test", ["z", "knha"])
def test_a_meta_regression_is_generalised_least_squares(method, test):
    found = eb.meta_analysis(X, S, W, method=method, test=test)
    A = np.column_stack([np.ones(13), W])
    weights = np.diag(1 / (found.tau2 + S**2))
    covariance = np.linalg.inv(A.T @ weights @ A)
    beta = covariance @ A.T @ weights @ X
    rest = X - A @ beta
    if test == "knha":
        covariance = covariance * (rest @ weights @ rest) / 10
    law = stats.norm if test == "z" else stats.t(10)
    # the year of 1950 has three digits more than its spread
    np.testing.assert_allclose(found.coefficients, beta, rtol=1e-6)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-6)
    np.testing.assert_allclose(found.p_values, 2 * law.sf(np.abs(beta / found.std_errors)), 1e-5)
    wald = beta[1:] @ np.linalg.inv(covariance[1:, 1:]) @ beta[1:]
    if test == "z":
        expected = wald, stats.chi2.sf(wald, 2)
    else:
        expected = wald / 2, stats.f.sf(wald / 2, 2, 10)
    np.testing.assert_allclose(found.moderator_test, expected, rtol=1e-5)
    table = found.predict(pd.DataFrame({"year": [1980], "latitude": [10]}))
    at = np.array([1.0, 10, 1980])
    error = np.sqrt(at @ covariance @ at)
    centre, reach = at @ beta, law.ppf(0.975)
    new = np.sqrt(error**2 + found.tau2)
    row = [centre, error, centre - reach * error, centre + reach * error]
    row += [centre - reach * new, centre + reach * new]
    np.testing.assert_allclose(table.to_numpy()[0], row, rtol=1e-6)
    np.testing.assert_allclose(found.predict()["estimate"], A @ beta, rtol=1e-6)
    alone = eb.meta_analysis(X, S, method=method).tau2
    assert found.r2 == pytest.approx(max(0, 1 - found.tau2 / alone), rel=ROUNDING)
    assert found.terms == ["intercept", "latitude", "year"]


def test_equal_errors_have_closed_forms():
    x = np.array([0.1, 0.4, 0.8, 1.5, 0.3])
    found = eb.meta_analysis(x, np.full(5, 0.2))
    spread = x.var(ddof=1)
    assert found.tau2 == pytest.approx(spread - 0.04, rel=ROUNDING)
    assert found.estimate == pytest.approx(x.mean(), rel=ROUNDING)
    assert found.std_error == pytest.approx(np.sqrt(spread / 5), rel=ROUNDING)
    assert found.i2 == pytest.approx(1 - 0.04 / spread, rel=ROUNDING)
    assert found.h2 == pytest.approx(spread / 0.04, rel=ROUNDING)
    # the sampling variance of the mean is that of the studies: Knapp and Hartung change nothing
    knha = eb.meta_analysis(x, np.full(5, 0.2), test="knha")
    assert knha.std_error == pytest.approx(found.std_error, rel=ROUNDING)
    half = stats.t(4).ppf(0.975) * found.std_error
    assert knha.interval == pytest.approx((x.mean() - half, x.mean() + half), rel=ROUNDING)
    assert found.random_effects.variance_error == pytest.approx(
        spread * np.sqrt(2 / 4), rel=ROUNDING
    )


def test_studies_are_shrunk_to_the_mean():
    found = eb.meta_analysis(X, S, labels=BCG["study"])
    table = found.to_frame()
    away = S**2 / (found.tau2 + S**2)
    np.testing.assert_allclose(table["estimate"], X + away * (found.estimate - X), rtol=ROUNDING)
    assert table["share"].sum() == pytest.approx(1)
    assert list(table["study"]) == list(BCG["study"])
    lower, upper = eb.posterior_from(X, S).interval()
    np.testing.assert_allclose(table[["lower", "upper"]], np.hstack([lower, upper]), rtol=ROUNDING)


def test_intervals_of_the_variance():
    """At its ends, the weighted sum of squares is at the quantiles of chi-squared."""
    found = eb.meta_analysis(X, S, W, level=0.9)
    A = np.column_stack([np.ones(13), W])
    for tau2, share in zip(found.tau2_interval, (0.95, 0.05), strict=True):
        root = np.sqrt(S**2 + tau2)
        rest = np.linalg.lstsq(A / root[:, None], X / root)[1][0]
        assert rest == pytest.approx(stats.chi2.ppf(share, 10), rel=1e-6)
    low, high = found.i2_interval
    assert low < found.i2 < high


def test_studies_that_do_not_differ():
    x = 0.3 + 0.3 * S * np.cos(np.arange(13))
    found = eb.meta_analysis(x, S)
    assert (found.tau2, found.i2, found.h2) == (0, 0, 1)
    assert found.tau2_interval == (0, 0)
    assert found.estimate == pytest.approx(np.average(x, weights=S**-2), rel=ROUNDING)
    assert found.prediction_interval == pytest.approx(found.interval)
    assert "tau^2 is estimated as zero" in found.summary()


def test_studies_that_are_all_alike():
    """Knapp and Hartung's variance is zero: nothing is divided by it, and the summary says so."""
    found = eb.meta_analysis([1.0, 1.0, 1.0], [0.1, 0.2, 0.3], test="knha")
    assert found.std_error == 0
    assert found.tidy()["statistic"][0] == np.inf
    assert "compare with" in found.summary()
    moderated = eb.meta_analysis([1.0, 2.0, 3.0, 4.0], [0.1] * 4, [1, 2, 3, 4], test="knha")
    assert moderated.moderator_test[1] < 1e-6
    assert "compare with" not in eb.meta_analysis(X, S, test="knha").summary()


def test_ratios():
    found = eb.meta_analysis(X, S)
    plain, ratios = found.tidy(), found.tidy(exponentiate=True)
    for name in ("estimate", "conf.low", "conf.high"):
        assert ratios[name][0] == pytest.approx(np.exp(plain[name][0]))
        assert ratios[name][1] == plain[name][1]  # the variance stays
    assert list(plain["term"]) == ["mean", "tau2"]
    text = found.summary(exponentiate=True)
    assert "0.4894" in text
    low, high = np.exp(found.prediction_interval)
    assert f"in a new study: {low:.5g} to {high:.5g}" in text


def test_the_summary_has_the_figures():
    text = repr(eb.meta_analysis(X, S, W["latitude"], test="knha"))
    for part in ("Knapp-Hartung", "75.63% of tau^2", "latitude", "30.7331 on 11 df", "68.39%"):
        assert part in text
    assert "<table>" in eb.meta_analysis(X, S)._repr_html_()


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("exponentiate", [False, True])
def test_the_summary_shows_figures_in_all_units(unit, exponentiate):
    found = eb.meta_analysis(unit * X, unit * S)
    text = found.summary(exponentiate=exponentiate and unit <= 1)
    row = next(line for line in text.splitlines() if line.startswith("mean"))
    shown = np.array(row.split()[1:], float)
    of = np.exp if exponentiate and unit <= 1 else np.asarray
    expected = of(found.estimate), found.std_error, found.p_values[0], *of(found.interval)
    # half of the fourth significant digit, and of the fourth decimal of the p-value
    assert np.delete(shown, 2) == pytest.approx(np.delete(expected, 2), rel=5e-4)
    assert shown[2] == pytest.approx(expected[2], abs=5e-5)
    assert f"{found.tau2:.5g} (std. error" in text
    assert all(len(line) <= 78 for line in text.splitlines())


def test_one_row_of_the_fit():
    found = eb.meta_analysis(X, S, method="ml")
    row = found.glance().iloc[0]
    value = stats.norm(found.estimate, np.sqrt(found.tau2 + S**2)).logpdf(X).sum()
    assert row["logLik"] == pytest.approx(value, rel=ROUNDING)
    assert row["AIC"] == pytest.approx(4 - 2 * value, rel=ROUNDING)
    assert row["BIC"] == pytest.approx(2 * np.log(13) - 2 * value, rel=ROUNDING)
    assert (row["nobs"], row["q.df"]) == (13, 12)


def test_frames_are_of_the_library_given():
    frame = pl.DataFrame({"trial": list(BCG["study"]), "x": X, "s": S})
    found = eb.meta_analysis(frame["x"], frame["s"], labels=frame["trial"])
    for table in (found.to_frame(), found.tidy(), found.glance(), found.predict()):
        assert isinstance(table, pl.DataFrame)
    assert found.to_frame().columns[0] == "trial"
    moderated = eb.meta_analysis(frame["x"], frame["s"], pl.DataFrame({"w": W["latitude"]}))
    assert moderated.terms == ["intercept", "w"]


def test_a_result_is_pickled():
    found = eb.meta_analysis(X, S, W)
    again = pickle.loads(pickle.dumps(found))
    assert again.summary() == found.summary()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "hs"}, "method must be one of 'reml', 'ml', 'pm', 'dl'; got 'hs'"),
        ({"test": "t"}, "test must be one of 'z', 'knha'; got 't'"),
        ({"level": 95}, "level must lie between 0 and 1; got 95"),
        ({"level": True}, "level must lie between 0 and 1"),
        ({"std_errors": [0.1, 0.0, 0.2]}, "got 0.2 and 0 in row 1. Leave such a study out"),
        ({"estimates": [np.nan, 0.2, 0.3]}, "estimates must be finite"),
        ({"std_errors": [0.1, np.inf, 0.2]}, "got 0.2 and inf in row 1"),
        ({"std_errors": np.eye(3)}, "std_errors must be one-dimensional: studies are independent"),
        ({"estimates": [0.1], "std_errors": [0.1]}, "at least two studies"),
        ({"covariates": [1.0, 1.0, 1.0]}, "constant columns"),
        ({"covariates": [[1.0, 2.0], [2.0, 5.0], [4.0, 3.0]]}, "at least 4 groups"),
        ({"labels": ["a"]}, "labels has 1 entries for 3 estimates"),
        ({"estimates": [1e308, 0.2, 0.3]}, "Rescale them"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    given = {"estimates": [0.1, 0.2, 0.3], "std_errors": [0.1, 0.1, 0.2]}
    with pytest.raises(ValueError, match=message):
        eb.meta_analysis(**given | arguments)


def test_predictions_need_the_covariates_of_the_fit():
    with pytest.raises(ValueError, match="covariates must be None"):
        eb.meta_analysis(X, S).predict([1.0])
    found = eb.meta_analysis(X, S, W)
    with pytest.raises(ValueError, match="lack the column 'year'"):
        found.predict(W[["latitude"]])
    with pytest.raises(ValueError, match="covariates have 1 columns; the fit had 2"):
        found.predict([1.0, 2.0])


@pytest.mark.parametrize("covariates", [None, np.linspace(-1, 2, 9)])
@pytest.mark.parametrize("ratio", [1.0, 30.0, 1e4, 1e7])
def test_the_error_of_the_variance_where_a_study_outweighs_all(ratio, covariates):
    """By eigenvalues of contrasts without the study, which is as good as known at 1e4."""
    rng = np.random.default_rng(3)
    errors = np.append(0.5 / ratio, rng.uniform(0.3, 0.7, 8))
    x = rng.normal(0, 1, 9) + errors * rng.normal(size=9)
    found = eb.meta_analysis(x, errors, covariates, method="dl")
    design = np.column_stack([np.ones(9)] + ([] if covariates is None else [covariates]))
    # contrasts with the heaviest studies, whose covariances have no large weights
    p = design.shape[1]
    contrast = np.hstack([-design[p:] @ np.linalg.inv(design[:p]), np.eye(9 - p)])
    inner = np.linalg.inv(contrast @ (errors[:, None] ** 2 * contrast.T))
    form = np.linalg.eigvals(inner @ contrast @ ((found.tau2 + errors**2)[:, None] * contrast.T))
    error = np.sqrt(2 * (form.real**2).sum()) / np.trace(inner @ contrast @ contrast.T)
    assert found.random_effects.variance_error == pytest.approx(error, rel=1e-7)
    prior = eb.priors.Normal(method="moments").fit(
        Gaussian(x[:, None], errors[:, None] ** 2),
        None if covariates is None else covariates[:, None],
    )
    assert prior.variance_[0] == pytest.approx(found.tau2, rel=1e-7)
    assert np.sqrt(prior.variance_variance_[0]) == pytest.approx(error, rel=1e-7)
