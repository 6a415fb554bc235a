# %% [markdown]
# # From R
#
# Estimates for many groups at once are what lme4, ebnm, ashr and ebbr give in R. Here is what one
# types there, and what here. Every line of Python on this page is executed when the page is made.
# The data: reaction times of drivers on ten days without sleep (lme4's `sleepstudy`; Belenky and
# others, 2003), and effects and batting records that are made up.

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
# ## One fit, read in both languages
#
# A formula is a string; the frame comes second, as in R.

# %%
m = eb.from_formula("Reaction ~ Days + (Days | Subject)", sleep)
print(m.summary())

# %% [markdown]
# lme4 1.1-31 was given the same model and data, and what it said is stored:


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
assert np.allclose(both["estimate"], both["lme4"], rtol=1e-4)  # where both searches stop

# %% [markdown]
# Every driver's own line, by least squares, and where the others draw it:

# %%
ax = eb.report.plot_coefficients(m)

# %% [markdown]
# ## Phrases
#
# The first line of a pair is R, the second is Python and is executed; after it, what comes back.


# %%
def say(pairs):
    """Print what is typed in R, and what is typed here, having tried it."""
    for there, here in pairs:
        exec(f"answer = {here}", names)
        print(f"{there}\n    {here}    # {type(names['answer']).__name__}")


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
        "glmer(slow ~ Days + (1 | Subject), sleep, binomial)",
        'eb.from_formula("slow ~ Days + (1 | Subject)", sleep, family="binomial")',
    ),
    ("summary(m)", "m.summary()"),
    ("fixef(m)", "m.fixef()"),
    ("ranef(m)$Subject", "m.ranef()"),
    ("coef(m)$Subject", "m.coef()"),
    ('confint(m, method = "Wald")', "m.confint()"),
    ("predict(m, new)", "m.predict(new)"),
    ("predict(m, new, re.form = NA)", 'm.predict(new.drop(columns="Subject"))'),
    ("merTools::predictInterval(m, new)", "m.predict_interval(new, level=0.8)"),
    ("AIC(m, m2)", "eb.compare(m, m2)"),
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
say(LME4 + BROOM)

# %% [markdown]
# What ebnm and ashr call a prior family is `prior=` here. As there, the mode is 0 unless you say
# otherwise, but for the normal, whose mean is estimated.

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
    ("logLik(e)", "e.prior.log_marginal(e.likelihood).sum()"),
]
ASHR = [
    (
        'a <- ash(x, s, mixcompdist = "normal")',
        'a = eb.posterior_from(x, s, "scale_mixture")',
    ),
    ("a$result", "a.to_frame()"),
    ("get_lfsr(a)", "a.local_false_sign_rate()"),
    ("get_pi0(a)", "a.prior.weights_[a.prior.scales_ == 0].sum()"),
]
say(EBNM + ASHR)

# %% [markdown]
# ebbr's rates are counts and trials.

# %%
EBBR = [
    (
        "prior <- ebb_fit_prior(career, H, AB)",
        'prior = eb.from_formula("cbind(H, AB) | player", career)',
    ),
    ("tidy(prior)", "prior.tidy()"),
    ("augment(prior, career)", "prior.posterior().to_frame()"),
    ("add_ebb_prop_test(augment(prior, career), .25)", "prior.posterior().prob_below(0.25)"),
    (
        'ebb_fit_prior(career, H, AB, method = "gamlss", mu_predictors = ~ left)',
        'eb.from_formula("cbind(H, AB) ~ left + (1 | player)", career, eb.BernoulliEB())',
    ),
]
say(EBBR)

# %%
prior = names["prior"]
ax = eb.report.plot_shrinkage(prior)

# %% [markdown]
# ## What is different
#
# **Trials, not failures.** R's `cbind(won, lost)` counts failures. Here the second is the number of
# trials, unless it is called failures. These are the same fit:

# %%
lost = eb.from_formula("cbind(H, failures=AB - H) | player", career)
print(prior.fixef()["estimate"][0], lost.fixef()["estimate"][0])
assert np.isclose(prior.fixef()["estimate"][0], lost.fixef()["estimate"][0])

# %% [markdown]
# **Likelihoods of REML fits.** REML is the default, as in lme4. But lme4's `logLik` and `AIC` of
# such a fit are those of the restricted likelihood, which do not compare between fits with other
# fixed effects. Here they are those of the likelihood itself, at the estimates of REML; what lme4
# reports is in `REMLcrit`.

# %%
facts = m.glance().iloc[0]
print(f"logLik here {facts['logLik']:.2f}; lme4's for the same fit {-facts['REMLcrit'] / 2:.2f}")

# %% [markdown]
# **Laplace's method.** glmer approximates the likelihood by Laplace's method. What has that name
# here replaces each group's posterior by its mode and curvature, as penalised quasi-likelihood
# does, and finds too little spread. The default is expectation propagation; compare with that. The
# stored answers of lme4 are those by Laplace's method and by quadrature (`nAGQ = 25`).

# %%
slow = {"glmer": stored("sleepstudy_slow"), "nAGQ = 25": stored("sleepstudy_slow_quadrature")}
for method in ("ep", "laplace"):
    fit = eb.from_formula("slow ~ Days + (1 | Subject)", sleep, family="binomial", method=method)
    slow[method] = fit.tidy()["estimate"].to_numpy()
print(pd.DataFrame(slow, index=fit.tidy()["term"]).round(3))

# %% [markdown]
# **One factor of groups.** Crossed and nested factors are lme4's alone.

# %%
try:
    eb.from_formula("Reaction ~ 1 + (1 | Subject) + (1 | Days)", sleep)
except ValueError as error:
    print("ValueError:", error)

# %% [markdown]
# **Intervals.** `confint` is Wald's, and there are none for spreads; lme4's default profiles the
# likelihood. **Names.** Columns are broom.mixed's; the constant is `intercept`, without
# parentheses, and `mean` where nothing else is estimated. **Missing values** are an error, not left
# out in silence: `missing="drop"` leaves them out, and the summary counts them.

# %%
gaps = sleep.assign(Reaction=sleep["Reaction"].where(sleep["Days"] != 3))
print(eb.from_formula("Reaction ~ Days + (Days | Subject)", gaps, missing="drop").summary())

# %% [markdown]
# ## From within R
#
# `vignettes/from_r.R` is an R script that calls ebfed by reticulate, and compares with lme4 if that
# is installed. It begins so:
#
# ```r
# library(reticulate)
# eb <- import("ebfed")
# fit <- eb$from_formula("Reaction ~ Days + (Days | Subject)", lme4::sleepstudy)
# print(fit$summary())
# ```
#
# Whole numbers need their L: `fit$ranks("Days", top = 3L)`.
