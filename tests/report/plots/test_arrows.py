"""From estimates of groups by themselves to personalised ones."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib.patches import FancyArrowPatch

import ebfed as eb
from ebfed.report import plot_arrows, plot_coefficients


def ways(ax):
    return np.array(ax.collections[0].get_segments())


@pytest.mark.parametrize("library", [pd, pl])
def test_lines_lead_from_local_to_personalised(library, ax):
    X, groups, _ = eb.datasets.make_gaussian_groups(9, 4, random_state=0)
    est = eb.GaussianEB().fit(library.DataFrame({"x": X, "g": groups}), groups="g")
    assert plot_arrows(est, ax=ax) is ax
    order = np.argsort(est.summaries_.mean[:, 0])
    np.testing.assert_allclose(ways(ax)[:, 0, 0], est.summaries_.mean[order, 0])
    np.testing.assert_allclose(ways(ax)[:, 1, 0], est.posterior().mean[order, 0])
    names = [text.get_text() for text in ax.texts if text.get_text() != "population mean"]
    assert names == [str(est.groups_[k]) for k in order]
    assert ax.get_title() == ""


def test_of_many_groups_some_are_drawn(ax):
    y, groups, _ = eb.datasets.make_bernoulli_groups(500, 9, random_state=0)
    est = eb.BernoulliEB().fit(y, groups=groups)
    plot_arrows(est, ax=ax)
    assert len(ways(ax)) == 60
    assert ax.get_title() == "60 of 500 groups"
    local = est.summaries_.mean[:, 0]
    assert ways(ax)[:, 0, 0].min() == local.min()
    assert ways(ax)[:, 0, 0].max() == local.max()


def test_a_column_is_chosen_by_name(ax):
    X, groups, _ = eb.datasets.make_gaussian_groups(30, 4, n_features=2, random_state=0)
    est = eb.GaussianEB().fit(pl.DataFrame({"a": X[:, 0], "b": X[:, 1]}), groups=groups)
    plot_arrows(est, column="b", ax=ax)
    np.testing.assert_allclose(
        ways(ax)[:, 1, 0], est.posterior().mean[:, 1][np.argsort(est.summaries_.mean[:, 1])]
    )
    with pytest.raises(ValueError, match="column must be one of 'a', 'b'"):
        plot_arrows(est, ax=ax)


def test_groups_without_rows_have_no_way(ax):
    summary = eb.Summary.from_counts(np.array([3, 0, 5]), np.array([6, 0, 6]))
    plot_arrows(eb.BernoulliEB().fit(summary), ax=ax)
    np.testing.assert_allclose(ways(ax)[:, 0, 0], [3 / 6, 5 / 6])


def test_a_regression_is_no_fit_of_means(ax):
    est = eb.LinearEB().fit(np.arange(12.0)[:, None], np.arange(12.0) ** 2, groups=[0, 1, 2] * 4)
    with pytest.raises(ValueError, match="LinearEB is no fit of means or rates"):
        plot_arrows(est, ax=ax)


# --- coefficients --------------------------------------------------------------------------------


def lines(ax):
    return {line.get_label(): np.column_stack(line.get_data()) for line in ax.lines}


def regression(n_groups=9, seed=0):
    rng = np.random.default_rng(seed)
    groups, x = np.repeat(np.arange(n_groups), 7), rng.normal(size=7 * n_groups)
    slope, start = rng.normal(2, 1, n_groups), rng.normal(0, 1, n_groups)
    return groups, x, start[groups] + slope[groups] * x + rng.normal(size=7 * n_groups)


@pytest.mark.parametrize("library", [pd, pl])
def test_arrows_lead_from_least_squares_to_the_posterior_mean(library, ax):
    groups, x, y = regression()
    frame = library.DataFrame({"x": x, "y": y, "g": groups})
    est = eb.LinearEB("full").fit(frame, "y", groups="g")
    assert plot_coefficients(est, x="x", y="intercept", ax=ax) is ax
    alone = np.array([np.polyfit(x[groups == g], y[groups == g], 1) for g in range(9)])
    drawn = lines(ax)
    np.testing.assert_allclose(drawn["own data alone"], alone, rtol=1e-8)
    np.testing.assert_allclose(drawn["estimate"], est.posterior().mean[:, ::-1])
    np.testing.assert_allclose(drawn["population mean"], est.mean_[None, ::-1])
    assert sum(isinstance(patch, FancyArrowPatch) for patch in ax.patches) == 9
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("coefficient of x", "intercept")


def test_ellipses_hold_their_share_of_the_population(ax):
    groups, x, y = regression(40)
    est = eb.LinearEB("full").fit(x[:, None], y, groups=groups)
    plot_coefficients(est, ax=ax)
    for share, quantile in ((50, 1.3862943611), (95, 5.9914645471)):  # chi-squared, 2 degrees
        away = lines(ax)[f"{share}% of the population"] - est.mean_
        distance = np.einsum("kp,pq,kq->k", away, np.linalg.inv(est.covariance_), away)
        np.testing.assert_allclose(distance, quantile, rtol=1e-7)


def test_groups_whose_rows_leave_coefficients_open_have_no_arrow(ax):
    groups, x, y = regression(20)
    kept = (groups > 2) | (np.arange(len(groups)) % 7 == 0)  # one row each of the first three
    est = eb.LinearEB().fit(x[kept, None], y[kept], groups=groups[kept])
    plot_coefficients(est, ax=ax)
    assert len(lines(ax)["own data alone"]) == 17
    assert len(lines(ax)["estimate"]) == 20
    assert ax.get_title() == "3 cannot be estimated alone"


def test_logistic_regressions_start_at_their_maximum_likelihood(ax):
    rng = np.random.default_rng(0)
    groups, x = np.repeat(np.arange(6), 60), rng.normal(size=360)
    y = rng.random(360) < 1 / (1 + np.exp(-(0.3 * groups - 0.5 + x)))
    y[groups == 5] = x[groups == 5] > 0  # told apart without error
    est = eb.LogisticEB().fit(x[:, None], y, groups=groups)
    plot_coefficients(est, ax=ax)
    from statsmodels.api import Logit, add_constant

    expected = [
        Logit(y[groups == g].astype(float), add_constant(x[groups == g])).fit(disp=0).params
        for g in range(5)
    ]
    # both end where the slope is below 1e-8 or so of the log-likelihood
    np.testing.assert_allclose(lines(ax)["own data alone"], expected, atol=1e-5)
    assert ax.get_title() == "1 cannot be estimated alone"


def test_each_component_of_a_mixture_has_its_ellipses(ax):
    rng = np.random.default_rng(0)
    groups, x = np.repeat(np.arange(80), 6), rng.normal(size=480)
    slope = np.where(np.arange(80) % 2, -2.0, 2.0)[groups]
    y = slope + slope * x + rng.normal(size=480)
    est = eb.AdaMix(2, random_state=0).fit(x[:, None], y, groups=groups)
    plot_coefficients(est, ax=ax)
    centres = [line.get_xydata()[0] for line in ax.lines if line.get_marker() == "+"]
    np.testing.assert_allclose(centres, est.means_)
    assert ax.get_title() == "60 of 80 groups"
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert len(labels) == len(set(labels)) == 5


def test_covariates_of_groups_are_no_coefficients(ax):
    groups, x, y = regression(30)
    w = np.random.default_rng(1).normal(size=30)
    est = eb.LinearEB().fit(x[:, None], y + 3 * w[groups], groups=groups, covariates=w)
    plot_coefficients(est, ax=ax)
    first = np.polyfit(x[:7], (y + 3 * w[groups])[:7], 1)[::-1]
    np.testing.assert_allclose(lines(ax)["own data alone"][0], first, rtol=1e-8)


def test_a_plane_needs_two_coefficients(ax):
    groups, x, y = regression()
    est = eb.LinearEB(fit_intercept=False).fit(x[:, None], y, groups=groups)
    with pytest.raises(ValueError, match="a plane needs two coefficients; there is one, 'x0'"):
        plot_coefficients(est, ax=ax)
    with pytest.raises(ValueError, match="column must be one of 'intercept', 'x0'"):
        plot_coefficients(eb.LinearEB().fit(x[:, None], y, groups=groups), x="age", ax=ax)
    with pytest.raises(ValueError, match="GaussianEB has no coefficients"):
        plot_coefficients(eb.GaussianEB().fit(y, groups=groups), ax=ax)
