"""Rows of several categories."""

import itertools

import numpy as np
import pytest

from ebfed.families import Categorical
from ebfed.tables.clients import Summary


def test_labels_and_counts_have_one_summary():
    rng = np.random.default_rng(0)
    answers, groups = rng.integers(0, 3, 60), rng.integers(5, 14, 60)
    family = Categorical(4)
    numbered = family.summarise(answers[:, None], groups)
    counted = family.summarise(np.eye(4)[answers], groups)
    for name, figures in family.figures(numbered).items():
        np.testing.assert_array_equal(figures, family.figures(counted)[name])
    np.testing.assert_array_equal(numbered.ids, np.unique(groups))
    halves = [
        family.summarise(answers[part][:, None], groups[part])
        for part in (slice(30), slice(30, 60))
    ]
    merged = family.merge(*halves)
    np.testing.assert_allclose(merged.mean, numbered.mean, rtol=1e-14)
    np.testing.assert_array_equal(
        family.likelihood(family.figures(merged)).counts,
        family.likelihood(family.figures(numbered)).counts,
    )


def test_rows_have_the_probability_of_their_order():
    """All sequences of three answers: probabilities sum to 1 and do not depend on the order."""
    family, theta = Categorical(3), np.array([[0.5, 0.2, 0.3]])
    total = 0.0
    for answers in itertools.product(range(3), repeat=3):
        summary = family.summarise(np.array(answers)[:, None], np.zeros(3, int))
        log = family.likelihood(family.figures(summary)).logpdf(theta)[0, 0]
        log += family.log_base_measure(summary)[0]
        assert np.exp(log) == pytest.approx(theta[0, list(answers)].prod(), rel=1e-12)
        total += np.exp(log)
    assert total == pytest.approx(1.0, rel=1e-12)


def test_other_summaries_are_refused():
    rows = Summary.from_rows(np.array([[0.5, 0.5], [1.0, 1.0]]), [0, 1])
    with pytest.raises(ValueError, match="shares that add up to 1"):
        Categorical().check_summary(rows)
    with pytest.raises(ValueError, match=r"row 1 has \[0.5, 1.0\]"):
        Categorical().check_rows(np.array([[1.0, 2.0], [0.5, 1.0]]))
