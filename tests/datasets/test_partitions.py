import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebfed.datasets import (
    choose_opted_out,
    partition_classes,
    partition_dirichlet,
    partition_single_class,
)

# the digits of MNIST, training and test
TRAINING = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def labels(sizes, seed=0):
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


Y, Y_TEST = labels(TRAINING), labels(TEST)


def table(groups, y, n_clients):
    """Rows of each client (down) and class (across), without those nobody gets."""
    counts = np.zeros((n_clients, max(y) + 1), dtype=int)
    np.add.at(counts, (groups[groups >= 0], y[groups >= 0]), 1)
    return counts


def check_held(counts, classes):
    """Clients have rows of their own classes only."""
    held = np.zeros_like(counts, dtype=bool)
    np.put_along_axis(held, classes, True, axis=1)
    assert np.all(counts[~held] == 0)


# --- a few classes each --------------------------------------------------------------------------


@pytest.mark.parametrize(("n_clients", "k"), [(50, 3), (7, 4), (3, 1), (20, 10)])
def test_every_class_is_held_equally_often_and_dealt_evenly(n_clients, k):
    groups, classes = partition_classes(Y, n_clients, k, random_state=0)
    assert classes.shape == (n_clients, k)
    assert np.all(np.diff(classes, axis=1) > 0)
    holders = np.bincount(classes.ravel(), minlength=10)
    assert np.ptp(holders) <= 1
    counts = table(groups, Y, n_clients)
    check_held(counts, classes)
    for digit in range(10):
        if holders[digit]:
            of_holders = counts[(classes == digit).any(axis=1), digit]
            assert np.ptp(of_holders) <= 1
            assert of_holders.sum() == TRAINING[digit]
        else:
            assert np.all(groups[digit == Y] == -1)


@pytest.mark.parametrize(("rows", "k"), [(100, 3), (31, 4), (1, 3), (0, 2)])
def test_a_number_of_rows_is_taken_evenly_from_the_classes(rows, k):
    groups, classes = partition_classes(Y, 50, k, rows_per_client=rows, random_state=1)
    counts = table(groups, Y, 50)
    check_held(counts, classes)
    assert np.all(counts.sum(axis=1) == rows)
    assert np.all(np.ptp(np.take_along_axis(counts, classes, axis=1), axis=1) <= 1)
    assert np.sum(groups == -1) == 60_000 - 50 * rows


@pytest.mark.parametrize(("n_clients", "k"), [(16, 8), (64, 8), (50, 3)])
def test_equal_clients_get_all_rows(n_clients, k):
    rows = np.random.default_rng(2).permutation(60_000)[:10_000]
    groups, classes = partition_classes(
        Y[rows], n_clients, k, rows_per_client="equal", random_state=3
    )
    counts = table(groups, Y[rows], n_clients)
    check_held(counts, classes)
    assert counts.sum() == 10_000
    assert np.ptp(counts.sum(axis=1)) <= 1
    # each class is nearly as frequent as the others of a client
    of_held = np.take_along_axis(counts, classes, axis=1)
    assert of_held.min() > 0.7 * 10_000 / n_clients / k
    assert of_held.max() < 1.3 * 10_000 / n_clients / k


def test_equal_deals_are_exact_where_classes_are():
    y = np.repeat(np.arange(10), 80)
    groups, classes = partition_classes(y, 10, 8, rows_per_client="equal", random_state=0)
    counts = table(groups, y, 10)
    assert np.all(np.take_along_axis(counts, classes, axis=1) == 10)


def test_equal_deals_that_cannot_be_had_are_refused():
    with pytest.raises(ValueError, match='"equal" is impossible with 20 clients of 1 classes'):
        partition_classes(Y, 20, 1, rows_per_client="equal", random_state=0)
    with pytest.raises(ValueError, match="without a client"):
        partition_classes(Y, 2, 3, rows_per_client="equal", random_state=0)


@pytest.mark.parametrize("rows", [None, "equal", 150])
def test_test_rows_are_dealt_like_training_rows(rows):
    _, classes = partition_classes(Y, 50, 3, rows_per_client="equal", random_state=0)
    groups, same = partition_classes(
        Y_TEST, 50, 3, rows_per_client=rows, classes=classes, random_state=1
    )
    np.testing.assert_array_equal(same, classes)
    counts = table(groups, Y_TEST, 50)
    check_held(counts, classes)
    assert counts.sum(axis=1).min() >= 150


def test_labels_of_any_kind_will_do():
    y = np.array(["shoe", "bag", "coat", "bag", "shoe", "coat", "bag", "shoe"])
    groups, classes = partition_classes(y, 3, 2, random_state=0)
    for client in range(3):
        assert set(y[groups == client]) == set(classes[client])
    again, _ = partition_classes(y, 3, 2, classes=classes[:, ::-1], random_state=0)
    assert np.all(np.isin(y[again == 0], classes[0]))


def test_which_rows_a_client_gets_is_random():
    y = np.zeros(12, dtype=int)
    first = [partition_classes(y, 4, 1, random_state=seed)[0][0] for seed in range(800)]
    # each client gets row 0 with probability 1/4; five standard deviations, false alarm 2e-6
    assert np.all(np.abs(np.bincount(first, minlength=4) - 200) < 5 * np.sqrt(800 * 3 / 16))


def test_who_holds_a_class_is_random():
    held = [partition_classes(np.arange(10), 7, 3, random_state=seed)[1] for seed in range(800)]
    often = np.array([np.bincount(classes[2], minlength=10) for classes in held]).sum(axis=0)
    # client 2 holds each class with probability 3/10; five standard deviations, false alarm 6e-6
    assert np.all(np.abs(often - 240) < 5 * np.sqrt(800 * 0.3 * 0.7))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], 3, 1), "y must be a label for each row"),
        (([[0, 1]], 3, 1), r"got an array of shape \(1, 2\)"),
        (([0, 1], 0, 1), "n_clients must be an integer, 1 or more; got 0"),
        (([0, 1], 2.0, 1), "n_clients must be an integer, 1 or more; got 2.0"),
        (([0, 1], 2, 0), "classes_per_client must be an integer, 1 or more"),
        (([0, 1], 2, 3), "classes_per_client must be at most the 2 classes of y; got 3"),
    ],
)
def test_bad_numbers_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        partition_classes(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows_per_client": "all"}, "a number of rows, \"equal\" or None; got 'all'"),
        ({"rows_per_client": -1}, "rows_per_client must be an integer, 0 or more"),
        ({"rows_per_client": 2.5}, "rows_per_client must be an integer, 0 or more"),
        ({"rows_per_client": 9}, r"Class \d has 4 rows, and rows_per_client=9 for 2 clients takes"),
        ({"classes": [[0, 1]]}, r"classes must have the shape \(2, 2\)"),
        ({"classes": [[0, 1], [0, 3]]}, "classes must be labels of y; 3 is not among them"),
        ({"classes": [[0, 1], [1, 1]]}, "classes of one client must differ"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        partition_classes(np.repeat([0, 1, 2], 4), 2, 2, **options)


# --- one class each ------------------------------------------------------------------------------


def test_two_thousand_clients_hold_thirty_images_of_one_digit():
    groups, classes = partition_single_class(Y, 2000, rows_per_client=30, random_state=0)
    counts = table(groups, Y, 2000)
    check_held(counts, classes)
    rows, clients = np.unique(counts.sum(axis=1), return_counts=True)
    assert rows.tolist() == [29, 30]  # 5,421 fives, say, do not divide by 30
    assert clients[1] > 1900
    np.testing.assert_allclose(np.bincount(classes[:, 0]), np.array(TRAINING) / 30, atol=1)
    test_groups, _ = partition_classes(Y_TEST, 2000, 1, classes=classes, random_state=0)
    check_held(table(test_groups, Y_TEST, 2000), classes)
    assert np.bincount(test_groups).min() >= 4


@settings(max_examples=100)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(0, 40), st.integers(0, 2**32)
)
def test_all_rows_go_to_single_class_clients(sizes, more, seed):
    y = labels(sizes, seed)
    n_clients = len(sizes) + more
    groups, classes = partition_single_class(y, n_clients, random_state=seed)
    counts = table(groups, y, n_clients)
    check_held(counts, classes)
    assert counts.sum() == len(y)
    assert set(classes.ravel()) == set(range(len(sizes)))  # every class has a client


def test_too_few_rows_for_single_class_clients_are_refused():
    y = np.repeat([0, 1], [90, 10])
    with pytest.raises(ValueError, match="rows_per_client must be at most 11 for 2 clients"):
        partition_single_class(y, 2, rows_per_client=50)
    groups, _ = partition_single_class(y, 2, rows_per_client=11)
    assert sorted(np.bincount(groups[groups >= 0])) == [10, 11]
    with pytest.raises(ValueError, match="n_clients must be at least the 2 classes of y; got 1"):
        partition_single_class(y, 1)
    with pytest.raises(ValueError, match="rows_per_client must be an integer, 1 or more"):
        partition_single_class(y, 2, rows_per_client=0)


# --- Dirichlet shares ----------------------------------------------------------------------------


@pytest.mark.parametrize("concentration", [0.05, 1.0, 100.0])
def test_dirichlet_deals_follow_the_shares(concentration):
    groups, shares = partition_dirichlet(Y, 40, concentration, min_rows=0, random_state=0)
    np.testing.assert_allclose(shares.sum(axis=0), 1)
    # both ends of what is cut for a client are rounded
    np.testing.assert_allclose(table(groups, Y, 40), shares * TRAINING, atol=1)
    assert np.all(groups >= 0)


def test_dirichlet_shares_have_the_variance_of_their_concentration():
    m, a = 10, 0.5
    y = np.arange(2000)  # so many independent columns
    shares = partition_dirichlet(y, m, a, min_rows=0, random_state=0)[1]
    expected = (1 / m) * (1 - 1 / m) / (m * a + 1)
    # the error of the mean of s² over columns: five of its standard errors, false alarm 6e-7
    squares = (shares - 1 / m) ** 2
    error = squares.mean(axis=0).std() / np.sqrt(2000)
    assert squares.mean() == pytest.approx(expected, abs=5 * error)


def test_everyone_gets_the_fewest_rows_asked_for():
    plain, shares = partition_dirichlet(Y, 1000, 0.05, min_rows=0, random_state=0)
    groups, same = partition_dirichlet(Y, 1000, 0.05, min_rows=20, random_state=0)
    np.testing.assert_array_equal(same, shares)
    before, after = np.bincount(plain, minlength=1000), np.bincount(groups, minlength=1000)
    assert before.min() < 20
    assert after.min() == 20
    assert np.all(after[before < 20] == 20)  # the poor get no more than that
    assert np.sum(groups != plain) == np.maximum(20 - before, 0).sum()
    exactly = partition_dirichlet(Y[:3000], 1000, 0.05, min_rows=3, random_state=0)[0]
    assert np.all(np.bincount(exactly) == 3)


def test_dirichlet_test_rows_are_dealt_like_training_rows():
    shares = partition_dirichlet(Y, 30, 0.3, random_state=0)[1]
    groups, same = partition_dirichlet(Y_TEST, 30, 0.3, min_rows=0, shares=shares, random_state=1)
    np.testing.assert_array_equal(same, shares)
    np.testing.assert_allclose(table(groups, Y_TEST, 30), shares * TEST, atol=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clients": 0}, "n_clients must be an integer, 1 or more"),
        ({"concentration": 0}, "concentration must be a finite number above 0, such as 0.5; got 0"),
        ({"concentration": np.inf}, "concentration must be a finite number above 0"),
        ({"concentration": np.nan}, "concentration must be a finite number above 0"),
        ({"min_rows": -1}, "min_rows must be an integer, 0 or more; got -1"),
        ({"min_rows": 4}, "min_rows=4 for 3 clients are more than the 10 rows of y"),
        ({"shares": [[1, 0]]}, r"shares must have the shape \(3, 2\)"),
        ({"shares": [[0.5, 1]] * 3}, "shares must be 0 or more and add up to 1"),
        ({"shares": [[2, 1], [-1, 0], [0, 0]]}, "shares must be 0 or more and add up to 1"),
    ],
)
def test_bad_dirichlet_arguments_are_refused(options, message):
    arguments = {"n_clients": 3, "concentration": 1.0, **options}
    with pytest.raises(ValueError, match=message):
        partition_dirichlet(np.repeat([0, 1], 5), **arguments)


# --- seeds, and rows for an estimator ------------------------------------------------------------


DEALS = [
    lambda seed: partition_classes(Y, 30, 3, random_state=seed),
    lambda seed: partition_classes(Y, 30, 3, rows_per_client="equal", random_state=seed),
    lambda seed: partition_classes(Y, 30, 3, rows_per_client=50, random_state=seed),
    lambda seed: partition_single_class(Y, 30, random_state=seed),
    lambda seed: partition_dirichlet(Y, 30, 0.1, min_rows=100, random_state=seed),
]


@pytest.mark.parametrize("deal", DEALS)
def test_a_seed_fixes_the_deal(deal):
    first, again, other = deal(7), deal(np.random.default_rng(7)), deal(8)
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert np.any(first[0] != other[0])
    assert np.any(first[1] != other[1])
    assert first[0].dtype == np.int64
    assert first[0].shape == Y.shape


# --- opting out ----------------------------------------------------------------------------------


def test_opted_out_clients_are_as_many_as_asked_for():
    classes = partition_single_class(Y, 2000, rows_per_client=30, random_state=0)[1]
    anyone = choose_opted_out(classes, 0.05, random_state=0)
    sevens = choose_opted_out(classes, 0.05, skewed_to=7, random_state=0)
    assert anyone.dtype == bool
    assert anyone.sum() == sevens.sum() == 100
    assert len(set(classes[anyone, 0])) > 5
    assert set(classes[sevens, 0]) == {7}
    np.testing.assert_array_equal(anyone, choose_opted_out(classes, 0.05, random_state=0))
    assert np.any(anyone != choose_opted_out(classes, 0.05, random_state=1))


def test_those_who_hold_a_class_among_others_may_opt_out():
    classes = np.array([[0, 1], [1, 2], [0, 2], [2, 3]])
    assert choose_opted_out(classes, 0.5, skewed_to=1).tolist() == [True, True, False, False]
    assert choose_opted_out(classes, 0).sum() == 0
    assert choose_opted_out(classes, 1).all()


def test_every_client_opts_out_alike():
    chosen = sum(choose_opted_out(np.arange(10), 0.3, random_state=seed) for seed in range(800))
    # probability 3/10 each; five standard deviations, false alarm 6e-6
    assert np.all(np.abs(chosen - 240) < 5 * np.sqrt(800 * 0.3 * 0.7))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], 0.5), "client_classes must have a row for each client"),
        ((np.zeros((2, 2, 2)), 0.5), r"got an array of shape \(2, 2, 2\)"),
        (([0, 1], 1.5), r"share must be in \[0, 1\], such as 0.05; got 1.5"),
        (([0, 1], np.nan), r"share must be in \[0, 1\]"),
        (([0, 1], -0.1), r"share must be in \[0, 1\]"),
    ],
)
def test_bad_arguments_of_opting_out_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        choose_opted_out(*arguments)


def test_too_few_holders_are_refused():
    with pytest.raises(ValueError, match=r"2 clients are to opt out, and 1 hold the class 7.*0.25"):
        choose_opted_out([7, 1, 2, 3], 0.5, skewed_to=7)
