"""Components that groups belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.report.plots.axes import COLOURS, HATCHES, open_axes, plain
from ebfed.report.plots.labels import LETTERS, MOST_NAMED, count_groups
from ebfed.report.view import view_of
from ebfed.tables.columns import numeric_columns
from ebfed.tables.lazy import column_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_responsibilities"]

ORDER = (0, 5, 2, 1, 4, 6, 3)  # of colours: neighbours differ in lightness, and black comes last


def plot_responsibilities(estimator: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the probability that each group belongs to each component of a mixture.

    Groups are sorted by their likeliest component, then by the probabilities of the others.

    Parameters
    ----------
    estimator : fitted MixtureEB, MixtureLinearEB, AdaMix or AdaMixClassifier
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If the estimator has no components.

    Examples
    --------
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(np.repeat(rng.choice([-2.0, 2.0], 30), 3))
    >>> est = eb.MixtureEB(2, random_state=0).fit(X, groups=np.repeat(np.arange(30), 3))
    >>> ax = plot_responsibilities(est, ax=eb.report.new_axes()[0])
    >>> ax.get_legend().get_title().get_text()
    'component: weight, mean'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['0: 0.33, -2.00', '1: 0.67, 2.21']
    """
    if not hasattr(estimator, "responsibilities"):
        raise ValueError(
            f"{type(estimator).__name__} has no components; MixtureEB, MixtureLinearEB, AdaMix and "
            "AdaMixClassifier have."
        )
    table = estimator.responsibilities()
    names = [name for name in column_names(table) if name.startswith("component_")]
    shares = numeric_columns(table, names, "the responsibilities")
    order = _sorted(shares)
    n, k = shares.shape
    ax = open_axes(ax)
    edges = np.arange(n + 1) - 0.5
    below = np.zeros(n)
    for j in range(k):
        above = below + shares[order, j]
        ax.fill_between(
            edges,
            np.append(below, below[-1]),
            np.append(above, above[-1]),
            step="post",
            facecolor=COLOURS[ORDER[j % 7]],
            hatch=HATCHES[(j + j // 7) % 7],
            edgecolor="white",
            lw=0,
            label=_name(estimator, j),
        )
        below = above
    group = column_names(table)[0]
    if n <= MOST_NAMED:
        labels = [plain(label, LETTERS) for label in np.asarray(table[group])[order]]
        ax.set_xticks(np.arange(n), labels, rotation=90, fontsize=float(np.clip(300 / n, 5, 8.5)))
        ax.vlines(edges[1:-1], 0, 1, color="white", lw=1)
    else:
        ax.set_xticks([])
        ax.set_xlabel(f"{count_groups(view_of(estimator), n)}, sorted")
    ax.tick_params(bottom=False)
    ax.set(ylabel="probability of the component", xlim=(edges[0], edges[-1]), ylim=(0, 1))
    title = "component: weight" + (", mean" if estimator.means_.shape[1] == 1 else "")
    ax.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=2,
        title=title,
        frameon=False,
        fontsize="small",
    )
    return ax


def _sorted(shares: NDArray) -> NDArray:
    """Order of groups: by likeliest component, then by the mean number of the component."""
    return np.lexsort((shares @ np.arange(shares.shape[1]), shares.argmax(axis=1)))


def _name(estimator: Any, j: int) -> str:
    weight, means = estimator.weights_[j], estimator.means_[j]
    return f"{j}: {weight:.2f}" + (f", {means[0]:.2f}" if len(means) == 1 else "")
