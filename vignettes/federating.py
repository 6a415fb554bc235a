# %% [markdown]
# # Three hospitals that do not share rows
#
# Three hospitals want to know the complication rate of each of their surgeons. No surgeon has
# operated often enough for a precise rate of their own, and no hospital may show its cases.
# Together they have several hundred surgeons, enough to learn the population of surgeons. The
# estimate of a surgeon needs only this population from the others.
#
# One hospital publishes its rates, so it opts out of privacy. The others send a randomised answer
# for each surgeon. The database of one hospital is down on the day of the fit.
#
# This needs `pip install ".[flower,secure]"`. Everything runs on this machine, as processes that
# communicate over TLS, as over a network. The cases are made up.

# %%
import atexit
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import ebfed as eb
from ebfed.engines.flower import load_fit
from ebfed.engines.loopback import Federation

rng = np.random.default_rng(1)
truth = {}
Path("cases").mkdir(exist_ok=True)
for name in ("north", "east", "university"):
    surgeons = [f"{name}-{i:02d}" for i in range(150)]
    rates = rng.beta(4, 36, len(surgeons))
    truth |= dict(zip(surgeons, rates, strict=True))
    cases = rng.integers(10, 40, len(surgeons))
    rows = pd.DataFrame({"surgeon": np.repeat(surgeons, cases)})
    rows["complication"] = (rng.random(len(rows)) < np.repeat(rates, cases)).astype(int)
    rows["consent"] = "open" if name == "university" else "private"
    rows.to_csv(f"cases/{name}.csv", index=False)
print(rows.head())

# %% [markdown]
# ## A project
#
# `ebfed federate up` writes a small Flower project and starts a server and three nodes. Connections
# are encrypted, and only these nodes may connect. Each node has the path of its own rows and of its
# own results. The server and the other nodes do not.


# %%
def ebfed(command):
    subprocess.run([sys.executable, "-m", "ebfed", *shlex.split(command)], check=True)


up = "federate up trial --data 'cases/*.csv' --group surgeon --value complication"
ebfed(f"{up} --family binomial --consent consent")
atexit.register(Federation("trial").down)  # stop all processes at the end
print(Path("trial/nodes/north/node.toml").read_text())

# %% [markdown]
# We write the model: a channel for each class of consent, and the columns that are used. The nodes
# receive it as data, and execute nothing that they receive. Two of three hospitals are enough for
# the fit.

# %%
Path("trial/app/model.py").write_text("""\
from ebfed import BernoulliEB
from ebfed.channels import Exact, TwoBit

estimator = BernoulliEB(channel={"private": TwoBit(epsilon=2), "open": Exact()})
rows = {"X": ["complication"], "groups": "surgeon", "consent": "consent"}
""")
server = Path("trial/app/server_app.py")
server.write_text(server.read_text().replace("quorum=1.0", "quorum=0.6"))
print(server.read_text())

# %% [markdown]
# ## Rules of a node
#
# Each hospital writes rules into the directory of its node. No run can change them. They say where
# the rows are, which columns may be read, and what they may be used for: the budget belongs to a
# `person`, here a surgeon, whatever groups a run may form, and only these `groups` may be formed.
# Within a budget a hospital sends no exact figures, except of those who agreed. The column of
# consent and its word for "open" are in the rules, because a run must not choose who agreed. Even
# of those who agreed, exact figures must be of at least five persons. A surgeon is one. So the
# university, which publishes its rates anyway, says that one is enough.
#
# Here a surgeon may spend epsilon 3 over all runs, and only two methods are allowed. Before the
# first round a node subtracts from the budget all that a run may cost. It refuses a run that costs
# more than what is left.

# %%
rules = """\
epsilon = 3.0  # budget of each surgeon, over all runs
delta = 1e-5
methods = ["BernoulliEB", "PoissonEB"]
[rows]
path = "{path}"
columns = ["surgeon", "complication", "consent"]
person = "surgeon"
groups = ["surgeon"]
consent = {{column = "consent", open = ["open"]}}
"""
for hospital in ("north", "east", "university"):
    path = Path(f"cases/{hospital}.csv").resolve()
    publishes = "min_group_size = 1\n" if hospital == "university" else ""
    Path(f"trial/nodes/{hospital}/node.toml").write_text(publishes + rules.format(path=path))

# %% [markdown]
# The database of the eastern hospital goes down, and the fit runs without it.

# %%
Path("cases/east.csv").rename("cases/east.down")
ebfed("federate run trial")
ebfed("federate down trial")

# %% [markdown]
# ## What the server has
#
# The population, a ledger of what clients were asked for, and who answered.

# %%
(run,) = Path("trial/result").glob("run-*")
print(pd.read_csv(run / "participants.csv")[["exchange", "node", "status"]])
print(pd.read_csv(run / "ledger.csv")[["who", "what", "clients", "epsilon"]])

# %% [markdown]
# It does not have the estimates. Each hospital has its own estimates and its own ledger, from which
# it can see what was spent and what is left.

# %%
estimates = {
    path.parts[2]: pd.read_csv(path) for path in Path("trial/nodes").glob("*/run-*/estimate.csv")
}
print(estimates["north"].head().round(3))
ebfed("budget show trial/nodes/north")

# %% [markdown]
# ## What was gained
#
# Here the true rates are known. We compare the errors of each surgeon's own rate, of the estimates,
# and of estimates from all rows in one table.

# %%
federated = pd.concat(estimates.values())
own = pd.concat([pd.read_csv(path) for path in sorted(Path("cases").glob("*.csv"))])
own = own[own["surgeon"].isin(federated["surgeon"])]
one_table = eb.BernoulliEB().fit(own[["complication"]], groups=own["surgeon"])
known = federated["surgeon"].map(truth)
together = one_table.posterior().to_frame()
errors = {
    "a surgeon's own rate": federated["local"] - known,
    "estimate, federated": federated["estimate"] - known,
    "estimate, one table": together["estimate"] - together["surgeon"].map(truth),
}
for name, error in errors.items():
    print(f"root mean squared error, {name:<22} {np.sqrt((error**2).mean()):.4f}")
assert np.mean(errors["estimate, federated"] ** 2) < np.mean(errors["a surgeon's own rate"] ** 2)

# %% [markdown]
# The plot shows the population from the messages, the population from all rows in one table, and
# the true population.

# %%
sys.path.insert(0, "trial/app")
from model import estimator

fit = load_fit(estimator, run)
true = eb.BernoulliEB(prior=eb.priors.Beta(4, 36)).fit(own[["complication"]], groups=own["surgeon"])
populations = {"federated": fit, "one table": one_table, "true": true}
ax = eb.report.plot_population(populations, support=(0, 0.35))

# %% [markdown]
# ## The hospital that did not take part
#
# The population is a few numbers. When its database works again, the eastern hospital reads these
# numbers and estimates the rates of its surgeons from its own rows.

# %%
east = pd.read_csv(Path("cases/east.down").rename("cases/east.csv"))
posterior = fit.posterior(east[["complication"]], groups=east["surgeon"])
late = posterior.to_frame()
print(late.head().round(3))
error = late["estimate"] - late["surgeon"].map(truth)
raw = late["local"] - late["surgeon"].map(truth)
print(
    f"root mean squared error {np.sqrt((error**2).mean()):.4f}, raw {np.sqrt((raw**2).mean()):.4f}"
)

# %% [markdown]
# The plot shows the surgeons with the highest rates. Only their own hospital has these estimates.

# %%
ax = eb.report.plot_caterpillar(posterior, top=20)
