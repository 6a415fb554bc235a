"""A mixed model of which a server sees only sums over clients."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.priors import IdentificationWarning
from ebfed.regression.numerics.mixed_model import Problem
from ebfed.regression.numerics.mixed_model_sums import answer, search, shapes_of
from ebfed.tables.clients import Clients
from ebfed.tables.factors import Factors
from ebfed.testing.nodes import fit_on_nodes

RNG = np.random.default_rng(0)


def draw(m, seed=0, mean=2.0, spread=(0.7, 0.5, 0.0)):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(m), rng.integers(1, 20, m))
    X = rng.normal([mean, 0.0], [1.0, 3.0], (len(groups), 2))
    theta = rng.normal(size=(m, 3)) * spread
    y = 0.3 + theta[groups, 0] + ((X - [mean, 0]) * theta[groups, 1:]).sum(axis=1)
    return X, y + X @ [1.0, 0.2] + rng.normal(size=len(groups)), groups


def compare(sums, groups, rtol=1e-8):
    """Means in standard errors; all else relatively, and posteriors in standard deviations."""
    errors = np.sqrt(np.diag(groups.mean_covariance_))
    assert np.abs((sums.mean_ - groups.mean_) / errors).max() < rtol
    size = np.abs(groups.covariance_).max()
    np.testing.assert_allclose(sums.covariance_, groups.covariance_, rtol=rtol, atol=rtol * size)
    np.testing.assert_allclose(sums.mean_covariance_, groups.mean_covariance_, rtol=rtol)
    assert sums.noise_variance_ == pytest.approx(groups.noise_variance_, rel=rtol)
    assert sums.criterion_ == pytest.approx(groups.criterion_, rel=rtol)
    one, other = sums.posterior(), groups.posterior()
    assert np.abs((one.mean - other.mean) / other.sd).max() < rtol
    np.testing.assert_allclose(one.sd, other.sd, rtol=rtol)
    np.testing.assert_allclose(one.interval(0.9), other.interval(0.9), rtol=1e-6, atol=rtol)
    assert sums.notes_ == groups.notes_
    assert sums.n_parameters_ == groups.n_parameters_


@pytest.mark.parametrize("covariance", ["diag", "full", "spherical"])
@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("m", [12, 300])
def test_sums_give_the_fit_of_factors(covariance, method, m):
    X, y, groups = draw(m)
    arguments = {"covariance": covariance, "method": method}
    whole = eb.LinearEB(**arguments).fit(X, y, groups=groups)
    sums = eb.LinearEB(**arguments, share="sums").fit(X, y, groups=groups)
    # a full covariance ends within 1e-9 of what its criterion fell by in a step
    compare(sums, whole, 1e-6 if covariance == "full" else 1e-8)
    assert sums.n_iter_ <= 30


@pytest.mark.parametrize(
    "arguments",
    [
        {"varying": ["intercept"]},
        {"varying": []},
        {"varying": [1], "fit_intercept": False},
        {"fit_intercept": False, "covariance": "full"},
    ],
    ids=str,
)
def test_sums_give_the_fit_of_any_model(arguments):
    X, y, groups = draw(40)
    whole = eb.LinearEB(**arguments).fit(X, y, groups=groups)
    compare(eb.LinearEB(**arguments, share="sums").fit(X, y, groups=groups), whole)


def test_covariates_of_groups():
    X, y, groups = draw(40)
    covariates = RNG.normal(size=40)
    whole, sums = (
        eb.LinearEB(share=share).fit(X, y, groups=groups, covariates=covariates)
        for share in ("groups", "sums")
    )
    compare(sums, whole)
    np.testing.assert_allclose(sums.population_coef_, whole.population_coef_, rtol=1e-8)


@pytest.mark.filterwarnings("ignore:Columns of X are collinear")
# of collinear columns, some entries of a full covariance have no end: the criterion does not move
@pytest.mark.filterwarnings("ignore:Groups explain their rows all but without noise")
@pytest.mark.filterwarnings("ignore:the variances did not converge")
@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_columns_that_are_constant_or_collinear(covariance):
    X, y, groups = draw(40)
    X = np.column_stack([X, np.full(len(X), 7.0), 2 * X[:, 0] - X[:, 1]])
    whole, sums = (
        eb.LinearEB(covariance, varying=None, share=share).fit(X, y, groups=groups)
        for share in ("groups", "sums")
    )
    assert sums.notes_ == whole.notes_
    spaces = [null @ np.linalg.pinv(null) for null in (sums._result["null"], whole._result["null"])]
    np.testing.assert_allclose(*spaces, atol=1e-9)  # its basis is free
    predicted = whole.predict(X, groups=groups)
    np.testing.assert_allclose(sums.predict(X, groups=groups), predicted, rtol=1e-4, atol=1e-3)


def test_rows_that_are_explained_all_but_perfectly():
    """Residuals are asked about by themselves, where a difference would lose their digits."""
    X, y, groups = draw(40)
    y = X @ [1.0, 2.0] + 1e-6 * y
    whole, sums = (
        eb.LinearEB(share=share).fit(X, y, groups=groups) for share in ("groups", "sums")
    )
    assert sums.noise_variance_ == pytest.approx(whole.noise_variance_, rel=1e-6)
    errors = np.sqrt(np.diag(whole.mean_covariance_))
    assert np.abs((sums.mean_ - whole.mean_) / errors).max() < 5e-2, "few digits steer the search"


def test_nodes_have_the_fit_of_one_process():
    X, y, groups = draw(30)
    est = eb.LinearEB("full", share="sums", random_state=0)
    cuts = groups < 7, groups == 7, groups > 7
    rows = [{"X": X[i], "y": y[i], "groups": groups[i]} for i in cuts]
    nodes, *_ = fit_on_nodes(est, rows)
    here = est.fit(X, y, groups=groups)
    np.testing.assert_array_equal(nodes[0].mean_, here.mean_)
    np.testing.assert_array_equal(nodes[1].covariance_, here.covariance_)
    means = np.concatenate([node.posterior().mean for node in nodes])
    # a node whose groups have few rows has smaller matrices, which round in another order
    np.testing.assert_allclose(means, here.posterior().mean, rtol=1e-13)
    ledger = here.privacy_
    assert "sums over groups" in ledger["what"].iloc[0]
    assert ledger["times"].iloc[0] == here.n_iter_
    assert 0 < ledger["bits"].iloc[0] < 64 * 1000 * here.n_iter_


def test_a_silent_node_ends_the_fit_in_words():
    X, y, groups = draw(30)
    est = eb.LinearEB(share="sums")
    factors, memory = est.protocol().prepare(X, y, groups=groups)
    state = est.protocol().start(
        est.protocol().describe(factors, memory), np.array([0, 1], np.uint64)
    )
    message, _ = est.protocol().local(
        est.protocol().broadcast(state), memory, factors.take(slice(0, 20)), None
    )
    with pytest.raises(ValueError, match="answers of all clients in every round; 20 of 30"):
        est.protocol().update(state, message)


def test_wrong_sums_are_refused():
    X, y, groups = draw(30)
    est = eb.LinearEB(share="sums")
    factors, memory = est.protocol().prepare(X, y, groups=groups)
    facts = est.protocol().describe(factors, memory)
    state = est.protocol().start(facts, np.array([0, 1], np.uint64))
    for _ in range(4):
        sent = est.protocol().broadcast(state)
        message, memory = est.protocol().local(sent, memory, factors, None)
        est.protocol().check_message(message, facts, sent, state["turn"])
        for name, part in message.items():
            for bad in (part[:0], part[:, :0], part * np.nan, part.astype(np.float32), None):
                with pytest.raises(ValueError, match=f"{name} must be"):
                    est.protocol().check_message(message | {name: bad}, facts, sent, state["turn"])
        wrong = {"clients": np.array([[29.0]])}
        with pytest.raises(ValueError, match="clients must be the 30"):
            est.protocol().check_message(message | wrong, facts, sent, state["turn"])
        state = est.protocol().update(state, message)


def test_wrong_arguments_are_refused():
    X, y, groups = draw(12)
    with pytest.raises(ValueError, match="share must be 'groups' or 'sums'"):
        eb.LinearEB(share="all").fit(X, y, groups=groups)
    est = eb.LinearEB("spherical", solver="gradient", share="sums")
    with pytest.raises(ValueError, match="solver='gradient' needs share='groups'"):
        est.fit(X, y, groups=groups)


# The sums themselves -----------------------------------------------------------------------------


@pytest.mark.parametrize("covariance", ["diag", "full", "spherical"])
def test_slopes_and_curvature_are_those_of_whitened_rows(covariance):
    X, y, groups = draw(25)
    design = np.column_stack([np.ones(len(X)), X])
    rows = Factors.of(Clients.from_rows(design, groups, y)).rows
    given = len(X), np.arange(3), covariance, "reml", True
    problem = Problem(rows, *given)
    answers = []
    names = ("covariance", "method", "intercept")
    model = dict(zip(names, given[2:], strict=True))
    for _ in range(3):
        question = search(answers, (25, 4), *given[:2], **model)
        shapes = shapes_of(question, 4)
        sums = {
            name: x.sum(axis=0).reshape(shapes[name])
            for name, x in answer(rows, question).items()
            if name in shapes
        }
        answers.append((question, sums))
    root = np.diag([0.5, 0.2, 0.1])
    if covariance == "full":
        root[1, 0] = 0.3
    asked = question | {"roots": root[None]}
    shapes = shapes_of(asked, 4)
    found = {
        name: x.sum(axis=0).reshape(shapes[name])[0]
        for name, x in answer(rows, asked).items()
        if name in shapes
    }
    profile = problem.whiten(root)
    assert found["log_det"] == pytest.approx(profile.log_det, rel=1e-12)
    np.testing.assert_allclose(found["products"], profile.products, rtol=1e-9, atol=1e-9)
    effects = problem.effects_of(0, problem.white)
    inner = np.einsum("jim,kim->mjk", effects, effects)
    np.testing.assert_allclose(found["inner"], (inner**2).sum(axis=0), rtol=1e-9)
    if covariance == "full":
        flat = inner.reshape(len(inner), 9)
        outer = flat.T @ flat
        np.testing.assert_allclose(found["outer"], outer, rtol=1e-9, atol=1e-9)


def test_what_is_not_identified_is_said_once():
    X, y, _ = draw(12)
    with pytest.warns(IdentificationWarning, match="No group has two rows") as caught:
        eb.LinearEB(share="sums").fit(X[:12], y[:12], groups=np.arange(12))
    assert len(caught) == 1
