"""What a server keeps and shows of fits at nodes with a budget, for whoever reads it."""

import re

import numpy as np
import pytest
from adversaries import BUDGET, TABLE, CuriousReader, MaliciousServer, Oracle, node_of

pytestmark = pytest.mark.filterwarnings("ignore")
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def figures(texts):
    """All numbers of six digits or more, and labels of persons and of an illness, of texts."""
    found = [x for text in texts for x in NUMBER.findall(text) if len(x) > 7]
    return [
        *map(float, found),
        *(x for text in texts for x in re.findall(r"\b(?:p\d\d|rare)\b", text)),
    ]


def nodes(folder):
    parts = [TABLE[TABLE["ward"].isin(wards)] for wards in (["a"], ["b", "c"])]
    return [node_of(folder / str(i), BUDGET, part, seed=i) for i, part in enumerate(parts)]


def fits(folder, n_plans):
    """Results of plans that two nodes answered."""
    reader = CuriousReader(folder)
    for i in range(n_plans):
        plan = MaliciousServer(1000 + i).plan()
        try:
            texts = reader.read(nodes(folder), plan, i)
        except RuntimeError:  # refused
            continue
        if texts is not None:
            yield plan, texts


def test_results_show_no_figures_of_rows(tmp_path):
    oracle, tried = Oracle(BUDGET), 0
    for plan, texts in fits(tmp_path, 1000):
        tried += 1
        assert not oracle.leaks({"read": np.array(figures(texts), object)}), plan
    assert tried >= 30


def test_a_figure_is_found(tmp_path):
    """Were a group's mean in a result, it would be noticed."""
    _, texts = next(fits(tmp_path, 1000))
    mean = float(TABLE.loc[TABLE["ward"] == "a", "income"].mean())
    assert Oracle(BUDGET).leaks(np.array(figures([*texts, f"mean {mean:.10f}"]), object))
    assert Oracle(BUDGET).leaks(np.array(figures([*texts, "p03"]), object))
