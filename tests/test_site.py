"""The site: its menu, its API pages, and, slowly, the site itself in a browser."""

import importlib.util
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ebfed

ROOT = Path(__file__).parents[1]
HERE = ROOT / "vignettes" / "site"


def load(name, folder=HERE):
    sys.path[:0] = [str(folder)]  # a module may need those beside it
    spec = importlib.util.spec_from_file_location(f"site_{name}", folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(folder))
    return module


@pytest.fixture(scope="module")
def build():
    return load("build")


def entries(nav):
    """All pages of a menu."""
    if isinstance(nav, str):
        return [nav]
    return [
        page
        for item in nav
        for page in entries(next(iter(item.values())) if isinstance(item, dict) else item)
    ]


@pytest.fixture(scope="module")
def api():
    return load("api_pages")


@pytest.fixture(scope="module")
def pages(api):
    return api.pages()


def test_every_page_of_the_menu_has_a_source_and_every_source_is_in_the_menu(build, pages):
    yaml = pytest.importorskip("yaml")
    menu = entries(build.navigation(yaml.safe_load((HERE / "mkdocs.yml").read_text())))
    written = {path.relative_to(build.PAGES).as_posix() for path in build.PAGES.rglob("*.md")}
    written |= {f"vignettes/{path.stem}.md" for path in (ROOT / "vignettes").glob("*.py")}
    written |= {*pages, "changelog.md"}
    assert sorted(menu) == sorted(written)


def test_every_public_name_has_a_page_of_its_own(api, pages):
    shown = re.findall(
        r"^::: ([\w.]+)\n    options:\n      heading_level: 1$", "".join(pages.values()), re.M
    )
    for name in ebfed.__all__:
        member = getattr(ebfed, name)
        if inspect.ismodule(member):
            wanted = {path for path, each in api.members(member) if api.has_page(each)}
            assert wanted <= set(shown), wanted - set(shown)
        else:
            assert any(path.endswith(f".{name}") for path in shown), name
    assert len(shown) == len(set(shown))
    assert len({page.lower() for page in pages}) == len(pages)  # also on disks without capitals


def test_every_public_name_is_listed_with_its_topic_and_with_all(api, pages):
    for slug, (title, names) in api.topics().items():
        assert f"## [{title}]({slug}/index.md)" in pages["api/index.md"]
        for path, member in names:
            if api.has_page(member):
                page = api.page_of(slug, path).removeprefix(f"api/{slug}/")
                assert f"| [`{page[:-3]}`]({slug}/{page}) |" in pages["api/index.md"]
                assert f"| [`{page[:-3]}`]({page}) |" in pages[f"api/{slug}/index.md"]


def test_methods_are_shown_once(api, pages):
    assert api.public_base(ebfed.channels.TwoBit) == "ebfed.channels.Channel"
    assert api.public_base(ebfed.GaussianEB) is None
    assert "are those of [`Channel`]" in pages["api/channels/TwoBit.md"]
    assert "inherited_members: false" in pages["api/channels/TwoBit.md"]
    assert "inherited_members: true" in pages["api/location/GaussianEB.md"]


def test_the_search_leaves_out_code_and_tables():
    hook = load("search_index").on_page_content
    page = '<p>a</p><pre id="x"><code>b</code></pre><table><tr></tr></table><prefix>'
    marked = page.replace("<pre ", "<pre data-search-exclude ")
    marked = marked.replace("<table", "<table data-search-exclude")
    assert hook(page) == marked
    assert hook('<math display="inline">') == '<math display="inline">'
    assert hook('<math display="block">') == '<math data-search-exclude display="block">'
    api_page = '<div class="doc doc-object doc-class">\n<h1 id="a">A</h1><p>b</p></div>'
    assert hook(api_page).startswith('<h1 id="a">A</h1><div')


def test_commands_of_pages_are_executed(build, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```console\n$ ebfed fit a.csv\n```\n\n```console\n$ pip install .\n```\n")
    assert build.cells(page).startswith("```python\n!ebfed fit a.csv\n```\n")
    assert "$ pip install ." in build.cells(page)


def test_every_extra_is_explained():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (HERE / "pages" / "install.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == set(project["optional-dependencies"])


def test_names_in_code_type_become_links_and_blocks_stay_as_they_are(build):
    block = "```python\n`GaussianEB`\n```"
    linked = "[`GaussianEB(x)`][ebfed.location.GaussianEB]"
    assert build.link_names(f"`GaussianEB(x)`\n\n{block}\n") == f"{linked}\n\n{block}\n"
    longer = "````python\n```\n`GaussianEB`\n```\n`GaussianEB`\n````"
    assert build.link_names(f"{longer}\n") == f"{longer}\n"
    assert build.link_names("`Laplace`, `estimate`") == "`Laplace`, `estimate`"  # there are two
    assert build.link_names("`priors.Laplace()`") == "[`priors.Laplace()`][ebfed.priors.Laplace]"


def test_a_vignette_says_what_it_lacks(build):
    assert build.missing("no word of it") == []
    assert build.missing('This needs `pip install ".[test]"`.') == []


def test_a_page_runs_beside_its_checkout_and_is_kept(build, tmp_path, monkeypatch):
    pytest.importorskip("jupytext")
    pytest.importorskip("nbclient")
    monkeypatch.setattr(build, "EXECUTED", tmp_path / "executed")
    monkeypatch.setattr(build, "DOCS", tmp_path)
    page = tmp_path / "page.py"
    page.write_text(
        "import sys\n\nimport ebfed\n\nprint(ebfed.__file__, __file__, sep='\\n')\n"
        "sys.stderr.write('a bar')\n"
    )
    for key, kept in (("a", 1), ("a", 1), ("b", 2)):
        notebook = build.execute(page, key)
        text = build.to_markdown(notebook, Path("page.md"))
        assert f"````text\n{ROOT / 'ebfed' / '__init__.py'}\n{page}\n````" in text
        assert len(list((tmp_path / "executed").iterdir())) == kept


def test_what_pages_are_made_from_decides_whether_they_are_run_again(build, monkeypatch):
    keys = [build.source_hash(), build.source_hash()]
    with monkeypatch.context() as patch:
        patch.setattr(build, "version", lambda name: "0")
        keys.append(build.source_hash())
    for pattern in build.NEEDED:
        with monkeypatch.context() as patch:
            patch.setattr(build, "NEEDED", set(build.NEEDED) - {pattern})
            keys.append(build.source_hash())
    assert keys[0] == keys[1]
    assert len(set(keys)) == len(keys) - 1
    assert "tests/reference/*" in build.NEEDED


def test_equations_become_mathml_without_scripts():
    markdown = pytest.importorskip("markdown")
    pytest.importorskip("latex2mathml")
    extension = load("mathml").MathML()
    page = "It costs $x_i$.\n\n$$\\frac{a}{b}$$\n\n.. math:: c\n    + d\n\n:math:`e` and `$f$`\n"
    html = markdown.markdown(page, extensions=[extension])
    assert html.count("<math") == 4
    assert html.count('display="block"') == 2
    assert "<code>$f$</code>" in html
    assert "<mfrac>" in html
    with pytest.raises(ValueError, match="does not know all of"):
        markdown.markdown(r"$\unheard x$", extensions=[extension])


def test_the_record_of_benchmarks_has_ratios_of_its_times(build):
    record = build.json.loads(build.BENCHMARKS.read_text())
    text = build.benchmarks_page()
    for workloads in record["files"].values():
        for workload in workloads:
            name = workload["name"].replace("|", "\\|")
            assert f"| {name} |" in text
            for peer in workload["peers"]:
                ratio = workload["ours"]["seconds"] / peer["seconds"]
                assert peer["ratio"] == pytest.approx(ratio)


def test_the_ledger_of_the_papers_is_a_page(build):
    page = build.ledger_page()
    assert page.startswith("# The papers, item by item")
    assert page.endswith(build.ledger.to_page())


@pytest.mark.slow
def test_the_site_is_built_and_has_no_defects():
    for module in ("material", "mkdocstrings", "jupytext", "nbclient", "playwright"):
        pytest.importorskip(module)
    check = load("check")
    if check.chromium() is None:
        pytest.skip("there is no Chromium")
    command = [sys.executable, str(HERE / "build.py")]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert check.check() == []


@pytest.mark.slow
def test_the_check_finds_defects(tmp_path):
    pytest.importorskip("playwright")
    check = load("check")
    if check.chromium() is None:
        pytest.skip("there is no Chromium")
    (tmp_path / "index.html").write_text(
        "<label for=__search>search</label><input class=md-search__input>"
        '<div style="width: 2000px">wide</div><img src="none.png">'
        '<script src="https://example.org/x.js"></script><script>lost()</script>'
    )
    defects = "\n".join(check.check(tmp_path))
    for word in ("sideways on a phone", "no picture", "asks for https://example.org", "lost"):
        assert word in defects
    assert "does not find GaussianEB" in defects
