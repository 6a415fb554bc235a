# %% [markdown]
# # Which intervals can I trust?
#
# A 95 % interval of a group should contain the group's parameter 95 times in 100, on average over
# groups. Does it? This depends on the number of groups, on the prior, and on the true population,
# which nobody knows. `ebfed.evaluation.coverage` measures it for every prior, likelihood and
# channel. This page runs a small part of that study, and says what follows from it.
#
# ## What an interval contains
#
# Eight schools (Rubin 1981) tried a training, and each has an estimated effect with a standard
# error. The likeliest spread of the true effects is zero. If the population is taken to be as
# fitted, all schools have the same effect. But a spread of ten points is plausible too.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import ebfed as eb
from ebfed.evaluation import coverage

effects, errors = [28, 8, -3, 7, -1, 1, 18, 12], [15, 10, 16, 11, 9, 11, 10, 18]
posterior = eb.posterior_from(effects, errors)
messages = eb.likelihoods.Gaussian(np.array([effects], float).T, np.array([errors], float).T ** 2)
fitted = posterior.prior.posterior(messages, integrate=False)
table = pd.DataFrame({"effect": effects, "std_error": errors, "estimate": posterior.mean[:, 0]})
for name, each in {"as fitted": fitted, "all plausible": posterior}.items():
    lower, upper = each.interval()
    table[name] = [f"{a:.0f} to {b:.0f}" for a, b in zip(lower[:, 0], upper[:, 0], strict=True)]
print(table.round(1).to_string(index=False))

# %% [markdown]
# The last column has the intervals of `posterior.interval()`. They are averages over all
# populations that the eight effects leave plausible. The column before takes the fitted population
# as known (`integrate=False`). Do not use it with few groups: it says how groups differ within one
# population, not how much is known.
#
# ## Inside the family
#
# The study draws groups from a known population, fits a prior to their messages, and computes how
# often intervals contain the truth. Here the population is normal, with a standard deviation of .3
# (`small`) or 2 (`large`), and each group has an estimate with a standard error of 1. Beside the
# coverage is the mean width, relative to the intervals of an oracle that knows the population.

# %%
inside = coverage.run(
    10,
    channel=["exact"],
    likelihood=["gaussian"],
    population=["normal"],
    n=["equal"],
    m=[6, 40, 200],
    priors=["normal", "point_normal", "npmle"],
    n_jobs=1,
)
rows = inside.table[["prior", "spread", "m", "coverage", "coverage_se", "relative_width"]]
print(rows.sort_values(["prior", "spread", "m"]).round(3).to_string(index=False))

# %%
figure, axes = plt.subplots(1, 2, sharey=True, figsize=(9, 3.5), layout="constrained")
for ax, (spread, part) in zip(axes, inside.table.groupby("spread"), strict=True):
    for prior, line in part.sort_values("m").groupby("prior"):
        ax.errorbar(line["m"], line["coverage"], 2 * line["coverage_se"], marker="o", label=prior)
    ax.axhline(0.95, color="grey", linewidth=1)
    ax.set(xscale="log", xlabel="groups", title=f"{spread} spread")
axes[0].set_ylabel("coverage")
axes[1].legend()

# %% [markdown]
# With six groups and a small spread, intervals are about twice as wide as the oracle's. The
# population is not known, and no method avoids this. With two hundred groups the intervals of a
# parametric prior are nearly as short as the oracle's. The NPMLE needs more groups, because its
# shape is estimated too. With a large spread the population matters less, and all widths are near
# the oracle's. No interval has zero width:

# %%
print(f"share of fits with an interval of no width: {inside.table['zero_width'].max():.0%}")
assert (inside.table["zero_width"] == 0).all()

# %% [markdown]
# ## Outside the family
#
# The true population is now skewed, or has heavy tails (Student's t with three degrees of freedom),
# or has two values only. The normal prior is wrong for all of these. `kind="robust"` widens its
# intervals until they cover for every population with the same second and fourth moments. The NPMLE
# assumes no shape.

# %%
outside = coverage.run(
    10,
    channel=["exact"],
    likelihood=["gaussian"],
    population=["skewed", "t(3)", "spikes"],
    n=["equal"],
    m=[40],
    priors=["normal", "npmle"],
    n_jobs=1,
)
columns = ["population", "spread", "prior", "coverage", "relative_width", "robust_coverage"]
print(outside.table[columns].round(3).to_string(index=False, na_rep=""))

# %% [markdown]
# On average over groups the normal prior covers well even here. But the average hides a difference.
# The intervals of the few groups far from the mean fail too often. The intervals of groups in the
# middle contain the truth too often. If single extreme groups matter, use robust intervals, or a
# prior that can have this shape.
#
# ## Numbers of rows that depend on the parameter
#
# A hospital with good results may attract more patients. Then the number of rows says something
# about the parameter, and a population that is the same for all groups does not use it. In the
# study, the rank of a group's parameter is its chance of many rows, not few.

# %%
sizes = coverage.run(
    30,
    channel=["exact"],
    likelihood=["gaussian"],
    population=["normal"],
    spread=["large"],
    m=[15],
    priors=["normal"],
    n_jobs=1,
)
columns = ["n", "coverage", "coverage_se", "relative_width", "robust_coverage"]
print(sizes.table[columns].round(3).to_string(index=False))

# %% [markdown]
# If a plot of estimates against numbers of rows shows a trend, let the population depend on them
# (see below).
#
# ## Private reports
#
# Fifteen groups send their rates through a channel, at a small and at a large epsilon. A group's
# estimate uses its own exact data and a population that is fitted to the reports.

# %%
private = coverage.run(
    6,
    likelihood=["binomial"],
    channel=["UnaryEncoding(0.5)", "UnaryEncoding(4)", "exact"],
    population=["beta"],
    spread=["large"],
    n=["equal"],
    m=[15],
    priors=["beta"],
    n_jobs=1,
)
columns = ["channel", "coverage", "relative_width", "mean_coverage", "new_coverage"]
print(private.table[columns].round(3).to_string(index=False))

# %% [markdown]
# With noise on the reports the population is known less well, and intervals are wider.
# `mean_coverage` is of the interval of the population's mean, and `new_coverage` of a group without
# any data, which depends on the population alone.
#
# ## Every kind of rows
#
# Means, rates, events, variances, durations, negative binomial counts, shares of categories, and
# estimates with t errors: each with a population of its own family, and the same number of rows in
# all groups. These are stored figures of the whole study: 16 fits with 6 groups, 10 with 15, 6 with
# 40 and 4 with 200.

# %%
reference = Path(__file__).parents[1] / "tests" / "reference"
record = pd.read_csv(reference / "coverage_table.csv")
exact, equal = record["channel"] == "exact", record["n"] == "equal"
families = ["normal", "beta", "gamma", "inverse_gamma", "dirichlet"]
own = record[exact & equal & record["prior"].isin(families)]
own = own[own["prior"] == own["population"]]
print((100 * own.pivot_table("coverage", ["likelihood", "spread"], "m", sort=False)).round(1))
print("standard error at most:", own.groupby("m")["coverage_se"].max().round(3).to_dict())

# %% [markdown]
# Every prior, averaged over the populations inside its family, and the lowest of them:

# %%
inside = record[exact & record["inside"]].groupby(["likelihood", "prior", "m"], sort=False)
both = inside["coverage"].agg(["mean", "min"]).unstack("m")
print((100 * both).round(1).to_string(na_rep=""))

# %% [markdown]
# Through channels:

# %%
names = ["likelihood", "channel", "prior"]
private = record[~exact].pivot_table("coverage", names, "m", sort=False)
print((100 * private).round(1).to_string())

# %% [markdown]
# The interval of the population's mean, through the same channels. Two bits say little of rates of
# events: `npmle` is drawn to the middle of the channel's range, at a small epsilon above all, and
# this interval misses the mean too often, though those of groups, which have their own rows, hold:

# %%
means = record[~exact].pivot_table("mean_coverage", names, "m", sort=False)
print((100 * means).round(0).to_string())

# %% [markdown]
# ## Populations that depend on numbers of rows
#
# `normal, modelled` and `npmle, modelled` are populations whose location and spread depend on the
# logarithm of the number of rows (`priors.LocationScale`). The true population is normal; numbers
# of rows are unequal, and say nothing of the parameter or are informative. Coverage in per cent,
# and the width beside the oracle's:

# %%
normal = record[exact & ~equal & (record["likelihood"] == "gaussian")]
normal = normal[(normal["population"] == "normal") & normal["prior"].str.match("normal|npmle")]
normal = normal[normal["prior"] != "npmle_bootstrap"]
for figure, factor in (("coverage", 100), ("relative_width", 1)):
    print((factor * normal.pivot_table(figure, ["n", "spread", "prior"], "m")).round(2).to_string())

# %% [markdown]
# Where the spread is small and numbers of rows are informative, one population for all covers less
# the more groups there are. A modelled one covers. Its price is width, above all of few groups with
# a small spread.
#
# ## What covers less than 93 %
#
# Inside the family, the lowest of each. With standard errors up to .03 some are so by chance:

# %%
low = record[record["inside"] & (record["coverage"] < 0.93)]
lowest = low.groupby([*names, "m"], sort=False)["coverage"].min().unstack("m")
print((100 * lowest.sort_index(axis=1)).round(1).to_string(na_rep=""))
wide = record[exact & record["inside"] & (record["spread"] == "large")]
print("\nwide gamma populations, on average:")
print(100 * wide[wide["prior"] == "gamma"].groupby("m")["coverage"].mean().round(3))

# %% [markdown]
# The bootstrap finds no spread in some fits, and its intervals then have no width. Wide gamma
# populations of few groups are a little low.

# %% [markdown]
# ## When to trust which
#
# - A parametric prior (`normal`, `beta`, `gamma`, `laplace`) whose shape is plausible: trust its
#   intervals at any number of groups. With few groups they are wide, and this is right.
# - Fewer than about twenty groups: choose a parametric prior. Few groups cannot show the shape, and
#   the answers of `npmle` and `log_spline` depend on assumptions that the data cannot check.
# - `npmle` and `log_spline`: from about forty groups on, if the shape is not known. A log-spline is
#   smooth: where the population has spikes or a pole, at a rate of 0 for example, use the NPMLE.
#   Through channels the intervals of both cover nearly as well as without them.
# - `Discrete("npmle", uncertainty="bootstrap")` assumes no prior of the population's shape. Its
#   intervals are shorter than those of `"npmle"`, and cover less: in some settings below 85 %,
#   where the fit finds no spread though there is some. A fit takes 50 times as long.
# - Priors with a point at zero: if some effects really are zero. Else their intervals are a little
#   too narrow with few groups.
# - `kind="robust"`: if the shape is unknown and single groups far from the mean matter.
# - A group without data: its interval is the population's. Trust it only if the shape is right.
# - `confint` of the population's mean: needs more groups than the intervals of groups do. Through
#   two bits trust that of a parametric prior rather than that of `npmle`.
# - `integrate=False` and intervals of other programs that take the population as known: with
#   hundreds of groups and a spread that is clearly above zero.
#
# The whole table, for every prior, likelihood and channel and up to 2,000 groups, is printed by
# `ebfed.evaluation.coverage`.
