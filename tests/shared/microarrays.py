"""Genes of two leukaemias, and z-values of genes and HIV: see `golub.R` in tests/reference."""

from functools import cache

import numpy as np
import pandas as pd
from r_fits import REFERENCE
from scipy import stats

N_AML = 11


@cache
def expressions():
    """Return log expressions, shape (3051, 38), and which samples are AML (the others are ALL)."""
    table = pd.read_csv(REFERENCE / "golub.csv.gz", index_col="gene")
    return table.to_numpy(), table.columns.str.startswith("aml")


def leukaemias():
    """Compare AML with ALL; see `compare`."""
    values, is_aml = expressions()
    return compare(values, np.flatnonzero(is_aml), np.flatnonzero(~is_aml))


def genes():
    """Return what R found of every tenth gene."""
    return pd.read_csv(REFERENCE / "golub_genes.csv")


def found(data, package):
    """Return figures of an R package for all genes of "golub" or "hiv"."""
    table = pd.read_csv(REFERENCE / "golub_fits.csv")
    some = (table["data"] == data) & (table["package"] == package)
    return table[some].set_index("name")["value"]


def hiv():
    """Return 7,680 z-values, and rates that R found for every twentieth."""
    z = pd.read_csv(REFERENCE / "hiv.csv.gz")["z"].to_numpy()
    return z, pd.read_csv(REFERENCE / "hiv_rates.csv")


def compare(values, some, others):
    """Return differences of means, standard errors, df, and errors of noise of variance 1."""
    parts = values[:, some], values[:, others]
    df = len(some) + len(others) - 2
    scatter = sum(part.var(axis=1) * part.shape[1] for part in parts)
    unscaled = np.sqrt(1 / len(some) + 1 / len(others))
    difference = parts[0].mean(axis=1) - parts[1].mean(axis=1)
    return difference, np.sqrt(scatter / df) * unscaled, df, unscaled


def z_values(difference, std_error, df, unscaled=None):
    """Return statistics that are standard normal where t-values have t distributions."""
    return stats.norm.ppf(stats.t.cdf(difference / std_error, df))


def permuted(seed, effects=0):
    """Compare samples whose labels are permuted: all genes are null, correlated as they are.

    Returns
    -------
    tuple
        As `compare` returns it.
    is_effect : bool ndarray of shape (3051,)
        `effects` genes, in which a difference of 1.2 to 2.4 standard deviations is planted.
    """
    values, _ = expressions()
    rng = np.random.default_rng(seed)
    order = rng.permutation(values.shape[1])
    some, others = order[:N_AML], order[N_AML:]
    is_effect = np.zeros(len(values), bool)
    if effects:
        place = rng.choice(len(values), effects, replace=False)
        size = rng.choice([-1, 1], effects) * rng.uniform(1.2, 2.4, effects)
        values = values.copy()
        values[np.ix_(place, some)] += (size * values[place].std(axis=1, ddof=1))[:, None]
        is_effect[place] = True
    return compare(values, some, others), is_effect


def halves(seed):
    """Split the samples of each leukaemia, and compare them in both halves."""
    values, is_aml = expressions()
    rng = np.random.default_rng(seed)
    aml, other = (rng.permutation(np.flatnonzero(each)) for each in (is_aml, ~is_aml))
    parts = [(aml[:5], other[:13]), (aml[5:], other[13:])]
    return [compare(values, *part) for part in (parts if seed % 2 else parts[::-1])]
