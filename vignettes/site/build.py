"""Build the documentation into ``site/``: ``python vignettes/site/build.py``.

Nothing is fetched, and no page of the site fetches anything. Vignettes and pages with Python in
them are executed, each in a folder of its own, unless neither they nor the package have changed
since. The API pages follow the `__all__` of every module. Needs ``pip install ".[docs]"``; a
vignette whose packages are missing is shown without its output, and says so.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAPERS = ROOT / "vignettes" / "papers"
# this checkout's package; the modules beside this one; the ledger
sys.path[:0] = [str(ROOT), str(HERE), str(PAPERS)]

import api_pages
from api_pages import link_names

import ledger

PAGES, CACHE = HERE / "pages", HERE / ".cache"
DOCS, EXECUTED = CACHE / "docs", CACHE / "executed"
# by executed pages
NEEDED = ("ebfed/**/*.py", "vignettes/papers/**/*.py", "data/*", "tests/reference/*")
LIKELIHOODS = ROOT / "tests" / "benchmarks" / "likelihoods.json"
BENCHMARKS = ROOT / "tests" / "benchmarks" / "results.json"

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
    notebook = jupytext.reads(cells(path), fmt=path.suffix[1:])
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
            scripts = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
            paths = {"PYTHONPATH": os.pathsep.join(searched), "PATH": os.pathsep.join(scripts)}
            client.execute(env=os.environ | paths | {"COLUMNS": "80"})
        except CellExecutionError as error:
            raise RuntimeError(f"{path.name} does not run: {error}") from error
        for cell in notebook.cells:
            for output in cell.get("outputs", []):
                if "text" in output:  # colours are for terminals, and the folder is gone
                    text = re.sub(r"\x1b\[[\d;]*m|\r(?=\n)", "", output.text)
                    output.text = text.replace(f"{folder}/", "")
    EXECUTED.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, cached)
    return notebook


def cells(path: Path) -> str:
    """Read a page; its commands, ``$ ebfed …`` in console blocks, become cells to execute."""
    text = path.read_text()
    if path.suffix == ".md":
        text = re.sub(r"```console\n\$ (ebfed .+)\n```", r"```python\n!\1\n```", text)
    return text


def missing(text: str) -> list[str]:
    """Name packages that a page needs, as its ``pip install ".[…]"`` says, and has not."""
    extras = re.findall(r'needs `pip install "\.\[([\w,]+)\]', text)
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
    (DOCS / page).parent.mkdir(parents=True, exist_ok=True)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            heading = (re.findall(r"^#+ (.+)$", cell.source, re.M) or [heading])[-1]
            continue
        command = cell.source.startswith("!")
        source = f"$ {cell.source[1:]}" if command else cell.source
        parts.append(f"````{'console' if command else 'python'}\n{source}\n````")
        printed = ""
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if output.output_type == "stream":  # errors' stream has the bars of progress
                printed += output.text if output.name == "stdout" else ""
            elif "image/png" in data:  # what a cell is worth is not shown: a script would not
                n_figures += 1
                name = f"{page.stem}-{n_figures}.png"
                (DOCS / page.parent / name).write_bytes(base64.b64decode(data["image/png"]))
                width = output.metadata["image/png"]["width"]
                parts.append(f"![Figure: {heading}]({name}){{ width={width} }}")
        if printed.strip():
            parts.append(f"````text\n{printed.rstrip()}\n````")
    return "\n\n".join(parts) + "\n"


# The other pages


def benchmarks_page() -> str:
    """Write the last record of the benchmarks as tables."""
    record = json.loads(BENCHMARKS.read_text())
    machine = record["machine"]
    parts = [
        (PAGES / "benchmarks.md").read_text(),
        f"Recorded on {machine['processor']}, {machine['cores']} cores, "
        f"{machine['system']}, Python {machine['python']}. A ratio is the time of ebfed over that "
        "of the peer; below 1, ebfed is faster. The spread is that of our quartiles over the "
        "median of the peer.",
    ]
    for file, workloads in record["files"].items():
        title = file.removesuffix(".py").removeprefix("test_").replace("_", " ").capitalize()
        parts += [f"## {title}", f"Of {record['dates'][file]}."]
        rows = [
            "| workload | time | peer | peer time | ratio | spread | aim |",
            "|---|--:|---|--:|--:|--:|--:|",
        ]
        for workload in workloads:
            ours = workload["ours"]
            for i, peer in enumerate(workload["peers"] or [None]):
                name = workload["name"].replace("|", "\\|")  # else the table has a column more
                left = f"{name} | {seconds(ours['seconds'])}" if i == 0 else " | "
                right = " | | | |"
                if peer:
                    aim = "" if peer["target"] is None else f"{peer['target']:g}"
                    spread = " to ".join(f"{each:.3g}" for each in peer.get("quartiles", ()))
                    figures = f"{seconds(peer['seconds'])} | {peer['ratio']:.3g} | {spread} | {aim}"
                    right = f"{peer['name']} | {figures}"
                rows.append(f"| {left} | {right} |")
        parts.append("\n".join(rows))
    rows = ["| workload | of | groups | time grows |", "|---|---|--:|--:|"]
    for each in record["growth"]:
        size, larger = (f"{number:,}" for number in each["sizes"])
        name, contender = each["name"], each["contender"]
        rows.append(f"| {name} | {contender} | {size} to {larger} | {each['factor']:.3g} times |")
    parts += ["## Growth", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def likelihoods_page() -> str:
    """Write the last record of likelihoods of mixed models as a table."""
    record = json.loads(LIKELIHOODS.read_text())
    engines = ("ours", "glmm", "mixedlm")
    rows = [
        f"Of {record['date']}; in brackets, milliseconds.",
        "",
        f"| table | rows | model | family | {' | '.join(engines)} |",
        f"|---|--:|---|---|{'--:|' * len(engines)}",
    ]
    for name, each in record["fits"].items():
        shown = []
        for engine in engines:
            found = each.get(engine, {})
            value = found.get("log_likelihood")
            text = "" if value is None else f"{value:.4f} ({found['milliseconds']:.3g})"
            shown.append(text or found.get("refused", ""))
        model = each["formula"].replace("|", "\\|")
        cells = [name, f"{each['rows']:,}", f"`{model}`", each["family"].replace("_", " "), *shown]
        rows.append(f"| {' | '.join(cells)} |")
    return (PAGES / "likelihoods.md").read_text() + "\n" + "\n".join(rows) + "\n"


def ledger_page() -> str:
    """Write what the papers say, and what was found."""
    return f"{(PAGES / 'ledger.md').read_text()}\n{ledger.to_page()}"


def seconds(time: float) -> str:
    """Print a time with three digits and a unit that suits it."""
    return f"{time:.3g} s" if time >= 1 else f"{time * 1e3:.3g} ms"


def navigation(config: dict[str, Any]) -> list:
    """Fill in the pages of the API, which mkdocs.yml leaves open."""
    return [
        {title: api_pages.navigation() if entry == "api/*" else entry}
        for item in config["nav"]
        for title, entry in item.items()
    ]


def write_pages(nav: list) -> None:
    """Write every page where mkdocs finds it."""
    shutil.rmtree(DOCS, ignore_errors=True)
    shutil.copytree(PAGES, DOCS)
    shutil.copytree(HERE / "assets", DOCS / "assets")
    written = {path.relative_to(PAGES).as_posix(): path.read_text() for path in PAGES.rglob("*.md")}
    written |= {"benchmarks.md": benchmarks_page(), "ledger.md": ledger_page()}
    written["likelihoods.md"] = likelihoods_page()
    written["changelog.md"] = (ROOT / "CHANGELOG.md").read_text()
    key, sources = source_hash(), executed_pages()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        notebooks = pool.map(lambda path: execute(path, key), sources.values())
        for page, notebook in zip(sources, notebooks, strict=True):
            written[page] = to_markdown(notebook, Path(page))
    written = {page: link_names(text) for page, text in written.items()} | api_pages.pages()
    for item in nav:  # a page without neighbours needs no menu of them
        for entry in item.values():
            if isinstance(entry, str):
                written[entry] = f"---\nhide: [navigation]\n---\n\n{written[entry]}"
    for page, text in written.items():
        (DOCS / page).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / page).write_text(text)


def executed_pages() -> dict[str, Path]:
    """Find the sources of all pages that have Python in them, by page."""
    found = {f"vignettes/{p.stem}.md": p for p in sorted((ROOT / "vignettes").glob("*.py"))}
    with_python = (p for p in sorted(PAGES.rglob("*.md")) if "```python" in p.read_text())
    return found | {p.relative_to(PAGES).as_posix(): p for p in with_python}


def main() -> None:
    """Write the pages and let mkdocs make the site, any warning being an error."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.utils.yaml import yaml_load

    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
    with open(HERE / "mkdocs.yml", "rb") as file:
        nav = navigation(yaml_load(file))
    write_pages(nav)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    config = load_config(str(HERE / "mkdocs.yml"), nav=nav)
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    print(f"{config.site_dir}/index.html")


if __name__ == "__main__":
    main()
