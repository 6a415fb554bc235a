"""Bounds on the excess loss of private learning: against sums written out, and simulations."""

import math

import numpy as np
import pytest

from ebfed.privacy import gaussian_sigma
from ebfed.theory import excess_loss as theory

# Clients, features, rounds; rows on the unit sphere, so that half squared errors have L = 2.
N, D, ROUNDS, SMOOTH, NOISE = 30, 4, 300, 2.0, 0.3
ROWS = np.where(np.arange(N) % 3 == 0, 3, 1)
V = np.array([1.0, -1.0, 0.5, 0.0])


def pieces(alpha, rows, rate, zeta2, own, shared, slopes=None):
    """L_alpha, s^2 and the squared norm, client by client, for the objective "rows"."""
    slopes = np.zeros(N) if slopes is None else slopes
    total = sum(rows)
    s2 = 0.0
    for m, slope in zip(rows, slopes, strict=True):
        # E |b (sum of m gradients) - q m mean|^2 = q m variance + q (1 - q) m^2 |mean|^2
        s2 += alpha * (rate * m * NOISE**2 + rate * (1 - rate) * m**2 * slope) / (rate * total) ** 2
        s2 += rate * m * NOISE**2 / (rate * total) ** 2
    s2 += alpha * D * zeta2
    largest = max(rows) / (rate * total)
    steepest = SMOOTH * max(alpha + alpha * (1 - rate) * largest, largest)
    return steepest, s2, own + (shared / alpha if shared else 0.0)


def bound(alpha, rows, rate, zeta2, own, shared, **more):
    setting = {"rounds": ROUNDS, "n_clients": N, "smoothness": SMOOTH, "n_shared": D}
    setting |= {"shared_variance": NOISE**2, "own_variance": NOISE**2, "noise_variance": zeta2}
    setting |= {"alpha": alpha, "rows": rows, "rate": rate, "own_norm": own, "shared_norm": shared}
    return theory.ppsgd_risk_bound(**setting, **more)


def norms(alpha):
    """Squared norms of the minimiser with the least norm (Lemma 4.6)."""
    share = alpha * N / (alpha * N + 1)
    return N * (1 - share) ** 2 * (V @ V), share**2 * (V @ V)


@pytest.mark.parametrize("alpha", [0.01, 0.2, 3.0])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_bound_is_its_sums_written_out(alpha, rate):
    own, shared = norms(alpha)
    slopes = np.linspace(0, 2, N)
    steepest, s2, norm = pieces(alpha, ROWS, rate, 0.01, own, shared, slopes)
    expected = 4 * steepest * norm / ROUNDS + 3 * math.sqrt(s2 * norm / ROUNDS)
    found = bound(alpha, ROWS, rate, 0.01, own, shared, slopes=slopes, objective="rows")
    assert found == pytest.approx(expected, rel=1e-12)
    one = [bound(alpha, 1, rate, 0.01, own, shared, objective=each) for each in ("rows", "clients")]
    assert one[0] == pytest.approx(one[1], rel=1e-12)


def test_theorem_without_sampling_is_the_paper_s():
    own, shared = norms(0.2)
    norm, s2 = own + shared / 0.2, (0.2 + 1) * NOISE**2 / N + 0.2 * D * 0.01
    steepest = SMOOTH * max(0.2, 1 / N)
    expected = 4 * steepest * norm / ROUNDS + 3 * math.sqrt(s2 * norm / ROUNDS)
    assert bound(0.2, 1, 1.0, 0.01, own, shared) == pytest.approx(expected, rel=1e-12)


def learn(alpha, rows, rate, zeta2, step, rng):
    """Excess risk of the average iterate of Algorithm 2."""
    w, theta, size = np.zeros(D), np.zeros((N, D)), rate * rows.sum()
    sums = np.zeros((N, D))
    asked = np.arange(rows.max()) < rows[:, None]
    for _ in range(ROUNDS):
        sums += w + theta
        x = rng.normal(size=(N, rows.max(), D))
        x /= np.linalg.norm(x, axis=-1, keepdims=True)
        wrong = np.einsum("nkd,nd->nk", x, w + theta - V) - rng.normal(0, NOISE, asked.shape)
        drawn = asked & (rng.random((N, 1)) < rate)
        gradient = np.einsum("nk,nkd->nd", wrong * drawn, x) / size
        theta = theta - step * gradient
        w = w - alpha * step * (gradient.sum(axis=0) + rng.normal(0, math.sqrt(zeta2), D))
    off = sums / ROUNDS - V
    return rows / rows.sum() @ (off**2).sum(axis=1) / (2 * D)


@pytest.mark.parametrize("alpha", [0.01, 0.2, 3.0])
@pytest.mark.parametrize(("rows", "rate"), [(np.ones(N, int), 1.0), (ROWS, 0.3)])
@pytest.mark.parametrize("zeta2", [0.0, 0.05])
def test_simulated_risk_is_below_the_bound(alpha, rows, rate, zeta2):
    """Far below, by a factor of 7 to 60: the bound is for the worst of convex losses."""
    own, shared = norms(alpha)
    steepest, s2, norm = pieces(alpha, rows, rate, zeta2, own, shared)
    step = min(1 / (4 * steepest), math.sqrt(norm / ROUNDS / s2))
    rng = np.random.default_rng(0)
    risks = [learn(alpha, rows, rate, zeta2, step, rng) for _ in range(10)]
    limit = bound(alpha, rows, rate, zeta2, own, shared, objective="rows")
    assert limit / 100 < np.mean(risks) < limit / 3


@pytest.mark.parametrize("relation", ["add_or_remove", "replace_one"])
def test_threshold_is_where_the_variance_term_turns(relation):
    """Smoothness next to nothing leaves the variance term; noise is that of n releases together."""
    setting = {"n_clients": N, "gradient_variance": NOISE**2, "clip": 0.02, "n_shared": D}
    threshold = theory.ppsgd_threshold(1.0, 1e-4, relation=relation, **setting)
    z = gaussian_sigma(1.0, 1e-4, 2.0 if relation == "replace_one" else 1.0)

    def terms(n):
        zeta2 = n * (z * 0.02 / N) ** 2
        for alpha in (0.001, 0.1, 10.0):
            own, shared = norms(alpha)
            _, s2, norm = pieces(alpha, np.ones(N, int), 1.0, zeta2, own, shared)
            yield s2 * norm

    assert np.all(np.diff(list(terms(1.01 * threshold))) > 0)
    assert np.all(np.diff(list(terms(0.99 * threshold))) < 0)


def test_threshold_goes_with_the_square_of_epsilon():
    setting = {"n_clients": N, "gradient_variance": 1.0, "clip": 1.0, "n_shared": D}
    small, smaller = (theory.ppsgd_threshold(eps, 1e-6, **setting) for eps in (0.02, 0.01))
    assert small / smaller == pytest.approx(4, rel=0.15)  # but for a logarithm


OWNERS = {"n_records": 100, "own_diameter": 0.1, "shared_diameter": 1.0, "n_own": 5, "n_shared": 50}


def test_rates_are_in_order():
    for n in (1, 10, 1000):
        rates = theory.joint_dp_rates(1.0, 1e-5, n_owners=n, **OWNERS)
        assert rates["open"] < rates["joint"] < rates["full"]
    assert (
        rates["joint"]
        < rates["alone"]
        < theory.joint_dp_rates(1.0, 1e-5, n_owners=1, **OWNERS)["joint"]
    )
    free = theory.joint_dp_rates(1e12, 1e-5, n_owners=10, **OWNERS)
    assert free["joint"] == pytest.approx(free["open"], rel=1e-9)


def test_rates_of_users_with_many_records():
    """A user's records cost the joint rate their number, the smooth one its root (Theorem B.1)."""
    one, many = (
        theory.joint_dp_rates(1.0, 1e-5, n_owners=10, **OWNERS, n_users=users)
        for users in (100, 25)
    )
    log = math.log(4e5) / math.log(1e5)
    ratio = (many["joint"] - many["open"]) / (one["joint"] - one["open"])
    assert ratio == pytest.approx(4 * math.sqrt(log), rel=1e-12)
    ratio = (many["smooth"] - many["open"]) / (one["smooth"] - one["open"])
    assert ratio == pytest.approx(2, rel=1e-12)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"rate": 1.5}, "rate must be at most 1; got 1.5"),
        ({"alpha": -1.0}, "alpha must be nonnegative and finite; got -1.0"),
        ({"alpha": 0.0}, "shared_norm must be 0"),
        ({"rows": 0}, "rows must be at least 1; got 0"),
        ({"slopes": [1.0, 2.0]}, "slopes must be nonnegative, one number or 3"),
        ({"objective": "all"}, "objective must be one of"),
    ],
)
def test_bad_arguments_of_the_bound(more, words):
    setting = {"rounds": 10, "n_clients": 3, "alpha": 1.0, "shared_norm": 1.0, "own_norm": 0.0}
    setting |= {"smoothness": 1.0, "shared_variance": 1.0, "own_variance": 1.0}
    with pytest.raises(ValueError, match=words):
        theory.ppsgd_risk_bound(**setting | more)


def test_bad_arguments_of_the_others():
    with pytest.raises(ValueError, match="n_users must be at most n_records, 100; got 200"):
        theory.joint_dp_rates(1.0, 1e-5, n_owners=2, **OWNERS, n_users=200)
    with pytest.raises(ValueError, match="own_diameter must be nonnegative"):
        theory.joint_dp_rates(1.0, 1e-5, n_owners=2, **OWNERS | {"own_diameter": -1.0})
    with pytest.raises(ValueError, match="relation must be one of"):
        theory.ppsgd_threshold(
            1.0, 1e-5, n_clients=2, gradient_variance=1, clip=1, n_shared=1, relation="both"
        )


# Stability of SGD


def moved(T, step, n, m, seed):
    """How far averages of absolute losses move if one record is exchanged, over 200 runs."""
    rng = np.random.default_rng(seed)
    records = rng.normal(size=(n, m, 3))
    records /= np.linalg.norm(records, axis=2, keepdims=True)
    y = rng.normal(size=(n, m))
    other = records.copy()
    other[0, 0] *= -1
    lengths = []
    for _ in range(200):
        owners, rows = rng.integers(n, size=T), rng.integers(m, size=T)
        ends = []
        for X in (records, other):
            # u of two dimensions, and one of each owner's own, in boxes of diameters 2 and 1
            u, own, total = np.zeros(2), np.zeros(n), np.zeros(2 + n)
            for j, i in zip(owners, rows, strict=True):
                sign = np.sign(X[j, i] @ [*u, own[j]] - y[j, i])
                u = np.clip(u - step * sign * X[j, i, :2], *np.array([-1, 1]) / np.sqrt(2))
                own[j] = np.clip(own[j] - step * sign * X[j, i, 2], -0.5, 0.5)
                total += np.append(u, own)
            ends.append(total / T)
        lengths.append(np.linalg.norm(ends[0] - ends[1]))
    return np.mean(lengths)


@pytest.mark.parametrize(("T", "step"), [(40, 0.02), (400, 0.02), (400, 0.2)])
def test_one_record_moves_sgd_by_less_than_the_bound(T, step):
    n, m = 4, 5
    setting = {"n_owners": n, "n_records": m, "own_diameter": 1.0, "shared_diameter": 2.0}
    limit = theory.joint_dp_stability(rounds=T, step=step, **setting)
    expected = min(np.sqrt(4 + n), 4 * step * (np.sqrt(T) + T / 20))
    assert limit == pytest.approx(expected, rel=1e-12)
    assert 0 < moved(T, step, n, m, 0) < limit


def test_arguments_of_stability():
    setting = {"n_owners": 4, "n_records": 5, "own_diameter": 1.0, "shared_diameter": 2.0}
    with pytest.raises(ValueError, match="step must be"):
        theory.joint_dp_stability(rounds=5, step=-1.0, **setting)
    with pytest.raises(ValueError, match="own_diameter must be nonnegative"):
        theory.joint_dp_stability(rounds=5, step=1.0, **setting | {"own_diameter": -1})
