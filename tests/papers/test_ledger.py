"""The ledger of the papers: complete, and of one mind with the code, the studies and the page."""

import io
import json
from contextlib import redirect_stdout

import numpy as np
import pandas as pd
import pytest

import ledger
import run
from ebfed import privacy, theory

ROWS = ledger.rows()
TAGS = list(ledger.tags())
# What the papers number. An Equation 32 of [P] and others have lost their number in print.
NUMBERED = {
    "E": {
        **{"Equation": 61, "Theorem": 7, "Lemma": 3, "Definition": 3, "Remark": 7},
        **{"Claim": 1, "Fact": 1, "Algorithm": 7, "Table": 5, "Figure": "1a 1b 2a 2b 3a 3b"},
    },
    "O": {
        **{"Equation": 53, "Definition": 1, "Theorem": "8", "Lemma": "1 2 3 4 5 6 7 9 10"},
        **{"Algorithm": 1, "Table": 7, "Figure": 4},
    },
    "P": {
        **{"Equation": 36, "Definition": "3.1 3.2", "Assumption": "4.2 4.3 4.4"},
        **{"Theorem": "4.1 4.5 5.1 5.2 B.4", "Lemma": "4.6 B.1 B.2 B.3", "Algorithm": 3},
        **{"Figure": "1a 1b 1c 1d 2"},
    },
    "J": {
        **{"Equation": 1, "Definition": "2.1 2.2 B.2", "Theorem": "1.1 3.1 B.1 B.3"},
        **{"Lemma": "3.2 3.3 3.4 3.5 3.6 B.4 B.5", "Algorithm": 2, "Table": 4, "Figure": 1},
    },
    "B": {},
}
# Kinds of rows that the papers do not number in a row of their own.
OTHERS = ("Abstract", "Section", "Appendix", "Next")


@pytest.mark.parametrize("letter", ledger.PAPERS)
def test_every_numbered_item_has_one_row(letter):
    expected = {
        f"{kind} {number}"
        for kind, numbers in NUMBERED[letter].items()
        for number in (numbers.split() if isinstance(numbers, str) else range(1, numbers + 1))
    }
    found = [item for row in ROWS if row.letter == letter for item in row.items]
    found = [item for item in found if not item.startswith(OTHERS)]
    assert len(found) == len(set(found))
    assert set(found) == expected


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.letter} {row.item}")
def test_rows(row):
    assert row.says.endswith(".")
    assert row.reason.endswith(".")
    assert (ledger.ROOT / row.code).is_file(), row.code
    assert not {"@", "{"} & {*row.figures}
    assert not row.here or row.run, "what printed the figure?"
    if row.verdict in ("needs data", "missing") and not row.run:
        assert not row.here
    if row.run.startswith("run.py "):
        assert row.run.split()[1] in run.FOLDERS


DERIVED = {"Appendix K.2, regression"}  # percentages of two figures


@pytest.mark.parametrize("letter", ledger.PAPERS)
def test_figures_of_studies_are_stored_ones(letter):
    """No figure of a study is typed by hand; a stored table has a date and a commit."""
    for item, fields in ledger.read()[letter].items():
        if fields.get("run", "").startswith("run.py ") and "here" in fields:
            assert ledger.FIGURE.search(fields["here"]) or item in DERIVED, item
            assert fields["run"].removeprefix("run.py ") in ledger.stored(), item
    for command, made in ledger.stored().items():
        assert command.split()[0] in run.FOLDERS
        assert len(made["date"]) == 10
        assert "dirty" not in made["commit"]
    quick = {command.split()[0] for command in ledger.stored() if command.endswith(" --quick")}
    assert quick == set(run.FOLDERS)


def test_tables_are_stored_and_read(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "FIGURES", tmp_path / "figures.json")
    (tmp_path / "figures.json").write_text("{}")
    ledger.stored.cache_clear()
    table = pd.DataFrame({"method": ["a", "b", "b"], "n": [1, 1, 2], "mse": [0.5, 1 / 3, np.nan]})
    ledger.store("bits --quick", [table.assign(mse_se=0.01, mse_sd=1.0)])
    assert ledger.stored()["bits --quick"]["rows"][1] == {
        **{"method": "b", "n": 1.0, "mse": 0.333333},
        "mse_se": 0.01,
    }
    text = "a {mse:.1f method=a}, b {mse±*100:.2f method=b; n=1}"
    assert ledger.filled(text, "bits --quick") == "a 0.5, b 33.33 ± 1.00"
    with pytest.raises(ValueError, match="2 rows of 'bits --quick' have method=b"):
        ledger.filled("{mse:.1f method=b}", "bits --quick")
    with redirect_stdout(io.StringIO()):
        run.main(["bits", "--quick", "--reps", "2", "--store"])
    assert {*ledger.stored()} == {"bits --quick", "bits --quick --reps 2"}
    rows = ledger.stored()["bits --quick --reps 2"]["rows"]
    assert {row["method"] for row in rows} >= {"local", "non-private"}
    ledger.stored.cache_clear()


def test_tags_in_the_code_are_rows():
    """Once each, in the file that the row names; a row has no other place than its tag's."""
    places = {(row.letter, row.item): row.code for row in ROWS}
    results = [result for result, *_ in TAGS]
    twice = {result for result in results if results.count(result) > 1}
    assert not twice, f"tagged more than once: {sorted(twice)}"
    for result, _, path, line in TAGS:
        assert places.get(result) == path.relative_to(ledger.ROOT).as_posix(), f"{path}:{line}"


def test_every_study_of_a_paper_is_named():
    named = {row.run.split()[1] for row in ROWS if row.run.startswith("run.py ")}
    of_papers = {name for name, folder in run.FOLDERS.items() if folder[-4:].isdigit()}
    assert of_papers <= named


VALUES = [row for row in ROWS if row.run and not row.run.startswith(("run.py ", "ebfed "))]


@pytest.mark.parametrize("row", VALUES, ids=lambda row: f"{row.letter} {row.item}")
def test_values_of_functions(row):
    """Printed to four digits; accounts are on a mesh that may move the last."""
    value = eval(row.run, {"theory": theory, "privacy": privacy})
    assert float(row.here) == pytest.approx(float(value), rel=2e-3)


@pytest.mark.parametrize(
    ("tag", "verdict", "said"),
    [
        ("[E] Section 4, counties", "contradicted", "10.7 ± 1.9"),
        ("[E] Appendix K.2, regression", "contradicted", "14.8 ± 1.2"),
        ("[E] Table 1", "contradicted", "72.49"),
        ("[E] Table 4", "needs data", "98.10"),
        ("[E] Table 5", "needs data", "73.86"),
        ("[E] Section 3, example 2", "reproduced", "expectation propagation"),
        ("[E] Theorem 4", "contradicted", "2.95"),
        ("[O] Table 2", "needs data", "86.88"),
        ("[O] Figure 2", "direction", "chosen to give"),
        ("[P] Figure 1d", "direction", "trunk"),
        ("[J] Figure 1", "direction", "and also at 100"),
    ],
)
def test_what_does_not_hold_is_said(tag, verdict, said):
    (row,) = (row for row in ROWS if f"[{row.letter}] {row.item}" == tag)
    assert row.verdict == verdict
    assert said in f"{row.says} {row.figures} {row.reason}"


def test_text_and_page_have_every_row():
    text, page = ledger.to_text(), ledger.to_page()
    assert max(map(len, text.splitlines())) <= 96
    for row in ROWS:
        assert f"{row.item:<30} {row.verdict}" in text
        cells = [row.item, row.says.replace("|", "\\|")]
        assert f"| {' | '.join(cells)} |" in page
    for _, name, path, line in TAGS:
        assert f"`{name or path.stem}, {path.relative_to(ledger.ROOT)}:{line}`" in page
    assert f"All {len(ROWS)} rows: {ledger.counts(ROWS)}" in " ".join(text.split())
    for each in (text, page):
        assert "Figures of studies are of 20" in " ".join(each.split())


def test_commands():
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert run.main(["ledger"]) == 0
    assert printed.getvalue() == ledger.to_text() + "\n"
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert run.main(["ledger", "--json"]) == 0
    assert len(json.loads(printed.getvalue())) == len(ROWS)


def test_unknown_verdicts_are_refused():
    with pytest.raises(ValueError, match=r"\[E\] Table 1: verdict must be one of .*; got 'fine'"):
        ledger.Row(letter="E", item="Table 1", says="", code="", verdict="fine", reason="")


def test_tags_are_found_with_the_names_at_which_they_stand(tmp_path):
    (tmp_path / "planted.py").write_text(
        "# [E] Theorem 3\n@decorated\ndef first():\n    return 1\n\n\n"
        "class Second:\n    def third(self):\n        x = 1\n"
        "        # [O] Equation 5b: with its reason\n        return x\n\n\n"
        "y = 1  # [J] Algorithm A.1\ntext = '# [P] Lemma 1'\n"
    )
    assert [(*result, name, line) for result, name, _, line in ledger.tags(tmp_path)] == [
        ("E", "Theorem 3", "first", 1),
        ("O", "Equation 5b", "Second.third", 10),
        ("J", "Algorithm A.1", "", 14),
    ]
    (tmp_path / "wrong.py").write_text("# [E] theorem three\n")
    with pytest.raises(ValueError, match=r"wrong.py:1 is not a tag such as '# \[E\] Theorem 3'"):
        list(ledger.tags(tmp_path))
