import numpy as np
import pytest

from ebfed.datasets import make_additive_regression


def test_only_the_last_coefficients_are_personal():
    X, y, groups, truth = make_additive_regression(400, 3, random_state=0)
    assert X.shape == (1200, 100)
    assert y.shape == (1200,)
    assert groups.tolist() == np.repeat(np.arange(400), 3).tolist()
    np.testing.assert_array_equal(
        truth.theta[:, :95], np.broadcast_to(truth.shared[:95], (400, 95))
    )
    own = truth.theta[:, 95:] - truth.shared[95:]
    # 2,000 draws of variance 0.01²: five standard errors of a mean and a variance, 6e-7 each
    assert own.mean() == pytest.approx(0, abs=5 * 0.01 / np.sqrt(2000))
    assert own.var() == pytest.approx(0.01**2, rel=5 * np.sqrt(2 / 2000))


def test_shared_coefficients_have_the_scale_asked_for():
    shared = make_additive_regression(1, 1, 20_000, scale=3.0, random_state=0)[3].shared
    # five standard errors of a variance from 20,000 normal draws, false alarm 6e-7
    assert shared.var() == pytest.approx(9, rel=5 * np.sqrt(2 / 20_000))


def test_rows_have_the_moments_asked_for():
    X, y, groups, truth = make_additive_regression(20, 5000, 8, noise=0.5, random_state=1)
    n = len(X)
    # five standard errors each; 8 variances, 28 correlations, false alarm 3e-5 in all
    np.testing.assert_allclose(X.var(axis=0), 1 / np.arange(1, 9), rtol=5 * np.sqrt(2 / n))
    correlations = np.corrcoef(X.T)[np.triu_indices(8, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(n)
    noise = y - np.sum(X * truth.theta[groups], axis=1)
    assert noise.var() == pytest.approx(0.25, rel=5 * np.sqrt(2 / n))
    assert abs(np.corrcoef(noise, X[:, 0])[0, 1]) < 5 / np.sqrt(n)


def test_without_noise_rows_lie_on_the_regression():
    X, y, groups, truth = make_additive_regression(6, [3, 0, 1, 2, 5, 1], 7, noise=0)
    assert np.bincount(groups, minlength=6).tolist() == [3, 0, 1, 2, 5, 1]
    for client in range(6):
        rows = groups == client
        np.testing.assert_allclose(y[rows], X[rows] @ truth.theta[client], rtol=1e-10, atol=1e-10)


def test_excess_risk_is_what_estimates_add_to_the_error():
    *_, truth = make_additive_regression(30, 1, 6, noise=0.3, spread=1.0, scale=2, random_state=2)
    rng = np.random.default_rng(3)
    for coef in (truth.shared, truth.theta + rng.normal(0, 0.4, truth.theta.shape)):
        X, y, groups = truth.draw(10_000, random_state=rng)
        errors = (y - np.sum(X * np.broadcast_to(coef, truth.theta.shape)[groups], axis=1)) ** 2
        # five standard errors of a mean of 300,000, false alarm 6e-7
        assert truth.excess_risk(coef) == pytest.approx(
            errors.mean() - 0.3**2, abs=5 * errors.std() / np.sqrt(len(errors))
        )


def test_excess_risk_by_hand():
    *_, truth = make_additive_regression(2, 1, 2, n_personal=1, spread=1.0, random_state=0)
    assert truth.excess_risk(truth.theta) == 0
    assert truth.excess_risk(truth.theta + np.diag([3, 4])) == pytest.approx((9 + 16 / 2) / 2)
    zero = np.mean(truth.theta[:, 0] ** 2 + truth.theta[:, 1] ** 2 / 2)
    assert truth.excess_risk([0, 0]) == pytest.approx(zero)
    for shape in [(3,), (1, 2), (2, 2, 1), ()]:
        with pytest.raises(ValueError, match="coef must have the shape"):
            truth.excess_risk(np.zeros(shape))


def test_each_round_has_fresh_rows_of_the_same_clients():
    *_, truth = make_additive_regression(5, 1, 6, random_state=0)
    rng = np.random.default_rng(1)
    first, second = truth.draw(4, random_state=rng), truth.draw(4, random_state=rng)
    assert np.all(first[0] != second[0])
    np.testing.assert_array_equal(first[0], truth.draw(4, random_state=1)[0])


def test_rows_of_some_clients_can_be_drawn():
    *_, truth = make_additive_regression(5, 1, 6, noise=0, random_state=0)
    X, y, groups = truth.draw([2, 1], clients=np.array([4, 1]), random_state=0)
    assert groups.tolist() == [4, 4, 1]
    np.testing.assert_allclose(y, np.sum(X * truth.theta[[4, 4, 1]], axis=1))
    for clients in ([5], [-1], [0.5], [], [[0]]):
        with pytest.raises(ValueError, match="clients must be numbers of clients, from 0 to 4"):
            truth.draw(1, clients=clients)
    with pytest.raises(ValueError, match="n_rows must be an integer or 2 integers"):
        truth.draw([1, 2, 3], clients=[0, 1])


def test_a_seed_fixes_the_draw():
    first = make_additive_regression(4, 2, 3, n_personal=1, random_state=7)
    again = make_additive_regression(4, 2, 3, n_personal=1, random_state=np.random.default_rng(7))
    other = make_additive_regression(4, 2, 3, n_personal=1, random_state=8)
    for one, two in zip(first[:3], again[:3], strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(first[3].theta, again[3].theta)
    assert np.all(first[3].theta != other[3].theta)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("n_clients", 0),
        ("n_clients", 2.0),
        ("n_features", 0),
        ("n_personal", -1),
        ("n_personal", 101),
        ("noise", -1),
        ("spread", np.nan),
        ("scale", np.inf),
        ("n_rows", -1),
    ],
)
def test_bad_arguments_are_refused(argument, value):
    with pytest.raises(ValueError, match=f"{argument} must be"):
        make_additive_regression(**{argument: value})
