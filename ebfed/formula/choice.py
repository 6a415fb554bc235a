"""Which estimator a formula is of, and what the formula says of its arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sklearn.base import clone, is_classifier

from ebfed import regression
from ebfed.designs.design import CONSTANT, Design
from ebfed.designs.grammar import FormulaTerms, column_name, parse, plain_name
from ebfed.designs.terms import Terms
from ebfed.regression.columns import INTERCEPT

__all__ = [
    "FAMILIES",
    "RATES",
    "REGRESSION",
    "check_location",
    "choose",
    "chosen",
    "family_of",
    "following",
    "is_a",
    "model_of_columns",
    "other_population",
]

# Columns of terms that differ between groups, of each level: of each term.
Varying = list[list[list[str]]]
# Estimators of a parameter for every group, and of coefficients, by family. Those that a formula
# does not need are not imported.
LOCATION = {
    "gaussian": "GaussianEB",
    "binomial": "BernoulliEB",
    "categorical": "CategoricalEB",
    "poisson": "PoissonEB",
    "negative_binomial": "NegativeBinomialEB",
    "variance": "VarianceEB",
}
GENERALIZED = ("poisson", "negative_binomial", "gamma", "ordinal")
REGRESSION = {"gaussian": "LinearEB", "binomial": "LogisticEB"} | dict.fromkeys(
    GENERALIZED, "GeneralizedEB"
)
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

OFFSETS = "a mixed model, 'y ~ x + offset(z) + (1 | g)',"
SAID_OTHERWISE = {
    "REML": "; method='ml' or 'reml' is what lme4's REML= says",
    "offset": "; an offset is a term of the formula, offset(log(e))",
    "exposure": "; exposure is a term of the formula, offset(log(exposure))",
    "trials": "; trials are part of the response, cbind(won, trials=n)",
    "groups": "; groups are a term of the formula, (1 | group)",
    "sample_weight": "; weights= has the weight of each row",
    "nAGQ": ": the likelihood is approximated as `method` says",
}


ADVICE = "nodes read columns and compute none; make a column of it in their tables, and name that"


def is_a(estimator: Any, *names: str) -> bool:
    """Return whether an estimator is of one of these classes, which are not imported to know that.

    Examples
    --------
    >>> is_a(regression.LinearEB(), "LinearEB"), is_a(regression.LinearEB(), "LocationEstimator")
    (True, False)
    """
    return any(kind.__name__ in names for kind in type(estimator).__mro__)


def family_of(estimator: Any) -> str:
    """Name of the family of an estimator; "labels" if it takes labels."""
    if is_a(estimator, "LocationEstimator"):
        name = estimator.protocol().family.name
        return "labels" if name == "categorical" else name
    return "labels" if is_classifier(estimator) else str(getattr(estimator, "family", "gaussian"))


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
    estimator: Any,
    family: str | None,
    prior: Any,
    varying: Varying | None,
    settings: Mapping[str, Any],
    *,
    fractions: bool,
    trials: bool,
) -> Any:
    """Return the estimator of a formula, not fitted: a copy of one that was given, or by family.

    `settings` are arguments of the estimator, as they were given.

    With `trials`, rows are of several trials each; with `fractions`, their weights are not whole
    numbers.
    """
    if family is not None and family not in FAMILIES:
        raise ValueError(f"family must be {', '.join(map(repr, FAMILIES))}; got {family!r}.")
    if estimator is None:
        said = {"reports": "channel" in settings, "fractions": fractions, "trials": trials}
        said |= {"linked": settings.get("link") is not None}
        estimator = choose(model, design, family, prior, varying, **said)
        if is_a(estimator, "LogisticEB", "GeneralizedEB"):
            prior = None
    elif family is not None:
        raise ValueError("family chooses an estimator; give one of the two.")
    elif trials and is_a(estimator, "LogisticEB"):
        raise ValueError(
            f"LogisticEB() fits rows of one trial each; GeneralizedEB('binomial') fits rows of "
            f"several, {model.response!r}."
        )
    own: Any = clone(estimator)
    if "varying" in settings:
        raise ValueError("terms that differ are those of the formula, as in (1 + x | group).")
    settings = {**settings} if prior is None else {**settings, "prior": prior}
    check_settings(own, settings)
    return own.set_params(**settings)


def choose(
    model: FormulaTerms,
    design: Design,
    family: str | None,
    prior: Any,
    varying: Varying | None = None,
    *,
    reports: bool = False,
    fractions: bool = False,
    trials: bool = False,
    linked: bool = False,
) -> Any:
    """Choose an estimator for a formula.

    Terms that differ between groups, ``(1 | g)``, are those of a mixed model. Groups have a number
    each, from a population of such numbers, where a `prior` asks for it, groups send `reports`, or
    the formula is ``y | g``.
    """
    kind = family or ("binomial" if model.counts else "gaussian")
    if model.counts and kind != "binomial":
        raise ValueError(f"counts {model.text!r} are of family='binomial'.")
    if model.factors:
        if kind not in REGRESSION or prior is not None:
            known = " or ".join(map(repr, REGRESSION))
            raise ValueError(
                f"crossed factors are of family={known}, without prior=; "
                f"{model.text!r} is of family={kind!r}."
            )
        return regression.CrossedEB(family=kind)  # type: ignore[arg-type]
    of_prior = [each for each, name in ON_LINK.items() if isinstance(prior, str) and prior == name]
    if of_prior and kind not in of_prior:
        raise ValueError(
            f"prior={prior!r} is of family={' or '.join(map(repr, of_prior))}; got family={kind!r}."
        )
    if kind not in LOCATION and not (prior is None or of_prior):
        raise ValueError(f"family={kind!r} has prior={ON_LINK[kind]!r} alone; got {prior!r}.")
    single = not design.names and design.constant_with_mean
    if kind in ON_LINK and prior is not None:
        single = not of_prior
    elif prior is None and kind in REGRESSION:
        mixed = model.varying is not None and not reports
        single = single and not mixed and not ((model.offset or linked) and kind == "binomial")
    if kind not in REGRESSION or (single and kind in LOCATION):
        from ebfed import location

        return getattr(location, LOCATION[kind])()
    general = trials or fractions or linked
    general = bool(general or model.offset or model.above or design.without_mean)
    if varying is not None and joint_in(model, varying):
        general = general or some_of(varying, design) or several_in(model, varying)
    if kind == "binomial" and general:
        return regression.GeneralizedEB("binomial")
    make = getattr(regression, REGRESSION[kind])
    return make(kind) if kind in GENERALIZED else make()


def some_of(varying: Varying, design: Design) -> bool:
    """Whether some columns have one coefficient for all groups of a level."""
    every = {*[CONSTANT] * design.constant, *design.names}
    return any({name for term in each for name in term} < every for each in varying)


def joint_in(model: FormulaTerms, varying: Varying) -> bool:
    """Whether coefficients that differ between groups are correlated."""
    return any(len(term) > 1 for each in apart(model, varying) for term in each)


def several_in(model: FormulaTerms, varying: Varying) -> bool:
    """Whether a level has several terms whose coefficients are independent."""
    return any(len(each) > 1 for each in apart(model, varying))


def apart(model: FormulaTerms, varying: Varying) -> Varying:
    """Split terms whose coefficients are not correlated into their columns, as afex does.

    Raises
    ------
    ValueError
        If two terms of a level have the same column.
    """
    found = []
    for level, columns, said in zip(model.levels, varying, model.varying or (), strict=True):
        every = [name for term in columns for name in term]
        if twice := [name for name in every if every.count(name) > 1]:
            name = "1" if twice[0] == CONSTANT else twice[0]
            raise ValueError(
                f"two terms of {level!r} in {model.text!r} have {name!r}: rows do not tell their "
                "variances apart; put 0 + into one of them."
            )
        pairs = zip(columns, said, strict=True)
        found.append(
            [
                part
                for term, (_, joint) in pairs
                for part in ([term] if joint else [[x] for x in term])
            ]
        )
    return found


def following(estimator: Any, model: FormulaTerms, design: Design, varying: Varying | None) -> Any:
    """Set what a formula says of an estimator of regressions."""
    if bool(model.factors) != is_a(estimator, "CrossedEB"):
        raise ValueError(
            f"{type(estimator).__name__} does not fit {model.text!r}: CrossedEB() fits crossed "
            "factors, (1 | a) + (1 | b), and these alone."
        )
    if model.factors:
        own = [INTERCEPT] * design.constant_with_mean + design.names_with_mean
        fixed = own if design.without_mean else None
        estimator.set_params(fit_intercept=design.constant, varying=None, fixed=fixed)
        if varying is None:
            return estimator
        names = [":".join(factor) for factor in model.factors]
        terms: dict[str, list[list[str]]] = {}
        for name, columns, said in zip(names, varying, model.slopes, strict=True):
            for each, (_, correlated) in zip(columns, said, strict=True):
                block = [INTERCEPT if x == CONSTANT else x for x in each]
                more = [block] if correlated else [[x] for x in block]
                terms[name] = terms.get(name, []) + more
        return estimator.set_params(varying=terms)
    if model.offset and not is_a(estimator, "LinearEB", "GeneralizedEB"):
        raise ValueError(f"{type(estimator).__name__} has no offset; {OFFSETS} has one.")
    settings: dict[str, Any] = {}
    known = estimator.get_params()
    if "fit_intercept" in known:
        settings["fit_intercept"] = design.constant
    elif not design.constant:
        raise ValueError(
            f"{type(estimator).__name__} has a constant; {model.fixed!r} takes it out."
        )
    if model.above and not estimator._takes_levels:
        raise ValueError(
            f"{type(estimator).__name__} has one level of groups; LinearEB(), LogisticEB(), "
            f"GeneralizedEB() and GaussianEB() have several, {'/'.join(model.levels)}."
        )
    mixed = is_a(estimator, "LinearEB", "LogisticEB", "GeneralizedEB")
    if not design.names and not (mixed and design.constant):
        raise ValueError(
            f"{model.text!r} has no term for {type(estimator).__name__} to learn from."
        )
    if varying is not None:
        some, joint = some_of(varying, design), joint_in(model, varying)
        if some and "varying" not in known:
            raise ValueError(
                f"all terms differ between groups in {type(estimator).__name__}; write "
                f"'{model.response} ~ {model.fixed} | {model.group}'."
            )
        if design.without_mean and "fixed" not in known:
            raise lacking(estimator, design, model)
        parts = apart(model, varying)
        several = joint and several_in(model, varying)
        if several and not is_a(estimator, "LinearEB", "GeneralizedEB"):
            raise ValueError(
                f"{type(estimator).__name__} has one term of a group, whose coefficients are all "
                f"correlated, or none are; {model.text!r} has several."
            )
        if some or several:
            named: list[Any] = [
                [[INTERCEPT if x == CONSTANT else x for x in term] for term in each]
                for each in parts
            ]
            if not several:
                named = [[x for term in each for x in term] for each in named]
            of_levels = dict(zip(model.levels, named, strict=True))
            settings["varying"] = of_levels if model.above else named[0]
        if "fixed" in known:
            own = [INTERCEPT] * design.constant_with_mean + design.names_with_mean
            settings["fixed"] = own if design.without_mean else None
        if "covariance" in known:
            settings["covariance"] = "full" if joint else "diag"
    elif model.correlated is False and "covariance" in known:
        settings["covariance"] = "diag"
    return estimator.set_params(**settings)


def lacking(estimator: Any, design: Design, model: FormulaTerms) -> ValueError:
    """Return the error of a term that differs between groups, and must be one of all groups too."""
    name = "1" if design.without_mean[0] == CONSTANT else design.without_mean[0]
    return ValueError(
        f"term {name!r} differs between groups in {model.text!r}, and so must be among the terms "
        f"of all groups too: {type(estimator).__name__} has a mean of each coefficient."
    )


def check_location(
    estimator: Any, model: FormulaTerms, design: Design, varying: Varying | None
) -> None:
    """Refuse what a population of single numbers cannot be."""
    if model.factors:
        raise ValueError(f"{type(estimator).__name__} has no crossed factors; CrossedEB() has.")
    if model.offset and not estimator.protocol().family.takes_exposure:
        raise ValueError(f"{type(estimator).__name__} has no offset; {OFFSETS} has one.")
    if varying is not None and any(each != [[CONSTANT]] for each in varying):
        shown = " + ".join(
            f"({text} | {level})"
            for level, terms in zip(model.levels, model.varying or (), strict=True)
            for text, _ in terms
        )
        raise ValueError(
            f"{type(estimator).__name__} estimates one number for a group, (1 | {model.group}); "
            f"got {shown}.{other_population(estimator)}"
        )
    if model.above and design.names:
        raise ValueError(
            f"covariates and levels of groups cannot be fitted together; {model.text!r} has both."
        )
    if not design.constant_with_mean:
        raise ValueError(f"covariates need a constant; {model.fixed!r} takes it out.")


def other_population(estimator: Any) -> str:
    """Name the population of rates that does what a conjugate one cannot."""
    name = ON_LINK.get(estimator.protocol().family.name)
    if name is None:
        return ""
    return f" prior={name!r} takes covariates of rows, whose coefficients may differ."


def model_of_columns(
    formula: str, family: str = "gaussian"
) -> tuple[Any, dict[str, str | list[str]]]:
    """Translate a formula whose terms are columns, for nodes of a federation.

    Nodes read columns of their tables, and compute nothing that another party has written. So a
    formula for them names columns.

    Parameters
    ----------
    formula : str
        As for `from_formula`, of one estimator for each form: ``y ~ x + (1 + x | g)`` is
        `LinearEB`, `LogisticEB` or `GeneralizedEB`; ``y | g`` is `GaussianEB`, `BernoulliEB` or
        `PoissonEB`.
    family : {"gaussian", "binomial", "poisson"}

    Returns
    -------
    estimator : Estimator
        Not fitted.
    rows : dict
        Column of each argument of `fit`.

    Raises
    ------
    ValueError
        If a term is not a column, such as ``log(x)``, ``a:b`` or ``C(kind)``, or the formula is
        wrong.

    Examples
    --------
    >>> estimator, rows = model_of_columns("score ~ age + (1 | ward)")
    >>> estimator
    LinearEB(varying=['intercept'])
    >>> rows
    {'groups': 'ward', 'X': ['age'], 'y': 'score'}
    """
    model = parse(formula)
    if model.counts:
        raise ValueError(f"{model.text!r}: each row has an outcome of its own, 0 or 1; not counts.")
    if model.above:
        raise ValueError(f"{model.text!r}: formulas of nodes have one level of groups.")
    names, constant = _columns_of(model.fixed)
    design = Design(model.fixed, names, constant)
    response = _column_of(model.response)
    varying = None
    if model.varying is not None:
        varying = [[_varying(text, design) for text, _ in terms] for terms in model.varying]
    estimator = choose(model, design, family, None, varying)
    rows: dict[str, str | list[str]] = {"groups": model.group}
    if not is_a(estimator, "LocationEstimator"):
        if model.offset:
            raise ValueError(f"offset({model.offset}): nodes take no offset beside columns.")
        return following(estimator, model, design, varying), rows | {"X": names, "y": response}
    check_location(estimator, model, design, varying)
    if names:
        raise ValueError(f"term {names[0]!r}: nodes take no covariates of groups.")
    if model.offset:
        logarithm = re.fullmatch(r"(?:np\.)?log\((.+)\)", model.offset)
        rows["exposure"] = _column_of(logarithm[1] if logarithm else model.offset)
    return estimator, rows | {"X": [response]}


def _columns_of(text: str) -> tuple[list[str], bool]:
    """Columns of terms, and whether the constant is among them."""
    names, constant = [], False
    for term, factors in Terms.of(text).each:
        if factors == (("literal", "1"),):
            constant = True
        elif len(factors) == 1 and factors[0][0] == "lookup":
            names.append(plain_name(factors[0][1]))
        else:
            raise ValueError(f"term {term!r} is no column: {ADVICE}.")
    return names, constant


def _column_of(text: str) -> str:
    """Column of a response or an exposure."""
    if not (text.isidentifier() or re.fullmatch(r"`[^`]+`", text)):
        raise ValueError(f"{text!r} is no column: {ADVICE}.")
    return column_name(text)


def _varying(text: str, design: Design) -> list[str]:
    """Columns of a term that differs between groups, which become columns of the design."""
    names, constant = _columns_of(text)
    own = [CONSTANT] * constant + names
    known = [CONSTANT] * design.constant + design.names
    design.without_mean = [name for name in own if name not in known]
    design.names += [name for name in names if name not in known]
    design.constant |= constant
    return own
