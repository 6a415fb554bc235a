"""Federation over Flower: clients on machines of their own.

A fit is a roll call, an exchange for each round of the method, and the result. `server_app` makes
the server's program, which Flower runs, for any estimator of this package; `load_fit` reads the fit
that it wrote. A node is a process of its own, `ebfed node`, which stays connected: it receives a
plan, which is data, checks it by the rules of its owner, and executes nothing else.

The order in which nodes connect or answer does not change a fit: nodes are sorted by name. Every
exchange ends at a deadline; if fewer nodes than the quorum answered, nothing is estimated. A node
that missed an exchange is not asked again, but it receives the result. Late and second answers are
ignored. A node that is asked twice for a round sends the stored message: it never draws noise twice
for one request.

An answer under a name is signed by the key that was registered under it. Another name, two nodes of
one name and a key without a name are left out by name, and the others go on within the quorum. Of a
SuperLink that knows no names, as one without authentication, names are what nodes say.

The server receives the facts of `Rounds.describe`, the messages of channels and the names of
nodes. Where a method needs only sums over clients, as all learners do, a node sends its own sum and
how many clients it is of (`Rounds.add_up`); that of one client is what the client would have
sent. Of a failure it receives the kind, never the text. Rows, estimates and ledgers of clients
stay on their disks. Where owners share a key, a node also sends digests of its labels
(`ebfed.engines.matching`). A node refuses what the rules of its owner forbid (`Rules`). Before the
first round it charges all that the run may take to the budget of persons (`Gate`). Without a seed,
clients draw their noise from the operating system (extra ``secure``).
"""

from ebfed.engines.flower.apps import load_fit, serve, server_app
from ebfed.engines.flower.cohort import FlowerCohort
from ebfed.engines.flower.messages import need_flower
from ebfed.engines.flower.node import Node, PlannedNode, plan_of_run
from ebfed.engines.flower.rows import OwnRows
from ebfed.engines.flower.rules import Rules

__all__ = [
    "FlowerCohort",
    "Node",
    "OwnRows",
    "PlannedNode",
    "Rules",
    "load_fit",
    "need_flower",
    "plan_of_run",
    "serve",
    "server_app",
]
