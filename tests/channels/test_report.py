"""Messages of channels that clients can send, and those that none can."""

import numpy as np
import pytest

from ebfed import channels
from ebfed.tables.clients import Summary

RNG = np.random.default_rng(0)
SIZES = RNG.integers(1, 40, 2000)
SHARES = Summary.from_counts(RNG.binomial(SIZES, 0.5), SIZES)
UNIT = {"range": (0.0, 1.0)}
SENT = {
    "Exact": channels.Exact(),
    "Clip": channels.Clip((0.3, 0.6)),
    "AddNoise": channels.AddNoise(0.1, **UNIT),
    "Gaussian": channels.Gaussian(1.0, 1e-5, **UNIT),
    "Laplace": channels.Laplace(1.0, **UNIT),
    "Piecewise": channels.Piecewise(1.0, **UNIT),
    "DiscreteGaussian": channels.DiscreteGaussian(1.0, 1e-5, **UNIT),
    "OneBit": channels.OneBit(1.0, **UNIT),
    "TwoBit": channels.TwoBit(1.0, **UNIT),
    "RandomizedResponse": channels.RandomizedResponse(1.0, **UNIT),
    "RandomizedResponse, levels": channels.RandomizedResponse(1.0, levels=5, **UNIT),
    "UnaryEncoding": channels.UnaryEncoding(1.0, **UNIT),
    "UnaryEncoding, levels": channels.UnaryEncoding(1.0, levels=5, **UNIT),
    "Quantizer": channels.Quantizer(3, **UNIT),
}
ANY = ("Exact", "OneBit", "UnaryEncoding", "UnaryEncoding, levels")


@pytest.mark.parametrize("name", SENT)
@pytest.mark.parametrize("seed", [0, 1])
def test_what_clients_send_is_accepted(name, seed):
    SENT[name].check_message(SENT[name].encode(SHARES, seed))


@pytest.mark.parametrize("name", [name for name in SENT if name not in ANY])
def test_what_no_client_sends_is_refused(name):
    message = SENT[name].encode(SHARES, 0)
    part = "report" if "report" in message else "mean"
    wrong = message[part].copy()
    wrong[7] = 100 if wrong.dtype == np.uint8 else 10**6
    with pytest.raises(ValueError, match=r"(report|mean) must be"):
        SENT[name].check_message(message | {part: wrong})


def test_a_report_is_on_one_column():
    two = Summary(SHARES.ids, SHARES.n, np.tile(SHARES.mean, 2), np.tile(SHARES.scatter, 2))
    channel = channels.TwoBit(1.0, **UNIT)
    message = channel.encode(two, 0)
    channel.check_message(message)
    with pytest.raises(ValueError, match="asked must name one column"):
        channel.check_message(message | {"asked": np.ones_like(message["asked"])})
