"""What may leave a client: one file per channel."""

from ebfed.channels.base import Channel
from ebfed.channels.exact import Exact

__all__ = ["Channel", "Exact"]
