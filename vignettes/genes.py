# %% [markdown]
# # Which genes differ? Two leukaemias
#
# Two kinds of leukaemia, ALL and AML, are distinguished by the expression of their genes (Golub
# and others 1999, *Science* 286, 531-537). There are 3,051 genes, 27 samples of ALL and 11 of
# AML. Which genes differ, and what is a list of them worth? This page tests them as limma and
# locfdr do, and checks the claims with the data themselves: by permuted labels, and by the other
# half of samples.
#
# The log expressions are `golub` of Bioconductor's multtest. This script reads them from
# `tests/reference` of a checkout, which has results of limma, qvalue, fdrtool and locfdr too.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats

import ebfed as eb

reference = Path(__file__).parents[1] / "tests" / "reference"
table = pd.read_csv(reference / "golub.csv.gz", index_col="gene")
is_aml = table.columns.str.startswith("aml")


def compare(aml, others):
    """Difference of the means of each gene, its standard error, and degrees of freedom."""
    n, m = aml.shape[1], others.shape[1]
    pooled = (aml.var(axis=1) * (n - 1) + others.var(axis=1) * (m - 1)) / (n + m - 2)
    unscaled = np.sqrt(1 / n + 1 / m)
    differences = aml.mean(axis=1) - others.mean(axis=1)
    return differences, np.sqrt(pooled) * unscaled, n + m - 2, unscaled


differences, errors, df, unscaled = compare(table.loc[:, is_aml], table.loc[:, ~is_aml])

# %% [markdown]
# ## Moderated t-tests
#
# Variances of genes are shrunk to each other, and tests have the degrees of freedom that this
# adds. With `method="moments"`, population and tests are those of limma:

# %%
limma = eb.moderated_t(differences, errors, df, unscaled=unscaled, method="moments")
stored = pd.read_csv(reference / "golub_genes.csv").set_index("gene")
tests = limma.to_frame().set_index("gene").loc[stored.index]
print(f"prior df {limma.prior.df_[0]:.6f}, prior variance {limma.prior.scale_[0]:.6f}")
print(f"largest difference from limma's t: {abs(tests['t'] - stored['moderated.t']).max():.1e}")
assert np.allclose(tests["p_value"], stored["moderated.p"], rtol=1e-7)

# %% [markdown]
# ## How large are the differences?
#
# A p-value has no size. With moderated standard errors and a population that has a point at
# zero, each gene has an estimate, an interval, and the probability `lfdr` that it does not
# differ:

# %%
tests = eb.moderated_t(differences, errors, df, unscaled=unscaled)
genes = eb.posterior_from(differences, tests.std_error, "point_normal", df=tests.df)
print(f"{genes.prior.pi0_:.2f} of the genes are estimated not to differ")
found = genes.select(0.05)
print(f"{len(found)} discoveries at a rate of 5 %, among them:")
print(found.head(5).round(3).to_string(index=False))

# %% [markdown]
# ## Statistics alone, and their null
#
# `two_groups` needs z-values only. In theory those of null genes are `N(0, 1)`:

# %%
z = pd.Series(stats.norm.ppf(stats.t.cdf(differences / errors, df)), differences.index)
theory, empirical = eb.two_groups(z, "theoretical"), eb.two_groups(z)
print(theory, len(theory.select(0.05)), "discoveries")
print(empirical, len(empirical.select(0.05)), "discoveries")
print(empirical.notes[0])

# %% [markdown]
# The empirical null is wrong here. It takes the middle of the histogram for null genes, and half
# of the genes or more differ (qvalue's share of null genes is .50). locfdr and fdrtool find as
# wide a null, and no gene either. Where few genes differ, it is the theoretical null that fails.
# In 7,680 genes of cells with and without HIV (van 't Wout and others 2003; `hivdata` of
# locfdr), z-values are much narrower than in theory:

# %%
hiv = pd.read_csv(reference / "hiv.csv.gz")["z"]
for null in ("theoretical", "empirical"):
    result = eb.two_groups(hiv, null)
    print(result, len(result.select(0.05)), "discoveries")
result.plot()
plt.show()

# %% [markdown]
# locfdr has `p0 = 0.934, delta0 = -0.116, sigma0 = 0.754`, each within a standard error of the
# values above.
#
# ## Are the rates right? Permuted labels
#
# With permuted labels no gene differs, and the genes are correlated as they are. Every discovery
# is false, and one table in twenty may have some:

# %%
values = table.to_numpy()


def z_values(aml, others):
    """Statistics of all genes, for these samples."""
    t = stats.ttest_ind(values[:, aml], values[:, others], axis=1).statistic
    return stats.norm.ppf(stats.t.cdf(t, len(aml) + len(others) - 2))


rng = np.random.default_rng(0)
rows = []
for _ in range(200):
    order = rng.permutation(38)
    null = z_values(order[:11], order[11:])
    fits = {name: eb.two_groups(null, name) for name in ("theoretical", "empirical")}
    row = {name: len(fit.select(0.05)) > 0 for name, fit in fits.items()}
    rows.append(row | {"sd of z": null.std(), "sigma0": fits["empirical"].sigma0})
rows = pd.DataFrame(rows)
print("tables with discoveries:")
print(rows[["theoretical", "empirical"]].mean().round(3).to_string())
print("spread of z-values where nothing differs, and the empirical null:")
print(rows[["sd of z", "sigma0"]].quantile([0.0, 0.5, 1.0]).round(2).to_string())
assert rows[["theoretical", "empirical"]].mean().max() < 0.12

# %% [markdown]
# The spread of null z-values is 1 on average, but not in a single table: genes are correlated,
# and so all are wide together or narrow together. A null that is estimated from the table
# follows its spread. That matters where some genes differ. Of 150 planted differences:

# %%
rates = []
for _ in range(100):
    order = rng.permutation(38)
    aml, others = order[:11], order[11:]
    planted = rng.choice(len(values), 150, replace=False)
    size = rng.choice([-1, 1], 150) * rng.uniform(1.2, 2.4, 150) * values[planted].std(axis=1)
    values[np.ix_(planted, aml)] += size[:, None]
    some = z_values(aml, others)
    values[np.ix_(planted, aml)] -= size[:, None]
    q_values = {name: eb.two_groups(some, name).q_value for name in ("theoretical", "empirical")}
    q_values["Benjamini-Hochberg"] = stats.false_discovery_control(2 * stats.norm.sf(abs(some)))
    for name, q in q_values.items():
        discovered = np.flatnonzero(q <= 0.05)
        true = np.isin(discovered, planted).sum()
        rates.append((name, 1 - true / max(len(discovered), 1), true / 150))
rates = pd.DataFrame(rates, columns=["null", "false", "found"]).groupby("null")
print(rates.mean().assign(se=rates["false"].sem(), worst=rates["false"].max()).round(3).to_string())
assert rates["false"].mean()["empirical"] < 0.07

# %% [markdown]
# The empirical null keeps the rate of 5 % on average, and its worst table is much better. The
# theoretical one has more false discoveries than it says, as p0 and the density follow the
# spread of the table, and the null does not.
#
# ## Do discoveries replicate?
#
# The samples of each leukaemia are split in halves. Discoveries in one half are looked up in the
# other: has the difference the same sign there, and how large is it? The posterior of the first
# half says how often the sign should be the same. A null gene has a p-value in the other half
# that is uniform, so five times the share of those above .8 estimates the share of false
# discoveries (Storey 2002).

# %%
rows = []
for seed in range(10):
    rng = np.random.default_rng(seed)
    aml, others = (rng.permutation(np.flatnonzero(each)) for each in (is_aml, ~is_aml))
    first, second = (
        compare(table.iloc[:, a], table.iloc[:, b])
        for a, b in ((aml[:6], others[:13]), (aml[6:], others[13:]))
    )
    one, other = (eb.moderated_t(*half[:3], unscaled=half[3]) for half in (first, second))
    half = eb.posterior_from(first[0], one.std_error, "point_normal", df=one.df)
    chosen = half.q_value()[:, 0] <= 0.05
    sign = np.sign(one.estimate)
    draws = half.sample(200, random_state=seed)[:, :, 0]
    expected = stats.t.cdf(sign * draws / other.std_error, other.df).mean(axis=0)
    p = stats.t.sf(sign * other.statistic, other.df)
    estimate = half.mean[chosen, 0]
    rows.append(
        {
            "discoveries": chosen.sum(),
            "same sign": (p[chosen] < 0.5).mean(),
            "expected": expected[chosen].mean(),
            "false (claimed 0.05)": 5 * (p[chosen] > 0.8).mean(),
            "slope on estimates": estimate @ other.estimate[chosen] / (estimate @ estimate),
            "slope on differences": one.estimate[chosen]
            @ other.estimate[chosen]
            / (one.estimate[chosen] @ one.estimate[chosen]),
        }
    )
rows = pd.DataFrame(rows)
print(rows.agg(["mean", "std"]).T.round(3).to_string())
assert abs(rows["same sign"].mean() - rows["expected"].mean()) < 0.05

# %% [markdown]
# Signs are the same as often as was said. The differences of discoveries are too large: chosen
# for being large, they are a quarter smaller in the other half. The estimates allow for that,
# here by a tenth too much. The column `std` is over splits, which share samples: .07 false
# discoveries are no evidence against .05.
#
# ## Which one?
#
# - Estimates and standard errors: `moderated_t`, then `posterior_from(…, "point_normal",
#   df=tests.df)`. It has the sizes too, and does not need that most genes are null.
# - z-values alone: `two_groups(z)` if nine in ten genes are null; with more effects, or with
#   `notes`, `null="theoretical"`. [Which effects are real?](which_effects.md) has both on simulated
#   data.
# - Variances for their own sake: [Variances](variances.md).
