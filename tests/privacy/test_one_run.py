"""Audits in one run: bounds against independent computations, their validity, and their limits.

Seeds are fixed. Where a test draws, it states how often it would fail if they were not.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

from ebfed.privacy import OneRunAudit, audit_one_run, gaussian_sigma, one_run_limit
from ebfed.privacy.curves import GAUSSIAN, approximate_curve
from ebfed.privacy.one_run import (
    Played,
    _refuted,
    one_run_bound,
    play,
    right_guesses_p_value,
)

# Bounds -------------------------------------------------------------------------------------


def test_the_p_value_is_that_of_the_theorem():
    m, r, v, epsilon, delta = 50, 20, 18, 0.8, 1e-3
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    law = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    most = max(sum(law[v - i : v]) / i for i in range(1, v + 1))
    expected = sum(law[v:]) + 2 * m * delta * most
    assert right_guesses_p_value(v, r, m, epsilon, delta) == pytest.approx(expected, rel=1e-10)
    assert right_guesses_p_value(0, r, m, epsilon, delta) == 1
    assert right_guesses_p_value(v, r, m, epsilon, 0.0) == pytest.approx(sum(law[v:]), rel=1e-10)


@pytest.mark.parametrize(("v", "r", "m"), [(7, 8, 12), (8, 8, 8), (14, 20, 60), (19, 20, 20)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.5, 0.002), (0.0, 0.01)])
def test_the_recursion_solves_the_linear_programme(v, r, m, epsilon, delta):
    """The largest P(W >= v) under the inequalities of all tails, for curves of three lines."""
    j = np.arange(r + 1)
    lines = [(math.exp(-epsilon), -delta * math.exp(-epsilon))]
    lines += [(math.exp(epsilon), 1 - delta - math.exp(epsilon))]
    rows, limits = [], []
    for u in range(1, r + 1):
        hits, misses = (j >= u) * j / m, (j >= u - 1) * (r - j) / m
        for slope, start in lines:  # misses >= slope * hits + start
            rows.append(slope * hits - misses)
            limits.append(-start)
    found = linprog(
        -(j >= v).astype(float), A_ub=rows, b_ub=limits, A_eq=np.ones((1, r + 1)), b_eq=[1.0]
    )
    most, curve = -found.fun, approximate_curve(epsilon, delta)
    assert _refuted(v, r, m, curve, min(1.01 * most, 1.0)) or most > 0.99
    assert not _refuted(v, r, m, curve, 0.99 * most)


def test_bounds_of_known_values():
    """All of r guesses are right: P(B = r) = q**r for any mechanism without delta."""
    q = 0.05 ** (1 / 100)
    assert one_run_bound(100, 100, 100, 0.0) == pytest.approx(math.log(q / (1 - q)), abs=1e-4)
    assert one_run_bound(50, 100, 1000, 1e-5) == 0
    assert one_run_bound(50, 100, 1000, 1e-5, mechanism="gaussian") == 0
    bounds = [one_run_bound(v, 200, 1000, 1e-5, mechanism="gaussian") for v in (150, 180, 200)]
    assert bounds == sorted(bounds)
    assert one_run_bound(180, 200, 1000, 1e-5, 1e-3, "gaussian") < bounds[1]
    assert one_run_bound(180, 200, 1000, 1e-5) < bounds[1], "less is assumed"


def test_bounds_are_valid_for_gaussian_noise():
    """Of 2,000 trainings with noise of epsilon 1, no more bounds are wrong than `error` permits.

    False alarms: the number of wrong bounds is below its quantile at 1 - 1e-6. It is far below,
    since canaries are independent here.
    """
    m, r, error, delta = 100, 20, 0.2, 1e-5
    mu = 1 / gaussian_sigma(1.0, delta)
    rng = np.random.default_rng(5)
    coins = rng.random((2000, m)) < 0.5
    x = np.where(coins, mu / 2, -mu / 2) + rng.standard_normal((2000, m))
    surest = np.argsort(-np.abs(x), axis=1)[:, :r]
    guesses = np.take_along_axis(x, surest, axis=1) > 0
    right = (guesses == np.take_along_axis(coins, surest, axis=1)).sum(axis=1)
    for mechanism in ("gaussian", "any"):
        bounds = [one_run_bound(v, r, m, delta, error, mechanism) for v in range(r + 1)]
        wrong = int((np.array(bounds)[right] > 1.0).sum())
        assert wrong <= binom.ppf(1 - 1e-6, 2000, error)
    assert right.mean() > 0.6 * r


def test_a_mechanism_may_tell_all_coins_with_probability_delta():
    m, error = 100, 0.005
    assert one_run_bound(m, m, m, 0.01, error) == 0, "it is (0, 0.01)-private"
    assert one_run_bound(m, m, m, 1e-5, error) > 0


# Limits -------------------------------------------------------------------------------------


def test_limits():
    limits = [one_run_limit(8.0, 1e-5, m) for m in (200, 1000, 5000)]
    assert limits == sorted(limits)
    assert limits[-1] < 8
    assert limits[1] == pytest.approx(4.59, abs=0.02)
    assert one_run_limit(8.0, 1e-5, 1000, guesses=1000) < limits[1], "the best number is found"
    response = [one_run_limit(2.0, 0.0 + 1e-9, m, mechanism="any") for m in (200, 5000)]
    assert response[0] < response[1] < 2.0
    assert response[1] > 1.8, "randomised response can be audited sharply"


# The audit ----------------------------------------------------------------------------------


class Response:
    """An estimator that publishes each canary's coin, or the other one."""

    def __init__(self, epsilon, claim):
        self.epsilon, self.claim = epsilon, claim

    def __repr__(self):
        return "Response()"


@play.register
def _(estimator: Response, coins, rng, progress):
    lie = rng.random(len(coins)) < 1 / (1 + math.exp(estimator.epsilon))
    return Played(np.where(coins ^ lie, 1.0, -1.0), estimator.claim, 1e-9, GAUSSIAN, 1)


def test_own_estimators_can_be_audited():
    """False alarms: at most 1e-3, the `error`, of each of two; 1 is 3.7 standard errors away."""
    common = {"mechanism": "any", "guesses": 1000, "error": 1e-3}
    found = audit_one_run(Response(1.5, 1.5), **common)
    assert 1.0 < found.lower < 1.5
    assert found.passed
    assert found == audit_one_run(Response(1.5, 1.5), **common), "the seed decides"
    caught = audit_one_run(Response(1.5, 0.8), **common)
    assert not caught.passed
    assert audit_one_run(Response(1.5, 0.8), claim=(1.5, 1e-9), **common).passed


def test_several_numbers_of_guesses_share_the_error():
    one = audit_one_run(Response(1.5, 1.5), mechanism="any", guesses=500, error=0.01)
    both = audit_one_run(Response(1.5, 1.5), mechanism="any", guesses=[500, 1], error=0.02)
    assert (both.lower, both.guesses) == (one.lower, 500)


def test_what_is_reported():
    found = OneRunAudit("A()", 3, 2.0, 1e-5, 1.5, 1000, 200, 180, "gaussian", 0.05)
    assert found.row() == {
        "channel": "A()",
        "n_features": 3,
        "epsilon": 2.0,
        "delta": 1e-5,
        "lower": 1.5,
        "event": "180 of 200 guesses are right",
        "passed": True,
    }
    assert not replace(found, lower=2.1).passed


def test_mistakes():
    for estimator in (object(), Response, None):
        with pytest.raises(TypeError, match="estimator must be a learner with privacy"):
            audit_one_run(estimator)
    with pytest.raises(ValueError, match="canaries must be at least 100; got 99"):
        audit_one_run(Response(1, 1), canaries=99)
    with pytest.raises(ValueError, match="guesses must be at most canaries, 200; got 201"):
        audit_one_run(Response(1, 1), canaries=200, guesses=[5, 201])
    with pytest.raises(ValueError, match="guesses must name at least one"):
        audit_one_run(Response(1, 1), guesses=[])
    with pytest.raises(ValueError, match="guesses must be a whole number"):
        audit_one_run(Response(1, 1), guesses=0.5)
    with pytest.raises(ValueError, match="error must be at least 1e-12"):
        audit_one_run(Response(1, 1), error=0)
    with pytest.raises(ValueError, match="mechanism must be one of"):
        audit_one_run(Response(1, 1), mechanism="laplace")
    with pytest.raises(ValueError, match="epsilon=20 cannot be refuted by 200 canaries"):
        audit_one_run(Response(1, 20.0), canaries=200)
    with pytest.raises(ValueError, match="delta must"):
        audit_one_run(Response(1, 1), claim=(1.0, 0.0))
