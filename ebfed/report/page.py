"""A fit as one page of HTML, for readers without Python: everything is in the file."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ebfed.report.plots import (
    new_axes,
    plot_calibration,
    plot_caterpillar,
    plot_coefficients,
    plot_convergence,
    plot_marginal,
    plot_shrinkage,
)

__all__ = ["write_report"]

# Rows of the table of groups; browsers are slow with more.
MOST_ROWS = 5000
# Coefficients that are drawn one by one.
MOST_DRAWN = 4

STYLE = """
:root{color-scheme:light}
body{font:16px/1.5 system-ui,sans-serif;color:#1a1a1a}
body{max-width:62rem;margin:2rem auto;padding:0 1rem}
h1{margin-bottom:0}h2{margin-top:2.5rem;border-bottom:1px solid #ccc}.when{color:#555;margin-top:0}
figure{margin:1.5rem 0}figure img{max-width:100%;height:auto}figcaption{color:#444;max-width:44rem}
.wide{overflow-x:auto}table+table{margin-top:1.2rem}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .7rem;text-align:left;border-bottom:1px solid #e5e5e5;vertical-align:top}
td.number{text-align:right}th button{font:inherit;font-weight:bold;border:0;background:none}
th button{padding:0;cursor:pointer}thead th{border-bottom:2px solid #888}
input{font:inherit;padding:.2rem .5rem;margin-bottom:.5rem}h3{font-size:1rem}
@media print{input{display:none}.groups{font-size:.8rem}}
"""

# Sorts the table of groups by a column, and hides rows without what is typed.
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
    """Write a fit to one HTML file: summary, pictures, all groups, and what left them.

    The file needs nothing else: pictures are in it, and nothing is loaded from anywhere. It shows
    groups' own means, also where these sent private reports: then it says that it is for their
    owners.

    Parameters
    ----------
    fit : fitted estimator with a posterior, or a formula
    path : str or Path
    title : str, optional
    level : float in (0, 1)
        Of intervals.

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
    estimator = getattr(fit, "estimator_", fit)
    if not hasattr(estimator, "posterior"):
        raise TypeError(f"{type(estimator).__name__} has no posterior of its groups to report.")
    title = title or getattr(fit, "formula", None) or type(estimator).__name__
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p class='when'>ebfed {version('ebfed')}, {date.today().isoformat()}</p>",
        *_caution(estimator),
        "<h2>The fit</h2>",
        f"<div class='wide'>{estimator.summary()._repr_html_()}</div>",
        "<h2>Pictures</h2>",
        *_figures(estimator, level),
        "<h2>Groups</h2>",
        _groups(estimator, level),
        "<h2>What left the groups</h2>",
        _ledger(estimator),
    ]
    page = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'>"
        f"<link rel='icon' href='data:,'><title>{html.escape(title)}</title>"
        f"<style>{STYLE}</style></head><body>{''.join(parts)}<script>{SCRIPT}</script></body></html>"
    )
    path = Path(path)
    path.write_text(page, encoding="utf-8")
    return path


def _caution(estimator: Any) -> Iterator[str]:
    """Say that a page with the groups' own means keeps no promise that was made to them."""
    if any(np.isfinite(row["epsilon"]) and row["epsilon"] > 0 for row in estimator._ledger):
        yield (
            "<p><strong>This page is not private.</strong> It shows what groups know of "
            "themselves, their own means among it; the promise below is about what they sent while "
            "the population was fitted. It is for their owners.</p>"
        )


def _figures(estimator: Any, level: float) -> Iterator[str]:
    """Draw what can be drawn of such a fit."""
    if hasattr(estimator, "summaries_"):
        columns = estimator._response_names()
        drawn: list[tuple[Callable[..., Any], dict[str, Any], str]] = []
        for j, name in enumerate(columns[:MOST_DRAWN]):
            also = f" ({name})" if len(columns) > 1 else ""
            drawn += [
                (plot_shrinkage, {"column": j}, "Each group's own mean and its estimate" + also),
                (plot_caterpillar, {"column": j, "level": level}, "Estimates, sorted" + also),
                (plot_marginal, {"column": j}, "The population, and what it expects to see" + also),
                (plot_calibration, {"column": j}, "What is seen against what is expected" + also),
            ]
    else:
        names, varies = estimator._coordinates()
        chosen = [name for name, each in zip(names, varies, strict=True) if each][:MOST_DRAWN]
        drawn = [
            (plot_caterpillar, {"column": name, "level": level}, f"{name}: estimates, sorted")
            for name in chosen
        ]
        if len(chosen) > 1:
            drawn.insert(0, (plot_coefficients, {}, "From each group alone to its estimate"))
        if len(estimator.history_) > 1:
            drawn.append((plot_convergence, {}, "How the fit was reached"))
    for plot, options, caption in drawn:
        try:
            ax = plot(estimator, ax=new_axes()[0], **options)
        except (TypeError, ValueError) as error:  # not every kind of fit has every picture
            yield f"<p><em>{html.escape(caption)}</em> is not drawn: {html.escape(str(error))}</p>"
            continue
        kept = io.BytesIO()
        ax.figure.savefig(kept, format="png", dpi=130)
        code = base64.b64encode(kept.getvalue()).decode()
        yield (
            f"<figure><img alt='{html.escape(caption, quote=True)}' "
            f"src='data:image/png;base64,{code}'><figcaption>{html.escape(caption)}.</figcaption>"
            "</figure>"
        )


def _groups(estimator: Any, level: float) -> str:
    table = estimator.posterior().using("pandas").to_frame(level=level)
    many = ""
    if len(table) > MOST_ROWS:
        many = f"<p>The first {MOST_ROWS:,} of {len(table):,} rows.</p>"
    return (
        f"<p>Intervals hold for {level:.0%} of groups on average, if the population is right. "
        f"Click on a title to sort.</p>{many}"
        "<div><input type='search' placeholder='Find a group' aria-label='Find a group'>"
        f"<div class='wide'>{_table(table.head(MOST_ROWS), 'groups')}</div></div>"
    )


def _ledger(estimator: Any) -> str:
    import pandas as pd

    from ebfed.privacy import ledger

    return f"<div class='wide'>{_table(pd.DataFrame(ledger.columns(estimator._ledger)), '')}</div>"


def _sortable(value: Any) -> str:
    """What is missing sorts below everything."""
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
