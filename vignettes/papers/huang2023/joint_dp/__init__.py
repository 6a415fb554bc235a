"""Joint differential privacy: what owners gain by learning together, and its price.

Huang, Jiang, Liu, Mahdian, Mao and Mirrokni (2023), "Learning across data owners with joint
differential privacy". Owner j predicts by shared parameters u and its own x_j; only u gets noise,
because no other owner ever receives x_j. *Per owner*: each owner alone; *no DP*: together, without
noise; *full DP*: noise on all parameters; *joint DP*: noise on u only.

*Convex*: squared loss of ``y = u'z + x_j'v + N(0, .12^2)`` with (z, v) uniform on a sphere, 20 and
2 dimensions of 22, 20 records of each owner. The paper has no such experiment; its bounds say that
the error of joint DP falls faster with the number of owners than that of learning alone.

*Images* (Tables 1, 2 and 4): 10,000 images are dealt evenly to n owners with 8 of 10 classes each.
The paper's network has two convolutional layers and two output layers that are averaged, one of
them personal. Here pixels are averaged over 2 x 2, there is one hidden layer, and of the second
output layer only the intercepts are personal, because most owners have few images.

Unlike in the paper's Algorithm 1, records join each step by independent draws, and an accountant
computes the noise: the constant of the paper is too small, and its amplification by sampling does
not hold towards the other owners (see `theory.private_learning`).
"""

from __future__ import annotations

from ebfed.evaluation.study import Study
from huang2023.joint_dp.page import JointDPStudy, crossover, tabulate
from huang2023.joint_dp.settings import list_cells
from huang2023.joint_dp.simulation import deal_images, make_records, one_run

__all__ = ["JointDPStudy", "crossover", "deal_images", "make_records", "run"]

STUDY = Study(
    JointDPStudy,
    cells=list_cells,
    one_run=one_run,
    tabulate=tabulate,
    reps=3,
    n_jobs=1,
    hidden=("steps",),
)
run = STUDY.run
