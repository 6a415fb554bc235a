"""A channel for each class of consent."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ebfed as eb
import ebfed.streams
from ebfed import channels as ch
from ebfed.engines import converse
from ebfed.priors import Normal

RNG = np.random.default_rng(2)
M = 400
GROUPS = np.repeat(np.arange(M), RNG.integers(1, 6, M))
THETA = RNG.normal(2.0, 1.0, M)
X = RNG.normal(THETA[GROUPS], 1.0)
CLASS = np.array(["strict", "loose", "open", "strict"])[np.arange(M) % 4]
CHANNELS = {
    "strict": ch.Gaussian(1, 1e-6, (-9, 13)),
    "loose": ch.Laplace(4, (-9, 13)),
    "open": ch.Exact(),
}


def fit(**arguments):
    settings = {"variances": 1.0, "channel": CHANNELS, "random_state": 3} | arguments
    return eb.GaussianEB(**settings)


def test_every_way_to_say_who_chose_what():
    rows = CLASS[GROUPS]
    expected = fit().fit(X, groups=GROUPS, consent=rows).predict()
    frame = pd.DataFrame({"x": X, "county": GROUPS, "choice": rows})
    by_name = fit().fit(frame, groups="county", consent="choice")
    np.testing.assert_array_equal(by_name.predict(), expected)
    np.testing.assert_array_equal(
        by_name.predict(frame, groups="county"),
        by_name.predict(frame[["x", "county"]], groups="county"),
    )
    assert by_name.augment(frame, groups="county").columns.tolist()[:2] == ["county", "x"]
    polars = fit().fit(pl.DataFrame(frame), groups="county", consent="choice")
    np.testing.assert_array_equal(polars.predict(), expected)
    series = fit().fit(frame[["x"]], groups=frame["county"], consent=frame["choice"])
    np.testing.assert_array_equal(series.predict(), expected)
    by_group = fit().fit(X, groups=GROUPS, consent=dict(enumerate(CLASS)))
    np.testing.assert_array_equal(by_group.predict(), expected)
    summary = eb.Summary.from_rows(X, GROUPS)
    order = RNG.permutation(M)
    shuffled = fit().fit(summary.take(order), consent=CLASS[order])
    np.testing.assert_array_equal(shuffled.predict(), expected)
    logical = fit(channel={True: ch.Exact(), False: ch.Gaussian(1, 1e-6, (-9, 13))})
    assert logical.fit(X, groups=GROUPS, consent=rows == "open").privacy_["who"].tolist() == [
        "True",
        "False",
    ]


@pytest.mark.parametrize(
    ("consent", "message"),
    [
        (None, "consent= must say"),
        (["open"] * 3, "consent has 3 entries"),
        (np.where(np.arange(len(X)) == 0, "shut", "open"), "got 'shut'"),
        (np.where(np.arange(len(X)) % 2, "strict", "open"), "has two"),
        (dict(enumerate(CLASS[1:])), "consent is missing for 1 groups, the first 399"),
        ([None] * len(X), "missing"),
        ("choice", "X is not a data frame"),
        (3, "a sequence of labels"),
    ],
)
def test_wrong_consent(consent, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit().fit(X, groups=GROUPS, consent=consent)


def test_consent_needs_channels_to_choose_from():
    with pytest.raises(ValueError, match="no meaning with one channel"):
        eb.GaussianEB().fit(X, groups=GROUPS, consent=CLASS[GROUPS])
    with pytest.raises(TypeError, match="got 'exact'"):
        eb.GaussianEB(channel={"a": "exact"}).fit(X, groups=GROUPS, consent=CLASS[GROUPS])
    with pytest.raises(AttributeError, match="partial_fit"):
        fit().partial_fit(X, groups=GROUPS)


def test_the_ledger_has_a_row_for_each_class():
    est = fit().fit(X, groups=GROUPS, consent=CLASS[GROUPS])
    ledger = est.privacy_.set_index("who")
    assert ledger.index.tolist() == ["strict", "loose", "open"]
    assert ledger["clients"].tolist() == [200, 100, 100]
    assert ledger["epsilon"].tolist() == [1, 4, np.inf]
    assert ledger["relation"].tolist()[-1] == "none"
    text = str(est.summary())
    assert "strict: Gaussian(" in text
    assert "Real noise would give epsilon = 4 for each of these clients" in " ".join(text.split())


def test_noise_is_learned_from_those_who_show_it():
    est = fit(variances=None).fit(X, groups=GROUPS, consent=CLASS[GROUPS])
    rows = CLASS[GROUPS] == "open"
    summary = eb.Summary.from_rows(X[rows], GROUPS[rows])
    pooled = summary.scatter.sum() / (summary.n - 1).sum()
    np.testing.assert_allclose(est.noise_variance_, pooled, rtol=1e-12)
    known = fit(variances=pooled).fit(X, groups=GROUPS, consent=CLASS[GROUPS])
    np.testing.assert_allclose(known.predict(), est.predict(), rtol=1e-12)
    nobody = {"strict": CHANNELS["strict"], "loose": CHANNELS["loose"]}
    with pytest.raises(ValueError, match="variances must be given"):
        fit(variances=None, channel=nobody).fit(
            X, groups=GROUPS, consent=np.where(CLASS[GROUPS] == "open", "loose", CLASS[GROUPS])
        )


def test_all_classes_exact_is_a_plain_fit():
    everybody = {"a": ch.Exact(), "b": ch.Exact()}
    est = eb.GaussianEB(channel=everybody).fit(
        X, groups=GROUPS, consent=np.where(GROUPS % 2, "a", "b")
    )
    plain = eb.GaussianEB().fit(X, groups=GROUPS)
    np.testing.assert_allclose(est.predict(), plain.predict(), rtol=1e-12)
    np.testing.assert_allclose(est.log_likelihood_, plain.log_likelihood_, rtol=1e-12)


def test_rates_by_class():
    y = (X > 2).astype(float)
    channel = {"strict": ch.TwoBit(1), "loose": ch.TwoBit(4), "open": ch.Exact()}
    est = eb.BernoulliEB(channel=channel, random_state=0)
    est.fit(y, groups=GROUPS, consent=CLASS[GROUPS])
    plain = eb.BernoulliEB().fit(y, groups=GROUPS)
    np.testing.assert_allclose(est.prior_.mean_, plain.prior_.mean_, atol=0.1)
    assert est.privacy_["epsilon"].tolist() == [1, 4, np.inf]


def test_waves_of_one_class_beside_others():
    channel = {"strict": ch.TwoBit(4, range="private"), "loose": ch.Exact(), "open": ch.Exact()}
    guess = eb.channels.Guess(mean=(0.0, 4.0), spread=1.0)
    est = fit(channel=channel, guess=guess).fit(X, groups=GROUPS, consent=CLASS[GROUPS])
    ledger = est.privacy_
    assert ledger["clients"].sum() == M
    assert ledger["who"].tolist() == [
        "strict, asked in round 1",
        "loose",
        "open",
        "strict, asked in round 2",
        "strict, asked in round 3",
    ]


def test_a_server_may_not_loosen_what_a_client_set():
    est = fit(channel=ch.Gaussian(1, 1e-6, (0, 1)))
    summary, memory = est.protocol().prepare(X, groups=GROUPS)
    sent = {"round": 0, "settings": {"all clients": {"epsilon": 100.0}}}
    turn = {"turn": np.zeros(M, np.int8)}
    with pytest.raises(ValueError, match=r"epsilon of .* is set by the client"):
        est.protocol().local(
            sent, memory | turn, summary, eb.streams.Stream(np.zeros(2, np.uint64), 0)
        )


@pytest.mark.parametrize("engine", [eb.engines.Local(13), eb.engines.Local(7, threads=2)])
def test_blocks_do_not_matter(engine):
    whole = fit(variances=None).fit(X, groups=GROUPS, consent=CLASS[GROUPS])
    blocks = fit(variances=None, engine=engine).fit(X, groups=GROUPS, consent=CLASS[GROUPS])
    np.testing.assert_array_equal(blocks.predict(), whole.predict())
    np.testing.assert_array_equal(blocks.posterior().sd, whole.posterior().sd)


def budgets(m, seed):
    """Clients of one row: half with epsilon 1, a quarter with 4, a quarter opted out."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(0.3, 0.5, m)
    x = rng.normal(theta, 1.0)
    consent = np.repeat(["one", "four", "open"], [m // 2, m // 4, m - m // 2 - m // 4])
    return x, theta, consent


WIDE = (-6.0, 6.6)  # six standard deviations: nobody is clipped
MIXED = {
    "one": ch.Gaussian(1, 1e-6, WIDE),
    "four": ch.Gaussian(4, 1e-6, WIDE),
    "open": ch.Exact(),
}


def test_a_mixed_budget_is_precision_weighting():
    x, _, consent = budgets(2000, 0)
    est = eb.GaussianEB(1.0, prior=Normal(variance=0.25), channel=MIXED, random_state=1)
    est.fit(x, consent=consent)
    reports = est._learned.memory["report"][:, 0]
    added = np.zeros(len(x))
    for name in ("one", "four"):
        channel = MIXED[name]
        added[consent == name] = channel.variance(est.summaries_.take(consent == name))[:, 0]
    precision = 1 / (0.25 + 1.0 + added)
    expected = precision @ reports / precision.sum()
    # the fit knows of a range that clips nobody, and groups reports to a fiftieth of their noise
    np.testing.assert_allclose(est.prior_.mean_, expected, atol=1e-3 / np.sqrt(precision.sum()))
    np.testing.assert_allclose(est.prior_.mean_variance_, 1 / precision.sum(), rtol=1e-3)
    noise = {name: ch.AddNoise(float(np.sqrt(added[consent == name][0]))) for name in MIXED}
    linear = eb.GaussianEB(1.0, prior=Normal(variance=0.25), channel=noise, random_state=1)
    linear.fit(x, consent=consent)
    expected = precision @ linear._learned.memory["report"][:, 0] / precision.sum()
    np.testing.assert_allclose(linear.prior_.mean_, expected, rtol=1e-12)
    np.testing.assert_allclose(linear.prior_.mean_variance_, 1 / precision.sum(), rtol=1e-12)


@pytest.mark.slow
def test_a_mixed_budget_beats_every_single_class():
    """Regret of all clients' estimates over 300 runs; differences exceed 3 standard errors.

    Each budget is spent on the report that says most about a mean, one bit on a narrow range.
    """
    m, runs = 400, 300
    mixed_channels = {
        "one": ch.OneBit(1, (-1.2, 1.8)),
        "four": ch.OneBit(4, (-1.2, 1.8)),
        "open": ch.Exact(),
    }
    kinds = {
        "mixed": None,
        "everybody at epsilon 1": mixed_channels["one"],
        "only epsilon 1": "one",
        "only epsilon 4": "four",
        "only opted out": "open",
    }
    loss = {name: [] for name in kinds}
    for seed in range(runs):
        x, theta, consent = budgets(m, seed)
        for name, kind in kinds.items():
            settings = {"channel": kind}
            if kind is None:
                settings["channel"] = mixed_channels
            elif isinstance(kind, str):
                settings = {"channel": mixed_channels[kind], "participation": consent == kind}
            est = eb.GaussianEB(1.0, prior=Normal(variance=0.25), random_state=seed, **settings)
            est.fit(x, consent=consent if kind is None else None)
            loss[name].append(np.mean((est.predict() - theta) ** 2))
    oracle = 0.25 / 1.25
    mixed = np.array(loss.pop("mixed"))
    print(f"\nexcess risk over the oracle's {oracle:g}: mixed {mixed.mean() - oracle:.5f}")
    for name, values in loss.items():
        worse = np.array(values) - mixed
        error = worse.std(ddof=1) / np.sqrt(runs)
        print(f"{name}: {np.mean(values) - oracle:.5f}, {worse.mean() / error:.1f} s.e. worse")
        assert worse.mean() > 3 * error, name


def test_a_federation_of_nodes_by_hand():
    """Three nodes with a third of the groups each, and a server without rows."""
    est = fit(variances=None)
    rows, key = CLASS[GROUPS], np.array([3, 4], np.uint64)
    nodes = []
    for first, last in ((0, 90), (90, 200), (200, M)):
        inside = (first <= GROUPS) & (last > GROUPS)
        table = pd.DataFrame({"x": X[inside], "county": GROUPS[inside], "choice": rows[inside]})
        node = fit(variances=None)
        nodes.append((node, *node.protocol().prepare(table, groups="county", consent="choice")))

    class Hands(eb.engines.Cohort):
        def __init__(self):
            self.facts = [
                node.protocol().describe(clients, memory) for node, clients, memory in nodes
            ]

        def ask(self, sent, round_, turn):
            first, messages = 0, []
            for node, clients, memory in nodes:
                memory["turn"] = turn[first : first + len(clients)]
                stream = eb.streams.Stream(key, round_, first)
                message, kept = node.protocol().local(sent, memory, clients, stream)
                memory |= kept
                messages.append(message)
                first += len(clients)
            return messages

    state = converse(est.protocol(), Hands(), key)
    for node, clients, memory in nodes:
        node.protocol().finish(est.protocol().broadcast(state), memory, clients)
    whole = fit(variances=None)
    clients, memory = whole.protocol().prepare(X, groups=GROUPS, consent=rows)
    cohort = eb.engines.Blocks(
        eb.engines.Local(), whole.protocol(), whole.protocol(), clients, memory, key
    )
    whole.protocol().finish(
        whole.protocol().broadcast(converse(whole.protocol(), cohort, key)), cohort.memory, clients
    )
    together = np.concatenate([node.predict() for node, *_ in nodes])
    np.testing.assert_array_equal(together, whole.predict())

    server = est.protocol().conclude(state)
    assert server.feature_names_in_.tolist() == ["x"]
    assert server.log_likelihood_ == whole.log_likelihood_
    assert server.privacy_["clients"].tolist() == whole.privacy_["clients"].tolist()
    assert np.isnan(server.privacy_["clipped"]).all()
    assert "strict: Gaussian(" in str(server.summary())
    with pytest.raises(ValueError, match="clients kept their figures"):
        server.predict()
    # to a server that does not know who is who, every group is a new one
    new = server.posterior(pd.DataFrame({"x": X}), groups=GROUPS).mean[:, 0]
    np.testing.assert_allclose(new, whole.predict(), atol=0.05)


def test_clients_without_noise_beside_noisy_reports():
    """Exact figures without any noise are the population itself, and count."""
    x = RNG.normal(2.0, 1.0, 60)
    consent = np.where(np.arange(60) < 5, "loose", "open")
    est = fit(variances=0.0).fit(x, consent=consent)
    np.testing.assert_allclose(est.prior_.mean_, x[5:].mean(), atol=0.1)
    np.testing.assert_allclose(est.prior_.variance_, x[5:].var(), rtol=0.2)


@pytest.mark.parametrize("m", [2, 4, 12, 30])
@pytest.mark.parametrize("prior", ["normal", "npmle"])
@pytest.mark.parametrize("columns", [1, 2])
def test_first_waves_may_be_empty(m, prior, columns):
    """A twentieth of few clients, of two classes, is nobody."""
    if prior == "npmle" and columns == 2:
        pytest.skip("one coordinate only")
    channel = {"a": ch.TwoBit(2, range="private"), "b": ch.Laplace(2, range="private")}
    x = RNG.normal(2.0, 1.0, (m, columns))
    est = fit(channel=channel, guess=eb.channels.Guess((0, 4), 1.0), prior=prior)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eb.IdentificationWarning)
        est.fit(x, consent=np.where(np.arange(m) % 2, "a", "b"))
    assert np.isfinite(est.predict()).all()
    assert est.privacy_["clients"].sum() == m


def test_no_privacy_is_spent_on_a_fit_that_cannot_be():
    """Nobody shows the noise within groups: refused before the round, not after it."""
    channel = {"loose": ch.Laplace(1, (-9, 13)), "open": ch.Exact()}
    est = fit(variances=None, channel=channel)
    clients, memory = est.protocol().prepare(X[:9], consent=["loose"] * 5 + ["open"] * 4)
    with pytest.raises(ValueError, match="variances must be given"):
        est.protocol().start(est.protocol().describe(clients, memory), np.zeros(2, np.uint64))
