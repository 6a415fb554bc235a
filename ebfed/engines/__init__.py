"""Where clients compute: one file per engine."""

from ebfed.engines.base import Blocks, Cohort, Engine, join
from ebfed.engines.dask import Dask
from ebfed.engines.local import Local

__all__ = ["Blocks", "Cohort", "Dask", "Engine", "Local", "join"]
