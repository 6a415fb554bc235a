"""Channels, which say what a client sends: one file per channel."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.channels.add_noise import AddNoise as AddNoise
    from ebfed.channels.base import Channel as Channel
    from ebfed.channels.clip import Clip as Clip
    from ebfed.channels.design import Guess as Guess
    from ebfed.channels.discrete_gaussian import DiscreteGaussian as DiscreteGaussian
    from ebfed.channels.exact import Exact as Exact
    from ebfed.channels.gaussian import Gaussian as Gaussian
    from ebfed.channels.laplace import Laplace as Laplace
    from ebfed.channels.one_bit import OneBit as OneBit
    from ebfed.channels.piecewise import Hybrid as Hybrid
    from ebfed.channels.piecewise import Piecewise as Piecewise
    from ebfed.channels.quantizer import Quantizer as Quantizer
    from ebfed.channels.randomized_category import RandomizedCategory as RandomizedCategory
    from ebfed.channels.randomized_response import RandomizedResponse as RandomizedResponse
    from ebfed.channels.two_bit import TwoBit as TwoBit
    from ebfed.channels.unary_encoding import UnaryEncoding as UnaryEncoding

__getattr__ = at_first_use(__name__)
