# %% [markdown]
# # Any regressor as the population's mean
#
# Groups have covariates: a film has a year and genres, a district has incomes. The estimate of a
# group with few rows should then be near what its covariates predict. `covariates=` does this with
# a linear mean, as lme4 does. `mean_model=` does it with any regressor of scikit-learn: a forest,
# boosting, a pipeline. This is covariate-powered empirical Bayes (Ignatiadis and Wager 2019).
#
# The data are the results of a mathematics test in 303 school districts of California, from
# statsmodels (`star98`): how many pupils were above the national median, and twelve covariates of
# the district.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels.api as sm
from sklearn.ensemble import RandomForestRegressor, VotingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ebfed as eb

table = sm.datasets.star98.load_pandas().data
above = table["NABOVE"].astype(int).to_numpy()
pupils = above + table["NBELOW"].astype(int).to_numpy()
districts = table.iloc[:, 2:14]
print(districts.columns.tolist())

# %% [markdown]
# To see which estimates are good, we show only 20 pupils of each district, drawn by lot, and
# predict the results of all others.

# %%
rng = np.random.default_rng(0)
shown = np.minimum(pupils - 1, 20)
hits = rng.hypergeometric(above, pupils - above, shown)
few = eb.Summary.from_counts(hits, shown)

forest = RandomForestRegressor(200, min_samples_leaf=3, random_state=0)
ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
both = VotingRegressor([("ridge", ridge), ("forest", forest)])

fits = {"one mean": eb.BernoulliEB().fit(few)}
covariates = districts.to_numpy()
fits["linear logit"] = eb.BernoulliEB().fit(few, covariates=covariates)
for name, model in {"forest": forest, "ridge and forest": both}.items():
    est = eb.BernoulliEB(mean_model=model, random_state=0)
    fits[name] = est.fit(few, covariates=covariates)

# %% [markdown]
# A regressor that has seen a district predicts it too well. So the districts are dealt into five
# parts, and each part is predicted by a regressor that was fitted to the other four. The prediction
# x is then the one covariate of the usual fit: for rates, `logit mean = a + b logit x`. b shows
# what the predictions are worth, and `sd` what they leave.

# %%
print(fits["ridge and forest"].tidy().round(3).to_string(index=False))

# %% [markdown]
# ## Which is best?
#
# Mean squared error for the other pupils, and how much less it is than with one mean, with its
# standard error:

# %%
others = pupils - shown
rate = (above - hits) / others
errors = pd.DataFrame({name: (fit.predict() - rate) ** 2 for name, fit in fits.items()})
errors.insert(0, "own 20 pupils", (hits / shown - rate) ** 2)
gain = errors["one mean"].to_numpy()[:, None] - errors
marks = pd.DataFrame({"error": errors.mean(), "gain": gain.mean(), "std. error": gain.sem()})
print((1e4 * marks).round(1))
assert marks.loc["ridge and forest", "gain"] > 0

# %% [markdown]
# Covariates take away two fifths of the error, and what remains has the chance of the other pupils
# in it. Incomes and results are nearly linear on the scale of logits, so the forest gains nothing
# over the line. No one has to know this before: the average of a linear model and a forest is
# nearly as good as the better one. `VotingRegressor` and `StackingRegressor` make such averages.
#
# In the picture, each district's share of its 20 pupils, the estimate, and the results of all
# others:

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), sharex=True, sharey=True, layout="constrained")
shares = {"own 20 pupils": hits / shown}
shares |= {name: fits[name].predict() for name in ("one mean", "ridge and forest")}
for ax, (name, guess) in zip(axes, shares.items(), strict=True):
    ax.plot(guess, rate, "o", markersize=3)
    ax.axline((0, 0), slope=1, color="black", linewidth=0.8)
    ax.set(title=name, xlabel="estimate")
axes[0].set_ylabel("share of the other pupils")

# %% [markdown]
# ## New groups, intervals, and covariates that say nothing
#
# A district without pupils in the fit is predicted by the regressor that was fitted to all
# districts, `mean_model_`. Intervals are those of any fit with covariates. Below is how often they
# hold the share of the other pupils, which is itself uncertain in small districts, and their mean
# width:

# %%
held = [
    ((interval[0][:, 0] < rate) & (rate < interval[1][:, 0])).mean()
    for interval in (fit.posterior().interval(0.95) for fit in fits.values())
]
widths = [np.diff(fit.posterior().interval(0.95), axis=0).mean() for fit in fits.values()]
print(pd.DataFrame({"holds": held, "width": widths}, index=list(fits)).round(3))

# %% [markdown]
# If predictions say nothing of districts that the regressor has not seen (b is no larger than its
# standard error), they are left out, with a note. Noise as covariates:

# %%
noise = np.random.default_rng(1).normal(size=(len(few), 5))
useless = eb.BernoulliEB(mean_model=forest, random_state=0).fit(few, covariates=noise)
print(*useless.notes_)
change = np.abs(useless.predict() - fits["one mean"].predict()).max()
print(f"largest change of an estimate: {change:.4f}")

# %% [markdown]
# The same argument is in `GaussianEB`, `PoissonEB` and, for tables of estimates with standard
# errors, `posterior_from`. The regressor is fitted to the figures of all groups, so the groups must
# be in one place: a federation has linear covariates alone. Ratings of 9,000 films (MovieLens) by
# year and genres are compared in `tests/benchmarks/film_means.py`: with half of the ratings,
# boosting lowers the squared error from .269 to .251, a linear mean to .253; with one rating in
# twenty, .356 is lowered to .318 and .308.
