"""Every registered class keeps its contract (`ebfed.testing`)."""

import inspect

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

import ebfed as eb
from ebfed import channels, estimators, likelihoods, priors
from ebfed.testing import (
    check_channel,
    check_estimator_contract,
    check_likelihood,
    check_prior,
)


def registered(module, base):
    """Concrete classes of a folder's ``__all__``."""
    found = [getattr(module, name) for name in module.__all__]
    return [
        cls
        for cls in found
        if inspect.isclass(cls) and issubclass(cls, base) and not inspect.isabstract(cls)
    ]


RNG = np.random.default_rng(7)
SIZES = RNG.integers(1, 30, 200)
THETA = RNG.normal(1.0, 0.7, 200)
RATES = RNG.beta(3, 5, 200)

LIKELIHOODS = {
    "Gaussian": likelihoods.Gaussian(
        RNG.normal(THETA, 2 / np.sqrt(SIZES))[:, None], 4 / SIZES[:, None]
    ),
    "Binomial": likelihoods.Binomial(RNG.binomial(SIZES, RATES)[:, None], SIZES),
}
PLANES = {
    "Gaussian": likelihoods.Gaussian(RNG.normal(size=(40, 3)), RNG.uniform(0.5, 2, (40, 1))),
    "Binomial": likelihoods.Binomial(np.minimum(RNG.poisson(4, (40, 3)), 12), np.full(40, 12)),
}
UNIT = likelihoods.Gaussian(RNG.normal(RATES, 0.1)[:, None], np.full((200, 1), 0.01))

PRIORS = {
    "Normal": [
        priors.Normal(),
        priors.Normal(method="ml"),
        priors.Normal(method="moments"),
        priors.Normal(mean=1.0),
        priors.Normal(mean=0.5, variance=0.3),
    ],
    "Beta": [
        priors.Beta(),
        priors.Beta(method="moments"),
        priors.Beta(method="paper"),
        priors.Beta(alpha=2.0, beta=3.0),
    ],
    "Discrete": [
        priors.Discrete(),
        priors.Discrete(2, random_state=0),
        priors.Discrete([0.1, 0.4, 0.8]),
        priors.Discrete([0.1, 0.4, 0.8], weights=[1, 2, 1]),
    ],
}


def test_every_registered_class_is_tried():
    assert {cls.__name__ for cls in registered(likelihoods, likelihoods.Likelihood)} == set(
        LIKELIHOODS
    )
    assert {cls.__name__ for cls in registered(priors, priors.Prior)} == set(PRIORS)
    assert [cls.__name__ for cls in registered(channels, channels.Channel)] == ["Exact"]
    assert {cls.__name__ for cls in registered(estimators, estimators.Estimator)} == {
        "BernoulliEB",
        "GaussianEB",
    }


@pytest.mark.parametrize(
    "likelihood",
    [*LIKELIHOODS.values(), *PLANES.values()],
    ids=lambda x: f"{type(x).__name__}-{x.n_features}",
)
def test_likelihood(likelihood):
    check_likelihood(likelihood)


def test_likelihood_with_silent_and_exact_clients():
    values = np.array([[0.0], [1.0], [2.0], [5.0]])
    check_likelihood(likelihoods.Gaussian(values, np.array([[1.0], [np.inf], [0.5], [0.0]])))
    check_likelihood(likelihoods.Binomial(np.array([[1], [0], [2]]), np.array([3, 0, 4])))


def test_binning_keeps_the_likelihood():
    rng = np.random.default_rng(1)
    variances = rng.uniform(0.1, 3, (30_000, 1))
    many = likelihoods.Gaussian(rng.normal(0, 1, (30_000, 1)), variances)
    rows, counts = many.compress()
    assert len(rows) < 30_000
    assert counts.sum() == 30_000
    theta = np.linspace(-2, 2, 9)[:, None]
    np.testing.assert_allclose(
        counts @ rows.logpdf(theta), many.logpdf(theta).sum(axis=0), rtol=1e-4
    )


@pytest.mark.parametrize("prior", [p for group in PRIORS.values() for p in group], ids=repr)
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_prior(prior, name):
    likelihood = LIKELIHOODS[name]
    if not prior.accepts(likelihood):
        with pytest.raises(TypeError, match="Choose a prior"):
            prior.fit(likelihood)
        likelihood = UNIT
    if isinstance(prior, priors.Beta) and name == "Gaussian":
        likelihood = UNIT  # rates seen through Gaussian noise
    check_prior(prior, likelihood)


@pytest.mark.parametrize(
    ("prior", "name"),
    [
        (priors.Normal(), "Gaussian"),
        (priors.Normal(covariance="spherical"), "Gaussian"),
        (priors.Discrete(2, random_state=0), "Gaussian"),
        (priors.Beta(), "Binomial"),
        (priors.Discrete(2, random_state=0), "Binomial"),
    ],
    ids=repr,
)
def test_prior_of_vectors(prior, name):
    check_prior(prior, PLANES[name])


@pytest.mark.parametrize(
    "channel", registered(channels, channels.Channel), ids=lambda c: c.__name__
)
def test_channel(channel):
    check_channel(channel(), eb.Summary.from_rows(RNG.normal(size=(50, 2)), np.arange(50) % 9))


NOISY = RNG.normal(THETA[np.arange(600) % 200], 2.0)


def tolerance(estimator):
    """A gap of 1e-6 in the likelihood leaves some 1e-3 of the estimates of a flat one open."""
    return 1e-3 if type(estimator.prior) is priors.Discrete or estimator.prior == "npmle" else 1e-6


BITS = (RNG.random(600) < RATES[np.arange(600) % 200]).astype(float)


@pytest.mark.parametrize(
    "estimator",
    [
        eb.GaussianEB(),
        eb.GaussianEB(method="ml"),
        eb.GaussianEB(method="moments"),
        eb.GaussianEB(variances=4.0),
        eb.GaussianEB(prior="npmle"),
        eb.GaussianEB(prior=priors.Discrete(2, random_state=0)),
    ],
    ids=repr,
)
def test_gaussian_estimator(estimator):
    check_estimator_contract(estimator, NOISY, np.arange(600) % 200, tolerance(estimator))


def test_gaussian_estimator_of_vectors():
    X = np.column_stack([NOISY, 5 - 3 * NOISY])
    check_estimator_contract(eb.GaussianEB(), X, np.arange(600) % 200)


@pytest.mark.parametrize(
    "estimator",
    [
        eb.BernoulliEB(),
        eb.BernoulliEB(method="moments"),
        eb.BernoulliEB(method="paper"),
        eb.BernoulliEB(prior="npmle"),
        eb.BernoulliEB(prior=priors.Discrete(2, random_state=0)),
    ],
    ids=repr,
)
def test_bernoulli_estimator(estimator):
    check_estimator_contract(estimator, BITS, np.arange(600) % 200, tolerance(estimator))


@pytest.mark.parametrize(
    "estimator",
    [
        eb.GaussianEB(),
        eb.GaussianEB(variances=1.0),
        eb.BernoulliEB(binarize=0.0),
        eb.BernoulliEB(binarize=0.0, method="paper"),
    ],
    ids=repr,
)
# Its data have no groups, so that every row is one, whose noise nothing identifies; a few
# checks are skipped where an optional package or variable is missing.
@pytest.mark.filterwarnings("ignore::ebfed.priors.base.IdentificationWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn(estimator):
    check_estimator(estimator)
