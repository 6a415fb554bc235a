"""Where clients compute: one file per engine."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.engines.base import Block, Blocks, Cohort, Engine, join
    from ebfed.engines.dask import Dask
    from ebfed.engines.local import Local
    from ebfed.engines.protocol import Estimator, Rounds
    from ebfed.engines.rounds import converse

__all__ = [
    "Block",
    "Blocks",
    "Cohort",
    "Dask",
    "Engine",
    "Estimator",
    "Local",
    "Rounds",
    "converse",
    "join",
]

__getattr__ = at_first_use(__name__)
