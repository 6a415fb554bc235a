# %% [markdown]
# # An analysis in R, line by line
#
# `vignettes/analysis.R` is a script for lme4, lmerTest, emmeans and broom.mixed. Below, each of its
# lines is followed by the line of Python that does the same. The lines of Python are executed when
# this page is built, and their numbers are compared with those that R printed
# (`tests/reference/analysis.R` stores them).

# %%
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd

import ebfed as eb

pd.set_option("display.width", 100)
project = Path(__file__).parents[1]  # of a checkout
reference = project / "tests" / "reference"
in_r = (project / "vignettes" / "analysis.R").read_text().splitlines()

# %% [markdown]
# The translation has as many lines as the script.

# %%
IN_PYTHON = """\
#
import pandas as pd, ebfed as eb

#
sleep = pd.read_csv(reference / "sleepstudy.csv")
len(sleep)
sleep.groupby("Subject")["Reaction"].mean()
m = eb.from_formula("Reaction ~ Days + (Days | Subject)", sleep)
m.fixef()["estimate"]
m.tests()["std.error"]
m.tidy("ran_pars")["estimate"]
m.ranef().drop(columns="Subject")
m.coef().drop(columns="Subject")
m.predict()
m.augment()[".resid"]
m.predict(pd.DataFrame({"Days": [0, 9]}))
m.predict(pd.DataFrame({"Days": [10, 11], "Subject": 308}))
m.tidy("fixed")[["estimate", "std.error", "statistic"]]
m.glance()[["nobs", "sigma", "logLik", "AIC", "BIC", "REMLcrit"]]
m.augment()[[".fitted", ".resid", ".fixed"]]
m.tests()[["df", "statistic", "p.value"]]
m.tests(ddf="kenward-roger")[["df", "statistic", "p.value"]]
m.confint(ddf="asymptotic")[["conf.low", "conf.high"]]
m.confint(method="profile")[["conf.low", "conf.high"]]
m0 = eb.from_formula("Reaction ~ Days + (1 | Subject)", sleep)
m1 = eb.from_formula("Reaction ~ Days + I(Days**2) + (Days | Subject)", sleep)
eb.anova(m0, m, boundary=False).loc[1, ["AIC", "BIC", "statistic", "df", "p.value"]]
eb.anova(m, m1, boundary=False).loc[1, ["AIC", "BIC", "statistic", "df", "p.value"]]
w = eb.from_formula("Reaction ~ Days + (1 | Subject)", sleep, weights=sleep["Days"] + 1)
w.fixef()["estimate"]
d = eb.from_formula("Reaction ~ Days + (Days || Subject)", sleep, method="ml")
d.tidy("ran_pars")["estimate"]
d.log_likelihood_
#
cake = pd.read_csv(reference / "cake.csv").assign(temp=lambda x: x["temperature"].astype(str))
k = eb.from_formula("angle ~ recipe * temp + (1 | batch)", cake)
k.tests(type="III", ddf="kenward-roger")[["num.df", "den.df", "statistic", "p.value"]]
e = k.margins("recipe", ddf="kenward-roger")
e.frame()[["estimate", "std.error", "df", "conf.low", "conf.high"]]
e.pairs()[["estimate", "std.error", "df", "p.value"]]
e.pairs("holm")[["estimate", "std.error", "df", "p.value"]]
e.contrast({"A": [1, -0.5, -0.5]})[["estimate", "std.error", "df", "p.value"]]
k.margins("temp").frame()[["estimate", "std.error", "df"]]
#
oats = pd.read_csv(reference / "oats.csv").rename(columns={"yield": "weight"})
o = eb.from_formula("weight ~ nitro * variety + (1 | block / variety)", oats)
o.fixef()["estimate"]
o.tidy("ran_pars")["estimate"].sort_values()
o.tests(type="III")[["num.df", "den.df", "statistic", "p.value"]]
o.margins("variety", slope="nitro").frame()[["estimate", "std.error", "df"]]
o.margins("variety", at={"nitro": 0.5}).frame()[["estimate", "std.error", "df"]]
#
cattle = pd.read_csv(reference / "cbpp.csv").astype({"period": str})
g = eb.from_formula("cbind(incidence, size - incidence) ~ period + (1 | herd)", cattle)
g.fixef()["estimate"]
g.tidy("ran_pars")["estimate"]
g.tidy("fixed")["std.error"]
g.margins("period", ddf="asymptotic").frame(scale="response")[["estimate", "std.error"]]
#
epil = pd.read_csv(reference / "epil.csv").eval("lbase = log(base)").eval("lage = log(age)")
p = eb.from_formula("y ~ center(lbase)*trt+center(lage) + V4 + (1|subject)", epil, family="poisson")
p.fixef()["estimate"]
p.tidy("ran_pars")["estimate"]
""".splitlines()
assert len(IN_PYTHON) == len(in_r)

# %% [markdown]
# Two optimisers stop near the optimum, not at it: numbers are compared to 2 in 1,000, or of a
# column to 2 in 10,000 of its largest. Degrees of freedom and profiles differ most.


# %%
def numbers(value):
    """Numbers of a result, column by column."""
    return np.asarray(value, float).ravel(order="F")


stored = pd.read_csv(reference / "analysis.csv").groupby("line")["value"].apply(np.array)
names = {"reference": reference}
for place, line, same in zip(count(1), in_r, IN_PYTHON):
    if line.startswith("#"):
        print(f"\n{line}")
        continue
    print(f"R       {line}\nPython  {same}")
    if place not in stored:
        exec(same, names)
        continue
    found, expected = numbers(eval(same, names)), stored[place]
    assert found.shape == expected.shape, (line, found, expected)
    assert np.allclose(found, expected, rtol=2e-3, atol=2e-4 * np.abs(expected).max()), (
        line,
        found,
        expected,
    )
    print("        ", np.array2string(found[:6], precision=4, suppress_small=True))

# %% [markdown]
# Every driver's own line by least squares, and its estimate:

# %%
ax = eb.report.plot_coefficients(names["m"])
