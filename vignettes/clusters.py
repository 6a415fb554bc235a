# %% [markdown]
# # Groups of a few kinds
#
# A normal population says that groups scatter around one mean. Often they come in kinds instead:
# patients who respond and patients who do not, customers of three sorts. Then a group should be
# drawn to the mean of its kind, and nobody knows which that is. Here data are simulated, so that
# the truth can be shown.

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
print(f"{m} groups of {rows.groupby('group').size().median():.0f} rows, typically")

# %% [markdown]
# ## Means, and how many kinds
#
# Begin with `level`, which depends on nothing but the group. `MixtureEB` tries populations of one
# point, two points, and so on, and keeps that of least BIC. Components may also be normal, with a
# spread of their own.

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
print(f"BIC chooses {chosen.k_} points")

# %% [markdown]
# `risk` is the mean squared error that a fit expects of itself, `true risk` what it was. Too few
# points are a disaster; one more than there are kinds costs little, and stands in for the spread
# within a kind, which points do not have. A single normal is never a disaster either.

# %%
ax = eb.report.plot_marginal(fits["3 normals"])

# %% [markdown]
# ## Regressions of a few kinds
#
# Now `y`, which depends on `x` by an intercept and a slope of each group. `LinearEB` has one normal
# population for both. `MixtureLinearEB` gives each group one of a few lines; `AdaMix` lets groups
# of a kind scatter around their line.

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
# How far are estimates from the truth? Beside them stand two oracles: one who knows the true
# population, and one who knows the kind of every group as well.


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
# AdaMix with the right number of kinds comes close to the oracle who was given the population. A
# kind too many is cheap; a kind too few, or a single normal, is not. BIC finds the right number.
# What even the first oracle does not know is who is of which kind.
#
# ## Who belongs where
#
# Each group has a probability for each kind. Most are settled, some are not, and estimates of these
# are averages over kinds.

# %%
shares = kinds.responsibilities().set_index("group")
likeliest = shares.to_numpy().argmax(axis=1)
sure = shares.to_numpy().max(axis=1) > 0.95
print(f"{(likeliest == kind).mean():.1%} of groups are assigned to their kind,")
print(f"{(likeliest == kind)[sure].mean():.1%} of the {sure.mean():.0%} that are sure of it")

# %%
ax = eb.report.plot_responsibilities(kinds)

# %%
ax = eb.report.plot_coefficients(kinds)

# %% [markdown]
# ## Rounds, and who learns what
#
# `LinearEB` needs one message from each client. `AdaMix` asks again: in each round the server says
# what it believes, clients answer with the slopes of their likelihood, and the server takes a step.

# %%
ax = eb.report.plot_convergence(kinds)

# %%
columns = ["who", "what", "clients", "times", "epsilon", "delta", "bits"]
print(kinds.privacy_[columns].T.to_string(header=False))

# %% [markdown]
# The ledger: everybody answered once in each round, and no privacy is promised; the server is
# trusted with what is sent. The responsibilities and coefficients above are computed by their
# owners, from their own rows and the population.
#
# Where the server is not trusted, clients send coefficients through a channel, and pay for every
# round. A few hundred groups are too few for that, as the error says. A mixture in private asks for
# many more groups, or for a server that may be trusted.

# %%
channel = eb.channels.Clip(radius=4) | eb.channels.Gaussian(epsilon=4, delta=1e-6)
private = eb.AdaMix(3, channel=channel, n_rounds=3, noise_variance=1.0, random_state=0)
private.fit(rows[["x"]], rows["y"], groups=rows["group"])
print(private.privacy_[columns].T.to_string(header=False))
print(f"root mean squared error {distance(private.posterior().mean):.2f}", end=", ")
print(f"of LinearEB without privacy {errors['LinearEB']:.2f}")
