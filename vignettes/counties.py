# %% [markdown]
# # Rates: six elections in 3,111 counties
#
# The counties of 48 states, Hawaii and DC voted in six presidential elections between 2000 and
# 2020. What is the probability that a county elects a Republican? Six elections say little about
# one county, but thousands of counties say a lot about the population of counties.

# %%
import os

import matplotlib.pyplot as plt
import pandas as pd

import ebfed as eb

outcomes = eb.datasets.load_county_outcomes()  # republican: 1 if the Republican won, else 0
print(outcomes.head(8))

# %% [markdown]
# One row is one county in one election. A county's rate comes from a beta population, and given the
# rate its elections are independent. As a formula:

# %%
fit = eb.from_formula("republican | county", outcomes, family="binomial")
print(fit.summary())

# %% [markdown]
# ## The population of counties
#
# The population is U-shaped: most counties are safe for one side. Its two parameters determine how
# many counties should have zero, one, … or six Republican elections. The bars on the left are the
# data. The plot on the right shows shares of counties, beside data that are simulated from the fit:
# some counts are rarer and some more frequent, so a beta does not fit exactly.

# %%
_, (left, right) = plt.subplots(1, 2, figsize=(7, 3.6), layout="constrained")
eb.report.plot_marginal(fit, ax=left)
ax = eb.report.plot_calibration(fit, ax=right)

# %% [markdown]
# ## One county
#
# There are only seven possible counts, so there are seven estimates. Each lies between the county's
# own rate and the mean. A county that elected a Republican six times out of six is nearly certain
# to do so again.

# %%
records = fit.posterior().to_frame().groupby("local").first()
print(records[["n", "estimate", "sd", "lower", "upper"]].round(3))

# %%
ax = eb.report.plot_shrinkage(fit)

# %% [markdown]
# The posterior of a county without data is the population.

# %%
print(fit.posterior(groups=[-1]).to_frame().round(3))

# %% [markdown]
# ## Is a beta good enough?
#
# A nonparametric population has a larger likelihood on the data of the fit. It need not predict
# better. `density` is the log predictive density of one election of one county. Here each election
# is held out in turn.

# %%
model, kinds = "republican | county", {"beta": "beta", "npmle": "npmle"}
scores = {}
for year in sorted(outcomes["year"].unique()):
    used = outcomes["year"] != year
    table = eb.compare(
        **{
            name: eb.from_formula(model, outcomes[used], eb.BernoulliEB(prior=name))
            for name in kinds
        },
        held_out=outcomes[~used],
    )
    scores[year] = table.set_index("fit")["density"]
scores = pd.DataFrame(scores).T
print(scores.assign(difference=scores["npmle"] - scores["beta"]).round(4))
ahead = int((scores["npmle"] > scores["beta"]).sum())
print(f"The nonparametric population is ahead in {ahead} of {len(scores)} elections.")

# %% [markdown]
# Elections are not exchangeable, and no population of rates predicts the swing of one election.
# Scores differ much more between years than between populations.
#
# ## States
#
# With the state as a covariate, the mean of the population depends on it: a county is shrunk
# towards the counties of its state. States where all counties always voted alike are left out,
# because a logistic regression has no estimate for them.

# %%
divided = outcomes.groupby("state")["republican"].transform("nunique") > 1
print("Left out:", ", ".join(sorted(outcomes.loc[~divided, "state"].unique())))
alike = eb.from_formula(model, outcomes[divided], eb.BernoulliEB())
states = eb.from_formula(
    "republican ~ C(state) + (1 | county)", outcomes[divided], eb.BernoulliEB()
)
print(eb.compare(alike=alike, states=states)[["fit", "npar", "logLik", "AIC", "BIC"]].round(1))

# %% [markdown]
# By all criteria states differ. The estimates of single counties hardly change.

# %%
known, before = states.prior_.concentration_[0], alike.prior_.concentration_[0]
moved = abs(states.posterior().mean - alike.posterior().mean).ravel()
print(f"The prior has the weight of {before:.2f} elections, with states {known:.2f}.")
print(f"An estimate moves by {moved.mean():.3f} on average, by {moved.max():.3f} at most.")

# %% [markdown]
# ## Privately
#
# Suppose that counties do not want to show their elections. Each may then answer one question about
# its rate, by a randomised yes or no. With epsilon 1, a yes is at most e times as probable for one
# record of elections as for another. A county's estimate still uses its own exact elections and the
# population. Only the population is learned from the answers. So privacy costs little. The cost
# depends on epsilon:

# %%
price = eb.price_of_privacy(
    fit, [0.25, 0.5, 1, 2, 4], channels={"two bits": eb.channels.TwoBit}, n_runs=5
)
print(price.round(4))
ax = eb.report.plot_privacy(price)

# %% [markdown]
# The horizontal line is the distance of the counties' own rates from their estimates: all that can
# be gained from the other counties. As long as the curve is below it, there is a gain.
#
# ## On the map
#
# The counties in the package are anonymous. So the map shows the mean of the counties of each
# state. With the named returns, which must be fetched, the map shows counties.

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
    named = eb.from_formula("republican | fips", returns, family="binomial")
    table = named.posterior().to_frame()
    ax = eb.report.plot_counties(table, shapes=shapes, centre=0.5, label="rate of the county")
