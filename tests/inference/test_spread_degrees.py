"""Standard errors and degrees of freedom over spreads near the fitted ones."""

import numpy as np
import pytest
from scipy.stats import chi2

from ebfed.inference.spread_degrees import NearbySpreads, SpreadDegrees

MEAN, UNIT = np.array([1.0, 2.0]), np.eye(2)


def over(factors, weights, parameters, shifts=None):
    """Spreads that multiply the covariance of the fitted one by factors, shape (k, 2)."""
    fitted = np.array([[2.0, 0.6], [0.6, 1.0]])
    root = np.linalg.cholesky(fitted)
    covariances = np.array([root @ np.diag(each) @ root.T for each in factors])
    shifts = np.zeros((len(factors), 2)) if shifts is None else np.array(shifts)
    nearby = NearbySpreads(fitted, np.array(weights), np.array(parameters), covariances, shifts)
    return fitted, nearby


def test_of_chi_squared_precisions_they_are_its_degrees():
    """10,000 quantiles of 9 degrees; the mean of 1/V is that of the fitted spread."""
    drawn = chi2(9).ppf((np.arange(10_000) + 0.5) / 10_000) / 9
    factors = 1 / np.column_stack([drawn, drawn])
    fitted, nearby = over(factors, np.full(10_000, 1e-4), np.zeros(10_000, int))
    found = SpreadDegrees(MEAN, nearby)
    np.testing.assert_allclose(found.covariance, fitted, rtol=1e-3)
    np.testing.assert_allclose(found.df(UNIT), 9, rtol=5e-3)
    assert found.joint(UNIT).den_df == pytest.approx(9, rel=5e-3)


def test_a_spread_that_changes_nothing_is_known():
    fitted, nearby = over(np.ones((3, 2)), [0.2, 0.6, 0.2], [0, 0, 0])
    found = SpreadDegrees(MEAN, nearby)
    np.testing.assert_allclose(found.covariance, fitted, rtol=1e-12)
    assert np.isinf(found.df(UNIT)).all()


def test_factors_of_parameters_multiply_and_doubts_add():
    """The second parameter has the fitted spread for the rest of its weights."""
    first, second = [[0.5, 0.5], [2.0, 2.0]], [[0.8, 0.8], [1.5, 1.5]]
    both = SpreadDegrees(MEAN, over(first + second, [0.5, 0.5, 0.2, 0.2], [0, 0, 1, 1])[1])
    fitted, nearby = over(first, [0.5, 0.5], [0, 0])
    one = SpreadDegrees(MEAN, nearby)
    other = SpreadDegrees(MEAN, over(second, [0.2, 0.2], [1, 1])[1])
    np.testing.assert_allclose(one.covariance, fitted / 1.25)
    np.testing.assert_allclose(other.covariance, fitted / (0.2 / 0.8 + 0.2 / 1.5 + 0.6))
    scale = one.covariance[0, 0] * other.covariance[0, 0] / fitted[0, 0]
    np.testing.assert_allclose(both.covariance, fitted / fitted[0, 0] * scale)
    np.testing.assert_allclose(1 / both.df(UNIT), 1 / one.df(UNIT) + 1 / other.df(UNIT))


def test_moves_of_the_mean_add_to_errors_and_dilute_doubts():
    factors, weights = [[0.5, 0.5], [2.0, 2.0]], [0.5, 0.5]
    still = SpreadDegrees(MEAN, over(factors, weights, [0, 0])[1])
    moved = SpreadDegrees(MEAN, over(factors, weights, [0, 0], [[1.0, 0.0], [-1.0, 0.0]])[1])
    np.testing.assert_allclose(moved.covariance - still.covariance, np.diag([1.0, 0.0]), atol=1e-12)
    share = still.covariance[0, 0] / moved.covariance[0, 0]
    np.testing.assert_allclose(moved.df(UNIT) * [share**2, 1], still.df(UNIT))


def test_combinations_have_their_own():
    turn = np.array([[1.0, 1.0], [0.0, 3.0]])
    shifts = [[0.3, 0.1], [-0.1, 0.2]]
    nearby = over([[0.5, 0.7], [2.0, 1.4]], [0.5, 0.5], [0, 0], shifts)[1]
    found, turned = SpreadDegrees(MEAN, nearby), SpreadDegrees(turn @ MEAN, nearby.turned(turn))
    np.testing.assert_allclose(turned.covariance, turn @ found.covariance @ turn.T)
    np.testing.assert_allclose(turned.df(UNIT), found.df(turn))


@pytest.mark.parametrize("scale", [1e-7, 1e7])
def test_units_of_a_column_do_not_matter(scale):
    turn, shifts = np.diag([1.0, scale]), [[0.3, 0.1], [-0.1, 0.2]]
    nearby = over([[0.5, 0.7], [2.0, 1.4]], [0.5, 0.5], [0, 0], shifts)[1]
    found, scaled = SpreadDegrees(MEAN, nearby), SpreadDegrees(turn @ MEAN, nearby.turned(turn))
    np.testing.assert_allclose(scaled.covariance, turn @ found.covariance @ turn)
    np.testing.assert_allclose(scaled.df(UNIT), found.df(UNIT))


def test_a_coefficient_without_variance_has_no_doubt():
    """As where a column of zeros has the coefficient zero."""
    fitted = np.diag([1.0, 0.0])
    some = np.array([0.5 * fitted, 2 * fitted])
    nearby = NearbySpreads(fitted, np.full(2, 0.5), np.zeros(2, int), some, np.zeros((2, 2)))
    found = SpreadDegrees(MEAN, nearby)
    assert found.covariance[1, 1] == 0
    assert np.isfinite(found.df(UNIT)[0])
    assert np.isinf(found.df(UNIT)[1])


def test_spreads_at_which_the_rows_tell_less_have_the_weight_of_the_fitted_one():
    """A collinear column at a far spread, and one without a covariance, ended in a LinAlgError."""
    mean, fitted = np.array([1.0, 2.0]), np.array([[1.0, 0.2], [0.2, 0.5]])
    near, alone = 1.5 * fitted, np.array([[1.0, 2.0], [2.0, 4.0]])
    missing = np.full((2, 2), np.nan)
    weights, along = np.array([0.6, 0.3, 0.1]), np.zeros(3, np.int64)
    shifts = np.array([[0.1, 0.2], [5.0, 5.0], [9.0, 9.0]])
    every = NearbySpreads(fitted, weights, along, np.array([near, alone, missing]), shifts)
    known = NearbySpreads(fitted, weights[:1], along[:1], near[None], shifts[:1])
    found, expected = SpreadDegrees(mean, every), SpreadDegrees(mean, known)
    np.testing.assert_array_equal(found.covariance, expected.covariance)
    np.testing.assert_array_equal(found.df(np.eye(2)), expected.df(np.eye(2)))
    assert np.isfinite(found.df(np.eye(2))).all()
    nothing = SpreadDegrees(mean, every.taken(np.zeros(3, bool)))
    np.testing.assert_allclose(nothing.covariance, fitted)
    assert np.isinf(nothing.df(np.eye(2))).all()
