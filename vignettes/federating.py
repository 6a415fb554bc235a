# %% [markdown]
# # Three hospitals, and nobody's rows leave the house
#
# Three hospitals want to know the complication rate of each of their surgeons. Nobody has operated
# often enough for a rate of their own to mean much, and nobody may show their cases. Together they
# have some hundreds of surgeons, which is plenty to learn what surgeons are like; and that is all a
# surgeon's own estimate needs from the others.
#
# One hospital publishes its rates anyway: it opts out of privacy. The others report on each surgeon
# by a randomised answer. And one hospital's database will be down on the day of the fit.
#
# This needs `pip install "ebfed[flower,secure]"`. Everything runs on this machine, as processes
# that talk over TLS as they would over a network; here are the cases, made up.

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
# `ebfed federate up` writes a small Flower project and starts a server and three nodes. Each node
# is told where its rows are and where its results belong; nobody else is.


# %%
def ebfed(command):
    subprocess.run([sys.executable, "-m", "ebfed", *shlex.split(command)], check=True)


up = "federate up trial --data 'cases/*.csv' --group surgeon --value complication"
ebfed(f"{up} --family binomial --consent consent --tls")
atexit.register(Federation("trial").down)  # whatever happens, no process is left behind
print(Path("trial/app/client_app.py").read_text())

# %% [markdown]
# The model is ours to say, the same for the server and the nodes: a channel for each class of
# consent. Two of three hospitals will do.

# %%
Path("trial/app/model.py").write_text("""\
from ebfed import BernoulliEB
from ebfed.channels import Exact, TwoBit

estimator = BernoulliEB(channel={"private": TwoBit(epsilon=2), "open": Exact()})
""")
server = Path("trial/app/server_app.py")
server.write_text(server.read_text().replace("quorum=1.0", "quorum=0.6"))
print(server.read_text())

# %% [markdown]
# The eastern hospital's database goes down, and the fit is held.

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
# It does not have the estimates: those are on the hospitals' own disks, and so are their ledgers.

# %%
estimates = {
    path.parts[2]: pd.read_csv(path) for path in Path("trial/nodes").glob("*/run-*/estimate.csv")
}
print(estimates["north"].head().round(3))
print(Path("trial/nodes/north/ledger.jsonl").read_text())

# %% [markdown]
# ## Was it worth it?
#
# Here we know the true rates. Beside each surgeon's own rate, the estimates, and what estimates
# would be if all rows lay on one table.

# %%
heard = pd.concat(estimates.values())
own = pd.concat([pd.read_csv(path) for path in sorted(Path("cases").glob("*.csv"))])
own = own[own["surgeon"].isin(heard["surgeon"])]
one_table = eb.BernoulliEB().fit(own[["complication"]], groups=own["surgeon"])
known = heard["surgeon"].map(truth)
together = one_table.posterior().to_frame()
errors = {
    "a surgeon's own rate": heard["local"] - known,
    "estimate, federated": heard["estimate"] - known,
    "estimate, one table": together["estimate"] - together["surgeon"].map(truth),
}
for name, error in errors.items():
    print(f"root mean squared error, {name:<22} {np.sqrt((error**2).mean()):.4f}")
assert np.mean(errors["estimate, federated"] ** 2) < np.mean(errors["a surgeon's own rate"] ** 2)

# %% [markdown]
# Here is the population that was learned from answers, beside the one of the rows themselves and
# the true one.

# %%
sys.path.insert(0, "trial/app")
from model import estimator

fit = load_fit(estimator, run)
true = eb.BernoulliEB(prior=eb.priors.Beta(4, 36)).fit(own[["complication"]], groups=own["surgeon"])
populations = {"federated": fit, "one table": one_table, "true": true}
ax = eb.report.plot_population(populations, support=(0, 0.35))

# %% [markdown]
# ## The hospital that missed it
#
# The population is a few numbers. When its database is back, the eastern hospital reads them and
# estimates its surgeons from its own rows.

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
# Here are those with the highest rates, as the hospital itself sees them. Nobody else does.

# %%
ax = eb.report.plot_caterpillar(posterior, top=20)
