"""Rows with what regressions say of them, for residuals and checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ebfed.families.base import LINKS
from ebfed.regression.dispersion import known_dispersion, noise_of_rows
from ebfed.regression.posteriors.predictive import averaged_variance, variance_of_mean
from ebfed.report.diagnostics import Diagnostics, RowLaw
from ebfed.tables.clients import Clients, order_of_rows
from ebfed.tables.labels import number_labels
from ebfed.tables.levels import parents_of
from ebfed.tables.roles import NEEDED

if TYPE_CHECKING:
    from ebfed.regression.families import ResponseFamily

__all__ = [
    "FamilyLaw",
    "NormalLaw",
    "renewed_predictors",
    "rows_of_clients",
    "rows_of_crossed",
    "rows_of_linear",
]


@dataclass(frozen=True)
class NormalLaw(RowLaw):
    """Rows of mean z and variance ``noise / weight``.

    Attributes
    ----------
    noise : ndarray of shape (n,)
        Variance of each row, if its weight were 1.

    Examples
    --------
    >>> law = NormalLaw(np.array([4.0]), np.array([1.0]))
    >>> law.around(np.array([2.0]), np.zeros(1))[1].round(3)
    array([0.841])
    """

    noise: NDArray
    weight: NDArray
    has_noise: bool = True

    def mean(self, z: NDArray) -> NDArray[np.float64]:
        """Linear predictor itself."""
        return z

    def at(self, mean: NDArray, z: NDArray) -> NDArray[np.float64]:
        """Mean itself."""
        return mean

    def spread(self, z: NDArray) -> NDArray[np.float64]:
        """Noise of a row of weight 1."""
        return self.noise

    def around(self, y: NDArray, z: NDArray) -> tuple[NDArray, NDArray]:
        """Normal probability of a response up to y, twice."""
        if not self.noise.all():
            raise ValueError("quantile residuals need noise; the coefficients explain all rows.")
        found = ndtr((y - z) * np.sqrt(self.weight / self.noise))
        return found, found

    def draw(self, z: NDArray, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw responses; rows of weight 0 are their mean."""
        scale = np.sqrt(self.noise / np.where(self.weight > 0, self.weight, np.inf))
        return z + scale * rng.standard_normal(len(z))

    def deviance(self, y: NDArray, mean: NDArray) -> NDArray[np.float64]:
        """Square of the residual."""
        return (y - mean) ** 2


@dataclass(frozen=True)
class FamilyLaw(RowLaw):
    """Rows of a family of generalized linear models.

    Attributes
    ----------
    plain : bool
        Whether rows have a distribution: weights are numbers of trials, or 1.
    """

    family: ResponseFamily
    shapes: NDArray
    weight: NDArray
    plain: bool

    @property
    def counts(self) -> bool:  # type: ignore[override]
        """Whether responses may be zero."""
        return self.family.whole and not self.family.classes

    @property
    def has_noise(self) -> bool:  # type: ignore[override]
        """Whether the family has a dispersion or a shape that was fitted."""
        return len(self.shapes) > 0 and not self.family.classes

    def mean(self, z: NDArray) -> NDArray[np.float64]:
        return self.family.inverse(z, self.shapes)

    def at(self, mean: NDArray, z: NDArray) -> NDArray[np.float64]:
        """Linear predictor of this mean."""
        if self.family.classes:
            return z
        with np.errstate(divide="ignore"):
            return LINKS[self.family.link].to_line(mean)

    def spread(self, z: NDArray) -> NDArray[np.float64]:
        """Variance of a row of weight 1."""
        return self.family.spread(z, self.shapes)

    def _check(self) -> None:
        if not self.plain:
            raise ValueError(
                "rows with sample_weight have no distribution, which quantile residuals and "
                "simulations need: repeat a row that stands for several."
            )

    def around(self, y: NDArray, z: NDArray) -> tuple[NDArray, NDArray]:
        self._check()
        return self.family.around(y, z, self.weight, self.shapes)

    def draw(self, z: NDArray, rng: np.random.Generator) -> NDArray[np.float64]:
        self._check()
        return self.family.draw(z, self.weight, self.shapes, rng)

    def deviance(self, y: NDArray, mean: NDArray) -> NDArray[np.float64]:
        """Deviance of rows of weight 1."""
        return self.family.deviance(y, mean, self.shapes)


def _root(covariance: NDArray) -> NDArray[np.float64]:
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0))


def renewed_predictors(
    design: NDArray, mean: NDArray, ids: NDArray, codes: NDArray, levels: Sequence[NDArray]
) -> Callable[[np.random.Generator], NDArray[np.float64]]:
    """Return what draws linear predictors of rows with new effects at each level.

    Parameters
    ----------
    design : ndarray of shape (n_rows, p)
    mean : ndarray of shape (p,)
    ids : ndarray of shape (n_groups,)
        Labels of the groups of the lowest level.
    codes : int64 ndarray of shape (n_rows,)
        Group of each row.
    levels : sequence of ndarray of shape (p, p)
        Covariance of the effects of each level, from the top.
    """
    places = [codes]
    above = ids
    for _ in levels[1:]:
        above, owner = parents_of(above)
        places.insert(0, owner[places[0]])
    roots = [_root(each) for each in levels]

    def drawn(rng: np.random.Generator) -> NDArray[np.float64]:
        z = design @ mean
        for root, place in zip(roots, places, strict=True):
            effects = rng.standard_normal((int(place.max(initial=0)) + 1, len(root))) @ root.T
            z = z + np.einsum("np,np->n", design, effects[place])
        return z

    return drawn


def rows_of_linear(
    fit: Any, X: Any, y: Any, groups: Any, covariates: Any, options: Mapping[str, Any]
) -> Diagnostics:
    """Return rows with what a linear model of groups says of them."""
    noises = known_dispersion(fit, X, options["dispersion"], False)
    given = fit._known_beside(X, {**options, "dispersion": noises}, False)
    if "sample_weight" not in given and getattr(fit.clients_, "log_weight", None) is not None:
        raise ValueError(NEEDED["sample_weight"])
    rows = fit._rows(X, y, groups, beside=given)
    noise = np.asarray(noise_of_rows(fit, rows.beside))
    values, response = fit._validated(rows, False)
    design, n = fit._extended(fit._design(values), X, rows, covariates, False), len(values)
    law = NormalLaw(np.broadcast_to(noise, n), rows.beside.get("sample_weight", np.ones(n)))
    numbered = None if rows.labels is None else number_labels(rows.labels)
    moved = rows.beside.get("offset", np.zeros(n))
    return _rows_of_groups(fit, design, moved, numbered, response, law)


def rows_of_clients(
    fit: Any, clients: Clients, codes: NDArray | None, weight: NDArray, plain: bool
) -> Diagnostics:
    """Return rows with what a generalized linear model of groups says of them.

    Parameters
    ----------
    fit : GeneralizedEB or LogisticEB
    clients : Clients
    codes : ndarray of shape (n_rows,) or None
        Group of each row, in the order of rows, which may differ from that of clients.
    weight : ndarray of shape (n_rows,)
    plain : bool
        As of `FamilyLaw`.
    """
    population, order = fit._population(), order_of_rows(codes)
    read, back = population.responses(clients), np.arange(len(clients.X))
    back[order] = np.arange(len(back))
    design, moved = clients.X[back], read.offset[back]
    places = np.repeat(np.arange(len(clients)), clients.n)[back]

    def smoothed(values: NDArray) -> tuple[NDArray, NDArray]:
        block = population.observing(clients, values[order])
        found = replace(population, fitted=block).posterior_given_spread(block)
        middle = np.einsum("np,np->n", design, found.mean[places]) + moved
        return middle, found.variance_along(design, places)

    numbered = None if codes is None else (clients.ids, codes)
    law = FamilyLaw(population.family, population.shapes, weight[back], plain)
    found = _rows_of_groups(fit, design, moved, numbered, read.y[back], law)
    return replace(found, smoothed=smoothed)


def _rows_of_groups(
    fit: Any,
    design: NDArray,
    moved: NDArray,
    numbered: tuple[NDArray, NDArray] | None,
    response: NDArray,
    law: NormalLaw | FamilyLaw,
) -> Diagnostics:
    """Return rows with offsets, and what a population of coefficients says of them.

    Groups of rows are `numbered`: labels, and the number of each row's. Rows without labels have
    groups of their own, of which nothing else is known.
    """
    population, n = fit._population(), len(design)
    levels = population.covariances
    if numbered is None:
        ids, codes = np.fromiter([(j,) * len(levels) for j in range(n)], object, n), np.arange(n)
        block, places = fit._rows_of(np.zeros(1, np.int64), known=False), np.zeros(n, np.int64)
    else:
        ids, codes = numbered
        block, places = fit._rows_of(ids), codes
    posterior = population.posterior_given_spread(block)
    renewed = renewed_predictors(design, population.mean, ids, codes, levels)
    unknown = (
        design @ population.mean + moved,
        np.einsum("np,pq,nq->n", design, sum(levels), design),
    )

    def along(coefficients: NDArray) -> NDArray:
        return np.einsum("np,np->n", design, coefficients[places]) + moved

    def leverage() -> NDArray:
        assert isinstance(law, NormalLaw)
        variance = posterior.variance_along(design, places)
        return law.weight * variance / np.maximum(law.noise, 1e-300)

    predictor = along(posterior.mean)
    fitted, expected = predictor, unknown[0]
    if isinstance(law, FamilyLaw):
        of_mean = variance_of_mean(design, fit.mean_covariance_)
        variance = averaged_variance(posterior.variance_along(design, places), of_mean)
        fitted = law.family.mean(predictor, variance, law.shapes)
        expected = law.family.mean(*unknown, law.shapes)
    return Diagnostics(
        response=response,
        fitted=fitted,
        expected=expected,
        predictor=predictor,
        unknown=unknown,
        law=law,
        drawn=lambda rng: along(posterior.sample(1, rng)[0]),
        renewed=lambda rng: renewed(rng) + moved,
        leverage=leverage if isinstance(law, NormalLaw) else None,
        smoothed=None,
        rank=lambda: int(np.linalg.matrix_rank(np.nan_to_num(design[:, fit._of_mean]))),
    )


def rows_of_crossed(
    model: Any, X: Any, y: Any, groups: Any, options: Mapping[str, Any]
) -> Diagnostics:
    """Return rows with what a model of crossed factors says of them."""
    design, moved, codes = model._placed(X, groups, options["offset"])
    rows = model._rows(X, y=y, groups=groups, **options)
    family, fit = model._family, model._fit
    observed, n = rows.responses(family), len(design)
    found = rows.numbers_of(np.ones(n, bool)) or [(np.arange(n), np.arange(n))] * len(model._names)
    levels = [found[k] for k in model._order]
    base = fit.fixed(design) + moved
    predictor = fit.predictor(design, codes) + moved
    unknown = base, fit.spread(design)

    def leverage() -> NDArray:
        return observed.weight * fit.variance(design, codes) / fit.noise

    def renewed(rng: np.random.Generator) -> NDArray:
        return base + fit.renewed(design, levels, rng)

    def smoothed(values: NDArray) -> tuple[NDArray, NDArray]:
        assert family is not None
        places = [own for _, own in levels]
        sizes = [len(ids) for ids, _ in levels]
        rows_of = design, replace(observed, y=values), family
        other = fit.with_rows(fit.laplace_of(places, sizes, *rows_of))
        at = np.column_stack(places)
        return other.predictor(design, at) + moved, other.variance(design, at)

    law: RowLaw
    if family is None:
        law, fitted, expected = NormalLaw(np.full(n, fit.noise), observed.weight), predictor, base
    else:
        given = rows.beside.get("sample_weight", np.ones(1))
        law = FamilyLaw(family, fit.shapes, observed.weight, bool((given == 1).all()))
        fitted = family.mean(predictor, model._averaged(design, codes), fit.shapes)
        expected = family.mean(*unknown, fit.shapes)
    return Diagnostics(
        response=observed.y,
        fitted=fitted,
        expected=expected,
        predictor=predictor,
        unknown=unknown,
        law=law,
        drawn=lambda rng: fit.drawn(design, codes, rng) + moved,
        renewed=renewed,
        leverage=leverage if family is None else None,
        smoothed=None if family is None else smoothed,
        rank=lambda: len(fit.mean),
    )
