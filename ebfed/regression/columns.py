"""Columns of a design: their names, the intercept, and which coefficients differ between groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["INTERCEPT", "Columns", "Varying"]

# Columns whose coefficients differ between groups: together, or in terms that are independent.
Terms = Sequence[str | int] | Sequence[Sequence[str | int]]
# The same of all levels of groups alike, or of each by its name.
Varying = Terms | Mapping[str, Terms | None] | None

INTERCEPT = "intercept"


@dataclass(frozen=True)
class Columns:
    r"""Columns of a design, the intercept first.

    Parameters
    ----------
    n_features : int
        Number of columns of `X`.
    names : str
        Names of these columns, one to a line; empty if they have none.
    intercept : bool
        Whether a column of ones is put first.
    varying : sequence of str or int, or mapping, optional
        Columns whose coefficients differ between groups; all if None. Sequences of columns are
        terms whose coefficients are independent of each other's. Of several levels, the same for
        all of them, or for each by its name.
    levels : tuple of str
        Names of the levels of groups, from the outermost; none where there is one.
    fixed : sequence of str or int, optional
        Columns whose coefficient has a mean, which is zero for the others; all if None.

    Examples
    --------
    >>> columns = Columns(2, "age\nincome", True, ["intercept", "income"])
    >>> columns.terms, columns.varying_places()
    (['intercept', 'age', 'income'], array([0, 2]))
    >>> varying = {"state": ["intercept"], "county": ["intercept", "age"]}
    >>> Columns(2, "age\nincome", True, varying, ("state", "county")).places_of_levels()
    [array([0]), array([0, 1])]
    >>> Columns(2, "age\nincome", True, [["intercept"], ["age", "income"]]).terms_of_levels()
    [[array([0]), array([1, 2])]]
    """

    n_features: int
    names: str
    intercept: bool
    varying: Varying = None
    levels: tuple[str, ...] = ()
    fixed: Sequence[str | int] | None = None

    @cached_property
    def terms(self) -> list[str]:
        """Names of the coefficients."""
        numbered = [f"x{j}" for j in range(self.n_features)]
        return [INTERCEPT] * self.intercept + (self.names.split("\n") if self.names else numbered)

    def of_mean(self, covariates: Sequence[str] = ()) -> list[str]:
        """Names of the coefficients, then of their products with covariates of groups."""
        terms = self.terms
        return [
            *terms,
            *(f"{terms[j]}:{name}" for j in self.varying_places() for name in covariates),
        ]

    def fixed_places(self, n_covariates: int = 0) -> NDArray[np.int64]:
        """Positions, in `of_mean`, of the coefficients whose mean is not zero.

        Raises
        ------
        ValueError, TypeError
            If `fixed` does not name columns, or a column is neither there nor varies.
        """
        p, varying = len(self), self.varying_places()
        if self.fixed is None:
            return np.arange(p + len(varying) * n_covariates)
        own = self._places(self.fixed, "fixed")
        if idle := [
            self.terms[j] for j in sorted({*range(p)} - {*own.tolist(), *varying.tolist()})
        ]:
            raise ValueError(
                f"column {idle[0]!r} has neither a mean nor a spread: name it in fixed or varying."
            )
        return np.concatenate([own, np.arange(p, p + len(varying) * n_covariates)])

    def __len__(self) -> int:
        return self.n_features + self.intercept

    def design(self, values: NDArray) -> NDArray[np.float64]:
        """Return features with the column of the intercept."""
        first = int(self.intercept)
        design = np.ones((len(values), first + values.shape[1]))
        design[:, first:] = values
        return design

    def varies(self) -> NDArray[np.bool_]:
        """Whether each coefficient differs between groups."""
        return np.isin(np.arange(len(self)), self.varying_places())

    def varying_places(self) -> NDArray[np.int64]:
        """Positions of the coefficients that differ between groups, of any level."""
        return np.array(
            sorted({j for own in self.places_of_levels() for j in own.tolist()}), np.int64
        )

    def places_of_levels(self) -> list[NDArray[np.int64]]:
        """Positions of the coefficients that differ between groups, of each level."""
        return [np.concatenate(terms) for terms in self.terms_of_levels()]

    def terms_of_levels(self) -> list[list[NDArray[np.int64]]]:
        """Positions of the coefficients of each term that differs between groups, of each level.

        Raises
        ------
        ValueError, TypeError
            If `varying` does not name columns, or not all levels.
        """
        return self._terms_of_levels

    @cached_property
    def _terms_of_levels(self) -> list[list[NDArray[np.int64]]]:
        levels, varying = self.levels or ("",), self.varying
        if not isinstance(varying, Mapping):
            return [self._terms(varying)] * len(levels)
        if set(varying) != set(self.levels):
            known = ", ".join(map(repr, self.levels)) or "one without a name"
            raise ValueError(
                "varying must be columns, or a mapping with columns for each level of groups "
                f"(here {known}); it has {', '.join(map(repr, varying)) or 'none'}."
            )
        return [self._terms(varying[level]) for level in levels]

    def sizes_of_terms(self, places: Sequence[NDArray]) -> list[list[int]]:
        r"""Numbers of coefficients of each term of each level, of those that are at these places.

        Examples
        --------
        >>> columns = Columns(2, "age\nincome", True, [["intercept"], ["age", "income"]])
        >>> columns.sizes_of_terms([np.array([1, 2])])
        [[0, 2]]
        """
        pairs = zip(self.terms_of_levels(), places, strict=True)
        return [[len({*term.tolist()} & {*own.tolist()}) for term in terms] for terms, own in pairs]

    def check_terms(self, covariance: str) -> None:
        """Raise a ValueError if terms of a level cannot have this covariance."""
        if covariance == "spherical" and any(len(each) > 1 for each in self.terms_of_levels()):
            raise ValueError("covariance='spherical' is of one term of a level; got several.")

    def blocks_of_levels(self, covariance: str) -> NDArray[np.int64]:
        r"""Block of the covariance that each coefficient is in, of each level; -1 if it is alike.

        Those of different blocks are independent.

        Examples
        --------
        >>> columns = Columns(2, "age\nincome", True, [["age", "income"], ["intercept"]])
        >>> columns.blocks_of_levels("full"), columns.blocks_of_levels("diag")
        (array([[1, 0, 0]]), array([[2, 0, 1]]))
        """
        found = np.full((len(self.terms_of_levels()), len(self)), -1)
        for own, terms in zip(found, self.terms_of_levels(), strict=True):
            places, sizes = np.concatenate(terms), [len(term) for term in terms]
            own[places] = np.arange(len(places))
            if covariance != "diag":
                own[places] = np.repeat(np.arange(len(sizes)), sizes)
        return found

    def n_spreads(self, covariance: str, places: Sequence[NDArray] | None = None) -> int:
        """Count the parameters of the covariances; of coefficients at these places, by level."""
        sizes = self.sizes_of_terms(self.places_of_levels() if places is None else places)
        every = [size for terms in sizes for size in terms]
        if covariance == "full":
            return sum(q * (q + 1) // 2 for q in every)
        return sum(every) if covariance == "diag" else sum(min(q, 1) for q in every)

    def _terms(self, varying: Any) -> list[NDArray[np.int64]]:
        """Positions of the columns of each term of a level."""
        terms = varying if isinstance(varying, Sequence) and not isinstance(varying, str) else ()
        if not any(
            isinstance(each, Sequence | np.ndarray) and not isinstance(each, str) for each in terms
        ):
            return [self._places(varying)]
        found = [self._places(each) for each in terms]
        places = np.concatenate(found).tolist()
        if twice := [self.terms[j] for j in places if places.count(j) > 1]:
            raise ValueError(f"varying must have each column in one term; {twice[0]!r} is in two.")
        return found

    def _places(self, varying: Any, role: str = "varying") -> NDArray[np.int64]:
        """Positions of some columns; of all if None."""
        if varying is None:
            return np.arange(len(self))
        names = self.terms
        first = int(self.intercept)
        places: dict[Any, int] = {j: first + j for j in range(self.n_features)}
        places |= {name: j for j, name in enumerate(names)}
        if isinstance(varying, str) or not np.iterable(varying):
            raise TypeError(f"{role} must be a sequence of columns; got {varying!r}.")
        if self.intercept and INTERCEPT in names[1:]:
            raise ValueError(
                f"X must not have a column called {INTERCEPT!r}, the name of the column that "
                "fit_intercept adds; rename it."
            )
        if any(isinstance(name, bool | np.bool_) for name in varying):
            raise TypeError(f"{role} must name columns, not mark them; got {varying!r}.")
        unknown = [name for name in varying if name not in places]
        if unknown:
            known = ", ".join(map(repr, names))
            raise ValueError(f"{role} must name columns of {known}; got {unknown[0]!r}.")
        return np.array(sorted({places[name] for name in varying}), np.int64)
