"""Gaussian mixtures and numbers of components: EM, BIC, posteriors."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import norm

from ebfed import channels, families
from ebfed.likelihoods import Gaussian, Joined
from ebfed.priors import Discrete, GaussianMixture, Normal
from ebfed.tables.clients import Summary


def clusters(seed, d=1, m=500, spread=0.3, separation=4.0):
    """Three clusters whose centres lie so many standard deviations of a message apart."""
    rng = np.random.default_rng(seed)
    centres = np.zeros((3, d))
    if d == 1:
        centres[:, 0] = separation * np.arange(3)
    else:  # a triangle
        centres[:, :2] = separation * np.array([[0, 0], [1, 0], [0.5, np.sqrt(0.75)]])
    theta = centres[rng.integers(3, size=m)] + spread * rng.standard_normal((m, d))
    return Gaussian(theta + rng.standard_normal((m, d)), np.ones((m, 1))), theta


def unequal(seed=0, m=400):
    rng = np.random.default_rng(seed)
    theta = rng.normal(rng.choice([-2.0, 2.0], m), 0.6)
    variances = rng.choice([0.2, 0.5, 1.0, 3.0], m)[:, None]
    return Gaussian(rng.normal(theta[:, None], np.sqrt(variances)), variances)


def test_em_reaches_the_maximum_of_the_marginal_likelihood():
    messages = unequal()
    prior = GaussianMixture(2, random_state=0).fit(messages)
    x, v = messages.values[:, 0], messages.variances[:, 0]

    def loss(point):
        share, means, variances = 1 / (1 + np.exp(-point[0])), point[1:3], np.exp(point[3:])
        logs = norm.logpdf(x[:, None], means, np.sqrt(variances + v[:, None]))
        return -logsumexp(logs, axis=1, b=[share, 1 - share]).sum()

    weights, variances = prior.weights_, prior.variances_[:, 0]
    start = [np.log(weights[0] / weights[1]), *prior.means_[:, 0], *np.log(variances)]
    assert prior.path_[-1] == pytest.approx(-loss(np.array(start)), rel=1e-9)
    assert prior.path_[-1] == pytest.approx(prior.log_marginal(messages).sum(), rel=1e-9)
    best = minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10})
    assert prior.path_[-1] >= -best.fun - 1e-4


@pytest.mark.parametrize("covariance", ["spherical", "diag"])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_em_never_loses_likelihood(covariance, k):
    rng = np.random.default_rng(k)
    messages = Gaussian(rng.normal(size=(120, 3)) * [1, 2, 3], rng.uniform(0.1, 4, (120, 3)))
    path = GaussianMixture(k, covariance, random_state=0).fit(messages).path_
    assert (np.diff(path) >= -1e-9 * (1 + np.abs(path[1:]))).all()


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("covariance", ["spherical", "diag"])
def test_components_of_no_width_are_a_normal_answer(d, covariance):
    messages, _ = clusters(0, d, spread=0.0, separation=8.0)
    prior = GaussianMixture(3, covariance, random_state=0).fit(messages)
    points = Discrete(3, random_state=0).fit(messages)
    assert (prior.variances_ < 0.2).all()
    assert (prior.variances_ == 0).any()
    np.testing.assert_allclose(prior.means_, points.atoms_, atol=0.05)
    gain = prior.path_[-1] - points.path_[-1]
    assert -1e-6 < gain < 10
    assert np.isfinite(prior.posterior(messages).quantile(0.3)).all()


def test_no_component_collapses_on_a_message_without_noise():
    values = np.random.default_rng(1).normal(size=(200, 2))
    prior = GaussianMixture(5, random_state=0).fit(Gaussian(values, np.zeros((200, 1))))
    assert (prior.variances_ > 0.9e-4 * values.var()).all()
    posterior = prior.posterior(Gaussian(values, np.zeros((200, 1))))
    np.testing.assert_array_equal(posterior.mean, values)
    np.testing.assert_array_equal(posterior.sd, 0)


def test_silent_clients_get_the_population_and_do_not_matter():
    messages = unequal()
    more = Gaussian(
        np.append(messages.values, [[0.0], [77.0]], axis=0),
        np.append(messages.variances, [[np.inf], [np.inf]], axis=0),
    )
    prior = GaussianMixture(2, random_state=0).fit(messages)
    again = GaussianMixture(2, random_state=0).fit(more)
    np.testing.assert_array_equal(again.means_, prior.means_)
    posterior = again.posterior(more, integrate=False)
    np.testing.assert_allclose(posterior.mean[-2:, 0], prior.mean_[0])
    np.testing.assert_allclose(posterior.sd[-2:, 0], np.sqrt(prior.variance_[0]))
    np.testing.assert_allclose(again.responsibilities(more)[-1], prior.weights_)
    np.testing.assert_allclose(again.log_marginal(more)[-2:], 0, atol=1e-12)


def test_joined_messages_are_one_table():
    messages = unequal()
    halves = Joined((messages.take(slice(0, 150)), messages.take(slice(150, None))))
    prior = GaussianMixture(2, random_state=0).fit(messages)
    joined = GaussianMixture(2, random_state=0).fit(halves)
    np.testing.assert_allclose(joined.means_, prior.means_)


def test_open_noise_is_the_pooled_one():
    rng = np.random.default_rng(3)
    means, n = rng.normal(rng.choice([-4.0, 4.0], 300), 1)[:, None], 4
    messages = Gaussian(means, np.full((300, 1), 1 / n), np.array([3600.0]), 900)
    prior = GaussianMixture(2, random_state=0).fit(messages)
    assert prior.noise_variance_ == [4.0]
    settled = GaussianMixture(2, random_state=0).fit(Gaussian(means, np.ones((300, 1))))
    np.testing.assert_allclose(prior.means_, settled.means_)


def test_reports_are_refused_with_what_works():
    channel = channels.Quantizer(3, (-4, 4))
    n = np.ones(20, int)
    summary = Summary(np.arange(20), n, np.linspace(-3, 3, 20)[:, None], np.zeros((20, 1)))
    reports = channel.likelihood(channel.encode(summary, 0), families.Gaussian(1.0))
    with pytest.raises(TypeError, match="Choose a prior"):
        GaussianMixture(2).fit(reports)
    # but a fitted one serves them, by quadrature
    prior = GaussianMixture(2, random_state=0).fit(unequal())
    assert np.isfinite(prior.posterior(reports).mean).all()
    assert np.isfinite(prior.log_marginal(reports)).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": 0}, "n_components must be a whole number from 1, 'bic' or 'heldout'"),
        ({"n_components": "aic"}, "n_components must be"),
        ({"n_components": 2.0}, "n_components must be"),
        ({"max_components": 0}, "max_components must be"),
        ({"covariance": "full"}, "covariance must be"),
    ],
)
def test_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        GaussianMixture(**arguments).fit(unequal())


@pytest.mark.parametrize("atoms", ["aic", 0, 2.5])
def test_numbers_of_atoms(atoms):
    with pytest.raises(ValueError, match="atoms must be 'npmle', 'bic', 'heldout', a number"):
        Discrete(atoms).fit(unequal())
    with pytest.raises(ValueError, match="max_atoms must be"):
        Discrete("bic", max_atoms=0).fit(unequal())


# --- posteriors ---------------------------------------------------------------------------------


def test_posterior_is_that_of_quadrature_in_each_coordinate():
    rng = np.random.default_rng(5)
    messages = Gaussian(rng.normal(size=(60, 2)) * 3, rng.uniform(0.2, 2, (60, 2)))
    prior = GaussianMixture(2, "diag", random_state=0).fit(messages)
    posterior = prior.posterior(messages, integrate=False)
    grid = np.linspace(-15, 15, 4001)
    r = prior.responsibilities(messages)
    np.testing.assert_allclose(r.sum(axis=1), 1)
    for i in (0, 17):
        for j in (0, 1):
            density = np.zeros_like(grid)
            for share, mean, variance in zip(
                r[i], prior.means_[:, j], prior.variances_[:, j], strict=True
            ):
                one = norm.pdf(grid, mean, np.sqrt(max(variance, 1e-4))) * norm.pdf(
                    grid, messages.values[i, j], np.sqrt(messages.variances[i, j])
                )
                density += share * one / np.trapezoid(one, grid)
            mean = np.trapezoid(density * grid, grid)
            assert posterior.mean[i, j] == pytest.approx(mean, abs=2e-3)
            for q in (0.025, 0.5, 0.9):
                at = posterior.quantile(q)[i, j]
                assert np.trapezoid(density[grid <= at], grid[grid <= at]) == pytest.approx(
                    q, abs=0.02
                )
                assert posterior.prob_below(at)[i, j] == pytest.approx(q, abs=1e-9)


def test_draws_keep_coordinates_together():
    """Five standard errors of 20,000 draws: a false alarm in a million runs."""
    messages = Gaussian(np.zeros((1, 2)), np.full((1, 2), 100.0))
    rng = np.random.default_rng(0)
    theta = rng.choice([-3.0, 3.0], 400)[:, None] * [1.0, 1.0]
    prior = GaussianMixture(2, random_state=0).fit(
        Gaussian(theta + 0.1 * rng.normal(size=(400, 2)), np.full((400, 1), 0.01))
    )
    draws = prior.posterior(messages).sample(20_000, 1)[:, 0]
    assert np.corrcoef(draws.T)[0, 1] > 0.95
    np.testing.assert_allclose(draws.mean(axis=0), prior.posterior(messages).mean[0], atol=0.12)


def test_intervals_cover():
    """Of 20 x 400 intervals; bounds of 93 and 97 % are eight standard errors wide."""
    hits = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        component = rng.integers(2, size=400)
        theta = rng.normal(np.array([-2.0, 2.0])[component], np.array([0.5, 1.0])[component])
        variances = rng.choice([0.2, 0.5, 1.0], 400)[:, None]
        messages = Gaussian(rng.normal(theta[:, None], np.sqrt(variances)), variances)
        prior = GaussianMixture(2, n_init=3, random_state=seed).fit(messages)
        low, high = prior.posterior(messages).interval(0.95)
        hits.append(((low[:, 0] <= theta) & (theta <= high[:, 0])).mean())
    assert 0.93 < np.mean(hits) < 0.97


# --- what is not known of the mixture -----------------------------------------------------------

SCHOOLS = Gaussian(
    np.array([[28.0], [8], [-3], [7], [-1], [1], [18], [12]]),
    np.array([[15.0], [10], [16], [11], [9], [11], [10], [18]]) ** 2,
)


def test_one_component_is_as_well_known_as_a_normal_population():
    """Independent draws of (mean, sd): the sds of 2000 are right to 2 %, means to 0.12."""
    mixture, normal = GaussianMixture(1, n_plausible=2000).fit(SCHOOLS), Normal().fit(SCHOOLS)
    ours, theirs = mixture.posterior(SCHOOLS), normal.posterior(SCHOOLS)
    np.testing.assert_allclose(ours.expectation, theirs.expectation, atol=0.5)
    np.testing.assert_allclose(ours.sd, theirs.sd, rtol=0.06)
    widths = [np.subtract(*one.interval()[::-1]) for one in (ours, theirs)]
    np.testing.assert_allclose(*widths, rtol=0.08)


@pytest.mark.parametrize("k", [1, 2, "bic"])
def test_eight_schools_have_intervals_of_the_order_of_a_normal_population(k):
    prior = GaussianMixture(k, random_state=0).fit(SCHOOLS)
    widths = np.subtract(*prior.posterior(SCHOOLS).interval()[::-1])
    normal = np.subtract(*Normal().fit(SCHOOLS).posterior(SCHOOLS).interval()[::-1])
    assert ((widths > 0.75 * normal) & (widths < 1.5 * normal)).all()
    assert (prior.mean_error() > 3).all()


@pytest.mark.parametrize("covariance", ["spherical", "diag"])
def test_plausible_mixtures_follow_units_and_repeat(covariance):
    messages, _ = clusters(3, d=2, m=60)
    moved = Gaussian(1e4 * messages.values + 7, 1e8 * messages.variances)
    sds, errors = [], []
    for one in (messages, messages, moved):
        prior = GaussianMixture(2, covariance, random_state=0).fit(one)
        sds.append(prior.posterior(one).sd)
        errors.append(prior.mean_error())
    np.testing.assert_array_equal(sds[0], sds[1])
    # the same draws; a rounding may move one to the next node of the lattice
    np.testing.assert_allclose(sds[2], 1e4 * sds[0], rtol=0.02)
    np.testing.assert_allclose(errors[2], 1e4 * errors[0], rtol=0.02)


def test_plausible_mixtures_are_of_all_coordinates_together():
    """Two far clusters on a diagonal: coordinates of a draw that disagreed would lie between."""
    rng = np.random.default_rng(2)
    theta = rng.choice([-5.0, 5.0], 30)[:, None] * [1.0, 1.0]
    messages = Gaussian(theta + rng.normal(size=theta.shape), np.ones(theta.shape))
    posterior = GaussianMixture(2, random_state=0).fit(messages).posterior(messages)
    draws = posterior.sample(400, 3)
    assert draws.shape == (400, 30, 2)
    silent = Gaussian(np.zeros((1, 2)), np.full((1, 2), np.inf))
    prior = GaussianMixture(2, random_state=0).fit(messages)
    draws = prior.posterior(silent).sample(4000, 1)[:, 0]
    assert (draws[:, 0] * draws[:, 1] > 0).mean() > 0.97


def test_the_fitted_mixture_is_known_where_no_other_is_drawn():
    messages = unequal()
    known = GaussianMixture(2, n_plausible=0, random_state=0).fit(messages)
    drawn = GaussianMixture(2, random_state=0).fit(messages)
    assert known.plausible_ is None
    np.testing.assert_array_equal(known.means_, drawn.means_)
    np.testing.assert_array_equal(
        known.posterior(messages).sd, drawn.posterior(messages, integrate=False).sd
    )


@pytest.mark.parametrize("value", [-1, 2.5, None])
def test_numbers_of_plausible_mixtures_are_checked(value):
    with pytest.raises(ValueError, match="n_plausible must be a number >= 0; got"):
        GaussianMixture(2, n_plausible=value).fit(unequal())


@pytest.mark.slow
@pytest.mark.parametrize("m", [8, 50, 200])
@pytest.mark.parametrize("tau", [0.3, 2.0])
def test_intervals_cover_where_little_is_known(m, tau):
    """Coverage of 100 fits; its standard error is at most 0.8 %, bounds are three away."""
    hits = []
    for seed in range(100):
        rng = np.random.default_rng([seed, m])
        theta = tau * (0.8 * rng.choice([-1, 1], m) + 0.6 * rng.normal(size=m))
        messages = Gaussian((theta + rng.normal(size=m))[:, None], np.ones((m, 1)))
        prior = GaussianMixture(max_components=3, n_init=2, random_state=0).fit(messages)
        low, high = prior.posterior(messages).interval()
        hits.append(((low[:, 0] <= theta) & (theta <= high[:, 0])).mean())
    assert np.mean(hits) > 0.92


# --- number of components -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 5, 10])
@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_bic_finds_three_clusters(d, spread):
    """In nine of ten seeds at least; these ten all succeed."""
    prior = Discrete("bic", max_atoms=6, random_state=0)
    if spread:
        prior = GaussianMixture("bic", max_components=6, random_state=0)
    right = []
    for seed in range(10):
        fitted = prior.fit(clusters(seed, d, spread=spread)[0])
        right.append(len(fitted.weights_) == 3)
        assert int(np.argmin(fitted.criterion_)) + 1 == len(fitted.weights_)
    assert sum(right) >= 9


def test_bic_is_that_of_each_number():
    messages, _ = clusters(1)
    chosen = GaussianMixture("bic", max_components=4, random_state=0).fit(messages)
    assert chosen.criterion_.shape == (4,)
    for k in (1, 3):
        fixed = GaussianMixture(k, random_state=0).fit(messages)
        assert chosen.criterion_[k - 1] == pytest.approx(fixed.criterion_[0], abs=0.1)
        value = fixed.n_parameters_ * np.log(500) - 2 * fixed.log_marginal(messages).sum()
        assert fixed.criterion_[0] == pytest.approx(value, abs=1e-2)


def test_responsibilities_of_atoms():
    messages, _ = clusters(2, 2, spread=0.0)
    prior = Discrete(3, random_state=0).fit(messages)
    r = prior.responsibilities(messages)
    assert r.shape == (500, 3)
    np.testing.assert_allclose(r.sum(axis=1), 1)
    np.testing.assert_allclose(r @ prior.atoms_, prior.posterior(messages).mean)
