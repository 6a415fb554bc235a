"""Copies without rows, and who can make them; over all classes in tests/contracts."""

import pickle

import numpy as np
import pytest

import ebfed as eb
from ebfed.channels import Gaussian
from ebfed.streams import Stream, make_key

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
