"""Noise of a server: OpenDP's where privacy is real, NumPy's in a simulation."""

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from ebfed.channels import RandomizedResponse, secure
from ebfed.channels.randomized_category import _secure


def test_a_server_draws_from_a_generator_or_the_operating_system():
    state = {"key": np.array([3, 4], np.uint64)}
    rng = secure.noise(state, 2)
    assert rng.random() == np.random.default_rng([3, 4, 2]).random()
    assert secure.noise(state | {"secure": True}, 2) == "secure"


def test_simulated_noise_is_that_of_numpy():
    values, scale = np.arange(6.0).reshape(2, 3), 1.7
    noisy = secure.add_gaussian(values, scale, np.random.default_rng(0))
    drawn = np.random.default_rng(0).standard_normal((2, 3))
    np.testing.assert_array_equal(noisy, values + scale * drawn)


def test_noise_of_the_operating_system():
    """Chi-square and a KS test, each at 1e-6: one of 250,000 runs would fail."""
    pytest.importorskip("opendp")
    values, scales = np.full((400, 5), 2.0), np.array([0.0, 1.0, 1.0, 3.0, 3.0])
    noisy = secure.add_gaussian(values, np.broadcast_to(scales, values.shape), "secure")
    np.testing.assert_array_equal(noisy[:, 0], 2.0)
    noise = ((noisy - values)[:, 1:] / scales[1:]).ravel()
    assert 1e-6 < chi2.cdf(np.sum(noise**2), noise.size) < 1 - 1e-6
    assert kstest(noise, "norm").pvalue > 1e-6
    assert secure.add_gaussian(np.zeros((0, 3)), 1.0, "secure").shape == (0, 3)


def test_a_server_without_opendp_is_refused_before_clients_are_asked(monkeypatch):
    def missing():
        raise ImportError("draws through OpenDP, which is not installed")

    monkeypatch.setattr(secure, "_opendp", missing)
    secure.check({})
    with pytest.raises(ImportError, match="not installed"):
        secure.check({"secure": True})


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 5.0, 30.0, 36.0, 40.0, 50.0])
def test_rounding_of_a_probability_costs_no_epsilon(epsilon, monkeypatch):
    """By OpenDP's own account. Before, the truth had probability 1 from 37 on: no privacy."""
    pytest.importorskip("opendp")
    drawn = []
    for kind in ("_answer", "_choose"):
        made = getattr(secure, kind).__wrapped__
        monkeypatch.setattr(secure, kind, lambda *x, made=made: drawn.append(made(*x)) or drawn[-1])
    secure.answer(True, epsilon)
    for count in (2, 3, 1000):
        RandomizedResponse(epsilon, levels=count)._law(1)._randomise_secure(0, count)
    _secure(np.array([3, 1, 0]), 1, 0.0, epsilon)
    assert len(drawn) == 5
    assert max(each.map(1) for each in drawn) <= epsilon
