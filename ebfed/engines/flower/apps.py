"""The two programs that Flower runs, and the files of a fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ebfed import wire
from ebfed.engines.flower.cohort import FlowerCohort, check_invitation
from ebfed.engines.flower.files import table_of, write
from ebfed.engines.flower.messages import ACTION, make_reply, need_flower, unpack
from ebfed.engines.flower.node import Node
from ebfed.engines.rounds import converse

__all__ = ["client_app", "load_fit", "serve", "server_app"]

EXCHANGES = ["exchange", "node", "status", "detail"]


def server_app(
    estimator: Any,
    nodes: int | Sequence[str],
    *,
    quorum: float,
    deadline: float,
    out: str | Path,
) -> Any:
    """Make the server's program.

    Parameters
    ----------
    estimator : Estimator
        Estimator with the same arguments as on the clients.
    nodes : int or list of str
        Least number of nodes, or their names; with names, other nodes are ignored.
    quorum : int or float
        Number of nodes that must answer each exchange, or as a float their share (1.0: all).
    deadline : float
        Seconds that an exchange may take. An exchange takes about 5 seconds at best; without a
        deadline, a killed node is noticed after a minute.
    out : path
        Folder of the results, with a folder ``run-…`` for each run, see `serve`.

    Returns
    -------
    flwr.serverapp.ServerApp
    """
    check_invitation(nodes, quorum, deadline)
    need_flower()
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        folder = Path(out) / f"run-{context.run_id}"
        cohort = FlowerCohort(grid, estimator, nodes, quorum=quorum, deadline=deadline)
        serve(estimator, cohort, folder)

    return app


def client_app(
    estimator: Any,
    load: Callable[[Any], Mapping[str, Any]],
    *,
    seed: int | None = None,
) -> Any:
    """Make the program of a node.

    The owner of a node names its directory when it is started, by ``directory`` of the node-config,
    and writes the rules there (`Rules`): budget, methods, smallest group. Who starts a run ships
    this program and can change neither. Yet a program that is shipped can do anything that Python
    can: a node should accept only programs that a person whom its owner trusts has reviewed.

    Parameters
    ----------
    estimator : Estimator
        Estimator with the same arguments as on the server. No server can change what is fixed here,
        such as the epsilon of a channel.
    load : callable
        Function of Flower's context that returns the arguments of `fit` as a dict. It is called in
        every exchange. The text of its errors is not sent; that of errors while this program is
        imported is, so data should be read in this function only.
    seed : int, optional
        Seed of the noise, for tests only: the noise is then that of a fit in one process with this
        ``random_state``, and protects nobody.

    Returns
    -------
    flwr.clientapp.ClientApp
    """
    need_flower()
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query(ACTION)
    def answer(message: Any, context: Any) -> Any:
        config = context.node_config
        name = str(config.get("name", config.get("partition-id", context.node_id)))
        own = config.get("directory")
        node = Node(name, estimator, lambda: load(context), own, seed=seed)
        return make_reply(message, node.answer(message.metadata.run_id, unpack(message)))

    return app


def serve(estimator: Any, cohort: FlowerCohort, out: Path) -> Any:
    """Run a fit with a cohort, and write its files.

    Parameters
    ----------
    estimator : Estimator
    cohort : FlowerCohort
    out : path
        Folder of the files: ``fit.ebfed`` for `load_fit`, ``summary.txt``, ``ledger.csv`` of all
        that clients were asked for, whether or not they answered, and ``participants.csv``, the
        status of each node in each exchange. The last is written even if the fit fails.

    Returns
    -------
    Estimator
        A fitted copy, which holds no client's rows.

    Raises
    ------
    RuntimeError
        If fewer than a quorum answered, or two nodes have the same name.
    """
    from sklearn.base import clone

    fitted = clone(estimator)
    try:
        cohort.call_roll()
        state = converse(fitted, cohort)
        fitted.conclude(state)
        saved = fitted.keep(state)
        if hasattr(fitted, "log_likelihood_"):
            saved["log_likelihood"] = fitted.log_likelihood_
        write(out / "fit.ebfed", wire.pack(saved))
        write(out / "summary.txt", f"{fitted.summary()}\n".encode())
        write(out / "ledger.csv", table_of(fitted.privacy_))
        cohort.tell(fitted.broadcast(state))
    finally:
        write(out / "participants.csv", table_of(cohort.records, EXCHANGES))
    print(fitted.summary(), flush=True)
    return fitted


def load_fit(estimator: Any, path: str | Path) -> Any:
    """Read a fit that a server wrote.

    Parameters
    ----------
    estimator : Estimator
        Estimator with the same arguments as on the server.
    path : path
        The file ``fit.ebfed``, or its folder.

    Returns
    -------
    Estimator
        A fitted copy, which estimates groups from given rows.
    """
    from sklearn.base import clone

    path = Path(path)
    saved = (path / "fit.ebfed" if path.is_dir() else path).read_bytes()
    return clone(estimator).conclude(wire.unpack(saved))
