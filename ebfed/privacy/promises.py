"""What the rows of a ledger promise: anything at all, and whether the noise is real."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["SIMULATED", "is_private", "is_simulated", "simulated"]

SIMULATED = "simulated noise: no promise"


def is_private(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether some client was promised something.

    Clients that were not asked were not promised that their rows stay with them.
    """
    return any(row["epsilon"] < math.inf and row["who"] != "not asked" for row in rows)


def simulated(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a fit whose noise follows from a fixed seed.

    Epsilon is kept, as what the mechanism is worth with real noise. A known seed protects nobody:
    who knows it can subtract the noise.

    Examples
    --------
    >>> simulated([{"epsilon": 1.0, "assumptions": "numbers of rows are public"}])
    [{'epsilon': 1.0, 'assumptions': 'simulated noise: no promise; numbers of rows are public'}]
    """
    return [
        row | {"assumptions": f"{SIMULATED}; {row['assumptions']}"}
        if 0 < row["epsilon"] < math.inf and not is_simulated([row])
        else row
        for row in rows
    ]


def is_simulated(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether the rows say that their noise is simulated."""
    return any(row["assumptions"].startswith(SIMULATED) for row in rows)
