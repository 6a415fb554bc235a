"""Empirical Bayes on federated and private data.

Many groups, little data in each, data that stays where it is: estimate every group as well as if
the population were known. Public names are those that the wings list; they are resolved when they
are first used, so that importing the package loads nothing heavy.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ebfed import (
        channels,
        datasets,
        engines,
        families,
        learning,
        likelihoods,
        location,
        models,
        priors,
        privacy,
        regression,
        report,
        studies,
        testing,
        theory,
    )
    from ebfed.channels import Guess
    from ebfed.evaluation import *
    from ebfed.formula import *
    from ebfed.learning import *
    from ebfed.loading import *
    from ebfed.location import *
    from ebfed.priors import IdentificationWarning
    from ebfed.regression import *
    from ebfed.tables import *
    from ebfed.tables.unseen import UnseenGroupWarning

__version__ = "0.2.0"

# Packages whose public names are also names of ebfed.
_WINGS = ("tables", "location", "regression", "learning", "formula", "evaluation", "loading")
# Names of other packages that are used with all of them.
_BORROWED = {
    "Guess": "channels",
    "IdentificationWarning": "priors",
    "UnseenGroupWarning": "tables.unseen",
}
_MODULES = (
    "channels",
    "datasets",
    "engines",
    "families",
    "learning",
    "likelihoods",
    "location",
    "models",
    "priors",
    "privacy",
    "regression",
    "report",
    "studies",
    "testing",
    "theory",
)


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562), and keep it."""
    found = globals()[name] = _imported(name)
    return found


def _imported(name: str) -> Any:
    if name == "__all__":
        listed = [each for wing in _WINGS for each in import_module(f"ebfed.{wing}").__all__]
        return sorted([*listed, *_BORROWED, *_MODULES])
    if name in _MODULES:
        return import_module(f"ebfed.{name}")
    if name in _BORROWED:
        return getattr(import_module(f"ebfed.{_BORROWED[name]}"), name)
    # other modules are found by the import system, which asks here first
    if not name.startswith("_") and find_spec(f"ebfed.{name}") is None:
        for wing in map(import_module, (f"ebfed.{wing}" for wing in _WINGS)):
            if name in wing.__all__:
                return getattr(wing, name)
    raise AttributeError(f"module 'ebfed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_imported("__all__")})
