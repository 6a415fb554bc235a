# %% [markdown]
# # Mixed models of rows that stay where they are
#
# Examination boards, hospitals and registries often want one mixed model of all their rows, which
# may not be put into one table. A linear mixed model does not need the rows: products of their
# columns are enough, once. A model of counts needs sums over groups, in some rounds. Both fits are
# those of all rows together, and no approximations of them. This page fits both to real data, says
# what is sent, and what that does **not** protect. At the end it shows the price of a fit that is
# private.
#
# The nodes of this page are on one machine and exchange packed bytes with a server, as they would
# over a network; [Three hospitals](federating.md) starts real ones.
#
# This needs `pip install ".[accounting]"`, with which the nodes check what they are asked for.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import ebfed as eb
from ebfed.testing.nodes import fit_on_nodes

reference = Path(__file__).parents[1] / "tests" / "reference"
pupils = pd.read_csv(reference / "chem97.csv.gz").merge(pd.read_csv(reference / "chem97_lea.csv"))
pupils["female"] = (pupils["gender"] == "F").astype(float)
print(pupils.head(3).to_string(index=False))
print(f"{len(pupils):,} pupils, {pupils['school'].nunique():,} schools")

# %% [markdown]
# ## A linear mixed model in one round
#
# The rows are the A-level chemistry results of 1997 in England (Chem97 of R's mlmRev). Let each
# local education authority be a node, with the pupils of its own schools. A school's intercept
# differs from that of others, as in lme4's `score ~ gcsecnt + female + (1 | school)`.


# %%
def rows(table):
    return {"X": table[["gcsecnt", "female"]], "y": table["score"], "groups": table["school"]}


authorities = [table for _, table in pupils.groupby("lea")]
nodes, _, last = fit_on_nodes(eb.LinearEB(varying=["intercept"]), [rows(t) for t in authorities])
whole = eb.LinearEB(varying=["intercept"]).fit(**rows(pupils))
print(f"{len(nodes)} nodes, {last['round']} round")
print(
    f"log-likelihood: nodes {nodes[0].log_likelihood_:.6f}, one table {whole.log_likelihood_:.6f}"
)
print(f"largest difference of coefficients {np.abs(nodes[0].mean_ - whole.mean_).max():.1e}")

# %% [markdown]
# Nothing is lost, as in pda's DLMM (Luo and others 2022), of which this is the same idea. The node
# has the estimates of its own schools, which the server does not see:

# %%
print(nodes[0].posterior().to_frame().head(3).round(3).to_string(index=False))

# %% [markdown]
# ### What is sent
#
# A school sends its number of rows and a triangle of numbers, from which the products of its
# columns follow: sums, squares and cross-products of scores. The ledger of a node says so, and that
# there is no privacy in it:

# %%
ledger = nodes[0].privacy_.iloc[0]
print(f"what: {ledger['what']}")
print(f"epsilon: {ledger['epsilon']}; {ledger['assumptions']}")

# %% [markdown]
# The triangle of a school with one pupil **is** that pupil's row, up to its sign, and few rows can
# be solved for, too. The server learns as much of:

# %%
sizes = pupils.groupby("school").size()
print(f"{(sizes == 1).sum()} schools with one pupil, {(sizes <= 4).sum()} with four or fewer")

# %% [markdown]
# `share="sums"` sends sums over all schools of a node in place of figures of each school, in more
# rounds, for the same fit. It is less that leaves, not a guarantee: a node with one school sends
# that school's figures, and sums at many values of the parameters may say much of few schools.
#
# ## Noise that differs
#
# `dispersion` gives the boys' and the girls' rows a noise of their own, as `dispformula` of
# glmmTMB. It stays one round: a school sends a triangle of the boys and one of the girls.


# %%
def with_noise(table):
    return rows(table) | {"dispersion": table["gender"]}


noisy, _, last = fit_on_nodes(
    eb.LinearEB(varying=["intercept"]), [with_noise(t) for t in authorities]
)
together = eb.LinearEB(varying=["intercept"]).fit(**with_noise(pupils))
print(
    f"{last['round']} round; noise sd",
    {k: round(v**0.5, 3) for k, v in noisy[0].noise_variances_.items()},
)
print(
    f"log-likelihood: nodes {noisy[0].log_likelihood_:.6f}, "
    f"one table {together.log_likelihood_:.6f}"
)
columns = ["fit", "npar", "logLik", "statistic", "p.value"]
print(eb.anova(one_noise=whole, by_gender=together)[columns].to_string(index=False))

# %% [markdown]
# Triangles of fewer rows are nearer to the rows: dividing a school's pupils makes more groups of
# one.
#
# ## Counts, by sums
#
# Deaths from malignant melanoma in regions of nine European nations (mmmec of R's mlmRev). Each
# nation is a node. The model is lme4's `glmer(deaths ~ uvb + offset(log(expected)) + (1 | region),
# poisson)`. No finite summary of a group is enough for it, so the server asks for derivatives of
# the log-likelihood at one value of the parameters after the other, and a nation answers with sums
# over its regions.

# %%
deaths = pd.read_csv(reference / "mmmec_nations.csv")


def counts(table):
    offset = np.log(table["expected"])
    given = {"y": table["deaths"], "groups": table["region"], "offset": offset}
    return {"X": table[["uvb"]]} | given


poisson = eb.GeneralizedEB(family="poisson", varying=["intercept"], share="sums")
nations = {name: counts(table) for name, table in deaths.groupby("nation")}
registries, _, last = fit_on_nodes(poisson, list(nations.values()))
one = eb.GeneralizedEB(family="poisson", varying=["intercept"]).fit(**counts(deaths))
print(f"{len(nations)} nodes, {last['round']} rounds")
print(
    f"log-likelihood: nodes {registries[0].log_likelihood_:.6f}, "
    f"one table {one.log_likelihood_:.6f}"
)
print(f"largest difference of coefficients {np.abs(registries[0].mean_ - one.mean_).max():.1e}")
regions = deaths.groupby("nation")["region"].nunique()
print(f"regions of a node: {regions.min()} to {regions.max()}")

# %% [markdown]
# A sum over one region is that region's figure. The ledger has these sums as disclosed, too: this
# is not private.

# %%
ledger = registries[0].privacy_.iloc[0]
print(f"what: {ledger['what']}")
print(f"times: {ledger['times']}; epsilon: {ledger['epsilon']}")

# %% [markdown]
# ## A private fit, and its price
#
# A guarantee needs noise, and a channel adds it before anything leaves. Channels are of means and
# rates of groups; there is none of regressions with the exact likelihood, so we ask for less: the
# share of top scores in each school, without covariates. Through `TwoBit` a school sends two bits,
# of which epsilon bounds what they tell; the population of schools is fitted to what the bits mean.
# `price_of_privacy` shows how far estimates move, compared with the error of a school that uses its
# own rows alone. It is computed from all rows, and is not private itself.

# %%
pupils["top"] = (pupils["score"] == 10).astype(float)
shares = eb.BernoulliEB().fit(pupils[["top"]], groups=pupils["school"])
price = eb.price_of_privacy(shares, [1, 4], channels="TwoBit", n_runs=3, verbose=0)
print(price.round(3).to_string(index=False))

# %%
channel = eb.channels.TwoBit(epsilon=2)
private = eb.BernoulliEB(channel=channel, random_state=0)
private.fit(pupils[["top"]], groups=pupils["school"])
ledger = private.privacy_.iloc[0]
print(f"mean share: exact {shares.prior_.mean_[0]:.3f}, private {private.prior_.mean_[0]:.3f}")
print(f"epsilon {ledger['epsilon']}, {ledger['relation']}; {ledger['assumptions']}")

# %% [markdown]
# Epsilon is for one school's rows as a whole, against everyone, the server too. Not protected are
# the numbers of rows and that a school takes part, and the fitted population is public.
# `random_state` makes this page the same each time, and simulated noise protects nobody: a real
# node draws it from the operating system, without a seed.
#
# The picture has the estimates of 40 schools with both populations. A school keeps its own rows, so
# that noise moves only the population that it is shrunk to.

# %%
some = slice(0, 40)
exact, noised = shares.posterior(), private.posterior()
figure, axis = plt.subplots(figsize=(6, 4))
axis.scatter(exact.mean[some, 0], noised.mean[some, 0], s=18)
axis.axline((0.2, 0.2), slope=1, color="grey", lw=1)
axis.set(xlabel="share of top scores, exact fit", ylabel="share, fit with epsilon = 2")
figure.tight_layout()

# %% [markdown]
# ## Which one?
#
# | model | what is sent | rounds | privacy |
# |---|---|---|---|
# | linear, `share="groups"` | a triangle for each group and level of noise | one | none |
# | linear, `share="sums"` | sums over a node's groups | some | none; less leaves |
# | counts, `share="sums"` | sums of derivatives over them | some | none; less leaves |
# | shares, through a channel | a noisy report of each group | one | epsilon of the ledger |
#
# The first three have the fit of all rows together; the last has that of the noisy reports.
#
# Luo and others (2022), DLMM as a lossless one-shot algorithm for collaborative multi-site
# distributed linear mixed models, Nature Communications 13.
