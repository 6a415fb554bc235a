# %% [markdown]
# # Extending ebfed: a population, a channel, a plot and a learner
#
# A prior uses only the likelihood of what clients sent. So a new prior works with every channel,
# and a new channel works with every prior. Each is one class. `ebfed.testing` has the contracts
# that the package's own classes keep: run them on your class before you use it.
#
# The page needs `pip install ".[accounting]"`, for the contracts of channels and private learners.

# %%
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

import ebfed as eb
from ebfed.channels.levels import Levels
from ebfed.channels.report import PureReport

# %% [markdown]
# ## A prior: normal logits
#
# `BernoulliEB` has beta populations. In mixed models the logit of a rate is more often normal:
#
# $$ \log \frac{p}{1 - p} \sim N(m, s^2). $$
#
# A prior states where its parameter lies (`support`) and what is learned (`free`), and defines how
# that is set and four methods: the log-density, draws, a first guess, and the step that maximises
# the expected log-density. The base class has EM on a grid, marginal likelihoods, posteriors by
# quadrature, and the populations that the data leave plausible. Moments of this population have no
# closed form. They are computed by Gauss-Hermite quadrature.


# %%
class LogitNormal(eb.priors.Prior):
    """Population of rates whose logits are normal."""

    support = (0.0, 1.0)
    free = {"m": "line", "s": "spread"}

    def _start(self, rows, counts):
        self._set(0.0, 2.0)

    def _m_step(self, atoms, masses):
        z = logit(atoms[:, 0])
        m = np.average(z, weights=masses)
        self._set(m, np.sqrt(np.average((z - m) ** 2, weights=masses)))

    def _set(self, m, s):
        self.m_, self.s_, self.n_parameters_ = m, s, 2
        nodes, weights = np.polynomial.hermite_e.hermegauss(200)
        rates, weights = expit(m + s * nodes), weights / weights.sum()
        self.mean_ = np.array([weights @ rates])
        self.variance_ = np.array([weights @ rates**2]) - self.mean_**2

    def logpdf(self, theta):
        p = np.clip(theta[:, 0], 1e-300, 1 - 1e-16)  # plots use the ends of the support too
        return norm.logpdf(logit(p), self.m_, self.s_) - np.log(p * (1 - p))

    def sample(self, size, random_state=None):
        z = np.random.default_rng(random_state).normal(self.m_, self.s_, (size, 1))
        return expit(z)


# %% [markdown]
# The contract: densities integrate to one, draws have the stated moments, the order of clients does
# not matter, posteriors agree with quadrature, and the posterior of a client without data is the
# population. The check prints nothing if all is correct.

# %%
y, groups, rates = eb.datasets.make_bernoulli_groups(
    2000, 12, population=lambda size, rng: rng.beta(2, 6, size), random_state=0
)
clients = eb.Summary.from_rows(y, groups=groups)
counts = eb.likelihoods.Binomial(np.rint(clients.mean * 12).astype(int), clients.n)
eb.testing.check_prior(LogitNormal(), counts.take(slice(200)))  # some are enough
print("LogitNormal keeps the contract of a prior")

# %% [markdown]
# Estimators, `compare` and plots now take it like any other prior.

# %%
fits = {
    name: eb.BernoulliEB(prior=prior).fit(y, groups=groups)
    for name, prior in {"beta": "beta", "logit-normal": LogitNormal(), "npmle": "npmle"}.items()
}
table = eb.compare(**fits)
table["error"] = [np.sqrt(np.mean((fit.predict() - rates) ** 2)) for fit in fits.values()]
print(table.drop(columns=["sure", "local"]).round(4))

# %% [markdown]
# These rates were drawn from a beta population. The likelihood of the beta is larger than that of
# the logit-normal, by a little. The last column is the error against the true rates. The shapes
# differ, but the estimates hardly differ.

# %%
ax = eb.report.plot_population({name: fits[name] for name in ("beta", "logit-normal")})

# %% [markdown]
# ## A channel: reports near the true level
#
# Randomised response on k levels sends the true level, or any other level with equal probability.
# The channel here sends levels near the true one more often: the report is level r with probability
# proportional to $a^{|r - \text{level}|}$. With $a = e^{-\varepsilon/(k-1)}$ no report is more than
# $e^{\varepsilon}$ times as probable at one level as at another.
#
# A channel has two parts. A *law* is the distribution of a report, given a local value between -1
# and 1. The law `Levels` first rounds the value at random to a level. It needs only the
# randomisation of the level: a table of probabilities. The unbiased estimate of the level is the
# solution of a linear system with this table.


# %%
@dataclass(frozen=True)
class Near(Levels):
    """A level, with odds that fall by `fall` with each step away from the true one."""

    fall: float

    def _square(self, k):
        odds = self.fall ** abs(np.subtract.outer(np.arange(k), np.arange(k)))
        return odds / odds.sum(axis=0)  # column: true level, row: report

    def _table(self, reports, count):
        return self._square(count)[reports]

    def _randomise(self, level, count, stream):
        below = np.cumsum(self._square(self.levels), axis=0).T[level]
        return (stream.uniforms(*level.shape)[..., None] > below[..., :-1]).sum(axis=-1)

    def _level(self, reports, count):
        return np.linalg.solve(self._square(self.levels).T, np.arange(self.levels))[reports]

    def outcomes(self, size):
        return np.arange(self.levels), np.ones(self.levels)

    def bits(self, sizes):
        return np.full(len(sizes), math.ceil(math.log2(self.levels)))

    def _randomise_secure(self, level, count):
        raise NotImplementedError("Near only simulates.")


# %% [markdown]
# The *channel* has the arguments and gives the guarantee. `PureReport` computes from `epsilon` the
# guarantee and the event for the ledger. The package does the rest: clipping, the choice of a
# column, the likelihood and its average over a population.


# %%
class Nearby(PureReport):
    """Report a level near the true one."""

    def __init__(self, epsilon, range=(0, 1), levels=5):
        self.epsilon = epsilon
        self.range = range
        self.levels = levels

    def _law(self, n_features):
        return Near(self.levels, math.exp(-self._epsilon() / (self.levels - 1)))


# %% [markdown]
# The contract of a channel: `decode` is unbiased and has the stated variance, reports are as
# frequent as the likelihood says, and the guarantee holds. (`secure=0`: no draws for real clients.
# They need another method, and OpenDP.)


# %%
family = eb.families.Binomial()
some = eb.Summary.from_counts([0, 3, 6, 12], [12, 12, 12, 12])
eb.testing.check_channel(Nearby(epsilon=1), some, family, secure=0)
print("Nearby keeps the contract of a channel")

# %% [markdown]
# Does the contract find errors? One could think that each *step* away may cost epsilon. Such a
# channel has better reports, but its guarantee is false.


# %%
class TooNear(Nearby):
    """Claims epsilon for the whole range and spends it on every step."""

    def _law(self, n_features):
        return Near(self.levels, math.exp(-self._epsilon()))


try:
    eb.testing.check_channel(TooNear(epsilon=1), some, family, secure=0)
except AssertionError as error:
    print("AssertionError:", error)
else:
    raise RuntimeError("the contract did not find a false guarantee")

# %% [markdown]
# The contract examines the law. An audit examines reports only, as an attacker would. It draws many
# reports of two clients that are as different as possible, and finds a lower limit of epsilon by
# the intervals of Clopper and Pearson. A limit above the stated epsilon refutes the guarantee.

# %%
from ebfed.privacy.audit import audit

ends = eb.Summary.from_counts([0, 12], [12, 12])
for channel in (Nearby(epsilon=1), TooNear(epsilon=1)):
    found = audit(channel, ends)
    verdict = "not refuted" if found.passed else "refuted"
    print(f"{type(channel).__name__}: stated 1, epsilon is at least {found.lower:.2f}: {verdict}")

# %% [markdown]
# ## Used together
#
# Here the new prior is fitted to reports of the new channel. The ledger lists what was sent.

# %%
private = eb.BernoulliEB(prior=LogitNormal(), channel=Nearby(epsilon=4), random_state=0)
private.fit(y, groups=groups)
print(private.summary())
print(private.privacy_[["who", "clients", "epsilon", "delta", "bits"]])
error = np.sqrt(np.mean((private.predict() - rates) ** 2))
own = np.sqrt(np.mean((clients.mean[:, 0] - rates) ** 2))
print(f"root mean squared error {error:.4f}; of a group's own rate {own:.4f}")

# %% [markdown]
# Are reports near the true level better than reports of any level? We fit the same groups through
# both channels, at several epsilons, and compare the estimates with those without privacy.

# %%
channels = {
    "nearby": Nearby,
    "randomised response": lambda epsilon: eb.channels.RandomizedResponse(epsilon, levels=5),
}
price = eb.price_of_privacy(fits["beta"], [1, 2, 4], channels=channels, n_runs=5)
print(price.pivot(index="epsilon", columns="channel", values="error").round(4))
ax = eb.report.plot_privacy(price)

# %% [markdown]
# They are not better. A report near the true level is good for the value of one client, but each
# client already has its own rows. The fit of the population needs the spread of the values, and for
# that it must distinguish neighbouring levels. `Nearby` confuses those most. Randomised response
# distinguishes neighbouring levels as well as any two levels.

# %% [markdown]
# ## A plot: from the view of a fit
#
# Tables and plots read `eb.report.view_of(fit)`, a small dataclass, and no private attribute. The
# view names the family of the rows, which has the sampling variance of a group's own estimate. So
# one function serves means and rates: here, the distances of own estimates from the mean of the
# population, over the standard deviation that the fit expects of them.


# %%
def standardised(fit):
    view = eb.report.view_of(fit)
    summary, estimate = view.summary.take(view.has_rows), view.posterior().mean[view.has_rows, 0]
    noise = view.family.sampling_variance(estimate, summary.size)
    expected = np.sqrt(view.prior.variance_[0] + noise)
    return (summary.mean[:, 0] - view.prior.mean_[0]) / expected


X, labels, _ = eb.datasets.make_gaussian_groups(2000, 5, random_state=0)
means = eb.GaussianEB().fit(X, groups=labels)
for name, fit in {"rates": fits["beta"], "means": means}.items():
    print(f"{name}: standard deviation {standardised(fit).std():.2f}")

# %% [markdown]
# Both are near 1, as expected. The docstring of `ebfed.report.view` lists the contents of a view.

# %% [markdown]
# ## A learner: own and shared parameters, mixed
#
# A learner is a method whose clients make gradient steps in rounds. In adaptive personalised
# federated learning (Deng, Kamani and Mahdavi 2020) client $i$ predicts by a mixture of its own
# parameters $v_i$ and the shared ones $w$,
#
# $$ \theta_i = a v_i + (1 - a) w, \qquad
#    v_i \leftarrow v_i - \eta a \nabla f_i(\theta_i), \qquad
#    w_i \leftarrow w_i - \eta \nabla f_i(w_i), $$
#
# and the server averages the $w_i$. A learner has two classes. Its *rounds* say which parameters
# are a client's own, what a client does with the batches of a round, and what it predicts by;
# invitations, batches, checkpoints, Dask, Flower and privacy come from `LearnerRounds`. The
# estimator has the arguments, and its `protocol` returns the rounds; predictions and reports come
# from `Learner`. Arrays have a row for each of many clients: one step is a step of all of them.


# %%
class MixedRounds(eb.learning.LearnerRounds):
    """What clients and server of `Mixed` do."""

    def check(self):
        super().check()
        weight = self.estimator.own_weight
        if not 0 <= weight <= 1:
            raise ValueError(f"own_weight must be a number from 0 to 1; got {weight!r}.")

    def own_parameters(self, shared, facts, rng):
        return {"v": shared["w"]}

    def train(self, shared, own, task):
        w, v, a = shared["w"], own["v"], self.estimator.own_weight
        for batch in task:
            eta = task.rate * self.peak_rate
            v = v - eta * a * task.gradient(a * v + (1 - a) * w, batch)
            w = w - eta * task.gradient(w, batch)
        return {"w": w - shared["w"]}, {"v": v}

    def personal_parameters(self, shared, own, task):
        a = self.estimator.own_weight
        return a * own["v"] + (1 - a) * shared["w"]


@dataclass(eq=False, repr=False)
class Mixed(eb.learning.Learner):
    """Own and shared parameters, mixed.

    Parameters
    ----------
    model, n_rounds, learning_rate, privacy, ...
        As for every learner.
    own_weight : float
        Weight of own parameters, in [0, 1].
    """

    own_weight: float = 0.5

    def protocol(self):
        return MixedRounds(self)


# %% [markdown]
# The contract of a learner: results are the same on all engines and for all blocks, to the last
# bit; fewer rounds are the first rounds of a longer fit; known, new and empty groups get finite
# predictions. With `privacy`, messages of clients are clipped and noise is added. The class needs
# no code for this.

# %%
rng = np.random.default_rng(0)
firms = np.repeat(np.arange(40), 12)
X = rng.normal(size=(480, 2))
won = X[:, 0] + rng.normal(size=40)[firms] > 0
few = {"n_rounds": 4, "batch_size": 5, "local_steps": 2, "random_state": 0}
for privacy in (None, eb.ClientPrivacy(epsilon=8)):
    eb.testing.check_learner_contract(Mixed(privacy=privacy, **few), X, won, firms)
print("Mixed keeps the contract of a learner, with and without privacy")

# %%
settings = {"n_rounds": 50, "learning_rate": 1.0, "random_state": 0}
for learner in (
    eb.learning.LocalOnly(**settings),
    eb.learning.FedAvg(**settings),
    Mixed(**settings),
    Mixed(privacy=eb.ClientPrivacy(epsilon=8), **settings),
):
    learner.fit(X[::2], won[::2], groups=firms[::2])
    share = learner.score(X[1::2], won[1::2], groups=firms[1::2])
    epsilon = learner.privacy_["epsilon"].max()
    print(f"{type(learner).__name__:<10} {share:.1%} of new rows right, epsilon {epsilon:.3g}")

# %% [markdown]
# Each of these is one class. The docstrings of `ebfed.priors.base`, `ebfed.channels.base` and
# `ebfed.learning.base` list what else a class may define. `ebfed.testing` has contracts for
# estimators too.
