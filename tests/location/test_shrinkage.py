"""Tables of estimates: labels, and covariances against the model in dense matrices."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

import ebfed as eb
from ebfed.likelihoods import Gaussian
from ebfed.priors import IdentificationWarning, Normal
from ebfed.priors.correlated import shrink_jointly

# eigenvectors of a diagonal covariance are exact; what differs is the order of sums
ROUNDING = 1e-8

RNG = np.random.default_rng(1)
N = 25
ERRORS = RNG.uniform(0.4, 2.0, N)
W = np.column_stack([RNG.normal(50, 3, N), RNG.random(N) < 0.4])
THETA = 3 + 0.4 * (W[:, 0] - 50) + RNG.standard_normal(N)
ROOT = np.diag(ERRORS) @ (np.eye(N) + 0.4 * RNG.standard_normal((N, N)) / np.sqrt(N))
V = ROOT @ ROOT.T + 0.8  # and an error that all share
X = THETA + np.linalg.cholesky(V) @ RNG.standard_normal(N)

EIGHT = [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]  # Rubin (1981)
EIGHT_ERRORS = [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]

PRIORS = {
    "reml": Normal(),
    "ml": Normal(method="ml"),
    "moments": Normal(method="moments"),
    "mean": Normal(mean=2.5),
    "mean, ml": Normal(mean=2.5, method="ml"),
    "variance": Normal(variance=1.5),
    "both": Normal(2.5, 1.5),
    "zero": Normal(variance=0.0),
}


def test_a_number_is_the_standard_error_of_all():
    expected = eb.posterior_from(EIGHT, [9.0] * 8).to_frame()
    pd.testing.assert_frame_equal(eb.posterior_from(EIGHT, 9.0).to_frame(), expected)
    for wrong in (None, np.nan, np.inf):
        with pytest.raises(ValueError, match="of one length"):
            eb.posterior_from(EIGHT, wrong)
    with pytest.raises(ValueError, match="must not be negative"):
        eb.posterior_from(EIGHT, -1.0)


# --- a covariance --------------------------------------------------------------------------------


@pytest.mark.parametrize("covariates", [None, W[:, 0], W], ids=["none", "one", "two"])
@pytest.mark.parametrize("prior", PRIORS)
def test_a_diagonal_covariance_gives_what_standard_errors_give(prior, covariates):
    prior = PRIORS[prior]
    if covariates is not None and prior.mean is not None:
        with pytest.raises(ValueError, match="mean must be None with covariates"):
            eb.posterior_from(X, V, prior, covariates)
        return
    x = THETA + ERRORS * RNG.standard_normal(N)
    expected = eb.posterior_from(x, ERRORS, prior, covariates)
    posterior = eb.posterior_from(x, np.diag(ERRORS**2), prior, covariates)
    pd.testing.assert_frame_equal(
        posterior.to_frame(), expected.to_frame(), rtol=ROUNDING, atol=ROUNDING
    )
    names = ["mean_", "variance_", "mean_variance_", "variance_variance_"]
    if covariates is not None:
        names += ["coefficients_", "coefficient_errors_", "covariates_mean_"]
        for name in ("mean_", "mean_variance_"):
            assert getattr(posterior.prior.at(W[:, : np.ndim(covariates)]), name).shape == (N, 1)
    for name in names:
        ours, theirs = getattr(posterior.prior, name), getattr(expected.prior, name)
        if name in ("mean_", "mean_variance_") and covariates is not None:
            continue  # theirs is at average covariates weighted otherwise: the coefficients tell
        np.testing.assert_allclose(ours, theirs, rtol=ROUNDING, atol=ROUNDING)
    assert posterior.prior.n_parameters_ == expected.prior.n_parameters_
    assert posterior.prior.notes_ == expected.prior.notes_


def dense(t, x, V, A, reml=True):
    """Criterion, coefficients and their covariance at a variance t of the population."""
    inverse = np.linalg.inv(V + t * np.eye(len(x)))
    information = A.T @ inverse @ A
    beta = np.linalg.solve(information, A.T @ inverse @ x)
    rest = x - A @ beta
    value = -np.linalg.slogdet(inverse)[1] + rest @ inverse @ rest
    return value + reml * np.linalg.slogdet(information)[1], beta, np.linalg.inv(information)


def dense_posterior(t, A):
    """Mean and covariance where the population's variance is t."""
    _, beta, covariance = dense(t, X, V, A)
    D = V @ np.linalg.inv(V + t * np.eye(N))
    return X - D @ (X - A @ beta), V - D @ V + D @ A @ covariance @ A.T @ D.T


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("k", [0, 2])
def test_the_fit_is_that_of_dense_matrices(method, k):
    A = np.column_stack([np.ones(N), W[:, :k]])
    posterior = eb.posterior_from(X, V, Normal(method=method), W if k else None)
    prior = posterior.prior
    best = minimize_scalar(
        lambda t: dense(t, X, V, A, method == "reml")[0], (0, 1, 5), options={"xtol": 1e-10}
    )
    t = float(prior.variance_[0])
    assert t == pytest.approx(best.x, rel=1e-5)  # a minimum is found to the root of rounding
    mean, expected = dense_posterior(t, A)
    np.testing.assert_allclose(posterior.mean[:, 0], mean, rtol=1e-9)
    # the covariance under one population, and over all of them
    linear = shrink_jointly(Normal(variance=t), X, V, W if k else None)
    np.testing.assert_allclose(linear.covariance, expected, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(linear.sd[:, 0] ** 2, np.diag(expected), rtol=1e-9)
    each = [dense_posterior(one, A) for one in prior.plausible_["variance_"][:, 0]]
    weights = prior.plausible_["weights"][:, 0]
    centre = sum(w * mean for w, (mean, _) in zip(weights, each, strict=True))
    expected = sum(
        w * (within + np.outer(mean - centre, mean - centre))
        for w, (mean, within) in zip(weights, each, strict=True)
    )
    np.testing.assert_allclose(posterior.expectation[:, 0], centre, rtol=1e-7)
    np.testing.assert_allclose(posterior.covariance, expected, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(posterior.sd[:, 0] ** 2, np.diag(expected), rtol=1e-7)
    _, beta, covariance = dense(t, X, V, A)
    if k:
        np.testing.assert_allclose(prior.coefficients_[:, 0], beta, rtol=1e-6)
        np.testing.assert_allclose(
            prior.coefficient_errors_[:, 0] ** 2, np.diag(covariance), rtol=1e-6
        )
    else:
        np.testing.assert_allclose(
            [prior.mean_[0], prior.mean_variance_[0]], [beta[0], covariance[0, 0]]
        )


def test_it_is_the_bayes_estimate_where_the_variance_is_known():
    """A flat mean leaves of the prior's precision what is orthogonal to it."""
    t = 1.5
    posterior = eb.posterior_from(X, V, Normal(variance=t))
    precision = np.linalg.inv(V)
    covariance = np.linalg.inv(precision + (np.eye(N) - 1 / N) / t)
    np.testing.assert_allclose(posterior.mean[:, 0], covariance @ precision @ X, rtol=1e-9)
    np.testing.assert_allclose(posterior.covariance, covariance, rtol=1e-9)


def test_draws_have_the_moments_of_the_posterior():
    """100,000 draws; a mean, and a correlation, is off by 6 errors once in 10**8 runs."""
    posterior = eb.posterior_from(X, V)
    draws = posterior.sample(100_000, 0)[:, :, 0]
    away = (draws - posterior.expectation[:, 0]) / posterior.sd[:, 0]
    np.testing.assert_allclose(away.mean(axis=0), 0, atol=6 / np.sqrt(1e5))
    scale = np.outer(posterior.sd, posterior.sd)
    np.testing.assert_allclose(
        away.T @ away / 1e5, posterior.covariance / scale, atol=6 * np.sqrt(2 / 1e5)
    )
    np.testing.assert_array_equal(posterior.sample(3, 0), posterior.sample(3, 0))


def test_rescaling_and_shifting_rescale_and_shift():
    posterior = eb.posterior_from(X, V)
    for scale, shift in ((1e-20, 0.0), (1e20, 0.0), (1.0, 1e6), (-3.0, 2.0)):
        other = eb.posterior_from(scale * X + shift, scale**2 * V)
        np.testing.assert_allclose(other.mean, scale * posterior.mean + shift, rtol=1e-7)
        np.testing.assert_allclose(other.sd, abs(scale) * posterior.sd, rtol=1e-7)


def test_the_order_of_estimates_does_not_matter():
    order = RNG.permutation(N)
    posterior = eb.posterior_from(X, V)
    other = eb.posterior_from(X[order], V[np.ix_(order, order)])
    np.testing.assert_allclose(other.mean, posterior.mean[order], rtol=1e-9)


def test_many_estimates_of_a_common_error():
    """Beyond 2000, where independent estimates are merged for a scan."""
    n, rng = 2100, np.random.default_rng(0)
    x = rng.standard_normal(n) * 2 + 1 + 5.0
    posterior = eb.posterior_from(x, np.eye(n) + 3.0)
    assert posterior.prior.variance_[0] == pytest.approx(np.var(x, ddof=1) - 1, rel=1e-6)
    assert posterior.prior.mean_[0] == pytest.approx(x.mean())


def test_a_variance_that_is_well_known_adds_what_it_adds_to_independent_estimates():
    x = np.random.default_rng(0).normal(0, np.sqrt(5), 400)
    posterior = eb.posterior_from(x, np.eye(400))
    expected = eb.posterior_from(x, np.ones(400))
    assert posterior.prior.plausible_ is None
    np.testing.assert_allclose(posterior.sd, expected.sd, rtol=ROUNDING)
    assert (posterior.sd > eb.posterior_from(x, np.eye(400), integrate=False).sd).all()


def test_a_population_without_spread_is_said():
    posterior = eb.posterior_from(np.array([1.0, 1.1, 0.9]), np.eye(3) + 1)
    assert posterior.prior.variance_[0] == 0
    assert "zero" in posterior.prior.notes_[0]
    assert posterior.notes == posterior.prior.notes_
    assert eb.posterior_from(X, V).notes == []
    assert posterior.prior.posterior(Gaussian(np.ones((3, 1)), np.ones((3, 1)))).notes == []
    np.testing.assert_allclose(posterior.mean, 1.0)


@pytest.mark.parametrize("prior", [Normal(), Normal(mean=5.0), Normal(method="ml")])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_variance_of_zero_leaves_no_interval_of_zero_width(prior, n):
    x, errors = np.array(EIGHT)[:n], np.array(EIGHT_ERRORS)[:n]
    posterior = eb.posterior_from(x, np.diag(errors**2), prior)
    expected = eb.posterior_from(x, errors, prior)
    lower, upper = posterior.interval()
    assert (upper - lower > 0.5 * errors[:, None]).all()
    assert (posterior.sample(400, 0).std(axis=0) > 0.2 * errors[:, None]).all()
    np.testing.assert_allclose(lower, expected.interval()[0], rtol=ROUNDING)
    np.testing.assert_allclose(upper, expected.interval()[1], rtol=ROUNDING)
    np.testing.assert_allclose(np.diag(posterior.covariance), posterior.sd[:, 0] ** 2)


@pytest.mark.parametrize("errors", [np.array(EIGHT_ERRORS), np.diag(np.array(EIGHT_ERRORS) ** 2)])
@pytest.mark.parametrize("prior", ["normal", "laplace", "npmle"])
def test_a_population_may_be_taken_to_be_as_fitted(prior, errors):
    known = eb.posterior_from(EIGHT, errors, prior, integrate=False)
    np.testing.assert_array_equal(known.mean, eb.posterior_from(EIGHT, errors, prior).mean)
    np.testing.assert_allclose(known.sd, 0, atol=1e-6)  # of one point


def test_robust_intervals_are_refused_with_correlations():
    with pytest.raises(ValueError, match="not correlated"):
        eb.posterior_from(X, V).interval(kind="robust")


@pytest.mark.parametrize("prior", ["npmle", "point_normal", "laplace", "scale_mixture"])
def test_other_populations_use_the_diagonal(prior):
    posterior = eb.posterior_from(X, V, prior)
    expected = eb.posterior_from(X, np.sqrt(np.diag(V)), prior)
    np.testing.assert_array_equal(posterior.mean, expected.mean)
    assert "Of the covariance, only the diagonal was used." in posterior.prior.notes_
    assert not any("diagonal" in note for note in expected.prior.notes_)


def changed(i, j, value):
    other = V.copy()
    other[i, j] = value
    return other


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (changed(0, 1, 0.0), "not symmetric"),
        (V - 5, "diagonal must lie between"),
        (np.outer(ERRORS, ERRORS), "not positive definite"),
        (np.diag(ERRORS) + 3 * (1 - np.eye(N)), "not positive definite"),
        (np.diag(np.r_[0.0, ERRORS[1:]]), "diagonal must lie between"),
        (changed(3, 2, np.nan), "1 entries missing or infinite, the first in row 3, column 2"),
        (changed(2, 2, np.inf), "1 entries missing or infinite, the first in row 2, column 2"),
        (1e308 * np.eye(N), "diagonal must lie between"),
        (1e-308 * np.eye(N), "diagonal must lie between"),
        (V[:, :-1], r"have shapes \(25,\) and \(25, 24\)"),
        (V[:-1, :-1], r"have shapes \(25,\) and \(24, 24\)"),
        (V[None], r"have shapes \(25,\) and \(1, 25, 25\)"),
    ],
)
@pytest.mark.parametrize("prior", ["normal", "npmle"])
def test_covariances_that_are_refused(covariance, message, prior):
    with pytest.raises(ValueError, match=message):
        eb.posterior_from(X, covariance, prior)


@pytest.mark.parametrize(("value", "message"), [(np.nan, "finite"), (1e308, "must stay below")])
def test_estimates_that_are_refused(value, message):
    with pytest.raises(ValueError, match=message):
        eb.posterior_from(np.r_[value, X[1:]], V)


def test_one_estimate_tells_no_spread():
    for error in ([2.0], np.array([[4.0]])):
        with pytest.warns(eb.IdentificationWarning, match="Only one group"):
            posterior = eb.posterior_from([3.0], error)
        assert (posterior.mean[0, 0], posterior.sd[0, 0]) == (3.0, 2.0)


# --- labels --------------------------------------------------------------------------------------

SCHOOLS = ["north", "south", "east", "west"]
EFFECTS, SE = [1.0, 4.0, -2.0, 6.0], [1.0, 1.0, 2.0, 0.5]


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        (SCHOOLS, "group"),
        (np.array(SCHOOLS), "group"),
        (pd.Series(SCHOOLS, name="school"), "school"),
        (pl.Series("school", SCHOOLS), "school"),
        (pd.Series(SCHOOLS, name="local"), "local_group"),
    ],
)
def test_labels_head_the_frame(labels, name):
    posterior = eb.posterior_from(EFFECTS, SE, labels=labels)
    out = posterior.to_frame()
    assert list(out.columns)[:4] == [name, "local", "std_error", "estimate"]
    assert out[name].to_list() == SCHOOLS
    assert isinstance(out, pl.DataFrame) == isinstance(labels, pl.Series)
    np.testing.assert_array_equal(posterior.mean, eb.posterior_from(EFFECTS, SE).mean)


def test_columns_of_a_frame_are_estimates_errors_and_labels():
    for library in (pd.DataFrame, pl.DataFrame):
        table = library({"school": SCHOOLS, "b": EFFECTS, "se": SE})
        out = eb.posterior_from(table["b"], table["se"], labels=table["school"]).to_frame()
        assert isinstance(out, library)
        assert out["school"].to_list() == SCHOOLS


def test_an_index_labels_unless_it_counts():
    out = eb.posterior_from(pd.Series(EFFECTS, SCHOOLS), SE).to_frame()
    assert (out.columns[0], out["term"].tolist()) == ("term", SCHOOLS)
    named = pd.Series(EFFECTS, pd.Index([3, 1, 2, 7], name="district"))
    out = eb.posterior_from(named, pd.Series(SE, named.index)).to_frame()
    assert (out.columns[0], out["district"].tolist()) == ("district", [3, 1, 2, 7])
    assert eb.posterior_from(pd.Series(EFFECTS), SE).to_frame().columns[0] == "local"
    rest = eb.posterior_from(pd.Series([0.0, *EFFECTS])[1:], SE).to_frame()
    assert rest["term"].tolist() == [1, 2, 3, 4]
    out = eb.posterior_from(named, SE, labels=SCHOOLS).to_frame()
    assert out["group"].tolist() == SCHOOLS
    covariance = pd.DataFrame(np.diag(SE), SCHOOLS, SCHOOLS)
    out = eb.posterior_from(pd.Series(EFFECTS, SCHOOLS), covariance).to_frame()
    assert out["term"].tolist() == SCHOOLS
    dates = pd.date_range("2020-01-01", periods=4)
    out = eb.posterior_from(pd.Series(EFFECTS, dates), SE).to_frame()
    assert out["term"].tolist() == dates.tolist()


AUTHORS = ["Smith", "Jones", "Smith", "Lee"]


@pytest.mark.parametrize("form", ["labels", "index", "covariance"])
def test_estimates_of_one_label_are_estimates_of_their_own(form):
    """Two studies of an author: every row is kept, in the order given."""
    given = {
        "labels": lambda: eb.posterior_from(EFFECTS, SE, labels=AUTHORS),
        "index": lambda: eb.posterior_from(pd.Series(EFFECTS, AUTHORS), pd.Series(SE, AUTHORS)),
        "covariance": lambda: eb.posterior_from(
            pd.Series(EFFECTS, AUTHORS), pd.DataFrame(np.diag(SE) ** 2, AUTHORS, AUTHORS)
        ),
    }
    found = given[form]()
    table = found.to_frame()
    assert table.iloc[:, 0].tolist() == AUTHORS
    assert table["local"].tolist() == EFFECTS
    if form != "covariance":
        np.testing.assert_array_equal(found.mean, eb.posterior_from(EFFECTS, SE).mean)
    assert found.ranks(n_draws=10).iloc[:, 0].tolist() == AUTHORS
    names = eb.report.plot_caterpillar(found).get_yticklabels()
    assert sorted(name.get_text() for name in names) == sorted(AUTHORS)


@pytest.mark.parametrize(
    ("estimates", "errors", "labels", "message"),
    [
        (EFFECTS, SE, SCHOOLS[:3], "labels has 3 entries for 4 estimates"),
        (EFFECTS, SE, ["a", "b", None, "c"], "labels has 1 missing"),
        (EFFECTS, SE, "school", "labels must be a sequence"),
        (EFFECTS, SE, 3, "labels must be a sequence"),
        (pd.Series(EFFECTS, list("aabc")), pd.Series(SE, list("abac")), None, "std_errors"),
        (pd.Series(EFFECTS, SCHOOLS), pd.Series(SE, list("wxyz")), None, "index of std_errors"),
        (
            pd.Series(EFFECTS, SCHOOLS),
            pd.DataFrame(np.eye(4), SCHOOLS, list("wxyz")),
            None,
            "index of columns of std_errors",
        ),
        (EFFECTS, None, None, "estimates and std_errors must be one-dimensional"),
    ],
)
def test_labels_that_are_refused(estimates, errors, labels, message):
    with pytest.raises((ValueError, TypeError), match=message):
        eb.posterior_from(estimates, errors, labels=labels)


def test_terms_are_for_regressions():
    with pytest.raises(ValueError, match="terms is for coefficients of a fitted regression"):
        eb.posterior_from(EFFECTS, SE, terms="school")


# --- pairs of pandas, and masks ------------------------------------------------------------------

FRAME = pd.DataFrame({"effect": EFFECTS, "error": SE, "wealth": [0.3, 1.1, 0.2, 2.0]}, SCHOOLS)
COUNTED = FRAME.reset_index(drop=True)


def same_as(posterior, other):
    order = other.to_frame().set_index("local").index
    table = posterior.to_frame().set_index("local").loc[order]
    np.testing.assert_allclose(table["estimate"], other.to_frame()["estimate"], rtol=1e-12)


@pytest.mark.parametrize("table", [FRAME, COUNTED], ids=["labels", "counts"])
def test_series_pair_by_label(table):
    straight = eb.posterior_from(EFFECTS, SE)
    by_size = table["effect"].sort_values()
    for posterior in (
        eb.posterior_from(by_size, table["error"]),
        eb.posterior_from(table["effect"], table["error"].sort_values()),
        eb.posterior_from(by_size, table["error"].sort_values()),
    ):
        same_as(posterior, straight)
    assert eb.posterior_from(by_size, table["error"]).to_frame()["local"].tolist() == sorted(
        EFFECTS
    )


def test_covariates_and_labels_pair_by_label():
    prior = Normal(variance=1.0)
    turned = FRAME.iloc[[2, 0, 3, 1]]
    straight = eb.posterior_from(EFFECTS, SE, prior, FRAME["wealth"].to_numpy())
    for wealth in (turned["wealth"], turned[["wealth"]]):
        same_as(eb.posterior_from(FRAME["effect"], FRAME["error"], prior, wealth), straight)
    letters = pd.Series(list("wxyz"), SCHOOLS)[::-1]
    posterior = eb.posterior_from(FRAME["effect"], SE, labels=letters)
    assert posterior.to_frame().iloc[:, 0].tolist() == list("wxyz")


def test_a_covariance_pairs_by_label_both_ways():
    covariance = pd.DataFrame(V[:4, :4], SCHOOLS, SCHOOLS)
    straight = eb.posterior_from(FRAME["effect"], covariance)
    turned = covariance.loc[SCHOOLS[::-1], [SCHOOLS[j] for j in (2, 0, 3, 1)]]
    same_as(eb.posterior_from(FRAME["effect"], turned), straight)
    same_as(eb.posterior_from(EFFECTS, covariance[SCHOOLS[::-1]]), straight)


@pytest.mark.parametrize(
    ("estimates", "errors", "message"),
    [
        (FRAME["effect"], COUNTED["error"], "the index of std_errors has other labels than that"),
        (COUNTED["effect"], FRAME["error"], "the index of std_errors has other labels than that"),
        (COUNTED["effect"], pd.Series(SE, [1, 2, 3, 4]), "0 is not in it. To pair by position"),
        (FRAME["effect"], pd.Series(SE, list("abab")), "has the label 'a' twice"),
    ],
)
def test_other_labels_are_refused(estimates, errors, message):
    with pytest.raises(ValueError, match=message):
        eb.posterior_from(estimates, errors)


def test_arrays_beside_series_pair_by_position():
    straight = eb.posterior_from(EFFECTS, SE)
    for estimates, errors in ((FRAME["effect"], SE), (EFFECTS, FRAME["error"])):
        np.testing.assert_array_equal(eb.posterior_from(estimates, errors).mean, straight.mean)


def test_masked_estimates_are_no_data():
    mask = [False, True, False, False]
    posterior = eb.posterior_from(np.ma.array(EFFECTS, mask=mask), np.ma.array(SE, mask=mask))
    unknown = eb.posterior_from(EFFECTS, [1.0, np.nan, 2.0, 0.5])
    np.testing.assert_array_equal(posterior.mean, unknown.mean)
    one = eb.posterior_from(EFFECTS, np.ma.array(SE, mask=mask))
    np.testing.assert_array_equal(one.mean, unknown.mean)
    with pytest.raises(ValueError, match="estimates must be finite wherever their standard error"):
        eb.posterior_from(np.ma.array(EFFECTS, mask=mask), SE)


def test_booleans_are_no_standard_errors():
    with pytest.raises(TypeError, match="std_errors must be numbers"):
        eb.posterior_from(EFFECTS, [True, True, False, True])


@pytest.mark.parametrize(
    "wrong",
    [pd.to_timedelta(SE, unit="s"), np.array(SE) + 0j, list("abcd")],
    ids=["durations", "complex", "words"],
)
def test_what_is_no_number_is_refused(wrong):
    with pytest.raises(TypeError, match="std_errors must be numbers"):
        eb.posterior_from(EFFECTS, wrong)
    with pytest.raises(TypeError, match="estimates must be numbers, or a fitted regression"):
        eb.posterior_from(wrong, SE)


@pytest.mark.parametrize("prior", ["normal", "laplace", "scale_mixture", "log_spline", "npmle"])
def test_no_estimates_have_no_draws(prior):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentificationWarning)
        posterior = eb.posterior_from([], [], prior=prior)
    assert posterior.sample(3).shape == (3, 0, 1)
    assert len(posterior.to_frame()) == 0


# --- tables of the population --------------------------------------------------------------------


def drawn(n=300):
    """Estimates whose mean and spread depend on their errors."""
    rng = np.random.default_rng(7)
    errors = np.exp(rng.normal(-0.7, 0.5, n))
    truth = 0.6 * np.log(errors) + 0.5 * errors**0.8 * rng.normal(size=n)
    return truth + errors * rng.normal(size=n), errors


@pytest.mark.parametrize(
    ("prior", "modelled", "terms"),
    [
        ("normal", {}, ["mean", "sd__mean"]),
        ("point_laplace", {}, ["mean", "sd__mean", "pi0", "scale"]),
        ("npmle", {}, ["mean", "sd__mean"]),
        ("normal", {"mean": "~ log(se)"}, ["intercept", "log(se)", "sd__intercept"]),
        (
            "log_spline",
            {"spread": "~ log(se)"},
            ["intercept", "sd__intercept", "log_sd__intercept", "log_sd__log(se)", "df"],
        ),
        (
            "normal",
            {"mean": "~ log(se)", "spread": "~ log(se)"},
            ["intercept", "log(se)", "sd__intercept", "log_sd__intercept", "log_sd__log(se)"],
        ),
    ],
)
def test_a_population_of_estimates_has_the_tables_of_a_fit(prior, modelled, terms):
    values, errors = drawn()
    found = eb.posterior_from(values, errors, prior, **modelled)
    tidy, glance = found.tidy(), found.glance()
    assert tidy["term"].tolist()[: len(terms)] == terms
    by_term = tidy.set_index("term")
    population = found.prior
    if modelled:
        np.testing.assert_array_equal(
            tidy.loc[tidy["effect"] == "fixed", "estimate"], population.coefficients_[:, 0]
        )
    if "spread" in modelled:
        of_spread = by_term.loc[["log_sd__intercept", "log_sd__log(se)"]]
        np.testing.assert_array_equal(of_spread["estimate"], population.spread_coefficients_[:, 0])
        np.testing.assert_array_equal(
            of_spread["std.error"], population.spread_coefficient_errors_[:, 0]
        )
    if (prior, modelled) == ("normal", {}):
        # restricted: the marginal likelihood over the error of the mean
        variance = population.variance_[0] + errors**2
        densities = stats.norm.logpdf(values, population.mean_[0], np.sqrt(variance))
        expected = densities.sum() - 0.5 * np.log((1 / variance).sum() / (2 * np.pi))
        assert glance["logLik"].item() == pytest.approx(expected, abs=1e-6)
        assert by_term.loc["mean", "std.error"] == pytest.approx((1 / variance).sum() ** -0.5)
    assert glance["nobs"].item() == len(values)
    text = str(found.summary())
    assert all(f"{x:.6g}" in text.split() for x in tidy["estimate"])
    assert "Rows" not in text
    assert "Estimates:" in text
    assert ("REML" in text) == (glance["likelihood"].item() == "REML")


def test_tables_are_of_independent_estimates():
    values, errors = drawn(12)
    for posterior in (
        eb.posterior_from(values, np.diag(errors**2) + 0.01),
        eb.GaussianEB().fit(values, groups=np.repeat(np.arange(4), 3)).posterior(),
    ):
        with pytest.raises(TypeError, match="posterior_from with independent errors"):
            posterior.summary()


@pytest.mark.parametrize(
    ("prior", "modelled"),
    [
        ("normal", {}),
        ("point_normal", {}),
        ("laplace", {"spread": "~ log(se)"}),
        ("scale_mixture", {}),
        ("log_spline", {"mean": "~ log(se)"}),
        ("npmle", {}),
        ("normal", {"mean": "~ bs(log(se), df=4)", "spread": "~ log(se)"}),
    ],
)
def test_a_population_from_a_file_is_that_of_the_fit(prior, modelled, tmp_path):
    """Its estimates of others are equal to the last bit, intervals and formulas included."""
    values, errors = drawn(120)
    past = eb.posterior_from(values[:100], errors[:100], prior, **modelled)
    past.save(tmp_path / "past.json")
    population = eb.load_fit(tmp_path / "past.json")
    assert population.is_fitted
    new = values[100:], errors[100:].clip(errors[:100].min(), errors[:100].max())
    expected = eb.posterior_from(*new, prior=past.prior)
    found = eb.posterior_from(*new, prior=population)
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.interval(), expected.interval())
    np.testing.assert_array_equal(found.prob_below(0.0), expected.prob_below(0.0))
    assert str(found.summary()) == str(expected.summary())
    assert eb.report.plot_population({"past": past, "file": population}) is not None


def test_a_population_with_a_formula_of_columns_is_kept(tmp_path):
    values, errors = drawn(80)
    kinds = pd.DataFrame({"kind": np.where(np.arange(80) % 3, "a", "b")})
    past = eb.posterior_from(values, errors, mean="~ kind", data=kinds)
    past.save(tmp_path / "past.json")
    population = eb.load_fit(tmp_path / "past.json")
    new = {"estimates": [0.0, 1.0], "std_errors": [0.3, 0.3], "data": kinds[:2]}
    expected = eb.posterior_from(**new, prior=past.prior)
    np.testing.assert_array_equal(eb.posterior_from(**new, prior=population).mean, expected.mean)
    text = (tmp_path / "past.json").read_text()
    (tmp_path / "past.json").write_text(text.replace("priors.Normal", "priors.Other"))
    with pytest.raises(ValueError, match="is not one that a fit is made of"):
        eb.load_fit(tmp_path / "past.json")
