"""Joint differential privacy between owners: what is computed, what leaves, what it is worth."""

import warnings

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.engines import Local, join
from ebfed.learning.joint_dp import JointDPSGD, JointDPSGDRounds
from ebfed.learning.owner_exchange import OwnerExchange, OwnerTraining
from ebfed.models import MLP, Linear
from ebfed.privacy import accountant, events
from ebfed.privacy.audit import bound_from_scores
from ebfed.streams import Stream, make_key

RNG = np.random.default_rng(11)
SIZES = RNG.integers(3, 30, 12)  # rows of owners
GROUPS = RNG.permutation(np.repeat(np.arange(12), SIZES))
USERS = RNG.integers(0, 9, len(GROUPS))
X = RNG.normal(size=(len(GROUPS), 3))
Y = X @ [2.0, -1.0, 0.5] + RNG.normal(size=12)[GROUPS] + 0.1 * RNG.normal(size=len(GROUPS))


NAMES = eb.ClientPrivacy().get_params().keys()


def learner(kind=JointDPSGD, **others):
    """A learner, and those of the settings that are of its privacy."""
    settings = {"n_rounds": 7, "personal": ["intercept", "x1"], "noise_multiplier": 0.0}
    settings |= {"random_state": 2} | others
    privacy = eb.ClientPrivacy(**{name: settings.pop(name) for name in NAMES & settings.keys()})
    return kind(Linear(), privacy=privacy, **settings)


def winsorized(**others):
    settings = {"private_mean": "winsorized", "trust": "none", "concentration": 0.2}
    return learner(**settings | others)


WEIGHTS = RNG.integers(0, 4, len(GROUPS)) / 2


def fitted(est, users=USERS, weights=None):
    return est.fit(X, Y, groups=GROUPS, users=users, sample_weight=weights)


def naive(rounds, clip, eta, own_eta, radius=None, weight_decay=0.0, weights=None):
    """Return u and the x_j after each round, computed user by user, without noise."""
    shared, own = [0, 2], [1, 3]
    u, x, path = np.zeros(2), np.zeros((12, 2)), []
    pairs = sorted(set(zip(GROUPS.tolist(), USERS.tolist(), strict=True)))
    for _ in range(rounds):
        total, slope, count = np.zeros(2), np.zeros((12, 2)), np.zeros(12)
        for owner, user in pairs:
            rows = (owner == GROUPS) & (user == USERS)
            theta = np.empty(4)
            theta[shared], theta[own] = u, x[owner]
            design = np.column_stack([X[rows], np.ones(rows.sum())])
            slope_of_row = design @ theta - Y[rows]
            slope_of_row = slope_of_row if weights is None else weights[rows] * slope_of_row
            g = design.T @ slope_of_row / rows.sum() + weight_decay * theta
            g *= min(1.0, clip / max(np.linalg.norm(g), 1e-300))
            total, count[owner] = total + g[shared], count[owner] + 1
            slope[owner] += g[own]
        u, x = u - eta * total / len(pairs), x - own_eta * slope / count[:, None]
        if radius is not None:
            u = u * min(1.0, radius / np.linalg.norm(u))
        path.append((u, x))
    return path


# What is computed ---------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [0.7, 100.0])
@pytest.mark.parametrize("mean", [learner, winsorized])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_it_computes_what_a_loop_over_users_does(mean, clip, weights):
    est = mean(clip=clip, learning_rate=0.3, own_learning_rate=0.2, weight_decay=0.1)
    u, x = naive(7, clip, 0.3, 0.2, weight_decay=0.1, weights=weights)[-1]
    fitted(est, weights=weights)
    np.testing.assert_allclose(est.shared_["u"], u, rtol=1e-10)
    np.testing.assert_allclose(est.parameters_[:, [0, 2]], np.tile(u, (12, 1)), rtol=1e-10)
    np.testing.assert_allclose(est.parameters_[:, [1, 3]], x, rtol=1e-10)


def test_every_row_is_of_a_user_of_its_own_unless_it_is_said():
    alone = fitted(learner(), users=None)
    np.testing.assert_array_equal(
        fitted(learner(), users=np.arange(len(X))).parameters_, alone.parameters_
    )
    assert not np.allclose(fitted(learner()).parameters_, alone.parameters_)


def test_users_may_have_labels_of_any_kind_and_belong_to_one_owner():
    one = fitted(learner(sample_rate=0.5))
    for labels in (
        [f"user {user}" for user in USERS],
        np.array(["2024-01-01"], "M8[D]") + USERS,
        USERS - 5.5,
        USERS + 100 * GROUPS,  # as they are different users anyway
    ):
        np.testing.assert_array_equal(
            fitted(learner(sample_rate=0.5), labels).parameters_, one.parameters_
        )


def test_results_are_averages_over_rounds_if_that_is_asked_for():
    path = naive(7, 1.0, 0.1, 0.1)
    est = fitted(learner(average=True))
    np.testing.assert_allclose(est.shared_["u"], np.mean([u for u, _ in path], axis=0))
    np.testing.assert_allclose(
        est.parameters_[:, [1, 3]], np.mean([x for _, x in path], axis=0), rtol=1e-7
    )


def test_a_warm_start_does_not_go_on_from_the_average():
    est = fitted(learner(average=True, warm_start=True))
    fitted(est.set_params(n_rounds=14))
    path = naive(14, 1.0, 0.1, 0.1)[7:]
    np.testing.assert_allclose(est.shared_["u"], np.mean([u for u, _ in path], axis=0))


def test_parameters_are_projected_to_balls():
    est = fitted(learner(learning_rate=1.0, own_learning_rate=0.1, radius=0.5))
    u, x = naive(7, 1.0, 1.0, 0.1, radius=0.5)[-1]
    assert np.linalg.norm(u) == pytest.approx(0.5)
    np.testing.assert_allclose(est.shared_["u"], u, rtol=1e-10)
    np.testing.assert_allclose(est.parameters_[:, [1, 3]], x, rtol=1e-10)
    small = fitted(learner(own_radius=0.1)).parameters_[:, [1, 3]]
    assert np.linalg.norm(small, axis=1).max() == pytest.approx(0.1)


@pytest.mark.parametrize("protect", ["shared", "all"])
def test_without_own_parameters_it_is_noisy_gradient_descent(protect):
    est = fitted(learner(personal=(), noise_multiplier=1.0, protect=protect, sample_rate=0.5))
    assert np.ptp(est.parameters_, axis=0).max() == 0
    assert est.privacy_["relation"].tolist() == ["one user more or less"]
    still = fitted(learner(personal=(), protect=protect))
    theta, count = np.zeros(4), len(set(zip(GROUPS.tolist(), USERS.tolist(), strict=True)))
    for _ in range(7):
        total = np.zeros(4)
        for owner in range(12):
            for user in np.unique(USERS[owner == GROUPS]):
                rows = (owner == GROUPS) & (user == USERS)
                design = np.column_stack([X[rows], np.ones(rows.sum())])
                g = design.T @ (design @ theta - Y[rows]) / rows.sum()
                total += g * min(1.0, 1.0 / np.linalg.norm(g))
        theta = theta - 0.1 * total / count
    np.testing.assert_allclose(still.shared_["u"], theta, rtol=1e-10)


def test_noise_is_on_own_parameters_only_if_all_are_protected():
    """Without shared gradients, x_j moves by what its owner knows alone."""
    silent = {"learning_rate": 1e-12, "own_learning_rate": 0.1}
    still = fitted(learner(**silent)).parameters_[:, [1, 3]]
    noise = {"noise_multiplier": 2.0, **silent}
    shared = fitted(learner(**noise)).parameters_[:, [1, 3]]
    np.testing.assert_allclose(shared, still, atol=1e-9)
    everything = fitted(learner(protect="all", **noise)).parameters_[:, [1, 3]]
    assert np.abs(everything - still).min() > 1e-4


@pytest.mark.parametrize("mean", [learner, winsorized])
@pytest.mark.filterwarnings("ignore:.*too few to find:UserWarning")
@pytest.mark.parametrize("protect", ["shared", "all"])
@pytest.mark.parametrize("engine", [Local(13), Local(3, threads=3)])
def test_blocks_change_nothing(mean, protect, engine):
    settings = {"sample_rate": 0.5, "noise_multiplier": 1.0, "trust": "none", "protect": protect}
    one, other = fitted(mean(**settings)), fitted(mean(engine=engine, **settings))
    np.testing.assert_array_equal(one.parameters_, other.parameters_)
    assert one.history_.equals(other.history_)
    assert one.privacy_.equals(other.privacy_)


@pytest.mark.parametrize("mean", [learner, winsorized])
@pytest.mark.filterwarnings("ignore:.*too few to find:UserWarning")
def test_an_interrupted_fit_goes_on(mean, tmp_path, monkeypatch):
    settings = {"sample_rate": 0.5, "noise_multiplier": 1.0, "average": True}
    whole = fitted(mean(**settings))
    inner = OwnerExchange.average

    def average(self, state, *others):
        if state["round"] == 4:
            raise KeyboardInterrupt
        return inner(self, state, *others)

    with monkeypatch.context() as context:
        context.setattr(OwnerExchange, "average", average)
        with pytest.raises(KeyboardInterrupt):
            fitted(mean(checkpoint=tmp_path, **settings))
    again = fitted(mean(checkpoint=tmp_path, **settings))
    np.testing.assert_array_equal(again.parameters_, whole.parameters_)
    assert again.privacy_.equals(whole.privacy_)


# What leaves --------------------------------------------------------------------------------------


def messages(est, owners, rounds, shared=None):
    """What owners tell in each round, with shared parameters that stay where they began."""
    rows, response, users = owners
    groups = np.repeat(np.arange(len(rows)), rows.shape[1])
    given = rows.reshape(-1, rows.shape[2]), response.ravel()
    clients, memory = est.protocol().prepare(*given, groups=groups, users=users.ravel())
    state = est.protocol().start(est.protocol().describe(clients, memory), make_key(0))
    told = []
    for round_ in range(rounds):
        sent = est.protocol().broadcast(state | {"round": round_})
        memory = memory | {"turn": np.zeros(len(clients), np.int8)}
        message, memory = est.protocol().local(sent, memory, clients, Stream(make_key(1), round_))
        told.append(message["changes"]["u"])
    return np.array(told)


def test_nobody_contributes_more_than_clip():
    """The last user of an owner is far off; without it the sum differs by at most C."""
    rng = np.random.default_rng(0)
    rows, response = rng.normal(size=(50, 6, 3)), rng.normal(size=(50, 6))
    rows[:, 5] *= 100
    users = np.tile([0, 1, 1, 2, 3, 3], (50, 1))
    est = learner(clip=0.5, personal=["x0"])
    with_user = messages(est, (rows, response, users), 1)[0]
    without = messages(est, (rows[:, :4], response[:, :4], users[:, :4]), 1)[0]
    moved = np.linalg.norm(with_user - without, axis=1)
    assert 0.1 < moved.max() <= 0.5 * (1 + 1e-12)


def test_weights_stay_in_the_norm_of_a_user_and_change_nothing_public():
    """Whatever the weights of one user are, the sum of its owner moves by at most a norm."""
    est, sent = learner(clip=0.5, n_rounds=1), []
    one_user = (GROUPS == 3) & (USERS[GROUPS == 3][0] == USERS)
    for weight in (0.0, 1.0, 1e6):
        rows = np.where(one_user, weight, 1.0)
        clients, memory = est.protocol().prepare(
            X, Y, groups=GROUPS, users=USERS, sample_weight=rows
        )
        facts = est.protocol().describe(clients, memory)
        state = est.protocol().start(facts, np.zeros(2, np.uint64))
        turn = {"turn": state["turn"]}
        message, _ = est.protocol().local(
            est.protocol().broadcast(state), memory | turn, clients, Stream(make_key(1), 0)
        )
        sent.append((message["changes"]["u"], facts))
    (none, facts), *others = sent
    for sums, stated in others:
        assert stated.keys() == facts.keys()
        for name, value in facts.items():
            np.testing.assert_array_equal(stated[name], value)
        moved = np.linalg.norm(sums - none, axis=1)
        assert 0 < moved[3] <= 0.5 * (1 + 1e-12)
        assert not np.delete(moved, 3).any()


def test_weights_may_be_a_column():
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2"]).assign(u=USERS, w=WEIGHTS)
    est = learner(sample_rate=0.5)
    named = est.fit(frame, Y, groups=GROUPS, users="u", sample_weight="w")
    predicted = named.predict(frame, groups=GROUPS)
    plain = fitted(learner(sample_rate=0.5), weights=WEIGHTS)
    np.testing.assert_array_equal(named.parameters_, plain.parameters_)
    np.testing.assert_array_equal(predicted, plain.predict(X, groups=GROUPS))


class RawTraining(OwnerTraining):
    def noisy(self, values, *others):
        return values


class RawRounds(JointDPSGDRounds):
    def local_training(self, *block):
        return RawTraining(self, *block)


class Raw(JointDPSGD):
    """As published: gradients of shared parameters at own ones that no noise protects."""

    def protocol(self):
        return RawRounds(self)


@pytest.mark.parametrize(("kind", "sound"), [(JointDPSGD, True), (Raw, False)])
def test_a_user_does_not_show_through_what_others_tell(kind, sound):
    """One user of 21 pulls x_j, at which the gradients of the twenty others are taken.

    Each of 8,000 owners is a simulation. The server knows what to look for: the second message,
    and the first. A false alarm has a probability of 1e-6.
    """
    draws, delta = 8_000, 1e-2
    est = learner(
        kind,
        personal=["intercept"],
        n_rounds=2,
        clip=1.0,
        own_learning_rate=21.0,
        noise_multiplier=2.0,
        trust="none",
    )
    users = np.tile(np.arange(21), (draws, 1))
    rows, response = np.ones((draws, 21, 1)), np.zeros((draws, 21))
    response[:, 20] = 1000.0
    present = messages(est, (rows, response, users), 2)[:, :, 0]
    absent = messages(est, (rows[:, :20], response[:, :20], users[:, :20]), 2)[:, :, 0]
    scores = [np.array([told[1], -told[0], told[1] - told[0]]) for told in (present, absent)]
    claim = est.protocol().exchange(draws).round.epsilon(2.0, 2, delta)
    lower = bound_from_scores(*scores, delta=delta, error=1e-6).lower
    assert (lower < claim) == sound
    assert sound or lower > 3 * claim


# What it is worth ---------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", ["server", "none"])
def test_the_ledger_says_what_the_accountant_does(trust):
    est = fitted(learner(noise_multiplier=None, epsilon=1.0, sample_rate=0.2, trust=trust))
    row = est.privacy_.iloc[0]
    assert 0.99 < row["epsilon"] <= 1.0
    assert row["relation"] == "one user more or less, seen by all but its owner"
    assert ("the server is trusted" in row["assumptions"]) == (trust == "server")
    assert f"added by {'the server' if trust == 'server' else 'each owner'}" in row["what"]
    z = est.protocol().exchange(12).multiplier
    training = events.repeated(events.poisson(0.2, events.gaussian(z)), 7)
    spent = accountant.epsilon(training, 1e-5, relation="add_or_remove", interval=1e-3)
    assert row["epsilon"] == pytest.approx(spent, rel=1e-3)
    assert row["bits"] == 64 * 2 * 12 * 7  # owners answer in every round


@pytest.mark.filterwarnings("ignore:.*too few to find:UserWarning")
def test_the_ledger_of_winsorized_means_counts_rounds_that_an_owner_was_in():
    est = fitted(winsorized(noise_multiplier=3.0, sample_rate=0.4, n_rounds=10))
    row = est.privacy_.iloc[0]
    assert row["times"] == est._memory["answered"].max() < 10
    event = events.repeated(events.concentrated(2 / 9), int(row["times"]))
    spent = accountant.epsilon(event, 1e-5, relation="replace_one", method="rdp")
    assert row["epsilon"] == pytest.approx(spent)
    assert row["relation"] == "one user exchanged for another, seen by all but its owner"
    assert "nobody but the owner" in row["assumptions"]
    budget = fitted(winsorized(noise_multiplier=None, epsilon=2.0)).privacy_.iloc[0]
    assert 1.99 < budget["epsilon"] <= 2.0


def test_what_is_promised_must_not_change_with_a_warm_start():
    est = fitted(learner(noise_multiplier=1.0, protect="all", warm_start=True))
    with pytest.raises(ValueError, match="arguments that promise privacy must not change"):
        fitted(est.set_params(protect="shared", n_rounds=9))


# Winsorized means ---------------------------------------------------------------------------------


def test_winsorized_means_learn_where_owners_have_many_users():
    rng = np.random.default_rng(3)
    groups = np.repeat(np.arange(4), 6000)
    rows = rng.normal(size=(24_000, 3))
    own = np.array([-2.0, 2.0, 0.0, 1.0])
    response = rows @ [1.0, -1.0, 0.5] + own[groups] + 0.1 * rng.normal(size=len(rows))
    est = winsorized(personal=["intercept"], clip=5.0, concentration=3.0, n_rounds=40)
    est.set_params(privacy__noise_multiplier=None, privacy__epsilon=4.0, learning_rate=0.3)
    est.fit(rows, response, groups=groups)
    assert est.score(rows, response, groups=groups) > 0.98
    np.testing.assert_allclose(est.shared_["u"], [1.0, -1.0, 0.5], atol=0.1)


def test_owners_with_few_users_are_warned_of():
    with pytest.warns(UserWarning, match="12 of 12 owners have fewer than"):
        fitted(winsorized(noise_multiplier=1.0, n_rounds=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(winsorized(n_rounds=1))  # no noise, and nothing to be found


@pytest.mark.filterwarnings("ignore:.*too few to find:UserWarning")
@pytest.mark.parametrize("mean", [learner, winsorized])
def test_owners_may_have_one_user_or_none(mean):
    clients, _ = (
        learner().protocol().prepare(X[:20], Y[:20], groups=np.repeat([0, 1, 3], [1, 9, 10]))
    )
    plain = eb.tables.Clients(
        np.arange(4), np.array([0, 1, 10, 10, 20]), clients.X[:, :-1], clients.y
    )
    est = mean(noise_multiplier=1.0).fit(plain)
    assert np.isfinite(est.parameters_).all()
    start = [0.0, 0.0]
    still = mean().fit(plain).parameters_[2, [1, 3]]
    np.testing.assert_array_equal(still, start)  # nothing to learn from


def test_rounds_in_which_nobody_takes_part_change_nothing():
    est = winsorized(sample_rate=1e-9)
    fitted(est)
    np.testing.assert_array_equal(est.parameters_, 0.0)
    assert est.privacy_["times"].tolist() == [0]


# What cannot be -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"personal": ["slope"]}, "personal must name blocks of the model .* got 'slope'"),
        ({"personal": ["coefficients", "intercept"]}, "personal names all parameters"),
        ({"protect": "none"}, "protect must be 'shared' or 'all'"),
        ({"sampling": "fixed"}, "sampling must be 'poisson'"),
        (
            {"clip_quantile": 0.5, "private_mean": "winsorized", "concentration": 0.1},
            "clip_quantile must be None",
        ),
        ({"own_learning_rate": -1}, "own_learning_rate must be a finite number above 0"),
        ({"radius": 0.0}, "radius must be a finite number above 0"),
        ({"private_mean": "median"}, "private_mean must be one of"),
        ({"concentration": 0.1}, "concentration must be None, unless"),
        ({"private_mean": "winsorized"}, "concentration must be given"),
        (
            {"private_mean": "winsorized", "concentration": 0.0, "trust": "none"},
            "concentration must be a finite number above 0",
        ),
        (
            {"private_mean": "winsorized", "concentration": 0.1},
            "trust must be 'none' with private_mean='winsorized'",
        ),
    ],
)
def test_wrong_arguments(change, words):
    with pytest.raises(ValueError, match=words):
        fitted(learner(**change))


SILENT = eb.ClientPrivacy(noise_multiplier=0.0)


def test_columns_of_a_network_cannot_be_own_but_its_blocks_can():
    labels = (Y > 0).astype(int)
    est = JointDPSGD(MLP(3), personal=["x0"], privacy=SILENT, n_rounds=2)
    with pytest.raises(ValueError, match="personal must name blocks of the model"):
        est.fit(X, labels, groups=GROUPS)
    blocks = list(MLP(3).bind(3, 2).blocks)
    est.set_params(personal=blocks[-1:]).fit(X, labels, groups=GROUPS)
    assert est.predict(X, groups=GROUPS).shape == Y.shape


def test_users_must_be_one_for_each_row():
    with pytest.raises(ValueError, match="users has 3 entries for the"):
        fitted(learner(), users=[1, 2, 3])
    with pytest.raises(ValueError, match="users has 1 missing"):
        fitted(learner(), users=np.where(np.arange(len(X)) == 5, np.nan, 1.0))


def test_numbers_of_users_are_no_feature():
    est = fitted(learner())
    assert est.n_features_in_ == 3
    assert est.clients_.X.shape == X.shape


def test_facts_must_hold_numbers_of_users():
    est = learner()
    clients, memory = est.protocol().prepare(X, Y, groups=GROUPS, users=USERS)
    facts = join([est.protocol().describe(clients, memory)])
    est.protocol().check_facts(facts)
    for wrong in (facts["users"] + 100, facts["users"][1:], facts["users"].astype(float)):
        with pytest.raises(ValueError, match="number of users of each owner"):
            est.protocol().check_facts(facts | {"users": wrong})
