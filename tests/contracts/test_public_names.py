"""Contract of names: a fitted estimator shows its answers, and nothing of the protocol."""

import inspect

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import ebfed as eb
from ebfed.engines.protocol import Rounds

RNG = np.random.default_rng(0)
GROUPS, X = np.repeat(np.arange(30), 6), RNG.normal(size=(180, 1))
NUMBERS, CLASSES = X[:, 0] + RNG.normal(size=180), X[:, 0] > 0
MOST = {"GaussianEB": 30, "BernoulliEB": 30, "LinearEB": 46, "FedAvg": 25}
NAMED = {
    name: getattr(wing, name)
    for wing in (eb.location, eb.regression, eb.learning)
    for name in wing.__all__
}
ESTIMATORS = {
    name: cls
    for name, cls in NAMED.items()
    if inspect.isclass(cls) and issubclass(cls, BaseEstimator) and hasattr(cls, "fit")
    if not inspect.isabstract(cls)
}
# What has been public on estimators, and is of the protocol.
PARTS = {"client_side", "server_side", "hold_rounds", "entered", "learned", "default_consent"}
PARTS |= {"check_covariates", "check_lazy", "checked_rows", "numbers", "population", "view"}
PARTS |= {"estimates", "train", "exchange", "schedule", "predictor", "message_bounds"}
PARTS |= {name for name in dir(Rounds) if name[0] != "_"}


def public(fit):
    # older versions of scikit-learn list what a fit does not have
    return {name for name in dir(fit) if not name.startswith("_") and hasattr(fit, name)}


def own_names(fit):
    """Names besides arguments and what scikit-learn gives every estimator with its mixins."""
    given = {"fit", "n_features_in_", "feature_names_in_", *fit.get_params(deep=False)}
    for cls in type(fit).__mro__:
        if cls.__module__.startswith("sklearn."):
            given |= vars(cls).keys()
    names = public(fit) - given
    return {name for name in names if not (name.startswith("set_") and name.endswith("_request"))}


@pytest.fixture(scope="module")
def fits():
    return {
        "GaussianEB": eb.GaussianEB().fit(NUMBERS, groups=GROUPS),
        "BernoulliEB": eb.BernoulliEB().fit(CLASSES, groups=GROUPS),
        "LinearEB": eb.LinearEB().fit(X, NUMBERS, groups=GROUPS),
        "FedAvg": eb.learning.FedAvg(n_rounds=2).fit(X, CLASSES, groups=GROUPS),
    }


@pytest.mark.parametrize("name", MOST)
def test_a_fit_shows_few_names(fits, name):
    assert len(own_names(fits[name])) <= MOST[name]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_names_can_be_listed_before_a_fit(name):
    assert "fit" in dir(ESTIMATORS[name]())


def test_estimators_are_found():
    assert {*MOST, "AdaMix", "CrossedEB", "GeneralizedEB", "JointDPSGD"} <= ESTIMATORS.keys()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_nothing_of_the_protocol_is_among_them(name):
    estimator = ESTIMATORS[name]()
    shown = own_names(estimator)
    assert not shown & PARTS
    if hasattr(estimator, "protocol"):
        assert not shown & public(type(estimator.protocol()))


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "CrossedEB"])
def test_the_protocol_has_all_that_engines_drive(name):
    estimator = ESTIMATORS[name]()
    if not hasattr(estimator, "protocol"):
        pytest.skip("it has no clients")
    protocol = estimator.protocol()
    assert protocol is not estimator
    assert protocol.estimator is estimator
    assert isinstance(protocol, Rounds)
