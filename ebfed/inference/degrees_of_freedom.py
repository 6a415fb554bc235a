"""Degrees of freedom of tests in linear mixed models: Satterthwaite, and Kenward and Roger.

A contrast ``l' beta`` has the variance ``l' Phi l``, Phi the inverse of ``X' V^-1 X``, which is
estimated with V. Satterthwaite's degrees of freedom are those of the chi-squared variable that has
the same mean and variance as this estimate,

    df = 2 (l' Phi l)**2 / var(l' Phi l),

by the slope of ``l' Phi l`` in the parameters of V and their sampling covariance, twice the inverse
of the Hessian of the deviance. The slope is taken in the roots of covariances, as lmerTest does, so
that a variance of zero adds nothing. Kenward and Roger's (1997) also add to Phi what not knowing V
adds to the variance; the parameters' sampling covariance is then twice the inverse of the expected
Hessian, as pbkrtest has it.

References
----------
Satterthwaite (1946), An approximate distribution of estimates of variance components, Biometrics
Bulletin 2. Kenward and Roger (1997), Small sample inference for fixed effects from restricted
maximum likelihood, Biometrics 53. Kuznetsova, Brockhoff, Christensen (2017), lmerTest package:
tests in linear mixed effects models, J. Stat. Softw. 82. Halekoh and Hojsgaard (2014), A
Kenward-Roger approximation and parametric bootstrap methods for tests in linear mixed models: the R
package pbkrtest, J. Stat. Softw. 59.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.estimable import Estimable
from ebfed.inference.sums import LinearMixedFit, entries_of_terms, root_of_terms

__all__ = ["FTest", "FixedDegrees", "Inference", "Method", "inference_of"]

# Curvatures in units of their own below which the deviance does not bend.
FLAT = 1e-8

Method = Literal["satterthwaite", "kenward-roger", "residual", "asymptotic"]


class FTest(NamedTuple):
    """A test of several contrasts together."""

    num_df: int
    den_df: float
    statistic: float
    p_value: float


class Inference(ABC):
    """Standard errors and degrees of freedom of contrasts of the mean.

    Parameters
    ----------
    mean : ndarray of shape (p,)

    Attributes
    ----------
    estimable : Estimable or None
        What rows identify; None if that is all.
    """

    estimable: Estimable | None = None

    def __init__(self, mean: NDArray):
        self.mean = mean

    def within(self, estimable: Estimable) -> Self:
        """Return the inference, of which only what rows identify has values."""
        self.estimable = estimable
        return self

    @property
    @abstractmethod
    def covariance(self) -> NDArray:
        """Sampling covariance of the mean, shape (p, p)."""

    @abstractmethod
    def df(self, contrasts: NDArray) -> NDArray:
        """Degrees of freedom of each contrast, shape (n,)."""

    def std_error(self, contrasts: NDArray) -> NDArray:
        """Standard error of each contrast, shape (n,)."""
        variance = np.einsum("np,pq,nq->n", contrasts, self.covariance, contrasts)
        return np.sqrt(np.maximum(variance, 0.0))

    def joint(self, contrasts: NDArray) -> FTest:
        """Test that all of these contrasts are zero."""
        from scipy.stats import chi2, f

        if self.estimable is not None:
            contrasts = self.estimable.part_of(contrasts)
        estimate = contrasts @ self.mean
        values, vectors = np.linalg.eigh(contrasts @ self.covariance @ contrasts.T)
        kept = values > 1e-10 * values.max(initial=0.0)
        if not kept.any():
            return FTest(0, np.nan, np.nan, np.nan)
        apart = vectors[:, kept].T
        t_squared = (apart @ estimate) ** 2 / values[kept]
        size = int(kept.sum())
        den_df, scale = self.of_several(apart @ contrasts)
        statistic = float(t_squared.mean() * scale)
        far = np.isinf(den_df)
        p = chi2.sf(size * statistic, size) if far else f.sf(statistic, size, den_df)
        return FTest(size, den_df, statistic, float(p))

    def of_several(self, apart: NDArray) -> tuple[float, float]:
        """Degrees of freedom of contrasts that are not correlated, and a factor of F."""
        df = self.df(apart)
        if np.isinf(df).all():
            return np.inf, 1.0
        if np.ptp(df) <= 1e-8 * df.max():
            return float(df.mean()), 1.0
        if (df <= 2).any():
            return 2.0, 1.0
        expected = float((1 / (1 - 2 / df)).sum())
        return 2 * expected / (expected - len(df)), 1.0


class FixedDegrees(Inference):
    """The same degrees of freedom for all contrasts."""

    def __init__(self, mean: NDArray, covariance: NDArray, degrees: float):
        super().__init__(mean)
        self._covariance, self.degrees = covariance, degrees

    @property
    def covariance(self) -> NDArray:
        return self._covariance

    def df(self, contrasts: NDArray) -> NDArray:
        return np.full(len(contrasts), self.degrees)

    def of_several(self, apart: NDArray) -> tuple[float, float]:
        """Degrees of freedom of contrasts, and a factor of F."""
        return self.degrees, 1.0


class Satterthwaite(Inference):
    """Degrees of freedom as lmerTest has them.

    Directions of the parameters of V in which the deviance does not bend, as of the root of a
    singular covariance, add nothing.

    Parameters
    ----------
    mean : ndarray of shape (p,)
    covariance : ndarray of shape (p, p)
        Sampling covariance of the mean.
    slopes : ndarray of shape (k, p, p)
        Its slopes in the parameters.
    hessian : ndarray of shape (k, k)
        Second derivatives of the deviance.
    """

    def __init__(self, mean: NDArray, covariance: NDArray, slopes: NDArray, hessian: NDArray):
        super().__init__(mean)
        self._covariance, self._slopes = covariance, slopes
        size = np.sqrt(np.abs(np.diag(hessian)))
        size = np.where(size > 0, size, 1.0)
        values, vectors = np.linalg.eigh(hessian / np.outer(size, size))
        kept = values > FLAT
        half = vectors[:, kept] / np.sqrt(values[kept]) / size[:, None]
        self._known = 2 * half @ half.T

    @property
    def covariance(self) -> NDArray:
        return self._covariance

    def df(self, contrasts: NDArray) -> NDArray:
        variance = np.einsum("np,pq,nq->n", contrasts, self._covariance, contrasts)
        slopes = np.einsum("np,kpq,nq->nk", contrasts, self._slopes, contrasts)
        spread = np.einsum("nk,kl,nl->n", slopes, self._known, slopes)
        found = np.full(len(variance), np.inf)
        return np.divide(2 * variance**2, spread, out=found, where=spread > 0)


class _OfVariances:
    """What the rows say of the parameters of V, and how Phi moves with them."""

    def __init__(self, fit: LinearMixedFit):
        self.fit, self.mean = fit, fit.mean
        sums, inverse = fit.fitted, fit.inverse
        assert sums.pairs is not None
        assert sums.second is not None
        self.S, Q = sums.first[:, :-1, :-1], sums.second
        k = len(self.S)
        low = np.tril_indices(k, -1)
        self.Q = Q.copy()
        self.Q[low] = Q.swapaxes(0, 1).swapaxes(2, 3)[low]
        pairs = sums.pairs.copy()
        pairs[low] = pairs.T[low]
        self.slopes = inverse @ self.S @ inverse  # of Phi
        self.expected = pairs
        if fit.restricted:
            inner = np.einsum("ij,abji->ab", inverse, self.Q[:, :, :-1, :-1])
            both = np.einsum("aij,bji->ab", inverse @ self.S, inverse @ self.S)
            self.expected = pairs - 2 * inner + both

    def basis(self, contrasts: NDArray) -> NDArray:
        """Contrasts of the coefficients of ``X B``; NaN where rows do not identify them."""
        known = self.fit.identified(contrasts)
        return np.where(known[:, None], contrasts @ self.fit.basis[0], np.nan)


def _satterthwaite(fit: LinearMixedFit) -> Satterthwaite:
    """Degrees of freedom by roots: Cholesky factors of covariances, and the noise's deviation."""
    parts, sums, inverse = _OfVariances(fit), fit.fitted, fit.inverse
    moved, gradient = sums.first[:, :-1, -1], sums.trace - sums.first[:, -1, -1]
    if fit.restricted:
        gradient = gradient - np.einsum("ij,aji->a", inverse, parts.S)
    of_variances = 2 * (parts.Q[:, :, -1, -1] - moved @ inverse @ moved.T) - parts.expected
    k = fit.n_parameters
    slopes, bends = np.zeros((k, k)), np.zeros((k, k, k))
    levels = zip(fit.covariances, fit.bases, fit.own, fit.terms, strict=True)
    for G, bases, own, terms in levels:
        slope, bend = _of_root(G, bases, fit.kind, terms)
        slopes[np.ix_(own, own)], bends[np.ix_(own, own, own)] = slope, bend
    slopes[-1, -1], bends[-1, -1, -1] = 2 * np.sqrt(fit.noise), 2.0
    # the slope is zero but at the boundary
    hessian = slopes.T @ of_variances @ slopes + np.tensordot(gradient, bends, 1)
    B = fit.basis[0]
    of_roots = np.tensordot(slopes.T, B @ parts.slopes @ B.T, 1)
    return Satterthwaite(fit.mean, fit.mean_covariance, of_roots, hessian)


class KenwardRoger(_OfVariances, Inference):
    """Degrees of freedom and standard errors as pbkrtest has them."""

    @cached_property
    def of_parameters(self) -> NDArray:
        """Sampling covariance of the parameters of V, shape (k, k)."""
        size = np.sqrt(np.maximum(np.diag(self.expected), 0))
        size = np.where(size > 0, size, 1.0)
        inverse = np.linalg.pinv(self.expected / np.outer(size, size), rcond=1e-10, hermitian=True)
        return 2 * inverse / np.outer(size, size)

    @cached_property
    def of_basis(self) -> NDArray:
        """Sampling covariance of the coefficients of ``X B``, what not knowing V adds included."""
        inverse = self.fit.inverse
        middle = self.Q[:, :, :-1, :-1] - self.S[:, None] @ inverse @ self.S[None]
        added = inverse @ np.einsum("ab,abij->ij", self.of_parameters, middle) @ inverse
        return inverse + added + added.T  # twice, symmetric

    @cached_property
    def covariance(self) -> NDArray:
        """Sampling covariance of the mean, what not knowing V adds included."""
        B = self.fit.basis[0]
        return B @ self.of_basis @ B.T

    def df(self, contrasts: NDArray) -> NDArray:
        return np.array([self.of_several(each[None])[0] for each in contrasts])

    def of_several(self, apart: NDArray) -> tuple[float, float]:
        """Degrees of freedom of contrasts, and a factor of F: equations of Kenward and Roger."""
        L = self.basis(apart)
        if not np.isfinite(L).all():
            return np.nan, np.nan
        inverse, W, q = self.fit.inverse, self.of_parameters, len(L)
        theta = L.T @ np.linalg.solve(L @ inverse @ L.T, L)
        each = theta @ self.slopes  # theta Phi S_a Phi
        traces = np.einsum("aii->a", each)
        first = traces @ W @ traces
        second = np.sum(W * np.einsum("aij,bji->ab", each, each))
        if second <= 0:
            return np.inf, 1.0
        return _kenward_roger(float(first), float(second), q)


class OfCentred(Inference):
    """Inference of a model whose columns are less what the first has of them.

    What the rows say of columns far from zero, as of years, would be rounding beside what they say
    of a constant.

    Parameters
    ----------
    inside : Inference
        Of the coefficients c of columns ``X T``.
    turn : ndarray of shape (p, p)
        T, so that those of X are ``T c``.
    """

    def __init__(self, inside: Inference, turn: NDArray):
        super().__init__(turn @ inside.mean)
        self._inside, self._turn = inside, turn

    @property
    def covariance(self) -> NDArray:
        return self._turn @ self._inside.covariance @ self._turn.T

    def std_error(self, contrasts: NDArray) -> NDArray:
        return self._inside.std_error(contrasts @ self._turn)

    def df(self, contrasts: NDArray) -> NDArray:
        return self._inside.df(contrasts @ self._turn)

    def of_several(self, apart: NDArray) -> tuple[float, float]:
        """Degrees of freedom of contrasts that are not correlated, and a factor of F."""
        return self._inside.of_several(apart @ self._turn)

    def joint(self, contrasts: NDArray) -> FTest:
        if self.estimable is not None:
            contrasts = self.estimable.part_of(contrasts)
        return self._inside.joint(contrasts @ self._turn)


def _kenward_roger(first: float, second: float, q: int) -> tuple[float, float]:
    """Degrees of freedom and factor of F, of A1 and A2 of the paper."""
    B = (first + 6 * second) / (2 * q)
    g = ((q + 1) * first - (q + 4) * second) / ((q + 2) * second)
    below = 3 * q + 2 * (1 - g)
    c1, c2, c3 = g / below, (q - g) / below, (q + 2 - g) / below
    rest, V1 = 1 - second / q, 1 - c2 * B
    ratio = 1.0 if abs(rest) < 1e-10 and abs(V1) < 1e-10 else rest / V1
    rho = ratio**2 * (1 + c1 * B) / (1 - c3 * B) / q
    df = 4 + (q + 2) / (q * rho - 1)
    scale = 1.0 if abs(df - 2) < 1e-2 else df * rest / (df - 2)
    return df, scale


def _of_root(G: NDArray, bases: NDArray, kind: str, terms: NDArray) -> tuple[NDArray, NDArray]:
    """Slopes of the parameters of a covariance in entries of its root, and second derivatives."""
    k = len(bases)
    slope, bend = np.zeros((k, k)), np.zeros((k, k, k))
    if kind != "full":
        own = np.diag(G)[:k]
        return np.diag(2 * np.sqrt(own)), np.einsum("ab,bc->abc", np.eye(k), 2 * np.eye(k))
    root, (rows, columns) = root_of_terms(G, terms), entries_of_terms(terms)
    for b in range(k):
        moved = np.zeros_like(G)
        moved[rows[b]] = root[:, columns[b]]
        slope[:, b] = (moved + moved.T)[rows, columns]
        for c in range(k):
            if columns[b] == columns[c]:
                both = np.zeros_like(G)
                both[rows[b], rows[c]] = 1.0
                bend[:, b, c] = (both + both.T)[rows, columns]
    return slope, bend


def inference_of(fit: LinearMixedFit, method: Method) -> Inference:
    """Return standard errors and degrees of freedom by a method.

    Parameters
    ----------
    fit : LinearMixedFit
    method : {"satterthwaite", "kenward-roger", "residual", "asymptotic"}
        ``"residual"``: number of rows less that of coefficients; ``"asymptotic"``: infinitely many.

    Raises
    ------
    ValueError
        If the method is none of these; or Kenward and Roger's is asked of a fit by maximum
        likelihood.
    """
    if method == "satterthwaite":
        return OfCentred(_satterthwaite(fit.centred()), fit.centring)
    if method == "kenward-roger":
        if not fit.restricted:
            raise ValueError(
                "ddf='kenward-roger' needs a fit by REML, method='reml'; this one is by maximum "
                "likelihood."
            )
        return OfCentred(KenwardRoger(fit.centred()), fit.centring)
    if method == "residual":
        left = float(fit.n.sum() - fit.basis[0].shape[1])
        return FixedDegrees(fit.mean, fit.mean_covariance, left)
    if method == "asymptotic":
        return FixedDegrees(fit.mean, fit.mean_covariance, np.inf)
    raise ValueError(
        f"ddf must be 'satterthwaite', 'kenward-roger', 'residual' or 'asymptotic'; got {method!r}."
    )
