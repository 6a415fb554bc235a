"""Noise is never used twice, and what is pickled of a private fit has left its clients.

Over every registered class that can promise privacy. Two draws of one continuous noise are equal
with probability zero.
"""

import copy
import inspect
import pickle

import numpy as np
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed import channels, learning, location, regression
from ebfed.engines import rounds
from ebfed.learning import fitting
from ebfed.models import Linear
from ebfed.privacy.ledger import NO_PROMISE
from ebfed.report.view import view_of
from ebfed.testing.estimators import found_in

RNG = np.random.default_rng(11)
GROUPS = np.repeat(np.arange(30), 8)
X = RNG.normal(size=(240, 2))
Y = X[:, 0] + 0.3 * RNG.normal(size=30)[GROUPS] + 0.2 * RNG.normal(size=240)
COUNTS, YEARS = RNG.poisson(2.0, 240).astype(float), RNG.uniform(0.5, 1.5, 240)

UNIT, WIDE = (0.0, 1.0), (-4.0, 4.0)
GAUSSIAN = channels.Gaussian(2.0, 1e-5, WIDE)
CENTRAL = {"trust": "server", "epsilon": 4.0, "delta": 1e-5, "variances": 1.0}
NOISE = {"privacy": learning.ClientPrivacy(noise_multiplier=1.0), "n_rounds": 3}
FAINT = NOISE | {"privacy": learning.ClientPrivacy(noise_multiplier=0.05)}
PRIVATE = {
    "GaussianEB": eb.GaussianEB(channel=GAUSSIAN, variances=1.0),
    "BernoulliEB": eb.BernoulliEB(channel=channels.Laplace(2.0, UNIT)),
    "CategoricalEB": eb.CategoricalEB(channel=channels.RandomizedCategory(2.0)),
    "PoissonEB": eb.PoissonEB(channel=channels.Laplace(2.0, (0.0, 9.0))),
    "NegativeBinomialEB": eb.NegativeBinomialEB(
        dispersion=0.5, channel=channels.Laplace(2.0, (0.0, 9.0))
    ),
    "DurationEB": eb.DurationEB(channel=channels.Laplace(2.0, (0.0, 9.0))),
    "VarianceEB": eb.VarianceEB(channel=channels.Laplace(2.0, (-3.0, 3.0))),
    "MixtureEB": eb.MixtureEB(2, channel=channels.Clip(radius=3.0), **CENTRAL),
    "OptOutMean": eb.OptOutMean(1.0, 1.0, epsilon=1.0, delta=1e-5, range=WIDE),
    "AdaMix": eb.AdaMix(channel=GAUSSIAN, n_rounds=2, noise_variance=1.0),
    "AdaPeD": learning.AdaPeD(Linear(), **NOISE),
    "DPAdaPeD": learning.DPAdaPeD(Linear(), **NOISE),
    "DPFedAvg": learning.DPFedAvg(Linear(), **NOISE, fine_tune=2),
    "Ditto": learning.Ditto(Linear(), **NOISE),
    "FeO2": learning.FeO2(Linear(), **NOISE, ratio=0.5),
    "FedAvg": learning.FedAvg(Linear(), **NOISE),
    "FedBN": learning.FedBN(Linear(), **NOISE, personal=["intercept"]),
    "FedMutual": learning.FedMutual(Linear(), **NOISE),
    "FedProx": learning.FedProx(Linear(), **NOISE),
    "FedRep": learning.FedRep(Linear(), **NOISE),
    "Scaffold": learning.Scaffold(Linear(), **NOISE),
    # with more noise in few groups, weights of strengths would all be the least or the largest
    "HierarchicalEB": learning.HierarchicalEB(Linear(), **FAINT, fine_tune=2, strength_rounds=1),
    "JointDPSGD": learning.JointDPSGD(Linear(), **NOISE, personal=["intercept"]),
    "PFedMe": learning.PFedMe(Linear(), **NOISE),
    "PPSGD": learning.PPSGD(Linear(), **NOISE),
    "PerFedAvg": learning.PerFedAvg(Linear(), **NOISE),
    "QuPeD": learning.QuPeD(Linear(), **NOISE),
}
LEARNERS = [name for name in PRIVATE if hasattr(learning, name)]
ROUNDED = eb.GaussianEB(channel=channels.Quantizer(2, WIDE), variances=1.0)
EVERY = pytest.mark.parametrize("name", PRIVATE)
pytestmark = [
    pytest.mark.filterwarnings("ignore::ebfed.priors.IdentificationWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


def make(name, random_state=None, **settings):
    return clone(PRIVATE[name]).set_params(random_state=random_state, **settings)


def fit(est, y=Y):
    """Fit to rows of the kind that an estimator has."""
    match type(est).__name__:
        case "BernoulliEB":
            tens = np.arange(len(y)) // 10  # rates of eight rows are round numbers
            return est.fit((y > 0).astype(float), groups=tens)
        case "CategoricalEB":
            return est.fit(np.digitize(y, [-1.0, 0.0, 1.0]), groups=np.arange(len(y)) // 10)
        case "PoissonEB":
            return est.fit(COUNTS, groups=GROUPS, exposure=YEARS)
        case "DurationEB":
            return est.fit(np.exp(y), groups=GROUPS)
        case "NegativeBinomialEB":  # one exposure for all rows of a group
            return est.fit(COUNTS, groups=GROUPS, exposure=YEARS[GROUPS])
        case name if name in location.__all__:
            return est.fit(y, groups=GROUPS)
    return est.fit(X, y, groups=GROUPS)


def released(est):
    """Numbers of a fit that everybody may see, and that noise made."""
    if hasattr(est, "shared_"):
        return np.concatenate([np.ravel(x) for x in est.shared_.values()])
    if isinstance(est, regression.AdaMix):
        return est.means_.ravel()
    if isinstance(est, eb.MixtureEB):
        return est.weights_  # a centre without clients stays where it started, whatever the noise
    report = est._learned.memory["report"].ravel()
    if isinstance(est, eb.CategoricalEB):  # a few values of each client: all together in one number
        return np.array([report @ np.random.default_rng(1).normal(size=len(report))])
    return report


def own_figures(est):
    """What clients have of their rows."""
    if hasattr(est, "shared_"):
        start = est._kept["own"]
        return [x[x != start[name]] for name, x in est._memory["own"].items()]
    if hasattr(est, "summaries_"):
        return [est.summaries_.mean, est.summaries_.scatter]
    return [est._memory["theta"]]


def takes_privacy(cls):
    if issubclass(cls, learning.Learner):
        return cls is not learning.LocalOnly  # sends nothing
    return hasattr(cls, "channel") or "channel" in inspect.signature(cls).parameters


def test_every_class_that_can_promise_is_tried():
    wings = (location, regression, learning)
    classes = [getattr(wing, name) for wing in wings for name in wing.__all__]
    fits = [each for each in classes if inspect.isclass(each) and hasattr(each, "published")]
    concrete = [each for each in fits if not inspect.isabstract(each)]
    assert {each.__name__ for each in concrete if takes_privacy(each)} == PRIVATE.keys()


@pytest.fixture
def keys(monkeypatch):
    """Keys that were drawn for noise."""
    drawn, inner = [], rounds.noise_key

    def noise_key(random_state=None):
        drawn.append(inner(random_state))
        return drawn[-1]

    monkeypatch.setattr(rounds, "noise_key", noise_key)
    monkeypatch.setattr(fitting, "noise_key", noise_key)
    return drawn


# Noise -------------------------------------------------------------------------------------------


@EVERY
def test_copies_of_a_generator_draw_noise_of_their_own(name):
    est = make(name, np.random.default_rng(5))
    one, other = released(fit(clone(est))), released(fit(clone(est)))
    assert not np.any(one == other)
    again = released(fit(copy.deepcopy(est)))
    assert not np.any((again == one) | (again == other))


@EVERY
def test_a_fixed_seed_draws_the_same_noise_and_says_so(name):
    one, other = fit(make(name, 3)), fit(make(name, [3, 4]))
    np.testing.assert_array_equal(released(fit(make(name, 3))), released(one))
    assert not np.any(released(one) == released(other))
    for est in (one, other, one.published()):
        rows = est.privacy_.to_dict("records")
        promised = [row for row in rows if 0 < row["epsilon"] < np.inf]
        assert promised
        assert all(row["assumptions"].startswith(f"{NO_PROMISE}; ") for row in promised)
        assert NO_PROMISE in str(est.summary())
    real = fit(make(name))
    assert real.privacy_["epsilon"].tolist() == one.privacy_["epsilon"].tolist()
    assert not real.privacy_["assumptions"].str.contains("simulated").any()
    assert "simulated" not in str(real.summary())


@pytest.mark.parametrize("trust", ["server", "none"])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_warm_start_draws_new_noise(name, trust, keys):
    """Two continuations of one pickle differ by more than the data do."""
    est = make(name, warm_start=True)
    est.privacy.trust = trust
    fit(est).keep_rows = True
    content = pickle.dumps(est)
    changed = Y + (GROUPS == 0)
    one, same, other = (
        fit(pickle.loads(content).set_params(n_rounds=5), y) for y in (Y, Y, changed)
    )
    assert len({tuple(key) for key in keys}) == 4
    assert not np.any(released(one) == released(same))
    assert not np.any(released(one) == released(other))
    assert one.privacy_["times"].max() == 5


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda est: pickle.loads(pickle.dumps(est))])
def test_a_simulated_warm_start_is_that_of_the_seed(copied):
    est = fit(make("FedAvg", 3, warm_start=True))
    est.keep_rows = True
    went_on = fit(copied(est).set_params(n_rounds=5))
    np.testing.assert_array_equal(released(went_on), released(fit(make("FedAvg", 3, n_rounds=5))))
    real = fit(copied(est).set_params(n_rounds=5, random_state=None))
    assert real.privacy_["assumptions"].str.startswith(NO_PROMISE).all(), "of its first rounds"


def test_without_privacy_a_generator_is_a_seed():
    for est in (eb.learning.FedAvg(n_rounds=2, batch_size=2), ROUNDED):
        ests = [clone(est).set_params(random_state=np.random.default_rng(5)) for _ in range(2)]
        y = Y > 0 if isinstance(est, eb.learning.FedAvg) else Y
        first, second = (released(fit(each, y)) for each in ests)
        np.testing.assert_array_equal(first, second)


# Pickles -----------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("seed", [None, 7])
def test_a_pickle_has_neither_rows_nor_keys(name, seed, keys):
    est = fit(make(name, seed, **({"warm_start": True} if name in LEARNERS else {})))
    secrets = [X, Y, *own_figures(est), *keys]
    assert len(keys) == 1
    for content in (pickle.dumps(est), pickle.dumps(est.published()), pickle.dumps([est])):
        assert not any(found_in(content, part) for part in secrets)
    public = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(public.privacy_["epsilon"], est.privacy_["epsilon"])
    assert public.privacy_["clipped"].isna().all()
    if name in LEARNERS:
        np.testing.assert_array_equal(released(public), released(est))
        assert public.history_["loss"].isna().all()

    est.keep_rows = True
    content = pickle.dumps(est)
    assert not any(found_in(content, key) for key in keys)
    assert any(found_in(content, part) for part in secrets)
    assert not clone(est).keep_rows
    copied = copy.deepcopy(est)
    np.testing.assert_array_equal(released(copied), released(est))


@pytest.mark.parametrize("name", LEARNERS)
def test_nobody_goes_on_from_what_was_published(name):
    est = fit(make(name, warm_start=True))
    with pytest.raises(ValueError, match=r"set keep_rows = True before the fit is pickled"):
        fit(pickle.loads(pickle.dumps(est)))


@EVERY
def test_copies_in_this_process_keep_their_rows(name):
    est = fit(make(name))
    for other in (copy.copy(est), copy.deepcopy(est)):
        np.testing.assert_array_equal(released(other), released(est))
        assert not view_of(other).is_server


def test_names_of_columns_are_published():
    import pandas as pd

    table = pd.DataFrame(X, columns=["a", "b"]).assign(y=Y, g=GROUPS)
    est = make("FedAvg").fit(table, "y", groups="g")
    public = pickle.loads(pickle.dumps(est))
    expected = public.predict(table[["a", "b"]])
    np.testing.assert_array_equal(public.predict(table), expected)


def test_pickles_without_privacy_have_rows():
    for est in (eb.LinearEB(), eb.learning.FedAvg(Linear(), n_rounds=2), eb.AdaMix(random_state=0)):
        est = fit(est)
        again = pickle.loads(pickle.dumps(est))
        np.testing.assert_array_equal(
            again.predict(X, groups=GROUPS), est.predict(X, groups=GROUPS)
        )
        assert view_of(est.published()).is_server


def test_unfitted_estimators_pass_through_other_processes():
    from sklearn.model_selection import GridSearchCV, cross_validate

    est = make("FedAvg")
    assert pickle.loads(pickle.dumps(est)).get_params().keys() == est.get_params().keys()
    search = GridSearchCV(est, {"learning_rate": [0.1, 0.2]}, cv=2, n_jobs=2).fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert np.isfinite(search.predict(X)).all()
    found = cross_validate(est, X, Y, cv=2, n_jobs=2, return_estimator=True)
    assert all(view_of(each).is_server for each in found["estimator"])
