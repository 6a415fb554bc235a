"""Generalized linear models in every group, the coefficients drawn from a normal population."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from ebfed.engines import Engine
from ebfed.engines.sums import Share
from ebfed.priors import Posterior
from ebfed.regression.beside import groups_beside, responses_beside
from ebfed.regression.columns import Varying
from ebfed.regression.diagnosis import rows_of_clients
from ebfed.regression.families import BinomialLink, ResponseFamily, family_named
from ebfed.regression.generalized_base import ResponseRegression
from ebfed.regression.numerics.quadrature_population import Covariance
from ebfed.regression.posteriors.predictive import (
    averaged_variance,
    variance_of_mean,
)
from ebfed.regression.posteriors.quadrature import Method
from ebfed.regression.reading import (
    counted_alike,
    known_of_rows,
    offset_of,
    responding_clients,
)
from ebfed.regression.row_predictions import RowPredictions
from ebfed.report.diagnostics import Diagnostics
from ebfed.tables.clients import Clients
from ebfed.tables.of_rows import Predicted

__all__ = ["GeneralizedEB"]

FamilyName = Literal["binomial", "gamma", "negative_binomial", "ordinal", "poisson"]


@dataclass(eq=False, repr=False)
class GeneralizedEB(RowPredictions, RegressorMixin, ResponseRegression):  # type: ignore[misc]
    """Empirical Bayes generalized linear model: a coefficient vector for every group.

    Rows of group i have the linear predictor ``z_ij = offset_ij + x_ij' theta_i``, and ``theta_i ~
    N(mean, covariance)``. The mean response is ``e^z`` (log link), or ``1 / (1 + e^-z)`` of
    binomial rows. The population maximises the marginal likelihood, integrated by adaptive
    Gauss-Hermite quadrature: this is `glmer(y ~ x + (1 + x || group), family, nAGQ=25)` of R's lme4
    for any number of groups, with several random coefficients too.

    Parameters
    ----------
    family : {"poisson", "binomial", "negative_binomial", "gamma", "ordinal"}
        Family of the rows.

        - ``"poisson"``: counts of events, up to 1e11; exposures e are ``offset=log(e)``.
        - ``"binomial"``: 0 or 1; or numbers of successes, with ``trials=``. `LogisticEB` is the
          same model of two classes with any labels, which it predicts.
        - ``"negative_binomial"``: counts of mean m and variance ``m + dispersion * m**2``, as
          `glmer.nb`'s.
        - ``"gamma"``: positive numbers of mean m and variance ``m**2 / shape``.
        - ``"ordinal"``: ordered classes 1, 2, …, K, at most 20, by cumulative logits as `clmm` of
          R's ordinal: ``P(y <= k) = 1 / (1 + e^(z - t_k))``. The first threshold is zero, and the
          intercept takes its place; `tidy` has thresholds where the intercept is zero, with names
          like ``1|2``. `predict` is the mean of the number of the class; `predict_proba` has the
          probabilities.

        Dispersion, shape and thresholds are fitted by maximum likelihood too; `tidy` has them.
    covariance : {"diag", "spherical", "full"}
        Covariance of the coefficients: a variance for each, one for all, or any.
    link : {"logit", "probit", "cloglog"}, optional
        Link of binomial rows: ``P(success)`` is ``1 / (1 + e^-z)`` (if None), ``Phi(z)``, the
        normal distribution function, or ``1 - e^(-e^z)``, the probability of any event at a rate
        ``e^z``. Each other family has one link.
    varying : sequence of str or int, or mapping, optional
        Columns of `X` (or ``"intercept"``) whose coefficients differ between groups; the others
        have one coefficient for all. All, if None. Lists of columns are terms whose coefficients
        are independent of each other's: with ``"full"``, ``[["intercept"], ["x", "z"]]`` is ``(1 |
        group) + (0 + x + z | group)``. Of several levels of groups, the same for all levels; or a
        mapping, which has them for each level by its name: ``{"nation": ["intercept"], "region":
        ["intercept", "x"]}`` is ``(1 | nation) + (1 + x | nation:region)``.
    fixed : sequence of str or int, optional
        Columns of `X` (or ``"intercept"``) whose coefficient has a mean, to be estimated; the mean
        of the others, which must vary, is zero: ``varying=["intercept", "x"],
        fixed=["intercept"]`` is ``1 + (1 + x | group)``. All, if None.
    fit_intercept : bool
        Whether to put a column of ones first.
    method : {"auto", "aghq", "ep", "laplace"}
        Method by which coefficients of groups are integrated over.

        - ``"auto"``: ``"aghq"`` of at most three that differ between groups of one level; of more,
          ``"ep"`` of binomial rows with a logit; otherwise ``"laplace"``.
        - ``"aghq"``: adaptive Gauss-Hermite quadrature, to numerical precision: 15 to 201 nodes for
          one coefficient, 11 to 45 on each axis for two, 7 to 31 for three, more where posteriors
          are wider.
        - ``"ep"``: expectation propagation, of binomial rows with a logit, in groups of one level.
          The likelihood is approximate, and can lie above the exact one.
        - ``"laplace"``: Laplace's approximation, as of `glmer` with ``nAGQ=1``. It underestimates
          spreads where groups have few rows, and a note says so; of binomial rows with fewer in a
          group than coefficients it may have its maximum at spreads without end.
    share : {"groups", "sums"}
        What a block of clients sends: figures of each client, or only their sums over its clients.
        The fit is the same. A sum over one client is that client's figure, and sums at many
        populations together may say much of few clients: it is less that leaves, not a guarantee of
        privacy. Of several levels, all groups of one of the outermost level must be at one node,
        and a number for each parent, which follows from its label, goes with what clients send.
    n_rounds : int
        Largest number of rounds.
    engine : Engine, optional
        Engine on which clients compute; `engines.Local()` if None.
    verbose : int
        1 shows a progress bar over rounds.
    random_state : ignored

    Attributes
    ----------
    mean_ : ndarray of shape (p,)
        Mean of the population, the intercept first.
    mean_covariance_ : ndarray of shape (p, p)
        Sampling covariance of `mean_`, from the second derivatives of the log-likelihood.
    covariance_ : ndarray of shape (p, p)
        Covariance of the population; zero for columns that do not vary. Of several levels, that of
        groups around their parent.
    covariance_above_ : dict of ndarray of shape (p, p)
        Covariance of each level above the groups, by its name, from the outermost.
    method_ : {"aghq", "ep", "laplace"}
        Method of the fit: what ``"auto"`` stands for.
    clients_, groups_, terms_, history_, privacy_, notes_ :
        See `RegressionEstimator`.

    References
    ----------
    Bates, Maechler, Bolker, Walker (2015), Fitting linear mixed-effects models using lme4, J. Stat.
    Softw. 67; Liu, Pierce (1994), A note on Gauss-Hermite quadrature, Biometrika 81; Pinheiro,
    Bates (1995), Approximations to the log-likelihood function in the nonlinear mixed-effects
    model, J. Comput. Graph. Stat. 4; Minka (2001), Expectation propagation for approximate Bayesian
    inference.

    Examples
    --------
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(500), 10)
    >>> x = rng.normal(size=5000)
    >>> rate = np.exp(1 + rng.normal(0, 0.5, 500)[groups] + 0.3 * x)
    >>> fit = eb.GeneralizedEB("poisson", varying=["intercept"])
    >>> fit = fit.fit(x[:, None], rng.poisson(rate), groups=groups)
    >>> fit.mean_.round(1), np.sqrt(fit.covariance_[0, 0]).round(1)
    (array([1. , 0.3]), np.float64(0.5))
    >>> fit.predict(x[:2, None], groups=groups[:2]).shape
    (2,)

    Regions of nations, whose labels need only differ within nations:

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"nation": groups // 25, "region": groups, "x": x})
    >>> rows["y"] = rng.poisson(rate)
    >>> nested = eb.from_formula("y ~ x + (1 | nation/region)", rows, family="poisson")
    >>> nested.ranef(level="nation").shape
    (20, 2)
    """

    family: FamilyName = "poisson"
    covariance: Covariance = "diag"
    _: KW_ONLY
    link: BinomialLink | None = None
    varying: Varying = None
    fixed: Sequence[str | int] | None = None
    fit_intercept: bool = True
    method: Method = "auto"
    share: Share = "groups"
    n_rounds: int = 200
    engine: Engine | None = None
    verbose: int = 0
    random_state: Any = None

    # Response, weight and offset.
    _per_row = (3,)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    @property
    def _family(self) -> ResponseFamily:
        return family_named(self.family, self.link)

    @property
    def _shapes(self) -> NDArray[np.float64]:
        return self._result["shapes"]

    # Reading ----------------------------------------------------------------------------------

    def _read_block(
        self, X: Any, y: Any, groups: Any, reset: bool, covariates: Any = None, **beside: Any
    ) -> tuple[Clients, NDArray | None]:
        return responding_clients(self, X, y, groups, reset, **beside)

    def _joined(self, block: Clients) -> Clients:
        return counted_alike(super()._joined(block), self._family)

    @property
    def _has_offset(self) -> bool:
        """Whether rows of the fit had offsets."""
        return bool(self._result.get("has_offset"))

    # Learning ---------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        trials: Any = None,
    ) -> Self:
        """Learn the population from rows.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, d)
        y : array-like or series of shape (n_rows,), or str
            The response, or the column of the frame `X` that holds it.
        groups : array-like of shape (n_rows,) or str, or several, optional
            Label of each row, or the column of the frame `X` that holds it. None: every row is a
            group of its own. Several, from the outermost, as a list of names or a frame: groups
            within groups, as lme4's ``(1 | nation/region)``; a group is then labelled by all.
        sample_weight : array-like of shape (n_rows,) or str, optional
            Number by which the log-likelihood of each row is multiplied, as ``weights=`` of R's
            glmmTMB: a whole number is the rows that a row stands for. Or the column of the frame
            `X` that holds it. A row of weight 0 is left out.
        offset : array-like of shape (n_rows,) or str, optional
            What is added to the linear predictor of each row, on the scale of the link: the
            logarithm of the exposure of counts. Or the column of the frame `X` that holds it.
        trials : array-like of shape (n_rows,) or str, optional
            Number of trials of each binomial row, of which `y` are successes; 1 if None.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If rows are missing, infinite or of the wrong type, responses cannot be of the family,
            or labels, weights, offsets or trials do not fit the rows.
        """
        options = {"sample_weight": sample_weight, "offset": offset, "trials": trials}
        return self._fit(*self.protocol().prepare(X, y, groups=groups, **options))

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        trials: Any = None,
    ) -> Self:
        """Add a block of rows to those fitted before; the answer is that of one `fit` on all.

        Blocks may share groups. Parameters are those of `fit`; without `groups`, the rows of a
        block are new groups, with numbers after those of the groups before.
        """
        options = {"sample_weight": sample_weight, "offset": offset, "trials": trials}
        return self._fit_more(X, y, groups, **options)

    # Estimates --------------------------------------------------------------------------------

    def posterior(
        self,
        X: Any = None,
        y: Any = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        trials: Any = None,
        level: str | None = None,
    ) -> Posterior:
        """Posterior of each group's coefficients.

        Its mean is that at the fitted population. Standard deviations and intervals have what not
        knowing the population adds, mean and spread: the spread of few groups may be much larger
        than the likeliest (see `ebfed.regression.numerics.spread_doubt`). Of several levels, it is
        given the rows of all groups of the same parent: those of the fit, but for groups whose rows
        are given.

        Parameters
        ----------
        X, y, sample_weight, offset, trials : as in `fit`, optional
            Rows that the posterior is to use instead of those of the fit.
        groups : as in `fit`, optional
            Groups asked for, without `X`: each with its rows of the fit. A group that was not in
            the fit has none, and gets the population, with an `UnseenGroupWarning`.
        level : str, optional
            Name of a level of groups, of which the coefficients are to be; the lowest if None.

        Returns
        -------
        Posterior
            One entry per distinct group, in the order of the sorted labels, and p coordinates.
        """
        options = {"sample_weight": sample_weight, "offset": offset, "trials": trials}
        return self._posterior_at(self._asked_for(X, y, groups, **options), level)

    def _predictors(
        self, X: Any, groups: Any, offset: Any, averaged: bool | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        offset = offset_of(self, X, groups, offset)
        mean, variance = self._without_offset(X, groups, bool(averaged))
        return mean + offset, variance

    def _beside(
        self, X: Any, groups: Any, offset: Any, type: Predicted = "response", classes: Any = None
    ) -> Any:
        given = known_of_rows(self, X, False, offset=offset)
        offset = given.get("offset", 0.0)
        named = {} if isinstance(offset, float | int) else {"offset": offset}
        groups = groups_beside(self, X, groups, **named)
        return responses_beside(self, X, groups, offset=offset, type=type, classes=classes)

    def _diagnosed(self, X: Any, y: Any, groups: Any, options: Mapping[str, Any]) -> Diagnostics:
        clients, codes = responding_clients(self, X, y, groups, False, keep=True, **options)
        weighed = "sample_weight" in self._known_beside(X, options, False)
        weight = np.asarray(clients.y, float)[:, 1]
        plain = not weighed or bool((weight == 1).all())
        return rows_of_clients(self, clients, codes, weight, plain)

    def _expected_of_rows(self, X: Any, groups: Any, **options: Any) -> dict[str, NDArray]:
        offset = offset_of(self, X, groups, options.get("offset"))
        rows, _ = self._read_design(X, groups)
        nobody = self._rows_of(np.zeros(1, np.int64), known=False)
        unknown = self._population().posterior_given_spread(nobody)
        variance = unknown.variance_along(rows, np.zeros(len(rows), np.int64))
        variance = averaged_variance(variance, variance_of_mean(rows, self.mean_covariance_))
        shapes = self._result["shapes"]
        return {".fixed": self._family.mean(rows @ self.mean_ + offset, variance, shapes)}
