"""Every entry point reads a table alike: its labels are kept, and parts of tables never mixed."""

import numpy as np
import pandas as pd
import pytest

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
    "covariates": lambda d: eb.posterior_from(d["x"], d["s"], covariates=d["w"]),
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
    "learner": (eb.LocalOnly(n_rounds=2), {"X": ["x"], "y": "won", "groups": "g"}),
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
