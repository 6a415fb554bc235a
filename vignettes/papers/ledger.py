"""The ledger of the papers: what each numbered item says, where it is computed, what was found.

The rows are those of ``ledger.toml`` beside this file, and their figures those of ``figures.json``,
which ``run.py --all --quick`` and ``run.py NAME --store`` write: a figure such as ``{mse*1000:.2f
method=local; n=10}`` is that of the row of the table with these values, and ``mse±`` has its
standard error. `to_text` is printed by ``run.py ledger``, `to_page` is a page of the site, and
``tests/papers/test_ledger.py`` holds rows, code and page together.
"""

import ast
import io
import json
import re
import subprocess
import textwrap
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAPERS = {
    "E": "A statistical framework for personalized federated learning and estimation",
    "O": "FeO2: federated learning with opt-out differential privacy",
    "P": "Personalization improves privacy-accuracy tradeoffs",
    "J": "Learning across data owners with joint differential privacy",
    "B": "Beyond: what authors of these papers, and others, described next",
}
VERDICTS = {
    "reproduced": "it holds here, in its figures or its formula",
    "direction": "an order or a trend holds; the figures are of other data or settings",
    "contradicted": "it does not hold here",
    "erratum": "it is right after a correction",
    "replaced by better": "ebfed has it, and does something better by default",
    "needs data": "its images or texts cannot be had here",
    "missing": "nothing here computes it yet",
    "stated": "a definition, an assumption, a setting or a step of a proof: nothing to measure",
}
FIGURES = HERE / "figures.json"
FIGURE = re.compile(r"\{(\w+)(±?)(?:\*([\d.]+))?:(\.\d[fg]) ([^}]+)\}")
TAG = re.compile(rf"# \[([{''.join(PAPERS)}])\] ([A-Z][a-z]+ \w+(?:\.\w+)*)")


@dataclass(frozen=True, kw_only=True)
class Row:
    """An item of a paper, ``[E] Theorem 1``; the fields are those of ``ledger.toml``."""

    letter: str
    item: str
    says: str
    code: str
    verdict: str
    reason: str
    run: str = ""
    paper: str = ""
    here: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "here", filled(self.here, self.run.removeprefix("run.py ")))
        if self.verdict not in VERDICTS:
            raise ValueError(
                f"[{self.letter}] {self.item}: verdict must be one of {', '.join(VERDICTS)}; "
                f"got {self.verdict!r}"
            )

    @property
    def items(self) -> list[str]:
        """The items that the row is about.

        >>> fields = dict(says="", code="", verdict="stated", reason="")
        >>> Row(letter="E", item="Equation 8 to 9", **fields).items
        ['Equation 8', 'Equation 9']
        """
        many = re.fullmatch(r"(\w+) (\d+) to (\d+)", self.item)
        if many is None:
            return [self.item]
        return [f"{many[1]} {number}" for number in range(int(many[2]), int(many[3]) + 1)]

    @property
    def figures(self) -> str:
        """The paper's figure and that found here, where there are any."""
        named = {"paper": self.paper, "here": self.here}
        return "; ".join(f"{name}: {value}" for name, value in named.items() if value)


@cache
def read() -> dict[str, Any]:
    """Read the file of the ledger."""
    return tomllib.loads((HERE / "ledger.toml").read_text(encoding="utf-8"))


def rows() -> list[Row]:
    """List all rows, in the order of the papers."""
    return [
        Row(letter=letter, item=item, **fields)
        for letter in PAPERS
        for item, fields in read()[letter].items()
    ]


@cache
def stored() -> dict[str, Any]:
    """Read the tables of studies by command, each with its date and commit."""
    return json.loads(FIGURES.read_text(encoding="utf-8"))


def store(command: str, tables: Iterable[Any]) -> None:
    """Write the tables of a study, as the command prints them, among the stored ones."""
    changed = git("status", "--porcelain", "-uno", "--", ".", ":!vignettes/papers/figures.json")
    commit = git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")
    rows = [
        {name: plain(x) for name, x in row.items() if x == x and x != "" and name[-3:] != "_sd"}
        for table in tables
        for row in table.to_dict("records")
    ]
    made = {"date": f"{date.today()}", "commit": commit, "rows": rows}
    lines = [
        f"{json.dumps(key)}: {json.dumps(x)}" for key, x in (stored() | {command: made}).items()
    ]
    FIGURES.write_text("{\n" + ",\n".join(sorted(lines)) + "\n}\n", encoding="utf-8")
    stored.cache_clear()


def git(*arguments: str) -> str:
    """Return what git says in the clone."""
    answer = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()


def plain(value: Any) -> Any:
    """Round a number to six digits, for a file that can be read.

    >>> plain(1 / 3), plain("local")
    (0.333333, 'local')
    """
    return float(f"{value:.6g}") if isinstance(value, float | int) else str(value)


def filled(text: str, command: str) -> str:
    """Put the stored figures of a command into a text."""

    def figure(found: re.Match[str]) -> str:
        name, error, scale, form, place = found.groups()
        wanted = dict(each.split("=", 1) for each in place.split("; "))
        rows = [
            row
            for row in stored()[command]["rows"]
            if all(f"{row.get(key, 'none')}".removesuffix(".0") == x for key, x in wanted.items())
        ]
        if len(rows) != 1:
            raise ValueError(f"{len(rows)} rows of {command!r} have {place}")
        values = [
            rows[0][each] * float(scale or 1) for each in (name, f"{name}_se")[: 1 + len(error)]
        ]
        return " ± ".join(format(value, form) for value in values)

    return FIGURE.sub(figure, text)


def made() -> str:
    """Say when studies were run, and with which code."""
    dates = sorted({each["date"] for each in stored().values()})
    commits = sorted({each["commit"] for each in stored().values()})
    days = " to ".join(dict.fromkeys([dates[0], dates[-1]]))
    return f"Figures of studies are of {days}, commit {', '.join(commits)}."


def counts(part: list[Row]) -> str:
    """Count verdicts: ``reproduced 3, missing 1``."""
    found = Counter(row.verdict for row in part)
    return ", ".join(f"{verdict} {found[verdict]}" for verdict in VERDICTS if found[verdict])


def to_text() -> str:
    """Print all rows with their figures, or with the reason where there are none, and counts."""
    all_rows, lines = rows(), []
    for letter, title in PAPERS.items():
        part = [row for row in all_rows if row.letter == letter]
        lines += ["", f"[{letter}] {title}", "-" * 96]
        for row in part:
            lines += textwrap.wrap(
                row.figures or row.reason,
                96,
                initial_indent=f"{row.item:<30} {row.verdict:<19} ",
                subsequent_indent=" " * 51,
            )
        lines += ["-" * 96, *textwrap.wrap(f"{len(part)} rows: {counts(part)}", 96)]
    total = f"All {len(all_rows)} rows: {counts(all_rows)}. {made()}"
    return "\n".join([*lines[1:], "", *textwrap.wrap(total, 96)])


def to_page() -> str:
    """Write the ledger in Markdown, a table for each paper."""
    all_rows = rows()
    places = {
        (letter, item): f"{name or path.stem}, {path.relative_to(ROOT)}:{line}"
        for (letter, item), name, path, line in tags()
    }
    parts = [made(), "", "| verdict | meaning | rows |", "|---|---|--:|"]
    found = Counter(row.verdict for row in all_rows)
    parts += [f"| {name} | {meaning} | {found[name]} |" for name, meaning in VERDICTS.items()]
    for letter, title in PAPERS.items():
        part = [row for row in all_rows if row.letter == letter]
        parts += ["", f"## [{letter}] {title}", "", f"{counts(part).capitalize()}.", ""]
        parts += ["| item | what it says | figures | verdict | place |", "|---|---|---|---|---|"]
        for row in part:
            command = row.run if row.run.startswith(("run.py", "ebfed")) else ""
            cells = [
                row.item,
                row.says,
                row.figures + (f" (`{command}`)" if command else ""),
                f"**{row.verdict}**: {row.reason}",
                f"`{places.get((letter, row.item), row.code)}`",
            ]
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(parts) + "\n"


def tags(folder: Path = ROOT / "ebfed") -> Iterator[tuple[tuple[str, str], str, Path, int]]:
    """Find the tags of items in comments of the code, such as ``# [E] Theorem 3``.

    Yields the paper and the item, the name that the tag stands at, the file and the line. A comment
    that begins like a tag and is none is an error.
    """
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not re.search(rf"#\s*\[[{''.join(PAPERS)}]\]", text):
            continue
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type != tokenize.COMMENT or not re.match(r"#\s*\[[A-Z]\]", token.string):
                continue
            line = token.start[0]
            found = TAG.match(token.string)
            if found is None:
                raise ValueError(f"{path}:{line} is not a tag such as '# [E] Theorem 3'")
            yield (found[1], found[2]), name_at(text, line), path, line


def name_at(text: str, line: int) -> str:
    """Name the function or class that a line lies in, or that begins below comments there."""
    lines = text.splitlines()
    while line < len(lines) and re.match(r"\s*(#|@|$)", lines[line - 1]):
        line += 1
    name, nodes = "", list[ast.AST](ast.parse(text).body)
    while nodes:
        node = nodes.pop(0)
        first = getattr(node, "lineno", line + 1)
        if not first <= line <= (getattr(node, "end_lineno", None) or first):
            continue
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = f"{name}.{node.name}" if name else node.name
        nodes = [child for child in ast.iter_child_nodes(node) if hasattr(child, "lineno")]
    return name
