"""Which component groups belong to."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ebfed as eb
from ebfed.report import plot_responsibilities


def heights(ax):
    """Height of each component at each group, from the left."""
    found = []
    for collection in ax.collections:
        if collection.get_label().startswith("_"):
            continue
        corners = collection.get_paths()[0].vertices
        middle = np.arange(np.ceil(corners[:, 0].max()))
        # a band's outline passes each middle twice: there and back
        top = [_crossings(corners, x) for x in middle]
        found.append([abs(pair[0] - pair[1]) for pair in top])
    return np.array(found).T


def _crossings(corners, x):
    before, after = corners[:-1], corners[1:]
    crossed = (before[:, 0] < x) != (after[:, 0] < x)
    return before[crossed, 1]


def fits(library, n_groups=30):
    rng = np.random.default_rng(0)
    groups, x = np.repeat(np.arange(n_groups), 5), rng.normal(size=5 * n_groups)
    kind = rng.choice([-1.0, 1.0], n_groups)[groups]
    means = library.DataFrame({"x": kind + rng.normal(size=len(x)), "g": groups})
    y = kind * x + rng.normal(size=len(x))
    lines = library.DataFrame({"x": x, "y": y, "g": groups})
    classes = library.DataFrame({"x": x, "y": y > 0, "g": groups})
    return {
        "means": lambda: eb.MixtureEB(2, random_state=0).fit(means, groups="g"),
        "AdaMix": lambda: eb.AdaMix(2, random_state=0).fit(lines, "y", groups="g"),
        "MixtureLinearEB": lambda: eb.MixtureLinearEB(2, random_state=0).fit(
            lines, "y", groups="g"
        ),
        "AdaMixClassifier": lambda: eb.AdaMixClassifier(2, random_state=0).fit(
            classes, "y", groups="g"
        ),
    }


@pytest.mark.filterwarnings("ignore::ebfed.priors.IdentificationWarning")
@pytest.mark.parametrize("library", [pd, pl])
@pytest.mark.parametrize("kind", ["means", "AdaMix", "MixtureLinearEB", "AdaMixClassifier"])
def test_every_group_is_divided_among_components(kind, library, ax):
    est = fits(library)[kind]()
    assert plot_responsibilities(est, ax=ax) is ax
    table = est.responsibilities()
    shares = np.column_stack([table[name] for name in ("component_0", "component_1")])
    order = np.lexsort((shares[:, 1], shares.argmax(axis=1)))
    np.testing.assert_allclose(heights(ax), shares[order], atol=1e-12)
    names = [label.get_text() for label in ax.get_xticklabels()]
    assert names == [str(est.groups_[k]) for k in order]
    legend = [text.get_text().split(",")[0] for text in ax.get_legend().get_texts()]
    assert legend == [f"{j}: {weight:.2f}" for j, weight in enumerate(est.weights_)]


def test_components_differ_without_colours(ax):
    plot_responsibilities(fits(pd)["means"](), ax=ax)
    hatches = [band.get_hatch() for band in ax.collections if band.get_label()[0] != "_"]
    assert len(set(hatches)) == 2


def test_many_groups_have_no_names(ax):
    plot_responsibilities(fits(pd, 3111)["means"](), ax=ax)
    assert ax.get_xlabel() == "3,111 groups (g), sorted"
    assert len(ax.get_xticks()) == 0


def test_what_has_no_components(ax):
    X, groups, _ = eb.datasets.make_gaussian_groups(20, 3, random_state=0)
    with pytest.raises(ValueError, match="GaussianEB has no components"):
        plot_responsibilities(eb.GaussianEB().fit(X, groups=groups), ax=ax)
