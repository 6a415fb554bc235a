# %% [markdown]
# # Six elections, 3,111 counties
#
# Every county of 48 states, Hawaii and DC voted in six presidential elections between 2000 and
# 2020. How inclined is each to elect a Republican? Five or six votes say little about one county,
# but 3,111 counties say a lot about what counties are like.

# %%
import numpy as np

import ebfed as eb

outcomes = eb.datasets.load_county_outcomes()
print(outcomes.head())

# %% [markdown]
# One row is one county in one election. `BernoulliEB` reads the whole table, learns the population
# of counties by maximum likelihood, and gives every county a rate of its own.

# %%
est = eb.BernoulliEB().fit(outcomes[["republican"]], groups=outcomes["county"])
print(est.summary())

# %% [markdown]
# The population is U-shaped: most counties are safe for one side. A county that went Republican six
# times out of six is not certain to do so again, but nearly.

# %%
rates = est.posterior().to_frame()
print(rates.groupby("local")[["estimate", "lower", "upper"]].first().round(3))

# %% [markdown]
# Is a beta population good enough? The nonparametric one can only fit the six elections better; on
# an election held out, it has to earn it.

# %%
train = outcomes["year"] < 2020
for prior in ("beta", "npmle"):
    fit = eb.BernoulliEB(prior=prior).fit(
        outcomes.loc[train, ["republican"]], groups=outcomes.loc[train, "county"]
    )
    score = fit.score(outcomes.loc[~train, ["republican"]], groups=outcomes.loc[~train, "county"])
    print(f"{prior:>6}: log predictive density of a county in 2020 {score:.4f}")

# %% [markdown]
# And a picture of what was learned: each circle is a group of counties with one record.

# %%
axes = eb.report.plot_shrinkage(est)
axes.figure.savefig("counties.png", dpi=150)

# %% [markdown]
# A county that was not in the table gets the population, with the uncertainty to match.

# %%
print(est.posterior(groups=[-1]).to_frame().round(3))
assert np.isfinite(est.predict(groups=[-1])).all()
