"""Names of packages that are imported when they are first used.

A package lists its names in imports under ``if TYPE_CHECKING:``, as for a type checker. Here they
are found in its source, so that importing the package imports none of its modules (PEP 562). Names
that are imported as themselves (``from a import b as b``) are its ``__all__``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

__all__ = ["at_first_use"]


def at_first_use(package: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose names are imported when they are first used.

    `dir` of the package has these names.

    Examples
    --------
    >>> at_first_use("ebfed.likelihoods")("Binomial").__module__
    'ebfed.likelihoods.binomial'
    """

    @cache
    def places() -> tuple[dict[str, str], list[str]]:
        loader: Any = sys.modules[package].__loader__
        parts = ast.parse(loader.get_source(package)).body
        listed = next(part for part in parts if isinstance(part, ast.If))
        imports = [each for each in listed.body if isinstance(each, ast.ImportFrom)]
        modules = {name.name: str(each.module) for each in imports for name in each.names}
        return modules, sorted(x.name for each in imports for x in each.names if x.asname)

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return places()[1]
        if name.startswith("__") or name not in places()[0]:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = places()[0][name]
        if module == package:  # a module of the package
            return import_module(f"{package}.{name}")
        found = getattr(import_module(module), name)
        setattr(sys.modules[package], name, found)
        return found

    vars(sys.modules[package])["__dir__"] = lambda: places()[1]
    return __getattr__
