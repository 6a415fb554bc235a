"""Contract of channels."""

from __future__ import annotations

import itertools
import pickle
import warnings

import numpy as np
from sklearn.base import clone

from ebfed.channels import Channel
from ebfed.channels.base import Message
from ebfed.channels.report import Report
from ebfed.families import Family
from ebfed.privacy.calibration import PrivacyWarning
from ebfed.streams import Stream, make_key
from ebfed.tables.clients import Summary
from ebfed.testing.categories import check_categories
from ebfed.testing.laws import check_law, check_reports
from ebfed.testing.seed import SEED

__all__ = ["check_channel"]


def check_channel(
    channel: Channel,
    summary: Summary,
    family: Family,
    *,
    secure: int = 1000,
    size: int = 30_000,
) -> None:
    """Check a channel on clients of one column; of a channel for categories, on their shares.

    Messages are plain arrays with one entry per client and no labels. They do not depend on the
    blocks of clients. `decode` is unbiased and has the stated `variance`, for one column and for
    three. Reports have the frequencies of the likelihood, at a fixed parameter and over a
    population. The law of a report integrates to one, agrees with its average over normal local
    values, and keeps the `guarantee`. Reports drawn with the randomness of the operating system
    have the same law.

    Parameters
    ----------
    channel : Channel
        All of its arguments are set.
    summary : Summary of at least two clients, one column
        Local means to try. Both ends of the channel's range are among them.
    family : Family
        What the rows of clients are; `families.Gaussian` with known variances.
    secure : int
        Number of reports drawn with the randomness of the operating system, at a false alarm rate
        of 1e-9. 0 if OpenDP is not installed.
    size : int
        Number of simulated reports for each frequency.

    Examples
    --------
    >>> from ebfed.channels import OneBit
    >>> from ebfed.families import Binomial
    >>> summary = Summary.from_counts([0, 2, 8], [5, 5, 8])
    >>> check_channel(OneBit(1.0, (0, 1)), summary, Binomial())
    """
    if channel.of_shares:
        _check_message(channel, summary)
        _check_decode(channel, summary, size)
        check_categories(channel, summary, family, size, secure)
        return
    assert summary.n_features == 1, "give clients of one column; three are made of it"
    _check_message(channel, summary)
    _check_decode(channel, summary, size)
    columns = np.column_stack([np.roll(summary.mean, shift) for shift in range(3)])
    three = Summary(summary.ids, summary.n, columns, np.repeat(summary.scatter, 3, axis=1))
    _check_message(channel, three)
    _check_decode(channel, three, size)
    likelihood = channel.likelihood(channel.encode(summary, SEED), family)
    assert len(likelihood) == len(summary), "likelihood has one row per client"
    has_data = np.isfinite(likelihood.local[:, 0])
    np.testing.assert_array_equal(has_data, summary.n > 0, "clients with rows must be informative")
    if not isinstance(channel, Report):
        return
    law, counts = channel._law(1), family.typical(1, 1).counts_rows
    trials = np.unique(summary.n[summary.n > 0])
    for n in np.unique(trials[[0, -1]]):
        if counts or n == trials[0]:
            check_law(law, int(n) if counts else 0, *_guarantee(channel, 1))
        check_reports(channel, summary, family, int(n), size, secure if n == trials[0] else 0)


def _figures(summary: Summary) -> Message:
    return {"n": summary.n, "mean": summary.mean, "scatter": summary.scatter}


def _repeat(summary: Summary, i: int, size: int) -> Summary:
    """Return `size` clients with the figures of client i."""
    figures = [np.repeat(values[[i]], size, axis=0) for values in _figures(summary).values()]
    return Summary(np.arange(size), *figures)


def _check_message(channel: Channel, summary: Summary) -> None:
    n, d = len(summary), summary.n_features
    labels = 10**15 + np.arange(n)
    summary = Summary(labels, summary.n, summary.mean, summary.scatter)
    before = pickle.dumps(summary)
    message = channel.encode(summary, SEED)
    assert pickle.dumps(summary) == before, "encode must not change the summary"
    assert isinstance(message, dict), "a message is a dict"
    for name, values in message.items():
        assert isinstance(values, np.ndarray), f"{name} must be an array"
        assert values.dtype.kind in "biuf", f"{name} must be plain numbers"
        assert len(values) == n, f"{name} must have one entry per client"
        assert not np.isin(values, labels).any(), f"{name} must not contain labels of clients"
    asked = message.get("asked")
    if asked is not None:
        assert asked.shape == (n, d), "asked must have shape (n, d)"
        assert np.all(asked.sum(axis=1) == 1), "asked must name one coordinate of each client"

    copy = pickle.loads(pickle.dumps(channel))
    _same(copy.encode(summary, SEED), message, "a seed must fix the message")
    assert repr(clone(channel)) == repr(channel), "a channel can be cloned"
    _same(clone(channel).encode(summary, SEED), message, "a clone must send the same")
    whole = channel.encode(summary, Stream(make_key(SEED), 0))
    for cuts in ([0, 1, n], [0, n - 1, n], list(range(n + 1))):
        blocks = [
            channel.encode(summary.take(slice(*ends)), Stream(make_key(SEED), 0, first=ends[0]))
            for ends in itertools.pairwise(cuts)
        ]
        joined = {name: np.concatenate([block[name] for block in blocks]) for name in message}
        _same(joined, whole, "blocks must not matter")

    decoded, variance = channel.decode(message), channel.variance(summary)
    assert decoded.shape == variance.shape == (n, d), "decode and variance must be (n, d)"
    clipped, bits = channel.clipped(summary), channel.message_bits(summary)
    assert clipped.shape == (n,), "clipped must have shape (n,)"
    assert clipped.dtype == bool, "clipped must be booleans"
    assert bits.shape == (n,), "message_bits must have shape (n,)"
    assert np.all(np.isnan(bits) | (bits > 0)), "bits must be positive, or NaN"
    assert np.isnan(channel.bits) or channel.bits > 0, "bits must be positive, or NaN"
    epsilon, delta = _guarantee(channel, d)
    assert epsilon > 0, "epsilon must be positive; infinite without a guarantee"
    assert 0 <= delta < 1, "delta must be a probability"
    assert type(channel.event(d)).__name__.endswith("DpEvent"), "event is one of dp-accounting"


def _guarantee(channel: Channel, d: int) -> tuple[float, float]:
    with warnings.catch_warnings():  # a weak guarantee must hold too
        warnings.simplefilter("ignore", PrivacyWarning)
        return channel.guarantee(d)


def _same(message: Message, other: Message, sentence: str) -> None:
    assert list(message) == list(other), sentence
    for name, values in message.items():
        assert values.dtype == other[name].dtype, sentence
        np.testing.assert_array_equal(values, other[name], sentence)


def _check_decode(channel: Channel, summary: Summary, size: int) -> None:
    """Check the mean and the variance of decoded values, for up to five clients."""
    order = np.argsort(summary.mean[:, 0], kind="stable")
    for i in np.unique(order[np.linspace(0, len(order) - 1, 5).astype(int)]):
        many = _repeat(summary, i, size)
        if channel.clipped(many)[0]:
            continue
        decoded, true = channel.decode(channel.encode(many, SEED)), summary.mean[i]
        variance, off = channel.variance(many)[0], decoded - true
        digits = 1e-9 * (np.abs(true) + np.sqrt(variance))
        assert np.all(np.abs(off.mean(axis=0)) <= 5 * np.sqrt(variance / size) + digits), (
            f"decode must be unbiased: {decoded.mean(axis=0)} on average for {true}"
        )
        squares = off**2
        error = squares.std(axis=0) / np.sqrt(size)
        assert np.all(
            np.abs(squares.mean(axis=0) - variance) <= 5 * error + 1e-9 * variance + digits**2
        ), f"variance says {variance} for {true}; it is {squares.mean(axis=0)} ± {error}"
