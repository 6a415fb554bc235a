"""Fits from files: the classes that a file may name, and no others."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

from ebfed import channels, learning, location, models, priors, regression
from ebfed.engines import portable
from ebfed.formula import FormulaFit
from ebfed.regression.group_covariates import GroupCovariates
from ebfed.tables.clients import Clients, Summary
from ebfed.tables.dispersed import Dispersed
from ebfed.tables.factors import Factors

__all__ = ["load_fit"]


def load_fit(path: str | Path) -> Any:
    """Read a fit that was saved by its method `save`.

    The fit is as it was: its estimates, intervals, frames and summary are equal to the last bit.
    Nothing in the file is executed, and only classes of ebfed are made.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Estimator, FormulaFit or Prior
        Fitted. If the file has no groups, it estimates given rows only, as `published` copies do.
        A population that a result of `posterior_from` saved is an argument `prior=`.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If the file is torn, of something else, of a newer version, or names a class that is not
        part of a fit.

    Examples
    --------
    >>> import tempfile
    >>> import ebfed as eb
    >>> path = tempfile.mkdtemp() + "/fit.json"
    >>> hits, at_bats = [4, 10, 7, 1], [10, 40, 25, 2]
    >>> fit = eb.BernoulliEB().fit(eb.Summary.from_counts(hits, at_bats, ids=list("abcd")))
    >>> fit.save(path)
    >>> load_fit(path).predict(groups=["d"]).round(3) == fit.predict(groups=["d"]).round(3)
    array([ True])
    >>> fit.save(path, groups=False)
    >>> load_fit(path).predict(groups=["d"])
    Traceback (most recent call last):
    ValueError: the clients kept their figures; give rows to estimate.
    """
    return portable.load(path, CLASSES, FormulaFit.of_data)


def _public(wing: ModuleType) -> dict[str, type]:
    """Classes of a part of the package that can be made, by the names that files have for them."""
    return {
        f"{wing.__name__.removeprefix('ebfed.')}.{name}": each
        for name in wing.__all__
        if inspect.isclass(each := getattr(wing, name)) and not inspect.isabstract(each)
    }


# Classes that the plan of a federated run may name.
METHODS = {**_public(location), **_public(regression), **_public(learning), **_public(models)}
METHODS |= {**_public(channels), **_public(priors), "regression.GroupCovariates": GroupCovariates}
# Classes that the file of a fit may name.
CLASSES = METHODS | {
    "tables.Clients": Clients,
    "tables.Dispersed": Dispersed,
    "tables.Factors": Factors,
    "tables.Summary": Summary,
}
