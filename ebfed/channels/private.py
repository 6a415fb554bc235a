"""The private channels of this package by name."""

from __future__ import annotations

import inspect
from typing import Any

from ebfed.channels.base import Channel

__all__ = ["has_epsilon", "make_private", "registered"]


def registered() -> dict[str, type[Channel]]:
    """Return every channel of this package by its name.

    Examples
    --------
    >>> [name for name, channel in registered().items() if not has_epsilon(channel)]
    ['AddNoise', 'Clip', 'Exact', 'Quantizer']
    """
    from ebfed import channels

    found = {name: getattr(channels, name) for name in channels.__all__}
    return {
        name: each
        for name, each in found.items()
        if isinstance(each, type) and issubclass(each, Channel) and not inspect.isabstract(each)
    }


def has_epsilon(channel: type[Channel]) -> bool:
    """Whether a class of channels takes an epsilon."""
    return "epsilon" in inspect.signature(channel).parameters


def make_private(channel: type[Channel], epsilon: float, **others: Any) -> Channel:
    """Make a channel with this epsilon, and those of the other arguments that it has.

    Parameters
    ----------
    channel : type of Channel
    epsilon : float
    **others
        For example `delta`, of which Laplace noise has none.

    Examples
    --------
    >>> from ebfed.channels import Gaussian, Laplace
    >>> make_private(Laplace, 1.0, delta=1e-6), make_private(Gaussian, 1.0, delta=1e-6)
    (Laplace(epsilon=1.0), Gaussian(delta=1e-06, epsilon=1.0))
    """
    known = inspect.signature(channel).parameters
    return channel(**{"epsilon": epsilon} | {k: v for k, v in others.items() if k in known})
