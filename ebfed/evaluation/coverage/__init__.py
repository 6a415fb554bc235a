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

from typing import Any

from ebfed.evaluation.coverage.page import CoverageStudy
from ebfed.evaluation.coverage.settings import TruePopulation

__all__ = ["CoverageStudy", "TruePopulation", "run"]


def run(reps: int | None = None, seed: int = 0, **settings: Any) -> CoverageStudy:
    """Measure how often intervals hold the truth, and how wide they are.

    Parameters
    ----------
    reps : int, optional
        Number of fits with 6 groups, of which there are fewer with more groups; 12 if None.
    seed : int
        Seed of all random numbers.
    **settings
        ``quick``, ``n_jobs``, ``progress`` and ``keep`` of `ebfed.evaluation.study.Study.run`.
        Sequences of values that are wanted, all if not given: ``likelihood``, ``channel``,
        ``population``, ``spread``, ``n``, ``m`` (number of groups) and ``priors``.

    Returns
    -------
    CoverageStudy

    Raises
    ------
    ValueError
        If `reps` is below 2, `seed` is negative, or nothing has the values that are wanted.

    Examples
    --------
    >>> wanted = {"likelihood": ["poisson"], "population": ["gamma"], "priors": ["gamma"]}
    >>> study = run(4, quick=True, **wanted)
    >>> study.table[["prior", "m", "inside", "fits"]]
       prior  m  inside  fits
    0  gamma  6    True     4
    >>> bool(study.table["coverage"].between(0.9, 1).all())
    True
    """
    return CoverageStudy.run(reps, seed, **settings)
