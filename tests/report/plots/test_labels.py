"""Words, names and limits of pictures of 5, 50 and 5,000 groups."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import gamma, norm

import ebfed as eb
from ebfed.report import (
    new_axes,
    plot_arrows,
    plot_calibration,
    plot_caterpillar,
    plot_coefficients,
    plot_marginal,
    plot_population,
    plot_ranks,
    plot_shrinkage,
)
from ebfed.report.plots.axes import shades
from ebfed.report.plots.labels import MOST_NAMED

RNG = np.random.default_rng(0)


def scores(m, n=8, spread=12.0):
    rng = np.random.default_rng(m)
    school = np.repeat([f"School {k:04d}" for k in range(m)], n)
    true = np.repeat(rng.normal(250, spread, m), n)
    return pd.DataFrame({"school": school, "score": rng.normal(true, 40)})


def hospitals(m):
    rng = np.random.default_rng(m)
    died, trials = rng.binomial(60, rng.beta(4, 36, m)), np.full(m, 60)
    return pd.DataFrame({"hospital": [f"H{k:04d}" for k in range(m)], "died": died, "n": trials})


@pytest.fixture(scope="module")
def fit():
    return eb.from_formula("score | school", scores(20, spread=40.0))


def ticks(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draw", "axis", "label"),
    [
        (plot_shrinkage, "x", "mean of score: own data alone"),
        (plot_shrinkage, "y", "mean of score: estimate"),
        (plot_caterpillar, "x", "mean of score: estimate and 95% interval"),
        (plot_marginal, "x", "mean of score"),
        (plot_population, "x", "mean of score"),
        (plot_arrows, "x", "mean of score"),
        (plot_calibration, "y", "mean of score: own data alone"),
    ],
)
def test_axes_are_named_by_the_response(draw, axis, label, fit, ax):
    draw(fit, ax=ax)
    assert getattr(ax, f"get_{axis}label")() == label


@pytest.mark.parametrize("draw", [plot_shrinkage, plot_marginal, plot_calibration])
def test_titles_count_the_groups_by_their_name(draw, fit, ax):
    draw(fit, ax=ax)
    assert "20 groups (school)" in ax.get_title(loc="left")


def test_rates_have_the_name_of_what_is_counted_and_its_unit(ax):
    fit = eb.from_formula("cbind(died, trials=n) | hospital", hospitals(20))
    plot_marginal(fit, ax=ax)
    assert ax.get_xlabel() == "rate of died"
    years = RNG.uniform(1, 9, 20)
    events = pd.DataFrame({"deaths": RNG.poisson(years), "county": np.arange(20)})
    counts = eb.PoissonEB().fit(events, groups="county", exposure=years)
    plot_caterpillar(counts, ax=ax)
    assert ax.get_xlabel() == "rate of deaths, per unit of exposure: estimate and 95% interval"


def test_coefficients_have_the_names_of_the_formula(ax):
    rows = scores(12).assign(age=RNG.normal(size=96))
    plot_coefficients(eb.from_formula("score ~ age + (1 + age | school)", rows), ax=ax)
    assert ax.get_xlabel() == "intercept of score"
    assert ax.get_ylabel() == "coefficient of age"
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert {"own data alone", "estimate"} <= set(words)


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [40, MOST_NAMED])
def test_each_of_forty_to_sixty_groups_is_named(n, ax):
    ranks = eb.from_formula("cbind(died, trials=n) | hospital", hospitals(n)).posterior().ranks()
    plot_ranks(ranks, ax=ax)
    assert sorted(ticks(ax)) == [f"H{k:04d}" for k in range(n)]
    sizes = {label.get_fontsize() for label in ax.get_yticklabels()}
    assert min(sizes) >= 6  # points: letters that can be read in print
    rows = np.diff(ax.transData.transform([[0, 0], [0, 1]])[:, 1])[0] * 72 / ax.figure.dpi
    assert rows > min(sizes)  # names do not touch


def test_a_figure_with_other_axes_keeps_its_size():
    left, right = new_axes(2)
    plot_caterpillar(eb.from_formula("score | school", scores(50)), ax=left)
    assert left.figure.get_size_inches().tolist() == [6.4, 4.4]
    assert right.get_position().height > 0.5
    assert len(ticks(left)) == 2  # too little room for 50 names: those at either end


def test_of_hundreds_of_groups_the_ends_are_named(ax):
    ranks = eb.from_formula("cbind(died, trials=n) | hospital", hospitals(200)).posterior().ranks()
    plot_ranks(ranks, ax=ax)
    order = ranks.sort_values("rank", kind="stable")["hospital"].tolist()
    assert ticks(ax)[1].split("\n") == order[:3]
    assert len(ticks(ax)) == 2
    assert ax.get_ylabel() == "200 groups (hospital), sorted"
    assert ax.figure.get_size_inches()[1] == 4.4


def test_few_points_are_named(ax):
    plot_shrinkage(eb.from_formula("score | school", scores(5)), ax=ax)
    assert sorted(text.get_text() for text in ax.texts) == [f"School {k:04d}" for k in range(5)]


def test_names_above_arrows_are_inside_the_figure(ax):
    rows = scores(6)
    rows["school"] = "A very long name of a " + rows["school"]
    plot_arrows(eb.from_formula("score | school", rows), ax=ax)
    ax.figure.draw_without_rendering()
    for text in ax.texts:
        box = text.get_window_extent()
        assert 0 <= box.y0 < box.y1 <= ax.figure.bbox.y1


# --- ranks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["size", "probability"])
def test_shades_are_visible_on_white_and_darken_in_grey(kind):
    grey = shades(kind)(np.linspace(0, 1, 50))[:, :3] @ [0.299, 0.587, 0.114]
    assert grey[0] < 0.85
    assert (np.diff(grey) < 0).all()


@pytest.mark.parametrize(("ascending", "end"), [(False, "highest"), (True, "lowest")])
def test_ranks_begin_at_one_and_say_of_which_end(ascending, end, fit, ax):
    plot_ranks(fit.posterior().ranks(top=3, ascending=ascending), ax=ax)
    assert f"1 is the {end} estimate" in ax.get_xlabel()
    assert ax.get_xticks()[0] == 1
    assert ax.figure.axes[1].get_ylabel() == "probability to be among the first 3"


# --- limits --------------------------------------------------------------------------------------


def test_a_group_far_out_does_not_squeeze_the_others(ax):
    far = pd.DataFrame({"school": ["far"], "score": [5000.0]})
    est = eb.GaussianEB(variances=1600.0).fit(
        pd.concat([scores(40), far])[["score"]], groups=[*np.repeat(range(40), 8), 40]
    )
    plot_shrinkage(est, ax=ax)
    inner = est.summaries_.mean[:40, 0]
    low, high = ax.get_xlim()
    assert low < inner.min() < inner.max() < high < 1000
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "1 beyond the axis" in words
    (mark,) = (line for line in ax.lines if line.get_marker() == ">")
    assert mark.get_xdata() == [high]


@pytest.mark.parametrize("m", [6, 50, 2000])
def test_the_population_is_not_clipped(m):
    est = eb.GaussianEB().fit(scores(m)[["score"]], groups=scores(m)["school"])
    mean, sd = est.prior_.mean_[0], np.sqrt(est.prior_.variance_[0])
    low, high = norm.interval(0.999, mean, sd)
    for draw, axis in ((plot_marginal, "x"), (plot_population, "x"), (plot_shrinkage, "y")):
        ax = draw(est, ax=new_axes()[0])
        ends = getattr(ax, f"get_{axis}lim")()
        assert ends[0] < low < high < ends[1]
        if draw is plot_marginal:
            assert ax.get_ylim()[1] > norm.pdf(0) / sd


def test_a_population_with_a_long_tail_is_not_clipped(ax):
    prior = eb.priors.Gamma(0.1, 0.1).fit(
        eb.likelihoods.Poisson(np.array([[1.0]]), np.array([1.0]))
    )
    plot_population(prior, ax=ax)
    shape = prior.mean_[0] ** 2 / prior.variance_[0]
    assert ax.get_xlim()[1] > gamma.ppf(0.9995, shape, scale=prior.mean_[0] / shape)


def test_a_narrow_population_has_its_own_axis(ax):
    est = eb.GaussianEB().fit(scores(50, spread=40.0)[["score"]], groups=scores(50)["school"])
    est.prior_.variance_ = np.array([0.5])
    plot_marginal(est, ax=ax)
    (right,) = (other for other in ax.figure.axes if other is not ax)
    assert right.get_ylabel() == "density of the population"
    assert right.lines[0].get_ydata().max() < right.get_ylim()[1]
    bars = ax.patches[0].get_data().values
    assert bars.max() > 0.2 * ax.get_ylim()[1]  # on one scale it would be 0.02
    assert ax.get_zorder() > right.get_zorder()  # the legend is above the curve


def test_a_point_on_the_axis_of_rates_stays_there(ax):
    point = eb.BernoulliEB().fit(eb.Summary.from_counts([6] * 40, [60] * 40))
    assert point.prior_.variance_[0] < 1e-6
    plot_population(point, ax=ax)
    assert -0.1 < ax.get_xlim()[0] < 0.1 < ax.get_xlim()[1] < 0.5


def test_rare_rates_fill_the_axis(ax):
    died = hospitals(100).assign(n=np.arange(60, 160))
    plot_marginal(eb.from_formula("cbind(died, trials=n) | hospital", died), ax=ax)
    assert ax.get_xlim()[1] < 0.5


# --- files ---------------------------------------------------------------------------------------


def test_thousands_of_marks_are_pixels_in_files_of_vectors(ax):
    plot_caterpillar(eb.posterior_from(RNG.normal(size=2000), np.ones(2000)), ax=ax)
    assert all(artist.get_rasterized() for artist in (*ax.collections, ax.lines[-1]))
