"""Every channel at tiny and huge epsilon: refused by name, or finite and without bias."""

import warnings

import numpy as np
import pytest

from ebfed import Summary, channels, families
from ebfed.privacy import PrivacyWarning

PRIVATE = [
    name
    for name in channels.__all__
    if {"epsilon", "range"} <= {*getattr(getattr(channels, name), "_get_param_names", list)()}
]
TINY = [5e-324, 1e-320, 1e-200, 1e-20, 1e-9, 1e-6, 1e-3]
HUGE = [50.0, 80.0, 710.0, 1500.0, 1e4, 1e9, 1e12, 1e200, 1.7e308, 10**400]
N = 4000
CLIENTS = Summary(np.arange(N), np.full(N, 4), np.full((N, 1), 0.25), np.zeros((N, 1)))


def channel_of(name, epsilon):
    cls, others = getattr(channels, name), {}
    for argument, value in (("delta", 1e-6), ("split", 0.5)):
        if argument in cls._get_param_names():
            others[argument] = value
    if "levels" in cls._get_param_names():
        others["levels"] = 5
    return cls(epsilon, range=(-1, 1), **others)


EVERY_EPSILON = pytest.mark.parametrize(
    "epsilon",
    TINY + HUGE,
    ids=lambda epsilon: f"{float(epsilon):g}" if epsilon < 1e308 else "beyond",
)


@EVERY_EPSILON
@pytest.mark.parametrize("name", PRIVATE)
def test_extreme_epsilon(name, epsilon):
    channel = channel_of(name, epsilon)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        try:
            message = channel.encode(CLIENTS, 0)
        except ValueError:
            assert not 1e-3 <= epsilon <= 1e9
            with pytest.raises(ValueError, match="epsilon"):
                channel.encode(CLIENTS, 0)
            with pytest.raises(ValueError, match="epsilon"):
                channel.decode({"n": CLIENTS.n, "report": np.zeros((N, 1), int)})
            with pytest.raises(ValueError, match="epsilon"):
                channel.event()
            return
        channel.event()
        assert channel.guarantee()[0] == epsilon
    decoded, variance = channel.decode(message), channel.variance(CLIENTS)
    assert np.isfinite(decoded).all()
    assert np.isfinite(variance).all()
    # off by more than 6 standard errors once in 5e8
    error = np.sqrt(variance[0, 0] / N)
    assert abs(decoded.mean() - 0.25) <= 6 * error + 1e-9
    for family in (families.Gaussian(0.3), families.Binomial(), families.NegativeBinomial(0.5)):
        if family.__class__.__name__ != "Gaussian":
            channel.range = (0, 1)
            message = channel.encode(CLIENTS, 0)
        likelihood = channel.likelihood(message, family)
        values = likelihood.logpdf(np.array([[0.01], [0.2], [0.9]]))
        assert not np.isnan(values).any()
        assert (values < np.inf).all()
        assert np.isfinite(values).any(axis=1).all()


@EVERY_EPSILON
@pytest.mark.parametrize("answers", [1, 2])
def test_extreme_epsilon_of_categories(answers, epsilon):
    family, shares = families.Categorical(3), np.array([0.5, 0.25, 0.25])
    clients = family.summarise(np.tile(4 * shares, (N, 1)), None)
    channel = channels.RandomizedCategory(epsilon, answers=answers, compare=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        try:
            message = channel.encode(clients, 0)
        except ValueError:
            assert not 1e-3 <= epsilon <= 1e9
            with pytest.raises(ValueError, match="epsilon"):
                channel.encode(clients, 0)
            with pytest.raises(ValueError, match="epsilon"):
                channel.event()
            return
        channel.event()
        assert channel.guarantee()[0] == epsilon
    # off by more than 6 standard errors, answers drawn with replacement, once in 5e8
    against = np.exp(-min(float(epsilon) / answers, 700.0))
    expected = (against + (1 - against) * shares) / (1 + 2 * against)
    found = message["report"][:, :3].sum(axis=0) / (N * answers)
    assert (np.abs(found - expected) <= 6 * np.sqrt(expected / (N * answers))).all()
    likelihood = channel.likelihood(message, family)
    for part in likelihood.dirichlet_scores(shares, 0.2):
        assert np.isfinite(part).all()
