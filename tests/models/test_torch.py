"""Modules of PyTorch as models: as the models of NumPy, for each client, and what is refused."""

import copy
import itertools
import pickle
import sys

import numpy as np
import pytest
from sklearn.base import clone

from ebfed.learning import PPSGD, ClientPrivacy, FedAvg
from ebfed.models import MLP, Batch, Linear, Softmax, Torch
from ebfed.models.torch import lenet

torch = pytest.importorskip("torch")
nn = torch.nn

D, K, CLIENTS, ROWS = 4, 3, 5, 7
# Differences of sums of some tens of numbers of 32 bits.
SINGLE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Threads that wait for one another are slow where others use the cores, too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def layers(*sizes):
    """Fully connected layers."""
    between = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    return nn.Sequential(*[part for layer in between for part in (layer, nn.ReLU())][:-1])


class Recurrent(nn.Module):
    """A layer that PyTorch cannot batch over parameters."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.LSTM(2, 3, batch_first=True), nn.Linear(3, K)

    def forward(self, rows):
        return self.outer(self.inner(rows)[0][:, -1])


MODELS = {
    "layers": (lambda: layers(D, 6, K), None),
    "normalized": (lambda: nn.Sequential(nn.LayerNorm(D), nn.Linear(D, K)), None),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(2, K)),
        (1, 2, 2),
    ),
    "recurrent": (Recurrent, (2, 2)),
}
every_model = pytest.mark.parametrize("name", MODELS)


def bound(name, precise=False):
    make, input_shape = MODELS[name]
    return Torch(make().double() if precise else make(), input_shape).bind(D, K)


def rows_of(clients=CLIENTS, rows=ROWS, seed=0, classes=K):
    rng = np.random.default_rng(seed)
    shape = (clients, rows)
    y = rng.integers(0, classes, shape) if classes else rng.normal(size=shape)
    return Batch(rng.normal(size=(*shape, D)), y, rng.uniform(0.1, 1.0, shape))


def parameters_of(predictor, clients=CLIENTS, seed=1):
    return np.random.default_rng(seed).normal(0, 0.7, (clients, predictor.size))


def in_torch_order(torch_model, own_model, theta, names):
    """Parameters of a model of NumPy as those of a module, whose weights lie the other way."""
    out = np.empty((len(theta), torch_model.size))
    for (name, block), own in zip(own_model.named(theta).items(), names, strict=True):
        out[:, torch_model.blocks[own]] = block.swapaxes(1, 2).reshape(len(theta), -1)
        assert block.size == out[:, torch_model.blocks[own]].size, name
    return out


@pytest.mark.parametrize(
    ("model", "sizes"),
    [(Softmax(), (D, K)), (MLP(hidden=6), (D, 6, K)), (Linear(), (D, 1))],
    ids=["Softmax", "MLP", "Linear"],
)
@pytest.mark.parametrize("clients", [1, CLIENTS])
def test_the_same_network_gives_the_same(model, sizes, clients):
    own_model = model.bind(D, sizes[-1])
    torch_model = Torch(layers(*sizes), classifies=model.classifies).bind(D, sizes[-1])
    batch = rows_of(classes=K if model.classifies else 0)
    theta = parameters_of(own_model, clients=clients)
    names = list(torch_model.blocks)
    at = in_torch_order(torch_model, own_model, theta, names)
    expected, found = own_model.gradient(theta, batch), torch_model.gradient(at, batch)
    np.testing.assert_allclose(
        torch_model.outputs(at, batch.X), own_model.outputs(theta, batch.X), **SINGLE
    )
    np.testing.assert_allclose(
        found.gradient, in_torch_order(torch_model, own_model, expected.gradient, names), **SINGLE
    )
    np.testing.assert_allclose(found.loss, expected.loss, **SINGLE)
    np.testing.assert_array_equal(found.score, expected.score)
    assert found.gradient.dtype == np.float64


@every_model
def test_gradient_is_the_slope_of_the_loss(name):
    predictor, batch = bound(name, precise=True), rows_of()
    theta = parameters_of(predictor)
    found = predictor.gradient(theta, batch).gradient
    step = 1e-5
    for j in range(predictor.size):
        moved = theta.copy()
        moved[:, j] += step
        above = predictor.gradient(moved, batch).loss
        moved[:, j] -= 2 * step
        slope = (above - predictor.gradient(moved, batch).loss) / (2 * step)
        # In 64 bits: rounding of losses near 5 over a step of 2e-5, and truncation.
        np.testing.assert_allclose(found[:, j], slope, rtol=0, atol=1e-8)


@every_model
def test_a_client_does_not_feel_the_others(name):
    predictor, batch = bound(name), rows_of()
    theta = parameters_of(predictor)
    together = predictor.gradient(theta, batch)
    for chosen in ([2], [4, 2], [3, 0, 1]):
        fewer = predictor.gradient(theta[chosen], Batch(*(part[chosen] for part in batch)))
        for one, other in zip(fewer, together, strict=True):
            np.testing.assert_allclose(one, other[chosen], **SINGLE)


@every_model
def test_common_parameters_have_a_gradient_for_each_client(name):
    predictor, batch = bound(name), rows_of()
    theta = parameters_of(predictor, clients=1)
    common = predictor.gradient(theta, batch)
    repeated = predictor.gradient(np.repeat(theta, CLIENTS, axis=0), batch)
    assert common.gradient.shape == (CLIENTS, predictor.size)
    assert abs(common.gradient[0] - common.gradient[1]).max() > 0.01
    for one, other in zip(common, repeated, strict=True):
        np.testing.assert_allclose(one, other, **SINGLE)


@every_model
def test_rows_of_no_weight_change_nothing(name):
    predictor, batch = bound(name), rows_of()
    theta = parameters_of(predictor)
    batch.weight[:, 4:] = 0
    before = predictor.gradient(theta, batch)
    batch.X[:, 4:] *= -9
    for one, other in zip(predictor.gradient(theta, batch), before, strict=True):
        np.testing.assert_array_equal(one, other)


@every_model
def test_the_tape_outlives_its_use_and_its_arrays(name):
    predictor, batch = bound(name, precise=True), rows_of()
    theta = parameters_of(predictor)
    outputs, back = predictor.pull(theta, batch.X)
    slope = np.random.default_rng(2).normal(size=outputs.shape)
    first = back(slope)
    theta[:] = batch.X[:] = 0
    np.testing.assert_array_equal(back(slope), first)


@every_model
def test_arrays_may_be_read_only_and_without_gradients(name):
    predictor, batch = bound(name), rows_of()
    theta = parameters_of(predictor)
    expected = predictor.gradient(theta, batch).gradient
    for array in (theta, *batch):
        array.flags.writeable = False
    reverse = Batch(*(part[:, ::-1] for part in batch))
    with torch.no_grad():
        found = predictor.gradient(theta, reverse).gradient
    np.testing.assert_allclose(found, expected, **SINGLE)


@every_model
def test_start_depends_on_the_seed_alone(name):
    predictor = bound(name)
    module = predictor.model.module
    before = copy.deepcopy(module.state_dict())
    state = torch.random.get_rng_state()
    one, again, other = (predictor.start(np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[key], now) for key, now in module.state_dict().items())


def test_frozen_parameters_stay_as_they_are():
    module = layers(D, 6, K)
    module[0].requires_grad_(False)
    predictor = Torch(module).bind(D, K)
    assert list(predictor.blocks) == ["2.weight", "2.bias"]
    batch, theta = rows_of(), parameters_of(predictor)
    units = np.maximum(module[0](torch.tensor(batch.X, dtype=torch.float32)).numpy(), 0)
    named = predictor.named(theta)
    expected = units @ named["2.weight"].swapaxes(1, 2) + named["2.bias"][:, None]
    np.testing.assert_allclose(predictor.outputs(theta, batch.X), expected, **SINGLE)
    with pytest.raises(ValueError, match="must have parameters that require gradients"):
        Torch(module.requires_grad_(False)).bind(D, K)


def test_lenet_takes_images_and_its_gradient_goes_down():
    predictor = Torch(lenet(), input_shape=(1, 28, 28)).bind(784, 10)
    assert predictor.size == 44426
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(2, 6, 784))
    batch = Batch(X, rng.integers(0, 10, (2, 6)), np.full((2, 6), 1 / 6))
    theta = np.stack([predictor.start(rng) for _ in range(2)])
    start = predictor.gradient(theta, batch)
    step = 0.01
    end = predictor.gradient(theta - step * start.gradient, batch)
    expected = 0.5 * step * (start.gradient * (start.gradient + end.gradient)).sum(axis=1)
    # The trapezoidal rule; kinks and 32 bits leave some percent.
    np.testing.assert_allclose(start.loss - end.loss, expected, rtol=0.05)


HEAD = ["output_2.weight", "output_2.bias"]


def test_two_heads_are_averaged():
    module = lenet(3, heads=2)
    rows = torch.rand(4, 1, 28, 28)
    units = module.trunk(rows)
    expected = (module.output(units) + module.output_2(units)) / 2
    assert torch.allclose(module(rows), expected)
    predictor = Torch(module, (1, 28, 28)).bind(784, 3)
    assert predictor.size == 44426 - 850 + 2 * (84 * 3 + 3)
    assert set(HEAD) < set(predictor.blocks)
    again = pickle.loads(pickle.dumps(module))
    assert torch.equal(copy.deepcopy(module)(rows), again(rows))
    with pytest.raises(ValueError, match="heads must be"):
        lenet(heads=0)


def test_clients_share_a_trunk_and_own_a_head():
    """A bright bar in one of two places; half of the clients name the places otherwise."""
    rng = np.random.default_rng(0)
    place, groups = rng.integers(0, 2, (6, 10)), np.repeat(np.arange(6), 10)
    X = 0.1 * rng.random((6, 10, 28, 28))
    X[..., 4:9, 4:24] += (place == 0)[:, :, None, None]
    X[..., 19:24, 4:24] += (place == 1)[:, :, None, None]
    X, y = X.reshape(60, 784), np.where(np.arange(6)[:, None] % 2, place, 1 - place).ravel()
    fit = PPSGD(
        Torch(lenet(2, heads=2), (1, 28, 28)),
        personal=HEAD,
        objective="rows",
        alpha=1 / 6,
        n_rounds=100,
        learning_rate=2.0,
        privacy=ClientPrivacy(noise_multiplier=0.0, clip=9.0),
        random_state=0,
    ).fit(X, y, groups=groups)
    assert fit.score(X, y, groups=groups) > 0.9
    for name, place in fit._net.blocks.items():
        differ = np.ptp(fit.parameters_[:, place], axis=0).max() > 0
        assert differ == (name in HEAD), name


def test_clients_take_turns_or_not_with_the_same_result(monkeypatch):
    predictor = Torch(lenet(), input_shape=(1, 28, 28)).bind(784, 10)
    rng = np.random.default_rng(4)
    batch = Batch(rng.uniform(size=(3, 4, 784)), rng.integers(0, 10, (3, 4)), np.ones((3, 4)))
    theta = np.stack([predictor.start(rng) for _ in range(3)])
    in_turn = predictor.gradient(theta, batch)
    monkeypatch.setattr("ebfed.models.torch._takes_turns", lambda module: False)
    for one, other in zip(predictor.gradient(theta, batch), in_turn, strict=True):
        np.testing.assert_allclose(one, other, **SINGLE)


def test_clones_have_modules_of_their_own():
    model = Torch(layers(D, K), input_shape=(D,))
    copied = clone(model)
    assert copied.module is not model.module
    assert copied.input_shape == (D,)
    assert copied.bind(D, K).size == model.bind(D, K).size


BESIDE = nn.Sequential(nn.Linear(D, K), nn.BatchNorm1d(K, track_running_stats=False))
REFUSED = {
    "no module": (lambda: Torch(lenet), "module must be a torch.nn.Module, such as lenet"),
    "outputs": (lambda: Torch(layers(D, 62)), r"shape \(3, 3\), one for each class; .*\(3, 62\)"),
    "no outputs": (lambda: Torch(nn.Sequential(nn.Linear(D, K), nn.Flatten(0))), r"shape \(9,\)"),
    "number": (
        lambda: Torch(layers(D, 1), classifies=False),
        r"shape \(3, 3\), the number that is predicted; .* \(3, 1\)",
    ),
    "features": (lambda: Torch(layers(D + 1, K)), r"module must accept rows of shape \(4,\)"),
    "layout": (lambda: Torch(layers(D, K), (1, 2, 3)), "holds 6 numbers, but rows have 4 features"),
    "no layout": (lambda: Torch(layers(D, K), D), "input_shape must be a tuple, such as"),
    "half a layout": (lambda: Torch(layers(D, K), (-2, -2)), "input_shape must be a whole number"),
    "dropout": (
        lambda: Torch(nn.Sequential(nn.Dropout(), nn.Linear(D, K))),
        "draws random numbers; leave dropout out, or call module.eval",
    ),
    "buffers": (
        lambda: Torch(nn.Sequential(nn.Linear(D, K), nn.BatchNorm1d(K))),
        "its buffer '1.running_mean' does; use GroupNorm",
    ),
    "beside": (lambda: Torch(BESIDE), "outputs of a row depend on the rows beside"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_is_refused(case):
    make, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        make().bind(D, K)


def test_evaluation_mode_makes_layers_constant():
    module = nn.Sequential(nn.Dropout(), nn.Linear(D, K), nn.BatchNorm1d(K)).eval()
    predictor = Torch(module).bind(D, K)
    batch, theta = rows_of(), parameters_of(predictor)
    first, second = (predictor.gradient(theta, batch).gradient for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_what_is_missing_is_named(monkeypatch):
    module = layers(D, K)
    monkeypatch.setitem(sys.modules, "torch", None)
    for use in (lenet, lambda: Torch(module)):
        with pytest.raises(ImportError, match=r'pip install "ebfed\[torch\]"'):
            use()


def test_a_pretrained_module_starts_from_its_own_parameters():
    module = layers(D, 6, K)
    inner = {"random": Torch(module), "pretrained": Torch(module, pretrained=True)}
    starts = {name: each.bind(D, K).start(np.random.default_rng(0)) for name, each in inner.items()}
    own = np.concatenate([value.detach().numpy().ravel() for value in module.parameters()])
    np.testing.assert_array_equal(np.sort(starts["pretrained"]), np.sort(own))
    assert not np.isin(starts["random"], own).all()
    rng = np.random.default_rng(1)
    X, groups = rng.normal(size=(60, D)), np.repeat(np.arange(6), 10)
    rows = X, rng.integers(0, K, 60)
    still = FedAvg(inner["pretrained"], n_rounds=1, learning_rate=1e-300).fit(*rows, groups=groups)
    np.testing.assert_array_equal(still.shared_["w"], starts["pretrained"])


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("classes", [True, False])
def test_a_loss_of_the_user(reduction, classes):
    """As the loss of the package where both are the same; slopes of another by autograd."""
    make = nn.CrossEntropyLoss if classes else lambda reduction: nn.MSELoss(reduction=reduction)
    module, k = layers(D, 6, K if classes else 1).double(), K if classes else 1
    own = Torch(module, classifies=classes, loss=make(reduction=reduction)).bind(D, k)
    plain = Torch(module, classifies=classes).bind(D, k)
    batch = rows_of(classes=K if classes else 0)
    weight = np.where(np.arange(ROWS) < 5, 0.2, 0.0).repeat(CLIENTS).reshape(ROWS, CLIENTS).T
    batch, theta = batch._replace(weight=weight), parameters_of(plain)
    first, second = (each.gradient(theta, batch) for each in (own, plain))
    factor = 1 if classes else 2  # half the squared error
    np.testing.assert_allclose(first.gradient, factor * second.gradient, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(first.loss, factor * second.loss, rtol=1e-10)
    np.testing.assert_array_equal(first.score, second.score)
    np.testing.assert_array_equal(own.predict(theta, batch.X), plain.predict(theta, batch.X))


def test_a_loss_decides_what_is_learned():
    rng = np.random.default_rng(4)
    X, groups = rng.normal(size=(60, D)), np.repeat(np.arange(6), 10)
    y, settings = X[:, 0] + 10.0 * (rng.random(60) < 0.2), {"n_rounds": 30, "random_state": 0}
    module = nn.Linear(D, 1)
    robust = FedAvg(Torch(module, classifies=False, loss=nn.HuberLoss(delta=0.1)), **settings)
    plain = FedAvg(Torch(module, classifies=False), **settings)
    errors = [
        np.median(np.abs(each.fit(X, y, groups=groups).predict(X, groups=groups) - X[:, 0]))
        for each in (robust, plain)
    ]
    assert errors[0] < 0.5 * errors[1]


def test_a_loss_must_be_one():
    X, y = np.zeros((4, D)), np.array([0, 1, 2, 0])
    for loss, words in (("huber", "loss must be a function"), (lambda o, y: o, "loss must return")):
        with pytest.raises(ValueError, match=words):
            FedAvg(Torch(layers(D, K), loss=loss), n_rounds=1).fit(X, y)


def test_a_group_is_exported_as_a_module():
    rng = np.random.default_rng(4)
    X, groups = rng.normal(size=(60, D)), np.repeat(list("abcdef"), 10)
    y, module = rng.integers(0, K, 60), layers(D, 6, K).double()
    module[0].bias.requires_grad_(False)
    before = copy.deepcopy(module.state_dict())
    fit = FedAvg(Torch(module), n_rounds=3, fine_tune=4, random_state=0).fit(X, y, groups=groups)
    for group, label in (("b", "b"), (None, "new")):
        own = copy.deepcopy(module)
        own.load_state_dict(fit.export(group))
        rows = groups == "b"
        expected = torch.softmax(own(torch.tensor(X[rows])), dim=1).detach().numpy()
        found = fit.predict_proba(X[rows], groups=np.full(rows.sum(), label))
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    with pytest.raises(ValueError, match="group must be one of the fit"):
        fit.export("z")


@pytest.mark.parametrize("layer", [nn.Linear(D, 5), nn.Sequential(nn.Flatten(), nn.Linear(D, 5))])
def test_a_module_computes_on_the_device_that_is_asked_for(layer):
    """What is fixed and what is trained come together, where there is one device only, too."""
    module = nn.Sequential(layer, nn.BatchNorm1d(5).eval(), nn.Linear(5, K)).double()
    module[1].running_mean += 0.5
    module[1].bias.requires_grad_(False)
    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(30, D)), np.arange(30) % K, np.arange(30) % 3
    here, there = (
        FedAvg(Torch(module, pretrained=True, device=device), n_rounds=3).fit(X, y, groups=groups)
        for device in (None, torch.device("cpu"))
    )
    np.testing.assert_array_equal(here.parameters_, there.parameters_)
    for device in ("nowhere", 1.5, "cuda:99"):
        with pytest.raises(ValueError, match="device must be one that PyTorch has here"):
            FedAvg(Torch(module, device=device), n_rounds=1).fit(X, y, groups=groups)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device")
@pytest.mark.parametrize("loss", [None, nn.CrossEntropyLoss()])
def test_a_module_computes_where_it_is(loss):
    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(30, D)), np.arange(30) % K, np.arange(30) % 3
    module = nn.Sequential(nn.Linear(D, 5), nn.BatchNorm1d(5).eval(), nn.Linear(5, K)).double()
    fits = [
        FedAvg(Torch(copy.deepcopy(module).to(device), pretrained=True, loss=loss), n_rounds=3).fit(
            X, y, groups=groups
        )
        for device in ("cpu", "cuda")
    ]
    np.testing.assert_allclose(fits[0].parameters_, fits[1].parameters_, rtol=1e-9, atol=1e-9)
    moved = Torch(module, pretrained=True, loss=loss, device="cuda")
    moved = FedAvg(moved, n_rounds=3).fit(X, y, groups=groups)
    np.testing.assert_allclose(moved.parameters_, fits[1].parameters_, rtol=1e-9, atol=1e-9)
    assert {value.device.type for value in moved.export(0).values()} == {"cpu"}
    assert {value.device.type for value in fits[1].export(0).values()} == {"cuda"}
