"""Means of groups, of which only sums over groups leave."""

import numpy as np
import pytest

import ebfed as eb
from ebfed import priors
from ebfed.channels import Exact, Gaussian
from ebfed.priors import IdentificationWarning
from ebfed.testing.nodes import fit_on_nodes


def draw(m, spread=1.0, seed=0, least=1):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(m), rng.integers(least, 25, m))
    theta = rng.normal(size=(m, 2)) * spread + [5, 100]
    return theta[groups] + rng.normal(size=(len(groups), 2)) * [1, 2], groups


MODELS = {
    "REML": {},
    "ML": {"method": "ml"},
    "moments": {"method": "moments"},
    "Paule and Mandel": {"prior": priors.Normal(method="paule_mandel")},
    "known noise": {"variances": [1.0, 4.0]},
    "spherical": {"prior": priors.Normal(covariance="spherical")},
    "known mean": {"prior": priors.Normal(mean=0.0)},
    "some do not take part": {"participation": 9, "random_state": 0},
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("m", [10, 150])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_sums_give_the_fit_of_groups(model, m, spread):
    X, groups = draw(m, spread)
    whole = eb.GaussianEB(**MODELS[model]).fit(X, groups=groups)
    sums = eb.GaussianEB(**MODELS[model], share="sums").fit(X, groups=groups)
    one, other = sums.prior_, whole.prior_
    close = {"rtol": 1e-8, "atol": 1e-10}
    for name in ("variance_", "mean_variance_", "variance_variance_", "mean_"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), **close)
    assert (one.plausible_ is None) == (other.plausible_ is None)
    np.testing.assert_allclose(sums.noise_variance_, whole.noise_variance_, rtol=1e-8)
    if "participation" not in MODELS[model]:  # of the groups that took part
        assert sums.log_likelihood_ == pytest.approx(whole.log_likelihood_, abs=1e-7)
    posteriors = sums.posterior(), whole.posterior()
    for name in ("mean", "sd"):
        np.testing.assert_allclose(*(getattr(each, name) for each in posteriors), **close)
    np.testing.assert_allclose(*(each.interval(0.95) for each in posteriors), **close)
    assert sums.notes_ == whole.notes_
    assert sums._learned.n_parameters == whole._learned.n_parameters


def test_robust_intervals_hold_for_any_kurtosis():
    X, groups = draw(150)
    whole, sums = (eb.GaussianEB(share=share).fit(X, groups=groups) for share in ("groups", "sums"))
    assert sums.prior_.kurtosis_.tolist() == [np.inf, np.inf]
    one, other = (np.diff(est.posterior().interval(kind="robust"), axis=0) for est in (sums, whole))
    assert one.mean() >= other.mean()


@pytest.mark.parametrize("X", [np.zeros(8), np.repeat([1.0, 2.0, 3.0, 5.0], 2)], ids=["0", "flat"])
def test_rows_without_noise(X):
    groups = np.repeat(np.arange(4), 2)
    whole, sums = (eb.GaussianEB(share=share).fit(X, groups=groups) for share in ("groups", "sums"))
    assert sums.noise_variance_.tolist() == [0.0]
    np.testing.assert_allclose(sums.prior_.variance_, whole.prior_.variance_, rtol=1e-12)
    np.testing.assert_allclose(sums.posterior().mean, whole.posterior().mean, rtol=1e-12)


def test_one_group():
    with pytest.warns(IdentificationWarning):
        est = eb.GaussianEB(share="sums").fit([1.0, 2.0, 4.0], groups=[0, 0, 0])
    assert est.prior_.variance_.tolist() == [0.0]


def test_nodes_have_the_fit_of_one_process_in_few_rounds():
    X, groups = draw(40)
    est = eb.GaussianEB(share="sums", random_state=0)
    cuts = groups < 7, groups == 7, groups > 7
    nodes, kept, _ = fit_on_nodes(est, [{"X": X[i], "groups": groups[i]} for i in cuts])
    here = est.fit(X, groups=groups)
    for name in ("mean_", "variance_", "mean_variance_"):
        np.testing.assert_array_equal(getattr(nodes[1].prior_, name), getattr(here.prior_, name))
    means = np.concatenate([node.posterior().mean for node in nodes])
    np.testing.assert_array_equal(means, here.posterior().mean)
    assert kept["round"] <= 30
    assert not {"answers", "question", "messages"} & kept.keys()
    (row,) = here.privacy_.to_dict("records")
    assert "sums over groups" in row["what"]
    assert row["times"] == kept["round"]
    assert 64 * 6 < row["bits"] < 64 * 4000
    server = eb.GaussianEB(share="sums").protocol().conclude(kept)
    assert server.log_likelihood_ == pytest.approx(here.log_likelihood_)
    assert "Normal" in str(server.summary()) or server.summary()


def begin(est, X, groups):
    clients, memory = est.protocol().prepare(X, groups=groups)
    facts = est.protocol().describe(clients, memory)
    return clients, facts, est.protocol().start(facts, np.array([0, 1], np.uint64)), memory


def test_no_message_has_a_part_for_each_group():
    X, groups = draw(40)
    est = eb.GaussianEB(share="sums")
    clients, facts, state, memory = begin(est, X, groups)
    while not state["done"]:
        sent, memory = est.protocol().broadcast(state), memory | {"turn": state["turn"]}
        message, memory = est.protocol().local(sent, memory, clients, None)
        est.protocol().check_message(message, facts, sent, state["turn"])
        ratios = len(sent["question"]["ratios"])
        assert message.keys() == {"clients", "sums" if ratios else "mean"} | (
            set() if ratios else {"square", "scatter"}
        )
        assert all(len(part) <= 3 for part in message.values()), "exact sums of a few floats"
        for name, part in message.items():
            for bad in (part[:0], part[:, 1:], part * np.nan, None):
                with pytest.raises(ValueError, match=f"{name} must be"):
                    est.protocol().check_message(message | {name: bad}, facts, sent, state["turn"])
        state = est.protocol().update(state, message)


def test_a_silent_node_ends_the_fit_in_words():
    X, groups = draw(10)
    est = eb.GaussianEB(share="sums")
    clients, _, state, memory = begin(est, X, groups)
    few = {name: values[:4] for name, values in memory.items()} | {"turn": np.zeros(4, np.int8)}
    message, _ = est.protocol().local(
        est.protocol().broadcast(state), few, clients.take(np.arange(4)), None
    )
    with pytest.raises(ValueError, match="answers of all clients in every round; 4 of 10"):
        est.protocol().update(state, message)


@pytest.mark.parametrize(
    "arguments",
    [
        {"prior": "npmle"},
        {"prior": priors.Normal(variance=1.0)},
        {"channel": Gaussian(epsilon=1.0, delta=1e-5, range=(0.0, 10.0)), "variances": 1.0},
        {"channel": {"a": Exact(), "b": Exact()}},
    ],
    ids=["prior", "variance", "channel", "classes"],
)
def test_what_needs_groups_is_refused(arguments):
    X, groups = draw(10)
    consent = (
        "a" if "classes" in str(arguments) or isinstance(arguments.get("channel"), dict) else None
    )
    given = {} if consent is None else {"consent": np.full(len(groups), "a")}
    with pytest.raises(ValueError, match="share must be 'groups', unless prior is 'normal'"):
        eb.GaussianEB(**arguments, share="sums").fit(X, groups=groups, **given)


def test_covariates_and_wrong_arguments_are_refused():
    X, groups = draw(10)
    with pytest.raises(ValueError, match="share must be 'groups' with covariates or levels"):
        eb.GaussianEB(share="sums").fit(X, groups=groups, covariates=np.arange(10.0))
    with pytest.raises(ValueError, match="share must be 'groups' or 'sums'; got 'rows'"):
        eb.GaussianEB(share="rows").fit(X, groups=groups)
