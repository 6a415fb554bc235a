"""Every entry point that takes series pairs them by label, and reads no masked entry."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import ebfed as eb

RNG = np.random.default_rng(3)
N = 24
NAMES = [f"r{i:02d}" for i in range(N)]
X = pd.DataFrame({"a": RNG.normal(size=N), "b": RNG.normal(size=N)}, NAMES)
GROUPS = pd.Series(np.repeat(list("pqrs"), 6), NAMES, name="g")
Y = pd.Series(X["a"] + RNG.normal(size=N) + (GROUPS == "p"), NAMES, name="y")
CLASS = (Y > 0).astype(int)
COUNTS = pd.Series(RNG.poisson(3, N), NAMES)
EXPOSURE = pd.Series(RNG.uniform(0.5, 2, N), NAMES)
CHOICE = GROUPS.map({"p": "private", "q": "open", "r": "private", "s": "open"})
TURNED = RNG.permutation(N)

CHANNELS = {"private": eb.channels.AddNoise(0.5), "open": eb.channels.Exact()}
OPTED = eb.GaussianEB(1.0, channel=CHANNELS, random_state=0)

FITS = {
    "means": (eb.GaussianEB(), {"X": X["a"], "groups": GROUPS}),
    "consent": (OPTED, {"X": X["a"], "groups": GROUPS, "consent": CHOICE}),
    "weights": (eb.GaussianEB(), {"X": X["a"], "groups": GROUPS, "sample_weight": EXPOSURE}),
    "rates": (eb.BernoulliEB(), {"X": CLASS, "groups": GROUPS}),
    "events": (eb.PoissonEB(), {"X": COUNTS, "groups": GROUPS, "exposure": EXPOSURE}),
    "linear": (eb.LinearEB(), {"X": X, "y": Y, "groups": GROUPS}),
    "logistic": (eb.LogisticEB(), {"X": X, "y": CLASS, "groups": GROUPS}),
    "learner": (eb.learning.LocalOnly(n_rounds=2), {"X": X, "y": CLASS, "groups": GROUPS}),
    "opted out": (
        eb.learning.FeO2(n_rounds=2, privacy=eb.ClientPrivacy(epsilon=8), random_state=0),
        {"X": X, "y": CLASS, "groups": GROUPS, "consent": CHOICE},
    ),
}
every = pytest.mark.parametrize("name", FITS)


def turned(given, *names):
    return given | {name: given[name].iloc[TURNED] for name in names}


def estimates(estimator, given):
    fitted = clone(estimator).fit(**given)
    later = {name: x for name, x in given.items() if name not in ("y", "consent")}
    return np.asarray(fitted.predict(**later), float)


def series_of(given):
    return [name for name in given if name != "X"]


@every
def test_rows_in_another_order_give_the_same_fit(name):
    estimator, given = FITS[name]
    straight = estimates(estimator, given)
    for each in [[name] for name in series_of(given)] + [series_of(given)]:
        np.testing.assert_array_equal(estimates(estimator, turned(given, *each)), straight)


@every
def test_arrays_pair_by_position(name):
    estimator, given = FITS[name]
    arrays = {key: values.to_numpy() for key, values in given.items()}
    np.testing.assert_array_equal(estimates(estimator, arrays), estimates(estimator, given))


@every
def test_rows_that_are_only_counted_pair_by_position(name):
    estimator, given = FITS[name]
    counted = given | {key: given[key].reset_index(drop=True) for key in series_of(given)}
    np.testing.assert_array_equal(estimates(estimator, counted), estimates(estimator, given))


@every
def test_other_labels_are_refused(name):
    estimator, given = FITS[name]
    for key in series_of(given):
        other = given[key].rename(index={NAMES[2]: "elsewhere"})
        with pytest.raises(ValueError, match=f"the index of {key} has other labels"):
            clone(estimator).fit(**given | {key: other})


@every
def test_masked_entries_are_refused(name):
    estimator, given = FITS[name]
    arrays = {key: values.to_numpy() for key, values in given.items()}
    mask = np.arange(N) == 5
    for key, values in arrays.items():
        masked = np.ma.array(values, mask=np.broadcast_to(mask, values.T.shape).T)
        with pytest.raises(ValueError, match=rf"{key} has \d masked entries, the first in row 5"):
            clone(estimator).fit(**arrays | {key: masked})


@every
@pytest.mark.parametrize("kind", ["M8[s]", "m8[s]"])
def test_times_are_refused(name, kind):
    estimator, given = FITS[name]
    times = given["X"].to_numpy().astype(int).astype(kind)
    with pytest.raises(TypeError, match=r"must be numbers|not numeric"):
        clone(estimator).fit(**given | {"X": times})
    frame = given["X"].to_frame() if given["X"].ndim == 1 else given["X"]
    with pytest.raises(TypeError, match=r"must be numbers|not numeric"):
        clone(estimator).fit(**given | {"X": frame.assign(when=pd.Timestamp("2024-01-01"))})


def test_a_response_of_times_is_refused():
    with pytest.raises(TypeError, match="y must be numbers; got dates or times"):
        eb.LinearEB().fit(X, pd.to_timedelta(Y, unit="s"), groups=GROUPS)


def test_weights_of_a_score_pair_by_label():
    weights = pd.Series(RNG.uniform(size=N), NAMES)
    for estimator, y in ((eb.LinearEB(), Y), (eb.learning.LocalOnly(n_rounds=2), CLASS)):
        fitted = estimator.fit(X, y, groups=GROUPS)
        straight = fitted.score(X, y, weights, groups=GROUPS)
        assert fitted.score(X, y[::-1], weights[::-1], groups=GROUPS[::-1]) == straight
        masked = np.ma.array(weights, mask=np.arange(N) == 5)
        with pytest.raises(ValueError, match="sample_weight has 1 masked"):
            fitted.score(X, y, masked, groups=GROUPS)


def test_residuals_pair_by_label():
    fitted = eb.LinearEB().fit(X, Y, groups=GROUPS)
    straight = fitted.augment(X, Y, groups=GROUPS)
    other = fitted.augment(X, Y.iloc[TURNED], groups=GROUPS.iloc[TURNED])
    pd.testing.assert_frame_equal(other, straight)


def test_covariates_of_rows_pair_by_label():
    covariate = pd.Series(RNG.normal(size=N), NAMES)
    straight = eb.GaussianEB(1.0).fit(X["a"], covariates=covariate)
    other = eb.GaussianEB(1.0).fit(X["a"], covariates=covariate.iloc[TURNED])
    np.testing.assert_array_equal(other.coef_, straight.coef_)


def test_choices_of_clients_pair_by_label():
    summary = eb.Summary.from_rows(X["a"], GROUPS)
    chosen = pd.Series(["private", "open", "private", "open"], list("pqrs"))
    straight = clone(OPTED).fit(summary, consent=chosen)
    other = clone(OPTED).fit(summary, consent=chosen[::-1])
    np.testing.assert_array_equal(other.predict(), straight.predict())


def test_a_mask_of_participants_must_be_in_the_order_of_labels():
    asked = pd.Series([True, True, True, False], list("srqp"))
    with pytest.raises(ValueError, match="participation must be in the order of the sorted labels"):
        eb.GaussianEB(participation=asked).fit(X["a"], groups=GROUPS)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (eb.GaussianEB(variances=True), "variances must be numbers; got booleans"),
        (eb.GaussianEB(variances=np.timedelta64(1, "D")), "variances must be numbers; got"),
        (eb.GaussianEB(prior=eb.priors.Normal(mean=True)), "mean must be numbers"),
        (eb.GaussianEB(prior=eb.priors.PointNormal(mode=True)), "mode must be a number"),
        (eb.GaussianEB(1.0, channel=eb.channels.AddNoise(True)), "sd must be a number"),
        (
            eb.GaussianEB(1.0, channel=eb.channels.Gaussian(1.0, 1e-6, (False, True))),
            "range must be",
        ),
        (
            eb.GaussianEB(1.0, channel=eb.channels.Gaussian(np.timedelta64(1, "D"), 1e-6, (-3, 3))),
            "epsilon must be",
        ),
    ],
)
def test_booleans_and_durations_are_no_numbers(estimator, message):
    with pytest.raises((TypeError, ValueError), match=message):
        estimator.fit(X["a"], groups=GROUPS)


def test_rows_may_be_booleans():
    asked = eb.BernoulliEB().fit(CLASS == 1, groups=GROUPS)
    np.testing.assert_array_equal(
        asked.predict(), eb.BernoulliEB().fit(CLASS, groups=GROUPS).predict()
    )
