"""FedBN: by PyTorch's own gradients, and which layers stay with clients."""

import copy

import numpy as np
import pytest

import ebfed as eb
from ebfed.models import MLP, Softmax, Torch

torch = pytest.importorskip("torch")
nn = torch.nn

RNG = np.random.default_rng(6)
GROUPS = np.repeat(np.arange(4), [3, 5, 6, 8])
X = RNG.normal(size=(len(GROUPS), 3))
Y = np.append([0, 1], RNG.integers(0, 2, len(GROUPS) - 2))
SOME = {"n_rounds": 4, "local_steps": 3, "learning_rate": 0.3, "random_state": 0}


def module():
    torch.manual_seed(1)
    first, last = nn.Linear(3, 4), nn.Linear(4, 2)
    return nn.Sequential(first, nn.LayerNorm(4), nn.Tanh(), last).double()


def test_rounds_are_those_of_pytorch():
    """Li et al. (2021), Algorithm 1, as a loop over clients with `torch.optim.SGD`."""
    start = module()
    est = eb.learning.FedBN(Torch(start, pretrained=True), **SOME).fit(X, Y, groups=GROUPS)
    copies = [copy.deepcopy(start) for _ in range(4)]
    shared = [name for name, _ in start.named_parameters() if not name.startswith("1.")]
    rows = torch.from_numpy(X), torch.from_numpy(Y)
    for _ in range(SOME["n_rounds"]):
        for i, own in enumerate(copies):
            optimizer = torch.optim.SGD(own.parameters(), lr=SOME["learning_rate"])
            some = torch.from_numpy(i == GROUPS)
            for _ in range(SOME["local_steps"]):
                optimizer.zero_grad()
                nn.functional.cross_entropy(own(rows[0][some]), rows[1][some]).backward()
                optimizer.step()
        parameters = [dict(own.named_parameters()) for own in copies]
        with torch.no_grad():
            for name in shared:
                mean = torch.stack([own[name] for own in parameters]).mean(dim=0)
                for own in parameters:
                    own[name].copy_(mean)
    expected = [
        np.concatenate([value.detach().numpy().ravel() for value in own.parameters()])
        for own in copies
    ]
    np.testing.assert_allclose(est.parameters_, expected, rtol=1e-10, atol=1e-10)
    assert len(est.shared_["w"]) == 3 * 4 + 4 + 4 * 2 + 2
    assert np.ptp(est.parameters_[:, 16:24], axis=0).min() > 0, "layers of their own differ"


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (nn.BatchNorm1d(4).eval(), ["1.weight", "1.bias"]),
        (nn.GroupNorm(2, 4), ["1.weight", "1.bias"]),
        (nn.RMSNorm(4), ["1.weight"]),
        (nn.LayerNorm(4, elementwise_affine=False), []),
    ],
)
def test_layers_that_normalise(layer, names):
    assert Torch(nn.Sequential(nn.Linear(3, 4), layer)).normalizing() == names


def test_clients_without_a_round_have_the_layers_that_all_begin_with():
    est = eb.learning.FedBN(Torch(module(), pretrained=True), **SOME, sample_rate=0.25)
    est.set_params(n_rounds=1).fit(X, Y, groups=GROUPS)
    assert est._without_own.sum() == 3
    begun = np.r_[np.ones(4), np.zeros(4)]
    np.testing.assert_array_equal(est.parameters_[est._without_own, 16:24], [begun] * 3)


@pytest.mark.parametrize("model", [None, Softmax(), MLP(3), Torch(nn.Linear(3, 2))])
def test_models_without_such_layers(model):
    with pytest.raises(ValueError, match=r"must have layers that normalise.*personal"):
        eb.learning.FedBN(model, **SOME).fit(X, Y, groups=GROUPS)
