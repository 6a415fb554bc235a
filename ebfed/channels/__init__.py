"""Channels, which say what a client sends: one file per channel."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.channels.add_noise import AddNoise
    from ebfed.channels.base import Channel
    from ebfed.channels.clip import Clip
    from ebfed.channels.design import Guess
    from ebfed.channels.discrete_gaussian import DiscreteGaussian
    from ebfed.channels.exact import Exact
    from ebfed.channels.gaussian import Gaussian
    from ebfed.channels.laplace import Laplace
    from ebfed.channels.one_bit import OneBit
    from ebfed.channels.piecewise import Hybrid, Piecewise
    from ebfed.channels.quantizer import Quantizer
    from ebfed.channels.randomized_category import RandomizedCategory
    from ebfed.channels.randomized_response import RandomizedResponse
    from ebfed.channels.two_bit import TwoBit
    from ebfed.channels.unary_encoding import UnaryEncoding

__all__ = [
    "AddNoise",
    "Channel",
    "Clip",
    "DiscreteGaussian",
    "Exact",
    "Gaussian",
    "Guess",
    "Hybrid",
    "Laplace",
    "OneBit",
    "Piecewise",
    "Quantizer",
    "RandomizedCategory",
    "RandomizedResponse",
    "TwoBit",
    "UnaryEncoding",
]

__getattr__ = at_first_use(__name__)
