"""Funnel plots: points, funnel and names."""

import numpy as np

import ebfed as eb

X, S = np.array([0.2, 0.5, 0.9, -0.3]), np.array([0.1, 0.15, 0.3, 0.2])


def test_the_funnel_is_the_interval_of_a_study(ax):
    found = eb.meta_analysis(X, S, labels=["one", "two", "three", "four"])
    assert found.funnel(ax=ax) is ax
    points = ax.lines[-1].get_xydata()
    np.testing.assert_allclose(points, np.column_stack([X, S]))
    edge = ax.collections[0].get_paths()[0].vertices
    half = np.abs(edge[:, 0] - found.estimate)
    np.testing.assert_allclose(half, 1.959963984540054 * edge[:, 1], atol=1e-12)
    wide = next(line for line in ax.lines if "variance between" in str(line.get_label()))
    away, error = (wide.get_xydata() - [found.estimate, 0]).T
    np.testing.assert_allclose(away, 1.959963984540054 * np.sqrt(error**2 + found.tau2))
    assert [text.get_text() for text in ax.texts] == ["one", "two", "three", "four"]


def test_with_covariates_residuals_are_drawn(ax):
    found = eb.meta_analysis(X, S, [1.0, 2.0, 4.0, 3.0])
    found.funnel(ax=ax)
    points = ax.lines[-1].get_xydata()
    np.testing.assert_allclose(points[:, 0], X - found.predict()["estimate"])
    assert ax.get_xlabel() == "residual"
    assert not ax.texts


def test_without_variance_between_studies_there_is_one_funnel(ax):
    eb.meta_analysis([0.2, 0.21, 0.19], [0.1, 0.2, 0.1]).funnel(ax=ax)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["mean", "95% of studies, by chance"]
