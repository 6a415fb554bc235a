"""What rounds of a fit reached."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ebfed as eb
from ebfed.report import plot_convergence


def rows(library=pd):
    rng = np.random.default_rng(0)
    groups, x = np.repeat(np.arange(30), 8), rng.normal(size=240)
    y = np.where(groups % 2, -2.0, 2.0) * x + rng.normal(size=240)
    return library.DataFrame({"x": x, "y": y, "g": groups})


@pytest.mark.parametrize("library", [pd, pl])
def test_a_likelihood_is_drawn_by_its_distance_to_the_best(library, ax):
    est = eb.AdaMix(2, random_state=0).fit(rows(library), "y", groups="g")
    assert plot_convergence(est, ax=ax) is ax
    values = np.asarray(est.history_["log_likelihood"])
    away = np.nanmax(values) - values
    at, drawn = ax.lines[0].get_data()
    np.testing.assert_allclose(drawn, away[at.astype(int) - 1])
    assert ax.get_yscale() == "log"
    assert "log likelihood" in ax.get_title()


def test_a_criterion_is_best_where_it_is_least(ax):
    est = eb.LinearEB().fit(rows(), "y", groups="g")
    plot_convergence(est, ax=ax)
    at, drawn = ax.lines[0].get_data()
    values = est.history_["criterion"].to_numpy()
    np.testing.assert_allclose(drawn, values[at.astype(int) - 1] - values.min())


def test_another_column_is_drawn_as_it_is(ax):
    est = eb.AdaMix(2, random_state=0).fit(rows(), "y", groups="g")
    plot_convergence(est, column="weight_1", ax=ax)
    weights = est.history_["weight_1"].dropna()
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), weights)
    assert ax.get_yscale() == "linear"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("round", "weight 1")


def test_how_far_parameters_moved(ax):
    est = eb.AdaMix(2, random_state=0).fit(rows(), "y", groups="g")
    plot_convergence(est, column="change", ax=ax)
    change = est.history_["change"].dropna().abs()
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), change[change > 0])
    assert ax.get_yscale() == "log"


def test_the_loss_of_a_learner(ax):
    frame = rows()
    est = eb.learning.FedAvg(n_rounds=5, random_state=0).fit(
        frame[["x"]], frame["y"] > 0, groups=frame["g"]
    )
    plot_convergence(est, ax=ax)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), est.history_["loss"])
    assert ax.get_yscale() == "linear"


def test_a_fit_that_began_where_it_ended_is_flat(ax):
    class Settled:
        history_ = pd.DataFrame({"step": [0, 1], "log_likelihood": [-500.0, -500.0 + 1e-10]})

    plot_convergence(Settled(), ax=ax)
    assert np.ptp(ax.get_ylim()) == pytest.approx(2)


def test_what_has_no_history(ax):
    est = eb.GaussianEB().fit(rows()[["y", "g"]], groups="g")
    with pytest.raises(ValueError, match="GaussianEB is fitted in one step and has no history"):
        plot_convergence(est, ax=ax)
    linear = eb.LinearEB().fit(rows(), "y", groups="g")
    with pytest.raises(ValueError, match="column must be one of 'criterion'; got 'loss'"):
        plot_convergence(linear, column="loss", ax=ax)
    linear._history = [{"criterion": np.nan}]
    with pytest.raises(ValueError, match="no finite number in 'criterion'"):
        plot_convergence(linear, ax=ax)
