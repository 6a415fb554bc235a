"""Pictures hold what they claim to show."""

from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.report import (
    new_axes,
    plot_arrows,
    plot_by_fold,
    plot_calibration,
    plot_caterpillar,
    plot_curves,
    plot_marginal,
    plot_population,
    plot_ranks,
    plot_shrinkage,
)


@pytest.fixture(scope="module")
def gaussian():
    n = np.random.default_rng(0).integers(2, 40, 80)
    X, groups, _ = eb.datasets.make_gaussian_groups(80, n, random_state=0)
    return eb.GaussianEB().fit(X, groups=groups)


@pytest.fixture(scope="module")
def counts():
    y, groups, _ = eb.datasets.make_bernoulli_groups(500, 8, random_state=0)
    return {name: eb.BernoulliEB(prior=name).fit(y, groups=groups) for name in ("beta", "npmle")}


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_shrinkage_shows_every_group(gaussian, ax):
    assert plot_shrinkage(gaussian, ax=ax) is ax
    points = np.asarray(ax.collections[-1].get_offsets())
    frame = gaussian.posterior().to_frame()
    assert len(points) <= 80
    # a point stands at the mean of the groups it stands for
    assert points[:, 0].min() == pytest.approx(frame["local"].min(), abs=0.05)
    assert points[:, 1].max() == pytest.approx(frame["estimate"].max(), abs=0.05)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["no shrinkage", "population mean"]
    side, bar = ax.child_axes[1], ax.child_axes[0]
    assert bar.get_title() == "rows of the group"
    assert side.get_title() == "population"


@pytest.mark.parametrize("prior", ["beta", "npmle"])
def test_shrinkage_counts_groups_at_one_place(counts, prior, ax):
    plot_shrinkage(counts[prior], ax=ax)
    points = np.asarray(ax.collections[-1].get_offsets())
    shares, numbers = np.unique(counts[prior].summaries_.mean.round(9), return_counts=True)
    np.testing.assert_allclose(points[:, 0], shares, atol=1e-8)
    np.testing.assert_allclose(points[:, 1], np.unique(counts[prior].predict().round(9)), atol=1e-8)
    assert sum(int(text.replace(",", "")) for text in texts(ax)) == 500
    sizes = ax.collections[-1].get_sizes()
    assert np.argmax(sizes) == np.argmax(numbers)


def test_shrinkage_of_many_groups_merges_points(ax):
    X, groups, _ = eb.datasets.make_gaussian_groups(30_000, 3, random_state=0)
    plot_shrinkage(eb.GaussianEB().fit(X, groups=groups), ax=ax)
    assert len(ax.collections[-1].get_offsets()) < 500


@pytest.mark.parametrize("column", [0, 1])
def test_shrinkage_of_one_of_several_columns(column, ax):
    X, groups, _ = eb.datasets.make_gaussian_groups(40, 4, n_features=2, random_state=0)
    X[:, 1] += 100
    fit = eb.GaussianEB().fit(X, groups=groups)
    plot_shrinkage(fit, column=column, ax=ax)
    low, high = ax.get_xlim()
    assert low < 100 * column < high
    fill = ax.child_axes[-1].lines[0]
    top = fill.get_ydata()[np.argmax(fill.get_xdata())]
    assert top == pytest.approx(fit.prior_.mean_[column], abs=0.5)


def test_groups_of_several_levels_are_named_by_all_of_them(ax):
    table = pd.DataFrame({"state": [1, 1, 1, 2, 2, 2], "county": [1, 2, 3] * 2, "trials": 10})
    table["won"] = [3, 4, 5, 1, 8, 9]
    fit = eb.from_formula("cbind(won, trials=trials) | state/county", table)
    names = [f"{state} / {county}" for state in (1, 2) for county in (1, 2, 3)]
    assert texts(plot_shrinkage(fit, ax=ax)) == names
    for plot, given in ((plot_caterpillar, fit), (plot_ranks, fit.ranks())):
        (new,) = new_axes()
        drawn = [label.get_text() for label in plot(given, ax=new).get_yticklabels()]
        assert sorted(drawn) == names


@pytest.mark.parametrize("unit", ["ns", "us"])
def test_groups_are_named_by_dates(unit, ax):
    dates = pd.date_range("2020-01-01", periods=4, freq="D").as_unit(unit).repeat(3)
    fit = eb.GaussianEB(1.0).fit(np.arange(12.0) ** 2 % 7, groups=dates)
    drawn = [label.get_text()[:10] for label in plot_caterpillar(fit, ax=ax).get_yticklabels()]
    assert sorted(drawn) == ["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"]


@pytest.mark.filterwarnings("ignore::ebfed.IdentificationWarning")
@pytest.mark.parametrize(
    "rows",
    [[1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0], [3.0]],
    ids=["no spread at all", "no spread between groups", "one row"],
)
def test_shrinkage_without_spread(rows, ax):
    fit = eb.GaussianEB().fit(np.array(rows), groups=np.arange(len(rows)) // 2)
    plot_shrinkage(fit, ax=ax)
    # every group lies at one place, within axes that have a width
    places = np.asarray(ax.collections[-1].get_offsets())
    np.testing.assert_allclose(places[:, 1], fit.predict()[0])
    for low, high in (ax.get_xlim(), ax.get_ylim()):
        assert low < places.min() <= places.max() < high


def test_shrinkage_leaves_out_groups_without_rows(ax):
    summary = eb.Summary.from_counts([0, 2, 3, 4], [0, 4, 4, 4])
    plot_shrinkage(eb.BernoulliEB().fit(summary), ax=ax)
    assert len(ax.collections[-1].get_offsets()) == 3


def test_population_gives_atoms_their_own_axis(counts, ax):
    assert plot_population(counts, ax=ax) is ax
    right = next(other for other in ax.figure.axes if other is not ax)
    assert (ax.get_ylabel(), right.get_ylabel()) == ("density", "probability of an atom")
    prior = counts["npmle"].prior_
    np.testing.assert_allclose(right.lines[0].get_xdata(), prior.atoms_[:, 0])
    np.testing.assert_allclose(right.lines[0].get_ydata(), prior.weights_)
    at, density = ax.lines[0].get_data()
    assert np.trapezoid(density, at) == pytest.approx(1, abs=0.01)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["beta", "npmle"]


def test_population_of_atoms_only(counts, ax):
    plot_population({"npmle": counts["npmle"].prior_}, ax=ax)
    assert ax.get_ylabel() == "probability of an atom"


def test_the_point_of_a_population_stands_beside_its_density(ax):
    rng = np.random.default_rng(0)
    theta = np.where(rng.random(300) < 0.6, 0.0, rng.normal(0, 3, 300))
    X, groups = rng.normal(np.repeat(theta, 4)), np.repeat(np.arange(300), 4)
    est = eb.GaussianEB(prior="point_normal").fit(X, groups=groups)
    plot_population(est, ax=ax)
    (right,) = (other for other in ax.figure.axes if other is not ax)
    mass = est.prior_.weights_[est.prior_.scales_ == 0].sum()
    assert right.lines[0].get_xydata().tolist() == [[0.0, mass]]
    at, density = ax.lines[0].get_data()
    assert np.trapezoid(density, at) == pytest.approx(1 - mass, abs=0.01)


def test_narrow_components_are_drawn(ax):
    rng = np.random.default_rng(0)
    X = rng.normal(
        np.repeat(rng.choice([-5.0, 5.0], 200), 4) + np.repeat(rng.normal(0, 0.05, 200), 4)
    )
    est = eb.MixtureEB(2, components="spherical", random_state=0)
    prior = est.fit(X, groups=np.repeat(np.arange(200), 4)).prior_
    prior.variances_ = np.full((2, 1), 0.02**2)  # the 600 even places are .05 apart
    plot_population(prior, support=(-15, 15), ax=ax)
    at, density = ax.lines[0].get_data()
    assert np.trapezoid(density, at) == pytest.approx(1, abs=0.01)
    prior.variances_ = np.full((2, 1), 1e-12)
    plot_population(prior, ax=ax)
    np.testing.assert_allclose(ax.lines[1].get_xydata(), np.c_[prior.means_, prior.weights_])


def test_of_a_server_nothing_is_drawn_that_it_does_not_know(gaussian, ax):
    server = copy(gaussian)
    server._learned = replace(gaussian._learned, is_server=True)
    for draw in (plot_shrinkage, plot_arrows, plot_marginal, plot_calibration):
        with pytest.raises(ValueError, match=r"the clients kept their (rows|figures)"):
            draw(server, ax=ax)


def test_population_of_one_of_several_columns(ax):
    X, groups, _ = eb.datasets.make_gaussian_groups(40, 4, n_features=2, random_state=0)
    plot_population({"normal": eb.GaussianEB().fit(X, groups=groups)}, column=1, ax=ax)
    at, density = ax.lines[0].get_data()
    assert np.trapezoid(density, at) == pytest.approx(1, abs=0.02)


def test_distribution_functions_reach_one(counts, ax):
    point = eb.priors.Normal(0.5, 0.0).fit(
        eb.likelihoods.Gaussian(np.zeros((2, 1)), np.ones((2, 1)))
    )
    plot_population(counts | {"point": point}, cumulative=True, ax=ax)
    assert len(ax.figure.axes) == 1
    for line in ax.lines:
        height = line.get_ydata()
        assert height[0] == 0
        assert height[-1] == pytest.approx(1)
        assert (np.diff(height) >= 0).all()
    at, height = ax.lines[0].get_data()
    fitted = counts["beta"].prior_
    assert np.interp(fitted.mean_[0], at, height) == pytest.approx(0.5, abs=0.1)


def test_density_that_is_infinite_at_its_ends_is_cut(ax):
    prior = eb.priors.Beta(0.3, 0.1).fit(eb.likelihoods.Binomial(np.array([[1]]), np.array([2])))
    plot_population({"U": prior}, ax=ax)
    assert 0.5 < ax.get_ylim()[1] < 10


def test_gains_by_fold(ax):
    gains = pd.DataFrame(
        {"ML": [2.0, 4.0], "none": [np.nan, np.nan], "NPMLE": [1.0, 6.0]},
        index=pd.Index([2016, 2020], name="left out"),
    )
    assert plot_by_fold(gains, ax=ax) is ax
    assert [label.get_text() for label in ax.get_yticklabels()] == ["ML", "NPMLE"]
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
    np.testing.assert_allclose(bars, [(2, 4), (1, 6)])
    legend = ax.get_legend()
    assert legend.get_title().get_text() == "left out"
    assert [text.get_text() for text in legend.get_texts()] == ["2016", "2020"]


def test_many_folds_have_no_legend(ax):
    plot_by_fold(pd.DataFrame({"ML": np.arange(30.0)}), ax=ax)
    assert ax.get_legend() is None


def test_without_axes_a_figure_of_pyplot_opens(gaussian):
    import matplotlib.pyplot as plt

    drawn = [
        plot_shrinkage(gaussian),
        plot_population({"normal": gaussian}),
        plot_by_fold(pd.DataFrame({"ML": [1.0]})),
    ]
    assert [plt.figure(number).axes[0] for number in plt.get_fignums()[-3:]] == drawn
    for ax in drawn:
        plt.close(ax.figure)


@pytest.fixture
def curves():
    return pd.DataFrame(
        {
            "method": ["local", "best", "a", "a", "b", "b"],
            "epsilon": [np.nan, np.nan, 1.0, 4.0, 1.0, 4.0],
            "mse": [0.5, 0.1, 0.4, 0.2, 0.3, 0.15],
            "se": [0.01] * 6,
            "valid": [True] * 5 + [False],
        }
    )


def test_curves(curves, ax):
    looks = {"b": {"color": "#009E73", "marker": "^", "ls": ":"}}
    plot_curves(curves, x="epsilon", y="mse", spread="se", looks=looks, log_y=True, ax=ax)
    assert texts(ax) == ["local", "best"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    named = {line.get_label(): line for line in ax.lines}
    assert named["a"].get_ydata().tolist() == [0.4, 0.2]
    assert named["b"].get_linestyle() == ":"
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert [line.get_xdata().tolist() for line in hollow] == [[], [4.0]]
    assert len(ax.collections) == 2
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "4"]


def test_curves_without_errors_or_legend(curves, ax):
    curves = curves.drop(columns="valid").iloc[2:]
    plot_curves(curves, x="epsilon", y="mse", spread="se", log_x=False, legend=False, ax=ax)
    assert ax.get_legend() is None
    assert ax.get_xscale() == "linear"
    assert texts(ax) == []


def test_new_axes_go_row_by_row():
    axes = new_axes(2, n_rows=2)
    assert [ax.get_subplotspec().num1 for ax in axes] == [0, 1, 2, 3]
