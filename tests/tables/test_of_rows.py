"""What goes with rows: read from columns or arrays, checked, and remembered."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ebfed import Summary
from ebfed.tables.of_rows import check_whole, given_of_rows
from ebfed.tables.rows import Rows

RNG = np.random.default_rng(4)
LABELS = RNG.integers(0, 30, 400)
VALUES = 1e6 + RNG.normal(0, 1, (400, 2))
WEIGHTS = RNG.gamma(0.5, 2.0, 400)


def test_weighted_summaries_by_their_definition():
    summary = Summary.from_rows(VALUES, LABELS, WEIGHTS)
    for i, label in enumerate(summary.ids):
        x, w = VALUES[label == LABELS], WEIGHTS[label == LABELS]
        mean = 1e6 + np.average(x - 1e6, weights=w, axis=0)
        assert_allclose(summary.mean[i], mean, rtol=1e-15)
        assert_allclose(summary.scatter[i], w @ (x - mean) ** 2, rtol=1e-9)
        assert summary.n[i] == len(w)
        assert summary.weight[i] == pytest.approx(w.sum(), rel=1e-13)
        assert_allclose(summary.sums["log_weight"][i], np.log(w).sum(), rtol=1e-12, atol=1e-12)


def test_merged_blocks_are_the_summary_of_all_rows():
    whole = Summary.from_rows(VALUES, LABELS, WEIGHTS)
    halves = [
        Summary.from_rows(VALUES[p], LABELS[p], WEIGHTS[p]) for p in (slice(150), slice(150, 400))
    ]
    both = halves[0].merge(halves[1])
    for name in ("n", "mean", "scatter", "weight"):
        assert_allclose(getattr(both, name), getattr(whole, name), rtol=1e-9)
    assert_allclose(both.sums["log_weight"], whole.sums["log_weight"], rtol=1e-11, atol=1e-12)


def test_rows_without_weights_have_weight_one():
    ones = np.where(np.arange(400) < 150, 1.0, WEIGHTS)
    first, second = slice(150), slice(150, 400)
    plain = Summary.from_rows(VALUES[first], LABELS[first])
    rest = Summary.from_rows(VALUES[second], LABELS[second], WEIGHTS[second])
    whole = Summary.from_rows(VALUES, LABELS, ones)
    for both in (plain.merge(rest), rest.merge(plain)):
        for name in ("n", "mean", "scatter", "weight"):
            assert_allclose(getattr(both, name), getattr(whole, name), rtol=1e-9)
        assert_allclose(both.sums["log_weight"], whole.sums["log_weight"], rtol=1e-11, atol=1e-12)


def test_rows_of_weight_zero_are_not_counted():
    weights = np.where(LABELS == 3, 0.0, WEIGHTS)
    weights[::7] = 0.0
    kept = weights > 0
    found = Summary.from_rows(VALUES, LABELS, weights)
    alone = Summary.from_rows(VALUES[kept], LABELS[kept], weights[kept])
    place = np.searchsorted(found.ids, alone.ids)
    for name in ("n", "mean", "scatter", "weight"):
        assert_allclose(getattr(found, name)[place], getattr(alone, name), rtol=1e-9)
    assert found.n[found.ids == 3] == 0
    assert not found.take(found.ids == 3).mean.any()


@pytest.mark.parametrize("weight", [[1.0, -1.0], [1.0, np.nan], [1.0, np.inf], [1.0]])
def test_weights_of_a_summary_are_refused(weight):
    with pytest.raises(
        ValueError, match=r"weight (must be finite, and 0 or more; row 1|has 1 ent)"
    ):
        Summary.from_rows([1.0, 2.0], [0, 1], weight)


def test_columns_are_taken_out_of_a_frame():
    frame = pd.DataFrame({"x": [1.0, 2.0], "w": [1, 2], "seen": [True, False]})
    rows = Rows.read(frame, beside={"sample_weight": "w", "observed": "seen"})
    assert rows.columns == ["x"]
    assert_array_equal(rows.beside["sample_weight"], [1.0, 2.0])
    assert_array_equal(rows.beside["observed"], [1.0, 0.0])
    rows = Rows.read(frame, beside={"sample_weight": "w", "exposure": "w"})
    assert rows.columns == ["x", "seen"]


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"sample_weight": [1.0, -2.0]}, ValueError, "finite, and 0 or more; row 1 has -2.0"),
        ({"sample_weight": [1.0, np.nan]}, ValueError, "row 1 has nan"),
        ({"sample_weight": [0.0, 0.0]}, ValueError, "not be zero in every row"),
        ({"sample_weight": [[1.0, 1.0]]}, ValueError, "one number per row"),
        ({"sample_weight": "w"}, ValueError, "names a column, but X is not a data frame"),
        ({"sample_weight": [True, True]}, TypeError, "must be numbers; got booleans"),
        ({"sample_weight": ["a", "b"]}, TypeError, "must be numbers"),
        ({"observed": [0.0, 2.0]}, ValueError, "row 1 has 2"),
    ],
)
def test_refused(given, kind, text):
    with pytest.raises(kind, match=text):
        Rows.read(np.zeros((2, 1)), beside=given)


def test_names_of_arguments():
    assert given_of_rows({"observed": None}, ("sample_weight",), "gaussian") == {}
    with pytest.raises(TypeError, match="there is no argument 'weights'"):
        given_of_rows({"weights": [1.0]}, ("sample_weight",), "gaussian")
    with pytest.raises(ValueError, match="observed= is for durations"):
        given_of_rows({"observed": [1.0]}, ("sample_weight",), "gaussian")
    with pytest.raises(ValueError, match=r"whole numbers.*row 1 has 0\.5"):
        check_whole(np.array([1.0, 0.5]), "binomial")
