"""Direct estimates and estimates of areas, most precise first."""

import numpy as np

import ebfed as eb

X, S = np.array([0.2, 0.5, np.nan, 0.9, -0.3]), np.array([0.1, 0.3, np.nan, 0.2, 0.15])
W = [0.1, 0.4, 0.7, 0.9, 0.2]
ORDER = [2, 1, 3, 4, 0]  # from the bottom


def test_every_figure_is_where_it_belongs(ax):
    fit = eb.fay_herriot(X, S, W, labels=list("abcde"))
    assert fit.plot(ax=ax) is ax
    lines = {line.get_label(): line.get_xdata() for line in ax.lines}
    np.testing.assert_allclose(lines["direct"], X[ORDER[1:]])
    np.testing.assert_allclose(lines["estimate"], fit.estimates[ORDER])
    np.testing.assert_allclose(lines["synthetic"], fit.synthetic[ORDER])
    direct, model = (np.array(each.get_segments())[:, :, 0] for each in ax.collections)
    np.testing.assert_allclose(np.diff(direct)[:, 0], 2 * 1.959963984540054 * S[ORDER[1:]])
    np.testing.assert_allclose(model, np.column_stack(fit.interval())[ORDER])
    assert [label.get_text() for label in ax.get_yticklabels()] == list("cbdea")


def test_of_many_areas_some_are_named(ax):
    rng = np.random.default_rng(0)
    eb.fay_herriot(rng.normal(size=300), rng.uniform(0.3, 1, 300)).plot(ax=ax)
    assert ax.get_ylabel() == "300 areas, sorted"
