"""Opting out of privacy while a network learns: Tables 4 and 5 of FeO2 on MNIST.

Aldaghri, Mahdavifar and Beirami (2021), "FeO2: Federated Learning with Opt-Out Differential
Privacy": 2,000 clients hold 30 images of one digit each, and 5 % of them opt out of privacy; in the
*skewed* setting all of these hold the digit 7. The server averages changes, with weight 1 for open
clients and r for private ones, whose sum gets the noise of DP-FedAvg. Beside it every client trains
a network of its own by Ditto, which the penalty lambda draws towards the shared one.

The paper's "1-layer NN" is taken to be one hidden layer, of 50 units: a linear model is less
accurate than the paper's figures. Unlike in the paper's Algorithm 1, sums are divided by expected
numbers of clients, because the actual ones are private; the bits that say who was clipped are
centred, and counted in the same budget; clients join by independent draws, as the account assumes.

No message depends on lambda, so that the shared network is the same for every lambda. The paper
trained it again for each: the differences between these figures show their error. In the non-IID
setting of the paper, the shared network is better for open clients by 0.7 to 1.1 points at every r,
also at r = 1, where all have the same weight. This is chance: the open clients are 100 with some
five test images each, whose mean has a standard error of a point.
"""

from __future__ import annotations

from aldaghri2021.opt_out_learning.page import OptOutLearningStudy, tabulate
from aldaghri2021.opt_out_learning.settings import Federation, list_cells
from aldaghri2021.opt_out_learning.simulation import deal, learner_of, one_run
from ebfed.evaluation.study import Study

__all__ = ["Federation", "OptOutLearningStudy", "deal", "learner_of", "run"]

# one process: each needs four gigabytes of memory; a run of the full study trains 45 times for
# about a minute
STUDY = Study(
    OptOutLearningStudy,
    cells=list_cells,
    one_run=one_run,
    tabulate=tabulate,
    reps=3,
    n_jobs=1,
)
run = STUDY.run
