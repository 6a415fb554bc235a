"""What clients compute in: 64 bits, or 32 throughout."""

import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed.models import MLP, Linear, Torch

RNG = np.random.default_rng(2)
GROUPS = np.repeat(np.arange(30), 12)
X = RNG.normal(size=(360, 5))
Y = X[:, 0] + RNG.normal(size=30)[GROUPS] > 0
SOME = {"n_rounds": 10, "learning_rate": 0.5, "random_state": 0}
NAMES = [
    name
    for name in eb.learning.__all__
    if name not in ("ClientPrivacy", "JointDPSGD", "Learner", "LearnerRounds", "RateSchedule")
]


class Strict(MLP):
    """A network that refuses numbers of 64 bits."""

    def above(self, parameters, products):
        assert {products.dtype, *(x.dtype for x in parameters.values())} == {np.dtype("float32")}
        return super().above(parameters, products)

    def below(self, parameters, tape, slope, out):
        assert {slope.dtype, tape.dtype, *(x.dtype for x in out.values())} == {np.dtype("float32")}
        return super().below(parameters, tape, slope, out)


def learner(name, model, **more):
    cls = getattr(eb.learning, name)
    if cls().protocol().requires_privacy:
        more["privacy"] = eb.ClientPrivacy(noise_multiplier=0.5)
    if name == "FedBN":
        more["personal"] = ["hidden"]
    return cls(model, **SOME | more)


@pytest.mark.parametrize("name", NAMES)
def test_all_steps_are_of_32_bits_and_near_those_of_64(name):
    more = {} if name in ("HierarchicalEB", "LocalOnly") else {"fine_tune": 2}
    single = learner(name, Strict(4), dtype="float32", **more).fit(X, Y, groups=GROUPS)
    double = learner(name, MLP(4), **more).fit(X, Y, groups=GROUPS)
    found, expected = (est.predict_proba(X, groups=GROUPS) for est in (single, double))
    assert (found.dtype, expected.dtype) == (np.float32, np.float64)
    # rounding of 1e-7 in each step; 1e-5 where differences of gradients are multiplied
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.abs(found - expected).max() > 0
    assert single.predict_proba(X[:3]).dtype == np.float32
    kept = [single.parameters_, single.clients_.X, *single._memory["own"].values()]
    assert {each.dtype for each in kept} == {np.dtype("float32")}
    assert {each.dtype for each in single.shared_.values()} == {np.dtype("float64")}


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_so_are_those_of_optimizers_and_choices(optimizer):
    more = {"optimizer": optimizer, "validation_fraction": 0.3, "fine_tune": "auto"}
    more |= {"learning_rate": 0.05, "evaluate_every": 3, "batch_size": 4}
    est = learner("Ditto", Strict(4), dtype="float32", **more).fit(X, Y, groups=GROUPS)
    assert np.isfinite(est.history_["validation"].iloc[0])
    assert est.parameters_.dtype == np.float32


def test_numbers():
    y = X @ np.arange(5.0)
    est = learner("Ditto", Linear(), dtype="float32", learning_rate=0.1)
    fit = clone(est).fit(X, y, groups=GROUPS)
    assert fit.predict(X, groups=GROUPS).dtype == np.float32
    double = est.set_params(dtype="float64").fit(X, y, groups=GROUPS)
    np.testing.assert_allclose(fit.parameters_, double.parameters_, atol=1e-5)


@pytest.mark.parametrize("bits", ["float32", "float64"])
def test_modules_compute_in_their_own_precision(bits):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    seen = set()

    class Watched(torch.nn.Linear):
        def forward(self, rows):
            seen.add(rows.dtype)
            return super().forward(rows)

    module = torch.nn.Sequential(Watched(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    for dtype in ("float32", "float64"):
        model = Torch(module.to(getattr(torch, bits)), loss=loss)
        est = learner("Ditto", model, dtype=dtype).fit(X, Y, groups=GROUPS)
        assert est.predict_proba(X, groups=GROUPS).dtype == dtype
        assert est.export(3)["0.weight"].dtype == getattr(torch, bits)
    assert seen == {getattr(torch, bits)}


def test_32_bits_need_half_the_memory():
    wide, most = RNG.normal(size=(2000, 200)), {}
    groups, y = np.repeat(np.arange(200), 10), RNG.integers(0, 10, 2000)
    for dtype in ("float32", "float64"):
        est = eb.learning.Ditto(MLP(50), **SOME | {"n_rounds": 2}, dtype=dtype, sample_rate=0.05)
        clients, memory = est.protocol().prepare(wide, y, groups=groups)
        tracemalloc.start()
        est._fit(clients, memory)
        most[dtype] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most["float32"] < 0.6 * most["float64"]


def test_files_keep_it(tmp_path):
    est = learner("Ditto", MLP(4), dtype="float32").fit(X, Y, groups=GROUPS)
    est.save(tmp_path / "fit.json")
    read = eb.load_fit(tmp_path / "fit.json").predict_proba(X, groups=GROUPS)
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, est.predict_proba(X, groups=GROUPS))


@pytest.mark.parametrize("dtype", ["half", "float16", None])
def test_other_precisions_are_refused(dtype):
    with pytest.raises(ValueError, match="dtype must be 'float64' or 'float32'; got"):
        eb.learning.FedAvg(dtype=dtype).fit(X, Y, groups=GROUPS)
