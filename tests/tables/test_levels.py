"""Numbers of parents follow from their labels alone, whatever a node's file makes of these."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.tables.levels import keys_of_parents
from ebfed.testing.nodes import fit_on_nodes

DAY = dt.date(2024, 1, 2)


@pytest.mark.parametrize(
    ("label", "other", "equal"),
    [
        (1, 1.0, True),
        (1, Decimal("1.00"), True),
        (1.5, Decimal("1.50"), True),
        (1, "1", True),
        (1, Decimal("1.01"), False),
        (DAY, pd.Timestamp(DAY), True),
        (DAY, "2024-01-02", True),
        (pd.Timestamp("2024-01-02 12:00"), dt.datetime(2024, 1, 2, 12), True),
        (pd.Timestamp("2024-01-02 12:00"), DAY, False),
        (pd.Timestamp("2024-01-02 00:00:00.000000001"), DAY, False),
    ],
)
def test_parents_of_one_label_have_one_number(label, other, equal):
    ids = np.fromiter([(label, "a"), (other, "a")], object, 2)
    one, two = (keys_of_parents(ids[[place]], 1) for place in (0, 1))
    assert (one == two).item() == equal


@pytest.mark.parametrize("kind", ["datetime64[s]", "date", "text", "decimal"])
def test_nodes_may_have_labels_of_several_types(kind):
    rng = np.random.default_rng(1)
    g = np.repeat(np.arange(24), 6)
    top, y = g // 4, rng.normal(size=144) + rng.normal(size=24)[g] + rng.normal(size=6)[g // 4]
    days = pd.Series(pd.Timestamp(DAY) + pd.to_timedelta(top, unit="D"))
    labels = days if kind != "decimal" else pd.Series(top)
    kinds = {
        "datetime64[s]": days.astype("datetime64[s]"),
        "date": days.dt.date,
        "text": days.astype(str),
        "decimal": pd.Series([Decimal(int(each)).quantize(Decimal("1.00")) for each in top]),
    }
    halves = [
        {
            "X": np.ones((72, 1)),
            "y": y[some],
            "groups": pd.DataFrame({"top": each[some], "g": g[some]}),
        }
        for each, some in ((labels, g % 2 == 0), (kinds[kind], g % 2 == 1))
    ]
    estimator = eb.LinearEB(fit_intercept=False)
    (node, _), *_ = fit_on_nodes(estimator, halves)
    groups = pd.DataFrame({"top": labels, "g": g})
    whole = eb.LinearEB(fit_intercept=False).fit(np.ones((144, 1)), y, groups=groups)
    assert node.log_likelihood_ == pytest.approx(whole.log_likelihood_, rel=1e-9)
