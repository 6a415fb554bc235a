"""Copies without rows, and who can make them; over all classes in tests/contracts."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed.channels import Gaussian
from ebfed.streams import Stream, make_key
from ebfed.testing.nodes import fit_on_nodes

X, GROUPS = np.random.default_rng(0).normal(size=60), np.arange(60) % 12
PRIVATE = eb.GaussianEB(channel=Gaussian(2.0, 1e-5, (-4, 4)), variances=1.0)
pytestmark = pytest.mark.filterwarnings("ignore::ebfed.priors.IdentificationWarning")


def test_what_is_published_estimates_groups_from_their_rows():
    fit = PRIVATE.fit(X, groups=GROUPS)
    public = fit.published()
    np.testing.assert_array_equal(
        public.posterior(X[:5], groups=np.zeros(5)).mean,
        fit.posterior(X[:5], groups=np.full(5, 99)).mean,
    )
    with pytest.raises(ValueError, match="the clients kept their figures"):
        public.posterior()
    again = pickle.loads(pickle.dumps(public.published()))
    assert str(again.summary()) == str(public.summary())


@pytest.mark.parametrize(
    ("estimator", "needed"), [(eb.GaussianEB(), "sample_weight"), (eb.PoissonEB(), "exposure")]
)
def test_what_is_published_asks_for_weights_and_exposures_as_the_fit_does(estimator, needed):
    counts, sizes = np.abs(X * 5).round(), 1.0 + np.arange(60) % 7
    rows = [
        {"X": counts[own], "groups": GROUPS[own], needed: sizes[own]}
        for own in (GROUPS < 6, GROUPS >= 6)
    ]
    _, kept, _ = fit_on_nodes(estimator, rows)
    server = clone(estimator).protocol().conclude(kept | {"log_likelihood": 0.0})
    fit = clone(estimator).fit(counts, groups=GROUPS, **{needed: sizes})
    for copy in (fit.published(), server):
        with pytest.raises(ValueError, match=f"{needed}= must give"):
            copy.predict(counts, groups=GROUPS)
        options = {"groups": GROUPS + 100, needed: sizes}  # that a fit does not know either
        expected = fit.predict(counts, **options)
        np.testing.assert_allclose(copy.predict(counts, **options), expected, rtol=1e-9)
    plain = clone(estimator).fit(counts, groups=GROUPS).published()  # rows of weight one have none
    assert len(plain.predict(counts, groups=GROUPS)) == 60


def test_what_is_published_knows_columns():
    rows = pd.DataFrame({"g": GROUPS, "n": np.abs(X * 5).round(), "years": 1.0 + np.arange(60) % 7})
    fit = eb.PoissonEB().fit(rows, groups="g", exposure="years")
    np.testing.assert_allclose(fit.published().predict(rows), fit.predict(rows), rtol=1e-9)


def test_only_a_fit_is_published():
    for est in (eb.GaussianEB(), eb.learning.FedAvg(), eb.LinearEB()):
        with pytest.raises(ValueError, match="not fitted yet"):
            est.published()


def test_a_node_has_nothing_to_publish():
    whole = eb.learning.FedAvg(eb.models.Linear(), n_rounds=1)
    clients, memory = whole.protocol().prepare(X[:, None], X, groups=GROUPS)
    state = whole.protocol().start(whole.protocol().describe(clients, memory), make_key(0))
    memory |= {"turn": state["turn"]}
    message, memory = whole.protocol().local(
        whole.protocol().broadcast(state), memory, clients, Stream(make_key(0), 0)
    )
    node = whole.protocol().finish(
        whole.protocol().broadcast(whole.protocol().update(state, message)), memory, clients
    )
    with pytest.raises(ValueError, match="this is the copy of a node"):
        node.published()
