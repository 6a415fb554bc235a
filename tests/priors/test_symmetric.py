"""Symmetric populations against quadrature, general optimisers, R and the Bayes oracle."""

import runpy
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq, minimize
from scipy.special import expit
from scipy.stats import norm
from sklearn.base import clone

import ebfed as eb
from ebfed.kernels import point_and_slab
from ebfed.likelihoods import Binomial, Gaussian
from ebfed.priors import (
    Discrete,
    GaussianMixture,
    IdentificationWarning,
    Laplace,
    Normal,
    PointLaplace,
    PointNormal,
    ScaleMixture,
)

RNG = np.random.default_rng(20)
ERRORS = RNG.uniform(0.3, 1.5, 400)
TRUTH = np.where(RNG.random(400) < 0.6, 0.0, RNG.laplace(0, 2, 400))
MESSAGES = Gaussian(RNG.normal(TRUTH, ERRORS)[:, None], ERRORS[:, None] ** 2)
PRIORS = [
    PointNormal(),
    PointNormal(mode=None),
    Laplace(),
    Laplace(mean=0.3),
    PointLaplace(),
    ScaleMixture(),
]
POINTS = np.array([-40.0, -3.0, -0.4, 0.0, 0.1, 1.7, 40.0])


def slab_density(prior, theta):
    return sum(
        w * np.exp(prior.slab.logpdf(theta - prior.mode_, s))
        for w, s in zip(prior.weights_, prior.scales_, strict=True)
        if s > 0
    )


def by_quadrature(prior, x, s):
    """Log marginal, posterior mean and sd, and the posterior's mass at or below 0.2."""
    point = prior.weights_[prior.scales_ == 0].sum()

    def joint(theta, power=0):
        return theta**power * slab_density(prior, theta) * norm.pdf(x, theta, s)

    # where the integrand is: between mode and message, and a few errors and kinks around
    cuts = sorted({prior.mode_, 0.2, x, *(x + s * np.array([-12.0, -3, 3, 12]))})
    reach = max(abs(x), 1) + 12 * s

    def integral(power, top=np.inf):
        edges = [c for c in [-reach, *cuts, reach] if c <= top]
        pieces = pairwise(edges)
        return sum(quad(joint, *piece, (power,), epsabs=0, epsrel=1e-12)[0] for piece in pieces)

    spike = point * norm.pdf(x, prior.mode_, s)
    total = integral(0) + spike
    mean = (integral(1) + spike * prior.mode_) / total
    second = (integral(2) + spike * prior.mode_**2) / total
    below = (integral(0, 0.2) + spike * (prior.mode_ <= 0.2)) / total
    return np.log(total), mean, np.sqrt(second - mean**2), below


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
@pytest.mark.parametrize("s", [0.5, 1.0])
def test_posteriors_are_those_of_quadrature(prior, s):
    prior.fit(MESSAGES)
    inner = POINTS[1:-1]
    messages = Gaussian(inner[:, None], np.full((len(inner), 1), s**2))
    posterior = prior.posterior(messages, integrate=False)
    marginal = prior.log_marginal(messages)
    reference = np.array([by_quadrature(prior, x, s) for x in inner])
    np.testing.assert_allclose(marginal, reference[:, 0], rtol=0, atol=1e-8)
    np.testing.assert_allclose(posterior.mean[:, 0], reference[:, 1], rtol=0, atol=1e-8)
    np.testing.assert_allclose(posterior.sd[:, 0], reference[:, 2], rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(posterior.prob_below(0.2)[:, 0], reference[:, 3], atol=1e-8)


def test_two_points_and_a_normal():
    """Closed forms: atoms weighed by their densities, and the conjugate normal."""
    x, s2 = np.array([[-1.0], [0.2], [3.0]]), np.array([[1.0], [0.5], [2.0]])
    two = Discrete([0.0, 2.0], weights=[0.7, 0.3]).fit(Gaussian(x, s2))
    odds = 0.3 / 0.7 * np.exp((x**2 - (x - 2) ** 2) / (2 * s2))
    share = odds / (1 + odds)
    posterior = two.posterior(Gaussian(x, s2))
    np.testing.assert_allclose(posterior.mean, 2 * share, rtol=1e-12)
    np.testing.assert_allclose(posterior.sd, 2 * np.sqrt(share * (1 - share)), rtol=1e-10)
    mixture = ScaleMixture(scales=[1.5]).fit(Gaussian(x, s2))
    normal = Normal(mean=0.0, variance=2.25).fit(Gaussian(x, s2))
    ours, theirs = (prior.posterior(Gaussian(x, s2)) for prior in (mixture, normal))
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-12)
    np.testing.assert_allclose(ours.sd, theirs.sd, rtol=1e-12)
    np.testing.assert_allclose(ours.quantile(0.01), theirs.quantile(0.01), rtol=1e-10)


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_extremes(prior):
    """Forty errors out, no error at all, no message: never NaN."""
    prior.fit(MESSAGES)
    x = np.array([40.0, -40, 1e3, 0.7, 5.0])[:, None]
    s2 = np.array([1.0, 1, 1, 0, np.inf])[:, None]
    posterior = prior.posterior(Gaussian(x, s2), integrate=False)
    assert np.isfinite(posterior.mean).all()
    assert np.isfinite(prior.log_marginal(Gaussian(x[:3], s2[:3]))).all()
    assert posterior.mean[3] == 0.7
    assert posterior.sd[3] == 0
    assert posterior.quantile(0.3)[3] == 0.7
    assert posterior.mean[4] == pytest.approx(prior.mean_[0], abs=1e-9)
    assert posterior.sd[4] ** 2 == pytest.approx(prior.variance_[0], rel=1e-6)
    low, high = posterior.interval(0.95)
    assert np.all(low <= high)
    # far out, what is left of the slab shrinks by about a constant (Laplace) or share (normal)
    assert np.all(np.abs(posterior.mean[:2, 0]) < 40)


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
@pytest.mark.parametrize("unit", [1e-8, 1e8])
def test_units(prior, unit):
    shape = {"scales": np.array([0, 0.5, 2]) * unit} if prior.get_params().get("scales") else {}
    if isinstance(prior, Laplace) and prior.mean is not None:
        shape = {"mean": prior.mean * unit}
    fitted = type(prior)(**prior.get_params()).fit(MESSAGES)
    scaled = type(prior)(**prior.get_params()).set_params(**shape)
    many = Gaussian(unit * MESSAGES.values, unit**2 * MESSAGES.variances)
    scaled.fit(many)
    # weights of neighbouring components are weakly determined: the curve is flat there
    tolerance = 1e-4 if isinstance(prior, ScaleMixture) else 1e-6
    np.testing.assert_allclose(
        scaled.posterior(many).mean / unit, fitted.posterior(MESSAGES).mean, atol=tolerance
    )
    assert scaled.variance_[0] / unit**2 == pytest.approx(fitted.variance_[0], rel=1e-3)


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_fits_are_maxima(prior):
    """A general optimiser, started at the answer, finds nothing likelier."""
    prior.fit(MESSAGES)
    best = prior.log_marginal(MESSAGES).sum()
    other = type(prior)(**prior.get_params()).fit(MESSAGES)

    def minus(p):
        if isinstance(prior, ScaleMixture):
            weights = prior.weights_ * np.exp(p[: len(prior.weights_)])
            other.weights_ = weights / weights.sum()
        else:
            odds = np.exp(p[0]) * prior.weights_[-1] / max(prior.weights_[0], 1e-12)
            if prior.spike:
                other.weights_ = np.array([1, odds]) / (1 + odds)
            other.scales_ = prior.scales_ * np.exp(p[1])
            if prior.mode is None:
                other.mode_ = prior.mode_ + p[2]
        return -other.log_marginal(MESSAGES).sum()

    peer = minimize(minus, np.zeros(max(3, len(prior.weights_))), method="Nelder-Mead")
    assert -peer.fun <= best + 1e-5


@pytest.mark.parametrize(
    "prior", [PointNormal(), PointLaplace(), Laplace(mean=0.0), ScaleMixture()], ids=repr
)
def test_nothing_but_the_mode(prior):
    prior.fit(Gaussian(np.zeros((50, 1)), np.ones((50, 1))))
    assert prior.variance_[0] == 0
    assert prior.posterior(Gaussian(np.array([[3.0]]), np.ones((1, 1)))).mean[0, 0] == 0
    assert "The population is a point" in prior.notes_[-1]


def test_no_data_and_bad_arguments():
    silent = Gaussian(np.zeros((3, 1)), np.full((3, 1), np.inf))
    with pytest.warns(eb.priors.IdentificationWarning, match="No client has data"):
        assert PointNormal().fit(silent).variance_[0] == 0
    with pytest.raises(ValueError, match="mode must be finite"):
        PointNormal(mode=np.nan).fit(MESSAGES)
    with pytest.raises(ValueError, match="scales must be"):
        ScaleMixture(scales=[-1.0, 2.0]).fit(MESSAGES)
    with pytest.raises(ValueError, match="prior must be 'normal', 'point_normal', 'laplace'"):
        eb.posterior_from([1.0, 2.0], [1.0, 1.0], prior="spike")


def test_what_a_scale_mixture_refuses():
    with pytest.raises(TypeError, match="mode must be a number"):
        ScaleMixture(mode=None).fit(MESSAGES)
    for mode in ("a", [0.0]):
        with pytest.raises(TypeError, match="mode must be a number"):
            ScaleMixture(mode=mode).fit(MESSAGES)
    for scales in ([0, np.inf], [-1.0, 2.0], [0, np.nan], []):
        with pytest.raises(ValueError, match="scales must be finite numbers"):
            ScaleMixture(scales=scales).fit(MESSAGES)
    for scales in ("a", [0, "b"], [[0], [1, 2]]):
        with pytest.raises(TypeError, match="scales must be numbers"):
            ScaleMixture(scales=scales).fit(MESSAGES)


@pytest.mark.parametrize(
    ("prior", "sentence"),
    [
        ("laplace", "the spread of the population is not identified"),
        ("npmle", "the spread of the population is not identified"),
        (PointNormal(mode=None), "the spread of the population is not identified"),
        ("point_normal", "fitted to that one estimate"),
        ("scale_mixture", "fitted to that one estimate"),
    ],
)
@pytest.mark.parametrize("others", [[], [np.nan]])
def test_one_estimate_is_no_population(prior, sentence, others):
    with pytest.warns(IdentificationWarning, match=sentence):
        posterior = eb.posterior_from([5.0, *others], [1.0, *others], prior=prior)
    assert sentence in posterior.prior.notes_[-1]


@pytest.mark.parametrize("integrate", [False, True])
def test_a_point_with_most_of_the_probability_leaves_intervals_of_some_width(integrate):
    """1,980 of 2,000 parameters are the mode: of most groups it has more than .975."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, 2000) + 10 * (np.arange(2000) < 20)
    messages = Gaussian(x[:, None], np.ones((2000, 1)))
    posterior = PointNormal().fit(messages).posterior(messages, integrate=integrate)
    low, high = posterior.quantile(0.025), posterior.quantile(0.975)
    lower, upper = posterior.interval()
    assert (low == high).mean() > 0.5
    assert (upper - lower >= 3.9 * posterior.sd)[low == high].all()
    assert (lower <= low + 1e-9).all()  # rounding of 0.025
    assert (high <= upper + 1e-9).all()


def test_an_interval_beside_a_point_stays_where_the_parameter_can_be():
    population = Discrete.known(np.array([[0.01], [0.5]]), np.array([0.999, 0.001]))
    lower, upper = population.posterior(Binomial(np.array([[0]]), np.array([4]))).interval()
    assert lower == 0.01
    assert 0.011 < upper < 0.1


def likeliest(prior, x, s):
    """Log-likelihood of the best of many starts of Nelder and Mead's."""

    def minus(p):
        weight = max(expit(p[0]), 1e-12) if prior.spike else 1.0
        is_laplace = isinstance(prior, PointLaplace | Laplace)
        return -point_and_slab(x, s**2, weight, np.exp(np.clip(p[1], -9, 9)), p[2], is_laplace)[0]

    starts = [[odds, scale, mode] for odds in (-1, 1) for scale in (-1, 0.7) for mode in x]
    starts = sorted(starts, key=minus)[:10]
    runs = [minimize(minus, start, method="Nelder-Mead", tol=1e-3) for start in starts]
    return -min(run.fun for run in runs) - 0.5 * np.log(2 * np.pi * s**2).sum()


def test_a_mode_among_few_precise_estimates():
    x = np.array([3.294, -1.857, 1.991, 3.071, 0.562, 1.48, 6.55, 2.135])
    s = np.array([1.102, 3.883, 0.058, 1.004, 5.437, 0.113, 1.085, 1.063])
    messages = Gaussian(x[:, None], s[:, None] ** 2)
    prior = PointNormal(mode=None).fit(messages)
    assert prior.log_marginal(messages).sum() > -15.684
    assert prior.pi0_ == pytest.approx(0.46, abs=0.02)


@pytest.mark.parametrize("family", [PointNormal, PointLaplace])
def test_modes_are_found_where_errors_differ(family):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        s = rng.lognormal(0, 1, 20)
        x = rng.normal(np.where(rng.random(20) < 0.5, 1.0, rng.normal(1, 2, 20)), s)
        messages = Gaussian(x[:, None], s[:, None] ** 2)
        prior = family(mode=None).fit(messages)
        assert prior.log_marginal(messages).sum() > likeliest(prior, x, s) - 0.05


@settings(max_examples=40, deadline=None)
@given(
    x=st.floats(-30, 30),
    s=st.floats(0.05, 20),
    q=st.floats(1e-4, 1 - 1e-4),
    which=st.sampled_from([0, 2, 4, 5]),
)
def test_invariants_of_any_posterior(x, s, q, which):
    prior = PRIORS[which].fit(MESSAGES)
    posterior = prior.posterior(Gaussian(np.array([[x], [-x]]), np.full((2, 1), s**2)))
    value = posterior.quantile(q)
    assert np.all(posterior.prob_below(float(value[0, 0]))[0] >= q - 1e-9)
    assert np.all(posterior.prob_below(float(value[0, 0] - 1e-6))[0] <= q + 1e-4)
    assert np.all(posterior.sd >= 0)
    if prior.mode_ == 0:  # symmetry, and shrinkage towards the mode
        np.testing.assert_allclose(posterior.mean[0], -posterior.mean[1], atol=1e-12)
        assert abs(posterior.mean[0, 0]) <= abs(x) + 1e-12


def test_soft_threshold():
    prior = Laplace(mean=0.0).fit(MESSAGES)
    mode = prior.posterior_mode(MESSAGES)[:, 0]
    x, s2 = MESSAGES.values[:, 0], MESSAGES.variances[:, 0]

    theta = np.linspace(-10, 10, 4001)

    def minus(theta):
        return (theta - x[:, None]) ** 2 / (2 * s2[:, None]) + np.abs(theta) / prior.scale_

    assert np.all(minus(mode[:, None])[:, 0] <= minus(theta).min(axis=1) + 1e-12)


@pytest.mark.parametrize("prior", ["normal", "npmle", "point_normal", "point_laplace"])
def test_local_false_sign_rate(prior):
    posterior = eb.posterior_from(MESSAGES.values[:, 0], ERRORS, prior=prior)
    rate = posterior.local_false_sign_rate()
    draws = posterior.sample(4000, 0)
    expected = np.minimum((draws <= 0).mean(axis=0), (draws >= 0).mean(axis=0))
    # 400 frequencies of 4000 draws, bound of five standard errors: false alarms below 1e-3
    assert np.all(np.abs(rate - expected) < 5 * np.sqrt(0.25 / 4000))


FAR = np.array([0.0, 0.3, 2.0, 6.0, 12.0, 16.0])


@pytest.mark.parametrize(
    "prior",
    [
        Normal(mean=0.0, variance=25.0),
        PointNormal(),
        Laplace(mean=0.0),
        PointLaplace(),
        ScaleMixture(),
        Discrete([-20.0, -8.0, -1.0, 0.0, 1.0, 8.0, 20.0], weights=[1, 2, 3, 4, 3, 2, 1]),
        GaussianMixture(1),
    ],
    ids=lambda prior: type(prior).__name__,
)
def test_local_false_sign_rates_are_symmetric_to_the_last_digit(prior):
    x = np.concatenate([-FAR, FAR, [-9.0, -7.0, 7.0, 9.0]])
    prior.fit(Gaussian(x[:, None], np.ones((len(x), 1))))
    messages = Gaussian(np.concatenate([FAR, -FAR])[:, None], np.ones((12, 1)))
    rate = prior.posterior(messages, integrate=False).local_false_sign_rate()[:, 0]
    np.testing.assert_allclose(rate[:6], rate[6:], rtol=1e-10)
    assert np.all((rate > 0) & (rate <= 1))
    assert rate[5] < 1e-28
    exact = prior.posterior(Gaussian(np.array([[2.0], [0.0], [-2.0]]), np.zeros((3, 1))))
    np.testing.assert_allclose(exact.local_false_sign_rate()[:, 0], [0, 1, 0], atol=1e-14)


def test_local_false_sign_rates_far_out():
    """Down to 1e-60, against the pieces of the posterior in scipy's logarithms."""
    prior = Laplace(mean=0.0).fit(MESSAGES)
    for x in (12.0, 18.0):
        far = Gaussian(np.array([[x], [-x]]), np.ones((2, 1)))
        rate = prior.posterior(far, integrate=False)
        k, found = 1 / prior.scale_, rate.local_false_sign_rate()[:, 0]
        below = norm.logsf(x + k) + k * x
        above = norm.logcdf(x - k) - k * x
        expected = np.exp(below - np.logaddexp(below, above))
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert found[0] < 1e-60
    # where the mode is no end of a piece, both pieces have a tail beyond zero
    prior = Laplace(mean=-0.5)
    prior.fit(MESSAGES)
    far = Gaussian(np.array([[12.0]]), np.ones((1, 1)))
    rate = prior.posterior(far, integrate=False).local_false_sign_rate()
    k = 1 / prior.scale_
    upper = norm.cdf(0.0, 12 - k) - norm.cdf(-0.5, 12 - k)
    lower = np.exp(norm.logcdf(-0.5, 12 + k) + 25 * k)
    total = norm.sf(-0.5, 12 - k) + lower
    assert rate.item() == pytest.approx((upper + lower) / total, rel=1e-8)


MATCHING = {
    "point_normal": lambda rng, m: np.where(rng.random(m) < 0.7, 0, rng.normal(0, 2, m)),
    "laplace": lambda rng, m: rng.laplace(1.0, 1.0, m),
    "point_laplace": lambda rng, m: np.where(rng.random(m) < 0.7, 0, rng.laplace(0, 2, m)),
    "scale_mixture": lambda rng, m: rng.normal(0, np.where(rng.random(m) < 0.5, 0.5, 3)),
}


@pytest.mark.parametrize("name", MATCHING)
def test_efficiency(name):
    """Excess Bayes risk below 1 % of the oracle's at m = 10,000 (paired, fixed seed)."""
    rng = np.random.default_rng(5)
    m = 10_000
    errors = rng.uniform(0.3, 1.5, m)
    theta = MATCHING[name](rng, m)
    x = rng.normal(theta, errors)
    fitted = eb.posterior_from(x, errors, prior=name)
    oracle = type(fitted.prior)().fit(Gaussian(x[:, None], errors[:, None] ** 2))
    weights, scales, mode = {
        "point_normal": ([0.7, 0.3], [0, 2], 0),
        "laplace": ([1], [1], 1.0),
        "point_laplace": ([0.7, 0.3], [0, 2], 0),
        "scale_mixture": ([0.5, 0.5], [0.5, 3], 0),
    }[name]
    oracle._set(mode, np.array(weights, float), np.array(scales, float), 0)
    best = oracle.posterior(Gaussian(x[:, None], errors[:, None] ** 2))
    # the excess risk is E(fitted - oracle)**2 exactly: no noise of theta enters
    assert ((fitted.mean - best.mean) ** 2).mean() < 0.01 * (best.sd**2).mean()


FOLDER = Path(__file__).parents[1] / "reference"
REFERENCE = pd.read_csv(FOLDER / "npmle.csv").set_index(["prior", "quantity"])["value"]
data = runpy.run_path(str(FOLDER / "npmle.py"))["data"]


@pytest.mark.parametrize(
    "prior",
    [PointNormal(), ScaleMixture(), Normal(method="ml")],
    ids=["point_normal", "scale_mixture", "normal"],
)
def test_as_in_r(prior, request):
    x, s = data()
    likelihood = Gaussian(x[:, None], s[:, None] ** 2)
    prior.fit(likelihood)
    theirs = REFERENCE[request.node.callspec.id]
    ours = prior.log_marginal(likelihood).sum()
    assert ours >= theirs["log_likelihood"] - 1e-6
    assert ours <= theirs["log_likelihood"] + 0.01  # R stops a little below
    if isinstance(prior, PointNormal):
        # R's own stop: 1e-7 of the parameter's standard error or so
        assert prior.pi0_ == pytest.approx(theirs["pi0"], abs=1e-5)
        assert prior.scale_ == pytest.approx(theirs["scale"], abs=1e-4)


@pytest.mark.slow
def test_npmle_beats_mixsqp():
    x, s = data()
    likelihood = Gaussian(x[:, None], s[:, None] ** 2)
    prior = Discrete("npmle").fit(likelihood)
    ours = prior.log_marginal(likelihood)
    assert ours.sum() >= REFERENCE["npmle"]["log_likelihood"]
    theta = np.linspace(x.min(), x.max(), 2001)
    mixture = np.exp(ours + 0.5 * np.log(2 * np.pi * s**2))
    gap = max(np.exp(-0.5 * ((x - t) / s) ** 2) @ (1 / mixture) for t in theta) - len(x)
    assert gap <= 1e-6 * len(x)


def test_quantiles_are_roots():
    prior = PointLaplace().fit(MESSAGES)
    posterior = prior.posterior(MESSAGES.take(slice(0, 10)))
    for q in (0.025, 0.4, 0.975):
        value = posterior.quantile(q)[:, 0]
        for i in range(10):
            one = prior.posterior(MESSAGES.take(slice(i, i + 1)))

            def distance(t, one=one, q=q):
                return one.prob_below(t)[0, 0] - q

            if value[i] != 0:
                assert value[i] == pytest.approx(brentq(distance, -60, 60, xtol=1e-13), abs=1e-10)


@pytest.mark.parametrize("family", [PointNormal, PointLaplace])
@pytest.mark.parametrize("largest", [20.0, 300.0, 1e5])
def test_an_estimate_many_errors_away_shows_how_wide_the_population_is(family, largest):
    """Its likelihood under the spike is no number that a float holds."""
    x = np.append(largest, np.random.default_rng(0).normal(0, 1.4, 199))
    rows = Gaussian(x[:, None], np.full((200, 1), 0.25))
    prior = family().fit(rows)
    least = prior.log_marginal(rows).sum() - 15
    for one, weight in zip(*prior.populations(), strict=True):
        assert weight < 1e-6 or one.log_marginal(rows).sum() > least
    posterior = prior.posterior(rows)
    lower, upper = (each[0, 0] for each in posterior.interval())
    assert posterior.sd[0, 0] == pytest.approx(0.5, rel=0.1)
    assert upper - lower == pytest.approx(1.96, rel=0.1)
    assert lower < posterior.mean[0, 0] < upper


@pytest.mark.parametrize("prior", [Laplace(), ScaleMixture()], ids=repr)
@pytest.mark.parametrize("df", [None, 5])
def test_estimates_that_are_almost_exact(prior, df):
    """Laplace priors had no plausible means, and mixtures kept the weights that they start with."""
    theta = np.random.default_rng(3).normal(1.0, 1.5, 30)
    for size in (1e-3, 1e-6):
        found = eb.posterior_from(theta, np.full(30, size), prior=clone(prior), df=df)
        wide = np.sqrt(5 / 3) if df else 1.0
        # but for one that may be at the mode of a mixture
        np.testing.assert_allclose(np.sort(found.sd.ravel())[:-1], wide * size, rtol=0.02)
        assert 0.5 < found.prior.variance_[0] / np.mean((theta - found.prior.mode_) ** 2) < 2


def test_reflected_estimates_with_t_errors_have_reflected_intervals():
    """A few of the plausible means and scales of a Laplace prior stand for all, in either order."""
    rng = np.random.default_rng(5)
    s = rng.uniform(0.5, 2.0, 40)
    x = np.where(rng.random(40) < 0.2, rng.normal(0, 5, 40), 0) + s * rng.standard_normal(40)
    one = eb.posterior_from(x, s, prior="laplace", df=6)
    other = eb.posterior_from(-x, s, prior="laplace", df=6)
    np.testing.assert_allclose(one.sd, other.sd, rtol=0.01)
    np.testing.assert_allclose(one.quantile(0.1), -other.quantile(0.9), atol=0.02)


@pytest.mark.parametrize("prior", [Laplace(), PointLaplace()], ids=repr)
@pytest.mark.parametrize("error", [3e4, 1e9, np.inf])
def test_draws_of_an_estimate_without_information(prior, error):
    """They had a hundred times the standard deviation: so far out a log-probability has no digits.

    Of 40,000 draws a probability is off by 6 errors once in 10**8 runs.
    """
    s = np.where(np.arange(40) == 7, error, ERRORS[:40])
    found = eb.posterior_from(MESSAGES.values[:40, 0], s, clone(prior), integrate=False)
    draws = found.sample(40_000, 0)[:, 7, 0]
    for at in (-2.0, -0.5, 0.1, 0.5, 3.0):
        below = found.prob_below(at)[7, 0]
        assert np.mean(draws <= at) == pytest.approx(below, abs=6 * np.sqrt(below / 40_000))
