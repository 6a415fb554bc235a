"""The scaffold of the studies: runs and their means, doubts, and what is kept."""

import numpy as np
import pandas as pd
import pytest

from ebfed.evaluation.study import average, replicate


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
