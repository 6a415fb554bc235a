"""Where clients compute: one file per engine."""

from ebfed.engines.base import Engine
from ebfed.engines.local import Local

__all__ = ["Engine", "Local"]
