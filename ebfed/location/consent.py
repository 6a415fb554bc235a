"""Channels by class of consent: their names, what they leave open, what goes through them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklearn.base import clone

from ebfed.channels import Channel, Exact
from ebfed.families import Family
from ebfed.tables.clients import Summary

__all__ = ["ALL_CLIENTS", "check_channels", "check_weights", "named_channels", "settled"]

# Name of the clients in the ledger, where all have one channel.
ALL_CLIENTS = "all clients"


def settled(
    channels: Mapping[str, Channel], settings: Mapping[str, dict] | None = None
) -> dict[str, Channel]:
    """Return channels with what they left open settled, in copies.

    Raises
    ------
    ValueError
        If a client has set the argument: a server must not change it.
    """
    found = {}
    for name, channel in channels.items():
        arguments = (settings or {}).get(name, {})
        fixed = set(arguments) - channel.left_open
        if fixed:
            raise ValueError(
                f"{min(fixed)} of {channel!r} is set by the client; the server must not change it."
            )
        found[name] = clone(channel).set_params(**arguments) if arguments else channel
    return found


def named_channels(channel: Channel | Mapping[Any, Channel] | None) -> dict[str, Channel]:
    """Name the channel of each class of consent; one channel is that of all clients.

    Raises
    ------
    TypeError
        If there is no channel, two have the same name, or something is not a channel.

    Examples
    --------
    >>> named_channels(None)
    {'all clients': Exact()}
    """
    given = Exact() if channel is None else channel
    channels = given if isinstance(given, Mapping) else {ALL_CLIENTS: given}
    named = {str(name): each for name, each in channels.items()}
    if not named or len(named) < len(channels):
        raise TypeError(f"channel must be one, or name classes differently; got {given!r}.")
    for each in named.values():
        if not isinstance(each, Channel):
            raise TypeError(
                "channel must be an ebfed.channels.Channel, or a dict of them by class of "
                f"consent; got {each!r}."
            )
    return named


def check_channels(family: Family, channel: Any) -> None:
    """Refuse channels whose messages have no likelihood for rows of a family."""
    channels = named_channels(channel).values()
    reason = family.exact_only
    if family.adds_up:
        if not all(each.is_exact or each.of_shares for each in channels):
            raise ValueError(
                f"channel must be channels.Exact() or channels.RandomizedCategory(): {reason}; got "
                f"{channel!r}."
            )
        return
    if any(each.of_shares for each in channels):
        raise ValueError(
            f"channel must not be one for categories, as CategoricalEB has; got {channel!r}."
        )
    if reason and not all(each.is_exact for each in channels):
        raise ValueError(f"channel must be channels.Exact(): {reason}; got {channel!r}.")


def check_weights(estimator: Any, summary: Summary) -> None:
    """Refuse weights where they are not built: they are never ignored."""
    channels = named_channels(estimator.channel).values()
    if "log_weight" not in summary.sums:
        return
    if not estimator._takes_weights:
        raise ValueError(f"{type(estimator).__name__} takes no sample_weight=; GaussianEB does.")
    if not all(channel.keeps_means for channel in channels):
        raise ValueError(
            "sample_weight= needs channels.Exact, or channels.AddNoise: what other channels report "
            f"of weighted rows has no likelihood here; got {estimator.channel!r}."
        )
