"""The study of mixed models: what it draws, and the coverage that intervals are to have."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from beyond import mixed_models
from beyond.mixed_models import BETWEEN, GROUP, MEAN, MODELS, NEW, ROW, WITHIN

NORMAL = MODELS["intercepts"].draw
RECORD = Path(__file__).parents[1] / "reference" / "mixed_models_table.csv"


def test_table(quick_studies):
    study = quick_studies["mixed-models"]
    table = study.table.set_index(["model", "quantity", "method"])
    linear = {"z", "Satterthwaite", "Kenward-Roger"}
    assert set(table.loc["intercepts"].loc[BETWEEN].index) == linear
    assert set(table.loc["poisson"].loc[WITHIN].index) == {"z", "Satterthwaite"}
    widths = table.loc["intercepts"].loc[BETWEEN]["width"]
    assert widths["z"] < widths["Satterthwaite"] <= widths["Kenward-Roger"]
    some = study.runs.query("model == 'poisson' and quantity == @GROUP")
    assert table.loc[("poisson", GROUP, "posterior"), "coverage"] == pytest.approx(
        some["coverage"].mean()
    )


@pytest.mark.parametrize("name", MODELS)
def test_groups_have_the_spreads_of_the_model(name):
    """Of 4,000 groups of the top; moments within 5 standard errors, for 12 figures."""
    model = MODELS[name]
    drawn = mixed_models._draw(model, 4000, np.random.default_rng(1))
    first = np.unique(drawn.place, return_index=True)[1]
    column = drawn.columns["between"].to_numpy()[first]
    effects = drawn.theta[first, 0] - MEAN[0] - MEAN[2] * column
    variance = sum((root @ root.T)[0, 0] for root in model.spreads.values())
    assert effects.mean() == pytest.approx(0, abs=5 * np.sqrt(variance / 4000))
    # effects of groups of one parent, or of one item, are alike, and those that are skewed have
    # heavy tails, which widens the error by less than 2
    assert effects.var() == pytest.approx(variance, rel=10 * np.sqrt(2 / 4000))
    n = np.bincount(drawn.place)
    assert (n.min(), n.max()) == model.rows


def test_the_record_is_that_of_all_cells():
    """Its page is that of the run; `run.py mixed-models --out DIR` writes it anew."""
    record = pd.read_csv(RECORD)
    found = set(zip(record["model"], record["m"], strict=True))
    cells = mixed_models.MixedModelsStudy.cells(False)
    assert found == {(cell["model"], cell["m"]) for cell in cells}
    page = mixed_models.MixedModelsStudy(record, pd.DataFrame(), reps=300, seed=0).to_text()
    assert all(model.label in page for model in MODELS.values())


@pytest.mark.slow
def test_the_record_is_that_of_a_run(table):
    record = pd.read_csv(RECORD).set_index(table.index.names).sort_index()
    # of 300 runs, some may fall on the other side by what compilers round
    pd.testing.assert_series_equal(table["coverage"], record["coverage"], atol=0.01)


@pytest.fixture(scope="module")
def table():
    return (
        mixed_models.MixedModelsStudy.run()
        .table.set_index(["model", "quantity", "method", "m"])
        .sort_index()
    )


@pytest.mark.slow
@pytest.mark.parametrize("m", [6, 15, 40])
@pytest.mark.parametrize("model", ["intercepts", "slopes", "levels", "crossed"])
def test_kenward_roger_intervals_hold_the_truth(table, model, m):
    """Down to 3.5 standard errors of 300 runs: false alarms of 18 figures, 4 in 1,000."""
    for quantity in (BETWEEN, WITHIN):
        row = table.loc[(model, quantity, "Kenward-Roger", m)]
        assert row["coverage"] > 0.95 - 3.5 * np.sqrt(0.95 * 0.05 / 300)


@pytest.mark.slow
@pytest.mark.parametrize("m", [6, 15, 40])
@pytest.mark.parametrize("model", [name for name in MODELS if MODELS[name].draw is not NORMAL])
def test_intervals_of_counts_and_classes_hold_the_truth(table, model, m):
    """Down to 3.5 standard errors of 300 runs: false alarms of 18 figures, 4 in 1,000."""
    for quantity in (BETWEEN, WITHIN):
        row = table.loc[(model, quantity, "Satterthwaite", m)]
        assert row["coverage"] > 0.95 - 3.5 * np.sqrt(0.95 * 0.05 / 300)


@pytest.mark.slow
@pytest.mark.parametrize("m", [6, 15, 40])
@pytest.mark.parametrize("model", MODELS)
def test_groups_and_rows_are_predicted_at_their_level(table, model, m):
    """Means of groups, rows of these, and rows of new groups, of whatever shape effects have."""
    for quantity in (GROUP, ROW, NEW):
        # of crossed factors, whose spreads are taken one after the other, fewer with few levels
        least = 0.90 if MODELS[model].crossed and m < 40 else 0.93
        assert table.loc[(model, quantity, "posterior", m), "coverage"] > least
