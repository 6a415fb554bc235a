# %% [markdown]
# # Which channel? The price of privacy, compared
#
# A group needs only the population of the other groups. So no group has to show its rows. It can
# send a private report, and the population is fitted to the reports. Channels differ in what they
# send, in their guarantee, and in how much information remains. This page compares them on the six
# elections of the counties, and on normal means.
#
# The guarantee is local: a reader of a report, the server included, learns little about the group's
# data. For any two data sets of a group, no report is more than exp(epsilon) times as likely with
# one as with the other. Delta is, roughly, the probability that this fails.

# %%
from functools import partial

import numpy as np
import pandas as pd

import ebfed as eb
from ebfed import channels
from ebfed.privacy.audit import audit

outcomes = eb.datasets.load_county_outcomes()
rows = {"X": outcomes[["republican"]], "groups": outcomes["county"]}
exact = eb.BernoulliEB().fit(**rows)
print(exact.tidy().round(3).to_string(index=False))

# %% [markdown]
# ## What is sent
#
# Two counties, one that never and one that always voted Republican, report five times each, at an
# epsilon of one.

# %%
DELTA = 1e-6
menu = {
    "OneBit": channels.OneBit,
    "TwoBit": channels.TwoBit,
    "RandomizedResponse": channels.RandomizedResponse,
    "Hybrid": channels.Hybrid,
    "Gaussian": partial(channels.Gaussian, delta=DELTA),
    "DiscreteGaussian": partial(channels.DiscreteGaussian, delta=DELTA),
}
two = eb.Summary.from_counts([0, 6], [6, 6])
for name, make in menu.items():
    settings = {"split": 0.5} if name == "TwoBit" else {}  # how many are asked which question
    channel = make(epsilon=1, range=(0, 1), **settings)
    reports = np.array([channel.encode(two, rng=seed)["report"][:, 0] for seed in range(5)])
    never, always = (" ".join(f"{x:.2g}" for x in 1.0 * column) for column in reports.T)
    delta = channel.guarantee(1)[1]
    print(f"{name:<19} delta {delta:<6g} never: {never:<28} always: {always}")

# %% [markdown]
# `OneBit` answers one question. `TwoBit` sends which of two questions it was asked, and the answer.
# `RandomizedResponse` sends a count of wins that may be wrong. The others send numbers with noise.
# `DiscreteGaussian` sends whole numbers, which do not depend on the rounding of a machine. A single
# report has very little information, as it should.
#
# ## How much information remains
#
# The same fit through each channel. The range of a rate is known, and needs no argument.

# %%
ledgers, results = [], []
for name, make in menu.items():
    est = eb.BernoulliEB(channel=make(epsilon=1), random_state=0)
    try:
        est.fit(**rows)
    except ValueError as error:
        print(f"{name} is refused. {error}\n")
        continue
    ledgers.append(est.privacy_.assign(channel=name))
    moved = np.sqrt(((est.predict() - exact.predict()) ** 2).mean())
    results.append((name, est.prior_.mean_[0], est.prior_.variance_[0] ** 0.5, moved))
names = ["channel", "mean", "sd", "estimates move"]
print(pd.DataFrame(results, columns=names).round(3).to_string(index=False))

# %% [markdown]
# One bit of each county has no information on the spread of the counties, so `OneBit` is refused
# with an error. If the spread is known from another source, one bit is enough.

# %%
X, groups, theta = eb.datasets.make_gaussian_groups(2000, 4, random_state=0)
guess = eb.channels.Guess(mean=(-1, 1), spread=1)  # public limits of the population
one = eb.GaussianEB(
    channel=channels.OneBit(epsilon=1),
    prior=eb.priors.Normal(variance=1),
    variances=1,
    guess=guess,
    random_state=0,
).fit(X, groups=groups)
mean, error = one.fixef()["estimate"].iloc[0], one.tidy("fixed")["std.error"].iloc[0]
print(f"mean of the population by one bit of each group: {mean:.2f} ± {error:.2f}, in truth 0")

# %% [markdown]
# The ledger lists what the counties sent: who, how often, with which guarantee, and how many bits.
# Every fit has one.

# %%
ledger = pd.concat(ledgers).set_index("channel")
print(ledger[["clients", "times", "epsilon", "delta", "bits"]])
for column in ("relation", "assumptions"):
    print(f"{column}: {ledger.loc['TwoBit', column]}")

# %% [markdown]
# ## The price as a plot
#
# One fit is one draw of the noise. `price_of_privacy` fits many times and computes how far
# estimates move from those without privacy (root mean square). We start at an epsilon of 1: at much
# smaller values `Hybrid` becomes one bit, and is refused. Above the line, counties would do better
# with their own rates alone.

# %%
tried = {name: menu[name] for name in ("TwoBit", "RandomizedResponse", "Hybrid", "Gaussian")}
counties = eb.price_of_privacy(exact, [1, 2, 4, 8], channels=tried, n_runs=4)
ax = eb.report.plot_privacy(counties)

# %%
wide = counties.pivot(index="channel", columns="epsilon", values="error")
print(wide.round(4).to_string())
print(f"own rates: {counties['local_error'].iloc[0]:.4f}")

# %% [markdown]
# Two randomised bits cost little even at an epsilon of 1. With a larger budget `RandomizedResponse`
# sends a small count nearly unchanged. `Gaussian` noise is for sums of many reports. Here it is the
# worst choice.
#
# Normal means need a guess of their range, and there are no counts to send. `Hybrid` is better than
# `TwoBit` for larger epsilon, because it sends a number and not an answer.

# %%
normal = eb.GaussianEB(guess=guess).fit(X, groups=groups)
del tried["RandomizedResponse"]
means = eb.price_of_privacy(normal, [1, 2, 4, 8], channels=tried, n_runs=4)
ax = eb.report.plot_privacy(means)

# %%
print(means.pivot(index="channel", columns="epsilon", values="error").round(3).to_string())
print(f"own means: {means['local_error'].iloc[0]:.3f}")

# %% [markdown]
# No channel makes estimates worse than the groups' own means, and all errors are smaller than
# these. `Gaussian` gains least. Its noise is large compared with the spread of the population. So
# many spreads are plausible after the reports, and estimates are shrunk only a little. The next
# cell shows the likeliest spread, the average over plausible populations, and the weight that
# groups' own means have in their estimates.

# %%


def describe(name, est):
    populations, shares = est.prior_.populations()
    plausible = shares[:, 0] @ np.sqrt([each.variance_[0] for each in populations])
    table = est.posterior().to_frame()
    weight = np.polyfit(table["local"], table["estimate"], 1)[0]
    likeliest = np.sqrt(est.prior_.variance_[0])
    print(f"{name:<9} likeliest sd {likeliest:.2f}, average {plausible:.2f}, own data {weight:.2f}")


for epsilon in (1, 8):
    channel = menu["Gaussian"](epsilon)
    est = eb.GaussianEB(channel=channel, variances=1, guess=guess, random_state=0)
    describe(f"epsilon {epsilon}", est.fit(X, groups=groups))
describe("exact", normal)

# %% [markdown]
# ## Does the guarantee hold?
#
# A guarantee can be tested. `audit` simulates many reports of two counties, finds an event that
# distinguishes them, and computes a lower bound of epsilon, which holds with high probability. A
# bound above the guarantee would show an error in the channel. A bound below it proves nothing, but
# shows how much of the guarantee is used. `ebfed audit` does this for every channel. The last line
# tests a claim of a smaller epsilon than the channel has, and refutes it.

# %%
bits = channels.TwoBit(epsilon=1, range=(0, 1), split=0.5)
noise = channels.Gaussian(epsilon=1, delta=DELTA, range=(0, 1))
audits = {"TwoBit": audit(bits, two), "Gaussian": audit(noise, two)}
audits["TwoBit, claimed half"] = audit(bits, two, claim=(0.5, 0.0))
for name, found in audits.items():
    print(f"{name:<21} epsilon {found.epsilon:g}, at least {found.lower:.2f}", end="; ")
    print("not refuted" if found.passed else "refuted")

# %% [markdown]
# ## Which channel when
#
# - Rates of few rows: `TwoBit` or `Hybrid` for small epsilon, `RandomizedResponse` for larger.
# - Means: `TwoBit` if epsilon is small or bits are expensive, `Hybrid` otherwise.
# - `Gaussian`, or `DiscreteGaussian` if reports must be whole numbers, for vectors and for many
#   releases, whose epsilons add up slowly. They have a delta, and need very many groups.
# - `OneBit` if only the mean of the population is needed.
#
# Try it on data like yours. `price_of_privacy` uses the exact data of all groups, and its result is
# not private.
