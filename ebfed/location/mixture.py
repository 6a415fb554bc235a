"""Mixture populations: groups whose parameters come in a few kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.channels import Channel, Clip, Guess
from ebfed.channels.base import Message
from ebfed.engines import Engine
from ebfed.likelihoods import Gaussian
from ebfed.location.gaussian import GaussianEB
from ebfed.location.noisy_em import noisy_em, spread_out
from ebfed.priors import Discrete, GaussianMixture, Prior
from ebfed.priors.gaussian_mixture import GaussianMixturePosterior
from ebfed.priors.kmeans import kmeans
from ebfed.priors.posterior import DiscretePosterior
from ebfed.privacy import check_delta, check_epsilon, gaussian_sigma, ledger
from ebfed.privacy.calibration import check_count
from ebfed.report.view import Components, LocationView
from ebfed.tables.clients import Summary
from ebfed.tables.frames import frame

__all__ = ["MixtureEB"]

MESSAGES = "message_log_likelihood"  # column of the history
FEW = "Groups are too few, or too much alike: of {} components, {} fitted."
DRIFTS = (
    "Clustering assigns estimates to their nearest centres and takes no account of their errors: "
    "where components overlap, centres drift apart from round to round and estimates get worse. "
    "solver='em' does not."
)


class MixtureEB(GaussianEB):
    """Empirical Bayes means of groups of a few kinds.

    Rows of group i are ``x_ij ~ N(theta_i, noise)``, and ``theta_i`` comes from one of k
    components: points mu_l, or Gaussians around them. The estimate is the posterior mean, for
    points (Ozkara et al. 2023, Theorem 6)

        theta_i^ = sum_l r_il mu_l,   r_il ~ w_l exp(-n_i |xbar_i - mu_l|**2 / (2 noise)),

    with r_il summing to one, and weights and centres by maximum marginal likelihood. Components
    have no covariates: ``covariates=``, which methods share with `GaussianEB`, is refused.

    Parameters
    ----------
    k : int or "bic"
        Number of components; ``"bic"``: that of least BIC, up to `max_k`. Too few are a disaster,
        too many are cheap.
    components : {"points", "spherical", "diag"}
        What a component is: one value; or a Gaussian whose columns share one variance, or have one
        each. Gaussians are for messages that are exact or have Gaussian noise (`channels.Exact`,
        `channels.AddNoise`).
    solver : {"em", "clustering"}
        ``"em"``: clients send one message, and the server fits the population to it by EM.
        ``"clustering"``: Algorithm 3 of the paper, for replication. In each round clients send
        their posterior means as they are, and the server clusters these by k-means.
    variances : float or array-like of shape (d,), optional
        Known noise variance of one row; estimated from the scatter within groups if None.
    max_k : int
    n_init : int
        Starts by k-means++, of which the best is kept.
    n_rounds : int
        Rounds of clustering, or of noisy EM.
    channel : Channel or dict of Channel, optional
        What leaves a client, once: see `GaussianEB`. For vectors,
        ``Clip(radius=theory.reporting_radius(...)) | Gaussian(epsilon, delta)``.
    trust : {"none", "server"}
        ``"server"``: clients send means clipped to a ball, ``channel=Clip(radius=...)``, and the
        server releases nothing but noisy sums and counts of each of k points, in `n_rounds` rounds
        of EM (see `estimators.noisy_em`). Readers of the population, other clients among them,
        learn at most (`epsilon`, `delta`) of any client. `variances` must be given.
    epsilon, delta : float, optional
        Of all rounds together, with ``trust="server"``.
    guess, participation, engine :
        See `GaussianEB`.
    random_state : int, Generator or None
        Of starts, and of what a channel draws.

    Attributes
    ----------
    k_ : int
    weights_ : ndarray of shape (k,)
    means_, variances_ : ndarray of shape (k, d)
        Of the components, sorted by their means.
    history_ : DataFrame
        A row for each step of EM or round of clustering, with ``message_log_likelihood``: that of
        the messages (of clustering: of the means that were sent first), which lacks what the
        scatter within groups adds to `log_likelihood_`; for each round of noisy EM, how far centres
        moved.
    prior_, noise_variance_, summaries_, groups_, notes_, privacy_, log_likelihood_ :
        See `GaussianEB`. With ``trust="server"`` the log-likelihood is not released: NaN.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, appendix D (Theorem 6, Algorithm 3, Lemma 3).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> theta = rng.choice([-2.0, 0.0, 2.0], 300)
    >>> X, groups = rng.normal(np.repeat(theta, 5)), np.repeat(np.arange(300), 5)
    >>> est = MixtureEB(random_state=0).fit(X, groups=groups)
    >>> est.k_, est.means_.ravel().round(1)
    (3, array([-2. , -0.1,  2. ]))
    >>> est.responsibilities().head(2).round(2)
       group  component_0  component_1  component_2
    0      0          0.0          0.0          1.0
    1      1          0.0          1.0          0.0
    """

    method = "ml"
    prior = None

    def __init__(
        self,
        k: int | Literal["bic"] = "bic",
        *,
        components: Literal["points", "spherical", "diag"] = "points",
        solver: Literal["em", "clustering"] = "em",
        variances: ArrayLike | None = None,
        max_k: int = 10,
        n_init: int = 8,
        n_rounds: int = 5,
        channel: Channel | Mapping[Any, Channel] | None = None,
        guess: Guess | None = None,
        trust: Literal["none", "server"] = "none",
        epsilon: float | None = None,
        delta: float | None = None,
        participation: int | ArrayLike | None = None,
        engine: Engine | None = None,
        random_state: Any = None,
    ):
        self.k = k
        self.components = components
        self.solver = solver
        self.variances = variances
        self.max_k = max_k
        self.n_init = n_init
        self.n_rounds = n_rounds
        self.channel = channel
        self.guess = guess
        self.trust = trust
        self.epsilon = epsilon
        self.delta = delta
        self.participation = participation
        self.engine = engine
        self.random_state = random_state

    # Arguments --------------------------------------------------------------------------------

    def _check(self) -> None:
        for name, known in (
            ("components", ("points", "spherical", "diag")),
            ("solver", ("em", "clustering")),
            ("trust", ("none", "server")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be {', '.join(map(repr, known))}; got {getattr(self, name)!r}."
                )
        if self.k != "bic":
            check_count("k", self.k)
        for name in ("max_k", "n_init", "n_rounds"):
            check_count(name, getattr(self, name))
        if self.components != "points" and not self._sends_gaussians():
            raise ValueError(
                f"components={self.components!r} is for messages that are exact or have Gaussian "
                "noise (channels.Exact, channels.AddNoise). Through channels that clip or round, "
                "fit components='points'."
            )
        if self.solver == "clustering" and not (
            self._all_exact() and len(self._channels()) == 1 and self.trust == "none"
        ):
            raise ValueError("solver='clustering' sends estimates as they are: leave channel None.")
        if self.solver == "clustering" or self._is_central():
            if self.k == "bic":
                raise ValueError("k must be given, except for EM by a server that sees messages.")
            if self.components != "points":
                raise ValueError("components must be 'points', except for EM without epsilon.")
        if self._is_central():
            self._check_central()
        elif self.epsilon is not None or self.delta is not None:
            raise ValueError(
                "epsilon and delta are for trust='server'; for privacy against the server, give "
                "a channel: Clip(radius=...) | Gaussian(epsilon, delta)."
            )

    def _check_central(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if not isinstance(self.channel, Clip) or self.channel.radius is None:
            raise ValueError(
                f"trust='server' needs channel=Clip(radius=...); got {self.channel!r}."
            )
        if self.variances is None:
            raise ValueError(
                "variances must be given with trust='server': the scatter within groups is not "
                "released."
            )

    def _check_covariates(self) -> None:
        raise ValueError("MixtureEB has no covariates; GaussianEB takes covariates=.")

    def _is_central(self) -> bool:
        """Whether noise protects what the server releases, not what it is sent."""
        return self.trust == "server"

    def _make_prior(self) -> Prior:
        if self.components == "points":
            return Discrete(
                self.k, max_atoms=self.max_k, n_init=self.n_init, random_state=self.random_state
            )
        return GaussianMixture(
            self.k,
            self.components,
            max_k=self.max_k,
            n_init=self.n_init,
            random_state=self.random_state,
        )

    def partial_fit(
        self, X: Any, y: Any = None, *, groups: Any = None, covariates: Any = None
    ) -> Self:
        """Add a block of rows to what was fitted before; see `LocationEstimator.partial_fit`.

        Raises
        ------
        ValueError
            With ``trust="server"``, where something was released before.
        """
        if self._is_central() and hasattr(self, "summaries_"):
            raise ValueError(
                "partial_fit would release sums of every client a second time, at twice the "
                "privacy; fit all rows at once."
            )
        return super().partial_fit(X, y, groups=groups, covariates=covariates)

    # Server -----------------------------------------------------------------------------------

    def start(self, facts: dict, key: NDArray) -> dict:
        """Return the state before the first round."""
        self._check()
        return super().start(facts, key)

    def broadcast(self, state: dict) -> dict:
        """Return how to report or, in clustering, the centres; in the end, the population."""
        sent = super().broadcast(state)
        names = ("history",) if state["done"] else ("centres", "shares", "noise")
        return sent | {name: state[name] for name in names if name in state}

    def update(self, state: dict, messages: dict[str, Message]) -> dict:
        """Fit the population to the messages, or go on for another round."""
        if self.solver == "clustering":
            return self._cluster(state, messages)
        if self._is_central():
            return self._fit_privately(state, messages)
        state = super().update(state, messages)
        if not state["done"]:
            return state
        prior = state["prior"]
        prior["notes_"] = [*prior["notes_"], *self._doubts(state)]
        path = prior.get("path_", np.empty(0))
        return state | {"history": {"step": np.arange(len(path)), MESSAGES: path}}

    def _doubts(self, state: dict) -> list[str]:
        """Say if there are too few groups, or reports too noisy, to tell components apart."""
        prior = state["prior"]
        centres = prior["atoms_" if self.components == "points" else "means_"]
        away = np.sqrt(((centres[:, None] - centres) ** 2).sum(axis=2))
        few = []
        if self.k != "bic" and len(centres) < self.k:
            few = [FEW.format(self.k, len(centres))]
        gap = (away + np.diag(np.full(len(away), np.inf))).min() if len(away) > 1 else 0.0
        middle = Summary(np.zeros(1), np.ones(1, int), prior["mean_"][None], np.zeros((1, 1)))
        channels = self._channels(state["settings"][-1]).values()
        noise = max(float(np.sqrt(channel.variance(middle).max())) for channel in channels)
        if gap >= 2 * noise:
            return few
        return [
            *few,
            f"Reports carry noise of standard deviation up to {noise:.3g}. Components nearer to "
            "one another than twice that are hardly told apart, and estimates drawn to wrong "
            "centres can be worse than the groups' own means. More epsilon, a smaller radius or "
            "trust='server' would tell them.",
        ]

    def _cluster(self, state: dict, messages: dict[str, Message]) -> dict:
        """Cluster what clients sent: one round of Algorithm 3."""
        (message,) = messages.values()
        first = state["round"] == 0
        likelihood = self.model(message if first else next(iter(state["messages"][0].values())))
        has_data = message["n"] > 0
        centres, shares = _k_means(message["mean"][has_data], self.k, self.n_init, state["key"])
        prior = Discrete.known(centres, shares)
        settled = prior._settled(likelihood)
        log = float(prior.log_marginal(settled).sum())
        past = {"round": np.empty(0, int), MESSAGES: np.empty(0)}
        past = past if first else state["history"]
        state = state | {
            "round": state["round"] + 1,
            "messages": [messages] if first else state["messages"],
            "history": {
                "round": np.append(past["round"], state["round"] + 1),
                MESSAGES: np.append(past[MESSAGES], log),
            },
        }
        if state["round"] < self.n_rounds:
            noise = prior.noise_variance_
            noise = self._known_variances(message) if noise is None else noise
            return state | {"centres": centres, "shares": shares, "noise": noise}
        if len(centres) < int(self.k):
            prior._add_note(FEW.format(self.k, len(centres)))
        prior._add_note(DRIFTS)
        path = state["history"][MESSAGES]
        if (best := int(np.argmax(path))) < len(path) - 1:
            prior._add_note(
                f"Here it has: after round {best + 1} the messages lost "
                f"{path[best] - path[-1]:.3g} in log-likelihood."
            )
        prior.n_parameters_ = centres.size + len(centres) - 1
        return self._done(state, prior)

    def _fit_privately(self, state: dict, messages: dict[str, Message]) -> dict:
        """Release noisy sums and counts, and nothing else that depends on what clients sent."""
        (channel,), (message,) = self._channels().values(), messages.values()
        assert isinstance(channel, Clip)
        has_data = message["n"] > 0
        box, n = channel._box(state["n_features"]), message["n"][has_data]
        means = channel.decode(message)[has_data]
        noise = self._known_variances({"mean": means}) / box.half**2
        rng = np.random.default_rng([*state["key"], 2])
        centres, shares, moved = noisy_em(
            (means - box.centre) / box.half,
            noise / n[:, None],
            # sizes are public: who has more rows says more, up to the middle client
            np.minimum(n / np.median(n), 1.0) if len(n) else n,
            spread_out(int(self.k), state["n_features"], rng),
            self.n_rounds,
            self._sigma(),
            rng,
        )
        prior = Discrete.known(box.centre + box.half * centres, shares)
        prior._add_note(
            "Weights and centres carry noise for privacy, which posteriors take no account of."
        )
        prior.n_parameters_ = centres.size + len(centres) - 1
        history = {"round": np.arange(1, len(moved) + 1), "moved": moved * box.half[0]}
        state = state | {"messages": [messages], "round": 1, "history": history}
        return self._done(state, prior)

    def _sigma(self) -> float:
        """Noise of each round: n_rounds releases of sensitivity 2 are worth one of 2 sqrt(n)."""
        assert self.epsilon is not None
        assert self.delta is not None
        return float(gaussian_sigma(self.epsilon, self.delta, 2 * np.sqrt(self.n_rounds)))

    def _log_likelihood_of_reports(self, state: dict, prior: Prior) -> float | None:
        return np.nan if self._is_central() else super()._log_likelihood_of_reports(state, prior)

    # Clients ----------------------------------------------------------------------------------

    def local(self, sent: dict, memory: dict, clients: Summary, rng: Any) -> tuple[dict, dict]:
        """Send summaries or, in later rounds of clustering, posterior means in their place."""
        if "centres" in sent:
            own = Gaussian(clients.mean, _per_row(clients.n)).scaled(sent["noise"])
            theta = Discrete.known(sent["centres"], sent["shares"]).posterior(own).mean
            clients = replace(clients, mean=theta, scatter=np.zeros_like(theta))
        return super().local(self._once(sent), memory, clients, rng)

    def check_message(self, message: dict, facts: dict, sent: dict, turn: NDArray) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""
        super().check_message(message, facts, self._once(sent), turn)

    def releases(self, sent: dict, memory: dict, clients: Summary) -> list[dict[str, Any]]:
        """List what clients send in a round, and what is promised for it."""
        rows = super().releases(self._once(sent), memory, clients)
        for row in rows:
            if self._is_central() and row["times"]:
                row["epsilon"], row["delta"] = self._promise(row["who"])
                row["relation"] = ledger.LOCAL
                row["assumptions"] = (
                    "numbers of rows are public; the server is trusted with clipped means, and "
                    f"releases only sums and counts of {self.k} components with noise, "
                    f"{self.n_rounds} times"
                )
        return rows

    def _once(self, sent: dict) -> dict:
        """In clustering, who answers in the first round answers in all."""
        return sent | {"round": 0} if self.solver == "clustering" else sent

    def _write_ledger(self) -> list[dict]:
        rows = super()._write_ledger()
        if self.solver == "clustering":
            rows = [
                row | {"times": row["times"] * self.n_rounds, "bits": row["bits"] * self.n_rounds}
                for row in rows
            ]
        return rows

    def _promise(self, name: str) -> tuple[float, float]:
        if self._is_central():
            return check_epsilon(self.epsilon), check_delta(self.delta)
        return super()._promise(name)

    def _privacy_kind(self) -> str:
        if not self._is_central():
            return super()._privacy_kind()
        return "central differential privacy against readers of the population"

    def view(self) -> LocationView:
        """Return what reports and plots read of the fit."""
        components = Components(self.weights_, self.means_, self.variances_)
        return replace(super().view(), components=components, refit=None)

    # What was learned -------------------------------------------------------------------------

    def _learn(self, sent: dict) -> None:
        super()._learn(sent)
        self._history = sent["history"]

    @property
    def k_(self) -> int:
        """Number of components."""
        return len(self.weights_)

    @property
    def weights_(self) -> NDArray:
        """Weights of the components, shape (k,)."""
        check_is_fitted(self, "prior_")
        return self._mixture.weights_

    @property
    def means_(self) -> NDArray:
        """Centres of the components, shape (k, d)."""
        check_is_fitted(self, "prior_")
        prior = self._mixture
        return prior.atoms_ if isinstance(prior, Discrete) else prior.means_

    @property
    def variances_(self) -> NDArray:
        """Variances of the components, shape (k, d); zero for points."""
        check_is_fitted(self, "prior_")
        prior = self._mixture
        return np.zeros_like(prior.atoms_) if isinstance(prior, Discrete) else prior.variances_

    @property
    def _mixture(self) -> Discrete | GaussianMixture:
        assert isinstance(self.prior_, Discrete | GaussianMixture)
        return self.prior_

    @property
    def history_(self) -> Any:
        """Frame of the steps or rounds of the fit."""
        check_is_fitted(self, "prior_")
        return frame(self._history, self._output(self._style_))

    def responsibilities(self, X: Any = None, *, groups: Any = None) -> Any:
        """Probability that each group belongs to each component.

        Parameters
        ----------
        X, groups : as in `posterior`

        Returns
        -------
        DataFrame
            One row per distinct group: its label, then ``component_0`` and so on, in the order of
            `means_`.
        """
        posterior = self.posterior(X, groups=groups)
        assert isinstance(posterior, DiscretePosterior | GaussianMixturePosterior)
        shares = self._mixture.responsibilities(posterior.likelihood)
        columns = {f"component_{j}": share for j, share in enumerate(shares.T)}
        style = posterior._style.avoiding(columns)
        return frame({style.group: posterior._ids} | columns, style)


def _per_row(n: NDArray) -> NDArray:
    with np.errstate(divide="ignore"):
        return 1 / n[:, None]


def _k_means(values: NDArray, k: Any, n_init: int, key: NDArray) -> tuple[NDArray, NDArray]:
    """Lloyd's centres from the best of several k-means++ starts, and shares of the clients."""
    if not len(values):
        return np.zeros((1, values.shape[1])), np.ones(1)
    values = values[np.lexsort(values.T)]  # whatever the order of clients
    k = min(k, len(np.unique(values, axis=0)))
    rng = np.random.RandomState(np.random.default_rng([*key, 3]).integers(2**31))
    runs = [kmeans(values, k, rng) for _ in range(n_init)]
    nearest, centres = min(runs, key=lambda run: ((values - run[1][run[0]]) ** 2).sum())
    shares = np.bincount(nearest, minlength=k) / len(values)
    return centres[shares > 0], shares[shares > 0]
