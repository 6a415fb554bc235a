"""Estimators inside scikit-learn's machinery: clone, pickle, Pipeline, GridSearchCV."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ebfed as eb
from ebfed.channels import Exact
from ebfed.datasets import make_bernoulli_groups, make_gaussian_groups
from ebfed.priors import Beta, Discrete, Normal


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


X, GROUPS, THETA = make_gaussian_groups(80, 6, group_variance=0.5, random_state=3)
Y, COUNTIES, RATES = make_bernoulli_groups(80, 10, random_state=3)


def requested(estimator):
    return estimator.set_fit_request(groups=True).set_score_request(groups=True)


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize(
    ("estimator", "rows", "groups", "priors"),
    [
        (
            eb.GaussianEB(),
            X[:, None],
            GROUPS,
            ["normal", "npmle", Normal(method="ml"), Discrete(3, random_state=0)],
        ),
        (eb.BernoulliEB(), Y[:, None], COUNTIES, ["beta", "npmle", Beta(method="moments")]),
    ],
)
def test_grid_search_over_prior_and_channel(estimator, rows, groups, priors):
    grid = {"prior": priors, "channel": [None, Exact()]}
    for folds in (KFold(3, shuffle=True, random_state=0), GroupKFold(3)):
        search = GridSearchCV(requested(estimator), grid, cv=folds, error_score="raise")
        search.fit(rows, groups=groups)
        scores = search.cv_results_["mean_test_score"]
        assert np.isfinite(scores).all()
        assert len(scores) == 2 * len(priors)
        # the exact channel is the default
        pairs = scores.reshape(2, -1) if search.cv_results_["param_channel"][0] is None else None
        if pairs is not None:
            np.testing.assert_allclose(pairs[0], pairs[1])


@pytest.mark.usefixtures("routing")
def test_grid_search_reaches_into_a_prior():
    grid = {"prior__method": ["reml", "ml"]}
    search = GridSearchCV(requested(eb.GaussianEB(prior=Normal())), grid, cv=KFold(3))
    search.fit(X[:, None], groups=GROUPS)
    assert set(search.best_params_) == {"prior__method"}


@pytest.mark.usefixtures("routing")
def test_pipeline_passes_groups_on():
    last = eb.GaussianEB().set_fit_request(groups=True).set_predict_request(groups=True)
    pipeline = make_pipeline(StandardScaler(), last)
    pipeline.fit(X[:, None], groups=GROUPS)
    scale = X.std()
    expected = eb.GaussianEB().fit((X - X.mean()) / scale, groups=GROUPS).predict(groups=GROUPS)
    np.testing.assert_allclose(pipeline.predict(X[:, None], groups=GROUPS), expected)


@pytest.mark.usefixtures("routing")
def test_as_a_transformer_in_frames():
    first = eb.GaussianEB().set_fit_request(groups=True).set_transform_request(groups=True)
    frame = pd.DataFrame({"income": X})
    pipeline = make_pipeline(first, StandardScaler()).set_output(transform="pandas")
    out = pipeline.fit(frame, groups=GROUPS).transform(frame, groups=GROUPS)
    assert list(out.columns) == ["income"]
    assert out.index.equals(frame.index)


def test_clone_and_pickle():
    est = eb.BernoulliEB(prior=Beta(method="moments"), channel=Exact()).fit(Y, groups=COUNTIES)
    copy = clone(est)
    assert not hasattr(copy, "prior_")
    assert copy.get_params()["prior__method"] == "moments"
    again = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(again.predict(), est.predict())
    assert est.prior is not est.prior_, "the argument is copied, not fitted"


def test_score_prefers_the_right_population():
    """Held-out log predictive density: three spikes against a beta, and groups' rows help."""
    y, groups, _ = make_bernoulli_groups(3000, 14, population="spikes", random_state=0)
    train = np.arange(len(y)) % 7 > 0
    scores = {}
    for prior in ("beta", "npmle"):
        est = eb.BernoulliEB(prior=prior).fit(y[train], groups=groups[train])
        scores[prior] = est.score(y[~train], groups=groups[~train])
        strangers = est.score(y[~train], groups=groups[~train] + 10_000)
        assert strangers < scores[prior], "rows of a group tell about its other rows"
    assert scores["npmle"] > scores["beta"]


def test_score_is_the_predictive_density():
    """One held-out row of a known group: the normal around its posterior mean."""
    est = eb.GaussianEB().fit(X, groups=GROUPS)
    row, group = 0.3, 5
    # the score takes the fitted population as known
    a = est.prior_.variance_ / (est.prior_.variance_ + est.noise_variance_ / 6)
    variance = (1 - a) * est.prior_.variance_ + est.noise_variance_
    mean = est.predict(groups=[group])
    expected = -0.5 * (np.log(2 * np.pi * variance) + (row - mean) ** 2 / variance)
    assert est.score([row], groups=[group]) == pytest.approx(expected[0], rel=1e-10)
