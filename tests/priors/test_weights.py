"""Weights of known components: the maximum, and the centre of several."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.likelihoods import Binomial
from ebfed.priors.weights import analytic_centre, fit_weights, gradient

RATES = np.linspace(0.01, 0.99, 50)
ROWS = Binomial(np.arange(6)[:, None], np.full(6, 5))
COUNTS = ROWS.relative(np.random.default_rng(1).beta(2, 3, (9000, 1))).mean(axis=1) * 9000
COUNTS = COUNTS * np.exp(ROWS.log_peak())


def test_more_components_than_messages_can_tell_apart():
    """From any start, the weights of 50 rates are those that maximise the sum of their logs."""
    likelihoods = ROWS.relative(RATES[:, None])
    rng = np.random.default_rng(2)
    starts = [np.full(50, 1 / 50), *rng.dirichlet(np.ones(50), 3)]
    fits = [fit_weights(likelihoods, COUNTS, start, 1e-8 * COUNTS.sum()) for start in starts]
    weights, gap = fits[0]
    assert gap <= 1e-8 * COUNTS.sum()
    for other, _ in fits[1:]:
        np.testing.assert_allclose(other, weights, rtol=1e-7)
    assert weights.min() > 0
    # the gradient of the sum of logs is a combination of the constraints' gradients
    combination, *_ = np.linalg.lstsq(likelihoods.T, 1 / weights, rcond=None)
    np.testing.assert_allclose(likelihoods.T @ combination, 1 / weights, rtol=1e-6)


def test_gap_of_the_centre_is_at_most_its_width():
    likelihoods = ROWS.relative(RATES[:, None])
    start, _ = fit_weights(likelihoods, COUNTS, np.full(50, 1 / 50), 1e-8 * COUNTS.sum())
    for width in (1e-6, 1e-8, 1e-10):
        cells = np.arange(1.0, 51)
        centre = analytic_centre(likelihoods, COUNTS, likelihoods @ start, cells, width)
        rises = gradient(likelihoods, COUNTS, likelihoods @ centre) / COUNTS.sum()
        assert rises.max() <= width
        # its conditions of the first order
        np.testing.assert_allclose(rises, width * (1 - cells / cells.sum() / centre), atol=1e-12)


def test_independent_components_have_one_answer():
    likelihoods = ROWS.relative(np.array([[0.2], [0.5], [0.8]]))
    mixture = likelihoods @ np.array([0.3, 0.4, 0.3])
    assert analytic_centre(likelihoods, 100 * mixture, mixture, np.ones(3), 1e-10) is None
    weights, _ = fit_weights(np.eye(2), np.array([3.0, 1.0]), np.array([0.5, 0.5]), 1e-9)
    assert weights == pytest.approx([0.75, 0.25], abs=1e-6)


@pytest.mark.parametrize("m", [100, 2000])
@pytest.mark.parametrize("prior", ["npmle", "scale_mixture"])
def test_draws_are_those_of_the_groups_in_any_order(prior, m):
    """To a tenth of an error: a draw is another where rounding takes it across a threshold."""
    rng = np.random.default_rng(0)
    errors = rng.uniform(0.3, 1, m)
    x = np.where(rng.random(m) < 0.5, 0, rng.normal(0, 2, m)) + errors * rng.normal(size=m)
    order = rng.permutation(m)
    given = eb.posterior_from(x, errors, prior).interval()
    again = eb.posterior_from(x[order], errors[order], prior).interval()
    for one, other in zip(given, again, strict=True):
        np.testing.assert_allclose(other, one[order], atol=0.03)


def test_columns_under_which_no_row_is_possible():
    """They have no weight, and others are fitted as without them; all kept their first weights."""
    rows = np.random.default_rng(4).uniform(0.1, 1.0, (30, 3))
    expected, _ = fit_weights(rows, np.ones(30), np.full(3, 1 / 3), 1e-9)
    wide = np.hstack([np.zeros((30, 2)), rows])
    found, gap = fit_weights(wide, np.ones(30), np.full(5, 0.2), 1e-9)
    assert gap <= 1e-9
    np.testing.assert_allclose(found, np.append([0.0, 0.0], expected), atol=1e-6)
