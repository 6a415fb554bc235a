# %% [markdown]
# # Small area estimation in Python: the Fay-Herriot model
#
# A survey has a good estimate for the whole country, but only a few interviews in each small area.
# The direct estimates of areas are too uncertain to publish. The model of Fay and Herriot (1979)
# combines each direct estimate with what covariates say about the area: the EBLUP. Official
# statistics use it for incomes, poverty and unemployment.
#
# The data are the expenditure on fresh milk in 43 areas of the US Consumer Expenditure Survey of
# 1989, the example of R's package sae (Arora and Lahiri 1997; You and Chapman 2006). Estimates and
# mean squared errors here equal those of sae. This script reads the data from `tests/reference` of
# a checkout; the PyPI package samplics has the same table.

# %%
from pathlib import Path

import numpy as np
import pandas as pd

import ebfed as eb

reference = Path(__file__).parents[1] / "tests" / "reference"
milk = pd.read_csv(reference / "milk.csv")
print(milk.head().to_string(index=False))

# %% [markdown]
# `direct` is the mean expenditure by the interviews of the area alone, and `std_error` its sampling
# error, which is taken as known. The covariates are the four major areas: three columns of 0 and 1,
# beside the intercept.

# %%
major = pd.get_dummies(milk["major_area"], prefix="major", drop_first=True)
fit = eb.fay_herriot(milk["direct"], milk["std_error"], major, labels=milk["area"])
print(fit.summary())

# %% [markdown]
# The variance between areas is what covariates do not explain. The median coefficient of variation
# falls from 14.0 % to 11.2 %, as it would with a sample that is larger by half.
#
# ## One row per area
#
# `estimate` is the EBLUP, and `mse` its mean squared error by the formula of Prasad and Rao (1990).
# `shrinkage` is the share of the synthetic estimate, from covariates alone: 0 for an area with a
# large sample, near 1 for one with nearly none. `lower` and `upper` also allow for the variance
# between areas not being known, so they are not exactly `estimate ± 1.96 sqrt(mse)`.

# %%
table = fit.to_frame()
print(table.head(8).round(4).to_string(index=False))

# %%
ax = fit.plot()

# %% [markdown]
# ## Comparison with sae

# %%
sae = pd.read_csv(reference / "sae.csv")
for method in ("reml", "ml", "fh"):
    one = eb.fay_herriot(milk["direct"], milk["std_error"], major, method=method)
    away = np.abs(one.estimates - sae[f"eblup_{method}"]).max()
    errors = np.abs(one.mse / sae[f"mse_{method}"] - 1).max()
    print(f"{method:<5} variance {one.variance:.5f}   differences: {away:.0e}, MSE {errors:.0e}")
    assert away < 2e-6
    assert errors < 1e-5

# %% [markdown]
# `method="fh"` is the moment estimate of Fay and Herriot. The formula of the mean squared error
# depends on the method (Datta and Lahiri 2000; Datta, Rao and Smith 2005).
#
# ## Mean squared error by the bootstrap
#
# The bootstrap simulates areas from the fit, and fits them again. `verbose=1` shows its progress.

# %%
simulated = eb.fay_herriot(
    milk["direct"], milk["std_error"], major, mse="bootstrap", n_bootstrap=200, random_state=0
)
ratio = simulated.mse / fit.mse
print(f"bootstrap over Prasad-Rao: {ratio.min():.2f} to {ratio.max():.2f}")

# %% [markdown]
# ## Areas without a sample
#
# An area without interviews has no direct estimate (NaN), but it has covariates. Its estimate is
# the synthetic one, and its mean squared error includes the variance between areas.

# %%
partly = milk.assign(gap=milk["area"].isin([7, 22, 28]))
direct = milk["direct"].mask(partly["gap"])
errors = milk["std_error"].mask(partly["gap"])
gaps = eb.fay_herriot(direct, errors, major, labels=milk["area"]).to_frame()[partly["gap"]]
print(gaps.assign(left_out=milk["direct"]).round(3).to_string(index=False))

# %% [markdown]
# `predict` gives the same for areas that were not in the table at all:

# %%
print(fit.predict(major.iloc[[0, 10]], labels=["new A", "new B"]).round(3).to_string(index=False))

# %% [markdown]
# ## Benchmarking: areas that add up to the national figure
#
# Estimates of areas should agree with the published total. `benchmark` multiplies them by a ratio,
# or adds a difference. Suppose that the areas have the weights of their samples, and that the
# national mean is known to be 0.95:

# %%
weights = milk["n"] / milk["n"].sum()
print(f"weighted mean of the estimates: {weights @ fit.estimates:.4f}")
for method in ("ratio", "difference"):
    made = fit.benchmark(weights, 0.95, method=method)
    mean = weights @ made["benchmarked"]
    print(f"{method:<11} mean {mean:.4f}   mean MSE {made['mse'].mean():.5f}")
