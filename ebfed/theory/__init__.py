"""Formulas of theory: risks of one-round location here, of opting out in `opt_out`.

`private_learning` compares the privacy that papers claim for their algorithms with exact accounts.
"""

from ebfed.theory import location, opt_out, private_learning
from ebfed.theory.location import *  # noqa: F403

__all__ = [*location.__all__, "opt_out", "private_learning"]
