# %% [markdown]
# # Some do not mind
#
# Privacy is a wish, and wishes differ. Where all clients add noise because some want it, those who
# do not mind are not heard as well as they could be. Here each client chooses; what it sends
# depends on its choice, and what it weighs depends on what it sends.

# %%
import numpy as np
import pandas as pd

import ebfed as eb
from ebfed.channels import AddNoise, Exact, Hybrid

opt_out = eb.theory.opt_out
pd.set_option("display.width", 100)

# %% [markdown]
# ## A channel for each choice
#
# Five hundred clients have a few numbers each and want to know their own means. Every tenth does
# not mind. `channel=` says what each class sends, `consent=` who is of which. The population is
# fitted to all messages at once, each by its own law.

# %%
X, groups, theta = eb.datasets.make_gaussian_groups(500, 4, random_state=0)
choice = np.where(groups % 10 == 0, "open", "private")
settings = {"variances": 1.0, "guess": eb.Guess(mean=(-2, 2), spread=1), "random_state": 0}
fits = {
    "nobody is private": eb.GaussianEB(variances=1.0).fit(X, groups=groups),
    "every tenth opts out": eb.GaussianEB(
        channel={"private": Hybrid(epsilon=1), "open": Exact()}, **settings
    ).fit(X, groups=groups, consent=choice),
    "everybody is private": eb.GaussianEB(channel=Hybrid(epsilon=1), **settings).fit(
        X, groups=groups
    ),
}
mixed = fits["every tenth opts out"]
print(mixed.privacy_[["who", "clients", "epsilon", "delta", "bits"]])

# %% [markdown]
# The ledger has a line for each class: what it was promised, and what it sent. And this is what the
# choice of a tenth is worth to all:

# %%
rows = {}
for name, fit in fits.items():
    mean, sd = fit.tidy()["estimate"][:2]
    error = np.sqrt(np.mean((fit.predict() - theta.ravel()) ** 2))
    rows[name] = {"mean": mean, "its error": fit.tidy()["std.error"][0], "sd": sd, "rmse": error}
print(pd.DataFrame(rows).T.round(4))

# %% [markdown]
# How well the mean is known is a matter of its standard error; that it comes out near or far is
# luck. Clients' own estimates, whose root mean squared error is in the last column, change little:
# they have their own rows, and take from the population only what these do not say.
#
# ## The weight of a private message
#
# Aldaghri, Mahdavifar and Beirami (2021) ask what a server should do that averages messages, exact
# ones of those who opted out and noisy ones of the private. With weight 1 for the first and r for
# the others, best is
#
# $$ r^* = \frac{\tau^2 + \alpha^2}{\tau^2 + \alpha^2 + q}, $$
#
# where a client's own mean varies by $\tau^2 + \alpha^2$ and its noise by q. But that is weighing
# by precision, which a likelihood does by itself. So `OptOutMean`, the paper's estimator, is
# `GaussianEB` with a channel for each class, to the last digits:

# %%
n, n_open, tau2, alpha2, q = 100, 10, 0.25, 1.0, 30.0
rng = np.random.default_rng(0)
own = 1 + rng.normal(0, np.sqrt(tau2 + alpha2), (n, 1))
who = np.where(np.arange(n) < n_open, "open", "private")
paper = eb.OptOutMean(tau2=tau2, alpha2=alpha2, gamma2=q / (n - n_open), random_state=0)
paper.fit(own, consent=who)
bayes = eb.GaussianEB(
    prior=eb.priors.Normal(variance=tau2),
    variances=alpha2,
    channel={"private": AddNoise(sd=q**0.5), "open": Exact()},
    random_state=0,
)
bayes.fit(own, consent=who)
r = float(opt_out.optimal_ratio(tau2, alpha2, 1, q))
variance = float(opt_out.server_variance(tau2, alpha2, 1, q, n - n_open, n_open))
print(f"weight of a private message: formula {r:.4f}, OptOutMean {paper.ratio_[0]:.4f}")
print(f"mean: OptOutMean {paper.global_[0]:.6f}, GaussianEB {bayes.prior_.mean_[0]:.6f}")
print(
    f"its variance: formula {variance:.6f}, OptOutMean {paper.server_variance_[0]:.6f}, "
    f"GaussianEB {bayes.prior_.mean_variance_[0]:.6f}"
)
assert np.isclose(r, paper.ratio_[0])
assert np.allclose(paper.global_, bayes.prior_.mean_)

# %% [markdown]
# ## What opting out gains
#
# Now let more and more clients opt out, the others adding as much noise as before. Lines are the
# formulas of `eb.theory.opt_out`; points are simulations, a thousand federations in the columns of
# one fit. FedAvg gives all messages one weight.

# %%
ways = {"FedAvg": 1.0, "open clients only": 0.0, "optimal": "optimal"}
means = 1 + rng.normal(0, np.sqrt(tau2 + alpha2), (n, 1000))
points, lines = [], []
for method, ratio in ways.items():
    for n_open in (1, 2, 5, 10, 20, 40, 80):
        who = np.where(np.arange(n) < n_open, "open", "private")
        est = eb.OptOutMean(tau2, alpha2, q / (n - n_open), ratio=ratio, random_state=n_open)
        squares = (est.fit(means, consent=who).global_ - 1) ** 2
        error = squares.std() / np.sqrt(len(squares))
        points.append((method, n_open / n, squares.mean(), error))
    for n_open in range(1, 81):
        weight = None if ratio == "optimal" else ratio
        exact = opt_out.server_variance(tau2, alpha2, 1, q, n - n_open, n_open, weight)
        lines.append((method, n_open / n, float(exact)))
columns = ["method", "share that opted out", "variance of the server's mean", "error"]
points, lines = pd.DataFrame(points, columns=columns), pd.DataFrame(lines, columns=columns[:3])
print(points.pivot(index=columns[1], columns="method", values=columns[2]).round(3))
ax = eb.report.plot_formulas(lines, points, x=columns[1], y=columns[2], error="error")
ax.set_ylim(0, 0.4)

# %% [markdown]
# With one weight for all, those who opt out are drowned by the noise of the others. Without the
# others, a few are too few. The optimal weights are never worse than either, and a few who do not
# mind are worth most.
#
# ## Predictors
#
# The same choice, for a predictor that is learned in rounds. Sixty clients hold two dozen small
# images of three digits each; every fifth opts out. `DPFedAvg` protects all alike. `FeO2` clips and
# noises what the private send, weighs it by `ratio`, and gives every client a predictor of its own
# near the shared one.

# %%
digits = eb.datasets.load_digits()
train, kinds = eb.datasets.partition_classes(digits.target, 60, 3, random_state=0)
test, _ = eb.datasets.partition_classes(digits.target_test, 60, 3, classes=kinds, random_state=0)
mine, theirs = train >= 0, test >= 0  # rows that were dealt to a client
images, labels, of = digits.data[mine], digits.target[mine], train[mine]
consent = {client: "open" if client % 5 == 0 else "private" for client in range(60)}


def right(est):
    """Share of new images read rightly: by the shared predictor, and by their owners' own."""
    unseen = digits.data_test[theirs], digits.target_test[theirs]
    return est.score(*unseen), est.score(*unseen, groups=test[theirs])


settings = {"n_rounds": 30, "local_steps": 5, "batch_size": 10, "learning_rate": 0.5}
settings |= {"model": eb.models.MLP(30), "random_state": 0}
settings["privacy"] = eb.ClientPrivacy(epsilon=2.0)
alike = eb.DPFedAvg(**settings).fit(images, labels, groups=of)
print(f"DPFedAvg: {right(alike)[0]:.3f}")
results = []
for ratio in (0.01, 0.03, 0.1, 0.3, 1.0):
    est = eb.FeO2(**settings, ratio=ratio, regularization=0.1)
    est.fit(images, labels, groups=of, consent=consent)
    for whose, share in zip(("shared predictor", "own predictors"), right(est), strict=True):
        results.append((whose, ratio, share, 0.0))
results = pd.DataFrame(results, columns=["method", "ratio", "accuracy", "spread"])
print(results.pivot(index="ratio", columns="method", values="accuracy").round(3))
ax = eb.report.plot_curves(results, x="ratio", y="accuracy", spread="spread")
ax.set(xlabel="weight of a private client", ylabel="share of new images read rightly", ylim=(0, 1))

# %% [markdown]
# With weight 1 the shared predictor of FeO2 is that of `DPFedAvg`: noise drowns those who opted
# out. Weighed less, the private no longer spoil what they cannot help much. Nobody who is private
# is less private for it; the ledger has a line for each class.

# %%
print(est.privacy_[["who", "what", "clients", "times", "epsilon", "delta"]].to_string(index=False))

# %% [markdown]
# Is it worth joining? Three digits are few, and two dozen images teach them well enough: here is
# what clients reach that never talk to anyone. What they cannot do alone is read a digit that they
# have not seen.

# %%
alone = {name: value for name, value in settings.items() if name != "epsilon"}
local = eb.LocalOnly(**alone).fit(images, labels, groups=of)
print(f"alone: own predictors {right(local)[1]:.3f}")
