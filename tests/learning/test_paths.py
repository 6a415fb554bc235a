"""Steps along rows: the same as steps in all parameters, but for rounding."""

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import ebfed as eb
from ebfed.engines import Local
from ebfed.engines.sums import add_fixed, add_up, fixed_point
from ebfed.kernels.sums import PIECE
from ebfed.learning import paths
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

    monkeypatch.setattr(paths, "RowPath", Counted)
    return made


def both(est, y, used, monkeypatch):
    """Return a fit along rows, and one in all parameters."""
    along = est.fit(X, y, groups=GROUPS, sample_weight=WEIGHTS)
    assert used
    used.clear()
    monkeypatch.setattr(paths, "saves_products", lambda *some: False)
    plain = clone(est).fit(X, y, groups=GROUPS, sample_weight=WEIGHTS)
    assert not used
    return along, plain


@pytest.mark.parametrize(("name", "more"), CASES)
@pytest.mark.parametrize("model", [MLP(6, heads=2), Softmax(), Linear()])
def test_fits_are_those_in_all_parameters(name, more, model, used, monkeypatch):
    if name == "HierarchicalEB":
        more = more | {"strengths": (0.0, 0.1, 1.0)}
    y = CLASSES if model.classifies else NUMBERS
    est = getattr(eb.learning, name)(model, **STEPS | more)
    along, plain = both(est, y, used, monkeypatch)
    # rounding of 1e-16 in each of up to 2,000 steps
    np.testing.assert_allclose(along.parameters_, plain.parameters_, rtol=1e-9, atol=1e-11)
    losses = [est.history_.select_dtypes(float).to_numpy() for est in (along, plain)]
    np.testing.assert_allclose(*losses, rtol=1e-9)


def test_so_are_those_of_32_bits(used, monkeypatch):
    est = eb.learning.FedAvg(MLP(6), **STEPS, dtype="float32", fine_tune=5)
    along, plain = both(est, CLASSES, used, monkeypatch)
    assert along.parameters_.dtype == np.float32
    np.testing.assert_allclose(along.parameters_, plain.parameters_, rtol=1e-4, atol=1e-5)


def test_steps_of_adam_are_in_all_parameters(used):
    eb.learning.FedAvg(MLP(6), **STEPS, optimizer="adam").fit(X, CLASSES, groups=GROUPS)
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


def row_change(model, features, outputs, shrinks, dtype="float64", scale=1.0):
    """Return a change along the rows of 3 clients, and what it is."""
    net, c, n = model.bind(n_features=features, n_outputs=outputs), 3, 4
    matrix = net.named(RNG.normal(size=(1, net.size)).astype(dtype))[model.first]
    rows = RNG.normal(size=(c, n, features)).astype(dtype)
    inner = RNG.normal(size=(c, n + 1, matrix.shape[2])).astype(dtype)
    inner *= np.array([1.0, scale, 1.0], dtype)[:, None, None]
    inner[:, -1] *= shrinks
    whole = RNG.normal(size=(c, net.size)).astype(dtype)
    named = net.named(whole)
    named[model.first][:] = rows.swapaxes(1, 2) @ inner[:, :-1] + matrix * inner[:, -1:]
    others = {name: part for name, part in named.items() if name != model.first}
    return paths.RowChange(net, model.first, rows, inner, matrix, others), whole


@pytest.mark.parametrize("shrinks", [0.0, 0.1])
@pytest.mark.parametrize("model", [MLP(7, heads=2), MLP(600), Softmax(), Linear()])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_columns_of_a_change_are_computed_apart(model, dtype, shrinks):
    outputs = 1 if isinstance(model, Linear) else 5
    change, whole = row_change(model, 90, outputs, shrinks, dtype)
    size = whole.shape[1]
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(np.asarray(change), whole, **close)
    assert np.asarray(change).dtype == dtype
    assert (len(change), change.size, change.dtype) == (3, whole.size, dtype)
    for first, last in [(0, size), (0, 1), (size - 1, size), (size // 3, size // 3 + 5)]:
        values, skip = change.compute(first, last)
        assert values.flags.c_contiguous
        got = values[:, skip : skip + last - first]
        np.testing.assert_allclose(got, whole[:, first:last], **close)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("scale", [1.0, 1e-14], ids=["sums of a row", "sums of more rows"])
def test_columns_are_added_up_as_the_array_would_be(dtype, scale, monkeypatch):
    monkeypatch.setattr("ebfed.engines.sums.AT_ONCE", 2 * PIECE)
    change, _ = row_change(MLP(77), 90, 5, 0.1, dtype, scale)
    array = np.asarray(change)
    assert array.shape[1] > 6 * PIECE
    cut = fixed_point(array, 9)
    before = np.ones((1, array.shape[1]))
    for start, rows in ((None, cut), (before, np.vstack([before, cut]))):
        sums = add_fixed(change, start, 9)
        np.testing.assert_array_equal(sums, add_up(rows))
        np.testing.assert_array_equal(sums, add_fixed(array, start, 9))
        assert (len(sums) == 1) == (scale == 1)


@pytest.mark.parametrize("more", [{}, {"weights": "rows"}, {"dtype": "float32"}])
def test_large_fits_are_the_same_wherever_clients_are(more, used, monkeypatch):
    est = eb.learning.FedAvg(MLP(900), **STEPS | {"local_steps": 2}, **more)
    together = est.fit(X, CLASSES, groups=GROUPS)
    assert used
    blocks = clone(est).set_params(engine=Local(4)).fit(X, CLASSES, groups=GROUPS)
    np.testing.assert_array_equal(blocks.shared_["w"], together.shared_["w"])
    monkeypatch.setattr("ebfed.learning.minibatches.CELLS", 1)
    apart = clone(est).fit(X, CLASSES, groups=GROUPS)
    np.testing.assert_array_equal(apart.shared_["w"], together.shared_["w"])


@pytest.mark.parametrize("local_steps", [1, 2], ids=["one step", "two steps"])
def test_fits_are_the_same_with_any_number_of_threads(local_steps, used):
    X = np.tile(RNG.normal(size=(len(GROUPS), 40)), 25)  # enough work for three threads
    est = eb.learning.FedAvg(MLP(400), **STEPS | {"n_rounds": 1, "local_steps": local_steps})
    fits = []
    for number in (1, 2, 3):
        with threadpool_limits(number, user_api="blas"):
            fits.append(clone(est).fit(X, CLASSES, groups=GROUPS).shared_["w"])
    assert used
    np.testing.assert_array_equal(fits[1], fits[0])
    np.testing.assert_array_equal(fits[2], fits[0])
