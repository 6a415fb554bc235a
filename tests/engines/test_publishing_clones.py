"""Groups that scikit-learn would lose on the way to an estimator."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    RandomizedSearchCV,
    cross_val_predict,
    cross_val_score,
    learning_curve,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ebfed as eb

RNG = np.random.default_rng(0)
GROUPS = np.repeat(np.arange(20), 6)
X = RNG.normal(size=(120, 1))
Y = X[:, 0] + RNG.normal(size=20)[GROUPS] + RNG.normal(size=120)
WON = (Y > 0).astype(float)[:, None]
FOLDS = KFold(3, shuffle=True, random_state=0)

GRID = {"method": ["ml"]}
STEPS = make_pipeline(StandardScaler(), eb.LinearEB())
LOST = {
    "GridSearchCV": lambda: GridSearchCV(eb.BernoulliEB(), GRID).fit(WON, groups=GROUPS),
    "RandomizedSearchCV": lambda: RandomizedSearchCV(eb.LinearEB(), GRID, n_iter=1).fit(
        X, Y, groups=GROUPS
    ),
    "cross_val_score": lambda: cross_val_score(
        eb.learning.FedAvg(), X, WON[:, 0], groups=GROUPS, cv=FOLDS
    ),
    "cross_val_predict": lambda: cross_val_predict(STEPS, X, Y, groups=GROUPS, cv=FOLDS),
    "learning_curve": lambda: learning_curve(eb.LinearEB(), X, Y, groups=GROUPS, cv=FOLDS),
}


@pytest.mark.filterwarnings("ignore:The groups parameter is ignored by:UserWarning")
@pytest.mark.parametrize("name", LOST)
def test_groups_that_do_not_reach_the_estimator_are_an_error(name):
    message = rf"{name} was given groups, .*set_config\(enable_metadata_routing=True\)"
    with pytest.raises(ValueError, match=message):
        LOST[name]()


@pytest.mark.parametrize("params", [{"groups": GROUPS}, {"lineareb__groups": GROUPS}])
def test_groups_that_reach_fit_but_not_score_are_an_error(params):
    estimator = STEPS if "lineareb__groups" in params else eb.LinearEB()
    with pytest.raises(ValueError, match="cross_val_score was given groups"):
        cross_val_score(estimator, X, Y, params=params)


def test_the_outermost_function_is_named():
    search = GridSearchCV(eb.LinearEB(), GRID)
    with pytest.raises(ValueError, match="cross_val_score was given groups"):
        cross_val_score(search, X, Y, params={"groups": GROUPS})


def test_groups_arrive_where_routing_is_enabled():
    """Without a request by the user; the score is that of a loop over the folds."""
    expected = []
    for train, test in FOLDS.split(X):
        fit = eb.LinearEB().fit(X[train], Y[train], groups=GROUPS[train])
        expected.append(fit.score(X[test], Y[test], groups=GROUPS[test]))
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(eb.LinearEB(), {"method": ["reml"]}, cv=FOLDS)
        search.fit(X, Y, groups=GROUPS)
        found = cross_val_score(eb.LinearEB(), X, Y, params={"groups": GROUPS}, cv=FOLDS)
        steps = make_pipeline(StandardScaler(), eb.LinearEB()).fit(X, Y, groups=GROUPS)
        np.testing.assert_array_equal(
            steps.predict(X, groups=GROUPS), steps[1].predict(steps[0].transform(X), groups=GROUPS)
        )
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert search.best_score_ == pytest.approx(np.mean(expected), rel=1e-12)
    assert len(search.best_estimator_.groups_) == 20


def test_exposure_arrives_where_routing_is_enabled():
    counts, exposure = RNG.poisson(3, 120)[:, None], RNG.uniform(1, 2, 120)
    given = {"groups": GROUPS, "exposure": exposure}
    expected = []
    for train, test in FOLDS.split(X):
        some, others = ({name: each[i] for name, each in given.items()} for i in (train, test))
        expected.append(eb.PoissonEB().fit(counts[train], **some).score(counts[test], **others))
    with config_context(enable_metadata_routing=True):
        found = cross_val_score(eb.PoissonEB(), counts, params=given, cv=FOLDS)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_groups_for_the_folds_alone():
    with config_context(enable_metadata_routing=True):
        estimator = eb.GaussianEB(variances=1.0)
        estimator.set_fit_request(groups=False).set_score_request(groups=False)
        search = GridSearchCV(estimator, {"prior": ["normal"]}, cv=GroupKFold(3))
        search.fit(X, groups=GROUPS)
    assert len(search.best_estimator_.groups_) == 120


def test_rows_that_are_groups_are_searched_without_routing():
    search = GridSearchCV(eb.GaussianEB(variances=1.0), {"prior": ["normal"]}, cv=FOLDS).fit(X)
    assert len(search.best_estimator_.groups_) == 120


def test_a_clone_elsewhere_is_that_of_scikit_learn():
    groups = GROUPS  # of a caller that is not scikit-learn
    fit = eb.GaussianEB(method="ml").fit(X, groups=groups)
    copy = clone(fit)
    assert copy.get_params() == fit.get_params()
    assert not hasattr(copy, "prior_")
