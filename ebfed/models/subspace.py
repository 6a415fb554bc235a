"""Principal components: a subspace near which rows are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.models.base import Model, Named
from ebfed.privacy.calibration import check_count

__all__ = ["Subspace"]


class Subspace(Model):
    r"""Principal components: the output of a row is its distance from a subspace through 0.

    .. math:: |x - U U^\top x|, \qquad U \in \mathbb R^{d \times r}

    With a response of 0 for every row, the loss is half the squared distance. Its minimum over U
    is where the columns of U are an orthonormal basis of the first r principal components. Rows
    are to be centred. Any learner trains it: `FedAvg` one subspace of all clients, `LocalOnly` one
    of each, and `HierarchicalEB` personal subspaces around a shared one, of which it learns how
    near they are.

    Parameters
    ----------
    rank : int
        Dimension r of the subspace.

    References
    ----------
    Baldi and Hornik (1989), Neural networks and principal component analysis; Ozkara, Huang, Zhou
    and Diggavi (2024), Hierarchical Bayes approach to personalized federated unsupervised learning,
    whose ADEPT-PCA has a normal population of bases, with a spread that is learned.

    Examples
    --------
    >>> from ebfed.models.base import Batch
    >>> rows = Batch(np.array([[[3.0, 4.0]]]), np.zeros((1, 1)), np.ones((1, 1)))
    >>> Subspace(1).bind(2, 1).gradient(np.array([[1.0, 0.0]]), rows)
    Slope(gradient=array([[ -0., -12.]]), loss=array([8.]), score=array([nan]))
    """

    classifies = False

    def __init__(self, rank: int = 1):
        self.rank = rank

    def shapes(self, n_features: int, n_outputs: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of the basis."""
        rank = check_count("rank", self.rank)
        if rank >= n_features:
            raise ValueError(f"rank must be below the {n_features} features; got {rank}.")
        return {"basis": (n_features, rank)}

    def numbers(self, n_features: int) -> int:
        """Return the number of directions away from the subspace."""
        return n_features - int(self.rank)

    def start(self, parameters: Named, rng: np.random.Generator) -> None:
        """Draw an orthonormal basis."""
        basis = parameters["basis"]
        basis[0] = np.linalg.qr(rng.normal(size=basis.shape[1:]))[0]

    def forward(self, parameters: Named, X: NDArray) -> tuple[NDArray, Any]:
        """Compute distances."""
        basis = parameters["basis"]
        inside = X @ basis
        away = X - inside @ basis.swapaxes(1, 2)
        distance = np.linalg.norm(away, axis=2, keepdims=True)
        return distance, (inside, away, distance)

    def backward(
        self, parameters: Named, X: NDArray, tape: Any, slope: NDArray, out: Named
    ) -> None:
        """Turn slopes in distances into slopes in the basis."""
        inside, away, distance = tape
        share = np.divide(slope, distance, out=np.zeros_like(distance), where=distance > 0)
        back = away @ parameters["basis"]
        np.matmul((share * away).swapaxes(1, 2), inside, out=out["basis"])
        out["basis"] += (share * X).swapaxes(1, 2) @ back
        np.negative(out["basis"], out=out["basis"])
