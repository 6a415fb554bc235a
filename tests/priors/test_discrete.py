"""The nonparametric maximum likelihood estimate is one: its gap is what it says."""

import numpy as np
import pytest
from scipy.optimize import minimize

from ebfed.likelihoods import Binomial, Gaussian
from ebfed.priors import Discrete


def gap(prior, likelihood, theta):
    """max over theta of sum_i L_i / f_i - n, on a grid of its own."""
    log_f = prior.log_marginal(likelihood)
    return np.exp(likelihood.logpdf(theta[:, None]) - log_f[:, None]).sum(axis=0).max() - len(log_f)


RNG = np.random.default_rng(11)
CASES = {
    "equal errors": Gaussian(RNG.standard_t(4, (800, 1)), np.full((800, 1), 0.5)),
    "unequal errors": Gaussian(RNG.normal(size=(500, 1)), RNG.uniform(0.05, 4, (500, 1))),
    "outlier": Gaussian(np.append(RNG.normal(size=199), 400.0)[:, None], np.full((200, 1), 0.3)),
    "offset": Gaussian(1e6 + RNG.normal(size=(200, 1)), np.full((200, 1), 0.3)),
    "counts": Binomial(RNG.binomial(14, RNG.uniform(size=900))[:, None], np.full(900, 14)),
}


@pytest.mark.parametrize("likelihood", CASES.values(), ids=CASES)
def test_duality_gap(likelihood):
    prior = Discrete("npmle").fit(likelihood)
    assert 0 <= prior.duality_gap_ <= 1e-8 * len(likelihood)
    low, high = likelihood.support
    if np.isinf(high):
        low, high = likelihood.values.min(), likelihood.values.max()
    # a finer grid than the fit's own; what lies between its nodes is small but not nothing
    assert gap(prior, likelihood, np.linspace(low, high, 20_001)) <= 1e-3
    assert len(prior.atoms_) < 40


def test_unequal_trials():
    trials = RNG.integers(1, 60, 700)
    likelihood = Binomial(RNG.binomial(trials, RNG.beta(2, 6, 700))[:, None], trials)
    prior = Discrete("npmle").fit(likelihood)
    assert gap(prior, likelihood, np.linspace(0, 1, 20_001)) <= 1e-3


def test_no_mixture_on_a_grid_is_likelier():
    """A general optimiser over the simplex does not find more likelihood."""
    likelihood = Binomial(RNG.binomial(6, RNG.beta(2, 3, 60))[:, None], np.full(60, 6))
    prior = Discrete("npmle").fit(likelihood)
    rates = np.linspace(0.01, 0.99, 60)
    matrix = np.exp(likelihood.logpdf(rates[:, None]))

    def negative(logits):
        weights = np.exp(logits - logits.max())
        return -np.log(matrix @ (weights / weights.sum())).sum()

    peer = minimize(negative, np.zeros(60), method="L-BFGS-B", options={"maxiter": 5000})
    ours = prior.log_marginal(likelihood).sum()
    assert -peer.fun <= ours + 1e-6
    assert -peer.fun >= ours - 0.01


def test_known_atoms_get_the_likeliest_weights():
    likelihood = CASES["counts"]
    prior = Discrete([0.2, 0.5, 0.8]).fit(likelihood)
    assert prior.duality_gap_ <= 1e-6
    assert prior.weights_.sum() == pytest.approx(1)
    best = prior.log_marginal(likelihood).sum()
    for shift in ([0.01, -0.01, 0], [0, 0.01, -0.01], [-0.01, 0, 0.01]):
        other = Discrete([0.2, 0.5, 0.8], weights=prior.weights_ + shift).fit(likelihood)
        assert other.log_marginal(likelihood).sum() < best


def test_three_spikes_are_found():
    rng = np.random.default_rng(5)
    theta = rng.choice([-3.0, 0.0, 3.0], 2000)
    likelihood = Gaussian(rng.normal(theta, 0.5)[:, None], np.full((2000, 1), 0.25))
    for prior in (Discrete("npmle"), Discrete(3, random_state=0)):
        prior.fit(likelihood)
        heavy = prior.atoms_[prior.weights_ > 0.1, 0]
        # a spike's place is known to .5 / sqrt(667) = .02
        np.testing.assert_allclose(heavy, [-3, 0, 3], atol=0.15)
    assert prior.n_parameters_ == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"atoms": "most"}, "atoms must be 'npmle'"),
        ({"atoms": 0}, "atoms must be"),
        ({"atoms": 2.5}, "atoms must be"),
        ({"atoms": [0.1, np.nan]}, "atoms must be finite"),
        ({"atoms": [0.1, 0.2], "weights": [1.0]}, "weights must be 2"),
        ({"atoms": [0.1, 0.2], "weights": [-1.0, 2.0]}, "weights must be 2"),
        ({"atoms": 2, "weights": [1.0, 1.0]}, "weights can be given only"),
        ({"weights": [1.0]}, "weights can be given only"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Discrete(**arguments).fit(CASES["counts"])
