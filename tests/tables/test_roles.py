"""Roles of columns: later frames have those of the fit, and none of them is taken for a value."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ebfed as eb
from ebfed.tables.roles import Roles

RNG = np.random.default_rng(5)
ROWS = pd.DataFrame(
    {
        "g": np.repeat(list("abcdefgh"), 12),
        "x": RNG.normal(size=96),
        "y": RNG.normal(size=96) + np.repeat(np.arange(8.0), 12),
        "w": RNG.uniform(1, 2, 96),
    }
)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_what_a_fit_named_is_found_in_later_frames(library):
    rows = library(ROWS.to_dict("list"))
    given = {"groups": ["g"], "y": "y", "sample_weight": ROWS["w"], "covariates": None}
    roles = Roles().learned(rows, given)
    assert roles.columns == {"groups": "g", "y": "y", "sample_weight": None}
    assert roles.names == ["g", "y"]
    assert roles.found(rows, {}) == {"groups": "g", "y": "y"}
    assert roles.found(rows[["x", "y"]], {"groups": None}) == {"y": "y"}
    assert roles.found([[1.0]], {"groups": [7]}) == {"groups": [7]}
    assert roles.learned(rows, {"y": None}).columns == {"groups": "g", "sample_weight": None}


def test_labels_of_rows_are_no_names():
    assert Roles().learned(ROWS["x"], {"groups": ROWS["g"].tolist()}).columns == {"groups": None}


def test_a_column_with_a_role_is_no_value_where_the_role_is_given_otherwise():
    """Columns of labels and weights are left aside, whatever is given in their place."""
    other = np.repeat(np.arange(8), 12)
    means = eb.GaussianEB().fit(ROWS[["g", "y", "w"]], groups="g", sample_weight="w")
    lines = eb.LinearEB().fit(ROWS, "y", groups="g", sample_weight="w")
    for fit, columns in ((means, ["g", "y", "w"]), (lines, ["g", "x", "y", "w"])):
        given = {"groups": other, "sample_weight": np.ones(96)}
        whole = fit.posterior(ROWS[columns], **given).mean
        apart = ROWS[columns].drop(columns=["g", "w"])
        np.testing.assert_array_equal(whole, fit.posterior(apart, **given).mean)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_a_target_may_be_a_column(library):
    rows = library(ROWS[["g", "y", "w"]].to_dict("list"))
    named = eb.GroupEncoder().fit(rows, "y", sample_weight="w")
    given = eb.GroupEncoder().fit(rows[["g"]], ROWS["y"].to_numpy(), ROWS["w"].to_numpy())
    np.testing.assert_array_equal(named.transform(rows), given.transform(rows[["g"]]))
    assert named.feature_names_in_.tolist() == ["g"]
