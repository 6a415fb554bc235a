# %% [markdown]
# # From R
#
# Estimates for many groups at once are what lme4, ebnm, ashr and ebbr give in R. Here is what one
# types there, and what here. Every line of Python on this page is executed when the page is made.
# The data: reaction times of drivers on ten days without sleep (lme4's `sleepstudy`; Belenky and
# others, 2003), and effects and batting records that are made up.

# %%
from io import StringIO

import numpy as np
import pandas as pd

import ebfed as eb

pd.set_option("display.width", 100)
TIMES = """
308 249.56 258.7047 250.8006 321.4398 356.8519 414.6901 382.2038 290.1486 430.5853 466.3535
309 222.7339 205.2658 202.9778 204.707 207.7161 215.9618 213.6303 217.7272 224.2957 237.3142
310 199.0539 194.3322 234.32 232.8416 229.3074 220.4579 235.4208 255.7511 261.0125 247.5153
330 321.5426 300.4002 283.8565 285.133 285.7973 297.5855 280.2396 318.2613 305.3495 354.0487
331 287.6079 285 301.8206 320.1153 316.2773 293.3187 290.075 334.8177 293.7469 371.5811
332 234.8606 242.8118 272.9613 309.7688 317.4629 309.9976 454.1619 346.8311 330.3003 253.8644
333 283.8424 289.555 276.7693 299.8097 297.171 338.1665 332.0265 348.8399 333.36 362.0428
334 265.4731 276.2012 243.3647 254.6723 279.0244 284.1912 305.5248 331.5229 335.7469 377.299
335 241.6083 273.9472 254.4907 270.8021 251.4519 254.6362 245.4523 235.311 235.7541 237.2466
337 312.3666 313.8058 291.6112 346.1222 365.7324 391.8385 404.2601 416.6923 455.8643 458.9167
349 236.1032 230.3167 238.9256 254.922 250.7103 269.7744 281.5648 308.102 336.2806 351.6451
350 256.2968 243.4543 256.2046 255.5271 268.9165 329.7247 379.4445 362.9184 394.4872 389.0527
351 250.5265 300.0576 269.8939 280.5891 271.8274 304.6336 287.7466 266.5955 321.5418 347.5655
352 221.6771 298.1939 326.8785 346.8555 348.7402 352.8287 354.4266 360.4326 375.6406 388.5417
369 271.9235 268.4369 257.2424 277.6566 314.8222 317.2135 298.1353 348.1229 340.28 366.5131
370 225.264 234.5235 238.9008 240.473 267.5373 344.1937 281.1481 347.5855 365.163 372.2288
371 269.8804 272.4428 277.8989 281.7895 279.1705 284.512 259.2658 304.6306 350.7807 369.4692
372 269.4117 273.474 297.5968 310.6316 287.1726 329.6076 334.4818 343.2199 369.1417 364.1236
"""
wide = pd.read_csv(StringIO(TIMES), sep=" ", header=None, index_col=0)
sleep = wide.melt(var_name="Days", value_name="Reaction", ignore_index=False)
sleep = sleep.rename_axis("Subject").reset_index().sort_values(["Subject", "Days"])
sleep["Days"] = sleep["Days"].astype(int) - 1
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
# lme4 1.1-31 says of the same model and data:

# %%
lme4 = {
    "intercept": 251.40510,
    "Days": 10.46729,
    "sd__intercept": 24.74066,
    "sd__Days": 5.92214,
    "cor__intercept.Days": 0.06555,
    "sd__Observation": 25.59180,
}
both = m.tidy().set_index("term")[["estimate"]].assign(lme4=pd.Series(lme4))
print(both)
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
# first column is what lme4 1.1-31 says.

# %%
slow = {"glmer": pd.Series({"intercept": -3.1955, "Days": 0.5852, "sd__intercept": 1.7355})}
for method in ("ep", "laplace"):
    fit = eb.from_formula("slow ~ Days + (1 | Subject)", sleep, family="binomial", method=method)
    slow[method] = fit.tidy().set_index("term")["estimate"]
print(pd.DataFrame(slow).round(3))

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
