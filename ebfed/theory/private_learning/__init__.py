r"""Privacy of four algorithms of private learning: the claims of papers, and exact accounts.

For each, a ``..._claimed_...`` function gives the paper's figure, for replication, and another
describes the releases, for `ebfed.privacy.accountant`. The figures:

- DP-AdaPeD, 10 local steps, one client replaced: claimed 3.23, accounted 5.98
- PPSGD, 10 of 500 clients in each of 2000 rounds: claimed 5.39, accounted 48.3 (42.7 if drawn 40
  times)
- FeO2, clipping bits 0 or 1: claimed 3.60, accounted 3.85 with noise 5, 10.8 with noise 1
- A_NSGD, 4 owners of 20 records: claimed 1, accounted 1.25 as a whole
- A_NSGD with this corrected, towards 3, 15 and 63 others: claimed 1, accounted 2.15, 4.69 and 10.6

Unless stated, one client (or record) is added or removed, the most favourable choice for the
papers; their definitions exchange one for another. The first two accounts are exact, the others by
Rényi divergences, as in the papers; exactly, the last row is 1.99; 4.33; 9.86.

A noise multiplier is the standard deviation of noise over the largest norm C of one contribution
(`ebfed.privacy.events`); ``rounds`` counts releases.

Sampling protects from readers who do not know whether the client was drawn. Under *joint* privacy
the adversary is all other clients together, who know when they took part themselves. If the size of
the sample is fixed, they also know whether the last client did: there is no amplification.

References
----------
Aldaghri, Mahdavifar and Beirami (2021), FeO2: Federated learning with opt-out differential privacy.
Bietti, Wei, Dudík, Langford and Wu (2022), Personalization improves privacy-accuracy tradeoffs in
federated learning (PPSGD).
Huang, Jiang, Liu, Mahdian, Mao and Mirrokni (2023), Learning across data owners with joint
differential privacy (A_NSGD).
Ozkara, Girgis, Data and Diggavi (2023), A statistical framework for personalized federated learning
and estimation: theory, algorithms, and privacy (DP-AdaPeD).
"""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.theory.private_learning.adaped import (
        adaped_claimed_epsilon as adaped_claimed_epsilon,
    )
    from ebfed.theory.private_learning.adaped import adaped_event as adaped_event
    from ebfed.theory.private_learning.feo2 import feo2_claimed_epsilon as feo2_claimed_epsilon
    from ebfed.theory.private_learning.feo2 import feo2_event as feo2_event
    from ebfed.theory.private_learning.nsgd import (
        nsgd_claimed_multiplier as nsgd_claimed_multiplier,
    )
    from ebfed.theory.private_learning.nsgd import nsgd_constant as nsgd_constant
    from ebfed.theory.private_learning.nsgd import nsgd_event as nsgd_event
    from ebfed.theory.private_learning.ppsgd import ppsgd_claimed_epsilon as ppsgd_claimed_epsilon
    from ebfed.theory.private_learning.ppsgd import ppsgd_joint_epsilon as ppsgd_joint_epsilon
    from ebfed.theory.private_learning.sampling import Sampling as Sampling

__getattr__ = at_first_use(__name__)
