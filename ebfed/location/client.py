"""What clients of a location estimator do: state public facts, and report through channels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from sklearn.base import clone

from ebfed.channels import Channel, Exact
from ebfed.engines.protocol import LocationFacts, LocationMemory, LocationSent, Message
from ebfed.families import Family
from ebfed.privacy import PrivacyWarning, ledger
from ebfed.privacy.odometer import Plan
from ebfed.report.view import ChannelView
from ebfed.tables.clients import Summary

__all__ = ["ALL_CLIENTS", "Client", "check_channels", "check_weights", "named_channels", "settled"]

# Name of the clients in the ledger, where all have one channel.
ALL_CLIENTS = "all clients"


@dataclass(frozen=True)
class Client:
    """The clients' side of a location estimator.

    Parameters
    ----------
    channels : dict of Channel
        Channels by class of consent; the broadcast has their open arguments.
    columns, covariate_names : list of str
        Names of the columns of rows (none, if they have no names) and of covariates.
    """

    channels: dict[str, Channel]
    columns: list[str]
    covariate_names: list[str]

    # Whether the noise that protects clients is the server's.
    server_adds_noise: ClassVar[bool] = False

    def describe(self, clients: Summary, memory: LocationMemory) -> LocationFacts:
        """State numbers of rows, classes of consent, columns, exposures and covariates."""
        facts: LocationFacts = {
            "n": clients.n,
            "consent": memory["consent"],
            "n_features": np.array([clients.n_features]),
            "columns": np.array(["\n".join(self.columns)]),
            "covariates": memory["covariates"].ravel(),
            "covariate_names": np.array(["\n".join(self.covariate_names)]),
        }
        if clients.weight is not None:
            facts["weight"] = clients.weight
        return facts

    def local(
        self, sent: LocationSent, memory: LocationMemory, clients: Summary, rng: Any
    ) -> tuple[dict[str, Message], LocationMemory]:
        """Send the summaries of the clients whose turn it is, each through its own channel."""
        message: dict[str, Message] = {}
        clipped, report = memory["clipped"].copy(), memory["report"].copy()
        for index, (name, channel) in enumerate(settled(self.channels, sent["settings"]).items()):
            asked = (memory["turn"] == sent["round"]) & (memory["consent"] == index)
            if isinstance(rng, str):  # draws of the operating system have no order to keep
                message[name] = channel.encode(clients.take(asked), rng)
            else:
                message[name] = channel.encode(clients, rng)
                if not asked.all():
                    message[name] = {part: x[asked] for part, x in message[name].items()}
            clipped |= channel.clipped(clients) & asked
            report[asked] = channel.decode(message[name])
            if memory["covariates"].size:  # not all clients that stated covariates will answer
                message[name]["covariates"] = memory["covariates"][asked]
        kept = cast(LocationMemory, memory | {"clipped": clipped, "report": report})
        return message, kept

    def plan(self, sent: LocationSent, memory: LocationMemory, clients: Summary) -> list[Plan]:
        """State all that a run may take from clients, class by class: one answer of each."""
        settings, d = [sent["settings"]], clients.n_features
        plans = []
        for index, (name, channel) in enumerate(settled(self.channels, settings[0]).items()):
            members = memory["consent"] == index
            if members.any():
                event, guarantee = channel.event(d), self.guarantee(name, settings, d)
                plans.append(Plan(name, members, event, "replace_one", *guarantee))
        return plans

    def releases(
        self, sent: LocationSent, memory: LocationMemory, clients: Summary
    ) -> list[dict[str, Any]]:
        """List what clients send in a round, class by class."""
        rows = []
        for index, (name, channel) in enumerate(settled(self.channels, sent["settings"]).items()):
            own = memory["consent"] == index
            asked = own & (memory["turn"] == sent["round"])
            if not asked.any():
                continue
            when = [f"asked in round {sent['round'] + 1}"] if np.any(asked != own) else []
            reporting = clients if asked.all() else clients.take(asked)
            rows.append(
                ledger.release(
                    ", ".join([name, *when] if name != ALL_CLIENTS else when) or ALL_CLIENTS,
                    channel,
                    clients=int(asked.sum()),
                    clipped=int(memory["clipped"][asked].sum()) if "clipped" in memory else None,
                    bits=float(channel.message_bits(reporting).sum()),
                    n_features=clients.n_features,
                )
            )
        if sent["round"] == 0 and memory["covariates"].size:
            rows.append(ledger.covariates(self.covariate_names, len(clients)))
        return rows

    def shown_channels(self, settings: list[dict], n_features: int) -> list[ChannelView]:
        """Return the channel of each class and its guarantee, as a summary shows them."""
        return [
            ChannelView(
                name, channel, *self.guarantee(name, settings, n_features), self.kind_of_privacy
            )
            for name, channel in self.shown(settings).items()
        ]

    def shown(self, settings: list[dict]) -> dict[str, Channel]:
        """Return channels as a summary is to show them."""
        return self.channels

    def guarantee(self, name: str, settings: list[dict], n_features: int) -> tuple[float, float]:
        """Epsilon and delta of each client of a class."""
        channel = settled(self.channels, settings[0])[name]
        with warnings.catch_warnings():  # of the paper's calibration: fit has warned already
            warnings.simplefilter("ignore", PrivacyWarning)
            return channel.guarantee(n_features)

    def promises(self) -> bool:
        """Whether the privacy of some class is protected; that of wrong arguments may be."""
        return any(self.protects(name) for name in self.channels)

    def protects(self, name: str) -> bool:
        """Whether the privacy of a class is protected; that of wrong arguments may be."""
        try:
            return self.guarantee(name, [{}], 1)[0] < np.inf
        except (TypeError, ValueError):  # `Server.start` says what is wrong
            return True

    @property
    def kind_of_privacy(self) -> str:
        """Kind of privacy, in words."""
        return "local differential privacy"

    def ledger(
        self, settings: list[dict], memory: LocationMemory, clients: Summary
    ) -> list[dict[str, Any]]:
        """List what clients sent in a fit, round by round and class by class."""
        rows: list[dict[str, Any]] = []
        for number, each in enumerate(settings):
            sent: LocationSent = {"done": False, "round": number, "settings": each}
            rows += self.releases(sent, memory, clients)
        silent = int((memory["turn"] < 0).sum())
        return [*rows, *([ledger.silence(silent)] if silent else [])]

    @staticmethod
    def blank(clients: Summary) -> LocationMemory:
        """Return what clients of one class keep before they have sent anything."""
        return {
            "consent": np.zeros(len(clients), np.int8),
            "clipped": np.zeros(len(clients), bool),
            "report": np.full(clients.mean.shape, np.nan),
            "covariates": np.empty((len(clients), 0)),
        }


def settled(
    channels: Mapping[str, Channel], settings: Mapping[str, dict] | None = None
) -> dict[str, Channel]:
    """Return copies of channels with what they left open settled.

    Raises
    ------
    ValueError
        If a client has set the argument: a server must not change it.
    """
    copies = {}
    for name, channel in channels.items():
        arguments = (settings or {}).get(name, {})
        fixed = set(arguments) - channel.left_open
        if fixed:
            raise ValueError(
                f"{min(fixed)} of {channel!r} is set by the client; the server must not change it."
            )
        copies[name] = clone(channel).set_params(**arguments)
    return copies


def named_channels(channel: Channel | Mapping[Any, Channel] | None) -> dict[str, Channel]:
    """Name the channel of each class of consent; one channel is that of all clients.

    Raises
    ------
    TypeError
        If there is none, two have the same name, or something is not a channel.

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
