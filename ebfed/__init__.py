"""Empirical Bayes on federated and private data.

Many groups, little data in each, data that stays where it is: estimate every group as well as if
the population were known. What is used most is here, the rest in modules: learners are in
`ebfed.learning`, channels in `ebfed.channels`. Names are imported when they are first used, so that
importing the package loads nothing heavy, and a fit what it needs.
"""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed import (
        channels,
        datasets,
        engines,
        evaluation,
        families,
        formula,
        learning,
        likelihoods,
        location,
        models,
        priors,
        privacy,
        regression,
        report,
        tables,
        testing,
        theory,
    )
    from ebfed.evaluation import anova, compare, price_of_privacy
    from ebfed.formula import from_formula
    from ebfed.learning import ClientPrivacy
    from ebfed.loading import load_fit
    from ebfed.location import (  # type: ignore[no-redef]
        BernoulliEB,
        CategoricalEB,
        DurationEB,
        GaussianEB,
        GroupEncoder,
        MixtureEB,
        NegativeBinomialEB,
        OptOutMean,
        PoissonEB,
        VarianceEB,
        effect_sizes,
        fay_herriot,
        meta_analysis,
        moderated_t,
        posterior_from,
        two_groups,
    )
    from ebfed.priors import IdentificationWarning
    from ebfed.regression import (
        AdaMix,
        AdaMixClassifier,
        CrossedEB,
        GeneralizedEB,
        LinearEB,
        LogisticEB,
        MixtureLinearEB,
    )
    from ebfed.tables import Summary
    from ebfed.tables.unseen import UnseenGroupWarning

__version__ = "0.2.0"

# Modules of what is rarely used have a name too, and are not listed.
__all__ = [
    "AdaMix",
    "AdaMixClassifier",
    "BernoulliEB",
    "CategoricalEB",
    "ClientPrivacy",
    "CrossedEB",
    "DurationEB",
    "GaussianEB",
    "GeneralizedEB",
    "GroupEncoder",
    "IdentificationWarning",
    "LinearEB",
    "LogisticEB",
    "MixtureEB",
    "MixtureLinearEB",
    "NegativeBinomialEB",
    "OptOutMean",
    "PoissonEB",
    "Summary",
    "UnseenGroupWarning",
    "VarianceEB",
    "anova",
    "channels",
    "compare",
    "datasets",
    "effect_sizes",
    "engines",
    "families",
    "fay_herriot",
    "from_formula",
    "learning",
    "likelihoods",
    "load_fit",
    "meta_analysis",
    "models",
    "moderated_t",
    "posterior_from",
    "price_of_privacy",
    "priors",
    "privacy",
    "report",
    "testing",
    "two_groups",
]

__getattr__ = at_first_use(__name__)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
