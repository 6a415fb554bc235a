"""Effect sizes of trials, against statsmodels and by hand."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from statsmodels.stats.meta_analysis import effectsize_2proportions

import ebfed as eb

# the same sums, written in another way
ROUNDING = 1e-12

A, N = np.array([4, 6, 62, 505, 30]), np.array([123, 306, 13598, 88391, 30 + 7])
C, M = np.array([11, 29, 248, 499, 3]), np.array([139, 303, 12867, 88391, 41])
THEIRS = {"RR": "risk-ratio", "OR": "odds-ratio", "RD": "diff"}


@pytest.mark.parametrize("measure", THEIRS)
def test_they_are_those_of_statsmodels(measure):
    expected, variance = effectsize_2proportions(A, N, C, M, statistic=THEIRS[measure])
    found = eb.effect_sizes(A, N, C, M, measure)
    np.testing.assert_allclose(found["estimate"], expected, rtol=ROUNDING)
    np.testing.assert_allclose(found["std_error"] ** 2, variance, rtol=ROUNDING)


@pytest.mark.parametrize("measure", THEIRS)
@pytest.mark.parametrize(
    ("a", "n", "c", "m"), [(0, 50, 3, 52), (7, 50, 0, 52), (50, 50, 3, 52), (0, 9, 0, 8)]
)
def test_half_is_added_to_tables_with_an_empty_cell(measure, a, n, c, m):
    found = eb.effect_sizes([a, 4], [n, 20], [c, 6], [m, 22], measure).to_numpy()
    p, q = (a + 0.5) / (n + 1), (c + 0.5) / (m + 1)
    if measure == "RR":
        estimate = np.log(p / q)
        variance = 1 / (a + 0.5) - 1 / (n + 1) + 1 / (c + 0.5) - 1 / (m + 1)
    elif measure == "OR":
        estimate = np.log(p / (1 - p) / (q / (1 - q)))
        cells = np.array([a, n - a, c, m - c]) + 0.5
        variance = (1 / cells).sum()
    else:
        estimate = p - q
        variance = p * (1 - p) / (n + 1) + q * (1 - q) / (m + 1)
    np.testing.assert_allclose(found[0], [estimate, np.sqrt(variance)], rtol=1e-9)
    # the other table has none, and is unchanged
    alone = eb.effect_sizes([4], [20], [6], [22], measure).to_numpy()
    np.testing.assert_allclose(found[1], alone[0], rtol=ROUNDING)


@pytest.mark.parametrize("library", [pd, pl])
def test_frames_in_frames_out(library):
    trials = library.DataFrame({"trial": list("abcde"), "a": A, "n": N, "c": C, "m": M})
    columns = [trials[name] for name in "ancm"]
    found = eb.effect_sizes(*columns, labels=trials["trial"])
    assert isinstance(found, library.DataFrame)
    assert list(found.columns) == ["trial", "estimate", "std_error"]
    assert list(found["trial"]) == list("abcde")
    assert list(eb.effect_sizes(*columns).columns) == ["estimate", "std_error"]
    unnamed = eb.effect_sizes(*columns, labels=list("abcde"))
    assert list(unnamed.columns) == ["study", "estimate", "std_error"]


def test_series_are_matched_by_their_index():
    a, n, c, m = (pd.Series(x, index=list("abcde")) for x in (A, N, C, M))
    found = eb.effect_sizes(a, n[::-1], c, m[::-1])
    np.testing.assert_allclose(found, eb.effect_sizes(A, N, C, M), rtol=ROUNDING)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"events": [5]}, r"of one length; they have shapes \(1,\) and \(2,\)"),
        ({"events": [5, np.nan]}, "events must be whole numbers, none missing; got nan in row 1"),
        ({"events": [5, 2.5]}, "events must be whole numbers, none missing; got 2.5 in row 1"),
        ({"control_events": [-1, 2]}, "control_events must be whole numbers.* got -1"),
        ({"n": [1e308, 9]}, "n must be whole numbers"),
        ({"events": [5, 20]}, "events must not be more than n, and n not 0; got 20 of 9 in row 1"),
        ({"control_n": [9, 0], "control_events": [1, 0]}, "control_n not 0; got 0 of 0 in row 1"),
        ({"events": [[1, 2]], "n": [[3, 4]]}, "events.* must be one-dimensional"),
        ({"measure": "rr"}, "measure must be 'RR', 'OR' or 'RD'; got 'rr'"),
        ({"labels": ["a"]}, "labels has 1 entries for 2 events"),
    ],
)
def test_bad_counts_are_refused(change, message):
    given = {"events": [1, 2], "n": [9, 9], "control_events": [2, 3], "control_n": [9, 9]}
    with pytest.raises(ValueError, match=message):
        eb.effect_sizes(**given | change)


def test_words_are_no_counts():
    with pytest.raises(TypeError, match="must be numbers"):
        eb.effect_sizes(["a", "b"], [9, 9], [1, 2], [9, 9])
