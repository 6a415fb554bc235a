"""Likelihoods of small tables by dense algebra and by quadrature, and their maxima by search.

Nothing here is of the package but the estimates that are to be judged: a fit is at most `NEAR` of
log-likelihood below the best of several searches, which begin at the fit and elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from formulaic import model_matrix
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import betaln, expit, gammaln, log_expit

NEAR = 1e-3
ON_LINK = {"binomial": "logit-normal", "poisson": "log-normal", "negative_binomial": "log-normal"}
# Noise of this share of the rows' spread is none: the likelihood has no maximum.
NO_NOISE = 1e-6


def check(table: Any, fit: Any, caught: list) -> None:
    """Raise an AssertionError if a fit is not at the maximum of its likelihood."""
    if caught:  # it said what has no maximum, or that it did not come to it
        return
    kind = type(fit.estimator_).__name__
    if table.family == "gaussian":
        gaussian(table, fit)
    elif kind in ("BernoulliEB", "PoissonEB"):
        conjugate(table, fit, kind)
    else:
        generalized(table, fit)


def compare(here: float, best: float, what: str = "") -> None:
    assert best - here <= NEAR, f"{best - here:.3g} of log-likelihood lost{what}"


def estimates(fit: Any) -> dict[tuple[str, str], float]:
    """Spreads and other parameters of a fit, by group and term."""
    rows = fit.tidy(effects="ran_pars")
    return dict(zip(zip(rows["group"], rows["term"], strict=True), rows["estimate"], strict=True))


def design(table: Any) -> NDArray[np.float64]:
    """Columns of the formula that do not differ between groups."""
    fixed = table.formula.split("~")[1].split("(", 1)[0]
    terms = [term for term in fixed.split("+") if term.strip() not in ("", "offset")]
    return np.asarray(model_matrix("+".join(terms), table.frame), float)


def basis(X: NDArray) -> NDArray[np.float64]:
    """An orthonormal basis of the space of columns."""
    X = X / np.maximum(np.linalg.norm(X, axis=0), 1e-300)
    left, sizes, _ = np.linalg.svd(X, full_matrices=False)
    return left[:, sizes > 1e-11 * sizes[0]]


# Normal rows -----------------------------------------------------------------------------------


def factors_of(table: Any) -> list[tuple[NDArray, NDArray, tuple[str, ...], bool]]:
    """Levels of rows, columns that differ, terms, and whether they are correlated, by factor."""
    frame, one = table.frame, np.ones(len(table.frame))
    levels = {name: np.unique(frame[name].astype(str), return_inverse=True)[1] for name in "gsh"}
    columns = np.column_stack([one, frame["x"]])
    terms: tuple[str, ...] = ("intercept", "x")
    kept = slice(1, 2) if table.structure == "slopes alone" else slice(2)
    kept = kept if "slopes" in table.structure else slice(1)
    joint = table.structure in ("slopes", "crossed slopes")
    found = [(levels["g"], columns[:, kept], terms[kept], joint)]
    other = {"nested": "s", "crossed": "h", "crossed slopes": "h"}.get(table.structure)
    return found + ([(levels[other], columns[:, :1], terms[:1], False)] if other else [])


class Dense:
    """-2 log-likelihood, restricted, of normal rows as a function of roots of covariances.

    Covariances are relative to the noise, which is at its best.
    """

    def __init__(self, table: Any):
        self.factors = factors_of(table)
        X, y = design(table), table.frame["y"].to_numpy(float)
        weights = table.frame["w"] if "weights" in table.options else np.ones(len(y))
        self.inverse = 1 / np.asarray(weights, float)
        self.Q = basis(X)
        rest = y - self.Q @ (self.Q.T @ y)
        rest = rest - self.Q @ (self.Q.T @ rest)
        self.unit = np.sqrt(np.mean(rest**2)) or 1.0
        self.y = rest / self.unit
        self.sizes = [np.sqrt((columns**2).mean(0)) for _, columns, _, _ in self.factors]
        # of each factor, and each pair of its columns: the products of rows of one level
        self.products = []
        for (codes, columns, _, _), sizes in zip(self.factors, self.sizes, strict=True):
            scaled, alike = columns / sizes, codes[:, None] == codes
            self.products.append(np.einsum("ia,jb,ij->abij", scaled, scaled, alike.astype(float)))

    def of_roots(self, at: NDArray) -> float:
        roots = roots_of(self.factors, at)
        return self([root @ root.T for root in roots])

    def __call__(self, covariances: list[NDArray]) -> float:
        V = np.diag(self.inverse)
        for G, products in zip(covariances, self.products, strict=True):
            V += np.einsum("ab,abij->ij", G, products)
        try:
            L = np.linalg.cholesky(V)
        except np.linalg.LinAlgError:
            return np.inf
        both = solve_triangular(L, np.column_stack([self.Q, self.y]), lower=True)
        Q, R = np.linalg.qr(both[:, :-1])
        rest = both[:, -1] - Q @ (Q.T @ both[:, -1])
        n, p = self.Q.shape
        logs = np.log(np.abs(np.diag(L))).sum() + np.log(np.abs(np.diag(R))).sum()
        return (n - p) * np.log(max(rest @ rest, 1e-300)) + 2 * logs

    def of_fit(self, fit: Any) -> list[NDArray] | None:
        """Covariances of a fit, relative to its noise; None if there is none."""
        found = estimates(fit)
        noise = found["Residual", "sd__Observation"] / self.unit
        if not noise > NO_NOISE:
            return None
        covariances = []
        spreads = {key: value for key, value in found.items() if key[0] != "Residual"}
        names = [name for name in "gsh" if any(key[0] == name for key in spreads)]
        for (_, _, terms, joint), sizes, name in zip(self.factors, self.sizes, names, strict=True):
            if ("g", "sd__mean") in spreads:
                sd = np.array([spreads["g", "sd__mean"]])
            else:
                sd = np.array([spreads[name, f"sd__{term}"] for term in terms])
            sd = sd * sizes / self.unit / noise
            G = np.diag(sd**2)
            if joint:
                cor = np.nan_to_num(spreads[name, "cor__intercept.x"])
                G[0, 1] = G[1, 0] = cor * sd[0] * sd[1]
            covariances.append(G)
        return covariances


def gaussian(table: Any, fit: Any) -> None:
    dense = Dense(table)
    n, p = dense.Q.shape
    start = dense.of_fit(fit)
    if start is None or n - p < 2 or not dense.y.any():
        return
    here = dense(start)
    k = sum(len(sizes) for sizes in dense.sizes)
    joint = any(factor[3] for factor in dense.factors)
    if k == 1:
        grid = np.arange(-7, 8, 0.5)
        values = [dense.of_roots(np.array([each])) for each in grid]
        starts = [grid[[np.argmin(values)]]]
        values = [*values, dense([np.zeros((1, 1))])]
    else:
        starts = [np.full(k, each) for each in (-2.0, 0.5)]
        starts += [np.where(np.arange(k) == j, 1.0, -4.0) for j in range(k)]
        values = [dense([np.zeros((len(each), len(each))) for each in dense.sizes])]
        starts = [np.append(each, 0.0) for each in starts] if joint else starts
    options = {"xatol": 1e-3, "fatol": 1e-5, "maxfev": 400}
    for each in starts:
        found = minimize(dense.of_roots, each, method="Nelder-Mead", options=options)
        values.append(found.fun)
    compare(-here / 2, -min(values) / 2)


# Conjugate populations ---------------------------------------------------------------------------


def conjugate(table: Any, fit: Any, kind: str) -> None:
    """Rates that are beta, and counts whose rates are gamma."""
    if fit.estimator_.get_params()["prior"] not in ("beta", "gamma"):
        return
    frame, found = table.frame, estimates(fit)
    one = pd.Series(1.0, frame.index)
    weights = frame["w"] if "weights" in table.options else one
    size = frame.get("n", one) if kind == "BernoulliEB" else np.exp(frame.get("le", 0 * one))
    codes = frame["g"].astype(str)
    y, n = (np.asarray((each * weights).groupby(codes).sum(), float) for each in (frame["y"], size))
    if not y.sum() > 0 or (kind == "BernoulliEB" and y.sum() == n.sum()):
        return
    mean = float(fit.tidy(effects="fixed")["estimate"].iloc[0])

    def beta(mean: float, total: float) -> float:
        a, b = mean * total, (1 - mean) * total
        if not total < 1e9:
            return float(y.sum() * np.log(mean) + (n - y).sum() * np.log1p(-mean))
        return float((betaln(a + y, b + n - y) - betaln(a, b)).sum())

    def gamma(mean: float, shape: float) -> float:
        if not shape < 1e9:
            return float(y.sum() * np.log(mean) - mean * n.sum())
        rate = shape / mean
        return float(
            (gammaln(shape + y) - gammaln(shape)).sum()
            + len(y) * shape * np.log(rate) - (shape + y) @ np.log(rate + n)
        )  # fmt: skip

    if kind == "BernoulliEB":
        total = found["g", "alpha"] + found["g", "beta"] if ("g", "alpha") in found else np.inf
        here, start = beta(mean, total), np.log(y.sum() / (n.sum() - y.sum()))
    else:
        here, start = gamma(mean, found.get(("g", "shape"), np.inf)), np.log(y.sum() / n.sum())

    def loss(at: NDArray) -> float:
        if kind == "BernoulliEB":
            return -beta(expit(at[0]), np.exp(max(at[1], -14.0)))
        return -gamma(np.exp(at[0]), np.exp(max(at[1], -14.0)))

    best = max(-minimize(loss, [start, each], method="Nelder-Mead").fun for each in (-2, 1, 12))
    compare(here, best)


# Other rows whose intercept differs between groups ---------------------------------------------


def densities(table: Any) -> tuple[Callable[..., NDArray], int]:
    """Log-density of rows by their linear predictor and shapes, and how many shapes there are.

    The predictor has a column for each node of a quadrature. Constants are left out.
    """
    frame = table.frame
    w = np.asarray(frame["w"] if "weights" in table.options else np.ones(len(frame)), float)[
        :, None
    ]
    y = frame["y"].to_numpy(float)[:, None]
    if table.family == "binomial":
        n = frame["n"].to_numpy(float)[:, None] if "n" in frame else 1.0
        return lambda z: w * (y * log_expit(z) + (n - y) * log_expit(-z)), 0
    if table.family == "poisson":
        return lambda z: w * (y * z - np.exp(z)), 0
    if table.family == "negative_binomial":

        def counts(z: NDArray, log_size: float) -> NDArray:
            # differences of the gamma function that keep their digits where the size is large
            size, j = np.exp(log_size), np.arange(min(float(y.max()), 1e3))
            rise = np.where(j < y, np.log1p(j / size), 0.0).sum(1, keepdims=True)
            of_many = gammaln(y + size) - gammaln(size) - y * log_size
            rise = np.where(y > 1e3, of_many, rise)
            return w * (rise + y * z - (y + size) * np.log1p(np.exp(z - log_size)))

        return counts, 1
    if table.family == "gamma":

        def positive(z: NDArray, log_shape: float) -> NDArray:
            shape = np.exp(log_shape)
            return w * (
                shape * log_shape
                - gammaln(shape)
                + (shape - 1) * np.log(y)
                - shape * (z + y * np.exp(-z))
            )

        return positive, 1
    k = int(y.max())

    def ordered(z: NDArray, *gaps: float) -> NDArray:
        # thresholds above the first, which the intercept stands for
        cuts = np.concatenate([[-np.inf, 0.0], np.cumsum(np.exp(gaps)), [np.inf]])
        place = y[:, 0].astype(int)
        high, low = cuts[place][:, None] - z, cuts[place - 1][:, None] - z
        # differences of the logistic function that keep their digits
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            inner = np.log(-np.expm1(np.minimum(low - high, -1e-300)))
        return log_expit(high) + log_expit(-low) + np.where(np.isfinite(low - high), inner, 0.0)

    return ordered, k - 2


class Quadrature:
    """Log-likelihood of rows with one normal coefficient in groups, by a grid that is refined."""

    def __init__(self, table: Any):
        self.density, self.n_shapes = densities(table)
        ((codes, column, _, _),) = self.factors = factors_of(table)
        self.sizes = [np.sqrt((column**2).mean(0))]
        self.column, self.n_spreads = column / self.sizes[0], 1
        self.sums = (codes == np.arange(codes.max() + 1)[:, None]).astype(float)
        self.codes, self.Q = codes, basis(design(table))
        self.offset = table.frame["le"].to_numpy() if "offset(le)" in table.formula else 0.0

    def __call__(self, at: NDArray) -> float:
        """Return it at coefficients of the basis, the spread's logarithm, and shapes."""
        p = self.Q.shape[1]
        sd = np.exp(min(float(at[p]), 6.0))
        with np.errstate(all="ignore"):
            found = self.marginal(self.Q @ at[:p] + self.offset, sd, at[p + 1 :])
        return found if np.isfinite(found) else -1e300

    def marginal(self, z: NDArray, sd: float, shapes: NDArray) -> float:
        k, steps = len(self.sums), np.linspace(0, 1, 97)  # 49 miss .005 of a cliff
        low, high = np.full(k, -14.0), np.full(k, 14.0)
        for _ in range(4):
            u = low[:, None] + (high - low)[:, None] * steps
            rows = self.density(z[:, None] + sd * self.column * u[self.codes], *shapes)
            total = self.sums @ rows - u**2 / 2
            near = total > total.max(1, keepdims=True) - 40
            first, last = near.argmax(1), 96 - near[:, ::-1].argmax(1)
            where = np.arange(k)
            width = u[:, 1] - u[:, 0]
            integral = total.max(1) + np.log(
                np.exp(total - total.max(1, keepdims=True)).sum(1) * width
            )
            low, high = u[where, np.maximum(first - 1, 0)], u[where, np.minimum(last + 1, 96)]
        return float(integral.sum() - k * np.log(2 * np.pi) / 2)


class Laplace:
    """Log-likelihood of rows with any normal effects, by Laplace's approximation."""

    def __init__(self, table: Any):
        self.density, self.n_shapes = densities(table)
        self.factors = factors_of(table)
        self.Q = basis(design(table))
        self.offset = table.frame["le"].to_numpy() if "offset(le)" in table.formula else 0.0
        self.sizes = [np.sqrt((columns**2).mean(0)) for _, columns, _, _ in self.factors]
        self.n_spreads = sum(
            len(sizes) + joint
            for sizes, (_, _, _, joint) in zip(self.sizes, self.factors, strict=True)
        )
        n_effects = sum(
            (codes.max() + 1) * columns.shape[1] for codes, columns, _, _ in self.factors
        )
        self.mode = np.zeros(n_effects)

    def columns(self, roots: list[NDArray]) -> NDArray:
        """Columns of effects of unit variance, those of a level beside each other."""
        found = []
        for (codes, columns, _, _), sizes, root in zip(
            self.factors, self.sizes, roots, strict=True
        ):
            own = np.zeros((len(codes), codes.max() + 1, len(sizes)))
            own[np.arange(len(codes)), codes] = columns / sizes @ root
            found.append(own.reshape(len(codes), -1))
        return np.hstack(found)

    def __call__(self, at: NDArray) -> float:
        """Return it at coefficients of the basis, free numbers of roots, and shapes."""
        p, q = self.Q.shape[1], self.n_spreads
        roots = roots_of(self.factors, at[p : p + q])
        with np.errstate(all="ignore"):
            found = self.marginal(self.Q @ at[:p] + self.offset, roots, at[p + q :])
        return found if np.isfinite(found) else -1e300

    def bends(self, z: NDArray, shapes: NDArray, step: float = 1e-2) -> list[NDArray]:
        """Log-densities of rows, their slopes, and how far these fall.

        With this step both rounding and what is left out are 1e-5 of these, of counts of 1e6 too.
        """
        low, here, high = self.density(z[:, None] + step * np.array([-1, 0, 1]), *shapes).T
        return [here, (high - low) / (2 * step), (2 * here - low - high) / step**2]

    def marginal(self, z: NDArray, roots: list[NDArray], shapes: NDArray) -> float:
        Z, u = self.columns(roots), self.mode
        for start in (self.mode, np.zeros_like(self.mode)):
            u = self.climb(z, Z, start, shapes)
            if np.isfinite(u).all():
                break
        else:
            return -np.inf
        self.mode = u
        values, _, bend = self.bends(z + Z @ u, shapes)
        H = np.eye(len(u)) + Z.T * bend @ Z
        return float(values.sum() - u @ u / 2 - np.linalg.slogdet(H)[1] / 2)

    def climb(self, z: NDArray, Z: NDArray, u: NDArray, shapes: NDArray) -> NDArray:
        """Climb to the mode of the effects by Newton's steps."""
        values, slope, bend = self.bends(z + Z @ u, shapes)
        height = values.sum() - u @ u / 2
        if not np.isfinite(height):
            return np.full_like(u, np.nan)
        for _ in range(100):
            up = Z.T @ slope - u
            H = np.eye(len(u)) + Z.T * np.maximum(bend, 0) @ Z
            step = np.linalg.lstsq(H, up)[0]
            for _ in range(40):
                values, slope, bend = self.bends(z + Z @ (u + step), shapes)
                tried = values.sum() - (u + step) @ (u + step) / 2
                if tried >= height - 1e-12 * abs(height):
                    break
                step = step / 2
            else:
                return u
            u, height = u + step, tried
            if step @ up < 1e-10:
                return u
        return u


def roots_of(factors: list, at: NDArray) -> list[NDArray]:
    """Lower roots of the covariances of factors, from free numbers."""
    found, place = [], 0
    for _, columns, _, joint in factors:
        k = columns.shape[1]
        root = np.diag(np.exp(np.clip(at[place : place + k], -14, 14)))
        place += k
        if joint:
            root[1, 0] = at[place]
            place += 1
        found.append(root)
    return found


def spreads_of(found: dict[tuple[str, str], float], factors: list, sizes: list) -> list[float]:
    """Free numbers of the roots of a fit's covariances."""
    numbers: list[float] = []
    names = [name for name in "gsh" if any(key[0] == name for key in found)]
    for (_, _, terms, joint), size, name in zip(factors, sizes, names, strict=True):
        sd = np.array([found[name, f"sd__{term}"] for term in terms]) * size
        cor = np.nan_to_num(found[name, "cor__intercept.x"]) if joint else 0.0
        rest = np.sqrt(max(1 - cor**2, 1e-12)) if joint else 1.0
        numbers += list(np.log(np.maximum(sd * np.r_[np.ones(len(sd) - 1), rest], 1e-5)))
        numbers += [cor * sd[1]] if joint else []
    return numbers


def generalized(table: Any, fit: Any) -> None:
    factors = factors_of(table)
    if len(factors) == 1 and len(factors[0][2]) > 1:
        return  # quadrature in two dimensions takes long, or has too few digits
    likelihood = Quadrature(table) if len(factors) == 1 else Laplace(table)
    Q, found = likelihood.Q, estimates(fit)
    fixed = np.nan_to_num(fit.tidy(effects="fixed")["estimate"].to_numpy())
    shapes: list[float] = []
    if table.family == "negative_binomial":
        shapes = [-np.log(max(found["Residual", "dispersion"], 1e-9))]
    elif table.family == "gamma":
        shapes = [np.log(found["Residual", "shape"])]
    elif table.family == "ordinal":
        cuts = [found["Residual", f"{j}|{j + 1}"] for j in range(1, likelihood.n_shapes + 2)]
        shapes = list(np.log(np.diff(cuts)))
    start = np.concatenate(
        [Q.T @ (design(table) @ fixed), spreads_of(found, factors, likelihood.sizes), shapes]
    )
    here = likelihood(start)
    spreads = np.full(likelihood.n_spreads, 0.0)
    middle = np.concatenate([Q.T @ np.full(len(Q), centre(table)), spreads, 0 * np.array(shapes)])
    best = here
    with np.errstate(all="ignore"):  # of searches that go astray
        for each in (start, middle):
            options = {"maxiter": 60}
            again = minimize(lambda at: -likelihood(at), each, method="BFGS", options=options)
            best = max(best, -again.fun)
    compare(here, best)


def centre(table: Any) -> float:
    y = table.frame["y"].to_numpy(float)
    if table.family in ("binomial", "ordinal"):
        return 0.0
    return float(np.log(y.mean() + 0.1))
