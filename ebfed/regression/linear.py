"""Linear regression in every group, the coefficients drawn from a normal population."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from ebfed.engines import Engine
from ebfed.engines.sums import Share
from ebfed.inference.degrees_of_freedom import FixedDegrees, Inference, Method, inference_of
from ebfed.inference.influence import changes_without
from ebfed.inference.profiles import Criterion
from ebfed.priors import Posterior
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.beside import groups_beside, predicted_beside
from ebfed.regression.columns import Varying
from ebfed.regression.diagnosis import rows_of_linear
from ebfed.regression.dispersion import (
    dispersed_rows,
    known_dispersion,
    learn_dispersion,
    noise_of_rows,
)
from ebfed.regression.group_covariates import GroupCovariates
from ebfed.regression.inferring import has_rows_of_all, mixed_fit
from ebfed.regression.intervals import drawn
from ebfed.regression.linear_population import DESCENT, LinearPopulation
from ebfed.regression.linear_rounds import LinearRounds
from ebfed.regression.mixed import LeftOut
from ebfed.regression.nested import NestedModel, names_of_levels
from ebfed.regression.numerics.mixed_model import Covariance
from ebfed.regression.numerics.spread_doubt import excess_noise
from ebfed.regression.posteriors.linear import CoefficientPosterior, Doubt
from ebfed.regression.protocol import LinearResult
from ebfed.regression.reading import (
    OF_WEIGHT_ONE,
    check_interval,
    of_weights,
    offset_of,
    posterior_of_rows,
    predicted_numbers,
)
from ebfed.report.diagnostics import Diagnostics
from ebfed.report.view import RegressionView
from ebfed.tables.covariates import named_columns
from ebfed.tables.dispersed import Dispersed
from ebfed.tables.factors import Factors
from ebfed.tables.labels import number_labels
from ebfed.tables.lazy import Summarised, columns_beside, is_lazy, summarise
from ebfed.tables.levels import only_level
from ebfed.tables.roles import NEEDED
from ebfed.tables.rows import Rows

__all__ = ["LinearEB"]

NAMES = {"reml": "REML", "ml": "maximum likelihood"}


@dataclass(eq=False, repr=False)
class LinearEB(RegressorMixin, NestedModel):
    """Empirical Bayes linear regression: a coefficient vector for every group.

    Rows of group i are ``y_ij = x_ij' theta_i + e_ij``, ``e_ij ~ N(0, noise)``, and ``theta_i ~
    N(mean, covariance)``. Clients send the triangular factor of their rows; the population is
    fitted by restricted maximum likelihood; each client's estimate is (Ozkara et al. 2023, Theorem
    7, for a general covariance S)

        theta_i^ = (S^-1 + X_i' X_i / noise)^-1 (X_i' y_i / noise + S^-1 mean),

    and its covariance is (S^-1 + X_i' X_i / noise)^-1, plus a term for the uncertainty of the mean.
    This is the linear mixed model of lme4, ``y ~ x + (1 + x || group)``.

    Parameters
    ----------
    covariance : {"diag", "spherical", "full"}
        Covariance of the coefficients: a variance for each, one for all, or any (then the
        coefficients may be correlated, as in ``(1 + x | group)``).
    varying : sequence of str or int, or mapping, optional
        Columns of `X` (or ``"intercept"``) whose coefficients differ between groups; the others
        have one coefficient for all. All, if None. Lists of columns are terms whose coefficients
        are independent of each other's: with ``"full"``, ``[["intercept"], ["x", "z"]]`` is ``(1 |
        group) + (0 + x + z | group)``. Of several levels of groups, the same for all levels; or a
        mapping, which has them for each level by its name: ``{"lea": ["intercept"], "school":
        ["intercept", "x"]}`` is ``(1 | lea) + (1 + x | lea:school)``.
    fixed : sequence of str or int, optional
        Columns of `X` (or ``"intercept"``) whose coefficient has a mean, to be estimated; the mean
        of the others, which must vary, is zero: ``varying=["intercept", "x"],
        fixed=["intercept"]`` is ``1 + (1 + x | group)``. All, if None.
    fit_intercept : bool
        Whether to put a column of ones first.
    method : {"reml", "ml"}
        Likelihood that is maximised: restricted, or not.
    solver : {"marginal", "gradient"}
        ``"marginal"`` maximises the marginal likelihood, by Fisher scoring and quasi-Newton steps.
        ``"gradient"`` is Algorithm 4 of Ozkara et al., for replication: gradient descent on all
        theta, the mean and both variances together, which has no minimum to converge to. All
        coefficients vary then, with a spherical covariance.
    learning_rate : float
        Learning rate of ``"gradient"``.
    n_steps : int
        Number of steps of ``"gradient"``.
    share : {"groups", "sums"}
        What a block of clients sends: the triangular factor of each client, in one round; or sums
        over its clients at each population that the search for the optimum comes to, in some ten to
        twenty rounds (more with ``"diag"`` and columns whose means are large beside their spread:
        centre them). The fit is the same. A factor of a client with one row is that row. A sum
        over one client is that client's figure, and sums at many populations together may say much
        of few clients: it is less that leaves, not a guarantee of privacy. Factors of a group at
        several nodes are merged where these share a key for labels (`ebfed.engines.matching`).
        Levels need ``"groups"``: a number for each parent, which follows from its label, goes with
        the factors. The fit may have a parent's groups at several nodes; a node knows of a parent
        what its own rows say, so that it is to hold all groups of one.
    engine : Engine, optional
        Engine on which clients compute; `engines.Local()` if None.
    random_state : ignored

    Attributes
    ----------
    mean_ : ndarray of shape (p,)
        Mean of the population, the intercept first; for columns that do not vary, their
        coefficient; zero for columns that are not `fixed`.
    population_coef_ : ndarray of shape (q, k)
        Effect of each covariate on the mean of each coefficient that varies.
    covariate_names_ : list of k str
        The covariates; `mean_` is the mean of a group whose covariates are all zero.
    mean_covariance_ : ndarray of shape (p, p)
        Sampling covariance of `mean_`.
    covariance_ : ndarray of shape (p, p)
        Covariance of the population; zero for columns that do not vary. Of several levels, that of
        groups around their parent.
    covariance_above_ : dict of ndarray of shape (p, p)
        Covariance of each level above the groups, by its name, from the outermost.
    noise_variance_ : float
        With `dispersion`, that of the first level.
    noise_variances_ : dict of float
        With `dispersion`, the noise variance of each of its levels; empty without.
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

    Schools of districts, whose labels need only differ within districts:

    >>> rows = pd.DataFrame({"district": groups // 10, "school": groups, "x": x, "y": y})
    >>> nested = eb.LinearEB(varying=["intercept"]).fit(rows, "y", groups=["district", "school"])
    >>> nested.posterior(level="district").to_frame().columns[:3].tolist()
    ['district', 'term', 'n']

    >>> est.posterior().to_frame().columns.tolist()
    ['group', 'term', 'n', 'estimate', 'sd', 'lower', 'upper']
    """

    covariance: Covariance = "diag"
    _: KW_ONLY
    varying: Varying = None
    fixed: Sequence[str | int] | None = None
    fit_intercept: bool = True
    method: Literal["reml", "ml"] = "reml"
    solver: Literal["marginal", "gradient"] = "marginal"
    learning_rate: float = 1e-3
    n_steps: int = 1000
    share: Share = "groups"
    engine: Engine | None = None
    random_state: Any = None

    covariate_names_: list[str] = field(init=False)
    noise_variances_: dict[str, float] = field(init=False)
    _has_offset = False  # of which later rows must have one
    _covariates = GroupCovariates()

    def protocol(self) -> LinearRounds:
        rounds = LinearRounds(
            self.covariance,
            self.varying,
            bool(self.fit_intercept),
            self.method,
            self.share,
            self.fixed,
            estimator=self,
        )
        if str(self.solver) == "marginal":
            return rounds
        from ebfed.regression.joint_descent import linear_descent

        return linear_descent(rounds, self.solver, self.learning_rate, self.n_steps)

    # Reading ----------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        covariates: Any = None,
        sample_weight: Any = None,
        dispersion: Any = None,
        offset: Any = None,
    ) -> Self:
        """Learn the population from rows.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, d)
            Rows; or a table whose rows are not in memory (DuckDB, polars.LazyFrame, Dask, Spark,
            ...): the database computes the sums of products of its columns.
        y : array-like or series of shape (n_rows,), or str
            The response, or the column of the frame `X` that holds it.
        groups : array-like of shape (n_rows,) or str, or several, optional
            Label of each row, or the column of the frame `X` that holds it. None: every row is a
            group of its own. Several, from the outermost, as a list of names or a frame: groups
            within groups, as lme4's ``(1 + x | lea/school)``; a group is then labelled by all.
        covariates : list of str, data frame or array-like, optional
            Covariates w_i of groups, on which the mean of the coefficients depends: ``mean +
            population_coef_ w_i`` for those that vary. Columns of `X` that are constant within
            groups; a frame with a row for each group and a column of labels (of several levels, of
            each); or numbers of shape (n_groups, k), in the order of sorted labels. Of several
            levels they are of groups of the lowest. They are part of what clients send.
        sample_weight : array-like of shape (n_rows,) or str, optional
            Precision of each row, as ``weights=`` of lme4: its variance is `noise_variance_` over
            the weight. Or the column of the frame `X` that holds it. A row of weight 0 is left out.
        dispersion : array-like of shape (n_rows,) or str, optional
            Level of each row, such as the kind of hospital: each level has a noise variance of its
            own, `noise_variances_`, as ``dispformula=`` of glmmTMB and `varIdent` of nlme. Or the
            column of the frame `X` that holds it, which is then no column of the regression; give
            an array to have both. Later rows need it for `posterior` and for intervals of rows.
            Standard errors take the ratios of the variances as known, and tests are by z.
        offset : array-like of shape (n_rows,) or str, optional
            Known part of the mean of each row, or the column of the frame `X` that holds it. Later
            rows have the offset 0 if none is given, unless `X` has that column.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If rows are missing, infinite or of the wrong type, or labels or covariates do not fit
            them.
        """
        options = {"groups": groups, "covariates": covariates, "sample_weight": sample_weight}
        options |= {"dispersion": dispersion, "offset": offset}
        return self._fit(*self.protocol().prepare(X, y, **options))

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        dispersion: Any = None,
        offset: Any = None,
    ) -> Self:
        """Add a block of rows to those fitted before; the answer is that of one `fit` on all.

        Blocks may share groups. Parameters are those of `fit`; without `groups`, the rows of a
        block are new groups, numbered on from those seen.

        Raises
        ------
        ValueError
            If the fit had covariates of groups.
        """
        if getattr(self, "covariate_names_", None):
            raise ValueError("partial_fit takes no covariates; fit all rows at once.")
        beside = {"sample_weight": sample_weight, "dispersion": dispersion, "offset": offset}
        return self._fit_more(X, y, groups, **beside)

    def _read_block(
        self, X: Any, y: Any, groups: Any, reset: bool, covariates: Any = None, **beside: Any
    ) -> tuple[Factors | Dispersed, NDArray | None]:
        """Read rows and compress them; where they are not in memory, read their products."""
        dispersion = known_dispersion(self, X, beside.get("dispersion"), reset)
        given = beside | {"dispersion": dispersion}
        if dispersion is not None:
            return dispersed_rows(self, X, y, groups, reset, covariates, **given)
        if isinstance(X, Summarised):
            return self._summarised(X, y, reset), X.summary.ids
        if is_lazy(X):
            if beside.get("offset") is not None:
                raise ValueError("offset= needs the rows of X in memory.")
            weight = self._known_beside(X, given, reset).get("sample_weight")
            if weight is None and not reset and self.clients_.log_weight is not None:
                raise ValueError(NEEDED["sample_weight"])
            return self._read_lazily(X, y, groups, reset, covariates, weight)
        return super()._read_block(X, y, groups, reset, covariates, **given)

    def _read_lazily(
        self, X: Any, y: Any, groups: Any, reset: bool, covariates: Any, weight: Any
    ) -> tuple[Factors, NDArray]:
        """Read the products of the columns of a table whose rows are not in memory."""
        if covariates is not None:
            raise ValueError("covariates= needs the rows of X in memory.")
        given = {"y": y, "groups": only_level(groups, X), "sample_weight": weight}
        self._roles = self._roles.learned(X, given) if reset else self._roles
        named = {"y": None, "groups": None} | self._roles.found(X, given)
        y, groups, weight = (named.get(role) for role in given)
        if not columns_beside(X, named) and not self.fit_intercept:
            raise ValueError(f"X has no column but y={y!r}; nothing to explain it with.")
        of_rows = {} if weight is None else {"sample_weight": weight}
        found = summarise(X, groups, cross=True, of_rows=of_rows)
        return self._summarised(found, y, reset), found.summary.ids

    def _summarised(self, found: Summarised, y: str, reset: bool) -> Factors:
        """Return the factors of groups whose products are known."""
        order = [j for j, name in enumerate(found.columns) if name != y]
        names = [found.columns[j] for j in order]
        validate_data(self, pd.DataFrame(columns=names), skip_check_array=True, reset=reset)
        if reset:
            self._style_, self._level_names = found.style, ()
            self.covariate_names_, self._covariates = [], GroupCovariates()
        order.append(found.columns.index(y))
        summary = found.summary
        scatter = summary.scatter[:, order][:, :, order]
        moments = replace(summary, mean=summary.mean[:, order], scatter=scatter)
        return Factors.from_moments(moments, bool(self.fit_intercept))

    def _extended(
        self, design: NDArray, X: Any, rows: Rows, covariates: Any, reset: bool
    ) -> NDArray:
        """Add the products of varying columns with covariates, whose coefficients do not vary."""
        if reset:
            self.covariate_names_, self._covariates = [], GroupCovariates()
        if covariates is None and not self.covariate_names_:
            return design
        known, labels = self._covariates, rows.labels
        covariates = self._roles.found(X, {"covariates": covariates}).get("covariates")
        if labels is None and covariates is None:
            raise ValueError("rows without groups need covariates of their own as covariates=.")
        ids, codes = np.arange(len(design)), np.arange(len(design))
        if labels is not None:
            ids, codes = number_labels(labels)
        if reset:
            known = known.learned(covariates, X, labels, ids, names_of_levels(rows.style))
            self._covariates, self.covariate_names_ = known, known.names
            values = known.values
        else:
            named = names_of_levels(self._style_)
            values = known.of(ids, X, labels, covariates, named, look_up=labels is not None)
        varying = self._columns().varying_places()
        products = design[:, varying][:, :, None] * values[codes][:, None, :]
        return np.column_stack([design, products.reshape(len(design), -1)])

    # Learning ---------------------------------------------------------------------------------

    def _learn(self, result: LinearResult) -> None:
        self._result, self.notes_ = result, result["notes"]
        self.criterion_, self.noise_variance_ = result["criterion"], result["noise_variance"]
        names = result["covariates"]
        self.covariate_names_ = names.split("\n") if names else []
        p, k = len(self._columns()), len(self.covariate_names_)
        if k and not self._covariates.names:  # a server has no groups' covariates
            self._covariates = GroupCovariates(names=self.covariate_names_, values=np.empty((0, k)))
        self._learn_levels(result)
        learn_dispersion(self, result)
        self.mean_, self.mean_covariance_ = result["mean"][:p], result["mean_covariance"][:p, :p]
        self.covariance_ = result["covariance"][:p, :p]
        self.population_coef_ = result["mean"][p:].reshape(-1, k) if k else np.empty((0, 0))

    def _population(self) -> LinearPopulation:
        result = self._result
        filled = self._n_clients if self._totals else int(np.count_nonzero(self._sizes()))
        counts = [*map(int, result.get("n_parents", ())), filled]
        errors = [*result.get("above_error", ()), result["covariance_error"]]
        levels = [*result.get("above", ()), result["covariance"]]
        terms: Any = self._columns().terms_of_levels()
        if self.covariance != "full":
            terms = [None] * len(levels)
        figures = zip(levels, errors, terms, counts, strict=True)
        doubts = [Doubt(*each, self._excess_noise) for each in figures]
        above = list(zip(levels, doubts[:-1], strict=False))
        restricted = self.method == "reml" and self.solver == "marginal"
        return LinearPopulation(
            columns=self._columns(),
            mean=result["mean"],
            mean_covariance=result["mean_covariance"],
            covariance=result["covariance"],
            covariance_error=doubts[-1],
            estimable=self._estimable,
            noise_variance=self.noise_variance_,
            kind=self.covariance,
            covariate_names=self.covariate_names_,
            criterion=self.criterion_ if restricted else None,
            n_parameters=result["n_parameters"],
            fitted_by=DESCENT if self.solver == "gradient" else NAMES[self.method],
            above=above,
            fitted=None if self._is_server else self._weighed(getattr(self, "clients_", None)),
            noise_variances=self.noise_variances_,
        )

    @property
    def _excess_noise(self) -> float:
        """What the noise may be above the fitted one, as its share; see `spread_doubt`."""
        n_rows = int(self._sizes().sum()) if self._totals is None else self._totals[1]
        return excess_noise(n_rows - len(self._of_mean))

    def _weighed(self, block: Any) -> Factors | Any:
        """Return factors of rows over the ratios of their noise, where that has levels."""
        if not isinstance(block, Dispersed):
            return block
        result = self._result
        names = result["dispersion"].split("\n")
        return block.with_levels(names).weighed(np.asarray(result["ratios"]))

    # Tests ------------------------------------------------------------------------------------

    def diagnostics(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        covariates: Any = None,
        sample_weight: Any = None,
        dispersion: Any = None,
        offset: Any = None,
    ) -> Diagnostics:
        """Return rows with what the fit says of them: residuals, leverages and checks.

        Parameters
        ----------
        X, y, groups, covariates, sample_weight, dispersion, offset : as in `fit`
            Leverages are those of these rows in the fit, and of no use for other rows.

        Returns
        -------
        Diagnostics

        Examples
        --------
        >>> import ebfed as eb
        >>> X, y = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([1.0, 2.0, 2.0, 5.0])
        >>> fit = eb.LinearEB(varying=["intercept"]).fit(X, y, groups=[0, 0, 1, 1])
        >>> fit.diagnostics(X, y, groups=[0, 0, 1, 1])
        <Diagnostics of 4 rows>
        """
        options = {"sample_weight": sample_weight, "dispersion": dispersion, "offset": offset}
        return rows_of_linear(self, X, y, groups, covariates, options)

    def _inference(self, ddf: Method | None) -> Inference:
        """Satterthwaite's if None, but for rows whose noise has levels."""
        if ddf is None:
            ddf = "asymptotic" if self.noise_variances_ else "satterthwaite"
        elif self.noise_variances_ and ddf in ("satterthwaite", "kenward-roger"):
            raise ValueError(
                f"ddf={ddf!r} takes no dispersion: it is of one noise variance. 'asymptotic' is "
                "for z tests, as in glmmTMB."
            )
        none = not len(self._of_mean)  # of the effects of groups alone there is nothing to test
        if none or (ddf == "asymptotic" and not has_rows_of_all(self)):
            result = self._result
            return FixedDegrees(result["mean"], result["mean_covariance"], np.inf)
        return inference_of(mixed_fit(self), ddf)

    def _changes_without(self, groups: LeftOut) -> NDArray[np.float64]:
        """Changes of the mean at the variances of the fit, by sums over groups."""
        model = mixed_fit(self)
        chain = np.arange(len(groups.owners))  # groups of the model are in another order
        for above in model.owners[: groups.place : -1]:
            chain = above[chain]
        order = np.zeros(len(groups.ids), np.int64)
        order[groups.owners] = chain
        return changes_without(model, groups.place)[order]

    def _redraws(self, rng: np.random.Generator) -> Callable[[], Any]:
        """Return a function that draws responses of a linear model of groups, and fits again."""
        draw = drawn(mixed_fit(self), rng)
        clients = self.clients_

        def again() -> Any:
            return copy(self)._beginning_at(self)._fit(replace(clients, rows=draw()), {})

        return again

    def _criterion(self, method: str) -> Criterion:
        from ebfed.regression.criteria import LinearCriterion

        if self.covariate_names_:
            raise ValueError(f"method={method!r} takes no covariates of groups; use method='wald'.")
        if self.noise_variances_:
            raise ValueError(f"method={method!r} takes no dispersion; use method='wald'.")
        restricted = method == "restricted"
        return LinearCriterion(mixed_fit(self), self._columns().terms_of_levels(), restricted)

    # Estimates --------------------------------------------------------------------------------

    def posterior(
        self,
        X: Any = None,
        y: Any = None,
        *,
        groups: Any = None,
        covariates: Any = None,
        sample_weight: Any = None,
        dispersion: Any = None,
        offset: Any = None,
        level: str | None = None,
    ) -> Posterior:
        """Posterior of each group's coefficients.

        Of several levels, it is given the rows of all groups of the same parent: those of the fit,
        but for groups whose rows are given.

        Parameters
        ----------
        X, y : as in `fit`, optional
            Rows that the posterior is to use instead of those of the fit.
        groups : as in `fit`, optional
            Groups of the posterior, if there is no `X`: each has its rows of the fit. An unseen
            group has none, and gets the population, with an `UnseenGroupWarning`.
        covariates : as in `fit`, optional
            Covariates of groups that were not in the fit.
        sample_weight, dispersion, offset : as in `fit`, optional
        level : str, optional
            Name of a level of groups, of which the coefficients are to be; the lowest if None.

        Returns
        -------
        Posterior
            One entry per distinct group, in the order of the sorted labels, and p coordinates.
        """
        beside = {"sample_weight": sample_weight, "dispersion": dispersion, "offset": offset}
        block = self._asked_for(X, y, groups, covariates, **beside)
        population, known = self._population(), self._covariates
        if level is not None and level != self._style_.group:
            return self._posterior_of_level(block, level)
        posterior = population.posterior(block)
        if self.covariate_names_:
            given = self._roles.found(X, {"covariates": covariates}).get("covariates")
            labels = self._rows(X, y, groups).labels if named_columns(given) else None
            # covariates that are given with rows are those of the rows
            look_up, named = X is None or given is None, names_of_levels(self._style_)
            values = known.of(block.ids, X, labels, given, named, look_up=look_up)
            posterior = posterior.of(population.maps(values))
        return posterior.labelled(block.ids, {"n": block.n}, self._style_, tuple(self.terms_))

    def predict(
        self, X: Any, *, groups: Any = None, covariates: Any = None, offset: Any = None
    ) -> NDArray:
        """Predict each row's response with the coefficients of its group.

        Parameters
        ----------
        X : as in `fit`
        groups : as in `fit`, optional
            Label of each row. A group that was not in the fit is predicted by the population's
            mean, or by its parent's coefficients if that was in the fit; so are all rows by the
            mean if None (unless `X` has the column that held them in the fit).
        covariates : as in `fit`, optional
            Covariates, where the fit had some and groups are new (or there are none: then those of
            each row).
        offset : as in `fit`, optional

        Returns
        -------
        ndarray of shape (n_rows,), or lazy table
            Of a table of another engine, that table with a column ``.fitted``: nothing is computed
            before it is read. Rows of groups that were not in the fit have the population's mean.
        """
        if is_lazy(X):
            return self._beside(X, groups, covariates, offset)
        return predicted_numbers(self, X, groups, covariates) + offset_of(self, X, groups, offset)

    def _beside(self, X: Any, groups: Any, covariates: Any, offset: Any) -> Any:
        """Return a lazy table with predictions as a column."""
        groups = groups_beside(self, X, groups)
        if covariates is not None or self.covariate_names_:
            raise ValueError("covariates= needs the rows of X in memory.")
        moved = self._roles.found(X, {"offset": offset}).get("offset", 0.0)
        return predicted_beside(self, X, groups, offset=moved)

    def predict_interval(
        self,
        X: Any,
        *,
        groups: Any = None,
        covariates: Any = None,
        sample_weight: Any = None,
        dispersion: Any = None,
        offset: Any = None,
        level: float = 0.95,
        kind: Literal["mean", "row"] = "row",
    ) -> tuple[NDArray, NDArray]:
        """Interval for each row's response, or for its mean.

        Parameters
        ----------
        X, groups, covariates, offset : as in `predict`
        sample_weight : as in `fit`, optional
            Weight of each new response, whose noise is that of the fit over it; 1 if None, unless
            `X` has the column that held weights in the fit.
        dispersion : as in `fit`, optional
            Level of each row, one of those of the fit. Needed for new responses where the fit had
            levels, unless `X` has the column that held them.
        level : float in (0, 1)
        kind : {"row", "mean"}
            Whether the interval is to hold a new response or ``x' theta_i``. That of a response
            includes uncertainty in the noise.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,)
        """
        from scipy.special import ndtri

        check_interval(level, kind, False, "gaussian")
        rows, codes, posterior = posterior_of_rows(self, X, groups, covariates)
        assert isinstance(posterior, CoefficientPosterior)
        middle = np.einsum("np,np->n", rows, posterior.mean[codes])
        middle = middle + offset_of(self, X, groups, offset)
        variance = posterior.variance_along(rows, codes)
        if kind == "row":
            noises = known_dispersion(self, X, dispersion, False)
            given = {"sample_weight": sample_weight, "dispersion": noises}
            given = self._known_beside(X, given, False)
            known = getattr(self, "clients_", None)  # a server's copy has none
            weighted = getattr(known, "log_weight", None) is not None
            if weighted and "sample_weight" not in given:
                warnings.warn(OF_WEIGHT_ONE, stacklevel=2)
            beside = self._rows(X, None, groups, beside=given).beside
            noise = (1 + self._excess_noise) * noise_of_rows(self, beside)
            variance = variance + of_weights(noise, beside.get("sample_weight"))
        reach = ndtri((1 + level) / 2) * np.sqrt(variance)
        return middle - reach, middle + reach

    def score(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        covariates: Any = None,
        offset: Any = None,
    ) -> float:
        """R**2 of the predictions of rows by the coefficients of their groups.

        Parameters
        ----------
        X, y, groups : as in `fit`
        sample_weight : array-like of shape (n_rows,), optional
        covariates, offset : as in `predict`
        """
        options = {"groups": groups, "covariates": covariates, "offset": offset}
        return RegressionEstimator.score(self, X, y, sample_weight, **options)

    def _expected_of_rows(self, X: Any, groups: Any, **options: Any) -> dict[str, NDArray]:
        found = super()._expected_of_rows(X, groups, **options)
        moved = offset_of(self, X, groups, options.get("offset"))
        return {name: values + moved for name, values in found.items()}

    def __ebfed_view__(self) -> RegressionView:
        """Return what reports and plots read of the fit."""
        view = super().__ebfed_view__()
        if not self._is_server:

            def maximum() -> float:
                return copy(self).set_params(method="ml")._fit(self.clients_, {}).log_likelihood_

            def products() -> NDArray:
                own = self._of_mean
                return self.clients_.products()[np.ix_(own, np.append(own, -1))]

            view = replace(view, maximum=maximum, design_products=products)
        population, known = self._population(), self._covariates
        if not self.covariate_names_:
            return view

        def maps() -> NDArray:
            return population.maps(
                known.of(self.groups_, None, None, None, names_of_levels(self._style_))
            )

        def expected() -> NDArray:
            if not self._level_names:
                return maps() @ population.mean
            return np.einsum("npr,nr->np", maps(), self._means_of_parents())

        return replace(
            view,
            posterior_given_population=lambda: population.posterior_given_population(
                self._weighed(self.clients_)
            ).of(maps()),
            expected=expected,
        )
