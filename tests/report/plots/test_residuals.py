"""Pictures of residuals and of influence: what is drawn, and of which fits."""

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.report import new_axes, plot_diagnostics, plot_effect_quantiles, plot_influence


@pytest.fixture(scope="module")
def fit():
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


@pytest.fixture(scope="module", params=["crossed", "crossed counts", "nested", "noise of levels"])
def several(request):
    """Fits of several levels of groups, with the levels that they have."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.integers(0, (12, 5), (240, 2)), columns=["a", "b"])
    rows["x"], rows["kind"] = rng.normal(size=240), rng.integers(0, 2, 240)
    z = 0.3 * rows["x"] + rng.normal(0, 0.7, 12)[rows["a"]] + rng.normal(0, 0.7, 5)[rows["b"]]
    if request.param == "crossed counts":
        rows["y"] = rng.poisson(np.exp(z))
        return eb.from_formula("y ~ x + (1 | a) + (1 | b)", rows, family="poisson"), ["a", "b"]
    rows["y"] = z + rng.normal(size=240)
    if request.param == "crossed":
        return eb.from_formula("y ~ x + (1 | a) + (1 | b)", rows), ["a", "b"]
    options = {"dispersion": "~ kind"} if request.param == "noise of levels" else {}
    return eb.from_formula("y ~ x + (1 | b/a)", rows, **options), ["b", "a"]


def test_pictures_of_several_levels(several):
    fit, levels = several
    for level in levels:
        axes = plot_diagnostics(fit, level=level)
        title = f"Quantiles of effects of {len(fit.ranef(level=level))} groups of {level}"
        assert axes[3].get_title(loc="left") == title
        points = axes[3].lines[-1].get_ydata()
        table = fit.ranef(level=level)
        effects = np.sort(table["estimate" if "estimate" in table else "intercept"])
        np.testing.assert_allclose(points, effects / np.sqrt(np.mean(effects**2)))
        if hasattr(fit, "influence"):
            ax = plot_influence(fit, level=level, ax=new_axes()[0])
            expected = fit.influence(level)["cooksd"]
            np.testing.assert_array_equal(ax.lines[0].get_ydata(), expected)
        else:
            with pytest.raises(TypeError, match="no influence of groups"):
                plot_influence(fit, level=level)
    with pytest.raises(ValueError, match="level must be one of"):
        plot_effect_quantiles(fit, level="c", ax=new_axes()[0])


def test_levels_that_are_not_there(fit, ax):
    table = fit.influence()
    with pytest.raises(ValueError, match="level must be None for a frame"):
        plot_influence(table, level="g", ax=ax)
    x, groups = np.random.default_rng(0).normal(size=(2, 40)), np.repeat(np.arange(8), 5)
    rows = eb.MixtureLinearEB(2).fit(x[0][:, None], x.sum(axis=0), groups=groups)
    with pytest.raises(ValueError, match="level must be None: MixtureLinearEB"):
        plot_effect_quantiles(rows, level="g", ax=ax)
    classes = eb.LogisticEB().fit(x[0][:, None], x[1] > 0, groups=groups)
    with pytest.raises(ValueError, match="level must be one of 'group'; got 'g'"):
        plot_effect_quantiles(classes, level="g", ax=ax)


def test_effects_of_slopes_of_crossed_factors():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": np.arange(200) % 12, "b": np.arange(200) // 12 % 7})
    rows["x"] = rng.normal(size=200)
    rows["y"] = rng.normal(size=12)[rows["a"]] * (1 + rows["x"]) + rng.normal(size=7)[rows["b"]]
    rows["y"] += 0.1 * rng.normal(size=200)
    fit = eb.from_formula("y ~ x + (1 + x | a) + (1 | b)", rows)
    for term in ("intercept", "x"):
        ax = plot_effect_quantiles(fit, level="a", term=term, ax=new_axes()[0])
        assert ax.get_title(loc="left") == "Quantiles of effects of 12 groups of a"
    with pytest.raises(ValueError, match="one of 'intercept'; got 'x'"):
        plot_effect_quantiles(fit, level="b", term="x", ax=new_axes()[0])
