"""The scaffold of the studies: runs and their means, doubts, and what is kept."""

import numpy as np
import pandas as pd
import pytest

from ebfed.evaluation.study import average, doubts, replicate


def draw(seed, scale):
    rng = np.random.default_rng(seed)
    return [{"method": name, "mse": scale * rng.random()} for name in ("a", "b")]


def test_replicate_and_average():
    runs = replicate(
        draw,
        [{"scale": 1.0}, {"scale": 2.0}],
        reps=5,
        seed=7,
        n_jobs=1,
        progress=False,
        label="",
    )
    assert runs.columns.tolist() == ["scale", "run", "method", "mse"]
    assert len(runs) == 20
    third = runs[(runs["run"] == 3) & (runs["scale"] == 2)]
    assert third["mse"].tolist() == [row["mse"] for row in draw((7, 3), 2.0)]
    table = average(runs, ["scale", "method"], ["mse"])
    first = runs.loc[(runs["scale"] == 1) & (runs["method"] == "a"), "mse"]
    assert table["mse"][0] == pytest.approx(first.mean())
    assert table["mse_sd"][0] == pytest.approx(first.std(ddof=1))
    assert table["mse_se"][0] == pytest.approx(first.std(ddof=1) / np.sqrt(5))


def errors(**risks):
    """Errors of methods, ± .001, against bits; NaN: none."""
    rows = [
        {"m": 500, "method": method, "bits": bits, "mse": mse, "mse_se": 0.001}
        for method, line in risks.items()
        for bits, mse in line.items()
    ]
    return pd.DataFrame(rows)


LOCAL = {np.nan: 0.05}


def test_a_line_that_rises_with_information_is_doubtful():
    table = errors(local=LOCAL, known={1: 0.02, 2: 0.01}, learned={2: 0.0096, 4: 0.0159, 8: 0.009})
    told = "learned, bits 4, m 500: above its own error at bits 2"
    assert doubts(table, "bits") == ["", "", "", "", told, ""]


def test_a_risk_above_that_of_local_estimates_is_doubtful():
    table = errors(local=LOCAL, learned={2: 0.056, 4: 0.009})
    told = "learned, bits 2, m 500: above the error of local estimates"
    assert doubts(table, "bits") == ["", told, ""]


@pytest.mark.parametrize("risk", [0.0101, 0.0104, 0.009])
def test_chance_is_no_doubt(risk):
    """Neither where the error is small, nor less than one error or 5 % above."""
    assert not any(doubts(errors(local=LOCAL, learned={2: 0.01, 4: risk}), "bits"))
    table = errors(local=LOCAL, learned={2: 0.01, 4: 0.0112})
    assert not any(doubts(table, "bits"))
    assert any(doubts(table.assign(mse_se=1e-4), "bits"))


class Broken:
    """A task that is interrupted when it is called once more than so many times."""

    def __init__(self, task, times):
        self.task, self.times, self.calls = task, times, 0

    def __call__(self, **arguments):
        self.calls += 1
        if self.calls > self.times:
            raise KeyboardInterrupt
        return self.task(**arguments)


def test_interrupted_runs_go_on(tmp_path):
    cells = [{"scale": 1.0}, {"scale": np.nan}, {"scale": 3.0}]
    settings = {"reps": 3, "seed": 7, "n_jobs": 1, "progress": False, "label": "draw"}
    unbroken = replicate(draw, cells, **settings)
    with pytest.raises(KeyboardInterrupt):
        replicate(Broken(draw, 4), cells, keep=tmp_path, **settings)
    rest = Broken(draw, 5)
    pd.testing.assert_frame_equal(replicate(rest, cells, keep=tmp_path, **settings), unbroken)
    assert rest.calls == 5
    # nothing is taken from another seed, cell, study or number of runs
    again = Broken(draw, 3)
    more = replicate(again, cells, keep=tmp_path, **settings | {"reps": 4})
    assert again.calls == 3
    pd.testing.assert_frame_equal(more[:18], unbroken)
    for change in ({"seed": 8}, {"label": "other"}):
        other = Broken(draw, 9)
        replicate(other, cells, keep=tmp_path, **settings | change)
        assert other.calls == 9
