"""Page of the study of coverage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from ebfed.evaluation.coverage.settings import EXACT, NONPARAMETRIC, list_cells, list_parts
from ebfed.evaluation.coverage.simulation import LEVEL, one_run
from ebfed.evaluation.study import (
    SIMULATED_NOISE,
    THIN,
    Study,
    draw_panel,
    print_grid,
    print_row,
)
from ebfed.report import new_axes

__all__ = ["CoverageStudy"]

# Coverage that a parametric prior must have inside its family, and others from 50 groups on.
LIMITS = (0.93, 0.985)
LEAST, FROM = 0.90, 50
PLACE = ["likelihood", "channel", "prior", "population", "spread", "n", "m"]


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
          interval of a group without data.
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
        (scale mixture, log-spline, NPMLE with draws or a bootstrap) at least 90 % from 50 groups
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
            f"{self.reps} fits with 8 groups, fewer with more. Beside each coverage: mean width of "
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
