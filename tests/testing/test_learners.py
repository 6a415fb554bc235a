"""A learner of a user's own: that of the vignette, outside the package."""

import ast
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import ebfed as eb
from ebfed.testing import check_learner_contract

VIGNETTE = Path(__file__).parents[2] / "vignettes" / "extending.py"
GROUPS = np.repeat(np.arange(8), [3, 7, 5, 11, 1, 9, 4, 8])
RNG = np.random.default_rng(5)
X = RNG.normal(size=(len(GROUPS), 2))
Y = X[:, 0] + RNG.normal(size=8)[GROUPS] > 0
FEW = {"n_rounds": 4, "batch_size": 3, "local_steps": 2, "random_state": 0}


@pytest.fixture(scope="module")
def source():
    """The lines of the two classes, and no others of the vignette."""
    text, names = VIGNETTE.read_text(), ("MixedRounds", "Mixed")
    rounds, settings = (x for x in ast.parse(text).body if getattr(x, "name", None) in names)
    assert settings.decorator_list[0].lineno - rounds.end_lineno == 3
    return text.splitlines()[rounds.lineno - 1 : settings.end_lineno]


@pytest.fixture(scope="module")
def mixed(source):
    module = ModuleType("a_module_of_the_user")  # that pickle finds the class in
    sys.modules[module.__name__] = module
    exec("import ebfed as eb\nfrom dataclasses import dataclass", vars(module))
    exec("\n".join(source), vars(module))
    yield module.Mixed
    del sys.modules[module.__name__]


def test_it_is_short(source):
    assert len(source) <= 60


@pytest.mark.parametrize(
    "privacy",
    [
        None,
        eb.ClientPrivacy(epsilon=8),
        eb.ClientPrivacy(noise_multiplier=2.0, clip_quantile=0.5, trust="none"),
    ],
    ids=repr,
)
def test_it_keeps_the_contract(mixed, privacy):
    check_learner_contract(mixed(privacy=privacy, **FEW), X, Y, GROUPS)


def test_several_shared_parts_are_clipped_together(mixed):
    """A message of two parts has a norm of at most C, whatever each of them has."""

    class Rounds(type(mixed().protocol())):
        def shared_parameters(self, facts, rng):
            return super().shared_parameters(facts, rng) | {"more": np.zeros(2)}

        def train(self, shared, own, task):
            changes, own = super().train(shared, own, task)
            return changes | {"more": np.full((len(task), 2), 3.0)}, own

    class TwoParts(mixed):
        def protocol(self):
            return Rounds(self)

    est = TwoParts(privacy=eb.ClientPrivacy(noise_multiplier=0.0, clip=0.5), **FEW)
    clients, memory = est.protocol().prepare(X, Y, groups=GROUPS)
    facts = est.protocol().describe(clients, memory)
    state = est.protocol().start(facts, np.array([0, 1], np.uint64))
    sent, memory = est.protocol().broadcast(state), memory | {"turn": state["turn"]}
    message, _ = est.protocol().local(sent, memory, clients, eb.streams.Stream(state["key"], 0))
    est.protocol().check_message(message, facts, sent, state["turn"])
    norms = np.linalg.norm(np.hstack(list(message["changes"].values())), axis=1)
    np.testing.assert_allclose(norms, 0.5, rtol=1e-12)
    longer = {"changes": message["changes"] | {"more": np.ones((8, 2))}}
    with pytest.raises(ValueError, match=r"changes of w, more must have norms of at most 0\.5"):
        est.protocol().check_message(longer, facts, sent, state["turn"])
