"""Personalised learning: AdaPeD against other methods, and the price of its privacy.

Fifty clients hold images of three classes each (Ozkara, Girgis, Data and Diggavi, 2023, section 4
and Appendix K), and classify test images of the same classes. A client makes ten steps in a round,
on batches of 20 of its 1,200 rows, so that an epoch is 60 steps; a tenth of the clients is invited
to each round.

*Comparison* (Table 1): the mean over clients of the accuracy of their personal predictors. Methods
in which clients work only when they are invited are compared with one another, and so are those in
which everyone works in every round, because they do ten times as much.

*Privacy* (Table 2): DP-FedAvg and DP-AdaPeD where all clients take part in all rounds. The noise is
that for which Theorem 5, as printed, gives the table's epsilon; the ledger has its true epsilon.
Both methods get the same noise. Training alone, which costs no privacy, is shown beside them.

*Rounds* (Figure 2): test accuracy and psi during training.
"""

from __future__ import annotations

from ebfed.evaluation.study import Study
from ozkara2023.personalization.page import PersonalizationStudy, tabulate
from ozkara2023.personalization.pricing import price
from ozkara2023.personalization.settings import list_cells
from ozkara2023.personalization.simulation import DealtImages, deal_images, one_run

__all__ = ["DealtImages", "PersonalizationStudy", "deal_images", "price", "run"]

# a hundred rounds of the comparison with the convolutional network take about fifteen minutes of
# one core, for each run and collection
STUDY = Study(
    PersonalizationStudy,
    cells=list_cells,
    one_run=one_run,
    tabulate=tabulate,
    reps=3,
)
run = STUDY.run
