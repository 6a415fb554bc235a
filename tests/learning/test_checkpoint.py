"""Fits that are interrupted go on to the same result, and the ledger never counts too little."""

import hashlib
import json
import os
import resource
import signal
import time

import numpy as np
import pytest
from forks import fork
from sklearn.base import clone

import ebfed as eb
from ebfed import wire
from ebfed.learning import fitting
from ebfed.learning.checkpoint import DIGEST
from ebfed.learning.feo2 import OptOutExchange
from ebfed.learning.privacy import PrivateExchange
from ebfed.models import MLP, Softmax, Torch

RNG = np.random.default_rng(5)
GROUPS = np.repeat(np.arange(40), RNG.integers(2, 9, 40))
X = RNG.normal(size=(len(GROUPS), 6))
Y = (X[:, 0] + RNG.normal(size=40)[GROUPS] > 0).astype(int)
CONSENT = {g: "open" if g % 4 == 0 else "private" for g in range(40)}


def learner(**others):
    settings = {"n_rounds": 60, "batch_size": 3, "local_steps": 2, "sample_rate": 0.3}
    privacy = eb.ClientPrivacy(noise_multiplier=1.0, clip_quantile=0.5)
    return eb.learning.FeO2(
        MLP(8), privacy=privacy, ratio=0.3, **settings, random_state=3, **others
    )


def assert_same(one, other):
    np.testing.assert_array_equal(one.parameters_, other.parameters_)
    np.testing.assert_array_equal(one.shared_["w"], other.shared_["w"])
    assert one.history_.equals(other.history_)
    assert one.privacy_.equals(other.privacy_)


class Interrupted(Exception):
    pass


def interrupt(monkeypatch, after, exchange=OptOutExchange):
    """Stop a fit when so many rounds were averaged."""
    inner, seen = exchange.average, []

    def average(self, state, *others):
        seen.append(state["round"])
        if len(seen) == after:
            raise Interrupted
        return inner(self, state, *others)

    monkeypatch.setattr(exchange, "average", average)


def entered(folder):
    lines = (folder / "ledger.jsonl").read_text().splitlines()
    return [json.loads(line)["round"] for line in lines]


@pytest.mark.parametrize("after", [1, 2, 30, 60])
def test_an_interrupted_fit_goes_on(after, tmp_path, monkeypatch):
    whole = learner().fit(X, Y, groups=GROUPS, consent=CONSENT)
    with monkeypatch.context() as context:
        interrupt(context, after)
        with pytest.raises(Interrupted):
            learner(checkpoint=tmp_path).fit(X, Y, groups=GROUPS, consent=CONSENT)
    assert entered(tmp_path) == list(range(after))  # the last was asked for, and never averaged
    again = learner(checkpoint=tmp_path).fit(X, Y, groups=GROUPS, consent=CONSENT)
    assert_same(again, whole)
    assert entered(tmp_path) == list(range(60))


def test_rounds_that_nobody_was_asked_for_draw_new_noise(tmp_path, monkeypatch):
    """A round that was asked for keeps its noise, and its messages are the same."""
    inner, seen = OptOutExchange.average, []

    def average(self, state, sent, message, rng):
        seen.append((state["round"], tuple(state["key"]), message["changes"]["w"]))
        if len(seen) in (20, 45):
            raise Interrupted
        return inner(self, state, sent, message, rng)

    monkeypatch.setattr(OptOutExchange, "average", average)
    for _ in range(2):
        with pytest.raises(Interrupted):
            fit_without_a_seed(tmp_path)
    fit_without_a_seed(tmp_path)
    assert entered(tmp_path) == list(range(60))
    keys, messages = {}, {}
    for round_, key, message in seen:
        assert keys.setdefault(round_, key) == key
        np.testing.assert_array_equal(messages.setdefault(round_, message), message)
    assert len(set(keys.values())) == 3
    assert keys[0] == keys[19] != keys[20]


def fit_without_a_seed(folder):
    est = learner(checkpoint=folder).set_params(random_state=None)
    return est.fit(X, Y, groups=GROUPS, consent=CONSENT)


def test_a_checkpoint_of_a_private_fit_is_of_one_version(tmp_path, monkeypatch):
    """Another version may send other messages, with the same noise."""
    fit_without_a_seed(tmp_path)
    monkeypatch.setattr(fitting, "version", lambda name: "0.0.1")
    with pytest.raises(ValueError, match="by another version"):
        fit_without_a_seed(tmp_path)
    eb.learning.FedAvg(n_rounds=2, checkpoint=tmp_path / "other").fit(X, Y, groups=GROUPS)


def test_a_finished_fit_is_not_made_again(tmp_path, monkeypatch):
    whole = learner(checkpoint=tmp_path).fit(X, Y, groups=GROUPS, consent=CONSENT)
    interrupt(monkeypatch, 1)
    assert_same(learner(checkpoint=tmp_path).fit(X, Y, groups=GROUPS, consent=CONSENT), whole)


def test_a_checkpoint_is_of_one_fit(tmp_path):
    learner(checkpoint=tmp_path).fit(X, Y, groups=GROUPS, consent=CONSENT)
    with pytest.raises(ValueError, match="other rows or with other arguments"):
        learner(checkpoint=tmp_path).fit(X + 1, Y, groups=GROUPS, consent=CONSENT)
    other = learner(checkpoint=tmp_path).set_params(ratio=0.5)
    with pytest.raises(ValueError, match="other rows or with other arguments"):
        other.fit(X, Y, groups=GROUPS, consent=CONSENT)


def test_a_checkpoint_is_of_the_choices_that_were_made(tmp_path):
    learner(checkpoint=tmp_path).fit(X, Y, groups=GROUPS, consent=CONSENT)
    with pytest.raises(ValueError, match="other rows or with other arguments"):
        learner(checkpoint=tmp_path).fit(X, Y, groups=GROUPS, consent=CONSENT | {4: "private"})


def test_a_torn_line_of_the_ledger_is_of_a_round_that_was_not_asked_for(tmp_path, monkeypatch):
    with monkeypatch.context() as context:
        interrupt(context, 10)
        with pytest.raises(Interrupted):
            learner(checkpoint=tmp_path).fit(X, Y, groups=GROUPS, consent=CONSENT)
    with open(tmp_path / "ledger.jsonl", "a") as file:
        file.write('{"fit": "12')
    learner(checkpoint=tmp_path).fit(X, Y, groups=GROUPS, consent=CONSENT)
    assert entered(tmp_path) == list(range(60))


def test_functions_need_not_lie_where_they_did(tmp_path):
    """As in another process."""

    def define():
        def error(y, predicted):
            return -np.mean(y != predicted)

        return error

    settings = {"checkpoint": tmp_path, "validation_fraction": 0.3, "evaluate_every": 1}
    settings |= {"n_rounds": 2, "random_state": 0}
    one, other = define(), define()
    assert repr(one) != repr(other)
    whole = eb.learning.FedAvg(metric=one, **settings).fit(X, Y, groups=GROUPS)
    assert_same(eb.learning.FedAvg(metric=other, **settings).fit(X, Y, groups=GROUPS), whole)
    with pytest.raises(ValueError, match="other arguments"):
        eb.learning.FedAvg(metric=max, **settings).fit(X, Y, groups=GROUPS)


@pytest.mark.parametrize("changed", ["loss", "frozen weights"])
def test_another_loss_of_the_same_name_is_refused(tmp_path, monkeypatch, changed):
    """Rounds that are repeated have the same noise: their messages must be the same."""
    torch = pytest.importorskip("torch")

    def fit(power, weight):
        def loss(outputs, y):
            return torch.nn.functional.cross_entropy(outputs, y, reduction="none") ** power

        module = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Linear(4, 2))
        for value in module[0].parameters():
            torch.nn.init.constant_(value, weight).requires_grad_(False)
        privacy = eb.ClientPrivacy(noise_multiplier=1.0, clip=1.0)
        settings = {"n_rounds": 4, "random_state": 0, "checkpoint": tmp_path}
        model = Torch(module, loss=loss)
        return eb.learning.DPFedAvg(model, privacy=privacy, **settings).fit(X, Y, groups=GROUPS)

    with monkeypatch.context() as context:
        interrupt(context, 2, PrivateExchange)
        with pytest.raises(Interrupted):
            fit(1, 0.1)
    with pytest.raises(ValueError, match="other arguments"):
        fit(*((2, 0.1) if changed == "loss" else (1, 0.2)))
    fit(1, 0.1)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    learner(checkpoint=tmp_path).fit(X, Y, groups=GROUPS, consent=CONSENT)
    kept = tmp_path / "fit.ebfed"
    content = kept.read_bytes()
    for place in np.random.default_rng(0).integers(len(content), size=30):
        damaged = bytearray(content)
        damaged[place] ^= 1
        kept.write_bytes(damaged)
        with pytest.raises(ValueError, match="cannot be read; delete it to begin again"):
            learner(checkpoint=tmp_path).fit(X, Y, groups=GROUPS, consent=CONSENT)
    for end in (0, 10, 32, len(content) // 2, len(content) - 1):
        kept.write_bytes(content[:end])
        with pytest.raises(ValueError, match="cannot be read; delete it to begin again"):
            learner(checkpoint=tmp_path).fit(X, Y, groups=GROUPS, consent=CONSENT)


def test_labels_of_any_kind_can_be_kept(tmp_path):
    names = np.array([f"client {g}" for g in GROUPS], object)
    for _ in range(2):
        est = eb.learning.FedAvg(n_rounds=3, checkpoint=tmp_path, random_state=0)
        est.fit(X, np.where(Y, "yes", "no"), groups=names)
    assert set(est.predict(X, groups=names)) <= {"yes", "no"}


def run_and_kill(folder, seconds):
    """Fit in a process of its own, killed after so many seconds; whether it ended before."""

    def fit():
        learner(checkpoint=folder).fit(X, Y, groups=GROUPS, consent=CONSENT)

    child = fork(fit)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0
            return True
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("kills", [20, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_random_moments(kills, tmp_path):
    began = time.monotonic()
    whole = learner().fit(X, Y, groups=GROUPS, consent=CONSENT)
    takes = time.monotonic() - began
    rng, reached = np.random.default_rng(0), []
    for _ in range(kills):
        run_and_kill(tmp_path, takes * rng.uniform(0.05, 0.4))
        kept = tmp_path / "fit.ebfed"
        state = wire.unpack(kept.read_bytes()[DIGEST:])["state"] if kept.exists() else {"round": 0}
        ledger = entered(tmp_path) if (tmp_path / "ledger.jsonl").exists() else []
        assert ledger == list(range(len(ledger))), "every round once"
        assert len(ledger) >= state["round"], "whatever was released is in the ledger"
        reached.append(state["round"])
    assert reached == sorted(reached), "nothing is lost"
    again = learner(checkpoint=tmp_path).fit(X, Y, groups=GROUPS, consent=CONSENT)
    assert_same(again, whole)
    assert entered(tmp_path) == list(range(60))


def run_on_a_small_disk(folder, size):
    """Fit in a process of its own, whose files may have so many bytes; whether it ended."""

    def fit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        try:
            learner(checkpoint=folder).fit(X, Y, groups=GROUPS, consent=CONSENT)
        except OSError:
            return 1

    status = os.waitstatus_to_exitcode(os.waitpid(fork(fit), 0)[1])
    assert status in (0, 1), "a full disk is an OSError"
    return status == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("steps", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_a_full_disk_loses_nothing(steps, tmp_path):
    whole = learner(checkpoint=tmp_path / "whole").fit(X, Y, groups=GROUPS, consent=CONSENT)
    most = (tmp_path / "whole" / "fit.ebfed").stat().st_size
    folder, ended = tmp_path / "small", []
    for size in np.linspace(0, most - 1, steps).astype(int).tolist():
        ended.append(run_on_a_small_disk(folder, size))
        kept, ledger = folder / "fit.ebfed", folder / "ledger.jsonl"
        # all that was written is whole, and no round is there that the ledger lacks
        lines = entered(folder) if ledger.exists() else []
        assert lines == list(range(len(lines)))
        if kept.exists():
            content = kept.read_bytes()
            assert hashlib.sha256(content[DIGEST:]).digest() == content[:DIGEST]
            assert len(lines) >= wire.unpack(content[DIGEST:])["state"]["round"]
        assert {path.name for path in folder.iterdir()} <= {"fit.ebfed", "ledger.jsonl"}
    assert not any(ended)
    again = learner(checkpoint=folder).fit(X, Y, groups=GROUPS, consent=CONSENT)
    assert_same(again, whole)
    assert entered(folder) == list(range(60))


SOME = {"n_rounds": 12, "batch_size": 3, "local_steps": 2, "sample_rate": 0.3, "random_state": 3}
OWNERS = {"n_rounds": 12, "sample_rate": 0.3, "random_state": 3}
HELD = {"validation_fraction": 0.3, "evaluate_every": 2}


NOISY = {"privacy": eb.ClientPrivacy(noise_multiplier=1.0, clip_quantile=0.5)}


def killed_in_round(est, number):
    """Fit in a process of its own, that is killed when a server has the messages of a round."""

    def fit():
        rounds = type(est.protocol())
        inner = rounds.update

        def update(self, state, messages):
            if state["round"] == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return inner(self, state, messages)

        rounds.update = update
        est.fit(X, Y, groups=GROUPS)

    return os.waitstatus_to_exitcode(os.waitpid(fork(fit), 0)[1]) == -signal.SIGKILL


LEARNERS = [
    eb.learning.FedAvg(**SOME, **HELD, early_stopping=2),
    eb.learning.FedAvg(**SOME, validation_fraction=0.3, fine_tune="auto"),
    eb.learning.AdaPeD(**SOME, **HELD),
    eb.learning.AdaPeD(**SOME, unsampled=True, shared_model=MLP(3)),
    eb.learning.FedRep(MLP(3), **SOME),
    eb.learning.FedRep(MLP(3), **SOME, **NOISY),
    eb.learning.Scaffold(**SOME, server_optimizer="momentum"),
    eb.learning.Scaffold(**SOME, **NOISY),
    eb.learning.FedProx(
        **SOME, optimizer="adam", server_optimizer="adam", server_learning_rate=0.1
    ),
    eb.learning.FedProx(**SOME, **NOISY),
    eb.learning.HierarchicalEB(**SOME, strength_rounds=5, fine_tune=3),
    eb.learning.HierarchicalEB(**SOME, **NOISY, strength_rounds=5, fine_tune=3),
    eb.learning.Ditto(**SOME, **NOISY, fine_tune=3),
    eb.learning.DPAdaPeD(**SOME, **NOISY),
    eb.learning.PPSGD(**SOME | {"local_steps": 1}, **NOISY),
    eb.learning.Ditto(**SOME),
    eb.learning.FedMutual(**SOME),
    eb.learning.FedMutual(**SOME, **NOISY),
    eb.learning.LocalOnly(**SOME),
    eb.learning.PerFedAvg(**SOME),
    eb.learning.PerFedAvg(**SOME, **NOISY),
    eb.learning.PFedMe(**SOME),
    eb.learning.PFedMe(**SOME, **NOISY),
    eb.learning.QuPeD(**SOME),
    eb.learning.QuPeD(**SOME, **NOISY),
    eb.learning.DPFedAvg(**SOME, **NOISY),
    eb.learning.FeO2(**SOME, **NOISY, ratio=0.3),
    eb.learning.FedBN(personal=["intercept"], **SOME),
    eb.learning.FedBN(personal=["intercept"], **SOME, **NOISY),
    eb.learning.JointDPSGD(**OWNERS, **NOISY, personal=["intercept"], average=True),
]


def test_every_learner_is_killed():
    known = (getattr(eb.learning, name) for name in eb.learning.__all__)
    every = {each for each in known if issubclass(each, eb.learning.Learner)}
    assert {type(est) for est in LEARNERS} == every - {eb.learning.Learner}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    "est",
    LEARNERS,
    ids=lambda est: f"{type(est).__name__}-{'private' if est.privacy else 'plain'}",
)
def test_every_learner_goes_on_when_it_was_killed(est, tmp_path, monkeypatch):
    """What a checkpoint has suffices, whatever a learner keeps between rounds."""
    whole = clone(est).fit(X, Y, groups=GROUPS)
    monkeypatch.setattr("ebfed.learning.checkpoint.SPARE", 0.0)  # write all rounds
    kept, rounds = clone(est).set_params(checkpoint=tmp_path), []
    last = whole.n_iter_ - 2
    for number in (4, last):
        assert killed_in_round(clone(kept), number)
        content = (tmp_path / "fit.ebfed").read_bytes()
        rounds.append(wire.unpack(content[DIGEST:])["state"]["round"])
    assert rounds == [4, last]
    again = clone(kept).fit(X, Y, groups=GROUPS)
    np.testing.assert_array_equal(again.parameters_, whole.parameters_)
    for name, value in whole.shared_.items():
        np.testing.assert_array_equal(again.shared_[name], value)
    assert again.history_.equals(whole.history_)
    assert again.privacy_.equals(whole.privacy_)


@pytest.mark.parametrize("cls", [eb.learning.FedAvg, eb.learning.Ditto, eb.learning.AdaPeD])
def test_warm_start_goes_on(cls):
    whole = cls(n_rounds=9, batch_size=3, random_state=1, sample_rate=0.5)
    whole.fit(X, Y, groups=GROUPS)
    parts = cls(n_rounds=4, batch_size=3, random_state=1, sample_rate=0.5, warm_start=True)
    parts.fit(X, Y, groups=GROUPS)
    parts.set_params(n_rounds=9).fit(X, Y, groups=GROUPS)
    np.testing.assert_array_equal(
        parts.predict_proba(X, groups=GROUPS), whole.predict_proba(X, groups=GROUPS)
    )
    assert parts.history_.equals(whole.history_)


@pytest.mark.parametrize("est", LEARNERS, ids=lambda est: type(est).__name__)
def test_a_clone_knows_nothing_of_the_fit(est):
    assert not [name for name in est.get_params() if name.startswith("_")]


def test_a_clone_with_a_warm_start_begins_anew():
    est = eb.learning.FedAvg(n_rounds=2, warm_start=True, random_state=0).fit(X, Y, groups=GROUPS)
    again = clone(est).fit(X, Y, groups=GROUPS)
    np.testing.assert_array_equal(again.shared_["w"], est.shared_["w"])
    assert len(again.history_) == 2


def test_warm_start_keeps_its_promise():
    privacy = eb.ClientPrivacy(noise_multiplier=1.0)
    est = eb.learning.DPFedAvg(
        Softmax(), n_rounds=3, privacy=privacy, warm_start=True, random_state=0
    )
    est.fit(X, Y, groups=GROUPS)
    with pytest.raises(ValueError, match="must not change"):
        est.set_params(n_rounds=5, privacy__noise_multiplier=2.0).fit(X, Y, groups=GROUPS)
    est.set_params(privacy__noise_multiplier=1.0).fit(X, Y, groups=GROUPS)
    assert est.privacy_["times"].tolist() == [5]
    whole = clone(est).fit(X, Y, groups=GROUPS)  # one fit of five rounds
    assert est.privacy_["epsilon"][0] == pytest.approx(whole.privacy_["epsilon"][0], rel=1e-9)
    spent = est.history_["epsilon"]
    np.testing.assert_allclose(spent, whole.history_["epsilon"], rtol=1e-9)
    assert np.all(np.diff(spent) > 0)
    opened = learner(warm_start=True).set_params(n_rounds=2)
    opened.fit(X, Y, groups=GROUPS, consent=CONSENT)
    with pytest.raises(ValueError, match="must not change"):
        opened.set_params(n_rounds=3, ratio=0.0).fit(X, Y, groups=GROUPS, consent=CONSENT)
    privacy = eb.ClientPrivacy(epsilon=1.0)
    budget = eb.learning.DPFedAvg(n_rounds=3, privacy=privacy, warm_start=True, random_state=0)
    budget.fit(X, Y, groups=GROUPS)
    with pytest.raises(ValueError, match="chosen for fewer rounds"):
        budget.set_params(n_rounds=5).fit(X, Y, groups=GROUPS)
    with pytest.raises(ValueError, match="those of the last fit"):
        est.set_params(n_rounds=7).fit(X, Y, groups=GROUPS + 1)
