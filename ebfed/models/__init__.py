"""Models: what a client trains on its own rows, for the methods that learn by gradients."""

from typing import TYPE_CHECKING, Any

from ebfed.models.base import Batch, Model, Predictor, Slope
from ebfed.models.linear import Linear, Softmax
from ebfed.models.mlp import MLP

if TYPE_CHECKING:
    from ebfed.models.torch import Torch

__all__ = ["MLP", "Batch", "Linear", "Model", "Predictor", "Slope", "Softmax", "Torch"]


def __getattr__(name: str) -> Any:
    """Import PyTorch only where it is asked for."""
    if name == "Torch":
        from ebfed.models.torch import Torch

        return Torch
    raise AttributeError(f"module 'ebfed.models' has no attribute {name!r}")
