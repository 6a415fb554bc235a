"""Bad, empty and degenerate input: an error that names its argument, or the documented answer.

Never a NaN in an estimate or an interval, and never a RuntimeWarning, which is an error here.
"""

import warnings
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import ebfed as eb
from ebfed.channels import Exact
from ebfed.priors import Beta, Normal

# Answers that are exact in real numbers are so to a few roundings.
CLOSE = 1e-12
# NPMLE: a duality gap of 1e-6 in log-likelihood leaves atoms free by about its square root.
LOOSE = 1e-2

GAUSSIAN = {
    "reml": eb.GaussianEB(),
    "ml": eb.GaussianEB(method="ml"),
    "moments": eb.GaussianEB(method="moments"),
    "known variance": eb.GaussianEB(variances=0.3),
    "mixture": eb.MixtureEB(random_state=0),
    "gaussian mixture": eb.MixtureEB(2, components="spherical", random_state=0),
    "gaussian log-spline": eb.GaussianEB(prior="log_spline"),
    "gaussian npmle": eb.GaussianEB(prior="npmle"),
    "gaussian npmle, known variance": eb.GaussianEB(0.3, prior="npmle"),
}
RATES = {
    "beta": eb.BernoulliEB(),
    "beta by moments": eb.BernoulliEB(method="moments"),
    "beta by eq. (6)": eb.BernoulliEB(method="paper"),
    "rate log-spline": eb.BernoulliEB(prior="log_spline"),
    "rate npmle": eb.BernoulliEB(prior="npmle"),
}
ALL = GAUSSIAN | RATES
SMOOTH = {"rate log-spline"}  # a density: rates near 0 or 1, never at it
BOTH = {"gaussian": eb.GaussianEB(), "rate": eb.BernoulliEB()}

# Rows that suit both kinds of estimator.
Y = [0, 1, 1, 0, 1, 1, 1, 0, 0]
G = ["a", "a", "a", "b", "b", "b", "b", "c", "c"]

every = pytest.mark.parametrize("name", ALL)
every_with_points = pytest.mark.parametrize("name", [name for name in ALL if name not in SMOOTH])
both = pytest.mark.parametrize("kind", BOTH)


@contextmanager
def unidentified_is_fine():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eb.IdentificationWarning)
        yield


def fit(estimator, *args, **kwargs):
    with unidentified_is_fine():
        return clone(estimator).fit(*args, **kwargs)


def assert_sound(posterior):
    """Finite estimates with ordered intervals, by the equal tails and by the robust way.

    Intervals are infinite only where nothing is known: of a group without rows where the spread of
    the population is not identified, and of the only row where the noise is not.
    """
    table = posterior.to_frame()
    figures = table[["estimate", "sd", "lower", "upper"]].to_numpy(float)
    assert not np.isnan(figures).any()
    assert np.isfinite(figures[:, 0]).all()
    open_ended = np.isinf(figures[:, 1])
    np.testing.assert_array_equal(np.isinf(figures[:, 2:]).all(axis=1), open_ended)
    assert "n" not in table or (table["n"][open_ended] <= 1).all()
    assert (table["sd"] >= 0).all()
    assert (table["lower"] <= table["upper"]).all()
    if posterior.weight is not None:
        assert ((posterior.weight >= 0) & (posterior.weight <= 1)).all()
    robust = robust_interval(posterior)
    if robust is not None:
        lower, upper = robust
        assert not np.isnan(robust).any()
        assert ((lower < upper) | ((lower == upper) & (posterior.sd == 0))).all()


def robust_interval(posterior):
    """None where estimates are not shrunk linearly to one population, as the error says."""
    try:
        return posterior.interval(0.9, kind="robust")
    except ValueError as error:
        if "robust intervals are built around linear shrinkage" in str(error):
            return None
        raise


def answer_or_refusal(function, *args, **kwargs):
    """What the function returns, and the message of the ValueError that it raises instead."""
    try:
        with unidentified_is_fine():
            return function(*args, **kwargs), None
    except ValueError as error:
        return None, str(error)


# --- degenerate data: the documented answer ------------------------------------------------------

DEGENERATE = {
    "one row": ([1], ["a"]),
    "one row of zero": ([0], ["a"]),
    "one group": ([0, 1, 1, 0], ["a"] * 4),
    "one group, all equal": ([1, 1, 1], ["a"] * 3),
    "two groups of one row": ([0, 1], ["a", "b"]),
    "two groups of one equal row": ([1, 1], ["a", "b"]),
    "one row in every group": ([0, 1, 1, 0, 1], list("abcde")),
    "no groups": ([0, 1, 1, 0, 1], None),
    "no groups, all equal": ([1, 1, 1, 1, 1], None),
    "all ones": ([1] * 6, list("aabbcc")),
    "all zeros": ([0] * 6, list("aabbcc")),
    "all equal in unequal groups": ([1] * 6, list("abbccc")),
    "equal groups": ([0, 1] * 3, list("aabbcc")),
    "groups without spread within": ([0, 0, 1, 1], list("aabb")),
    "one group without spread within": ([0, 0, 0, 1], list("aabb")),
    "one large group, one row": ([0, 1] * 50 + [1], ["a"] * 100 + ["b"]),
}


@pytest.mark.filterwarnings("ignore::ebfed.IdentificationWarning")
@every
@pytest.mark.parametrize("data", DEGENERATE)
def test_degenerate_data_gives_sound_answers(name, data):
    rows, groups = DEGENERATE[data]
    fitted = clone(ALL[name]).fit(rows, groups=groups)
    assert_sound(fitted.posterior())
    assert_sound(fitted.posterior(rows, groups=groups))
    asked = ["a", "new"] if groups is not None else [0, 99]
    posterior = fitted.posterior(groups=asked)
    assert_sound(posterior)
    np.testing.assert_allclose(posterior.mean[1], fitted.prior_.mean_, rtol=CLOSE, atol=CLOSE)
    low, high = (0, 1) if name in SMOOTH else (min(rows), max(rows))
    for estimates in (fitted.predict(), fitted.predict(rows, groups=groups)):
        assert np.isfinite(estimates).all()
        assert (estimates >= low - LOOSE).all()  # shrinkage never leaves the data's range
        assert (estimates <= high + LOOSE).all()
    assert fitted.predict(rows, groups=groups).shape == (len(rows),)
    assert len(fitted.predict()) == (len(rows) if groups is None else len(set(groups)))
    assert np.isfinite(fitted.prior_.mean_).all()
    assert (fitted.prior_.variance_ >= 0).all()
    assert np.isfinite(fitted.tidy().query("term in ['mean', 'sd__mean']")["estimate"]).all()
    assert fitted.glance()["nobs"].item() == len(rows)
    # rows without noise have no density; everything else is a number
    lines = [line for line in fitted.summary().splitlines() if "Log-likelihood" not in line]
    assert not any("nan" in line for line in lines)


@every_with_points
@pytest.mark.parametrize(
    "data", ["all ones", "no groups, all equal", "all equal in unequal groups"]
)
def test_equal_data_is_estimated_by_what_it_equals(name, data):
    rows, groups = DEGENERATE[data]
    fitted = fit(ALL[name], rows, groups=groups)
    np.testing.assert_allclose(fitted.predict(), 1.0, atol=CLOSE if "npmle" not in name else LOOSE)


@every_with_points
def test_one_group_is_estimated_by_its_mean(name):
    fitted = fit(ALL[name], [0, 1, 1, 1], groups=["a"] * 4)
    np.testing.assert_allclose(fitted.predict(), 0.75, atol=CLOSE if "npmle" not in name else LOOSE)


@pytest.mark.parametrize(
    "name", ["reml", "ml", "moments", "mixture", "gaussian mixture", "gaussian npmle"]
)
def test_without_repeated_rows_estimates_are_the_local_ones(name):
    with pytest.warns(eb.IdentificationWarning, match="noise and spread .* not identified apart"):
        fitted = clone(ALL[name]).fit([2.0, 3.0, 4.0, 7.0])
    np.testing.assert_allclose(fitted.predict(), [2.0, 3, 4, 7], rtol=CLOSE)
    # noise may be any part of the variance of the rows, 14 / 3
    sd = fitted.posterior().sd
    assert ((sd > 0.5) & (sd < np.sqrt(14 / 3))).all()
    assert any("not identified apart" in note for note in fitted.notes_)
    # and a new group is a draw from the population, which has the rest of that variance
    new = fitted.posterior(groups=[77])
    np.testing.assert_allclose(new.mean, 4.0, rtol=1e-4)
    assert 1 < new.sd.item() < 3


@pytest.mark.parametrize("prior", ["normal", "npmle"])
def test_no_noise_leaves_every_estimate_as_it_is(prior):
    fitted = fit(eb.GaussianEB(variances=0, prior=prior), [1.0, 2.0, 6.0], groups=["a", "b", "c"])
    np.testing.assert_array_equal(fitted.predict(), [1.0, 2.0, 6.0])
    np.testing.assert_array_equal(fitted.posterior().sd, 0)
    new = fitted.posterior(groups=["new"])
    np.testing.assert_allclose(new.mean, 3.0, rtol=1e-4)
    assert 2 < new.sd.item() < 4


@pytest.mark.parametrize("name", ["reml", "ml", "moments", "known variance"])
def test_a_constant_column_does_not_disturb_its_neighbour(name):
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(6), 4)
    values = rng.normal(size=24) + groups
    fitted = fit(ALL[name], np.column_stack([np.full(24, 5.0), values]), groups=groups)
    assert_sound(fitted.posterior())
    np.testing.assert_allclose(fitted.predict()[:, 0], 5.0, rtol=CLOSE)
    alone = fit(ALL[name], values, groups=groups)
    np.testing.assert_allclose(fitted.predict()[:, 1], alone.predict(), rtol=CLOSE)


@pytest.mark.filterwarnings("ignore::ebfed.IdentificationWarning")
@every
@pytest.mark.parametrize(
    "counts",
    [([0], [0]), ([0, 0, 0], [0, 0, 0]), ([0, 0, 3], [0, 0, 4]), ([0, 1, 1, 3], [0, 1, 2, 4])],
    ids=["one empty", "all empty", "one told", "one empty of four"],
)
def test_clients_without_rows_get_the_population(name, counts):
    fitted = clone(ALL[name]).fit(eb.Summary.from_counts(*counts))
    posterior = fitted.posterior()
    assert_sound(posterior)
    empty = np.array(counts[1]) == 0
    # the mean may be 0
    np.testing.assert_allclose(posterior.mean[empty], fitted.prior_.mean_[0], CLOSE, CLOSE)
    assert posterior.to_frame()["local"].isna().tolist() == empty.tolist()
    assert_sound(fitted.posterior(groups=[0, 99]))


@every
def test_who_has_robust_intervals(name):
    posterior = fit(ALL[name], Y, groups=G).posterior()
    beta = name in RATES and not any(kind in name for kind in ("npmle", "log-spline", "eq. (6)"))
    assert (robust_interval(posterior) is not None) == (name in GAUSSIAN or beta)


@pytest.mark.filterwarnings("ignore::ebfed.IdentificationWarning")
@pytest.mark.parametrize("name", ["reml", "known variance", "beta", "beta by moments"])
@pytest.mark.parametrize("data", ["one group", "two groups of one row", "one row in every group"])
def test_a_robust_interval_is_not_the_narrower_where_the_spread_is_unknown(name, data):
    rows, groups = DEGENERATE[data]
    posterior = clone(ALL[name]).fit(rows, groups=groups).posterior()
    lower, upper = posterior.interval(0.9)
    robust_lower, robust_upper = posterior.interval(0.9, kind="robust")
    assert (robust_upper - robust_lower >= (1 - CLOSE) * (upper - lower)).all()


@pytest.mark.parametrize("data", ["one group", "one row in every group", "all ones"])
def test_what_a_rate_cannot_tell_is_said(data):
    rows, groups = DEGENERATE[data]
    with pytest.warns(eb.IdentificationWarning, match="not identified"):
        fitted = eb.BernoulliEB().fit(rows, groups=groups)
    assert fitted.prior_.variance_[0] == 0
    assert any("not identified" in note for note in fitted.notes_)


def test_zero_spread_is_a_normal_answer_without_warning():
    fitted = eb.GaussianEB().fit([0.0, 1.0, 0.0, 1.0], groups=["a", "a", "b", "b"])
    assert fitted.prior_.variance_[0] == 0
    np.testing.assert_allclose(fitted.predict(), 0.5, rtol=CLOSE)
    assert any("variance between groups is zero" in note for note in fitted.notes_)
    assert "variance between groups is zero" in " ".join(fitted.summary().split())


# --- unseen groups -------------------------------------------------------------------------------


@every
def test_an_unseen_group_without_rows_gets_the_population(name):
    fitted = fit(ALL[name], Y, groups=G)
    posterior = fitted.posterior(groups=["new", "a"])
    assert_sound(posterior)
    assert posterior.to_frame()["n"].tolist() == [3, 0]  # sorted: a, new
    np.testing.assert_allclose(posterior.mean[1], fitted.prior_.mean_, rtol=CLOSE)
    known = fitted.predict(groups=["a"])
    np.testing.assert_array_equal(
        fitted.predict(groups=["new", "a", "new"]),
        [posterior.mean[1, 0], *known, posterior.mean[1, 0]],
    )


def test_an_unseen_group_of_a_normal_population_is_as_uncertain_as_the_population():
    fitted = eb.GaussianEB().fit([1.0, 2, 3, 4.5, 7, 9], groups=list("aabbcc"))
    prior = fitted.prior_
    assert fitted.posterior(groups=["new"]).sd[0] > np.sqrt(prior.variance_ + prior.mean_variance_)
    posterior = fitted.posterior(groups=["new"], integrate=False)
    variance = prior.variance_
    np.testing.assert_allclose(posterior.sd[0], np.sqrt(variance), rtol=CLOSE)
    lower, upper = posterior.interval(0.9)
    np.testing.assert_allclose((upper - lower)[0], 2 * ndtri(0.95) * np.sqrt(variance), rtol=CLOSE)


@every
def test_an_unseen_group_with_rows_is_predicted_from_them(name):
    fitted = fit(ALL[name], Y, groups=G)
    known = fitted.predict([1, 1, 0], groups=["a", "a", "a"])
    new = fitted.predict([1, 1, 0], groups=["new", "new", "new"])
    if name != "beta by eq. (6)":  # where a client of the fit sees a prior of all the others
        # the fitted mean owes nothing to a new group, whose own rows count for a little more
        assert (np.abs(new - 2 / 3) <= np.abs(known - 2 / 3) + 1e-12).all()
        np.testing.assert_allclose(new, known, atol=0.1)
    assert np.isfinite(new).all()


@both
@pytest.mark.parametrize("asked", [[1, 2], [1.5], [True], ["z"], np.array(["2020-01-01"], "M8[D]")])
def test_labels_of_another_kind_are_unseen_groups(kind, asked):
    fitted = clone(BOTH[kind]).fit(Y, groups=G)
    np.testing.assert_allclose(fitted.predict(groups=asked), fitted.prior_.mean_[0], rtol=CLOSE)


@both
def test_asking_for_no_group_gives_none(kind):
    fitted = clone(BOTH[kind]).fit(Y, groups=G)
    assert fitted.predict(groups=[]).shape == (0,)
    assert len(fitted.posterior(groups=[]).to_frame()) == 0


# --- rows that are refused -----------------------------------------------------------------------

READERS = {
    "fit": lambda estimator, X, groups: estimator.fit(X, groups=groups),
    "fit_predict": lambda estimator, X, groups: estimator.fit_predict(X, groups=groups),
    "partial_fit": lambda estimator, X, groups: estimator.partial_fit(X, groups=groups),
    "predict": lambda estimator, X, groups: estimator.predict(X, groups=groups),
    "posterior": lambda estimator, X, groups: estimator.posterior(X, groups=groups),
    "score": lambda estimator, X, groups: estimator.score(X, groups=groups),
    "transform": lambda estimator, X, groups: estimator.transform(X, groups=groups),
    "augment": lambda estimator, X, groups: estimator.augment(X, groups=groups),
}


@both
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("X", "groups", "error", "message"),
    [
        ([0, np.nan, 1], ["a", "a", "b"], ValueError, "X contains NaN"),
        ([0, None, 1], ["a", "a", "b"], ValueError, "X contains NaN"),
        ([0, np.inf, 1], ["a", "a", "b"], ValueError, "X contains infinity"),
        ([0, -np.inf, 1], None, ValueError, "X contains infinity"),
        ([], [], ValueError, r"0 sample\(s\)"),
        (np.empty((0, 1)), None, ValueError, r"0 sample\(s\)"),
        (np.empty((3, 0)), ["a", "a", "b"], ValueError, r"0 feature\(s\)"),
        (np.zeros((2, 2, 2)), ["a", "b"], ValueError, "dim 3"),
        (1.0, ["a"], ValueError, "scalar array|1-D|2D array"),
        ([0, 1], ["a", "a", "b"], ValueError, "groups has 3 entries for the 2 rows of X"),
        ([0, 1, 1], ["a", "b"], ValueError, "groups has 2 entries for the 3 rows of X"),
        ([0, 1, 1], ["a", None, "b"], ValueError, "groups has 1 missing"),
        ([0, 1, 1], ["a", np.nan, "b"], ValueError, "groups has 1 missing"),
        ([0, 1, 1], [1.0, np.nan, 2], ValueError, "groups has 1 missing"),
        ([0, 1], pd.to_datetime(["2020", None]), ValueError, "groups has 1 missing"),
        ([0, 1], np.zeros((2, 2)), ValueError, "groups must be one label per row"),
        ([0, 1], 7, ValueError, "groups must be a sequence of labels"),
        ([0, 1], "a", ValueError, "groups='a' names a column, but X is not a data frame"),
        ([0, 1], np.array(["a", 1], object), TypeError, "groups mixes labels"),
        (["x", "y"], ["a", "b"], ValueError, "X"),
        (np.array([0, "y"], object), ["a", "b"], ValueError, "X"),
        (np.array([0, {}], object), ["a", "b"], TypeError, "X"),
        ([1j, 1], ["a", "b"], ValueError, "Complex data not supported"),
    ],
)
def test_rows_and_labels_that_are_refused(kind, reader, X, groups, error, message):
    fitted = clone(BOTH[kind]).fit(Y, groups=G)
    before = fitted.predict()
    with pytest.raises(error, match=message):
        READERS[reader](fitted, X, groups)
    if "fit" not in reader:
        np.testing.assert_array_equal(fitted.predict(), before)


@both
@pytest.mark.parametrize("reader", ["predict", "posterior", "score", "transform", "partial_fit"])
def test_another_number_of_columns_is_refused(kind, reader):
    fitted = clone(BOTH[kind]).fit(Y, groups=G)
    with pytest.raises(ValueError, match=r"X has 2 features.* 1"):
        READERS[reader](fitted, np.ones((3, 2)), ["a", "a", "b"])


@both
def test_asking_for_groups_that_are_not_labels(kind):
    fitted = clone(BOTH[kind]).fit(Y, groups=G)
    for groups, message in [
        (["a", None], "groups has 1 missing"),
        ([["a", "b"]], "groups must be one label per row"),
        (3, "groups"),
        ("a", "groups"),
    ]:
        for ask in (fitted.predict, fitted.posterior):
            with pytest.raises((ValueError, TypeError), match=message):
                ask(groups=groups)


@both
def test_y_in_the_place_of_groups_is_told_where_it_belongs(kind):
    with pytest.raises(ValueError, match="pass them as groups="):
        clone(BOTH[kind]).fit(Y, G)


@both
def test_summaries_bring_their_own_labels(kind):
    summary = eb.Summary.from_counts([1, 2], [3, 3])
    with pytest.raises(ValueError, match="groups must be None"):
        clone(BOTH[kind]).fit(summary, groups=[0, 1])
    with pytest.raises(ValueError, match="X holds no clients"):
        clone(BOTH[kind]).fit(eb.Summary.from_counts([], []))
    fitted = clone(BOTH[kind]).fit(Y, groups=G)
    with pytest.raises(ValueError, match=r"X has 2 features"):
        fitted.predict(eb.Summary.from_rows(np.ones((2, 2)), [0, 1]))
    with pytest.raises(TypeError, match="augment needs the rows themselves"):
        fitted.augment(summary)


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("bad", [-1, 2, 0.5, 1 + 1e-9])
def test_a_rate_is_of_zeros_and_ones(name, bad):
    with pytest.raises(ValueError, match="X must hold only 0 and 1; row 1 has"):
        clone(RATES[name]).fit([0, bad, 1], groups=["a", "a", "b"])
    fitted = fit(RATES[name], Y, groups=G)
    with pytest.raises(ValueError, match="X must hold only 0 and 1; row 1 has"):
        fitted.predict([0, bad, 1], groups=["a", "a", "b"])


@pytest.mark.parametrize(
    "values", [[0.2, 0.5, 3.0, 7.0], [-1.0, 0.0, -3.0, 1.0], [0.25, 0.5, 0.5, 0.25]]
)
def test_a_rate_is_of_summaries_of_zeros_and_ones(values):
    with pytest.raises(ValueError, match="X"):
        eb.BernoulliEB().fit(eb.Summary.from_rows(values, [0, 0, 1, 1]))


@both
def test_objects_that_are_numbers_are_numbers(kind):
    expected = clone(BOTH[kind]).fit(Y, groups=G).predict()
    objects = np.array(Y, object)
    np.testing.assert_array_equal(clone(BOTH[kind]).fit(objects, groups=G).predict(), expected)
    booleans = np.array(Y, bool)
    np.testing.assert_array_equal(clone(BOTH[kind]).fit(booleans, groups=G).predict(), expected)


# --- numbers too large and too small -------------------------------------------------------------


@pytest.mark.parametrize("name", GAUSSIAN)
@pytest.mark.parametrize("groups", [None, ["a", "a", "b"]], ids=["rows", "groups"])
@pytest.mark.parametrize("values", [[1.0, 1e308, 2], [1e308, -1e308, 3.0], [0.0, 0.0, -1e308]])
def test_values_whose_squares_overflow_are_refused(name, groups, values):
    with unidentified_is_fine(), pytest.raises(ValueError, match="X holds a value too large"):
        clone(GAUSSIAN[name]).fit(values, groups=groups)
    fitted = fit(GAUSSIAN[name], Y, groups=G)
    with pytest.raises(ValueError, match="X holds a value too large"):
        fitted.predict(values, groups=groups)


POWERS = [-300, -200, -160, -120, -80, -40, 40, 70, 80, 120, 149, 152, 200, 300]


@pytest.mark.parametrize(
    "name", ["reml", "ml", "moments", "mixture", "gaussian mixture", "gaussian npmle"]
)
@pytest.mark.parametrize("power", POWERS)
def test_rescaling_rescales_the_answer_or_is_refused(name, power):
    values = np.array([0.3, 1.0, 2.0, 0.5, 4.5, 8.0, 2.5])
    groups = list("aabbccc")
    expected = clone(GAUSSIAN[name]).fit(values, groups=groups).posterior().to_frame()
    scale = float(f"1e{power}")
    fitted, refusal = answer_or_refusal(fit, GAUSSIAN[name], values * scale, groups=groups)
    if refusal is not None:
        assert "X holds" in refusal
        assert abs(power) > 60  # nobody measures such numbers
        return
    posterior = fitted.posterior()
    assert_sound(posterior)
    for column in ("estimate", "sd", "lower", "upper"):
        np.testing.assert_allclose(
            posterior.to_frame()[column] / scale, expected[column], rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("prior", ["normal", "npmle"])
@pytest.mark.parametrize("power", POWERS)
def test_rescaling_estimates_rescales_the_posterior_or_is_refused(prior, power):
    values, errors = np.array([0.0, 1.0, 2.0, 0.5, 4.5, 8.0]), np.array([1, 0.5, 1, 1, 2, 1])
    expected = eb.posterior_from(values, errors, prior).mean
    scale = float(f"1e{power}")
    posterior, refusal = answer_or_refusal(eb.posterior_from, values * scale, errors * scale, prior)
    if refusal is not None:
        assert "estimates and std_errors must" in refusal
        assert abs(power) > 60
        return
    assert_sound(posterior)
    np.testing.assert_allclose(posterior.mean / scale, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("prior", ["normal", "npmle"])
@pytest.mark.parametrize("far", [1e3, 1e5, 1e9])
def test_one_wild_estimate_does_not_move_the_others_out_of_their_range(prior, far):
    values = [0.0, 1.0, 2.0, 0.5, 1.5, far]
    posterior = eb.posterior_from(values, np.ones(6), prior)
    assert_sound(posterior)
    estimates = posterior.mean.ravel()
    assert (estimates[:5] > -LOOSE).all()
    assert (estimates[:5] < 2.1).all()
    assert estimates[5] == pytest.approx(far, abs=1)


@pytest.mark.parametrize("prior", ["normal", "npmle"])
@pytest.mark.parametrize("small", [1e-2, 1e-3, 1e-4, 1e-8])
def test_precise_estimates_among_vague_ones_stay_where_they_are(prior, small):
    values = np.random.default_rng(1).normal(size=100)
    errors = np.where(np.arange(100) < 3, small, 1.0)
    posterior = eb.posterior_from(values, errors, prior)
    assert_sound(posterior)
    assert (np.abs(posterior.mean[:3, 0] - values[:3]) < 3 * small).all()


def test_the_npmle_of_rows_without_noise_is_their_own_distribution():
    values = np.random.default_rng(2).normal(size=60)
    prior = fit(GAUSSIAN["gaussian npmle"], values).prior_
    np.testing.assert_allclose(prior.atoms_[:, 0], np.sort(values), rtol=CLOSE)
    np.testing.assert_allclose(prior.weights_, 1 / 60, rtol=CLOSE)


# --- arguments of the constructor ----------------------------------------------------------------


@both
@pytest.mark.parametrize("prior", ["gauss", "NPMLE", 3, None, Normal, ["normal"]])
def test_prior_of_wrong_kind(kind, prior):
    with pytest.raises((ValueError, TypeError), match="prior must be"):
        type(BOTH[kind])(prior=prior).fit(Y, groups=G)


def test_prior_that_does_not_suit_the_parameter():
    with pytest.raises(ValueError, match="prior must be 'beta', 'log_spline', 'npmle' or"):
        eb.BernoulliEB(prior="normal").fit(Y, groups=G)
    with pytest.raises(ValueError, match="prior must be 'normal', 'point_normal', "):
        eb.GaussianEB(prior="beta").fit(Y, groups=G)
    with pytest.raises(TypeError, match="Choose a prior that fits"):
        eb.BernoulliEB(prior=Normal()).fit(Y, groups=G)


@both
def test_npmle_of_two_columns(kind):
    with pytest.raises(TypeError, match="in at most 1 dimensions"):
        type(BOTH[kind])(prior="npmle").fit(np.ones((4, 2)), groups=list("aabb"))


@both
@pytest.mark.parametrize("prior", [None, "npmle"])
@pytest.mark.parametrize("method", ["REML", "newton", None, 1])
def test_method_of_wrong_kind(kind, prior, method):
    arguments = {} if prior is None else {"prior": prior}
    with pytest.raises((ValueError, TypeError), match="method must be"):
        type(BOTH[kind])(method=method, **arguments).fit(Y, groups=G)


@both
@pytest.mark.parametrize("channel", ["exact", Exact, 3, {}])
def test_channel_of_wrong_kind(kind, channel):
    with pytest.raises(TypeError, match="channel must be"):
        type(BOTH[kind])(channel=channel).fit(Y, groups=G)


@both
@pytest.mark.parametrize("engine", ["dask", 4])
def test_engine_of_wrong_kind(kind, engine):
    with pytest.raises(TypeError, match="engine must be"):
        type(BOTH[kind])(engine=engine).fit(Y, groups=G)


@both
@pytest.mark.parametrize("seed", ["x", -1, 1.5])
def test_random_state_of_wrong_kind(kind, seed):
    with pytest.raises((ValueError, TypeError), match="random_state"):
        type(BOTH[kind])(random_state=seed).fit(Y, groups=G)


@pytest.mark.parametrize("prior", ["normal", "npmle"])
@pytest.mark.parametrize(
    "variances", [-1.0, np.nan, np.inf, [1.0, 2.0], "one", ["one"], [[1.0], [2.0]], [1.0, -1.0], {}]
)
def test_variances_of_wrong_kind(prior, variances):
    with pytest.raises((ValueError, TypeError), match="variances must be"):
        eb.GaussianEB(variances, prior=prior).fit(Y, groups=G)


@pytest.mark.parametrize("prior", ["normal", "npmle"])
@pytest.mark.parametrize("variance", [5e-324, 1e-308, 1e-150, 1e-30, 1e30, 1e150, 1e308])
def test_variances_of_any_size_give_sound_answers_or_are_refused(prior, variance):
    values = [1.0, 2.0, 3.0, 4.0, 8.0, 9.0]
    fitted, refusal = answer_or_refusal(
        fit, eb.GaussianEB(variance, prior=prior), values, groups=list("aabbcc")
    )
    if refusal is not None:
        assert "variances must be" in refusal
        assert not 1e-40 < variance < 1e40
        return
    assert_sound(fitted.posterior())
    if variance < 1:
        np.testing.assert_allclose(fitted.predict(), [1.5, 3.5, 8.5], rtol=LOOSE)
    elif prior == "normal":  # for an NPMLE, any place within the noise is as likely
        np.testing.assert_allclose(fitted.predict(), 4.5, rtol=LOOSE)


@pytest.mark.parametrize("threshold", ["half", np.nan, None, [0.5]])
def test_binarize_of_wrong_kind(threshold):
    message = "X must hold only 0 and 1" if threshold is None else "binarize must be"
    with pytest.raises((ValueError, TypeError), match=message):
        eb.BernoulliEB(binarize=threshold).fit([0.1, 0.7, 0.9], groups=["a", "a", "b"])


def test_binarize_takes_values_of_any_size():
    fitted = eb.BernoulliEB(binarize=0.0).fit([-1e308, 1e308, 3.0, -1.0], groups=list("aabb"))
    np.testing.assert_allclose(fitted.predict(), 0.5)


# --- arguments of the methods --------------------------------------------------------------------


@pytest.fixture(params=["reml", "gaussian npmle", "beta", "rate npmle"])
def posterior(request):
    return fit(ALL[request.param], Y, groups=G).posterior()


@pytest.mark.parametrize("level", [0, 1, -0.5, 2, np.nan, "high", None])
@pytest.mark.parametrize("how", ["interval", "to_frame"])
def test_level_of_an_interval(posterior, level, how):
    with pytest.raises((ValueError, TypeError), match="level must lie between 0 and 1"):
        getattr(posterior, how)(level)


def test_kind_of_an_interval(posterior):
    with pytest.raises(ValueError, match="kind must be 'eb' or 'robust'"):
        posterior.interval(kind="wide")


@pytest.mark.parametrize("q", [-0.1, 1.1, np.nan])
def test_quantiles_outside_zero_and_one(posterior, q):
    with pytest.raises(ValueError, match="q must"):
        posterior.quantile(q)


@pytest.mark.parametrize("q", [0.0, 0.5, 1.0])
def test_quantiles_are_never_nan(posterior, q):
    assert not np.isnan(posterior.quantile(q)).any()


def test_methods_of_an_estimator_that_is_not_fitted():
    for estimator in (eb.GaussianEB(), eb.BernoulliEB()):
        for name in ("predict", "posterior", "summary", "tidy", "glance"):
            with pytest.raises(NotFittedError):
                getattr(estimator, name)()
        for name in ("predict", "posterior", "score", "transform", "augment"):
            with pytest.raises(NotFittedError):
                getattr(estimator, name)(Y, groups=G)
        for name in ("groups_", "notes_", "log_likelihood_", "n_parameters_", "noise_variance_"):
            with pytest.raises(AttributeError):
                getattr(estimator, name)


def test_a_failed_fit_leaves_the_estimator_as_it_was():
    fitted = eb.GaussianEB().fit([1.0, 2, 3, 4.5], groups=list("aabb"))
    before = fitted.predict()
    with pytest.raises(ValueError, match="groups has 1 entries"):
        fitted.partial_fit([1.0, 2.0], groups=["a"])
    np.testing.assert_array_equal(fitted.predict(), before)


# --- posterior_from ------------------------------------------------------------------------------

PRIORS = pytest.mark.parametrize("prior", ["normal", "npmle"])


@PRIORS
@pytest.mark.parametrize(
    ("estimates", "errors", "message"),
    [
        ([1.0, 2.0], [1.0], "estimates and std_errors must be one-dimensional and of one length"),
        ([[1.0, 2.0]], [[1.0, 1.0]], "estimates and std_errors must be one-dimensional"),
        (1.0, 1.0, "estimates and std_errors must be one-dimensional"),
        (None, None, "estimates and std_errors must be one-dimensional"),
        ([1.0, 2.0], [1.0, -1.0], "std_errors must not be negative"),
        ([1.0, 2.0, 3.0], [np.nan, -1.0, 1.0], "std_errors must not be negative"),
        ([1.0, 2.0], [1.0, -np.inf], "std_errors must not be negative"),
        ([1.0, np.nan], [1.0, 1.0], "estimates must be finite wherever"),
        ([1.0, np.inf], [1.0, 1.0], "estimates must be finite wherever"),
        ([1.0, np.nan], [1.0, 0.0], "estimates must be finite wherever"),
        ([1.0, 1e308], [1.0, 1.0], "estimates and std_errors must stay below"),
        ([1.0, 1.0], [1.0, 1e308], "estimates and std_errors must stay below"),
        (["a", "b"], [1.0, 1.0], "estimates must be"),
        ([1.0, 2.0], ["a", "b"], "std_errors must be"),
        (np.array([1.0, {}], object), [1.0, 1.0], "estimates must be"),
    ],
)
def test_estimates_and_errors_that_are_refused(prior, estimates, errors, message):
    with pytest.raises((ValueError, TypeError), match=message):
        eb.posterior_from(estimates, errors, prior)


@pytest.mark.parametrize("prior", ["gauss", 3, None, Normal])
def test_prior_for_estimates_of_wrong_kind(prior):
    with pytest.raises((ValueError, TypeError), match="prior must be"):
        eb.posterior_from([1.0, 2.0], [1.0, 1.0], prior)


@pytest.mark.filterwarnings("ignore::ebfed.IdentificationWarning")
@PRIORS
@pytest.mark.parametrize(
    ("estimates", "errors"),
    [
        ([1.0], [1.0]),
        ([1.0], [0.0]),
        ([1.0], [np.inf]),
        ([2.0, 2.0, 2.0], [1.0, 1.0, 1.0]),
        ([2.0, 2.0, 2.0], [1.0, 2.0, 1.0]),
        ([1.0, 2.0], [0.0, 0.0]),
        ([1.0, 2.0], [0.0, np.inf]),
        ([1.0, 2.0], [np.inf, np.nan]),
        ([1.0, np.nan, 3.0], [1.0, np.nan, 2.0]),
        ([1.0, np.inf, 3.0], [1.0, np.inf, 2.0]),
        ([1.0, 2.0, 2.0], [1.0, 0.0, 0.0]),
        ([True, False], [1, 1]),
    ],
)
def test_degenerate_estimates_give_sound_posteriors(prior, estimates, errors):
    posterior = eb.posterior_from(estimates, errors, prior)
    assert_sound(posterior)
    exact = np.array(errors) == 0
    np.testing.assert_array_equal(posterior.mean[exact, 0], np.array(estimates)[exact])
    np.testing.assert_array_equal(posterior.sd[exact, 0], 0)
    lost = ~np.isfinite(errors)
    assert np.isfinite(posterior.sd[~lost]).all()
    np.testing.assert_allclose(posterior.mean[lost, 0], posterior.prior.mean_[0], rtol=CLOSE)


@PRIORS
def test_estimates_without_error_show_the_population_to_the_others(prior):
    with unidentified_is_fine():
        posterior = eb.posterior_from([1.0, 2.0, 6.0, 0.0], [0.0, 0.0, 0.0, np.inf], prior)
    np.testing.assert_allclose(posterior.mean[:, 0], [1.0, 2.0, 6.0, 3.0], rtol=1e-4)
    assert 2 < posterior.sd[3, 0] < 4


@PRIORS
def test_no_estimates_give_no_posteriors(prior):
    with pytest.warns(eb.IdentificationWarning, match="No client has data"):
        posterior = eb.posterior_from([], [], prior)
    assert len(posterior.to_frame()) == 0


def test_a_beta_population_of_real_numbers_stays_in_its_support():
    posterior = eb.posterior_from([0.2, 0.4, 0.9, 1.3], [0.2] * 4, Beta())
    assert_sound(posterior)
    assert ((posterior.mean > 0) & (posterior.mean < 1)).all()
