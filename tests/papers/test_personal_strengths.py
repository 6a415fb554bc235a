"""The study of strengths of personalisation: its data, its tuning, its page."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from beyond import personal_strengths as study
from beyond.personal_strengths import Setting
from ebfed.datasets import load_digits

RECORD = Path(__file__).parents[1] / "reference" / "personal_strengths_table.csv"
PRIVATE = RECORD.with_name("personal_strengths_private.csv")


@pytest.fixture(scope="module")
def quick(quick_studies):
    return quick_studies["personal-strengths"]


@pytest.fixture
def digits(monkeypatch):
    """Settings of the study with digits."""

    def of(**others):
        setting = Setting("digits", 60, "digits", **others)
        monkeypatch.setitem(study.SETTINGS, "digits", setting)
        return study.deal("digits", 8, [3])

    return of


def known(images):
    """Rows of a collection, as text."""
    return {row.tobytes() for row in np.asarray(images, float)}


def test_clients_have_their_classes_in_learning_and_testing(digits):
    dealt = digits(classes=3)
    of = [dealt.clients.y[60 * i : 60 * (i + 1)] for i in range(8)]
    for y, tests in zip(of, dealt.y, strict=True):
        assert len(np.unique(y)) == 3
        assert set(tests) <= set(y)
    assert dealt.X.shape == (8, study.TESTS, 64)


def test_labels_of_every_second_client_are_wrong(digits):
    right, wrong = digits(classes=3), digits(classes=3, wrong=0.5)
    np.testing.assert_array_equal(right.clients.X[:60], wrong.clients.X[:60])
    strange = [
        np.mean(np.bincount(wrong.clients.y[60 * i :][:60], minlength=10) > 0) for i in (0, 1)
    ]
    assert strange[0] == 0.3
    assert strange[1] > 0.8
    assert all(len(np.unique(y)) <= 3 for y in wrong.y)  # tests are right
    changed = (wrong.recorded != wrong.y).mean(axis=1)  # half of them drawn, a tenth as before
    assert not changed[::2].any()
    assert np.abs(changed[1::2] - 0.45).max() < 0.2  # four standard errors


def test_labels_are_permuted_alike_in_both_parts(digits):
    """The same image has the label of its client's permutation."""
    images = load_digits()
    label = {
        row.tobytes(): y for row, y in zip(images.data.astype(float), images.target, strict=True)
    }
    label |= {
        row.tobytes(): y
        for row, y in zip(images.data_test.astype(float), images.target_test, strict=True)
    }
    dealt = digits(permutations=3)
    meanings = []
    for i in range(8):
        X = np.vstack([dealt.clients.X[60 * i :][:60], dealt.X[i]])
        y = np.append(dealt.clients.y[60 * i :][:60], dealt.y[i])
        pairs = {(label[row.tobytes()], int(k)) for row, k in zip(X, y, strict=True)}
        assert len(pairs) == len({true for true, _ in pairs})
        meanings.append(pairs)
    assert meanings[0] == meanings[3] == meanings[6]
    assert meanings[0] != meanings[1]


def test_images_are_rotated_by_client(digits):
    plain, rotated = digits(), digits(rotations=4)
    for i in range(8):
        for one, other in ((plain.X[i], rotated.X[i]),):
            turned = np.rot90(one.reshape(-1, 8, 8), i % 4, (1, 2)).reshape(-1, 64)
            np.testing.assert_array_equal(turned, other)


def test_validation_does_not_see_test_images():
    images = load_digits()
    checked = study.deal("quick", 10, [0], validation=True)
    seen = known(checked.clients.X)
    tested = known(checked.X.reshape(-1, 64))
    assert not seen & tested
    assert (seen | tested) <= known(images.data)
    real = study.deal("quick", 10, [0])
    assert known(real.X.reshape(-1, 64)) <= known(images.data_test)


def test_every_rival_has_as_many_configurations():
    for name in study.RIVALS:
        decays = [each["weight_decay"] for each in study.CONFIGURATIONS[name]]
        assert decays == [0.0] * 3 + [1e-3] * 3
    assert all(len(study.CONFIGURATIONS[name]) == 1 for name in study.UNTUNED)


def test_the_best_configuration_is_taken(monkeypatch):
    tried = []

    def measure(learner, dealt, **others):
        tried.append(learner.get_params()["regularization"])
        return {"accuracy": float(learner.regularization == 1.0 and len(tried) == 6)}

    monkeypatch.setattr(study, "_measure", measure)
    study._best.cache_clear()
    assert study._best(study.DITTO, "quick", 4, 4, 2, math.inf) == 5
    assert tried == [0.01, 0.1, 1.0] * 2
    study._best.cache_clear()


def test_errors_of_calibration_and_likelihoods():
    """Three predictions by a table: two at .9, one of them wrong, and a right one at .5."""

    class Sure:
        def predict_proba(self, X, groups):
            p = np.where(groups[:, None] == 0, [[0.9, 0.1]], [[0.5, 0.5]])
            return p

    y = np.zeros((2, study.TESTS), int)
    y[0, : study.TESTS // 2] = 1
    recorded = 1 - y
    found = study._measure(Sure(), study.Dealt(None, np.zeros((2, study.TESTS, 1)), y, recorded))
    assert found["accuracy"] == pytest.approx(0.75)
    assert found["calibration"] == pytest.approx((0.4 + 0.5) / 2)
    assert found["recorded"] == pytest.approx((0.4 + 0.5) / 2)  # argmax of a tie is class 0
    expected = np.mean([np.log(0.1), np.log(0.9), np.log(0.5), np.log(0.5)])
    assert found["log_likelihood"] == pytest.approx(expected)


def test_right_probabilities_have_the_error_of_the_floor():
    """The mean of 200 tables of 400 tests: within four standard errors, a false alarm in 16,000."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 400)
    errors = [
        study._calibration(p, (rng.random((400, 1)) > p.cumsum(axis=1)).sum(axis=1))
        for _ in range(200)
    ]
    found, floor = np.transpose(errors)
    # sums of few successes are normal up to a percent or two
    assert found.mean() == pytest.approx(floor[0], abs=4 * found.std() / 200**0.5, rel=0.02)
    assert np.ptp(floor) == 0


def test_private_methods_have_their_epsilon():
    (row,) = study._one_run((0, 0), "quick", 6, 4, 4, 8.0, study.LEARNED)
    assert 0 < row["accuracy"] < 1
    dealt = study.deal("quick", 6, [0])
    for method in (study.TUNED, study.DITTO, study.ADAPED, *study.UNTUNED):
        ((_, learner),) = study._fits(method, dealt, 4, 4, 8.0, [0])
        assert learner.privacy_["epsilon"].tolist() == [pytest.approx(8.0, rel=1e-3)]
        assert learner.privacy.clip == study.CLIP
    ((_, alone),) = study._fits(study.ALONE, dealt, 4, 4, 8.0, [0])
    assert alone.privacy is None


def test_table_and_page(quick):
    table = quick.table.set_index("method")
    assert table.index.tolist() == [
        study.TUNED,
        study.SHARED,
        study.DITTO,
        study.ADAPED,
        study.ALONE,
        *study.UNTUNED,
    ]
    assert table["accuracy"][study.LEARNED] > table["accuracy"][study.SHARED] + 0.1
    rivals = table["accuracy"].drop([*study.UNTUNED])
    best = rivals.max()
    assert table["ahead"][study.LEARNED] == pytest.approx(table["accuracy"][study.LEARNED] - best)
    accuracy = quick.runs.pivot(index="run", columns="method", values="accuracy")
    first, second = accuracy[study.LEARNED] - accuracy[rivals.idxmax()]
    half = 12.7062 * abs(first - second) / 2  # of two runs: the quantile of t with 1 df
    row = table.loc[study.LEARNED]
    assert row["ahead_upper"] - row["ahead"] == pytest.approx(half, rel=1e-4)
    assert row["ahead"] - row["ahead_lower"] == pytest.approx(half, rel=1e-4)
    assert (quick.runs.groupby("method")["chosen"].nunique() == 1).all()
    text = quick.to_text()
    assert "digits, 3 classes" in text
    left, right = quick.figure().axes
    assert left.get_ylabel() == "accuracy"
    assert [tick.get_text() for tick in left.get_xticklabels()] == ["quick"]
    assert len(right.get_lines()) >= 5


def test_the_record_is_that_of_all_cells():
    """`run.py personal-strengths --out DIR` writes it anew."""
    record = pd.read_csv(RECORD)
    listed = study.PersonalStrengthsStudy.cells(False)
    cells = {(cell["setting"], cell["method"]) for cell in listed}
    shared = {(setting, study.SHARED) for setting, _ in cells}
    assert set(zip(record["setting"], record["method"], strict=True)) == cells | shared
    page = study.PersonalStrengthsStudy(record, pd.DataFrame(), reps=3, seed=0).to_text()
    page = " ".join(page.split())
    assert all(study.SETTINGS[setting].title in page for setting, _ in cells)
    # what the page of learners says of it
    accuracy = record.pivot(index="setting", columns="method", values="accuracy")
    assert accuracy.mean().drop(study.HELD_BACK).idxmax() == study.LEARNED
    learned = record[record["method"] == study.LEARNED].set_index("setting")
    assert (learned["ahead"] > -0.005).sum() == 5
    errors = record.pivot(index="setting", columns="method", values="calibration")
    halved = errors.index[errors[study.HELD_BACK] < errors[study.TUNED] / 2]
    assert set(halved) == {"alike", "fashion-permuted"}


def test_the_record_with_privacy():
    """`tests/reference/personal_strengths_private.py` writes it; the page of learners says this."""
    record = pd.read_csv(PRIVATE)
    cells = {cell["method"] for cell in study.PersonalStrengthsStudy.cells(False)} | {study.SHARED}
    assert "800 clients" in study.PersonalStrengthsStudy(record, record, reps=3, seed=0).to_text()
    for epsilon in (3.0, 8.0):
        row = record[record["epsilon"] == epsilon].set_index("method")
        assert set(row.index) == cells
        accuracy, errors = row["accuracy"], row["calibration"]
        assert accuracy.drop([*study.UNTUNED]).idxmax() == study.TUNED
        assert accuracy[study.LEARNED] > accuracy[study.TUNED] - 0.005
        assert (accuracy.drop([study.TUNED, *study.UNTUNED]) < accuracy[study.LEARNED]).all()
        for own in study.UNTUNED:
            assert errors[own] < errors[study.TUNED] / 2
