"""Steps along rows: the same as steps in all parameters, but for rounding."""

import numpy as np
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed.learning import paths, training
from ebfed.models import MLP, Linear, Softmax

RNG = np.random.default_rng(7)
GROUPS = np.repeat(np.arange(9), [4, 6, 1, 5, 7, 3, 8, 2, 4])
X = RNG.normal(size=(len(GROUPS), 40))
CLASSES = np.where(X[:, 0] + RNG.normal(size=9)[GROUPS] > 0, "yes", "no")
NUMBERS = X[:, 0] + RNG.normal(size=9)[GROUPS]
WEIGHTS = RNG.integers(0, 3, len(GROUPS))
STEPS = {"n_rounds": 4, "learning_rate": 0.1, "local_steps": 5, "random_state": 0}
LEARNERS = {
    "FedAvg": {"sample_rate": 0.5},
    "DPFedAvg": {"privacy": eb.ClientPrivacy(noise_multiplier=0.1, clip=0.05)},
    "FedProx": {"regularization": 0.5},
    "LocalOnly": {},
    "Ditto": {},
    "HierarchicalEB": {"local_steps": 1},
}
CHOICES = {
    "momentum": {"optimizer": "momentum"},
    "fine-tuning": {"fine_tune": 20},
    "choice of fine-tuning": {"fine_tune": "auto", "validation_fraction": 0.3},
    "one step": {"local_steps": 1},
    "weight decay": {"weight_decay": 0.1},
    "batches": {"batch_size": 3, "weight_decay": 0.1},
}
CASES = list(LEARNERS.items())
CASES += [("FedAvg", more) for more in CHOICES.values()]
CASES += [(name, CHOICES["batches"]) for name in ("FedProx", "LocalOnly", "HierarchicalEB")]


@pytest.fixture
def used(monkeypatch):
    """Count the paths along rows."""
    made = []

    class Counted(paths.RowPath):
        def __init__(self, *some):
            super().__init__(*some)
            made.append(self)

    monkeypatch.setattr(training, "RowPath", Counted)
    return made


def both(est, y, used, monkeypatch):
    """Return a fit along rows, and one in all parameters."""
    along = est.fit(X, y, groups=GROUPS, sample_weight=WEIGHTS)
    assert used
    used.clear()
    monkeypatch.setattr(training, "saves_products", lambda *some: False)
    plain = clone(est).fit(X, y, groups=GROUPS, sample_weight=WEIGHTS)
    assert not used
    return along, plain


@pytest.mark.parametrize(("name", "more"), CASES)
@pytest.mark.parametrize("model", [MLP(6, heads=2), Softmax(), Linear()])
def test_fits_are_those_in_all_parameters(name, more, model, used, monkeypatch):
    if name == "HierarchicalEB":
        more = more | {"strengths": (0.0, 0.1, 1.0)}
    y = CLASSES if model.classifies else NUMBERS
    est = getattr(eb, name)(model, **STEPS | more)
    along, plain = both(est, y, used, monkeypatch)
    # rounding of 1e-16 in each of up to 2,000 steps
    np.testing.assert_allclose(along.parameters_, plain.parameters_, rtol=1e-9, atol=1e-11)
    losses = [est.history_.select_dtypes(float).to_numpy() for est in (along, plain)]
    np.testing.assert_allclose(*losses, rtol=1e-9)


def test_so_are_those_of_32_bits(used, monkeypatch):
    est = eb.FedAvg(MLP(6), **STEPS, dtype="float32", fine_tune=5)
    along, plain = both(est, CLASSES, used, monkeypatch)
    assert along.parameters_.dtype == np.float32
    np.testing.assert_allclose(along.parameters_, plain.parameters_, rtol=1e-4, atol=1e-5)


def test_steps_of_adam_are_in_all_parameters(used):
    eb.FedAvg(MLP(6), **STEPS, optimizer="adam").fit(X, CLASSES, groups=GROUPS)
    assert not used


def test_no_step_changes_nothing():
    class Task:
        net, width = Softmax().bind(n_features=4, n_outputs=3), 2

        def __len__(self):
            return 3

    theta = RNG.normal(size=(3, Task.net.size))
    path = paths.RowPath(Task(), theta)
    np.testing.assert_array_equal(path.parameters(path.start), theta)
    assert not path.change(path.start).any()
