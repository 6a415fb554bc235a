"""Dirichlet populations, against scipy's optimum, and against betas where there are two shares."""

import warnings

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.optimize import minimize

from ebfed.likelihoods import Binomial, Multinomial
from ebfed.priors import Beta, Dirichlet, IdentificationWarning
from ebfed.priors.beta_binomial import Tables


def drawn(alpha, n_groups, seed=0, most=30):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(alpha, n_groups)
    return Multinomial(rng.multinomial(rng.integers(1, most, n_groups), shares))


def test_maximum_likelihood():
    votes = drawn([2.0, 1.0, 3.0, 0.5], 300)
    prior = Dirichlet().fit(votes)

    def minus(log_alpha):
        alpha = np.exp(log_alpha)
        return -stats.dirichlet_multinomial.logpmf(votes.counts, alpha, votes.trials).sum()

    best = minimize(minus, np.zeros(4), method="BFGS", options={"gtol": 1e-6})
    np.testing.assert_allclose(prior.alpha_, np.exp(best.x), rtol=1e-5)  # of its own tolerance
    assert prior.log_marginal(votes).sum() == pytest.approx(-best.fun, rel=1e-10)
    assert prior.n_parameters_ == 4


@pytest.mark.parametrize("n_groups", [12, 400])
def test_two_categories_are_a_beta(n_groups):
    votes = drawn([2.0, 3.0], n_groups)
    ones = Binomial(votes.counts[:, :1], votes.trials)
    prior, beta = Dirichlet().fit(votes), Beta().fit(ones)
    for name in ("mean_", "variance_", "alpha_", "mean_variance_", "variance_variance_"):
        assert getattr(prior, name)[0] == pytest.approx(getattr(beta, name)[0], rel=1e-8)
    for name in ("second_moment_", "fourth_moment_"):
        assert getattr(prior, name)[0] == pytest.approx(getattr(beta, name)[0], rel=1e-8)
    one, other = prior.posterior(votes), beta.posterior(ones)
    np.testing.assert_allclose(one.mean[:, :1], other.mean, rtol=1e-8)
    # means are integrated in closed form around a Dirichlet here, on a lattice there
    np.testing.assert_allclose(one.sd[:, :1], other.sd, rtol=0.02)
    np.testing.assert_allclose(prior.log_marginal(votes), beta.log_marginal(ones), rtol=1e-10)


def test_means_given_the_concentration_against_quadrature():
    """Evidence of each overdispersion and moments of the mean, for three categories.

    The likelihood over all shares is taken for that of independent answers: within 10 %.
    """
    votes = drawn([2.0, 1.0, 0.6], 25, seed=3, most=9)
    dispersions, means, variances, weights = Tables.of_categories(votes).plausible(0.1)
    assert weights.sum() == pytest.approx(1.0)
    at = int(np.argmax(weights))
    peak = votes.ordered_log_marginal(
        Tables.of_categories(votes).profile(dispersions[at])[0], dispersions[at]
    )

    def moment(power):
        def density(y, x):
            shares = np.array([x, y, 1 - x - y])
            log = votes.ordered_log_marginal(shares, dispersions[at]) - peak
            return np.exp(log.sum()) * x**power

        return integrate.dblquad(density, 0.2, 0.8, 0.05, lambda x: 1 - x, epsrel=1e-3)[0]

    total, first, second = (moment(power) for power in range(3))
    mean = first / total
    assert means[at, 0] == pytest.approx(mean, rel=0.02)
    assert variances[at, 0] == pytest.approx(second / total - mean**2, rel=0.1)


def test_no_spread():
    votes = Multinomial(np.tile([[15, 9, 6], [14, 10, 6], [16, 9, 5], [13, 10, 7]], (10, 1)))
    prior = Dirichlet().fit(votes)
    assert np.isinf(prior.alpha_).all()
    assert any("infinite" in note for note in prior.notes_)
    pooled = votes.counts.sum(axis=0) / votes.counts.sum()
    np.testing.assert_allclose(prior.posterior(votes).mean, np.tile(pooled, (40, 1)), rtol=1e-10)
    lower, upper = prior.posterior(votes).interval()
    assert np.all(upper - lower > 0.03), "what is not known of the population is in intervals"


def test_a_category_without_answers():
    """Its share may be as large as the answers leave plausible: 3 of so many, or somewhat more."""
    votes = drawn([4.0, 2.0, 2.0], 200)
    with_empty = Multinomial(np.column_stack([votes.counts, np.zeros(200, int)]))
    prior = Dirichlet().fit(with_empty)
    assert prior.mean_[3] == 0
    np.testing.assert_allclose(prior.mean_[:3], Dirichlet().fit(votes).mean_, rtol=1e-10)
    _, upper = prior.mean_interval()
    many = Tables.of_categories(with_empty).information(1 / prior.concentration_)
    assert 2.5 / many < upper[3] < 5 / many
    assert prior.mean_error()[3] > 0
    assert np.all(prior.posterior(with_empty).interval()[1][:, 3] > 0)


def test_what_is_not_identified():
    for counts, text in (
        ([[1, 0], [0, 1], [1, 0]], "No group has two answers"),
        ([[3, 2], [0, 0]], "Only one group"),
        ([[3, 0], [2, 0]], "one category"),
        ([[0, 0], [0, 0]], "No client has data"),
    ):
        with pytest.warns(IdentificationWarning, match=text):
            prior = Dirichlet().fit(Multinomial(np.array(counts)))
        posterior = prior.posterior(Multinomial(np.array(counts)))
        np.testing.assert_allclose(posterior.mean.sum(axis=1), 1.0)
        assert np.isfinite(posterior.sd).all()


@pytest.mark.parametrize("n_groups", [8, 300])
def test_draws_have_the_moments_of_the_posterior(n_groups):
    """Standard deviations of 4,000 draws: within 8 %, which is five standard errors and more."""
    votes = drawn([2.0, 1.0, 3.0], n_groups, seed=2)
    posterior = Dirichlet().fit(votes).posterior(votes.take(slice(8)))
    draws = posterior.sample(4000, 0)
    np.testing.assert_allclose(draws.sum(axis=2), 1.0, rtol=1e-12)
    np.testing.assert_allclose(draws.std(axis=0), posterior.sd, rtol=0.08)


def test_tiny_parameters_are_drawn():
    """Shares of 1e-3 and less are mostly below the smallest float; draws still add up to 1."""
    draws = Dirichlet([1e-4, 2e-4, 1e-4]).fit(Multinomial(np.array([[1, 2, 3]]))).sample(2000, 0)
    assert np.isfinite(draws).all()
    np.testing.assert_allclose(draws.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(draws.mean(axis=0), [0.25, 0.5, 0.25], atol=0.06)


def test_density_against_scipy():
    prior = Dirichlet([1.5, 2.0, 0.5]).fit(Multinomial(np.array([[1, 2, 3]])))
    theta = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    expected = [stats.dirichlet.logpdf(each, [1.5, 2.0, 0.5]) for each in theta]
    np.testing.assert_allclose(prior.logpdf(theta), expected, rtol=1e-12)


def test_wrong_parameters():
    votes = Multinomial(np.array([[1, 2, 3], [4, 5, 6]]))
    for alpha, text in (([1.0, 2.0], "one for each of 3"), (-1.0, "positive"), ("a", "numbers")):
        with pytest.raises((TypeError, ValueError), match=text):
            Dirichlet(alpha).fit(votes)
    with pytest.raises(TypeError, match="3 categories needs"), warnings.catch_warnings():
        Dirichlet(1.0).fit(votes).posterior(Multinomial(np.array([[1, 2]])))


def test_plausible_shares_of_a_category_wait_until_they_are_asked_for(monkeypatch):
    votes, calls = drawn([2.0, 1.0, 3.0], 40), []
    hold = Dirichlet._hold_plausible
    monkeypatch.setattr(
        Dirichlet, "_hold_plausible", lambda *given: (calls.append(1), hold(*given))[1]
    )
    prior = Dirichlet().fit(votes)
    share = prior.column(1)
    assert not calls
    np.testing.assert_array_equal(share.plausible_["mean"], prior.plausible_["mean"][:, [1]])
    np.testing.assert_array_equal(share.fourth_moment_, prior.fourth_moment_[[1]])
