# %% [markdown]
# # Six elections, 3,111 counties
#
# Every county of 48 states, Hawaii and DC voted in six presidential elections between 2000 and
# 2020. How inclined is each to elect a Republican? Six votes say little about one county, but
# thousands of counties say a lot about what counties are like.

# %%
import os

import matplotlib.pyplot as plt
import pandas as pd

import ebfed as eb

outcomes = eb.datasets.load_county_outcomes()  # republican: 1 if the Republican won, else 0
print(outcomes.head(8))

# %% [markdown]
# One row is one county in one election; a county's rate is drawn from a beta population, and its
# elections are tosses of that coin. As a formula:

# %%
fit = eb.from_formula("republican ~ 1 + (1 | county)", outcomes, family="binomial")
print(fit.summary())

# %% [markdown]
# ## What counties are like
#
# The population is U-shaped: most counties are safe for one side. Its two parameters do not only
# describe it, they say how often six elections should go none, one, … or six times to a Republican.
# The bars on the left are what happened. On the right the same as shares of counties, beside what
# tables drawn from the fit would show: some records are rarer than that and some commoner, so a
# beta is nearly right, not quite.

# %%
_, (left, right) = plt.subplots(1, 2, figsize=(7, 3.6), layout="constrained")
eb.report.plot_marginal(fit, ax=left)
ax = eb.report.plot_calibration(fit, ax=right)

# %% [markdown]
# ## What one county is like
#
# There are only seven records a county can have, so there are seven estimates. Each lies between
# the county's own rate and the mean. A county that went Republican six times out of six is not
# certain to do so again, but nearly.

# %%
records = fit.posterior().to_frame().groupby("local").first()
print(records[["n", "estimate", "sd", "lower", "upper"]].round(3))

# %%
ax = eb.report.plot_shrinkage(fit)

# %% [markdown]
# A county that nobody has data for gets the population, with the uncertainty to match.

# %%
print(fit.posterior(groups=[-1]).to_frame().round(3))

# %% [markdown]
# ## Is a beta good enough?
#
# A population without a shape, the nonparametric one, can only fit the elections seen better. On an
# election that was held out it has to earn that. `score` is the log predictive density of one
# election of one county; here each election is held out in turn.

# %%
model, kinds = "republican ~ 1 + (1 | county)", {"beta": "beta", "npmle": "npmle"}
scores = {}
for year in sorted(outcomes["year"].unique()):
    seen = outcomes["year"] != year
    table = eb.compare(
        **{
            name: eb.from_formula(model, outcomes[seen], eb.BernoulliEB(prior=name))
            for name in kinds
        },
        held_out=outcomes[~seen],
    )
    scores[year] = table.set_index("fit")["score"]
scores = pd.DataFrame(scores).T
print(scores.assign(difference=scores["npmle"] - scores["beta"]).round(4))
ahead = int((scores["npmle"] > scores["beta"]).sum())
print(f"The nonparametric population is ahead in {ahead} of {len(scores)} elections.")

# %% [markdown]
# Elections are not exchangeable, and no population of rates knows what one of them will be like:
# scores differ much more between years than between populations.
#
# ## States
#
# A county in Wyoming is not just any county. Given the state as a covariate, the mean of the
# population depends on it: a county is drawn towards the counties of its state. States where all
# counties always voted alike are left out, for a logistic regression has no estimate for them.

# %%
divided = outcomes.groupby("state")["republican"].transform("nunique") > 1
print("Left out:", ", ".join(sorted(outcomes.loc[~divided, "state"].unique())))
alike = eb.from_formula(model, outcomes[divided], eb.BernoulliEB())
states = eb.from_formula(
    "republican ~ C(state) + (1 | county)", outcomes[divided], eb.BernoulliEB()
)
print(eb.compare(alike=alike, states=states)[["fit", "npar", "logLik", "AIC", "BIC"]].round(1))

# %% [markdown]
# All criteria are sure that states differ. The estimates of single counties hardly notice.

# %%
known, before = states.prior_.concentration_[0], alike.prior_.concentration_[0]
moved = abs(states.posterior().mean - alike.posterior().mean).ravel()
print(
    f"What is known beforehand weighs as much as {before:.2f} elections, with states {known:.2f}."
)
print(f"An estimate moves by {moved.mean():.3f} on average, by {moved.max():.3f} at most.")

# %% [markdown]
# ## Privately
#
# Suppose counties will not show their elections. Each may then answer one question about its rate,
# by a randomised yes or no. With epsilon 1, a yes is at most e times as probable whatever the
# county's elections were. A county's estimate still comes from its own elections and the
# population; only the population is learned from the answers. So privacy costs little, and how
# little depends on epsilon:

# %%
price = eb.price_of_privacy(
    fit, [0.25, 0.5, 1, 2, 4], channels={"two bits": eb.channels.TwoBit}, n_runs=5
)
print(price.round(4))
ax = eb.report.plot_privacy(price)

# %% [markdown]
# The level line is how far the counties' own rates lie from their estimates: what there is to gain
# from the others at all. The curve stays below it as long as joining is worth it.
#
# ## On the map
#
# The counties that come with the package are anonymous, those of one state with one record being
# alike. Means over the counties of a state can be drawn all the same. With the named returns, which
# must be fetched, the map is of counties.

# %%
try:
    if "EBFED_DATA" not in os.environ:
        raise OSError("let EBFED_DATA name the folder that holds them, or where to put them.")
    returns = eb.datasets.fetch_county_returns()
    shapes = eb.datasets.fetch_county_shapes()
except (ImportError, OSError, ValueError) as error:
    print(f"No map of counties: {error}")
    table = fit.posterior().to_frame()
    table["state"] = outcomes.groupby("county")["state"].first().to_numpy()
    ax = eb.report.plot_states(table, centre=0.5, label="mean rate of a state's counties")
else:
    returns["republican"] = (returns["winner"] == "R").astype(int)
    named = eb.from_formula("republican ~ 1 + (1 | fips)", returns, family="binomial")
    table = named.posterior().to_frame()
    ax = eb.report.plot_counties(table, shapes=shapes, centre=0.5, label="rate of the county")
