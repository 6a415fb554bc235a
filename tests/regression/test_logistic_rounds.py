"""A logistic regression of which only sums over groups leave."""

import numpy as np
import pytest
from scipy.special import expit

import ebfed as eb
from ebfed.testing.nodes import fit_on_nodes

RNG = np.random.default_rng(0)
M = 40
GROUPS = np.repeat(np.arange(M), RNG.integers(1, 25, M))
X = RNG.normal([30.0, 0.0], size=(len(GROUPS), 2))
THETA = RNG.normal(size=(M, 3)) * [0.7, 0.5, 0.4]
LOGIT = THETA[GROUPS, 0] + (X[:, 0] - 30) * THETA[GROUPS, 1] + X[:, 1] * THETA[GROUPS, 2]
Y = (RNG.random(len(GROUPS)) < expit(LOGIT)).astype(int)


def split(*masks):
    return [{"X": X[mask], "y": Y[mask], "groups": GROUPS[mask]} for mask in masks]


@pytest.mark.parametrize("covariance", ["diag", "full", "spherical"])
def test_sums_give_the_fit_of_groups(covariance):
    groups = eb.LogisticEB(covariance).fit(X, Y, groups=GROUPS)
    sums = eb.LogisticEB(covariance, share="sums").fit(X, Y, groups=GROUPS)
    errors = np.sqrt(np.diag(groups.mean_covariance_))
    assert np.abs((sums.mean_ - groups.mean_) / errors).max() < 1e-8
    # coordinates are chosen from sums in another order
    np.testing.assert_allclose(sums.covariance_, groups.covariance_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(sums.mean_covariance_, groups.mean_covariance_, rtol=1e-8)
    assert sums.log_likelihood_ == pytest.approx(groups.log_likelihood_, abs=1e-8)
    for name in ("mean", "sd"):
        one, other = (getattr(est.posterior(), name) for est in (sums, groups))
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)
    assert sums.n_iter_ <= 30


def test_nodes_send_sums_and_have_the_fit_of_one_process():
    est = eb.LogisticEB(share="sums", varying=["intercept"], random_state=0)
    nodes, *_ = fit_on_nodes(est, split(GROUPS < 10, GROUPS == 10, GROUPS > 10))
    here = est.fit(X, Y, groups=GROUPS)
    np.testing.assert_array_equal(nodes[0].mean_, here.mean_)
    np.testing.assert_array_equal(nodes[2].covariance_, here.covariance_)
    means = np.concatenate([node.posterior().mean for node in nodes])
    np.testing.assert_array_equal(means, here.posterior().mean)
    ledger = here.privacy_
    assert "sums over groups" in ledger["what"].iloc[0]
    assert ledger["bits"].iloc[0] == 64 * (1 + 4 + 10), "whatever the number of groups"


def answers(est, groups):
    clients, memory = est.protocol().prepare(X[groups], Y[groups], groups=GROUPS[groups])
    facts = est.protocol().describe(clients, memory)
    state = est.protocol().start(facts, np.array([0, 1], np.uint64))
    while not state["done"]:
        sent = est.protocol().broadcast(state)
        message, memory = est.protocol().local(sent, memory, clients, None)
        yield message, facts, sent, state["turn"]
        state = est.protocol().update(state, message)


def test_no_message_has_a_part_for_each_group():
    sizes = [
        [sum(part.size for part in message.values()) for message, *_ in answers(est, m > GROUPS)]
        for m in (15, M)
        for est in [eb.LogisticEB(share="sums")]
    ]
    # three rows of sums at most, each of what one group would send
    assert max(max(each) for each in sizes) <= 3 * (1 + 6 + 21)


def test_wrong_sums_are_refused():
    est = eb.LogisticEB(share="sums")
    for message, facts, sent, turn in answers(est, GROUPS < 15):
        est.protocol().check_message(message, facts, sent, turn)
        for name, part in message.items():
            for bad in (part[:0], part[:, 1:], part * np.nan, part.astype(np.float32), part[0]):
                with pytest.raises(ValueError, match=f"{name} must be"):
                    est.protocol().check_message(message | {name: bad}, facts, sent, turn)
        with pytest.raises(ValueError, match="must have the parts"):
            est.protocol().check_message(message | {"more": np.ones((1, 1))}, facts, sent, turn)


def test_descent_needs_groups():
    with pytest.raises(
        ValueError, match="method='gradient' needs covariance='spherical', share='gr"
    ):
        eb.LogisticEB("spherical", method="gradient", share="sums").fit(X, Y, groups=GROUPS)
    with pytest.raises(ValueError, match="share must be 'groups' or 'sums'; got 'rows'"):
        eb.LogisticEB(share="rows").fit(X, Y, groups=GROUPS)


@pytest.mark.parametrize("method", ["ep", "laplace"])
def test_sums_give_the_fit_of_groups_of_many_coefficients(method):
    wide = RNG.normal(size=(len(GROUPS), 4))
    fits = [
        eb.LogisticEB(share=share, method=method).fit(wide, Y, groups=GROUPS)
        for share in ("groups", "sums")
    ]
    assert [fit.method_ for fit in fits] == [method] * 2
    # the search of either ends some 1e-5 standard errors from the maximum
    np.testing.assert_allclose(fits[0].mean_, fits[1].mean_, atol=1e-5)
    np.testing.assert_allclose(fits[0].covariance_, fits[1].covariance_, atol=1e-5)


def test_groups_of_one_class_are_told_by_their_number():
    ones = GROUPS < 20
    with pytest.warns(Warning, match="one class"):
        one = eb.LogisticEB(share="sums").fit(X, ones, groups=GROUPS)
    with pytest.warns(Warning, match="one class"):
        other = eb.LogisticEB().fit(X, ones, groups=GROUPS)
    assert one.notes_ == other.notes_
