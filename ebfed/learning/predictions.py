"""Predictions for rows of many groups, each by the predictor of its group."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.kernels.threads import one_thread
from ebfed.learning.minibatches import CELLS, deal
from ebfed.models import Linear, Predictor, Softmax
from ebfed.tables.clients import Clients
from ebfed.tables.unseen import warn_of_mistyped

__all__ = ["expected_of", "export", "term_names"]


def expected_of(learner: Any, X: Any, groups: Any) -> NDArray[np.float64]:
    """Return probabilities or numbers that a fitted learner expects of each row, shape (n, k)."""
    rows, labels = learner._read_design(X, groups)
    if learner._is_server:  # it does not know which group is which
        labels = None
    place = _places(learner.clients_.ids, labels, len(rows))
    place[(place >= 0) & learner._without_own[place]] = -1
    net, parameters, (unseen_net, unseen) = learner._net, learner.parameters_, learner._unseen
    temperatures = getattr(learner, "temperatures_", None)
    rows = rows.astype(parameters.dtype, copy=False)
    out = np.empty((len(rows), net.n_outputs), rows.dtype)
    unknown, known = np.flatnonzero(place < 0), np.flatnonzero(place >= 0)
    size = max(1, CELLS // net.n_features)
    with one_thread():
        for start in range(0, len(unknown), size):
            part = unknown[start : start + size]
            out[part] = unseen_net.predict(unseen[None], rows[None, part])[0]
        block = Clients.from_rows(rows[known], place[known], known)
        block = replace(block, X=block.X.astype(rows.dtype, copy=False))
        for who, each in deal(block, np.arange(len(block)), None, n_parameters=net.size):
            batch, own = each.all(), block.ids[who]
            real = batch.weight > 0
            outputs = net.outputs(parameters[own], batch.X)
            if temperatures is not None:
                outputs = outputs / temperatures[own, None, None]
            out[batch.y[real].astype(np.int64)] = net.loss.mean(outputs)[real]
    return out


def export(learner: Any, group: Any = None) -> dict[str, Any]:
    """Return the parameters of a group's predictor, by name.

    Parameters
    ----------
    group : label, optional
        Group of the fit. None: the predictor of groups that were not in it.

    Returns
    -------
    dict of ndarrays, or of tensors
        Of a module of PyTorch its ``state_dict``, for ``module.load_state_dict``. Temperatures of
        `HierarchicalEB` are not among them: outputs have to be divided by those of `temperatures_`
        for its probabilities.

    Raises
    ------
    ValueError
        If the group was not in the fit.

    Examples
    --------
    >>> import ebfed as eb
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 1, 1, 0]
    >>> fit = eb.learning.FedAvg(n_rounds=3, random_state=0).fit(X, y, groups=list("aabb"))
    >>> fit.export("a")["coefficients"].shape
    (1, 2)
    """
    check_is_fitted(learner, "clients_")
    net, theta = learner._unseen
    if group is not None:
        (place,) = _places(learner.clients_.ids, np.array([group]), 1)
        if place < 0:
            raise ValueError(f"group must be one of the fit; got {group!r}.")
        if not learner._without_own[place]:
            net, theta = learner._net, learner.parameters_[place]
    return net.model.exported({name: x[0].copy() for name, x in net.named(theta[None]).items()})


def _places(ids: NDArray, labels: NDArray | None, n_rows: int) -> NDArray[np.int64]:
    """Return the position of each row's group among ids; -1 for those that are not there."""
    import pandas as pd

    if labels is None:
        return np.full(n_rows, -1)
    place = pd.Index(ids).get_indexer(pd.Index(labels))
    if n_rows and np.all(place < 0) and (ids.dtype.kind in "OU") != (labels.dtype.kind in "OU"):
        warnings.warn(
            f"groups are of type {labels.dtype}, and were of type {ids.dtype} in the fit: no "
            "group is known.",
            stacklevel=4,
        )
    elif np.any(place < 0):
        warn_of_mistyped(pd.unique(labels), ids)
    return place


def term_names(net: Predictor, columns: list[str], classes: list | None) -> list[str]:
    """Name the parameters of a predictor; `classes` is None where numbers are predicted."""
    names: list[str] = []
    kinds = [""] if classes is None else [f":{each}" for each in classes]
    for block, place in net.blocks.items():
        if isinstance(net.model, Linear | Softmax):
            rows = columns if block == "coefficients" else [block]
            names += [f"{row}{kind}" for row in rows for kind in kinds]
        else:
            names += [f"{block}_{k}" for k in range(place.stop - place.start)]
    return names
