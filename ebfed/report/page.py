"""A fit as one HTML file, for readers without Python."""

from __future__ import annotations

import base64
import html
import io
import warnings
from collections.abc import Callable, Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ebfed.privacy.ledger import is_simulated
from ebfed.report.plots.axes import new_axes
from ebfed.report.plots.calibration import plot_calibration
from ebfed.report.plots.caterpillar import plot_caterpillar
from ebfed.report.plots.coefficients import plot_coefficients
from ebfed.report.plots.convergence import plot_convergence
from ebfed.report.plots.labels import coefficient, count_groups, quantity
from ebfed.report.plots.marginal import plot_marginal
from ebfed.report.plots.shrinkage import plot_shrinkage
from ebfed.report.summary import summary_table
from ebfed.report.view import GroupView, LocationView, RegressionView, view_of
from ebfed.tables.replacing import replaced

__all__ = ["write_report"]

Plot = tuple[Callable[..., Any], dict[str, Any], str]

# Rows of the table of groups; browsers are slow with more.
MOST_ROWS = 5000
# Coefficients that are drawn one by one.
MOST_DRAWN = 4

# Meaning of the columns of the table of groups.
COLUMNS = {
    "n": "number of rows",
    "local": "from own data alone",
    "estimate": "from own data and the population",
    "sd": "standard deviation of the estimate",
    "lower": "and <em>upper</em> ends of the interval",
    "weight": "of the group's own data in its estimate",
}

STYLE = """
:root{color-scheme:light}
body{font:16px/1.5 system-ui,sans-serif;color:#1a1a1a}
body{max-width:62rem;margin:2rem auto;padding:0 1rem}
h1{margin-bottom:0}h2{margin-top:2.5rem;border-bottom:1px solid #ccc}.when{color:#555;margin-top:0}
figure{margin:1.5rem 0}figure img{max-width:100%;height:auto}figcaption{color:#444;max-width:44rem}
.wide{overflow-x:auto}.scroll{max-height:34rem;overflow:auto}.scroll th{position:sticky;top:0}
.scroll thead th{background:#fff}
table+table{margin-top:1.2rem}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .7rem;text-align:left;border-bottom:1px solid #e5e5e5;vertical-align:top}
td.number{text-align:right}th button{font:inherit;font-weight:bold;border:0;background:none}
th button{padding:0;cursor:pointer}thead th{border-bottom:2px solid #888}
input{font:inherit;padding:.2rem .5rem;margin-bottom:.5rem}h3{font-size:1rem}
@media print{input{display:none}.scroll{max-height:none}.groups{font-size:.8rem}}
"""

# Sorts the table of groups by a column, and hides rows that lack the typed text.
SCRIPT = """
for (const table of document.querySelectorAll('table.groups')) {
  const body = table.tBodies[0];
  table.querySelectorAll('th button').forEach((button, column) => {
    let up = false;
    button.addEventListener('click', () => {
      up = !up;
      const cell = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [cell(a), cell(b)];
        const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
        return up ? order : -order;
      });
      body.append(...rows);
    });
  });
  const search = table.parentElement.parentElement.querySelector('input');
  search.addEventListener('input', () => {
    for (const row of body.rows)
      row.hidden = !row.textContent.toLowerCase().includes(search.value.toLowerCase());
  });
}
"""


def write_report(
    fit: Any, path: str | Path, *, title: str | None = None, level: float = 0.95
) -> Path:
    """Write a fit to one HTML file: estimates, then the fit, its diagnostics and its privacy.

    The file needs nothing else: plots are in it, and nothing is loaded from anywhere. It shows the
    groups' own means even if these sent private reports, and then warns that it is for their owners
    only.

    Parameters
    ----------
    fit : fitted estimator with a posterior, or a formula
    path : str or Path
    title : str, optional
        Title of the page; the formula or the name of the estimator if None.
    level : float in (0, 1)
        Level of intervals.

    Returns
    -------
    Path

    Raises
    ------
    TypeError
        If the fit has no posterior of its groups.

    Examples
    --------
    >>> import tempfile
    >>> import ebfed as eb
    >>> X, groups, theta = eb.datasets.make_gaussian_groups(30, 4, random_state=0)
    >>> est = eb.GaussianEB().fit(X, groups=groups)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text = write_report(est, f"{folder}/fit.html").read_text(encoding="utf-8")
    >>> text.count("<img"), "http" in text
    (4, False)
    """
    view = view_of(fit)
    if not isinstance(view, GroupView):
        raise TypeError(f"{view.title} has no posterior of its groups to report.")
    title = title or view.formula or view.title
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p class='when'>ebfed {version('ebfed')}, {date.today().isoformat()}</p>",
        *_warning(view),
        "<h2>Estimates</h2>",
        f"<p>{html.escape(_answer(view))}</p>",
        *_figures(fit, _answers(view, level)),
        _groups(view, level),
        "<h2>Population and fit</h2>",
        f"<div class='wide'>{summary_table(view).to_html()}</div>",
        *_section("Diagnostics", [*_figures(fit, _diagnostics(view))]),
        "<h2>Privacy ledger: data that the groups sent</h2>",
        _ledger(view),
    ]
    page = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'>"
        f"<link rel='icon' href='data:,'><title>{html.escape(title)}</title>"
        f"<style>{STYLE}</style></head><body>{''.join(parts)}<script>{SCRIPT}</script></body></html>"
    )
    path = Path(path)
    with replaced(path) as new:
        new.write_text(page, encoding="utf-8")
    return path


def _warning(view: GroupView) -> Iterator[str]:
    """Warn that a page with the groups' own means is not covered by their privacy."""
    if any(np.isfinite(row["epsilon"]) and row["epsilon"] > 0 for row in view.ledger):
        covered = (
            "The reports from which the population was fitted have simulated noise, and are not "
            "private either."
            if is_simulated(view.ledger)
            else "The privacy below covers only the reports from which the population was fitted."
        )
        yield (
            "<p><strong>This page is not private.</strong> It shows the groups' own data, such as "
            f"their means. {covered} The page is for the owners of the data.</p>"
        )


def _answer(view: GroupView) -> str:
    """Say what is estimated, and how."""
    groups = count_groups(view, view.n_groups)
    if isinstance(view, LocationView):
        names = [quantity(view, j) for j in range(len(view.terms))]
        what = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        return (
            f"Estimates of the {what}, for {groups}. Each estimate combines the group's own data "
            "with the population of all groups. The fewer data a group has, the more its estimate "
            "is shrunk towards the population mean."
        )
    names = [name for name, each in zip(view.terms, view.varies, strict=True) if each]
    what = f"{len(names)} coefficients" if len(names) > 1 else coefficient(view, view.terms[0])
    return (
        f"Estimates of {what}, for {groups}. Each estimate combines the group's own data with the "
        "population of all groups."
    )


def _answers(view: GroupView, level: float) -> Iterator[Plot]:
    """List the plots of estimates: function, arguments, caption."""
    if isinstance(view, LocationView):
        for j, also in _columns(view):
            yield plot_shrinkage, {"column": j}, f"Estimates against own data alone{also}"
            yield plot_caterpillar, {"column": j, "level": level}, f"Estimates, sorted{also}"
        return
    varying = [name for name, each in zip(view.terms, view.varies, strict=True) if each]
    if len(varying) > 1:
        yield plot_coefficients, {}, "From own data alone to the estimate of each group"
    for name in varying[:MOST_DRAWN]:
        yield plot_caterpillar, {"column": name, "level": level}, f"{name}: estimates, sorted"


def _diagnostics(view: GroupView) -> Iterator[Plot]:
    """List the plots that check the fit: function, arguments, caption."""
    if isinstance(view, LocationView):
        for j, also in _columns(view):
            yield plot_marginal, {"column": j}, f"Own data alone, and the fitted population{also}"
            caption = f"Own data alone, against data simulated from the fit{also}"
            yield plot_calibration, {"column": j}, caption
    if isinstance(view, RegressionView) and view.n_steps > 1:
        yield plot_convergence, {}, "Convergence of the fit"


def _columns(view: LocationView) -> Iterator[tuple[int, str]]:
    """Places of the columns that are drawn, and what captions say of them."""
    for j, name in enumerate(view.terms[:MOST_DRAWN]):
        yield j, f" ({name})" if len(view.terms) > 1 else ""


def _section(title: str, parts: list[str]) -> list[str]:
    """Put a title above parts, if there are any."""
    return [f"<h2>{html.escape(title)}</h2>", *parts] if parts else []


def _figures(fit: Any, plots: Iterator[Plot]) -> Iterator[str]:
    for plot, options, caption in plots:
        try:
            ax = plot(fit, ax=new_axes()[0], **options)
        except (TypeError, ValueError) as error:  # not every kind of fit has every plot
            yield f"<p><em>{html.escape(caption)}</em> is not drawn: {html.escape(str(error))}</p>"
            continue
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph", UserWarning)  # letters the font lacks
            ax.figure.savefig(file, format="png", dpi=130)
        code = base64.b64encode(file.getvalue()).decode()
        yield (
            f"<figure><img alt='{html.escape(caption, quote=True)}' "
            f"src='data:image/png;base64,{code}'><figcaption>{html.escape(caption)}.</figcaption>"
            "</figure>"
        )


def _groups(view: GroupView, level: float) -> str:
    table = view.posterior().using("pandas").to_frame(level=level)
    many = ""
    if len(table) > MOST_ROWS:
        many = f"<p>The first {MOST_ROWS:,} of {len(table):,} rows.</p>"
    meaning = "; ".join(
        f"<em>{name}</em> {text}" for name, text in COLUMNS.items() if name in table.columns
    )
    return (
        f"<p>{meaning}. Intervals hold for {level:.0%} of groups on average, if the population is "
        f"right. Click on a title to sort.</p>{many}"
        "<div><input type='search' placeholder='Find a group' aria-label='Find a group'>"
        f"<div class='scroll'>{_table(table.head(MOST_ROWS), 'groups')}</div></div>"
    )


def _ledger(view: GroupView) -> str:
    import pandas as pd

    from ebfed.privacy import ledger

    return f"<div class='wide'>{_table(pd.DataFrame(ledger.columns(view.ledger)), '')}</div>"


def _sortable(value: Any) -> str:
    """Return a key to sort by; missing values come first."""
    return "-1e999" if np.isnan(value) else repr(float(value))


def _table(table: Any, kind: str) -> str:
    """Return a frame as a table; numbers keep all their digits for sorting."""
    from pandas.api.types import is_numeric_dtype

    numeric = [is_numeric_dtype(dtype) for dtype in table.dtypes]
    titles = (
        f"<th><button>{html.escape(str(name))}</button></th>"
        if kind
        else f"<th>{html.escape(str(name))}</th>"
        for name in table.columns
    )
    rows = (
        "".join(
            f"<td class='number' data-value='{_sortable(value)}'>{value:.4g}</td>"
            if number and isinstance(value, float | np.floating)
            else f"<td{' class=number' if number else ''}>{html.escape(str(value))}</td>"
            for value, number in zip(row, numeric, strict=True)
        )
        for row in table.itertuples(index=False)
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<table class='{kind}'><thead><tr>{''.join(titles)}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )
