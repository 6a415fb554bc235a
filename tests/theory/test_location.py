"""Closed-form risks against simulation, against values computed elsewhere, and against each other.

Simulated means may differ from a formula by 5 standard errors: one false alarm in 2 million, were
the draws not fixed.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, norm

import ebfed as eb
from ebfed import theory

SLACK = 1e-9  # relative, for rounding


def agree(samples, expected, errors=5):
    samples = np.asarray(samples)
    tolerance = errors * samples.std() / np.sqrt(len(samples))
    assert abs(samples.mean() - expected) <= tolerance + 1e-12


# Normal model: exactness

SETTINGS = [  # population_variance, noise_variance, n, m, channel_variance
    (0.3, 1.0, 5, 2, 0.0),
    (0.3, 1.0, 5, 10, 0.0),
    (0.0, 1.0, 1, 3, 0.5),
    (1.0, 0.5, 3, 4, 2.0),
    (0.01, 0.25, 15, 50, 1.0),
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_normal_risks_are_those_of_simulated_clients(setting):
    t, noise, n, m, q = setting
    rng = np.random.default_rng(1)
    repetitions = 200_000
    theta = 0.7 + np.sqrt(t) * rng.standard_normal((repetitions, m))
    means = theta + np.sqrt(noise / n) * rng.standard_normal(theta.shape)
    messages = means + np.sqrt(q) * rng.choice([-1.0, 1.0], theta.shape)  # any unbiased channel

    a = theory.shrinkage_weight(t, noise, n, m, q)
    estimate = a * means[:, 0] + (1 - a) * messages.mean(axis=1)
    agree((estimate - theta[:, 0]) ** 2, theory.mean_risk(t, noise, n, m, q))

    # the first client in the role of one that keeps its message, then of one that has none
    prior = t + (t + noise / n + q) / (m - 1)
    w = prior / (prior + noise / n)
    estimate = w * means[:, 0] + (1 - w) * messages[:, 1:].mean(axis=1)
    errors = (estimate - theta[:, 0]) ** 2
    agree(errors, theory.leave_one_out_risk(t, noise, n, m, q))
    agree(errors, theory.nonparticipant_risk(t, noise, n, m - 1, q))

    agree((means[:, 0] - theta[:, 0]) ** 2, theory.local_risk(noise, n))
    c = theory.shrinkage_weight(t, noise, n)
    estimate = c * means[:, 0] + (1 - c) * 0.7
    agree((estimate - theta[:, 0]) ** 2, theory.bayes_risk(t, noise, n))


def test_client_sampling_puts_participants_for_clients():
    t, noise, n, m, k, q = 0.2, 1.0, 4, 12, 5, 0.7
    rng = np.random.default_rng(2)
    theta = np.sqrt(t) * rng.standard_normal((100_000, m))
    means = theta + np.sqrt(noise / n) * rng.standard_normal(theta.shape)
    messages = means + np.sqrt(q) * rng.standard_normal(theta.shape)
    center = messages[:, :k].mean(axis=1, keepdims=True)  # the first k of m take part
    a = theory.shrinkage_weight(t, noise, n, k, q)
    prior = t + (t + noise / n + q) / k
    b = prior / (prior + noise / n)
    for client, w, risk in [
        (0, a, theory.mean_risk(t, noise, n, k, q)),
        (m - 1, b, theory.nonparticipant_risk(t, noise, n, k, q)),
    ]:
        estimate = w * means[:, client] + (1 - w) * center[:, 0]
        agree((estimate - theta[:, client]) ** 2, risk)


@pytest.mark.parametrize("setting", SETTINGS)
def test_weight_minimises_the_quadratic_risk(setting):
    t, noise, n, m, q = setting
    v = noise / n

    def risk(a):  # the paper, (19) before (c)
        return a**2 * v + (1 - a) * ((1 - a) * (v + q + t * (m - 1)) + 2 * a * v) / m

    a = theory.shrinkage_weight(t, noise, n, m, q)
    assert np.isclose(risk(a), theory.mean_risk(t, noise, n, m, q), rtol=SLACK)
    assert risk(a) < min(risk(a - 1e-3), risk(a + 1e-3))


# The figures of the paper, from their formulas


def analytic_gaussian_sigma(epsilon, delta, sensitivity):
    """Balle and Wang (2018), Theorem 8."""

    def excess(log_sigma):
        ratio = sensitivity / np.exp(log_sigma)
        low, high = ratio / 2 - epsilon / ratio, -ratio / 2 - epsilon / ratio
        return norm.cdf(low) - np.exp(epsilon + norm.logcdf(high)) - delta

    return np.exp(brentq(excess, np.log(sensitivity / 100), np.log(sensitivity * 1000)))


@pytest.mark.parametrize(
    ("n", "m", "local", "pooled", "private"),
    [
        (15, 10_000, 0.01667, 0.00625, [0.0120, 0.0090, 0.0073, 0.0068, 0.0065, 0.0064, 0.0063]),
        (5, 1000, 0.05, 0.00838, [0.0450, 0.0367, 0.0245, 0.0183, 0.0132, 0.0108, 0.0101]),
        (5, 500, 0.05, None, [0.0472, 0.0416, 0.0309, 0.0238, 0.0167, 0.0127, 0.0115]),
    ],
    ids=["Figure 1a", "Figure 3a", "Figure 3b"],
)
def test_figures(n, m, local, pooled, private):
    t, noise = 0.1**2, 0.5**2
    assert np.isclose(theory.local_risk(noise, n), local, rtol=0, atol=0.5e-5)
    assert pooled is None or np.isclose(
        theory.mean_risk(t, noise, n, m), pooled, rtol=0, atol=0.5e-5
    )
    b = theory.reporting_range(0.5, t, noise, n, m)
    sigma = np.array([analytic_gaussian_sigma(e, 1e-4, 2 * b) for e in (0.5, 1, 2, 3, 5, 8, 10)])
    risks = theory.mean_risk(t, noise, n, m, sigma**2)
    # half a unit of the last digit, and a little more: .0120 is given where this is .012052
    assert np.allclose(risks, private, rtol=0, atol=0.52e-4)


# Normal model: order of the risks

variances = st.floats(1e-3, 1e3)
counts = st.integers(1, 1000)


@given(variances, variances, counts, st.integers(2, 10_000), variances, st.integers(1, 50))
def test_order_of_risks(t, noise, n, m, q, d):
    known = theory.bayes_risk(t, noise, n, d)
    exact = theory.mean_risk(t, noise, n, m, 0.0, d)
    noisy = theory.mean_risk(t, noise, n, m, q, d)
    own = theory.leave_one_out_risk(t, noise, n, m, q, d)
    outside = theory.nonparticipant_risk(t, noise, n, m, q, d)
    local = theory.local_risk(noise, n, d)
    risks = np.array([known, exact, own, noisy, local])
    assert np.all(np.diff(risks) >= -SLACK * local)
    assert known <= outside * (1 + SLACK) <= own * (1 + 2 * SLACK)
    assert np.isclose(theory.leave_one_out_risk(t, noise, n, m, 0.0, d), exact, rtol=SLACK)
    assert 0 <= theory.shrinkage_weight(t, noise, n, m, q) <= 1
    assert np.isclose(theory.mean_risk(t, noise, n, np.inf, q, d), known, rtol=SLACK)


def test_own_exact_mean_is_strictly_better_with_a_channel():
    t, noise, n, m, q = np.array(SETTINGS).T[:, 2:]
    own = theory.leave_one_out_risk(t, noise, n, m, q)
    assert np.all(own < theory.mean_risk(t, noise, n, m, q) - 1e-6)


# Range


@given(variances, variances, counts, st.integers(2, 10_000), st.integers(1, 50))
def test_sure_range_holds_all_means(t, noise, n, m, d):
    b = theory.reporting_range(1.0, t, noise, n, m, d, sure=True)
    outside = 2 * norm.sf((b - 1.0) / np.sqrt(t + noise / n))  # by less if mu is not at the edge
    assert m * d * outside <= 1 / (2 * m * n)


@given(variances, variances, counts, st.integers(2, 10_000), st.integers(1, 50))
def test_what_follows_for_the_range_of_the_paper(t, noise, n, m, d):
    v = noise / n
    b = theory.reporting_range(0.0, t, noise, n, m)
    exponent = (np.sqrt(t) + np.sqrt(v)) ** 2 / (t + v) / 2
    assert m * d * 2 * norm.sf(b / np.sqrt(t + v)) <= d * m * (m**2 * n) ** -exponent * (1 + 1e-6)


def test_range_of_the_paper_falls_short_of_its_claim():
    n, m = 10, 100
    b = theory.reporting_range(0.0, 0.0, 1.0, n, m)
    clipped = -np.expm1(m * np.log1p(-2 * norm.sf(b * np.sqrt(n))))  # exact, mu = 0, radius 0
    assert clipped > 20 * 2 / (m * n)


# Channels


def one_bit(x, epsilon, uniform):
    high = np.exp(epsilon) / (np.exp(epsilon) + 1)
    sign = np.where(uniform < 0.5 + x * (high - 0.5), 1.0, -1.0)
    return sign / (2 * high - 1)


def piecewise(x, epsilon, uniform, rng):
    """Wang et al. (2019), Algorithm 2."""
    root = np.exp(epsilon / 2)
    c = (root + 1) / (root - 1)
    left = (c + 1) / 2 * x - (c - 1) / 2
    right = left + c - 1
    centre = rng.uniform(left, right, uniform.shape)
    tail = rng.uniform(0, c + 1, uniform.shape)
    outer = np.where(tail < left + c, tail - c, right + tail - (left + c))
    return np.where(uniform < root / (root + 1), centre, outer)


@pytest.mark.parametrize("epsilon", [0.3, 0.609, 0.6097, 0.62, 3.0])
def test_variances_are_those_of_channels(epsilon):
    """Before, a Hybrid of epsilon from 0.6094 to 0.61 was one bit, and its formula was not."""
    where = eb.Summary.from_rows([-1.0, 0.2, 0.9], groups=[0, 1, 2])
    for name in ("OneBit", "Piecewise", "Hybrid", "Laplace"):
        found = getattr(eb.channels, name)(epsilon, (-1, 1)).variance(where).ravel()
        formula = getattr(theory, f"{name.replace('neB', 'ne_B').lower()}_variance")
        x = () if name == "Laplace" else (where.mean.ravel(),)
        np.testing.assert_allclose(found, formula(*x, 1.0, epsilon), rtol=1e-12)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("x", [-1.0, 0.2, 0.9])
def test_variances_of_private_reports(x, epsilon):
    rng = np.random.default_rng(3)
    b = 2.5
    uniform, coin = rng.random((2, 400_000))
    bit, piece = one_bit(x, epsilon, uniform), piecewise(x, epsilon, uniform, rng)
    share = 1 - np.exp(-epsilon / 2) if epsilon > 0.61 else 0.0
    for reports, variance in [
        (bit, theory.one_bit_variance),
        (piece, theory.piecewise_variance),
        (np.where(coin < share, piece, bit), theory.hybrid_variance),
    ]:
        agree(reports, x)
        agree(b**2 * (reports - x) ** 2, variance(b * x, b, epsilon))
    noise = rng.laplace(scale=2 * b / epsilon, size=len(uniform))
    agree(noise**2, theory.laplace_variance(b, epsilon))


@given(st.floats(0, 1), st.floats(0.01, 20))
def test_report_of_a_proportion(x, epsilon):
    values = np.array([-1.0, np.exp(epsilon)]) / np.expm1(epsilon)
    high = (1 + x * np.expm1(epsilon)) / (np.exp(epsilon) + 1)
    chances = np.array([1 - high, high])
    assert np.isclose(chances @ values, x)
    expected = theory.one_bit_variance(x - 0.5, 0.5, epsilon)
    assert np.isclose(chances @ (values - x) ** 2, expected)
    assert np.isclose(x * (1 - x) + np.exp(epsilon) / np.expm1(epsilon) ** 2, expected)


@given(st.floats(-1, 1), st.integers(1, 12), st.floats(0.1, 10))
def test_quantizer_variance(x, bits, b):
    step = 2 * b / (2**bits - 1)
    below = np.floor((x * b + b) / step) * step - b
    chance = (x * b - below) / step
    expected = (1 - chance) * (x * b - below) ** 2 + chance * (below + step - x * b) ** 2
    exact, bound = theory.quantizer_variance(b, bits, x * b), theory.quantizer_variance(b, bits)
    assert np.isclose(exact, expected, atol=1e-9 * step**2)
    assert exact <= bound
    assert np.isclose(bound, b**2 / (2**bits - 1) ** 2)


def test_hybrid_is_continuous_in_its_largest_variance_and_never_the_worse_of_two():
    epsilon = np.linspace(0.05, 8, 300)
    hybrid = theory.hybrid_variance([[0.0], [1.0]], 1.0, epsilon).max(axis=0)
    bit, piece = (
        theory.one_bit_variance(0.0, 1.0, epsilon),
        theory.piecewise_variance(1, 1, epsilon),
    )
    assert np.all(hybrid <= np.minimum(bit, piece) * (1 + SLACK))
    low, high = theory.hybrid_variance(0.0, 1.0, 0.6093524930271883 + np.array([-1e-9, 1e-9]))
    assert np.isclose(low, high, rtol=1e-7)


CHANNELS = [
    theory.one_bit_variance,
    theory.piecewise_variance,
    lambda x, b, e: theory.laplace_variance(b, e),
]


@given(st.floats(-1, 1), st.floats(0.01, 10), st.floats(1.01, 3), st.sampled_from(CHANNELS))
def test_more_privacy_costs_more(x, epsilon, factor, channel):
    strict, loose = (
        theory.mean_risk(0.1, 1.0, 5, 100, channel(x, 1.0, e)) for e in (epsilon, factor * epsilon)
    )
    assert loose <= strict * (1 + SLACK)


def test_extreme_epsilon_neither_overflows_nor_vanishes():
    epsilon = np.array([1e-6, 1e4, np.inf])
    assert np.allclose(theory.one_bit_variance(0.6, 1.0, epsilon)[1:], 0.64)
    assert np.allclose(theory.piecewise_variance(0.6, 1.0, epsilon)[1:], 0.0)
    assert np.allclose(theory.hybrid_variance(0.6, 1.0, epsilon)[1:], 0.0)
    assert np.all(np.isfinite(theory.hybrid_variance(0.6, 1.0, epsilon)))


# Binomial model


def simulate(alpha, beta, n, m, repetitions, epsilon=None):
    rng = np.random.default_rng(4)
    p = rng.beta(alpha, beta, (repetitions, m))
    means = rng.binomial(n, p) / n
    if epsilon is None:
        return p, means, means
    return p, means, 0.5 + 0.5 * one_bit(2 * means - 1, epsilon, rng.random(p.shape))


@pytest.mark.parametrize("epsilon", [None, 0.5, 3.0])
@pytest.mark.parametrize(
    ("alpha", "beta", "n", "m"), [(1, 1, 14, 3), (4, 2, 3, 10), (0.5, 3, 1, 5)]
)
def test_binomial_risks_are_those_of_simulated_clients(alpha, beta, n, m, epsilon):
    p, means, messages = simulate(alpha, beta, n, m, 200_000, epsilon)
    for w in (0.0, 0.3, 0.8):
        estimate = w * means[:, 0] + (1 - w) * messages[:, 1:].mean(axis=1)
        agree((estimate - p[:, 0]) ** 2, theory.binomial_risk(w, alpha, beta, n, m, epsilon))
    agree((means[:, 0] - p[:, 0]) ** 2, theory.binomial_local_risk(alpha, beta, n))
    estimate = (alpha + n * means[:, 0]) / (alpha + beta + n)
    agree((estimate - p[:, 0]) ** 2, theory.binomial_bayes_risk(alpha, beta, n))


@given(st.floats(0.1, 100), st.floats(0.1, 100), counts)
def test_known_beta_is_the_best_fixed_weight(alpha, beta, n):
    best = n / (alpha + beta + n)
    bayes = theory.binomial_bayes_risk(alpha, beta, n)
    assert np.isclose(theory.binomial_risk(best, alpha, beta, n), bayes, rtol=SLACK)
    assert np.isclose(
        theory.binomial_risk(1.0, alpha, beta, n), theory.binomial_local_risk(alpha, beta, n)
    )
    paper = theory.binomial_moment_weight(alpha, beta, n)
    assert best <= paper * (1 + SLACK) <= 1 + 2 * SLACK
    assert theory.binomial_risk(paper, alpha, beta, n) >= bayes * (1 - SLACK)
    for epsilon in (0.1, 1.0, 30.0):
        private = theory.binomial_moment_weight(alpha, beta, n, epsilon)
        assert n / (n + 1) * (1 - SLACK) <= private <= 1


@pytest.mark.parametrize(
    ("mean", "variance", "n", "epsilon", "gain", "error"),
    [
        (0.5, 1 / 12, 14, None, 12.1, 0.5),  # uniform
        (0.5, 1 / 36, 14, None, 33.0, 0.6),  # Beta(4, 4)
        (0.5, 1 / 24, 14, None, 24.6, 0.5),  # three spikes at 1/4, 1/2, 3/4
        (0.5, 1e-9, 14, None, 73, 0.5),  # nothing left to learn: 100 is possible
        (0.5, 1 / 12, 14, 1.0, 2.8, 0.05),
        (0.5, 0.15**2, 14, 0.5, 0.85, 0.05),
        (0.5, 0.15**2, 14, 1.0, 2.95, 0.05),
        (0.5, 0.15**2, 14, 2.0, 7.6, 0.05),
        (0.5, 0.15**2, 14, 4.0, 11.6, 0.1),
    ],
)
def test_gains_of_equation_6_and_theorem_4(mean, variance, n, epsilon, gain, error):
    """Per cent below the local risk at m = 10,000, measured by an independent simulation."""
    k = mean * (1 - mean) / variance - 1
    setting = mean * k, (1 - mean) * k, n
    w = theory.binomial_moment_weight(*setting, epsilon)
    ratio = theory.binomial_risk(w, *setting, 10_000, epsilon) / theory.binomial_local_risk(
        *setting
    )
    assert abs(100 * (1 - ratio) - gain) <= error


@pytest.mark.parametrize("epsilon", [None, 0.5, 3.0])
def test_moment_weight_is_the_limit_of_the_weights(epsilon):
    alpha, beta, n, m = 2, 5, 8, 2_000_000
    _, _, messages = simulate(alpha, beta, n, m, 1, epsilon)
    ratio = messages.mean() * (1 - messages.mean()) / messages.var()
    weight = n / (ratio + n - (epsilon is None))
    assert np.isclose(weight, theory.binomial_moment_weight(alpha, beta, n, epsilon), atol=2e-3)


@pytest.mark.parametrize("epsilon", [None, 0.5, 3.0])
def test_bounds_hold_with_learned_weights(epsilon):
    """Weights of the paper from the other messages: conditional and unconditional bound."""
    alpha, beta, n, m = 2, 5, 8, 6
    p, means, messages = simulate(alpha, beta, n, m, 100_000, epsilon)
    mu = messages[:, 1:].mean(axis=1)
    spread = messages[:, 1:].var(axis=1, ddof=1) + 1e-12
    w = np.clip(n / (mu * (1 - mu) / spread - (epsilon is None) + n), 0, 1)
    errors = (w * means[:, 0] + (1 - w) * mu - p[:, 0]) ** 2

    t, v = alpha * beta / 49 / 8, theory.binomial_local_risk(alpha, beta, n)
    message = (m - 1) * (theory.binomial_risk(0.0, alpha, beta, n, m, epsilon) - t)
    bound = (w**2).mean() * v + ((1 - w) ** 2).mean() * t + message / (m - 1)
    assert errors.mean() <= bound

    # given the others, the risk is known: it exceeds the bound with the stated probability at most
    given_others = w**2 * v + (1 - w) ** 2 * (t + (mu - alpha / (alpha + beta)) ** 2)
    agree(errors - given_others, 0.0)
    bounds = theory.binomial_risk_bound(w, alpha, beta, n, m, epsilon)
    assert np.mean(given_others > bounds) <= 1 / (m**2 * n)


def test_exponent_three_is_not_a_bound_on_tails():
    """(35) with 3 fails for reports without noise, Bernoulli(1/2); with 2 it holds."""
    m, t = 1000, 0.0773
    tail = 2 * binom.cdf(np.floor((m - 1) * (0.5 - t)), m - 1, 0.5)
    assert 2 * np.exp(-3 * (m - 1) * t**2) < tail <= 2 * np.exp(-2 * (m - 1) * t**2)


# Arguments


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.mean_risk(-0.1, 1, 5, 10), "population_variance must be nonnegative"),
        (lambda: theory.mean_risk(0.1, 0, 5, 10), "noise_variance must be positive"),
        (lambda: theory.mean_risk(0.1, 1, 0, 10), "n must be at least 1"),
        (lambda: theory.mean_risk(0.1, 1, [5, 0.5], 10), "n must be at least 1"),
        (lambda: theory.mean_risk(0.1, 1, 5, 1), "m must be at least 2"),
        (lambda: theory.mean_risk(0.1, 1, 5, 10, [0, -1]), "channel_variance must be nonneg"),
        (lambda: theory.mean_risk(np.nan, 1, 5, 10), "population_variance must be"),
        (lambda: theory.mean_risk(0.1, np.inf, 5, 10), "noise_variance must be positive and fin"),
        (lambda: theory.mean_risk(0.1, 1, 5, 10, d=0), "d must be at least 1"),
        (lambda: theory.leave_one_out_risk(0.1, 1, 5, 1), "m must be at least 2"),
        (lambda: theory.nonparticipant_risk(0.1, 1, 5, 0), "participants must be at least 1"),
        (lambda: theory.reporting_range(-1, 0.1, 1, 5, 10), "radius must be nonnegative"),
        (lambda: theory.quantizer_variance(1, 0), "bits must be at least 1"),
        (lambda: theory.quantizer_variance(1, 2, 1.1), "clip it first"),
        (lambda: theory.one_bit_variance(2.0, 1, 1), "clip it first"),
        (lambda: theory.one_bit_variance(np.nan, 1, 1), "x must be finite"),
        (lambda: theory.one_bit_variance(0.0, 1, 0), "epsilon must be positive"),
        (lambda: theory.piecewise_variance(0.0, 0, 1), "half_width must be positive"),
        (lambda: theory.laplace_variance(1, -1), "epsilon must be positive"),
        (lambda: theory.binomial_bayes_risk(0, 1, 5), "alpha must be positive"),
        (lambda: theory.binomial_local_risk(1, -1, 5), "beta must be positive"),
        (lambda: theory.binomial_risk(np.nan, 1, 1, 5), "weight must be finite"),
        (lambda: theory.binomial_risk_bound(0.5, 1, 1, 5, 1), "m must be at least 2"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_arguments_broadcast():
    risks = theory.mean_risk([[0.01], [0.1]], 0.25, 15, 100, [0.0, 1.0, 10.0], d=3)
    assert risks.shape == (2, 3)
    assert np.isclose(risks[1, 2], 3 * theory.mean_risk(0.1, 0.25, 15, 100, 10.0))
    assert theory.binomial_risk(0.5, [1, 2], 1, [[3], [4], [5]], 10, epsilon=1.0).shape == (3, 2)
