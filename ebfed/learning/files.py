"""What a file has of trained predictors: the shared parameters, and those of the groups if wanted.

Rows are not written. A fit that was read predicts, and shows its parameters, history and ledger;
for another fit, with `warm_start`, its rows would have to be given and trained again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.engines import portable
from ebfed.engines.publishing import FitFile, name_columns
from ebfed.learning.fitting import settle
from ebfed.models import Torch
from ebfed.privacy.ledger import is_private
from ebfed.tables.clients import Clients

__all__ = ["LearnerFile", "save"]

# Keys of the last state that have an entry for each client.
OF_CLIENTS = ("n", "consent", "users")


def save(learner: Any, path: str | Path, *, groups: bool = True) -> None:
    """Write the fit to a JSON file, from which `ebfed.load_fit` gives it back, to the last bit.

    The file has the arguments, the model, and the shared parameters. Rows, keys of noise, the
    engine, a checkpoint's folder and the seed of a private fit are not written.

    Parameters
    ----------
    path : str or Path
    groups : bool
        Whether to write what the fit has of the groups too: their labels, sizes and own parameters,
        and what was noted of them in each round. Without them, all rows are predicted as those of
        unseen groups.

    Raises
    ------
    ValueError
        If the groups of a private fit are to be written, and `keep_rows` was not set to True; or
        this is the copy of a node of a federation.
    TypeError
        If an argument is of a class of the user's own, or the model is a module of PyTorch.

    Examples
    --------
    >>> import tempfile
    >>> import ebfed as eb
    >>> path = tempfile.mkdtemp() + "/fit.json"
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 1, 1, 0]
    >>> fit = eb.learning.FedAvg(n_rounds=3, random_state=0).fit(X, y, groups=list("aabb"))
    >>> fit.save(path)
    >>> bool((eb.load_fit(path).predict_proba(X) == fit.predict_proba(X)).all())
    True
    """
    if isinstance(learner.model_, Torch):
        raise TypeError(
            "a module of PyTorch is code, which a file of a fit does not hold. Save the module's "
            "own state with torch.save, and the arrays `shared_` and `parameters_`."
        )
    portable.save(learner, path, groups)


class LearnerFile(FitFile):
    """Takes a fit apart, and puts it together again; see `ebfed.engines.portable`."""

    def population(self, fit: Any) -> dict[str, Any]:
        """Return what is of all groups together."""
        of_all = {name: x for name, x in fit._kept.items() if name not in OF_CLIENTS}
        chosen = np.bincount(fit._kept.get("consent", np.zeros(0, np.int8)))
        return of_all | {"n_clients": len(fit._kept["n"]), "chosen": chosen}

    def groups(self, fit: Any) -> dict[str, Any]:
        """Return what the fit has of groups; of a server's copy, what they stated."""
        of_groups = {name: fit._kept[name] for name in OF_CLIENTS if name in fit._kept}
        if not fit._is_server:
            of_groups |= {"labels": fit.groups_, "parameters": fit.parameters_}
            of_groups["memory"] = fit._memory
        return of_groups

    def restore(self, fit: Any, population: Any, columns: dict[str, Any], groups: Any) -> None:
        m, chosen = population.pop("n_clients"), population.pop("chosen")
        stated = {name: np.zeros(m, np.int64) for name in OF_CLIENTS}
        if len(chosen):  # how many chose each level is public, whoever they are
            stated["consent"] = np.repeat(np.arange(len(chosen)), chosen)
        if groups is not None:
            stated = {name: groups[name] for name in OF_CLIENTS if name in groups}
        state = population | stated
        fit._kept = state
        if groups is None or "labels" not in groups:
            fit.protocol().conclude(state)
        else:
            clients = _without_rows(groups["labels"], groups["n"])
            rounds = fit.protocol()
            sent, net = rounds.broadcast(state), rounds.predictor(state)
            name_columns(fit, state)
            parameters = groups["parameters"]
            if parameters.shape != (len(clients), net.size):
                raise ValueError(f"parameters must be of shape {(len(clients), net.size)}")
            settle(rounds, sent, groups["memory"], clients, parameters)
            fit.keep_rows = is_private(fit._ledger)
        self.name(fit, columns)


def _without_rows(labels: NDArray, n: NDArray[np.int64]) -> Clients:
    """Return clients of these sizes, whose rows have no columns."""
    if len(labels) != len(n):
        raise ValueError(f"n has {len(n)} entries for {len(labels)} groups")
    ends = np.concatenate([[0], np.cumsum(n)]).astype(np.int64)
    return Clients(labels, ends, np.empty((ends[-1], 0)), np.zeros(ends[-1]))
