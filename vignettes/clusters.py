# %% [markdown]
# # Groups of a few kinds
#
# In a normal population, groups vary around one mean. Often there are a few kinds of groups
# instead: patients who respond and patients who do not, or three kinds of customers. Then the
# estimate of a group should be shrunk to the mean of its kind, and the kind is unknown. The data
# here are simulated, so the truth is known.
#
# The private fit at the end needs `pip install ".[accounting]"`.

# %%
import numpy as np
import pandas as pd

import ebfed as eb

rng = np.random.default_rng(1)
m = 400
kind = rng.choice(3, m, p=[0.2, 0.5, 0.3])
centres = np.array([[-1.5, 0.0], [0.0, 1.0], [2.0, -0.5]])  # intercept and slope of each kind
own = pd.DataFrame(centres[kind] + 0.25 * rng.normal(size=(m, 2)), columns=["intercept", "x"])
group = np.repeat(np.arange(m), rng.integers(3, 9, m))
rows = pd.DataFrame({"group": group, "x": rng.normal(size=len(group))})
signal = own["intercept"].to_numpy()[group] + own["x"].to_numpy()[group] * rows["x"]
rows["y"] = signal + rng.normal(size=len(group))
rows["level"] = own["intercept"].to_numpy()[group] + rng.normal(size=len(group))
print(rows.head().round(2))
print(f"{m} groups with a median of {rows.groupby('group').size().median():.0f} rows")

# %% [markdown]
# ## Means, and how many kinds
#
# We begin with `level`, which depends only on the group. `MixtureEB` fits populations of one point,
# two points, and so on, and keeps the one with the smallest BIC. Components may also be normal,
# with a spread of their own.

# %%
settings = {"X": rows[["level"]], "groups": rows["group"]}
fits = {"one normal": eb.GaussianEB(method="ml").fit(**settings)}
for k in range(1, 6):
    fits[f"{k} points"] = eb.MixtureEB(k, random_state=0).fit(**settings)
fits["3 normals"] = eb.MixtureEB(3, components="spherical", random_state=0).fit(**settings)
table = eb.compare(**fits).set_index("fit")
table["true risk"] = [
    ((fit.posterior().mean[:, 0] - own["intercept"]) ** 2).mean() for fit in fits.values()
]
print(table[["npar", "logLik", "BIC", "risk", "true risk"]].round(3))
chosen = eb.MixtureEB(random_state=0).fit(**settings)
print(f"BIC chooses {chosen.n_components_} points")

# %% [markdown]
# `risk` is the mean squared error that a fit expects, `true risk` the true one. Too few points give
# large errors. One point more than there are kinds costs little, and describes some of the spread
# within a kind, which points do not have. A single normal never gives very large errors.

# %%
ax = eb.report.plot_marginal(fits["3 normals"])

# %% [markdown]
# ## Regressions of a few kinds
#
# Now `y`, which depends on `x` by an intercept and a slope of each group. `LinearEB` has one normal
# population for both. In `MixtureLinearEB` each group has one of a few lines. In `AdaMix` groups of
# a kind vary around their line.

# %%
formula = "y ~ x | group"
models = {"LinearEB": eb.from_formula("y ~ x + (1 + x | group)", rows)}
for k in range(2, 5):
    models[f"MixtureLinearEB({k})"] = eb.from_formula(
        formula, rows, eb.MixtureLinearEB(k, random_state=0)
    )
    models[f"AdaMix({k})"] = eb.from_formula(formula, rows, eb.AdaMix(k, random_state=0))
kinds = models["AdaMix(3)"]
print(kinds.summary())

# %% [markdown]
# How far are estimates from the truth? We compare them with two oracles: one knows the true
# population, the other also knows the kind of every group.


# %%
def distance(estimates):
    return np.sqrt(((np.asarray(estimates) - own) ** 2).sum(axis=1).mean())


def with_kinds(shares):
    """Posterior means under the true population, given the probabilities of kinds."""
    found = np.zeros((m, 2))
    for i, these in rows.groupby("group"):
        X = np.column_stack([np.ones(len(these)), these["x"]])
        precision = X.T @ X + np.eye(2) / 0.25**2
        means = np.linalg.solve(precision, (X.T @ these["y"].to_numpy())[:, None] + centres.T * 16)
        found[i] = means @ shares[i]
    return found


def true_shares():
    log = np.log([0.2, 0.5, 0.3])[None].repeat(m, axis=0)
    for i, these in rows.groupby("group"):
        X = np.column_stack([np.ones(len(these)), these["x"]])
        cover = np.eye(len(these)) + 0.25**2 * X @ X.T
        away = these["y"].to_numpy()[:, None] - X @ centres.T
        log[i] -= 0.5 * (away * np.linalg.solve(cover, away)).sum(axis=0)
    share = np.exp(log - log.max(axis=1, keepdims=True))
    return share / share.sum(axis=1, keepdims=True)


known = np.eye(3)[kind]
errors = {name: distance(fit.posterior().mean) for name, fit in models.items()}
errors["oracle, knows the population"] = distance(with_kinds(true_shares()))
errors["oracle, knows the kinds too"] = distance(with_kinds(known))
print(pd.Series(errors, name="root mean squared error").round(3).to_string())
table = eb.compare(**models)
print(table[["fit", "npar", "logLik", "AIC", "BIC"]].round(1).to_string(index=False))
print(f"least BIC: {table.loc[table['BIC'].idxmin(), 'fit']}")
assert errors["AdaMix(3)"] < 0.9 * errors["LinearEB"]

# %% [markdown]
# AdaMix with the right number of kinds is close to the oracle that knows the population. One kind
# too many costs little. One kind too few, or a single normal, costs more. BIC finds the right
# number. The first oracle does not know the kinds of the groups.
#
# ## Which group is of which kind
#
# Each group has a probability for each kind. Most groups are nearly certain, some are not. The
# estimates of these are averages over kinds.

# %%
shares = kinds.responsibilities().set_index("group")
likeliest = shares.to_numpy().argmax(axis=1)
sure = shares.to_numpy().max(axis=1) > 0.95
print(f"{(likeliest == kind).mean():.1%} of groups are assigned to their kind,")
print(
    f"{(likeliest == kind)[sure].mean():.1%} of the {sure.mean():.0%} with a probability over 95%"
)

# %%
ax = eb.report.plot_responsibilities(kinds)

# %%
ax = eb.report.plot_coefficients(kinds)

# %% [markdown]
# ## Rounds, and what is sent
#
# `LinearEB` needs one message from each client. `AdaMix` needs several rounds: in each the server
# sends its parameters, clients answer with the gradient of their likelihood, and the server takes a
# step.

# %%
ax = eb.report.plot_convergence(kinds)

# %%
columns = ["who", "what", "clients", "times", "epsilon", "delta", "bits"]
print(kinds.privacy_[columns].T.to_string(header=False))

# %% [markdown]
# In the ledger, every client sent one message in each round, without privacy. The server is trusted
# with these messages. The responsibilities and coefficients above are computed by each client, from
# its own rows and the population.
#
# If the server is not trusted, clients send coefficients through a channel, and every round costs
# privacy. A few hundred groups are too few for that, as the error below shows. A private mixture
# needs many more groups, or a trusted server.

# %%
channel = eb.channels.Clip(radius=4) | eb.channels.Gaussian(epsilon=4, delta=1e-6)
private = eb.AdaMix(3, channel=channel, n_rounds=3, noise_variance=1.0, random_state=0)
private.fit(rows[["x"]], rows["y"], groups=rows["group"])
print(private.privacy_[columns].T.to_string(header=False))
print(f"root mean squared error {distance(private.posterior().mean):.2f}", end=", ")
print(f"of LinearEB without privacy {errors['LinearEB']:.2f}")
