# %% [markdown]
# # Bühlmann-Straub credibility in Python
#
# An insurer knows the claims of each state, fleet or scheme over some years. How much should the
# premium of one of them follow its own experience, and how much the experience of all? Bühlmann and
# Straub (1970) answer by credibility factors: the more exposure a contract has, the more its own
# mean counts. In the words of this package, their model is the normal model of groups with weighted
# rows: contract i has in year t the ratio `X_it` with weight `w_it`,
#
#     X_it = m_i + e_it,   Var m_i = a,   Var e_it = s2 / w_it
#
# The data are those of Hachemeister (1975): average claims of bodily injury in private passenger
# cars, in five states over twelve quarters, with the numbers of claims as weights. R's package
# actuar has the same table. This script reads it from `tests/reference` of a checkout.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import ebfed as eb

reference = Path(__file__).parents[1] / "tests" / "reference"
claims = pd.read_csv(reference / "hachemeister.csv")
print(claims.head(3).to_string(index=False))

# %% [markdown]
# ## Structure parameters
#
# `sample_weight` names the column of weights; the columns of `X` besides the groups are ratios.
# `method="moments"` has the unbiased estimators of Bühlmann and Straub, a variance below zero set
# to zero.

# %%
ratios = claims[["state", "ratio", "weight"]]
fit = eb.GaussianEB(method="moments").fit(ratios, groups="state", sample_weight="weight")
collective = fit.prior_.mean_[0]
between, within = fit.prior_.variance_[0], fit.noise_variance_[0]
print(f"collective premium      {collective:.6f}")
print(f"variance between states {between:.5f}")
print(f"variance within states  {within:.1f}")
print(f"K = within / between    {within / between:.1f} claims")

# %% [markdown]
# R's actuar, `cm(~state, hachemeister, ratios = ratio.1:ratio.12, weights = weight.1:weight.12)`,
# prints 1683.713437, 89638.72623 and 139120025.9:

# %%
actuar = [1683.713437, 89638.72623, 139120025.9]
assert np.allclose([collective, between, within], actuar, rtol=1e-9)

# %% [markdown]
# ## Credibility factors and premiums
#
# The factor of a state is `w / (w + K)`, with w all of its claims. `integrate=False` takes the
# structure parameters as known, as the formula of the premium does.

# %%
premiums = fit.posterior(integrate=False).to_frame()
premiums["claims"] = fit.summaries_.weight
table = premiums[["state", "claims", "local", "weight", "estimate"]]
table = table.rename(columns={"local": "own mean", "weight": "factor", "estimate": "premium"})
print(table.round(4).to_string(index=False))

# %% [markdown]
# State 4 has fewest claims, and a factor of 0.73. Its premium is a quarter of the way from its
# own mean to the collective premium.
#
# The collective premium is weighted by credibility factors, as in actuar. An average weighted by
# exposure, which some programs use, is not the best estimate: state 1 would dominate it.
#
# ## How sure is a premium?
#
# The standard deviation and the interval of `posterior()` also allow for five states saying little
# of the variance between states:

# %%
known = fit.posterior(integrate=False).to_frame()
unknown = fit.posterior().to_frame()
shown = unknown[["state", "estimate", "sd", "lower", "upper"]].assign(sd_if_known=known["sd"])
print(shown.round(0).to_string(index=False))

# %%
fig, ax = plt.subplots(figsize=(6.4, 3.6))
place = np.arange(len(unknown))
sides = np.abs(unknown[["lower", "upper"]].to_numpy().T - unknown["estimate"].to_numpy())
ax.axhline(collective, color="0.6", lw=1, label="collective premium")
ax.scatter(place - 0.1, unknown["local"], facecolors="none", edgecolors="0.3", label="own mean")
ax.errorbar(place + 0.1, unknown["estimate"], sides, fmt="o", capsize=3, label="premium, 95 %")
names = zip(unknown["state"], fit.summaries_.weight, strict=True)
ax.set_xticks(place, [f"state {state}\n{total:,.0f} claims" for state, total in names])
ax.set_ylabel("average claim")
ax.legend(frameon=False, fontsize="small")
fig.tight_layout()

# %% [markdown]
# ## Other estimators of the structure parameters
#
# With few contracts the moments vary much. The default is restricted maximum likelihood, lme4's
# `lmer(ratio ~ 1 + (1 | state), weights = weight)`. A formula says the same here:

# %%
reml = eb.from_formula("ratio | state", claims, weights="weight")
factors = reml.estimator_.posterior(integrate=False).weight[:, 0]
print(f"REML: variance between states {reml.estimator_.prior_.variance_[0]:.0f}")
print(f"factors {np.round(factors, 3)}")

# %% [markdown]
# ## A new contract
#
# With no claims of its own, its premium is the collective one. With some, it has a factor like all
# others. `K` claims give it a factor of one half:

# %%
new = pd.DataFrame(
    {"state": [6, 7], "ratio": [2500.0, 2500.0], "weight": [200.0, within / between]}
)
print(fit.posterior(new, integrate=False).to_frame()[["state", "estimate", "sd"]].round(1))

# %% [markdown]
# ## Numbers of claims, covariates, and insurers that share no data
#
# - Numbers of claims are counts: `eb.PoissonEB().fit(claims, groups=contract, exposure=years)` is
#   the model of gamma-Poisson credibility; `sample_weight` counts equal rows there.
# - `covariates=` makes the collective premium depend on what is known of contracts.
# - Several insurers can fit one set of structure parameters without pooling rows: see
#   [Federating](federating.md). `sample_weight` is a column of their tables, as is the group.
# - The same fit reads tables that are larger than memory: `fit(duckdb_relation, groups="state",
#   sample_weight="weight")`, and `ebfed fit claims.csv --group state --value ratio --weight weight`
#   needs no program.
