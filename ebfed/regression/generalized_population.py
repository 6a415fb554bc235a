"""The fitted population of a generalized linear model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.families import ResponseFamily, Responses
from ebfed.regression.population import NormalPopulation
from ebfed.regression.posteriors import quadrature
from ebfed.regression.posteriors.normal import NormalCoefficients
from ebfed.regression.posteriors.parents import relatives
from ebfed.report.view import Parameter
from ebfed.tables.clients import Clients
from ebfed.tables.labels import parents_among
from ebfed.tables.levels import parents_of

__all__ = ["GeneralizedPopulation", "nodes_of"]

NAMES = {
    "aghq": "Gauss-Hermite quadrature",
    "ep": "expectation propagation",
    "laplace": "Laplace's approximation",
    "gradient": "gradient descent",
}


@dataclass(frozen=True, kw_only=True)
class GeneralizedPopulation(NormalPopulation):
    """A normal population of coefficients.

    Attributes
    ----------
    family : ResponseFamily
    shapes : ndarray of shape (t,)
        Parameters of the family.
    shape_covariance : ndarray of shape (p + t, p + t)
        Sampling covariance of mean and shapes.
    root : ndarray of shape (p, k)
        Root of the covariance.
    roots_above : sequence of ndarray of shape (p, k)
        Roots of the covariances of the levels above the groups, from the top.
    method : {"aghq", "ep", "laplace", "gradient"}
        Method of the fit.
    classes : ndarray of shape (2,) or None
        Labels of the response, where it is a class.
    node_weights : ndarray of shape (k,)
        Weights of populations that the rows do not tell from the fitted one; see `spread_nodes`.
    node_means : ndarray of shape (k, p)
    node_mean_covariances : ndarray of shape (k, p, p)
    node_roots : sequence of ndarray of shape (k, p, q)
        Roots of their covariances, of levels from the top.
    """

    family: ResponseFamily
    shapes: NDArray
    shape_covariance: NDArray
    root: NDArray
    method: str
    classes: NDArray | None = None
    roots_above: Sequence[NDArray] = ()
    node_weights: NDArray = field(default_factory=lambda: np.zeros(0))
    node_means: NDArray = field(default_factory=lambda: np.zeros((0, 0)))
    node_mean_covariances: NDArray = field(default_factory=lambda: np.zeros((0, 0, 0)))
    node_roots: Sequence[NDArray] = ()

    @property
    def _roots(self) -> list[NDArray]:
        return [*self.roots_above, self.root]

    @property
    def covariances(self) -> list[NDArray]:
        return [*(root @ root.T for root in self.roots_above), self.covariance]

    @property
    def _errors(self) -> NDArray:
        return np.sqrt(np.diag(self.shape_covariance)[: len(self.mean)])

    @property
    def fitted_by(self) -> str:  # type: ignore[override]
        """Method of the fit, in a few words."""
        return NAMES[self.method]

    @property
    def likelihood_kind(self) -> str:  # type: ignore[override]
        """Whether the likelihood was integrated or approximated."""
        return "ML" if self.method == "aghq" else "approximate"

    @property
    def population(self) -> str:  # type: ignore[override]
        """Name of the population, on the scale of responses."""
        return f"{self.family.link}-normal"

    @property
    def n_parameters(self) -> int:  # type: ignore[override]
        """Number of fitted parameters: means, variances, covariances, shapes."""
        n_means = len(self.columns.fixed_places())
        return n_means + self.columns.n_spreads(self.kind) + len(self.shapes)

    def responses(self, block: Clients) -> Responses:
        """Return what was observed in the rows of clients."""
        return Responses.of(block, self.classes)

    def observing(self, block: Clients, y: NDArray) -> Clients:
        """Return clients with other responses of their rows; of labels, 0 and 1."""
        if self.classes is not None:
            return replace(block, y=self.classes[y.astype(np.int64)])
        return replace(block, y=np.column_stack([y, np.asarray(block.y)[:, 1:]]))

    def posterior(self, block: Clients) -> Any:
        return self._posterior(block, self.mean_covariance, True)

    def posterior_given_spread(self, block: Clients) -> Any:
        return self._posterior(block, self.mean_covariance, False)

    def posterior_given_population(self, block: Clients) -> Any:
        return self._posterior(block, np.zeros_like(self.mean_covariance), False)

    def _posterior(self, block: Clients, mean_covariance: NDArray, doubt: bool) -> Any:
        return self.posteriors(block, mean_covariance, doubt=doubt)[-1][0]

    def posteriors(
        self, block: Clients, mean_covariance: NDArray | None = None, *, doubt: bool = True
    ) -> list[tuple[NormalCoefficients, Clients]]:
        """Posteriors of groups and of their parents, by level from the top, with their rows.

        Parameters
        ----------
        block : Clients
        mean_covariance : ndarray of shape (p, p), optional
            Sampling covariance of the mean; that of the fit if None.
        doubt : bool
            Whether variances include the uncertainty of the population's covariances.
        """
        given = self.mean_covariance if mean_covariance is None else mean_covariance
        others = relatives(block, self.fitted) if self.roots_above else None
        whole = block if others is None else block.merge(others)
        known = self.responses(whole), self.family, self.shapes
        method: Any = self.method
        if method == "gradient":  # which finds a population alone
            sizes = [root.shape[1] for root in self._roots]
            method = quadrature.method_for("auto", self.family, sizes)

        def under(
            mean: NDArray, roots: Sequence[NDArray], covariance: NDArray
        ) -> list[NormalCoefficients]:
            return quadrature.posteriors(whole, *known, mean, roots, covariance, method)

        found = under(self.mean, self._roots, given)
        if doubt and len(self.node_weights):
            roots = zip(*self.node_roots, strict=True)
            nodes = zip(self.node_means, roots, self.node_mean_covariances, strict=True)
            found = self._widened(found, [under(*node) for node in nodes])
        blocks = [whole]
        for _ in self.roots_above:
            blocks.insert(0, of_parents(blocks[0]))
        if others is not None:
            asked = set(block.ids.tolist())
            places = np.flatnonzero([each in asked for each in whole.ids.tolist()])
            found[-1], blocks[-1] = found[-1].take(places), whole.take(places)
        return list(zip(found, blocks, strict=True))

    def _widened(
        self, found: list[NormalCoefficients], nearby: list[list[NormalCoefficients]]
    ) -> list[NormalCoefficients]:
        """Add to the posteriors of each level what those under nearby populations say."""
        shifts = list(self.node_means - self.mean)
        parents: NormalCoefficients | None = None
        widened = []
        for level, posterior in enumerate(found):
            others = [each[level] for each in nearby]
            by = [posterior.parents_moved(shift) for shift in shifts]
            parents = posterior.widened(others, self.node_weights, by, parents)
            shifts = [other.mean - posterior.mean for other in others]
            widened.append(parents)
        return widened

    def _of_rows(self, mean: NDArray) -> list[Parameter]:
        # thresholds have the intercept in them
        return self.family.parameters(mean, self.shapes, self.shape_covariance)


def nodes_of(result: Any) -> dict[str, Any]:
    """Return what a fit has learned of populations near its own, for `GeneralizedPopulation`."""
    names = "node_weights", "node_means", "node_mean_covariances", "node_roots"
    return {name: result[name] for name in names if name in result}


def of_parents(groups: Clients) -> Clients:
    """Parents of sorted groups, with the rows of these; of groups without labels, themselves."""
    if not parents_among(groups.ids):
        return groups
    ids, codes = parents_of(groups.ids)
    ends = np.searchsorted(codes, np.arange(len(ids) + 1))
    return replace(groups, ids=ids, indptr=groups.indptr[ends])
