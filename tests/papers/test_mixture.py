"""The study of mixtures: its curve of clustering, and that EM reaches Theorem 6."""

import numpy as np
import pytest

from ozkara2023 import mixture


@pytest.fixture(scope="module")
def study(quick_studies):
    return quick_studies["mixture"]


def test_table(study):
    table = study.table
    methods = {mixture.CLUSTERING, mixture.EM, mixture.BIC, mixture.PRIVATE, mixture.KNOWN}
    assert set(table["method"]) == methods
    assert table.loc[table["method"] == mixture.CLUSTERING, "rounds"].tolist() == [1, 3, 10]
    assert table.loc[table["method"] == mixture.PRIVATE, "epsilon"].tolist() == [1, 8]


def test_figure_names_its_lines_in_legends(study):
    (legend,) = study.figure().legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [mixture.CLUSTERING, mixture.PRIVATE]


def test_clients_are_those_of_the_population():
    summary, theta = mixture.simulate(3000, np.random.default_rng(0))
    assert set(theta) == set(mixture.CENTRES)
    off = summary.mean[:, 0] - theta
    assert off.var() == pytest.approx(mixture.NOISE / mixture.ROWS, rel=0.13)  # five errors


@pytest.fixture(scope="module")
def full():
    return mixture.MixtureStudy.run(reps=20)


@pytest.mark.slow
def test_clustering_gets_worse_with_rounds(full):
    few = full.table[full.table["m"] == mixture.CLIENTS].set_index(["method", "rounds"])["mse"]
    curve = few[mixture.CLUSTERING]
    assert curve[5] < curve[10] < curve[20] < curve[30]
    assert curve[30] > 3 * curve[1]


@pytest.mark.slow
def test_em_is_near_the_best(full):
    """By two per cent of it, and three standard errors of differences between runs."""
    runs = full.runs[full.runs["m"] == mixture.CLIENTS].pivot_table(
        index="run", columns="method", values="mse"
    )
    apart = runs[mixture.EM] - 1.02 * runs[mixture.KNOWN]
    assert apart.mean() < 3 * apart.std() / np.sqrt(len(apart))
    assert full.table.set_index("method").loc[mixture.BIC, "right"] >= 0.9


@pytest.mark.slow
def test_privacy_costs_little_where_clients_are_many(full):
    many = full.table[full.table["m"] == mixture.MORE_CLIENTS]
    private = many[many["method"] == mixture.PRIVATE].set_index("epsilon")["mse"]
    (known,) = many.loc[many["method"] == mixture.KNOWN, "mse"]
    assert private[1.0] < 1.1 * known
