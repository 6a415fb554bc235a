"""Whatever is given: an error that names the argument, or a right and finite answer."""

import importlib.util
import sys
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("attacks", Path(__file__).with_name("attacks.py"))
attacks = importlib.util.module_from_spec(spec)
sys.modules["attacks"] = attacks
spec.loader.exec_module(attacks)

FIRST = 200
ALL = 5000


def test_every_estimator_is_attacked():
    targets = {attacks.attack(number).what.split(".")[0].split("(")[0] for number in range(700)}
    assert attacks.ESTIMATORS.keys() <= targets
    assert {"posterior_from", "from_formula", "channels"} <= targets


def test_some_malformed_input():
    assert attacks.failures(range(FIRST)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST, ALL, 480))
def test_much_malformed_input(first):
    assert attacks.failures(range(first, first + 480)) == {}


def refuse(error):
    raise error


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda: refuse(ValueError("X must be a number.")), None),
        (lambda: refuse(ValueError("index out of range")), "obscure ValueError"),
        (lambda: refuse(ValueError()), "empty ValueError"),
        (lambda: refuse(KeyError("X")), "obscure KeyError"),
        (lambda: refuse(MemoryError()), "memory"),
        (lambda: refuse(attacks.Hang()), "hang"),
        (lambda: bytearray(8 * 2**30), "memory"),
        (lambda: [float("nan")], "silent NaN"),
        (lambda: [1.0], None),
    ],
)
def test_the_judge(act, expected):
    found = attacks.verdict(attacks.Attack("", {"X"}, act))
    assert (found is None) if expected is None else found.startswith(expected)


def test_the_judge_compares_forms():
    same = attacks.Attack("", {"X"}, lambda: [1.0], lambda: [2.0])
    assert attacks.verdict(same) == "another answer"
    same = attacks.Attack("", {"X"}, lambda: refuse(ValueError("X is bad")), lambda: [2.0])
    assert attacks.verdict(same).startswith("refused form")
