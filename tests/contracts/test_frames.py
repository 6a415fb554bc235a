"""Every entry point reads a table alike: its labels are kept, and parts of tables never mixed."""

from decimal import Decimal

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

import ebfed as eb

RNG = np.random.default_rng(17)
M = 320

# Tables of units ----------------------------------------------------------------------------------

UNITS = pd.DataFrame(
    {
        "x": RNG.normal(1, 1, M).round(3),
        "s": RNG.uniform(0.2, 0.6, M).round(3),
        "w": np.arange(M) % 7,
    }
)
TRIALS = pd.DataFrame({"a": RNG.integers(1, 9, M), "n": 20, "c": RNG.integers(1, 9, M), "m": 22})
TABLES = {
    "posterior_from": lambda d: eb.posterior_from(d["x"], d["s"]),
    "covariates": lambda d: eb.posterior_from(d["x"], d["s"], mean=d["w"]),
    "meta_analysis": lambda d: eb.meta_analysis(d["x"], d["s"]),
    "fay_herriot": lambda d: eb.fay_herriot(d["x"], d["s"], d[["w"]]),
    "moderated_t": lambda d: eb.moderated_t(d["x"], d["s"], 4),
    "two_groups": lambda d: eb.two_groups(d["x"] / d["s"]),
}
INDEXES = {
    "shifted": lambda d: d.iloc[2:],
    "steps": lambda d: d.iloc[::3],
    "filtered": lambda d: d[d["w"] != 2] if "w" in d else d[d["a"] > 2],
    "turned": lambda d: d.iloc[::-1],
    "text": lambda d: d.set_index(pd.Index([f"r{i:02d}" for i in range(len(d))])),
    "named": lambda d: d.set_index(pd.RangeIndex(len(d), name="county")),
    "dates": lambda d: d.set_index(pd.date_range("2024-01-01", periods=len(d))),
}
indexes = pytest.mark.parametrize("kind", INDEXES)


@indexes
@pytest.mark.parametrize("entry", TABLES)
def test_units_keep_the_labels_of_an_index(entry, kind):
    data = INDEXES[kind](UNITS)
    found = TABLES[entry](data).to_frame()
    assert found.iloc[:, 0].tolist() == data.index.tolist()
    plain = TABLES[entry](data.reset_index(drop=True)).to_frame()
    for name in plain.select_dtypes("float"):
        np.testing.assert_array_equal(found[name], plain[name])


@indexes
def test_effect_sizes_keep_an_index(kind):
    data = INDEXES[kind](TRIALS)
    counts = [data[name] for name in data]
    found = eb.effect_sizes(*counts)
    pd.testing.assert_index_equal(found.index, data.index)
    arrays = eb.effect_sizes(*(each.to_numpy() for each in counts))
    np.testing.assert_array_equal(found, arrays)
    named = eb.effect_sizes(*counts, labels=data.index.to_series())
    pd.testing.assert_index_equal(named.index, data.index)
    pooled = eb.meta_analysis(found["estimate"], found["std_error"]).to_frame()
    assert pooled.iloc[:, 0].tolist() == data.index.tolist()


# Tables of rows -----------------------------------------------------------------------------------

N = 60
ROWS = pd.DataFrame({"g": np.repeat(list("abcdef"), 10), "x": RNG.normal(size=N).round(3)})
ROWS["y"] = (ROWS["x"] + RNG.normal(size=N) + (ROWS["g"] == "b")).round(3)
ROWS["won"] = (ROWS["y"] > 0).astype(int)
ROWS["count"] = RNG.poisson(3, N)
ROWS["w"] = RNG.integers(1, 4, N)
FITS = {
    "means": (eb.GaussianEB(), {"X": "y", "groups": "g", "sample_weight": "w"}),
    "rates": (eb.BernoulliEB(), {"X": "won", "groups": "g"}),
    "events": (eb.PoissonEB(), {"X": "count", "groups": "g", "exposure": "w"}),
    "linear": (eb.LinearEB(), {"X": ["x"], "y": "y", "groups": "g"}),
    "crossed": (eb.CrossedEB(), {"X": ["x"], "y": "y", "groups": ["g", "w"]}),
    "nested": (eb.LinearEB(), {"X": ["x"], "y": "y", "groups": ["w", "g"]}),
    "counts": (eb.GeneralizedEB("poisson"), {"X": ["x"], "y": "count", "groups": "g"}),
    "learner": (eb.learning.LocalOnly(n_rounds=2), {"X": ["x"], "y": "won", "groups": "g"}),
    "encoder": (eb.GroupEncoder(), {"X": ["g"], "y": "y", "sample_weight": "w"}),
}
every = pytest.mark.parametrize("entry", FITS)


def arguments(entry, data):
    return {name: data[columns] for name, columns in FITS[entry][1].items()}


def figures(entry, given):
    fitted = FITS[entry][0].fit(**given)
    if entry == "encoder":
        return fitted.tidy()["estimate"].to_numpy()
    later = {name: each for name, each in given.items() if name != "y"}
    return np.asarray(fitted.predict(**later), float)


@every
@pytest.mark.parametrize("kind", ["shifted", "filtered", "turned", "text"])
def test_rows_pair_by_label(entry, kind):
    """Each argument in another order than X gives the same figures."""
    data = INDEXES[kind](ROWS)
    given = arguments(entry, data)
    expected = figures(entry, given)
    order = np.random.default_rng(1).permutation(len(data))
    for name in given.keys() - {"X"}:
        found = figures(entry, given | {name: given[name].iloc[order]})
        np.testing.assert_array_equal(found, expected)


@every
def test_rows_of_another_part_are_refused(entry):
    """The first rows of a frame beside the last, or beside rows of a filter."""
    first, last = ROWS.iloc[: N // 2], ROWS.iloc[N // 2 :]
    odd = ROWS[ROWS.index % 2 == 1]
    given = arguments(entry, first)
    for other in (last, odd):
        for name in given.keys() - {"X"}:
            with pytest.raises(ValueError, match=f"the index of .*{name[:5]}.* has other labels"):
                figures(entry, given | {name: arguments(entry, other)[name]})
            with pytest.raises(ValueError, match="has other labels"):
                figures(entry, arguments(entry, other) | {name: given[name]})


# Types of columns ---------------------------------------------------------------------------------

EXACT = ROWS.assign(  # numbers that every type holds, of 16 bits too
    x=RNG.integers(-4, 5, N) / 2,
    y=(RNG.integers(-6, 7, N) + 3 * (ROWS["g"] == "b")) / 2,
    z=RNG.integers(0, 100, N),
    k=np.arange(N) % 6,
    size=20,
)
EXACT["won"] = (EXACT["y"] > 0).astype(int)
WHOLE = ["won", "count", "w", "z", "size"]
NUMBERS = ["x", "y", *WHOLE]


def changed(names, function):
    """Return a function that changes columns of a frame."""
    return lambda data: data.assign(**{name: function(data[name]) for name in names})


def decimals(column):
    return pd.Series([Decimal(str(each)) for each in column.tolist()], column.index, object)


def objects(column):
    """Whole numbers and others beside one another, as of a table with mixed cells."""
    values = [each if i % 2 else float(each) for i, each in enumerate(column.tolist())]
    return pd.Series(values, column.index, object)


def in_polars(data, kind, names):
    return pl.from_pandas(data).with_columns([pl.col(name).cast(kind) for name in names])


def in_arrow(data):
    columns = {name: data[name].tolist() for name in data}
    return pa.table(columns | {name: pa.array(decimals(data[name])) for name in NUMBERS})


ARROW = pd.ArrowDtype(pa.decimal128(10, 3))
TYPES = {
    "object": changed(NUMBERS, objects),
    "Decimal": changed(NUMBERS, decimals),
    "nullable": lambda data: data.convert_dtypes(),
    "arrow": lambda data: data.convert_dtypes(dtype_backend="pyarrow"),
    "arrow decimal": changed(NUMBERS, lambda column: decimals(column).astype(ARROW)),
    "big endian": changed([*NUMBERS, "k"], lambda x: x.astype(x.dtype.newbyteorder(">"))),
    "float16": changed(NUMBERS, lambda column: column.astype("f2")),
    "long double": changed(NUMBERS, lambda column: column.astype(np.longdouble)),
    "int8": changed([*WHOLE, "k"], lambda column: column.astype("i1")),
    "bool": changed(["won"], lambda column: column == 1),
    "object bool": changed(["won"], lambda column: (column == 1).astype(object)),
    "nullable bool": changed(["won"], lambda column: (column == 1).astype("boolean")),
    "categories": changed(["g", "k"], lambda column: column.astype("category")),
    "object labels": changed(["g", "k"], lambda column: column.astype(object)),
    "Decimal labels": changed(["k"], decimals),
    "big endian floats": changed(["k"], lambda column: column.astype(">f8")),
    "polars": lambda data: pl.from_pandas(data),
    "polars decimal": lambda data: in_polars(data, pl.Decimal(10, 3), NUMBERS),
    "polars int8": lambda data: in_polars(data, pl.Int8, WHOLE),
    "polars float32": lambda data: in_polars(data, pl.Float32, NUMBERS),
    "arrow table": in_arrow,
}
MODELS = FITS | {
    "of numbers": (eb.GaussianEB(), {"X": "y", "groups": "k"}),
    "logistic": (eb.LogisticEB(), {"X": ["x"], "y": "won", "groups": "k"}),
    "encoder of numbers": (eb.GroupEncoder(), {"X": ["k"], "y": "won"}),
}
FORMULAS = {
    "y ~ x + (1 + x | g)": {},
    "y ~ x * z + (1 | k)": {"weights": "w"},
    "y ~ 1 + (1 | k)": {},
    "y ~ x + (1 | g) + (1 | w)": {},
    "won ~ x + (1 | g)": {"family": "binomial"},
    "count ~ x + offset(log(w)) + (1 | g)": {"family": "poisson"},
}
UNITS_OF_ROWS = {
    "posterior_from": lambda d: eb.posterior_from(d["y"], d["w"]).to_frame(),
    "meta_analysis": lambda d: eb.meta_analysis(d["y"], d["w"]).to_frame(),
    "fay_herriot": lambda d: eb.fay_herriot(d["y"], d["w"], d["z"]).to_frame(),
    "moderated_t": lambda d: eb.moderated_t(d["y"], d["w"], d["z"]).to_frame(),
    "effect_sizes": lambda d: eb.effect_sizes(d["count"], d["size"], d["w"], d["size"]),
}
types = pytest.mark.parametrize("kind", TYPES)


def chosen(data, columns):
    several = isinstance(columns, list) and not isinstance(data, pd.DataFrame)
    return data.select(columns) if several else data[columns]


def close(found, expected, kind):
    # of estimates in single precision, where such rows are summarised as they are
    tolerance = 1e-5 if "float" in kind else 1e-9
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@types
@pytest.mark.parametrize("entry", MODELS)
def test_estimators_read_numbers_of_any_type(entry, kind):
    estimator, columns = MODELS[entry]

    def figures_of(data):
        given = {name: chosen(data, each) for name, each in columns.items()}
        fitted = clone(estimator).fit(**given)
        if "encoder" in entry:
            return np.sort(fitted.tidy()["estimate"])
        later = {name: each for name, each in given.items() if name != "y"}
        return np.asarray(fitted.predict(**later), float)

    close(figures_of(TYPES[kind](EXACT)), figures_of(EXACT), kind)


@types
@pytest.mark.parametrize("formula", FORMULAS)
def test_formulas_read_numbers_of_any_type(formula, kind):
    def fit_of(data):
        return eb.from_formula(formula, data, **FORMULAS[formula])

    data = TYPES[kind](EXACT)
    found, expected = fit_of(data), fit_of(EXACT)
    if hasattr(expected, "fixef"):
        terms = [np.asarray(each.fixef()["term"]).tolist() for each in (found, expected)]
        assert terms[0] == terms[1]
    close(np.asarray(found.predict(data), float), np.asarray(expected.predict(EXACT), float), kind)


@types
@pytest.mark.parametrize("entry", UNITS_OF_ROWS)
def test_units_read_numbers_of_any_type(entry, kind):
    found = nw.from_native(UNITS_OF_ROWS[entry](TYPES[kind](EXACT)), eager_only=True)
    expected = UNITS_OF_ROWS[entry](EXACT)
    for name in expected.select_dtypes("float"):
        close(found[name].to_numpy(), expected[name], kind)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
@pytest.mark.parametrize("kind", ["object", "Decimal", "nullable", "arrow", "R"])
def test_missing_numbers_are_counted_in_any_type(kind, missing):
    """A formula refuses them or leaves the row out, and an estimator says where they are."""
    if kind == "R":  # the smallest integer, as reticulate passes NA
        data = EXACT.assign(z=EXACT["z"].where(EXACT.index != 4, -(2**31)).astype(np.int32))
    else:
        data = TYPES[kind](EXACT)
        data["z"] = data["z"].astype(object) if kind in ("object", "Decimal") else data["z"]
        data.loc[4, "z"] = missing
    formula = "y ~ z + (1 | k)"
    with pytest.raises(ValueError, match="column 'z' has 1 missing values, the first in row 4"):
        eb.from_formula(formula, data)
    found = eb.from_formula(formula, data, na_action="drop").fixef()
    expected = eb.from_formula(formula, EXACT.drop(index=4)).fixef()
    close(found["estimate"], expected["estimate"], kind)
    with pytest.raises(ValueError, match=r"X contains NaN: .*the first in row 4"):
        eb.LinearEB().fit(data[["z"]], EXACT["y"], groups=EXACT["g"])


def test_objects_of_several_kinds_are_no_numbers():
    mixed = EXACT.assign(x=EXACT["x"].astype(object).where(EXACT.index != 3, "no"))
    with pytest.raises(TypeError, match="column 'x' of X is Object, not numeric"):
        eb.LinearEB().fit(mixed[["x"]], EXACT["y"], groups=EXACT["g"])


@pytest.mark.parametrize("kind", ["nullable", "arrow", "int8", "categories", "polars"])
def test_labels_come_back_in_their_type(kind):
    data = TYPES[kind](EXACT)
    shown = eb.GaussianEB().fit(chosen(data, ["k", "y"]), groups="k").posterior().to_frame()
    assert type(shown) is type(data)
    assert shown["k"].dtype == data["k"].dtype
    assert np.asarray(shown["k"]).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_frame_of_the_functions_for_r():
    """As `vignettes/ebfed.R` makes it: missing values of every type, and levels in their order."""
    codes, lacks = np.tile([0, 1, 0, 1, 1], 8), np.arange(40) == 7
    data = pd.DataFrame(
        {
            "ward": pd.Series(["NA", "a", "b", None] * 10, dtype="object"),
            "visits": pd.arrays.IntegerArray(np.arange(40), lacks),
            "open": pd.arrays.BooleanArray(np.arange(40) % 3 == 0, np.arange(40) == 8),
            "dose": pd.Categorical.from_codes(
                np.where(np.arange(40) == 9, -1, codes), ["lo", "hi"]
            ),
            "score": np.sin(np.arange(40.0)),
        }
    )
    fit = eb.from_formula("score ~ visits + open + dose + (1 | ward)", data, na_action="drop")
    whole = data.drop(index=[i for i in range(40) if i in (7, 8, 9) or i % 4 == 3])
    plain = whole.astype({"visits": int, "open": bool}).assign(dose=whole["dose"] == "hi")
    expected = eb.from_formula("score ~ visits + open + dose + (1 | ward)", plain)
    assert fit.fixef()["term"].tolist() == ["intercept", "visits", "open", "dose[T.hi]"]
    np.testing.assert_allclose(fit.fixef()["estimate"], expected.fixef()["estimate"], rtol=1e-9)
    assert fit.ranef()["ward"].tolist() == ["NA", "a", "b"]


def test_a_missing_label_of_r_is_missing():
    labels = EXACT["k"].to_numpy().astype(np.int32)
    labels[4] = np.iinfo(np.int32).min
    with pytest.raises(ValueError, match=r"groups has 1 missing .*, the first in row 4"):
        eb.GaussianEB().fit(EXACT["y"], groups=labels)
    fit = eb.from_formula("y ~ 1 + (1 | k)", EXACT.assign(k=labels), na_action="drop")
    assert fit.posterior().to_frame()["k"].tolist() == [0, 1, 2, 3, 4, 5]


# Named columns ------------------------------------------------------------------------------------

NAMED = {
    "means": (eb.GaussianEB(), ["y", "g", "w"], {"groups": "g", "sample_weight": "w"}),
    "linear": (eb.LinearEB(), ["x", "y", "g"], {"y": "y", "groups": "g"}),
    "weighted": (
        eb.LinearEB(),
        ["x", "y", "g", "w"],
        {"y": "y", "groups": "g", "sample_weight": "w"},
    ),
    "levels": (eb.LinearEB(), ["x", "y", "g", "w"], {"y": "y", "groups": ["w", "g"]}),
    "noises": (
        eb.LinearEB(),
        ["x", "y", "g", "won"],
        {"y": "y", "groups": "g", "dispersion": "won"},
    ),
    "logistic": (eb.LogisticEB(), ["x", "won", "g"], {"y": "won", "groups": "g"}),
    "counts": (
        eb.GeneralizedEB("poisson"),
        ["x", "count", "g", "w"],
        {"y": "count", "groups": "g", "offset": "w"},
    ),
    "crossed": (eb.CrossedEB(), ["x", "y", "g", "w"], {"y": "y", "groups": ["g", "w"]}),
    "learner": (eb.learning.LocalOnly(n_rounds=2), ["x", "won", "g"], {"y": "won", "groups": "g"}),
}


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
@pytest.mark.parametrize("entry", NAMED)
def test_frames_of_every_library_name_columns(entry, library):
    """Later frames that have the columns of the fit need not name them."""
    estimator, columns, named = NAMED[entry]
    plain, other = ROWS[columns], pl.from_pandas(ROWS[columns])
    other = other.to_arrow() if library == "pyarrow" else other
    found, expected = (
        np.asarray(clone(estimator).fit(data, **named).predict(data), float)
        for data in (other, plain)
    )
    close(found, expected, "exact")


def test_noises_are_of_numbers_whatever_their_type():
    """Of 1 and 1.0 beside one another, and of Decimal, which were levels of their own."""
    kinds = [ROWS["won"], objects(ROWS["won"]), decimals(ROWS["won"])]
    fits = [
        eb.LinearEB().fit(ROWS[["x"]], ROWS["y"], groups=ROWS["g"], dispersion=k) for k in kinds
    ]
    for fit in fits:
        assert fit.noise_variances_ == fits[0].noise_variances_


@pytest.mark.parametrize("formula", ["y ~ x + (1 | g)", "y ~ 1 + (1 | g)"])
@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
def test_a_response_of_categories_is_no_number(formula, library):
    """Also where the categories are numbers, as for estimators."""
    data = ROWS.assign(y=ROWS["y"].astype("category"))
    with pytest.raises(TypeError, match="column 'y' of data is Categorical, not numeric"):
        eb.from_formula(formula, data if library == "pandas" else pa.Table.from_pandas(data))
