"""The same group at two nodes: digests of labels, and fits that are those of all rows."""

import datetime as dt
import hashlib
import hmac
from decimal import Decimal

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import ebfed as eb
from ebfed.engines.matching import CHECK, Matched, check_digests, digests, read_match_key
from ebfed.families import Family
from ebfed.testing.nodes import fit_on_nodes

KEY = bytes(range(32))
RNG = np.random.default_rng(3)
M = 60
GROUPS = np.repeat(np.arange(M), RNG.integers(2, 9, M))
LABELS = np.array([f"g{each}" for each in GROUPS])
MEANS = 3 + RNG.normal(0, 1, M)[GROUPS] + RNG.normal(size=len(GROUPS))
WON = RNG.random(len(GROUPS)) < RNG.beta(3, 4, M)[GROUPS]
YEARS = RNG.uniform(0.5, 2, len(GROUPS))
DEATHS = RNG.poisson(RNG.gamma(2, 1, M)[GROUPS] * YEARS)
COVARIATES = np.array([[0.0, 1.0, 3.0], [0.0, 2.0, 3.0]])
# rows of most groups are at several nodes
NODE = RNG.integers(0, 3, len(GROUPS))

FITS = {
    "means": (eb.GaussianEB(), {"X": MEANS}),
    "weights": (eb.GaussianEB(), {"X": MEANS, "sample_weight": YEARS}),
    "several columns": (eb.GaussianEB(), {"X": np.column_stack([MEANS, WON])}),
    "any population": (eb.GaussianEB(prior="npmle"), {"X": MEANS}),
    "rates": (eb.BernoulliEB(), {"X": WON}),
    "events": (eb.PoissonEB(), {"X": DEATHS, "exposure": YEARS}),
    "mixture": (eb.MixtureEB(2, random_state=1), {"X": MEANS}),
}

# These fits end when the likelihood grows by too little, which leaves estimates open by its root.
TOLERANCE = {"any population": 1e-8, "mixture": 1e-8}


def at_nodes(given):
    rows = given | {"groups": LABELS}
    return [{name: x[node == NODE] for name, x in rows.items()} for node in range(3)]


@pytest.mark.parametrize("name", FITS)
def test_fits_are_those_of_all_rows(name):
    estimator, given = FITS[name]
    whole = clone(estimator).fit(**given, groups=LABELS)
    # draws of plausible populations may depend on the order of groups, which nodes do not share
    expected = whole.posterior(integrate=False)
    place = {label: i for i, label in enumerate(whole.groups_.tolist())}
    nodes, kept, _ = fit_on_nodes(estimator, at_nodes(given), KEY)
    assert len(kept["n"]) == M
    for number, fitted in enumerate(nodes):
        assert fitted.groups_.tolist() == sorted(set(LABELS[number == NODE].tolist()))
        rows = [place[label] for label in fitted.groups_.tolist()]
        assert_array_equal(fitted.summaries_.n, whole.summaries_.n[rows])
        posterior = fitted.posterior(integrate=False)
        left = TOLERANCE.get(name, 0.0)
        for found, wanted in ((posterior.mean, expected.mean), (posterior.sd, expected.sd)):
            assert_allclose(found, wanted[rows], rtol=max(left, 1e-12), atol=max(left, 1e-15))


X = np.column_stack([MEANS, RNG.normal(5, 2, len(MEANS))])
Y = X @ [0.5, 1.0] + RNG.normal(size=M)[GROUPS] * X[:, 1] + RNG.normal(size=len(X))


@pytest.mark.parametrize(
    "estimator",
    [
        eb.LinearEB(),
        eb.LinearEB("full"),
        eb.LinearEB("spherical", method="ml", varying=["intercept"]),
    ],
)
def test_regressions_are_those_of_all_rows(estimator):
    """Factors of a group at several nodes are stacked, and turned to a triangle again."""
    whole = clone(estimator).fit(X, Y, groups=LABELS)
    expected = whole.posterior()
    nodes, kept, _ = fit_on_nodes(estimator, at_nodes({"X": X, "y": Y}), KEY)
    assert len(kept["n"]) == M
    size, errors = np.abs(whole.covariance_).max(), np.sqrt(np.diag(whole.mean_covariance_))
    # rows round in another order; a full covariance ends within 1e-9 of what a step falls by
    close = 1e-6 if estimator.covariance == "full" else 1e-10
    for number, fitted in enumerate(nodes):
        here = number == NODE
        labels = sorted(set(LABELS[here].tolist()))
        assert fitted.groups_.tolist() == labels
        rows = np.isin(whole.groups_, labels)
        assert np.abs((fitted.mean_ - whole.mean_) / errors).max() < close
        assert_allclose(fitted.covariance_, whole.covariance_, rtol=0, atol=close * size)
        assert_array_equal(fitted.clients_.n, whole.clients_.n[rows])
        found = fitted.posterior()
        assert np.abs((found.mean - expected.mean[rows]) / expected.sd[rows]).max() < close
        assert_allclose(found.sd, expected.sd[rows], rtol=close)
        predicted = whole.predict(X[here], groups=LABELS[here])
        scale = close * np.std(Y)
        assert_allclose(fitted.predict(X[here], groups=LABELS[here]), predicted, atol=scale)
        # the ledger is of what this node sent, and not of what was merged with it
        n = np.minimum(np.unique(LABELS[here], return_counts=True)[1], 4)
        bits = 64 * (4 * n - n * (n - 1) / 2).sum()
        assert fitted.privacy_["bits"].sum() == pytest.approx(bits)
    other, *_ = fit_on_nodes(estimator, at_nodes({"X": X, "y": Y}))
    assert not np.allclose(other[0].mean_, whole.mean_, rtol=1e-3), "without a key, two groups"


def test_merged_factors_are_checked():
    estimator = eb.LinearEB()
    clients, memory = estimator.protocol().prepare(X[:9], Y[:9], groups=list("aaabbbccc"))
    part = {"n": clients.n, "factor": clients.rows}
    merged, memory = estimator.protocol().with_merged(part | {"n": clients.n + 1}, clients, memory)
    assert merged.ids.tolist() == ["a", "b", "c"]
    assert memory["sent"].tolist() == [3, 3, 3]
    for wrong in (
        part | {"n": clients.n - 1},
        part | {"n": clients.n[:2]},
        part | {"factor": clients.rows * np.nan},
        part | {"factor": clients.rows * 0.9},
        part | {"factor": clients.rows[:, :, :3]},
        part | {"factor": clients.rows.astype(np.float32)},
        {},
        None,
    ):
        with pytest.raises(ValueError, match="merged factors"):
            estimator.protocol().with_merged(wrong, clients, memory)


def test_a_key_that_nodes_do_not_share_is_refused():
    given = [digests(np.array(["a"]), KEY), digests(np.array(["a"]), KEY[::-1])]
    with pytest.raises(ValueError, match="match_key must be the same"):
        Matched(None, None, given)


def test_covariates_must_agree():
    rows = [{"X": [1.0, 2.0, 4.0], "groups": list("abc"), "covariates": x} for x in COVARIATES]
    with pytest.raises(ValueError, match="same covariates"):
        fit_on_nodes(eb.GaussianEB(1.0), rows, KEY)


def test_covariates_of_groups_are_those_of_all_rows():
    covariates = RNG.normal(size=M)
    rows = [
        {"X": MEANS[own], "groups": GROUPS[own], "covariates": covariates[np.unique(GROUPS[own])]}
        for own in (node == NODE for node in range(3))
    ]
    whole = eb.GaussianEB().fit(MEANS, groups=GROUPS, covariates=covariates)
    nodes, *_ = fit_on_nodes(eb.GaussianEB(), rows, KEY)
    assert_allclose(nodes[0].coef_, whole.coef_, rtol=1e-10)
    expected = whole.posterior().mean[np.isin(whole.groups_, nodes[0].groups_)]
    assert_allclose(nodes[0].posterior().mean, expected, rtol=1e-10)


@pytest.mark.parametrize(
    "estimator",
    [
        eb.BernoulliEB(channel=eb.channels.TwoBit(1.0)),
        eb.GaussianEB(participation=3),
        eb.GaussianEB(channel={"a": eb.channels.Exact(), "b": eb.channels.Exact()}),
        eb.OptOutMean(1, 1, 0.1),
        eb.MixtureEB(2, solver="clustering"),
        eb.learning.FedAvg(),
        eb.LinearEB(share="sums"),
        eb.LogisticEB(),
        eb.AdaMix(2),
    ],
)
def test_only_exact_summaries_are_merged(estimator):
    """Private reports on one group from two nodes would be two releases, each with its cost."""
    assert not estimator.protocol().matches
    assert eb.GaussianEB().protocol().matches
    assert eb.LinearEB().protocol().matches


def test_digests_are_hmacs_of_type_and_value():
    found = digests(np.array(["Ann"]), KEY)
    expected = [hmac.new(KEY, text, hashlib.sha256).digest() for text in (CHECK, b"text:Ann")]
    assert found.tobytes() == b"".join(expected)


@pytest.mark.parametrize(
    ("label", "other", "equal"),
    [
        (1, 1.0, True),
        (1, np.int8(1), True),
        (True, 1, True),
        (0.1, np.float64(0.1), True),
        (0.1, np.float32(0.1), False),
        (Decimal("1.00"), 1, True),
        (Decimal("0.10"), 0.1, True),
        ("1", 1, False),
        ("a", np.str_("a"), True),
        (np.datetime64("2020-01-01"), np.datetime64("2020-01-01T00:00:00.000"), True),
        ("2020-01-01", np.datetime64("2020-01-01"), False),
        (("Ohio", 1), ("Ohio", 1.0), True),
        (("Ohio", dt.date(2020, 1, 1)), ("Ohio", dt.datetime(2020, 1, 1)), True),
        (("Ohio", dt.date(2020, 1, 1)), ("Ohio", dt.date(2020, 1, 2)), False),
        (("Ohio", 1), ("Ohio", "1"), False),
        (("a", "bc"), ("ab", "c"), False),
    ],
)
def test_equal_labels_have_equal_digests(label, other, equal):
    both = digests([label], KEY)[1], digests([other], KEY)[1]
    assert np.array_equal(*both) == equal


def test_labels_of_other_types_are_refused():
    with pytest.raises(TypeError, match=r"numbers, strings or dates.*bytes"):
        digests([b"1"], KEY)


def test_digests_are_checked():
    good = digests(np.arange(3), KEY)
    check_digests(good, 3)
    for wrong in (
        good[:3],
        good.astype(float),
        np.vstack([good[:3], good[2:3]]),
        None,
        good[:, :8],
    ):
        with pytest.raises(ValueError, match="digests"):
            check_digests(wrong, 3)


def test_the_key_is_read_from_a_file(tmp_path):
    path = tmp_path / "key"
    path.write_text(KEY.hex() + "\n")
    assert read_match_key(path) == KEY
    for wrong in ("", "ab" * 31, "ab" * 32 + "c", "zz" * 32, "é" * 64):
        path.write_text(wrong)
        with pytest.raises(ValueError, match="match_key"):
            read_match_key(path)
    with pytest.raises(ValueError, match="cannot be read"):
        read_match_key(tmp_path / "none")


def test_merged_figures_are_checked():
    estimator = eb.GaussianEB()
    clients, memory = estimator.protocol().prepare([1.0, 2.0, 4.0], groups=["a", "a", "b"])
    figures = Family.figures(clients)
    merged, _ = estimator.protocol().with_merged({"all clients": figures}, clients, memory)
    assert merged.ids.tolist() == ["a", "b"]
    for wrong in (
        figures | {"n": figures["n"] - 1},
        figures | {"mean": np.full((2, 1), np.nan)},
        figures | {"mean": np.zeros((3, 1))},
        {},
    ):
        with pytest.raises(ValueError, match="merged figures"):
            estimator.protocol().with_merged({"all clients": wrong}, clients, memory)
