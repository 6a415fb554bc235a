"""What is said of threats follows from the rules, and each sentence has a test that is there."""

import re
from pathlib import Path

import pytest

from ebfed.engines.flower import OwnRows, Rules
from ebfed.engines.flower.threat import NOT_PROVED, in_words, lines_of_threats, sentences

ROOT = Path(__file__).parents[2]
CONSENT = {"column": "choice", "open": ["yes"]}
OWN = OwnRows("rows.csv", person="patient", groups=["ward"], columns=["ward", "age"])
NODES = ["north", "east", "west"]
CASES = {
    "default": Rules(),
    "single rows": Rules(min_group_size=1),
    "readers": Rules(epsilon=3.0, against="readers", rows=OWN),
    "budget": Rules(epsilon=3.0, methods=["GaussianEB"], rows=OWN),
    "consent": Rules(epsilon=3.0, rows=OwnRows("a.csv", person="row", consent=CONSENT)),
    "each run": Rules(run_epsilon=1.0, rows=OWN),
    "sums": Rules(epsilon=8.0, partners=NODES),
    "keys": Rules(epsilon=8.0, partners=dict.fromkeys(NODES, "0" * 64), colluding=1),
    "nobody colludes": Rules(epsilon=8.0, partners=dict.fromkeys(NODES, "0" * 64)),
    "digests": Rules(match_key="key"),
}


def names_in(file):
    return set(re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.M))


@pytest.mark.parametrize("case", CASES)
def test_each_sentence_names_a_test_that_is_there(case):
    named = [each.test for each in sentences(CASES[case]) if each.test != NOT_PROVED]
    assert len(named) >= 8
    for test in named:
        file, _, name = test.partition("::")
        assert name in names_in(ROOT / file), test


@pytest.mark.parametrize("page", ["SECURITY.md", "vignettes/site/pages/owners/threat.md"])
def test_pages_name_tests_that_are_there(page):
    """Each `test_…` in a page is a test, and each file is there."""
    everywhere = {
        f"{file.relative_to(ROOT)}": names_in(file) for file in (ROOT / "tests").rglob("test_*.py")
    }
    text = (ROOT / page).read_text(encoding="utf-8")
    for file, name in re.findall(r"`(?:([\w/]+\.py)::)?(test_\w+)`", text):
        found = [path for path, names in everywhere.items() if name in names]
        assert any(path.endswith(file) for path in found), (file, name)
    for file in re.findall(r"`(tests/[\w/]+)(?:\.py)?`", text):
        assert (ROOT / file).exists() or (ROOT / f"{file}.py").exists(), file


def said(case, who="server"):
    return " ".join(each.text for each in sentences(CASES[case]) if who in each.who)


def test_sentences_follow_the_rules():
    assert "exact figures of each group of at least 5 rows" in said("default")
    assert "exact figures of single rows" in said("single rows")
    assert (
        "of each patient by messages with noise at most epsilon 3 (delta 1e-05) over all runs"
        in said("budget")
    )
    assert "reads no exact figures: nobody agreed" in said("budget")
    assert "all of whose rows have yes in choice" in said("consent")
    assert 'is trusted, by against = "readers"' in said("readers")
    assert "at most epsilon" not in said("readers", "operator")
    assert "at most epsilon 1 in one run" in said("each run")
    assert "whose epsilons add up" in said("each run")
    assert "if it follows the protocol" in said("sums")
    assert "makes up keys of partners" in said("sums")
    assert "whatever it says to nodes" in said("keys")
    assert "if at most 1 of the partners" in said("keys", "on the side")
    assert "may learn with it the vector" in said("nobody colludes", "on the side")
    assert "digests of labels" in said("digests")
    assert "chooses one of GaussianEB, and among the columns ward, age" in said("budget", "token")


def test_what_is_exact_is_never_said_to_have_a_guarantee():
    """Without a budget no sentence of the server or of a reader promises an epsilon."""
    for case in ("default", "single rows", "digests"):
        text = " ".join(lines_of_threats(CASES[case]))
        assert "at most epsilon" not in text
        assert "no noise" in in_words(CASES[case])


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("default", "no noise: exact sums of at least 5 rows each"),
        ("single rows", "no noise: exact sums of any rows"),
        ("budget", "epsilon 3 per patient over all runs, 1.2 spent"),
        ("each run", "epsilon 1 per patient in each run, without a limit over runs, 1.2 spent"),
    ],
)
def test_rules_in_words(case, words):
    rules = CASES[case]
    assert in_words(rules, 1.2 if rules.is_finite else 0.0) == words


def test_those_who_agreed_are_in_the_words():
    text = in_words(Rules(epsilon=3.0, rows=OWN), 1.2, exact=True)
    assert text.endswith("1.2 spent; exact sums of at least 5 patients who agreed")
