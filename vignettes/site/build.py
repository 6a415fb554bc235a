"""Build the documentation into ``site/``: ``python vignettes/site/build.py``.

Nothing is fetched, and no page of the site fetches anything. Vignettes and pages with Python in
them are executed, each in a folder of its own, unless neither they nor the package have changed
since. The API pages follow the `__all__` of every module. Needs ``pip install ".[docs]"``; a
vignette whose packages are missing is shown without its output, and says so.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib.util
import inspect
import io
import json
import logging
import os
import re
import shutil
import sys
import tokenize
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGES, CACHE = HERE / "pages", HERE / ".cache"
DOCS, EXECUTED = CACHE / "docs", CACHE / "executed"
NEEDED = ("ebfed/**/*.py", "data/*", "tests/reference/*")  # by executed pages
BENCHMARKS = ROOT / "tests" / "benchmarks" / "results.json"
TITLES = {"report": "Report and plots", "price": "Price of privacy", "formula": "Formulas"}
PAPERS = {
    "E": "A statistical framework for personalized federated learning and estimation",
    "O": "FeO2: federated learning with opt-out differential privacy",
    "P": "Personalization improves privacy-accuracy tradeoffs",
    "J": "Learning across data owners with joint differential privacy",
}
RESULTS = (
    "Theorem",
    "Lemma",
    "Proposition",
    "Corollary",
    "Definition",
    "Remark",
    "Algorithm",
    "Equation",
    "Appendix",
)
TAG = re.compile(rf"# \[([{''.join(PAPERS)}])\] ({'|'.join(RESULTS)}) (\w+(?:\.\w+)*)")
ESTIMATORS = ("location", "regression", "learning")  # the three wings

# Executed pages


def source_hash() -> str:
    """Hash all that every executed page depends on, and the versions of packages."""
    digest = hashlib.sha256(sys.version.encode())
    for requirement in requirements():
        digest.update(f"{requirement.name} {version(requirement.name)}\n".encode())
    needed = [path for pattern in NEEDED for path in sorted(ROOT.glob(pattern)) if path.is_file()]
    for path in [*needed, Path(__file__)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def execute(path: Path, sources: str) -> Any:
    """Run a page from top to bottom in an empty folder; returns the notebook with its outputs.

    `__file__` is the page's, as in a script, and the package is that of this checkout.
    """
    import jupytext
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError
    from traitlets.config import Config

    key = hashlib.sha256(sources.encode() + path.read_bytes()).hexdigest()[:16]
    cached = EXECUTED / f"{path.stem}-{key}.ipynb"
    if cached.exists():
        return nbformat.read(cached, as_version=4)
    notebook = jupytext.read(path)
    if lacking := missing(path.read_text()):
        note = (
            f"!!! note\n\n    Not run when this page was built: {', '.join(lacking)} is not there."
        )
        notebook.cells.insert(1, nbformat.v4.new_markdown_cell(note))
        return notebook  # and not kept: next time it may be
    with TemporaryDirectory() as folder, TemporaryDirectory() as sockets:
        client = NotebookClient(
            notebook,
            timeout=1800,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            extra_arguments=[
                "--InlineBackend.figure_formats={'retina'}",
                f"--IPKernelApp.exec_lines=__file__ = {str(path)!r}",
            ],
            config=Config(ConnectionFileMixin={"transport": "ipc", "ip": f"{sockets}/k"}),
        )
        try:
            searched = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
            client.execute(env=os.environ | {"PYTHONPATH": os.pathsep.join(searched)})
        except CellExecutionError as error:
            raise RuntimeError(f"{path.name} does not run: {error}") from error
        for cell in notebook.cells:
            for output in cell.get("outputs", []):
                if "text" in output:  # colours are for terminals, and the folder is gone
                    text = re.sub(r"\x1b\[[\d;]*m", "", output.text)
                    output.text = text.replace(f"{folder}/", "")
    EXECUTED.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, cached)
    return notebook


def missing(text: str) -> list[str]:
    """Name packages that a page needs, as its ``pip install "ebfed[…]"`` says, and has not."""
    extras = re.findall(r'needs `pip install "ebfed\[([\w,]+)\]', text)
    lacking = []
    for requirement in requirements():
        for extra in ",".join(extras).split(","):
            asked = requirement.marker and requirement.marker.evaluate({"extra": extra})
            if asked and version(requirement.name) is None:
                lacking.append(requirement.name)
    return lacking


def requirements() -> list[Any]:
    """List all that the package needs, extras included."""
    from packaging.requirements import Requirement

    return [Requirement(line) for line in metadata.requires("ebfed") or []]


def version(package: str) -> str | None:
    """Which version of a package is installed, if any."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def to_markdown(notebook: Any, page: Path) -> str:
    """Write cells and outputs as Markdown; figures become files beside the page."""
    parts, heading, n_figures = [], "", 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            heading = (re.findall(r"^#+ (.+)$", cell.source, re.M) or [heading])[-1]
            continue
        parts.append(f"````python\n{cell.source}\n````")
        printed = ""
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if output.output_type == "stream":
                printed += output.text
            elif "image/png" in data:  # what a cell is worth is not shown: a script would not
                n_figures += 1
                name = f"{page.stem}-{n_figures}.png"
                (DOCS / page.parent / name).write_bytes(base64.b64decode(data["image/png"]))
                width = output.metadata["image/png"]["width"]
                parts.append(f"![Figure: {heading}]({name}){{ width={width} }}")
        if printed.strip():
            parts.append(f"````text\n{printed.rstrip()}\n````")
    return "\n\n".join(parts) + "\n"


# API pages, from `__all__`


def members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """All public names of a module and of the modules among them, with what they name."""
    for name in module.__all__:
        member = getattr(module, name)
        yield f"{module.__name__}.{name}", member
        if inspect.ismodule(member):
            yield from members(member)


def topics() -> dict[str, tuple[str, list[tuple[str, Any]]]]:
    """Every API page: its title, and the public names on it."""
    import ebfed

    pages: dict[str, tuple[str, list]] = {name: (name.capitalize(), []) for name in ESTIMATORS}
    for name in ebfed.__all__:
        member = getattr(ebfed, name)
        if inspect.ismodule(member):
            title = TITLES.get(name, name.capitalize())
            pages[name] = (title, list(members(member)))
    there = {id(member) for _, pairs in pages.values() for _, member in pairs}
    for name in ebfed.__all__:  # what lives in a module at the top: a page for each of those
        member = getattr(ebfed, name)
        if not inspect.ismodule(member) and id(member) not in there:
            home = member.__module__.split(".")[1]
            page = pages.setdefault(home, (TITLES.get(home, home.capitalize()), []))
            page[1].append((f"{member.__module__}.{name}", member))
    return pages


def api_page(slug: str) -> str:
    """Write one API page: a directive of mkdocstrings for every name."""
    title, names = topics()[slug]
    parts = [f"# {title}"]
    if importlib.util.find_spec(f"ebfed.{slug}"):
        parts.append(directive(f"ebfed.{slug}", members="false", show_root_heading="false"))
    for path, member in names:
        if inspect.ismodule(member):
            parts.append(directive(path, members="false", show_root_full_path="true"))
        elif path == "ebfed.studies.STUDIES":
            rows = [f"| `ebfed study {name}` | {subject} |" for name, subject in member.items()]
            parts.append("\n".join(["| command | what it measures |", "|---|---|", *rows]))
        else:
            parts.append(directive(path, heading_level=path.count("."), **shown(member)))
    shared = [base for base in bases(member for _, member in names) if slug in ESTIMATORS]
    if shared:
        parts.append("## What they share")
    for base in shared:
        path = f"{base.__module__}.{base.__name__}"
        parts.append(directive(path, heading_level=3, members="false", inherited_members="false"))
    return "\n\n".join(parts) + "\n"


def bases(classes: Iterable[Any]) -> list[type]:
    """Find the classes of the package that these build on and that are not public themselves."""
    public = {
        member for _, pairs in topics().values() for _, member in pairs if hasattr(member, "mro")
    }
    found = {base: None for each in classes if hasattr(each, "mro") for base in each.mro()}
    return [base for base in found if base.__module__.startswith("ebfed.") and base not in public]


def shown(member: Any) -> dict[str, str]:
    """Choose members: those of all learners and those for engines are shown once, at the base."""
    from ebfed.engines import Estimator
    from ebfed.learning import Learner

    filters = ["!^_"]
    asked = inspect.isclass(member) and hasattr(member, "describe") and member is not Estimator
    if asked:
        filters += [f"!^{name}$" for name in vars(Estimator) if not name.startswith("_")]
    derived = inspect.isclass(member) and issubclass(member, Learner) and member is not Learner
    return {"filters": json.dumps(filters), "inherited_members": json.dumps(not derived)}


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


# The other pages


def benchmarks_page() -> str:
    """Write the last record of the benchmarks as tables."""
    record = json.loads(BENCHMARKS.read_text())
    machine = record["machine"]
    parts = [
        (PAGES / "benchmarks.md").read_text(),
        f"Recorded on {record['date']}: {machine['processor']}, {machine['cores']} cores, "
        f"{machine['system']}, Python {machine['python']}. Ratios are our time over the peer's; "
        "below 1 we are faster.",
    ]
    for file, workloads in record["files"].items():
        parts.append(
            f"## {file.removesuffix('.py').removeprefix('test_').replace('_', ' ').capitalize()}"
        )
        rows = ["| workload | time | peer | peer time | ratio | aim |", "|---|--:|---|--:|--:|--:|"]
        for workload in workloads:
            ours = workload["ours"]
            for i, peer in enumerate(workload["peers"] or [None]):
                name = workload["name"].replace("|", "\\|")  # else the table has a column more
                left = f"{name} | {seconds(ours['seconds'])}" if i == 0 else " | "
                right = " | | |"
                if peer:
                    aim = "" if peer["target"] is None else f"{peer['target']:g}"
                    figures = f"{seconds(peer['seconds'])} | {peer['ratio']:.3g} | {aim}"
                    right = f"{peer['name']} | {figures}"
                rows.append(f"| {left} | {right} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def seconds(time: float) -> str:
    """Print a time with three digits and a unit that suits it."""
    return f"{time:.3g} s" if time >= 1 else f"{time * 1e3:.3g} ms"


def tags(folder: Path = ROOT / "ebfed") -> Iterator[tuple[tuple[str, str, str], str, Path, int]]:
    """Find the tags of the papers' results in comments of the code.

    Yields the paper, the kind and the number of a result, the name that the tag stands at, the file
    and the line. A comment that begins like a tag and is none is an error.
    """
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        if not re.search(rf"#\s*\[[{''.join(PAPERS)}]\]", text):
            continue
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type != tokenize.COMMENT or not re.match(r"#\s*\[[A-Z]\]", token.string):
                continue
            line = token.start[0]
            found = TAG.match(token.string)
            if found is None:
                raise ValueError(f"{path}:{line} is not a tag such as '# [E] Theorem 3'")
            paper, kind, number = found.groups()
            yield (paper, kind, number), name_at(text, line), path, line


def name_at(text: str, line: int) -> str:
    """Name the function or class that a line lies in, or that begins below comments there."""
    lines = text.splitlines()
    while line < len(lines) and re.match(r"\s*(#|@|$)", lines[line - 1]):
        line += 1
    name, nodes = "", list(ast.parse(text).body)
    while nodes:
        node = nodes.pop(0)
        first = getattr(node, "lineno", line + 1)
        if not first <= line <= (node.end_lineno or first):
            continue
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = f"{name}.{node.name}" if name else node.name
        nodes = [child for child in ast.iter_child_nodes(node) if hasattr(child, "lineno")]
    return name


def theory_page() -> str:
    """Write the tables of the papers' results and where each is computed."""
    found = sorted(tags(), key=lambda tag: (RESULTS.index(tag[0][1]), natural(tag[0][2])))
    parts = [(PAGES / "theory.md").read_text()]
    for paper, title in PAPERS.items():
        rows = [
            f"| {kind} {number} | `{name or path.stem}` | `{path.relative_to(ROOT)}:{line}` |"
            for (letter, kind, number), name, path, line in found
            if letter == paper
        ]
        if rows:
            parts.append(f"## [{paper}] {title}")
            parts.append("\n".join(["| result | computed by | place |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def natural(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts 2 before 10 and 5 before 5b."""
    return [
        (int(part), "") if part.isdigit() else (0, part) for part in re.findall(r"\d+|\D+", text)
    ]


def vignettes(listed: list[str]) -> list[Path]:
    """Find all vignettes: those listed in mkdocs.yml first, then the others by name."""
    order = {name: k for k, name in enumerate(listed)}
    found = (ROOT / "vignettes").glob("*.py")
    return sorted(found, key=lambda path: (order.get(path.stem, len(order)), path.stem))


def navigation(config: dict[str, Any]) -> list:
    """Fill in the folders that mkdocs.yml leaves open."""
    folders = {
        "vignettes/*": [f"vignettes/{p.stem}.md" for p in vignettes(config["extra"]["vignettes"])],
        "api/*": [{title: f"api/{slug}.md"} for slug, (title, _) in topics().items()],
    }
    return [
        {title: folders.get(entry, entry) if isinstance(entry, str) else entry}
        for item in config["nav"]
        for title, entry in item.items()
    ]


def write_pages() -> None:
    """Write every page where mkdocs finds it."""
    shutil.rmtree(DOCS, ignore_errors=True)
    shutil.copytree(PAGES, DOCS)
    shutil.copytree(HERE / "assets", DOCS / "assets")
    for folder in ("api", "vignettes"):
        (DOCS / folder).mkdir()
    for slug in topics():
        (DOCS / "api" / f"{slug}.md").write_text(api_page(slug))
    (DOCS / "benchmarks.md").write_text(link_names(benchmarks_page()))
    (DOCS / "theory.md").write_text(link_names(theory_page()))
    (DOCS / "changelog.md").write_text(link_names((ROOT / "CHANGELOG.md").read_text()))
    (DOCS / "index.md").write_text(link_names(relink((ROOT / "README.md").read_text())))

    sources = {Path("vignettes") / f"{p.stem}.md": p for p in (ROOT / "vignettes").glob("*.py")}
    sources |= {
        p.relative_to(PAGES): p for p in PAGES.rglob("*.md") if "```python" in p.read_text()
    }
    key = source_hash()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        notebooks = pool.map(lambda path: execute(path, key), sources.values())
        for page, notebook in zip(sources, notebooks, strict=True):
            (DOCS / page).write_text(link_names(to_markdown(notebook, page)))
    for page in DOCS.glob("*.md"):  # those without neighbours need no menu of them
        page.write_text("---\nhide: [navigation]\n---\n\n" + page.read_text())


def relink(text: str) -> str:
    """Turn what the README says of files of the repository into links to their pages."""
    for path in (ROOT / "vignettes").glob("*.py"):
        text = text.replace(f"`vignettes/{path.name}`", f"[{path.stem}](vignettes/{path.stem}.md)")
        text = text.replace(f"](vignettes/{path.name})", f"](vignettes/{path.stem}.md)")
    text = text.replace("`tests/benchmarks`", "[`tests/benchmarks`](benchmarks.md)")
    return text.replace("](CHANGELOG.md)", "](changelog.md)")


def main() -> None:
    """Write the pages and let mkdocs make the site, any warning being an error."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.utils.yaml import yaml_load

    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
    sys.path[:0] = [str(ROOT), str(HERE)]  # this checkout's package; the extension `mathml`
    write_pages()
    with open(HERE / "mkdocs.yml", "rb") as file:
        nav = navigation(yaml_load(file))
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    config = load_config(str(HERE / "mkdocs.yml"), nav=nav)
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    print(f"{config.site_dir}/index.html")


if __name__ == "__main__":
    main()
