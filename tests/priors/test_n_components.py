"""Numbers of components, of mixtures of means and of regressions: BIC, held-out likelihood."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import ebfed as eb
from beyond.kinds import KINDS, draw_lines, draw_means
from ebfed import channels
from ebfed.likelihoods import Binomial, Gaussian
from ebfed.priors import Discrete, GaussianMixture
from ebfed.priors.n_components import fewest_as_good

RULES = ("bic", "heldout")


def right(chosen):
    """As many as the promise: 18 of 20."""
    return sum(k == KINDS for k in chosen) >= 0.9 * len(chosen)


SETTINGS = [
    *((d, rule, 2) for d in (1, 10) for rule in RULES),
    *(pytest.param(d, rule, 20, marks=pytest.mark.slow) for d in (1, 10, 50) for rule in RULES),
]


@pytest.mark.parametrize(("d", "rule", "runs"), SETTINGS)
@pytest.mark.parametrize("components", ["points", "spherical"])
def test_kinds_of_means(d, rule, runs, components):
    spread, chosen = 0.5 * (components == "spherical"), []
    for seed in range(runs):
        (X, groups), _ = draw_means(d, seed, spread)
        fit = eb.MixtureEB(rule, components=components, max_components=4, n_init=4, random_state=0)
        chosen.append(fit.fit(X, groups=groups).n_components_)
    assert right(chosen)


@pytest.mark.parametrize(("d", "rule", "runs"), SETTINGS)
def test_kinds_of_regressions(d, rule, runs):
    """And the risk is that of who knows how many there are, to 15 %."""
    chosen, ratios = [], []
    for seed in range(runs):
        rows, theta = draw_lines(d, seed)
        fits = [
            eb.AdaMix(k, fit_intercept=False, max_components=4, n_init=4, random_state=0)
            for k in (rule, KINDS)
        ]
        risks = []
        for fit in fits:
            posterior = fit.fit(*rows[:2], groups=rows[2]).posterior()
            risks.append(((posterior.mean - theta) ** 2).sum(axis=1).mean())
        chosen.append(fits[0].n_components_)
        ratios.append(risks[0] / risks[1])
        assert len(fits[0].criterion_) == 4
    assert right(chosen)
    assert np.mean(ratios) <= 1.15


def test_regressions_of_few_points_and_of_classes():
    (X, y, groups), _ = draw_lines(2, 0, spread=0.0)
    points = eb.MixtureLinearEB("bic", fit_intercept=False, max_components=4, random_state=0)
    assert points.fit(X, y, groups=groups).n_components_ == KINDS
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(120), 25)
    X = rng.normal(size=(len(groups), 1))
    slope = rng.choice([-3.0, 3.0], 120)[groups]
    y = rng.random(len(groups)) < 1 / (1 + np.exp(-slope * X[:, 0]))
    fit = eb.AdaMixClassifier("bic", fit_intercept=False, max_components=3, random_state=0)
    assert fit.fit(X, y, groups=groups).n_components_ == 2


def test_criterion_of_regressions_is_that_of_each_number():
    (X, y, groups), _ = draw_lines(2, 1)
    arguments = {"fit_intercept": False, "random_state": 0}
    chosen = eb.AdaMix("bic", max_components=4, **arguments).fit(X, y, groups=groups)
    for k in (1, 3):
        fixed = eb.AdaMix(k, **arguments).fit(X, y, groups=groups)
        bic = fixed.n_parameters_ * np.log(150) - 2 * fixed.log_likelihood_
        assert fixed.criterion_ == pytest.approx(bic)
        assert chosen.criterion_[k - 1] == pytest.approx(bic, abs=0.1)
    assert chosen.log_likelihood_ == pytest.approx(fixed.log_likelihood_, abs=1e-4)
    assert chosen.n_parameters_ == fixed.n_parameters_
    assert (chosen.history_["change"].dropna() >= 0).all()


def test_held_out_likelihood_is_that_of_fits_without_these_clients():
    """By a second computation, with the folds of the fit."""
    messages = Gaussian(np.random.default_rng(0).normal(size=(60, 1)), np.full((60, 1), 0.3))
    fit = GaussianMixture("heldout", max_components=1, random_state=0).fit(messages)
    assert fit.criterion_.shape == (1,)
    fit = GaussianMixture("heldout", max_components=2, random_state=0).fit(messages)
    rng = np.random.default_rng(0)
    rng.integers(2**31)
    folds, order = rng.permutation(60) % 5, np.argsort(messages.values[:, 0])
    total = 0.0
    for fold in range(5):
        one = GaussianMixture(1, random_state=0).fit(messages.take(order[folds != fold]))
        total += one.log_marginal(messages.take(order[folds == fold])).sum()
    assert fit.criterion_[0] == pytest.approx(-2 * total, rel=1e-6)


def test_messages_of_several_clients_are_held_out_one_by_one():
    counts = np.repeat([0, 1, 9, 10], 20)[:, None]
    messages = Binomial(counts, np.full(80, 10))
    fit = Discrete("heldout", max_atoms=4, random_state=0).fit(messages)
    assert len(fit.atoms_) == 2
    assert len(fit.criterion_) == 4


def test_fewest_within_a_standard_error():
    base, more = np.linspace(-3, 0, 100), np.tile([0.1, -0.11], 50)  # less by .5, and error 1.05
    logs = np.stack([base - 1, base + more, base])
    assert fewest_as_good(logs, np.ones(100)) == 1
    assert fewest_as_good(logs[::-1], np.ones(100)) == 0
    assert fewest_as_good(np.array([[0.0, 0.0], [1.0, 1.0]]), np.ones(2)) == 1


@pytest.mark.parametrize("rule", RULES)
def test_few_clients(rule):
    """As many kinds as there are different clients, at most, and no error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what so few do not identify is said
        assert eb.MixtureEB(rule, random_state=0).fit([1.0, 5.0, 9.0]).n_components_ <= 3
        X, y = np.ones((9, 1)), np.repeat([0.0, 5.0, 9.0], 3) + np.tile([0.0, 0.1, -0.1], 3)
        fit = eb.AdaMix(rule, fit_intercept=False, random_state=0)
        assert fit.fit(X, y, groups=np.repeat([0, 1, 2], 3)).n_components_ <= 3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n_rounds", [3, 4, 7])
def test_rounds_may_end_before_the_choice(rule, n_rounds):
    (X, y, groups), _ = draw_lines(2, 2)
    fit = eb.AdaMix(rule, max_components=3, n_rounds=n_rounds, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit.fit(X, y, groups=groups)
    assert fit.n_iter_ == len(fit.history_) <= n_rounds
    assert np.isfinite(fit.criterion_).all()


def test_rules_are_for_servers_that_see_likelihoods():
    (X, y, groups), _ = draw_lines(2, 0)
    private = {"channel": channels.AddNoise(1.0), "n_rounds": 2, "noise_variance": 1.0}
    for more in (private, {"solver": "gradient"}):
        with pytest.raises(ValueError, match="n_components must be a whole number where clients"):
            eb.AdaMix("bic", **more).fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="max_components must be a whole number from 1; got 0"):
        eb.AdaMix("bic", max_components=0).fit(X, y, groups=groups)
