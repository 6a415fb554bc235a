"""The printed summary of a fit."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.privacy.ledger import NO_PROMISE, is_simulated
from ebfed.report.tidying import (
    FIXED,
    SPREAD,
    WITHIN,
    components_of,
    glance,
    tidy,
    with_intervals,
)
from ebfed.report.view import (
    FitView,
    LearnerView,
    LocationView,
    PopulationView,
    RegressionView,
    view_with,
)

__all__ = ["Grid", "Sheet", "Text", "p_text", "summary_table"]

WIDTH = 78
LABEL = 16
# Widths of the table of the mean, with tests by t and by z; correlations of a coefficient in a row.
OF_T, OF_Z = (17, 12, 11, 7, 8, 7, 8, 8), (24, 12, 11, 8, 7, 8, 8)
MOST_CORRELATIONS = 5
NO_PRIVACY = "none (raw summaries are sent)"
NO_PRIVACY_OF_LEARNERS = "none (raw changes are sent)"
# Names of likelihoods by their kind; see `GroupView`.
LIKELIHOODS = {"ML": "logLik", "REML": "logLik (REML)", "approximate": "approx. logLik"}


class Text(str):
    """Text that is shown as it is at a prompt, and as a table in a notebook.

    Parameters
    ----------
    text : str
    markup : str, optional
        Text in HTML; preformatted text if None.
    """

    markup: str | None

    def __new__(cls, text: str, markup: str | None = None) -> Text:
        """Keep the markup beside the text."""
        self = super().__new__(cls, text)
        self.markup = markup
        return self

    def __repr__(self) -> str:
        return str(self)

    def to_html(self) -> str:
        """Return the text in HTML."""
        return f"<pre>{html.escape(self)}</pre>" if self.markup is None else self.markup

    def _repr_html_(self) -> str:
        return self.to_html()


@dataclass
class Grid:
    """A table of a summary.

    Attributes
    ----------
    titles : sequence of str
    widths : sequence of int
        Widths of the columns.
    n_words : int
        Number of the first columns, which are words; all others are numbers.
    rows : list of sequences of str
    """

    titles: Sequence[str]
    widths: Sequence[int]
    n_words: int
    rows: list[Sequence[str]] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Lay it out for a terminal."""
        lines = ["-" * WIDTH, self._row(self.titles), "-" * WIDTH]
        for name, *cells in self.rows:
            if self.n_words == 1 and len(name) >= self.widths[0]:  # on a line of its own
                lines.append(_short(name, WIDTH))
                name = ""
            lines.append(self._row([name, *cells]))
        return lines

    def _row(self, cells: Sequence[str]) -> str:
        pairs = list(zip(cells, self.widths, strict=True))
        words = "".join(f"{_short(word, n - 1):<{n}}" for word, n in pairs[: self.n_words])
        numbers = "".join(f"{number:>{n}}" for number, n in pairs[self.n_words :])
        return (words + numbers).rstrip()

    def markup(self) -> str:
        """Lay it out for a notebook."""
        head = "".join(f"<th>{html.escape(title)}</th>" for title in self.titles)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


@dataclass
class Sheet:
    """The parts of a summary, before they are laid out.

    Attributes
    ----------
    title : str
    facts : list of (name, value)
        Short facts, two in a line.
    details : list of (name, text)
        Longer facts, one in a line.
    tables : list of Grid
    remarks : list of str
    notes : list of str
    """

    title: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    details: list[tuple[str, str]] = field(default_factory=list)
    tables: list[Grid] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def show(self) -> Text:
        """Lay it out for a terminal and for a notebook."""
        return Text("\n".join(self._lines()), self._markup())

    def _lines(self) -> list[str]:
        lines = [self.title.center(WIDTH).rstrip(), "=" * WIDTH]
        for (name, value), (other, number) in zip(self.facts[::2], self.facts[1::2], strict=True):
            left = f"{name + ':':<{LABEL}}{value:<23} "
            lines.append(left + f"{other}:{number:>{max(WIDTH - len(left) - len(other) - 1, 1)}}")
        for name, text in self.details:
            lines += textwrap.wrap(
                text, WIDTH, initial_indent=f"{name + ':':<{LABEL}}", subsequent_indent=" " * LABEL
            )
        if self.tables:
            lines += [line for table in self.tables for line in table.lines()]
            lines.append("-" * WIDTH)
        elif self.details:
            lines.insert(-len(self.details), "-" * WIDTH)
        for remark in self.remarks:
            lines += textwrap.wrap(remark, WIDTH, subsequent_indent="  ")
        for note in self.notes:
            lines += textwrap.wrap(f"Note: {note}", WIDTH, subsequent_indent="  ")
        return [*lines, "=" * WIDTH]

    def _markup(self) -> str:
        escape = html.escape
        facts = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>"
            for name, text in [*self.facts, *self.details]
        )
        below = "".join(f"<p>{escape(remark)}</p>" for remark in self.remarks)
        below += "".join(f"<p><em>Note:</em> {escape(note)}</p>" for note in self.notes)
        return (
            f"<div class='ebfed-summary'><h3>{escape(self.title)}</h3><table>{facts}</table>"
            f"{''.join(table.markup() for table in self.tables)}{below}</div>"
        )


@singledispatch
def summary_table(fit: Any) -> Text:
    """Describe a fit: data, parameters, privacy, notes.

    Parameters
    ----------
    fit : fitted estimator or formula, or a view
    """
    return summary_table(view_with(fit, "summary"))


@summary_table.register
def _(view: PopulationView) -> Text:
    prior, facts = view.prior, _facts(view)
    sheet = Sheet(view.title)
    sizes, channels = _sizes(view, facts), []
    if isinstance(view, LocationView):
        channels = _channels(view)
    else:
        sizes = [pair for pair in sizes if not pair[0].startswith("Rows")]
    sheet.facts = [
        ("Population", view.population),
        ("Groups" if channels else "Estimates", f"{facts['n_groups']:,}"),
        ("Fitted by", view.method),
        *sizes,
    ]
    sheet.details = [*_formula(view), *channels]
    table = Grid(("", "of", "column", "estimate", "std. error"), (10, 16, 20, 16, 16), 3)
    for effect, group, term, column, estimate, error, _ in _rows(view):
        name, of, about = _named(effect, group, term)
        if effect == FIXED:
            name = about
        elif name == "log_sd":
            name, of = "log sd", about
        table.rows.append((name, of, column, _estimate(estimate), _error(error)))
    sheet.tables.append(table)
    weight = view.weight()
    if weight is not None and len(weight):
        sheet.remarks.append(f"Reliability (weight of a group's own data): {_range(weight, '.3f')}")
    sheet.remarks += _intraclass_correlation(facts)
    if (gap := getattr(prior, "gap_", None)) is not None:
        kind = "Atoms" if hasattr(prior, "atoms_") else "Components"
        within = f"the log-likelihood is within {gap:.1g} of its maximum"
        sheet.remarks.append(f"{kind}: {len(prior.weights_)}; {within}.")
    sheet.notes = [*view.notes, *_noise(view)]
    return sheet.show()


@summary_table.register
def _(view: RegressionView) -> Text:
    facts = _facts(view)
    sheet = Sheet(view.title)
    sheet.facts = [
        ("Fitted by", view.method),
        ("Groups", f"{facts['n_groups']:,}"),
        ("Rounds", f"{view.n_rounds:,}"),
        *_sizes(view, facts),
    ]
    sheet.details = [
        *_formula(view),
        ("Population", view.population),
        ("Channel", ", ".join(dict.fromkeys(row["what"] for row in view.ledger))),
        *dict.fromkeys(("Privacy", _promise(row, NO_PRIVACY)) for row in view.ledger),
        *_converged(view),
    ]
    sheet.tables = [table for table in _tables_of(view) if table.rows]
    sheet.remarks = [*_reliability(view), *_intraclass_correlation(facts)]
    sheet.notes = [*view.notes, *_noise(view)]
    return sheet.show()


@summary_table.register
def _(view: LearnerView) -> Text:
    facts = _facts(view)
    sheet = Sheet(view.title, details=_formula(view))
    sheet.facts = [
        ("Model", view.model[:22]),
        ("Groups", f"{facts['n_groups']:,}"),
        ("Rounds", f"{facts['rounds']:,}"),
        ("Rows", f"{facts['nobs']:,}"),
        ("Parameters", f"{facts['npar']:,}"),
        ("Rows per group", _range(view.sizes, ",.0f")),
    ]
    if np.isfinite(facts["loss"]):
        share = "accuracy" in facts
        value = f"{facts['accuracy']:.1%}" if share else f"{facts['loss']:.4g}"
        when = "mean over clients (first batch of the last round)"
        sheet.details.append(("Accuracy" if share else "Loss", f"{value}, {when}"))
    for row in view.ledger:
        sheet.details.append((row["who"][:14], f"{row['what']}; {row['times']:,} times"))
        sheet.details.append(("Privacy", _promise(row, NO_PRIVACY_OF_LEARNERS)))
    sheet.notes = [*view.notes, *_noise(view)]
    return sheet.show()


def _facts(view: FitView) -> dict[str, Any]:
    return {name: values[0] for name, values in glance(view).items()}


def _rows(view: FitView) -> Iterable[tuple]:
    return zip(*tidy(view).values(), strict=True)


def _tables_of(view: RegressionView) -> list[Grid]:
    """Spreads between groups, the mean with its tests, and other parameters."""
    columns = with_intervals(view, 0.95)
    fixed = columns["effect"] == FIXED
    by_t = np.isfinite(columns["df"]).any()
    mean = Grid(("mean", "estimate", "std. error", "z", "p", "2.5 %", "97.5 %"), OF_Z, 1)
    if by_t:
        mean = Grid((*mean.titles[:3], "df", "t", *mean.titles[4:]), OF_T, 1)
    others = Grid(("", "of", "coefficient", "estimate", "std. error"), (12, 14, 26, 13, 13), 3)
    tested = np.isfinite(columns["std.error"][fixed]).any()
    for row in zip(*columns.values(), strict=True):
        each = dict(zip(columns, row, strict=True))
        effect, group, term = each["effect"], each["group"], each["term"]
        shown = _estimate(each["estimate"]), _error(each["std.error"])
        if effect == FIXED and tested:
            df = [_figure(each["df"], int(each["df"] < 1000))] if by_t else []
            ends = (_narrow(each[f"conf.{end}"]) for end in ("low", "high"))
            tests = (*df, _figure(each["statistic"]), p_text(each["p.value"]), *ends)
            mean.rows.append((term, *shown, *tests))
        elif effect != SPREAD or not term.startswith(("sd__", "cor__")):
            others.rows.append((*_named(effect, group, term), *shown))
    return [_between(columns), mean, others]


def _between(columns: dict[str, NDArray]) -> Grid:
    """Variances between groups and of rows, and correlations with the coefficients above."""
    figures: dict[str, dict[str, tuple[str, str]]] = {}
    correlations: dict[tuple[str, str, str], str] = {}
    for group, one, two, variance, value in zip(*components_of(columns).values(), strict=True):
        if two:
            correlations[group, one, two] = f"{_figure(value):>6}"
        else:
            figures.setdefault(group, {})[one] = f"{variance:.6g}", f"{value:.6g}"
    titles, widths = ["spread", "coefficient", "variance", "std. dev."], [14, 40, 12, 12]
    rows: list[Sequence[str]] = []
    for group, own in figures.items():
        for k, (term, both) in enumerate(own.items()):
            above = [correlations.get((group, each, term), " " * 6) for each in [*own][:k]]
            shown = "".join(above[:MOST_CORRELATIONS]).rstrip()
            rows.append(["" if k else group, term, *both, shown])
    width = max(len(row[-1]) for row in rows) if rows else 0
    if not width:
        return Grid(titles, widths, 2, [row[:-1] for row in rows])
    rows = [[*row[:-1], f"{row[-1]:<{width}}"] for row in rows]
    widths[1] -= width
    return Grid([*titles, f"{'  cor.':<{width}}"], [*widths, width], 2, rows)


def _formula(view: FitView) -> list[tuple[str, str]]:
    return [("Formula", view.formula)] if view.formula else []


def _sizes(view: FitView, facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("Rows", f"{facts['nobs']:,}"),
        (LIKELIHOODS[facts["likelihood"]], _figure(facts["logLik"])),
        ("Rows per group", _range(view.sizes, ",.0f")),
        ("AIC", _figure(facts["AIC"])),
        ("BIC", _figure(facts["BIC"])),
    ]


def _named(effect: str, group: str, term: str) -> tuple[str, str, str]:
    """Name of a parameter, its group, and its coefficient."""
    if effect != FIXED:
        for kind in ("sd", "cor", "log_sd"):
            if term.startswith(f"{kind}__"):
                about = term.removeprefix(f"{kind}__")
                if group == WITHIN[0]:  # levels of noise have names
                    about = about.removeprefix("Observation").removeprefix(".")
                return kind, group, about
        if effect == SPREAD or term == "weight":
            return term, group, ""
    return "mean", group, term


def _reliability(view: RegressionView) -> list[str]:
    """Share of a coefficient's variance between groups that their own rows explain."""
    shares = view.reliability()
    if not shares:
        return []
    first = [f"{term} {_range(share, '.2f')}" for term, share in list(shares.items())[:4]]
    more = f", and {len(shares) - 4} more" if len(shares) > 4 else ""
    of = f"Reliability of {view.style.group} (variance explained by its own rows)"
    return [f"{of}: {', '.join(first)}{more}"]


def _intraclass_correlation(facts: dict[str, Any]) -> list[str]:
    if not facts.get("icc", np.nan) >= 0:
        return []
    return [f"Intraclass correlation (share of variance between groups): {facts['icc']:.3f}"]


def _converged(view: RegressionView) -> list[tuple[str, str]]:
    if view.converged is None:
        return []
    return [("Converged", f"{'yes' if view.converged else 'no'}, in {view.n_steps:,} steps")]


def _channels(view: LocationView) -> list[tuple[str, str]]:
    """Name the channel of each class of clients, and its privacy."""
    details = []
    channels = view.channels()
    for name, channel, epsilon, delta, kind in channels:
        text = " ".join(repr(channel).split())
        details.append(("Channel", text if len(channels) == 1 else f"{name}: {text}"))
        privacy = NO_PRIVACY
        if np.isfinite(epsilon):
            whom = "each client" if len(channels) == 1 else "each of these clients"
            guarantee = f"{_epsilon(epsilon, delta)} for {whom} ({kind})"
            privacy = _unless(is_simulated(view.ledger), guarantee)
        details.append(("Privacy", privacy))
    return details


def _promise(row: dict[str, Any], nothing: str) -> str:
    """Say what a row of the ledger promises."""
    if not np.isfinite(row["epsilon"]):
        return nothing
    return _unless(
        is_simulated([row]), f"{_epsilon(row['epsilon'], row['delta'])}: {row['relation']}"
    )


def _unless(simulated: bool, guarantee: str) -> str:
    """Return a guarantee, or what it would be if the noise were not simulated."""
    return f"{NO_PROMISE}. Real noise would give {guarantee}" if simulated else guarantee


def _noise(view: FitView) -> list[str]:
    """Explain simulated noise, if there is some."""
    if not is_simulated(view.ledger):
        return []
    return [
        "The noise follows from a fixed seed, and whoever knows the seed can subtract it. Without "
        "random_state every fit draws new noise."
    ]


def _epsilon(epsilon: float, delta: float) -> str:
    return f"epsilon = {epsilon:.4g}" + (f", delta = {delta:.3g}" if delta else "")


def _short(name: str, width: int) -> str:
    """Cut the middle out of a long name: columns differ at their ends."""
    return name if len(name) <= width else f"{name[: width // 2]}…{name[-(width - 1) // 2 :]}"


def _estimate(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.6g}"


def _figure(value: float, digits: int = 2) -> str:
    return "–" if np.isnan(value) else f"{value:.{digits}f}"


def p_text(value: float) -> str:
    """Print a p-value in at most six characters.

    Examples
    --------
    >>> [p_text(p) for p in (0.2, 0.00123, 3.2e-6, 1e-40)]
    ['0.2000', '0.0012', '3e-06', '<1e-16']
    """
    if value < 1e-16:
        return "<1e-16"
    return f"{value:.0e}" if value < 1e-4 else _figure(value, 4)


def _narrow(value: float) -> str:
    """Print a number in at most seven characters, if there is a way."""
    if np.isnan(value):
        return "–"
    texts = [f"{value:.{digits}g}" for digits in (4, 3, 2, 1)]
    return next((text for text in texts if len(text) < 8), texts[-1])


def _error(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.4g}"


def _range(values: Any, form: str) -> str:
    if not np.size(values):
        return "not known"
    low, middle, high = np.quantile(values, [0, 0.5, 1], method="nearest")
    if low == high:
        return format(low, form)
    return f"{low:{form}} … {middle:{form}} … {high:{form}}"
