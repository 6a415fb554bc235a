"""Data simulated for learning: regressions of clients who share most of their coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.datasets.groups import is_integer, number_rows


@dataclass(frozen=True, eq=False)
class AdditiveRegression:
    """Regressions of a population of clients: the truth behind `make_additive_regression`.

    x ~ N(0, diag(lambda)) and y = theta_i' x + N(0, noise^2).

    Parameters
    ----------
    theta : ndarray of shape (n_clients, n_features)
        Coefficients of each client.
    shared : ndarray of shape (n_features,)
        Coefficients that the clients' ones vary around.
    variances : ndarray of shape (n_features,)
        lambda, the variance of each feature.
    noise : float
        Standard deviation of y given x.

    Examples
    --------
    >>> X, y, groups, truth = make_additive_regression(4, 2, 6, random_state=0)
    >>> truth.theta.shape, truth.excess_risk(truth.theta)
    ((4, 6), 0.0)
    >>> X, y, groups = truth.draw(3, clients=[2, 0], random_state=1)
    >>> groups.tolist()
    [2, 2, 2, 0, 0, 0]
    """

    theta: NDArray[np.float64]
    shared: NDArray[np.float64]
    variances: NDArray[np.float64]
    noise: float

    def draw(
        self,
        n_rows: int | ArrayLike,
        *,
        clients: ArrayLike | None = None,
        random_state: Any = None,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Draw fresh rows of all clients or of some, such as those of one round.

        Parameters
        ----------
        n_rows : int or array-like of int of shape (n_drawn,)
            Rows of each client drawn from.
        clients : array-like of int of shape (n_drawn,), optional
            Numbers of the clients to draw rows of; all if None.
        random_state : int, Generator or None
            Seed. One Generator handed to several calls gives fresh rows in each.

        Returns
        -------
        X : ndarray of shape (N, n_features)
            Features, client after client. They take 8 N n_features bytes.
        y : ndarray of shape (N,)
            Responses.
        groups : int ndarray of shape (N,)
            Client of each row.

        Raises
        ------
        ValueError
            If a number of rows is negative, or a client is not among those of `theta`.
        """
        n_clients = len(self.theta)
        chosen = np.arange(n_clients) if clients is None else np.asarray(clients)
        if (
            chosen.ndim != 1
            or not len(chosen)
            or chosen.dtype.kind not in "iu"
            or np.any((chosen < 0) | (chosen >= n_clients))
        ):
            raise ValueError(
                f"clients must be numbers of clients, from 0 to {n_clients - 1}; got {clients!r}."
            )
        groups = chosen[number_rows(len(chosen), n_rows)]
        rng = np.random.default_rng(random_state)
        X = rng.standard_normal((len(groups), self.theta.shape[1]))
        X *= np.sqrt(self.variances)
        # one scratch array of the size of X at most: rows of a client lie together
        y = np.einsum("ij,ij->i", X, self.theta[groups])
        y += self.noise * rng.standard_normal(len(groups))
        return X, y, groups

    def excess_risk(self, coef: ArrayLike) -> float:
        """Average the squared error of prediction that estimated coefficients add to the noise.

        (1/m) sum_i ||coef_i - theta_i||^2_Sigma with ||v||^2_Sigma = sum_k lambda_k v_k^2: the mean
        over clients of E(y - coef_i' x)^2, less noise^2.

        Parameters
        ----------
        coef : array-like of shape (n_features,) or (n_clients, n_features)
            Estimates, one for all clients or one for each: w + theta_i in an additive model.

        Returns
        -------
        float
            Excess risk, 0 for the true coefficients; in squared units of y.

        Raises
        ------
        ValueError
            If `coef` has another shape.

        References
        ----------
        Bietti, Wei, Dudik, Langford, Wu (2022), section 6.

        Examples
        --------
        >>> *_, truth = make_additive_regression(1000, 1, random_state=0)
        >>> round(truth.excess_risk(truth.shared), 7)  # spread^2 (1/96 + ... + 1/100)
        5.1e-06
        """
        coef = np.asarray(coef, dtype=float)
        if coef.shape not in (self.shared.shape, self.theta.shape):
            raise ValueError(
                f"coef must have the shape {self.shared.shape}, or {self.theta.shape} with a row "
                f"for each client; got {coef.shape}."
            )
        return float(((coef - self.theta) ** 2 @ self.variances).mean())


def make_additive_regression(
    n_clients: int = 1000,
    n_rows: int | ArrayLike = 10,
    n_features: int = 100,
    *,
    noise: float = 0.01,
    spread: float = 0.01,
    scale: float = 10.0,
    n_personal: int = 5,
    random_state: Any = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], AdditiveRegression]:
    """Simulate regressions whose last few coefficients vary from client to client.

    theta_0 ~ N(0, scale^2 I); theta_i is theta_0 with N(0, spread^2) added to each of the last
    `n_personal` coefficients; x ~ N(0, diag(1, 1/2, ..., 1/n_features)) and
    y = theta_i' x + N(0, noise^2).

    Parameters
    ----------
    n_clients : int
        Number of clients, m.
    n_rows : int or array-like of int of shape (n_clients,)
        Rows of each client in this draw. For many rows, draw in parts: ``truth.draw`` gives fresh
        rows of the same clients. 1,000 clients with 1,000 rows of 100 features take 800 MB at once.
    n_features : int
        Length d of x.
    noise : float
        Standard deviation of y given x.
    spread : float
        Standard deviation of a personal coefficient among clients.
    scale : float
        Standard deviation of the coefficients shared.
    n_personal : int
        Number of coefficients that vary among clients, the last ones.
    random_state : int, Generator or None
        Seed.

    Returns
    -------
    X : ndarray of shape (N, n_features)
        Features, sorted by client.
    y : ndarray of shape (N,)
        Responses.
    groups : int ndarray of shape (N,)
        Client of each row.
    truth : AdditiveRegression
        The coefficients, with ``draw`` for more rows and ``excess_risk`` for estimates.

    Raises
    ------
    ValueError
        If a number of clients, rows or features is out of range, or a standard deviation is
        negative.

    References
    ----------
    Bietti, Wei, Dudik, Langford, Wu (2022), *Personalization improves privacy-accuracy tradeoffs in
    federated learning*, section 6.

    Examples
    --------
    >>> X, y, groups, truth = make_additive_regression(50, 4, random_state=0)
    >>> X.shape, y.shape, truth.theta.shape
    ((200, 100), (200,), (50, 100))
    >>> bool((truth.theta[:, :95] == truth.shared[:95]).all())
    True
    >>> rng = np.random.default_rng(1)
    >>> rounds = (truth.draw(10, random_state=rng) for _ in range(100))  # 500 rows at a time
    """
    if not is_integer(n_clients) or n_clients < 1:
        raise ValueError(f"n_clients must be a positive integer; got {n_clients!r}.")
    if not is_integer(n_features) or n_features < 1:
        raise ValueError(f"n_features must be a positive integer; got {n_features!r}.")
    if not is_integer(n_personal) or not 0 <= n_personal <= n_features:
        raise ValueError(
            f"n_personal must be an integer from 0 to {n_features}, the number of features; "
            f"got {n_personal!r}."
        )
    for name, deviation in {"noise": noise, "spread": spread, "scale": scale}.items():
        if not 0 <= deviation < np.inf:
            raise ValueError(f"{name} must be finite and not negative; got {deviation!r}.")
    rng = np.random.default_rng(random_state)
    shared = scale * rng.standard_normal(n_features)
    theta = np.tile(shared, (n_clients, 1))
    theta[:, n_features - n_personal :] += spread * rng.standard_normal((n_clients, n_personal))
    truth = AdditiveRegression(theta, shared, 1 / np.arange(1, n_features + 1), float(noise))
    return *truth.draw(n_rows, random_state=rng), truth
