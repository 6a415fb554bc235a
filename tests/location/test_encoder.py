"""Target encoding: what the estimates are, that nothing leaks, and scikit-learn's machinery."""

import pickle
import warnings

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import ebfed as eb

RNG = np.random.default_rng(5)
M = 60
CODES = np.repeat(np.arange(M), RNG.integers(1, 30, M))
RNG.shuffle(CODES)
N = len(CODES)
EFFECTS = RNG.normal(0, 1.0, M)
VALUES = 10 + EFFECTS[CODES] + RNG.normal(0, 1.5, N)
CHOICES = (RNG.random(N) < 1 / (1 + np.exp(-EFFECTS[CODES]))).astype(int)
COUNTS = RNG.poisson(np.exp(0.5 * EFFECTS[CODES]))
TARGETS = {"continuous": VALUES, "binary": CHOICES, "count": COUNTS}
ESTIMATORS = {"continuous": eb.GaussianEB, "binary": eb.BernoulliEB, "count": eb.PoissonEB}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("encoder", [eb.GroupEncoder(), eb.GroupEncoder("continuous")], ids=repr)
def test_scikit_learn(encoder):
    check_estimator(encoder)


@pytest.mark.parametrize("kind", TARGETS)
def test_estimates_are_those_of_the_estimators(kind):
    """Posterior means under the fitted population, taken as known."""
    encoder = eb.GroupEncoder(kind).fit(CODES[:, None], TARGETS[kind])
    estimator = ESTIMATORS[kind]().fit(TARGETS[kind], groups=CODES)
    expected = estimator.posterior(integrate=False).mean[:, 0]
    found = encoder.transform(np.arange(M)[:, None])[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    unseen = encoder.transform([[-7]])[0, 0]
    assert unseen == pytest.approx(estimator.prior_.mean_[0], rel=1e-8)


@pytest.mark.parametrize("kind", TARGETS)
def test_a_fold_is_encoded_by_the_others(kind):
    """Sums of the other folds give what a fit to their rows does, to the digits of the search."""
    X, y, folds = CODES[:, None], TARGETS[kind], KFold(4, shuffle=True, random_state=0)
    crossed = eb.GroupEncoder(kind, cv=folds).fit_transform(X, y)
    for train, test in folds.split(X):
        alone = eb.GroupEncoder(kind).fit(X[train], y[train])
        np.testing.assert_allclose(crossed[test], alone.transform(X[test]), rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"levels": [(0, 1)]}], ids=["flat", "nested"])
def test_nothing_leaks_from_a_row_to_itself(options):
    """Moving the target of one fold moves no encoding of its rows."""
    X = np.column_stack([CODES % 7, CODES])
    folds = KFold(5, shuffle=True, random_state=1)
    _, test = next(folds.split(X))
    moved = VALUES.copy()
    moved[test] = RNG.normal(0, 100, len(test))
    encoder = eb.GroupEncoder("continuous", cv=folds, **options)
    first, second = encoder.fit_transform(X, VALUES), encoder.fit_transform(X, moved)
    # where the search begins depends on all rows, and so do its last digits
    np.testing.assert_allclose(first[test], second[test], rtol=1e-3)
    others = np.setdiff1d(np.arange(N), test)
    assert np.abs(first[others] - second[others]).max() > 1


def test_noise_is_not_learned():
    """A category for each pair of rows and a target of noise: nothing to encode."""
    rng = np.random.default_rng(0)
    X, y = np.repeat(np.arange(2000), 2)[:, None], rng.normal(size=4000)
    inside = eb.GroupEncoder("continuous", random_state=0).fit_transform(X, y)
    model = LinearRegression().fit(inside, y)
    assert model.score(inside, y) < 0.005  # five standard errors of R**2 at 4,000 rows


def test_singletons_are_the_mean():
    X, y = np.arange(50)[:, None], RNG.normal(3, 1, 50)
    encoder = eb.GroupEncoder("continuous").fit(X, y)
    np.testing.assert_allclose(encoder.transform(X), y.mean())


def test_rows_that_are_alike_are_themselves():
    X, y = np.repeat([0, 1, 2], 4)[:, None], np.repeat([1.0, 2.0, 4.0], 4)
    encoder = eb.GroupEncoder("continuous").fit(X, y)
    np.testing.assert_allclose(encoder.transform(X)[:, 0], y)


def test_a_mean_far_from_zero_costs_no_digits():
    X = CODES[:, None]
    near, far = (
        eb.GroupEncoder("continuous", random_state=0).fit_transform(X, VALUES + shift)
        for shift in (0.0, 1e8)
    )
    np.testing.assert_allclose(far - 1e8, near, atol=1e-5)


# Frames and categories ------------------------------------------------------------------------

NAMES = np.array([f"c{code}" for code in CODES], dtype=object)


@pytest.mark.parametrize(
    "X",
    [
        NAMES[:, None],
        [[name] for name in NAMES],
        NAMES.astype("U")[:, None],
        pd.DataFrame({"x": NAMES}),
        pd.DataFrame({"x": NAMES}).astype("category"),
        pl.DataFrame({"x": NAMES.astype("U")}),
        pl.DataFrame({"x": NAMES.astype("U")}, schema={"x": pl.Categorical}),
        pd.DataFrame({"x": pd.to_datetime("2024-01-01") + pd.to_timedelta(CODES, "D")}),
        CODES[:, None].astype(float),
    ],
    ids=["object", "list", "U", "pandas", "category", "polars", "Categorical", "dates", "floats"],
)
def test_kinds_of_categories(X):
    encoder = eb.GroupEncoder("continuous", random_state=0)
    expected = encoder.fit_transform(CODES[:, None], VALUES)
    # sums follow the order of categories, which is their own for a category of pandas
    np.testing.assert_allclose(encoder.fit_transform(X, VALUES), expected, rtol=1e-12)
    whole = eb.GroupEncoder("continuous").fit(CODES[:, None], VALUES).transform(CODES[:, None])
    np.testing.assert_allclose(encoder.fit(X, VALUES).transform(X), whole, rtol=1e-12)


def test_integers_are_found_among_floats():
    """A column of integers with a missing value is one of floats to pandas."""
    encoder = eb.GroupEncoder("continuous").fit(pd.DataFrame({"x": CODES}), VALUES)
    found = encoder.transform(pd.DataFrame({"x": [3.0, np.nan]}))
    np.testing.assert_array_equal(found[0], encoder.transform(pd.DataFrame({"x": [3]}))[0])
    np.testing.assert_array_equal(found[1], encoder.transform(pd.DataFrame({"x": [-1]}))[0])


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_missing_values_are_a_category(missing):
    X = pd.DataFrame({"x": np.where(CODES == 3, missing, NAMES)})
    encoder = eb.GroupEncoder("continuous", random_state=0)
    expected = encoder.fit_transform(NAMES[:, None], VALUES)
    np.testing.assert_allclose(encoder.fit_transform(X, VALUES), expected, rtol=1e-12)
    own = encoder.transform(pd.DataFrame({"x": [None]}))
    np.testing.assert_array_equal(own, encoder.transform(X[CODES == 3])[:1])
    assert encoder.tidy()["category"].isna().sum() == 1


def test_categories_without_rows_are_unseen():
    X = pd.DataFrame({"x": pd.Categorical(NAMES, [*dict.fromkeys(NAMES), "never"])})
    encoder = eb.GroupEncoder("continuous").fit(X, VALUES)
    new = encoder.transform(pd.DataFrame({"x": ["never", "other"]}))
    assert new[0] == new[1]


# Targets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (["no", "yes"] * 20, "binary"),
        ([True, False] * 20, "binary"),
        ([0.0, 1.0] * 20, "binary"),
        (["a", "b", "c", "a"] * 10, "multiclass"),
        ([0, 1, 2, 3] * 10, "multiclass"),
        (list(range(40)), "continuous"),
        ([0.5, 1.0, 2.5, 3.0] * 10, "continuous"),
        ([1.0, 2.0, 3.0, 4.0] * 10, "continuous"),
    ],
)
def test_what_a_target_is(y, kind):
    X = np.arange(40)[:, None] // 4
    assert eb.GroupEncoder().fit(X, y).target_type_ == kind


def test_classes_have_columns():
    y = np.array(["low", "middle", "top"])[np.digitize(VALUES, [9.5, 10.5])]
    X = pd.DataFrame({"x": NAMES, "z": CODES % 5})
    encoder = eb.GroupEncoder(random_state=0).set_output(transform="pandas")
    found = encoder.fit_transform(X, y)
    assert list(found) == ["x_low", "x_middle", "x_top", "z_low", "z_middle", "z_top"]
    one = eb.GroupEncoder("binary", random_state=0).fit_transform(X[["z"]], y == "top")
    np.testing.assert_array_equal(found["z_top"], one[:, 0])
    tidy = encoder.tidy()
    assert set(tidy["class"]) == set(y)
    assert len(tidy) == 3 * (M + 5)


def test_the_rate_is_that_of_the_second_class():
    y = np.where(CHOICES == 1, "yes", "no")
    encoder = eb.GroupEncoder(random_state=0)
    expected = encoder.fit_transform(CODES[:, None], CHOICES)
    np.testing.assert_array_equal(encoder.fit_transform(CODES[:, None], y), expected)
    assert encoder.classes_.tolist() == ["no", "yes"]


# Weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["binary", "count"])
def test_frequencies_are_repeated_rows(kind):
    weights, y = RNG.integers(0, 4, N), TARGETS[kind]
    X = CODES[:, None]
    weighted = eb.GroupEncoder(kind).fit(X, y, sample_weight=weights)
    repeated = eb.GroupEncoder(kind).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    at = np.repeat(X, weights, axis=0)
    np.testing.assert_allclose(weighted.transform(at), repeated.transform(at), rtol=1e-8)


def test_precisions_are_those_of_means():
    """A mean of r rows has precision r: with known noise both are the same data."""
    sizes = RNG.integers(1, 5, N)
    ones = eb.GroupEncoder("continuous").fit(CODES[:, None], VALUES, np.full(N, 3.0))
    plain = eb.GroupEncoder("continuous").fit(CODES[:, None], VALUES)
    X = np.arange(M)[:, None]
    np.testing.assert_allclose(ones.transform(X), plain.transform(X), rtol=1e-8)
    tidy = eb.GroupEncoder("continuous").fit(CODES[:, None], VALUES, sizes).tidy()
    own = np.bincount(CODES, sizes * VALUES) / np.bincount(CODES, sizes)
    np.testing.assert_allclose(tidy.set_index("category")["mean"].sort_index(), own)
    a = np.bincount(CODES, sizes)
    shrunk = tidy.set_index("category").sort_index()
    # one k for all: n (mean - estimate) / (estimate - mu) is the same number
    mu = eb.GroupEncoder("continuous").fit(CODES[:, None], VALUES, sizes).transform([[-1]])[0, 0]
    k = a * (shrunk["mean"] - shrunk["estimate"]) / (shrunk["estimate"] - mu)
    np.testing.assert_allclose(k, k.iloc[0], rtol=1e-6)


def test_rows_of_weight_zero_are_no_rows():
    weights = (RNG.random(N) < 0.7).astype(float)
    X, kept = CODES[:, None], weights > 0
    at = X[kept]
    weighted = eb.GroupEncoder("continuous").fit(X, VALUES, weights).transform(at)
    without = eb.GroupEncoder("continuous").fit(at, VALUES[kept]).transform(at)
    np.testing.assert_allclose(weighted, without, rtol=1e-8)


# Columns within columns -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def counties():
    rng = np.random.default_rng(2)
    n_states, per_state = 40, rng.integers(3, 12, 40)
    state = np.repeat(np.arange(n_states), per_state)
    county = np.concatenate([np.arange(each) for each in per_state])
    truth = rng.normal(0, 1.0, n_states)[state] + rng.normal(0, 0.5, len(state))
    rows = np.repeat(np.arange(len(state)), rng.integers(1, 8, len(state)))
    rng.shuffle(rows)
    y = truth[rows] + rng.normal(0, 1.5, len(rows))
    X = pd.DataFrame({"state": state[rows], "county": county[rows]})
    return X, y, truth, pd.DataFrame({"state": state, "county": county})


LEVELS = [("state", "county")]


def test_nested_estimates_are_those_of_the_mixed_model(counties):
    """Generalised least squares and Henderson's estimates at the fitted variances, densely."""
    X, y, _, places = counties
    encoder = eb.GroupEncoder("continuous", levels=LEVELS).fit(X, y)
    ratios = encoder._encodings[0][0].spreads
    state = pd.get_dummies(X["state"]).to_numpy(float)
    county = pd.get_dummies(X["state"] * 100 + X["county"]).to_numpy(float)
    order = np.argsort(np.argsort(places["state"] * 100 + places["county"]))

    def around_mean(upper, lower):
        covariance = np.eye(len(y)) + lower * county @ county.T + upper * state @ state.T
        precision = np.linalg.inv(covariance)
        weight = precision.sum()
        mean = precision.sum(axis=0) @ y / weight
        rest = precision @ (y - mean)
        squares = (len(y) - 1) * np.log((y - mean) @ rest)
        return mean, rest, np.linalg.slogdet(covariance)[1] + np.log(weight) + squares

    mean, rest, best = around_mean(*ratios)
    for step in (1.01, 1 / 1.01):  # restricted likelihood
        assert around_mean(ratios[0] * step, ratios[1])[2] > best
        assert around_mean(ratios[0], ratios[1] * step)[2] > best
    of_state = mean + ratios[0] * state.T @ rest
    expected = of_state[places["state"]]
    of_county = expected + ratios[1] * (county.T @ rest)[order]
    found = encoder.transform(places)
    np.testing.assert_allclose(found, np.column_stack([expected, of_county]), rtol=1e-8)
    new = encoder.transform(pd.DataFrame({"state": [99], "county": [0]}))
    np.testing.assert_allclose(new, mean, rtol=1e-8)


def test_levels_help(counties):
    X, y, truth, places = counties
    flat = pd.DataFrame({"county": X["state"] * 100 + X["county"]})
    at = pd.DataFrame({"county": places["state"] * 100 + places["county"]})
    alone = eb.GroupEncoder("continuous").fit(flat, y).transform(at)[:, 0]
    nested = eb.GroupEncoder("continuous", levels=LEVELS).fit(X, y).transform(places)[:, 1]
    assert ((nested - truth) ** 2).mean() < 0.7 * ((alone - truth) ** 2).mean()


def test_a_new_county_has_the_estimate_of_its_state(counties):
    X, y, *_ = counties
    encoder = eb.GroupEncoder("continuous", levels=LEVELS).fit(X, y)
    found = encoder.transform(pd.DataFrame({"state": [3, 99], "county": [1000, 0]}))
    assert found[0, 0] == found[0, 1]
    assert found[1, 0] == found[1, 1]
    assert found[0, 0] != found[1, 0]
    tidy = encoder.tidy()
    assert tidy["category"].iloc[-1] == tuple(X.drop_duplicates().iloc[-1])
    assert tidy.query("term == 'state'")["n"].sum() == len(X)


def test_levels_of_one_column_are_no_levels():
    X = CODES[:, None]
    plain = eb.GroupEncoder("continuous", random_state=0).fit_transform(X, VALUES)
    chain = eb.GroupEncoder("continuous", random_state=0, levels=[(0,)]).fit_transform(X, VALUES)
    np.testing.assert_array_equal(plain, chain)


def test_three_levels_and_rates(counties):
    X, y, *_ = counties
    X = X.assign(region=X["state"] // 10)[["region", "county", "state"]]
    levels = [("region", "state", "county")]
    encoder = eb.GroupEncoder("binary", levels=levels, random_state=0)
    found = encoder.fit_transform(X, y > 0)
    assert found.shape == (len(X), 3)
    assert ((found >= 0) & (found <= 1)).all()
    spread = found.std(axis=0)
    assert spread[0] < spread[2] < spread[1]  # regions differ by chance alone


# A model of the mean --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def houses():
    rng = np.random.default_rng(3)
    m = 300
    codes = np.repeat(np.arange(m), rng.integers(1, 8, m))
    rng.shuffle(codes)
    income = rng.normal(size=m)
    truth = 2 * income + rng.normal(0, 0.5, m)
    y = truth[codes] + rng.normal(0, 1.0, len(codes))
    X = pd.DataFrame({"street": codes, "income": income[codes]})
    return X, y, truth, pd.DataFrame({"street": np.arange(m), "income": income})


WITH_MODEL = {"mean_model": Ridge(), "covariates": ["income"]}


def test_a_model_of_the_mean_helps(houses):
    X, y, truth, places = houses
    plain = eb.GroupEncoder("continuous").fit(X[["street"]], y).transform(places[["street"]])
    model = eb.GroupEncoder("continuous", **WITH_MODEL, random_state=0).fit(X, y)
    found = model.transform(places)
    assert found.shape == (300, 1)
    assert ((found[:, 0] - truth) ** 2).mean() < 0.5 * ((plain[:, 0] - truth) ** 2).mean()
    (ridge,) = model.mean_models_
    new = pd.DataFrame({"street": [-1], "income": [1.5]})
    assert model.transform(new)[0, 0] == pytest.approx(ridge.predict(new[["income"]])[0], abs=0.1)


def test_a_flexible_model_of_the_mean_leaks_nothing(houses):
    """A tree that learns every row by heart: no encoding moves with the target of its own fold."""
    X, y, *_ = houses
    folds = KFold(4, shuffle=True, random_state=1)
    _, test = next(folds.split(X))
    moved = y.copy()
    moved[test] += np.random.default_rng(0).normal(0, 50, len(test))
    model = HistGradientBoostingRegressor(min_samples_leaf=1, max_iter=20, random_state=0)
    encoder = eb.GroupEncoder("continuous", mean_model=model, covariates=["income"], cv=folds)
    first, second = encoder.fit_transform(X, y), encoder.fit_transform(X, moved)
    np.testing.assert_allclose(first[test], second[test], rtol=1e-3, atol=1e-3)
    noise = np.random.default_rng(1).normal(size=len(y))
    inside = encoder.fit_transform(X, noise)
    assert LinearRegression().fit(inside, noise).score(inside, noise) < 0.02


def test_rates_stay_rates(houses):
    X, y, *_ = houses
    encoder = eb.GroupEncoder("binary", **WITH_MODEL, random_state=0)
    inside = encoder.fit_transform(X, y > 3)
    outside = encoder.transform(X.assign(income=X["income"] * 10))
    for found in (inside, outside):
        assert ((found >= 0) & (found <= 1)).all()


# scikit-learn's machinery ---------------------------------------------------------------------


def test_in_a_pipeline_with_default_arguments():
    X = pd.DataFrame({"x": NAMES, "z": RNG.normal(size=N)})
    columns = make_column_transformer((eb.GroupEncoder(), ["x"]), remainder="passthrough")
    assert cross_val_score(make_pipeline(columns, Ridge()), X, VALUES).mean() > 0.1
    logistic = make_pipeline(columns, LogisticRegression())
    assert cross_val_score(logistic, X, CHOICES, scoring="neg_log_loss").mean() > -0.69


@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_frames_out(output):
    X = pd.DataFrame({"x": NAMES, "z": CODES % 5}, index=np.arange(N) + 7)
    encoder = eb.GroupEncoder("continuous", random_state=0).set_output(transform=output)
    for found in (encoder.fit_transform(X, VALUES), encoder.transform(X)):
        assert list(found.columns) == ["x", "z"]
        if output == "pandas":
            assert found.index.equals(X.index)
    assert encoder.get_feature_names_out().tolist() == ["x", "z"]


def test_names_without_names():
    encoder = eb.GroupEncoder("continuous").fit(np.column_stack([CODES, CODES % 5]), VALUES)
    assert encoder.get_feature_names_out().tolist() == ["x0", "x1"]
    assert encoder.get_feature_names_out(["a", "b"]).tolist() == ["a", "b"]


def test_pickles():
    encoder = eb.GroupEncoder("continuous").fit(NAMES[:, None], VALUES)
    again = pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(
        again.transform(NAMES[:, None]), encoder.transform(NAMES[:, None])
    )


def test_a_seed_fixes_the_folds():
    first, second, other = (
        eb.GroupEncoder("continuous", random_state=seed).fit_transform(CODES[:, None], VALUES)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


# Errors ---------------------------------------------------------------------------------------

X2 = np.column_stack([CODES, CODES % 5])
NAN = np.where(np.arange(N) == 4, np.nan, VALUES)


@pytest.mark.parametrize(
    ("options", "y", "weights", "sentence"),
    [
        ({"target": "ratio"}, VALUES, None, "target must be one of"),
        ({"target": "binary"}, COUNTS, None, "a binary target has two values"),
        ({"target": "count"}, VALUES, None, "whole numbers from 0"),
        ({"target": "continuous"}, NAN, None, "row 4 has nan"),
        ({"target": "continuous"}, VALUES * 1e-300, None, "too small"),
        ({"target": "continuous"}, VALUES * 1e300, None, "finite numbers below"),
        ({"target": "binary"}, np.where(NAN > 9, "a", None), None, "y has a missing value"),
        ({}, VALUES[1:], None, "inconsistent numbers of samples"),
        ({}, VALUES, np.ones(3), "one number per row"),
        ({}, VALUES, -np.ones(N), "0 or more"),
        ({}, VALUES, np.zeros(N), "zero in every row"),
        ({"target": "count"}, COUNTS, np.full(N, 0.5), "whole numbers, the rows"),
        ({"cv": 1}, VALUES, None, "2 or more"),
        ({"cv": ShuffleSplit(3)}, VALUES, None, "each row once"),
        ({"levels": [(0, 5)]}, VALUES, None, "levels names 5"),
        ({"levels": [(0, 1), (1,)]}, VALUES, None, "there only once"),
        ({"covariates": [1]}, VALUES, None, "both mean_model and covariates"),
        ({"covariates": [0, 1], "mean_model": Ridge()}, VALUES, None, "none is left"),
        ({"covariates": [1], "mean_model": Ridge(), "cv": 2}, VALUES, None, "3 folds or more"),
    ],
)
def test_errors_say_what_is_wrong(options, y, weights, sentence):
    with pytest.raises(ValueError, match=sentence):
        eb.GroupEncoder(**options).fit_transform(X2, y, sample_weight=weights)


def test_one_row_cannot_be_cross_fitted():
    with pytest.raises(ValueError, match="two folds"):
        eb.GroupEncoder("continuous").fit_transform([["a"]], [1.0])
    assert eb.GroupEncoder("continuous").fit([["a"]], [1.0]).transform([["b"]]) == 1.0


def test_empty_folds_and_few_rows():
    """More folds than rows: every row is encoded by all others."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = eb.GroupEncoder("continuous", cv=10).fit_transform([["a"], ["a"], ["b"]], [1, 2, 6])
    np.testing.assert_allclose(found[:, 0], [4.0, 3.5, 1.5])


def test_a_splitter_that_needs_groups_is_refused():
    folds = GroupKFold(3)
    with pytest.raises(ValueError, match="groups"):
        eb.GroupEncoder("continuous", cv=folds).fit_transform(X2, VALUES)


@pytest.mark.parametrize("ones", [np.ones(6), np.ones(6, int), np.ones(6, bool)])
def test_ones_alone_are_the_second_class(ones):
    encoder = eb.GroupEncoder(cv=2).fit([["a"], ["b"]] * 3, ones)
    assert encoder.classes_.tolist() == [0, 1]
    assert encoder.transform([["a"]])[0, 0] == 1.0


def test_missing_values_of_the_target_are_named():
    """Without a warning of NumPy."""
    with pytest.raises(ValueError, match="y contains NaN"):
        eb.GroupEncoder().fit([["a"], ["b"]], [1.0, np.nan])


UNFIT = {
    "text": (["a", None, "b", "a"], "y has a missing value, the first in row 1"),
    "text of pandas": (
        pd.array(["a", "b", None, "a"], "string"),
        "missing value, the first in row 2",
    ),
    "categories": (pd.Categorical(["a", "b", "a", None]), "missing value, the first in row 3"),
    "truth": (pd.array([None, True, False, True], "boolean"), "missing value, the first in row 0"),
    "numbers": (pd.array([1, None, 0, 1], "Int64"), "y contains NaN: 1 missing value, .* row 1"),
    "days": (pd.to_datetime(["2024-01-01", None] * 2), "missing value, the first in row 1"),
    "several types": ([1, "a", 1, "a"], "y has labels of several types: int, str"),
}


@pytest.mark.parametrize("target", ["auto", "binary", "multiclass"])
@pytest.mark.parametrize("kind", UNFIT)
def test_targets_that_are_not_one_label_each_are_refused(kind, target):
    y, sentence = UNFIT[kind]
    with pytest.raises(ValueError, match=sentence):
        eb.GroupEncoder(target).fit([["a"], ["b"], ["a"], ["b"]], pd.Series(y, dtype=None))


# --- tables larger than memory -------------------------------------------------------------------

LAZY = {"polars": pl.LazyFrame, "DuckDB": lambda columns: duckdb.from_arrow(pa.table(columns))}


def lazy_rows(n=900):
    rng = np.random.default_rng(4)
    city, street = rng.choice(["Ulm", "Bonn", "Jena"], n), rng.integers(0, 25, n)
    return {
        "city": city,
        "street": street,
        "price": rng.normal(size=25)[street] + 1e3 + rng.normal(size=n),
        "sold": np.where(rng.random(n) < 0.2 + street / 50, "yes", "no"),
        "kind": rng.choice(["a", "b", "c"], n),
        "visits": rng.poisson(2 + street / 20),
        "weight": rng.integers(0, 4, n),
        "row": np.arange(n),
    }


@pytest.mark.parametrize("engine", LAZY)
@pytest.mark.parametrize("levels", [None, [["city", "street"]]])
@pytest.mark.parametrize(
    ("target", "weight", "kind"),
    [
        ("price", None, "auto"),
        ("price", "weight", "auto"),
        ("sold", "weight", "auto"),
        ("kind", None, "auto"),
        ("visits", None, "count"),
        ("street", None, "auto"),
    ],
)
def test_lazy_tables_are_encoded_by_their_engine(engine, levels, target, weight, kind):
    rows = lazy_rows()
    names = ["city", "street"] if target != "street" else ["city", "kind"]
    levels = levels and [names]
    used = {name: rows[name] for name in [*names, target, *([weight] if weight else [])]}
    fitted = eb.GroupEncoder(kind, levels=levels).fit(LAZY[engine](used), target, weight)
    X = pd.DataFrame({name: rows[name] for name in names})
    given = None if weight is None else rows[weight]
    expected = eb.GroupEncoder(kind, levels=levels).fit(X, rows[target], given)
    assert fitted.target_type_ == expected.target_type_
    new = X.copy()
    new.loc[:9, names[0]] = "Kiel"
    new.loc[10:19, names[1]] = 99 if names[1] == "street" else "d"
    wanted = expected.transform(new)
    np.testing.assert_allclose(fitted.transform(new), wanted, rtol=1e-10)
    others = {"row": rows["row"]} | {name: new[name].to_numpy() for name in names}
    found = fitted.transform(LAZY[engine](others))
    found = found.collect() if engine == "polars" else pl.from_arrow(found.to_arrow_table())
    assert found.columns == ["row", *expected.get_feature_names_out()]
    np.testing.assert_allclose(found.sort("row").drop("row").to_numpy(), wanted, rtol=1e-10)


@pytest.mark.parametrize("engine", LAZY)
def test_what_lazy_tables_cannot_encode(engine):
    rows = lazy_rows(60)
    table = LAZY[engine]({name: rows[name] for name in ("city", "price")})
    with pytest.raises(ValueError, match="y must name a column of X"):
        eb.GroupEncoder().fit(table, rows["price"])
    with pytest.raises(ValueError, match="use fit, and transform other rows"):
        eb.GroupEncoder().fit_transform(table, "price")
    with pytest.raises(ValueError, match="must hold counts"):
        eb.GroupEncoder("count").fit(table, "price")
    with pytest.raises(ValueError, match="mean_model= needs the rows"):
        eb.GroupEncoder(mean_model=LinearRegression(), covariates=["price"]).fit(table, "price")
    gaps = LAZY[engine]({"city": ["Ulm", None, "Ulm"], "price": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match="city has 1 missing"):
        eb.GroupEncoder().fit(gaps, "price")
    with pytest.raises(ValueError, match="X has no column 'city'"):
        eb.GroupEncoder().fit(table, "price").transform(LAZY[engine]({"price": [1.0]}))


def test_categories_of_another_type_are_warned_of():
    """Text of digits got the overall mean for numbers, without a word."""
    number = np.repeat(np.arange(30), 4)
    encoder = eb.GroupEncoder(random_state=0).fit(pd.DataFrame({"c": number}), number * 1.0)
    with pytest.warns(eb.UnseenGroupWarning, match=r"'3' \(is it 3\?\)"):
        encoder.transform(pd.DataFrame({"c": ["3", "29"]}))
    encoder.transform(pd.DataFrame({"c": [3, 99]}))  # a new one is no mistake
