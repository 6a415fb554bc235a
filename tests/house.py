"""Print the size of the house: ``python tests/house.py``.

Sizes of files and classes, and what the structure does not allow. `tests/test_house.py` holds the
limits.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, TESTS = ROOT / "ebfed", ROOT / "tests"
PAPERS = ROOT / "vignettes" / "papers"
# Names of the dicts of the protocol, and the folders that use it.
PASSED_AROUND = {"facts", "sent", "state", "memory", "message", "messages"}
USE_THE_PROTOCOL = ("channels", "engines", "learning", "location", "regression", "testing")
FAMILIES = re.compile("Binomial|Gaussian|Poisson")
MAY_ASK_FAMILIES = ("families", "likelihoods", "priors")
# Words that name one class each.
UNIQUE = {"Law", "Model", "Population", "Rows", "Table"}
# Folders of tests that are about the whole package.
OF_THE_WHOLE = {"adversary", "benchmarks", "contracts", "doors", "fuzz", "reference"}


@cache
def sources(folder: Path) -> dict[Path, str]:
    """Return the text of every Python file of a folder."""
    return {path: path.read_text() for path in sorted(folder.rglob("*.py"))}


@cache
def trees(folder: Path) -> dict[Path, ast.Module]:
    """Return the syntax tree of every Python file of a folder."""
    return {path: ast.parse(text) for path, text in sources(folder).items()}


def place(path: Path, line: int | None = None) -> str:
    """Name a place in the repository."""
    name = path.relative_to(ROOT).as_posix()
    return name if line is None else f"{name}:{line}"


def lengths() -> dict[str, int]:
    """Lines of every file of the package, longest first."""
    counts = {place(path): text.count("\n") for path, text in sources(PACKAGE).items()}
    return dict(sorted(counts.items(), key=lambda each: -each[1]))


def methods() -> dict[str, int]:
    """Functions in the body of every class, largest class first; overloads do not count."""
    counts = {}
    for path, tree in trees(PACKAGE).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                body = [
                    each
                    for each in node.body
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                    and "overload" not in map(ast.unparse, each.decorator_list)
                ]
                counts[f"{place(path)}:{node.name}"] = len(body)
    return dict(sorted(counts.items(), key=lambda each: -each[1]))


def classes() -> Iterator[tuple[str, type]]:
    """Yield the path and the object of every class of the package."""
    for info in pkgutil.walk_packages([str(PACKAGE)], "ebfed."):
        if info.name == "ebfed.__main__":  # it would run
            continue
        try:
            module = importlib.import_module(info.name)
        except ModuleNotFoundError as error:
            if str(error.name).startswith("ebfed"):
                raise
            continue  # a package of an extra is not installed
        for _, each in inspect.getmembers(module, inspect.isclass):
            if each.__module__ == info.name:
                yield f"{info.name}.{each.__qualname__}", each


def public_classes() -> Iterator[tuple[str, type]]:
    """Yield those of them that their modules name in ``__all__``."""
    for path, each in classes():
        if each.__name__ in getattr(sys.modules[each.__module__], "__all__", ()):
            yield path, each


def ancestors() -> dict[str, int]:
    """Classes of the package in the MRO of every class, itself included, longest first."""
    found = {}
    for path, each in classes():
        # without what stands in for the base of scikit-learn
        bases = [cls for cls in each.__mro__ if cls.__name__ != "WithArguments"]
        found[path] = sum(cls.__module__.split(".")[0] == "ebfed" for cls in bases)
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def undocumented(found: Iterable[tuple[str, type]]) -> list[str]:
    """Find public methods that have no docstring, of their own or of what they override."""
    kinds = (property, classmethod, staticmethod, cached_property)
    return [
        f"{path}.{name}"
        for path, cls in found
        for name, member in vars(cls).items()
        if name[0] != "_" and (inspect.isfunction(member) or isinstance(member, kinds))
        if "<lambda>" not in getattr(member, "__qualname__", "")
        if not any(getattr(vars(base).get(name), "__doc__", None) for base in cls.__mro__)
    ]


def typed_keys() -> set[str]:
    """Return the keys of the TypedDicts of the protocol and of the wings."""
    classes = [
        node
        for tree in trees(PACKAGE).values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    bases = {
        node: {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
        for node in classes
    }
    typed, before = {"TypedDict"}, 0
    while len(typed) > before:
        before = len(typed)
        typed |= {node.name for node in classes if bases[node] & typed}
    return {
        field.target.id
        for node in classes
        if bases[node] & typed
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


def used_keys() -> Iterator[tuple[str, str]]:
    """Find the string keys of what the protocol passes around: ``state["n"]``, ``"n" in state``.

    Yields each key with the place where it is used.
    """
    for path, tree in trees(PACKAGE).items():
        if path.relative_to(PACKAGE).parts[0] not in USE_THE_PROTOCOL:
            continue
        for node in ast.walk(tree):
            keys: list[ast.expr | None] = []
            match node:
                case ast.Subscript(value=held, slice=key) if _is_passed(held):
                    keys = [key]
                case ast.Call(
                    func=ast.Attribute(value=held, attr="get" | "pop" | "setdefault"),
                    args=[key, *_],
                ) if _is_passed(held):
                    keys = [key]
                case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[held]) if (
                    _is_passed(held)
                ):
                    keys = [key]
                case ast.BinOp(left=held, op=ast.BitOr(), right=ast.Dict(keys=more)) if _is_passed(
                    held
                ):
                    keys = list(more)
                case ast.AugAssign(target=held, op=ast.BitOr(), value=ast.Dict(keys=more)) if (
                    _is_passed(held)
                ):
                    keys = list(more)
                case ast.Assign(targets=[held, *_], value=ast.Dict(keys=more)) if _is_passed(held):
                    keys = list(more)
                case ast.AnnAssign(target=held, value=ast.Dict(keys=more)) if _is_passed(held):
                    keys = list(more)
            for key in keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, place(path, node.lineno)


def _is_passed(node: ast.expr) -> bool:
    """Whether an expression is named as one of the dicts of the protocol."""
    name = getattr(node, "id", None) or getattr(node, "attr", "")
    return name.lstrip("_") in PASSED_AROUND


def untyped_keys() -> dict[str, str]:
    """Return keys that no TypedDict declares, each with the first place of its use."""
    declared, found = typed_keys(), {}
    for key, where in used_keys():
        if key not in declared:
            found.setdefault(key, where)
    return found


def asked_families() -> list[str]:
    """Find where `isinstance` names a concrete family, in the package, its tests and vignettes."""
    found = []
    for folder in (PACKAGE, TESTS, ROOT / "vignettes"):
        for path, tree in trees(folder).items():
            if path.relative_to(folder).parts[0] in MAY_ASK_FAMILIES:
                continue
            found += [
                place(path, node.lineno)
                for node in ast.walk(tree)
                if isinstance(node, ast.Call)
                and ast.unparse(node.func) == "isinstance"
                and FAMILIES.search(ast.unparse(node.args[1]))
            ]
    return found


def literary_messages() -> list[str]:
    """Find texts in which a value "came"."""
    return [
        place(path, node.lineno)
        for path, tree in trees(PACKAGE).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.search(r"\bcame\b", node.value)
    ]


def ambiguous_classes() -> list[str]:
    """Find classes and aliases that share one of the names that should be unique."""
    found: dict[str, list[str]] = {name: [] for name in UNIQUE}
    for path, tree in trees(PACKAGE).items():
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef(name=name):
                    pass
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ) if node in tree.body:
                    pass
                case _:
                    continue
            if name.lstrip("_") in found:
                found[name.lstrip("_")].append(f"{place(path, node.lineno)} {name}")
    return sorted(each for places in found.values() if len(places) > 1 for each in places)


def misnamed_tests() -> list[str]:
    """Find test files that are not named after a module of the folder they mirror."""
    found = []
    for path in TESTS.glob("*/**/test_*.py"):
        folder = path.parent.relative_to(TESTS)
        if folder.parts[0] in OF_THE_WHOLE:
            continue
        home = PAPERS if folder.parts[0] == PAPERS.name else PACKAGE / folder
        places = home.glob("**/*.py") if home == PAPERS else home.glob("*")
        modules = {each.stem for each in places if each.stem[:2] != "__"}
        topic = path.stem.removeprefix("test_")
        if not any(topic == name or topic.startswith(f"{name}_") for name in modules):
            found.append(place(path))
    return sorted(found)


def circles() -> list[str]:
    """Find modules that import each other, in functions and for types too.

    Packages are no part of them: their names are those of their modules.
    """
    from grimp import build_graph
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = build_graph("ebfed", cache_dir=None)
    names = sorted(name for name in graph.modules if not graph.find_children(name))
    number = {name: i for i, name in enumerate(names)}
    arrows = [
        (number[name], number[other])
        for name in names
        for other in graph.find_modules_directly_imported_by(name)
        if other in number
    ]
    ends = np.array(arrows).T
    matrix = coo_array((np.ones(len(arrows)), ends), shape=(len(names),) * 2)
    own = connected_components(matrix, connection="strong")[1]
    return [name for name in names if (own == own[number[name]]).sum() > 1]


def measures() -> dict[str, int]:
    """Return the figures that have a limit."""
    return {
        "classes of the longest MRO": max(ancestors().values()),
        "keys without a type": len(untyped_keys()),
        "isinstance of a family": len(asked_families()),
        "messages with 'came'": len(literary_messages()),
        "classes of ambiguous name": len(ambiguous_classes()),
        "tests not named after a module": len(misnamed_tests()),
        "modules that import each other": len(circles()),
        "public methods without a docstring": len(undocumented(public_classes())),
    }


def main() -> None:
    """Print the measures and what stands behind them."""
    for name, value in measures().items():
        print(f"{value:5d} {name}")
    sizes = lengths()
    for limit in (500, 700):
        print(f"{sum(size > limit for size in sizes.values()):5d} files over {limit} lines")
    for title, ranked in (
        ("Longest files", sizes),
        ("Largest classes, by methods", methods()),
        ("Longest MRO", ancestors()),
    ):
        print(f"\n{title}")
        for name, value in list(ranked.items())[:10]:
            print(f"{value:5d} {name}")
    print("\nKeys without a type")
    for key, where in untyped_keys().items():
        print(f"      {key:24} {where}")
    for title, places in (
        ("isinstance of a family", asked_families()),
        ("Messages with 'came'", literary_messages()),
        ("Classes of ambiguous name", ambiguous_classes()),
        ("Tests not named after a module", misnamed_tests()),
        ("Modules that import each other", circles()),
        ("Public methods without a docstring", undocumented(public_classes())),
    ):
        print(f"\n{title}")
        for each in places:
            print(f"      {each}")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
