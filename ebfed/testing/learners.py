"""Contract of learners."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ebfed.engines import Local
from ebfed.learning.base import Learner
from ebfed.tables.clients import Clients
from ebfed.testing.estimators import check_pickle
from ebfed.testing.nodes import first_half, fit_on_nodes

__all__ = ["check_learner_contract"]


def check_learner_contract(
    estimator: Learner, X: NDArray, y: NDArray, groups: NDArray, consent: NDArray | None = None
) -> None:
    """Check a learner on rows of at least four groups.

    Results are the same to the last bit for all blocks and threads of the engine, on two nodes
    that exchange only packed bytes with a server, for arrays and for a frame, and for other names
    of groups in the same order. The same seed gives the same result. Fewer rounds are the first
    of more, unless a privacy budget is spread over them. Known, new and empty groups get finite
    answers, and probabilities sum to one. The server's own copy predicts with the shared
    parameters; neither its state nor its broadcast contains the key of its noise. Reports are
    frames. Fitted learners can be pickled, private ones without rows; clones are not fitted.

    Parameters
    ----------
    estimator : Learner, not fitted
        With an integer as `random_state`, and 4 rounds or more.
    X : ndarray of shape (n_rows, d)
    y : ndarray of shape (n_rows,)
    groups : int ndarray of shape (n_rows,)
        Not negative.
    consent : ndarray of shape (n_rows,), optional
        For a learner whose `fit` takes it.

    Raises
    ------
    AssertionError

    Examples
    --------
    >>> from ebfed.learning import FedAvg
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(60, 2)), np.arange(60) % 10
    >>> check_learner_contract(FedAvg(n_rounds=4, random_state=0), X, X[:, 0] > 0, groups)
    """
    X, y, groups = np.asarray(X, float), np.asarray(y), np.asarray(groups)
    options = {} if consent is None else {"consent": np.asarray(consent)}
    ids, first = np.unique(groups, return_index=True)
    fitted = clone(estimator).fit(X, y, groups=groups, **options)
    assert fitted.parameters_.shape[0] == len(ids), "parameters_ has one row per group"
    assert np.isfinite(fitted.parameters_).all(), "parameters_ must be finite"
    answers, history = _answers(fitted, X, groups), fitted.history_
    assert answers.shape[0] == len(X), "there is one answer per row"

    for engine in (Local(13), Local(5, threads=2)):
        other = clone(estimator).set_params(engine=engine).fit(X, y, groups=groups, **options)
        _check_same(other, fitted, history, f"{engine!r} must not matter")
        np.testing.assert_array_equal(_answers(other, X, groups), answers)
    again = clone(estimator).fit(X, y, groups=groups, **options)
    _check_same(again, fitted, history, "a seed must fix the result")
    names = np.array([f"g{g:09d}" for g in groups])
    named = clone(estimator).fit(X, y, groups=names, **options)
    _check_same(named, fitted, history, "names of groups must not matter")
    np.testing.assert_array_equal(_answers(named, X, names), answers)

    _check_nodes(estimator, fitted, X, y, groups, options)
    _check_table(estimator, fitted, X, y, groups, options, history)
    _check_prefix(estimator, X, y, groups, options, history)

    unknown, whole = _answers(fitted, X, np.full(len(X), ids.max() + 7)), _answers(fitted, X, None)
    assert np.isfinite(unknown).all(), "new groups get finite answers"
    # products of matrices of other widths round otherwise
    np.testing.assert_allclose(unknown, whole, rtol=1e-12, err_msg="new groups get shared_")
    empty = np.array([ids.max() + 1, ids.max() + 2])
    nothing = np.zeros((0, X.shape[1])), y[:0]
    clients = Clients.from_rows(X, groups, y).merge(Clients(empty, np.zeros(3, np.int64), *nothing))
    if consent is not None:
        choices = dict(zip(ids.tolist(), options["consent"][first].tolist(), strict=True))
        consents = {"consent": choices | dict.fromkeys(empty.tolist(), choices[ids[0]])}
    else:
        consents = {}
    beside = clone(estimator).fit(clients, **consents)
    assert len(beside.parameters_) == len(ids) + 2, "a group without rows is a group"
    assert np.isfinite(beside.parameters_).all(), "groups without rows get finite parameters"
    assert np.isfinite(_answers(beside, X[:2], empty)).all(), "groups without rows get answers"

    assert np.isfinite(fitted.score(X, y, groups=groups)), "score must be finite"
    assert len(history) == fitted.n_iter_ == estimator.n_rounds, "a row for each round"
    assert len(fitted.privacy_) >= 1, "the ledger has rows"
    secrets = [X, y, *_own_parameters(fitted)]
    check_pickle(fitted, lambda copy: _answers(copy, X, groups), secrets)
    blank = clone(fitted)
    assert not hasattr(blank, "parameters_"), "a clone is not fitted"
    assert blank.get_params().keys() == estimator.get_params().keys()


def _own_parameters(fitted: Learner) -> list[NDArray]:
    """Return the parameters of clients, but for those that everybody has."""
    state: Any = fitted._kept
    rows = [np.array(list(row.values())) for row in state["history"]]
    public = np.concatenate([*state["own"].values(), *state["shared"].values(), *rows])
    return [np.setdiff1d(x, public) for x in fitted._memory["own"].values()]


def _answers(fitted: Learner, X: Any, groups: Any) -> NDArray:
    """Return probabilities or predicted numbers; check that classes follow from probabilities."""
    predicted = fitted.predict(X, groups=groups)
    if not hasattr(fitted, "predict_proba"):
        return predicted
    p = fitted.predict_proba(X, groups=groups)
    assert p.shape == (len(predicted), len(fitted.classes_)), "a probability for each class"
    assert np.all(p >= 0), "probabilities must not be negative"
    # a sum of k rounded numbers
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(predicted, fitted.classes_[p.argmax(axis=1)])
    return p


def _check_same(one: Learner, other: Learner, history: Any, why: str) -> None:
    """Check that two fits agree to the last bit; `history` is that of the second."""
    np.testing.assert_array_equal(one.parameters_, other.parameters_, why)
    assert one.shared_.keys() == other.shared_.keys(), why
    for name, value in one.shared_.items():
        np.testing.assert_array_equal(value, other.shared_[name], why)
    np.testing.assert_array_equal(one.history_.to_numpy(), history.to_numpy(), why)


def _check_nodes(
    estimator: Learner, fitted: Learner, X: NDArray, y: NDArray, groups: NDArray, options: dict
) -> None:
    """Check that two nodes find the same, and the server the shared parameters."""
    half = first_half(groups)
    rows = [
        {"X": X[part], "y": y[part], "groups": groups[part]}
        | {name: values[part] for name, values in options.items()}
        for part in (half, ~half)
    ]
    nodes, kept, sent = fit_on_nodes(estimator, rows)
    for node, part in zip(nodes, (half, ~half), strict=True):
        np.testing.assert_array_equal(
            _answers(node, X[part], groups[part]),
            _answers(fitted, X[part], groups[part]),
            "nodes must not matter",
        )
        assert len(node.history_) == fitted.n_iter_, "a node must have the history"
        assert len(node.privacy_) >= 1, "a node must have a ledger"
    parameters = np.concatenate([node.parameters_ for node in nodes])
    np.testing.assert_array_equal(parameters, fitted.parameters_, "nodes must not matter")
    for what, held in (("state", kept), ("broadcast", sent)):
        assert "key" not in held, f"the {what} of a server must not contain the key of its noise"
    server = clone(estimator).protocol().conclude(kept)
    for name, value in fitted.shared_.items():
        np.testing.assert_array_equal(
            server.shared_[name], value, "a server must have what is shared"
        )
    for labels, new in ((groups, groups + groups.max() + 1), (None, None)):
        np.testing.assert_array_equal(
            _answers(server, X, labels),
            _answers(fitted, X, new),
            "a server must predict with them",
        )
    assert len(server.history_) == fitted.n_iter_, "a server has the history"
    sent_too = fitted.protocol().exchange(len(fitted.groups_)).sends_losses
    for name in {"loss", "accuracy"} & set(fitted.history_):
        np.testing.assert_array_equal(
            server.history_[name],
            fitted.history_[name] if sent_too else np.full(fitted.n_iter_, np.nan),
            "a server has the losses that are sent, and no others",
        )
    assert len(server.privacy_) == len(fitted.privacy_), "a server must have the ledger"


def _check_table(
    estimator: Learner,
    fitted: Learner,
    X: NDArray,
    y: NDArray,
    groups: NDArray,
    options: dict,
    history: Any,
) -> None:
    """Check that a frame gives the same as arrays."""
    import pandas as pd

    names = [f"x{j}" for j in range(X.shape[1])]
    table = pd.DataFrame(X, columns=names).assign(y=y, g=groups)
    framed = clone(estimator).fit(table, "y", groups="g", **options)
    _check_same(framed, fitted, history, "frames must not matter")
    np.testing.assert_array_equal(_answers(framed, table, None), _answers(fitted, X, groups))
    assert framed.score(table) == fitted.score(X, y, groups=groups), (
        "scores of frames must not differ"
    )


def _check_prefix(
    estimator: Learner, X: NDArray, y: NDArray, groups: NDArray, options: dict, history: Any
) -> None:
    """Check that fewer rounds are the first of more, where their number changes nothing else."""
    known = estimator.get_params()
    by_number = known.get("privacy__epsilon") is not None or known.get("ratio") == "optimal"
    if by_number or estimator.n_rounds < 2:
        return
    few = estimator.n_rounds // 2
    short = clone(estimator).set_params(n_rounds=few).fit(X, y, groups=groups, **options)
    shown, whole = short.history_, history.iloc[:few]
    # the account of fewer rounds may be tighter, and counts its own last round
    shown, whole = (each.drop(columns="epsilon", errors="ignore") for each in (shown, whole))
    np.testing.assert_array_equal(
        shown.to_numpy(), whole.to_numpy(), "fewer rounds must be the first of more"
    )
