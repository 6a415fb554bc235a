# %% [markdown]
# # When precision predicts the parameter
#
# Large hospitals are often better, busy players hit better, small schools differ more. Then the
# standard error of an estimate says something of the parameter itself: where the population of such
# groups is, and how wide. Shrinkage to one population for all is then wrong where it matters most,
# for the groups with the least data, without any sign of it in the result.
#
# ## Batters
#
# Hits of batters in 2015 with at least 11 at-bats. On the arcsine scale the error of a rate does
# not depend on the rate, so that a dependence on the standard error is one of the players, not of
# sampling.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import ebfed as eb
from ebfed.location import dependence

batters = eb.datasets.load_batting().query("at_bats >= 11").reset_index(drop=True)
rate = np.arcsin(np.sqrt((batters.hits + 0.25) / (batters.at_bats + 0.5)))
error = 0.5 / np.sqrt(batters.at_bats)
one = eb.posterior_from(rate, error)
print(dependence(one))
print(*one.notes, sep="\n")

# %% [markdown]
# Both tests are of scores: the slopes of the likelihood of one population, were its mean or its
# log-spread to depend on the logarithm of the standard error. The second allows for a mean that
# does. Every fit to estimates makes them, and notes a p-value below .001. Players with many
# at-bats hit better, for managers choose who plays, and they differ less.
#
# `mean=` and `spread=` say what the population depends on: a formula of `se`, the standard error,
# and of the columns of `data`.

# %%
both = eb.posterior_from(rate, error, mean="~ log(at_bats)", spread="~ log(at_bats)", data=batters)
print("mean      ", both.prior.coefficients_.ravel().round(3))
print("log spread", both.prior.spread_coefficients_.ravel().round(3))

figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
for ax, each in zip(axes, (one, both), strict=True):
    dependence(each).plot(ax=ax)
figure.tight_layout()

# %% [markdown]
# On the left the band of the population is level, and estimates of players with few at-bats are
# drawn to a mean that is too high for them. On the right it follows the players. The model is
# $\theta_i = m(w_i) + s(w_i)\,\tau_i$ with the $\tau_i$ of one shape (Chen 2024): normal, or
# whatever `prior=` says, such as `"npmle"` or `"log_spline"`. Not knowing the coefficients is part
# of the intervals. Which of the two the estimates speak for, `eb.compare` says:

# %%
print(eb.compare(one=one, both=both)[["fit", "npar", "logLik", "AIC"]].round(1))

# %% [markdown]
# With `held_out=`, other estimates score the populations by their log predictive densities.
#
# ## Is it better for next year?
#
# That depends on who is asked. Mean squared errors in 2016, less those of sampling, among players
# with at least so many at-bats in 2016:

# %%
rows = {}
for least in (11, 50, 100):
    later = batters.at_bats_2016 >= least
    hits, n = batters.hits_2016[later], batters.at_bats_2016[later]
    truth = np.arcsin(np.sqrt((hits + 0.25) / (n + 0.5)))
    errors = [((each.mean[later, 0] - truth) ** 2 - 0.25 / n).mean() for each in (one, both)]
    rows[least] = [later.sum(), *errors]
columns = ["players", "one population", "given at-bats"]
print(pd.DataFrame(rows, index=columns).T.round(5).to_string())

# %% [markdown]
# Of all who bat again the model halves the error. Of those who play regularly it doubles it: a
# batter with 20 at-bats in 2015 who has 200 in 2016 was chosen for being better than most with 20.
# Selection can reverse a true dependence, so ask first which groups the estimates are for.
#
# ## How wrong is one population?
#
# 2,000 estimates, with standard errors $\log s \sim N(-.7, .5^2)$. Mean and spread of the
# population depend on $s$ as the table says. Beside the mean squared error over that of an oracle
# is the coverage of 95 % intervals by fifths of $s$, the most precise first.

# %%
SETTINGS = {
    "mean .6 log s, spread .35 s^.8": (0.6, lambda s: 0.35 * s**0.8),
    "spread .3 (s / e^-.7)^.8": (0.0, lambda s: 0.3 * (s / np.exp(-0.7)) ** 0.8),
    "mean .15 log s": (0.15, lambda s: 0.3 + 0 * s),
    "mean .3 log s": (0.3, lambda s: 0.3 + 0 * s),
    "independent": (0.0, lambda s: 0.3 + 0 * s),
}
MODELS = {"one": {}, "given s": {"mean": "~ log(se)", "spread": "~ log(se)"}}


def measure(slope, spread, seed, n=2000):
    """Risk over the oracle's, and coverage in each fifth of s, of both models."""
    rng = np.random.default_rng(seed)
    s = np.exp(rng.normal(-0.7, 0.5, n))
    m, sd = slope * np.log(s), spread(s)
    theta = m + sd * rng.standard_normal(n)
    x = theta + s * rng.standard_normal(n)
    oracle = m + sd**2 / (sd**2 + s**2) * (x - m)
    fifth = np.argsort(np.argsort(s)) * 5 // n
    rows = {}
    for name, arguments in MODELS.items():
        posterior = eb.posterior_from(x, s, **arguments)
        lower, upper = posterior.interval()
        covers = (lower[:, 0] <= theta) & (theta <= upper[:, 0])
        risk = ((posterior.mean[:, 0] - theta) ** 2).mean() / ((oracle - theta) ** 2).mean()
        rows[name] = [risk, *(covers[fifth == k].mean() for k in range(5))]
    return rows


def study(n_replications, settings=SETTINGS):
    """Average over replications."""
    table = {}
    for setting, arguments in settings.items():
        found = [measure(*arguments, seed) for seed in range(n_replications)]
        for name in MODELS:
            table[setting, name] = np.mean([each[name] for each in found], axis=0)
    return pd.DataFrame(table, index=["risk", *"12345"]).T


print(study(4).round(3).to_string())

# %% [markdown]
# With one population, a nominal 95 % covers little more than half of the least precise fifth where
# both depend on s. With a modelled one each fifth is near .95, and if nothing depends on s, almost
# nothing is lost.
#
# Which to use? Never the second by default: the tests, the picture, and what is known of how groups
# got their sizes are the evidence. With few groups a slope of the spread is badly known; the prior
# of it is standard normal, over a standard deviation of the covariate.
