"""Where one curve falls below another for good."""

import numpy as np


def crossing(x, gap):
    """Return where a gap falls to zero for good, interpolated: the first x if it is never above.

    Infinite if it is above zero at the last x.

    >>> crossing([50, 100, 150], [1.0, 1.0, -1.0])
    125.0
    """
    behind = np.flatnonzero(np.asarray(gap) > 0)
    if not len(behind):
        return float(x[0])
    k = int(behind[-1])
    if k == len(gap) - 1:
        return float("inf")
    return float(x[k] + (x[k + 1] - x[k]) * gap[k] / (gap[k] - gap[k + 1]))
