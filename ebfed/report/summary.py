"""The printed summary of a fit."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.report.tidy import (
    FIXED,
    SPREAD,
    WITHIN,
    glance,
    glance_learner,
    glance_regression,
    tidy,
    tidy_regression,
)

__all__ = ["Text", "learner_table", "regression_table", "summary_table"]

WIDTH = 78
LABEL = 16
NO_PROMISE = "none is promised: what leaves is as it is"


class Text(str):
    """Text that shows itself as it is at a prompt, and as a table in a notebook.

    Parameters
    ----------
    text : str
    markup : str, optional
        The same in HTML; preformatted text if None.
    """

    markup: str | None

    def __new__(cls, text: str, markup: str | None = None) -> Text:
        """Keep the markup beside the text."""
        self = super().__new__(cls, text)
        self.markup = markup
        return self

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>" if self.markup is None else self.markup


@dataclass
class Sheet:
    """What a summary says, before it is laid out.

    Attributes
    ----------
    title : str
    facts : list of (name, value)
        Short ones, two in a line.
    told : list of (name, text)
        Longer ones.
    titles, rows : sequence of str, and list of such
        The table; the last two columns are numbers.
    widths : sequence of int
        Of its columns.
    remarks : list of str
    notes : list of str
    """

    title: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    with_data: list[tuple[str, str]] = field(default_factory=list)
    titles: Sequence[str] = ()
    rows: list[Sequence[str]] = field(default_factory=list)
    widths: Sequence[int] = ()
    remarks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def show(self) -> Text:
        """Lay it out for a terminal and for a notebook."""
        return Text("\n".join(self._lines()), self._markup())

    def _lines(self) -> list[str]:
        lines = [self.title.center(WIDTH).rstrip(), "=" * WIDTH]
        for (name, value), (other, number) in zip(self.facts[::2], self.facts[1::2], strict=True):
            lines.append(f"{name + ':':<{LABEL}}{value:<24}{other + ':':<20}{number:>18}")
        for name, text in self.with_data:
            lines += textwrap.wrap(
                text, WIDTH, initial_indent=f"{name + ':':<{LABEL}}", subsequent_indent=" " * LABEL
            )
        if self.rows:
            rule = "-" * WIDTH
            lines += [rule, self._row(self.titles), rule, *map(self._row, self.rows), rule]
        elif self.with_data:
            lines.insert(-len(self.with_data), "-" * WIDTH)
        for remark in self.remarks:
            lines += textwrap.wrap(remark, WIDTH, subsequent_indent="  ")
        for note in self.notes:
            lines += textwrap.wrap(f"Note: {note}", WIDTH, subsequent_indent="  ")
        return [*lines, "=" * WIDTH]

    def _row(self, cells: Sequence[str]) -> str:
        *words, value, error = cells
        line = "".join(
            f"{_short(word, width - 1):<{width}}"
            for word, width in zip(words, self.widths, strict=False)
        )
        return f"{line}{value:>{self.widths[-2]}}{error:>{self.widths[-1]}}"

    def _markup(self) -> str:
        escape = html.escape
        facts = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>"
            for name, text in [*self.facts, *self.with_data]
        )
        head = "".join(f"<th>{escape(title)}</th>" for title in self.titles)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        below = "".join(f"<p>{escape(remark)}</p>" for remark in self.remarks)
        below += "".join(f"<p><em>Note:</em> {escape(note)}</p>" for note in self.notes)
        return (
            f"<div class='ebfed-summary'><h3>{escape(self.title)}</h3><table>{facts}</table>"
            f"{table if self.rows else ''}{below}</div>"
        )


def summary_table(estimator: Any) -> Text:
    """Describe a fitted population of means or rates."""
    prior, facts = estimator.prior_, {k: v[0] for k, v in glance(estimator).items()}
    sheet = Sheet(type(estimator).__name__)
    sheet.facts = [
        ("Population", type(prior).__name__),
        ("Groups", f"{facts['n_groups']:,}"),
        ("Fitted by", _method(estimator)),
        *_sizes(facts, estimator.summaries_.n),
    ]
    sheet.with_data = [*_formula(estimator), *_channels(estimator)]
    sheet.titles = ("", "of", "column", "estimate", "std. error")
    sheet.widths = (10, 16, 20, 16, 16)
    for effect, group, term, column, estimate, error, _ in _rows(tidy(estimator)):
        name, of, about = _named(effect, group, term)
        name = about if effect == FIXED else name
        sheet.rows.append((name, of, column, f"{estimate:.6g}", _error(error)))
    weight = estimator._posterior_of_all().weight
    if weight is not None:
        shown = _range(weight, ".3f")
        sheet.remarks.append(f"Weight of a group's own data against the mean: {shown}")
    if (icc := facts.get("icc", np.nan)) >= 0:
        sheet.remarks.append(f"Share of the variance of rows that lies between groups: {icc:.3f}")
    if (gap := getattr(prior, "duality_gap_", None)) is not None:
        kind = "Atoms" if hasattr(prior, "atoms_") else "Components"
        within = f"the log-likelihood is within {gap:.1g} of its maximum"
        sheet.remarks.append(f"{kind}: {len(prior.weights_)}; {within}.")
    sheet.notes = list(estimator.notes_)
    return sheet.show()


def regression_table(estimator: Any) -> Text:
    """Describe a fitted regression: data, population, what left the clients, notes."""
    facts = {name: values[0] for name, values in glance_regression(estimator).items()}
    sheet = Sheet(type(estimator).__name__)
    sheet.facts = [
        ("Fitted by", estimator._fitted_by()),
        ("Groups", f"{facts['n_groups']:,}"),
        ("Rounds", f"{estimator.n_iter_:,}"),
        *_sizes(facts, estimator._sizes()),
    ]
    with_data = ", ".join(dict.fromkeys(row["what"] for row in estimator._ledger))
    sheet.with_data = [
        *_formula(estimator),
        ("Channel", with_data),
        ("Privacy", NO_PROMISE),
        *_converged(estimator),
    ]
    sheet.titles = ("", "of", "coefficient", "estimate", "std. error")
    sheet.widths = (8, 14, 30, 13, 13)
    for effect, group, term, estimate, error, _ in _rows(tidy_regression(estimator)):
        named = _named(effect, group, term)
        sheet.rows.append((*named, f"{estimate:.6g}", _error(error)))
    sheet.remarks = _told_by_own_rows(estimator)
    if (icc := facts.get("icc", np.nan)) >= 0:
        sheet.remarks.append(f"Share of the variance of rows that lies between groups: {icc:.3f}")
    sheet.notes = list(estimator.notes_)
    return sheet.show()


def _sizes(facts: dict[str, Any], sizes: NDArray) -> list[tuple[str, str]]:
    return [
        ("Rows", f"{facts['nobs']:,}"),
        ("Log-likelihood", _figure(facts["logLik"])),
        ("Rows per group", _range(sizes, ",.0f")),
        ("AIC", _figure(facts["AIC"])),
        ("BIC", _figure(facts["BIC"])),
    ]


def _rows(columns: dict[str, NDArray]) -> Iterable[tuple]:
    return zip(*columns.values(), strict=True)


def _named(effect: str, group: str, term: str) -> tuple[str, str, str]:
    """Name of a parameter, whose it is, and of which coefficient."""
    if effect != FIXED:
        for kind in ("sd", "cor"):
            if term.startswith(f"{kind}__"):
                about = term.removeprefix(f"{kind}__")
                return kind, group, "" if group == WITHIN[0] else about
        if effect == SPREAD or term == "weight":
            return term, group, ""
    return "mean", group, term


def _told_by_own_rows(estimator: Any) -> list[str]:
    """How much of a coefficient's spread between groups is settled by their own rows."""
    shares = estimator._settled()
    if not shares:
        return []
    shown = [f"{term} {_range(share, '.2f')}" for term, share in list(shares.items())[:4]]
    more = f", and {len(shares) - 4} more" if len(shares) > 4 else ""
    return [f"Share of a coefficient's variance that own rows settle: {', '.join(shown)}{more}"]


def learner_table(estimator: Any) -> Text:
    """Describe a fitted learner: data, model, what it reached, what left the clients."""
    facts = {name: values[0] for name, values in glance_learner(estimator).items()}
    sheet = Sheet(type(estimator).__name__, with_data=_formula(estimator))
    sheet.facts = [
        ("Model", repr(estimator._model())[:22]),
        ("Groups", f"{facts['n_groups']:,}"),
        ("Rounds", f"{facts['rounds']:,}"),
        ("Rows", f"{facts['nobs']:,}"),
        ("Parameters", f"{facts['npar']:,}"),
        ("Rows per group", _range(estimator._sizes(), ",.0f")),
    ]
    if np.isfinite(facts["loss"]):
        share = "accuracy" in facts
        shown = f"{facts['accuracy']:.1%}" if share else f"{facts['loss']:.4g}"
        when = "mean over clients, of the first batch of their last round"
        sheet.with_data.append(("Accuracy" if share else "Loss", f"{shown}, {when}"))
    for row in estimator._ledger:
        sheet.with_data.append((row["who"][:14], f"{row['what']}; {row['times']:,} times"))
        promise = "nothing is promised"
        if np.isfinite(row["epsilon"]):
            also = f", delta = {row['delta']:.3g}" if row["delta"] else ""
            promise = f"epsilon = {row['epsilon']:.4g}{also}: {row['relation']}"
        sheet.with_data.append(("Privacy", promise))
    return sheet.show()


def _converged(estimator: Any) -> list[tuple[str, str]]:
    """Say whether what was to converge did."""
    if estimator.converged_ is None:
        return []
    steps = len(estimator._history_rows())
    return [("Converged", f"{'yes' if estimator.converged_ else 'no'}, in {steps:,} steps")]


def _formula(estimator: Any) -> list[tuple[str, str]]:
    formula = getattr(estimator, "_formula", None)
    return [("Formula", formula)] if formula else []


def _channels(estimator: Any) -> list[tuple[str, str]]:
    """Say what left the clients, and under what promise."""
    with_data = []
    single = len(estimator._channels()) == 1
    for name, channel in estimator._shown_channels().items():
        shown = " ".join(repr(channel).split())
        with_data.append(("Channel", shown if single else f"{name}: {shown}"))
        epsilon, delta = estimator._promise(name)
        promise = NO_PROMISE
        if np.isfinite(epsilon):
            also = f", delta = {delta:.3g}" if delta else ""
            whom = "each client" if single else "each of these clients"
            promise = f"epsilon = {epsilon:g}{also} for {whom}, {estimator._against()}"
        with_data.append(("Privacy", promise))
    return with_data


def _short(name: str, width: int) -> str:
    """Cut the middle out of a long name: columns differ at their ends."""
    return name if len(name) <= width else f"{name[: width // 2]}…{name[-(width - 1) // 2 :]}"


def _figure(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.2f}"


def _error(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.4g}"


def _range(values: Any, form: str) -> str:
    low, middle, high = np.quantile(values, [0, 0.5, 1], method="nearest")
    if low == high:
        return format(low, form)
    return f"{low:{form}} … {middle:{form}} … {high:{form}}"


def _method(estimator: Any) -> str:
    prior = estimator.prior_
    if getattr(prior, "duality_gap_", None) is not None:
        return "maximum likelihood"
    names = {"reml": "REML", "ml": "maximum likelihood", "moments": "moments", "paper": "eq. (6)"}
    method = getattr(prior, "method", "ml")
    linear = getattr(estimator, "_sends_gaussians", lambda: False)()
    if estimator._reported is not None and method == "reml" and not linear:
        method = "ml"
    return names.get(method, "maximum likelihood")
