"""Forest plots: every figure is where it belongs."""

import numpy as np
import pytest

import ebfed as eb

X, S = np.array([0.2, 0.5, 0.9, -0.3]), np.array([0.1, 0.15, 0.3, 0.2])
HALF = 1.959963984540054 * S


def lines(ax):
    return {line.get_label(): np.array(line.get_xydata()) for line in ax.lines}


@pytest.mark.parametrize("shown", [np.asarray, np.exp])
def test_studies_mean_and_new_study(shown, ax):
    found = eb.meta_analysis(X, S, labels=list("abcd"))
    assert found.forest(exponentiate=shown is np.exp, ax=ax) is ax
    studies, squares, new = ax.collections
    ends = np.array(studies.get_segments())[:, :, 0]
    np.testing.assert_allclose(ends, shown(np.column_stack([X - HALF, X + HALF])))
    np.testing.assert_allclose(squares.get_offsets(), np.column_stack([shown(X), [4, 3, 2, 1]]))
    sizes = squares.get_sizes()
    np.testing.assert_allclose(sizes / sizes.max(), found.share / found.share.max())
    shrunk = lines(ax)["study, shrunk"][:, 0]
    np.testing.assert_allclose(shrunk, shown(found.posterior.mean[:, 0]))
    diamond = ax.patches[0].get_xy()[:, 0]
    np.testing.assert_allclose([diamond.min(), diamond.max()], shown(found.interval))
    np.testing.assert_allclose(new.get_segments()[0][:, 0], shown(found.prediction_interval))
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["a", "b", "c", "d", "mean", "new study"]
    written = [text.get_text() for text in ax.texts]
    low, high = shown(X[0] - HALF[0]), shown(X[0] + HALF[0])
    assert written[0] == f"{shown(X[0]):.2f} [{low:.2f}, {high:.2f}]"
    assert len(written) == 6
    assert ax.get_xscale() == ("log" if shown is np.exp else "linear")


def test_with_covariates_each_study_has_a_mean(ax):
    found = eb.meta_analysis(X, S, [1.0, 2.0, 4.0, 3.0])
    found.forest(ax=ax)
    np.testing.assert_allclose(
        lines(ax)["mean at its covariates"][:, 0], found.predict()["estimate"]
    )
    assert not ax.patches
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "1", "2", "3"]


def test_of_many_studies_only_the_mean_is_named(ax):
    rng = np.random.default_rng(0)
    found = eb.meta_analysis(rng.normal(size=200), rng.uniform(0.3, 1, 200))
    found.forest(ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["mean", "new study"]
    assert ax.get_ylabel() == "200 studies"
    assert not ax.texts
