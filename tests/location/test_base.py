"""What a location estimator does with summaries, blocks of rows and extreme figures."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.likelihoods import Binomial
from ebfed.priors import Beta, Discrete, Normal


def test_clients_keep_their_own_estimates_whatever_their_order():
    blocks = [
        eb.Summary.from_rows(10.0 * k + np.arange(3), [name] * 3) for k, name in enumerate("cab")
    ]
    joined = eb.Summary.join(blocks)
    est = eb.GaussianEB().fit(joined)
    assert est.groups_.tolist() == ["a", "b", "c"]
    a, b, c = est.predict()
    assert c < a < b
    assert est.predict(joined).tolist() == [c, a, b]
    rows = np.concatenate([10.0 * k + np.arange(3) for k in range(3)])
    same = eb.GaussianEB().fit(rows, groups=np.repeat(list("cab"), 3))
    np.testing.assert_allclose(same.predict(), [a, b, c], rtol=1e-12)
    with pytest.raises(ValueError, match="ids must be all different"):
        eb.GaussianEB().fit(eb.Summary.join(blocks[:1] * 2))


def test_rows_without_groups_are_new_groups():
    est = eb.GaussianEB().fit([1.0, 2, 3, 4], groups=[2, 2, 3, 3]).partial_fit([100.0, 50.0])
    assert est.groups_.tolist() == [2, 3, 4, 5]
    assert est.summaries_.n.tolist() == [2, 2, 1, 1]
    with pytest.raises(ValueError, match="groups must label the rows"):
        eb.GaussianEB().fit([1.0, 2, 3, 4], groups=list("aabb")).partial_fit([1.0])


def test_parameters_seen_without_noise_have_the_density_of_their_population():
    x = np.random.default_rng(0).beta(2, 3, 50)
    seen = eb.GaussianEB(variances=0.0, prior=Beta(2, 3)).fit(x, groups=np.arange(50))
    expected = Beta(2, 3).fit(Binomial(np.array([[1]]), np.array([2]))).logpdf(x[:, None]).sum()
    assert seen.log_likelihood_ == pytest.approx(expected)
    atoms = eb.GaussianEB(variances=0.0, prior="npmle").fit(x, groups=np.arange(50))
    with pytest.raises(ValueError, match="no density"):
        atoms.score(x, groups=np.arange(50))
    assert np.isnan(atoms.glance()["AIC"]).all()


def test_atoms_that_make_messages_impossible():
    counts = eb.Summary.from_counts([1, 2], [2, 2])
    for weights in (None, [0.5, 0.5]):
        with pytest.raises(ValueError, match="no atom makes the messages of 1 clients possible"):
            eb.BernoulliEB(prior=Discrete([0.0, 1.0], weights)).fit(counts)
    est = eb.BernoulliEB(prior=Discrete([0.0, 1.0], [0.2, 0.8]))
    est.fit(eb.Summary.from_counts([0, 2], [2, 2]))
    impossible = est.posterior(eb.Summary.from_counts([1], [2]))
    assert impossible.mean[0, 0] == pytest.approx(0.8)


def test_moments_keep_their_digits_beside_one_sharp_estimate():
    """DerSimonian-Laird in exact arithmetic: 91 / 6 as the first error goes to zero."""
    posterior = eb.posterior_from([0.0, 3, -2, 9], [1e-8, 1, 1, 1], Normal(method="moments"))
    assert posterior.prior.variance_[0] == pytest.approx(91 / 6, rel=1e-6)


def test_quantiles_of_what_is_known_are_what_is_known():
    posterior = eb.posterior_from([0.0, 4, 9], [1, 1, 0])
    assert posterior.quantile(0.0).ravel().tolist() == [-np.inf, -np.inf, 9]
    assert posterior.quantile(1.0).ravel().tolist() == [np.inf, np.inf, 9]


def test_npmle_of_very_long_groups_stays_at_their_proportions():
    trials, rates = 10**8, np.array([0.1, 0.2, 0.3, 0.4, 0.50001])
    successes = np.round(rates * trials).astype(int)
    counts = Binomial(successes[:, None], np.full(5, trials))
    estimates = Discrete("npmle").fit(counts).posterior(counts).mean[:, 0]
    errors = np.sqrt(rates * (1 - rates) / trials)
    assert np.all(np.abs(estimates - rates) < 0.01 * errors)


def test_groups_too_long_for_the_beta_binomial_are_refused():
    with pytest.raises(ValueError, match="up to 10,000,000 trials"):
        eb.BernoulliEB().fit(eb.Summary.from_counts([3, 2**40], [10, 2**41]))
