"""Risks and bounds in closed form: of one-round location here, of opting out in `opt_out`."""

from ebfed.theory import location, opt_out
from ebfed.theory.location import *  # noqa: F403

__all__ = [*location.__all__, "opt_out"]
