"""Models and losses: slopes, padding, clients side by side, optima that others find."""

import inspect

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from ebfed import models
from ebfed.models import MLP, Batch, Linear, Model, Softmax
from ebfed.models.losses import CrossEntropy, SquaredError

# Features and outputs of the data of each model.
D, K = 4, 3
MODELS = {
    "Linear": Linear(),
    "Softmax": Softmax(),
    "MLP": MLP(hidden=5),
    "MLP of two heads": MLP(hidden=5, heads=2),
    "Subspace": models.Subspace(2),
}
LOSSES = {"CrossEntropy": (CrossEntropy(), K), "SquaredError": (SquaredError(), 1)}
in_numpy = pytest.mark.parametrize("name", MODELS)
every_loss = pytest.mark.parametrize("name", LOSSES)


def bound(model):
    return model.bind(D, K if model.classifies else 1)


def rows_of(model, clients=5, rows=7, seed=0):
    """A batch with weights that differ."""
    rng = np.random.default_rng(seed)
    shape = (clients, rows)
    y = rng.integers(0, K, shape) if model.classifies else rng.normal(size=shape)
    return Batch(rng.normal(size=(*shape, D)), y, rng.uniform(0.1, 1.0, shape))


def parameters_of(predictor, clients=5, seed=1):
    return np.random.default_rng(seed).normal(0, 0.7, (clients, predictor.size))


def numerical_slope(f, at, step=1e-6):
    """Central differences of f, which gives one number for each client, by each of its numbers."""
    flat = at.reshape(len(at), -1)
    slopes = np.empty_like(flat)
    for j in range(flat.shape[1]):
        moved = np.zeros_like(flat)
        moved[:, j] = step
        slopes[:, j] = f((flat + moved).reshape(at.shape)) - f((flat - moved).reshape(at.shape))
    return (slopes / (2 * step)).reshape(at.shape)


def test_every_model_is_tried():
    found = {
        name
        for name in models.__all__
        if name != "Torch"  # has a file of its own
        and inspect.isclass(cls := getattr(models, name))
        and issubclass(cls, Model)
        and not inspect.isabstract(cls)
    }
    assert {type(model).__name__ for model in MODELS.values()} == found


@in_numpy
def test_gradient_is_the_slope_of_the_loss(name):
    predictor, batch = bound(MODELS[name]), rows_of(MODELS[name])
    theta = parameters_of(predictor)
    found = predictor.gradient(theta, batch)
    expected = numerical_slope(lambda at: predictor.gradient(at, batch).loss, theta)
    # Rounding of a difference of losses over a step of 2e-6; truncation is far below.
    away = np.abs(found.gradient - expected) / np.maximum(found.loss, 5)[:, None]
    assert away.max() < 1e-9


@in_numpy
def test_gradient_is_written_where_it_is_asked_for(name):
    predictor, batch = bound(MODELS[name]), rows_of(MODELS[name])
    theta = parameters_of(predictor)
    out = np.full((len(batch.X), predictor.size), np.nan)
    found = predictor.gradient(theta, batch, out).gradient
    assert found is out
    np.testing.assert_array_equal(out, predictor.gradient(theta, batch).gradient)


@in_numpy
def test_pull_goes_back_twice_and_is_linear(name):
    predictor, batch = bound(MODELS[name]), rows_of(MODELS[name])
    outputs, back = predictor.pull(parameters_of(predictor), batch.X)
    one, two = np.random.default_rng(2).normal(size=(2, *outputs.shape))
    np.testing.assert_allclose(back(one + 2 * two), back(one) + 2 * back(two), atol=1e-12)


@in_numpy
def test_parameters_fill_the_vector(name):
    predictor = bound(MODELS[name])
    theta = parameters_of(predictor)
    named = predictor.named(theta)
    assert all(np.shares_memory(block, theta) for block in named.values())
    flat = [block.reshape(len(theta), -1) for block in named.values()]
    np.testing.assert_array_equal(np.concatenate(flat, axis=1), theta)


@in_numpy
def test_rows_of_no_weight_change_nothing(name):
    predictor, batch = bound(MODELS[name]), rows_of(MODELS[name])
    theta = parameters_of(predictor)
    alone = predictor.gradient(theta, batch)
    filled = []
    for seed, scale in ((3, 1.0), (4, 100.0)):
        more = rows_of(MODELS[name], rows=6, seed=seed)
        weight = np.concatenate([batch.weight, np.zeros((5, 6))], axis=1)
        padding = Batch(scale * more.X, more.y, np.zeros((5, 6)))
        joined = [np.concatenate(parts, axis=1) for parts in zip(batch, padding, strict=True)]
        np.testing.assert_array_equal(joined[2], weight)
        filled.append(predictor.gradient(theta, Batch(*joined)))
    for one, other, third in zip(*filled, alone, strict=True):
        np.testing.assert_array_equal(one, other)
        # Sums over more rows may be taken in another order.
        np.testing.assert_allclose(one, third, rtol=1e-12, atol=1e-14)


@in_numpy
@pytest.mark.parametrize("rows", [1, 7, 130])
def test_a_client_does_not_feel_the_others(name, rows):
    predictor, batch = bound(MODELS[name]), rows_of(MODELS[name], clients=6, rows=rows)
    theta = parameters_of(predictor, clients=6)
    together = predictor.gradient(theta, batch)
    for chosen in ([2], [4, 2], [5, 1, 2, 0]):
        fewer = predictor.gradient(theta[chosen], Batch(*(part[chosen] for part in batch)))
        for one, other in zip(fewer, together, strict=True):
            np.testing.assert_array_equal(one, other[chosen])


@in_numpy
def test_common_parameters_are_those_of_every_client(name):
    predictor, batch = bound(MODELS[name]), rows_of(MODELS[name])
    theta = parameters_of(predictor, clients=1)
    common, repeated = (
        predictor.gradient(at, batch) for at in (theta, np.repeat(theta, len(batch.X), axis=0))
    )
    for one, other in zip(common, repeated, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
    assert common.gradient.shape == (5, predictor.size)


@in_numpy
def test_start_depends_on_the_seed_alone(name):
    predictor = bound(MODELS[name])
    one, again, other = (predictor.start(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one.shape == (predictor.size,)
    np.testing.assert_array_equal(one, again)
    # Convex losses start at zero.
    convex = not isinstance(MODELS[name], MLP | models.Subspace)
    assert np.array_equal(one, other) == convex
    assert one.any() != convex


def test_start_keeps_the_size_of_what_passes():
    predictor = MLP(hidden=400).bind(300, 10)
    blocks = predictor.named(predictor.start(np.random.default_rng(5))[None])
    # 120,000 and 4,000 draws; five standard errors of a variance are 5 sqrt(2 / draws).
    assert abs(blocks["hidden"].var() * 300 / 2 - 1) < 0.021
    assert abs(blocks["output"].var() * 400 / 2 - 1) < 0.112
    assert not blocks["hidden_intercept"].any()
    assert not blocks["output_intercept"].any()


def test_softmax_has_no_slope_where_scikit_learn_stops():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(300, D))
    y = (X @ rng.normal(size=(D, K)) + rng.gumbel(size=(300, K))).argmax(axis=1)
    fitted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=2000).fit(X, y)
    predictor = Softmax().bind(D, K)
    theta = np.concatenate([fitted.coef_.T.ravel(), fitted.intercept_])[None]
    found = predictor.gradient(theta, Batch(X[None], y[None], np.full((1, 300), 1 / 300)))
    # The gradient at which L-BFGS stops; at zero parameters it is above 0.1.
    assert abs(found.gradient).max() < 1e-5
    np.testing.assert_allclose(
        predictor.predict(theta, X[None])[0], fitted.predict_proba(X), atol=1e-12
    )
    assert found.score[0] == pytest.approx(fitted.score(X, y), abs=1e-12)
    log_p = np.log(fitted.predict_proba(X)[np.arange(300), y])
    assert found.loss[0] == pytest.approx(-log_p.mean(), abs=1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_linear_has_no_slope_at_least_squares(fit_intercept):
    rng = np.random.default_rng(7)
    X, y, weight = rng.normal(2, 1, (50, D)), rng.normal(size=50), rng.uniform(size=50)
    fitted = LinearRegression(fit_intercept=fit_intercept).fit(X, y, sample_weight=weight)
    theta = np.append(fitted.coef_, [fitted.intercept_] * fit_intercept)[None]
    predictor = Linear(fit_intercept).bind(D, 1)
    found = predictor.gradient(theta, Batch(X[None], y[None], weight[None]))
    # 50 rows of size 2: rounding alone.
    assert abs(found.gradient).max() < 1e-12
    np.testing.assert_allclose(predictor.predict(theta, X[None])[0, :, 0], fitted.predict(X))
    assert np.isnan(found.score).all()


def some_outputs(name, seed):
    loss, k = LOSSES[name]
    rng = np.random.default_rng(seed)
    outputs, reference = rng.normal(0, 2, (2, 4, 6, k))
    return loss, outputs, reference, rng.uniform(0.1, 1.0, (4, 6))


@every_loss
def test_divergence_and_its_slopes(name):
    loss, outputs, reference, weight = some_outputs(name, 8)
    value, slope, reference_slope = loss.divergence(outputs, reference, weight)
    assert (value > 0).all()
    by_outputs = numerical_slope(lambda at: loss.divergence(at, reference, weight)[0], outputs)
    by_reference = numerical_slope(lambda at: loss.divergence(outputs, at, weight)[0], reference)
    # Rounding of values near 20 over a step of 2e-6.
    np.testing.assert_allclose(slope, by_outputs, rtol=0, atol=1e-8)
    np.testing.assert_allclose(reference_slope, by_reference, rtol=0, atol=1e-8)
    for nothing in loss.divergence(outputs, outputs, weight):
        np.testing.assert_array_equal(nothing, 0)


def test_divergence_of_classes_is_the_expected_difference_of_losses():
    loss, outputs, reference, weight = some_outputs("CrossEntropy", 9)
    expected = np.zeros(4)
    for label in range(K):
        y, share = np.full((4, 6), label), loss.mean(reference)[..., label] * weight
        expected += loss.of(outputs, y, share)[0] - loss.of(reference, y, share)[0]
    np.testing.assert_allclose(loss.divergence(outputs, reference, weight)[0], expected)


@every_loss
@pytest.mark.parametrize("size", [1e3, 1e100, 1e150])
def test_large_outputs_have_finite_losses(name, size):
    loss, outputs, reference, weight = some_outputs(name, 10)
    weight[:, 0] = 0
    y = np.zeros((4, 6), np.int64)
    values = [
        *loss.of(size * outputs, y, weight),
        *loss.divergence(size * outputs, size * reference, weight),
        loss.mean(size * outputs),
    ]
    assert all(np.isfinite(value).all() for value in values)


def test_the_largest_outputs_of_classes_have_finite_losses():
    outputs = np.array([[[0.0, 1e308, -5e307]]])
    loss, slope = CrossEntropy().of(outputs, np.array([[0]]), np.ones((1, 1)))
    assert loss == 1e308
    np.testing.assert_array_equal(slope, [[[-1, 1, 0]]])


@pytest.mark.parametrize("hidden", [0, 2.5, True, "many"])
def test_units_are_counted(hidden):
    with pytest.raises(ValueError, match=r"hidden must be a (whole )?number"):
        MLP(hidden=hidden).bind(3, 2)
