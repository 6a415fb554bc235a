"""Clients and summaries: equal to pandas, exact under merging, whole under splitting."""

import datetime as dt
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebfed.tables.clients import Clients, Summary
from ebfed.tables.labels import number_labels
from ebfed.tables.rows import Rows
from ebfed.tables.values import check_labels

# What is promised of merging, relative to the largest value for means.
MERGE = 1e-12
# A scatter is a sum of squared deviations from a mean that float64 rounds: at 1e8 that mean is off
# by 1.5e-8, whatever the method. `scatter_error` says how far two right answers may lie apart.
ULPS = 8

RNG = np.random.default_rng(20240601)
LARGE = 1e8


def scatter_error(values, n_rows):
    spread = np.ptp(values) if len(values) else 0.0
    return ULPS * np.spacing(np.abs(values).max(initial=0.0)) * spread * max(n_rows, 1)


def assert_same_summary(left, right, values):
    assert left.ids.tolist() == right.ids.tolist()
    np.testing.assert_array_equal(left.n, right.n)
    largest = np.abs(values).max(initial=0.0)
    np.testing.assert_allclose(left.mean, right.mean, rtol=MERGE, atol=MERGE * largest)
    np.testing.assert_allclose(
        left.scatter, right.scatter, rtol=MERGE, atol=scatter_error(values, len(values))
    )


def assert_same_clients(left, right):
    np.testing.assert_array_equal(left.ids, right.ids)
    np.testing.assert_array_equal(left.indptr, right.indptr)
    np.testing.assert_array_equal(left.X, right.X)
    assert (left.y is None) == (right.y is None)
    if left.y is not None:
        np.testing.assert_array_equal(left.y, right.y)


# --- labels of every kind, against pandas --------------------------------------------------------

N = 400
PICK = RNG.integers(0, 23, N)
STRINGS = np.array([f"county {k}" for k in range(23)], object)
DATES = np.datetime64("1999-12-28", "D") + np.arange(23)

LABELS = {
    "dense integers": PICK,
    "sparse integers": PICK * 10**6,
    "negative integers": PICK - 11,
    "huge integers": (PICK - 11) * (2**58 + 1),
    "both ends of the integers": np.where(PICK < 11, -(2**63) + PICK, 2**63 - 1 - PICK),
    "int8": (PICK * 11 - 128).astype(np.int8),
    "uint16": (PICK + 65_000).astype(np.uint16),
    "unsigned beyond int64": PICK.astype(np.uint64) + np.uint64(2**63),
    "strings": STRINGS[PICK].astype(str),
    "string objects": STRINGS[PICK],
    "bytes": STRINGS[PICK].astype("S"),
    "booleans": PICK < 9,
    "floats": PICK / 7 - 1,
    "days": DATES[PICK],
    "nanoseconds": DATES[PICK].astype("M8[ns]") + np.timedelta64(1, "ns"),
    "durations": (PICK - 11).astype("m8[s]"),
    "date objects": DATES[PICK].astype(object),
    "python integers beyond int64": np.array([int(k) * 2**70 for k in PICK], object),
}
VALUES = RNG.normal(3, 2, (N, 2))


@pytest.mark.parametrize("kind", LABELS)
def test_summaries_equal_pandas(kind):
    labels = LABELS[kind]
    summary = Summary.from_rows(VALUES, labels)
    table = pd.DataFrame(VALUES).groupby(pd.Series(labels))
    keys = table.size().index.to_numpy().astype(labels.dtype)  # pandas sorts them too
    assert summary.ids.tolist() == keys.tolist()
    np.testing.assert_array_equal(summary.n, table.size())
    np.testing.assert_allclose(summary.mean, table.mean(), rtol=1e-13)
    np.testing.assert_allclose(
        summary.scatter, table.var(ddof=0).to_numpy() * summary.n[:, None], rtol=1e-12, atol=1e-13
    )


@pytest.mark.parametrize("kind", LABELS)
def test_labels_are_numbered_by_their_sorted_order(kind):
    labels = LABELS[kind]
    ids, codes = number_labels(labels)
    assert codes.dtype == np.int64
    assert ids.tolist() == sorted(set(labels.tolist()))
    assert ids[codes].tolist() == labels.tolist()


@pytest.mark.parametrize("kind", LABELS)
def test_one_group_and_one_row(kind):
    label = LABELS[kind][:1]
    summary = Summary.from_rows([[5.0, -1.0]], label)
    assert summary.ids.tolist() == label.tolist()
    assert summary.n.tolist() == [1]
    assert summary.mean.tolist() == [[5.0, -1.0]]
    assert summary.scatter.tolist() == [[0.0, 0.0]]


def test_a_list_of_large_integers_keeps_its_last_digits():
    # As an array of floats, which NumPy makes of such a list, the first two would be one.
    ids, codes = number_labels([2**63 + 1, 2**63 + 2, 5])
    assert ids.tolist() == [5, 2**63 + 1, 2**63 + 2]
    assert codes.tolist() == [1, 2, 0]


@pytest.mark.parametrize("ordered", [False, True])
def test_categorical_labels_through_tabular(ordered):
    labels = pd.Series(pd.Categorical(STRINGS[PICK], ordered=ordered), name="county")
    table = Rows.read(VALUES, labels)
    assert_same_summary(
        Summary.from_rows(VALUES, table.labels), Summary.from_rows(VALUES, STRINGS[PICK]), VALUES
    )


def test_a_single_column_may_come_flat_and_labels_as_a_column():
    flat = Summary.from_rows(VALUES[:, 0], PICK)
    tall = Summary.from_rows(VALUES[:, :1], PICK[:, None])
    assert_same_summary(flat, tall, VALUES)
    assert flat.n_features == 1


@pytest.mark.parametrize(
    "layout",
    [
        lambda X: np.asfortranarray(X),
        lambda X: np.repeat(X, 2, axis=1)[:, ::2],
        lambda X: X[::-1][::-1],
        lambda X: X.tolist(),
        lambda X: np.frombuffer(X.tobytes()).reshape(X.shape),  # read-only
    ],
    ids=["fortran", "strided", "reversed", "list", "read-only"],
)
def test_the_layout_of_the_rows_does_not_matter(layout):
    expected = Summary.from_rows(VALUES, PICK)
    assert_same_summary(Summary.from_rows(layout(VALUES), PICK), expected, VALUES)


def test_the_labels_may_be_strided():
    twice = np.repeat(PICK, 2)
    assert_same_summary(
        Summary.from_rows(VALUES, twice[::2]), Summary.from_rows(VALUES, PICK), VALUES
    )


def test_no_rows():
    summary = Summary.from_rows(np.empty((0, 3)), [])
    assert len(summary) == 0
    assert summary.n_features == 3
    assert len(Clients.from_rows(np.empty((0, 3)), []).summarise()) == 0


def test_numbering_no_labels():
    ids, codes = number_labels([])
    assert len(ids) == len(codes) == 0


# --- merging -------------------------------------------------------------------------------------


@st.composite
def scattered_rows(draw):
    """Rows of a few groups at some level, dealt out to blocks in any order."""
    n = draw(st.integers(0, 60))
    level = draw(st.sampled_from([0.0, 1.0, -LARGE, LARGE, 1e-8]))
    spread = draw(st.sampled_from([0.0, 1e-6, 1.0, 1e4]))
    noise = draw(st.lists(st.floats(-1, 1), min_size=2 * n, max_size=2 * n))
    values = level + spread * np.array(noise).reshape(n, 2)
    groups = draw(st.lists(st.integers(-3, 4), min_size=n, max_size=n))
    blocks = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    return values, np.array(groups, np.int64), np.array(blocks, np.int64)


KINDS = {
    "int": lambda groups: groups,
    "sparse": lambda groups: groups * 2**50,
    "str": lambda groups: np.array([f"g{k}" for k in groups], "U3"),
    "object": lambda groups: np.array([f"g{k}" for k in groups], object),
    "float": lambda groups: groups / 3,
    "date": lambda groups: groups.astype("M8[D]"),
    "duration": lambda groups: groups.astype("m8[D]"),
    "bytes": lambda groups: np.array([f"g{k}" for k in groups], "S3"),
    "bool": lambda groups: groups > 0,
}


@pytest.mark.parametrize("kind", KINDS)
@given(rows=scattered_rows(), order=st.permutations(range(4)))
@settings(max_examples=25, deadline=None)
def test_merging_summaries_equals_summarising_the_union(kind, rows, order):
    values, groups, blocks = rows
    labels = KINDS[kind](groups)
    merged = Summary.from_rows(np.empty((0, 2)), labels[:0])
    for block in order:
        own = blocks == block
        merged = merged.merge(Summary.from_rows(values[own], labels[own]))
    assert_same_summary(merged, Summary.from_rows(values, labels), values)


@given(scattered_rows(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_the_order_of_rows_does_not_matter(rows, random):
    values, groups, _ = rows
    order = list(range(len(values)))
    random.shuffle(order)
    assert_same_summary(
        Summary.from_rows(values[order], groups[order]), Summary.from_rows(values, groups), values
    )


@pytest.mark.parametrize("n_blocks", [2, 7, 100])
def test_many_rows_of_large_mean_in_many_blocks(n_blocks):
    n = 20_000
    values = LARGE + RNG.normal(0, 1, (n, 1))
    groups = RNG.integers(0, 5, n)
    whole = Summary.from_rows(values, groups)
    blocks = [Summary.from_rows(*pair) for pair in _cut(values, groups, n_blocks)]
    merged = blocks[0]
    for block in blocks[1:]:
        merged = merged.merge(block)
    np.testing.assert_array_equal(merged.n, whole.n)
    np.testing.assert_allclose(merged.mean, whole.mean, rtol=MERGE)
    # as spread is 1 and the mean rounded to 1.5e-8 at every row
    np.testing.assert_allclose(merged.scatter, whole.scatter, rtol=2e-8)
    exact = pd.Series(values[:, 0] - LARGE).groupby(groups).var(ddof=0).to_numpy()
    np.testing.assert_allclose(merged.scatter[:, 0] / merged.n, exact, rtol=2e-8)


def _cut(values, groups, n_blocks):
    edges = np.linspace(0, len(values), n_blocks + 1).astype(int)
    return [(values[start:stop], groups[start:stop]) for start, stop in pairwise(edges)]


def test_merging_with_nothing_changes_nothing():
    some = Summary.from_rows(VALUES, STRINGS[PICK])
    nothing = Summary.from_rows(np.empty((0, 2)), [])
    assert_same_summary(some.merge(nothing), some, VALUES)
    assert_same_summary(nothing.merge(some), some, VALUES)
    assert len(nothing.merge(nothing)) == 0


def test_merging_leaves_its_arguments_alone():
    left, right = Summary.from_rows([1.0], ["a"]), Summary.from_rows([5.0], ["a"])
    assert left.merge(right).mean.tolist() == [[3.0]]
    assert (left.mean.tolist(), left.n.tolist()) == ([[1.0]], [1])
    assert (right.mean.tolist(), right.n.tolist()) == ([[5.0]], [1])


def test_merging_clients_without_rows():
    empty = Summary.from_counts([0, 0], [0, 0], ids=["a", "b"])
    both = empty.merge(Summary.from_rows([1.0, 0.0], ["b", "c"])).merge(empty)
    assert both.ids.tolist() == ["a", "b", "c"]
    assert both.n.tolist() == [0, 1, 1]
    assert both.mean.ravel().tolist() == [0, 1, 0]


def test_integers_and_floats_are_one_kind_of_label():
    both = Summary.from_rows([1.0], [2]).merge(Summary.from_rows([3.0], [2.0]))
    assert both.ids.tolist() == [2]
    assert both.mean.tolist() == [[2.0]]


def test_dates_of_different_resolution_are_one_kind_of_label():
    day = Summary.from_rows([1.0], np.array(["2020-01-01"], "M8[D]"))
    second = Summary.from_rows([3.0], np.array(["2020-01-01T00:00:00"], "M8[s]"))
    assert day.merge(second).n.tolist() == [2]


# --- splitting and joining -----------------------------------------------------------------------


@given(n_clients=st.integers(0, 12), n_blocks=st.integers(1, 20), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_split_and_join_is_the_identity(n_clients, n_blocks, seed):
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(n_clients), rng.integers(1, 4, n_clients)))
    values, y = rng.normal(size=(len(groups), 2)), rng.normal(size=len(groups))
    for clients in (Clients.from_rows(values, groups), Clients.from_rows(values, groups, y)):
        blocks = clients.split(n_blocks)
        assert len(blocks) == max(1, min(n_blocks, n_clients))
        assert max(map(len, blocks)) - min(map(len, blocks)) <= 1
        assert_same_clients(Clients.join(blocks), clients)
        for block in blocks:
            assert block.indptr[0] == 0
            assert block.indptr[-1] == len(block.X)
    summary = Summary.from_rows(values, groups)
    assert_same_summary(Summary.join(summary.split(n_blocks)), summary, values)


@pytest.mark.parametrize("n_blocks", [1, 3, 23, 99])
def test_summarising_blocks_is_summarising_the_whole(n_blocks):
    clients = Clients.from_rows(VALUES, PICK)
    parts = [block.summarise() for block in clients.split(n_blocks)]
    joined, whole = Summary.join(parts), clients.summarise()
    for name in ("ids", "n", "mean", "scatter"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))


def test_no_clients_split_into_one_empty_block():
    nothing = Clients.from_rows(np.empty((0, 2)), [])
    (block,) = nothing.split(4)
    assert_same_clients(block, nothing)


def test_take_by_position_and_by_mask():
    summary = Summary.from_rows([1.0, 2.0, 4.0], ["a", "b", "c"])
    assert summary.take(np.array([2, 0])).ids.tolist() == ["c", "a"]
    assert summary.take(summary.n > 5).mean.shape == (0, 1)


# --- clients -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LABELS)
def test_clients_summarised_equal_rows_summarised(kind):
    labels = LABELS[kind]
    clients = Clients.from_rows(VALUES, labels)
    assert_same_summary(clients.summarise(), Summary.from_rows(VALUES, labels), VALUES)


def test_clients_keep_the_order_of_their_rows():
    y = np.arange(N)
    clients = Clients.from_rows(VALUES, PICK, y)
    for k, label in enumerate(clients.ids):
        own = slice(clients.indptr[k], clients.indptr[k + 1])
        np.testing.assert_array_equal(clients.X[own], VALUES[label == PICK])
        np.testing.assert_array_equal(clients.y[own], y[label == PICK])


def test_y_may_be_labels_of_classes():
    clients = Clients.from_rows([1.0, 2.0, 3.0], ["b", "a", "b"], y=["x", "y", "z"])
    assert clients.y.tolist() == ["y", "x", "z"]


# --- counts --------------------------------------------------------------------------------------


def test_counts_equal_the_rows_they_count():
    trials = RNG.integers(1, 40, 50)
    successes = RNG.binomial(trials, 0.3)
    groups = np.repeat(np.arange(50), trials)
    rows = np.concatenate(
        [np.repeat([1.0, 0.0], [z, n - z]) for z, n in zip(successes, trials, strict=True)]
    )
    counts = Summary.from_counts(successes, trials)
    assert_same_summary(counts, Summary.from_rows(rows, groups), rows)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.float64])
def test_counts_of_any_number_type(dtype):
    counts = Summary.from_counts(np.array([3, 0], dtype), np.array([4, 2], dtype))
    assert counts.mean.ravel().tolist() == [0.75, 0]
    assert counts.scatter.ravel().tolist() == [0.75, 0]
    assert counts.n.dtype == np.int64


def test_counts_come_back_sorted_by_label():
    counts = Summary.from_counts([1, 2, 3], [3, 3, 3], ids=["c", "a", "b"])
    assert counts.ids.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(counts.mean.ravel() * 3, [2, 3, 1])


def test_counts_without_trials_and_without_clients():
    none = Summary.from_counts([0], [0])
    assert (none.n.tolist(), none.mean.tolist(), none.scatter.tolist()) == ([0], [[0]], [[0]])
    assert len(Summary.from_counts([], [])) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1], [2, 3]), "successes and trials must be one-dimensional and of one length"),
        (([[1]], [[2]]), "successes and trials must be one-dimensional"),
        ((1, 2), "successes and trials must be one-dimensional"),
        (([3], [2]), "successes exceed trials, first in row 0"),
        (([-1], [2]), "successes must be whole numbers"),
        (([0], [-2]), "trials must be whole numbers"),
        (([1.5], [2]), "successes must be whole numbers"),
        (([1], [2.5]), "trials must be whole numbers"),
        (([np.nan], [2]), "successes must be whole numbers, none missing"),
        (([1], [np.inf]), "trials must be whole numbers, none missing"),
        (([None], [1]), "successes must be whole numbers, none missing"),
        ((["1"], [1]), "successes must be whole numbers"),
        (([0], [1e300]), "trials must"),  # beyond int64
        (([0], [2**63]), "trials must"),
        (([1, 1], [2, 2], ["a", "a"]), "ids must be all different"),
        (([1, 1], [2, 2], ["a"]), "ids has 1 entries"),
        (([1, 1], [2, 2], ["a", None]), "ids has 1 missing"),
    ],
)
def test_impossible_counts_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Summary.from_counts(*arguments)


# --- what is refused -----------------------------------------------------------------------------

WAYS = {
    "integer labels": (Summary.from_rows, [0, 0, 1]),
    "string labels": (Summary.from_rows, ["a", "a", "b"]),
    "clients": (lambda X, groups: Clients.from_rows(X, groups).summarise(), ["a", "a", "b"]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, None])
def test_values_that_are_not_finite(way, bad):
    summarise, groups = WAYS[way]
    with pytest.raises(ValueError, match=r"X contains NaN or infinity in 1 rows, the first in row"):
        summarise([1.0, bad, 2.0], groups)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("values", [[1.0, 1e308, 2], [1e308, -1e308, 2], [0, 0, -1e308]])
def test_values_whose_squares_overflow(way, values):
    summarise, groups = WAYS[way]
    with pytest.raises(ValueError, match="X holds a value too large"):
        summarise(values, groups)


@pytest.mark.parametrize("make", [Summary.from_rows, Clients.from_rows])
@pytest.mark.parametrize(
    ("X", "groups", "message"),
    [
        ([1.0, 2.0], ["a"], "groups has 1 entries for the 2 rows of X"),
        ([1.0], [0, 1], "groups has 2 entries for the 1 rows of X"),
        ([], [0], "groups has 1 entries for the 0 rows of X"),
        (np.zeros((2, 2, 2)), [0, 1], r"X must have one row per observation; .* \(2, 2, 2\)"),
        (3.0, [0], "X must have one row per observation"),
        (["one", "two"], [0, 1], "X"),
        ([1.0, 2.0], np.zeros((2, 2)), r"groups must be one label per row.* \(2, 2\)"),
        ([1.0, 2.0], [("a", 1), ("b", 2)], "groups must be one label per row"),
        ([1.0, 2.0], None, "groups must be one label per row"),
        ([1.0, 2.0], "ab", "groups must be one label per row"),
        ([1.0, 2.0], 7, "groups must be one label per row"),
    ],
)
def test_shapes_that_do_not_fit(make, X, groups, message):
    with pytest.raises(ValueError, match=message):
        make(X, groups)


def test_y_of_another_length():
    with pytest.raises(ValueError, match="y has 1 entries for the 2 rows of X"):
        Clients.from_rows([1.0, 2.0], [0, 1], y=[1])


MISSING = {
    "None": ["a", None, "b"],
    "NaN among strings": ["a", float("nan"), "b"],
    "NaN among numbers": [1.0, np.nan, 2.0],
    "infinity": [1.0, np.inf, 2.0],
    "NaT": np.array(["2020-01-01", "NaT", "2020-01-02"], "M8[D]"),
    "NaT of durations": np.array([1, "NaT", 2], "m8[s]"),
    "None in an array": np.array(["a", None, "b"], object),
    "NaN in an array of objects": np.array(["a", np.nan, "b"], object),
    "NA of pandas": pd.array([1, None, 2], dtype="Int64"),
    "NaT among objects": [dt.datetime(2020, 1, 1), pd.NaT, dt.datetime(2020, 1, 2)],
}


@pytest.mark.parametrize("make", [Summary.from_rows, Clients.from_rows])
@pytest.mark.parametrize("kind", MISSING)
def test_labels_that_are_missing(make, kind):
    with pytest.raises(ValueError, match=r"groups has 1 missing or infinite labels.* in row 1;"):
        make([1.0, 2.0, 3.0], MISSING[kind])


MIXED = {
    "in an array": np.array(["a", 1, "b"], object),
    "in a list": ["a", 1, "b"],
    "with a boolean": ["a", True, "b"],
    "with a date": np.array(["a", dt.date(2020, 1, 1), "b"], object),
}


@pytest.mark.parametrize("make", [Summary.from_rows, Clients.from_rows])
@pytest.mark.parametrize("kind", MIXED)
def test_labels_of_mixed_types(make, kind):
    with pytest.raises(TypeError, match="groups mixes labels that cannot be sorted together"):
        make([1.0, 2.0, 3.0], MIXED[kind])


def test_complex_labels():
    with pytest.raises(TypeError, match="groups must be labels that can be sorted"):
        Summary.from_rows([1.0, 2.0], [1j, 2])


def test_errors_name_the_labels_as_the_caller_does():
    with pytest.raises(ValueError, match=r"^county has 1 missing"):
        check_labels([1.0, np.nan], "county")
    with pytest.raises(TypeError, match=r"^county mixes"):
        number_labels(np.array([1, "a"], object), "county")


def test_merging_summaries_of_different_columns():
    one, two = Summary.from_rows([1.0], [0]), Summary.from_rows([[1.0, 2.0]], [0])
    with pytest.raises(ValueError, match="a summary of 2 columns with one of 1"):
        one.merge(two)
    with pytest.raises(ValueError, match="a summary of 1 columns with one of 2"):
        two.merge(one)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (["a"], [1]),
        ([1.5], ["a"]),
        (np.array(["2020"], "M8[D]"), [1]),
        (np.array([1], "m8[D]"), np.array(["2020"], "M8[D]")),
        ([True], ["a"]),
        (np.array(["a"], "S1"), [1]),
    ],
)
def test_merging_summaries_of_different_labels(left, right):
    with pytest.raises(TypeError, match=r"labels have type .* where earlier ones had type"):
        Summary.from_rows([1.0], left).merge(Summary.from_rows([1.0], right))


def test_merging_objects_that_cannot_be_sorted_together():
    numbers, strings = np.array([2**70], object), np.array(["a"], object)
    with pytest.raises(TypeError, match="groups mixes labels that cannot be sorted together"):
        Summary.from_rows([1.0], numbers).merge(Summary.from_rows([1.0], strings))


# --- figures that no rows have -------------------------------------------------------------------


def summary_of(**figures):
    given = {"ids": ["a", "b"], "n": [2, 3], "mean": [[1.0], [2.0]], "scatter": [[0.5], [0.5]]}
    return Summary(**given | figures)


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"scatter": [[0.5], [-1.0]]}, "scatter of a summary must be 0 or more; client 'b' has"),
        ({"scatter": [[np.nan], [1.0]]}, "scatter of a summary must be 0 or more; client 'a' has"),
        ({"scatter": [[np.inf], [1.0]]}, "scatter of a summary must be 0 or more; client 'a' has"),
        ({"mean": [[1.0], [np.nan]]}, "mean of a summary must be finite, 0 where a client has no"),
        ({"mean": [[1.0], [np.inf]]}, "mean of a summary must be finite"),
        ({"n": [2, -1]}, "n of a summary must be 0 or more; client 'b' has -1"),
        ({"weight": [1.0, -1.0]}, "weight of a summary must be 0 or more"),
        ({"mean": np.array([[1], [2]], "m8[s]")}, "mean of a summary must be numbers"),
        ({"scatter": [[True], [False]]}, "scatter of a summary must be numbers"),
        ({"mean": [1.0, 2.0]}, r"a summary of 2 clients must have n of shape \(2,\)"),
        ({"mean": [[1.0]]}, r"they have shapes \(2,\), \(1, 1\)"),
    ],
)
def test_impossible_figures_are_refused(figures, message):
    with pytest.raises((ValueError, TypeError), match=message):
        summary_of(**figures)


def test_summaries_of_lists_are_summaries_of_arrays():
    np.testing.assert_array_equal(summary_of().merge(summary_of()).mean, [[1.0], [2.0]])
    crossed = summary_of(mean=np.zeros((2, 2)), scatter=[[[1, -1], [-1, 1]]] * 2)
    assert crossed.scatter.shape == (2, 2, 2)


@pytest.mark.parametrize("value", [0.1, 3.0, 1e9 + 0.1])
def test_equal_rows_with_weights_have_no_scatter(value):
    """Rounding of their weighted mean was taken for scatter; rows of weight 0 do not count."""
    weight = np.random.default_rng(0).uniform(0.1, 5.0, 60)
    weight[::6] = 0.0
    rows = np.where(weight > 0, value, 7.0)
    summary = Summary.from_rows(rows, np.repeat(np.arange(10), 6), weight)
    assert (summary.mean == value).all()
    assert (summary.scatter == 0).all()
