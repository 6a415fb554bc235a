"""Where clients compute: one file per engine."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.engines.base import Block as Block
    from ebfed.engines.base import Blocks as Blocks
    from ebfed.engines.base import Cohort as Cohort
    from ebfed.engines.base import Engine as Engine
    from ebfed.engines.base import join as join
    from ebfed.engines.dask import Dask as Dask
    from ebfed.engines.local import Local as Local
    from ebfed.engines.protocol import Estimator as Estimator
    from ebfed.engines.protocol import Rounds as Rounds
    from ebfed.engines.rounds import converse as converse

__getattr__ = at_first_use(__name__)
