"""Make the data sets of groups with covariates.

Run as ``python population.py`` (before lme4_population.R, which fits them). Columns group and
value, and w1 and w2, which are constant within groups:

``population_grunfeld.csv``
    Real: the logarithm of yearly gross investment of 11 firms over 20 years, from Grunfeld's
    investment data as statsmodels ships them (``statsmodels.datasets.grunfeld``, public domain).
    w1 and w2 are the logarithms of a firm's average market value and of its average stock of plant
    and equipment.

``population_unbalanced.csv``
    Simulated: 120 groups of 1 to 60 rows; w1 is normal around 5 with standard deviation 2, w2 is 1
    in three groups of ten and 0 in the others; mean ``1 + 0.4 w1 - w2``, variance between groups
    0.5, within 2. Rows are shuffled.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from statsmodels.datasets import grunfeld as sm_grunfeld

HERE = Path(__file__).parent


def grunfeld():
    table = sm_grunfeld.load_pandas().data
    average = table.groupby("firm")[["value", "capital"]].transform("mean")
    columns = {
        "group": table["firm"],
        "value": np.log(table["invest"]),
        "w1": np.log(average["value"]),
        "w2": np.log(average["capital"]),
    }
    return pd.DataFrame(columns).round(6)


def unbalanced():
    rng = np.random.default_rng(20240611)
    sizes = rng.permutation(np.round(60 ** np.linspace(0, 1, 120)).astype(int))
    w1, w2 = rng.normal(5, 2, 120).round(6), (rng.random(120) < 0.3).astype(int)
    mean = 1 + 0.4 * w1 - w2 + np.sqrt(0.5) * rng.standard_normal(120)
    group = np.repeat(np.arange(120), sizes)
    value = mean[group] + np.sqrt(2) * rng.standard_normal(len(group))
    columns = {"group": group + 1, "value": value, "w1": w1[group], "w2": w2[group]}
    return pd.DataFrame(columns).round(6).iloc[rng.permutation(len(group))]


if __name__ == "__main__":
    for make in (grunfeld, unbalanced):
        make().to_csv(HERE / f"population_{make.__name__}.csv", index=False)
