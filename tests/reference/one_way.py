"""Make the one-way data sets and fit them with statsmodels.

Run as ``python one_way.py`` (before lme4.R: it writes the data that lme4.R reads; and again
after it, to compare the two).  The data sets, each with the columns group and value:

``one_way_grunfeld.csv``
    Real: the logarithm of yearly gross investment of 11 firms over 20 years, from Grunfeld's
    investment data as statsmodels ships them (``statsmodels.datasets.grunfeld``, public domain).
    Labels are names.

``one_way_unbalanced.csv``
    Simulated: 80 groups of 1 to 60 rows, mu = 2, group variance 0.64, residual variance 2.25.
    The rows are shuffled, so that no reader may count on sorted groups.

``one_way_near_boundary.csv``
    Simulated: 50 groups of 5 rows, mu = 10, group variance 0.05, residual variance 0.95.  The
    seed was picked from 0 to 11 because its estimated group variance is the smallest that is
    positive by both REML and ML.
"""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from statsmodels.datasets import grunfeld as sm_grunfeld
from statsmodels.regression.mixed_linear_model import MixedLM
from statsmodels.tools.sm_exceptions import ConvergenceWarning

HERE = Path(__file__).parent
NUMBERS = ["mu", "mu_se", "group_variance", "residual_variance", "loglik"]


def simulate(rng, sizes, mu, group_variance, residual_variance):
    group = np.repeat(np.arange(1, len(sizes) + 1), sizes)
    effect = np.sqrt(group_variance) * rng.standard_normal(len(sizes))
    noise = np.sqrt(residual_variance) * rng.standard_normal(len(group))
    # Six decimals, so that every reader parses the same numbers.
    return pd.DataFrame({"group": group, "value": np.round(mu + effect[group - 1] + noise, 6)})


def grunfeld():
    table = sm_grunfeld.load_pandas().data
    return pd.DataFrame({"group": table["firm"], "value": np.round(np.log(table["invest"]), 6)})


def unbalanced():
    rng = np.random.default_rng(20240501)
    # Even on the log scale: many groups of a few rows, a few of many.
    sizes = rng.permutation(np.round(60 ** np.linspace(0, 1, 80)).astype(int))
    table = simulate(rng, sizes, 2.0, 0.64, 2.25)
    return table.iloc[rng.permutation(len(table))]


def near_boundary():
    return simulate(np.random.default_rng(3), np.full(50, 5), 10.0, 0.05, 0.95)


def fit(table, method):
    value, group = table["value"].to_numpy(), table["group"].to_numpy()
    model = MixedLM(value, np.ones(len(value)), groups=group)
    reml = method == "REML"
    with warnings.catch_warnings():
        # It calls any group variance below 0.01 "on the boundary".
        warnings.filterwarnings("ignore", "The MLE may be on the boundary", ConvergenceWarning)
        # From theta = sqrt(group variance / residual variance) = 0.3: from its own start, 1,
        # it does not converge near the boundary.
        first = model.fit(reml=reml, method="bfgs", start_params=np.array([0.3]))
        # A maximiser of the likelihood stops at about the root of the machine precision; the
        # root of statsmodels' own score is as good as the score.
        theta = np.sqrt(first.cov_re_unscaled[0, 0])
        theta = brentq(
            lambda t: model.score(np.array([t]))[0],
            theta / 1.2,
            theta * 1.2,
            xtol=1e-15,
            rtol=1e-15,
        )
        # Starts at the root, so it stops there: fit() has no other way to take given variances.
        last = model.fit(reml=reml, method="bfgs", start_params=np.array([theta]), gtol=1e-6)
    assert np.isclose(np.sqrt(last.cov_re_unscaled[0, 0]), theta, rtol=1e-14, atol=0)
    # bse_fe inverts the joint observed information of the mean and the variances, whose cross
    # block is not zero when groups differ in size.  lme4's, and the usual, standard error is
    # that of generalised least squares at the fitted variances: the block of the mean alone.
    hessian, _ = model.hessian(last.params_object)
    return {
        "mu": last.fe_params[0],
        "mu_se": (-hessian[0, 0]) ** -0.5,
        "group_variance": last.cov_re[0, 0],
        "residual_variance": last.scale,
        "loglik": last.llf,
    }


def balanced_closed_form(table, method):
    """The analysis of variance, exact for equal group sizes and a positive group variance."""
    values = table.sort_values("group", kind="stable")["value"].to_numpy()
    k = table["group"].nunique()
    values = values.reshape(k, -1)
    n = values.shape[1]
    means = values.mean(axis=1)
    within = np.sum((values - means[:, None]) ** 2) / (k * (n - 1))
    # ML divides the sum of squares between the groups by k, REML by k - 1.
    df = k - 1 if method == "REML" else k
    between = n * np.sum((means - means.mean()) ** 2) / df
    assert between > within
    rows = k * (n - 1) + df
    loglik = -0.5 * (
        rows * (np.log(2 * np.pi) + 1) + df * np.log(between) + k * (n - 1) * np.log(within)
    )
    if method == "REML":
        # Of log det X'V^-1 X = log(k n / between), the part that df did not take in above.
        loglik -= 0.5 * np.log(k * n)
    return {
        "mu": means.mean(),
        "mu_se": np.sqrt(between / (k * n)),
        "group_variance": (between - within) / n,
        "residual_variance": within,
        "loglik": loglik,
    }


def compare(left, right, title):
    difference = (left / right - 1).abs()
    print(title, difference.to_string(float_format="{:.1e}".format), sep="\n")
    assert (difference < 1e-6).to_numpy().all()


def main():
    tables = {"grunfeld": grunfeld(), "unbalanced": unbalanced(), "near_boundary": near_boundary()}
    rows = {}
    for name, table in tables.items():
        table.to_csv(HERE / f"one_way_{name}.csv", index=False)
        for method in ("REML", "ML"):
            rows[name, method] = fit(table, method)
    ours = pd.DataFrame.from_dict(rows, orient="index", columns=NUMBERS)
    ours.index.names = ["dataset", "method"]
    ours.to_csv(HERE / "statsmodels.csv", float_format="%.17g")

    exact = pd.DataFrame.from_dict(
        {
            ("near_boundary", method): balanced_closed_form(tables["near_boundary"], method)
            for method in ("REML", "ML")
        },
        orient="index",
    )
    exact.index.names = ours.index.names
    compare(ours.loc[exact.index], exact, "statsmodels to the closed form, relative:")
    if (HERE / "lme4.csv").exists():
        theirs = pd.read_csv(HERE / "lme4.csv", index_col=[0, 1])
        compare(theirs.loc[exact.index], exact, "lme4 to the closed form, relative:")
        compare(ours, theirs.loc[ours.index], "statsmodels to lme4, relative:")


if __name__ == "__main__":
    main()
