"""What inference needs of a linear mixed model: sums over groups, of matrices as wide as the mean.

Rows of a group are normal with mean ``X beta`` and covariance V. V is linear in its parameters
phi_a: the entries of the covariance of each level of groups, and the variance of the noise. With
``C = [X, y - X beta]``, all that tests and intervals need are, for every pair of parameters,

    log|V|,  N = C' V^-1 C,  t_a = tr(V^-1 V_a),  S_a = C' V^-1 V_a V^-1 C,
    t_ab = tr(V^-1 V_a V^-1 V_b),  Q_ab = C' V^-1 V_a V^-1 V_b V^-1 C,        V_a = dV / d phi_a.

They start from rows that are independent, ``U = phi I``, and take one level of groups after
another. A level with effects ``Z = C J`` of covariance G makes ``V = U + Z G Z'`` of U, and by the
formula of Woodbury, with ``H = J (I + G J' N J)^-1 G J'`` and ``E = I - H N``,

    N -> N E,  S_a -> E' S_a E,  Q_ab -> E' (Q_ab - S_a H S_b) E,
    t_a -> t_a - tr(H S_a),  t_ab -> t_ab - 2 tr(H Q_ab) + tr(H S_a H S_b).

Entries of G itself have ``V_a = C J E_a J' C'``. Matrices of the groups of one parent are then
added up, and the next level begins. No matrix has a row for each row of the data, so that the
cost is one pass over the groups, exact for any number of levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "GroupSums",
    "LinearMixedFit",
    "entries_of_terms",
    "root_of_terms",
    "turned_back",
    "whitening",
]

# Share of a column beyond the first that is rounding.
ROUNDING = 1e-10
# Share of a covariance of coefficients of unit size that is rounding.
LEAST = 1e-13
# Numbers of a block of groups that are computed together.
BLOCK = 2_000_000


@dataclass
class GroupSums:
    """Sums over groups; see the head of this module.

    Attributes
    ----------
    log_det : ndarray of shape (m,)
    inner : ndarray of shape (m, w, w)
        N.
    trace : ndarray of shape (m, k)
    first : ndarray of shape (m, k, w, w)
        S_a.
    pairs : ndarray of shape (m, k, k) or None
        t_ab; None where second derivatives were not asked for.
    second : ndarray of shape (m, k, k, w, w) or None
        Q_ab, of which those with a > b are the transposes.
    """

    log_det: NDArray
    inner: NDArray
    trace: NDArray
    first: NDArray
    pairs: NDArray | None = None
    second: NDArray | None = None

    def parts(self) -> Iterator[tuple[str, NDArray]]:
        """Arrays and their names."""
        for name, value in vars(self).items():
            if value is not None:
                yield name, value

    @classmethod
    def of_rows(cls, C: NDArray, n: NDArray, noise: float, k: int, second: bool) -> GroupSums:
        """Return the sums of rows that are independent; their variance is the last parameter.

        Parameters
        ----------
        C : ndarray of shape (m, r, w)
            Factors of the rows.
        n : ndarray of shape (m,)
            Numbers of rows that they stand for.
        """
        m, w = len(C), C.shape[2]
        inner = C.swapaxes(1, 2) @ C / noise
        trace, first = np.zeros((m, k)), np.zeros((m, k, w, w))
        trace[:, -1], first[:, -1] = n / noise, inner / noise
        sums = cls(n * np.log(noise), inner, trace, first)
        if second:
            sums.pairs, sums.second = np.zeros((m, k, k)), np.zeros((m, k, k, w, w))
            sums.pairs[:, -1, -1], sums.second[:, -1, -1] = n / noise**2, inner / noise**2
        return sums

    def within(self, J: NDArray, G: NDArray, own: Sequence[int], bases: NDArray) -> GroupSums:
        """Return the sums where each group has effects of its own, of covariance G.

        Parameters
        ----------
        J : ndarray of shape (w, q)
            The effects are those of the columns ``C J``.
        G : ndarray of shape (q, q)
        own : sequence of int
            Places of its parameters; those of the levels below follow them.
        bases : ndarray of shape (len(own), q, q)
            Derivatives of G in its parameters.
        """
        if not len(G):
            return self
        below = slice(own[-1] + 1 if len(own) else 0, None)
        inner, S = self.inner, self.first[:, below]
        A = J.T @ inner @ J
        spread = np.eye(len(G)) + G @ A
        H = J @ np.linalg.solve(spread, np.broadcast_to(G, A.shape)) @ J.T
        H = (H + H.swapaxes(1, 2)) / 2
        E = np.eye(len(J)) - H @ inner
        log_det = self.log_det + np.linalg.slogdet(spread)[1]
        inner = inner @ E
        inner = (inner + inner.swapaxes(1, 2)) / 2
        trace, first = self.trace.copy(), self.first.copy()
        trace[:, below] -= np.einsum("mij,mkji->mk", H, S)
        first[:, below] = E.swapaxes(1, 2)[:, None] @ S @ E[:, None]
        NJ, A = inner @ J, J.T @ inner @ J
        for a, base in zip(own, bases, strict=True):
            trace[:, a] = np.einsum("ij,mji->m", base, A)
            first[:, a] = NJ @ base @ NJ.swapaxes(1, 2)
        sums = GroupSums(log_det, inner, trace, first)
        if self.pairs is None or self.second is None:
            return sums
        sums.pairs, sums.second = self.pairs.copy(), self.second.copy()
        for a in range(below.start, trace.shape[1]):
            HS = H @ self.first[:, a]
            for b in range(a, trace.shape[1]):
                Q = self.second[:, a, b]
                moved = self.first[:, b] @ HS  # its transpose is S_a H S_b
                sums.pairs[:, a, b] += np.einsum("mij,mij->m", H, moved - 2 * Q)
                sums.second[:, a, b] = E.swapaxes(1, 2) @ (Q - moved.swapaxes(1, 2)) @ E
        for a, base in zip(own, bases, strict=True):
            left = NJ @ base
            for b, other in zip(own, bases, strict=True):
                between = base @ A @ other
                sums.pairs[:, a, b] = np.einsum("mij,mji->m", between, A)
                sums.second[:, a, b] = NJ @ between @ NJ.swapaxes(1, 2)
            for b in range(below.start, trace.shape[1]):
                moved = J.T @ first[:, b]
                sums.pairs[:, a, b] = np.einsum("ij,mjw,wi->m", base, moved, J)
                sums.second[:, a, b] = left @ moved
        return sums

    def of_columns(self, kept: NDArray) -> GroupSums:
        """Return the sums of some of the columns of C."""
        if len(kept) == self.inner.shape[-1]:
            return self
        square, own = ("inner", "first", "second"), (..., kept[:, None], kept)
        return GroupSums(**{name: x[own] if name in square else x for name, x in self.parts()})

    def added(self, owner: NDArray, out: GroupSums) -> None:
        """Add the sums of groups to those of their owners."""
        order = np.argsort(owner, kind="stable")
        places, starts = np.unique(owner[order], return_index=True)
        for name, value in self.parts():
            getattr(out, name)[places] += np.add.reduceat(value[order], starts, axis=0)

    def zeros(self, m: int) -> GroupSums:
        """Return sums of nothing, for m owners."""
        return GroupSums(**{name: np.zeros((m, *x.shape[1:])) for name, x in self.parts()})


@dataclass(frozen=True)
class LinearMixedFit:
    """A fitted linear mixed model, as inference sees it.

    Attributes
    ----------
    rows : ndarray of shape (n_groups, r, p + 1)
        Factors of ``[X y]`` of the groups of the lowest level.
    n : ndarray of shape (n_groups,)
        Numbers of rows that they stand for.
    owners : list of int64 ndarrays
        From the top: the place of each group of a level in the level above; zeros at the top.
    places : list of int64 ndarrays
        Columns whose coefficients differ between groups, of each level.
    covariances : list of ndarrays of shape (q, q)
        Covariance of these, of each level.
    sizes : list of list of int
        Numbers of these of each term, of each level: covariances have a block for each.
    noise : float
    mean : ndarray of shape (p,)
    kind : {"spherical", "diag", "full"}
    restricted : bool
        Whether the restricted likelihood was maximised.
    fixed : int64 ndarray
        Columns that have a coefficient in the mean, which is zero for the others.
    log_weight : float
        Sum of the logarithms of the weights of rows.
    """

    rows: NDArray
    n: NDArray
    owners: list[NDArray]
    places: list[NDArray]
    covariances: list[NDArray]
    sizes: list[list[int]]
    noise: float
    mean: NDArray
    kind: str
    restricted: bool
    fixed: NDArray
    log_weight: float = 0.0

    # Columns ----------------------------------------------------------------------------------

    @cached_property
    def centring(self) -> NDArray[np.float64]:
        """Return T, shape (p, p), with ``X T`` the columns less what the first has of them.

        That is their mean where the first is constant. A column that varies between groups stays as
        it is where the first does not vary with it, or is not correlated with it.
        """
        X, found = self.rows[:, :, :-1], np.eye(len(self.mean))
        whole = np.einsum("nr,nr->", X[:, :, 0], X[:, :, 0]) if len(found) else 0.0
        if 0 not in self.fixed or whole == 0:
            return found
        free = np.ones(len(found), bool)
        for own, terms in zip(self.places, self.terms, strict=True):
            beside = terms[own == 0] if self.kind == "full" else []
            free[own[~np.isin(terms, beside)]] = False
        free[0] = False
        found[0, free] = -np.einsum("nr,nrp->p", X[:, :, 0], X[:, :, free]) / whole
        return found

    @cached_property
    def of_centred(self) -> list[NDArray]:
        """What takes the coefficients that differ to those of ``X T``, of each level."""
        return [np.linalg.inv(self.centring[np.ix_(own, own)]) for own in self.places]

    def centred(self) -> LinearMixedFit:
        """Return the same model of the columns ``X T``."""
        turn = self.centring
        X, y = self.rows[:, :, :-1], self.rows[:, :, -1:]
        pairs = zip(self.of_centred, self.covariances, strict=True)
        return replace(
            self,
            rows=np.concatenate([X @ turn, y], axis=2),
            covariances=[back @ G @ back.T for back, G in pairs],
            mean=np.linalg.solve(turn, self.mean),
        )

    @cached_property
    def basis(self) -> tuple[NDArray, NDArray]:
        """Directions B of the mean that rows identify, and its pseudo-inverse.

        The columns of ``X B`` are orthogonal, with a mean square of 1.
        """
        size = self.units[self.fixed]
        X = np.concatenate(self.rows[:, :, self.fixed])
        R = np.asarray(np.linalg.qr(X / size, mode="r"))
        apart = _apart(R)
        _, s, Vt = np.linalg.svd(R @ apart, full_matrices=False)
        kept = s > 1e-6 * s.max(initial=0.0)
        s, V = s[kept] / np.sqrt(max(self.n.sum(), 1)), Vt[kept].T
        place = np.eye(len(self.units))[:, self.fixed]
        back = np.linalg.solve(apart.T, V * s).T
        return place @ (apart @ (V / s) / size[:, None]), (back * size) @ place.T

    @cached_property
    def others(self) -> NDArray:
        """What takes all columns to those without a coefficient in the mean, in their units."""
        return np.delete(np.diag(1 / self.units), self.fixed, axis=1)

    @cached_property
    def units(self) -> NDArray[np.float64]:
        """Root mean square of each column of X; 1 if that is zero."""
        X = self.rows[:, :, :-1]
        size = np.sqrt(np.einsum("nrp,nrp->p", X, X) / max(self.n.sum(), 1))
        return np.where(size > 0, size, 1.0)

    @cached_property
    def columns(self) -> NDArray:
        """Factors of ``C = [X B, others, y - X mean]``, shape (n_groups, r, w)."""
        X, y = self.rows[:, :, :-1], self.rows[:, :, -1]
        parts = X @ self.basis[0], X @ self.others, (y - X @ self.mean)[:, :, None]
        return np.concatenate(parts, axis=2)

    @cached_property
    def of_mean(self) -> NDArray[np.int64]:
        """Columns of C that are of the mean and the response."""
        return np.append(np.arange(len(self.basis[1])), self.columns.shape[2] - 1)

    @cached_property
    def maps(self) -> list[NDArray]:
        """J of each level."""
        back = np.vstack([self.basis[1], (self.others.T > 0) * self.units, 0 * self.units])
        return [back[:, each] for each in self.places]

    # Parameters -------------------------------------------------------------------------------

    @cached_property
    def bases(self) -> list[NDArray]:
        """Derivatives of the covariance of each level in its parameters, shape (k, q, q)."""
        return [
            _bases(len(each), self.kind, owner)
            for each, owner in zip(self.places, self.terms, strict=True)
        ]

    @cached_property
    def terms(self) -> list[NDArray[np.int64]]:
        """Term of each of the coefficients that differ, of each level."""
        return [np.repeat(np.arange(len(each)), each) for each in self.sizes]

    @cached_property
    def own(self) -> list[list[int]]:
        """Places of the parameters of each level among all."""
        ends = np.cumsum([0, *map(len, self.bases)])
        return [list(range(a, b)) for a, b in pairwise(ends)]

    @property
    def n_parameters(self) -> int:
        """Number of parameters of V, that of the noise included."""
        return sum(map(len, self.own)) + 1

    # Sums -------------------------------------------------------------------------------------

    def blocks(
        self, covariances: Sequence[NDArray], noise: float, second: bool
    ) -> Iterator[GroupSums]:
        """Sums of the groups of the top level, some groups at a time."""
        C, k, w = self.columns, self.n_parameters, self.columns.shape[2]
        at_once = max(1, BLOCK // (4 * w * w * (1 + k + k * k * second)))
        below: GroupSums | None = None
        for level in reversed(range(len(self.owners))):
            owner, out = self.owners[level], None
            for at in range(0, len(owner), at_once):
                here = slice(at, at + at_once)
                if below is None:
                    sums = GroupSums.of_rows(C[here], self.n[here], noise, k, second)
                else:
                    sums = GroupSums(**{name: x[here] for name, x in below.parts()})
                sums = sums.within(
                    self.maps[level], covariances[level], self.own[level], self.bases[level]
                )
                if not level:
                    yield sums.of_columns(self.of_mean)
                    continue
                if out is None:
                    out = sums.zeros(len(self.owners[level - 1]))
                sums.added(owner[here], out)
            below = out

    def by_group(self, covariances: Sequence[NDArray], noise: float) -> GroupSums:
        """Sums of each group of the top level, without second derivatives."""
        parts = list(self.blocks(covariances, noise, False))
        names = [name for name, _ in parts[0].parts()]
        return GroupSums(**{x: np.concatenate([getattr(p, x) for p in parts]) for x in names})

    def sums(
        self, covariances: Sequence[NDArray], noise: float, *, second: bool = False
    ) -> GroupSums:
        """Sums over all groups; arrays are without their first axis."""
        total: dict[str, NDArray] = {}
        for block in self.blocks(covariances, noise, second):
            for name, x in block.parts():
                total[name] = total.get(name, 0.0) + x.sum(axis=0)
        return GroupSums(**total)

    @cached_property
    def fitted(self) -> GroupSums:
        """Sums over all groups at the parameters of the fit, with second derivatives."""
        return self.sums(self.covariances, self.noise, second=True)

    @cached_property
    def inverse(self) -> NDArray:
        """Sampling covariance of the coefficients of ``X B``, shape (rank, rank)."""
        return np.linalg.inv(self.fitted.inner[:-1, :-1])

    @cached_property
    def mean_covariance(self) -> NDArray:
        """Sampling covariance of the mean, shape (p, p)."""
        B = self.basis[0]
        return B @ self.inverse @ B.T

    def identified(self, contrasts: NDArray) -> NDArray[np.bool_]:
        """Whether rows identify each of these combinations of the mean, shape (n,)."""
        B, back = self.basis
        left = ((contrasts - contrasts @ B @ back) / self.units)[:, self.fixed]
        whole = np.abs(contrasts / self.units).max(axis=1, initial=0.0)
        return np.abs(left).max(axis=1, initial=0.0) <= 1e-6 * whole


def _apart(R: NDArray) -> NDArray[np.float64]:
    """Return what makes of columns what they have beyond the first, in units of its own.

    Where the first is constant, columns far from zero are not taken to be collinear with it.

    Parameters
    ----------
    R : ndarray of shape (r, p)
        Triangle of the columns.

    Examples
    --------
    >>> R = np.linalg.qr(np.array([[1.0, 999.0], [1.0, 1001.0]]), mode="r")
    >>> (np.array([[1.0, 999.0], [1.0, 1001.0]]) @ _apart(R)).round(2).tolist()
    [[1.0, -1000.0], [1.0, 1000.0]]
    """
    found = np.eye(R.shape[1])
    if len(R) < 2 or R[0, 0] == 0:
        return found
    whole, rest = np.linalg.norm(R[:, 1:], axis=0), np.linalg.norm(R[1:, 1:], axis=0)
    far = rest > ROUNDING * whole
    found[0, 1:] = -R[0, 1:] / R[0, 0]
    scale = np.divide(whole, rest, out=np.ones(len(rest)), where=far)
    found[:, 1:] *= scale
    return found


def _bases(q: int, kind: str, owner: NDArray) -> NDArray:
    """Derivatives of a covariance in its parameters; coefficients of several terms are apart."""
    if kind == "spherical":
        return np.eye(q)[None][: min(q, 1)]
    found = []
    for j in range(q):
        for k in np.flatnonzero(owner[: j + 1] == owner[j]) if kind == "full" else [j]:
            base = np.zeros((q, q))
            base[j, k] = 1.0
            found.append(np.maximum(base, base.T))
    return np.array(found).reshape(len(found), q, q)


def entries_of_terms(terms: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the entries of a lower triangle which has a part for each term.

    >>> [each.tolist() for each in entries_of_terms(np.array([0, 1, 1]))]
    [[0, 1, 2, 2], [0, 1, 1, 2]]
    """
    return _entries(tuple(terms.tolist()))


@lru_cache(maxsize=64)  # a search asks at each of its steps
def _entries(terms: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows, columns = np.tril_indices(len(terms))
    same = np.take(terms, rows) == np.take(terms, columns)
    found = rows[same], columns[same]
    for each in found:
        each.setflags(write=False)
    return found


def root_of_terms(matrix: NDArray, terms: NDArray) -> NDArray[np.float64]:
    """Return L, lower triangular, with ``L L'`` the nearest matrix without negative eigenvalues.

    Rows and columns of several terms have no entries in common.

    Examples
    --------
    >>> root_of_terms(np.array([[4.0, 4.0], [4.0, 4.0]]), np.zeros(2)).round(12)
    array([[2., 0.],
           [2., 0.]])
    """
    root = np.zeros_like(matrix)
    for term in np.unique(terms):
        own = np.ix_(terms == term, terms == term)
        values, vectors = np.linalg.eigh(matrix[own])
        upper = np.linalg.qr((vectors * np.sqrt(np.maximum(values, 0.0))).T)[1]
        root[own] = (upper * np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None]).T
    return root


def turned_back(turn: NDArray, covariance: NDArray) -> NDArray[np.float64]:
    """Return the covariance of c, given that of ``turn @ c``.

    Examples
    --------
    >>> turned_back(np.diag([2.0, 1.0]), np.array([[4.0, 2.0], [2.0, 9.0]]))
    array([[1., 1.],
           [1., 9.]])
    """
    return np.linalg.solve(turn, np.linalg.solve(turn, covariance).T)


def whitening(covariance: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return W, shape (rank, p), with ``W C W'`` the unit matrix, and its pseudo-inverse (p, rank).

    Units of the p coefficients do not matter to what is taken for rounding.

    Examples
    --------
    >>> W, back = whitening(np.array([[4.0, 0.0, 8.0], [0.0, 0.0, 0.0], [8.0, 0.0, 16.0]]))
    >>> W.shape, (back @ back.T).round(6).tolist()
    ((1, 3), [[4.0, 0.0, 8.0], [0.0, 0.0, 0.0], [8.0, 0.0, 16.0]])
    """
    sizes = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    known = sizes > 0  # a variance of NaN is not
    scale = np.where(known, sizes, 1.0)
    alike = np.where(np.outer(known, known), covariance / np.outer(scale, scale), 0.0)
    values, vectors = np.linalg.eigh(alike)
    kept = values > LEAST * values.max(initial=0.0)
    roots, V = np.sqrt(values[kept]), vectors[:, kept]
    return (V / roots).T / scale, scale[:, None] * V * roots
