"""Formulas of theory: risks of one-round location here, of opting out in `opt_out`.

`private_learning` compares the privacy that papers claim for their algorithms with exact accounts;
`excess_loss` bounds the error of two of them, and says when privacy favours learning alone.
"""

from ebfed.theory import excess_loss, location, opt_out, private_learning
from ebfed.theory.location import *  # noqa: F403

__all__ = [*location.__all__, "excess_loss", "opt_out", "private_learning"]
