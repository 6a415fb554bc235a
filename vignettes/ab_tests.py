# %% [markdown]
# # A/B tests by segment: which conversion rates differ?
#
# A growth team shows a variant to a part of its users, and looks at the conversion rate in every
# segment: city, device, campaign. With many segments some differences are large by chance, and the
# best segment of this test is seldom the best of the next (the winner's curse). Empirical Bayes
# answers three questions: what is the conversion rate of each segment, in which segments did the
# variant help, and what will it do in a new one?
#
# The data are an experiment with advertisements. Before the US election of 2004, Rock the Vote
# showed a spot in cable television systems that were drawn by lot, in 40 strata of similar systems.
# A conversion is a young registered voter who voted (Green and Vavreck 2008; `RockTheVote` of R's
# package pscl). This script reads them from `tests/reference` of a checkout.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import ebfed as eb

reference = Path(__file__).parents[1] / "tests" / "reference"
systems = pd.read_csv(reference / "rock_the_vote.csv")
print(systems.head(4).to_string(index=False))

# %% [markdown]
# ## Conversion rates of segments
#
# Each system has `voted` conversions of `registered` users. Their rates are shrunk towards the mean
# of all, small systems more than large ones.

# %%
systems["system"] = np.arange(len(systems))
rates = eb.from_formula("cbind(voted, trials=registered) | system", systems)
table = rates.posterior().to_frame()
print(table.nlargest(3, "local")[["system", "n", "local", "estimate", "lower", "upper"]].round(3))

# %% [markdown]
# `ranks` says which systems may be among the ten best. A rate that is high in a small system is
# rarely the best one.

# %%
ranks = rates.ranks(top=10)
print(ranks.sort_values("rank").head(5).round(2).to_string(index=False))

# %% [markdown]
# ## Did the variant help?
#
# In each stratum, a difference of two conversion rates and its standard error:

# %%
arms = systems.groupby(["stratum", "treated"])[["registered", "voted"]].sum().unstack()
rate = arms["voted"] / arms["registered"]
lift = (rate[1] - rate[0]).rename("lift")
error = np.sqrt((rate * (1 - rate) / arms["registered"]).sum(axis=1))

whole = systems.groupby("treated")[["registered", "voted"]].sum()
pooled = whole["voted"] / whole["registered"]
pooled_error = np.sqrt((pooled * (1 - pooled) / whole["registered"]).sum())
print(f"all users in one test: lift {pooled[1] - pooled[0]:.3f}, std. error {pooled_error:.3f}")

# %% [markdown]
# This pooled test counts users as if each of them had been drawn by lot. But systems were drawn,
# and the lift differs between strata. A random-effects meta-analysis has both: the mean lift, and
# its standard deviation between strata, `tau`.

# %%
test = eb.meta_analysis(lift, error)
print(test.summary())

# %% [markdown]
# The mean lift is about three points, and its interval hardly leaves out zero. The last line is
# what a growth team should read before a launch: in a new stratum the lift may well be negative. It
# is much wider than the interval of the mean, which speaks of the average of many strata.
#
# ## In which segments?
#
# The lift of each stratum is shrunk towards the mean lift. Here lots were drawn between systems, so
# that the lift of a stratum is also the difference between its two systems, and `tau` has both. On
# a website users are drawn by lot, and `tau` is of the effect alone.

# %%
posterior = eb.posterior_from(lift, error)
strata = posterior.to_frame().set_index("stratum")
better = 1 - posterior.prob_below(0.0)[:, 0]
strata["prob. above 0"] = better
print(strata.nlargest(5, "estimate")[["local", "std_error", "estimate", "prob. above 0"]].round(3))

# %%
order = strata["estimate"].sort_values().index
place = np.arange(len(order))
figure, ax = plt.subplots(figsize=(6.5, 6), layout="constrained")
ax.hlines(place, strata.loc[order, "lower"], strata.loc[order, "upper"], color="0.7")
ax.plot(lift[order], place, "o", markerfacecolor="white", color="0.5", label="own lift")
ax.plot(strata.loc[order, "estimate"], place, "o", label="estimate, interval of 95 %")
ax.axvline(0, color="black", linewidth=0.8)
ax.axvline(posterior.prior.mean_[0], linestyle="--", linewidth=0.8, label="mean lift")
ax.set(xlabel="lift of the conversion rate", ylabel="strata, ordered", yticks=[])
ax.legend()

# %% [markdown]
# A list of segments in which the variant helps, with a bound on the share of wrong ones, follows
# from the same posterior. Take the strata in order of their probability of no lift, as long as the
# mean of these probabilities is below 5 %:

# %%
wrong = np.sort(1 - better)
n_chosen = int((np.cumsum(wrong) / np.arange(1, len(wrong) + 1) <= 0.05).sum())
significant = int((lift / error > 1.645).sum())
print(f"{n_chosen} strata by the posterior; {significant} by a test of each at 5 %")
