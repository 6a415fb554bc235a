# %% [markdown]
# # Disease mapping: smoothed mortality ratios of areas
#
# An epidemiologist compares deaths with the deaths that are expected for the age and sex of the
# people of each area: the standardised mortality ratio, SMR. In small areas it is mostly chance:
# the highest and the lowest ratios of an atlas belong to areas with few people. Clayton and Kaldor
# (1987) smooth the ratios: deaths are Poisson, and the relative risks of areas are from a gamma
# population.
#
# The data are the deaths from malignant melanoma in 354 regions of nine European countries, 1971 to
# 1980, and the ultraviolet radiation there (Langford, Bentham and McDonald 1998; `Mmmec` of R's
# package mlmRev), from `tests/reference` of a checkout.

# %%
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestRegressor

import ebfed as eb

reference = Path(__file__).parents[1] / "tests" / "reference"
areas = pd.read_csv(reference / "mmmec.csv")
areas["area"] = np.arange(len(areas))
print(areas.head(3).to_string(index=False))

# %% [markdown]
# ## Relative risks
#
# `exposure` is the number of expected deaths, so that a rate is a relative risk.

# %%
data = areas[["area", "deaths", "expected"]]
fit = eb.PoissonEB().fit(data, groups="area", exposure="expected")
print(fit.summary())

# %% [markdown]
# The highest ratio is that of an area where less than one death is expected. Its estimate is near
# the mean of all areas, while ratios of areas with many expected deaths hardly change:

# %%
risks = fit.posterior().to_frame().assign(expected=areas["expected"])
columns = ["area", "expected", "local", "estimate", "lower", "upper"]
print(risks.nlargest(4, "local")[columns].round(2).to_string(index=False))

# %%
figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
ax.plot(risks["expected"], risks["local"], "o", markersize=3, color="0.7", label="SMR")
ax.plot(risks["expected"], risks["estimate"], "o", markersize=3, label="estimate")
ax.axhline(fit.prior_.mean_[0], linestyle="--", linewidth=0.8, color="black")
ax.set(xscale="log", xlabel="expected deaths", ylabel="relative risk")
ax.legend()

# %% [markdown]
# Which areas have a raised risk? The probability that a relative risk exceeds 1.5, which is easier
# to act on than a significance test:

# %%
raised = 1 - fit.posterior().prob_below(1.5)[:, 0]
print(f"{(raised > 0.95).sum()} areas with a risk above 1.5 with a probability of 95 %")

# %% [markdown]
# ## A covariate: ultraviolet radiation
#
# With covariates, each area is shrunk towards areas like it. This is a negative binomial
# regression with the logarithm of expected deaths as offset.

# %%
uvb = areas[["uvb"]].to_numpy()
linear = eb.PoissonEB().fit(data, groups="area", exposure="expected", covariates=uvb)
print(linear.tidy().round(3))

# %% [markdown]
# The slope is negative, though radiation causes melanoma. The south of Europe has more sun, and
# people whose skin is darker: a covariate of areas says nothing of the risk of a person.
#
# `mean_model` takes any regressor of scikit-learn in place of the line. Each area is predicted by a
# regressor that was fitted to other areas (cross-fitting), and the prediction is the covariate:

# %%
forest = RandomForestRegressor(200, min_samples_leaf=10, random_state=0)
free = eb.PoissonEB(mean_model=forest, random_state=0)
free.fit(data, groups="area", exposure="expected", covariates=uvb)
print(free.tidy().round(3))

# %%
grid = np.linspace(uvb.min(), uvb.max(), 200)[:, None]
with warnings.catch_warnings():
    warnings.simplefilter("ignore", eb.UnseenGroupWarning)  # points of a curve, no areas
    curves = {
        name: each.predict(groups=np.arange(-200, 0), covariates=grid)
        for name, each in (("line", linear), ("forest", free))
    }
figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
ax.plot(uvb, areas["deaths"] / areas["expected"], "o", markersize=3, color="0.8", label="SMR")
ax.plot(uvb, free.predict(), "o", markersize=3, label="estimate, with the forest")
for name, curve in curves.items():
    ax.plot(grid, curve, label=f"population's mean, {name}")
ax.set(xlabel="ultraviolet radiation, less its mean", ylabel="relative risk", ylim=(0, None))
ax.legend()

# %% [markdown]
# ## Which is better?
#
# Poisson deaths can be divided by lot: 30 % of them, and the other 70 %, are independent counts
# with the same relative risks. We fit the first and predict the second. Below is the mean deviance,
# over five divisions:

# %%
settings = {"one mean": {}, "line": {"covariates": uvb}, "forest": {"covariates": uvb}}
deviances = []
for seed in range(5):
    first = np.random.default_rng(seed).binomial(areas["deaths"], 0.3)
    second, row = areas["deaths"] - first, {}
    for name, given in settings.items():
        model = forest if name == "forest" else None
        half = eb.PoissonEB(mean_model=model, random_state=0)
        half.fit(first, groups=areas["area"], exposure=0.3 * areas["expected"], **given)
        mean = half.predict() * 0.7 * areas["expected"]
        parts = second * np.log(np.maximum(second, 1) / mean) - (second - mean)
        row[name] = 2 * parts.mean()
    deviances.append(row)
table = pd.DataFrame(deviances)
print(table.round(3).to_string())
print(table.mean().round(3).to_string())

# %% [markdown]
# Radiation helps, and the forest is as good as the line. If a regressor had learned nothing, its
# prediction would have been left out, and the fit would be that with one mean. So little is lost by
# trying.
