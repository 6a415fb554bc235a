"""Groups that were not in a fit: asked for by name, or as the labels of rows."""

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.tables.unseen import warn_of_blanks, warn_of_mistyped, warn_of_unseen

pytestmark = pytest.mark.filterwarnings("error::ebfed.UnseenGroupWarning")

STATES = np.array(["Iowa", "Minnesota", "New York"])
RNG = np.random.default_rng(5)
LABELS = np.repeat(STATES, 8)
X = RNG.normal(size=24)
Y = X + np.repeat([0.0, 1.0, 2.0], 8) + RNG.normal(size=24)
ROWS = pd.DataFrame({"state": LABELS, "x": X, "y": Y})
NUMBERED = np.repeat([19, 27, 36], 8)


@pytest.mark.parametrize(
    ("asked", "known", "message"),
    [
        (
            ["Minesota"],
            STATES,
            r"1 of the 1 group .*: 'Minesota' \(is it 'Minnesota'\?\)",
        ),
        (["Iowa", "Ohio"], STATES, "1 of the 2 groups asked for was not in the fit .*: 'Ohio'.$"),
        (["new york ", "Iowa"], STATES, r"'new york ' \(is it 'New York'\?\)"),
        ([27, 28], np.array([19, 27]), "1 of the 2 groups .*: 28.$"),
        (["27"], np.array([19, 27]), r"'27' \(is it 27\?\)"),
        ([27.0, 1.5], np.array(["19", "27"]), r"2 of the 2 .* 27.0 \(is it '27'\?\), 1.5.$"),
        (list("abcde"), STATES, "5 of the 5 groups .* were .* and get .*: 'a', 'b', 'c', ….$"),
    ],
)
def test_groups_asked_for_by_name(asked, known, message):
    with pytest.warns(eb.UnseenGroupWarning, match=message):
        warn_of_unseen(np.array(asked), known)


@pytest.mark.parametrize(
    ("asked", "known"),
    [(STATES[:2], STATES), ([], STATES), ([27.0], np.array([19, 27])), ([19], np.array([19.0]))],
)
def test_groups_of_the_fit_give_no_warning(asked, known):
    warn_of_unseen(np.array(asked), known)
    warn_of_mistyped(np.array(asked), known)


@pytest.mark.parametrize(
    ("asked", "known", "message"),
    [
        (["iowa", "Ohio"], STATES, r"1 of the groups of these rows was .*: 'iowa' \(is it 'Iowa'"),
        (["NewYork", " Iowa"], STATES, "2 of the groups of these rows were .* They get the pop"),
        (["27"], np.array([19, 27]), r"'27' \(is it 27\?\)"),
        ([27], np.array(["27"]), r"27 \(is it '27'\?\)"),
    ],
)
def test_labels_of_rows_that_are_nearly_those_of_the_fit(asked, known, message):
    with pytest.warns(eb.UnseenGroupWarning, match=message):
        warn_of_mistyped(np.array(asked), known)


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        (["Ohio", "Minesota"], STATES),
        (["c081", "c082"], np.array(["c079", "c080"])),
        ([28], np.array([19, 27])),
    ],
)
def test_rows_of_new_groups_give_no_warning(asked, known):
    warn_of_mistyped(np.array(asked), known)


BY_NAME = {
    "posterior of means": lambda g: eb.GaussianEB().fit(Y, groups=LABELS).posterior(groups=g),
    "predict of means": lambda g: eb.GaussianEB().fit(Y, groups=LABELS).predict(groups=g),
    "posterior of coefficients": lambda g: (
        eb.LinearEB().fit(X[:, None], Y, groups=LABELS).posterior(groups=g)
    ),
    "posterior of a formula": lambda g: eb.from_formula("y | state", ROWS).posterior(groups=g),
}
OF_ROWS = {
    "coefficients": lambda rows: (
        eb.LinearEB()
        .fit(X[:, None], Y, groups=LABELS)
        .predict(rows[["x"]].to_numpy(), groups=rows["state"])
    ),
    "a formula of means": lambda rows: eb.from_formula("y | state", ROWS).predict(rows),
    "a formula of coefficients": lambda rows: eb.from_formula("y ~ x + (1 | state)", ROWS).predict(
        rows
    ),
    "a learner": lambda rows: (
        eb.learning.FedAvg(eb.models.Linear(), n_rounds=1)
        .fit(X[:, None], Y, groups=LABELS)
        .predict(rows[["x"]].to_numpy(), groups=rows["state"])
    ),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_estimators_warn_of_names(name):
    """Once, at the line that asked; the posterior is that of the population."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        BY_NAME[name](["Iowa", "Minesota"])
    (only,) = (each for each in caught if each.category is eb.UnseenGroupWarning)
    assert "'Minesota' (is it 'Minnesota'?)" in str(only.message)
    assert only.filename == __file__
    BY_NAME[name](["Iowa", "Minnesota"])


@pytest.mark.parametrize("name", OF_ROWS)
def test_estimators_warn_of_labels_of_rows(name):
    OF_ROWS[name](ROWS.replace({"state": {"Minnesota": "Ohio"}}))
    with pytest.warns(eb.UnseenGroupWarning, match="'minnesota' .is it 'Minnesota'"):
        OF_ROWS[name](ROWS.replace({"state": {"Minnesota": "minnesota"}}))


FITS = {
    "means": lambda g: eb.GaussianEB().fit(SPACED["y"], groups=g),
    "regression": lambda g: eb.LinearEB().fit(SPACED[["x"]], SPACED["y"], groups=g),
    "crossed": lambda g: eb.CrossedEB().fit(SPACED[["x"]], SPACED["y"], groups=[g, SPACED["d"]]),
    "formula": lambda g: eb.from_formula("y ~ x + (1 | g)", SPACED.assign(g=g)),
}
DRAWN = np.random.default_rng(5).normal(size=(40, 2))
SPACED = pd.DataFrame({"x": DRAWN[:, 0], "y": DRAWN[:, 1], "d": np.arange(40) % 5})
PLACES = np.repeat(["a", "b", "c", "d"], 10).astype(object)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("stray", ["a ", " a", "a\xa0"])
def test_labels_that_differ_by_white_space_are_noted(fit, stray):
    labels = PLACES.copy()
    labels[:3] = stray
    with pytest.warns(UserWarning, match="labels that differ by white space alone"):
        FITS[fit](labels)


def test_blanks_within_labels_give_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_blanks(np.array(["New  York", "Paris ", "of London"], object))
        warn_of_blanks(np.array([1, 2]))


@pytest.mark.filterwarnings("default::ebfed.UnseenGroupWarning")
def test_labels_of_levels_of_another_type_are_warned_of():
    rows = ROWS.assign(region=np.repeat(["n", "s"], 12), town=np.tile([1, 2, 3, 4], 6))
    text = rows.assign(town=rows["town"].astype(str))
    by_formula = eb.from_formula("y ~ x + (1 | region/town)", rows)
    groups = [rows["region"], rows["town"]]
    fit = eb.LinearEB(varying=["intercept"]).fit(rows[["x"]], rows["y"], groups=groups)
    for act in (
        lambda: by_formula.predict(text),
        lambda: fit.predict(rows[["x"]], groups=[text["region"], text["town"]]),
    ):
        with pytest.warns(eb.UnseenGroupWarning, match=r"\('n', '1'\) \(is it \('n', 1\)\?\)"):
            found = act()
        assert len(found) == 24
    blank = rows.assign(region=rows["region"].where(rows.index != 3, "n "))
    with pytest.warns(UserWarning, match="labels that differ by white space alone"):
        eb.from_formula("y ~ x + (1 | region/town)", blank)


def test_numbers_of_decimal_are_labels_of_numbers():
    rows = ROWS.assign(state=NUMBERED)
    fit = eb.from_formula("y ~ x + (1 | state)", rows)
    found = fit.predict(rows.assign(state=[Decimal(each) for each in NUMBERED.tolist()]))
    np.testing.assert_array_equal(found, fit.predict(rows))
