"""Tests of regressions: what `ebfed.inference` needs of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.families.base import IDENTITY, LINKS, Link
from ebfed.inference.contrasts import contrast_tests, term_tests
from ebfed.inference.degrees_of_freedom import FixedDegrees, Inference, Method, inference_of
from ebfed.inference.sums import LinearMixedFit
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.columns import INTERCEPT
from ebfed.regression.levels import confounded
from ebfed.report.effects import intervals_of_mean
from ebfed.tables.frames import frame
from ebfed.tables.labels import number_parents
from ebfed.tables.levels import keys_of_parents

__all__ = [
    "Tested",
    "check_rows_of_all",
    "check_type",
    "coefficient_tests",
    "contrasts_of_mean",
    "degrees_of_linear",
    "errors_and_degrees",
    "has_rows_of_all",
    "inference_of_fit",
    "link_of",
    "mixed_fit",
    "walds_intervals",
]

Tested = Literal["wald", "III"]


def has_rows_of_all(fit: Any) -> bool:
    """Whether a fit has the rows of all its groups: no server has, nor one of several nodes."""
    there = not fit._is_server and bool(fit.clients_.n.any())
    return there and len(fit.clients_) == fit._n_clients


def check_rows_of_all(fit: Any, what: str) -> None:
    """Raise a ValueError if a fit has not the rows of all its groups."""
    if not has_rows_of_all(fit):
        here = 0 if fit._is_server else int((fit.clients_.n > 0).sum())
        raise ValueError(
            f"the rows of all groups are needed for {what}; this copy of the fit has those of "
            f"{here} of {fit._n_clients}."
        )


def mixed_fit(fit: RegressionEstimator) -> LinearMixedFit:
    """Return the factors of a fit, its levels, and what it has learned.

    Raises
    ------
    ValueError
        If rows of the fit are with other clients, the fit has no likelihood, or it has no noise.
    """
    check_is_fitted(fit, "clients_")
    check_rows_of_all(fit, "tests")
    if fit.solver == "gradient":
        raise ValueError("tests need solver='marginal': gradient descent has no likelihood.")
    if fit.noise_variance_ == 0:
        raise ValueError("tests need noise; the coefficients explain all rows of this fit.")
    result, clients = fit._result, fit._weighed(fit.clients_)
    above = [np.asarray(each) for each in result.get("above", ())]
    covariances = [*above, result["covariance"]]
    owners = [np.zeros(len(clients), np.int64)]
    if fit._level_names:
        below = number_parents(keys_of_parents(clients.ids, len(fit._level_names) - 1))[1]
        owners = [np.zeros(int(below[0].max()) + 1, np.int64), *below]
    places = fit._columns().places_of_levels()
    given = bool(fit.fit_intercept), fit.covariance, fit._of_mean
    lost = confounded(clients.rows, owners[1:], places, *given)
    places = [own[~out] for own, out in zip(places, lost, strict=True)]
    return LinearMixedFit(
        rows=clients.rows,
        n=clients.n,
        owners=owners,
        places=places,
        covariances=[G[np.ix_(j, j)] for G, j in zip(covariances, places, strict=True)],
        sizes=fit._columns().sizes_of_terms(places),
        noise=fit.noise_variance_,
        mean=result["mean"],
        kind=fit.covariance,
        restricted=fit.method == "reml",
        fixed=fit._of_mean,
        log_weight=0.0 if clients.log_weight is None else float(clients.log_weight.sum()),
    )


def inference_of_fit(self: Any, ddf: Method | None = None) -> Inference:
    """Return standard errors and degrees of freedom of contrasts of the mean, on the link's scale.

    Parameters
    ----------
    ddf : {"satterthwaite", "kenward-roger", "residual", "asymptotic"}, optional
        ``"satterthwaite"``: of linear models, by how well the variances are known; of counts and
        classes, of Student's t over populations that the rows do not tell from the fitted one,
        standard errors included (see `ebfed.inference.spread_degrees`). ``"kenward-roger"``: with
        standard errors that have what not knowing the variances adds; of linear models by REML,
        and of crossed factors of up to 3,000 levels in all, times their coefficients.
        ``"residual"``: rows less coefficients, of nested groups. ``"asymptotic"``: infinite, for z
        tests, as `glmer` of lme4 has them. If None, Satterthwaite's; infinite where the noise of
        rows has levels, or rows of a family are with other clients or have no finite maximum of the
        likelihood.

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


def degrees_of_linear(self: RegressionEstimator, ddf: Method | None) -> Inference:
    """Return what `inference_of_fit` does of a linear model of groups."""
    if ddf is None:
        ddf = "asymptotic" if self.noise_variances_ else "satterthwaite"
    elif self.noise_variances_ and ddf in ("satterthwaite", "kenward-roger"):
        raise ValueError(
            f"ddf={ddf!r} takes no dispersion: it is of one noise variance. 'asymptotic' is for z "
            "tests, as in glmmTMB."
        )
    none = not len(self._of_mean)  # of the effects of groups alone there is nothing to test
    if none or (ddf == "asymptotic" and not has_rows_of_all(self)):
        result = self._result
        return FixedDegrees(result["mean"], result["mean_covariance"], np.inf)
    return inference_of(mixed_fit(self), ddf)


def errors_and_degrees(
    fit: Any, ddf: Method | None = None
) -> Callable[[], tuple[NDArray, NDArray]] | None:
    """Return what intervals of the mean's coefficients are computed with; None for z.

    Parameters
    ----------
    fit : LinearEB, GeneralizedEB, LogisticEB or CrossedEB
    ddf : str, optional
        As in `tests`. If None, normal quantiles where the fit has no rows, or no noise.

    Returns
    -------
    callable
        Makes standard errors and degrees of freedom, shape (p,).
    """
    if ddf == "asymptotic" or (ddf is None and not _has_degrees(fit)):
        return None

    def found() -> tuple[NDArray, NDArray]:
        inference, unit = fit.inference(ddf), contrasts_of_mean(fit)
        known = True if inference.estimable is None else inference.estimable.of(unit)
        found = inference.std_error(unit), inference.df(unit)
        return np.where(known, found[0], np.nan), np.where(known, found[1], np.nan)

    return found


def _has_degrees(fit: Any) -> bool:
    if not hasattr(fit, "clients_"):  # of crossed factors, whose fit has all
        from ebfed.regression.crossed_fitting import has_noise

        return has_noise(fit)
    if not has_rows_of_all(fit):
        return False
    return getattr(fit, "solver", None) != "gradient" and getattr(fit, "noise_variance_", 1) > 0


def walds_intervals(self: Any, level: float, ddf: Method | None) -> Any:
    """Return Wald's intervals of the mean's coefficients, by these degrees of freedom."""
    view = replace(self.__ebfed_view__(), degrees=errors_and_degrees(self, ddf))
    return intervals_of_mean(view, level)


def link_of(fit: Any) -> Link:
    """Return the scale of the linear predictor of a fit; the identity for ordered classes."""
    family = getattr(fit, "_family", None)
    if family is None or family.classes:
        return IDENTITY
    return LINKS[family.link]


def coefficient_tests(self: Any, *, ddf: Method | None = None, type: Tested | None = None) -> Any:
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
    type : {"wald", "III"}, optional
        Whether to test each column of `X` by F, rather than each coefficient by t; the two are one
        here. With covariates of groups, the coefficients of a column are tested together.

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
    check_type(type)
    owned: dict[str, NDArray] = {}
    for name, contrast in zip(names, unit, strict=True):
        owner = name if name in self.terms_ else name.rsplit(":", 1)[0]
        if owner != INTERCEPT:
            owned[owner] = np.vstack([owned[owner], contrast]) if owner in owned else contrast[None]
    return frame(term_tests(found, owned), self._style_)


def names_of_mean(fit: Any) -> list[str]:
    """Names of the coefficients of the mean, those of covariates among them."""
    return [term for effect, _, term, *_ in fit.__ebfed_view__().parameters() if effect == "fixed"]


def contrasts_of_mean(fit: Any) -> NDArray[np.float64]:
    """Contrasts that are the coefficients of the mean, in the order of their names, (k, p)."""
    return np.eye(len(fit._estimable.terms))[fit._of_mean]


def check_type(type: str) -> None:
    """Raise a ValueError if there is no such test of terms."""
    if type not in ("wald", "III"):
        raise ValueError(f"type must be 'wald', 'III' or None; got {type!r}.")
