"""Polling counties: each of six elections predicted from the other five, and the next from all.

The protocol is that of Ozkara, Girgis, Data and Diggavi (2023): counties are clients, an election
is a row, 1 if the Republican won. Each election is left out in turn; every county's rate p is
estimated from the other ``n = 5``, and the estimate p^ judged on the one left out by its squared
error ``(p^ - y)**2``, averaged over counties.

Two gains over the local estimate (the mean of the five) are reported, and they are not the same.
The *held-out* gain compares errors on the election left out. The *implied* gain compares expected
squared errors of p under the fitted population; no vote that was left out enters it. With m_z the
posterior mean after z wins out of n,

    local risk = E p (1 - p) / n,    Bayes risk = E p**2 - sum_z P(z) m_z**2,

and for a beta population Bayes risk is ``a = n / (n + alpha + beta)`` times local risk, an implied
gain of ``100 (1 - a)`` per cent. The two differ for two reasons:

- One election is a coin toss around p, whose variance ``E p (1 - p) = n * local risk`` is in the
  error of every method alike. Were the fitted population true and elections exchangeable, the
  held-out gain would be ``implied / (n + 1)``: the column `expected`.
- Elections are not exchangeable: some years whole regions change sides. With each county's six
  elections shuffled, which makes them exchangeable, the gain of eq. (6) is about 1.3 % and moves by
  a few tenths from fold to fold; in their order it moves by three.

Estimates by eq. (6) use a population fitted to the other counties; its implied gain is that of the
population fitted to all. An implied gain takes the fitted population as true. It is too optimistic
where the population follows few data closely: that of a small state, or the NPMLE. Six frequencies
do not determine the NPMLE; where several populations are likeliest, it is their analytic centre
(see `ebfed.priors.Discrete`). `ML in states` shrinks counties to their state, and states to all
(`ebfed.priors.nested`): no gain is implied there, for that depends on the state.

The page begins with the election of 2024, which nobody had seen when these methods were written:
populations and estimates are from all six elections, and the errors are those on the seventh. A
gain on one election has a standard error too: that of leaving out the counties of one state at a
time (the delete-one-group jackknife), since counties of a state change sides together.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.channels import TwoBit
from ebfed.datasets import load_county_outcomes, load_county_patterns_2024
from ebfed.evaluation.study import THIN, Results, each, print_row, records
from ebfed.likelihoods import Binomial
from ebfed.location import BernoulliEB
from ebfed.priors import IdentificationWarning, Prior
from ebfed.report import new_axes, plot_by_fold, plot_population, plot_shrinkage
from ebfed.tables.clients import Summary

__all__ = ["CountyStudy", "expected_risks", "run"]

POPULATIONS: dict[str, dict[str, Any]] = {
    "eq. (6)": {"method": "paper"},
    "moments": {"method": "moments"},
    "ML": {},
    "NPMLE": {"prior": "npmle"},
}
BY_STATE = "ML by state"
IN_STATES = "ML in states"
PRIVATE = "ML, TwoBit"
SEEDS = range(10)
FACTS = ["mse", "gain", "expected", "implied", "mean", "sd", "alpha", "beta"]


@dataclass(frozen=True)
class CountyStudy(Results):
    """Results of the county study.

    Attributes
    ----------
    folds : DataFrame
        A row for each election left out and each method: ``year``, ``method``, ``mse`` on the
        election left out, ``gain`` over local in per cent, the gain ``implied`` by the fitted
        population and what it lets one expect on one election (``expected``); ``mean`` and ``sd``
        of the fitted population (over states, where each has its own), ``alpha`` and ``beta`` of a
        beta; ``saturated``, whether the population reproduces the counted frequencies exactly, so
        that another may do so too. NaN where a method has no such figure.
    table : DataFrame
        A row for each method: means over folds, and as ``..._pm`` the standard deviations (divisor
        6: the six folds are all there are).
    fits : mapping of name to fitted BernoulliEB
        The populations of the last fold.
    n_counties : int
    later : DataFrame or None
        A row for each method, fitted to all six elections: ``mse`` on the election of 2024,
        ``gain`` over local in per cent and its standard error ``gain_se``. "ML, TwoBit" is fitted
        to randomised answers of two bits with epsilon 1: means over ten seeds, and ``gain_pm``,
        the standard deviation over them. None for outcomes of your own.
    """

    name: ClassVar[str] = "county"

    folds: pd.DataFrame
    table: pd.DataFrame
    fits: Mapping[str, BernoulliEB]
    n_counties: int
    later: pd.DataFrame | None = None

    def title(self) -> str:
        years = self.folds["year"].unique()
        return (
            f"Polling {self.n_counties:,} counties, {years[0]} to {years[-1]}: each of "
            f"{len(years)} elections predicted from the others"
        )

    def lines(self) -> Iterator[str]:
        """Yield errors and gains in 2024 and by held-out election, and the fitted populations."""
        if self.later is not None:
            yield from _later_lines(self.later)
            yield ""
        yield (
            f"{'':<12}{'squared error':>18}{'gain over local, %: on the election left out':>49}"
            f"{'for the rate':>17}"
        )
        yield (
            f"{'method':<12}{'left-out election':>18}{'held-out':>27}{'model expects':>22}"
            f"{'model-implied':>17}"
        )
        yield THIN
        for row in self.table.itertuples():
            yield (
                f"{row.method:<12}{_spread(row.mse, row.mse_pm, 4):>18}"
                f"{_spread(row.gain, row.gain_pm, 1):>27}"
                f"{_spread(row.expected, row.expected_pm, 1):>22}"
                f"{_spread(row.implied, row.implied_pm, 1):>17}"
            )
        yield ""
        yield print_row("held-out gain, %, by year", self.folds["year"].unique(), 42, 9)
        yield THIN
        for method, gains in self.gains().items():
            yield print_row(method, [f"{gain:.1f}" for gain in gains], 42, 9)
        yield ""
        names = ("mean", "sd", "alpha", "beta")
        yield print_row("fitted population", names, 28, 17)
        yield THIN
        for row in self.table.dropna(subset="mean").itertuples():
            values = [(getattr(row, name), getattr(row, f"{name}_pm")) for name in names]
            yield print_row(row.method, [_spread(*value, 3) for value in values], 28, 17)

    def notes(self) -> Iterator[str]:
        n = self.folds["year"].nunique() - 1
        if self.later is not None:
            private = self.later.set_index("method").loc[PRIVATE]
            yield (
                f"2024: estimates from {n + 1} elections, errors on the next one. Standard errors "
                f"by leaving out one state at a time. {PRIVATE}: each county sends two randomised "
                f"bits (epsilon 1); the mean of {len(SEEDS)} seeds, between which the gain has a "
                f"standard deviation of {private['gain_pm']:.1f}."
            )
        yield f"Means ± standard deviations over the {n + 1} elections."
        yield (
            "Held-out: the fall in squared error on an election that the estimates did not use. "
            "Model-implied: the fall in the expected squared error of a county's rate if the "
            "fitted population is true; it uses no election left out. They differ, first, "
            "because one election is a coin toss around the rate: its variance is in the error of "
            f"every method, so that the model itself expects only 1/{n + 1} of its gain on one "
            "election. Second, elections are not exchangeable: some are harder to predict, and the "
            "held-out gain changes from year to year."
        )
        saturated = int(self.folds.loc[self.folds["method"] == "NPMLE", "saturated"].sum())
        if saturated:
            yield (
                f"In {saturated} of {n + 1} folds the NPMLE reproduces the frequencies of 0 to {n} "
                "wins exactly. Other populations then do so too, with other estimates; the NPMLE "
                "is the one at their centre."
            )

    def gains(self) -> pd.DataFrame:
        """Held-out gains in per cent, a row for each election and a column for each method."""
        gains = self.folds.pivot(index="year", columns="method", values="gain")
        methods = [method for method in self.table["method"] if method != "local"]
        return gains[methods].rename_axis(index="left out", columns=None)

    def frames(self) -> dict[str, pd.DataFrame]:
        frames = {"table": self.table, "folds": self.folds}
        return frames if self.later is None else frames | {"later": self.later}

    def to_dict(self) -> dict[str, Any]:
        return {
            "n_counties": self.n_counties,
            "folds": records(self.folds),
            "table": records(self.table),
            "later": None if self.later is None else records(self.later),
        }

    def figures(self) -> dict[str, Any]:
        """Draw shrinkage and populations of the last fold, and the gains of all.

        Returns
        -------
        dict of name to matplotlib Figure
        """
        left_out = self.folds["year"].iloc[-1]
        shrinkage = new_axes(2, (9.6, 4.4))
        for ax, name in zip(shrinkage, ("ML", "NPMLE"), strict=True):
            plot_shrinkage(self.fits[name], ax=ax)
            ax.set_title(f"{name}, {left_out} left out", loc="left", fontsize="medium")
            ax.set(xlabel="share of elections won", ylabel="estimated rate")
        populations = new_axes(2, (9.6, 4.2))
        for ax, cumulative in zip(populations, (False, True), strict=True):
            plot_population(self.fits, support=(0, 1), cumulative=cumulative, ax=ax)
            ax.set_xlabel("rate of Republican wins")
        (ax,) = new_axes(size=(7.2, 4.2))
        plot_by_fold(self.gains().drop(columns="pooled"), ax=ax)  # far off the scale of the rest
        ax.set_xlabel("held-out gain over local, %  (bar: mean ± sd over elections)")
        return {
            "shrinkage": shrinkage[0].figure,
            "populations": populations[0].figure,
            "gains": ax.figure,
        }


def run(outcomes: pd.DataFrame | None = None) -> CountyStudy:
    """Run the study: every method, every election left out once, and the election of 2024.

    Parameters
    ----------
    outcomes : DataFrame, optional
        ``state``, ``county``, ``year`` and ``republican`` (0 or 1), a row for each county and
        election; `datasets.load_county_outcomes` if None. Of these the winners of 2024 are known.

    Returns
    -------
    CountyStudy

    Examples
    --------
    >>> outcomes = load_county_outcomes()
    >>> study = run(outcomes[outcomes["state"].isin(["ME", "NH", "VT"])])
    >>> study.table["method"].tolist()
    ['local', 'pooled', 'eq. (6)', 'moments', 'ML', 'NPMLE', 'ML by state', 'ML in states']
    """
    later = _predict_2024() if outcomes is None else None
    outcomes = load_county_outcomes() if outcomes is None else outcomes
    votes = outcomes.pivot(index=["state", "county"], columns="year", values="republican")
    found = list(
        each(_leave_out, [{"votes": votes, "year": year} for year in votes], label="elections")
    )
    columns = ["year", "method", *FACTS, "saturated"]
    folds = pd.DataFrame([row for rows, _ in found for row in rows], columns=columns)
    return CountyStudy(folds, _tabulate(folds), found[-1][1], len(votes), later)


def _predict_2024() -> pd.DataFrame:
    """Predict the election of 2024 by every method from the six before it."""
    patterns = load_county_patterns_2024()
    counties = patterns.loc[patterns.index.repeat(patterns["n_counties"])]
    wins = counties["pattern"].str.count("R").to_numpy()
    # counties of one state and one record are interchangeable: the first are those won in 2024
    place = counties.groupby(level=0).cumcount()
    truth = (place < counties["republican_2024"]).to_numpy(float)
    states = counties["state"].to_numpy()
    summary = Summary.from_counts(wins, np.full(len(wins), len(patterns["pattern"][0])))
    errors = {
        name: (estimate - truth) ** 2 for name, estimate in _fit_all(summary, states)[0].items()
    }
    local = errors["local"]
    rows = [
        {"method": name, "mse": error.mean(), "gain": _gain(error.mean(), local.mean())}
        | {"gain_se": _standard_error(error, local, states)}
        for name, error in errors.items()
    ]
    private = [
        (answer - truth) ** 2
        for answer in each(
            _privately, [{"summary": summary, "seed": seed} for seed in SEEDS], label="seeds"
        )
    ]
    gains = [_gain(error.mean(), local.mean()) for error in private]
    error = np.mean(private, axis=0)
    rows.append(
        {"method": PRIVATE, "mse": error.mean(), "gain": np.mean(gains), "gain_pm": np.std(gains)}
        | {"gain_se": _standard_error(error, local, states)}
    )
    rows[0]["gain_se"] = np.nan
    return pd.DataFrame(rows)


def _privately(summary: Summary, seed: int) -> NDArray:
    fit = BernoulliEB(channel=TwoBit(epsilon=1), random_state=seed).fit(summary)
    return fit.predict()


def _standard_error(error: NDArray, local: NDArray, states: NDArray) -> float:
    """Return that of the gain in per cent, by the delete-one-group jackknife."""
    _, which = np.unique(states, return_inverse=True)
    ratio = [total.sum() - np.bincount(which, total) for total in (error, local)]
    gains = 100 * (1 - ratio[0] / ratio[1])
    n = len(gains)
    return float(np.sqrt((n - 1) / n * ((gains - gains.mean()) ** 2).sum()))


def _later_lines(later: pd.DataFrame) -> Iterator[str]:
    yield f"{'the election of 2024':<24}{'squared error':>16}{'gain over local, %':>24}"
    yield THIN
    for row in later.itertuples():
        gain = "0.0" if np.isnan(row.gain_se) else _spread(row.gain, row.gain_se, 1)
        yield f"{row.method:<24}{row.mse:>16.4f}{gain:>24}"


def _leave_out(
    votes: pd.DataFrame, year: int
) -> tuple[list[dict[str, Any]], dict[str, BernoulliEB]]:
    """Predict one election from the others by every method; returns rows, and the fits."""
    train, truth = votes.drop(columns=year), votes[year].to_numpy()
    summary = Summary.from_counts(train.sum(axis=1).to_numpy(), np.full(len(train), train.shape[1]))
    states = votes.index.get_level_values("state").to_numpy()
    estimates, facts, fits = _fit_all(summary, states)
    errors = {name: float(np.mean((each - truth) ** 2)) for name, each in estimates.items()}
    rows = [
        {"year": year, "method": name, "mse": mse, "gain": _gain(mse, errors["local"])}
        | {"saturated": False}
        | facts.get(name, {})
        for name, mse in errors.items()
    ]
    return rows, fits


def expected_risks(prior: Prior, n: int) -> tuple[float, float]:
    """Expected squared error of a rate from n trials, local and Bayes, if `prior` is true.

    Parameters
    ----------
    prior : fitted Prior of rates
    n : int

    Returns
    -------
    local, bayes : float
        ``E p (1 - p) / n`` and ``E p**2 - sum_z P(z) m_z**2``, exactly: z has n + 1 values.

    Examples
    --------
    >>> from ebfed.priors import Beta
    >>> uniform = Beta(1.0, 1.0).fit(Binomial(np.array([[1]]), np.array([2])))
    >>> local, bayes = expected_risks(uniform, 5)
    >>> round(bayes / local, 6) == round(5 / (5 + 2), 6)
    True
    """
    wins = _wins(n)
    mean = float(prior.mean_[0])
    square = float(prior.variance_[0]) + mean**2
    chance = np.exp(prior.log_marginal(wins))
    bayes = square - float(chance @ prior.posterior(wins).mean[:, 0] ** 2)
    return (mean - square) / n, bayes


def _wins(n: int) -> Binomial:
    """Every outcome of n trials."""
    return Binomial(np.arange(n + 1)[:, None], np.full(n + 1, n))


def _fit_all(
    summary: Summary, states: NDArray
) -> tuple[dict[str, NDArray], dict[str, dict[str, Any]], dict[str, BernoulliEB]]:
    """Estimate every county's rate by every method; facts about the fits; the fits."""
    local = summary.mean[:, 0]
    estimates = {"local": local, "pooled": np.full_like(local, local.mean())}
    facts: dict[str, dict[str, Any]] = {}
    fits = {name: BernoulliEB(**choice).fit(summary) for name, choice in POPULATIONS.items()}
    for name, fit in fits.items():
        estimates[name] = fit.predict()
        facts[name] = _describe(fit, local)
    estimates[BY_STATE], facts[BY_STATE] = _fit_states(summary, states)
    estimates[IN_STATES], facts[IN_STATES] = _fit_levels(summary, states)
    return estimates, facts, fits


def _describe(fit: BernoulliEB, local: NDArray) -> dict[str, Any]:
    """Gains that the fitted population implies, and the population itself."""
    prior, n = fit.prior_, int(fit.summaries_.n[0])
    counted = np.bincount(np.rint(n * local).astype(int), minlength=n + 1) / len(local)
    facts = _implied(*expected_risks(prior, n), n) | {
        "mean": prior.mean_[0],
        "sd": np.sqrt(prior.variance_[0]),
        "saturated": np.allclose(np.exp(prior.log_marginal(_wins(n))), counted, rtol=0, atol=1e-4),
    }
    return facts | {
        name: getattr(prior, f"{name}_")[0]
        for name in ("alpha", "beta")
        if hasattr(prior, f"{name}_")
    }


def _fit_states(summary: Summary, states: NDArray) -> tuple[NDArray, dict[str, Any]]:
    """Fit a population to the counties of each state; risks and moments over all counties."""
    estimate = np.empty(len(summary))
    n = int(summary.n[0])
    parts = []
    for state in np.unique(states):
        own = states == state
        with warnings.catch_warnings():  # one county, or all alike: the spread is not identified
            warnings.simplefilter("ignore", IdentificationWarning)
            fit = BernoulliEB().fit(summary.take(own))
        estimate[own] = fit.predict()
        mean, variance = fit.prior_.mean_[0], fit.prior_.variance_[0]
        parts.append((own.sum(), *expected_risks(fit.prior_, n), mean, variance + mean**2))
    size, *columns = np.array(parts).T
    local, bayes, mean, square = (size @ column / size.sum() for column in columns)
    return estimate, _implied(local, bayes, n) | {"mean": mean, "sd": np.sqrt(square - mean**2)}


def _fit_levels(summary: Summary, states: NDArray) -> tuple[NDArray, dict[str, Any]]:
    """Shrink counties to their state, and states to all; moments of the population."""
    pairs = np.fromiter(zip(states.tolist(), range(len(states)), strict=True), object)
    order = np.argsort(states, kind="stable")  # labels are sorted
    fit = BernoulliEB().fit(summary.renamed(pairs), groups=["state", "county"])
    estimate = np.empty(len(states))
    estimate[order] = fit.predict()
    prior = fit.prior_
    (above,) = (prior.spreads_above_ or {}).values()
    return estimate, {"mean": prior.mean_[0], "sd": np.hypot(above, np.sqrt(prior.variance_))[0]}


def _implied(local: float, bayes: float, n: int) -> dict[str, Any]:
    gain = _gain(bayes, local)
    return {"implied": gain, "expected": gain / (n + 1)}


def _gain(error: float, local: float) -> float:
    return 100 * (1 - error / local) if local > 0 else np.nan


def _tabulate(folds: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over folds of every figure, methods in their order."""
    methods = folds.groupby("method", sort=False)[FACTS]
    mean, spread = methods.mean(), methods.std(ddof=0)
    columns = {
        f"{name}{end}": part[name] for name in FACTS for end, part in (("", mean), ("_pm", spread))
    }
    return pd.DataFrame(columns).reset_index()


def _spread(value: Any, spread: Any, digits: int) -> str:
    return "–" if np.isnan(value) else f"{value:.{digits}f} ± {spread:.{digits}f}"
