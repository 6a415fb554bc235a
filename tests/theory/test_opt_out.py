"""Risks under opting out: against linear algebra, simulation, and each other.

Formulas agree with covariances of all messages to 1e-12, relatively. Simulated means may lie 3
standard errors off: were the draws not fixed, one of the 18 would lie farther off in one of 21
runs.
"""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from ebfed.theory import nonparticipant_risk
from ebfed.theory import opt_out as theory

EXACT = {"rtol": 1e-12, "atol": 0}
SLACK = 1e-9  # relative, for rounding

# population_variance, noise_variance, n, channel_variance, n_private, n_open
EXAMPLE = (0.01, 1.0, 1, 4.0, 4, 1)
SETTINGS = [
    EXAMPLE,
    (0.5235, 1.0, 1, 33.2, 19, 1),
    (0.0687, 3.0, 3, 4.57, 34, 6),
    (2.0, 0.5, 5, 0.3, 2, 7),
    (0.0, 1.0, 2, 1.5, 3, 2),
    (0.4, 1.0, 1, 2.0, 6, 0),
]
RATIOS = [None, 1.0, 0.25]
BOTH = [(setting, ratio) for setting in SETTINGS for ratio in RATIOS]


def clients(setting, private):
    """Covariance of xbar_j and all messages around theta_j; noises of messages; j is the first."""
    t, noise, n, q, n_private, n_open = setting
    kinds = sorted([True] * n_private + [False] * n_open, key=lambda kind: kind != private)
    assert kinds[0] == private
    noises = q * np.array(kinds, float)
    m, v = len(kinds), noise / n
    errors = np.diag(np.full(m, t + v) + noises)
    errors[0, 1:] += t  # the others are t from mu, which is t from theta_j ...
    errors[0, 0] = v + noises[0]
    errors[0, 1:] = 0
    errors[1:, 1:] += t * np.ones((m - 1, m - 1))  # ... and share that one
    covariance = np.zeros((m + 1, m + 1))
    covariance[1:, 1:] = errors
    covariance[0, 0] = covariance[0, 1] = covariance[1, 0] = v
    return covariance, np.array(kinds)


def weights(setting, kinds, ratio):
    r = theory.optimal_ratio(*setting[:4]) if ratio is None else ratio
    w = np.where(kinds, r, 1.0)
    return w / w.sum()


def kinds_of(setting):
    return [kind for kind, count in ((True, setting[4]), (False, setting[5])) if count]


# The server


@pytest.mark.parametrize(("setting", "ratio"), BOTH)
def test_server_variance_is_that_of_a_weighted_mean(setting, ratio):
    t, noise, n, q, n_private, n_open = setting
    kinds = np.arange(n_private + n_open) < n_private
    w = weights(setting, kinds, ratio)
    expected = np.sum(w**2 * (t + noise / n + q * kinds))
    np.testing.assert_allclose(theory.server_variance(*setting, ratio), expected, **EXACT)


@pytest.mark.parametrize("setting", SETTINGS)
def test_first_lemma(setting):
    t, noise, n, q, n_private, n_open = setting
    total, clients_ = t + noise / n, n_private + n_open
    best = theory.server_variance(*setting)
    share = n_open / clients_
    printed = total * (total + q) / (total + share * q) / clients_  # equation (6)
    np.testing.assert_allclose(best, printed, **EXACT)
    r = theory.optimal_ratio(*setting[:4])
    np.testing.assert_allclose(theory.server_variance(*setting, r), best, **EXACT)
    # the inverse-variance mean, least of all weightings
    inverse = 1 / (n_open / total + n_private / (total + q))
    np.testing.assert_allclose(best, inverse, **EXACT)
    if n_open:
        found = minimize_scalar(
            lambda r: theory.server_variance(*setting, r), bounds=(0, 2), options={"xatol": 1e-12}
        )
        np.testing.assert_allclose(found.fun, best, **EXACT)
        np.testing.assert_allclose(found.x, r, rtol=1e-5)


@pytest.mark.parametrize("setting", SETTINGS)
def test_gaps(setting):
    *population, q, n_private, n_open = setting
    best, fedavg = theory.server_variance(*setting), theory.server_variance(*setting, 1.0)
    gap = theory.fedavg_gap(*setting)
    np.testing.assert_allclose(gap, fedavg - best, rtol=1e-12, atol=1e-12)
    # DP-FedAvg: with noise q from everyone gap (9), with the noise of the private ones gap (8)
    m, total = n_private + n_open, population[0] + population[1] / population[2]
    printed = q * n_open / m * (total + q) / (m * (total + n_open / m * q))
    louder = theory.server_variance(*population, q, m, 0)
    equal = theory.server_variance(*population, q * n_private / m, m, 0)
    np.testing.assert_allclose(louder - best, printed, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(equal - best, gap, rtol=1e-12, atol=1e-12)


# Clients


@pytest.mark.parametrize(("setting", "ratio"), BOTH)
def test_ditto_risk_is_the_variance_of_a_linear_estimate(setting, ratio):
    for private in kinds_of(setting):
        covariance, kinds = clients(setting, private)
        for penalty in (0.0, 0.3, 2.0, 50.0, np.inf):
            a = 1 / (1 + penalty)
            w = np.concatenate([[a], (1 - a) * weights(setting, kinds, ratio)])
            risk = theory.ditto_risk(penalty, *setting, private, ratio)
            np.testing.assert_allclose(risk, w @ covariance @ w, **EXACT)


@pytest.mark.parametrize(("setting", "ratio"), BOTH)
def test_ditto_penalty_solves_the_quadratic(setting, ratio):
    for private in kinds_of(setting):
        covariance, kinds = clients(setting, private)
        w = np.concatenate([[0], weights(setting, kinds, ratio)])
        mean_variance, shared = w @ covariance @ w, covariance[0] @ w
        v = setting[1] / setting[2]
        # a from a difference, which rounds, where the formula only adds
        a = max((mean_variance - shared) / (v + mean_variance - 2 * shared), 0)
        penalty = theory.ditto_penalty(*setting, private, ratio)
        np.testing.assert_allclose(1 / (1 + penalty), a, rtol=1e-12, atol=1e-14)


def test_ditto_penalty_may_be_infinite_or_zero():
    # the client that opted out has half of all weight, and the others know mu better
    heavy = (0.0, 1.0, 1, 0.01, 10, 2, False, 0.01)
    assert theory.ditto_penalty(*heavy) == np.inf
    risks = theory.ditto_risk([0.0, 1.0, 100.0, np.inf], *heavy)
    assert np.all(np.diff(risks) < 0)
    # the mean is nothing but its own
    assert theory.ditto_penalty(0.1, 1.0, 1, 4.0, 3, 1, False, 0.0) == 0
    assert theory.ditto_risk(3.0, 0.1, 1.0, 1, 4.0, 3, 1, False, 0.0) == 1.0


@pytest.mark.parametrize("setting", SETTINGS)
def test_bayes_risk_is_that_of_generalised_least_squares(setting):
    for private in kinds_of(setting):
        covariance, _ = clients(setting, private)
        keep = np.arange(len(covariance)) != 1  # its own exact mean, for its own message
        expected = 1 / np.linalg.inv(covariance[np.ix_(keep, keep)]).sum()
        risk = theory.bayes_risk(*setting, private)
        np.testing.assert_allclose(risk, expected, **EXACT)

        t, noise, n, q, n_private, n_open = setting
        v, total = noise / n, t + noise / n
        a, b = n_private - private, n_open - (not private)
        spread = total * (total + q) + t * (a * total + b * (total + q))
        printed = v * spread / (total * (a * total + (b + 1) * (total + q)))  # equation (36)
        np.testing.assert_allclose(risk, printed, **EXACT)


def test_bayes_risk_without_opting_out_is_known():
    np.testing.assert_allclose(
        theory.bayes_risk(0.2, 1.0, 4, 0.7, 9, 0, True),
        nonparticipant_risk(0.2, 1.0, 4, 8, 0.7),
        **EXACT,
    )


def test_clients_that_opted_out_reach_bayes():
    for setting in SETTINGS:
        if setting[5]:
            penalty = theory.ditto_penalty(*setting, False)
            risk = theory.ditto_risk(penalty, *setting, False)
            np.testing.assert_allclose(risk, theory.bayes_risk(*setting, False), **EXACT)
            with np.errstate(divide="ignore"):
                limit = np.float64(setting[1] / setting[2]) / setting[0]
            np.testing.assert_allclose(penalty, limit, **EXACT)
            assert theory.feo2_penalty(*setting, False) == limit


# What the paper prints


def test_the_example_computed_elsewhere():
    penalties = theory.feo2_penalty(*EXAMPLE, True), theory.ditto_penalty(*EXAMPLE, True)
    np.testing.assert_allclose(penalties, [2.1910, 1.9513], atol=5e-5)
    risks = theory.ditto_risk(penalties, *EXAMPLE, True)
    np.testing.assert_allclose(risks, [0.41350, 0.41262], atol=5e-6)
    np.testing.assert_allclose(theory.bayes_risk(*EXAMPLE, True), 0.39001, atol=5e-6)


@pytest.mark.parametrize("setting", SETTINGS)
def test_penalties_as_printed(setting):
    t, noise, n, q, n_private, n_open = setting
    v, clients_ = noise / n, n_private + n_open
    u, g = t / v, q / v
    printed = (clients_ + u * clients_ + g * n_open) / (
        u * (u + 1) * clients_ + u * g * (n_open + 1) + g
    )
    np.testing.assert_allclose(theory.feo2_penalty(*setting, True), printed, **EXACT)
    others = (clients_ - 1) * (1 + u) + n_open * g
    corrected = others / (u * others + (1 + u) * g)
    np.testing.assert_allclose(theory.ditto_penalty(*setting, True), corrected, **EXACT)


@pytest.mark.parametrize("setting", SETTINGS)
def test_three_solutions_of_the_paper_are_one(setting):
    """Equations (42) to (44), of which (45) takes the mean."""
    t, noise, n, q, n_private, n_open = setting
    c, p = t + noise / n, t + noise / n + q
    r = c / p
    total = n_open + n_private * r
    for private in kinds_of(setting):
        a, b = n_private - private, n_open - (not private)
        own = r if private else 1.0
        others, all_ = a * c + b * p, a * c + (b + 1) * p
        inverses = [
            (total * (c * p + t * others) - own * c * all_) / (total * (c - t) * others),
            (c * all_ - total * (c - t) * p) / (total * (c - t) * p),
            (r * all_ - total * (c - t)) / (total * (c - t)),
        ]
        expected = 1 / theory.feo2_penalty(*setting, private)
        np.testing.assert_allclose(inverses, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("setting", SETTINGS)
def test_paper_is_right_once_own_noise_is_taken_out(setting):
    covariance, kinds = clients(setting, True)
    q = setting[3]
    covariance[1, 1] -= q  # the client knows its own noise
    a = 1 / (1 + theory.feo2_penalty(*setting, True))
    w = np.concatenate([[a], (1 - a) * weights(setting, kinds, None)])
    np.testing.assert_allclose(w @ covariance @ w, theory.bayes_risk(*setting, True), **EXACT)


def test_limits():
    t, v, q = 0.3, 0.8, 5.0
    # no noise
    for penalty in (theory.feo2_penalty, theory.ditto_penalty):
        np.testing.assert_allclose(penalty(t, v, 1, 0.0, 6, 3, True), v / t, **EXACT)
        np.testing.assert_allclose(penalty(t, v, 1, 1e-9, 6, 3, True), v / t, rtol=1e-8)
        # exact local means: shrink nothing
        for private in (True, False):
            assert penalty(t, 1e-12, 1, q, 6, 3, private) < 1e-10
        # clients alike: one that opted out takes the server's mean
        assert penalty(0.0, v, 1, q, 6, 3, False) == np.inf
    # everyone private, and clients alike: where the paper forgets the client's own noise
    u, g = t / v, q / v
    for n, penalty in ((9, theory.feo2_penalty), (8, theory.ditto_penalty)):
        np.testing.assert_allclose(penalty(t, v, 1, q, 9, 0, True), n / (u * n + g), **EXACT)
        np.testing.assert_allclose(penalty(0.0, v, 1, q, 6, 3, True), n / g + 3, **EXACT)


# Simulation


@pytest.mark.parametrize("setting", [EXAMPLE, SETTINGS[2]])
def test_simulated_clients(setting):
    t, noise, n, q, n_private, n_open = setting
    repetitions, m = 100_000, n_private + n_open
    rng = np.random.default_rng(7)
    kinds = np.arange(m) < n_private
    theta = 0.7 + np.sqrt(t) * rng.standard_normal((repetitions, m))
    means = theta + np.sqrt(noise / n) * rng.standard_normal(theta.shape)
    messages = means + np.sqrt(q) * kinds * rng.standard_normal(theta.shape)
    for ratio in (None, 1.0):
        server = messages @ weights(setting, kinds, ratio)
        agree((server - 0.7) ** 2, theory.server_variance(*setting, ratio))
        for client, private in ((0, True), (m - 1, False)):
            penalties = [theory.ditto_penalty(*setting, private, ratio)]
            if private and ratio is None:
                penalties.append(theory.feo2_penalty(*setting, private))
            for penalty in penalties:
                estimate = (means[:, client] + penalty * server) / (1 + penalty)
                risk = theory.ditto_risk(penalty, *setting, private, ratio)
                agree((estimate - theta[:, client]) ** 2, risk)
    for client, private in ((0, True), (m - 1, False)):
        others = np.arange(m) != client
        w = np.where(kinds, theory.optimal_ratio(*setting[:4]), 1.0)[others]
        prior = t + 1 / np.sum(1 / (t + noise / n + q * kinds[others]))
        a = prior / (prior + noise / n)
        estimate = a * means[:, client] + (1 - a) * messages[:, others] @ w / w.sum()
        agree((estimate - theta[:, client]) ** 2, theory.bayes_risk(*setting, private))


def agree(samples, expected):
    error = samples.std() / np.sqrt(len(samples))
    assert abs(samples.mean() - expected) <= 3 * error


# Invariants

scales = st.floats(-3, 3).map(lambda power: 10**power)
settings = st.tuples(
    st.just(0.0) | scales,
    scales,
    st.integers(1, 20),
    st.just(0.0) | scales,
    st.integers(1, 50),
    st.integers(1, 50),
)


@given(settings, st.booleans(), st.none() | st.floats(0, 1))
def test_no_penalty_beats_the_best_and_none_beats_bayes(setting, private, ratio):
    best = theory.ditto_penalty(*setting, private, ratio)
    risk = theory.ditto_risk(best, *setting, private, ratio)
    rivals = [0.0, 0.1, 1.0, 10.0, np.inf, theory.feo2_penalty(*setting, private)]
    assert np.all(theory.ditto_risk(rivals, *setting, private, ratio) >= risk * (1 - SLACK))
    assert theory.bayes_risk(*setting, private) <= risk * (1 + SLACK)
    assert risk <= setting[1] / setting[2] * (1 + SLACK)


@given(settings, st.floats(0, 10))
def test_no_ratio_beats_the_optimal_one(setting, ratio):
    assert theory.server_variance(*setting, ratio) >= theory.server_variance(*setting) * (1 - SLACK)
    assert theory.fedavg_gap(*setting) >= 0


@given(settings, st.booleans(), st.none() | st.floats(0, 1), scales)
@example((0.0, 1.0, 2, 0.0, 1, 1), False, 5e-324, 1.0)
def test_scaling_variances_scales_risks(setting, private, ratio, c):
    t, noise, n, q, n_private, n_open = setting
    scaled = (c * t, c * noise, n, c * q, n_private, n_open)
    penalty = theory.ditto_penalty(*setting, private, ratio)
    same = {"rtol": 1e-9}
    np.testing.assert_allclose(
        1 / (1 + theory.ditto_penalty(*scaled, private, ratio)), 1 / (1 + penalty), atol=1e-12
    )
    np.testing.assert_allclose(
        theory.ditto_risk(penalty, *scaled, private, ratio),
        c * theory.ditto_risk(penalty, *setting, private, ratio),
        **same,
    )
    for risk in (
        lambda s: theory.bayes_risk(*s, private),
        lambda s: theory.server_variance(*s, ratio),
        lambda s: theory.fedavg_gap(*s),
    ):
        np.testing.assert_allclose(risk(scaled), c * risk(setting), **same)


@given(settings)
def test_opting_out_at_equal_privacy_changes_nothing_for_fedavg(setting):
    """The noise on the sum of private messages is kept, by those who still are private."""
    *population, q, n_private, n_open = setting
    n_private += 1
    out = (*population, q * n_private / (n_private - 1), n_private - 1, n_open + 1)
    stays = (*population, q, n_private, n_open)
    np.testing.assert_allclose(
        theory.server_variance(*out, 1.0), theory.server_variance(*stays, 1.0), rtol=1e-12
    )
    np.testing.assert_allclose(
        theory.ditto_risk([0.1, 1.0, 9.0], *out, False, 1.0),
        theory.ditto_risk([0.1, 1.0, 9.0], *stays, True, 1.0),
        rtol=1e-12,
    )


# Arguments


def test_arrays_broadcast():
    shares = np.arange(1, 5)
    ratios = np.array([[0.1], [1.0]])
    risks = theory.ditto_risk(2.0, 0.1, 1.0, 1, 4.0, 5 - shares, shares, [True] * 4, ratios)
    assert risks.shape == (2, 4)
    one = theory.ditto_risk(2.0, 0.1, 1.0, 1, 4.0, 3, 2, True, 1.0)
    assert risks[1, 1] == one


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: theory.server_variance(0.1, 1.0, 1, 4.0, -1, 2), "n_private"),
        (lambda: theory.server_variance(0.1, 1.0, 1, 4.0, 3, 0, 0.0), "no message has a weight"),
        (lambda: theory.server_variance(0.1, 1.0, 1, 4.0, 3, 0, np.nan), "ratio"),
        (lambda: theory.fedavg_gap(0.1, 1.0, 1, 4.0, 0, 0), "no message has a weight"),
        (lambda: theory.optimal_ratio(0.1, 1.0, 1, -1.0), "channel_variance"),
        (lambda: theory.ditto_penalty(0.1, 1.0, 1, 4.0, 3, 0, False), "counted too"),
        (lambda: theory.feo2_penalty(0.1, 1.0, 1, 4.0, 0, 3, True), "counted too"),
        (lambda: theory.ditto_risk(-1.0, *EXAMPLE, True), "penalty"),
        (lambda: theory.ditto_risk(1.0, *EXAMPLE, 0.5), "private"),
        (lambda: theory.bayes_risk(0.1, 1.0, 1, 4.0, 1, 0, True), "no message has a weight"),
    ],
)
def test_impossible_settings(call, words):
    with pytest.raises(ValueError, match=words):
        call()
