"""Learners that promise privacy: clipping, noise, accounts, and what they refuse.

Draws have fixed seeds, but for the operating system's. Sums of squares of noise are compared with
chi-square at 1e-6 on either side, and means at 5 standard errors, in each of 11 figures: were no
seed fixed, one of 30,000 runs would fail.
"""

import math

import numpy as np
import pytest
from scipy.stats import chi2
from sklearn.base import clone

import ebfed as eb
from ebfed.learning.accounts import Round
from ebfed.learning.owner_exchange import WinsorizedRound
from ebfed.models import Linear, Softmax
from ebfed.privacy import accountant, events
from ebfed.privacy.calibration import gaussian_epsilon, gaussian_sigma
from ebfed.privacy.clipping import shorten
from ebfed.streams import Stream
from ebfed.tables.clients import Clients

ALARM = 1e-6
RNG = np.random.default_rng(17)
SIZES = [3, 7, 5, 11, 1, 9, 4, 8]
GROUPS = np.repeat(np.arange(8), SIZES)
FEATURES = RNG.normal(size=(len(GROUPS), 2))
NUMBERS = FEATURES @ [1.0, -0.5] + RNG.normal(size=8)[GROUPS]
CLASSES = np.where(NUMBERS > 0, "yes", "no")
FEW = {"n_rounds": 2, "random_state": 0, "noise_multiplier": 1.0}
PRIVATE = [eb.learning.DPFedAvg, eb.learning.DPAdaPeD, eb.learning.FeO2, eb.learning.PPSGD]
EVERY = pytest.mark.parametrize("learner", PRIVATE)


# of own parameters by name, or of owners
OWN = [eb.learning.FedRep, eb.learning.FedBN, eb.learning.JointDPSGD]
ALL = [
    *PRIVATE,
    *OWN,
    eb.learning.AdaPeD,
    eb.learning.Ditto,
    eb.learning.FedAvg,
    eb.learning.FedMutual,
    eb.learning.FedProx,
    eb.learning.HierarchicalEB,
]
ALL += [eb.learning.PFedMe, eb.learning.PerFedAvg, eb.learning.QuPeD, eb.learning.Scaffold]
NAMES = eb.ClientPrivacy().get_params().keys()


def make(learner, *models, **settings):
    """A learner, and those of the settings that are of its privacy."""
    privacy = eb.ClientPrivacy(**{name: settings.pop(name) for name in NAMES & settings.keys()})
    return learner(*models, privacy=privacy, **settings)


def key(seed):
    return np.array([seed, 7], np.uint64)


def begin(est, X=FEATURES, y=NUMBERS, groups=GROUPS, seed=0, **consent):
    """The state before the first round, and the clients with what they keep."""
    clients, memory = est.protocol().prepare(X, y, groups=groups, **consent)
    return (
        est.protocol().start(est.protocol().describe(clients, memory), key(seed)),
        clients,
        memory,
    )


def answer(est, state, clients, memory, rng=None):
    """The message of a round, and what clients keep."""
    rng = Stream(state["key"], state["round"]) if rng is None else rng
    return est.protocol().local(
        est.protocol().broadcast(state), memory | {"turn": state["turn"]}, clients, rng
    )


def looks_like(noise, sd):
    """Whether numbers have that standard deviation around 0, and not much in common."""
    statistic = np.sum(noise**2) / sd**2
    fair = ALARM < chi2.cdf(statistic, noise.size) < 1 - ALARM
    return fair and abs(noise.mean()) < 5 * sd / math.sqrt(noise.size)


def fit(learner, X=FEATURES, y=CLASSES, groups=GROUPS, **more):
    return make(learner, **(FEW | more)).fit(X, y, groups=groups)


# Clipping ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_nothing_is_longer_than_its_limit(size):
    scales = 10.0 ** RNG.uniform(-150, 150, (500, 1))
    change = scales * RNG.normal(size=(500, size))
    limits = 10.0 ** RNG.uniform(-3, 3, 20)
    for limit in limits.tolist():
        short, norm = shorten(change, limit)
        assert np.all(np.linalg.norm(short, axis=1) <= limit * (1 + 1e-12))
        inside = norm <= limit
        np.testing.assert_array_equal(short[inside], change[inside])
        factor = limit / norm[~inside, None]
        np.testing.assert_allclose(short[~inside], change[~inside] * factor, rtol=1e-12)


def test_what_is_not_finite_becomes_zero():
    bad = np.array([[np.nan, 1.0], [np.inf, 0.0], [-np.inf, np.inf], [1e200, 1e200], [0.0, 0.0]])
    short, norm = shorten(bad, 2.0)
    np.testing.assert_array_equal(short, np.zeros((5, 2)))
    assert norm.tolist() == [np.inf] * 4 + [0.0]


@pytest.mark.filterwarnings("ignore:the predictors of 1 of")
@EVERY
@pytest.mark.parametrize("trust", ["server", "none"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_one_client_cannot_spoil_the_rest(learner, trust):
    """Its steps overflow; what it sends has a norm of at most C all the same."""
    X = FEATURES.copy()
    X[GROUPS == 1] = 1e59
    steps = 1 if learner is eb.learning.PPSGD else 9
    est = make(learner, Linear(), **(FEW | {"n_rounds": 4}), local_steps=steps, trust=trust)
    state, clients, memory = begin(est.set_params(privacy__noise_multiplier=0.0), X)
    for _ in range(4):
        message, memory = answer(est, state, clients, memory)
        limits = est.protocol().exchange(8).limits(est.protocol().broadcast(state))
        for name, values in message["changes"].items():
            assert np.linalg.norm(values, axis=1).max() <= limits[name] * (1 + 1e-12)
        state = est.protocol().update(state, message)
    est.protocol().finish(est.protocol().broadcast(state), memory, clients)
    assert all(np.isfinite(value).all() for value in est.shared_.values())
    others = GROUPS != 1
    assert np.isfinite(est.predict(FEATURES[others], groups=GROUPS[others])).all()


@pytest.mark.parametrize("learner", ALL)
def test_changes_are_clipped_as_a_whole(learner):
    """Not step by step: after several steps the longest has the norm C, and no client more."""
    clip = 1e-4
    est = make(learner, Linear(), **(FEW | {"noise_multiplier": 0.0}), clip=clip)
    if learner in OWN:
        est.set_params(personal=["intercept"])
    if learner not in (eb.learning.JointDPSGD, eb.learning.PPSGD):
        est.set_params(local_steps=4)
    state, clients, memory = begin(est)
    turn = {"turn": np.zeros(8, np.int8)}
    message, _ = answer(est, state | turn, clients, memory)
    exchange, sent = est.protocol().exchange(8), est.protocol().broadcast(state)
    longest = exchange.longest(sent, est.protocol().describe(clients, memory), turn["turn"])[0]
    whole = np.hstack([message["changes"][name] for name in exchange.clipped(sent)[0][0]])
    assert exchange.clipped(sent)[0][1] == clip
    share = np.linalg.norm(whole, axis=1) / longest
    assert np.all(share <= 1 + 1e-12)
    assert np.median(share) > 0.999 if learner is not eb.learning.JointDPSGD else share.max() > 0.5


@pytest.mark.parametrize("variant", ["refined", "paper"])
def test_limits_of_clipped_steps(variant):
    """A change has one limit; or tau steps of eta C, all in one direction, reach theirs exactly."""
    est = make(
        eb.learning.DPAdaPeD, Linear(), **FEW, local_steps=7, clip=0.1, psi_clip=0.2, decay=0.9
    )
    est.set_params(shared_learning_rate=0.3, psi_learning_rate=0.05, variant=variant)
    state, _, _ = begin(est)
    for round_ in range(3):
        limits = (
            est.protocol().exchange(8).limits(est.protocol().broadcast(state | {"round": round_}))
        )
        rate = 0.9**round_
        whole = 0.1 if variant == "refined" else 7 * 0.3 * 0.1 * rate
        assert limits["mu"] == pytest.approx(whole, rel=1e-8)
        assert limits["psi"] == pytest.approx(7 * 0.05 * 0.2 * rate, rel=1e-8)


@pytest.mark.parametrize("quantile", [0.25, 0.5, 0.75])
def test_the_limit_follows_the_quantile(quantile):
    """Steps so small that messages stay the same: C ends among the norms where it should."""
    m = 40
    y = np.exp(RNG.normal(size=m))
    est = make(
        eb.learning.DPFedAvg,
        Linear(fit_intercept=False),
        n_rounds=200,
        noise_multiplier=0.0,
        clip=1e-6,
    )
    est.set_params(privacy__clip_quantile=quantile, learning_rate=1e-8, random_state=0)
    est.fit(np.ones((m, 1)), y, groups=np.arange(m))
    share = np.mean(1e-8 * y <= est.history_["clip"].iloc[-1])
    # C settles in a cycle between two norms: a step up, a step down
    assert abs(share - quantile) <= 0.05
    steps = np.diff(np.log(est.history_["clip"]))
    np.testing.assert_allclose(steps[:5], -0.2 * (1.0 - quantile), rtol=1e-9)


# Noise -------------------------------------------------------------------------------------------

SILENT = {"X": np.zeros((3000, 2)), "y": np.zeros(3000), "groups": np.arange(3000)}


def test_noise_of_each_client():
    """Rows of zeros have no gradient: what is sent is noise."""
    est = make(
        eb.learning.DPFedAvg, Linear(), **(FEW | {"noise_multiplier": 1.5}), clip=0.4, trust="none"
    )
    state, clients, memory = begin(est, **SILENT)
    w = answer(est, state, clients, memory)[0]["changes"]["w"]
    assert w.shape == (3000, 3)
    assert looks_like(w, 1.5 * 0.4)
    assert len(np.unique(w)) == w.size


def test_noise_of_each_client_and_its_bit():
    est = make(
        eb.learning.DPFedAvg, Linear(), **(FEW | {"noise_multiplier": 1.5}), clip=0.4, trust="none"
    )
    est.set_params(privacy__clip_quantile=0.5, privacy__bit_noise=2.0)
    state, clients, memory = begin(est, **SILENT)
    message = answer(est, state, clients, memory)[0]
    assert looks_like(message["changes"]["w"], events.split_multiplier(1.5, [4.0]) * 0.4)
    assert looks_like(message["bit"], 2.0)  # whose change is zero says nothing


def test_noise_of_the_operating_system():
    """What a node adds in earnest: from no seed, so this figure alarms once in 400,000 runs."""
    pytest.importorskip("opendp")
    est = make(
        eb.learning.DPFedAvg, Linear(), **(FEW | {"noise_multiplier": 1.5}), clip=0.4, trust="none"
    )
    few = {name: values[:150] for name, values in SILENT.items()}
    state, clients, memory = begin(est, **few)
    one, two = (answer(est, state, clients, memory, "secure")[0]["changes"]["w"] for _ in range(2))
    assert looks_like(one, 1.5 * 0.4)
    assert not np.any(one == two)


@pytest.mark.parametrize("sample_rate", [1.0, 0.25])
def test_noise_of_the_server(sample_rate):
    """One draw for each parameter, over the expected number of clients, also if none take part."""
    wide = np.zeros((8, 3000))
    est = make(eb.learning.DPFedAvg, Linear(), **(FEW | {"noise_multiplier": 1.5}), clip=0.4)
    est.set_params(sample_rate=sample_rate)
    state, _, _ = begin(est, wide, np.zeros(8), np.arange(8))
    nobody = state | {"turn": np.full(8, -1, np.int8)}
    w = est.protocol().update(nobody, {"changes": {"w": np.zeros((0, 3001))}})["shared"]["w"]
    assert looks_like(w, 1.5 * 0.4 / (8 * sample_rate))
    again = est.protocol().update(nobody | {"round": 1}, {"changes": {"w": np.zeros((0, 3001))}})[
        "shared"
    ]["w"]
    assert abs(np.corrcoef(w, again)[0, 1]) < 5 / math.sqrt(3000), "rounds have noise of their own"


def test_noise_of_a_server_in_two_parts():
    """mu and psi are one release of multiplier z: that of psi costs a share of it."""
    wide = np.zeros((8, 3000))
    est = make(
        eb.learning.DPAdaPeD, Linear(), **(FEW | {"noise_multiplier": 1.5}), clip=0.4, local_steps=5
    )
    est.set_params(learning_rate=0.2, variant="paper")
    state, _, _ = begin(est, wide, np.zeros(8), np.arange(8))
    message = {"changes": {"mu": np.zeros((8, 3001)), "psi": np.zeros((8, 1))}}
    shared = est.protocol().update(state, message)["shared"]
    assert looks_like(shared["mu"], 1.5 / math.sqrt(0.96) * 5 * 0.2 * 0.4 / 8)
    psis = []
    for seed in range(300):
        state["key"] = key(seed)
        psis.append(est.protocol().update(state, message)["shared"]["psi"][0] - 3.5)
    assert looks_like(np.array(psis), 1.5 / math.sqrt(0.04) * 5 * 0.05 * 1.0 / 8)
    scales, _ = est.protocol().exchange(8).scales(est.protocol().broadcast(state))
    limits = est.protocol().exchange(8).limits(est.protocol().broadcast(state))
    each = [scales[name] / limits[name] for name in limits]
    assert events.joint_multiplier(each) == pytest.approx(1.5, rel=1e-12)


def test_all_private_learners_are_here():
    known = (getattr(eb.learning, name) for name in eb.learning.__all__)
    every = {each for each in known if issubclass(each, eb.learning.Learner)}
    assert set(ALL) == every - {eb.learning.Learner, eb.learning.LocalOnly}


@pytest.mark.parametrize("trust", ["server", "none"])
@pytest.mark.parametrize("learner", ALL)
def test_an_adaptive_clip_is_accounted_for(learner, trust):
    """All parts of a message and its bit are one release of multiplier z, of any clip."""
    est = make(learner, Linear(), **(FEW | {"noise_multiplier": 1.5}), clip_quantile=0.5)
    est.set_params(privacy__trust=trust, privacy__clip=0.4)
    if learner in OWN:
        est.set_params(personal=["intercept"])
    state, clients, memory = begin(est)
    sent = est.protocol().broadcast(state | {"clip": 0.07})
    exchange = est.protocol().exchange(8)
    scales, bits = exchange.scales(sent)
    parts = exchange.clipped(sent)  # of FeO2, scales are of its only level
    each = [*(np.max(scales[names[0]]) / limit for names, limit in parts), 2 * np.max(bits)]
    assert events.joint_multiplier(each) == pytest.approx(1.5, rel=1e-12)
    assert exchange.clipped(sent)[0][1] == 0.07
    silent = est.set_params(privacy__noise_multiplier=0.0)
    turn = {"turn": np.zeros(8, np.int8)}
    stream = Stream(key(0), 0)
    message, _ = silent.protocol().local(
        silent.protocol().broadcast(state), memory | turn, clients, stream
    )
    longest = exchange.longest(sent, silent.protocol().describe(clients, memory), turn["turn"])[0]
    whole = np.hstack([message["changes"][name] for name in exchange.clipped(sent)[0][0]])
    norm = np.linalg.norm(whole, axis=1)
    assert np.all(norm <= np.multiply(longest, 0.4 / 0.07 * (1 + 1e-12)))
    moved = silent.protocol().update(state | turn, message)["clip"]
    users = est.protocol().describe(clients, memory).get("users", np.ones(8))
    share = message["bit"].sum() / users.sum()
    assert moved == pytest.approx(0.4 * math.exp(-0.2 * share), rel=1e-12)
    assert np.isin(2 * message["bit"], np.arange(-users.max(), users.max() + 1)).all()


def test_noise_of_bits():
    """C moves by it, in logarithms."""
    est = make(
        eb.learning.DPFedAvg, Linear(), **(FEW | {"noise_multiplier": 1.5}), clip_quantile=0.3
    )
    est.set_params(privacy__bit_noise=2.0, privacy__clip_step=0.1)
    state, _, _ = begin(est)
    message, moves = {"changes": {"w": np.zeros((8, 3))}, "bit": np.full((8, 1), 0.5)}, []
    for seed in range(500):
        moves.append(math.log(est.protocol().update(state | {"key": key(seed)}, message)["clip"]))
    assert looks_like(np.array(moves) / -0.1 - 0.7, 2.0 / 8)


@pytest.mark.parametrize("trust", ["server", "none"])
def test_noise_beside_those_who_opted_out(trust):
    est = make(
        eb.learning.FeO2,
        Linear(),
        **(FEW | {"noise_multiplier": 1.5}),
        clip=0.4,
        ratio=0.3,
        trust=trust,
    )
    if trust == "none":
        consent = np.where(np.arange(3000) < 1000, "open", "private")
        state, clients, memory = begin(est, **SILENT, consent=consent)
        w = answer(est, state, clients, memory)[0]["changes"]["w"]
        np.testing.assert_array_equal(w[:1000], 0.0)
        assert looks_like(w[1000:], 0.3 * 1.5 * 0.4), "clients send changes times their weights"
        return
    consent = np.where(np.arange(8) < 3, "open", "private")
    state, _, _ = begin(est, np.zeros((8, 3000)), np.zeros(8), np.arange(8), consent=consent)
    w = est.protocol().update(state, {"changes": {"w": np.zeros((8, 3001))}})["shared"]["w"]
    assert looks_like(w, 0.3 * 1.5 * 0.4 / (3 + 0.3 * 5))


@pytest.mark.parametrize("trust", ["server", "none"])
@pytest.mark.parametrize("bit_noise", [None, 3.0])
def test_changes_and_bits_are_one_release(trust, bit_noise):
    est = make(
        eb.learning.DPFedAvg,
        noise_multiplier=1.5,
        clip_quantile=0.5,
        trust=trust,
        bit_noise=bit_noise,
    )
    for m in (1, 10, 25, 1000):
        z, noise = est.protocol().exchange(m).split()
        assert events.joint_multiplier([z, 2 * noise]) == pytest.approx(1.5, rel=1e-9)
        assert z == pytest.approx(events.split_multiplier(1.5, [2 * noise]), rel=1e-12)
    assert est.set_params(privacy__clip_quantile=None).protocol().exchange(10).split() == (1.5, 0.0)


def test_bits_never_cost_much_by_default():
    for m in range(1, 1000, 7):
        z, _ = (
            make(eb.learning.DPFedAvg, noise_multiplier=9.99, clip_quantile=0.5)
            .protocol()
            .exchange(m)
            .split()
        )
        assert z < 1.2 * 9.99


@pytest.mark.parametrize(
    ("name", "value"),
    [("clip", 5e-324), ("clip", 1e-200), ("clip", 1e200), ("noise_multiplier", 1e-200)],
)
def test_noise_that_would_underflow_is_refused(name, value):
    given = FEW | {"noise_multiplier": 1e-9, name: value}
    with pytest.raises(ValueError, match=f"{name} must"):
        make(eb.learning.DPFedAvg, **given).fit(FEATURES, CLASSES, groups=GROUPS)


@pytest.mark.filterwarnings("ignore:the predictors")
def test_limits_that_would_underflow_are_refused():
    est = make(eb.learning.DPAdaPeD, Linear(), **FEW, learning_rate=1e-300, variant="paper")
    with pytest.raises(ValueError, match="clip and learning_rate must limit"):
        est.fit(FEATURES, NUMBERS, groups=GROUPS)


@pytest.mark.filterwarnings("ignore:the predictors")
@pytest.mark.parametrize("step", [1e3, 1e308])
def test_an_adaptive_clip_stays_in_range(step):
    est = make(
        eb.learning.DPFedAvg, **(FEW | {"noise_multiplier": 0.0}), clip_quantile=0.5, clip_step=step
    )
    clips = est.fit(FEATURES, CLASSES, groups=GROUPS).history_["clip"]
    assert clips.between(1e-60, 1e60).all()


# Accounts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("learner", "more"),
    [
        (eb.learning.DPFedAvg, {"sample_rate": 0.2}),
        (eb.learning.DPFedAvg, {"clip_quantile": 0.5}),
        (eb.learning.DPFedAvg, {"trust": "none"}),
        (eb.learning.DPAdaPeD, {"sample_rate": 0.2}),
        (eb.learning.PPSGD, {"sample_rate": 0.2}),
        (eb.learning.FeO2, {"sample_rate": 0.2}),
    ],
)
def test_a_budget_is_kept_and_spent(learner, more):
    est = make(learner, epsilon=2.0, delta=1e-4, n_rounds=20, random_state=0, **more)
    (spent,) = est.fit(FEATURES, CLASSES, groups=GROUPS).privacy_["epsilon"]
    assert 2.0 - 1e-3 <= spent <= 2.0


def test_a_known_figure():
    """Poisson samples of 5 %, noise of 1, 500 rounds: 6.4775 at 1e-4."""
    est = fit(eb.learning.DPFedAvg, n_rounds=500, sample_rate=0.05, delta=1e-4)
    (row,) = est.privacy_.to_dict("records")
    assert row["epsilon"] == pytest.approx(6.4775, abs=2e-3)
    assert row["delta"] == 1e-4
    assert row["times"] == 500
    assert row["relation"] == "the rows of one client, or none"


def test_samples_of_a_fixed_size_are_accounted_as_such():
    est = fit(
        eb.learning.DPFedAvg, n_rounds=5, sample_rate=0.25, sampling="fixed", noise_multiplier=2.0
    )
    event = events.repeated(events.fixed_size(8, 2, events.gaussian(2.0)), 5)
    exact = accountant.epsilon(event, 1e-5, relation="replace_one", method="rdp")
    (row,) = est.privacy_.to_dict("records")
    assert row["epsilon"] == pytest.approx(exact, rel=1e-9)
    assert row["relation"] == "one client exchanged for another"
    poisson = fit(eb.learning.DPFedAvg, n_rounds=5, sample_rate=0.25, noise_multiplier=2.0)
    assert row["epsilon"] > 1.3 * poisson.privacy_["epsilon"][0]


def test_a_fixed_sample_of_all_is_no_sample():
    est = fit(eb.learning.DPFedAvg, n_rounds=5, sampling="fixed", noise_multiplier=2.0)
    event = events.repeated(events.gaussian(2.0), 5)
    exact = accountant.epsilon(event, 1e-5, relation="add_or_remove", interval=1e-3)
    assert est.privacy_["epsilon"].tolist() == [pytest.approx(exact, rel=1e-6)]  # discretised


def test_without_trust_each_answer_has_its_price():
    """Samples amplify nothing: whoever sees messages sees whose they are."""
    est = make(
        eb.learning.DPFedAvg,
        Linear(),
        n_rounds=6,
        sample_rate=0.5,
        trust="none",
        noise_multiplier=3.0,
    )
    state, clients, memory = begin(est)
    sampled = np.zeros(8, int)
    while not state["done"]:
        sampled += state["turn"] == 0
        message, memory = answer(est, state, clients, memory)
        state = est.protocol().update(state, message)
    est.protocol().finish(est.protocol().broadcast(state), memory, clients)
    assert 1 < sampled.max() < 6
    (row,) = est.privacy_.to_dict("records")
    assert row["times"] == sampled.max()
    event = events.repeated(events.gaussian(3.0), int(sampled.max()))
    exact = accountant.epsilon(event, 1e-5, relation="replace_one", interval=1e-3)
    assert row["epsilon"] == pytest.approx(exact, rel=1e-6)  # discretised
    assert row["relation"] == "any two data sets of one client"


def test_no_round_is_entered_for_free():
    """What a node writes in its ledger before it answers: every round costs the same."""
    est = make(eb.learning.DPFedAvg, Linear(), n_rounds=4, trust="none", noise_multiplier=3.0)
    state, clients, memory = begin(est)
    costs = []
    while not state["done"]:
        message, memory = answer(est, state, clients, memory)
        costs += [
            row["epsilon"]
            for row in est.protocol().releases(est.protocol().broadcast(state), memory, clients)
        ]
        state = est.protocol().update(state, message)
    once = accountant.epsilon(events.gaussian(3.0), 1e-5, relation="replace_one", interval=1e-3)
    assert min(costs) >= once * (1 - 1e-6)  # discretised


def test_no_round_is_entered_twice():
    est = make(eb.learning.DPFedAvg, Linear(), n_rounds=4, trust="none", noise_multiplier=3.0)
    state, clients, memory = begin(est)
    message, memory = answer(est, state, clients, memory)
    state = est.protocol().update(state, message)
    _, memory = answer(est, state, clients, memory)
    (row,) = est.protocol().releases(est.protocol().broadcast(state), memory, clients)
    assert row["times"] == 1


def test_without_noise_nothing_is_promised():
    for learner in PRIVATE:
        (row,) = fit(learner, noise_multiplier=0.0).privacy_.to_dict("records")
        assert row["epsilon"] == np.inf
        assert row["relation"] == "none"
        assert row["delta"] == 0.0


@pytest.mark.parametrize("ratio", [0.5, 0.0])
def test_those_who_opted_out_are_promised_nothing(ratio):
    est = make(eb.learning.FeO2, n_rounds=10, random_state=0, ratio=ratio, epsilon=1.0)
    consent = dict.fromkeys(range(8), "private") | {2: "open", 5: "open"}
    est.fit(FEATURES, CLASSES, groups=GROUPS, consent=consent)
    private, opened = est.privacy_.to_dict("records")
    assert (private["who"], private["clients"]) == ("private", 6)
    assert (opened["who"], opened["clients"], opened["epsilon"]) == ("open", 2, np.inf)
    assert opened["relation"] == "none"
    if ratio:
        assert 1.0 - 1e-3 <= private["epsilon"] <= 1.0
    else:
        assert (private["epsilon"], private["times"]) == (0.0, 0)


@pytest.mark.parametrize(
    "more",
    [
        {"sample_rate": 0.3},
        {"sample_rate": 0.3, "trust": "none"},
        {"sample_rate": 0.5, "sampling": "fixed"},
        {"clip_quantile": 0.5},
    ],
    ids=["poisson", "none", "fixed", "all"],
)
def test_the_history_of_spending(more):
    est = fit(eb.learning.DPFedAvg, n_rounds=12, noise_multiplier=3.0, **more)
    spent, total = est.history_["epsilon"].to_numpy(), est.privacy_["epsilon"][0]
    assert np.all(np.diff(spent) >= 0)
    assert spent[0] > 0
    if "trust" in more:  # a round is entered as if it had been everyone's
        assert spent[-1] >= total
    else:
        assert spent[-1] == pytest.approx(total, rel=1e-9)


@EVERY
def test_the_key_of_the_noise_stays_where_it_is(learner):
    est = make(learner, **FEW)
    state, clients, memory = begin(est, y=CLASSES)
    secrets = {int(word) for word in state["key"]}
    message, memory = answer(est, state, clients, memory)
    state = est.protocol().update(state, message)
    for held in (est.protocol().broadcast(state), est.protocol().keep(state), memory, message):
        assert "key" not in held
        arrays = [x for x in held.values() if isinstance(x, np.ndarray) and x.dtype == np.uint64]
        assert not secrets & {int(word) for x in arrays for word in x}


@EVERY
def test_nothing_says_who_came(learner):
    """The amplification by a sample rests on nobody's knowing."""
    est = make(learner, **FEW, sample_rate=0.5)
    state, clients, memory = begin(est, y=CLASSES)
    while not state["done"]:
        message, memory = answer(est, state, clients, memory)
        state = est.protocol().update(state, message)
    assert not {"turn", "answered"} & est.protocol().keep(state).keys()
    assert not any("clients" in row for row in est.protocol().broadcast(state)["history"])
    assert (
        "clients"
        not in est.protocol().finish(est.protocol().broadcast(state), memory, clients).history_
    )


def test_own_parameters_and_losses_stay_with_clients():
    est = make(eb.learning.DPAdaPeD, **FEW)
    state, clients, memory = begin(est, y=CLASSES)
    message, memory = answer(est, state, clients, memory)
    assert message["changes"].keys() == {"mu", "psi"}
    np.testing.assert_array_equal(
        est.protocol().broadcast(est.protocol().update(state, message))["own"]["theta"], 0.0
    )
    server = (
        make(eb.learning.DPAdaPeD, **FEW)
        .protocol()
        .conclude(est.protocol().update(est.protocol().update(state, message), message))
    )
    assert np.isnan(server.history_["loss"]).all()
    assert np.isnan(server.privacy_["clipped"]).all()


# Arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("learner", "name", "value"),
    [
        *((eb.learning.DPFedAvg, "n_rounds", x) for x in (0, 1.5, None, True)),
        *((eb.learning.DPFedAvg, "learning_rate", x) for x in (0, np.nan, np.inf, "fast")),
        *((eb.learning.DPFedAvg, "local_steps", x) for x in (0, 2.5)),
        *((eb.learning.DPFedAvg, "batch_size", x) for x in (0, 1.5, "all")),
        *((eb.learning.DPFedAvg, "decay", x) for x in (0, np.nan)),
        *((eb.learning.DPFedAvg, "weight_decay", x) for x in (-1, np.nan)),
        *((eb.learning.DPFedAvg, "sample_rate", x) for x in (0, 1.1, np.nan, None)),
        *((eb.learning.DPFedAvg, "sampling", x) for x in ("all", 1)),
        *((eb.learning.DPFedAvg, "delta", x) for x in (0, 1, np.nan, "small")),
        *((eb.learning.DPFedAvg, "noise_multiplier", x) for x in (-1, np.nan, np.inf, "much")),
        *((eb.learning.DPFedAvg, "clip", x) for x in (0, -1, np.nan, np.inf)),
        *((eb.learning.DPFedAvg, "clip_quantile", x) for x in (0, 1, np.nan)),
        *((eb.learning.DPFedAvg, "clip_step", x) for x in (0, np.nan)),
        *((eb.learning.DPFedAvg, "bit_noise", x) for x in (0, -1)),
        *((eb.learning.DPFedAvg, "trust", x) for x in ("anyone", None)),
        *((eb.learning.DPFedAvg, "fine_tune", x) for x in (-1, 1.5, None)),
        *((eb.learning.FeO2, "ratio", x) for x in (-0.1, 1.1, np.nan)),
        *((eb.learning.FeO2, "regularization", x) for x in (-1, np.nan, np.inf)),
        *((eb.learning.FeO2, "own_learning_rate", x) for x in (0, np.nan)),
        *((eb.learning.DPAdaPeD, "psi_clip", x) for x in (0, np.nan)),
        *((eb.learning.DPAdaPeD, "psi", x) for x in (0, np.nan)),
        *((eb.learning.DPAdaPeD, "psi_floor", x) for x in (0, np.inf)),
        *((eb.learning.DPAdaPeD, "psi_learning_rate", x) for x in (0, None)),
        *((eb.learning.DPAdaPeD, "psi_weight", x) for x in (0, np.nan)),
        *((eb.learning.DPAdaPeD, "shared_learning_rate", x) for x in (0, np.nan)),
        (eb.learning.DPAdaPeD, "variant", "other"),
        *((eb.learning.PPSGD, "alpha", x) for x in (-1, np.nan)),
        (eb.learning.PPSGD, "local_steps", 2),
        (eb.learning.PPSGD, "objective", "everyone"),
        *((eb.learning.DPFedAvg, name, "a") for name in ("weight_decay", "clip_quantile")),
        (eb.learning.DPFedAvg, "weight_decay", None),
        *((eb.learning.FeO2, name, "a") for name in ("ratio", "regularization")),
        (eb.learning.PPSGD, "alpha", "a"),
    ],
)
def test_wrong_arguments_are_named(learner, name, value):
    with pytest.raises(ValueError, match=f"^{name} "):
        fit(learner, **{name: value})


@pytest.mark.parametrize("epsilon", [0, -1, np.nan, np.inf, "one"])
def test_wrong_budgets_are_named(epsilon):
    with pytest.raises(ValueError, match=r"^epsilon must be a finite number above 0"):
        fit(eb.learning.DPFedAvg, epsilon=epsilon, noise_multiplier=None)


@pytest.mark.parametrize(
    ("name", "plain"),
    [(eb.learning.DPFedAvg, eb.learning.FedAvg), (eb.learning.DPAdaPeD, eb.learning.AdaPeD)],
    ids=["avg", "adaped"],
)
def test_names_of_papers_are_learners_with_privacy(name, plain):
    one, other = fit(name), fit(plain)
    np.testing.assert_array_equal(one.parameters_, other.parameters_)
    assert one.privacy_.equals(other.privacy_)
    with pytest.raises(ValueError, match=f"^privacy must be given to {name.__name__}, such as"):
        name().fit(FEATURES, CLASSES, groups=GROUPS)


def test_privacy_is_a_client_privacy_and_may_be_searched_over():
    with pytest.raises(TypeError, match=r"privacy must be a ClientPrivacy; got 8\."):
        eb.learning.FedAvg(privacy=8).fit(FEATURES, CLASSES, groups=GROUPS)
    with pytest.raises(ValueError, match="privacy must be None: LocalOnly sends nothing"):
        fit(eb.learning.LocalOnly)
    est = clone(eb.learning.Ditto(privacy=eb.ClientPrivacy(epsilon=8))).set_params(
        privacy__epsilon=2.0
    )
    assert est.get_params()["privacy__epsilon"] == est.privacy.epsilon == 2.0


def test_either_a_budget_or_noise():
    for both in ({"epsilon": 1.0}, {"noise_multiplier": None}):
        with pytest.raises(ValueError, match="either epsilon or noise_multiplier must be given"):
            fit(eb.learning.DPFedAvg, **both)


def test_bits_need_noise_enough():
    with pytest.raises(
        ValueError, match=r"^bit_noise must be above half the noise multiplier, 0\.75; got 0\.7"
    ):
        fit(eb.learning.DPFedAvg, noise_multiplier=1.5, clip_quantile=0.5, bit_noise=0.7)


def test_models_are_models():
    with pytest.raises(TypeError, match="model must be an"):
        fit(eb.learning.DPFedAvg, model="softmax")
    with pytest.raises(ValueError, match="must both predict classes"):
        fit(eb.learning.DPAdaPeD, shared_model=Linear())


@pytest.mark.parametrize("learner", [eb.learning.DPAdaPeD, eb.learning.PPSGD])
def test_nobody_is_asked_for_consent_to_nothing(learner):
    with pytest.raises(ValueError, match="has no classes of consent"):
        make(learner, **FEW).protocol().prepare(FEATURES, CLASSES, groups=GROUPS, consent="private")


def test_somebody_must_be_invited():
    with pytest.raises(ValueError, match="none would be invited"):
        fit(eb.learning.FeO2, ratio=0.0)


@pytest.mark.parametrize(
    "consent", [["private"] * 3, {0: "private"}, dict.fromkeys(range(8), "maybe")]
)
def test_wrong_consent(consent):
    with pytest.raises(ValueError, match="consent"):
        make(eb.learning.FeO2, **FEW).fit(FEATURES, CLASSES, groups=GROUPS, consent=consent)


# Rows --------------------------------------------------------------------------------------------


def spoiled(value):
    X = FEATURES.copy()
    X[3, 0] = value
    return X


@EVERY
@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"X": spoiled(np.nan)}, "contains NaN"),
        ({"X": spoiled(np.inf)}, "contains infinity"),
        ({"X": spoiled(1e308)}, "too large"),
        ({"y": CLASSES[:-1]}, "inconsistent numbers of samples"),
        ({"groups": GROUPS[:-1]}, "groups has"),
        ({"y": np.full(len(GROUPS), "yes")}, "one class only, 'yes'"),
        ({"y": NUMBERS}, "Unknown label type: continuous"),
        ({"y": None}, "requires y"),
        ({"y": np.where(NUMBERS > 0, "yes", None)}, "missing values"),
        ({"X": FEATURES[:0], "y": CLASSES[:0], "groups": GROUPS[:0]}, "0 sample"),
    ],
    ids=["nan", "inf", "huge", "y", "groups", "class", "numbers", "none", "missing", "empty"],
)
def test_wrong_rows_are_refused(learner, given, match):
    with pytest.raises(ValueError, match=match):
        fit(learner, **given)


def test_numbers_must_be_numbers():
    with pytest.raises(ValueError, match="y must be numbers"):
        fit(eb.learning.DPFedAvg, model=Linear())


@EVERY
def test_labels_of_any_kind(learner):
    est = fit(learner)
    assert est.classes_.tolist() == ["no", "yes"]
    objects = fit(learner, y=CLASSES.astype(object))
    np.testing.assert_array_equal(objects.predict_proba(FEATURES), est.predict_proba(FEATURES))
    for kind in (bool, np.int8, float):
        other = fit(learner, y=(CLASSES == "yes").astype(kind))
        np.testing.assert_array_equal(other.predict_proba(FEATURES), est.predict_proba(FEATURES))
        assert other.classes_.dtype == kind


@EVERY
def test_few_clients(learner):
    one = fit(learner, groups=np.zeros(len(GROUPS), int))
    assert one.parameters_.shape == (1, 6)
    every = fit(learner, groups=None)
    assert every.parameters_.shape == (len(GROUPS), 6)


@EVERY
def test_clients_without_rows(learner):
    """They are invited, and send noise or nothing."""
    silent = Clients(np.array([-1, 100]), np.zeros(3, np.int64), np.zeros((0, 2)), CLASSES[:0])
    clients = Clients.from_rows(FEATURES, GROUPS, CLASSES).merge(silent)
    est = make(learner, **(FEW | {"noise_multiplier": 0.0}), clip=1e9).fit(clients)
    assert est.groups_.tolist() == [-1, *range(8), 100]
    assert np.isfinite(est.parameters_).all()
    p = est.predict_proba(FEATURES[:2], groups=[-1, 100])
    assert np.isfinite(p).all()


def test_clients_without_rows_have_no_loss():
    silent = Clients(np.array([100]), np.zeros(2, np.int64), np.zeros((0, 2)), CLASSES[:0])
    clients = Clients.from_rows(FEATURES, GROUPS, CLASSES).merge(silent)
    est = eb.learning.FedAvg(n_rounds=1, random_state=0).fit(clients)
    assert est.history_["loss"][0] == pytest.approx(math.log(2), rel=1e-6)


def test_no_client_need_have_rows():
    """In one place of a federation."""
    est = make(eb.learning.DPFedAvg, Softmax(), **FEW, batch_size=2)
    state, _, memory = begin(est, y=CLASSES)
    nobody = Clients(np.arange(8), np.zeros(9, np.int64), np.zeros((0, 2)), CLASSES[:0])
    message, _ = answer(est, state, nobody, memory)
    np.testing.assert_array_equal(message["changes"]["w"], np.zeros((8, 6)))


# Messages ----------------------------------------------------------------------------------------


@EVERY
def test_poisoned_messages_are_refused(learner):
    est = make(learner, **FEW, sample_rate=0.5)
    if learner is not eb.learning.DPAdaPeD:
        est.set_params(privacy__clip_quantile=0.5)
    state, clients, memory = begin(est, y=CLASSES)
    facts, sent, turn = (
        est.protocol().describe(clients, memory),
        est.protocol().broadcast(state),
        state["turn"],
    )
    message, _ = answer(est, state, clients, memory)
    est.protocol().check_message(message, facts, sent, turn)
    for name, values, put in parts(message):
        for value in (np.nan, np.inf, -np.inf):
            bad = values.copy()
            bad[-1, -1] = value
            with pytest.raises(ValueError, match=f"{name} must be finite"):
                est.protocol().check_message(put(bad), facts, sent, turn)
        wrong = (values[:-1], values[:, 0], values[:, :, None], np.hstack([values, values]))
        for bad in (*wrong, values.astype(np.float32), values.tolist(), None):
            with pytest.raises(ValueError, match=f"{name} must be float64 numbers of shape"):
                est.protocol().check_message(put(bad), facts, sent, turn)
    other = {"changes": message["changes"] | {"more": values}}
    for bad in ({}, message | {"more": values}, message | other, {"changes": {"x": values}}):
        with pytest.raises(ValueError, match="a message must have the parts"):
            est.protocol().check_message(bad, facts, sent, turn)


def parts(message):
    """Name and array of each part of a message, and what puts another array in its place."""
    for name, values in message["changes"].items():
        yield name, values, lambda x, n=name: message | {"changes": message["changes"] | {n: x}}
    for name in message.keys() - {"changes"}:
        yield name, message[name], lambda x, n=name: message | {n: x}


def test_messages_longer_than_they_may_be_are_refused():
    est = make(eb.learning.DPFedAvg, **FEW)
    state, clients, memory = begin(est, y=CLASSES)
    facts, sent, turn = (
        est.protocol().describe(clients, memory),
        est.protocol().broadcast(state),
        state["turn"],
    )
    with pytest.raises(ValueError, match="w must have"):
        est.protocol().check_message({"changes": {"w": np.full((8, 6), 1e300)}}, facts, sent, turn)


def test_wrong_facts_are_refused():
    est = make(eb.learning.FeO2, **FEW)
    clients, memory = est.protocol().prepare(FEATURES, CLASSES, groups=GROUPS)
    facts = est.protocol().describe(clients, memory)
    est.protocol().check_facts(facts)
    wrong = [
        {"n": facts["n"] - 2},
        {"n": facts["n"].astype(float)},
        {"n_features": np.array([0])},
        {"classes": None},
        {"consent": facts["consent"] + np.int8(2)},
        {"consent": facts["consent"][1:]},
        {"consent": None},
    ]
    for each in wrong:
        with pytest.raises(ValueError, match=r"facts must|consent must"):
            est.protocol().check_facts(facts | each)


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
@pytest.mark.parametrize("multiplier", [1e-3, 1e-9])
def test_next_to_no_noise_has_an_account(sampling, multiplier):
    """Which overflowed in the end of a fit, and is at most that of rounds with everyone."""
    round_ = Round(0.5, 20, sampling, "server")
    most = gaussian_epsilon(multiplier / 6**0.5, 1e-5, round_.sensitivity)
    found = round_.epsilon(multiplier, 6, 1e-5)
    assert 0 < found <= most * (1 + 1e-9)
    assert round_.spent(multiplier, 6, 1e-5)[-1] <= found
    privacy = eb.ClientPrivacy(noise_multiplier=multiplier)
    est = eb.learning.FedAvg(
        privacy=privacy, sample_rate=0.5, sampling=sampling, n_rounds=2, random_state=0
    )
    est.fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 1, 0], groups=list("aabb"))
    assert est.privacy_["epsilon"][0] > 1e4


@pytest.mark.parametrize(
    ("sampling", "epsilon", "delta"),
    [("poisson", 1.0, 1e-30), ("poisson", 1e8, 1e-5), ("fixed", 1e8, 1e-5)],
)
def test_samples_need_no_more_noise_than_rounds_with_everyone(sampling, epsilon, delta):
    """Losses on a grid have no such deltas: 120 times the noise was found, or an overflow."""
    round_ = Round(0.3, 20, sampling, "server")
    found, most = round_.multiplier(epsilon, 5, delta), gaussian_sigma(epsilon, delta)
    assert 0 < found <= 5**0.5 * round_.sensitivity * most * (1 + 1e-9)
    assert round_.epsilon(found, 5, delta) <= epsilon * (1 + 1e-6)


def test_only_gaussian_noise_has_the_bound_of_gaussian_noise():
    """Windows of winsorized means cost what concentrated privacy says, also of next to no noise."""
    for multiplier in (3.0, 1e-5):
        round_ = WinsorizedRound(1.0, 20, "poisson", "none")
        rho = 4 * WinsorizedRound.rho(multiplier)
        found = round_.epsilon(multiplier, 4, 1e-5)
        assert rho <= found < math.inf
        assert found > Round(1.0, 20, "poisson", "none").epsilon(multiplier, 4, 1e-5)
