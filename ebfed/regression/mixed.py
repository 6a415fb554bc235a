"""What every mixed model answers: tests, intervals, residuals, and the influence of groups.

Designs (groups, groups within groups, crossed factors) and families differ in how they are fitted,
and in a few methods that begin with an underscore, of which all here is made.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.arguments import check_choice, check_level
from ebfed.inference.contrasts import contrast_tests, term_tests
from ebfed.inference.degrees_of_freedom import Inference, Method
from ebfed.inference.estimable import Estimable
from ebfed.inference.influence import cooks_distances
from ebfed.inference.profiles import Criterion, Held, Profile
from ebfed.kernels.threads import threads_for
from ebfed.privacy.calibration import check_count
from ebfed.regression.columns import INTERCEPT
from ebfed.regression.inferring import (
    Tested,
    contrasts_of_mean,
    names_of_mean,
)
from ebfed.regression.intervals import (
    IntervalMethod,
    bootstrapped,
    frame_of_ends,
    profiled,
)
from ebfed.report.diagnostics import Diagnostics, ResidualKind
from ebfed.report.effects import GroupEffects, intervals_of_mean
from ebfed.report.view import RegressionView
from ebfed.tables.frames import Style, frame

__all__ = ["LeftOut", "MixedModel"]


class LeftOut(NamedTuple):
    """Groups that are left out, one after the other.

    Attributes
    ----------
    place : int
        Place of their level, from the top, or of the factor.
    owners : int64 ndarray
        Group of each client, or row, of the fit.
    ids, n : ndarray of shape (m,)
        Labels, and numbers of rows.
    style : Style
    """

    place: int
    owners: NDArray[np.int64]
    ids: NDArray
    n: NDArray[np.int64]
    style: Style


class MixedModel(GroupEffects):
    """A fit of a linear or generalized linear mixed model, of any design."""

    # Rows with what the fit says of them.
    diagnostics: Callable[..., Diagnostics]
    terms_: Any
    _style_: Any

    @abstractmethod
    def __ebfed_view__(self) -> RegressionView:
        """Return what reports and plots read of the fit."""

    # Of a design and a family --------------------------------------------------------------------

    @property
    @abstractmethod
    def _estimable(self) -> Estimable:
        """Combinations of the mean's coefficients that rows of the fit identify."""

    @property
    @abstractmethod
    def _of_mean(self) -> NDArray[np.int64]:
        """Places of the coefficients whose mean is not zero, among all that have one."""

    @abstractmethod
    def _inference(self, ddf: Method | None) -> Inference:
        """Return what `inference` does, of all combinations."""

    @abstractmethod
    def _has_degrees(self) -> bool:
        """Whether this copy of the fit has degrees of freedom."""

    @abstractmethod
    def _criterion(self, method: str) -> Criterion:
        """Return the deviance of the fit as a function of its parameters."""

    @abstractmethod
    def _redraws(self, rng: np.random.Generator) -> Callable[[], Any]:
        """Return a function that draws responses of the rows of the fit, and fits again."""

    @abstractmethod
    def _groups_of(self, level: str | None) -> LeftOut:
        """Return the groups of a level, or of a factor, and the group of each client or row."""

    @abstractmethod
    def _without(self, out: NDArray[np.bool_]) -> Any:
        """Fit again without some clients, or rows."""

    def _changes_without(self, groups: LeftOut) -> NDArray[np.float64] | None:
        """Changes of the mean at the variances of the fit; None if a fit has to tell."""
        return None

    def _of_all(self, name: str) -> NDArray[np.float64]:
        """Mean of all coefficients, or its covariance: `mean` or `mean_covariance`."""
        return getattr(self, f"{name}_")

    # Inference -----------------------------------------------------------------------------------

    def inference(self, ddf: Method | None = None) -> Inference:
        """Return standard errors and degrees of freedom of contrasts, on the link's scale.

        Parameters
        ----------
        ddf : {"satterthwaite", "kenward-roger", "residual", "asymptotic"}, optional
            ``"satterthwaite"``: of linear models, by how well the variances are known; of counts
            and classes, of Student's t over populations that the rows do not tell from the fitted
            one, standard errors included (see `ebfed.inference.spread_degrees`).
            ``"kenward-roger"``: with standard errors that have what not knowing the variances adds;
            of linear models by REML, and of crossed factors of up to 3,000 levels in all, times
            their coefficients. ``"residual"``: rows less coefficients, of nested groups.
            ``"asymptotic"``: infinite, for z tests, as `glmer` of lme4 has them. If None,
            Satterthwaite's; infinite where the noise of rows has levels, or rows of a family are
            with other clients or have no finite maximum of the likelihood.

        Returns
        -------
        Inference

        Raises
        ------
        ValueError
            If there are no such degrees of freedom of this fit.
        """
        check_is_fitted(self, "mean_")
        return self._inference(ddf).within(self._estimable)

    def tests(self, *, ddf: Method | None = None, type: Tested | None = None) -> Any:
        """Test the coefficients of the population's mean, as lmerTest does.

        Parameters
        ----------
        ddf : {"satterthwaite", "kenward-roger", "residual", "asymptotic"}, optional
            Degrees of freedom: Satterthwaite's if None, or infinite where the noise of rows has
            levels. Kenward and Roger's also widen the standard errors by what not knowing the
            variances adds, and need a fit by REML; ``"residual"`` are rows less coefficients;
            ``"asymptotic"`` are infinite, for z tests, as `glmer` of lme4 has them. Fits of counts
            and classes have these, and Satterthwaite's with standard errors of their own: see
            `inference`.
        type : {"wald", "II", "III"}, optional
            Whether to test each column of `X` by F, rather than each coefficient by t; the three
            are one here. With covariates of groups, the coefficients of a column are tested
            together.

        Returns
        -------
        DataFrame
            ``term``, ``estimate``, ``std.error``, ``df``, ``statistic``, ``p.value``; of terms,
            ``term``, ``num.df``, ``den.df``, ``statistic``, ``p.value``.

        Examples
        --------
        >>> import ebfed as eb
        >>> rng = np.random.default_rng(0)
        >>> groups, x = np.repeat(np.arange(12), 5), rng.normal(size=60)
        >>> y = x + rng.normal(size=12)[groups] + rng.normal(size=60)
        >>> fit = eb.LinearEB(varying=["intercept"]).fit(x[:, None], y, groups=groups)
        >>> fit.tests(ddf="kenward-roger")[["term", "df"]].round(1)
                term    df
        0  intercept  10.9
        1         x0  53.7
        """
        found = self.inference() if ddf is None else self.inference(ddf)
        names = names_of_mean(self)
        unit = contrasts_of_mean(self)
        if type is None:
            columns = {"term": np.array(names, object)} | contrast_tests(found, unit)
            return frame(columns, self._style_)
        check_choice("type", type, get_args(Tested))
        owned: dict[str, list[NDArray]] = {}
        for name, contrast in zip(names, unit, strict=True):
            owner = name if name in self.terms_ else name.rsplit(":", 1)[0]
            if owner != INTERCEPT:
                owned.setdefault(owner, []).append(contrast)
        terms = {name: np.array(each) for name, each in owned.items()}
        return frame(term_tests(found, terms), self._style_)

    def _degrees(self, ddf: Method | None = None) -> Callable[[], tuple[NDArray, NDArray]] | None:
        """Return what intervals of the mean's coefficients are computed with; None for z.

        Parameters
        ----------
        ddf : str, optional
            As in `tests`. If None, normal quantiles where the fit has no rows, or no noise.

        Returns
        -------
        callable
            Makes standard errors and degrees of freedom, shape (p,).
        """
        if ddf == "asymptotic" or (ddf is None and not self._has_degrees()):
            return None

        def found() -> tuple[NDArray, NDArray]:
            inference, unit = self.inference(ddf), contrasts_of_mean(self)
            known = True if inference.estimable is None else inference.estimable.of(unit)
            found = inference.std_error(unit), inference.df(unit)
            return np.where(known, found[0], np.nan), np.where(known, found[1], np.nan)

        return found

    def confint(
        self,
        level: float = 0.95,
        *,
        method: IntervalMethod = "wald",
        ddf: Method | None = None,
        n_boot: int = 1000,
        random_state: Any = 0,
        progress: bool = False,
    ) -> Any:
        """Return intervals for the parameters of the population.

        Parameters
        ----------
        level : float
        method : {"wald", "profile", "restricted", "bootstrap"}
            Wald's are ``estimate ± t std.error`` of the mean's coefficients, with the standard
            errors and degrees of freedom of `ddf`. Those by the profile of the likelihood, and by
            parametric bootstrap, are of spreads, correlations, noise and the family's own
            parameters too, as lme4's ``confint``. That profile is of the likelihood, not the
            restricted one (Bates and others 2015, section 5.1), which takes too little spread to
            be likely where groups are few. ``"restricted"`` is by the profile of the restricted
            likelihood of Gaussian rows, with Wald's intervals of the mean's coefficients. The
            bootstrap draws coefficients of groups and responses of rows from the fit, fits each
            draw by the fit's own method, and takes quantiles of the estimates.
        ddf : {"satterthwaite", "kenward-roger", "residual", "asymptotic"}, optional
            Degrees of freedom of Wald's intervals, as in `tests`; ``"asymptotic"`` are infinite, as
            of lme4's ``confint(method = "Wald")``. Satterthwaite's if None; infinite where the
            noise of rows has levels, rows are at other nodes, or a fit of a family is not by
            quadrature.
        n_boot : int
            Number of draws.
        random_state : int, Generator or None
            Seed of the draws.
        progress : bool
            Whether to show a progress bar.

        Returns
        -------
        DataFrame
            ``term``, ``estimate``, ``conf.low``, ``conf.high``; by profile and bootstrap with
            ``effect`` and ``group`` first, as in `tidy`. A parameter that is not identified has
            NaN.

        Raises
        ------
        ValueError
            If the level is not between 0 and 1, or the method unknown; it is restricted, and rows
            are not Gaussian. Where the method is not Wald's: if the rows of the fit are with the
            clients, or a file had none; the fit has no noise, covariates of groups or levels of
            noise; by profile, the likelihood has no maximum, or is rounding where responses agree;
            by bootstrap, rows of a family have weights or ordered classes, of which a draw may have
            no row.

        References
        ----------
        Bates, Maechler, Bolker, Walker (2015), Fitting linear mixed-effects models using lme4, J.
        Stat. Softw. 67.

        Examples
        --------
        >>> import ebfed as eb
        >>> rng = np.random.default_rng(0)
        >>> groups = np.repeat(np.arange(20), 6)
        >>> x = rng.normal(size=120)
        >>> y = 3 + x + rng.normal(size=20)[groups] + rng.normal(size=120)
        >>> fit = eb.LinearEB(varying=["intercept"]).fit(x[:, None], y, groups=groups)
        >>> fit.confint(method="profile")[["term", "estimate", "conf.low", "conf.high"]].round(1)
                      term  estimate  conf.low  conf.high
        0        intercept       2.9       2.4        3.5
        1               x0       1.0       0.8        1.2
        2    sd__intercept       1.2       0.8        1.7
        3  sd__Observation       1.1       0.9        1.2
        """
        check_choice("method", method, get_args(IntervalMethod))
        check_level(level)
        check_is_fitted(self, "mean_")
        if ddf is not None and method not in ("wald", "restricted"):
            raise ValueError(
                f"ddf={ddf!r} is of method='wald'; method={method!r} has no use for it."
            )
        view = self.__ebfed_view__()
        of_mean = partial(intervals_of_mean, replace(view, degrees=self._degrees(ddf)), level)
        if method == "wald":
            return of_mean()
        rows = view.parameters()
        profile = Profile(self._criterion(method))
        every: list[Held | None] = []
        for held, (*_, estimate, _) in zip(profile.every(), rows, strict=True):
            known = held is None or held.kind not in ("mean", "shape") or not np.isnan(estimate)
            every.append(held if known else None)  # rows do not identify it
        with threads_for(profile.criterion.n_dense):
            if method == "restricted":
                fixed = np.array([row[0] == "fixed" for row in rows])
                sought = [None if own else held for held, own in zip(every, fixed, strict=True)]
                ends = profiled(profile, sought, level, progress)
                ends[fixed] = np.column_stack([of_mean()[f"conf.{end}"] for end in ("low", "high")])
            elif method == "profile":
                ends = profiled(profile, every, level, progress)
            else:
                n_boot = check_count("n_boot", n_boot, 2)
                redraws = self._redraws(np.random.default_rng(random_state))
                ends = bootstrapped(redraws, rows, level, n_boot, progress)
        ends[[held is None for held in every]] = np.nan
        return frame_of_ends(rows, ends, self._style_)

    def influence(self, level: str | None = None, *, refit: bool = False) -> Any:
        """Return how much the mean depends on each group, by leaving it out.

        Cook's distance of a group is ``d' S^-1 d / p``, d being the change of the p coefficients of
        the mean, and S their sampling covariance in the whole fit.

        Parameters
        ----------
        level : str, optional
            Name of the level of the groups, or of the factor; the lowest level, or the first
            factor, if None.
        refit : bool
            Whether the model is fitted again without each group, variances too, as in R's
            ``influence(fit, "group")``. If not, the variances are those of the whole fit, and the
            change of the mean is exact given these: it is a product of sums, without any fit. Where
            a group has much of the variance between groups, the two differ. lme4's
            ``cooks.distance(influence(fit, "group"))`` is the refitted one times ``(m - p) / m``, m
            being the number of groups. Rows that are not Gaussian are always fitted again, shapes
            too.

        Returns
        -------
        DataFrame
            Label of the group, ``n``, ``cooksd``, and ``dfbeta.x`` for each coefficient x: the
            coefficient less that without the group. NaN where the other groups do not identify it,
            or cannot be fitted.

        Raises
        ------
        ValueError
            If the rows of the fit are with the clients, or a file had none; it has no likelihood,
            or no noise; or there is no such level.

        References
        ----------
        Cook (1977), Detection of influential observation in linear regression, Technometrics 19;
        Demidenko, Stukel (2005), Influence analysis for linear mixed-effects models, Stat. Med. 24.

        Examples
        --------
        >>> import ebfed as eb
        >>> rng = np.random.default_rng(0)
        >>> groups, x = np.repeat(np.arange(12), 5), rng.normal(size=60)
        >>> y = x + rng.normal(size=12)[groups] + rng.normal(size=60) + 9 * (groups == 3)
        >>> fit = eb.LinearEB(varying=["intercept"]).fit(x[:, None], y, groups=groups)
        >>> found = fit.influence()
        >>> int(found["group"][found["cooksd"].argmax()])
        3
        """
        check_is_fitted(self, "mean_")
        groups, own = self._groups_of(level), self._of_mean
        changes = None if refit else self._changes_without(groups)
        if changes is None:
            changes = self._refitted(groups)
        mean_covariance = self._of_all("mean_covariance")
        cooks = cooks_distances(changes[:, own], mean_covariance[np.ix_(own, own)])
        columns = {"n": groups.n, "cooksd": cooks}
        pairs = zip(own, names_of_mean(self), strict=True)
        columns |= {f"dfbeta.{term}": changes[:, j] for j, term in pairs}
        style = groups.style.avoiding(columns)
        return frame({style.group: groups.ids} | columns, style)

    def _refitted(self, groups: LeftOut) -> NDArray[np.float64]:
        """Changes of the mean by fits without each group; NaN where there is no fit."""
        mean, known = self._of_all("mean"), self._estimable.coefficients
        changes = np.full((len(groups.ids), len(mean)), np.nan)
        for j in range(len(changes)):
            try:
                with warnings.catch_warnings():  # of small parts of the rows
                    warnings.simplefilter("ignore")
                    other = self._without(groups.owners == j)
            except ValueError:
                continue
            there = other._estimable.coefficients | ~known
            changes[j] = np.where(there, mean - other._of_all("mean"), np.nan)
        return changes

    def residuals(
        self,
        X: Any,
        y: Any = None,
        *,
        kind: ResidualKind = "response",
        conditional: bool = True,
        random_state: Any = 0,
        **rows: Any,
    ) -> NDArray[np.float64]:
        """Return a residual of each row: see `Diagnostics.residuals`.

        Parameters
        ----------
        X, y : as in `fit`
        kind : {"response", "pearson", "deviance", "standardized", "quantile"}
        conditional : bool
            Whether effects of groups are given; else those of new groups.
        random_state : int, Generator or None
            Seed of quantile residuals.
        **rows
            Arguments of `fit`: `groups`, weights, offsets, trials.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        found = self.diagnostics(X, y, **rows)
        return found.residuals(kind, conditional=conditional, random_state=random_state)
