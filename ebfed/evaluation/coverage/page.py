"""One run of the study of coverage, and its page."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ebfed.channels import Channel, Exact
from ebfed.evaluation.coverage.settings import (
    CHANNELS,
    EXACT,
    INFORMATIVE,
    MODELLED,
    NONPARAMETRIC,
    SETTINGS,
    list_cells,
    list_parts,
)
from ebfed.evaluation.study import SIMULATED_NOISE, THIN, Study, draw_panel, print_grid, print_row
from ebfed.priors import IdentificationWarning, Normal
from ebfed.report import new_axes
from ebfed.tables.unseen import UnseenGroupWarning

__all__ = ["LEVEL", "CoverageStudy", "Oracle", "one_run"]

LEVEL = 0.95
# Groups of a fit whose intervals are computed.
SCORED = 50
ENDS = ("conf.low", "conf.high")

# Coverage that a parametric prior must have inside its family, and others from 40 groups on.
LIMITS = (0.93, 0.985)
LEAST, FROM = 0.90, 40
PLACE = ["likelihood", "channel", "prior", "population", "spread", "n", "m"]


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
        if tried in MODELLED and (sizes == sizes[0]).all():
            continue  # of six groups, all may have few rows, or many
        est = clone(base).set_params(prior=given or setting.priors[tried])
        of_groups = {"covariates": np.log(sizes)[:, None]} if tried in MODELLED else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentificationWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", UnseenGroupWarning)
            est.fit(summary, **of_groups)
            figures = _score(est, known, new, float(masses @ nodes), setting.parameter, **of_groups)
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
    est: Any,
    known: Oracle,
    new: Oracle,
    mean: float,
    parameter: Callable[[NDArray], NDArray],
    covariates: NDArray | None = None,
) -> dict[str, Any]:
    """Compare the intervals of a fit with the truth; the last one is of a group without data.

    `parameter` puts the ends of intervals on the scale of the parameter. Where `covariates`, the
    logarithms of numbers of rows, are given, the intervals of the mean and of the group without
    data are not scored: these depend on numbers of rows.
    """
    some = slice(len(known.masses))
    groups, asked = np.append(est.groups_[some], len(est.groups_)), {}
    if covariates is not None:
        asked = {"covariates": np.append(covariates[some], covariates.mean())[:, None]}
    posterior = est.posterior(groups=groups, **asked)
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
        "mean_coverage": float(low <= mean <= high) if low < high and not asked else np.nan,
        "new_coverage": np.nan if asked else float(new.coverage(lower[-1:], upper[-1:])[0]),
    }


class CoverageStudy(Study):
    """Results of the study of coverage.

    Attributes
    ----------
    table : DataFrame
        A row for each ``likelihood``, ``channel``, ``prior``, ``population``, ``spread``, ``n``
        (numbers of rows: equal, unequal, informative) and number ``m`` of groups; whether the
        population is ``inside`` the prior's family, and of ``fits`` simulated fits the means of

        - ``coverage`` of intervals of groups, its standard error ``coverage_se``, their ``width``,
          ``relative_width`` beside the oracle's, and the share ``zero_width`` of fits in which some
          interval has no width;
        - ``robust_coverage``, ``robust_width`` of robust intervals, NaN where there are none;
        - ``mean_coverage`` of the interval of the population's mean, and ``new_coverage`` of the
          interval of a group without data; NaN where populations depend on numbers of rows.
    runs : DataFrame
        The same of each fit.
    reps, seed : int
    """

    name, full = "coverage", 12
    hidden = ("priors",)
    cells = staticmethod(list_cells)
    parts = staticmethod(list_parts)
    one_run = staticmethod(one_run)

    @staticmethod
    def tabulate(runs: pd.DataFrame) -> pd.DataFrame:
        """Return means over fits.

        Errors are over fits, because groups share that of a population.
        """
        groups = runs.groupby(PLACE, sort=False)
        figures = [
            *("coverage", "width", "oracle_width", "zero_width", "robust_coverage", "robust_width"),
            *("mean_coverage", "new_coverage"),
        ]
        table = groups[figures].mean()
        table.insert(0, "inside", groups["inside"].first())
        table.insert(2, "coverage_se", groups["coverage"].std() / np.sqrt(groups.size()))
        oracle = table.pop("oracle_width")
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(oracle > 0, table["width"] / oracle, np.nan)
        table.insert(4, "relative_width", relative)
        table["fits"] = groups.size()
        return table.reset_index()

    def violations(self, errors: float = 0.0) -> pd.DataFrame:
        """Return the rows of the table that are not as they should be.

        Inside its family a parametric prior is to cover between 93 and 98.5 %, a nonparametric one
        (scale mixture, log-spline, NPMLE with draws or a bootstrap) at least 90 % from 40 groups
        on; and no interval has zero width.

        Parameters
        ----------
        errors : float
            Number of standard errors by which a coverage must be beyond its limit.
        """
        return self.table[_violates(self.table, errors)]

    def title(self) -> str:
        return f"Coverage of nominal {LEVEL:.0%} intervals, %, and width beside the oracle's"

    def lines(self) -> Iterator[str]:
        """Yield a block for each likelihood, channel and n, populations inside the family first."""
        names = self.table["population"].str.ljust(15) + self.table["spread"].str.ljust(7)
        table = self.table.assign(name=names + self.table["prior"], marked=_violates(self.table))
        sizes = sorted(table["m"].unique())
        yield from self._summary()
        for inside in (True, False):
            part = table[table["inside"] == inside]
            yield from ("", "")
            yield f"Populations {'inside' if inside else 'outside'} the family"
            for place, block in part.groupby(["likelihood", "channel", "n"], sort=False):
                likelihood, channel, n = map(str, place)
                yield ""
                head, label = f"{likelihood}, {channel}, n {n}", "m {}".format
                yield from print_grid(
                    block, "m", _printed, 41, 11, head=head, label=label, by="name", values=sizes
                )

    def _summary(self) -> Iterator[str]:
        heads = ["lowest", "highest", "outside", "robust", "mean", "unseen", "no width"]
        yield print_row("Without channels", heads, 31, 9)
        yield THIN
        exact = self.table["channel"] == EXACT
        for place, part in self.table[exact].groupby(["likelihood", "prior"], sort=False):
            inside, outside = part[part["inside"]], part[~part["inside"]]
            cells = [
                inside["coverage"].min(),
                inside["coverage"].max(),
                outside["coverage"].min(),
                part["robust_coverage"].min(),
                inside["mean_coverage"].mean(),
                inside["new_coverage"].mean(),
                part["zero_width"].max(),
            ]
            yield print_row(
                " ".join(map(str, place)),
                ["" if np.isnan(cell) else f"{100 * cell:.1f}" for cell in cells],
                31,
                9,
            )

    def notes(self) -> Iterator[str]:
        yield (
            f"{self.reps} fits with 6 groups, fewer with more. Beside each coverage: mean width of "
            "intervals relative to the oracle's, which knows the population."
        )
        yield (
            f"! : inside its family a parametric prior is to cover {LIMITS[0]:.0%} to "
            f"{LIMITS[1]:.1%}, a nonparametric one (scale mixture, log-spline, NPMLE) at least "
            f"{LEAST:.0%} from {FROM} groups on; and no interval is to have zero width."
        )
        yield (
            "Without channels: the lowest and highest coverage inside the family; the lowest "
            "outside, and of robust intervals anywhere; coverage of the population's mean and of a "
            "group without data, averages inside the family; the largest share of fits in which "
            "some interval has no width."
        )
        if (self.table["channel"] != EXACT).any():
            yield SIMULATED_NOISE

    def figure(self) -> Any:
        """Draw coverage against the number of groups inside the family, by likelihood."""
        some = self.table[self.table["inside"] & (self.table["channel"] == EXACT)]
        likelihoods = list(some.groupby("likelihood", sort=False))
        axes = new_axes(len(likelihoods), (4.2 * len(likelihoods), 3.6))
        for ax, (likelihood, part) in zip(axes, likelihoods, strict=True):
            curves = part.groupby(["prior", "m"], sort=False, as_index=False).agg(
                coverage=("coverage", "mean"), spread=("coverage_se", "mean")
            )
            curves = curves.rename(columns={"prior": "method", "spread": "coverage_se"})
            labels: Any = {"title": str(likelihood), "xlabel": "m", "ylabel": "coverage"}
            draw_panel(ax, curves, "m", "coverage", errors=1, **labels)
            ax.axhspan(*LIMITS, color="0.9", zorder=0)
            ax.set_ylim(min(0.85, curves["coverage"].min() - 0.01), 1)
        return axes[0].figure


def _violates(table: pd.DataFrame, errors: float = 0.0) -> pd.Series:
    slack = errors * table["coverage_se"]
    above, below = table["coverage"] + slack, table["coverage"] - slack
    low, high = LIMITS
    wrong = np.where(
        table["prior"].isin(NONPARAMETRIC),
        (above < LEAST) & (table["m"] >= FROM),
        (above < low) | (below > high),
    )
    return (table["inside"] & wrong) | (table["zero_width"] > 0)


def _printed(cell: Any) -> str:
    mark = "!" if cell.marked else " "
    width = "" if np.isnan(cell.relative_width) else f"{cell.relative_width:.2f}"
    return f"{100 * cell.coverage:.1f}{mark}{width:>5}"
