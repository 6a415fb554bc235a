"""Populations against what was seen of the groups."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ebfed as eb
from ebfed.report import plot_calibration, plot_marginal
from ebfed.report.view import view_of


def named(ax):
    return {line.get_label(): line for line in ax.lines}


def curve(ax, label="own data alone, by the fit"):
    return named(ax)[label].get_data()


def gaussian(n_groups=200, prior="normal", library=pd, seed=0):
    n = np.random.default_rng(seed).integers(2, 9, n_groups)
    X, groups, _ = eb.datasets.make_gaussian_groups(n_groups, n, random_state=seed)
    return eb.GaussianEB(prior=prior).fit(library.DataFrame({"x": X, "g": groups}), groups="g")


@pytest.mark.parametrize("library", [pd, pl])
def test_the_marginal_density_of_means_is_the_mixture_over_their_sizes(library, ax):
    est = gaussian(library=library)
    assert plot_marginal(est, ax=ax) is ax
    at, density = curve(ax)
    variances = est.prior_.variance_[0] + est.noise_variance_[0] / est.summaries_.n
    away = at[:, None] - est.prior_.mean_[0]
    expected = np.exp(-(away**2) / (2 * variances)) / np.sqrt(2 * np.pi * variances)
    np.testing.assert_allclose(density, expected.mean(axis=1), rtol=1e-10)
    heights, edges, _ = ax.patches[0].get_data()
    assert heights @ np.diff(edges) == pytest.approx(1)
    assert edges[0] == pytest.approx(est.summaries_.mean.min())
    at, density = curve(ax, "population")
    np.testing.assert_allclose(density, np.exp(est.prior_.logpdf(at[:, None])))


@pytest.mark.parametrize(
    "prior", ["npmle", "point_laplace", "scale_mixture", "laplace", "log_spline"]
)
def test_other_populations_have_a_marginal_density_of_one(prior, ax):
    est = gaussian(prior=prior)
    plot_marginal(est, ax=ax)
    at, density = curve(ax)
    assert np.trapezoid(density, at) == pytest.approx(1, abs=0.02)  # a bit lies beyond the axis
    rights = [other for other in ax.figure.axes if other is not ax]
    atoms = prior == "npmle" or np.any(getattr(est.prior_, "scales_", np.ones(1)) == 0)
    assert len(rights) == atoms
    if prior == "npmle":
        np.testing.assert_allclose(named(rights[0])["_child1"].get_ydata(), est.prior_.weights_)


def test_one_of_several_columns(ax):
    X, groups, _ = eb.datasets.make_gaussian_groups(200, 4, n_features=2, random_state=0)
    X[:, 1] = 10 + 3 * X[:, 1]
    both = eb.GaussianEB().fit(X, groups=groups)
    plot_marginal(both, column=1, ax=ax)
    at, density = curve(ax)
    variance = both.prior_.variance_[1] + both.noise_variance_[1] / 4
    expected = np.exp(-((at - both.prior_.mean_[1]) ** 2) / (2 * variance))
    np.testing.assert_allclose(density, expected / np.sqrt(2 * np.pi * variance), rtol=1e-9)


@pytest.mark.parametrize("components", ["points", "spherical"])
def test_mixtures(components, ax):
    rng = np.random.default_rng(0)
    X = rng.normal(np.repeat(rng.choice([-3.0, 3.0], 100), 5))
    est = eb.MixtureEB(2, components=components, random_state=0)
    plot_marginal(est.fit(X, groups=np.repeat(np.arange(100), 5)), ax=ax)
    at, density = curve(ax)
    assert np.trapezoid(density, at) == pytest.approx(1, abs=0.02)
    middle = density[np.argmin(np.abs(at))]
    assert density.max() > 50 * middle


@pytest.mark.parametrize("prior", ["beta", "npmle"])
@pytest.mark.parametrize("library", [pd, pl])
def test_rates_have_a_bar_for_each_that_is_possible(prior, library, ax):
    y, groups, _ = eb.datasets.make_bernoulli_groups(300, 6, random_state=0)
    frame = library.DataFrame({"y": np.ravel(y), "g": groups})
    est = eb.BernoulliEB(prior=prior).fit(frame, groups="g")
    plot_marginal(est, ax=ax)
    at, density = curve(ax)
    np.testing.assert_allclose(at, np.arange(7) / 6, atol=1e-15)
    likelihood = eb.likelihoods.Binomial(np.arange(7)[:, None], np.full(7, 6))
    np.testing.assert_allclose(density / 6, np.exp(est.prior_.log_marginal(likelihood)))
    heights, _, _ = ax.patches[0].get_data()
    counts = np.bincount(np.rint(est.summaries_.mean[:, 0] * 6).astype(int), minlength=7)
    np.testing.assert_allclose(heights / 6, counts / 300)


def test_rates_of_groups_of_many_sizes(ax):
    rng = np.random.default_rng(0)
    n = rng.integers(1, 5000, 400)
    est = eb.BernoulliEB().fit(eb.Summary.from_counts(rng.binomial(n, rng.beta(2, 3, 400)), n))
    plot_marginal(est, ax=ax)
    at, density = curve(ax)
    assert len(at) == 20
    assert density.mean() == pytest.approx(1)


def test_one_of_several_rates(ax):
    rng = np.random.default_rng(0)
    X = rng.random((1200, 2)) < np.repeat(rng.beta(2, [2, 8], (200, 2)), 6, axis=0)
    groups = np.repeat(np.arange(200), 6)
    both = eb.BernoulliEB().fit(X.astype(float), groups=groups)
    one = eb.BernoulliEB().fit(X[:, 1].astype(float), groups=groups)
    plot_marginal(both, column=1, ax=ax)
    likelihood = eb.likelihoods.Binomial(np.arange(7)[:, None], np.full(7, 6))
    expected = np.exp(one.prior_.log_marginal(likelihood))
    np.testing.assert_allclose(curve(ax)[1] / 6, expected, rtol=1e-5)  # fitted apart


def covariates(kind):
    rng = np.random.default_rng(0)
    w, groups = rng.normal(size=80), np.repeat(np.arange(80), 6)
    if kind == "means":
        return eb.GaussianEB().fit(rng.normal(2 * w[groups]), groups=groups, covariates=w)
    y = rng.random(480) < 1 / (1 + np.exp(-2 * w[groups]))
    return eb.BernoulliEB().fit(y.astype(float), groups=groups, covariates=w)


@pytest.mark.filterwarnings("ignore::ebfed.priors.IdentificationWarning")
@pytest.mark.parametrize("kind", ["means", "rates"])
def test_covariates_widen_the_marginal(kind, ax):
    est = covariates(kind)
    plot_marginal(est, ax=ax)
    at, density = curve(ax)
    centre = est.prior_.at(view_of(est).covariates).mean_[:, 0]
    total = np.trapezoid(density, at) if kind == "means" else density.sum() / 6
    assert total == pytest.approx(1, abs=0.02)
    weights = density / density.sum()
    assert weights @ at == pytest.approx(centre.mean(), abs=0.02)
    assert np.sqrt(weights @ (at - weights @ at) ** 2) > 0.95 * centre.std()


@pytest.mark.parametrize("draw", [plot_marginal, plot_calibration])
def test_a_regression_has_no_local_estimates(draw, ax):
    est = eb.LinearEB().fit(np.arange(12.0)[:, None], np.arange(12.0) ** 2, groups=[0, 1, 2] * 4)
    with pytest.raises(ValueError, match="LinearEB is no fit of means or rates"):
        draw(est, ax=ax)


# --- calibration ---------------------------------------------------------------------------------


def band(ax):
    """Abscissae and both ends of the band."""
    corners = ax.collections[0].get_paths()[0].vertices
    x = np.unique(corners[:, 0])
    inside = [corners[corners[:, 0] == at, 1] for at in x]
    return x, np.array([each.min() for each in inside]), np.array([each.max() for each in inside])


@pytest.mark.parametrize("library", [pd, pl])
def test_calibration_of_the_right_model_follows_the_diagonal(library, ax):
    est = gaussian(300, library=library)
    assert plot_calibration(est, ax=ax) is ax
    simulated, seen = named(ax)["groups"].get_data()
    np.testing.assert_array_equal(seen, np.sort(est.summaries_.mean[:, 0]))
    _, low, high = band(ax)
    # 95 % of each rank; neighbours go together, so that less than 80 is a thing of 1 in 1,000
    assert np.mean((low <= seen) & (seen <= high)) > 0.8
    assert np.corrcoef(simulated, seen)[0, 1] > 0.99


def test_calibration_shows_a_wrong_population(ax):
    rng = np.random.default_rng(0)
    X = rng.normal(np.repeat(rng.choice([-5.0, 5.0], 300), 4))
    est = eb.GaussianEB().fit(X, groups=np.repeat(np.arange(300), 4))
    plot_calibration(est, ax=ax)
    _, low, high = band(ax)
    seen = named(ax)["groups"].get_ydata()
    assert np.mean((low <= seen) & (seen <= high)) < 0.5


def test_calibration_of_many_groups_draws_some_ranks(ax):
    plot_calibration(gaussian(3111), ax=ax)
    assert len(named(ax)["groups"].get_xdata()) == 500


def test_calibration_of_few_possible_rates_draws_shares(ax):
    y, groups, _ = eb.datasets.make_bernoulli_groups(400, 5, random_state=0)
    est = eb.BernoulliEB().fit(pl.DataFrame({"y": np.ravel(y), "g": groups}), groups="g")
    plot_calibration(est, ax=ax)
    at, share = named(ax)["groups"].get_data()
    counts = np.bincount(np.rint(est.summaries_.mean[:, 0] * 5).astype(int), minlength=6)
    np.testing.assert_allclose(at, np.arange(6) / 5, atol=1e-15)
    np.testing.assert_allclose(share, counts / 400)
    bars = np.array([[bar.get_y(), bar.get_y() + bar.get_height()] for bar in ax.patches])
    # the fitted share lies in each band
    likelihood = eb.likelihoods.Binomial(np.arange(6)[:, None], np.full(6, 5))
    fitted = np.exp(est.prior_.log_marginal(likelihood))
    assert ((bars[:, 0] < fitted) & (fitted < bars[:, 1])).all()


def test_calibration_of_rates_of_many_sizes(ax):
    rng = np.random.default_rng(0)
    n = rng.integers(5, 80, 200)
    est = eb.BernoulliEB().fit(eb.Summary.from_counts(rng.binomial(n, rng.beta(2, 3, 200)), n))
    plot_calibration(est, ax=ax)
    assert ax.get_ylabel() == "rate: own data alone"


@pytest.mark.filterwarnings("ignore::ebfed.priors.IdentificationWarning")
@pytest.mark.parametrize("kind", ["means", "rates"])
def test_calibration_with_covariates(kind, ax):
    est = covariates(kind)
    plot_calibration(est, ax=ax)
    if kind == "means":
        simulated, seen = named(ax)["groups"].get_data()
        assert np.corrcoef(simulated, seen)[0, 1] > 0.98


def test_calibration_is_repeated_with_its_seed(ax):
    est = gaussian(50)
    first, second = (
        plot_calibration(est, random_state=1, ax=ax).lines[-1].get_xdata() for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    with pytest.raises(ValueError, match="n_populations must be at least 20; got 3"):
        plot_calibration(est, n_populations=3, ax=ax)
