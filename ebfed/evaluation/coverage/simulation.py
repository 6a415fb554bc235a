"""One run of the study of coverage."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ebfed.channels import Channel, Exact
from ebfed.evaluation.coverage.settings import CHANNELS, EXACT, INFORMATIVE, SETTINGS
from ebfed.priors import IdentificationWarning, Normal
from ebfed.tables.unseen import UnseenGroupWarning

__all__ = ["LEVEL", "Oracle", "one_run"]

LEVEL = 0.95
# Groups of a fit whose intervals are computed.
SCORED = 50
ENDS = ("conf.low", "conf.high")


class Oracle:
    """Posterior of groups under the true population.

    Parameters
    ----------
    nodes : ndarray of shape (k,)
        Nodes of the population, sorted.
    joint : ndarray of shape (n, k)
        Masses of the nodes given the messages of each group, up to a factor.
    """

    def __init__(self, nodes: NDArray, joint: NDArray):
        self.nodes = nodes
        self.masses = joint / joint.sum(axis=1, keepdims=True)

    def coverage(self, lower: NDArray, upper: NDArray) -> NDArray:
        """Probability that each parameter lies in its interval."""
        slack = 1e-9 * np.abs(self.nodes).max()
        held = (self.nodes >= lower[:, None] - slack) & (self.nodes <= upper[:, None] + slack)
        return (self.masses * held).sum(axis=1)

    def width(self) -> float:
        """Mean width of the oracle's intervals."""
        below = np.cumsum(self.masses, axis=1)
        ends = [(below < q).sum(axis=1) for q in ((1 - LEVEL) / 2, (1 + LEVEL) / 2)]
        lower, upper = (self.nodes[np.minimum(end, len(self.nodes) - 1)] for end in ends)
        return float((upper - lower).mean())


def one_run(
    seed: tuple[int, int],
    likelihood: str,
    channel: str,
    population: str,
    spread: str,
    n: str,
    m: int,
    priors: Sequence[str],
) -> list[dict[str, Any]]:
    """Coverage and widths of every prior for one draw of m groups."""
    setting = SETTINGS[likelihood]
    truth = setting.populations[spread][population]
    nodes, masses = truth.nodes()
    # the same groups through every channel
    name = f"{likelihood} {population} {spread} {n}".encode()
    rng = np.random.default_rng([*seed, crc32(name), m])
    theta = truth.draw(m, rng)
    sizes = truth.sizes(theta, setting.rows[n], n == INFORMATIVE, rng)
    summary = setting.draw(theta, sizes, rng)
    noise = np.random.default_rng([*seed, crc32(channel.encode())]).integers(2**31)
    base = clone(setting.estimator).set_params(channel=_channel(channel), random_state=int(noise))
    # one bit has no information on the spread
    given = Normal(variance=float(masses @ nodes**2)) if channel.startswith("OneBit") else None
    some = summary.take(slice(SCORED))
    if setting.likelihood is None:
        family = base.protocol().family
        likelihood_of_some = family.likelihood(family.figures(family.converted(some)))
    else:
        likelihood_of_some = setting.likelihood(some)
    logs = likelihood_of_some.logpdf(nodes[:, None])
    joint = masses * np.exp(logs - logs.max(axis=1, keepdims=True))
    if n == INFORMATIVE:
        rank, has_many = truth.ranks(nodes), sizes[:SCORED, None] > min(sizes)
        joint = joint * np.where(has_many, rank, 1 - rank)
    known, new = Oracle(nodes, joint), Oracle(nodes, masses[None])
    rows = []
    for tried in priors:
        est = clone(base).set_params(prior=given or setting.priors[tried])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentificationWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", UnseenGroupWarning)
            est.fit(summary)
            figures = _score(est, known, new, float(masses @ nodes), setting.parameter)
        # no prior lets numbers of rows depend on the parameter
        inside = setting.holds(tried, population) and n != INFORMATIVE
        rows.append({"prior": tried, "inside": inside, **figures})
    return rows


def _channel(name: str) -> Channel:
    """Return a channel by its name and epsilon."""
    if name == EXACT:
        return Exact()
    kind, epsilon = name.removesuffix(")").split("(")
    return CHANNELS[kind](float(epsilon))


def _score(
    est: Any, known: Oracle, new: Oracle, mean: float, parameter: Callable[[NDArray], NDArray]
) -> dict[str, Any]:
    """Compare the intervals of a fit with the truth; the last one is of a group without data.

    `parameter` puts the ends of intervals on the scale of the parameter.
    """
    groups = np.append(est.groups_[: len(known.masses)], len(est.groups_))
    posterior = est.posterior(groups=groups)
    lower, upper = (parameter(end[:, 0]) for end in posterior.interval(LEVEL))
    try:
        ends = posterior.interval(LEVEL, "robust")
        robust = [parameter(end[:-1, 0]) for end in ends]
        robust_figures = [known.coverage(*robust).mean(), (robust[1] - robust[0]).mean()]
    except ValueError:
        robust_figures = [np.nan, np.nan]
    of_mean = est.confint(LEVEL)
    low, high = (float(of_mean[end].iloc[0]) if len(of_mean) else np.nan for end in ENDS)
    return {
        "coverage": float(known.coverage(lower[:-1], upper[:-1]).mean()),
        "width": float((upper - lower)[:-1].mean()),
        "oracle_width": known.width(),
        "zero_width": float((upper <= lower).any()),
        "robust_coverage": float(robust_figures[0]),
        "robust_width": float(robust_figures[1]),
        "mean_coverage": float(low <= mean <= high) if low < high else np.nan,
        "new_coverage": float(new.coverage(lower[-1:], upper[-1:])[0]),
    }
