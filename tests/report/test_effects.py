"""Fixed effects, effects of single groups and their intervals: frames that hold one fit."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.stats import norm, t

import ebfed as eb
from ebfed.report.view import view_of

RNG = np.random.default_rng(0)
M, EACH = 24, 8
CODES = np.repeat(np.arange(M), EACH)
X = RNG.normal(size=(M * EACH, 2))
U = RNG.normal(size=M)
THETA = np.array([1.0, 0.5, -0.5]) + RNG.normal(size=(M, 3)) * [1.0, 0.6, 0.4]
Y = THETA[CODES, 0] + np.einsum("np,np->n", X, THETA[CODES, 1:]) + RNG.normal(size=M * EACH)
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
ROWS = pd.DataFrame({"x": X[:, 0], "z": X[:, 1], "y": Y, "firm": [f"f{i:02d}" for i in CODES]})
ROWS["u"] = U[CODES]
FEATURES = ["x", "z", "y", "firm"]


def regression(estimator):
    return estimator.fit(ROWS[FEATURES], "y", groups="firm")


FITS = {
    "diag": lambda: regression(eb.LinearEB()),
    "full": lambda: regression(eb.LinearEB("full")),
    "some": lambda: regression(eb.LinearEB(varying=["intercept", "z"])),
    "no intercept": lambda: regression(eb.LinearEB(fit_intercept=False)),
    "covariates": lambda: eb.LinearEB().fit(ROWS, "y", groups="firm", covariates=["u"]),
    "logistic": lambda: eb.LogisticEB().fit(ROWS[["x", "z"]], ROWS["y"] > 1, groups=ROWS["firm"]),
    "mixture": lambda: regression(eb.AdaMix(2, n_init=1, random_state=0)),
    "means": lambda: eb.GaussianEB().fit(ROWS[["y", "firm"]], groups="firm"),
    "two means": lambda: eb.GaussianEB().fit(ROWS[["x", "y", "firm"]], groups="firm"),
    "means by covariates": lambda: eb.GaussianEB().fit(
        ROWS[["y", "firm", "u"]], groups="firm", covariates=["u"]
    ),
    "rates": lambda: eb.BernoulliEB().fit((ROWS["y"] > 1) * 1.0, groups=ROWS["firm"]),
}


@pytest.fixture(scope="module", params=FITS)
def fitted(request):
    return FITS[request.param]()


def numbers(frame):
    return frame.iloc[:, 1:].to_numpy(float)


# --- frames of one fit agree ---------------------------------------------------------------------


def test_coefficients_are_posterior_means(fitted):
    coefficients = fitted.coef()
    np.testing.assert_array_equal(numbers(coefficients), fitted.posterior().mean)
    assert coefficients.columns[0] == "firm"
    assert coefficients["firm"].tolist() == sorted(ROWS["firm"].unique())


def test_what_is_expected_and_how_groups_differ_make_coefficients(fitted):
    effects, coefficients = fitted.ranef(), fitted.coef()
    expected = view_of(fitted).expected()
    names, varies = view_of(fitted).terms, view_of(fitted).varies
    assert effects.columns.tolist() == ["firm", *np.array(names)[varies]]
    sums = numbers(effects) + expected[:, varies]
    np.testing.assert_allclose(sums, numbers(coefficients)[:, varies], rtol=1e-12, atol=1e-13)
    # what does not differ between groups is the same in all
    np.testing.assert_allclose(
        numbers(coefficients)[:, ~varies], expected[:, ~varies], rtol=1e-12, atol=1e-13
    )


@pytest.mark.parametrize("kind", ["diag", "full", "some", "no intercept", "logistic", "means"])
def test_without_covariates_all_groups_expect_the_fixed_effects(kind):
    fit = FITS[kind]()
    fixed = fit.fixef()
    assert fixed.columns.tolist() == ["term", "estimate"]
    wide = np.broadcast_to(fixed["estimate"], (M, len(fixed)))
    np.testing.assert_array_equal(view_of(fit).expected(), wide)
    differ, names = fit.ranef(), fixed["term"].tolist()
    if kind != "means":
        assert fit.coef().columns[1:].tolist() == names
        assert set(differ.columns[1:]) <= set(names)


def test_covariates_move_what_groups_are_expected_to_be():
    fit = FITS["covariates"]()
    fixed = fit.fixef().set_index("term")["estimate"]
    expected = fixed["intercept"] + fixed["intercept:u"] * U
    np.testing.assert_allclose(view_of(fit).expected()[:, 0], expected, rtol=1e-10)
    means = FITS["means by covariates"]()
    fixed = means.fixef().set_index("term")["estimate"]
    np.testing.assert_allclose(
        means.coef()["y"] - means.ranef()["y"], fixed["intercept"] + fixed["u"] * U, rtol=1e-10
    )


# --- tidy ----------------------------------------------------------------------------------------


def test_effects_are_parts_of_the_whole(fitted):
    whole = fitted.tidy()
    kinds = list(dict.fromkeys(whole["effect"]))
    assert set(kinds) <= {"fixed", "ran_pars", "component"}
    for kind in kinds:
        part = whole[whole["effect"] == kind].reset_index(drop=True)
        pd.testing.assert_frame_equal(fitted.tidy(kind), part)
    pd.testing.assert_frame_equal(fitted.tidy(kinds), whole)
    np.testing.assert_array_equal(whole["statistic"], whole["estimate"] / whole["std.error"])


def test_groups_in_rows(fitted):
    names, varies = view_of(fitted).terms, view_of(fitted).varies
    expected = view_of(fitted).expected()
    for effect, posterior, shown, moved in [
        ("ran_vals", view_of(fitted).posterior_given_population(), varies, expected),
        ("ran_coefs", fitted.posterior(), np.ones_like(varies), np.zeros_like(expected)),
    ]:
        lower, upper = posterior.interval(0.8)
        found = fitted.tidy(effect, conf_int=True, conf_level=0.8)
        assert found.columns.tolist() == [
            "effect", "group", "level", "term", "estimate", "std.error", "conf.low", "conf.high",
        ]  # fmt: skip
        assert set(found["effect"]) == {effect}
        assert set(found["group"]) == {"firm"}
        assert found["term"].tolist() == np.array(names)[shown].tolist() * M
        assert found["level"].tolist() == np.repeat(fitted.groups_, shown.sum()).tolist()
        for column, values in {
            "estimate": posterior.mean - moved,
            "std.error": posterior.sd,
            "conf.low": lower - moved,
            "conf.high": upper - moved,
        }.items():
            np.testing.assert_array_equal(found[column], values[:, shown].ravel())
        plain = fitted.tidy(effect)
        pd.testing.assert_frame_equal(plain, found[plain.columns.tolist()])
        assert plain.shape[1] == 6


def test_deviations_are_given_the_population():
    """``sqrt((1 - a) t)`` of a mean, with a its weight and t the variance between groups."""
    fit = eb.GaussianEB().fit(ROWS[["y"]], groups=ROWS["firm"])
    weight, t = fit.posterior().weight, fit.prior_.variance_
    found = fit.tidy("ran_vals")["std.error"]
    np.testing.assert_allclose(found, np.sqrt((1 - weight) * t).ravel(), rtol=1e-10)
    assert (fit.tidy("ran_coefs")["std.error"] > found).all()


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_intervals_of_parameters_are_walds(fitted, level):
    found = fitted.tidy(conf_int=True, conf_level=level)
    spread = found["effect"] == "ran_pars"
    reach = norm.ppf((1 + level) / 2) * found["std.error"]
    if hasattr(fitted, "tests"):  # by Student's t
        tests = fitted.tests()
        reach[~spread] = t.ppf((1 + level) / 2, tests["df"]) * tests["std.error"].to_numpy()
    ends = found["estimate"] - reach
    assert found.loc[spread, ["conf.low", "conf.high"]].isna().all(axis=None)
    if not isinstance(fitted, eb.BernoulliEB):  # of rates they are on another scale, see below
        np.testing.assert_allclose(found["conf.low"][~spread], ends[~spread], rtol=1e-12)
        middle = (found["conf.low"] + found["conf.high"]) / 2
        known = ~spread & found["std.error"].notna()
        np.testing.assert_allclose(middle[known], found["estimate"][known], rtol=1e-10, atol=1e-12)
    fixed = found[found["effect"] == "fixed"].reset_index(drop=True)
    shown = fitted.confint(level)
    # a mixture has no mean of all: its frame is empty
    pd.testing.assert_frame_equal(shown, fixed[shown.columns.tolist()], check_dtype=False)
    assert set(shown.columns) - {"response"} == {"term", "estimate", "conf.low", "conf.high"}


def test_of_balanced_groups_the_interval_has_a_closed_form():
    """The mean of M means of EACH rows: its variance is theirs over M, whatever the method.

    REML's between-group variance is that of the analysis of variance, where it is positive.
    """
    fit = FITS["means"]()
    means = ROWS.groupby("firm")["y"].mean()
    error = means.std() / np.sqrt(M)
    found = fit.confint(0.9).iloc[0]
    assert found["estimate"] == pytest.approx(means.mean(), rel=1e-9)
    reach = norm.ppf(0.95) * error
    ends = [means.mean() - reach, means.mean() + reach]
    np.testing.assert_allclose(found[["conf.low", "conf.high"]].astype(float), ends, rtol=1e-7)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_interval_of_a_mean_rate_is_that_of_its_logit(level):
    """Groups that do not differ are one sample: a logistic regression on a constant alone.

    Its coefficient has the variance ``1 / (n p (1 - p))``.
    """
    fit = eb.BernoulliEB().fit(eb.Summary.from_counts([29] * 5, [30] * 5))
    p, n = 29 / 30, 150
    reach = norm.ppf((1 + level) / 2) / np.sqrt(n * p * (1 - p))
    ends = [1 / (1 + np.exp(-(np.log(p / (1 - p)) + sign * reach))) for sign in (-1, 1)]
    for found in (fit.confint(level), fit.tidy("fixed", conf_int=True, conf_level=level)):
        low, high = found[["conf.low", "conf.high"]].iloc[0]
        np.testing.assert_allclose([low, high], ends, rtol=1e-6)
        assert 0 < low < p < high < 1


def test_a_rate_whose_likelihood_has_no_curvature_has_the_interval_of_plausible_populations():
    counts = eb.Summary.from_counts([3, 5, 1, 6], [6] * 4)
    discrete = eb.BernoulliEB(prior="npmle").fit(counts)
    with pytest.warns(eb.priors.IdentificationWarning):
        ones = eb.BernoulliEB().fit(eb.Summary.from_counts([6] * 4, [6] * 4))
    assert ones.prior_.mean_.item() == 1
    for fit in (discrete, ones):
        found, tidy = fit.confint().iloc[0], fit.tidy("fixed", conf_int=True).iloc[0]
        assert 0 < found["conf.low"] < found["estimate"]
        assert found["conf.low"] < found["conf.high"] <= 1
        assert tidy["std.error"] > 0
        for name in ("estimate", "conf.low", "conf.high"):
            assert tidy[name] == found[name]


def test_with_covariates_terms_are_logits_and_intervals_theirs():
    rng = np.random.default_rng(0)
    u = rng.normal(size=80)
    counts = eb.Summary.from_counts(rng.binomial(10, 1 / (1 + np.exp(-1 - u))), np.full(80, 10))
    found = eb.BernoulliEB().fit(counts, covariates=u).tidy("fixed", conf_int=True)
    ends = found["estimate"] + norm.ppf(0.975) * found["std.error"]
    np.testing.assert_allclose(found["conf.high"], ends, rtol=1e-12)
    assert ends.max() > 1


@pytest.mark.parametrize(
    ("effects", "message"),
    [
        ("random", "effects must be of .* got 'random'"),
        (["fixed", "ran_vals"], "one of .* alone; got 'ran_vals'"),
    ],
)
def test_effects_that_are_none(effects, message):
    with pytest.raises(ValueError, match=message):
        FITS["means"]().tidy(effects)


@pytest.mark.parametrize("level", [0, 1, -0.5, 95])
def test_levels_that_are_none(level):
    fit = FITS["means"]()
    for ask in (
        lambda: fit.confint(level),
        lambda: fit.tidy(conf_int=True, conf_level=level),
        lambda: fit.tidy("ran_vals", conf_int=True, conf_level=level),
    ):
        with pytest.raises(ValueError, match="a level must lie between 0 and 1"):
            ask()


# --- several responses, labels, libraries --------------------------------------------------------


def test_several_responses():
    fit = FITS["two means"]()
    assert fit.fixef().columns.tolist() == ["term", "response", "estimate"]
    assert fit.fixef()["response"].tolist() == ["x", "y"]
    assert fit.confint()["response"].tolist() == ["x", "y"]
    assert fit.ranef().columns.tolist() == ["firm", "x", "y"]
    with pytest.raises(ValueError, match="term must be one of 'x', 'y'"):
        fit.ranks()
    with pytest.raises(ValueError, match="term must be one of 'x', 'y'; got 'w'"):
        fit.ranks("w")


LABELS = {
    "text": [f"f{i:02d}" for i in CODES],
    "integers": (CODES * 7).tolist(),
    "dates": [pd.Timestamp("2020-01-01").date() + pd.Timedelta(days=int(i)) for i in CODES],
}


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("several", [False, True])
def test_labels_keep_their_type(library, kind, several):
    columns = {"y": Y.tolist(), "firm": LABELS[kind]}
    table = FRAMES[library](columns)
    if several:
        table = FRAMES[library](columns | {"x": X[:, 0].tolist()})
        fit = eb.LinearEB().fit(table, "y", groups="firm")
    else:
        fit = eb.GaussianEB().fit(table, groups="firm")
    first = list(table["firm"])[::EACH]
    for frame in (fit.coef(), fit.ranef()):
        assert type(frame) is type(table)
        assert list(frame["firm"]) == first
    for effect in ("ran_vals", "ran_coefs"):
        frame = fit.tidy(effect)
        assert type(frame) is type(table)
        assert list(frame["level"]) == [label for label in first for _ in range(1 + several)]
    assert all(type(x) is type(table) for x in (fit.fixef(), fit.confint(), fit.tidy("fixed")))


@pytest.mark.parametrize("name", ["intercept", "x"])
def test_a_group_column_called_like_a_coefficient(name):
    fit = eb.LinearEB().fit(ROWS[["x"]], ROWS["y"], groups=ROWS["firm"].rename(name))
    assert fit.coef().columns.tolist() == [f"{name}_group", "intercept", "x"]


# --- ranks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("term", ["intercept", "x", "z"])
def test_ranks_are_the_posteriors(term):
    fit = FITS["full"]()
    place = ["intercept", "x", "z"].index(term)
    found = fit.ranks(term, top=5, random_state=3)
    pd.testing.assert_frame_equal(found, fit.posterior().ranks(top=5, column=place, random_state=3))
    assert found["prob_top"].sum() == pytest.approx(5)
    assert found["rank"].sum() == pytest.approx(M * (M + 1) / 2)


def test_ranks_of_single_numbers_need_no_term():
    fit = FITS["means"]()
    pd.testing.assert_frame_equal(fit.ranks(), fit.posterior().ranks())
    pd.testing.assert_frame_equal(fit.ranks("y"), fit.ranks())
    up = fit.ranks(ascending=True)
    pd.testing.assert_frame_equal(up, fit.posterior().ranks(ascending=True))
    np.testing.assert_allclose(up["rank"], M + 1 - fit.ranks()["rank"])


def test_noisy_reports_give_the_interval_of_plausible_populations():
    z = np.random.default_rng(1).binomial(10, 0.3, 40)
    clients = eb.Summary.from_counts(z, np.full(40, 10))
    fit = eb.BernoulliEB(channel=eb.channels.TwoBit(0.5, range=(0, 1)), random_state=1).fit(clients)
    lower, upper = fit.prior_.mean_interval()
    found = fit.confint()
    assert [found["conf.low"][0], found["conf.high"][0]] == pytest.approx([lower[0], upper[0]])
    spread = fit.tidy(effects="fixed")["std.error"][0]
    assert spread == pytest.approx(fit.prior_.mean_error()[0])
    assert 0.1 < upper[0] - lower[0] < 1
