"""How clients or records are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from ebfed.privacy import events

if TYPE_CHECKING:
    from ebfed.privacy.events import Event

__all__ = ["Sampling", "sampled"]

Sampling: TypeAlias = Literal["poisson", "fixed_size"]


def sampled(total: int, sample: int, sampling: Sampling, event: Event) -> Event:
    """Describe an event on `sample` of `total` clients, in expectation or exactly; or on all."""
    if sampling not in get_args(Sampling):
        raise ValueError(f"sampling must be one of {get_args(Sampling)}; got {sampling!r}.")
    drawn = events.fixed_size(total, sample, event)  # checks the counts
    if sample == total:
        return event
    return drawn if sampling == "fixed_size" else events.poisson(sample / total, event)
