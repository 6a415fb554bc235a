"""The study of budgets of many levels: its table, and what it is to show."""

import pytest

from beyond import budgets


def test_table(quick_studies):
    table = quick_studies["budgets"].table.set_index("method")
    assert table.loc["likelihood", "apart"] < 1e-10
    assert (
        table.loc["known", "mse"] < table.loc["estimated", "mse"] < table.loc["one weight", "mse"]
    )
    assert table.loc["known", "above"] == 0


@pytest.mark.slow
def test_variances_need_not_be_known():
    """Within 2 % where there are 400 clients; the ratio of paired errors varies by .2 %."""
    table = budgets.BudgetsStudy.run(20, only={"m": "400"}).table.set_index("method")
    assert table.loc["estimated", "above"] < 2
