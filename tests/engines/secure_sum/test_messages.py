"""What nodes and server agree on before the first round."""

import numpy as np
import pytest

from ebfed.engines.secure_sum import keys, terms
from ebfed.engines.secure_sum.messages import (
    check_terms,
    context,
    largest,
    least_threshold,
    steps,
)

NAMES = ["a", "b", "c", "d", "e"]


def verify_keys(names):
    return {name: keys.verify_key(keys.signing_key()) for name in names}


@pytest.mark.parametrize(("n", "least"), [(2, 2), (3, 2), (4, 3), (5, 3), (100, 51)])
def test_the_least_threshold_is_more_than_half(n, least):
    names = [f"node {i:03d}" for i in range(n)]
    assert terms("run", names, 1)["threshold"] == least
    with pytest.raises(ValueError, match=f"from {least} "):
        terms("run", names, 1, threshold=least - 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"run": ""}, "run must be a name"),
        ({"names": "abc"}, "names must be a list"),
        ({"names": ["a"]}, "two or more"),
        ({"names": ["a", "a", "b"]}, "each once"),
        ({"names": ["a", ""]}, "names must be a list"),
        ({"threshold": 6}, "threshold must be"),
        ({"threshold": 3.0}, "threshold must be"),
        ({"threshold": True}, "threshold must be"),
        ({"colluding": 4}, "colluding must be a whole number from 0 to 3"),
        ({"colluding": 2, "threshold": 3}, "threshold must be a whole number from 4"),
        ({"size": 0}, "size must be"),
        ({"size": 2.5}, "size must be"),
        ({"bits": 24}, "bits must be"),
        ({"verify": {"a": np.zeros(32, np.uint8)}}, "verify must have a key for each"),
        ({"verify": {name: np.zeros(31, np.uint8) for name in NAMES}}, "must be 32 bytes"),
    ],
)
def test_terms_that_cannot_be_kept_are_refused(wrong, message):
    good = {"run": "run", "names": NAMES, "size": 3}
    with pytest.raises(ValueError, match=message):
        terms(**good | wrong)


@pytest.mark.parametrize("n", range(2, 12))
def test_the_least_threshold_against_nodes_that_collude(n):
    """Two of those in a sum are honest, and no two lists can be agreed to by enough nodes."""
    assert terms("run", [f"{i:02d}" for i in range(n)], 1)["threshold"] == least_threshold(n)
    for colluding in range(n - 1):
        least = least_threshold(n, colluding)
        assert least - colluding >= 2
        assert 2 * least > n + colluding
        fewer = least - 1
        assert fewer - colluding < 2 or 2 * fewer <= n + colluding
    assert least_threshold(n, n - 2) == n


def test_terms_of_another_form_are_refused():
    for wrong in (None, {}, terms("run", NAMES, 3) | {"more": 1}):
        with pytest.raises(ValueError, match="terms must be a dict"):
            check_terms(wrong)


def test_a_round_has_another_name_for_all_other_terms():
    known = verify_keys(NAMES)
    contexts = {
        context(terms("run", NAMES, 3, threshold=3), 0),
        context(terms("run", NAMES, 3, threshold=3), 1),
        context(terms("run", NAMES, 3, threshold=4), 0),
        context(terms("run", NAMES, 3, threshold=4, colluding=1), 0),
        context(terms("run", NAMES, 3, threshold=3, bits=64), 0),
        context(terms("run", NAMES, 4, threshold=3), 0),
        context(terms("run", NAMES[:4], 3, threshold=3), 0),
        context(terms("runa", [*NAMES[1:], "f"], 3), 0),
        context(terms("run", NAMES, 3, verify=known), 0),
        context(terms("run", NAMES, 3, verify=verify_keys(NAMES)), 0),
    }
    assert len(contexts) == 10
    backwards = dict(reversed(known.items()))  # the order in which an owner lists them
    same = [terms("run", names, 3, verify=known) for names in (NAMES, NAMES[::-1])]
    same += [terms("run", NAMES, 3, verify=backwards)]
    assert len({context(each, 7) for each in same}) == 1


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("n_nodes", [2, 3, 5, 100])
def test_no_sum_overflows(bits, n_nodes):
    most = largest(bits, n_nodes)
    assert most * n_nodes < 2 ** (bits - 1) <= (most + 1) * n_nodes


def test_nodes_agree_only_where_signatures_can_be_verified():
    assert "agree" in steps(terms("run", NAMES, 3, verify=verify_keys(NAMES)))
    assert "agree" not in steps(terms("run", NAMES, 3))


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(keys, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"ebfed\[secure\]"):
        terms("run", NAMES, 3)
