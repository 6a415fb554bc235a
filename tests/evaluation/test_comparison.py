"""Fits side by side."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from r_fits import data_of, stored
from scipy.special import expit
from scipy.stats import binom, chi2, multivariate_normal, norm

import ebfed as eb
from ebfed.evaluation import comparison
from ebfed.report.view import view_of

RNG = np.random.default_rng(0)
X, GROUPS, THETA = eb.datasets.make_gaussian_groups(2000, 4, random_state=0)
ROWS = pd.DataFrame({"x": X.ravel(), "g": GROUPS, "z": RNG.normal(size=len(GROUPS))})


@pytest.fixture(scope="module")
def fits():
    return {
        prior: eb.GaussianEB(prior=prior).fit(X, groups=GROUPS)
        for prior in ("normal", "laplace", "npmle")
    }


def log_density(rows, fit):
    """Log density of the rows of one group, independent given its mean, which is drawn."""
    each, noise, spread = len(rows), fit.noise_variance_[0], fit.prior_.variance_[0]
    covariance = noise * np.eye(each) + spread * np.ones((each, each))
    return multivariate_normal(np.full(each, fit.prior_.mean_[0]), covariance).logpdf(rows)


def test_figures_follow_from_the_rows(fits):
    table = eb.compare(**fits).set_index("fit")
    assert list(table.index) == list(fits)
    rows = X.reshape(2000, 4)
    within = rows.var(axis=1, ddof=1).mean()
    # the noise of the normal fit is found by iteration
    np.testing.assert_allclose(table["local"], within / 4, rtol=1e-7)
    np.testing.assert_allclose(table["local"].iloc[1:], within / 4, rtol=1e-12)
    np.testing.assert_allclose(table["AIC"], 2 * (table["npar"] - table["logLik"]), rtol=1e-12)
    bic = np.log(8000) * table["npar"] - 2 * table["logLik"]
    np.testing.assert_allclose(table["BIC"], bic, rtol=1e-12)
    normal = fits["normal"]
    assert table.loc["normal", "npar"] == 3
    assert table["likelihood"].tolist() == ["ML (refitted)", "ML", "ML"]
    largest = eb.GaussianEB(method="ml").fit(X, groups=GROUPS)
    told = sum(log_density(each, largest) for each in rows)
    assert table.loc["normal", "logLik"] == pytest.approx(told, rel=1e-10)
    # the mean of 2,000 groups is known but for a 2,000th of their variance
    noise, spread = within / 4, normal.prior_.variance_[0]
    expected = noise * spread / (noise + spread)
    assert table.loc["normal", "risk"] == pytest.approx(expected, rel=2e-3)


def test_stein_estimates_the_loss(fits):
    """Over 2,000 groups a mean of squares has an error of 3 %: five of them are allowed."""
    table = eb.compare(**fits).set_index("fit")
    for name, fit in fits.items():
        loss = np.mean((fit.posterior().mean - THETA.reshape(-1, 1)) ** 2)
        assert table.loc[name, "sure"] == pytest.approx(loss, rel=0.15)
    local = np.mean((fits["normal"].summaries_.mean - THETA.reshape(-1, 1)) ** 2)
    assert table["local"].iloc[0] == pytest.approx(local, rel=0.15)


def test_stein_of_no_shrinkage_is_the_sampling_variance():
    """A population without bounds leaves means alone: the estimate of the risk is exact."""
    prior = eb.priors.Normal(variance=1e12)
    est = eb.GaussianEB(1.0, prior=prior).fit(X, groups=GROUPS)
    row = eb.compare(est).iloc[0]
    assert row["sure"] == pytest.approx(0.25, rel=1e-6)
    assert row["local"] == 0.25


@pytest.mark.parametrize("spread", [1.0, 0.1])
def test_stein_counts_what_the_population_was_fitted_by(spread):
    """Of balanced groups and known noise the fit is a formula, and so is its divergence.

    With s**2 the variance of m means, ``theta_i^ = xbar + (1 - v / s**2) (x_i - xbar)`` has the
    divergence ``1 + (m - 1) a + 2 v / s**2``. Of so few groups it is found but for the curvature of
    the estimate over a step; held fixed, the population would be off by 0.01 or more.
    """
    m, v = 20, 0.25
    x = np.random.default_rng(4).normal(size=m)
    s2 = spread + v
    x = (x - x.mean()) / x.std(ddof=1) * np.sqrt(s2)
    est = eb.GaussianEB(v).fit(x, groups=np.arange(m))
    a = spread / s2
    stein = (v / s2) ** 2 * s2 * (m - 1) / m - v + 2 * v / m * (1 + (m - 1) * a + 2 * v / s2)
    assert eb.compare(est)["sure"].item() == pytest.approx(stein, abs=1e-3)


@pytest.mark.parametrize("prior", ["normal", "npmle"])
def test_stein_is_unbiased_of_few_groups(prior):
    """Over 40 data sets of 8 groups; four and a half standard errors, a false alarm below 1e-4."""
    excess = []
    for seed in range(40):
        rows, groups, theta = eb.datasets.make_gaussian_groups(8, 4, random_state=seed)
        est = eb.GaussianEB(prior=prior).fit(rows, groups=groups)
        loss = np.mean((est.posterior().mean - theta.reshape(-1, 1)) ** 2)
        excess.append(eb.compare(est)["sure"].item() - loss)
    assert abs(np.mean(excess)) < 4.5 * np.std(excess, ddof=1) / np.sqrt(40)


@pytest.mark.parametrize("shape", [(1, 1), (8, 1), (7, 3)])
def test_few_moves_are_orthogonal(shape):
    signs = comparison._signs(shape).reshape(-1, np.prod(shape))
    assert len(signs) < 2 * np.prod(shape)
    np.testing.assert_array_equal(signs.T @ signs, len(signs) * np.eye(np.prod(shape)))


@pytest.mark.parametrize("prior", ["normal", "npmle"])
def test_random_moves_estimate_what_orthogonal_ones_give(prior, monkeypatch):
    """From 200 moves of 64 means; the estimate itself has an error near 0.03."""
    est = eb.GaussianEB(prior=prior).fit(X[:256], groups=GROUPS[:256])
    exact = eb.compare(est)["sure"].item()
    monkeypatch.setattr(comparison, "FEW", 1)
    monkeypatch.setattr(comparison, "MOVES", 64 * 200)
    assert eb.compare(est)["sure"].item() == pytest.approx(exact, abs=0.005)


@pytest.mark.parametrize("prior", ["normal", "npmle"])
def test_stein_does_not_depend_on_the_step(prior, monkeypatch):
    """Of 100 groups its own error is 0.03, a tenth of which is nothing."""
    est = eb.GaussianEB(prior=prior).fit(X[:400], groups=GROUPS[:400])
    usual = eb.compare(est)["sure"].item()
    assert eb.compare(est)["sure"].item() == usual
    for step in (0.01, 0.1):
        monkeypatch.setattr(comparison, "STEP", step)
        assert eb.compare(est)["sure"].item() == pytest.approx(usual, abs=0.003)


def test_stein_knows_covariates_and_who_took_part():
    """With nothing to fit but the means of two kinds of groups, slopes are shares of weight."""
    m, v = 400, 0.25
    kind = np.repeat([0.0, 1.0], m // 2)
    x = 3 * kind + np.random.default_rng(0).normal(size=m)
    asked = np.arange(m) % 2 == 0
    prior = eb.priors.Normal(variance=0.75)
    est = eb.GaussianEB(v, prior=prior, participation=asked).fit(
        x, groups=np.arange(m), covariates=kind
    )
    means = np.array([x[asked & (kind == k)].mean() for k in (0, 1)])[kind.astype(int)]
    slope = 0.75 + 0.25 * asked / (m / 4)
    stein = np.mean((0.25 * (means - x)) ** 2 - v + 2 * v * slope)
    # what is left is of the moves of 100 groups that share a mean: about 0.25 v / m
    assert eb.compare(est)["sure"].item() == pytest.approx(stein, abs=1e-3)


def test_of_two_columns_it_is_the_average():
    both = np.column_stack([X.ravel(), 3 * X.ravel()[::-1]])
    prior = eb.priors.Normal(variance=1e12)
    table = eb.compare(eb.GaussianEB([1.0, 9.0], prior=prior).fit(both, groups=GROUPS))
    assert table["local"].item() == pytest.approx((0.25 + 2.25) / 2, rel=1e-12)
    assert table["sure"].item() == pytest.approx(1.25, rel=1e-6)


def test_stein_is_of_exact_means_alone():
    channel = eb.channels.Gaussian(8.0, 1e-6, (-4, 4))
    private = eb.GaussianEB(1.0, channel=channel, random_state=0).fit(X, groups=GROUPS)
    mixture = eb.MixtureEB(2, random_state=0).fit(X, groups=GROUPS)
    table = eb.compare(private=private, mixture=mixture)
    assert table["sure"].isna().all()
    assert table[["risk", "local"]].notna().all(axis=None)


def test_groups_without_rows_do_not_count():
    prior = eb.priors.Normal(variance=1e12)
    whole = eb.Summary.from_rows(X, GROUPS)
    nobody = eb.Summary(np.arange(3) + 5000, np.zeros(3, int), np.zeros((3, 1)), np.zeros((3, 1)))
    few, more = (
        eb.compare(eb.GaussianEB(1.0, prior=prior).fit(summary)).iloc[0]
        for summary in (whole, whole.merge(nobody))
    )
    for name in ("risk", "sure", "local"):
        assert more[name] == pytest.approx(few[name], rel=1e-6)
    trials = np.repeat([6, 0], [50, 10])
    counts = eb.Summary.from_counts(RNG.binomial(trials, 0.4), trials)
    rates = eb.BernoulliEB().fit(counts)
    variance = rates.posterior().sd[:50] ** 2
    assert eb.compare(rates)["risk"].item() == pytest.approx(variance.mean(), rel=1e-12)


def test_formulas_and_held_out_rows():
    seen = RNG.random(len(ROWS)) < 0.7
    first = eb.from_formula("x ~ z + (1 | g)", ROWS[seen])
    second = eb.from_formula("x ~ z + (1 + z || g)", ROWS[seen])
    again = eb.from_formula("x ~ z + (1 | g)", ROWS[seen])
    table = eb.compare(first, second, again, held_out=ROWS[~seen])
    assert table["fit"].tolist() == [first.formula, second.formula, f"{first.formula} (2)"]
    new = ROWS[~seen]
    left = np.sum((new["x"] - first.predict(new)) ** 2)
    explained = 1 - left / np.sum((new["x"] - new["x"].mean()) ** 2)
    assert table["score"].iloc[0] == pytest.approx(explained, rel=1e-12)
    assert table["score"].iloc[2] == table["score"].iloc[0]


def test_score_of_means_is_the_density_of_new_rows_given_the_old(fits):
    fit, new = fits["normal"], X + 0.1
    table = eb.compare(fit, held_out={"X": new, "groups": GROUPS})
    assert table["fit"].tolist() == ["GaussianEB, Normal"]
    old = X.reshape(2000, 4)
    both = np.column_stack([old, new.reshape(2000, 4)])
    told = sum(log_density(b, fit) - log_density(a, fit) for a, b in zip(old, both, strict=True))
    assert table["score"].item() == pytest.approx(told / 8000, rel=1e-9)


def test_score_of_classifiers_is_the_share_of_right_labels():
    few = ROWS[:400]
    y = (few["z"] + 0.5 * few["x"] > 0).to_numpy()
    fit = eb.LogisticEB().fit(few[["z"]], y, groups=few["g"])
    table = eb.compare(fit, held_out={"X": few[["z"]], "y": y, "groups": few["g"]})
    right = fit.predict(few[["z"]], groups=few["g"]) == y
    assert table["score"].item() == pytest.approx(right.mean(), rel=1e-12)


def test_what_a_method_does_not_have_is_missing():
    learner = eb.learning.LocalOnly(n_rounds=1).fit(ROWS[["z"]], ROWS["x"] > 0, groups=ROWS["g"])
    linear = eb.LinearEB().fit(ROWS[["z"]], ROWS["x"], groups=ROWS["g"])
    table = eb.compare(learner=learner, linear=linear).set_index("fit")
    assert table.loc["learner", ["logLik", "risk", "sure"]].isna().all()
    assert table.loc["linear", ["logLik", "risk"]].notna().all()


def test_frames_come_back_in_kind():
    fit = eb.from_formula("x | g", pl.DataFrame(ROWS))
    assert isinstance(eb.compare(fit), pl.DataFrame)


def test_other_responses_do_not_compare(fits):
    positive = ROWS.assign(y=np.exp(ROWS["x"]))
    plain, same = (eb.from_formula(f"{y} ~ 1 + (1 | g)", positive) for y in ("y", " y "))
    logs = eb.from_formula("np.log(y) ~ z + (1 | g)", positive)
    message = "the response is y in 'plain', np.log.y. in 'logs'"
    with pytest.raises(ValueError, match=message):
        eb.compare(plain=plain, logs=logs)
    assert len(eb.compare(plain=plain, same=same)) == 2
    rates = eb.BernoulliEB().fit((X > 0) * 1.0, groups=GROUPS)
    linear = eb.LinearEB().fit(ROWS[["z"]], ROWS["x"], groups=ROWS["g"])
    for name, means in {"normal": fits["normal"], "linear": linear}.items():
        message = f"the likelihood is a density in '{name}', a probability in 'rates'"
        with pytest.raises(ValueError, match=message):
            eb.compare(**{name: means}, rates=rates)


def test_restricted_likelihoods_compare_where_the_columns_of_the_mean_are_the_same():
    """Columns of one name and one length are not the same column."""
    y, few = ROWS["x"].to_numpy()[:800], GROUPS[:800]
    first, second = (np.random.default_rng(seed).normal(size=800) for seed in (1, 2))
    first, second = ((each - each.mean()) / each.std() for each in (first, second))
    settings = {"varying": ["intercept"]}
    one, other = (eb.LinearEB(**settings).fit(x[:, None], y, groups=few) for x in (first, second))
    again = eb.LinearEB("full").fit(first[:, None], y, groups=few)
    assert eb.compare(one=one)["likelihood"].item() == "REML"
    table = eb.compare(one=one, again=again)
    assert table["likelihood"].tolist() == ["REML", "REML"]
    assert table["logLik"].tolist() == [one.log_likelihood_, again.log_likelihood_]
    table = eb.compare(one=one, other=other)
    assert table["likelihood"].tolist() == ["ML (refitted)", "ML (refitted)"]
    ml = eb.LinearEB(**settings, method="ml").fit(second[:, None], y, groups=few)
    assert table["logLik"].iloc[1] == ml.log_likelihood_
    assert one.method == "reml"
    np.testing.assert_allclose(view_of(one).log_likelihood(), one.log_likelihood_, rtol=0)


def test_means_and_lines_have_one_restricted_likelihood():
    """The same model, of a group's covariate, in either estimator."""
    rows = ROWS[:400].assign(w=np.random.default_rng(3).normal(size=2000)[GROUPS[:400]])
    means = eb.from_formula("x ~ w + (1 | g)", rows, eb.GaussianEB())
    lines = eb.from_formula("x ~ w + (1 | g)", rows)
    table = eb.compare(means=means, lines=lines)
    assert table["likelihood"].tolist() == ["REML", "REML"]
    assert table["logLik"].iloc[0] == pytest.approx(table["logLik"].iloc[1], rel=1e-8)


def test_what_cannot_be_refitted_is_refused():
    noise = eb.channels.AddNoise(0.5)
    private = eb.GaussianEB(1.0, channel=noise, random_state=0).fit(X, groups=GROUPS)
    assert private.likelihood_kind_ == "REML"
    assert eb.compare(private)["likelihood"].item() == "REML"
    other = eb.GaussianEB(1.0, prior="laplace").fit(X, groups=GROUPS)
    message = "that of 'private' is restricted .REML.*Refit it with method='ml'"
    with pytest.raises(ValueError, match=message):
        eb.compare(private=private, other=other)


def test_exact_likelihoods_are_approximated_beside_approximations():
    rng = np.random.default_rng(4)
    rows = pd.DataFrame({"g": np.repeat(np.arange(20), 10), "h": np.tile(np.arange(10), 20)})
    rows["x"] = rng.normal(size=200)
    z = 0.5 * rows["x"] + rng.normal(size=20)[rows["g"]]
    rows["y"] = (rng.random(200) < expit(z)) * 1
    rows["w"] = rng.poisson(np.exp(z / 2 + rng.normal(size=10)[rows["h"]]))
    for family, y in (("binomial", "y"), ("poisson", "w")):
        one = eb.from_formula(f"{y} ~ x + (1 | g)", rows, family=family)
        two = eb.from_formula(f"{y} ~ x + (1 | g) + (1 | h)", rows, family=family)
        laplace = eb.from_formula(f"{y} ~ x + (1 | g)", rows, family=family, method="laplace")
        table = eb.compare(one, two)
        kinds = ["approximate (refitted)", "approximate"]
        assert table["likelihood"].tolist() == kinds
        expected = laplace.glance()["logLik"].item()
        assert table["logLik"][0] == pytest.approx(expected, rel=1e-6)
        tested = eb.anova(one, two)
        assert tested["statistic"][1] == pytest.approx(
            max(2 * (table["logLik"][1] - expected), 0.0), abs=1e-4
        )
        assert one.glance()["likelihood"].item() == "ML"


def test_approximate_likelihoods_do_not_compare_with_exact_ones():
    few = ROWS[:400].assign(hit=(ROWS["x"] > 0)[:400] * 1)
    lines = eb.LogisticEB(method="laplace").fit(few[["z"]], few["hit"], groups=few["g"])
    rates = eb.BernoulliEB().fit(few["hit"].to_numpy(), groups=few["g"])
    assert lines.likelihood_kind_ == "approximate"
    assert lines.glance()["likelihood"].item() == "approximate"
    assert "approx. logLik: -" in str(lines.summary())
    assert eb.compare(lines, again=lines)["likelihood"].tolist() == ["approximate"] * 2
    message = "that of 'rates' is exact, and others are approximations. Compare the scores"
    with pytest.raises(ValueError, match=message):
        eb.compare(lines=lines, rates=rates)


def test_names_are_not_given_twice(fits):
    taken = {"GaussianEB, Normal": fits["laplace"]}
    with pytest.raises(ValueError, match="two fits are called 'GaussianEB, Normal'"):
        eb.compare(fits["normal"], **taken)


def test_bad_input(fits):
    with pytest.raises(ValueError, match="no fit to compare"):
        eb.compare()
    with pytest.raises(TypeError, match="'a' is no fitted estimator"):
        eb.compare(a=3)
    fewer = eb.GaussianEB().fit(X[:-1], groups=GROUPS[:-1])
    with pytest.raises(ValueError, match="same rows; nobs is 8,000 in 'all', 7,999 in 'fewer'"):
        eb.compare(all=fits["normal"], fewer=fewer)


SLEEP = data_of("sleepstudy")
DAYS = "Reaction ~ Days + "


def test_figures_are_those_of_lme4():
    """Both optimisers stop within 1e-6 of the maximum, which the differences show twofold."""
    alone, slopes, bent = (
        eb.from_formula(DAYS + x, SLEEP)
        for x in ("(1 | Subject)", "(Days | Subject)", "I(Days**2) + (Days | Subject)")
    )
    pairs = {"slopes": (slopes, alone), "curve": (bent, slopes), "both": (alone, bent)}
    told = stored("ratios")
    for case, pair in pairs.items():
        found = eb.anova(*pair, boundary=False)
        expected = told[told["case"] == case]
        for name in ("npar", "df"):
            np.testing.assert_array_equal(found[name], expected[name])
        for name in ("AIC", "BIC", "logLik", "deviance", "statistic"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)
        np.testing.assert_allclose(found["p.value"], expected["p_value"], rtol=1e-4)
        assert found["reference"].tolist() == ["", "chi2"]


def test_one_variance_more_lies_on_the_boundary():
    fits = [eb.from_formula(DAYS + x, SLEEP) for x in ("(1 | Subject)", "(Days | Subject)")]
    found = eb.anova(*fits).iloc[1]
    expected = (chi2.sf(found["statistic"], 1) + chi2.sf(found["statistic"], 2)) / 2
    assert found["p.value"] == pytest.approx(expected, rel=1e-12)
    assert found["reference"] == "mixture"


@pytest.mark.parametrize("above", [0.0, 2e-10])
def test_a_variance_that_is_zero_explains_nothing(above):
    """Also where the search leaves a likelihood that is larger in the tenth digit."""
    smaller = {"fit": "flat", "npar": 4, "logLik": -360.0, "deviance": 720.0}
    larger = {"fit": "lines", "npar": 5, "logLik": -360.0 + above / 2, "deviance": 720.0 - above}
    assert comparison._ratio(smaller, larger, 1)["p.value"] > 0.999


def test_restricted_likelihoods_are_kept_on_request():
    fits = [eb.from_formula(DAYS + x, SLEEP) for x in ("(1 | Subject)", "(Days | Subject)")]
    found = eb.anova(*fits, refit=False)["deviance"]
    np.testing.assert_allclose(found, [-2 * fit.log_likelihood_ for fit in fits], rtol=1e-12)


def test_restricted_likelihoods_of_other_means_do_not_compare():
    """A column of which groups' coefficients have a mean of zero is not one of the mean."""
    means = "1 + (Days | Subject)", "Days + (Days | Subject)"
    small, large = (eb.from_formula("Reaction ~ " + mean, SLEEP) for mean in means)
    table = eb.compare(small=small, large=large)
    assert table["likelihood"].tolist() == ["ML (refitted)", "ML (refitted)"]
    found = eb.anova(small, large, refit=False)["logLik"]
    exact = [eb.from_formula(each.formula, SLEEP, method="ml") for each in (small, large)]
    np.testing.assert_allclose(found, [each.log_likelihood_ for each in exact], atol=1e-6)


def test_more_variances_are_conservative():
    rows = data_of("oats").assign(x=np.random.default_rng(0).normal(size=72))
    small = eb.from_formula("yield_ ~ nitro + x + (1 | block)", rows)
    large = eb.from_formula("yield_ ~ nitro + x + (nitro + x | block)", rows)
    assert eb.anova(small, large)["reference"].tolist() == ["", "chi2 (conservative)"]


def test_levels_are_tested():
    rows = data_of("oats")
    small = eb.from_formula("yield_ ~ nitro + (1 | block)", rows)
    large = eb.from_formula("yield_ ~ nitro + (1 | block / variety)", rows)
    found = eb.anova(one=small, two=large)
    assert found["fit"].tolist() == ["one", "two"]
    assert found["reference"].tolist() == ["", "mixture"]
    assert found["p.value"].iloc[1] == pytest.approx(chi2.sf(found["statistic"].iloc[1], 1) / 2)


def test_rejects_as_often_as_it_says():
    """200 tests at 5 % without slopes: false alarm 1 in 1,000 on each side."""
    rng = np.random.default_rng(0)
    groups, x = np.repeat(np.arange(60), 6), np.tile(np.linspace(-1, 1, 6), 60)
    rejected = 0
    for _ in range(200):
        rows = pd.DataFrame({"g": groups, "x": x})
        rows["y"] = rng.normal(size=60)[groups] + rng.normal(size=360)
        small = eb.from_formula("y ~ x + (1 | g)", rows)
        large = eb.from_formula("y ~ x + (x | g)", rows)
        rejected += eb.anova(small, large)["p.value"].iloc[1] < 0.05
    assert binom.ppf(0.001, 200, 0.05) <= rejected <= binom.ppf(0.999, 200, 0.05)


def test_counts_are_tested():
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"g": np.repeat(np.arange(40), 5), "x": rng.normal(size=200)})
    rows["z"] = rng.normal(size=200)
    rate = np.exp(0.8 * rows["x"] + rng.normal(0, 0.5, 40)[rows["g"]])
    rows["y"] = rng.poisson(rate)
    small = eb.from_formula("y ~ z + (1 | g)", rows, family="poisson")
    large = eb.from_formula("y ~ z + x + (1 | g)", rows, family="poisson")
    found = eb.anova(small, large).iloc[1]
    assert found["df"] == 1
    assert found["reference"] == "chi2"
    assert found["p.value"] < 1e-10


def test_scatter_of_counts_lies_on_the_boundary():
    rng = np.random.default_rng(2)
    rows = pd.DataFrame({"g": np.repeat(np.arange(40), 5), "x": rng.normal(size=200)})
    rows["y"] = rng.negative_binomial(2, 0.5, 200)
    fits = [
        eb.from_formula("y ~ x + (1 | g)", rows, family=family)
        for family in ("poisson", "negative_binomial")
    ]
    assert eb.anova(*fits)["reference"].tolist() == ["", "mixture"]


def test_fits_that_do_not_compare_are_refused():
    fit = eb.from_formula(DAYS + "(1 | Subject)", SLEEP)
    with pytest.raises(ValueError, match="two fits; got one"):
        eb.anova(fit)
    fewer = eb.from_formula(DAYS + "(Days | Subject)", SLEEP.head(100))
    with pytest.raises(ValueError, match="fits must be of the same rows"):
        eb.anova(fit, fewer)
    means = eb.GaussianEB(prior="npmle").fit(SLEEP[["Reaction"]], groups=SLEEP["Subject"])
    with pytest.raises(ValueError, match="normal populations; that of 'x' is Discrete"):
        eb.anova(fit, x=means)
    with pytest.raises(TypeError, match="no fitted estimator"):
        eb.anova(fit, 3)


def test_a_larger_model_with_a_smaller_likelihood_warns():
    rng = np.random.default_rng(3)
    rows = SLEEP.assign(noise=rng.normal(size=len(SLEEP)), more=rng.normal(size=len(SLEEP)))
    days = eb.from_formula(DAYS + "(1 | Subject)", rows)
    other = eb.from_formula("Reaction ~ noise + more + (1 | Subject)", rows)
    with pytest.warns(UserWarning, match="they are not nested"):
        found = eb.anova(days, other)
    assert found["p.value"].iloc[1] == 1


def test_crossed_factors_are_tested():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.integers(0, 12, 300), "b": rng.integers(0, 7, 300)})
    rows["x"], rows["w"] = rng.normal(size=300), rng.uniform(0.5, 2, 300)
    rows["y"] = rng.normal(size=12)[rows["a"]] * (1 + rows["x"]) + rng.normal(size=7)[rows["b"]]
    rows["y"] += rng.normal(size=300)
    models = ["y ~ x + (1 | a)", "y ~ x + (1 | a) + (1 | b)", "y ~ x + (1 + x | a) + (1 | b)"]
    models.append("y ~ x + (1 + x | a) + (0 + x | b)")

    def fitted(method):
        return [eb.from_formula(model, rows, weights="w", method=method) for model in models]

    restricted, exact = eb.anova(*fitted("reml")[:3]), eb.anova(*fitted("ml")[:3])
    np.testing.assert_allclose(restricted["logLik"], exact["logLik"], atol=1e-6)
    assert restricted["reference"].tolist() == ["", "mixture", "mixture"]
    assert restricted["df"].tolist()[1:] == [1, 2]
    kept = eb.anova(*fitted("reml")[:3], refit=False)["logLik"]
    np.testing.assert_array_equal(kept, [fit.log_likelihood_ for fit in fitted("reml")[:3]])
    for one, other in zip(fitted("reml")[1:], fitted("ml")[1:], strict=True):
        assert view_of(one.estimator_).maximum() == pytest.approx(other.estimator_.log_likelihood_)


# --- posteriors of estimates ----------------------------------------------------------------------


def estimates(seed, n=300):
    """Estimates whose mean and spread depend on their standard errors."""
    rng = np.random.default_rng(seed)
    errors = np.exp(rng.normal(-0.7, 0.5, n))
    theta = 0.6 * np.log(errors) + 0.35 * errors**0.8 * rng.standard_normal(n)
    return {"estimates": theta + errors * rng.standard_normal(n), "std_errors": errors}


def test_populations_of_batters_have_the_likelihoods_of_their_maximum():
    """Values of a general optimiser of the dense likelihood."""
    rows = eb.datasets.load_batting().query("at_bats >= 11").reset_index(drop=True)
    given = {
        "estimates": np.arcsin(np.sqrt((rows.hits + 0.25) / (rows.at_bats + 0.5))),
        "std_errors": 0.5 / np.sqrt(rows.at_bats),
        "data": rows,
    }
    mean, spread = {"mean": "~ log(at_bats)"}, {"spread": "~ log(at_bats)"}
    fits = [eb.posterior_from(**given, **each) for each in ({}, mean, mean | spread)]
    table = eb.compare(*fits)
    np.testing.assert_allclose(table["logLik"], [866.26508, 1075.63481, 1082.52638], atol=1e-4)
    assert table["npar"].tolist() == [2, 3, 4]
    assert table["fit"][2] == "posterior_from, Normal, mean ~ log(at_bats), spread ~ log(at_bats)"
    assert set(table["likelihood"]) == {"ML (refitted)"}
    np.testing.assert_allclose(table["risk"], [(each.sd**2).mean() for each in fits])


@pytest.mark.parametrize("prior", ["normal", "npmle"])
def test_held_out_estimates_choose_the_population_they_are_from(prior):
    ahead = {"mean": "~ log(se)", "spread": "~ log(se)"}
    fits = {
        "one": eb.posterior_from(**estimates(0), prior=prior),
        "given": eb.posterior_from(**estimates(0), prior=prior, **ahead),
    }
    new = estimates(1)
    table = eb.compare(**fits, held_out=new).set_index("fit")
    assert table["density"]["given"] > table["density"]["one"] + 0.05
    if prior == "normal":
        population = fits["one"].prior
        sd = np.sqrt(new["std_errors"] ** 2 + population.variance_[0])
        expected = norm.logpdf(new["estimates"], population.mean_[0], sd).mean()
        np.testing.assert_allclose(table["density"]["one"], expected, rtol=1e-10)
    again = pickle.loads(pickle.dumps(fits["given"]))
    pd.testing.assert_frame_equal(eb.compare(given=again), eb.compare(given=fits["given"]))


def test_posteriors_that_do_not_compare_are_refused(fits):
    one = eb.posterior_from(**estimates(0))
    with pytest.raises(TypeError, match="is no fitted estimator"):
        eb.compare(fits["normal"].posterior())
    with pytest.raises(TypeError, match="is no fitted estimator"):
        eb.compare(eb.posterior_from([1.0, 2.0, 4.0], np.eye(3) + 0.2))
    with pytest.raises(ValueError, match="must be of the same rows; nobs"):
        eb.compare(one, eb.posterior_from(**estimates(0, 200)))
