"""Linear regression in every group, the coefficients drawn from a normal population."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from ebfed.engines import Engine
from ebfed.priors import IdentificationWarning, Posterior
from ebfed.regression.base import (
    Parameter,
    RegressionEstimator,
    fixed_parameters,
    residual_parameter,
    spread_parameters,
)
from ebfed.regression.numerics.joint_descent import descend_jointly
from ebfed.regression.numerics.mixed_model import Covariance, Fit, fit_mixed_model
from ebfed.regression.posteriors.linear import CoefficientPosterior
from ebfed.tables.clients import Clients, Summary
from ebfed.tables.covariates import named_columns, read_covariates
from ebfed.tables.factors import Factors
from ebfed.tables.frames import Table, drop_columns, is_frame
from ebfed.tables.labels import number_labels
from ebfed.tables.lazy import column_names, is_lazy, summarise

__all__ = ["LinearEB"]


class LinearEB(RegressorMixin, RegressionEstimator):
    """Empirical Bayes linear regression: a coefficient vector for every group.

    Rows of group i are ``y_ij = x_ij' theta_i + e_ij``, ``e_ij ~ N(0, noise)``, and ``theta_i ~
    N(mean, covariance)``. Clients send the triangular factor of their rows; the population is
    fitted by restricted maximum likelihood; each client's estimate is (Ozkara et al. 2023, Theorem
    7, for a general covariance S)

        theta_i^ = (S^-1 + X_i' X_i / noise)^-1 (X_i' y_i / noise + S^-1 mean),

    its covariance the inverse in front plus what not knowing the mean adds. This is the linear
    mixed model of lme4, ``y ~ x + (1 + x || group)``.

    Parameters
    ----------
    covariance : {"diag", "spherical", "full"}
        Of the coefficients: a variance for each, one for all, or any (then the coefficients may be
        correlated, as in ``(1 + x | group)``).
    varying : sequence of str or int, optional
        Columns of `X` (or ``"intercept"``) whose coefficients differ between groups; the others
        have one coefficient for all. All, if None.
    fit_intercept : bool
        Whether to put a column of ones first.
    method : {"reml", "ml"}
    solver : {"marginal", "gd"}
        ``"marginal"`` maximises the marginal likelihood, by Fisher scoring and quasi-Newton steps.
        ``"gd"`` is Algorithm 4 of Ozkara et al., for replication: `n_steps` of gradient descent on
        all theta, the mean and both variances together, which has no minimum to converge to. All
        coefficients vary then, with a spherical covariance.
    learning_rate, n_steps : float, int
        Of ``"gd"``.
    engine : Engine, optional
        Where clients compute; `engines.Local()` if None.
    random_state : ignored

    Attributes
    ----------
    mean_ : ndarray of shape (p,)
        Of the population, the intercept first; for columns that do not vary, their coefficient.
    population_coef_ : ndarray of shape (q, k)
        How the mean of each coefficient that varies depends on each covariate.
    covariate_names_ : list of k str
        The covariates; `mean_` is that of a group where all are zero.
    mean_covariance_ : ndarray of shape (p, p)
        Sampling covariance of `mean_`.
    covariance_ : ndarray of shape (p, p)
        Of the population; zero for columns that do not vary.
    noise_variance_ : float
    criterion_ : float
        -2 log-likelihood (restricted for REML), as lme4 has it.
    clients_, groups_, terms_, history_, privacy_, notes_ :
        See `RegressionEstimator`.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, section 3 and appendix E; Bates, Maechler, Bolker, Walker (2015),
    Fitting linear mixed-effects models using lme4, J. Stat. Softw. 67.

    Examples
    --------
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(200), 8)
    >>> x = rng.normal(size=1600)
    >>> slope = rng.normal(2, 0.5, 200)[groups]
    >>> y = 1 + slope * x + rng.normal(size=1600)
    >>> est = eb.LinearEB().fit(x[:, None], y, groups=groups)
    >>> est.mean_.round(1), np.sqrt(np.diag(est.covariance_)).round(1)
    (array([1. , 1.9]), array([0. , 0.6]))
    >>> est.posterior().to_frame().columns.tolist()
    ['group', 'term', 'n', 'estimate', 'sd', 'lower', 'upper']
    """

    SENT: ClassVar[str] = "the triangular factor of each client's rows, as it is"
    RESULTS: ClassVar[tuple[str, ...]] = (
        "mean",
        "mean_covariance",
        "identified",
        "covariance",
        "doubt",
        "noise_variance",
        "criterion",
        "n_parameters",
        "notes",
        "covariates",
    )

    covariate_names_: list[str]
    _covariate_columns: Sequence[str] = ()
    _covariates: tuple[NDArray, NDArray] = np.empty(0, np.int64), np.empty((0, 0))

    def __init__(
        self,
        covariance: Covariance = "diag",
        *,
        varying: Sequence[str | int] | None = None,
        fit_intercept: bool = True,
        method: Literal["reml", "ml"] = "reml",
        solver: Literal["marginal", "gd"] = "marginal",
        learning_rate: float = 1e-3,
        n_steps: int = 1000,
        engine: Engine | None = None,
        random_state: Any = None,
    ):
        self.covariance = covariance
        self.varying = varying
        self.fit_intercept = fit_intercept
        self.method = method
        self.solver = solver
        self.learning_rate = learning_rate
        self.n_steps = n_steps
        self.engine = engine
        self.random_state = random_state

    # Covariates -------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, covariates: Any = None) -> Self:
        """Learn the population from rows.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, d)
            Or a table whose rows are not in memory (DuckDB, polars.LazyFrame, Dask, Spark, ...):
            its own engine adds up the products of its columns.
        y : array-like or series of shape (n_rows,), or str
            The response, or the column of the frame `X` that holds it.
        groups : array-like of shape (n_rows,) or str, optional
            Label of each row, or the column of the frame `X` that holds it. None: every row is a
            group of its own.
        covariates : list of str, data frame or array-like, optional
            Covariates w_i of groups, on which the mean of the coefficients depends: ``mean +
            population_coef_ w_i`` for those that vary. Columns of `X` that are constant within
            groups; a frame with a row for each group and a column of labels; or numbers of shape
            (n_groups, k), in the order of sorted labels. They are part of what clients send.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If rows are missing, infinite or of the wrong type, or labels or covariates do not fit
            them.
        """
        return self._fit(*self.prepare(X, y, groups=groups, covariates=covariates))

    def prepare(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        consent: Any = None,
        covariates: Any = None,
    ) -> tuple[Factors, dict[str, NDArray]]:
        """Read rows, as in `fit`."""
        if consent is not None:
            raise ValueError("LinearEB has no classes of consent.")
        clients, _ = self._read(X, y, groups, True, covariates)
        return self._block(clients), {}

    def partial_fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Add a block of rows to what was fitted before; the answer is that of one `fit` on all.

        Blocks may share groups. Parameters are those of `fit`; without `groups`, the rows of a
        block are new groups, numbered on from those seen.

        Raises
        ------
        ValueError
            If the fit had covariates of groups.
        """
        if getattr(self, "covariate_names_", None):
            raise ValueError("partial_fit takes no covariates; fit all rows at once.")
        return super().partial_fit(X, y, groups=groups)

    def _read(
        self, X: Any, y: Any, groups: Any, reset: bool, covariates: Any = None
    ) -> tuple[Any, NDArray | None]:
        """Read rows; where these are not in memory, their products."""
        import pandas as pd

        if not is_lazy(X):
            return super()._read(X, y, groups, reset, covariates)
        y = self._y_name if y is None and not reset else y
        if not isinstance(y, str):
            raise ValueError("y must name a column of X, the rows of which are not in memory.")
        if covariates is not None:
            raise ValueError("covariates= needs the rows of X in memory.")
        found = summarise(X, groups, cross=True)
        if y not in found.columns:
            raise ValueError(f"y={y!r} is not a column of X, which has {', '.join(found.columns)}.")
        if len(found.columns) < 2:
            raise ValueError(f"X has no column but y={y!r}; nothing to explain it with.")
        order = [j for j, name in enumerate(found.columns) if name != y]
        names = [found.columns[j] for j in order]
        validate_data(self, pd.DataFrame(columns=names), skip_check_array=True, reset=reset)
        if reset:
            self._y_name, self._group_name, self._style_ = y, groups, found.style
            self.covariate_names_, self._covariate_columns = [], []
        order.append(found.columns.index(y))
        has_data = found.summary
        scatter = has_data.scatter[:, order][:, :, order]
        moments = Summary(has_data.ids, has_data.n, has_data.mean[:, order], scatter)
        return Factors.from_moments(moments, bool(self.fit_intercept)), has_data.ids

    def describe(self, clients: Factors, memory: dict) -> dict[str, NDArray]:
        """State numbers of rows, columns, and names of covariates."""
        names = "\n".join(self.covariate_names_)
        return super().describe(clients, memory) | {"covariates": np.array([names])}

    def _features(self, X: Any, covariates: Any, reset: bool) -> Any:
        if reset:
            self._covariate_columns = named_columns(covariates)
        return drop_columns(X, self._covariate_columns) if self._has_covariates(X) else X

    def _extended(
        self, design: NDArray, X: Any, table: Table, covariates: Any, reset: bool
    ) -> NDArray:
        """Add the products of varying columns with covariates, whose coefficients do not vary."""
        if covariates is None and (reset or not self.covariate_names_):
            if reset:
                self.covariate_names_ = []
            return design
        if table.labels is None and covariates is None and not self._has_covariates(X):
            raise ValueError("rows without groups need covariates of their own as covariates=.")
        ids, codes = np.arange(len(design)), np.arange(len(design))
        if table.labels is not None:
            ids, codes = number_labels(table.labels)
        if reset:
            values, self.covariate_names_ = read_covariates(
                covariates, X, table.labels, ids, table.style.group
            )
            self._covariates = ids, values
        else:
            known = () if table.labels is None else self._covariates[0]
            values = self._covariates_of(ids, X, table.labels, covariates, known)
        varying = self._varying(self._shape())
        products = design[:, varying][:, :, None] * values[codes][:, None, :]
        return np.column_stack([design, products.reshape(len(design), -1)])

    def _covariates_of(
        self, ids: NDArray, X: Any, labels: NDArray | None, covariates: Any, known: Any
    ) -> NDArray:
        """Covariates of groups: those `known` have the fit's, others as given, or as in `X`."""
        import pandas as pd

        names = self.covariate_names_
        if not names:
            raise ValueError("covariates= was given, but the fit had no covariates.")
        if covariates is None and self._has_covariates(X):
            covariates = self._covariate_columns
        place = pd.Index(known).get_indexer(pd.Index(ids))
        if covariates is None and np.any(place < 0):
            first = ids.tolist()[int(np.argmax(place < 0))]
            raise ValueError(
                f"group {first!r} was not in the fit: give its covariates as covariates=."
            )
        values = np.empty((len(ids), len(names)))
        # a table need not have groups that are known; numbers are for all
        new = (place < 0) | (not is_frame(covariates))
        if covariates is not None and new.any():
            group = self._style_.group
            values[new] = read_covariates(covariates, X, labels, ids[new], group, names)[0]
        values[place >= 0] = self._covariates[1][place[place >= 0]]
        return values

    def _tells(self, X: Any, covariates: Any) -> bool:
        return covariates is not None or self._has_covariates(X)

    def _has_covariates(self, X: Any) -> bool:
        columns = self._covariate_columns
        return bool(columns) and is_frame(X) and set(columns) <= set(column_names(X))

    # Clients ----------------------------------------------------------------------------------

    def _block(self, clients: Clients | Factors) -> Factors:
        return clients if isinstance(clients, Factors) else Factors.of(clients)

    def local(
        self, sent: dict, memory: dict, clients: Factors, rng: Any
    ) -> tuple[dict[str, NDArray], dict]:
        """Send each client's number of rows and triangular factor."""
        return {"n": clients.n, "factor": clients.padded(sent["size"])}, memory

    def _bits(self, sent: dict, clients: Factors) -> float:
        p = clients.n_features + 1
        r = np.minimum(clients.n, p)
        return float(64 * (r * p - r * (r - 1) / 2).sum())

    # Server -----------------------------------------------------------------------------------

    def start(self, facts: dict, key: NDArray) -> dict:
        """Return the state before the only round."""
        for name, values in (
            ("covariance", ("diag", "spherical", "full")),
            ("method", ("reml", "ml")),
            ("solver", ("marginal", "gd")),
        ):
            if getattr(self, name) not in values:
                raise ValueError(f"{name} must be one of {values}; got {getattr(self, name)!r}.")
        if self.solver == "gd" and (self.covariance != "spherical" or self.varying is not None):
            raise ValueError("solver='gd' needs covariance='spherical' and varying=None.")
        if not (self.learning_rate > 0 and self.n_steps > 0):
            raise ValueError("learning_rate and n_steps must be positive.")
        state = super().start(facts, key)
        names = np.unique(facts["covariates"])
        if len(names) > 1:
            raise ValueError(f"clients have different covariates: {names.tolist()}.")
        state["covariates"] = str(names[0])
        return state | {"size": min(self._width(state), int(facts["n"].max()))}

    def _width(self, state: dict) -> int:
        """Return the number of columns of a factor."""
        k = len(state["covariates"].split("\n")) if state["covariates"] else 0
        return state["n_features"] + bool(self.fit_intercept) + k * len(self._varying(state)) + 1

    def check_facts(self, facts: dict) -> None:
        """Raise a ValueError if that is not what clients may state."""
        super().check_facts(facts)
        names = facts.get("covariates")
        if not (isinstance(names, np.ndarray) and names.dtype.kind == "U" and names.shape == (1,)):
            raise ValueError("facts must have the names of covariates.")

    def _asked(self, state: dict) -> dict:
        return {"size": state["size"]}

    def check_message(self, message: dict, facts: dict, sent: dict, turn: NDArray) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""
        super().check_message(message, facts, sent, turn)
        width = self._width(
            {name: facts[name][0] for name in ("n_features", "columns", "covariates")}
        )
        shape = (len(facts["n"]), sent["size"], width)
        if message.keys() != {"n", "factor"} or message["factor"].shape != shape:
            raise ValueError(f"a message must have a factor of shape {shape}.")
        if not np.array_equal(message["n"], facts["n"]):
            raise ValueError("a message must have the rows that were stated.")

    def update(self, state: dict, messages: dict) -> dict:
        """Fit the mixed model."""
        if self.solver == "gd":
            return self._descend(state, messages)
        n, varying = messages["n"], self._varying(state)
        notes = _open_questions(n, varying)
        fit = fit_mixed_model(
            messages["factor"],
            int(n.sum()),
            varying,
            covariance=self.covariance,
            method=self.method,
            intercept=bool(self.fit_intercept),
            identified=not notes,
        )
        for note in notes:
            warnings.warn(note, IdentificationWarning, stacklevel=6)
        spread = {
            "spherical": min(len(varying), 1),
            "diag": len(varying),
            "full": len(varying) * (len(varying) + 1) // 2,
        }
        return state | {
            "round": 1,
            "done": True,
            "history": [{"criterion": value} for value in fit.path],
            "log_likelihood": fit.log_likelihood,
            "mean": fit.mean,
            "mean_covariance": fit.mean_covariance,
            "identified": fit.identified,
            "covariance": fit.covariance,
            "doubt": fit.doubt,
            "noise_variance": fit.noise_variance,
            "criterion": fit.criterion,
            "converged": fit.converged if fit.path else None,
            "n_parameters": fit.rank + spread[self.covariance] + 1,
            "notes": notes + self._remarks(state, fit, varying),
        }

    def _descend(self, state: dict, messages: dict) -> dict:
        """Run Algorithm 4."""
        found = descend_jointly(messages["factor"], messages["n"], self.learning_rate, self.n_steps)
        p = len(found.mean)
        note = (
            "Gradient descent on coefficients and variances together has no minimum to converge "
            f"to; the variances are those after {self.n_steps} steps, and say little about the "
            "population. solver='marginal' estimates them."
        )
        warnings.warn(note, ConvergenceWarning, stacklevel=7)
        return state | {
            "round": 1,
            "done": True,
            "history": [{"objective": value} for value in found.path],
            "log_likelihood": np.nan,
            "mean": found.mean,
            "mean_covariance": np.zeros((p, p)),
            "identified": np.ones(p, bool),
            "covariance": found.variance * np.eye(p),
            "doubt": np.zeros((p, p)),
            "noise_variance": found.noise_variance,
            "criterion": np.nan,
            "converged": None,
            "n_parameters": p + 2,
            "notes": [note],
        }

    def _remarks(self, state: dict, fit: Fit, varying: NDArray) -> list[str]:
        """Note which parameters are at a boundary."""
        remarks = []
        if fit.rank < len(fit.mean):
            remarks.append(
                f"Columns of X are collinear: of {len(fit.mean)} mean coefficients only {fit.rank} "
                "combinations are identified. Predictions for rows like those of the fit are "
                "right; single coefficients and their standard errors mean nothing."
            )
        if fit.noise_variance == 0:
            remarks.append(
                "The mean coefficients leave nothing over: noise and spread are taken to be zero."
            )
        elif fit.path and (flat := [j for j in varying if fit.covariance[j, j] == 0]):
            names = self._names(state)
            remarks.append(
                "Estimated variance between groups is zero for "
                f"{', '.join(str(names[j]) for j in flat)}: groups differ there no more than their "
                "noise explains."
            )
        return remarks

    def _learn(self, sent: dict) -> None:
        self._n_parameters, self.notes_ = sent["n_parameters"], sent["notes"]
        self.criterion_, self.noise_variance_ = sent["criterion"], sent["noise_variance"]
        names = sent["covariates"]
        self.covariate_names_ = names.split("\n") if names else []
        self._identified = sent["identified"]
        self._whole = sent["mean"], sent["mean_covariance"], sent["covariance"]
        # a full covariance is known as well as so many clients tell it
        has_data = sent["n_clients"] if self.covariance == "full" else None
        self._doubt = sent["doubt"], has_data
        p = len(self.terms_)
        self.mean_, self.mean_covariance_ = sent["mean"][:p], sent["mean_covariance"][:p, :p]
        self.covariance_ = sent["covariance"][:p, :p]
        k = len(self.covariate_names_)
        self.population_coef_ = sent["mean"][p:].reshape(-1, k) if k else np.empty((0, 0))

    @property
    def n_parameters_(self) -> int:
        """Number of fitted parameters: coefficients, variances, covariances."""
        check_is_fitted(self, "mean_")
        return self._n_parameters

    # Estimates --------------------------------------------------------------------------------

    def _posterior(self, block: Factors) -> CoefficientPosterior:
        """Posterior of all coefficients, those of products with covariates among them."""
        return CoefficientPosterior(block, *self._whole, self.noise_variance_, self._doubt)

    def _centre(self) -> NDArray:
        return self._whole[0]

    def _maps(self, covariates: NDArray) -> NDArray:
        """How each group's own coefficients depend on all, shape (n, p, p + q k)."""
        p, varying = len(self.mean_), self._varying(self._shape())
        maps = np.zeros((len(covariates), p, len(self._whole[0])))
        maps[:, np.arange(p), np.arange(p)] = 1
        for a, j in enumerate(varying):
            first = p + a * covariates.shape[1]
            maps[:, j, first : first + covariates.shape[1]] = covariates
        return maps

    def posterior(
        self, X: Any = None, y: Any = None, *, groups: Any = None, covariates: Any = None
    ) -> Posterior:
        """Posterior of each group's coefficients.

        Parameters
        ----------
        X, y : as in `fit`, optional
            Rows that the posterior is to use instead of those of the fit.
        groups : as in `fit`, optional
            Without `X`: the groups asked for, each with its rows of the fit; a group that was not
            in the fit has none and gets the population.
        covariates : as in `fit`, optional
            Covariates of groups that were not in the fit.

        Returns
        -------
        Posterior
            One entry per distinct group, in the order of the sorted labels, and p coordinates.
        """
        block = self._asked_for(X, y, groups, covariates)
        posterior = self._posterior(block)
        if self.covariate_names_:
            labels = None
            if self._has_covariates(X):
                labels = self._table(self._features(X, None, False), y, groups).labels
            # of rows that are given, covariates are too
            known = self._covariates[0] if X is None or not self._tells(X, covariates) else ()
            covariates = self._covariates_of(block.ids, X, labels, covariates, known)
            posterior = posterior.of(self._maps(covariates))
        return self._labelled(posterior, block)

    def predict(self, X: Any, *, groups: Any = None, covariates: Any = None) -> NDArray:
        """Predict each row's response with the coefficients of its group.

        Parameters
        ----------
        X : as in `fit`
        groups : as in `fit`, optional
            Label of each row. A group that was not in the fit is predicted by the population's
            mean; so are all rows if None (unless `X` has the column that held them in the fit).
        covariates : as in `fit`, optional
            Covariates, where the fit had some and groups are new (or there are none: then those of
            each row).

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        return self._linear(X, groups, covariates)

    def predict_interval(
        self,
        X: Any,
        *,
        groups: Any = None,
        covariates: Any = None,
        level: float = 0.95,
        kind: Literal["mean", "row"] = "row",
    ) -> tuple[NDArray, NDArray]:
        """Interval for each row's response, or for its mean.

        Parameters
        ----------
        X, groups, covariates : as in `predict`
        level : float in (0, 1)
        kind : {"row", "mean"}
            Whether the interval is to hold a new response or ``x' theta_i``.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,)
        """
        from scipy.special import ndtri

        if kind not in ("mean", "row"):
            raise ValueError(f"kind must be 'mean' or 'row'; got {kind!r}.")
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1; got {level!r}.")
        rows, labels = self._read_design(X, groups, covariates)
        if labels is None:
            codes = np.zeros(len(rows), np.int64)
            posterior = self._posterior(self._empty(np.zeros(1, np.int64)))
        else:
            ids, codes = number_labels(labels)
            posterior = self._posterior(self._known(ids))
        middle = np.einsum("np,np->n", rows, posterior.mean[codes])
        variance = posterior.variance_along(rows, codes)
        if kind == "row":
            variance = variance + self.noise_variance_
        reach = ndtri((1 + level) / 2) * np.sqrt(variance)
        return middle - reach, middle + reach

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        covariates: Any = None,
    ) -> float:
        """R**2 of the predictions of rows by the coefficients of their groups.

        Parameters
        ----------
        X, y, groups : as in `fit`
        sample_weight : array-like of shape (n_rows,), optional
        covariates : as in `predict`
        """
        fitted = self.predict(X, groups=groups, covariates=covariates)
        return self._share_explained(X, y, sample_weight, groups, fitted)

    def _fitted_by(self) -> str:
        if self.solver == "gd":
            return "gradient descent"
        return {"reml": "REML", "ml": "maximum likelihood"}[self.method]

    def _parameters(self) -> list[Parameter]:
        group, terms = self._style_.group, self.terms_
        varying = self._varying(self._shape())
        products = [f"{terms[j]}:{name}" for j in varying for name in self.covariate_names_]
        mean, mean_covariance, _ = self._whole
        errors = np.where(self._identified, np.sqrt(np.diag(mean_covariance)), np.nan)
        rows = fixed_parameters([*terms, *products], mean, errors)
        rows += spread_parameters(
            group, terms, self.covariance_, varying, correlated=self.covariance == "full"
        )
        return [*rows, residual_parameter(self.noise_variance_)]

    def _given_population(self) -> Posterior:
        mean, doubt, covariance = self._whole
        known = CoefficientPosterior(
            self.clients_, mean, np.zeros_like(doubt), covariance, self.noise_variance_
        )
        return known.of(self._maps_of_groups()) if self.covariate_names_ else known

    def _expected_of_groups(self) -> NDArray:
        if not self.covariate_names_:
            return super()._expected_of_groups()
        return self._maps_of_groups() @ self._whole[0]

    def _maps_of_groups(self) -> NDArray:
        known = self._covariates[0]
        return self._maps(self._covariates_of(self.groups_, None, None, None, known))

    def _facts(self) -> dict[str, float]:
        facts = {"sigma": np.sqrt(self.noise_variance_)}
        if self.method == "reml" and self.solver == "marginal":
            facts["REMLcrit"] = self.criterion_
        if self.fit_intercept and self._varying(self._shape()).tolist() == [0]:
            total = self.covariance_[0, 0] + self.noise_variance_
            facts["icc"] = self.covariance_[0, 0] / total if total > 0 else np.nan
        return facts


def _open_questions(n: NDArray, varying: NDArray) -> list[str]:
    """Say what the numbers of rows alone leave open."""
    if not len(varying):
        return []
    has_data = n[n > 0]
    if len(has_data) < 2:
        return [
            "Only one group has data: the spread of the population is not identified and taken to "
            "be zero."
        ]
    if has_data.max() == 1:
        return [
            "No group has two rows: noise and spread of the population are not identified apart. "
            "The spread is taken to be zero, so that all groups have the same coefficients."
        ]
    return []
