"""What the files of a federation say about its nodes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

__all__ = ["lines_of", "states_of"]


def states_of(directory: Path) -> list[dict[str, Any]]:
    """Return the state of each node, as JSON has it: a budget without a limit is null.

    ``exact`` is whether the node ever sent figures without a guarantee, and ``privacy`` says in
    words what runs may take, by the rules in force, and what was spent.

    Parameters
    ----------
    directory : path
        Folder of the federation.

    Raises
    ------
    ValueError
        If there is no federation, or a file of a node is damaged.
    """
    from ebfed.engines import journal
    from ebfed.engines.flower.account import Account
    from ebfed.engines.flower.threat import in_words
    from ebfed.engines.loopback import Federation

    if not (directory / "federation.json").exists():
        raise ValueError(f"no federation was started in {directory}")
    running = Federation(directory).status()
    last: dict[str, dict[str, Any]] = {}
    for path in directory.glob("result/run-*/exchanges.jsonl"):
        for line in journal.read(path, repair=False):
            for name in line["answered"]:
                if line["time"] >= last.get(name, line)["time"]:
                    last[name] = {"run": path.parent.name, **line}
    states = []
    for name in json.loads((directory / "federation.json").read_text()):
        account = Account(directory / "nodes" / name)
        budget, answer = account.rules.epsilon, last.get(name)
        exact = any(math.isinf(run["epsilon"]) for run in account.runs)
        states.append(
            {
                "node": name,
                "running": name in running,
                "process": running.get(name),
                "answered": answer and {key: answer[key] for key in ("exchange", "run", "time")},
                "spent": account.most,
                "budget": budget if math.isfinite(budget) else None,
                "exact": exact,
                "privacy": in_words(account.rules, account.most, exact),
            }
        )
    return states


def lines_of(states: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a table of states."""
    rows = [("node", "running", "last answer", "what runs may take")]
    for state in states:
        answer = state["answered"]
        rows.append(
            (
                state["node"],
                "yes" if state["running"] else "no",
                "{exchange} of {run}, {time}".format(**answer) if answer else "none",
                state["privacy"],
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
