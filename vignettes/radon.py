# %% [markdown]
# # A regression for every group: radon in the counties of Minnesota
#
# Radon is a gas that comes from the ground into houses. It was measured in 919 houses of 85
# counties, in the basement or on the first floor. Some counties have one house, and some have more
# than a hundred. We want the level of each county, and how it depends on the floor. This is a
# linear mixed model, as in lme4.
#
# The data are those of Price, Nero and Gelman (1996), and of the book of Gelman and Hill (2007).
# This script reads them from `tests/reference` of a checkout.

# %%
from pathlib import Path

import pandas as pd

import ebfed as eb

reference = Path(__file__).parents[1] / "tests" / "reference"
homes = pd.read_csv(reference / "radon.csv")
print(homes.head(3))
print(homes.groupby("county").size().describe()[["min", "50%", "max"]])

# %% [markdown]
# ## The model
#
# `floor` is 0 in a basement and 1 on the first floor. `log_uranium` is a property of the county.
# Intercept and effect of the floor differ between counties. The effect of uranium is the same for
# all. The fit is by REML.

# %%
formula = "log_radon ~ floor + log_uranium + (1 + floor || county)"
fit = eb.from_formula(formula, homes)
print(fit.summary())

# %% [markdown]
# `from_formula` takes factors, contrasts, interactions and transformations. It remembers them for
# new frames. Without a formula, `varying=` names the coefficients that differ between counties. All
# columns that are not the response or the groups are in the model.

# %%
columns = homes[["county", "floor", "log_uranium", "log_radon"]]
est = eb.LinearEB(varying=["intercept", "floor"]).fit(columns, "log_radon", groups="county")
print(est.tidy("fixed").round(3).to_string(index=False))

# %% [markdown]
# ## The estimates of counties
#
# Each county has its own coefficients. Their intervals are long for a county with few houses. A
# county that was not in the fit has the coefficients of the population.

# %%
table = est.posterior(groups=["ST LOUIS", "LAC QUI PARLE", "a new county"]).to_frame()
print(table.round(2).to_string(index=False))

# %% [markdown]
# The plot shows the counties with the largest intercepts: the level in a basement, given uranium.

# %%
ax = eb.report.plot_caterpillar(fit, column="intercept", top=20)

# %% [markdown]
# ## Does the model fit?
#
# `residuals` has those of lme4 and more: `kind="pearson"`, `"standardized"`, `"quantile"`; given
# the counties, or with `conditional=False` those of rows of a new county. `plot_diagnostics` draws
# residuals, their sizes, their quantiles, and the quantiles of the effects of counties.

# %%
print(fit.residuals(kind="standardized").round(2)[:5])
axes = eb.report.plot_diagnostics(fit)

# %% [markdown]
# `influence` leaves each county out, at the variances of the fit; `refit=True` estimates these
# again, as lme4 does. Cook's distance is the change of the coefficients of all counties, in units
# of their standard errors.

# %%
print(fit.influence().nlargest(3, "cooksd").round(3).to_string(index=False))
ax = eb.report.plot_influence(fit, ax=eb.report.new_axes()[0])

# %% [markdown]
# Rows that are counts may scatter more than Poisson ones, or have more zeros. Ticks on the heads of
# grouse chicks do both, given the brood; `family="negative_binomial"` allows for more scatter.

# %%
ticks = pd.read_csv(reference / "grouseticks.csv")
counted = eb.from_formula("TICKS ~ cHEIGHT + (1 | BROOD)", ticks, family="poisson").diagnostics()
print(counted.overdispersion())
print(counted.zero_inflation())

# %% [markdown]
# ## Predictions
#
# A prediction for a house uses its county if that is known, and otherwise the population. An
# interval is for the measurement in one house.

# %%
new = pd.DataFrame({"county": ["ST LOUIS", "a new county"], "floor": 0, "log_uranium": -0.4})
lower, upper = fit.predict_interval(new, level=0.9)
print(new.assign(predicted=fit.predict(new), lower=lower, upper=upper).round(2))

# %% [markdown]
# ## Other models
#
# | estimator | a row, given the coefficients of its group | population of the coefficients |
# |---|---|---|
# | `LinearEB` | normal | normal: a variance for each, one for all, or any covariance |
# | `LogisticEB` | one of two classes | normal; up to three coefficients by adaptive quadrature |
# | `AdaMix`, `AdaMixClassifier` | normal; classes | a mixture of normals |
# | `MixtureLinearEB` | normal | a few points |
#
# Coefficients that do not vary between groups are those outside of the parentheses of a formula, or
# those not in `varying=`. If more than three coefficients vary, `LogisticEB` uses expectation
# propagation. `method=` also has Laplace's method, as of glmer.
