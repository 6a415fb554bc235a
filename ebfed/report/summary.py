"""The printed summary of a fit."""

from __future__ import annotations

import html
import textwrap
from typing import Any

import numpy as np

from ebfed.report.tidy import (
    glance,
    glance_learner,
    glance_regression,
    tidy,
    tidy_regression,
)

__all__ = ["Text", "learner_table", "regression_table", "summary_table"]

WIDTH = 78


class Text(str):
    """Text that shows itself as it is at a prompt, and preformatted in a notebook."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


def summary_table(estimator: Any) -> Text:
    """Describe a fitted estimator: data, population, shrinkage, notes."""
    prior, facts = estimator.prior_, {k: v[0] for k, v in glance(estimator).items()}
    sizes = estimator.summaries_.n
    lines = [
        type(estimator).__name__.center(WIDTH).rstrip(),
        "=" * WIDTH,
        _pair("Population", type(prior).__name__, "Groups", f"{facts['n_groups']:,}"),
        _pair("Fitted by", _method(estimator), "Rows", f"{facts['n_rows']:,}"),
        _pair(
            "Log-likelihood",
            _figure(facts["log_likelihood"]),
            "Rows per group",
            _range(sizes, ",.0f"),
        ),
        _pair("AIC", _figure(facts["aic"]), "BIC", _figure(facts["bic"])),
        *_channel(estimator),
        "-" * WIDTH,
        f"{'':<10}{'of':<16}{'column':<16}{'estimate':>16}{'std. error':>16}",
        "-" * WIDTH,
    ]
    for term, group, column, estimate, error, *_ in zip(*tidy(estimator).values(), strict=True):
        shown = "" if np.isnan(error) else f"{error:.4g}"
        label = f"{term:<10}{group[:15]}" if group else term[:25]
        lines.append(f"{label:<26}{column[:15]:<16}{estimate:>16.6g}{shown:>16}")
    lines.append("-" * WIDTH)
    weight = estimator._posterior_of_all().weight
    if weight is not None:
        lines.append(f"Weight of a group's own data against the mean: {_range(weight, '.3f')}")
    if (gap := getattr(prior, "duality_gap_", None)) is not None:
        kind = "Atoms" if hasattr(prior, "atoms_") else "Components"
        within = f"the log-likelihood is within {gap:.1g} of its maximum"
        lines.append(f"{kind}: {len(prior.weights_)}; {within}.")
    for note in estimator.notes_:
        lines += textwrap.wrap(f"Note: {note}", WIDTH, subsequent_indent="  ")
    lines.append("=" * WIDTH)
    return Text("\n".join(lines))


def regression_table(estimator: Any) -> Text:
    """Describe a fitted regression: data, population, what left the clients, notes."""
    facts = {name: values[0] for name, values in glance_regression(estimator).items()}
    columns = tidy_regression(estimator)
    told = ", ".join(dict.fromkeys(row["what"] for row in estimator._ledger))
    lines = [
        type(estimator).__name__.center(WIDTH).rstrip(),
        "=" * WIDTH,
        _pair("Fitted by", estimator._fitted_by(), "Groups", f"{facts['n_groups']:,}"),
        _pair("Rounds", f"{estimator.n_iter_:,}", "Rows", f"{facts['n_rows']:,}"),
        _pair(
            "Log-likelihood",
            _figure(facts["log_likelihood"]),
            "Rows per group",
            _range(estimator._sizes(), ",.0f"),
        ),
        _pair("AIC", _figure(facts["aic"]), "BIC", _figure(facts["bic"])),
        *textwrap.wrap(told, WIDTH, initial_indent=f"{'Channel:':<16}", subsequent_indent=" " * 16),
        "-" * WIDTH,
        f"{'':<8}{'of':<14}{'coefficient':<30}{'estimate':>13}{'std. error':>13}",
        "-" * WIDTH,
    ]
    for term, group, column, estimate, error in zip(*columns.values(), strict=True):
        shown = "" if np.isnan(error) else f"{error:.4g}"
        lines.append(
            f"{term:<8}{_short(group, 13):<14}{_short(column, 29):<30}{estimate:>13.6g}{shown:>13}"
        )
    lines.append("-" * WIDTH)
    for note in estimator.notes_:
        lines += textwrap.wrap(f"Note: {note}", WIDTH, subsequent_indent="  ")
    lines.append("=" * WIDTH)
    return Text("\n".join(lines))


def learner_table(estimator: Any) -> Text:
    """Describe a fitted learner: data, model, what it reached, what left the clients."""
    facts = {name: values[0] for name, values in glance_learner(estimator).items()}
    lines = [
        type(estimator).__name__.center(WIDTH).rstrip(),
        "=" * WIDTH,
        _pair("Model", repr(estimator._model())[:22], "Groups", f"{facts['n_groups']:,}"),
        _pair("Rounds", f"{facts['rounds']:,}", "Rows", f"{facts['n_rows']:,}"),
        _pair(
            "Parameters",
            f"{facts['n_parameters']:,}",
            "Rows per group",
            _range(estimator._sizes(), ",.0f"),
        ),
    ]
    if np.isfinite(facts["loss"]):
        share = "accuracy" in facts
        shown = f"{facts['accuracy']:.1%}" if share else f"{facts['loss']:.4g}"
        name = "Accuracy" if share else "Loss"
        lines.append(
            f"{name + ':':<16}{shown}, mean over clients, of the first batch of their last round"
        )
    lines.append("-" * WIDTH)
    for row in estimator._ledger:
        told = f"{row['what']}; {row['times']:,} times"
        lines += textwrap.wrap(
            told, WIDTH, initial_indent=f"{row['who'][:14] + ':':<16}", subsequent_indent=" " * 16
        )
        promise = "nothing is promised"
        if np.isfinite(row["epsilon"]):
            also = f", delta = {row['delta']:.3g}" if row["delta"] else ""
            promise = f"epsilon = {row['epsilon']:.4g}{also}: {row['relation']}"
        lines += textwrap.wrap(
            promise, WIDTH, initial_indent=f"{'Privacy:':<16}", subsequent_indent=" " * 16
        )
    lines.append("=" * WIDTH)
    return Text("\n".join(lines))


def _channel(estimator: Any) -> list[str]:
    """Say what left the clients, and under what promise."""
    lines = []
    single = len(estimator._channels()) == 1
    for name, channel in estimator._shown_channels().items():
        shown = " ".join(repr(channel).split())
        lines += textwrap.wrap(
            shown if single else f"{name}: {shown}",
            WIDTH,
            initial_indent=f"{'Channel:':<16}",
            subsequent_indent=" " * 16,
        )
        epsilon, delta = estimator._promise(name)
        if np.isfinite(epsilon):
            also = f", delta = {delta:.3g}" if delta else ""
            whom = "each client" if single else "each of these clients"
            lines.append(
                f"{'Privacy:':<16}epsilon = {epsilon:g}{also} for {whom}, {estimator._against()}"
            )
    return lines


def _short(name: str, width: int) -> str:
    """Cut the middle out of a long name: columns differ at their ends."""
    return name if len(name) <= width else f"{name[: width // 2]}…{name[-(width - 1) // 2 :]}"


def _figure(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.2f}"


def _pair(name: str, value: str, other: str, number: str) -> str:
    return f"{name + ':':<16}{value:<24}{other + ':':<20}{number:>18}"


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
