"""Write the pages of the API from the `__all__` of every module: one page for each public name.

Every topic, which is a module of the package, has a page that lists its names.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

# Topics in their order, each with its title.
TOPICS = {
    "location": "Means and rates",
    "regression": "Regressions",
    "learning": "Learners",
    "formula": "Formulas",
    "evaluation": "Comparing fits",
    "loading": "Fits from files",
    "report": "Report and plots",
    "priors": "Priors and posteriors",
    "channels": "Channels",
    "privacy": "Privacy",
    "tables": "Tables of groups",
    "families": "Families",
    "likelihoods": "Likelihoods",
    "models": "Models of learners",
    "engines": "Engines",
    "datasets": "Data sets",
    "theory": "Theory",
    "testing": "Contracts",
}
ESTIMATORS = ("location", "regression", "learning")  # the three wings
INTRODUCTION = """# API

Every public class and function has a page. After `import ebfed as eb`, what is used most has a name
of `eb`: `eb.GaussianEB`. Every name is in its module too: `eb.learning.FedAvg`,
`eb.priors.Normal`.
"""


def members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """All public names of a module and of the modules among them, with what they name."""
    for name in module.__all__:
        member = getattr(module, name)
        yield f"{module.__name__}.{name}", member
        if inspect.ismodule(member):
            yield from members(member)


@cache
def topics() -> dict[str, tuple[str, list[tuple[str, Any]]]]:
    """Every topic: its title, and its public names with what they name."""
    import ebfed

    found: dict[str, list[tuple[str, Any]]] = {}
    for name in TOPICS:
        found[name] = list(members(importlib.import_module(f"ebfed.{name}")))
    there = {id(member) for pairs in found.values() for _, member in pairs}
    for name in ebfed.__all__:  # what is in a module at the top, and not in the list of that
        member = getattr(ebfed, name)
        if not inspect.ismodule(member) and id(member) not in there:
            home = member.__module__.split(".")[1]
            found.setdefault(home, []).append((f"{member.__module__}.{name}", member))
    return {slug: (title, found[slug]) for slug, title in TOPICS.items()}


def page_of(slug: str, path: str) -> str:
    """Name the page of a public name: ``api/privacy/accountant.epsilon.md``."""
    module, _, name = path.rpartition(".")
    within = module.removeprefix(f"ebfed.{slug}").lstrip(".")
    listed = within and within in getattr(importlib.import_module(f"ebfed.{slug}"), "__all__", ())
    return f"api/{slug}/{f'{within}.{name}' if listed else name}.md"


def has_page(member: Any) -> bool:
    """Whether a public name has a page: modules and tables are part of the page of their topic."""
    return not inspect.ismodule(member) and not isinstance(member, dict)


def pages() -> dict[str, str]:
    """Every page of the API, by its path: that of all, those of topics, those of names."""
    written = {"api/index.md": index()}
    for slug, (_, names) in topics().items():
        written[f"api/{slug}/index.md"] = topic_page(slug)
        for path, member in names:
            if has_page(member):
                written[page_of(slug, path)] = name_page(path, member)
    return written


def navigation() -> list:
    """List the pages as mkdocs wants its menu."""
    listed = [
        {
            title: [
                f"api/{slug}/index.md",
                *(
                    {page_of(slug, path)[:-3].rpartition("/")[2]: page_of(slug, path)}
                    for path, member in names
                    if has_page(member)
                ),
            ]
        }
        for slug, (title, names) in topics().items()
    ]
    return ["api/index.md", *listed]


def index() -> str:
    """List all public names by topic, each with the first sentence of its documentation."""
    parts = [INTRODUCTION]
    for slug, (title, names) in topics().items():
        parts.append(f"## [{title}]({slug}/index.md)")
        parts.append(table(slug, names, f"{slug}/"))
    return "\n\n".join(part for part in parts if part) + "\n"


def table(slug: str, names: Iterable[tuple[str, Any]], folder: str = "") -> str:
    """List names with links and first sentences; empty if no name has a page."""
    rows = []
    for path, member in names:
        if has_page(member):
            page = page_of(slug, path).rpartition("/")[2]
            rows.append(f"| [`{page[:-3]}`]({folder}{page}) | {first_sentence(member)} |")
    return "\n".join(["| name | what it is |", "|---|---|", *rows]) if rows else ""


def first_sentence(member: Any) -> str:
    """Return the first line of a docstring, as Markdown, fit for a cell of a table."""
    text = inspect.getdoc(member) if inspect.isclass(member) or inspect.isroutine(member) else None
    line = (text or "A type for annotations.").split("\n\n")[0].replace("\n", " ")
    return line.replace("``", "`").replace("|", "\\|").replace("[", "\\[")


def topic_page(slug: str) -> str:
    """Write the page of a topic: its documentation, and its names."""
    title, names = topics()[slug]
    parts = [f"# {title}"]
    if importlib.util.find_spec(f"ebfed.{slug}"):
        parts.append(directive(f"ebfed.{slug}", members="false", show_root_heading="false"))
    inside = {path: member for path, member in names if inspect.ismodule(member)}
    parts.append(table(slug, [pair for pair in names if pair[0].rpartition(".")[0] not in inside]))
    for path in inside:
        parts.append(directive(path, members="false", show_root_full_path="true", heading_level=2))
        parts.append(table(slug, [pair for pair in names if pair[0].rpartition(".")[0] == path]))
    shared = bases(member for _, member in names) if slug in ESTIMATORS else []
    if shared:
        parts.append("## What they share")
    for base in shared:
        path = f"{base.__module__}.{base.__name__}"
        own = json.dumps(["protocol"] if "protocol" in vars(base) else [])
        options = {"members": own, "summary": "false", "inherited_members": "false"}
        parts.append(directive(path, heading_level=3, **options))
    return "\n\n".join(part for part in parts if part) + "\n"


def bases(classes: Iterable[Any]) -> list[type]:
    """Find the classes of the package that these build on and that are not public themselves."""
    public = {
        member for _, pairs in topics().values() for _, member in pairs if hasattr(member, "mro")
    }
    found = {base: None for each in classes if hasattr(each, "mro") for base in each.mro()}
    return [base for base in found if base.__module__.startswith("ebfed.") and base not in public]


def name_page(path: str, member: Any) -> str:
    """Write the page of a public name; methods of a public base are on the page of that."""
    base = public_base(member)
    options = {"filters": json.dumps(["!^_"]), "inherited_members": json.dumps(base is None)}
    page = directive(path, heading_level=1, **options) + "\n"
    if base:
        page += f"\nAll other methods are those of [`{base.rpartition('.')[2]}`][{base}].\n"
    return page


def public_base(member: Any) -> str | None:
    """Find the nearest public class that a class builds on."""
    paths = {id(each): path for _, names in topics().values() for path, each in names}
    bases = member.mro()[1:] if inspect.isclass(member) else []
    return next((paths[id(base)] for base in bases if id(base) in paths), None)


def directive(path: str, **options: Any) -> str:
    """Ask mkdocstrings for the documentation of a name."""
    settings = "".join(f"\n      {key}: {value}" for key, value in options.items())
    return f"::: {path}\n    options:{settings}"


def link_names(text: str) -> str:
    """Make links to the API of public names that stand in code type, outside of code blocks."""
    targets: dict[str, set[str]] = {}
    for _, names in topics().values():
        for path, _ in names:
            parts = path.split(".")
            for k in range(1, len(parts)):
                targets.setdefault(".".join(parts[k:]), set()).add(path)

    def link(match: re.Match) -> str:
        if match["name"] is None:  # a code block, which ends with as many backticks as it begins
            return match[0]
        name = match["name"].split("(")[0].removeprefix("eb.")
        found = targets.get(name, set()) if name[0].isupper() or "." in name else set()
        return f"[{match[0]}][{found.pop()}]" if len(found) == 1 else match[0]

    block = r"^(?P<fence>`{3,})(?!`).*?^(?P=fence)`*$"
    code = r"(?<![\[`])`(?P<name>[\w.]+(?:\([^`]*\))?)`(?![\]`])"
    return re.sub(f"{block}|{code}", link, text, flags=re.M | re.S)
