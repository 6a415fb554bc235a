"""Opting out: the gains of a server and of a client if clients may give up their privacy.

The federated point estimation of Aldaghri, Mahdavifar and Beirami (2021), "FeO2: Federated Learning
with Opt-Out Differential Privacy". Client j has ``phi_j ~ N(phi, tau^2)``, its own estimate has
variance ``alpha^2``, and its message has ``N_p gamma^2`` more if it is one of ``N_p`` private
clients. The server takes the mean of all messages, with weight 1 for those of clients that opted
out and ``r`` for private ones; ``r = 1`` is FedAvg. Ditto draws a client's own estimate towards
that mean, with penalty lambda. Curves are formulas (`ebfed.theory.opt_out`), points are
simulations.

The paper does not state the parameters of its figures. Here those of Figures 2 and 3 are such that
the percentages of its text come out; those of Figures 1 and 4 are examples.

When one more client opts out, how much noise do the others add? Their privacy depends on the noise
of the sum of private messages. If the variance of that noise is unchanged, they are as private as
before, and each of them adds a little more noise. The paper keeps ``gamma^2``, the noise variance
of the *mean* of ``N_p`` messages, although one message moves that mean by as much as ``1 / N_p``:
each adds a little less, and all of them are less private. Both are computed.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.evaluation.study import THIN, Study, average, print_grid, records
from ebfed.location import OptOutMean
from ebfed.report import new_axes, plot_formulas
from ebfed.theory import opt_out as theory

# Federations are the columns of one fit; the errors of a tenth of them count as one run.
COLUMNS, TENTHS = 2000, 10
PHI = 1.0


class Setting(NamedTuple):
    """A federation, in the order of the arguments of `ebfed.theory.opt_out`."""

    population_variance: float
    noise_variance: float
    n: int
    channel_variance: float
    n_private: int
    n_open: int


FIGURES = ("1", "2", "3", "4", "incentive")
FEDAVG, OPTIMAL, BAYES = "FedAvg", "optimal ratio", "Bayes"
# A client stays private or opts out, and then one of two variances is kept.
STAYS, OUT_GAMMA2, OUT_SUM = "stays private", "opts out, γ² kept", "opts out, total noise kept"

# Figures 2 and 3: the family, in units of alpha^2, and penalties.
FAMILIES = {
    "2": (Setting(0.5235, 1.0, 1, 33.2, 19, 1), (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)),
    "3": (Setting(0.0687, 1.0, 1, 4.57, 34, 6), (2.0, 4.0, 10.0, 20.0, 40.0, 100.0)),
}
# The figures of the paper: by how many per cent the loss falls.
PUBLISHED = {
    ("2", OPTIMAL, STAYS): 17.0,
    ("2", FEDAVG, OUT_GAMMA2): 2.4,
    ("2", OPTIMAL, OUT_GAMMA2): 1.2,
    ("3", OPTIMAL, STAYS): 18.0,
    ("3", FEDAVG, OUT_GAMMA2): 2.5,
    ("3", OPTIMAL, OUT_GAMMA2): 1.2,
}
# Figures 1 and 4: clients, those that opted out, gamma^2, sigma_c^2 and ratios.
CLIENTS, OPEN = 20, 2
GAMMA2, SIGMA2 = (0.05, 0.1, 0.25), (0.5, 1.0, 2.0)
RATIOS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
OPENS = (0, 2, 5, 10, 15, 19)
# The incentive: number of clients that opted out before.
BEFORE = (0, 1, 3, 6, 10)

KEYS = ["figure", "panel", "method", "x"]
LABELS = {
    "1": ("ratio r", "variance of the server's mean"),
    "2": ("penalty λ", "risk of the client"),
    "3": ("penalty λ", "risk of the client"),
    "4": ("share that opted out", "variance of the server's mean"),
    "incentive": ("share that opted out before", "gain, %"),
}


def _cells(quick: bool) -> list[dict[str, Any]]:
    """List the figures; the quick version only has fewer runs, each of 2,000 federations."""
    return [{"figure": figure} for figure in FIGURES]


def _tabulate(runs: pd.DataFrame) -> pd.DataFrame:
    points = pd.concat([_points(figure) for figure in FIGURES], ignore_index=True)
    table = points.merge(average(runs, KEYS, ["mse"]), on=KEYS, validate="one_to_one")
    table["apart"] = (table["mse"] - table["formula"]) / table["mse_se"]
    return table


def opt_out(setting: Setting, kept: str) -> Setting:
    """Let one private client opt out.

    What is kept is the variance of the noise of the sum of private messages, ``N_p q``, or
    ("gamma2") that of their mean, ``q / N_p``.

    >>> setting = Setting(0.5, 1.0, 1, 30.0, n_private=6, n_open=0)
    >>> [opt_out(setting, kept).channel_variance for kept in ("sum", "gamma2")]
    [36.0, 25.0]
    """
    change = setting.n_private / (setting.n_private - 1)
    return setting._replace(
        channel_variance=setting.channel_variance * (change if kept == "sum" else 1 / change),
        n_private=setting.n_private - 1,
        n_open=setting.n_open + 1,
    )


def _one_run(seed: tuple[int, int], figure: str) -> list[dict[str, Any]]:
    """Mean squared error at each point of a figure, for each tenth of the federations."""
    points = _points(figure)
    points["learner"] = np.where(points["panel"] == BAYES, "bayes", "ditto")
    clients = int(points["n_private"].iloc[0] + points["n_open"].iloc[0])
    key = [*seed, FIGURES.index(figure)]
    normal = np.random.default_rng([*key, 0]).standard_normal((2, clients, COLUMNS))
    rows = []
    for _, part in points.groupby([*Setting._fields, "ratio", "learner"], sort=False):
        one = next(part.itertuples())
        phi = PHI + np.sqrt(one.population_variance) * normal[0]
        own = phi + np.sqrt(one.noise_variance) * normal[1]
        learner = OptOutMean(
            one.population_variance,
            one.noise_variance,
            one.channel_variance / one.n_private,
            ratio=one.ratio,
            personalize=one.learner,
            random_state=np.random.default_rng([*key, 1]),  # the same noise at all points
        )
        consent = np.where(np.arange(clients) < one.n_private, "private", "open")
        learner.fit(own, groups=np.arange(clients), consent=consent)
        personal = learner.predict()
        for point in part.itertuples():
            # the last private client, which is the first open one after it has opted out
            j = point.n_private - (1 if point.private == 1 else 0)
            if np.isnan(point.penalty):
                error = learner.global_ - PHI
            elif point.best:
                error = personal[j] - phi[j]
            else:
                error = (own[j] + point.penalty * learner.global_) / (1 + point.penalty) - phi[j]
            place = {name: getattr(point, name) for name in KEYS}
            for tenth, errors in enumerate(error.reshape(TENTHS, -1)):
                run = TENTHS * seed[1] + tenth
                rows.append({**place, "run": run, "mse": float(np.mean(errors**2))})
    return rows


def _points(figure: str, *, fine: bool = False) -> pd.DataFrame:
    """Return the points of a figure: simulated ones or, if `fine`, those of its curves."""
    plan = {"1": _ratios, "2": _penalties, "3": _penalties, "4": _shares, "incentive": _incentive}
    return pd.DataFrame([{"figure": figure, **point} for point in plan[figure](figure, fine)])


def _ratios(figure: str, fine: bool) -> Iterator[dict[str, Any]]:
    """Figure 1: the server's mean against the ratio."""
    curves = [("γ²", f"γ² = {each:g}", each, SIGMA2[1]) for each in GAMMA2]
    curves += [("σc²", f"σc² = {each:g}", GAMMA2[1], each) for each in SIGMA2]
    n_private = CLIENTS - OPEN
    for panel, method, gamma2, sigma2 in curves:
        setting = Setting(sigma2 / 2, sigma2 / 2, 1, n_private * gamma2, n_private, OPEN)
        best = float(theory.optimal_ratio(*setting[:4]))
        for ratio in sorted({best, *(np.linspace(0, 1, 201) if fine else RATIOS)}):
            yield _server(panel, method, ratio, setting, ratio, best=ratio == best)


def _penalties(figure: str, fine: bool) -> Iterator[dict[str, Any]]:
    """Figures 2 and 3: a client against its penalty."""
    setting, penalties = FAMILIES[figure]
    many = np.geomspace(penalties[0], penalties[-1], 201)
    for panel in (FEDAVG, OPTIMAL):
        for method, chosen in _choices(setting).items():
            best = _best_penalty(panel, chosen, method == STAYS)
            for penalty in sorted({best, *(many if fine else penalties)}):
                yield _client(panel, method, penalty, chosen, penalty, best=penalty == best)


def _shares(figure: str, fine: bool) -> Iterator[dict[str, Any]]:
    """Figure 4: the server's mean against the share that opted out."""
    for kept in ("γ²", "total noise"):
        for each in (FEDAVG, OPTIMAL):
            for n_open in range(OPENS[-1] + 1) if fine else OPENS:
                n_private = CLIENTS - n_open
                times = n_private if kept == "γ²" else CLIENTS**2 / n_private
                setting = Setting(0.5, 0.5, 1, times * GAMMA2[1], n_private, n_open)
                ratio = _ratio(each, setting)
                yield _server("", f"{each}, {kept} kept", n_open / CLIENTS, setting, ratio)


def _incentive(figure: str, fine: bool) -> Iterator[dict[str, Any]]:
    """Clients with their best penalties, against the share that opted out before."""
    family = FAMILIES["2"][0]
    clients = family.n_private + family.n_open
    noise = family.n_private * family.channel_variance  # of the sum: the same at all shares
    for panel in (FEDAVG, OPTIMAL, BAYES):
        for n_open in range(BEFORE[-1] + 1) if fine else BEFORE:
            n_private = clients - n_open
            setting = family._replace(
                channel_variance=noise / n_private, n_private=n_private, n_open=n_open
            )
            for method, chosen in _choices(setting).items():
                penalty = _best_penalty(panel, chosen, method == STAYS)
                yield _client(panel, method, n_open / clients, chosen, penalty, best=True)


def _choices(setting: Setting) -> dict[str, Setting]:
    """Return the federation of a client of `setting`, by what it does."""
    return {
        STAYS: setting,
        OUT_GAMMA2: opt_out(setting, "gamma2"),
        OUT_SUM: opt_out(setting, "sum"),
    }


def _ratio(panel: str, setting: Setting) -> float:
    return 1.0 if panel == FEDAVG else float(theory.optimal_ratio(*setting[:4]))


def _best_penalty(panel: str, setting: Setting, private: bool) -> float:
    if panel != BAYES:
        return float(theory.ditto_penalty(*setting, private, _ratio(panel, setting)))
    t, v, n, q, n_private, n_open = setting
    others = theory.server_variance(t, v, n, q, n_private - private, n_open - (not private))
    return float(v / n / (t + others))


def _server(
    panel: str, method: str, x: float, setting: Setting, ratio: float, best: bool = False
) -> dict[str, Any]:
    """Point of the server's mean: it has no penalty."""
    return {
        **{"panel": panel, "method": method, "x": x, "best": best, "share": np.nan},
        **setting._asdict(),
        **{"ratio": ratio, "private": np.nan, "penalty": np.nan},
        "formula": float(theory.server_variance(*setting, ratio)),
    }


def _client(
    panel: str, method: str, x: float, setting: Setting, penalty: float, best: bool
) -> dict[str, Any]:
    """Point of a client that stays private, or that has opted out."""
    private = method == STAYS
    ratio = _ratio(panel, setting)
    before = setting.n_open - (not private)
    risk = (
        theory.bayes_risk(*setting, private)
        if panel == BAYES
        else theory.ditto_risk(penalty, *setting, private, ratio)
    )
    return {
        **{"panel": panel, "method": method, "x": x, "best": best},
        **{"share": before / (setting.n_private + setting.n_open), **setting._asdict()},
        **{"ratio": ratio, "private": float(private), "penalty": penalty, "formula": float(risk)},
    }


def _gains(points: pd.DataFrame, runs: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return by how many per cent the least risk falls: by opting out, and by the optimal ratio."""
    clients = points[points["best"] & points["penalty"].notna()]
    errors = {} if runs is None else dict(list(runs.groupby(KEYS)["mse"]))
    rows = []
    for (figure, share), part in clients.groupby(["figure", "share"], sort=False):
        of = {(row.panel, row.method): row for row in part.itertuples()}
        for (panel, method), row in of.items():
            if (panel, method) == (OPTIMAL, STAYS) and figure in FAMILIES:
                before = of[FEDAVG, STAYS]
            elif method != STAYS:
                before = of[panel, STAYS]
            else:
                continue
            gain = {
                **{"figure": figure, "panel": panel, "method": method, "x": share},
                "formula": 100 * (1 - row.formula / before.formula),
                "published": PUBLISHED.get((figure, panel, method), np.nan),
            }
            if errors:
                a, b = (errors[tuple(getattr(each, k) for k in KEYS)] for each in (before, row))
                gain |= _fall(a.to_numpy(), b.to_numpy())
                gain["apart"] = (gain["gain"] - gain["formula"]) / gain["gain_se"]
            rows.append(gain)
    return pd.DataFrame(rows)


def _fall(before: NDArray, after: NDArray) -> dict[str, float]:
    """Return by how many per cent the mean of paired runs falls, with its standard error."""
    ratio = after.mean() / before.mean()
    rest = after - ratio * before  # of a ratio of means, by linearisation
    error = rest.std(ddof=1) / np.sqrt(len(rest)) / before.mean()
    return {"gain": 100 * (1 - ratio), "gain_se": 100 * error}


def _incentives(gains: pd.DataFrame) -> pd.DataFrame:
    """Return the curves of the incentive; that of Bayes only at equal privacy, where it is lost."""
    shown = (gains["panel"] != BAYES) | (gains["method"] == OUT_SUM)
    shown &= gains["figure"] == "incentive"
    words = gains["method"].str.removeprefix("opts out, ")
    return gains.assign(method=gains["panel"] + ", " + words, panel="", best=False)[shown]


def _title(figure: str, panel: str) -> str:
    if figure == "4":
        return f"Figure 4: {CLIENTS} clients"
    if figure == "1":
        return f"Figure 1, {panel}: {CLIENTS - OPEN} of {CLIENTS} clients private"
    setting = FAMILIES.get(figure, FAMILIES["2"])[0]
    clients = setting.n_private + setting.n_open
    if figure in FAMILIES:
        return f"Figure {figure}, {panel}: {setting.n_private} of {clients} clients private"
    return f"What a client gains by opting out, %: {clients} clients"


def _print_curves(points: pd.DataFrame, value: str, scale: float, digits: int) -> Iterator[str]:
    """Print a panel: simulation, standard error, formula, and how far they are apart."""
    figure, panel = points["figure"].iloc[0], points["panel"].iloc[0]
    points = points.sort_values("best", kind="stable")
    at = points["x"].map("{:g}".format).mask(points["best"], "(best)")
    best = {row.method: f" ({row.x:.2g})" for row in points[points["best"]].itertuples()}
    names = [name + best.get(name, "") for name in points["method"]]
    points = points.assign(at=at, name=names)

    def show(name: str, form: str) -> Any:
        return lambda row: form.format(round(scale * getattr(row, name), 9) + 0)

    below = {
        " ": show(f"{value}_se", f"({{:.{digits}f}})"),
        "  formula": show("formula", f"{{:.{digits}f}}"),
        "  apart": lambda row: f"{row.apart:+.1f}",
    }
    options: dict[str, Any] = {"head": LABELS[figure][0], "by": "name", "below": below}
    cell = show(value, f"{{:.{digits}f}}")
    yield from print_grid(points, "at", cell, 33, 9, title=_title(figure, panel), **options)
    yield ""


def _print_published(gains: pd.DataFrame) -> Iterator[str]:
    """Print the figures of the paper beside formula and simulation."""
    yield "By how many per cent the least risk of a client falls"
    yield THIN
    yield f"{'':<51}{'published':>10}{'formula':>10}{'simulated':>17}{'apart':>8}"
    for row in gains[gains["figure"] != "incentive"].itertuples():
        what = f"{row.panel}, {row.method}"
        if row.method == STAYS:
            what = f"{OPTIMAL}, not {FEDAVG}; {row.method}"
        published = "" if np.isnan(row.published) else f"{row.published:g}"
        found = f"{row.gain:.2f} ± {row.gain_se:.2f}"
        yield (
            f"{f'Figure {row.figure}: {what}':<51}{published:>10}{round(row.formula, 9) + 0:>10.3f}"
            f"{found:>17}{row.apart:>+8.1f}"
        )


class OptOutStudy(Study, cells=_cells, one_run=_one_run, tabulate=_tabulate):
    """Results of the study of opting out.

    Attributes
    ----------
    table : DataFrame
        A row for each point of a ``figure``: its ``panel``, curve (``method``) and place ``x``,
        whether it is the ``best`` of its curve, the parameters, the ``formula``, the mean squared
        error ``mse`` with its standard error ``mse_se``, and by how many of these it lies above the
        formula (``apart``).
    gains : DataFrame
        By how many per cent the least risk of a client falls: the ``formula``, the simulated
        ``gain`` with its standard error ``gain_se``, and the ``published`` figure of the paper.
    """

    name, full = "opt-out", 20
    heading = "Opting out: mean squared errors x 1000"

    @cached_property
    def gains(self) -> pd.DataFrame:
        """By how many per cent the least risk of a client falls."""
        return _gains(self.table, self.runs)

    def lines(self) -> Iterator[str]:
        drawn = self.table[self.table["figure"] != "incentive"]
        for _, part in drawn.groupby(["figure", "panel"], sort=False):
            yield from _print_curves(part, "mse", 1000, 2)
        yield from _print_curves(_incentives(self.gains), "gain", 1, 3)
        yield from _print_published(self.gains)

    def notes(self) -> Iterator[str]:
        apart = pd.concat([self.table["apart"], self.gains["apart"]]).abs()
        yield (
            f"Means over {COLUMNS * self.reps:,} federations, in brackets the standard error; "
            "apart: by how many of these the mean lies above the formula, less than 2 in "
            f"{(apart < 2).mean():.0%} of {len(apart)} places, {apart.max():.1f} at most. Points "
            "of one figure share their random numbers."
        )
        formula = self.gains[self.gains["method"] != STAYS].set_index(["method", "panel"])
        formula = formula["formula"].sort_index()
        yield (
            "By opting out a client with its best penalty gains at most "
            f"{formula[OUT_GAMMA2].drop(BAYES).max():.2g} % if γ² is kept, and "
            f"{formula[OUT_SUM].drop(BAYES).max():.2g} % if the total noise is, in the "
            "settings above. Bayes: the client leaves its own message out of the server's mean; "
            "with the total noise kept its risk then changes by "
            f"{-formula[OUT_SUM, BAYES].min():+.2g} % at worst, because others add its noise. "
            "Parameters of Figures 2 and 3 are such that the published percentages come out."
        )

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "gains": records(self.gains)}

    def frames(self) -> dict[str, pd.DataFrame]:
        return {**super().frames(), "gains": self.gains}

    def figure(self) -> Any:
        fine = pd.concat([_points(figure, fine=True) for figure in FIGURES], ignore_index=True)
        found = self.table.assign(y=self.table["mse"], error=2 * self.table["mse_se"])
        gains = self.gains.assign(y=self.gains["gain"], error=2 * self.gains["gain_se"])
        curves = pd.concat([fine[fine["figure"] != "incentive"], _incentives(_gains(fine))])
        points = pd.concat([found[found["figure"] != "incentive"], _incentives(gains)])
        points = points.set_index(["figure", "panel"]).sort_index()
        axes = new_axes(2, (10.0, 14.0), n_rows=4)
        panels = curves.assign(y=curves["formula"]).groupby(["figure", "panel"], sort=False)
        for ax, ((figure, panel), lines) in zip(axes, panels, strict=True):
            log_x = figure in FAMILIES
            here = points.loc[(figure, panel)]
            plot_formulas(lines, here, x="x", y="y", error="error", log_x=log_x, ax=ax)
            ax.set_title(_title(figure, panel), loc="left", fontsize="medium")
            ax.set(xlabel=LABELS[figure][0], ylabel=LABELS[figure][1])
            if figure == "incentive":  # room for the legend
                low, high = ax.get_ylim()
                ax.set_ylim(low, high + 0.45 * (high - low))
        axes[0].figure.suptitle("Lines: formulas. Points: simulations ± 2 standard errors")
        return axes[0].figure
