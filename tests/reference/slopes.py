"""Make the data sets with slopes that differ by group; lme4_slopes.R fits them.

Run as ``python slopes.py``.  Each has the columns group, x and y, and some z, a predictor whose
slope is the same in all groups:

``slopes_grunfeld.csv``
    Real: yearly gross investment (y) and value (x) of 11 firms over 20 years, Grunfeld's data as
    statsmodels ships them (``statsmodels.datasets.grunfeld``, public domain).  In their own
    units, so the variance of the slopes is a millionth of that of the noise.

``slopes_grunfeld_log.csv``
    The same firms and years, in logarithms: investment (y) by capital (x) and value (z).

``slopes_unbalanced.csv``
    Simulated: 30 groups of 1 to 50 rows with correlated intercepts and slopes.  Within groups x is
    not centred, and in group 16 it does not vary.  The rows are shuffled, so that no reader may
    count on sorted groups.

``slopes_boundary.csv``
    Simulated: 30 groups of 8 rows, slopes all the same.  The seed is the first for which the
    variance of the slopes is estimated as zero if independent of the intercepts, and the two
    as perfectly correlated if not.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from statsmodels.datasets import grunfeld as sm_grunfeld

HERE = Path(__file__).parent


def grunfeld():
    table = sm_grunfeld.load_pandas().data
    return pd.DataFrame({"group": table["firm"], "x": table["value"], "y": table["invest"]})


def grunfeld_log():
    table = sm_grunfeld.load_pandas().data
    logs = np.log(table[["capital", "value", "invest"]]).round(6).set_axis(["x", "z", "y"], axis=1)
    return logs.assign(group=table["firm"])[["group", "x", "z", "y"]]


def unbalanced():
    rng = np.random.default_rng(20240502)
    # Even on the log scale: many groups of a few rows, a few of many.
    sizes = rng.permutation(np.round(50 ** np.linspace(0, 1, 30)).astype(int))
    group = np.repeat(np.arange(1, 31), sizes)
    x = np.round(rng.normal(rng.normal(1, 1, 31)[group], 1.0), 3)
    x[group == 16] = 0.5
    z = np.round(rng.normal(size=len(group)), 3)
    coefficients = rng.multivariate_normal([2, -1], [[0.64, -0.15], [-0.15, 0.25]], 31)[group]
    noise = rng.normal(0, 1.2, len(group))
    y = np.round(coefficients[:, 0] + coefficients[:, 1] * x + 0.7 * z + noise, 6)
    table = pd.DataFrame({"group": group, "x": x, "z": z, "y": y})
    return table.iloc[rng.permutation(len(table))]


def boundary(seed):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(1, 31), 8)
    x = np.round(rng.normal(size=len(group)), 3)
    y = 3 + rng.normal(0, 0.8, 31)[group] + 0.5 * x + rng.normal(0, 1.0, len(group))
    return pd.DataFrame({"group": group, "x": x, "y": np.round(y, 6)})


def main():
    tables = {
        "grunfeld": grunfeld(),
        "grunfeld_log": grunfeld_log(),
        "unbalanced": unbalanced(),
        "boundary": boundary(0),
    }
    for name, table in tables.items():
        table.to_csv(HERE / f"slopes_{name}.csv", index=False)


if __name__ == "__main__":
    main()
