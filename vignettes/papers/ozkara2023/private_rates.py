"""Private rates: the gain of estimating rates together, under local privacy.

The populations are those of Ozkara, Girgis, Data and Diggavi (2023), section K.2, and a skewed
one: 10,000 clients with 14 rows of 0 or 1 each, whose rates are normal around 1/2 (given that they
lie in [0, 1]), uniform, one of 1/4, 1/2 and 3/4, Beta(4, 4) or Beta(2, 5).

The *gain* is the fall in mean squared error from that of each client's own proportion to that of
the estimates. No method can gain more on average than the *oracle*, the posterior mean under the
true population. A beta population fitted to the counts themselves (no privacy) is near it, except
where rates have three values only.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.channels import OneBit, TwoBit, UnaryEncoding
from ebfed.datasets import make_bernoulli_groups
from ebfed.evaluation.study import SIMULATED_NOISE, Study, average, print_grid
from ebfed.location import BernoulliEB
from ebfed.tables.clients import Summary
from ozkara2023.doubts import doubts

CLIENTS, ROWS = 10_000, 14
EPSILONS = (0.5, 1.0, 2.0, 4.0)
OPEN, ORACLE = "non-private", "oracle"
METHODS: dict[str, Callable[[float], dict[str, Any]]] = {
    "one bit, Theorem 4": lambda epsilon: {"channel": OneBit(epsilon), "method": "paper"},
    "two bits": lambda epsilon: {"channel": TwoBit(epsilon)},
    "two bits, learned range": lambda epsilon: {"channel": TwoBit(epsilon, range="private")},
    "unary encoding": lambda epsilon: {"channel": UnaryEncoding(epsilon)},
}


@dataclass(frozen=True)
class RateDistribution:
    """Distribution of the rates of clients."""

    label: str  # on page and figure
    draw: (
        str | Callable[[int, np.random.Generator], NDArray]
    )  # a population of `make_bernoulli_groups`
    density: Callable[[NDArray], NDArray] | None = None  # on [0, 1], up to a factor
    atoms: tuple[float, ...] = ()  # of equal probability, if there is no density

    def nodes(self, k: int = 400) -> tuple[NDArray, NDArray]:
        """Return rates and weights of a quadrature over the population."""
        if self.density is None:
            return np.array(self.atoms), np.full(len(self.atoms), 1 / len(self.atoms))
        points, weights = np.polynomial.legendre.leggauss(k)
        rates = (points + 1) / 2
        masses = weights * self.density(rates)
        return rates, masses / masses.sum()


POPULATIONS = {
    "normal": RateDistribution(
        "normal(.5, .15)", "normal", lambda p: np.exp(-0.5 * ((p - 0.5) / 0.15) ** 2)
    ),
    "uniform": RateDistribution("uniform", "uniform", np.ones_like),
    "spikes": RateDistribution("1/4, 1/2, 3/4", "spikes", atoms=(0.25, 0.5, 0.75)),
    "beta": RateDistribution("Beta(4, 4)", "beta", lambda p: (p * (1 - p)) ** 3),
    "skewed": RateDistribution(
        "Beta(2, 5)", lambda size, rng: rng.beta(2, 5, size), lambda p: p * (1 - p) ** 4
    ),
}


def _cells(quick: bool) -> list[dict[str, Any]]:
    """List populations and values of epsilon; the quick version has one population and two."""
    return [
        {"population": population, "epsilon": epsilon}
        for population in (["normal"] if quick else POPULATIONS)
        for epsilon in (np.nan, *((1.0, 4.0) if quick else EPSILONS))
    ]


def _tabulate(runs: pd.DataFrame) -> pd.DataFrame:
    table = average(runs, ["population", "method", "epsilon"], ["gain", "mse"])
    risks = table.drop(columns=["gain", "gain_se", "gain_sd"])
    local = table["mse"] / (1 - table["gain"] / 100)
    return table.assign(doubt=doubts(risks, "epsilon", local))


def oracle(population: RateDistribution, n: int) -> NDArray:
    """Posterior mean of a rate under the true population, for 0, ..., n ones in n rows."""
    rates, weights = population.nodes()
    ones = np.arange(n + 1)[:, None]
    joint = weights * rates**ones * (1 - rates) ** (n - ones)
    return joint @ rates / joint.sum(axis=1)


def _one_run(seed: tuple[int, int], population: str, epsilon: float) -> list[dict[str, Any]]:
    """Errors and gains of every method at one epsilon, or of those without one."""
    place = list(POPULATIONS).index(population)
    law = POPULATIONS[population]
    rng = np.random.default_rng([*seed, place])  # the same clients at every epsilon
    rows, groups, rates = make_bernoulli_groups(
        CLIENTS, ROWS, population=law.draw, random_state=rng
    )
    summary = Summary.from_rows(rows, groups)
    own = summary.mean[:, 0]
    if np.isnan(epsilon):
        known = oracle(law, ROWS)[np.rint(ROWS * own).astype(int)]
        estimates = {OPEN: BernoulliEB().fit(summary).predict(), ORACLE: known}
    else:
        estimates = {}
        for k, (method, settings) in enumerate(METHODS.items()):
            draws = [*seed, place, round(1000 * epsilon), k]
            learner = BernoulliEB(**settings(epsilon), random_state=draws)
            estimates[method] = learner.fit(summary).predict()
    local = float(np.mean((own - rates) ** 2))
    errors = {method: float(np.mean((each - rates) ** 2)) for method, each in estimates.items()}
    return [
        {"method": method, "mse": mse, "gain": 100 * (1 - mse / local)}
        for method, mse in errors.items()
    ]


def _gain_of(row: Any) -> str:
    return f"{row.gain:.2f} ± {row.gain_sd:.2f}" + "!" * bool(row.doubt)


class PrivateRatesStudy(Study, cells=_cells, one_run=_one_run, tabulate=_tabulate):
    """The table has a row for each ``population``, ``method`` and ``epsilon`` (NaN: no privacy):
    ``gain`` over the local estimate in per cent, its standard error ``gain_se`` and standard
    deviation over runs ``gain_sd``; the same of ``mse``; and a ``doubt``, where an error cannot be
    right.
    """

    name, full = "private-rates", 10

    def title(self) -> str:
        return (
            f"Private rates: gain over each client's own proportion, %; {CLIENTS:,} clients, "
            f"{ROWS} rows each"
        )

    def lines(self) -> Iterator[str]:
        for k, (population, part) in enumerate(self.table.groupby("population", sort=False)):
            yield from [""] * (k > 0)
            head, label = POPULATIONS[str(population)].label, "epsilon {:g}".format
            yield from print_grid(part, "epsilon", _gain_of, 28, 16, head=head, label=label)

    def notes(self) -> Iterator[str]:
        yield (
            f"Means ± standard deviations over {self.reps} runs, each with new clients; all "
            "methods see the same. Non-private: a beta population fitted to the counts by maximum "
            "likelihood. Oracle: posterior means under the true population."
        )
        yield SIMULATED_NOISE

    def panels(self) -> Iterator[dict[str, Any]]:
        for population, part in self.table.groupby("population", sort=False):
            labels = {"title": POPULATIONS[str(population)].label, "xlabel": "epsilon"}
            labels["ylabel"] = "gain over local, %"
            yield {"table": part, "x": "epsilon", "y": "gain", "spread": "sd", "errors": 1} | labels
