"""The words of the code are those of the glossary, a page of the site."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GLOSSARY = (ROOT / "vignettes" / "site" / "pages" / "glossary.md").read_text()
TERMS, INSTEAD = (
    dict(re.findall(r"^\| (?!word|not)([^|-]+) \| (.+) \|$", part, re.MULTILINE))
    for part in GLOSSARY.split("## Words we do not use")
)
PARTS = {each.stem for each in (ROOT / "ebfed").iterdir() if each.is_dir() or each.suffix == ".py"}
PARTS -= {"__pycache__"}


def words(text):
    """Split text and names: ``is_toldOf`` has three words."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", text)]


def unwanted(text):
    """Return the words and phrases of a text that have a plainer one."""
    flat = f" {' '.join(words(text))} "
    return {phrase for phrase in INSTEAD if f" {phrase} " in flat}


def test_the_glossary_is_short():
    assert 30 <= len(TERMS) <= 40
    assert {"came", "told", "heard", "strange", "mine", "theirs"} <= INSTEAD.keys()


@pytest.mark.parametrize("part", sorted(PARTS))
def test_the_code_uses_plain_words(part):
    folder = ROOT / "ebfed" / part
    for path in folder.rglob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]:
        assert not unwanted(path.read_text()), path


def test_pages_of_the_site_use_plain_words():
    vignettes = ROOT / "vignettes"
    for path in [*vignettes.glob("*.py"), *(vignettes / "site" / "pages").rglob("*.md")]:
        if path.name != "glossary.md":
            assert not unwanted(path.read_text()), path


@pytest.mark.parametrize("name", ["README", "CONTRIBUTING", "SECURITY", "data/README"])
def test_files_for_readers_use_plain_words(name):
    assert not unwanted((ROOT / f"{name}.md").read_text())


def test_unwanted_words_are_found():
    assert unwanted("self._told") == {"told"}
    assert unwanted("class IsStrange: ...  # it is left\n    # alone") == {"strange", "left alone"}
    assert unwanted("became, determine, hearing, StrangeMineral") == {"strange"}


def test_names_of_the_glossary_are_names_of_the_code():
    code = [path.read_text() for path in (ROOT / "ebfed").rglob("*.py")]
    names = set(re.findall(r"\w+", "\n".join(code)))
    shown = {name for text in TERMS.values() for name in re.findall(r"`(\w+)[^`]*`", text)}
    assert shown <= names, shown - names
