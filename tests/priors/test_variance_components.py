"""Variances by the moments of Paule and Mandel, in every case that a search has."""

import numpy as np
import pytest
from statsmodels.stats.meta_analysis import combine_effects

import ebfed as eb
from ebfed.likelihoods import Gaussian
from ebfed.priors import Normal
from ebfed.priors.variance_components import MomentTable, ratio_at

# an equation is solved to the rounding of its sums
SOLVED = 1e-9

RNG = np.random.default_rng(3)
M = 25
VARIANCES = RNG.uniform(0.2, 2.0, M).round(1)
X = (
    2
    + 1.2 * RNG.standard_normal((M, 2))
    + np.sqrt(VARIANCES)[:, None] * RNG.standard_normal((M, 2))
)


def excess(x, mean, t, variances=VARIANCES):
    return ((x - mean) ** 2 / (t + variances)).sum()


def fitted(x, **arguments):
    likelihood = Gaussian(x, np.repeat(VARIANCES[:, None], x.shape[1], axis=1))
    return Normal(method="paule_mandel", **arguments).fit(likelihood)


def test_the_sum_of_squares_is_its_expectation():
    prior = fitted(X)
    for j in range(2):
        assert excess(X[:, j], prior.mean_[j], prior.variance_[j]) == pytest.approx(
            M - 1, rel=SOLVED
        )


def test_with_a_given_mean():
    prior = fitted(X[:, :1], mean=1.5)
    assert excess(X[:, 0], 1.5, prior.variance_[0]) == pytest.approx(M, rel=SOLVED)


def test_one_variance_of_several_columns():
    prior = fitted(X, covariance="spherical")
    both = sum(excess(X[:, j], prior.mean_[j], prior.variance_[j]) for j in range(2))
    assert both == pytest.approx(2 * (M - 1), rel=SOLVED)
    assert prior.variance_[0] == prior.variance_[1]


def test_noise_from_rows():
    """The variance of rows is pooled first, as with other moments."""
    X, groups, _ = eb.datasets.make_gaussian_groups(40, 5, random_state=0)
    prior = eb.GaussianEB(prior=Normal(method="paule_mandel")).fit(X, groups=groups).prior_
    moments = eb.GaussianEB(method="moments").fit(X, groups=groups).prior_
    assert prior.noise_variance_ == pytest.approx(moments.noise_variance_, rel=SOLVED)
    # groups of one size: the two moments, and REML, are the same
    assert prior.variance_ == pytest.approx(moments.variance_, rel=SOLVED)


def test_correlated_estimates():
    V = np.diag(VARIANCES) + 0.3
    prior = eb.posterior_from(X[:, 0], V, Normal(method="paule_mandel")).prior
    inverse = np.linalg.inv(V + prior.variance_[0] * np.eye(M))
    away = X[:, 0] - prior.mean_[0]
    assert away @ inverse @ away == pytest.approx(M - 1, rel=1e-7)


def test_it_is_that_of_statsmodels():
    theirs = combine_effects(X[:, 0], VARIANCES, method_re="iterated")
    prior = fitted(X[:, :1])
    # it stops where the sum is within 1e-5 of its expectation
    assert prior.variance_[0] == pytest.approx(theirs.tau2, rel=1e-5)


def test_a_variance_of_zero_is_a_normal_answer():
    x = 2 + 0.5 * np.sqrt(VARIANCES) * RNG.standard_normal(M)
    prior = fitted(x[:, None])
    assert prior.variance_[0] == 0
    assert any("is zero" in note for note in prior.notes_)


def test_estimates_without_error_show_their_variance():
    likelihood = Gaussian(X[:, :1], np.zeros((M, 1)))
    assert Normal(method="paule_mandel").fit(likelihood).variance_[0] == pytest.approx(
        X[:, 0].var(ddof=1), rel=SOLVED
    )


@pytest.mark.parametrize("goal", [1e-3, 1.0, 10.0, 1e3])
@pytest.mark.parametrize("unit", [1e-50, 1.0, 1e50])
def test_a_ratio_is_found_at_any_scale(goal, unit):
    likelihood = Gaussian(unit * X[:, :1], unit**2 * VARIANCES[:, None])
    table = MomentTable.of(likelihood, 0, True)
    ratio = ratio_at([table], goal)
    value = table.profile(ratio).quadratic
    if goal < table.profile(0.0).quadratic:
        assert value == pytest.approx(goal, rel=SOLVED)
    else:
        assert ratio == 0


def test_the_method_is_checked_and_named():
    with pytest.raises(ValueError, match="'moments' or 'paule_mandel'; got 'pm'"):
        Normal(method="pm").fit(Gaussian(X, np.ones((M, 1))))
    X_, groups, _ = eb.datasets.make_gaussian_groups(9, 3, random_state=0)
    fit = eb.GaussianEB(prior=Normal(method="paule_mandel")).fit(X_, groups=groups)
    assert "Paule and Mandel" in fit.summary()
