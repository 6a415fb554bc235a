"""The linear mixed model, fitted by sums over clients instead of their factors.

All that `Problem` needs at a root of T are sums over clients: of ``log|V_i|``, of products of the
whitened columns W_i of ``[X_i y_i]``, and of products of ``G_i = Z~_i' W_i`` and of
``A_i = Z~_i' Z~_i``, by which criterion, slope and curvature are known. A server that minimises the
criterion so asks clients about one root after another.

Each answer ends an exchange. The search is written as if there were none: `search` repeats it from
the start with the answers so far, and ends at the first question that has none. It draws nothing,
so that it comes to the same questions again.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.sums import add_up, sums_of
from ebfed.kernels.threads import one_thread
from ebfed.priors.identification import IdentificationWarning
from ebfed.priors.search import Unanswered
from ebfed.regression.numerics.mixed_model import (
    FLAT,
    SECOND_ROOT,
    Covariance,
    Fit,
    Problem,
    Profile,
    means_of,
)
from ebfed.regression.numerics.roots import best_size, sizes_near

__all__ = ["Answer", "Question", "answer", "search", "shapes_of"]

# Numbers in an array of figures of clients that are computed together.
BLOCK = 10**6
# The same as `Problem.enough` where sums have few digits, and slopes lead no further.
FEW_LEFT = 1e-3, 0.1

NO_DIGITS = (
    "Groups explain their rows all but without noise: sums over groups have too few digits for the "
    "variances, which are not right. share='groups' has the digits."
)

Answer = dict[str, NDArray[np.float64]]


class Question(TypedDict):
    """What a server asks about.

    Attributes
    ----------
    about : str
        Products of columns; squares of centred columns; figures at roots of T, or the squares of
        residuals there.
    covariance : str
    centre, units, own_units, flat, centred : ndarrays
        Centres and units of columns of ``[X y]`` and of those that vary, which are constant, and
        which of those that vary are centred; empty until they are known.
    roots : ndarray of shape (k, q, q)
    beta : ndarray of shape (p,)
        Coefficients of residuals.
    """

    about: Literal["products", "squares", "roots", "residuals"]
    covariance: Covariance
    varying: NDArray[np.int64]
    centre: NDArray[np.float64]
    flat: NDArray[np.bool_]
    centred: NDArray[np.bool_]
    units: NDArray[np.float64]
    own_units: NDArray[np.float64]
    roots: NDArray[np.float64]
    beta: NDArray[np.float64]


# Clients --------------------------------------------------------------------------------------


def answer(rows: NDArray, question: Question) -> Answer:
    """Return exact sums over clients, each of shape (k, size); see `ebfed.engines.sums`.

    Parameters
    ----------
    rows : ndarray of shape (n_clients, r, p + 1)
        Factors of ``[X_i y_i]``.
    question : dict
    """
    q, width = len(question["varying"]), rows.shape[2]
    each = width**2 * (1 + len(_pairs(question))) + rows.shape[1] * (width + rows.shape[1])
    at_once = max(1, BLOCK // max(each + q**4, 1))
    blocks = [rows[first : first + at_once] for first in range(0, max(len(rows), 1), at_once)]
    with one_thread():
        found = [sums_of(_figures(block, question)) for block in blocks]
    return {name: add_up(np.vstack([each[name] for each in found])) for name in found[0]}


def shapes_of(question: Question, width: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the sums that answer a question."""
    q, k = len(question["varying"]), len(question["roots"])
    if question["about"] == "products":
        return {"products": (width, width)}
    if question["about"] == "squares":
        return {"whole": (width,), "squares": (width,), "own": (q,)}
    if question["about"] == "residuals":
        return {"residuals": ()}
    shapes: dict[str, tuple[int, ...]] = {
        "log_det": (k,),
        "products": (k, width, width),
        "crossed": (k, len(_pairs(question)), width, width),
        "inner": (k, q, q),
    }
    return shapes | ({"outer": (k, q * q, q * q)} if question["covariance"] == "full" else {})


def _pairs(question: Question) -> list[tuple[int, int]]:
    """Pairs of columns that vary, of which products are needed: all for any T."""
    q = len(question["varying"])
    if question["about"] != "roots":
        return []
    if question["covariance"] == "full":
        return [(j, k) for j in range(q) for k in range(j + 1)]
    return [(j, j) for j in range(q)]


def _figures(rows: NDArray, question: Question) -> Answer:
    """Return figures of each client, of which an answer is the sums."""
    if question["about"] == "products":
        return {"products": rows.swapaxes(1, 2) @ rows}
    varying, centre, flat = question["varying"], question["centre"], question["flat"]
    moved, centred = rows - rows[:, :, :1] * centre if centre.any() else rows, question["centred"]
    own = np.where(centred, moved[:, :, varying], rows[:, :, varying])
    if question["about"] == "squares":
        columns = {"whole": rows, "squares": moved, "own": own}
        return {name: (each**2).sum(axis=1) for name, each in columns.items()}
    X = np.where(flat, 0.0, moved) / question["units"]
    Z = np.where(centred & flat[varying], 0.0, own) / question["own_units"]
    found = [_whitened(X, Z, root) for root in question["roots"]]
    if question["about"] == "residuals":
        residual = found[0][1] @ np.append(-question["beta"], 1.0)
        return {"residuals": (residual**2).sum(axis=1)}
    parts: dict[str, list[NDArray]] = {name: [] for name in shapes_of(question, rows.shape[2])}
    for log_det, white, effects in found:
        across = effects.swapaxes(1, 2) @ white
        inner = effects.swapaxes(1, 2) @ effects
        parts["log_det"].append(log_det)
        parts["products"].append(white.swapaxes(1, 2) @ white)
        first, second = np.array(_pairs(question), np.int64).reshape(-1, 2).T
        parts["crossed"].append(across[:, first, :, None] * across[:, second, None, :])
        parts["inner"].append(inner**2)
        if "outer" in parts:
            flat_inner = inner.reshape(len(inner), -1)
            parts["outer"].append(flat_inner[:, :, None] * flat_inner[:, None, :])
    return {name: np.stack(values, axis=1) for name, values in parts.items()}


def _whitened(X: NDArray, Z: NDArray, root: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Log-determinant of each V_i, shape (n,), and rows and effects times its inverse root."""
    spread = Z @ root
    V = spread @ spread.swapaxes(1, 2)
    V[:, np.arange(X.shape[1]), np.arange(X.shape[1])] += 1.0
    chol = np.linalg.cholesky(V)
    log_det = 2 * np.log(np.diagonal(chol, axis1=1, axis2=2)).sum(axis=1)
    return log_det, np.linalg.solve(chol, X), np.linalg.solve(chol, Z)


# Server ---------------------------------------------------------------------------------------


def search(
    answers: Sequence[tuple[Question, Answer]],
    size: tuple[int, int],
    n_rows: int,
    varying: NDArray,
    *,
    covariance: Covariance,
    method: str,
    intercept: bool,
    fixed: NDArray | None = None,
    sizes: Sequence[int] | None = None,
) -> Fit | Question:
    """Fit the model, or return the next question.

    Parameters
    ----------
    answers : sequence of pairs
        Questions so far, each with the sums over all clients.
    size : tuple
        Number of clients, and of columns of ``[X y]``.
    n_rows, varying, covariance, method, intercept, fixed, sizes
        As in `fit_mixed_model`.
    """
    replies = _Replies(answers, size, varying, covariance)
    try:
        with warnings.catch_warnings(record=True) as caught, one_thread():
            warnings.simplefilter("always")
            given, terms = (
                (covariance, method, intercept),
                [len(varying)] if sizes is None else sizes,
            )
            problem = _SumsProblem(replies, n_rows, varying, *given, [terms], fixed)
            lost = problem.confounded()
            if lost.any():
                replies = _Replies(answers, size, varying[~lost], covariance)
                left = np.add.reduceat(~lost, np.cumsum([0, *terms[:-1]])).tolist()
                problem = _SumsProblem(replies, n_rows, varying[~lost], *given, [left], fixed)
            fit = replace(problem.fit(), confounded=lost)
    except Unanswered as open_:
        return open_.question
    for each in caught:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return fit


class _Replies:
    """Answers so far, by question."""

    def __init__(
        self,
        answers: Sequence[tuple[Question, Answer]],
        size: tuple[int, int],
        varying: NDArray,
        covariance: Covariance,
    ):
        self.size = size
        self._known: dict[tuple, Answer] = {}
        for question, sums in answers:
            if question["about"] != "roots":
                self._known[self._key(question, 0)] = sums
                continue
            for k in range(len(question["roots"])):
                self._known[self._key(question, k)] = {name: x[k] for name, x in sums.items()}
        width, q = size[1], len(varying)
        self.question: Question = {
            "about": "products",
            "covariance": covariance,
            "varying": varying,
            "centre": np.zeros(width),
            "flat": np.zeros(width, bool),
            "centred": np.zeros(q, bool),
            "units": np.ones(width),
            "own_units": np.ones(q),
            "roots": np.zeros((0, q, q)),
            "beta": np.zeros(0),
        }

    @staticmethod
    def _key(question: Question, k: int) -> tuple:
        root = question["roots"][k].tobytes() if len(question["roots"]) else b""
        own = question["varying"].tobytes()
        return question["about"], own, root, question["beta"].tobytes()

    def of(self, about: Any, **parts: Any) -> Answer:
        """Return the answer to a question; raise `Unanswered` if there is none yet."""
        question: Any = self.question | {"about": about} | parts
        if (known := self._known.get(self._key(question, 0))) is None:
            raise Unanswered(question)
        return known

    def at(self, root: NDArray, others: Sequence[NDArray] = ()) -> Answer:
        """Return figures at a root, asking about others at the same time."""
        for each in (root, *others):
            try:
                self.of("roots", roots=each[None])
            except Unanswered:
                raise Unanswered(
                    {**self.question, "about": "roots", "roots": np.array([root, *others])}
                ) from None
        return self.of("roots", roots=root[None])


class _SumsProblem(Problem):
    """The criterion, from clients' sums."""

    replies: _Replies

    def size_of(self, rows: _Replies) -> tuple[int, int]:  # type: ignore[override]
        return rows.size

    def measure(self, rows: _Replies, intercept: bool) -> None:  # type: ignore[override]
        """Choose centres and units of columns."""
        self.replies = rows
        products = rows.of("products")["products"]
        if intercept:
            self.centre[1:] = means_of(products[0])
        rows.question = {**rows.question, "centre": self.centre, "centred": self.centred}
        found = rows.of("squares")
        squares, flat = found["squares"], rows.question["flat"]
        if intercept:
            flat = self.sizes(squares) < FLAT * self.sizes(found["whole"])
        own = np.where(self.centred & flat[self.varying], 0.0, found["own"])
        self.units = self.sizes(np.where(flat, 0.0, squares))
        self.own_units = self.own(self.sizes(own))
        known = {"flat": flat, "units": self.units, "own_units": self.own_units}
        rows.question = {**rows.question, **known}  # type: ignore[typeddict-item]

    def begin(self) -> NDArray:
        """Products of the columns."""
        q = len(self.varying)
        return self.replies.at(np.zeros((q, q)), [SECOND_ROOT * np.eye(q)])["products"]

    def without_noise(self, root: NDArray) -> None:
        """Say that sums have too few digits where the noise is far below the spread."""
        warnings.warn(NO_DIGITS, IdentificationWarning, stacklevel=2)

    def weigh(self, root: NDArray) -> tuple[float, NDArray]:
        """Sum of ``log|V_i|``, and products of the whitened columns."""
        self.root, self.found = root, self.replies.at(root)
        return float(self.found["log_det"]), self.found["products"]

    def squares_left(self, beta: NDArray) -> float:
        return float(self.replies.of("residuals", roots=self.root[None], beta=beta)["residuals"])

    def slope(self, profile: Profile) -> NDArray:
        away = np.append(-profile.beta, 1.0)
        weights = self.dof / profile.quadratic * np.outer(away, away)
        if self.restricted:
            weights[:-1, :-1] += profile.half.T @ profile.half
        scores = np.einsum("awv,wv->a", self.found["crossed"], weights)
        slope, q = self.map.T @ profile.products @ self.map, len(self.varying)
        if len(scores) == q:
            return slope - np.diag(scores)
        lower = np.zeros((q, q))
        lower[np.tril_indices(q)] = scores
        return slope - lower - np.tril(lower, -1).T

    def confounded(self) -> NDArray[np.bool_]:
        """Whether effects of columns that vary are fixed too; see `ebfed.regression.levels`."""
        lost = np.zeros(len(self.varying), bool)
        if self.n_clients > self.rank or not self.noisy:
            return lost
        profile = self.whiten(np.zeros((len(lost), len(lost))))
        whole = np.diag(self.map.T @ profile.products @ self.map)
        full = self.covariance == "full"  # of pairs of columns, those of one with itself
        own = [j * (j + 3) // 2 if full else j for j in range(len(lost))]
        crossed = self.found["crossed"][own][:, :-1, :-1]
        left = whole - np.einsum("jpq,kp,kq->j", crossed, profile.half, profile.half)
        lost = left <= 1e-9 * whole
        return np.full(len(lost), lost.all()) if self.covariance == "spherical" else lost

    def whole_curvature(self) -> NDArray:
        """Expected curvature of the criterion in all entries of T, from products of entries."""
        q = len(self.varying)
        shared = (self.map.T @ self.found["products"] @ self.map).ravel()
        whole = self.found["outer"].reshape([q] * 4).transpose(0, 3, 1, 2).reshape(q * q, q * q)
        return whole - np.outer(shared, shared) / self.n_rows

    def curvature(self) -> NDArray:
        shared = np.diag(self.map.T @ self.found["products"] @ self.map)
        return self.found["inner"] - np.outer(shared, shared) / self.n_rows

    def enough(self) -> tuple[float, float]:
        assert self.last is not None
        return FEW_LEFT if self.last[1].has_few_digits else super().enough()

    def near(self, first: NDArray) -> NDArray:
        """Return a better diagonal of the root, of several that are asked about together."""
        if self.covariance == "spherical":
            logs, q = sizes_near(first), len(first)
            trials = [np.exp(log) * np.eye(q) for log in logs]
            self.replies.at(trials[0], trials[1:])
            return best_size(lambda root: self.value(self.whiten(root)), logs, q)
        trials = [np.diag(each) for each in self.tried(first)]
        self.replies.at(trials[0], trials[1:])
        return super().near(first)
