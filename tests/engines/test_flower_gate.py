"""What a server that writes plans cannot get from a node whose owner set a budget."""

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.channels import AddNoise, Clip, Exact, Gaussian, Laplace, RandomizedCategory
from ebfed.engines import journal
from ebfed.engines.flower import PlannedNode, plan_of_run
from ebfed.engines.flower.gate import odometer_of
from ebfed.learning import ClientPrivacy, DPFedAvg, FedAvg, FeO2, JointDPSGD
from ebfed.learning.fed_avg import FedAvgRounds
from ebfed.loading import METHODS
from ebfed.models import Linear, Softmax
from ebfed.streams import make_key

RNG = np.random.default_rng(8)
TABLE = pd.DataFrame(
    {
        "patient": [f"p{i:02d}" for i in range(24)],
        "ward": np.repeat(["a", "b", "c"], 8),
        "age": np.tile(["old", "young"], 12),
        "hiv": np.repeat(["no", "yes"], [21, 3]),
        "choice": np.repeat(["no", "yes"], [16, 8]),
        "class": np.repeat("open", 24),
        "income": RNG.normal(35_000, 5_000, 24).round(2),
        "dose": RNG.uniform(0, 1, 24).round(3),
        "years": RNG.integers(1, 9, 24),
        "events": RNG.poisson(2.0, 24),
        "skewed": np.where(np.arange(24) % 8, 1e-6, 1.0),
    }
)
BUDGET = "epsilon = 0.1\nrun_epsilon = 0.1\n"
NO_BUDGET = "epsilon = inf\n"
ROLES = """[rows]
path = "rows.csv"
person = "patient"
groups = ["ward", "patient", "age"]
consent = {column = "choice", open = ["yes"]}
exposure = ["years"]
"""
MEANS = {"X": ["income"], "groups": "patient"}
SLOPES = {"X": ["dose"], "y": "income", "groups": "ward"}
TINY = Gaussian(epsilon=0.1, delta=1e-6, range=(0, 1e5))


@pytest.fixture
def make(tmp_path):
    """Make a node with these rules."""
    TABLE.to_csv(tmp_path / "rows.csv", index=False)

    def make(rules=BUDGET + ROLES):
        (tmp_path / "node.toml").write_text(rules)
        return PlannedNode("north", tmp_path, METHODS, seed=1)

    return make


def asked(node, estimator, rows, fit=1):
    """Hold a round with a node; returns facts and its message, or the reason of a refusal."""
    terms = {"plan": plan_of_run(estimator, rows), "fit": fit}

    def ask(request):
        answer = node.answer(0, request | terms)
        if "failure" in answer:
            raise PermissionError(
                (node._directory / "errors.log").read_text().strip().splitlines()[-1]
            )
        return answer

    try:
        facts = ask({"exchange": "roll call"})["facts"]
        state = estimator.protocol().start(facts, make_key(0))
        sent = estimator.protocol().broadcast(state)
        request = {"exchange": "round", "sent": sent, "turn": state["turn"], "first": 0}
        return facts, ask(request)["message"]
    except PermissionError as error:
        return str(error)


def entries(tmp_path, kind):
    return [row for row in journal.read(tmp_path / "ledger.jsonl") if row["kind"] == kind]


@pytest.mark.parametrize(
    "channel",
    [
        {"open": AddNoise(1e-9)},
        {"open": Exact()},
        {"open": Clip(1e6)},
        {"private": TINY, "open": Exact()},
    ],
    ids=["noise", "exact", "clip", "both"],
)
@pytest.mark.parametrize("consent", [None, "class", "choice"])
def test_a_plan_does_not_say_who_agreed(make, channel, consent, tmp_path):
    """Before, the class "open" of a plan sent the mean of each patient as it was."""
    estimator = eb.GaussianEB(1.0, channel=channel)
    rows = MEANS | ({} if consent is None else {"consent": consent})
    found = asked(make(), estimator, rows)
    assert isinstance(found, str), found
    assert not entries(tmp_path, "release")


def test_those_who_agreed_send_exact_figures(make, tmp_path):
    estimator = eb.GaussianEB(1.0, channel={"no": TINY, "yes": Exact()})
    rows = {"X": ["income"], "groups": "ward", "consent": "choice"}
    facts, message = asked(make(), estimator, rows)
    assert facts["n"].tolist() == [8, 8, 8]
    assert message["yes"]["mean"].item() == pytest.approx(TABLE["income"][16:].mean())
    swapped = eb.GaussianEB(1.0, channel={"yes": TINY, "no": Exact()})
    assert "rows all agreed" in asked(make(), swapped, rows, fit=2)


@pytest.mark.parametrize(
    ("estimator", "rows", "what"),
    [
        (
            eb.PoissonEB(channel=eb.channels.TwoBit(0.1)),
            {"X": ["events"], "groups": "ward", "exposure": "income"},
            "'income' is no column of exposure",
        ),
        (
            FeO2(privacy=ClientPrivacy(epsilon=0.1, trust="none"), n_rounds=1),
            SLOPES | {"consent": "income"},
            "'income' is no column of consent",
        ),
        (
            DPFedAvg(Softmax(), privacy=ClientPrivacy(epsilon=0.1, trust="none"), n_rounds=1),
            {"X": ["dose"], "y": "hiv", "groups": "ward"},
            "2 classes of y",
        ),
        (eb.GaussianEB(1.0, channel=TINY), MEANS | {"groups": "hiv"}, "'hiv' is no column of gr"),
        (
            eb.GaussianEB(1.0, channel=TINY),
            MEANS | {"sample_weight": "income"},
            "'income' is no column of sample_weight",
        ),
        (
            eb.CategoricalEB(channel=RandomizedCategory(0.1)),
            {"X": ["patient"], "groups": "ward"},
            "24 classes of X",
        ),
        (
            eb.CategoricalEB(channel=RandomizedCategory(0.1)),
            {"X": "hiv", "groups": "ward"},
            "2 classes of X",
        ),
        (eb.DurationEB(), {"X": ["income"], "groups": "ward"}, "without a guarantee"),
        (eb.LogisticEB(), SLOPES | {"y": "hiv"}, "without a guarantee"),
    ],
    ids=["exposure", "consent", "classes", "groups", "weight", "names", "labels", "sums", "exact"],
)
def test_columns_do_not_leave_as_facts(make, estimator, rows, what, tmp_path):
    found = asked(make(), estimator, rows)
    assert isinstance(found, str)
    assert what in found
    assert not entries(tmp_path, "facts")


def test_categories_that_are_public_or_of_many_are_stated(make):
    """Before, labels of all rows were, such as names of patients, whatever the budget."""
    votes = eb.CategoricalEB(channel=RandomizedCategory(0.1))
    rows = {"X": "hiv", "groups": "ward"}
    facts, _ = asked(make(BUDGET + ROLES + 'classes = ["no", "yes"]\n'), votes, rows)
    assert facts["columns"].tolist() == ["no\nyes"]
    assert "1 classes of X" in asked(make(NO_BUDGET + ROLES), votes, rows, 2)
    facts, _ = asked(make(NO_BUDGET + ROLES), votes, rows | {"X": "age"}, 3)
    assert facts["columns"].tolist() == ["old\nyoung"]


def test_a_function_of_the_owner_does_not_let_a_plan_say_who_agreed(tmp_path):
    """Whatever column a plan takes for consent: only the owner's says who agreed."""
    TABLE.assign(smokes="yes").to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "rows_of_an_owner.py").write_text(
        "import pathlib\nimport pandas as pd\n"
        "def load(rows):\n"
        "    table = pd.read_csv(pathlib.Path(__file__).with_name('rows.csv'))\n"
        "    return {name: table[columns] for name, columns in rows.items()}\n"
    )
    (tmp_path / "node.toml").write_text(
        BUDGET + "[rows]\nload = 'rows_of_an_owner:load'\n"
        "consent = {column = 'choice', open = ['yes']}\n"
    )
    node = PlannedNode("north", tmp_path, METHODS, seed=1)
    rows = {"X": ["income"], "groups": "ward"}
    smokers = eb.GaussianEB(1.0, channel={"yes": Exact()})
    assert "rows all agreed" in asked(node, smokers, rows | {"consent": "smokes"})
    both = eb.GaussianEB(1.0, channel={"no": TINY, "yes": Exact()})
    _, message = asked(node, both, rows | {"consent": "choice"}, fit=2)
    assert message["yes"]["mean"].shape == (1, 1)


@pytest.mark.parametrize("kind", ["int64", "datetime64[ns]", "bool", "category", "float64"])
def test_labels_of_any_type_have_their_persons(tmp_path, kind):
    code = np.repeat([0, 1], 12)
    labels = code if kind == "int64" else pd.Series(code).astype(kind)
    TABLE.assign(ward=labels).to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "node.toml").write_text(BUDGET + ROLES.replace("rows.csv", "rows.parquet"))
    node = PlannedNode("north", tmp_path, METHODS, seed=1)
    rows = {"X": ["income"], "groups": "ward"}
    assert not isinstance(asked(node, eb.GaussianEB(1.0, channel=TINY), rows), str)
    (plan,) = entries(tmp_path, "plan")
    assert sorted(plan["people"]) == sorted(TABLE["patient"])


def test_facts_are_in_the_ledger_before_they_are_sent(make, tmp_path):
    estimator = eb.PoissonEB(channel=eb.channels.TwoBit(0.1))
    rows = {"X": ["events"], "groups": "ward", "exposure": "years"}
    node = make()
    terms = {"plan": plan_of_run(estimator, rows), "fit": 1}
    facts = node.answer(0, {"exchange": "roll call"} | terms)["facts"]
    assert facts["weight"].tolist() == TABLE.groupby("ward")["years"].sum().tolist()
    (row,) = entries(tmp_path, "facts")
    assert "weight" in row["what"]


CENTRAL = ClientPrivacy(epsilon=0.1, clip=1e9, trust="server")


@pytest.mark.parametrize(
    ("estimator", "rows"),
    [
        (FedAvg(Linear(), privacy=CENTRAL, n_rounds=1, sample_rate=0.4), SLOPES),
        (DPFedAvg(Linear(), privacy=CENTRAL, n_rounds=1), SLOPES),
        (
            JointDPSGD(Linear(), personal=("intercept",), privacy=CENTRAL, n_rounds=1),
            SLOPES,
        ),
        (
            eb.MixtureEB(
                2, variances=1.0, trust="server", channel=Clip(radius=1e5), epsilon=0.1, delta=1e-6
            ),
            MEANS,
        ),
        (
            eb.OptOutMean(1.0, 1.0, epsilon=0.1, delta=1e-6, range=(0, 1e5), trust="server"),
            MEANS,
        ),
    ],
    ids=["fed_avg", "dp_fed_avg", "joint", "mixture", "opt_out"],
)
def test_a_plan_does_not_say_that_the_server_is_trusted(make, estimator, rows, tmp_path):
    """Before, one client invited to a round sent its own exact change."""
    rules = "least_noise = 0\n" + BUDGET
    found = asked(make(rules + ROLES), estimator, rows)
    assert isinstance(found, str)
    assert "trusts the server" in found
    assert not entries(tmp_path, "release")


@pytest.mark.parametrize(
    ("estimator", "rows"),
    [
        (eb.GaussianEB(1.0), MEANS),
        (eb.GaussianEB(1.0, channel=AddNoise(1e-9)), MEANS),
        (eb.GaussianEB(1.0, channel=Clip(1e6)), MEANS),
        (eb.GaussianEB(1.0), {"X": ["income"], "groups": "ward", "sample_weight": "skewed"}),
        (FedAvg(Linear(), n_rounds=1, batch_size=1), SLOPES),
        (FedAvg(Linear(), n_rounds=1, batch_size=2, local_steps=2), SLOPES),
        (FedAvg(Linear(), n_rounds=1), SLOPES | {"sample_weight": "skewed"}),
        (FedAvg(Softmax(), n_rounds=1), {"X": ["dose"], "y": "hiv", "groups": "ward"}),
    ],
    ids=["exact", "noise", "clip", "weight", "batch", "batches", "weights", "rare class"],
)
def test_exact_figures_are_of_enough_persons(make, estimator, rows, tmp_path):
    found = asked(make(NO_BUDGET + ROLES), estimator, rows)
    assert isinstance(found, str)
    assert "min_group_size=5" in found or "1 classes of y" in found
    assert not entries(tmp_path, "facts")


@pytest.mark.parametrize("rows", [SLOPES | {"groups": "patient"}, SLOPES])
def test_a_server_without_a_budget_is_not_trusted_with_few_persons(make, rows):
    """Before, a plan that the server be trusted had one person's change, of a batch or a group."""
    estimator = FedAvg(Linear(), privacy=CENTRAL, n_rounds=1, batch_size=1)
    assert "fewer than min_group_size=5" in asked(make(NO_BUDGET + ROLES), estimator, rows)
    trusting = NO_BUDGET + 'against = "readers"\n' + ROLES
    assert not isinstance(asked(make(trusting), estimator, rows, 2), str)


@pytest.mark.parametrize("evaluate", [None, 1])
def test_rows_that_are_held_back_are_counted(make, evaluate):
    """Before, an evaluation was of one person."""
    few = {"validation_fraction": 0.1, "evaluate_every": evaluate}
    found = asked(make(NO_BUDGET + ROLES), FedAvg(Linear(), n_rounds=1, **few), SLOPES)
    assert isinstance(found, str) == (evaluate is not None)


def test_exposures_that_no_owner_called_public_are_of_enough_persons(make):
    """Before, they were stated of each person, whose counts a channel protects."""
    rules = NO_BUDGET + ROLES.replace('exposure = ["years"]\n', "")
    estimator = eb.PoissonEB(channel=eb.channels.TwoBit(0.1, range=(0, 3)))
    rows = {"X": ["events"], "groups": "patient", "exposure": "years"}
    assert "no group has min_group_size=5" in asked(make(rules), estimator, rows)
    assert not isinstance(asked(make(rules), estimator, rows | {"groups": "ward"}, 2), str)


def test_enough_persons_send_exact_figures(make):
    node = make(NO_BUDGET + ROLES)
    _, message = asked(node, eb.GaussianEB(1.0), {"X": ["income"], "groups": "ward"})
    found = message["all clients"]["mean"][:, 0]
    np.testing.assert_allclose(found, TABLE.groupby("ward")["income"].mean())
    assert not isinstance(asked(node, FedAvg(Linear(), n_rounds=1, batch_size=5), SLOPES, 2), str)


def test_rows_of_one_person_are_of_one(tmp_path):
    """Eight rows in a ward, all of one patient."""
    TABLE.assign(patient=TABLE["ward"]).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "node.toml").write_text(NO_BUDGET + ROLES)
    node = PlannedNode("north", tmp_path, METHODS, seed=1)
    found = asked(node, eb.GaussianEB(1.0), {"X": ["income"], "groups": "ward"})
    assert "no group has min_group_size=5 persons" in found


@pytest.mark.parametrize("part", ["records", "evaluations"])
def test_a_broadcast_asks_for_no_more_places_than_rounds(make, part, monkeypatch):
    """Before, a node made an array for a billion records."""
    broadcast = FedAvgRounds.broadcast
    monkeypatch.setattr(FedAvgRounds, "broadcast", lambda *a: broadcast(*a) | {part: 10**9})
    found = asked(make(NO_BUDGET + ROLES), FedAvg(Linear(), n_rounds=1), SLOPES)
    assert f"{part} must be from 0 to 2" in found


def test_a_method_without_what_it_needs_is_refused_by_name(make):
    found = asked(make(NO_BUDGET + ROLES), FeO2(Linear(), n_rounds=1), SLOPES)
    assert found.startswith("ValueError: ")
    assert "privacy" in found


def test_a_budget_is_of_persons_whatever_labels_are(make, tmp_path):
    """Before, each column of labels had the whole budget of the same rows again."""
    channel = Gaussian(epsilon=0.1, delta=1e-6, range=(0, 1e5))
    estimator = eb.GaussianEB(1.0, channel=channel)
    node = make()
    answered = [
        not isinstance(asked(node, estimator, {"X": ["income"], "groups": column}, fit), str)
        for fit, column in enumerate(("ward", "age", "patient"))
    ]
    assert answered == [True, False, False]
    spent = odometer_of(entries(tmp_path, "plan")).spent(1e-5)
    assert spent.keys() == set(TABLE["patient"])
    assert max(spent.values()) <= 0.1


@pytest.mark.parametrize("rules", ["epsilon = inf\n", "epsilon = 1e3\n"])
def test_one_run_costs_what_the_rules_say_at_their_own_delta(make, rules, tmp_path):
    """Before, epsilon 0.1 at a delta near 1 was taken for 0.1: little noise on each patient."""
    node = make(rules + "run_epsilon = 0.1\ndelta = 1e-5\n" + ROLES)
    for fit, delta in enumerate([0.999, 0.5, 2e-5]):
        channel = Gaussian(epsilon=0.1, delta=delta, range=(0, 1e5))
        found = asked(node, eb.GaussianEB(1.0, channel=channel), MEANS, fit)
        assert "would exceed run_epsilon=0.1" in found
    assert not entries(tmp_path, "release")
    assert not isinstance(asked(node, eb.GaussianEB(1.0, channel=TINY), MEANS, 3), str)


@pytest.mark.parametrize("channel", [Laplace(1e9, (0, 1e5)), Gaussian(0.1, 0.999, (0, 1e5))])
def test_noise_that_only_a_plan_chose_hides_nobody(make, channel, tmp_path):
    """Without a budget, patients sent their incomes to eight digits through Laplace(1e9)."""
    estimator = eb.GaussianEB(1.0, channel=channel)
    assert "min_group_size=5 persons" in asked(make(NO_BUDGET + ROLES), estimator, MEANS)
    assert not entries(tmp_path, "release")
    wards = MEANS | {"groups": "ward"}  # which may send exact figures, too
    assert asked(make(NO_BUDGET + ROLES), estimator, wards, 2)[0]["n"].tolist() == [8, 8, 8]


def test_a_node_checks_arguments_that_a_server_need_not(make, tmp_path):
    """Before, a server that skipped its check had a report in each round, for the cost of one."""
    rows = {"X": ["income"], "groups": "ward"}
    arguments = {"variances": 1.0, "channel": TINY}
    plan = plan_of_run(eb.MixtureEB(2, solver="clustering", **arguments), rows)
    node, terms = make(), {"plan": plan, "fit": 1, "first": 0, "turn": np.zeros(3, np.int8)}
    facts = node.answer(0, {"exchange": "roll call"} | terms)["facts"]
    protocol = eb.MixtureEB(2, **arguments).protocol()
    sent = protocol.broadcast(protocol.start(facts, make_key(0)))
    assert "failure" in node.answer(0, {"exchange": "round", "sent": sent} | terms)
    assert "leave channel None" in (tmp_path / "errors.log").read_text()
    assert not entries(tmp_path, "release")


def test_a_person_has_one_name_whatever_a_plan_groups_by(tmp_path):
    """Before, patient 007 was 7, unless rows were grouped by patients: with a budget for each."""
    TABLE.assign(patient=[f"{i:03d}" for i in range(24)]).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "node.toml").write_text(BUDGET + ROLES)
    node, estimator = PlannedNode("n", tmp_path, METHODS, seed=1), eb.GaussianEB(1.0, channel=TINY)
    assert not isinstance(asked(node, estimator, MEANS | {"groups": "ward"}), str)
    assert "would exceed budget" in asked(node, estimator, MEANS, 2)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_row_without_a_person_does_not_rename_the_others(tmp_path, kind):
    """Before, numbers of patients were floats then, 1.0 for 1, and nothing had been spent."""
    rules = BUDGET + ROLES.replace("rows.csv", f"rows.{kind}") + 'na_action = "drop"\n'
    (tmp_path / "node.toml").write_text(rules)
    table, estimator = TABLE.assign(patient=np.arange(24)), eb.GaussianEB(1.0, channel=TINY)
    more = pd.concat([table, table[:1].assign(patient=np.nan)])
    for fit, rows in enumerate([table, more]):
        rows.to_csv(tmp_path / "rows.csv", index=False)
        rows.to_parquet(tmp_path / "rows.parquet")
        found = asked(PlannedNode("north", tmp_path, METHODS, seed=1), estimator, MEANS, fit)
        assert isinstance(found, str) == (fit == 1)
    assert "would exceed budget" in found


def test_a_person_in_two_groups_is_charged_twice(tmp_path):
    twice = pd.concat([TABLE, TABLE.assign(ward="d")])
    twice.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "node.toml").write_text("epsilon = 0.3\n" + ROLES)
    node = PlannedNode("north", tmp_path, METHODS, seed=1)
    rows = {"X": ["income"], "groups": "ward"}
    assert not isinstance(asked(node, eb.GaussianEB(1.0, channel=TINY), rows), str)
    (plan,) = entries(tmp_path, "plan")
    assert sorted(plan["people"]) == sorted([*TABLE["patient"]] * 2)
    spent = odometer_of([plan]).spent(1e-5)
    assert 0.1 < min(spent.values()) <= max(spent.values()) <= 0.2


def test_noise_of_a_sum_is_for_one_group_of_a_person(tmp_path):
    """Before, a person in k groups was charged as for k sums, each with noise of its own."""
    rules = 'epsilon = 1.0\nagainst = "readers"\n' + ROLES
    estimator = FedAvg(Linear(), privacy=CENTRAL, n_rounds=1)
    (tmp_path / "node.toml").write_text(rules)
    node = PlannedNode("north", tmp_path, METHODS, seed=1)
    pd.concat([TABLE, TABLE.assign(ward="d")]).to_csv(tmp_path / "rows.csv", index=False)
    assert "some persons are in several" in asked(node, estimator, SLOPES)
    TABLE.to_csv(tmp_path / "rows.csv", index=False)
    assert not isinstance(asked(node, estimator, SLOPES, 2), str)


def test_a_promise_to_users_is_one_to_persons(tmp_path):
    """Before, a user was a row, and a patient of eight rows was charged as for one."""
    estimator = JointDPSGD(
        Linear(), personal=("intercept",), privacy=ClientPrivacy(0.1, trust="none"), n_rounds=1
    )
    for person, users in (('"patient"', 2), ('"row"', 8)):
        (tmp_path / "node.toml").write_text(BUDGET + ROLES.replace('"patient"\n', f"{person}\n"))
        TABLE.assign(patient=np.arange(24) // 4).to_csv(tmp_path / "rows.csv", index=False)
        facts, _ = asked(PlannedNode("north", tmp_path, METHODS, seed=1), estimator, SLOPES, users)
        assert facts["users"].tolist() == [users] * 3
        (tmp_path / "ledger.jsonl").unlink()


def test_each_row_may_be_of_another_person(make, tmp_path):
    rules = BUDGET + ROLES.replace('"patient"\ngroups', '"row"\ngroups')
    estimator = eb.GaussianEB(1.0, channel=TINY)
    rows = {"X": ["income"], "groups": "ward"}
    assert not isinstance(asked(make(rules), estimator, rows), str)
    assert "would exceed budget" in asked(make(rules), estimator, rows | {"groups": "age"}, 2)
    assert odometer_of(entries(tmp_path, "plan")).spent(1e-5) == {"each row": 0.1}


@pytest.mark.parametrize(
    ("role", "rows"),
    [
        ("groups", {"X": ["income"], "groups": "hiv"}),
        ("consent", {"X": ["income"], "groups": "ward", "consent": "class"}),
        ("sample_weight", {"X": ["income"], "groups": "ward", "sample_weight": "dose"}),
    ],
)
def test_roles_that_an_owner_states_hold_without_a_budget(make, role, rows):
    node = make(NO_BUDGET + ROLES + "weights = ['years']\n")
    assert f"no column of {role} in" in asked(node, eb.GaussianEB(1.0), rows)


@pytest.mark.parametrize("missing", ["person", "groups"])
def test_a_budget_needs_roles(make, missing):
    rules = "\n".join(line for line in ROLES.split("\n") if not line.startswith(missing))
    found = asked(make(BUDGET + rules), eb.GaussianEB(1.0, channel=TINY), MEANS)
    assert "must say person (a column, or 'row') and groups" in found
