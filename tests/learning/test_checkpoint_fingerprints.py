"""Texts of arguments: the same in any process, and different where messages may be."""

import importlib
import json
import os
import subprocess
import sys
from functools import partial
from json import dumps

import numpy as np
import pytest

import ebfed as eb
from ebfed.learning.checkpoint import fingerprint
from ebfed.models import MLP, Softmax


def loss(smoothing):
    def error(outputs, y):
        return helper(outputs, y) * smoothing

    return error


def helper(outputs, y):
    return (outputs - y) ** 2


def other_helper(outputs, y):
    return abs(outputs - y)


def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    return n != 0 and even(n - 1)


OTHERS = {
    "numbers": (1.0, 1.5),
    "kinds of numbers": (1, 1.0),
    "arrays": (np.zeros(3), np.zeros((3, 1))),
    "what a function computes": (lambda x: x + 1, lambda x: x + 2),
    "defaults": (lambda x=1: x, lambda x=2: x),
    "what a function holds": (loss(0.1), loss(0.2)),
    "arguments that are given": (partial(helper, y=1), partial(helper, y=2)),
    "generators": (np.random.default_rng(0), np.random.default_rng(1)),
    "models": (MLP(8), MLP(9)),
    "classes": (Softmax, MLP),
    "promises": (eb.ClientPrivacy(epsilon=1.0), eb.ClientPrivacy(epsilon=2.0)),
    "in a collection": ({"a": [1, (2,)]}, {"a": [1, (3,)]}),
    "methods": (MLP(8).start, MLP(9).start),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_have_another_text(name):
    one, other = OTHERS[name]
    assert fingerprint(one) == fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize("make", [lambda: loss(0.1), lambda: MLP(8), lambda: {"b", "a", "c"}])
def test_the_same_has_the_same_text(make):
    assert fingerprint(make()) == fingerprint(make())


def test_a_function_that_is_called_counts(monkeypatch):
    before = fingerprint(loss(0.1))
    monkeypatch.setitem(globals(), "helper", other_helper)
    assert fingerprint(loss(0.1)) != before


def test_a_function_that_is_called_inside_another_counts(monkeypatch):
    def inside(outputs, y):
        return sum(helper(*pair) for pair in zip(outputs, y, strict=True))

    before = fingerprint(inside)
    monkeypatch.setitem(globals(), "helper", other_helper)
    assert fingerprint(inside) != before


PARTS = "def error(outputs, y):\n    return abs(outputs - y)\n"
LOSSES = """
from own_package.parts import error

def loss(outputs, y):
    return error(outputs, y)
"""


def test_a_function_of_the_same_package_counts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package/losses.py").write_text(LOSSES)
    texts = []
    for parts in (PARTS, PARTS, PARTS.replace("abs", "float")):
        (tmp_path / "own_package/parts.py").write_text(parts)
        for name in [name for name in sys.modules if name.startswith("own_package")]:
            monkeypatch.delitem(sys.modules, name)
        importlib.invalidate_caches()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        texts.append(fingerprint(importlib.import_module("own_package.losses").loss))
    assert texts[0] == texts[1] != texts[2]


def test_functions_of_other_packages_do_not_count(monkeypatch):
    def dumped(outputs):
        return dumps(outputs)

    before = fingerprint(dumped)
    monkeypatch.setitem(globals(), "dumps", json.loads)
    assert fingerprint(dumped) == before


def test_variables_without_a_value_are_told_apart():
    def losses(known):
        def loss(outputs):
            return scale * outputs

        if known:
            scale = 2.0
        return loss

    assert fingerprint(losses(False)) == fingerprint(losses(False)) != fingerprint(losses(True))


def test_circles_end():
    around = [1]
    around.append(around)
    assert fingerprint(around) == fingerprint(around)
    assert fingerprint(even) == fingerprint(even)


def test_what_an_object_has_found_out_does_not_count():
    model = MLP(8)
    model.seen_ = 1
    assert fingerprint(model) == fingerprint(MLP(8))


def test_another_process_has_the_same_text():
    """Sets are in another order there, and objects lie elsewhere."""
    code = """
import numpy as np
import ebfed as eb
from ebfed.learning.checkpoint import fingerprint
privacy = eb.ClientPrivacy(epsilon=1.0)
print(fingerprint([lambda x: x in {"p", "q", "r"}, {"a", "b"}, privacy, np.tanh, max]))
"""
    texts = set()
    for seed in "12":
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        texts.add(done.stdout)
    assert len(texts) == 1
    assert texts != {""}


def test_modules_differ_by_the_numbers_that_are_not_trained():
    torch = pytest.importorskip("torch")

    def module(frozen, trained):
        layers = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2))
        torch.nn.init.constant_(layers[0].weight, frozen).requires_grad_(False)
        torch.nn.init.constant_(layers[1].weight, trained)
        torch.nn.init.zeros_(layers[0].bias).requires_grad_(False)
        return layers

    text = fingerprint(module(1.0, 1.0))
    assert text == fingerprint(module(1.0, 2.0))
    assert text != fingerprint(module(2.0, 1.0))
    assert text != fingerprint(module(1.0, 1.0).requires_grad_(True))
    assert text != fingerprint(module(1.0, 1.0).to(torch.bfloat16))
    losses = torch.nn.CrossEntropyLoss(), torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    assert repr(losses[0]) == repr(losses[1])
    assert fingerprint(losses[0]) != fingerprint(losses[1])
