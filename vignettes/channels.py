# %% [markdown]
# # Choosing a channel: the price of privacy
#
# A group needs from the others only what groups are like. So it need not show its rows: it can send
# a report that is private, and the population is fitted to what the reports allow. Channels differ
# in what they send, what they promise, and how much is left. This page tries them on the six
# elections of the counties, and on normal means.
#
# The promise is local: whoever reads a report, the server included, learns little of the group's
# data. With epsilon and any two data sets that a group might have, no report is more than
# exp(epsilon) times likelier with one than with the other; a delta is, roughly, the probability
# with which that may fail.

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
# `OneBit` answers one question, `TwoBit` says which of two questions it was asked and answers that;
# `RandomizedResponse` sends a count of wins that may be wrong; the others send numbers with noise.
# `DiscreteGaussian` sends whole numbers, which leave nothing to the rounding of a machine. A single
# report is worth next to nothing to anyone, as it should be.
#
# ## What is left of it
#
# The same fit through each channel. The range of a rate is known, and need not be said.

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
# One bit about where a county lies says nothing about how far counties lie apart, so `OneBit` is
# refused rather than fitted to something. If the spread is known from elsewhere it will do.

# %%
X, groups, theta = eb.datasets.make_gaussian_groups(2000, 4, random_state=0)
guess = eb.Guess(mean=(-1, 1), spread=1)  # where the population may lie, publicly
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
# The ledger says what left the counties: who was asked, how often, under which promise, and how
# many bits. It is a part of every fit.

# %%
ledger = pd.concat(ledgers).set_index("channel")
print(ledger[["clients", "times", "epsilon", "delta", "bits"]])
for column in ("relation", "assumptions"):
    print(f"{column}: {ledger.loc['TwoBit', column]}")

# %% [markdown]
# ## The price, drawn
#
# One fit is one draw of the noise. `price_of_privacy` fits many times and says how far estimates
# move from those without privacy, root mean square. We start at an epsilon of one: at much smaller
# ones `Hybrid` becomes one bit, and is refused for it. Above the line, counties had better keep to
# their own rates.

# %%
tried = {name: menu[name] for name in ("TwoBit", "RandomizedResponse", "Hybrid", "Gaussian")}
counties = eb.price_of_privacy(exact, [1, 2, 4, 8], channels=tried, n_runs=4)
ax = eb.report.plot_privacy(counties)

# %%
wide = counties.pivot(index="channel", columns="epsilon", values="error")
print(wide.round(4).to_string())
print(f"own rates: {counties['local_error'].iloc[0]:.4f}")

# %% [markdown]
# Two randomised bits cost little even at an epsilon of one; with a larger budget a count from few
# elections comes through `RandomizedResponse` nearly as it is. `Gaussian` noise is made for many
# reports that are added up, and pays for its delta: here it is the last choice.
#
# Of normal means, for which a range has to be guessed, there are no counts to send. `Hybrid`
# overtakes `TwoBit` as epsilon grows, for it sends a number and not an answer.

# %%
normal = eb.GaussianEB(guess=guess).fit(X, groups=groups)
del tried["RandomizedResponse"]
means = eb.price_of_privacy(normal, [1, 2, 4, 8], channels=tried, n_runs=4)
ax = eb.report.plot_privacy(means)

# %%
print(means.pivot(index="channel", columns="epsilon", values="error").round(3).to_string())
print(f"own means: {means['local_error'].iloc[0]:.3f}")

# %% [markdown]
# `Gaussian` stands out: with more epsilon its errors grow, and groups had better keep to their own
# means. The cause is the spread of the population, which can hardly be seen beside such noise. At a
# small epsilon the fit knows that it does not know it, and leaves groups their own data. At a
# larger one it believes what it sees, and where by chance that is no spread at all, it draws all
# groups to one mean. The next cell shows two such fits: the same noise, once larger, once smaller.

# %%
for epsilon in (1, 8):
    channel = menu["Gaussian"](epsilon)
    est = eb.GaussianEB(channel=channel, variances=1, guess=guess, random_state=0)
    est.fit(X, groups=groups)
    spread, weight = np.sqrt(est.prior_.variance_[0]), est.posterior().weight.mean()
    print(f"epsilon {epsilon}: sd of the population {spread:.2f}, weight of own data {weight:.2f}")
spread, weight = np.sqrt(normal.prior_.variance_[0]), normal.posterior().weight.mean()
print(f"exact:     sd of the population {spread:.2f}, weight of own data {weight:.2f}")

# %% [markdown]
# ## Is the promise kept?
#
# A promise can be tried. `audit` simulates many reports of two counties, looks for an event that
# tells them apart, and bounds epsilon from below, nearly certainly. A bound above the promise would
# show that the channel is broken; one below proves nothing, but shows how much of the promise is
# used. `ebfed audit` does this for every channel. The last line puts a smaller epsilon to the test
# than the channel has, and catches it.

# %%
bits = channels.TwoBit(epsilon=1, range=(0, 1), split=0.5)
noise = channels.Gaussian(epsilon=1, delta=DELTA, range=(0, 1))
audits = {"TwoBit": audit(bits, two), "Gaussian": audit(noise, two)}
audits["TwoBit, claimed half"] = audit(bits, two, claim=(0.5, 0.0))
for name, found in audits.items():
    print(f"{name:<21} epsilon {found.epsilon:g}, at least {found.lower:.2f}", end="; ")
    print("not refuted" if found.passed else "refuted")

# %% [markdown]
# ## When which
#
# - Rates of few rows: `TwoBit` or `Hybrid` where epsilon is small, `RandomizedResponse` where it is
#   not.
# - Means: `TwoBit` where epsilon is small or bits are dear, `Hybrid` otherwise.
# - `Gaussian`, or `DiscreteGaussian` where reports must be whole numbers, for vectors and for many
#   releases, which compose well; with a delta, and very many groups.
# - `OneBit` where only the mean of the population is asked for.
#
# And try it on data like yours: `price_of_privacy` is made from all groups' data and is itself not
# private.
