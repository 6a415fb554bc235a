"""Pictures of residuals and of influence: what is drawn, and of which fits."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.report import new_axes, plot_diagnostics, plot_effect_quantiles, plot_influence


@pytest.fixture(scope="module")
def fit():
    import pandas as pd

    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"g": np.repeat(list("abcdefgh"), 6), "x": rng.normal(size=48)})
    rows["y"] = rng.poisson(np.exp(1 + 0.3 * rows["x"] + (rows["g"] == "c")))
    return eb.from_formula("y ~ x + (1 | g)", rows, family="poisson")


def test_residuals_are_drawn_at_fitted_values(fit, ax):
    eb.report.plot_residuals(fit, kind="deviance", ax=ax)
    points = next(line for line in ax.lines if line.get_marker() == "o").get_xydata()
    expected = np.column_stack([fit.predict(), fit.residuals(kind="deviance")])
    np.testing.assert_allclose(points, expected)
    with pytest.raises(TypeError, match="fit must be a fitted formula"):
        eb.report.plot_residuals(fit.estimator_, ax=ax)


def test_four_panels(fit):
    axes = plot_diagnostics(fit)
    titles = [each.get_title(loc="left").split(",")[0] for each in axes]
    assert titles[:3] == ["Residuals", "Sizes of residuals", "Quantiles of residuals"]
    assert len({each.figure for each in axes}) == 1


def test_the_largest_distances_are_named(fit, ax):
    table = fit.influence()
    plot_influence(table, top=1, ax=ax)
    largest = table.loc[table["cooksd"].argmax(), "g"]
    assert [text.get_text() for text in ax.texts] == [largest]
    with pytest.raises(ValueError, match="top must be 0 or more; got -1"):
        plot_influence(table, top=-1, ax=ax)
    with pytest.raises(TypeError, match="no influence"):
        plot_influence(eb.GaussianEB(), ax=ax)


def test_effects_need_a_coefficient_that_differs(fit):
    with pytest.raises(ValueError, match="term must be one of 'intercept'; got 'x'"):
        plot_effect_quantiles(fit, term="x", ax=new_axes()[0])
