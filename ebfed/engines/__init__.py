"""Where clients compute: one file per engine."""

from ebfed.engines.base import Block, Blocks, Cohort, Engine, join
from ebfed.engines.dask import Dask
from ebfed.engines.local import Local
from ebfed.engines.protocol import Estimator
from ebfed.engines.rounds import converse

__all__ = ["Block", "Blocks", "Cohort", "Dask", "Engine", "Estimator", "Local", "converse", "join"]
