"""Logistic regression in every group, the coefficients drawn from a normal population."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ebfed.engines import Engine
from ebfed.priors import IdentificationWarning, Posterior
from ebfed.regression.base import (
    Parameter,
    RegressionEstimator,
    fixed_parameters,
    spread_parameters,
)
from ebfed.regression.numerics.normal_population import (
    CAUTION,
    LOW,
    Covariance,
    NormalPopulation,
)
from ebfed.regression.posteriors.logistic import (
    MOST_CORRECTED,
    DrawnCoefficients,
    NormalCoefficients,
    WhiteRows,
    log_probabilities,
)
from ebfed.streams import Stream, make_key
from ebfed.tables.clients import Clients
from ebfed.tables.labels import number_labels

__all__ = ["LogisticEB"]

Method = Literal["ep", "polya-gamma", "laplace", "gd"]

# A fit is done when the next step promises no more of the log-likelihood.
PROMISE = 1e-9
# A promise at which expectation propagation has come near enough for its correction to begin.
ENOUGH = 1e-3
# A log-likelihood of a row that is as good as that of certainty.
PERFECT = -0.01
# What a fit may leave: a step of less than half a standard error.
MOST_LEFT = 0.1
# Coordinates more oblique than this would magnify the noise of importance sampling.
OBLIQUE = 30.0
# And more oblique than this, variances lie on ridges where a search may stop short.
FAR = 500.0
# What is little where there is no end.
LITTLE = 0.5
# Steps so much shorter than the largest are no steps.
SHORTEST = 1e-4
# Sweeps of Gibbs sampling before the first draw.
BURN = 50


class LogisticEB(ClassifierMixin, RegressionEstimator):
    """Empirical Bayes logistic regression: a coefficient vector for every group.

    Rows of group i are ``y_ij ~ Bernoulli(1 / (1 + exp(-x_ij' theta_i)))``, and ``theta_i ~ N(mean,
    covariance)``. The population maximises the marginal likelihood: in every round clients send
    mean and covariance of their coefficients given their rows and the population of before, and the
    server takes a step of Fisher's scoring (see `NormalPopulation`). This is the mixed model ``y ~
    x + (1 + x || group)`` with a binomial response.

    Parameters
    ----------
    covariance : {"diag", "spherical", "full"}
        Of the coefficients: a variance for each, one for all, or any.
    varying : sequence of str or int, optional
        Columns of `X` (or ``"intercept"``) whose coefficients differ between groups, with
        covariance ``"diag"``; the others have one coefficient for all. All, if None.
    method : {"ep", "polya-gamma", "laplace", "gd"}
        How clients' posteriors are found.

        - ``"ep"``: expectation propagation, for up to four coefficients corrected by importance
          sampling at fixed points. Nothing is random. Posteriors are normal.
        - ``"polya-gamma"``: the same population, but posteriors are draws of Gibbs sampling with
          Pólya-Gamma variables, with whatever shape they have.
        - ``"laplace"``: mode and curvature, as in penalized quasi-likelihood. Underestimates the
          spread of the population for few binary rows per group (and is not glmer's, to which
          ``"ep"`` is nearer).
        - ``"gd"``: Algorithm 5 of Ozkara et al. with its signs mended, gradient descent on all
          theta_i, mean and log-variances together. For replication: that objective has no maximum.
    fit_intercept : bool
        Whether to put a column of ones first.
    max_iter : int
        Largest number of rounds; their number for ``"gd"``.
    learning_rate : float
        Of ``"gd"``.
    n_draws : int
        Of each posterior of ``"polya-gamma"``.
    engine : Engine, optional
        Where clients compute; `engines.Local()` if None.
    verbose : int
        1 shows a progress bar over rounds.
    random_state : int, Generator or None
        Of ``"polya-gamma"``; the other methods draw nothing.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels of `y`, sorted; the model is of the probability of the second.
    mean_ : ndarray of shape (p,)
        Of the population, the intercept first.
    mean_covariance_ : ndarray of shape (p, p)
        Sampling covariance of `mean_`; NaN for ``"gd"``. Of collinear columns, that of the
        combinations that are identified.
    covariance_ : ndarray of shape (p, p)
        Of the population.
    clients_, groups_, terms_, history_, privacy_, notes_ :
        See `RegressionEstimator`.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, appendix F; Minka (2001), Expectation propagation for approximate
    Bayesian inference; Polson, Scott, Windle (2013), Bayesian inference for logistic models using
    Pólya-Gamma latent variables, J. Am. Stat. Assoc. 108.

    Examples
    --------
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(500), 10)
    >>> x = rng.normal(size=5000)
    >>> logit = rng.normal(1, 0.5, 500)[groups] + rng.normal(-1, 1, 500)[groups] * x
    >>> y = rng.random(5000) < 1 / (1 + np.exp(-logit))
    >>> est = eb.LogisticEB().fit(x[:, None], y, groups=groups)
    >>> est.mean_.round(1), np.sqrt(np.diag(est.covariance_)).round(1)
    (array([ 1., -1.]), array([0.6, 0.9]))
    >>> est.predict_proba(x[:2, None], groups=groups[:2]).shape
    (2, 2)
    """

    RESULTS: ClassVar[tuple[str, ...]] = (
        "classes",
        "mean",
        "mean_covariance",
        "covariance",
        "root",
        "identified",
        "notes",
        "seed",
    )
    _numeric = False

    def __init__(
        self,
        covariance: Covariance = "diag",
        *,
        varying: Sequence[str | int] | None = None,
        method: Method = "ep",
        fit_intercept: bool = True,
        max_iter: int = 200,
        learning_rate: float = 0.1,
        n_draws: int = 300,
        engine: Engine | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.covariance = covariance
        self.varying = varying
        self.method = method
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.n_draws = n_draws
        self.engine = engine
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    # Clients ----------------------------------------------------------------------------------

    def _check_classes(self, classes: NDArray) -> None:
        if len(classes) > 2:
            shown = ", ".join(map(repr, classes[:5].tolist()))
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: "
                f"got {len(classes)} classes, {shown} among them."
            )

    def describe(self, clients: Clients, memory: dict) -> dict[str, NDArray]:
        """State numbers of rows, columns, and labels."""
        classes = np.unique(np.asarray(clients.y))
        if hasattr(self, "classes_"):  # those that `partial_fit` was told of, too
            classes = np.union1d(classes, self.classes_)
        return super().describe(clients, memory) | {"classes": classes}

    def local(self, sent: dict, memory: dict, clients: Clients, rng: Any) -> tuple[dict, dict]:
        """Send what the round asks for: see `_phase`."""
        if sent["phase"] == "size":
            return _measure(clients, sent["classes"][1]), memory
        if sent["phase"] == "gd":
            theta = memory.get("theta", np.zeros((len(clients), len(sent["mean"]))))
            theta, message = _descend(clients, sent, theta, self.learning_rate)
            return message, memory | {"theta": theta}
        population = NormalPopulation(sent["mean"], sent["root"], np.ones(len(sent["mean"])))
        rows = WhiteRows.of(clients, population, sent["classes"][1])
        moments = rows.approximate(sent["phase"])
        return dict(zip(("mean", "covariance", "evidence"), moments, strict=True)), memory

    def _bits(self, sent: dict, clients: Clients) -> float:
        p = clients.X.shape[1]
        return 64.0 * len(clients) * (2 * p if self.method == "gd" else 1 + p + p * (p + 1) // 2)

    # Server -----------------------------------------------------------------------------------

    def start(self, facts: dict, key: NDArray) -> dict:
        """Return the state before the first round, which asks for the sizes of columns."""
        self._check_arguments()
        classes = np.unique(facts["classes"])
        self._check_classes(classes)
        if len(classes) < 2:
            raise ValueError(
                f"y has one class only, {classes.tolist()[0]!r}: at least two classes are needed. "
                "Where others come later, name all in partial_fit(..., classes=...)."
            )
        state = super().start(facts, key)
        notes = _open_questions(state["n"])
        names = self._names(state)
        varies = np.isin(np.arange(len(names)), self._varying(state))
        if not varies.all() and (self.covariance != "diag" or self.method == "gd"):
            raise ValueError(
                f"varying={list(self.varying or ())!r} leaves coefficients out that do not vary, "
                "which needs covariance='diag' and a method other than 'gd'."
            )
        for note in notes:
            warnings.warn(note, IdentificationWarning, stacklevel=5)
        return state | {
            "phase": "size",
            "classes": classes,
            "spread": not notes,
            "varies": varies,
            "notes": notes,
            "seed": int(np.random.default_rng([*key, 2]).integers(2**31)),
            "log_likelihood": -np.inf,
        }

    def _check_arguments(self) -> None:
        for name, values in (
            ("covariance", ("diag", "spherical", "full")),
            ("method", ("ep", "polya-gamma", "laplace", "gd")),
        ):
            if getattr(self, name) not in values:
                raise ValueError(f"{name} must be one of {values}; got {getattr(self, name)!r}.")
        for name in ("max_iter", "n_draws"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} must be a whole number from 1; got {value!r}.")
        if not 0 < self.learning_rate < np.inf:
            raise ValueError(f"learning_rate must be positive; got {self.learning_rate!r}.")

    def _asked(self, state: dict) -> dict:
        asked = {name: state[name] for name in ("phase", "classes")}
        if "frame" in state:
            asked |= {name: state["frame"] @ state[name] for name in ("mean", "root")}
        return asked

    def check_facts(self, facts: dict) -> None:
        """Raise a ValueError if that is not what clients may state."""
        super().check_facts(facts)
        classes = facts.get("classes")
        if not (isinstance(classes, np.ndarray) and classes.ndim == 1):
            raise ValueError("facts must have the labels of y.")

    def check_message(self, message: dict, facts: dict, sent: dict, turn: NDArray) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""
        super().check_message(message, facts, sent, turn)
        m, p = len(facts["n"]), int(facts["n_features"][0]) + bool(self.fit_intercept)
        shapes: dict[str, tuple[int, ...]]
        if sent["phase"] == "size":
            shapes = {"centre": (m, p), "products": (m, p, p), "second": (m,)}
        elif sent["phase"] == "gd":
            shapes = {"mean": (m, p), "log_variance": (m,)}
        else:
            k = sent["root"].shape[1]
            shapes = {"mean": (m, k), "covariance": (m, k, k), "evidence": (m,)}
        if {name: part.shape for name, part in message.items()} != shapes:
            raise ValueError(f"a message must have the shapes {shapes}.")

    def update(self, state: dict, messages: dict) -> dict:
        """Take a step of the population's parameters."""
        phase = {"size": self._begin, "gd": self._descend}
        state = phase.get(state["phase"], self._climb)(state, messages)
        state = state | {"round": state["round"] + 1}
        return self._end(state) if state["phase"] == "end" else state

    def _begin(self, state: dict, messages: dict) -> dict:
        """Choose units from the sizes of columns."""
        n, centre = state["n"], messages["centre"]
        N = max(int(n.sum()), 1)
        within = messages["products"].sum(axis=0) / N
        square = np.diag(within) + n @ centre**2 / N
        if self.covariance == "spherical" or self.method == "gd":
            square = np.full(len(square), square.mean())
        empty = square == 0
        unit = 1 / np.sqrt(np.where(empty, 1.0, square))
        ways, identified = _directions(within, centre, n / N, self.fit_intercept)
        notes = list(state["notes"])
        if not identified.all():
            notes += [COLLINEAR.format(len(unit), ways.shape[1])]
        frame = np.eye(len(unit))
        flat = empty | ~state["varies"] if state["spread"] else np.ones(len(unit), bool)
        if self.covariance == "full" and self.method != "gd":
            # any covariance may be learned in any coordinates: in those in which columns are
            # centred, of unit size, and say different things
            frame, ways, unit = ways, np.eye(ways.shape[1]), np.ones(ways.shape[1])
            flat = np.full(len(unit), not state["spread"])
        root = np.diag(np.where(flat, np.sqrt(LOW), 1.0) * unit)
        # squares of scores are information where scores are those of the likelihood
        exact = state["spread"] and self.method != "laplace"
        has_data = messages["second"][n > 0] / n[n > 0]
        oblique = np.linalg.cond(ways[:, ways.any(axis=0)] / unit[:, None])
        if oblique > FAR and self.covariance != "full" and self.method != "gd":
            notes += [UNCENTRED]
            warnings.warn(UNCENTRED, ConvergenceWarning, stacklevel=6)
        return state | {
            "phase": "ep" if self.method == "polya-gamma" else self.method,
            "mean": np.zeros(len(unit)),
            "root": root,
            "unit": unit,
            "frame": frame,
            "ways": ways,
            "identified": identified,
            "correct": len(unit) <= MOST_CORRECTED and oblique < OBLIQUE,
            # where the likelihood has no maximum; Laplace's approximation to it has
            "pure": exact and bool(np.isin(has_data, (0, 1)).all()),
            "notes": notes,
            "caution": CAUTION if exact else np.inf,
            "reach": 1.0,
            "gain": np.inf,
        }

    def _population(self, state: dict) -> NormalPopulation:
        return NormalPopulation(state["mean"], state["root"], state["unit"])

    def _climb(self, state: dict, messages: dict) -> dict:
        """Take a step of scoring, or a quarter of the last if that led down."""
        here, value = self._population(state), float(messages["evidence"].sum())
        _, root = here.seen_from(state["frame"])
        tried = {"log_likelihood": value, "sd": np.sqrt((root**2).sum(axis=1)).mean()}
        state = state | {"history": [*state["history"], tried]}
        slack = PROMISE * (1 + abs(value))
        # these approximations have the slopes of their evidence
        climbs = state["phase"] == "ep" or not state["spread"]
        if climbs and value < state["log_likelihood"] - slack:
            best = NormalPopulation(state["best_mean"], state["best_root"], state["unit"])
            shorter = {"caution": 10 * state["caution"], "reach": state["reach"] / 2}
            return state | _noted(best.toward(here, 0.25)) | shorter
        moments = messages["mean"], messages["covariance"], self.covariance
        options = {name: state[name] for name in ("ways", "spread", "varies", "caution", "reach")}
        step = here.step(*moments, **options)
        # without an evidence to climb, steps that come to nothing get shorter
        vain = not climbs and step.gain > state["gain"]
        longer = {
            "reach": min(2 * state["reach"], 1.0),
            "caution": max(state["caution"] / 10, CAUTION),
        }
        state = state | {
            "log_likelihood": value,
            "reach": state["reach"] * (0.5 if vain else 1.0),
            **(longer if climbs else {}),
            "gain": step.gain,
            "best_mean": here.mean,
            "best_root": here.root,
            "mean_covariance": state["frame"] @ step.mean_covariance @ state["frame"].T,
        }
        settled = step.gain <= slack or state["reach"] < SHORTEST
        near = settled or step.gain <= ENOUGH
        if near and state["phase"] == "ep" and state["correct"]:
            return state | _noted(step.population) | {"phase": "corrected", "reach": 1.0}
        if value > PERFECT * state["n"].sum() or (state["pure"] and step.gain <= LITTLE):
            return state | {"phase": "end"}
        if settled:
            left = here.step(*moments, **options | {"reach": 1.0}).gain
            if left > MOST_LEFT + slack:
                _warn(f"after {state['round']} rounds no step was better, but", left, "Rescale X.")
            return state | {"phase": "end", "converged": left <= MOST_LEFT + slack}
        if state["round"] >= self.max_iter:
            if not state["pure"]:  # there is nothing to converge to
                _warn(f"after {state['round']} rounds", step.gain, "Raise max_iter.")
            return state | {"phase": "end", "converged": None if state["pure"] else False}
        return state | _noted(step.population)

    def _descend(self, state: dict, messages: dict) -> dict:
        """Average what clients made of mean and variance."""
        log_variance = float(messages["log_variance"].mean())
        mean = messages["mean"].mean(axis=0)
        if not np.isfinite([log_variance, *mean]).all():
            raise ValueError(
                f"gradient descent diverged after {state['round']} rounds; lower "
                f"learning_rate={self.learning_rate!r}, or rescale X."
            )
        # the step on theta is stable down to here
        variance = max(np.exp(min(log_variance, 50.0)), self.learning_rate)
        state = state | {
            "mean": mean,
            "root": np.sqrt(variance) * np.eye(len(mean)),
            "log_likelihood": np.nan,
            "mean_covariance": np.full((len(mean), len(mean)), np.nan),
            "history": [*state["history"], {"variance": variance}],
        }
        return state | {"phase": "end"} if state["round"] >= self.max_iter else state

    def _end(self, state: dict) -> dict:
        """Add what was learned, in plain numbers."""
        population, frame = self._population(state), state["frame"]
        mean, root = population.seen_from(frame)
        notes = list(state["notes"])
        varies = (
            state["varies"] if self.covariance == "diag" else np.ones(len(population.mean), bool)
        )
        low, high = population.at_bounds(varies)
        if self.method == "gd":
            notes += [JOINT]
            warnings.warn(JOINT, IdentificationWarning, stacklevel=6)
        elif high or state["pure"]:
            notes += [UNBOUNDED]
            warnings.warn(UNBOUNDED, IdentificationWarning, stacklevel=6)
        elif state["log_likelihood"] > PERFECT * state["n"].sum():
            notes += [SEPARATED]
        elif low and state["spread"]:
            notes += [NO_SPREAD]
        if self.method == "laplace":
            notes += [LAPLACE]
        # for posteriors no variance is zero: what depends on the mean depends on no coordinates
        floored = frame @ population.root
        learned = {"mean": mean, "root": floored, "covariance": root @ root.T, "notes": notes}
        return state | {"done": True} | learned

    def _learn(self, sent: dict) -> None:
        for name in ("classes", "mean", "mean_covariance", "covariance", "notes"):
            setattr(self, f"{name}_", sent[name])
        # a root has digits that are lost in its square
        self._seed, self._root, self._identified = sent["seed"], sent["root"], sent["identified"]

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, *, groups: Any = None
    ) -> Self:
        """Add a block of rows to what was fitted before; the answer is that of one `fit` on all.

        Parameters
        ----------
        X, y, groups : as in `fit`
            Blocks may share groups. Without `groups`, the rows of a block are new groups, numbered
            on from those seen.
        classes : array-like, optional
            All labels that may come; of use with the first block, which may then lack one.
        """
        if classes is None:
            return super().partial_fit(X, y, groups=groups)
        self._declared = np.unique(classes)
        self._check_classes(self._declared)
        try:
            return super().partial_fit(X, y, groups=groups)
        finally:
            self._declared = None

    # Estimates --------------------------------------------------------------------------------

    def _posterior(self, block: Clients) -> NormalCoefficients | DrawnCoefficients:
        # of gradient descent, what is not known of the mean is not known
        return self._posterior_given(block, np.nan_to_num(self.mean_covariance_))

    def _given_population(self) -> Posterior:
        return self._posterior_given(self.clients_, np.zeros_like(self.mean_covariance_))

    def _posterior_given(
        self, block: Clients, doubt: NDArray
    ) -> NormalCoefficients | DrawnCoefficients:
        """Posterior of coefficients, with what is not known of the mean."""
        population = NormalPopulation(self.mean_, self._root, np.ones(len(self.mean_)))
        rows = WhiteRows.of(block, population, self.classes_[1])
        if self.method != "polya-gamma":
            mean, covariance, _ = rows.approximate(
                "corrected" if self.method == "ep" else "laplace"
            )
            return NormalCoefficients(population, mean, covariance, doubt)
        stream = Stream(make_key(self._seed), 0)
        drawn = rows.sample(stream, BURN, self.n_draws)
        return DrawnCoefficients(population, *drawn, doubt, self._seed)

    def decision_function(self, X: Any, *, groups: Any = None) -> NDArray:
        """Log-odds of the second class, from `predict_proba`, shape (n_rows,).

        Not knowing the coefficients draws them towards zero: they are not as far from it as the
        posterior mean of the log-odds, which has the same sign.

        Parameters
        ----------
        X, groups : as in `predict`
        """
        first, second = self.predict_log_proba(X, groups=groups).T
        return second - first

    def predict(self, X: Any, *, groups: Any = None) -> NDArray:
        """Predict each row's label with the coefficients of its group: that of positive log-odds.

        Parameters
        ----------
        X : as in `fit`
        groups : as in `fit`, optional
            Label of each row. A group that was not in the fit is predicted by the population; so
            are all rows if None (unless `X` has the column that held them in the fit).

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        ones = self.decision_function(X, groups=groups) > 0
        return self.classes_[ones.astype(np.int64)]

    def predict_proba(self, X: Any, *, groups: Any = None) -> NDArray:
        """Probability of each class, averaged over the posterior of the row's group.

        Parameters
        ----------
        X, groups : as in `predict`

        Returns
        -------
        ndarray of shape (n_rows, 2)
        """
        return np.exp(self.predict_log_proba(X, groups=groups))

    def predict_log_proba(self, X: Any, *, groups: Any = None) -> NDArray:
        """Logarithm of `predict_proba`, with digits where that is 0 or 1."""
        rows, labels = self._read_design(X, groups)
        if labels is None:
            ids, codes = np.zeros(1, np.int64), np.zeros(len(rows), np.int64)
            posterior = self._posterior(self._empty(ids))
        else:
            ids, codes = number_labels(labels)
            posterior = self._posterior(self._empty(ids) if self._is_server else self._known(ids))
        return log_probabilities(posterior, rows, codes)

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None
    ) -> float:
        """Share of rows whose label is predicted right.

        Parameters
        ----------
        X, y, groups : as in `fit`
        sample_weight : array-like of shape (n_rows,), optional
        """
        from sklearn.metrics import accuracy_score

        check_is_fitted(self, "mean_")
        table = self._table(X, y, groups)
        return float(
            accuracy_score(table.y, self.predict(X, groups=groups), sample_weight=sample_weight)
        )

    @property
    def n_parameters_(self) -> int:
        """Number of fitted parameters: means, variances, covariances."""
        check_is_fitted(self, "mean_")
        p = len(self.mean_)
        q = len(self._varying(self._shape()))
        return p + {"spherical": 1, "diag": q, "full": p * (p + 1) // 2}[self.covariance]

    def _fitted_by(self) -> str:
        return {
            "ep": "expectation propagation",
            "polya-gamma": "Pólya-Gamma sampling",
            "laplace": "Laplace",
            "gd": "gradient descent",
        }[self.method]

    def _parameters(self) -> list[Parameter]:
        terms = self.terms_
        errors = np.where(self._identified, np.sqrt(np.diag(self.mean_covariance_)), np.nan)
        return fixed_parameters(terms, self.mean_, errors) + spread_parameters(
            self._style_.group,
            terms,
            self.covariance_,
            self._varying(self._shape()),
            correlated=self.covariance == "full",
        )


COLLINEAR = (
    "Columns of X are collinear: of {} mean coefficients only {} combinations are identified. "
    "Predictions for rows like those of the fit are right; single coefficients mean nothing."
)
UNCENTRED = (
    "Columns of X lie far from zero against their spread. With one variance for each coefficient, "
    "that of the intercept is then hardly told apart, and the fit may have stopped short: centre "
    "them, or fit covariance='full', which does not depend on where zero is."
)
NO_SPREAD = (
    "An estimated variance between groups is zero: groups differ no more than chance explains."
)
SEPARATED = (
    "The classes are told apart without error: the likelihood has no maximum, and coefficients are "
    "those at which the search stopped."
)
UNBOUNDED = (
    "The likelihood rises as a variance between groups grows without bound: rows are too few, or "
    "groups all of one class. The variance is that at which the search stopped."
)
LAPLACE = (
    "Laplace's approximation underestimates the spread of the population where groups have few "
    "rows, and so shrinks too much; method='ep' does not."
)
JOINT = (
    "method='gd' maximises jointly over all coefficients and the variance of their population, "
    "which has no maximum: the variance is that of the last round."
)


def _warn(how: str, gain: float, advice: str) -> None:
    warnings.warn(
        f"not converged: {how} the next was to raise the log-likelihood by {gain:.2g}. {advice}",
        ConvergenceWarning,
        stacklevel=6,
    )


def _noted(population: NormalPopulation) -> dict[str, NDArray]:
    return {"mean": population.mean, "root": population.root}


def _measure(clients: Clients, second: Any) -> dict[str, NDArray]:
    """Mean of each client's rows, products about it, and how many are of the second class."""
    n = np.maximum(clients.n, 1)
    centre = _sums(clients.X, clients) / n[:, None]
    away = clients.X - np.repeat(centre, clients.n, axis=0)
    p = away.shape[1]
    products = _sums((away[:, :, None] * away[:, None, :]).reshape(-1, p * p), clients)
    ones = (np.asarray(clients.y) == second).astype(float)[:, None]
    return {
        "centre": centre,
        "products": products.reshape(-1, p, p),
        "second": _sums(ones, clients)[:, 0],
    }


def _directions(
    within: NDArray, centres: NDArray, share: NDArray, intercept: bool
) -> tuple[NDArray, NDArray]:
    """Find the directions in which coefficients matter, and matter alike.

    Parameters
    ----------
    within : ndarray of shape (p, p)
        Average of products of rows about their clients' mean.
    centres : ndarray of shape (n, p)
        These means.
    share : ndarray of shape (n,)
        Of the rows.
    intercept : bool
        Whether the first column is all ones.

    Returns
    -------
    ways : ndarray of shape (p, rank)
        ``X ways`` has unit mean square and no correlation.
    identified : bool ndarray of shape (p,)
        Whether rows tell this coefficient from the others.
    """
    p = len(within)
    centre = share @ centres if intercept else np.zeros(p)
    if intercept:
        centre[0] = 0.0
    away = centres - centre
    products = within + (share[:, None] * away).T @ away
    size = np.sqrt(np.diag(products))
    size = np.where(size > 1e-13 * np.abs(centre), size, 0.0)  # of what is constant, rounding
    scale = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(
        products / np.outer(scale, scale) * np.outer(size > 0, size > 0)
    )
    has_data = values > 1e-11 * max(values[-1], 1e-300)
    ways = vectors[:, has_data] / np.sqrt(values[has_data])
    if has_data.all():  # the root that depends on no order of columns
        ways = ways @ vectors.T
    ways = ways / scale[:, None]
    lost = vectors[:, ~has_data] / scale[:, None]
    identified = np.abs(vectors[:, ~has_data]).max(axis=1, initial=0.0) < 1e-6
    if intercept:  # of centred columns, to that of columns as they are
        moves = np.abs(centre @ lost) > 1e-9 * (np.abs(centre) @ np.abs(lost))
        identified[0] = not moves.any()
        ways[0] -= centre @ ways
    return ways, identified


def _sums(values: NDArray, clients: Clients) -> NDArray:
    """Sum the rows of each client, one after the other: blocks make no difference."""
    total = np.zeros((len(clients), values.shape[1]))
    np.add.at(total, np.repeat(np.arange(len(clients)), clients.n), values)
    return total


def _descend(
    clients: Clients, sent: dict, theta: NDArray, rate: float
) -> tuple[NDArray, dict[str, NDArray]]:
    """Take the clients' part of a round of Algorithm 5; returns theta, and what is sent.

    The prior's pull on theta is ``(theta - mean) / variance``, which the paper has with the other
    sign.
    """
    mean, variance = sent["mean"], sent["root"][0, 0] ** 2
    away = (theta - mean) / variance
    signs = np.where(np.asarray(clients.y) == sent["classes"][1], 1.0, -1.0)
    logit = np.einsum("np,np->n", clients.X, np.repeat(theta, clients.n, axis=0))
    slope = _sums(clients.X * (-signs * expit(-signs * logit))[:, None], clients)
    by_log_variance = theta.shape[1] / 2 - 0.5 * variance * (away**2).sum(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):  # the server sees that descent diverged
        message = {
            "mean": mean + rate * away,
            "log_variance": np.log(variance) - rate * by_log_variance,
        }
        return theta - rate * (slope + away), message


def _open_questions(n: NDArray) -> list[str]:
    """Say what the numbers of rows alone leave open."""
    has_data = n[n > 0]
    if len(has_data) < 2:
        return [
            "Only one group has data: the spread of the population is not identified and taken to "
            "be zero."
        ]
    if has_data.max() == 1:
        return [
            "No group has two rows: the spread of the population is not identified. It is taken to "
            "be zero, so that all groups have the same coefficients."
        ]
    return []
