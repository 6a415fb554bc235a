"""The contract of channels notices what is wrong: every fault planted here must be found."""

from dataclasses import dataclass

import numpy as np
import pytest

from ebfed import Summary, families
from ebfed.channels import Laplace, OneBit, Piecewise, Quantizer, RandomizedResponse
from ebfed.channels.laplace import DoubleExponential
from ebfed.channels.one_bit import Coin
from ebfed.channels.piecewise import Window
from ebfed.channels.quantizer import Rounding
from ebfed.channels.randomized_response import Truth
from ebfed.likelihoods import Gaussian
from ebfed.testing import check_channel

SUMMARY = Summary.from_counts([0, 3, 6], [6, 6, 6])


means, counts = families.Gaussian(1.0), families.Binomial()


def check(channel, family=means, secure=0):
    check_channel(channel, SUMMARY, family, secure=secure)


class GivesLabels(Laplace):
    def encode(self, summary, rng=None):
        return super().encode(summary, rng) | {"who": summary.ids}


class ForgetsTheSeed(Laplace):
    def encode(self, summary, rng=None):
        return super().encode(summary, None)


class DependsOnBlocks(Laplace):
    def encode(self, summary, rng=None):
        message = super().encode(summary, rng)
        return message | {"report": message["report"] + len(summary)}


class ChangesTheFigures(Laplace):
    def encode(self, summary, rng=None):
        message = super().encode(summary, rng)
        summary.mean[:] = 0
        return message


class SendsText(Laplace):
    def encode(self, summary, rng=None):
        return super().encode(summary, rng) | {"note": np.full(len(summary), "hello")}


class PromisesTooMuch(Laplace):
    def guarantee(self, n_features=1):
        return 0.99 * self.epsilon, 0.0


class PromisesTooMuchDelta(Laplace):
    def guarantee(self, n_features=1):
        return 0.9 * self.epsilon, 1e-3


class Biased(Laplace):
    def decode(self, message):
        return 0.05 + super().decode(message)


class UnderstatesItsVariance(Laplace):
    def variance(self, summary):
        return 0.9 * super().variance(summary)


class IgnoresClipping(Laplace):
    """Takes reports for normal with the right variance."""

    def likelihood(self, message, family):
        figures = {"n": message["n"], "mean": message["report"], "scatter": message["report"]}
        exact = family.likelihood(figures)
        return Gaussian(message["report"], exact.variances + 2 / self.epsilon**2)


class MixesUpClients(OneBit):
    def likelihood(self, message, family):
        turned = message | {"report": ~message["report"]}
        return super().likelihood(turned, family)


@pytest.mark.parametrize(
    ("channel", "sentence"),
    [
        (GivesLabels, "who must not contain labels"),
        (ForgetsTheSeed, "a seed must fix the message"),
        (DependsOnBlocks, "blocks must not matter"),
        (ChangesTheFigures, "encode must not change the summary"),
        (SendsText, "note must be plain numbers"),
        (PromisesTooMuch, "must keep epsilon"),
        (PromisesTooMuchDelta, "must keep epsilon and delta"),
        (Biased, "decode must be unbiased"),
        (UnderstatesItsVariance, "variance says"),
        (IgnoresClipping, "frequencies of the likelihood|probabilities of reports"),
        (MixesUpClients, "frequencies of the likelihood"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_faults_of_channels(channel, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check(channel(2.0, (0.0, 1.0)))


# Laws ---------------------------------------------------------------------------------------


@pytest.fixture
def planted(monkeypatch):
    """Give a channel another law."""

    def plant(channel, law):
        monkeypatch.setattr(type(channel), "_law", lambda self, n_features: law)
        return channel

    return plant


@dataclass(frozen=True)
class AveragesTooNarrowly(DoubleExponential):
    def average(self, reports, means, variances, sizes):
        return super().average(reports, means, 0.97 * variances, sizes)


@dataclass(frozen=True)
class UnclippedTails(DoubleExponential):
    def density(self, reports, u, sizes):
        return self._tail(np.abs(reports[:, None] - 1.01 * u))


@dataclass(frozen=True)
class NotNormalised(DoubleExponential):
    def density(self, reports, u, sizes):
        return 1.001 * super().density(reports, u, sizes)

    def average(self, reports, means, variances, sizes):
        return 1.001 * super().average(reports, means, variances, sizes)


@dataclass(frozen=True)
class ShiftedWindow(Window):
    """Draws from a window a hundredth off."""

    def draw(self, u, sizes, stream):
        return super().draw(np.clip(u + 0.03, -1, 1), sizes, stream)


@dataclass(frozen=True)
class OtherCoin(Coin):
    """Whose randomness of the operating system has another law."""

    def secure(self, u, size):
        return super().secure(min(u + 0.5, 1.0), size)


@dataclass(frozen=True)
class Downwards(Rounding):
    def _randomise(self, level, count, stream):
        stream.uniforms(*level.shape)
        return np.maximum(level - 1, 0)


@dataclass(frozen=True)
class OtherLies(Truth):
    """Lies that avoid the last level."""

    def _randomise(self, level, count, stream):
        drawn = super()._randomise(level, count, stream)
        return np.where((drawn == count - 1) & (level != count - 1), 0, drawn)


@pytest.mark.parametrize(
    ("channel", "law", "family"),
    [
        (Laplace(2.0, (0, 1)), AveragesTooNarrowly(1.0), means),
        (Laplace(2.0, (0, 1)), UnclippedTails(1.0), counts),
        (Laplace(2.0, (0, 1)), NotNormalised(1.0), means),
        (Laplace(2.0, (0, 1)), NotNormalised(1.0), counts),
        (Laplace(2.0, (0, 1)), DoubleExponential(0.95), means),
        (Piecewise(2.0, (0, 1)), ShiftedWindow(2.0), counts),
        (Quantizer(2, (0, 1)), Downwards(4), means),
        (RandomizedResponse(1.0, (0, 1)), OtherLies(None, 1.0), counts),
    ],
    ids=lambda x: type(x).__name__ if hasattr(x, "draw") else "",
)
def test_faults_of_laws(planted, channel, law, family):
    with pytest.raises(AssertionError):
        check(planted(channel, law), family)


def test_faults_of_secure_reports(planted):
    channel = planted(OneBit(3.0, (0, 1)), OtherCoin(3.0))
    check(channel)
    with pytest.raises(AssertionError, match="secure"):
        check(channel, secure=1000)
