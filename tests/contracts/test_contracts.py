"""Every registered class keeps its contract (`ebfed.testing`)."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import has_fit_parameter

import ebfed as eb
from ebfed import channels, families, learning, likelihoods, location, models, priors, regression
from ebfed.location.base import LocationEstimator
from ebfed.regression.base import RegressionEstimator
from ebfed.testing import (
    check_channel,
    check_estimator_contract,
    check_learner_contract,
    check_likelihood,
    check_prior,
    check_regression_contract,
)
from ebfed.testing.priors import check_posterior


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
    # of a generator of its own: the draws below are those of other tests too
    "Poisson": likelihoods.Poisson(
        np.random.default_rng(8).poisson(SIZES * RATES)[:, None], SIZES + 0.5
    ),
    "Durations": likelihoods.Durations(
        SIZES[:, None], np.random.default_rng(17).standard_gamma(SIZES) / RATES
    ),
    "NegativeBinomial": likelihoods.NegativeBinomial(
        np.random.default_rng(16).negative_binomial(SIZES * 2, 2 / (2 + RATES))[:, None],
        SIZES + 0.0,
        SIZES[:, None] * 2.0,
    ),
    "LogVariance": likelihoods.LogVariance(
        (np.exp(THETA) * np.random.default_rng(9).chisquare(SIZES))[:, None], SIZES
    ),
    "StudentT": likelihoods.StudentT(
        (THETA + np.random.default_rng(10).standard_t(4, 200) * 2 / np.sqrt(SIZES))[:, None],
        4 / SIZES[:, None],
        np.where(np.arange(200) % 9, 4.0, np.inf),
    ),
}


# rows of variance 2 around the parameters
GAUSSIAN, BINOMIAL, POISSON = families.Gaussian(2.0), families.Binomial(), families.Poisson()
VARIANCE, SCATTERED = families.Variance(), families.NegativeBinomial(0.5)
ENDED = families.EndedDuration()

UNIT_RANGE = (0.0, 1.0)
CHANNELS = {
    "AddNoise": [channels.AddNoise(0.4, UNIT_RANGE), channels.AddNoise(0.4)],
    "Clip": [channels.Clip(UNIT_RANGE)],
    "DiscreteGaussian": [
        channels.DiscreteGaussian(0.5, 1e-5, UNIT_RANGE),
        channels.DiscreteGaussian(4.0, 1e-3, UNIT_RANGE, levels=4),
    ],
    "Exact": [channels.Exact()],
    "Gaussian": [
        channels.Clip(UNIT_RANGE) | channels.Gaussian(0.5, 1e-5),
        channels.Gaussian(4.0, 1e-3, UNIT_RANGE),
        channels.Gaussian(4.0, 1e-5, UNIT_RANGE, calibration="paper"),
    ],
    "Hybrid": [channels.Hybrid(0.5, UNIT_RANGE), channels.Hybrid(4.0, UNIT_RANGE)],
    "Laplace": [channels.Laplace(0.5, UNIT_RANGE), channels.Laplace(4.0, UNIT_RANGE)],
    "OneBit": [channels.OneBit(0.5, UNIT_RANGE), channels.OneBit(4.0, UNIT_RANGE)],
    "Piecewise": [channels.Piecewise(0.5, UNIT_RANGE), channels.Piecewise(4.0, UNIT_RANGE)],
    "Quantizer": [channels.Quantizer(1, UNIT_RANGE), channels.Quantizer(3, UNIT_RANGE)],
    "RandomizedResponse": [
        channels.RandomizedResponse(0.5, UNIT_RANGE, levels=5),
        channels.RandomizedResponse(4.0, UNIT_RANGE),
    ],
    "TwoBit": [
        channels.TwoBit(0.5, 0.4, UNIT_RANGE),
        channels.TwoBit(4.0, 0.6, UNIT_RANGE, spread=(0.3, 0.3)),
    ],
    "UnaryEncoding": [
        channels.UnaryEncoding(0.5, UNIT_RANGE, levels=5),
        channels.UnaryEncoding(4.0, UNIT_RANGE),
    ],
}
EVERY_CHANNEL = [channel for group in CHANNELS.values() for channel in group]
CHANNELS_OF_SHARES = [
    channels.RandomizedCategory(0.5),
    channels.RandomizedCategory(4.0, answers=3, compare=0.2),
    channels.RandomizedCategory(4.0, answers=2, compare=0),
]
# a client without rows, both ends of the range and, for means, one beyond it
MEANS = eb.Summary(
    np.arange(5),
    np.array([4, 2, 9, 1, 0]),
    np.array([[0.0], [1.0], [0.37], [1.4], [0.0]]),
    np.zeros((5, 1)),
)
COUNTS = eb.Summary.from_counts([0, 7, 3, 1, 0], [5, 7, 6, 4, 0])


def reported(channel, family, n_features=1, size=100):
    """Likelihood of what clients with one to nine rows send."""
    n = np.random.default_rng(3).integers(1, 10, size)
    if family is SCATTERED:
        rng = np.random.default_rng(8)
        x = family.simulate(rng.gamma(3, 0.15, (size, n_features)), n[:, None], rng)
    elif family is POISSON:
        rng = np.random.default_rng(4)
        x = rng.poisson(n[:, None] * rng.gamma(3, 0.15, (size, n_features))) / n[:, None]
    elif family is ENDED:
        rng = np.random.default_rng(18)
        x = family.simulate(rng.gamma(3, 0.15, (size, n_features)), n[:, None], rng)
    elif family is VARIANCE:
        rng = np.random.default_rng(6)
        theta = rng.normal(0.5, 0.4, (size, n_features))
        x = family.simulate(theta, n[:, None], rng)
    elif family is BINOMIAL:
        x = RNG.binomial(n[:, None], RNG.beta(3, 4, (size, n_features))) / n[:, None]
    else:
        theta = RNG.normal(0.5, 0.4, (size, n_features))
        x = RNG.normal(theta, np.sqrt(2 / n)[:, None])
    summary = eb.Summary(np.arange(size), n, x, np.zeros_like(x))
    return channel.likelihood(channel.encode(summary, 5), family)


def is_strict(channel):
    return channel.get_params().get("epsilon", 1.0) < 1


def counts_are_levels(channel):
    return channel.get_params().get("levels", 2) is None


REPORTED = [
    reported(channel, family, d)
    for channel in EVERY_CHANNEL
    for family in (GAUSSIAN, BINOMIAL)
    for d in ((1,) if is_strict(channel) else (1, 2))
    if isinstance(channel, channels.report.Report)
    and not (counts_are_levels(channel) and family is GAUSSIAN)
]
EVENTS = [
    reported(channel, POISSON, d)
    for channel in EVERY_CHANNEL
    for d in ((1,) if is_strict(channel) else (1, 2))
    if isinstance(channel, channels.report.Report) and not counts_are_levels(channel)
]
SCATTERED_EVENTS = [
    reported(channel, SCATTERED, d)
    for channel in EVERY_CHANNEL
    for d in ((1,) if is_strict(channel) else (1, 2))
    if isinstance(channel, channels.report.Report) and not counts_are_levels(channel)
]
VARIANCES = [
    reported(channel, VARIANCE, d)
    for channel in EVERY_CHANNEL
    for d in ((1,) if is_strict(channel) else (1, 2))
    if isinstance(channel, channels.report.Report)
    and not isinstance(channel, channels.Clip)
    and not counts_are_levels(channel)
]
WAITS_REPORTED = [
    reported(channel, ENDED)
    for channel in EVERY_CHANNEL
    if isinstance(channel, channels.report.Report)
    and not isinstance(channel, channels.Clip)
    and not counts_are_levels(channel)
]
LIKELIHOODS_OF_REPORTS = {
    "ReportedRates": WAITS_REPORTED,
    "ReportedLogVariances": VARIANCES,
    "ReportedEvents": EVENTS,
    "ReportedOverdispersed": SCATTERED_EVENTS,
    "ReportedMeans": [x for x in REPORTED if isinstance(x, likelihoods.ReportedMeans)],
    "ReportedCounts": [x for x in REPORTED if isinstance(x, likelihoods.ReportedCounts)],
    "Joined": [
        likelihoods.Joined(
            (
                reported(channels.TwoBit(4.0, 0.4, UNIT_RANGE), family, size=40),
                reported(channels.Piecewise(4.0, UNIT_RANGE), family, size=30),
                reported(channels.Exact(), family, size=20),
                reported(channels.Laplace(2.0, (-1, 3)), family, size=10),
            )
        )
        for family in (GAUSSIAN, BINOMIAL)
    ],
}
PLANES = {
    "Gaussian": likelihoods.Gaussian(RNG.normal(size=(40, 3)), RNG.uniform(0.5, 2, (40, 1))),
    "Binomial": likelihoods.Binomial(np.minimum(RNG.poisson(4, (40, 3)), 12), np.full(40, 12)),
    "Poisson": likelihoods.Poisson(
        np.random.default_rng(9).negative_binomial(3, 0.5, (40, 3)), np.full(40, 2.5)
    ),
    "LogVariance": likelihoods.LogVariance(
        np.exp(np.random.default_rng(10).normal(0, 0.8, (40, 3)))
        * np.random.default_rng(11).chisquare(4, (40, 3)),
        np.full(40, 4),
    ),
}
# Of parameters that add up to 1.
SHARES = likelihoods.Multinomial(
    np.random.default_rng(12).multinomial(
        SIZES, np.random.default_rng(13).dirichlet([2.0, 1.0, 4.0], 200)
    )
)
UNIT = likelihoods.Gaussian(RNG.normal(RATES, 0.1)[:, None], np.full((200, 1), 0.01))

PRIORS = {
    "Normal": [
        priors.Normal(),
        priors.Normal(method="ml"),
        priors.Normal(method="moments"),
        priors.Normal(method="paule_mandel"),
        priors.Normal(mean=1.0),
        priors.Normal(mean=0.5, variance=0.3),
    ],
    "Beta": [
        priors.Beta(),
        priors.Beta(method="moments"),
        priors.Beta(method="paper"),
        priors.Beta(alpha=2.0, beta=3.0),
    ],
    "Gamma": [priors.Gamma(), priors.Gamma(mean=0.5, shape=3.0)],
    "InverseGamma": [
        priors.InverseGamma(),
        priors.InverseGamma(method="moments"),
        priors.InverseGamma(df=6.0, variance=2.0),
    ],
    "Discrete": [
        priors.Discrete(),
        priors.Discrete(2, random_state=0),
        priors.Discrete("bic", max_atoms=3, random_state=0),
        priors.Discrete([0.1, 0.4, 0.8]),
        priors.Discrete([0.1, 0.4, 0.8], weights=[1, 2, 1]),
    ],
    "GaussianMixture": [
        priors.GaussianMixture(2, random_state=0),
        priors.GaussianMixture(2, "diag", random_state=0),
        priors.GaussianMixture(max_components=3, random_state=0),
    ],
    "PointNormal": [priors.PointNormal(), priors.PointNormal(mode=None)],
    "Laplace": [priors.Laplace(), priors.Laplace(mean=0.5)],
    "LocationScale": [priors.LocationScale(), priors.LocationScale(priors.Laplace())],
    "LogSpline": [priors.LogSpline(), priors.LogSpline(6, c0=0.5)],
    "PointLaplace": [priors.PointLaplace(), priors.PointLaplace(mode=None)],
    "ScaleMixture": [priors.ScaleMixture(), priors.ScaleMixture(mode=1.0, scales=[0, 0.5, 2])],
}
PRIORS_OF_SHARES = {
    "Dirichlet": [priors.Dirichlet(), priors.Dirichlet(0.5), priors.Dirichlet([1.0, 2.0, 0.5])],
    "DirichletMixture": [
        priors.DirichletMixture(2, random_state=0),
        priors.DirichletMixture(max_components=2, random_state=0),
    ],
}
OF_SHARES = pytest.mark.parametrize(
    "prior", [x for group in PRIORS_OF_SHARES.values() for x in group], ids=repr
)


# a few rows of a client at once, in an order drawn anew, of clients drawn anew
SOME = {
    "n_rounds": 4,
    "local_steps": 2,
    "batch_size": 4,
    "sample_rate": 0.5,
    "learning_rate": 0.5,
    "random_state": 0,
}
STEP = SOME | {"local_steps": 1}
LOUD = {"privacy": learning.ClientPrivacy(noise_multiplier=4.0)}


def privacy(noise_multiplier=4.0, **others):
    """Privacy by so much noise, or by a budget."""
    noise = None if "epsilon" in others else noise_multiplier
    return learning.ClientPrivacy(noise_multiplier=noise, **others)


JOINT = {"n_rounds": 4, "sample_rate": 0.5, "learning_rate": 0.5, "random_state": 0} | LOUD
LEARNERS = {
    "AdaPeD": [
        learning.AdaPeD(**SOME),
        learning.AdaPeD(**SOME, unsampled=True),
        learning.AdaPeD(shared_model=models.MLP(3), **SOME),
        learning.AdaPeD(models.Linear(), **SOME),
        learning.AdaPeD(models.Linear(), **SOME, **LOUD),
    ],
    "DPAdaPeD": [
        learning.DPAdaPeD(**SOME, **LOUD, unsampled=True),
        learning.DPAdaPeD(**SOME, privacy=privacy(trust="none", clip_quantile=0.5)),
        learning.DPAdaPeD(**SOME, **LOUD, variant="paper"),
    ],
    "DPFedAvg": [
        learning.DPFedAvg(**SOME, privacy=privacy(clip_quantile=0.5)),
        learning.DPFedAvg(
            **(SOME | {"sample_rate": 1.0}), privacy=privacy(epsilon=4.0), fine_tune=3
        ),
        learning.DPFedAvg(**SOME, privacy=privacy(clip_quantile=0.5, trust="none")),
    ],
    "Ditto": [
        learning.Ditto(**SOME),
        learning.Ditto(**SOME, own_learning_rate=0.2, fine_tune=2, fine_tune_rate=0.3),
        learning.Ditto(**SOME, **LOUD),
    ],
    "FeO2": [
        learning.FeO2(**SOME, privacy=privacy(clip_quantile=0.5), ratio=0.5),
        learning.FeO2(**SOME, privacy=privacy(trust="none"), ratio="optimal"),
        learning.FeO2(**SOME, privacy=privacy(0.0), ratio=0.0),
        learning.FeO2(**SOME, privacy=privacy({"private": 4.0, "lax": 2.0}, trust="none")),
    ],
    "FedAvg": [
        learning.FedAvg(**SOME),
        learning.FedAvg(**SOME, shuffle=False, fine_tune=3, decay=0.9),
        learning.FedAvg(models.Linear(), **SOME, sampling="poisson", weight_decay=0.1),
        learning.FedAvg(models.MLP(4), **(SOME | {"batch_size": None})),
        learning.FedAvg(**SOME, **LOUD),
        learning.FedAvg(**SOME, validation_fraction=0.3, evaluate_every=2),
        learning.FedAvg(**SOME, validation_fraction=0.3, fine_tune="auto"),
    ],
    "FedBN": [
        learning.FedBN(models.MLP(4), **SOME, personal=["hidden_intercept"]),
        learning.FedBN(**SOME, **LOUD, personal=["intercept"], optimizer="momentum"),
    ],
    "FedMutual": [learning.FedMutual(**SOME), learning.FedMutual(**SOME, **LOUD)],
    "FedProx": [learning.FedProx(**SOME), learning.FedProx(**SOME, **LOUD, fine_tune=2)],
    "FedRep": [
        learning.FedRep(models.MLP(4), **SOME, head_steps=2),
        learning.FedRep(**SOME, privacy=privacy(clip_quantile=0.5), head_steps=2),
    ],
    "HierarchicalEB": [
        learning.HierarchicalEB(**SOME, fine_tune=3),
        learning.HierarchicalEB(models.Linear(), **SOME, fine_tune=2, folds=3, weights="rows"),
        learning.HierarchicalEB(models.MLP(4), **SOME, fine_tune=2, strengths=[0.5, 5], averaged=1),
        learning.HierarchicalEB(**SOME, fine_tune=2, **LOUD),
        learning.HierarchicalEB(**SOME, fine_tune=2, privacy=privacy(trust="none")),
    ],
    "JointDPSGD": [
        learning.JointDPSGD(models.Linear(), **JOINT, personal=["intercept"], average=True),
        learning.JointDPSGD(
            **(JOINT | {"privacy": privacy(clip_quantile=0.5)}),
            personal=["intercept"],
            protect="all",
        ),
    ],
    "LocalOnly": [learning.LocalOnly(**SOME)],
    "PFedMe": [learning.PFedMe(**SOME), learning.PFedMe(**SOME, **LOUD)],
    "PPSGD": [
        learning.PPSGD(models.Linear(), **STEP, **LOUD),
        learning.PPSGD(**STEP, privacy=privacy(trust="none"), objective="rows"),
        learning.PPSGD(models.MLP(4), **STEP, **LOUD, personal=["output", "output_intercept"]),
    ],
    "PerFedAvg": [
        learning.PerFedAvg(**SOME),
        learning.PerFedAvg(**SOME, privacy=privacy(clip_quantile=0.5)),
    ],
    "Scaffold": [
        learning.Scaffold(**SOME),
        learning.Scaffold(**SOME, privacy=privacy(clip_quantile=0.5)),
    ],
    "QuPeD": [learning.QuPeD(**SOME), learning.QuPeD(**SOME, privacy=privacy(trust="none"))],
}


def test_every_registered_class_is_tried():
    assert {cls.__name__ for cls in registered(likelihoods, likelihoods.Likelihood)} == (
        set(LIKELIHOODS) | set(LIKELIHOODS_OF_REPORTS) | {"Multinomial", "ReportedCategories"}
    )
    assert {cls.__name__ for cls in registered(priors, priors.Prior)} == (
        set(PRIORS) | set(PRIORS_OF_SHARES)
    )
    assert {cls.__name__ for cls in registered(channels, channels.Channel)} == (
        set(CHANNELS) | {"RandomizedCategory"}
    )
    assert {cls.__name__ for cls in registered(learning, learning.Learner)} == set(LEARNERS)
    assert {cls.__name__ for cls in registered(location, LocationEstimator)} == {
        "BernoulliEB",
        "CategoricalEB",
        "DurationEB",
        "GaussianEB",
        "MixtureEB",
        "NegativeBinomialEB",
        "OptOutMean",
        "PoissonEB",
        "VarianceEB",
    }
    assert {cls.__name__ for cls in registered(regression, RegressionEstimator)} == {
        "AdaMix",
        "AdaMixClassifier",
        "GeneralizedEB",
        "LinearEB",
        "LogisticEB",
        "MixtureLinearEB",
    }


@pytest.mark.parametrize(
    "likelihood",
    [*LIKELIHOODS.values(), *PLANES.values(), SHARES],
    ids=lambda x: f"{type(x).__name__}-{x.n_features}",
)
def test_likelihood(likelihood):
    check_likelihood(likelihood)


def test_likelihood_with_silent_and_exact_clients():
    values = np.array([[0.0], [1.0], [2.0], [5.0]])
    check_likelihood(likelihoods.Gaussian(values, np.array([[1.0], [np.inf], [0.5], [0.0]])))
    check_likelihood(likelihoods.Binomial(np.array([[1], [0], [2]]), np.array([3, 0, 4])))
    check_likelihood(likelihoods.Multinomial(np.array([[1, 4], [0, 0], [2, 0]])))
    variances, degrees = np.array([[1.0], [np.inf], [0.5], [0.0]]), np.array([2.0, 5.0, 9.0, 1.0])
    check_likelihood(likelihoods.StudentT(values, variances, degrees))


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
        with pytest.raises(TypeError, match=r"Choose (a prior|method)"):
            prior.fit(likelihood)
        likelihood = UNIT if prior.accepts(UNIT) else LIKELIHOODS["LogVariance"]
    if isinstance(prior, priors.Beta) and name == "Gaussian":
        likelihood = UNIT  # rates seen through Gaussian noise
    by_moments = isinstance(prior, priors.Normal) and prior.method in ("moments", "paule_mandel")
    if name == "StudentT" and by_moments:
        with pytest.raises(ValueError, match="'reml' or 'ml' where errors have a t distribution"):
            prior.fit(likelihood)
        likelihood = LIKELIHOODS["Gaussian"]
    if name == "LogVariance" and by_moments:
        with pytest.raises(ValueError, match="'reml' or 'ml' where"):
            prior.fit(likelihood)
        likelihood = LIKELIHOODS["Gaussian"]
    check_prior(prior, likelihood)


@pytest.mark.parametrize(
    ("prior", "name"),
    [
        (priors.Normal(), "Gaussian"),
        (priors.Normal(covariance="spherical"), "Gaussian"),
        (priors.Discrete(2, random_state=0), "Gaussian"),
        (priors.Discrete("bic", max_atoms=3, random_state=0), "Gaussian"),
        (priors.GaussianMixture(2, random_state=0), "Gaussian"),
        (priors.GaussianMixture(2, "diag", random_state=0), "Gaussian"),
        (priors.Beta(), "Binomial"),
        (priors.Gamma(), "Poisson"),
        (priors.InverseGamma(), "LogVariance"),
        (priors.Discrete(2, random_state=0), "Binomial"),
    ],
    ids=repr,
)
def test_prior_of_vectors(prior, name):
    check_prior(prior, PLANES[name])


@OF_SHARES
def test_prior_of_shares(prior):
    check_prior(prior, SHARES)
    draws = clone(prior).fit(SHARES).posterior(SHARES).sample(20, 0)
    np.testing.assert_allclose(draws.sum(axis=2), 1.0, rtol=1e-11)
    for other in (priors.Beta(), priors.LogSpline(), priors.Normal(), priors.Discrete(2)):
        with pytest.raises(TypeError, match="Choose a prior"):
            other.fit(SHARES)


@pytest.mark.parametrize("channel", CHANNELS_OF_SHARES, ids=repr)
@OF_SHARES
def test_prior_from_reports_of_shares(prior, channel):
    """As `check_prior` does, without posteriors: clients have their own counts."""
    votes = np.random.default_rng(18).multinomial(SIZES % 6, [0.5, 0.2, 0.3])
    summary = families.Categorical(3).summarise(votes.astype(float), None)
    said = channel.likelihood(channel.encode(summary, 5), families.Categorical(3))
    fitted = clone(prior).fit(said)
    assert np.all(fitted.variance_ >= 0)
    again = clone(prior).fit(said.take(np.random.default_rng(0).permutation(len(said))))
    np.testing.assert_allclose(again.mean_, fitted.mean_, rtol=1e-9)
    known = clone(prior).fit(SHARES)
    marginal = known.log_marginal(said)
    np.testing.assert_allclose(marginal[said.sizes == 0], 0, atol=1e-12)
    if isinstance(prior, priors.Dirichlet):
        own, scores, _ = said.dirichlet_scores(known.mean_, 1 / (1 + known.concentration_))
        np.testing.assert_allclose(marginal, own)
        np.testing.assert_allclose(said.marginal(known.mean_, known.variance_), own, rtol=1e-9)
        assert np.all(scores[said.sizes == 0] == 0)
    check_posterior(fitted.posterior(SHARES), SHARES)


@pytest.mark.parametrize("likelihood", LIKELIHOODS_OF_REPORTS["ReportedMeans"], ids=lambda x: None)
def test_reported_means(likelihood):
    check_likelihood(likelihood)


@pytest.mark.parametrize("likelihood", LIKELIHOODS_OF_REPORTS["ReportedCounts"], ids=lambda x: None)
def test_reported_counts(likelihood):
    check_likelihood(likelihood)


@pytest.mark.parametrize("likelihood", LIKELIHOODS_OF_REPORTS["ReportedEvents"], ids=lambda x: None)
def test_reported_events(likelihood):
    check_likelihood(likelihood)


@pytest.mark.parametrize("likelihood", SCATTERED_EVENTS, ids=lambda x: None)
def test_reported_overdispersed_events(likelihood):
    check_likelihood(likelihood)


@pytest.mark.parametrize(
    "likelihood", LIKELIHOODS_OF_REPORTS["ReportedLogVariances"], ids=lambda x: None
)
def test_reported_log_variances(likelihood):
    check_likelihood(likelihood)


@pytest.mark.parametrize("likelihood", WAITS_REPORTED, ids=lambda x: None)
def test_reported_rates(likelihood):
    check_likelihood(likelihood)


@pytest.mark.parametrize("likelihood", LIKELIHOODS_OF_REPORTS["Joined"], ids=["means", "counts"])
def test_joined(likelihood):
    check_likelihood(likelihood)


# Channels whose reports tell enough of the spread that EM on a grid arrives within 2000 steps.
@pytest.mark.parametrize(
    "prior", [priors.Normal(), priors.Normal(mean=0.5, variance=0.2)], ids=repr
)
@pytest.mark.parametrize(
    "channel",
    [
        channels.Clip((-1, 2)),
        channels.Laplace(12.0, (-1, 2)),
        channels.Quantizer(3, (-1, 2)),
    ],
    ids=repr,
)
def test_normal_prior_on_reports(prior, channel):
    check_prior(prior, reported(channel, GAUSSIAN))


@pytest.mark.parametrize("prior", [priors.Beta(), priors.Beta(alpha=3.0, beta=4.0)], ids=repr)
@pytest.mark.parametrize(
    "channel",
    [
        channels.Piecewise(6.0, UNIT_RANGE),
        channels.RandomizedResponse(6.0, UNIT_RANGE),
        channels.UnaryEncoding(6.0, UNIT_RANGE),
    ],
    ids=repr,
)
def test_beta_prior_on_reports(prior, channel):
    check_prior(prior, reported(channel, BINOMIAL))


@pytest.mark.parametrize("prior", [priors.Gamma(), priors.Gamma(mean=0.5, shape=3.0)], ids=repr)
@pytest.mark.parametrize(
    "channel", [channels.Laplace(12.0, (0, 2)), channels.Quantizer(4, (0, 2))], ids=repr
)
@pytest.mark.parametrize(
    "family",
    [POISSON, pytest.param(ENDED, marks=pytest.mark.slow)],  # cells of a grid of all reports
    ids=["events", "durations"],
)
def test_gamma_prior_on_reports(prior, channel, family):
    check_prior(prior, reported(channel, family))


@pytest.mark.slow  # EM on a grid, to the end
@pytest.mark.parametrize(
    "prior", [priors.InverseGamma(), priors.InverseGamma(df=6.0, variance=2.0)], ids=repr
)
@pytest.mark.parametrize(
    "channel", [channels.Laplace(12.0, (-1, 2)), channels.Quantizer(4, (-1, 2))], ids=repr
)
def test_inverse_gamma_prior_on_reports(prior, channel):
    check_prior(prior, reported(channel, VARIANCE))


@pytest.mark.parametrize("prior", [priors.Discrete(), priors.Discrete([0.1, 0.4, 0.8])], ids=repr)
def test_discrete_prior_on_reports(prior):
    for family in (GAUSSIAN, BINOMIAL, POISSON):
        check_prior(prior, reported(channels.TwoBit(8.0, 0.5, UNIT_RANGE), family))


@pytest.mark.parametrize(
    "prior",
    [
        priors.PointNormal(),
        priors.PointNormal(mode=None),
        priors.Laplace(),
        priors.PointLaplace(),
        priors.ScaleMixture(),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "channel", [channels.Laplace(12.0, (-1, 2)), channels.Quantizer(3, (-1, 2))], ids=repr
)
def test_symmetric_prior_on_reports(prior, channel):
    check_prior(prior, reported(channel, GAUSSIAN))


def test_log_spline_on_reports():
    for family in (GAUSSIAN, BINOMIAL, POISSON):
        check_prior(priors.LogSpline(), reported(channels.TwoBit(8.0, 0.5, UNIT_RANGE), family))


def test_priors_on_joined_reports():
    means, counts = LIKELIHOODS_OF_REPORTS["Joined"]
    check_prior(priors.LogSpline(), means)
    check_prior(priors.LogSpline(), counts)
    check_prior(priors.Normal(), means)
    check_prior(priors.Beta(), counts)


@pytest.mark.parametrize("channel", EVERY_CHANNEL, ids=repr)
def test_channel_of_means(channel):
    if counts_are_levels(channel):
        channel = clone(channel).set_params(levels=6)
    # randomness of the operating system is slow: at one epsilon for means, at another for counts
    check_channel(channel, MEANS, GAUSSIAN, secure=0 if is_strict(channel) else 1000)


VOTES = families.Categorical(3).summarise(
    np.array([[9, 0, 0], [0, 4, 0], [1, 3, 2], [0, 0, 1], [2, 0, 2], [0, 0, 0]], float), None
)


@pytest.mark.parametrize("channel", CHANNELS_OF_SHARES, ids=repr)
def test_channel_of_shares(channel):
    secure = 0 if is_strict(channel) else 1000
    check_channel(channel, VOTES, families.Categorical(3), secure=secure)


COUNTING = [channel for channel in EVERY_CHANNEL if not isinstance(channel, channels.AddNoise)]


@pytest.mark.parametrize("channel", COUNTING, ids=repr)
def test_channel_of_counts(channel):
    check_channel(channel, COUNTS, BINOMIAL, secure=1000 if is_strict(channel) else 0)


# Reports of Clip are own rates, which have no density: tests of the likelihood try them.
@pytest.mark.parametrize(
    "channel", [c for c in COUNTING if not isinstance(c, channels.Clip)], ids=repr
)
def test_channel_of_events(channel):
    if counts_are_levels(channel):
        channel = clone(channel).set_params(levels=6)
    check_channel(channel, COUNTS, POISSON, secure=0)


@pytest.mark.parametrize(
    "channel", [c for c in COUNTING if not isinstance(c, channels.Clip)], ids=repr
)
def test_channel_of_variances(channel):
    if counts_are_levels(channel):
        channel = clone(channel).set_params(levels=6)
    n = np.array([4, 2, 9, 3, 0])
    summary = VARIANCE.blank(n, 1)
    logs = np.array([[0.0], [1.0], [0.37], [1.4], [0.0]])
    scatter = np.exp(logs) * np.maximum(n - 1, 0)[:, None]
    check_channel(channel, replace(summary, mean=logs, scatter=scatter), VARIANCE, secure=0)


@pytest.mark.parametrize(
    "channel", [c for c in COUNTING if not isinstance(c, channels.Clip)], ids=repr
)
def test_channel_of_durations(channel):
    if counts_are_levels(channel):
        channel = clone(channel).set_params(levels=6)
    rates = np.array([[0.0], [1.0], [0.37], [1.4], [0.0]])
    summary = replace(ENDED.blank(np.array([4, 2, 9, 3, 0]), 1), mean=rates)
    check_channel(channel, summary, ENDED, secure=0)


def test_channel_of_norms():
    ball = channels.Clip(radius=0.5, centre=0.5)
    check_channel(ball, MEANS, GAUSSIAN)
    check_channel(ball | channels.Gaussian(4.0, 1e-5), MEANS, GAUSSIAN, secure=200)


NOISY = RNG.normal(THETA[np.arange(600) % 200], 2.0)


def tolerance(estimator):
    """A gap of 1e-6 in the likelihood leaves some 1e-3 of the estimates of a flat one open."""
    return 1e-6 if isinstance(estimator.protocol().prior, priors.Normal | priors.Beta) else 1e-3


BITS = (RNG.random(600) < RATES[np.arange(600) % 200]).astype(float)


@pytest.mark.parametrize(
    "estimator",
    [
        eb.GaussianEB(),
        eb.GaussianEB(method="ml"),
        eb.GaussianEB(method="moments"),
        eb.GaussianEB(variances=4.0),
        eb.GaussianEB(share="sums"),
        eb.GaussianEB(prior="npmle"),
        eb.GaussianEB(prior=priors.Discrete(2, random_state=0)),
        eb.MixtureEB(2, random_state=0),
        eb.MixtureEB(variances=4.0, max_components=3, random_state=0),
        eb.MixtureEB(2, components="spherical", random_state=0),
        eb.MixtureEB(2, solver="clustering", random_state=0),
        eb.OptOutMean(1.0, 4.0, 0.1, random_state=0),
        eb.OptOutMean(trust="none", alpha2=4.0, gamma2=0.1, ratio=0.5, random_state=0),
        eb.OptOutMean(1.0, 4.0, epsilon=1, delta=1e-5, range=(-9, 9), random_state=0),
        eb.OptOutMean(1.0, 4.0, 0.1, ratio="fedavg", personalize="ditto", random_state=0),
        eb.OptOutMean(1.0, 4.0, 0.1, personalize="paper", random_state=0),
    ],
    ids=repr,
)
def test_gaussian_estimator(estimator):
    check_estimator_contract(estimator, NOISY, np.arange(600) % 200, tolerance(estimator))


def test_gaussian_estimator_of_vectors():
    X = np.column_stack([NOISY, 5 - 3 * NOISY])
    check_estimator_contract(eb.GaussianEB(), X, np.arange(600) % 200)
    for components in ("points", "diag"):
        mixture = eb.MixtureEB(2, components=components, random_state=0)
        check_estimator_contract(mixture, X, np.arange(600) % 200, tolerance(mixture))


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
        eb.VarianceEB(),
        eb.VarianceEB(prior="npmle"),
        eb.VarianceEB(prior=priors.InverseGamma(method="moments")),
    ],
    ids=repr,
)
def test_variance_estimator(estimator):
    loose = isinstance(estimator.protocol().prior, priors.Discrete)
    groups = np.arange(600) % 200
    check_estimator_contract(estimator, NOISY, groups, 1e-3 if loose else 1e-6)


ANSWERS = np.random.default_rng(14).choice(3, 600, p=[0.5, 0.2, 0.3]) + np.arange(600) % 200 // 150


@pytest.mark.parametrize(
    "estimator",
    [
        eb.CategoricalEB(),
        eb.CategoricalEB(categories=[0, 1, 2, 3, 4]),
        eb.CategoricalEB(prior=priors.Dirichlet(2.0)),
    ],
    ids=repr,
)
def test_categorical_estimator(estimator):
    estimator = clone(estimator)
    if estimator.categories is None:
        estimator.set_params(categories=[0, 1, 2, 3])  # which each node has to know
    check_estimator_contract(estimator, ANSWERS, np.arange(600) % 200)


EVENTS_IN_ROWS = (
    np.random.default_rng(17).negative_binomial(2, 0.3, 600) + np.arange(600) % 200 // 40
)


@pytest.mark.parametrize(
    "estimator",
    [
        eb.NegativeBinomialEB(),
        eb.NegativeBinomialEB(dispersion=0.4),
        eb.NegativeBinomialEB(prior="npmle"),
    ],
    ids=repr,
)
def test_negative_binomial_estimator(estimator):
    loose = isinstance(estimator.protocol().prior, priors.Discrete)
    groups = np.arange(600) % 200
    check_estimator_contract(estimator, EVENTS_IN_ROWS, groups, 1e-3 if loose else 1e-5)


WAITS = np.random.default_rng(15).exponential(1.0, 600) * (1 + np.arange(600) % 200 / 50)
WAITS[0] = 1.0  # in which as many events are expected as the rate says


@pytest.mark.parametrize("estimator", [eb.DurationEB(), eb.DurationEB(prior="npmle")], ids=repr)
def test_duration_estimator(estimator):
    loose = isinstance(estimator.protocol().prior, priors.Discrete)
    check_estimator_contract(estimator, WAITS, np.arange(600) % 200, 1e-3 if loose else 1e-6)


SLOPES = RNG.normal([1.0, 2.0, -1.0], 0.5, (60, 3))
LINES = RNG.normal(size=(600, 2))
SIXTY = np.arange(600) % 60
PREDICTORS = np.einsum("np,np->n", np.column_stack([np.ones(600), LINES]), SLOPES[SIXTY])
RESPONSES = PREDICTORS + RNG.normal(size=600)


@pytest.mark.parametrize(
    "estimator",
    [
        eb.PoissonEB(),
        eb.PoissonEB(prior="npmle"),
        eb.PoissonEB(prior=priors.Gamma(mean=0.5, shape=2.0)),
    ],
    ids=repr,
)
def test_poisson_estimator(estimator):
    groups = np.arange(600) % 200
    events = np.random.default_rng(6).poisson(2 * RATES[groups]).astype(float)
    check_estimator_contract(estimator, events, groups, tolerance(estimator))


@pytest.mark.parametrize(
    "estimator",
    [
        eb.LinearEB(),
        eb.LinearEB("spherical", method="ml"),
        eb.LinearEB("full"),
        eb.LinearEB(varying=["intercept", 1]),
        eb.LinearEB(fit_intercept=False),
        eb.LinearEB(share="sums"),
        eb.LinearEB("full", share="sums"),
    ],
    ids=repr,
)
def test_linear_estimator(estimator):
    check_regression_contract(estimator, LINES, RESPONSES, SIXTY)


CHOICES = (RNG.random(600) < 1 / (1 + np.exp(-PREDICTORS))).astype(int)


@pytest.mark.parametrize(
    ("estimator", "tolerance"),
    [
        (eb.LogisticEB(), 1e-5),
        (eb.LogisticEB("spherical"), 1e-5),
        (eb.LogisticEB("full"), 1e-4),
        (eb.LogisticEB(fit_intercept=False), 1e-5),
        (eb.LogisticEB(share="sums"), 1e-5),
        (eb.LogisticEB(method="ep"), 1e-5),
        (eb.LogisticEB("full", method="ep"), 1e-4),
        (eb.LogisticEB(method="laplace"), 1e-5),
        (eb.LogisticEB("spherical", method="gradient", n_rounds=20), 1e-6),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:method='gradient' maximises")
def test_logistic_estimator(estimator, tolerance):
    check_regression_contract(estimator, LINES, CHOICES, SIXTY, tolerance)


EVENTS = np.random.default_rng(7).poisson(np.exp(PREDICTORS / 2)).astype(float)


@pytest.mark.parametrize(
    "estimator",
    [
        eb.GeneralizedEB(),
        eb.GeneralizedEB(covariance="full", varying=["intercept", 1]),
        eb.GeneralizedEB(share="sums"),
    ],
    ids=repr,
)
def test_generalized_estimator(estimator):
    check_regression_contract(estimator, LINES, EVENTS, SIXTY, 1e-4)


# clients with one row and with more than a batch
UNEQUAL = np.repeat(3 * np.arange(10), [3, 9, 1, 12, 6, 6, 20, 2, 8, 5])
ROWS = np.random.default_rng(17)  # of its own, so that others draw what they drew
FEATURES = ROWS.normal(size=(len(UNEQUAL), 2))
NUMBERS = 2 * FEATURES[:, 0] + ROWS.normal(size=30)[UNEQUAL] + 0.3 * ROWS.normal(size=len(UNEQUAL))
NAMES = np.array(["low", "middle", "top"])[np.digitize(NUMBERS, [-1, 1])]


@pytest.mark.parametrize("learner", [x for group in LEARNERS.values() for x in group], ids=repr)
def test_learner(learner):
    y = NUMBERS if learner._numeric else NAMES
    consent = None
    if isinstance(learner, learning.FeO2):
        levels = [*learner.protocol().levels, "open"]
        consent = np.array(levels)[UNEQUAL % len(levels)]
    check_learner_contract(learner, FEATURES, y, UNEQUAL, consent)


# without groups every row is a group: one of weight 2 is one group, and the row repeated is two
WEIGHTS = {
    "check_sample_weight_equivalence_on_dense_data": "a weight is of a row within its group",
    "check_sample_weight_equivalence_on_sparse_data": "a weight is of a row within its group",
}


def failing_weights(estimator):
    return WEIGHTS if has_fit_parameter(estimator, "sample_weight") else {}


@pytest.mark.parametrize(
    "estimator",
    [
        eb.GaussianEB(),
        eb.GaussianEB(variances=1.0),
        eb.LinearEB(),
        eb.LogisticEB(),
        eb.LogisticEB(method="ep"),
        eb.LogisticEB(method="laplace"),
        eb.LogisticEB("spherical", method="gradient"),
        eb.BernoulliEB(binarize=0.0),
        eb.BernoulliEB(binarize=0.0, method="paper"),
        eb.MixtureEB(max_components=2, variances=1.0),
        eb.MixtureEB(2, components="diag", variances=1.0),
        eb.MixtureEB(2, solver="clustering", variances=1.0),
        eb.OptOutMean(tau2=1.0, alpha2=1.0, gamma2=0.1, random_state=0),
    ],
    ids=repr,
)
# Its data have no groups, so that every row is one, whose noise nothing identifies; a few
# checks are skipped where an optional package or variable is missing.
@pytest.mark.filterwarnings("ignore::ebfed.priors.IdentificationWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn(estimator):
    check_estimator(estimator, expected_failed_checks=failing_weights(estimator))


ALONE = "without groups every row is a client, from which others learn nothing"
# all arguments called alpha are set to 0.01
NEARLY_ALONE = {"check_regressors_train": f"alpha is set to 0.01, and {ALONE}"}
FEW = {"n_rounds": 5, "random_state": 0}
SILENT = {"privacy": privacy(0.0)}


@pytest.mark.parametrize(
    ("learner", "failing"),
    [
        (learning.FedAvg(**FEW), {}),
        (learning.FedAvg(models.Linear(), **FEW), {}),
        (learning.FedAvg(models.MLP(20), **(FEW | {"n_rounds": 40}), learning_rate=0.3), {}),
        (learning.FedProx(**FEW), {}),
        (learning.Scaffold(**FEW), {}),
        (learning.FedRep(**FEW), {}),
        (learning.FedBN(**FEW, personal=["intercept"]), {}),
        (learning.HierarchicalEB(**FEW), {}),
        (learning.LocalOnly(**FEW), {"check_classifiers_train": ALONE}),
        (learning.LocalOnly(models.Linear(), **FEW), {"check_regressors_train": ALONE}),
        (learning.Ditto(**FEW), {}),
        (learning.PFedMe(**FEW), {}),
        (learning.PerFedAvg(**FEW), {}),
        (learning.QuPeD(**FEW), {}),
        (learning.FedMutual(**FEW), {}),
        (learning.AdaPeD(**FEW), {}),
        (learning.DPAdaPeD(**FEW, **SILENT), {}),
        (learning.DPFedAvg(**FEW, privacy=privacy(1.0, trust="none"), learning_rate=2.0), {}),
        (learning.DPFedAvg(**FEW, privacy=privacy(1.0)), {}),
        (learning.FeO2(**FEW, **SILENT), {}),
        (learning.JointDPSGD(**FEW, **SILENT), {}),
        (learning.PPSGD(**FEW, **SILENT), {}),
        (learning.PPSGD(models.Linear(), **FEW, **SILENT), NEARLY_ALONE),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_learners(learner, failing):
    why = "without groups every row is a client, and the weight of its only row changes nothing"
    names = ("on_dense_data", "on_sparse_data")
    weights = {f"check_sample_weight_equivalence_{name}": why for name in names}
    check_estimator(learner, expected_failed_checks=failing | weights)


def test_every_learner_is_tried_by_scikit_learn():
    (marks,) = [m for m in test_scikit_learn_learners.pytestmark if m.name == "parametrize"]
    assert {type(learner).__name__ for learner, _ in marks.args[1]} == set(LEARNERS)
