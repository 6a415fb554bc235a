"""Federated point estimation where clients may opt out of privacy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal

from numpy.typing import NDArray

from ebfed.channels import Channel
from ebfed.engines import Engine
from ebfed.families import Gaussian
from ebfed.location.base import LocationEstimator
from ebfed.location.learned import known_noise
from ebfed.location.opt_out_rounds import OptOutRounds
from ebfed.priors import Normal
from ebfed.report.view import LocationView

__all__ = ["OptOutMean"]


@dataclass(eq=False, repr=False)
class OptOutMean(LocationEstimator):
    """A global mean and personal ones, from clients that send noisy means and clients that do not.

    Private clients send their mean with noise. Clients that opted out of privacy send it exactly.

    Client j's own mean is ``phi_j^ ~ N(phi_j, alpha2)`` with ``phi_j ~ N(phi, tau2)``. It sends
    ``psi_j = phi_j^`` if it opted out, and ``psi_j = phi_j^ + N(0, N_p gamma2)`` if it is one of
    the N_p private clients, so that the average over private clients carries noise of variance
    gamma2. The server averages with weight 1 for those that opted out and r for the private,

        theta = (sum_np psi_j + r sum_p psi_j) / (N_np + r N_p),
        r* = (alpha2 + tau2) / (alpha2 + tau2 + N_p gamma2),

    where r* weights each mean by its precision: theta is then that of `GaussianEB` with a channel
    for each class. Each client then
    computes its own estimate, between its own mean and theta, by the rule of Ditto (Li, Hu, Beirami
    and Smith, 2021),

        phi_j~ = (phi_j^ + lambda_j theta) / (1 + lambda_j).

    ``fit(X, groups=…, consent=…)`` takes the choice of each client, ``"private"`` or ``"open"``.
    Without it, all clients are private. There may be several levels of privacy, each with its name:
    ``OptOutMean(epsilon={"strict": 0.5, "lax": 4.0}, …)``. Then clients choose one of these or
    ``"open"``, N_p is the number of clients of a level, and each level has a weight r of its own,
    by the same formula.

    Parameters
    ----------
    tau2, alpha2 : float, optional
        Variance of the population, and of a client's own mean (on average over clients: a client
        with more rows has a smaller one). Estimated if None; with ``trust="server"``, from the
        clients that opted out alone.
    gamma2 : float or dict, optional
        Variance of the noise on the average of the private clients; a dict: of each level. Without
        a `range`, means are not clipped, so there is no guarantee.
    epsilon : float or dict, optional
        Privacy, instead of `gamma2`; a dict: of each level. The noise is computed from it, `delta`
        and `range`.
    delta : float, optional
    range : (low, high), optional
        Range to which the means of private clients are clipped.
    ratio : "optimal", "fedavg" or float
        Weight r of a private client; ``"fedavg"`` is 1.
    personalize : {"bayes", "ditto", "paper"}
        How lambda is chosen. ``"bayes"``: theta contains noise that the client added itself. The
        client knows this noise and subtracts it, and then uses the optimal lambda. ``"ditto"``: the
        client does not subtract it, and uses the lambda that is optimal without the subtraction.
        ``"paper"``: the lambda of Lemma 3, one for each class. It ignores the client's own noise in
        theta and is not optimal.
    trust : {"server", "none"}
        ``"server"``: `epsilon` protects against everybody who sees theta, also other clients. The
        server sees each noisy mean and must be trusted, and private clients must not work together.
        Clients of a level hide in the noise of that level alone.
        ``"none"``: `epsilon` protects against the server too, and the variance `gamma2` is about
        N_p times as large.
    engine : Engine, optional
    random_state : int, Generator or None
        Seed of the noise.

    Attributes
    ----------
    global_ : ndarray of shape (d,)
        theta.
    server_variance_ : ndarray of shape (d,)
        Variance of theta around phi.
    ratio_ : ndarray of shape (d,), or (n_levels, d)
        Weight r, of each level if there are several; for unequal numbers of rows, mean weight of
        private clients over that of the others.
    lambda_ : ndarray of shape (n_groups, d)
    tau2_, alpha2_ : ndarray of shape (d,)
        Variances, given or estimated.
    gamma2_ : ndarray of shape (d,), or (n_levels, d)
    prior_, summaries_, groups_, notes_, privacy_ :
        See `LocationEstimator`.

    References
    ----------
    Aldaghri, Mahdavifar and Beirami (2021), FeO2: Federated learning with opt-out differential
    privacy, section 4 (Lemmas 1 and 3) and appendix.

    Examples
    --------
    Five clients, of which one opted out:

    >>> est = OptOutMean(tau2=0.01, alpha2=1, gamma2=1, random_state=0)
    >>> choice = ["private", "private", "private", "private", "open"]
    >>> est = est.fit([0.3, -1.1, 0.4, 1.2, 0.7], consent=choice)
    >>> est.ratio_.round(4), est.server_variance_.round(3)
    (array([0.2016]), array([0.559]))
    >>> est.lambda_.ravel().round(3)
    array([  2.191,   2.191,   2.191,   2.191, 100.   ])
    """

    tau2: float | None = None
    alpha2: float | None = None
    gamma2: float | Mapping[str, float] | None = None
    _: KW_ONLY
    epsilon: float | Mapping[str, float] | None = None
    delta: float | None = None
    range: Any = None
    ratio: Literal["optimal", "fedavg"] | float = "optimal"
    personalize: Literal["bayes", "ditto", "paper"] = "bayes"
    trust: Literal["server", "none"] = "server"
    engine: Engine | None = None
    random_state: Any = None

    prior = "normal"
    guess = None
    participation = None

    _takes_weights: ClassVar[bool] = False

    def protocol(self) -> OptOutRounds:
        """Return what clients and server do: a weighted average, with noise for private clients."""
        return OptOutRounds(self, Gaussian(), Normal(variance=self.tau2))

    @property
    def channel(self) -> dict[str, Channel]:  # type: ignore[override]
        """Channel of each class of consent."""
        return self.protocol().channels

    # What was learned -------------------------------------------------------------------------

    def __ebfed_view__(self) -> LocationView:
        return replace(super().__ebfed_view__(), refit=None)

    @property
    def noise_variance_(self) -> NDArray:
        """Variance of a row around its group's parameter, shape (d,)."""
        return known_noise(self._learned)
