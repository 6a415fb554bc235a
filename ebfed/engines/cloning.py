"""Clones of estimators, and a check that scikit-learn does not lose their groups.

Without metadata routing, scikit-learn's searches and cross-validation give `groups` to the folds
alone. An estimator would then be fitted or scored as if every row were a group of its own.
"""

from __future__ import annotations

import sys
from typing import Any

from sklearn import get_config
from sklearn.base import BaseEstimator

__all__ = ["cloned"]


def cloned(estimator: Any) -> Any:
    """Return a clone, as `sklearn.base.clone` does.

    Parameters
    ----------
    estimator : Estimator

    Raises
    ------
    ValueError
        If a function of `sklearn.model_selection` was given groups, and does not pass them on.

    Examples
    --------
    >>> from ebfed.location import BernoulliEB
    >>> cloned(BernoulliEB(prior="npmle"))
    BernoulliEB(prior='npmle')
    """
    if not get_config()["enable_metadata_routing"] and (caller := _keeper_of_groups()):
        name = type(estimator).__name__
        raise ValueError(
            f"{caller} was given groups, but would not pass them on to {name}, for which every row "
            "would be a group of its own. Call sklearn.set_config(enable_metadata_routing=True) "
            "first; functions such as cross_val_score then take params={'groups': groups}. If the "
            f"groups are for the folds alone, give {name}().set_fit_request(groups=False)"
            ".set_score_request(groups=False)."
        )
    return BaseEstimator.__sklearn_clone__(estimator)


def _keeper_of_groups() -> str:
    """Name the outermost function of scikit-learn that was given groups; empty if there is none.

    It clones an estimator before it fits it, so it is among the callers of this function.
    """
    found, frame = "", sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("sklearn.model_selection."):
            known = frame.f_locals
            params = known.get("params")
            given = {"groups": known.get("groups")} | (params if isinstance(params, dict) else {})
            if any(
                name.split("__")[-1] == "groups" and values is not None
                for name, values in given.items()
            ):
                caller = known.get("self")
                found = frame.f_code.co_name if caller is None else type(caller).__name__
        frame = frame.f_back  # type: ignore[assignment]
    return found
