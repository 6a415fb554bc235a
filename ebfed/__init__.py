"""Empirical Bayes on federated and private data.

Many groups, little data in each, data that stays where it is: estimate every group as well as if
the population were known. Public names are resolved when they are first used, so that importing
the package loads nothing heavy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ebfed import (
        channels,
        datasets,
        engines,
        likelihoods,
        models,
        priors,
        privacy,
        testing,
        theory,
    )
    from ebfed.clients import Clients, Summary
    from ebfed.comparison import compare
    from ebfed.estimators import (
        PPSGD,
        AdaMix,
        AdaMixClassifier,
        AdaPeD,
        BernoulliEB,
        Ditto,
        DPAdaPeD,
        DPFedAvg,
        FedAvg,
        FedMutual,
        FeO2,
        GaussianEB,
        JointDPSGD,
        LinearEB,
        LocalOnly,
        LogisticEB,
        MixtureEB,
        MixtureLinearEB,
        OptOutMean,
        PerFedAvg,
        PFedMe,
        QuPeD,
        posterior_from,
    )
    from ebfed.formula import FormulaFit, from_formula
    from ebfed.price import price_of_privacy

__version__ = "0.1.0"

_HOME = {
    "JointDPSGD": "ebfed.estimators",
    "QuPeD": "ebfed.estimators",
    "PerFedAvg": "ebfed.estimators",
    "PPSGD": "ebfed.estimators",
    "PFedMe": "ebfed.estimators",
    "LocalOnly": "ebfed.estimators",
    "FedMutual": "ebfed.estimators",
    "FedAvg": "ebfed.estimators",
    "FeO2": "ebfed.estimators",
    "Ditto": "ebfed.estimators",
    "DPFedAvg": "ebfed.estimators",
    "DPAdaPeD": "ebfed.estimators",
    "AdaPeD": "ebfed.estimators",
    "AdaMix": "ebfed.estimators",
    "AdaMixClassifier": "ebfed.estimators",
    "BernoulliEB": "ebfed.estimators",
    "GaussianEB": "ebfed.estimators",
    "LinearEB": "ebfed.estimators",
    "LogisticEB": "ebfed.estimators",
    "MixtureEB": "ebfed.estimators",
    "MixtureLinearEB": "ebfed.estimators",
    "OptOutMean": "ebfed.estimators",
    "posterior_from": "ebfed.estimators",
    "FormulaFit": "ebfed.formula",
    "from_formula": "ebfed.formula",
    "compare": "ebfed.comparison",
    "price_of_privacy": "ebfed.price",
    "Clients": "ebfed.clients",
    "Summary": "ebfed.clients",
    "Guess": "ebfed.channels",
    "IdentificationWarning": "ebfed.priors",
}
_MODULES = (
    "channels",
    "datasets",
    "engines",
    "likelihoods",
    "models",
    "priors",
    "privacy",
    "report",
    "studies",
    "testing",
    "theory",
)

__all__ = [
    "PPSGD",
    "AdaMix",
    "AdaMixClassifier",
    "AdaPeD",
    "BernoulliEB",
    "Clients",
    "DPAdaPeD",
    "DPFedAvg",
    "Ditto",
    "FeO2",
    "FedAvg",
    "FedMutual",
    "FormulaFit",
    "GaussianEB",
    "Guess",
    "IdentificationWarning",
    "JointDPSGD",
    "LinearEB",
    "LocalOnly",
    "LogisticEB",
    "MixtureEB",
    "MixtureLinearEB",
    "OptOutMean",
    "PFedMe",
    "PerFedAvg",
    "QuPeD",
    "Summary",
    "channels",
    "compare",
    "datasets",
    "engines",
    "from_formula",
    "likelihoods",
    "models",
    "posterior_from",
    "price_of_privacy",
    "priors",
    "privacy",
    "report",
    "studies",
    "testing",
    "theory",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _MODULES:
        return import_module(f"ebfed.{name}")
    raise AttributeError(f"module 'ebfed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
