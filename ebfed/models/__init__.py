"""Models that clients train on their own rows, for methods that learn by gradients."""

from ebfed.models.base import Batch, Model, Predictor, Slope
from ebfed.models.layered import MLP, Layered, Linear, Softmax
from ebfed.models.subspace import Subspace
from ebfed.models.torch import Torch

__all__ = [
    "MLP",
    "Batch",
    "Layered",
    "Linear",
    "Model",
    "Predictor",
    "Slope",
    "Softmax",
    "Subspace",
    "Torch",
]
