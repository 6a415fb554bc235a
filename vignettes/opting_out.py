# %% [markdown]
# # Some clients opt out of privacy
#
# Some clients want privacy and some do not. If all clients add noise because some want it, the data
# of the others are used less well than they could be. Here each client chooses. What it sends
# depends on its choice, and its weight depends on what it sends.

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
# Five hundred clients have a few numbers each and want to know their own means. Every tenth opts
# out of privacy. `channel=` has the channel of each class of consent, and `consent=` the class of
# each client. The population is fitted to all messages at once, each by its own likelihood.

# %%
X, groups, theta = eb.datasets.make_gaussian_groups(500, 4, random_state=0)
choice = np.where(groups % 10 == 0, "open", "private")
settings = {"variances": 1.0, "guess": eb.channels.Guess(mean=(-2, 2), spread=1), "random_state": 0}
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
# The ledger has a line for each class: its guarantee, and what it sent. The table below shows what
# all clients gain if a tenth opts out:

# %%
rows = {}
for name, fit in fits.items():
    mean, sd = fit.tidy()["estimate"][:2]
    error = np.sqrt(np.mean((fit.predict() - theta.ravel()) ** 2))
    rows[name] = {"mean": mean, "its error": fit.tidy()["std.error"][0], "sd": sd, "rmse": error}
print(pd.DataFrame(rows).T.round(4))

# %% [markdown]
# The standard error says how well the mean is known. The distance of one estimate from the truth is
# chance. The last column is the root mean squared error of the clients' own estimates. They change
# little, because each client also has its own rows.
#
# ## The weight of a private message
#
# Aldaghri, Mahdavifar and Beirami (2021) study a server that averages messages: exact messages of
# clients that opted out, and noisy messages of private clients. The first have weight 1 and the
# others weight r. The best weight is
#
# $$ r^* = \frac{\tau^2 + \alpha^2}{\tau^2 + \alpha^2 + q}, $$
#
# where $\tau^2 + \alpha^2$ is the variance of a client's own mean and q that of its noise. This is
# weighting by precision. The likelihood of all messages has the same weights. So the paper's
# estimator, `OptOutMean`, gives the same numbers as `GaussianEB` with a channel for each class:

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
# Now more and more clients opt out, and the others add as much noise as before. Lines are the
# formulas of `eb.theory.opt_out`. Points are simulations: a thousand federations, in the columns of
# one fit. FedAvg gives all messages the same weight.

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
# With one weight for all, the noise of the private clients dominates. With the open clients alone,
# there are too few of them. The optimal weights are never worse than either. The first few clients
# that opt out help most.
#
# ## Predictors
#
# The same choice, for a predictor that is learned in rounds. Each of sixty clients has about two
# dozen small images of three digits. Every fifth client opts out. `DPFedAvg` protects all clients
# alike. `FeO2` clips the messages of private clients, adds noise, weights them by `ratio`, and
# gives every client a predictor of its own near the shared one.

# %%
digits = eb.datasets.load_digits()
train, kinds = eb.datasets.partition_classes(digits.target, 60, 3, random_state=0)
test, _ = eb.datasets.partition_classes(digits.target_test, 60, 3, classes=kinds, random_state=0)
in_train, in_test = train >= 0, test >= 0  # rows that belong to a client
images, labels, of = digits.data[in_train], digits.target[in_train], train[in_train]
consent = {client: "open" if client % 5 == 0 else "private" for client in range(60)}


def right(est):
    """Accuracy on new images: of the shared predictor, and of the clients' own predictors."""
    new = digits.data_test[in_test], digits.target_test[in_test]
    return est.score(*new), est.score(*new, groups=test[in_test])


settings = {"n_rounds": 30, "local_steps": 5, "batch_size": 10, "learning_rate": 0.5}
settings |= {"model": eb.models.MLP(30), "random_state": 0}
settings["privacy"] = eb.ClientPrivacy(epsilon=2.0)
alike = eb.learning.DPFedAvg(**settings).fit(images, labels, groups=of)
print(f"DPFedAvg: {right(alike)[0]:.3f}")
results = []
for ratio in (0.01, 0.03, 0.1, 0.3, 1.0):
    est = eb.learning.FeO2(**settings, ratio=ratio, regularization=0.1)
    est.fit(images, labels, groups=of, consent=consent)
    for whose, share in zip(("shared predictor", "own predictors"), right(est), strict=True):
        results.append((whose, ratio, share, 0.0))
results = pd.DataFrame(results, columns=["method", "ratio", "accuracy", "spread"])
print(results.pivot(index="ratio", columns="method", values="accuracy").round(3))
ax = eb.report.plot_curves(results, x="ratio", y="accuracy", spread="spread")
ax.set(xlabel="weight of a private client", ylabel="accuracy on new images", ylim=(0, 1))

# %% [markdown]
# With weight 1 the shared predictor of FeO2 is that of `DPFedAvg`: the noise dominates. With a
# smaller weight the noise of private clients does less harm. Their guarantee does not change. The
# ledger has a line for each class.

# %%
print(est.privacy_[["who", "what", "clients", "times", "epsilon", "delta"]].to_string(index=False))

# %% [markdown]
# Is it worth joining? Three digits are few, and two dozen images are enough to learn them. Below is
# the accuracy of clients that learn alone. Alone they cannot read a digit of which they have no
# images.

# %%
alone = settings | {"privacy": None}  # a client that learns alone sends nothing
local = eb.learning.LocalOnly(**alone).fit(images, labels, groups=of)
print(f"alone: own predictors {right(local)[1]:.3f}")
