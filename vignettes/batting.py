# %% [markdown]
# # Rates: eighteen batters, and the rest of their season
#
# Efron and Morris (1975) took the batting averages of eighteen players after their first forty-five
# at-bats of 1970, and predicted what each would hit in the rest of the season. The rest is known,
# so every prediction can be compared with the truth. It is a classic example of shrinkage.

# %%
import numpy as np
import pandas as pd

import ebfed as eb

# Hits in the first 45 at-bats; at-bats and batting average in the rest of the season. From B. Efron
# and C. Morris (1975), Data analysis using Stein's estimator and its generalizations, JASA 70,
# 311-319, table 1; also `EfronMorris` in R's package pscl.
season = pd.DataFrame(
    [
        ("Roberto Clemente", 18, 367, 0.346),
        ("Frank Robinson", 17, 426, 0.298),
        ("Frank Howard", 16, 521, 0.276),
        ("Jay Johnstone", 15, 275, 0.222),
        ("Ken Berry", 14, 418, 0.273),
        ("Jim Spencer", 14, 466, 0.270),
        ("Don Kessinger", 13, 586, 0.263),
        ("Luis Alvarado", 12, 138, 0.210),
        ("Ron Santo", 11, 510, 0.269),
        ("Ron Swoboda", 11, 200, 0.230),
        ("Del Unser", 10, 277, 0.264),
        ("Billy Williams", 10, 270, 0.256),
        ("George Scott", 10, 435, 0.303),
        ("Rico Petrocelli", 10, 538, 0.264),
        ("Ellie Rodriguez", 10, 186, 0.226),
        ("Bert Campaneris", 9, 558, 0.285),
        ("Thurman Munson", 8, 408, 0.316),
        ("Max Alvis", 7, 70, 0.200),
    ],
    columns=["player", "hits", "later_at_bats", "later"],
)
season.insert(2, "at_bats", 45)
season["average"] = season["hits"] / season["at_bats"]
print(season.round(3).to_string(index=False))

# %% [markdown]
# ## A population of batters
#
# `hits` of `at_bats` is binomial, and a player's rate comes from a beta population, which is fitted
# by maximum likelihood. As in R, `cbind(hits, misses)` has successes and failures; trials are
# named, `cbind(hits, trials=at_bats)`.

# %%
fit = eb.from_formula("cbind(hits, trials=at_bats) | player", season)
print(fit.summary())

# %% [markdown]
# Players are much alike: the spread between them is small compared with chance in forty-five
# at-bats. So the weight of each player's own hits is small, and all estimates are shrunk far
# towards the mean.

# %%
players = fit.posterior().to_frame()
mean, spread = fit.prior_.mean_[0], np.sqrt(fit.prior_.variance_[0])
chance = np.sqrt(mean * (1 - mean) / 45)
print(f"standard deviation of players {spread:.3f}, of an average by chance alone {chance:.3f}")
print(players.sort_values("local", ascending=False).round(3).to_string(index=False))

# %%
ax = eb.report.plot_shrinkage(fit)

# %% [markdown]
# The estimates are close together, but their intervals are not short. They include three sources of
# uncertainty: the player's rate, chance, and the population, which eighteen players do not
# determine exactly.

# %%
ax = eb.report.plot_caterpillar(fit)

# %% [markdown]
# ## James and Stein
#
# Efron and Morris transformed averages to a scale on which chance has the same variance for all,
# and shrank them by the rule of James and Stein. This is a normal population for a table of
# estimates with standard errors, as in R's `ebnm`. Here it is `posterior_from`. The factor of James
# and Stein is computed beside it.

# %%
first = season.set_index("player")["average"]
later = season.set_index("player")["later"]
z = np.arcsin(2 * first - 1)
normal = eb.posterior_from(z, np.full(len(z), 45**-0.5))
factor = 1 - (len(z) - 3) / (45 * ((z - z.mean()) ** 2).sum())
print(f"weight of a player's own data: beta {fit.posterior().weight.item(0):.3f}")
print(f"normal population, by REML: {normal.weight.item(0):.3f}")
print(f"James and Stein: {factor:.3f}")

# %% [markdown]
# The shape of the population is an assumption too. `prior="npmle"` makes no such assumption: the
# population is the distribution with the largest likelihood. It is a distribution on a few points.

# %%
free = eb.from_formula("cbind(hits, trials=at_bats) | player", season, prior="npmle")
ax = eb.report.plot_population({"beta": fit, "npmle": free}, support=(0.15, 0.4))

# %% [markdown]
# ## The rest of the season
#
# Now the comparison: the sum of squared differences from the averages in the rest of the season,
# and the same as a share of that sum for the players' own averages.


# %%
def rate(z):
    return (np.sin(z) + 1) / 2


guesses = {
    "own average": first,
    "grand mean": pd.Series(first.mean(), first.index),
    "James and Stein": rate(z.mean() + factor * (z - z.mean())),
    "normal": pd.Series(rate(normal.mean[:, 0]), z.index),
    "beta": fit.coef().set_index("player")["hits"],
    "npmle": free.coef().set_index("player")["hits"],
}
error = pd.Series({name: ((guess - later) ** 2).sum() for name, guess in guesses.items()})
marks = pd.DataFrame({"squared error": error, "of own average's": error / error["own average"]})
print(marks.round(3))
assert error.drop("own average").max() < error["own average"] / 2

# %% [markdown]
# Any shrinkage is much better than none, and the method matters little. Even the grand mean, which
# ignores all differences between players, is better than the players' own averages. With eighteen
# players the differences between the lower rows of the table may be chance.
#
# `compare` puts fits to the same rows side by side: the mean squared error that each expects
# (`risk`), and with `held_out` the log predictive density of an at-bat in the rest of the season
# (`density`).

# %%
rest = season.assign(at_bats=season["later_at_bats"])
rest["hits"] = (rest["later"] * rest["at_bats"]).round().astype(int)
table = eb.compare(beta=fit, npmle=free, held_out=rest).set_index("fit")
table["squared error"] = error / len(season)
print(table[["npar", "logLik", "AIC", "risk", "squared error", "density"]].round(4))

# %% [markdown]
# Both fits expect an error a little larger than the one that they made. Their risk includes what is
# not known of the population, and eighteen players show little of it.

# %% [markdown]
# Intervals can be tested too. An interval of the posterior is for a player's rate. The average of
# the rest of the season is near that rate, because most players have hundreds of at-bats.

# %%
players = players.set_index("player").loc[later.index]
held = later.between(players["lower"], players["upper"])
print(f"{held.sum()} of {len(held)} intervals contain the average of the rest of the season")

# %% [markdown]
# ## Who is the best hitter?
#
# The largest estimate is not an answer to this. `ranks` draws from the posterior. It gives the
# possible ranks of each player, and the probability that he is among the first five.

# %%
ranks = fit.ranks(top=5)
order = season.set_index("player").loc[ranks["player"], "later"].rank(ascending=False)
ranks["later"] = order.to_numpy()
print(ranks.sort_values("rank").head(8).round(2).to_string(index=False))

# %%
ax = eb.report.plot_ranks(ranks)

# %% [markdown]
# No player is certainly first, and none is certainly last. After forty-five at-bats a ranking has
# little information.
