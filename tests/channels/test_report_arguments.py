"""Wrong arguments are refused before anything is sent, by a sentence that names them."""

import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from ebfed import Summary
from ebfed.channels import (
    Clip,
    DiscreteGaussian,
    Exact,
    Gaussian,
    Hybrid,
    Laplace,
    OneBit,
    Piecewise,
    Quantizer,
    RandomizedResponse,
    TwoBit,
    UnaryEncoding,
)

SUMMARY = Summary.from_counts([0, 2, 5], [5, 5, 5])
UNIT = (0.0, 1.0)
CHANNELS = [
    Clip(UNIT),
    DiscreteGaussian(1.0, 1e-5, UNIT),
    Gaussian(1.0, 1e-5, UNIT),
    Hybrid(1.0, UNIT),
    Laplace(1.0, UNIT),
    OneBit(1.0, UNIT),
    Piecewise(1.0, UNIT),
    Quantizer(3, UNIT),
    RandomizedResponse(1.0, UNIT),
    TwoBit(1.0, 0.5, UNIT),
    UnaryEncoding(1.0, UNIT),
]
PRIVATE = [channel for channel in CHANNELS if "epsilon" in channel.get_params()]


def name(channel):
    return type(channel).__name__


def refuse(channel, argument, error=ValueError):
    """Clients and server refuse alike, in a sentence that names the argument."""
    for act in (
        lambda: channel.encode(SUMMARY, 0),
        lambda: channel.encode(SUMMARY, "secure"),
        lambda: channel.variance(SUMMARY),
        lambda: channel.decode({"n": SUMMARY.n, "report": np.zeros((3, 1), int)}),
    ):
        with pytest.raises(error, match=argument):
            act()


@pytest.mark.parametrize("epsilon", [0, -1.0, np.nan, np.inf, "1", True, None, [1.0]], ids=repr)
@pytest.mark.parametrize("channel", PRIVATE, ids=name)
def test_epsilon(channel, epsilon):
    wrong = clone(channel).set_params(epsilon=epsilon)
    refuse(wrong, "epsilon")
    for act in (wrong.guarantee, wrong.event):
        with pytest.raises(ValueError, match="epsilon"):
            act()
    if isinstance(channel, Hybrid):
        with pytest.raises(ValueError, match="epsilon"):
            wrong.identifies_spread  # noqa: B018


@pytest.mark.parametrize("delta", [0, 1, 1.5, -1e-6, np.nan, "1e-6", True, None], ids=repr)
@pytest.mark.parametrize("channel", [c for c in PRIVATE if "delta" in c.get_params()], ids=name)
def test_delta(channel, delta):
    wrong = clone(channel).set_params(delta=delta)
    refuse(wrong, "delta")
    for act in (wrong.guarantee, wrong.event):
        with pytest.raises(ValueError, match="delta"):
            act()


@pytest.mark.parametrize("bits", [0, -1, 1.5, 2.0, 25, True, "2", None], ids=repr)
def test_bits(bits):
    refuse(Quantizer(bits, UNIT), "bits")
    if bits != 25:
        with pytest.raises(ValueError, match="bits"):
            Quantizer(bits, UNIT).identifies_spread  # noqa: B018


@pytest.mark.parametrize("levels", [1, 0, -3, 2.5, True, "8"], ids=repr)
@pytest.mark.parametrize("channel", [c for c in PRIVATE if "levels" in c.get_params()], ids=name)
def test_levels(channel, levels):
    wrong = clone(channel).set_params(levels=levels)
    refuse(wrong, f"^levels must be .*; got {re.escape(repr(levels))}\\.$")


def test_unary_encoding_fits_a_word():
    refuse(UnaryEncoding(1.0, UNIT, levels=64), "levels")
    many = Summary.from_counts([3, 90], [10, 100])
    for rng in (0, "secure"):
        with pytest.raises(ValueError, match="levels"):
            UnaryEncoding(1.0, UNIT).encode(many, rng)


@pytest.mark.parametrize("channel", CHANNELS, ids=name)
@pytest.mark.parametrize(
    "wrong",
    [
        (1.0, 1.0),
        (1.0, 0.0),
        (np.nan, 1.0),
        (0.0, np.inf),
        (0.0, 0.5, 1.0),
        (0.0,),
        (),
        3.0,
        np.array(3.0),
        "everything",
        ("a", "b"),
        (None, 1.0),
        ([0.0, 0.0], [1.0, 1.0]),
        {0.0, 1.0},
        (0.0, 1e-70),
        (-1e70, 1e70),
    ],
    ids=repr,
)
def test_range(channel, wrong):
    text = "^range must be (\\(low, high\\) with low < high|between 1e-60 and 1e\\+60 wide)"
    if isinstance(wrong, str) and not isinstance(channel, Clip):  # as of one that is left open
        text = "needs a range to clip to"
    refuse(clone(channel).set_params(range=wrong), text, (ValueError, TypeError))


@pytest.mark.parametrize("channel", [c for c in CHANNELS if not isinstance(c, Clip)], ids=name)
def test_range_left_open(channel):
    refuse(clone(channel).set_params(range=None), "needs a range")
    refuse(clone(channel).set_params(range="private"), "needs a range")


@pytest.mark.parametrize("channel", [Exact(), *CHANNELS], ids=name)
def test_range_of_each_column(channel):
    columns = Summary(SUMMARY.ids, SUMMARY.n, np.tile(SUMMARY.mean, 2), np.tile(SUMMARY.mean, 2))
    if not isinstance(channel, Exact):
        channel = clone(channel).set_params(range=([0.0, -3.0], [1.0, 3.0]))
    assert channel.decode(channel.encode(columns, 0)).shape == (3, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("channel", CHANNELS, ids=name)
def test_local_means_must_be_finite(channel, value):
    for means in ([[value], [0.0]], [[value], [-value]]):
        strange = Summary(np.arange(2), np.ones(2, int), np.zeros((2, 1)), np.zeros((2, 1)))
        strange.mean[:] = means  # a summary refuses them where it is made
        for rng in (0, "secure"):
            with pytest.raises(ValueError, match="local means must be finite"):
                channel.encode(strange, rng)


@pytest.mark.parametrize("channel", CHANNELS, ids=name)
def test_rng(channel):
    with pytest.raises(ValueError, match="rng"):
        channel.encode(SUMMARY, "wrong")
    with pytest.raises(ValueError, match="must be a seed"):
        channel.encode(SUMMARY, "wrong".encode)


def test_clip_takes_a_range_or_a_radius():
    refuse(Clip(), "range or a radius")
    refuse(Clip(UNIT, radius=1.0), "range or a radius")
    for radius in (0, -1, np.nan, np.inf, "1", True, 1e-70, 1e70):
        refuse(Clip(radius=radius), "radius")
    for centre in (np.nan, [0.0, 0.0], "a", None):
        refuse(Clip(radius=1.0, centre=centre), "centre")


def test_clip_joins_channels_without_a_range():
    joined = Clip(UNIT) | Laplace(1.0)
    plain = Laplace(1.0, UNIT)
    np.testing.assert_array_equal(
        joined.encode(SUMMARY, 0)["report"], plain.encode(SUMMARY, 0)["report"]
    )
    with pytest.raises(ValueError, match="range already"):
        Clip(UNIT) | Laplace(1.0, UNIT)
    with pytest.raises(ValueError, match="radius"):
        Clip(radius=1.0) | Laplace(1.0)
    for other in (Exact(), 3, None):
        with pytest.raises(TypeError, match="channel"):
            Clip(UNIT) | other


@pytest.mark.parametrize("split", [0, 1, -0.5, 1.5, np.nan, True, "half", None], ids=repr)
def test_split(split):
    refuse(TwoBit(1.0, split, UNIT), "split")


@pytest.mark.parametrize("location", [0, -1, 1.5, np.nan, "1", True], ids=repr)
def test_location(location):
    refuse(TwoBit(1.0, 0.5, UNIT, location=location), "location")


@pytest.mark.parametrize(
    "spread", [0.5, (0.5,), (0.6, 0.5), (-0.1, 1), (0, 1.1), (np.nan, 1), None, "ab"], ids=repr
)
def test_spread(spread):
    refuse(TwoBit(1.0, 0.5, UNIT, spread=spread), "spread")


def test_calibration():
    refuse(Gaussian(1.0, 1e-5, UNIT, calibration="rough"), "calibration")


@pytest.mark.parametrize("channel", CHANNELS, ids=name)
def test_no_clients(channel):
    nobody = SUMMARY.take(slice(0, 0))
    for rng in (0, "secure"):
        message = channel.encode(nobody, rng)
        assert message["report"].shape == (0, 1)
        assert channel.decode(message).shape == (0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert channel.variance(nobody).shape == (0, 1)
        assert channel.clipped(nobody).shape == channel.message_bits(nobody).shape == (0,)


@pytest.mark.parametrize("value", [1e200, 1e307, -1.7e308])
@pytest.mark.parametrize("half", [1e-3, 1.0, 1e60])
def test_means_of_any_size_are_clipped(value, half):
    """Where they exceed the range by more than float64 can say, too."""
    means = np.array([[value], [0.0]])
    clients = Summary(np.arange(2), np.full(2, 3), means, np.zeros((2, 1)))
    channel = Clip((-half, half))
    sent = channel.decode(channel.encode(clients, 0))
    np.testing.assert_allclose(sent[:, 0], [np.copysign(half, value), 0.0])
    assert channel.clipped(clients).tolist() == [True, False]


@pytest.mark.parametrize("value", [1e200, 1e307])
@pytest.mark.parametrize("radius", [1e-3, 1.0])
def test_vectors_of_any_length_are_clipped_to_the_ball(value, radius):
    """At its surface, not at its centre, where squares of coordinates overflow."""
    means = value * np.array([[0.6, -0.8], [1e-220, 0.0]])
    clients = Summary(np.arange(2), np.full(2, 3), means, np.zeros((2, 2)))
    channel = Clip(radius=radius)
    sent = channel.decode(channel.encode(clients, 0))
    assert np.hypot(*sent[0]) == pytest.approx(radius)
    assert sent[0, 0] > 0 > sent[0, 1]
    if value / radius < 1e300:  # beyond, the direction is rounded
        np.testing.assert_allclose(sent[0], radius * np.array([0.6, -0.8]))
