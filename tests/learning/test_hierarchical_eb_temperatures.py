"""Temperatures of predictions, from rows that clients hold back."""

import numpy as np
import pytest
from scipy import integrate, stats

import ebfed as eb
from ebfed.learning.hierarchical_eb import GRID, N_POPULATIONS, evidence, own_temperatures

M, N = 20, 40
GROUPS = np.repeat(np.arange(M), N)
RNG = np.random.default_rng(4)
X = RNG.normal(size=(M * N, 3))
Y = RNG.integers(2, size=M * N)  # coins, of which rows say nothing
FAST = {"learning_rate": 1.0, "n_rounds": 20, "fine_tune": 10, "random_state": 0}


def fit(y=Y, **others):
    return eb.learning.HierarchicalEB(**(FAST | {"validation_fraction": 0.25} | others)).fit(
        X, y, groups=GROUPS
    )


def quadratic(centre):
    return -20 * (np.log(GRID) - centre)[None] ** 2


def test_evidence_is_a_marginal_likelihood():
    """Of temperatures on a grid, against an integral: normal laws of spread .2 around two means."""

    def marginal(mean):
        inside = lambda a: np.exp(-20 * (a - 0.3) ** 2) * stats.norm.pdf(a, mean, 0.2)  # noqa: E731
        return np.log(integrate.quad(inside, -2, 3)[0])

    k = np.searchsorted(np.log(GRID), 0.4)
    found = evidence(quadratic(0.3))[0]
    assert found.shape == (N_POPULATIONS,)
    middle = len(GRID) + np.array([k, k - 2])
    expected = marginal(np.log(GRID[k])) - marginal(np.log(GRID[k - 2]))
    assert np.diff(found[middle[::-1]])[0] == pytest.approx(expected, abs=1e-3)


def test_a_temperature_lies_between_the_population_and_the_rows():
    population = evidence(np.repeat(quadratic(0.75), 30, axis=0)).mean(axis=0)
    found = own_temperatures(np.vstack([quadratic(0.0), quadratic(0.75)]), population, 30)
    assert 1.0 < found[0] <= found[1] == pytest.approx(np.exp(0.75), rel=0.02)


def test_nothing_known_is_a_temperature_of_one():
    nothing = own_temperatures(np.zeros((1, len(GRID))), np.zeros(N_POPULATIONS), 30)
    assert nothing[0] == pytest.approx(1.0, abs=1e-9)


def test_few_rows_move_temperatures_as_far_as_bayes_rule_says():
    """Of one client with a flat law of its own: the mean of N(0, .3^2) times N(.6, 1 / 8)."""
    scores = -4 * (np.log(GRID) - 0.6)[None] ** 2
    found = np.log(own_temperatures(np.zeros_like(scores), evidence(scores)[0], 1))
    variance = 1 / 8 + 0.1  # about, with spreads of .05, .2 and .5 between clients
    assert found[0] == pytest.approx(0.6 * 0.09 / (0.09 + variance), rel=0.15)


def test_coins_are_predicted_less_surely():
    """Predictors of coins are too sure; the loss of rows that were never seen becomes less."""
    est = fit(fine_tune=50, strengths=[np.inf])
    assert est.temperatures_.min() > 1.0
    new = np.random.default_rng(5).integers(2, size=M * N)
    p = est.predict_proba(X, groups=GROUPS)
    sharp = p ** est.temperatures_[GROUPS][:, None]
    sharp /= sharp.sum(axis=1, keepdims=True)
    loss, before = (-np.log(q[np.arange(len(X)), new]).mean() for q in (p, sharp))
    assert loss < before
    np.testing.assert_array_equal(p.argmax(axis=1), sharp.argmax(axis=1))


def test_without_rows_that_are_held_back_there_are_none():
    est = fit(validation_fraction=0.0)
    assert est.temperatures_ is None
    assert set(est.shared_) == {"w", "strengths"}


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_the_mean_counts_for_as_many_clients_as_are_invited(sampling):
    """In rounds of a tenth of the clients; the mean over 2,000 fits has an error below 1 %."""
    est = eb.learning.HierarchicalEB(
        sample_rate=0.1, sampling=sampling, strength_rounds=4, n_rounds=20
    )
    rng = np.random.default_rng(0)
    seen = [
        np.any([est.protocol().schedule.invite(30, rng) == 0 for _ in range(4)], axis=0).sum()
        for _ in range(2000)
    ]
    assert est.protocol().expected_invited(30) == pytest.approx(np.mean(seen), rel=0.04)
    assert est.set_params(sample_rate=1.0).protocol().expected_invited(30) == 30


def test_evidence_of_few_clients_is_not_that_of_all():
    """With the same evidence from each client, fewer invitations leave temperatures nearer to 1."""
    X = np.tile(RNG.normal(size=(20, 2)), (100, 1))
    y, groups = np.tile(RNG.integers(2, size=20), 100), np.repeat(np.arange(100), 20)
    settings = FAST | {"strengths": [0.0], "strength_rounds": 1, "validation_fraction": 0.25}
    logs = [
        np.log(
            eb.learning.HierarchicalEB(sample_rate=q, **settings)
            .fit(X, y, groups=groups)
            .temperatures_[0]
        )
        for q in (1.0, 0.01)
    ]
    assert abs(logs[1]) < 0.8 * abs(logs[0])


def test_numbers_have_no_temperature():
    assert fit(X[:, 0] + 0.1 * Y, model=eb.models.Linear(), learning_rate=0.1).temperatures_ is None


def test_with_privacy_nothing_is_sent_of_them():
    est = fit(privacy=eb.ClientPrivacy(epsilon=4.0))
    row = est.privacy_.iloc[0]
    assert row["epsilon"] == pytest.approx(4.0, rel=1e-3)
    assert row["bits"] == 64 * (len(est.shared_["w"]) + 6) * M * 20
    assert set(est.shared_) == {"w", "strengths"}


def test_with_privacy_temperatures_are_those_of_own_rows_alone():
    """So that noise does not make them extreme: with each held row a coin, above and near 1."""
    est = fit(
        privacy=eb.ClientPrivacy(noise_multiplier=30.0, clip=1e-3), fine_tune=50, strengths=[np.inf]
    )
    np.testing.assert_array_less(np.abs(np.log(est.temperatures_)), 1.0)
    assert np.log(est.temperatures_).mean() > 0.0
    again = fit(
        privacy=eb.ClientPrivacy(noise_multiplier=60.0, clip=5e-4), fine_tune=50, strengths=[np.inf]
    )
    np.testing.assert_allclose(est.temperatures_, again.temperatures_, rtol=1e-6)


def test_a_file_has_them(tmp_path):
    est = fit()
    est.save(tmp_path / "fit.json")
    read = eb.load_fit(tmp_path / "fit.json")
    np.testing.assert_array_equal(read.temperatures_, est.temperatures_)
    np.testing.assert_array_equal(
        read.predict_proba(X, groups=GROUPS), est.predict_proba(X, groups=GROUPS)
    )
