"""Results keep the caller's index or labels: per row, per group and per study."""

import numpy as np
import pandas as pd
import pytest

import ebfed as eb

RNG = np.random.default_rng(7)
N = 60
INDEX = pd.Index([f"r{i:02d}" for i in RNG.permutation(N)], name="case")
ROWS = pd.DataFrame({"g": np.repeat(list("abcdef"), 10), "x": RNG.normal(size=N)}, index=INDEX)
ROWS["y"] = ROWS["x"] + RNG.normal(size=N) + (ROWS["g"] == "b")
ROWS["won"] = (ROWS["y"] > 0).astype(int)
ROWS["count"] = RNG.poisson(3, N)
ROWS["s"] = RNG.uniform(0.5, 1, N)
INDEXES = {
    "named text": lambda rows: rows,
    "text": lambda rows: rows.rename_axis(None),
    "numbers": lambda rows: rows.set_axis(RNG.permutation(N) + 100),
    "dates": lambda rows: rows.set_axis(pd.date_range("2024-01-01", periods=N)[::-1]),
    "categories": lambda rows: rows.set_axis(pd.CategoricalIndex(INDEX)),
    "repeated labels": lambda rows: rows.set_axis(np.arange(N) // 2 + 7),
}


def rows_alone(data):
    return eb.GaussianEB(variances=1.0).fit(data["y"])


def locations(data):
    return eb.GaussianEB().fit(data["y"], groups=data["g"])


def linear(data):
    return eb.LinearEB().fit(data[["x"]], data["y"], groups=data["g"])


# Results with the labels of the index in their first column.
LABELLED = {
    "rows without groups": lambda d: rows_alone(d).posterior().to_frame(),
    "later rows without groups": lambda d: (
        rows_alone(ROWS.reset_index()).posterior(d["y"]).to_frame()
    ),
    "rows of a frame": lambda d: eb.GaussianEB(variances=1.0).fit(d[["y"]]).posterior().to_frame(),
    "counts": lambda d: eb.PoissonEB().fit(d["count"], exposure=d["s"]).posterior().to_frame(),
    "posterior_from": lambda d: eb.posterior_from(d["y"], d["s"]).to_frame(),
    "meta_analysis": lambda d: eb.meta_analysis(d["y"], d["s"]).to_frame(),
    "fay_herriot": lambda d: eb.fay_herriot(d["y"], d["s"], d[["x"]]).to_frame(),
    "areas without data": lambda d: eb.fay_herriot(ROWS["y"], ROWS["s"], ROWS[["x"]]).predict(
        d[["x"]]
    ),
    "moderated_t": lambda d: eb.moderated_t(d["y"], d["s"], 4).to_frame(),
}
# Results with the index itself.
INDEXED = {
    "augment of means": lambda d: locations(d).augment(d["y"], groups=d["g"]),
    "augment of rows": lambda d: rows_alone(d).augment(d["y"]),
    "transform": lambda d: (
        locations(d).set_output(transform="pandas").transform(d[["y"]], groups=d["g"])
    ),
    "augment of a regression": lambda d: linear(d).augment(d[["x"]], d["y"], groups=d["g"]),
    "augment of a formula": lambda d: eb.from_formula("y ~ x + (1 | g)", d).augment(),
    "augment with rows left out": lambda d: eb.from_formula(
        "y ~ x + (1 | g)", d.assign(x=d["x"].where(d["x"] > -1)), na_action="exclude"
    ).augment(),
    "encoder": lambda d: (
        eb.GroupEncoder().set_output(transform="pandas").fit_transform(d[["g"]], d["y"])
    ),
    "effect_sizes": lambda d: eb.effect_sizes(d["count"], d["count"] + 9, d["won"], d["count"] + 9),
}
indexes = pytest.mark.parametrize("kind", INDEXES)


@indexes
@pytest.mark.parametrize("entry", LABELLED)
def test_results_are_labelled_by_the_index(entry, kind):
    data = INDEXES[kind](ROWS)
    found = LABELLED[entry](data)
    assert found.iloc[:, 0].tolist() == data.index.tolist()
    if data.index.name is not None:
        assert found.columns[0] == data.index.name
    plain = LABELLED[entry](data.reset_index(drop=True))
    for name in plain.columns[1:]:
        np.testing.assert_array_equal(found[name], plain[name])


@indexes
@pytest.mark.parametrize("entry", INDEXED)
def test_results_have_the_index(entry, kind):
    data = INDEXES[kind](ROWS)
    pd.testing.assert_index_equal(INDEXED[entry](data).index, data.index)


def test_a_saved_fit_of_rows_keeps_their_labels(tmp_path):
    fit = rows_alone(ROWS)
    fit.save(tmp_path / "fit.json")
    found = eb.load_fit(tmp_path / "fit.json").posterior().to_frame()
    assert found["case"].tolist() == INDEX.tolist()
