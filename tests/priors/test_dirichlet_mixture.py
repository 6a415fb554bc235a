"""Mixtures of Dirichlets: their fit to counts and to reports, and exact posteriors."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.channels import RandomizedCategory
from ebfed.families import Categorical
from ebfed.likelihoods import Multinomial
from ebfed.priors import Dirichlet, DirichletMixture
from ebfed.priors.dirichlet import Reports

ALPHAS = np.array([[6.0, 1.0, 1.0, 2.0], [1.0, 6.0, 1.0, 2.0]])
WEIGHTS = np.array([0.7, 0.3])
TRUE = DirichletMixture.known(WEIGHTS, ALPHAS)


def draw(m, n, seed=0):
    """True shares, and counts of n answers each."""
    theta = TRUE.sample(m, seed)
    return theta, np.random.default_rng(seed).multinomial(n, theta)


def risk(prior, theta, counts):
    return ((prior.posterior(Multinomial(counts)).mean - theta) ** 2).sum(axis=1).mean()


def test_posterior_is_that_of_weighted_draws():
    """200,000 draws of the population, weighted by the likelihood: their own error is 1 in 200."""
    counts = Multinomial(np.array([[2, 1, 0, 0], [0, 5, 1, 3], [0, 0, 0, 0]]))
    theta = TRUE.sample(200_000, 1)
    chances = np.exp(counts.logpdf(theta))
    np.testing.assert_allclose(
        np.exp(TRUE.log_marginal(counts)), chances.mean(axis=1), rtol=0.02, atol=0
    )
    posterior = TRUE.posterior(counts)
    shares = chances / chances.sum(axis=1, keepdims=True)
    mean = shares @ theta
    np.testing.assert_allclose(posterior.mean, mean, atol=0.01)
    np.testing.assert_allclose(posterior.sd, np.sqrt(shares @ theta**2 - mean**2), atol=0.01)
    below = np.stack([(shares * (theta[:, j] < 0.3)).sum(axis=1) for j in range(4)], axis=1)
    np.testing.assert_allclose(posterior.prob_below(0.3), below, atol=0.015)
    draws = posterior.sample(4000, 0)
    np.testing.assert_allclose(draws.sum(axis=2), 1.0, rtol=1e-11)
    # shares of one draw are of one kind: they are as correlated as the mixture has them
    np.testing.assert_allclose(np.cov(draws[:, 2].T), np.cov(theta.T), atol=5 * 0.1 / np.sqrt(4000))


def test_counts_of_two_kinds():
    theta, counts = draw(1500, 12)
    fit = DirichletMixture(max_components=3, random_state=0).fit(Multinomial(counts))
    assert fit.n_components_ == 2
    assert len(fit.criterion_) == 3
    order = np.argsort(fit.centres_[:, 1])
    np.testing.assert_allclose(fit.weights_[order], WEIGHTS, atol=0.06)
    np.testing.assert_allclose(fit.centres_[order], ALPHAS / 10, atol=0.04)
    np.testing.assert_allclose(fit.concentrations_[order], 10, rtol=0.35)
    assert (
        fit.log_marginal(Multinomial(counts)).sum() > TRUE.log_marginal(Multinomial(counts)).sum()
    )
    assert risk(fit, theta, counts) < 1.01 * risk(TRUE, theta, counts)
    single = Dirichlet().fit(Multinomial(counts))
    assert risk(fit, theta, counts) < 0.95 * risk(single, theta, counts)


def test_one_component_is_the_dirichlet():
    _, counts = draw(300, 6)
    summary = Categorical(4).summarise(counts.astype(float), None)
    channel = RandomizedCategory(2.0, answers=4, compare=0.0)
    votes = Multinomial(counts)
    for messages in (votes, channel.likelihood(channel.encode(summary, 0), Categorical(4))):
        one, other = DirichletMixture(1).fit(messages), Dirichlet().fit(messages)
        np.testing.assert_allclose(one.alphas_[0], other.alpha_, rtol=1e-9)
        first, second = one.posterior(votes), other.posterior(votes)
        np.testing.assert_allclose(first.mean, second.mean, rtol=1e-9)
        np.testing.assert_allclose(first.sd, second.sd, rtol=1e-6)
        np.testing.assert_allclose(first.quantile(0.9), second.quantile(0.9), rtol=1e-6)


def test_the_slope_of_a_mixture():
    """Where the climb ends, no step to the side is likelier, prior included."""
    _, counts = draw(200, 6)
    reports = Reports.of(Multinomial(counts))
    start = DirichletMixture.known(np.full(2, 0.5), ALPHAS[::-1] + 1)._mixture
    best, height = reports.climb(start, prior=1.0, tol=1e-13)

    def mode(mixture):
        logs = [np.log(x).sum() for x in (*mixture, 1 - mixture.correlations)]
        return reports.counts @ np.logaddexp.reduce(reports.scores(mixture)[0], axis=1) + sum(logs)

    rng = np.random.default_rng(0)
    for _ in range(20):
        moved = [x * np.exp(0.01 * rng.normal(size=x.shape)) for x in best]
        moved = best._replace(
            weights=moved[0] / moved[0].sum(),
            means=moved[1] / moved[1].sum(axis=1, keepdims=True),
            correlations=moved[2],
        )
        assert mode(moved) < mode(best)
    assert height == pytest.approx(
        mode(best) - sum(np.log(x).sum() for x in (*best, 1 - best.correlations))
    )


@pytest.mark.parametrize("epsilon", [12.0, 1e9])
def test_reports_of_two_kinds(epsilon):
    """The excess over the least risk is less than half of what one Dirichlet has."""
    theta, counts = draw(6000, 8, seed=3)
    summary = Categorical(4).summarise(counts.astype(float), None)
    channel = RandomizedCategory(epsilon, answers=6, compare=0.0)
    said = channel.likelihood(channel.encode(summary, 0), Categorical(4))
    fit = DirichletMixture(2, random_state=0).fit(said)
    single, least = risk(Dirichlet().fit(said), theta, counts), risk(TRUE, theta, counts)
    assert risk(fit, theta, counts) - least < 0.5 * (single - least)


def test_estimator_with_bits_and_answers_beats_local_and_pooled():
    theta, counts = draw(3000, 8, seed=1)
    channel = {
        "answers": RandomizedCategory(12.0, answers=6, compare=0.0),
        "bit": RandomizedCategory(2.0, compare=0.999),
    }
    consent = ["bit" if i % 3 == 0 else "answers" for i in range(3000)]
    prior = DirichletMixture(2, random_state=0)
    fit = eb.CategoricalEB(prior=prior, channel=channel, random_state=0)
    fit.fit(counts, consent=consent)

    def error(shares):
        return ((shares - theta) ** 2).sum(axis=1).mean()

    assert error(fit.predict()) < 0.9 * error(counts / 8)
    assert error(fit.predict()) < 0.5 * error(np.tile(fit.prior_.mean_, (3000, 1)))
    assert fit.privacy_.set_index("who")["epsilon"].to_dict() == {"answers": 12.0, "bit": 2.0}


def test_share_of_one_category():
    """A mixture of betas: density, draws and marginal probabilities of its counts."""
    column = TRUE.column(1)
    places = np.linspace(0.0005, 0.9995, 1000)[:, None]
    density = np.exp(column.logpdf(places))
    assert density.mean() == pytest.approx(1.0, rel=1e-3)
    assert density @ places[:, 0] / 1000 == pytest.approx(column.mean_[0], rel=1e-3)
    draws = column.sample(50_000, 0)
    assert draws.var() == pytest.approx(column.variance_[0], rel=0.03)
    trials = Multinomial(np.array([[1, 2, 0, 0], [0, 0, 3, 0]])).column(1)
    chance = np.exp(trials.logpdf(places)) @ density / 1000
    np.testing.assert_allclose(np.exp(column.log_marginal(trials)), chance, rtol=1e-3)


def test_what_is_not_identified():
    single = Multinomial(np.eye(4, dtype=int)[[0, 0, 1, 2, 3, 3]])
    with pytest.warns(eb.priors.IdentificationWarning, match="No group has two answers"):
        fit = DirichletMixture(2).fit(single)
    assert fit.n_components_ == 1
    assert np.all(fit.variance_ < 1e-12)
    with pytest.warns(eb.priors.IdentificationWarning, match="No client has data"):
        blank = DirichletMixture().fit(Multinomial(np.zeros((3, 4), int)))
    np.testing.assert_allclose(blank.mean_, 0.25)
    for wrong in (0, 2.5, "aic"):
        with pytest.raises(ValueError, match="n_components must be a whole number from 1"):
            DirichletMixture(wrong).fit(Multinomial(np.ones((3, 4), int)))


def test_files(tmp_path):
    _, counts = draw(200, 8)
    fit = eb.CategoricalEB(prior=DirichletMixture(2, random_state=0)).fit(counts)
    fit.save(tmp_path / "fit.json")
    read = eb.load_fit(tmp_path / "fit.json")
    np.testing.assert_array_equal(read.predict(), fit.predict())
    shares = fit.prior_.responsibilities(Multinomial(counts))
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
