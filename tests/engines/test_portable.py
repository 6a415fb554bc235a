"""Files of fits: labels and types, what is refused, and the layout that other programs read."""

import datetime as dt
import json
import pickle
from decimal import Decimal
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed.engines.portable import VERSION
from ebfed.families import Gaussian
from ebfed.report.view import view_of

RNG = np.random.default_rng(2)
VALUES = np.repeat([0.0, 1.0, 4.0], 4) + RNG.normal(size=12)
FEATURES = RNG.normal(size=(12, 1))


def repeated(labels):
    array = np.empty(12, object)
    for i in range(12):  # a tuple is one label
        array[i] = labels[i // 4]
    return array


def again(fit, path):
    fit.save(path / "fit.json")
    return eb.load_fit(path / "fit.json")


LABELS = {
    "text": np.repeat(["ä", 'quoted "b"', "名前"], 4),
    "objects": repeated(["a", "b\n", "c"]),
    "integers": np.repeat([3, 10**15, -4], 4),
    "unsigned": np.repeat(np.array([1, 2**64 - 1, 5], np.uint64), 4),
    "large": repeated([1, 2**70, 5]),
    "floats": np.repeat([0.1, 1e300, -0.25], 4),
    "booleans": np.repeat([True, False, True], 4),
    "tuples": repeated([("a", 1), ("a", 2), ("b", 0)]),
    "dates": repeated([dt.date(2020, 1, 1), dt.date(1900, 5, 1), dt.date(2024, 2, 29)]),
    "times": pd.Series(
        np.repeat(pd.to_datetime(["2020-01-01 12:00", "2021-01-01 01:00", "2022-01-01 02:00"]), 4)
    ),
    "zoned": pd.Series(
        np.repeat(pd.to_datetime(["2020-06-01", "2021-06-01", "2022-06-01"]), 4)
    ).dt.tz_localize("Europe/Berlin"),
    "spans": np.repeat(np.array([1, 5, 9], "m8[h]"), 4),
    "pairs with times": repeated(
        [
            ("a", dt.datetime(2020, 1, 1, 12)),
            ("a", dt.datetime(2021, 1, 1)),
            ("b", dt.datetime(2000, 1, 1)),
        ]
    ),
    "category": pd.Series(np.repeat(["x", "z", "y"], 4), dtype="category"),
    "ordered": pd.Series(np.repeat(["low", "mid", "high"], 4)).astype(
        pd.CategoricalDtype(["low", "mid", "high", "top"], ordered=True)
    ),
    "bands": pd.Series(pd.cut(np.repeat([1.0, 2.0, 3.0], 4), [0, 1.5, 2.5, 9])),
    "bands of days": pd.Series(
        pd.cut(np.repeat(pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01"]), 4), 3)
    ),
    "zoned category": pd.Series(
        np.repeat(pd.to_datetime(["2020-06-01", "2021-06-01", "2022-06-01"]), 4)
    )
    .dt.tz_localize("Europe/Berlin")
    .astype("category"),
    "quarters": pd.Series(np.repeat(pd.period_range("2020Q1", periods=3, freq="Q"), 4)),
    "spans of pandas": repeated([pd.Timedelta("1h"), pd.Timedelta("90s"), pd.Timedelta("3D")]),
    "decimals": repeated([Decimal("1.10"), Decimal(2), Decimal("0.3")]),
    "identifiers": repeated([UUID(int=5), UUID(int=1), UUID(int=2**100)]),
    "nullable": pd.Series(np.repeat([1, 2, 3], 4), dtype="Int64", name="unit"),
    "polars": pl.Series("unit", np.repeat(["x", "z", "y"], 4)),
    "polars enum": pl.Series("unit", np.repeat(["x", "z", "y"], 4), dtype=pl.Enum(["z", "y", "x"])),
    "polars dates": pl.Series("unit", [dt.date(2020 + i // 4, 1, 1) for i in range(12)]),
    "polars times": pl.Series(
        "unit", [dt.datetime(2020 + i // 4, 1, 1, tzinfo=dt.UTC) for i in range(12)]
    ),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("wing", ["location", "regression"])
def test_labels_keep_their_types(kind, wing, tmp_path):
    labels = LABELS[kind]
    if wing == "location":
        fit = eb.GaussianEB().fit(VALUES, groups=labels)
    else:
        fit = eb.LinearEB().fit(FEATURES, VALUES, groups=labels)
    read = again(fit, tmp_path)
    assert read.groups_.dtype == fit.groups_.dtype
    assert [*map(type, read.groups_.tolist())] == [*map(type, fit.groups_.tolist())]
    np.testing.assert_array_equal(read.groups_, fit.groups_)
    found, expected = read.posterior().to_frame(), fit.posterior().to_frame()
    assert type(found) is type(expected)
    if isinstance(expected, pl.DataFrame):
        assert found.equals(expected)
        assert found.schema == expected.schema
    else:
        pd.testing.assert_frame_equal(found, expected, check_exact=True)
    rows = (VALUES,) if wing == "location" else (FEATURES,)
    np.testing.assert_array_equal(
        read.predict(*rows, groups=labels), fit.predict(*rows, groups=labels)
    )


def test_names_of_columns_come_back(tmp_path):
    table = pd.DataFrame({"g": LABELS["text"], "x": FEATURES[:, 0], "y": VALUES})
    table["age"] = np.repeat([1.0, 5.0, 2.0], 4)
    means, on_age = table[["g", "y"]], {"groups": "g", "covariates": ["age"]}
    fits = {
        "g y": eb.GaussianEB().fit(means, groups="g"),
        "g y age": eb.GaussianEB().fit(table[["g", "y", "age"]], **on_age),
        "g x": eb.LinearEB().fit(table[["g", "x", "y"]], "y", groups="g"),
        "g x age": eb.LinearEB(varying=["intercept"]).fit(table, "y", **on_age),
    }
    for names, fit in fits.items():
        rows, read = table[names.split()], again(fit, tmp_path)
        assert read.feature_names_in_.tolist() == fit.feature_names_in_.tolist()
        np.testing.assert_array_equal(read.predict(rows), fit.predict(rows), err_msg=names)
        without = eb.load_fit(_saved(fit, tmp_path, groups=False))
        assert np.isfinite(without.predict(rows)).all()


@pytest.mark.parametrize("kind", ["bands", "times", "zoned", "quarters", "decimals"])
def test_categories_of_formulas_come_back(kind, tmp_path):
    """Each is a factor here, whose levels are as the frame has them."""
    rows = pd.DataFrame({"k": LABELS[kind], "y": VALUES, "g": np.arange(12) % 3})
    fit = eb.from_formula("y ~ C(k) + (1 | g)", rows)
    read = again(fit, tmp_path)
    np.testing.assert_array_equal(read.predict(rows[::-1]), fit.predict(rows[::-1]))


def _saved(fit, folder, **options):
    fit.save(folder / "fit.json", **options)
    return folder / "fit.json"


def test_output_that_was_set_comes_back(tmp_path):
    fit = eb.GaussianEB().set_output(transform="polars").fit(VALUES, groups=LABELS["text"])
    assert isinstance(again(fit, tmp_path).posterior().to_frame(), pl.DataFrame)


def test_a_fit_goes_on(tmp_path):
    fit = eb.GaussianEB().fit(VALUES, groups=LABELS["text"])
    read = again(fit, tmp_path)
    more = VALUES[:4] + 1, LABELS["text"][:4]
    for each in (fit, read):
        each.partial_fit(more[0], groups=more[1])
    np.testing.assert_array_equal(read.predict(), fit.predict())
    assert pickle.loads(pickle.dumps(read)).prior_.mean_ == fit.prior_.mean_
    alone = eb.load_fit(_saved(fit, tmp_path, groups=False))
    alone.fit(VALUES, groups=LABELS["text"])
    assert view_of(alone).totals is None
    assert alone.glance()["n_groups"][0] == 3


@pytest.mark.parametrize("wing", ["location", "regression"])
def test_the_server_of_a_federation_saves_what_it_has(wing, tmp_path):
    from ebfed.engines.rounds import converse_here

    estimator = eb.GaussianEB() if wing == "location" else eb.LinearEB()
    rows = (VALUES,) if wing == "location" else (FEATURES, VALUES)
    state, _ = converse_here(
        estimator.protocol(), *estimator.protocol().prepare(*rows, groups=LABELS["text"])
    )
    server = (
        clone(estimator).protocol().conclude(state)
    )  # with the messages, as after the last round
    for groups in (True, False):
        read = eb.load_fit(_saved(server, tmp_path, groups=groups))
        pd.testing.assert_frame_equal(read.glance(), server.glance(), check_exact=True)
        found, expected = (each.predict(*rows[:1], groups=["new"] * 12) for each in (read, server))
        np.testing.assert_array_equal(found, expected)
        assert view_of(read).is_server
    expected = clone(estimator).fit(*rows, groups=LABELS["text"]).log_likelihood_
    assert server.log_likelihood_ == expected == read.log_likelihood_


def test_seeds_and_engines(tmp_path):
    mixture = eb.MixtureEB(2, random_state=7, engine=eb.engines.Local())
    read = again(mixture.fit(VALUES, groups=LABELS["text"]), tmp_path)
    assert (read.random_state, read.engine) == (7, None)
    mixture.set_params(random_state=np.random.default_rng(7))
    assert again(mixture, tmp_path).random_state is None


# What is refused ---------------------------------------------------------------------------------


@pytest.fixture
def fit():
    return eb.GaussianEB().fit(VALUES, groups=LABELS["text"])


class Doubled(eb.channels.Exact):
    """A channel of a user."""


class Means(eb.GaussianEB):
    """An estimator of a user."""


@pytest.mark.parametrize(
    "estimator", [eb.GaussianEB(channel=Doubled()), Means()], ids=["channel", "estimator"]
)
def test_classes_of_users_are_not_written(estimator, tmp_path):
    fit = estimator.fit(VALUES, groups=LABELS["text"])
    with pytest.raises(TypeError, match=r"(Doubled|Means) is a class of .*only classes of ebfed"):
        fit.save(tmp_path / "fit.json")
    assert not list(tmp_path.iterdir())


def test_arguments_and_labels_without_a_form_are_named(tmp_path):
    fit = eb.GaussianEB(variances=pd.Series([1.0])).fit(VALUES, groups=LABELS["text"])
    with pytest.raises(TypeError, match=r"variances.* is of type Series"):
        fit.save(tmp_path / "fit.json")
    labels = repeated([b"a", b"b", b"c"])
    with pytest.raises(TypeError, match=r"'ids'.* is of type bytes.* Make labels"):
        eb.GaussianEB().fit(VALUES, groups=labels).save(tmp_path / "fit.json")


def test_unfitted_estimators_and_nodes_are_refused(fit, tmp_path):
    from sklearn.exceptions import NotFittedError

    for estimator in (eb.GaussianEB(), eb.LinearEB()):
        with pytest.raises(NotFittedError):
            estimator.save(tmp_path / "fit.json")
    with pytest.raises(TypeError, match="groups must be True or False"):
        fit.save(tmp_path / "fit.json", groups=["a"])
    node = clone(fit)
    node._intake = fit._intake
    node.n_features_in_ = 1
    node.protocol().finish(fit.protocol().broadcast(fit._kept), fit._learned.memory, fit.summaries_)
    with pytest.raises(ValueError, match="the copy of a node"):
        node.save(tmp_path / "fit.json")


def test_files_that_are_cut_are_refused_and_name_themselves(fit, tmp_path):
    fit.save(tmp_path / "fit.json")
    content = (tmp_path / "fit.json").read_bytes()
    for length in {0, 1, 50, *range(0, len(content) - 2, 97)}:
        (tmp_path / "torn.json").write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"torn.json' is not a whole file of a fit"):
            eb.load_fit(tmp_path / "torn.json")
    with pytest.raises(FileNotFoundError):
        eb.load_fit(tmp_path / "none.json")


@pytest.mark.parametrize(
    "content", [b"", b"\x80\x04K\x01.", b"a,b\n1,2\n", b"[1]", b"{}", b"3", b"null"]
)
def test_files_of_something_else_are_refused(content, tmp_path):
    (tmp_path / "other.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"other.json' is no"):
        eb.load_fit(tmp_path / "other.json")


def change(path, *keys, to):
    tree = json.loads(path.read_text())
    part = tree
    for key in keys[:-1]:
        part = part[key]
    if to is KeyError:
        del part[keys[-1]]
    else:
        part[keys[-1]] = to
    path.write_text(json.dumps(tree))


ARRAY = {"array": ["<f8", [1], [1.0]]}


@pytest.mark.parametrize(
    ("keys", "to", "message"),
    [
        (("version",), VERSION + 1, "read it with a newer one"),
        (("version",), "1", "has no version that can be read; got '1'"),
        (("version",), True, "has no version"),
        (("format",), "other", "is no file of a fit"),
        (("population",), KeyError, "it has no 'population'"),
        (("population", "prior"), KeyError, "damaged"),
        (("population", "prior"), 3, "damaged"),
        (("estimator",), "os.system", "class 'os.system' is not one that a fit is made of"),
        (("estimator",), "engines.Dask", "class 'engines.Dask' is not one"),
        (("estimator",), "channels.Exact", "'channels.Exact' is no estimator"),
        (("estimator",), ["location.GaussianEB"], "is not one that a fit is made of"),
        (("estimator",), "location.LocationEstimator", "is not one that a fit is made of"),
        (("arguments", "channel"), {"object": "subprocess.Popen", "arguments": {}}, "Popen"),
        (("arguments", "other"), 1, "damaged"),
        (("groups", "figures", "object"), "tables.Factors", "damaged"),
        (("groups", "figures", "arguments", "n"), ARRAY, "damaged"),
        (("groups", "memory", "turn"), ARRAY, "turn has 1 entries for 3 groups"),
        (("columns", "style", "dtype"), "open('/etc/passwd')", "is no type of labels"),
        (("columns", "style", "dtype"), "().__class__", "is no type of labels"),
    ],
)
def test_files_that_were_changed_are_refused(keys, to, message, fit, tmp_path):
    fit.save(tmp_path / "fit.json")
    change(tmp_path / "fit.json", *keys, to=to)
    with pytest.raises(ValueError, match=message) as caught:
        eb.load_fit(tmp_path / "fit.json")
    assert "fit.json" in str(caught.value)


def test_a_newer_version_is_named_where_its_numbers_cannot_be_read(fit, tmp_path):
    fit.save(tmp_path / "fit.json")
    change(tmp_path / "fit.json", "version", to=VERSION + 1)
    change(tmp_path / "fit.json", "size", to={"array": "in a new way"})
    with pytest.raises(ValueError, match="read it with a newer one"):
        eb.load_fit(tmp_path / "fit.json")


@pytest.mark.parametrize("ends", [[0, 4, 8, 10**9], [0, 8, 4, 12], [-4, 4, 8, 12], [0, 4, 8]])
def test_rows_that_do_not_belong_to_groups_are_refused(ends, tmp_path):
    y = np.tile(["no", "yes"], 6)
    fit = eb.LogisticEB().fit(FEATURES, y, groups=LABELS["integers"])
    fit.save(tmp_path / "fit.json")
    array = {"array": ["<i8", [len(ends)], ends]}
    change(tmp_path / "fit.json", "groups", "figures", "arguments", "indptr", to=array)
    with pytest.raises(ValueError, match="rows do not belong to the groups"):
        eb.load_fit(tmp_path / "fit.json")


def test_a_file_is_replaced_as_a_whole(fit, tmp_path):
    fit.save(tmp_path / "fit.json")
    before = (tmp_path / "fit.json").read_bytes()
    fit.set_params(variances=pd.Series([1.0]))
    with pytest.raises(TypeError):
        fit.save(tmp_path / "fit.json")
    assert (tmp_path / "fit.json").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_many_groups_come_back(tmp_path):
    m = 20_000
    summary = Gaussian().summarise(RNG.normal(size=(4 * m, 1)), np.repeat(np.arange(m), 4))
    fit = eb.GaussianEB(1.0).fit(summary)
    np.testing.assert_array_equal(again(fit, tmp_path).predict(), fit.predict())


# The layout, which other programs read -----------------------------------------------------------

NUMBER = (int, float)
# Parts of a file, each with its type, or with its parts.
LAYOUT = {
    "format": str,
    "version": int,
    "estimator": str,
    "arguments": dict,
    "population": {
        "round": int,
        "done": bool,
        "n_features": int,
        "columns": str,
        "covariate_names": str,
        "n_clients": int,
        "prior": {"mean_": "<f8", "variance_": "<f8", "notes_": list, "n_parameters_": int},
    },
    "size": {"groups": int, "rows": int},
    "columns": {"style": {"backend": str, "group": str}, "covariate_names": list},
    "formula": type(None),
    "ledger": list,
    "simulated": bool,
    "groups": {
        "figures": {
            "object": str,
            "arguments": {"ids": object, "n": "<i8", "mean": "<f8", "scatter": "<f8"},
        },
        "memory": {"turn": "|i1", "consent": "|i1"},
    },
}


def check_layout(part, layout, place="file"):
    if isinstance(layout, dict):
        assert isinstance(part, dict), place
        for name, inner in layout.items():
            assert name in part, f"{place} has no {name}"
            check_layout(part[name], inner, f"{place}.{name}")
    elif isinstance(layout, str):
        assert part.keys() == {"array"}, place
        kind, shape, values = part["array"]
        assert kind == layout, place
        assert len(values) == np.prod(shape, dtype=int), place
        assert all(type(value) in (*NUMBER, str) for value in values), place
    else:
        assert isinstance(part, layout), place


FITS = {
    "GaussianEB": lambda: eb.GaussianEB().fit(VALUES, groups=LABELS["text"]),
    "BernoulliEB": lambda: eb.BernoulliEB().fit(VALUES > 1, groups=LABELS["integers"]),
    "PoissonEB": lambda: eb.PoissonEB().fit(
        RNG.poisson(np.repeat([1.0, 4.0, 9.0], 4)),
        groups=LABELS["objects"],
        exposure=RNG.uniform(1, 2, 12),
    ),
}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.filterwarnings("ignore::ebfed.priors.IdentificationWarning")
def test_other_programs_recompute_the_estimates(name, tmp_path):
    """By the layout alone, and the steps of `vignettes/read_fit.R`."""
    fit = FITS[name]()
    fit.save(tmp_path / "fit.json")
    text = (tmp_path / "fit.json").read_text("ascii")
    assert len(text.splitlines()) == 2 + len(LAYOUT)
    tree = json.loads(text, parse_constant=pytest.fail)
    check_layout(tree, LAYOUT)
    assert list(tree) == list(LAYOUT)
    assert tree["estimator"] == f"location.{name}"
    prior, figures = tree["population"]["prior"], tree["groups"]["figures"]["arguments"]
    size = figures["weight"] or figures["n"]
    size, mean = np.array(size["array"][2]), np.array(figures["mean"]["array"][2])

    def learned(attribute):
        return prior[attribute]["array"][2][0]

    m, total = learned("mean_"), size * mean
    if name == "GaussianEB":
        noise, spread = learned("noise_variance_"), learned("variance_")
        estimate = (m * noise + spread * total) / (noise + spread * size)
    elif name == "BernoulliEB":
        weight = 1 / learned("dispersion_")
        estimate = (m * weight + total) / (weight + size)
    else:
        shape = 1 / learned("dispersion_")
        estimate = m * (shape + total) / (shape + m * size)
    np.testing.assert_allclose(estimate, fit.predict(), rtol=1e-12)  # another order of products


def test_a_layout_that_lacks_something_is_found(tmp_path):
    FITS["GaussianEB"]().save(tmp_path / "fit.json", groups=False)
    with pytest.raises(AssertionError, match=r"file\.groups"):
        check_layout(json.loads((tmp_path / "fit.json").read_text()), LAYOUT)


def test_a_script_of_r_reads_files(tmp_path):
    import shutil
    import subprocess
    from pathlib import Path

    script = Path(__file__).parents[2] / "vignettes" / "read_fit.R"
    text = script.read_text()
    for name in ("format", "version", *("population", "groups", "figures", "arguments")):
        assert f"${name}" in text
    r = shutil.which("Rscript")
    if r is None or subprocess.run([r, "-e", "library(jsonlite)"], check=False).returncode:
        pytest.skip("needs R with jsonlite")
    for make in FITS.values():
        fit = make()
        fit.save(tmp_path / "fit.json")
        call = [r, script, tmp_path / "fit.json"]
        lines = subprocess.run(call, capture_output=True, text=True, check=True).stdout.split("\n")
        found = [float(line.split()[-1]) for line in lines[1:] if line]
        np.testing.assert_allclose(found, fit.predict(), rtol=1e-12)
