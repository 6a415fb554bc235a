# %% [markdown]
# # Coming from R: lme4, ebnm, ashr, ebbr, metafor and sae
#
# In R, the packages lme4, ebnm, ashr and ebbr estimate many groups at once, metafor combines
# studies, and sae estimates small areas. This page shows their commands and the commands of ebfed.
# Every line of Python on this page is executed when the page is built.
# [An analysis in R, line by line](analysis.md) has a whole script. The data are reaction times
# of drivers on ten days without sleep (lme4's `sleepstudy`; Belenky and others, 2003), trials of a
# vaccine and a survey (see [Meta-analysis](meta_analysis.md) and [Small areas](small_areas.md)),
# and effects and batting records that are made up.

# %%
from pathlib import Path

import numpy as np
import pandas as pd

import ebfed as eb

pd.set_option("display.width", 100)
reference = Path(__file__).parents[1] / "tests" / "reference"  # of a checkout
sleep = pd.read_csv(reference / "sleepstudy.csv")
sleep["slow"] = (sleep["Reaction"] > 300).astype(int)

rng = np.random.default_rng(1)
x_true = np.where(rng.random(200) < 0.8, 0.0, rng.normal(0, 3, 200))
s = rng.uniform(0.5, 1.5, 200)
x = x_true + s * rng.normal(size=200)

career = pd.DataFrame({"player": [f"p{i:03d}" for i in range(300)]})
career["AB"] = rng.integers(20, 600, 300)
career["left"] = rng.integers(0, 2, 300)
career["H"] = rng.binomial(career["AB"], rng.beta(80, 220, 300))
print(sleep.head(3), career.head(3), sep="\n")

# %% [markdown]
# ## One fit in both languages
#
# A formula is a string. The frame is the second argument, as in R.

# %%
m = eb.from_formula("Reaction ~ Days + (Days | Subject)", sleep)
print(m.summary())

# %% [markdown]
# The results of lme4 1.1-31 for the same model and data are stored:


# %%
def stored(case):
    """Fixed effects, then standard deviations and correlations: in the order of `tidy`."""
    columns = []
    for what, column in {"fixef": "estimate", "varcor": "sdcor"}.items():
        table = pd.read_csv(reference / f"lme4_formulas_{what}.csv")
        columns.append(table.loc[table["case"] == case, column])
    return np.concatenate(columns)


both = m.tidy()[["term", "estimate"]].assign(lme4=stored("sleepstudy"))
print(both.to_string(index=False))
assert np.allclose(
    both["estimate"], both["lme4"], rtol=1e-4
)  # both optimisers stop near the optimum

# %% [markdown]
# The plot shows every driver's own line by least squares, and its estimate:

# %%
ax = eb.report.plot_coefficients(m)

# %% [markdown]
# ## Commands
#
# The first line of a pair is R. The second is Python and is executed; the comment is the class of
# the result.


# %%
def show(pairs):
    """Print commands of R and of Python, after running those of Python."""
    for in_r, in_python in pairs:
        exec(f"answer = {in_python}", names)
        print(f"{in_r}\n    {in_python}    # {type(names['answer']).__name__}")


LME4 = [
    (
        "m <- lmer(Reaction ~ Days + (Days | Subject), sleep)",
        'm = eb.from_formula("Reaction ~ Days + (Days | Subject)", sleep)',
    ),
    (
        "lmer(Reaction ~ Days + (Days || Subject), sleep)",
        'eb.from_formula("Reaction ~ Days + (Days || Subject)", sleep)',
    ),
    (
        "lmer(Reaction ~ Days + (0 + Days | Subject), sleep)",
        'eb.from_formula("Reaction ~ Days + (0 + Days | Subject)", sleep)',
    ),
    (
        "m2 <- lmer(Reaction ~ Days + (1 | Subject), sleep, REML = FALSE)",
        'm2 = eb.from_formula("Reaction ~ Days + (1 | Subject)", sleep, method="ml")',
    ),
    (
        "lmer(Reaction ~ Days + (1 | Subject), sleep, weights = Days + 1)",
        'eb.from_formula("Reaction ~ Days + (1 | Subject)", sleep, weights=sleep.Days + 1)',
    ),
    (
        "g <- glmer(slow ~ Days + (1 | Subject), sleep, binomial)",
        'g = eb.from_formula("slow ~ Days + (1 | Subject)", sleep, family="binomial")',
    ),
    ("predict(g)", 'g.predict(type="link")'),
    ('predict(g, type = "response")', "g.predict()"),
    ("summary(m)", "m.summary()"),
    ("VarCorr(m)", "m.VarCorr()"),
    ("vcov(m)", "m.vcov()"),
    ("sigma(m)", "m.sigma()"),
    ("lmerTest: anova(m)", 'm.tests(type="III")'),
    ("fixef(m)", "m.fixef()"),
    ("ranef(m)$Subject", "m.ranef()"),
    ("coef(m)$Subject", "m.coef()"),
    ('confint(m, method = "Wald")', 'm.confint(ddf="asymptotic")'),
    ('confint(m, method = "profile")', 'm.confint(method="profile")'),
    ("predict(m, new)", "m.predict(new)"),
    ("predict(m, new, re.form = NA)", 'm.predict(new.drop(columns="Subject"))'),
    ("merTools::predictInterval(m, new)", "m.predict_interval(new, level=0.8)"),
    ("AIC(m, m2)", "eb.compare(m, m2)"),
    ("emmeans(m, ~ Days, at = list(Days = c(0, 9)))", 'm.margins("Days", at={"Days": [0, 9]})'),
    ("anova(m, m2)", "eb.anova(m, m2, boundary=False)"),
    ("lattice::dotplot(ranef(m))", 'eb.report.plot_caterpillar(m, column="Days")'),
]
BROOM = [
    ("tidy(m, conf.int = TRUE)", "m.tidy(conf_int=True)"),
    ('tidy(m, effects = "ran_vals")', 'm.tidy("ran_vals")'),
    ('tidy(m, effects = "ran_coefs")', 'm.tidy("ran_coefs")'),
    ("glance(m)", "m.glance()"),
    ("augment(m)", "m.augment()"),
]
names = {"eb": eb, "sleep": sleep, "new": sleep.head(), "career": career, "x": x, "s": s}
show(LME4 + BROOM)

# %% [markdown]
# The prior family of ebnm and ashr is `prior=` here. As in these packages, the mode is 0 by
# default. The exception is the normal, whose mean is estimated.

# %%
EBNM = [
    ('ebnm_normal(x, s, mode = "estimate")', "eb.posterior_from(x, s)"),
    ("e <- ebnm_point_normal(x, s)", 'e = eb.posterior_from(x, s, "point_normal")'),
    (
        'ebnm_point_normal(x, s, mode = "estimate")',
        "eb.posterior_from(x, s, eb.priors.PointNormal(mode=None))",
    ),
    ("ebnm_point_laplace(x, s)", 'eb.posterior_from(x, s, "point_laplace")'),
    ("ebnm_npmle(x, s)", 'eb.posterior_from(x, s, "npmle")'),
    ("coef(e)", "e.mean"),
    ("confint(e, level = 0.9)", "e.interval(0.9)"),
    ("e$posterior_sampler(100)", "e.sample(100)"),
    ("logLik(e)", 'e.glance()["logLik"].item()'),
    ("summary(e)", "e.summary()"),
    ('e$posterior[c("mean", "sd", "lfsr")]', 'e.to_frame()[["estimate", "sd", "lfsr"]]'),
]
ASHR = [
    (
        'a <- ash(x, s, mixcompdist = "normal")',
        'a = eb.posterior_from(x, s, "scale_mixture")',
    ),
    ("a$result", "a.to_frame()"),
    ("get_lfsr(a)", "a.local_false_sign_rate()"),
    ("get_pi0(a)", "a.prior.weights_[a.prior.scales_ == 0].sum()"),
    (
        'b <- ash(x, s, mixcompdist = "normal", lik = lik_t(5), nullweight = 10)',
        "b = eb.posterior_from(x, s, eb.priors.ScaleMixture(null_weight=10), df=5)",
    ),
    ("get_lfdr(b)", "b.lfdr()"),
    ("get_qvalue(b)", "b.q_value()"),
]
LOCFDR = [
    ("w <- locfdr(x / s)", "w = eb.two_groups(x / s)"),
    ("w$fdr", "w.lfdr"),
]
show(EBNM + ASHR + LOCFDR)

# %% [markdown]
# In ebbr, rates are given as counts and trials.

# %%
EBBR = [
    (
        "prior <- ebb_fit_prior(career, H, AB)",
        'prior = eb.from_formula("cbind(H, trials=AB) | player", career)',
    ),
    ("tidy(prior)", "prior.tidy()"),
    ("augment(prior, career)", "prior.posterior().to_frame()"),
    ("add_ebb_prop_test(augment(prior, career), .25)", "prior.posterior().prob_below(0.25)"),
    (
        'ebb_fit_prior(career, H, AB, method = "gamlss", mu_predictors = ~ left)',
        'eb.from_formula("cbind(H, trials=AB) ~ left + (1 | player)", career, eb.BernoulliEB())',
    ),
]
show(EBBR)

# %% [markdown]
# In metafor, `sei` are standard errors. In sae, the third argument of `mseFH` is a variance, the
# square of the standard errors that `fay_herriot` takes.

# %%
METAFOR = [
    (
        'e <- escalc("RR", ai = cases, n1i = vaccinated, ci = control_cases, n2i = controls)',
        "e = eb.effect_sizes(bcg.cases, bcg.vaccinated, bcg.control_cases, bcg.controls)",
    ),
    ("r <- rma(yi, vi, data = e)", "r = eb.meta_analysis(e.estimate, e.std_error)"),
    ("confint(r)", "r.tau2_interval, r.i2_interval"),
    ("predict(r)", "r.predict()"),
    ("blup(r)", "r.to_frame()"),
    (
        'rma(yi, vi, mods = ~ latitude, method = "PM", test = "knha")',
        'eb.meta_analysis(e.estimate, e.std_error, bcg.latitude, method="pm", test="knha")',
    ),
    ("forest(r, atransf = exp)", "r.forest(exponentiate=True)"),
]
SAE = [
    ("f <- mseFH(direct ~ w, se^2)", "f = eb.fay_herriot(milk.direct, milk.std_error, milk.w)"),
    ("f$est$eblup; f$mse", "f.to_frame()"),
]
milk = pd.read_csv(reference / "milk.csv")
milk["w"] = (milk["major_area"] == 4) * 1.0
names |= {"bcg": pd.read_csv(reference / "bcg.csv"), "milk": milk}
show(METAFOR + SAE)

# %%
prior = names["prior"]
ax = eb.report.plot_shrinkage(prior)

# %% [markdown]
# ## Differences
#
# **Failures or trials.** `cbind(won, lost)` has successes and failures, as in R. Where a table has
# trials, they are named. The summary says which was read. These are the same fit:

# %%
lost = eb.from_formula("cbind(H, AB - H) | player", career)
print(prior.fixef()["estimate"][0], lost.fixef()["estimate"][0])
assert np.isclose(prior.fixef()["estimate"][0], lost.fixef()["estimate"][0])

# %% [markdown]
# **Likelihoods of REML fits.** REML is the default, as in lme4, and `logLik`, `AIC` and `BIC` of
# such a fit use the restricted likelihood, as in lme4. `glance` says so in the column `likelihood`,
# and the summary prints `logLik (REML)`. Restricted likelihoods cannot be compared between fits
# with different fixed effects: `compare` then refits by maximum likelihood, as `anova` of lme4
# does.

# %%
facts = m.glance().iloc[0]
print(f"logLik ({facts['likelihood']}) {facts['logLik']:.2f}; lme4 has -871.81")
assert np.isclose(facts["logLik"], -871.814136, rtol=1e-6)
mean_alone = eb.from_formula("Reaction ~ 1 + (1 | Subject)", sleep)
print(eb.compare(m, mean_alone)[["npar", "logLik", "likelihood", "AIC"]].round(2))

# %% [markdown]
# **Populations of rates.** `y ~ 1 + (1 | g)` of binomial rows has a logit-normal population, as in
# glmer; `rate | g`, `cbind(won, lost) | g` and `prior="beta"` have a beta one. The summary says
# which was fitted. Of `cbind(...)` the log-likelihood of a mixed model has binomial coefficients,
# as that of glmer; that of beta populations is of single trials, without them.

# %% [markdown]
# **Laplace's method.** glmer approximates the likelihood by Laplace's method. Here,
# `method="laplace"` is that, digit for digit, and underestimates the spread where groups have few
# rows. The default is adaptive quadrature, with as many nodes as each group needs
# (`method="aghq"`, for up to three coefficients that differ between groups); compare with that.
# The stored results of lme4 are by Laplace's method and by quadrature (`nAGQ = 25`).

# %%
slow = {"glmer": stored("sleepstudy_slow"), "nAGQ = 25": stored("sleepstudy_slow_quadrature")}
for method in ("aghq", "laplace"):
    fit = eb.from_formula("slow ~ Days + (1 | Subject)", sleep, family="binomial", method=method)
    slow[method] = fit.tidy()["estimate"].to_numpy()
print(pd.DataFrame(slow, index=fit.tidy()["term"]).round(3))

# %% [markdown]
# **Factors of groups.** Normal rows have levels, with slopes on each, `y ~ x + (1 + x |
# state/county)`, or crossed factors with slopes, `y ~ x + (1 + x | a) + (1 | b)`; so have rows of
# all other families, as of `glmer`. Rates have levels without slopes.

# %%
print(eb.from_formula("Reaction ~ 1 + (1 | Subject) + (1 | Days)", sleep).tidy())

# %% [markdown]
# **Intervals.** `confint` gives Wald intervals by default, and none for standard deviations; lme4
# profiles the likelihood by default, as `method="profile"` does here; `method="restricted"`, the
# restricted likelihood, is better of the spreads of few groups. **Names.** Columns have the
# names of broom.mixed. The constant is `intercept`, without parentheses, and `mean` in models
# without other terms. **Counts.** A model of counts, `family="poisson"`, has a normal population of
# log rates, as in `glmer`, where it has columns or `prior="log-normal"`; else rates are gamma.
# **Predictions** are those of `type = "response"` in R: means, probabilities, and counts at the
# exposure that the offset says; `type="rate"` is at an exposure of 1, and `type="link"` is the
# linear predictor, which `predict` of glmer gives if no type is named. **Two labels**: the second
# is the event, in the order of the levels of a category, else in sorted order.
# **Missing values** are an error, as with `na.fail`. `na_action="drop"` is `na.omit`, and the
# summary counts the rows left out; `"exclude"` is `na.exclude`: `predict` and `augment` have these
# rows too. **Subsets** are expressions of columns, `subset="Days > 1 & Subject != 308"`.

# %%
gaps = sleep.assign(Reaction=sleep["Reaction"].where(sleep["Days"] != 3))
print(eb.from_formula("Reaction ~ Days + (Days | Subject)", gaps, na_action="drop").summary())

# %% [markdown]
# ## From within R
#
# `vignettes/ebfed.R` has functions of R that call ebfed by reticulate: `ebfed` takes a formula and
# a data frame, and `tidy`, `glance` and `augment` return the frames of broom.
#
# ```r
# source("vignettes/ebfed.R")
# fit <- ebfed(Reaction ~ Days + (Days | Subject), lme4::sleepstudy)
# fit
# tidy(fit, conf.int = TRUE)
# ```
#
# `fixef`, `ranef`, `coef`, `confint`, `predict` and `logLik` work too. Other methods are those of
# the Python object, `fit$py$ranks("Days", top = 3L)`. Integers need an L. What is NA in R is
# missing, and factors keep the order of their levels; a data frame that is given to a method of
# `fit$py` needs `as_frame(data)`, because reticulate passes a missing integer as a number.
# `vignettes/from_r.R` tries all of this, and compares the results with lme4 if that is installed.
