"""The adapter for marginaleffects on the page of mixed models, beside `margins` and emmeans."""

import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import expit

import ebfed as eb

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "tests" / "reference"
PAGE = ROOT / "vignettes" / "site" / "pages" / "methods" / "mixed_models.md"
EMMEANS = pd.read_csv(REFERENCE / "emmeans_glmer.csv").set_index("what")
OLD_POLARS = pytest.mark.skipif(
    int(pl.__version__.split(".")[0]) > 1,
    reason="marginaleffects 0.6 needs polars 1 for categories",
)


def sleepstudy():
    rows = pl.read_csv(REFERENCE / "sleepstudy.csv")
    return rows, eb.from_formula("Reaction ~ Days + (Days | Subject)", rows)


def cbpp():
    rows = pl.read_csv(REFERENCE / "cbpp.csv").with_columns(
        pl.col("period").cast(pl.String).cast(pl.Enum(list("1234"))),
        *((pl.col("period") == j).cast(pl.Int64).alias(f"period{j}") for j in (2, 3, 4)),
    )
    model = "cbind(incidence, size - incidence) ~ {} + (1 | herd)"
    binomial = eb.GeneralizedEB("binomial")
    by_kind = eb.from_formula(model.format("period"), rows, binomial)
    by_number = eb.from_formula(model.format("period2 + period3 + period4"), rows, binomial)
    return rows, by_kind, by_number


@pytest.fixture
def peer():
    return pytest.importorskip("marginaleffects")


@pytest.fixture
def adapter(peer):
    """Return the class that the page defines."""
    text = PAGE.read_text()
    start = text.index("    import numpy as np\n    import polars")
    names = {}
    exec(textwrap.dedent(text[start : text.index("\nThen `avg_slopes", start)]), names)
    return names["Marginal"]


def same(found, what):
    """Agree with R, where lme4 stops some 1e-5 from the maximum, with errors by differences."""
    expected = EMMEANS.loc[[what]]
    np.testing.assert_allclose(found["estimate"], expected["estimate"], rtol=1e-4, atol=3e-5)
    np.testing.assert_allclose(found["std.error"], expected["std_error"], rtol=2e-3)


def columns(found):
    frame = found.to_polars() if hasattr(found, "to_polars") else found
    names = {"std_error": "std.error"}
    return {names.get(name, name): frame[name].to_numpy() for name in frame.columns}


def test_margins_are_those_of_emmeans():
    fit = sleepstudy()[1]
    same(fit.margins(slope="Days").frame(), "sleepstudy slope")
    same(fit.margins("Days", at={"Days": [0, 9]}).frame(), "sleepstudy means")
    means = cbpp()[1].margins("period", ddf="asymptotic")
    same(means.frame(), "cbpp means")
    same(means.frame(scale="response"), "cbpp responses")
    same(means.pairs(), "cbpp pairs")


def test_slopes_and_predictions(peer, adapter):
    rows, fit = sleepstudy()
    ours = adapter(fit, rows)
    slope = columns(peer.avg_slopes(ours, variables="Days"))
    same(slope, "sleepstudy slope")
    np.testing.assert_allclose(slope["estimate"], fit.margins(slope="Days").frame()["estimate"])
    grid = rows.head(2).with_columns(Days=pl.Series([0, 9]))
    same(columns(peer.predictions(ours, newdata=grid)), "sleepstudy means")


def test_comparisons(peer, adapter):
    rows, _, fit = cbpp()
    found = {
        name: columns(peer.avg_comparisons(adapter(fit, rows), variables=name))
        for name in ("period2", "period3", "period4")
    }
    expected = EMMEANS.loc["cbpp pairs"].set_index("label")
    for j, each in zip((2, 3, 4), found.values(), strict=True):
        pair = expected.loc[f"period1 - period{j}"]
        np.testing.assert_allclose(-each["estimate"], pair["estimate"], rtol=1e-4)
        np.testing.assert_allclose(each["std.error"], pair["std_error"], rtol=2e-3)


@OLD_POLARS
@pytest.mark.filterwarnings("ignore:`cat.get_categories:DeprecationWarning")
def test_categories(peer, adapter):
    rows, fit, _ = cbpp()
    found = columns(peer.avg_predictions(adapter(fit, rows, expit), by="period"))
    same(found, "cbpp responses")
    ours = fit.margins("period", ddf="asymptotic").pairs("none")
    pairs = columns(peer.avg_comparisons(adapter(fit, rows), variables={"period": "pairwise"}))
    np.testing.assert_allclose(-pairs["estimate"], ours["estimate"], rtol=1e-5)
    np.testing.assert_allclose(pairs["std.error"], ours["std.error"], rtol=1e-3)
