# %% [markdown]
# # Which effects are real?
#
# A thousand effects were measured: of genes, of versions of a page, of brain regions. Most of them
# are nothing, and some are something. A p-value below .05 is no answer, since one null effect in
# twenty has one. This page shows three: rates of false discoveries under a population with a point
# at zero, standard errors that are themselves estimated, and a null that is not `N(0, 1)`.
#
# The data are simulated, so that every discovery can be checked.
# [Which genes differ?](genes.md) has real ones.
#
# ## Effects with standard errors

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats

import ebfed as eb

rng = np.random.default_rng(8)
n = 2000
truth = np.where(rng.random(n) < 0.9, 0.0, rng.normal(0, 4, n))
errors = rng.uniform(0.5, 1.5, n)
effects = truth + errors * rng.normal(size=n)
names = pd.Index([f"gene {i}" for i in range(n)], name="gene")

posterior = eb.posterior_from(pd.Series(effects, names), errors, prior="point_normal")
print(f"{posterior.prior.pi0_:.3f} of the effects are estimated to be zero")
print(posterior.select(0.05).head().round(3).to_string(index=False))

# %% [markdown]
# `lfdr` is the local false discovery rate: the probability that this effect is zero. `q_value` is
# its mean over all effects that are at least as surprising; `select(0.05)` calls so many
# discoveries that 5 % of them are expected to be false. Beside it is the procedure of Benjamini and
# Hochberg (1995), which uses p-values alone:

# %%
p_values = 2 * stats.norm.sf(np.abs(effects / errors))


def count(found):
    """Number of discoveries, and the shares of these that are false and of effects found."""
    false = np.mean(truth[found] == 0) if found.any() else 0.0
    return {"discoveries": found.sum(), "false": false, "found": found[truth != 0].mean()}


rows = {
    "p < .05": p_values < 0.05,
    "Benjamini-Hochberg": stats.false_discovery_control(p_values) <= 0.05,
    "q_value <= .05": posterior.q_value()[:, 0] <= 0.05,
}
print(pd.DataFrame({name: count(found) for name, found in rows.items()}).T.round(3).to_string())

# %% [markdown]
# Only populations with a point at zero have such a probability: `"point_normal"`,
# `"point_laplace"`, and `priors.ScaleMixture(null_weight=10)`. Without the penalty `null_weight`, a
# scale mixture does not tell zero from very small effects, and its rates would be far too small.
# Under all other populations, ask for the direction of effects: `local_false_sign_rate()`.
#
# ## Standard errors from a few rows
#
# Each effect is now a difference of means of three rows and three others. Its standard error has
# four degrees of freedom, and null effects of four standard errors are not rare. `df=` allows for
# that:

# %%
scatter = np.sqrt(rng.chisquare(4, n) / 4)
few_errors = errors * scatter
rows = {}
for name, df in {"normal errors": None, "df = 4": 4}.items():
    few = eb.posterior_from(effects, few_errors, prior="point_normal", df=df)
    rows[name] = count(few.q_value()[:, 0] <= 0.05)
print(pd.DataFrame(rows).T.round(3).to_string())

# %% [markdown]
# With normal errors, four in ten discoveries are false. With four degrees of freedom the share is
# kept, and the price is that fewer effects are found: so few rows say little of each.
#
# ## A null that is wider than in theory
#
# Test statistics of real experiments are often wider than `N(0, 1)` where there is no effect:
# arrays are correlated, and not all covariates were measured. If most statistics are null, the
# middle of their histogram shows the null itself (Efron 2004). `two_groups` fits it:

# %%
z = 1.25 * rng.normal(size=5000)
is_effect = np.arange(5000) < 250
z[is_effect] += rng.choice([-5, 5], 250)
result = eb.two_groups(z)
print(result)

# %%
result.plot()
plt.show()

# %%
rows = {
    "Benjamini-Hochberg": stats.false_discovery_control(2 * stats.norm.sf(np.abs(z))) <= 0.05,
    "theoretical null": eb.two_groups(z, "theoretical").q_value <= 0.05,
    "empirical null": result.q_value <= 0.05,
}
table = {
    name: {"discoveries": found.sum(), "false": np.mean(~is_effect[found])}
    for name, found in rows.items()
}
print(pd.DataFrame(table).T.round(3).to_string())
assert np.mean(~is_effect[rows["empirical null"]]) < 0.1

# %% [markdown]
# ## How often is it right?
#
# A hundred tables of 1000 statistics, of which 5 % have an effect. The share of false discoveries
# should be .05 on average:

# %%
shares = {"theoretical null": [], "empirical null": [], "Benjamini-Hochberg": []}
for seed in range(100):
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.2, 1000)
    z[:50] += rng.choice([-5, 5], 50)
    q_values = {
        "theoretical null": eb.two_groups(z, "theoretical").q_value,
        "empirical null": eb.two_groups(z).q_value,
        "Benjamini-Hochberg": stats.false_discovery_control(2 * stats.norm.sf(np.abs(z))),
    }
    for name, q in q_values.items():
        found = q <= 0.05
        shares[name].append(found[50:].sum() / max(found.sum(), 1))
for name, values in shares.items():
    error = np.std(values) / np.sqrt(len(values))
    print(f"{name:<19} {np.mean(values):.3f} ± {error:.3f}")
assert np.mean(shares["empirical null"]) < 0.1

# %% [markdown]
# The empirical null keeps nearly the rate: .06, a little more than .05, as the density and the null
# are themselves estimated. It needs some hundreds of statistics, of which
# nine in ten are null; with fewer of them, use `null="theoretical"` if that null can be trusted, or
# effects with standard errors as above.
#
# ## Which one?
#
# - Effects with standard errors: `posterior_from(effects, errors, prior="point_normal")`. It also
#   estimates each effect, with an interval, and uses that some errors are smaller than others.
# - Standard errors from few rows: the same with `df=`.
# - Statistics alone, thousands of them: `two_groups(z)`. With t-values, take
#   `z = stats.norm.ppf(stats.t.cdf(t, df))`.
