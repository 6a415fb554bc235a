"""Intervals of groups, sorted."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ebfed as eb
from ebfed.report import plot_caterpillar


def rows(n_groups, seed=0):
    n = np.random.default_rng(seed).integers(2, 12, n_groups)
    X, groups, _ = eb.datasets.make_gaussian_groups(n_groups, n, random_state=seed)
    return {"x": X, "school": np.array([f"s{k:04d}" for k in groups])}


def points(ax):
    """Posterior means and intervals, from the bottom."""
    (line,) = (line for line in ax.lines if line.get_color() == "#000000")
    ends = np.array(ax.collections[0].get_segments())
    return line.get_xdata(), ends[:, 0, 0], ends[:, 1, 0]


@pytest.mark.parametrize("library", [pd, pl])
@pytest.mark.parametrize("n_groups", [8, 300])
def test_posterior_means_and_intervals_are_drawn_in_order(library, n_groups, ax):
    est = eb.GaussianEB().fit(library.DataFrame(rows(n_groups)), groups="school")
    assert plot_caterpillar(est, level=0.8, ax=ax) is ax
    posterior = est.posterior()
    order = np.argsort(posterior.mean[:, 0])
    mean, lower, upper = points(ax)
    np.testing.assert_allclose(mean, posterior.mean[order, 0])
    for drawn, bound in zip((lower, upper), posterior.interval(0.8), strict=True):
        np.testing.assert_allclose(drawn, bound[order, 0])
    assert ax.lines[0].get_xdata() == [est.prior_.mean_[0]] * 2
    assert ax.get_xlabel() == "mean of x: estimate and 80% interval"
    names = [label.get_text() for label in ax.get_yticklabels()]
    sorted_names = [est.groups_[k] for k in order]
    ends = ["\n".join(sorted_names[2::-1]), "\n".join(sorted_names[:-4:-1])]
    assert names == (sorted_names if n_groups == 8 else ends)


def test_a_coefficient_is_chosen_by_name_or_place(ax):
    rng = np.random.default_rng(0)
    groups, x = np.repeat(np.arange(12), 8), rng.normal(size=96)
    frame = pl.DataFrame({"dose": x, "y": (1 + groups) * x + rng.normal(size=96)})
    est = eb.LinearEB().fit(frame, "y", groups=groups)
    plot_caterpillar(est, column="dose", ax=ax)
    np.testing.assert_allclose(points(ax)[0], np.sort(est.posterior().mean[:, 1]))
    assert ax.lines[0].get_xdata()[0] == est.mean_[1]
    assert "of dose" in ax.get_xlabel()
    with pytest.raises(ValueError, match="one of 'intercept', 'dose', or its place; got None"):
        plot_caterpillar(est, ax=ax)
    for wrong in ("weight", 2, True):
        with pytest.raises(ValueError, match=f"got {wrong!r}"):
            plot_caterpillar(est, column=wrong, ax=ax)


def test_labels_and_the_largest_only(ax):
    posterior = eb.posterior_from([3.0, -4.0, 9.0, 0.0], [1.0, 1.0, 1.0, 1.0])
    plot_caterpillar(posterior, labels=["a", "b", "c", "d"], top=2, ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "c"]
    assert ax.get_title(loc="left") == "the 2 largest of 4 groups"
    assert ax.lines[0].get_xdata()[0] == posterior.prior.mean_[0]


def test_arguments_that_make_no_sense(ax):
    posterior = eb.posterior_from([3.0, -4.0, 9.0], [1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="labels must name 3 groups; got 2"):
        plot_caterpillar(posterior, labels=["a", "b"], ax=ax)
    with pytest.raises(ValueError, match="top must be a number of groups"):
        plot_caterpillar(posterior, top=0, ax=ax)
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        plot_caterpillar(posterior, level=95, ax=ax)


def test_three_thousand_groups(ax):
    est = eb.GaussianEB().fit(pd.DataFrame(rows(3111)), groups="school")
    plot_caterpillar(est, ax=ax)
    assert ax.get_ylabel() == "3,111 groups (school), sorted"
    assert len(points(ax)[0]) == 3111
