"""Nodes that take plans: what a plan may say, and what the owner of a node lets it do."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed.engines.flower import OwnRows, PlannedNode, Rules, plan_of_run
from ebfed.learning import ClientPrivacy, DPFedAvg, FedAvg
from ebfed.loading import METHODS
from ebfed.models import Linear, Softmax
from ebfed.streams import make_key

RNG = np.random.default_rng(4)
TABLE = pd.DataFrame(
    {
        "ward": np.repeat(["01", "02", "x y"], 5),
        "age": RNG.normal(size=15),
        "score": RNG.normal(size=15).round(3),
        "class": np.repeat(["open", "private", "open"], 5),
    }
)
ROWS = {"X": ["score"], "groups": "ward"}
REGRESSION = {"X": ["age"], "y": "score", "groups": "ward"}


@pytest.fixture
def make(tmp_path):
    """Make a node with these rules."""

    def make(rules='epsilon = inf\n[rows]\npath = "rows.csv"\n', table=TABLE):
        table.to_csv(tmp_path / "rows.csv", index=False)
        (tmp_path / "node.toml").write_text(rules)
        return PlannedNode("north", tmp_path, METHODS, seed=1)

    return make


def ask(node, estimator, rows=ROWS, fit=1, **others):
    plan = plan_of_run(estimator, rows) if not isinstance(estimator, dict) else estimator
    return node.answer(0, {"exchange": "roll call", "plan": plan, "fit": fit} | others)


def reason(node, *arguments, **others):
    """The last line of the node's own log, after a refusal."""
    answer = ask(node, *arguments, **others)
    assert answer.keys() == {"name", "failure"}
    assert "score" not in answer["failure"]
    return (node._directory / "errors.log").read_text().strip().splitlines()[-1]


@pytest.mark.parametrize(
    "estimator",
    [
        eb.GaussianEB(channel={"private": eb.channels.Gaussian(1.0, 1e-5, range=(0, 1))}),
        eb.BernoulliEB(prior=eb.priors.Discrete("npmle"), channel=eb.channels.TwoBit(2.0)),
        eb.LinearEB(method="ml", covariance="full"),
        DPFedAvg(Softmax(), privacy=ClientPrivacy(epsilon=3.0, delta=1e-5), classes=[0, 1]),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_a_plan_is_data_that_makes_the_estimator(estimator):
    from ebfed.engines import portable
    from ebfed.wire import pack, unpack

    plan = unpack(pack(plan_of_run(estimator.set_params(random_state=3), ROWS)))
    made = portable.make(plan["method"], METHODS)
    assert type(made) is type(estimator)
    assert repr(made) == repr(clone(estimator).set_params(random_state=None))


def test_facts_are_those_of_the_rows(make):
    facts = ask(make(), eb.LinearEB(), REGRESSION)["facts"]
    here = eb.LinearEB()
    clients, memory = here.protocol().prepare(TABLE[["age"]], TABLE["score"], groups=TABLE["ward"])
    expected = here.protocol().describe(clients, memory)
    for name, values in expected.items():
        np.testing.assert_array_equal(facts[name], values)


def test_rows_are_read_once_in_a_fit(make, monkeypatch):
    node, calls = make(), []
    frame = OwnRows.frame
    monkeypatch.setattr(OwnRows, "frame", lambda *a: calls.append(1) or frame(*a))
    facts = ask(node, FedAvg(Linear(), n_rounds=3), REGRESSION)["facts"]
    server = FedAvg(Linear(), n_rounds=3)
    state = server.protocol().start(facts, make_key(0))
    for _ in range(3):
        more = {
            "sent": server.protocol().broadcast(state),
            "turn": np.zeros(3, np.int8),
            "first": 0,
        }
        found = ask(node, server, REGRESSION, exchange="round", **more)
        state = server.protocol().update(state, found["message"])
    assert len(calls) == 1
    ask(node, server, REGRESSION, fit=2)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"object": "os.system"}, "class 'os.system' is not one that a fit is made of"),
        ({"object": "priors.Normal", "arguments": {}}, "the method is no estimator"),
        ({"arguments": {"checkpoint": "folder"}}, "no argument 'checkpoint'"),
        ({"arguments": {"random_state": 1}}, "no argument 'random_state'"),
        ({"arguments": {"_state": {}}}, "no argument '_state'"),
        ({"arguments": {"nonsense": 1}}, "nonsense"),
    ],
)
def test_methods_that_are_refused(make, changes, what):
    plan = plan_of_run(eb.GaussianEB(), ROWS)
    assert what in reason(make(), plan | {"method": plan["method"] | changes})


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ({"X": ["score"]}, "rows must name columns for 'groups'"),
        ({"X": ["score"], "groups": "ward", "z": "age"}, "rows must name columns"),
        ({"X": [], "groups": "ward"}, "rows['X'] must name a column"),
        ({"X": ["score"], "groups": ["ward"]}, "rows['groups'] must name a column"),
        ({"X": ["weight"], "groups": "ward"}, "weight"),
    ],
)
def test_rows_that_are_refused(make, rows, what):
    plan = plan_of_run(eb.GaussianEB(), ROWS)
    assert what in reason(make(), plan | {"rows": rows})


def test_the_owner_decides(make):
    allowed = 'epsilon = inf\n[rows]\npath = "rows.csv"\ncolumns = ["ward", "score"]\n'
    assert "facts" in ask(make(allowed), eb.GaussianEB())
    assert "columns of node.toml do not have 'age'" in reason(
        make(allowed), eb.LinearEB(), REGRESSION, fit=2
    )
    methods = 'epsilon = inf\nmethods = ["DPFedAvg"]\n[rows]\npath = "rows.csv"\n'
    assert "methods of this node are DPFedAvg" in reason(make(methods), eb.GaussianEB(), fit=3)
    assert "must say where the rows are" in reason(make("epsilon = 1.0\n"), eb.GaussianEB(), fit=4)
    assert "there are no rows" in reason(make(table=TABLE[:0]), eb.GaussianEB(), fit=5)


def test_a_fit_keeps_its_plan(make):
    node = make()
    assert "facts" in ask(node, eb.GaussianEB())
    assert "not the one that this fit began with" in reason(node, eb.GaussianEB(prior="npmle"))
    assert "facts" in ask(node, eb.GaussianEB(prior="npmle"), fit=2)


@pytest.mark.parametrize("fit", [None, "1", -1, 2**63, True])
def test_a_fit_has_a_number(make, fit):
    answer = ask(make(), eb.GaussianEB(), fit=fit)
    assert answer["failure"] == "a request without the number of its fit"


def test_an_argument_that_is_no_data_is_named():
    with pytest.raises(TypeError, match="arguments"):
        plan_of_run(FedAvg(Linear(), classes=[object()]), REGRESSION)


# Files ------------------------------------------------------------------------------------------


def read(folder, wanted=ROWS, **arguments):
    return OwnRows(**arguments).read(folder, wanted)


def test_files_of_all_kinds(tmp_path):
    pytest.importorskip("pyarrow")
    duckdb = pytest.importorskip("duckdb")
    TABLE.to_csv(tmp_path / "rows.csv", index=False)
    TABLE.to_csv(tmp_path / "semicolons.csv.gz", index=False, sep=";", decimal=",")
    TABLE.to_parquet(tmp_path / "rows.parquet")
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as connection:
        connection.register("frame", TABLE)
        connection.execute('CREATE TABLE "my rows" AS SELECT * FROM frame')
    wanted = {"X": ["age", "score"], "groups": "ward", "consent": "class"}
    for arguments in (
        {"path": "rows.csv"},
        {"path": "semicolons.csv.gz", "sep": ";", "decimal": ","},
        {"path": "rows.parquet"},
        {"path": "rows.duckdb", "table": '"my rows"'},
    ):
        found = read(tmp_path, wanted, **arguments).arguments
        pd.testing.assert_frame_equal(found["X"], TABLE[["age", "score"]])
        assert found["groups"].tolist() == TABLE["ward"].tolist()
        assert found["consent"].tolist() == TABLE["class"].tolist()
    with pytest.raises(ValueError, match="must name the table"):
        read(tmp_path, path="rows.duckdb")
    with pytest.raises(ValueError, match="no column 'weight'"):
        read(tmp_path, {"X": "weight", "groups": "ward"}, path="rows.duckdb", table='"my rows"')


def test_a_function_of_the_owner(tmp_path):
    (tmp_path / "own_rows_of_north.py").write_text(
        "import pandas as pd\ndef load(rows):\n"
        "    return {'X': pd.DataFrame({name: [1.0, 2.0] for name in rows['X']}),"
        " 'groups': ['a', 'b']}\n"
    )
    found = read(tmp_path, load="own_rows_of_north:load").arguments
    assert found["X"]["score"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({}, "a path or load"),
        ({"path": "a.csv", "load": "a:b"}, "a path or load"),
        ({"path": 3}, "path must be text"),
        ({"path": "a.csv", "columns": "abc"}, "columns must be a list of names"),
        ({"path": "a.csv", "groups": "abc"}, "groups must be a list of names"),
        ({"path": "a.csv", "classes": "ab"}, "classes must be a list"),
        ({"path": "a.csv", "consent": "choice"}, "consent must be {column"),
        (
            {"path": "a.csv", "consent": {"column": "choice", "open": "yes"}},
            "open of consent must be a list",
        ),
    ],
)
def test_rules_of_rows_that_are_refused(arguments, what):
    with pytest.raises(ValueError, match=what):
        OwnRows(**arguments)


def test_reading_that_is_refused(tmp_path):
    (tmp_path / "rows.xlsx").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"rows are read from .csv, .parquet and .duckdb"):
        read(tmp_path, path="rows.xlsx")
    with pytest.raises(ValueError, match="load must be 'module:function'"):
        read(tmp_path, load="rows")
    with pytest.raises(FileNotFoundError):
        read(tmp_path, path="absent.csv")


def test_the_table_of_a_file(tmp_path):
    path = tmp_path / "node.toml"
    path.write_text('epsilon = 1.0\n[rows]\npath = "a.csv"\ncolumns = ["x"]\n')
    assert Rules.read(path).rows == OwnRows("a.csv", columns=("x",))
    path.write_text('epsilon = 1.0\n[rows]\npath = "a.csv"\nfoo = 1\n')
    with pytest.raises(ValueError, match=r"'foo' of \[rows\] is not among path, table"):
        Rules.read(path)
    path.write_text("epsilon = 1.0\nrows = 3\n")
    with pytest.raises(ValueError, match="rows must be OwnRows"):
        Rules.read(path)


@pytest.mark.parametrize(
    ("rows", "column"),
    [(ROWS, "score"), (ROWS, "ward"), (REGRESSION, "age"), (ROWS | {"consent": "class"}, "class")],
)
def test_a_blank_is_refused_in_words_without_figures(make, rows, column):
    """What is sent names neither the column nor the row; the owner's log does."""
    node = make(table=TABLE.assign(**{column: TABLE[column].mask(TABLE.index == 7)}))
    estimator = eb.LinearEB() if "y" in rows else eb.GaussianEB()
    answer = ask(node, estimator, rows)
    assert answer["failure"].startswith("rows that lack values, or have some that the model does")
    assert not set("0123456789") & set(answer["failure"])
    last = reason(node, estimator, rows)
    assert f"(column {column!r} has 1 missing values, the first in row 7)" in last
    assert "na_action = 'drop'" in last


def test_rows_with_blanks_can_be_left_out(make):
    table = TABLE.assign(score=TABLE["score"].mask(TABLE.index == 7))
    rules = 'epsilon = inf\nmin_group_size = 1\n[rows]\npath = "rows.csv"\nna_action = "drop"\n'
    facts = ask(make(rules, table), eb.GaussianEB())["facts"]
    assert facts["n"].tolist() == [5, 4, 5]
    with pytest.raises(ValueError, match="na_action must be 'raise' or 'drop'; got 'fill'"):
        OwnRows("rows.csv", na_action="fill")


def test_values_that_a_family_does_not_have_are_refused_in_words(make):
    answer = ask(make(), eb.BernoulliEB())
    assert answer["failure"].startswith("rows that lack values, or have some that the model does")
