"""Coverage: how often the intervals of groups, and of a population's mean, hold the truth.

Groups are drawn from a known population, a population is fitted to their messages, and nominal 95 %
intervals are compared with the truth: for every prior, likelihood and channel, few groups and many,
a spread that is small or large beside the errors of the groups. A population is *inside* a prior if
it is a member of the prior's family, and numbers of rows say nothing of the parameter. Others have
heavy tails, t(3), are skewed, have two humps, or are a few spikes. Groups may have unequal numbers
of rows, which may be *informative*: the larger the parameter of a group, the likelier it has many
rows.

The coverage of a fit is the probability, under the true population and given the messages of its
groups, that a group's parameter lies in its interval, averaged over groups. This has the same
expectation as counting, and less noise. The *oracle* knows the true population, and how numbers of
rows depend on it; its intervals are equal-tailed ones of its posterior.
"""

from __future__ import annotations

from ebfed.evaluation.coverage.page import CoverageStudy, tabulate
from ebfed.evaluation.coverage.settings import TruePopulation, list_cells, list_parts
from ebfed.evaluation.coverage.simulation import one_run
from ebfed.evaluation.study import Study

__all__ = ["CoverageStudy", "TruePopulation", "run"]

STUDY = Study(
    CoverageStudy,
    cells=list_cells,
    one_run=one_run,
    tabulate=tabulate,
    reps=12,
    hidden=("priors",),
    parts=list_parts,
)
run = STUDY.run
