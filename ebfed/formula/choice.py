"""Which estimator a formula is of, and what the formula says of its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sklearn.base import clone

from ebfed.engines import Estimator
from ebfed.formula.design import CONSTANT, Design
from ebfed.formula.grammar import FormulaTerms
from ebfed.location import (
    BernoulliEB,
    CategoricalEB,
    GaussianEB,
    NegativeBinomialEB,
    PoissonEB,
    VarianceEB,
)
from ebfed.regression import CrossedEB, GeneralizedEB, LinearEB, LogisticEB
from ebfed.regression.columns import INTERCEPT

__all__ = [
    "FAMILIES",
    "RATES",
    "check_location",
    "choose",
    "chosen",
    "following",
    "other_population",
    "terms_of_factors",
]

# Estimators of a parameter for every group, and of coefficients, by family.
LOCATION: dict[str, Any] = {
    make().protocol().family.name: make
    for make in (
        GaussianEB,
        BernoulliEB,
        CategoricalEB,
        PoissonEB,
        NegativeBinomialEB,
        VarianceEB,
    )
}
CROSSED = ("gaussian", "binomial", "poisson")
REGRESSION: dict[str, Any] = {
    "gaussian": LinearEB,
    "binomial": LogisticEB,
    "poisson": partial(GeneralizedEB, "poisson"),
    "negative_binomial": partial(GeneralizedEB, "negative_binomial"),
    "gamma": partial(GeneralizedEB, "gamma"),
    "ordinal": partial(GeneralizedEB, "ordinal"),
}
# Populations of coefficients that are normal on the scale of a link, by family.
ON_LINK = {
    "binomial": "logit-normal",
    "poisson": "log-normal",
    "negative_binomial": "log-normal",
    "gamma": "log-normal",
    "ordinal": "logit-normal",
}
# Notes on the populations of rates.
RATES = {
    "Beta": "The population of rates is beta. prior='logit-normal' makes their logits normal "
    "instead, as in formulas with covariates of rows.",
    "logit-normal": "The population is logit-normal: the coefficients of groups are normal. "
    "prior='beta' makes rates beta instead, and takes covariates of groups alone.",
    "log-normal": "The population is log-normal: the coefficients of groups are normal, on the "
    "scale of log rates. prior='gamma' makes rates gamma instead, and takes covariates of groups "
    "alone.",
}
# Names of families, of either.
FAMILIES = (*LOCATION, *(name for name in REGRESSION if name not in LOCATION))

OFFSETS = "family='poisson', 'negative_binomial', 'gamma' or 'binomial'"
SAID_OTHERWISE = {
    "REML": "; method='ml' or 'reml' is what lme4's REML= says",
    "offset": f"; an offset is a term of the formula, offset(log(e)), of {OFFSETS}",
    "nAGQ": ": the likelihood is approximated as `method` says",
}


def check_settings(estimator: Any, settings: Mapping[str, Any]) -> None:
    """Refuse arguments that an estimator does not have, and say what does the same."""
    for name in settings:
        if name not in estimator.get_params():
            raise ValueError(
                f"{type(estimator).__name__} has no argument {name!r}"
                f"{SAID_OTHERWISE.get(name, '')}."
            )


def chosen(
    model: FormulaTerms,
    design: Design,
    estimator: Estimator | None,
    family: str | None,
    prior: Any,
    varying: list[list[str]] | None,
    **settings: Any,
) -> Estimator:
    """Return the estimator of a formula, not fitted: a copy of one that was given, or by family."""
    if family is not None and family not in FAMILIES:
        raise ValueError(f"family must be {', '.join(map(repr, FAMILIES))}; got {family!r}.")
    if estimator is None:
        estimator = choose(model, design, family, prior, varying)
        if isinstance(estimator, LogisticEB | GeneralizedEB):
            prior = None
    elif family is not None:
        raise ValueError("family chooses an estimator; give one of the two.")
    own: Any = clone(estimator)
    settings |= {} if prior is None else {"prior": prior}
    check_settings(own, settings)
    return own.set_params(**settings)


def choose(
    model: FormulaTerms,
    design: Design,
    family: str | None,
    prior: Any,
    varying: list[list[str]] | None = None,
) -> Estimator:
    """Choose an estimator for a formula."""
    kind = family or ("binomial" if model.counts else "gaussian")
    if model.counts and kind != "binomial":
        raise ValueError(f"counts {model.text!r} are of family='binomial'.")
    if model.factors:
        if kind not in CROSSED or prior is not None:
            raise ValueError(
                f"crossed factors are of family={' or '.join(map(repr, CROSSED))}, without prior=; "
                f"{model.text!r} is of family={kind!r}."
            )
        return CrossedEB(family=kind)  # type: ignore[arg-type]
    of_prior = [each for each, name in ON_LINK.items() if isinstance(prior, str) and prior == name]
    if of_prior and kind not in of_prior:
        raise ValueError(
            f"prior={prior!r} is of family={' or '.join(map(repr, of_prior))}; got family={kind!r}."
        )
    if kind not in LOCATION and not (prior is None or of_prior):
        raise ValueError(f"family={kind!r} has prior={ON_LINK[kind]!r} alone; got {prior!r}.")
    location = not design.names and design.constant
    if kind in ON_LINK and (prior is not None or model.offset):
        location = not of_prior if prior is not None else kind != "binomial" and location
    if kind not in REGRESSION or (location and kind in LOCATION):
        return LOCATION[kind]()
    correlated = varying is not None and some_of(varying, design) and joint_in(model, varying)
    if kind == "binomial" and (model.offset or model.above or correlated):
        return GeneralizedEB("binomial")
    return REGRESSION[kind]()


def some_of(varying: list[list[str]], design: Design) -> bool:
    """Whether some terms have one coefficient for all groups of a level."""
    every = {*[CONSTANT] * design.constant, *design.names}
    return any(set(each) < every for each in varying)


def joint_in(model: FormulaTerms, varying: list[list[str]]) -> bool:
    """Whether terms that differ between groups are correlated."""
    return bool(model.correlated) and max(map(len, varying)) > 1


def following(
    estimator: Any, model: FormulaTerms, design: Design, varying: list[list[str]] | None
) -> Estimator:
    """Set what a formula says of an estimator of regressions."""
    if bool(model.factors) != isinstance(estimator, CrossedEB):
        raise ValueError(
            f"{type(estimator).__name__} does not fit {model.text!r}: CrossedEB() fits crossed "
            "factors, (1 | a) + (1 | b), and these alone."
        )
    if model.factors:
        estimator.set_params(fit_intercept=design.constant, varying=None)
        if varying is None:
            return estimator
        names = [":".join(factor) for factor in model.factors]
        kinds = {
            name: "full" if correlated else "diag"
            for name, (_, correlated) in zip(names, model.slopes, strict=True)
        }
        terms = [[INTERCEPT if x == CONSTANT else x for x in each] for each in varying]
        return estimator.set_params(varying=dict(zip(names, terms, strict=True)), covariance=kinds)
    if model.offset and not isinstance(estimator, GeneralizedEB):
        raise ValueError(f"{type(estimator).__name__} has no offset; {OFFSETS} has one.")
    settings: dict[str, Any] = {}
    known = estimator.get_params()
    if "fit_intercept" in known:
        settings["fit_intercept"] = design.constant
    elif not design.constant:
        raise ValueError(
            f"{type(estimator).__name__} has a constant; {model.fixed!r} takes it out."
        )
    if model.above and not estimator.takes_levels:
        raise ValueError(
            f"{type(estimator).__name__} has one level of groups; LinearEB(), GeneralizedEB() and "
            f"GaussianEB() have several, {'/'.join(model.levels)}."
        )
    if not design.names:
        raise ValueError(
            f"{model.text!r} has no term for {type(estimator).__name__} to learn from; "
            "GaussianEB() and BernoulliEB() estimate means and rates."
        )
    if varying is not None:
        some, joint = some_of(varying, design), joint_in(model, varying)
        if some and "varying" not in known:
            raise ValueError(
                f"all terms differ between groups in {type(estimator).__name__}; write "
                f"'{model.response} ~ {model.fixed} | {model.group}'."
            )
        if some and joint and isinstance(estimator, LogisticEB):
            raise ValueError(
                f"in LogisticEB terms are not correlated where others do not differ; write "
                f"({model.varying} || {model.group})."
            )
        if some:
            named = [[INTERCEPT if x == CONSTANT else x for x in each] for each in varying]
            of_levels = dict(zip(model.levels, named, strict=True))
            settings["varying"] = of_levels if model.above else named[0]
        if "covariance" in known:
            settings["covariance"] = "full" if joint else "diag"
    elif model.correlated is False and "covariance" in known:
        settings["covariance"] = "diag"
    return estimator.set_params(**settings)


def terms_of_factors(model: FormulaTerms, design: Design, data: Any) -> list[list[str]]:
    """Terms that differ between the levels of each crossed factor.

    Raises
    ------
    ValueError
        If a slope is not among the terms of all rows.
    """
    found = []
    for (text, _), columns in zip(model.slopes, model.factors, strict=True):
        some, _ = Design.learn(text, data, design.context)
        for name in some.names:
            if name not in design.names:
                raise design.lacking(name, f"({text} | {':'.join(columns)})")
        found.append([CONSTANT] * some.constant + some.names)
    return found


def check_location(
    estimator: Any, model: FormulaTerms, design: Design, varying: list[list[str]] | None
) -> None:
    """Refuse what a population of single numbers cannot be."""
    if model.factors:
        raise ValueError(f"{type(estimator).__name__} has no crossed factors; CrossedEB() has.")
    if model.offset and not estimator.protocol().family.takes_exposure:
        raise ValueError(f"{type(estimator).__name__} has no offset; {OFFSETS} has one.")
    if varying is not None and any(each != [CONSTANT] for each in varying):
        raise ValueError(
            f"{type(estimator).__name__} estimates one number for a group, (1 | {model.group}); "
            f"got ({model.varying} | {model.group}).{other_population(estimator)}"
        )
    if model.above and design.names:
        raise ValueError(
            f"covariates and levels of groups cannot be fitted together; {model.text!r} has both."
        )
    if not design.constant:
        raise ValueError(f"covariates need a constant; {model.fixed!r} takes it out.")


def other_population(estimator: Any) -> str:
    """Name the population of rates that does what a conjugate one cannot."""
    name = ON_LINK.get(estimator.protocol().family.name)
    if name is None:
        return ""
    return f" prior={name!r} takes covariates of rows, whose coefficients may differ."
