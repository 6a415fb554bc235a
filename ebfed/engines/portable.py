"""Files of fits: JSON that gives the same fit back, and that other programs read.

A file holds the class of an estimator and its arguments, what was learned of all groups, the names
of columns and, if wanted, the figures of the groups. It is read by the last step of the protocol:
`finish` with the last broadcast and the clients, or `conclude` where there are none. Nothing in a
file is executed: only classes that are named to `load` are made, from arguments that are data.

Keys of noise are not written, nor the seed of a private fit, from which its noise follows. Engines
belong to a process, and are not written either.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from sklearn.base import BaseEstimator

from ebfed import wire
from ebfed.designs.design import Context, Design
from ebfed.engines.protocol import Estimator
from ebfed.engines.publishing import published
from ebfed.privacy.ledger import is_private
from ebfed.streams import is_fixed
from ebfed.tables.clients import Clients
from ebfed.tables.replacing import replaced

__all__ = ["FORMAT", "VERSION", "describe", "load", "make", "save", "save_population"]

FORMAT, VERSION = "ebfed.fit", 1
POPULATION = "ebfed.population"  # of a file of a population alone
# Parts of a file.
PARTS = (
    *("format", "version", "estimator", "arguments", "population"),
    *("size", "columns", "formula", "ledger", "simulated", "groups"),
)
# Arguments that have an entry for each group.
OF_GROUPS = ("participation",)
LEARNED = "_"  # how the names of learned attributes end
# Labels that JSON has no form for, and are what their text says.
WRITTEN: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    dt.date: (dt.date.isoformat, dt.date.fromisoformat),
    dt.datetime: (dt.datetime.isoformat, dt.datetime.fromisoformat),
    dt.time: (dt.time.isoformat, dt.time.fromisoformat),
    Decimal: (str, Decimal),
    Fraction: (str, Fraction),
    UUID: (str, UUID),
}


def save(fit: Any, path: str | Path, groups: bool, formula: Any = None) -> None:
    """Write a fit to a file.

    Parameters
    ----------
    fit : Estimator
        Fitted, whose `_file` takes it apart and puts it together.
    path : str or Path
    groups : bool
        Whether to write the figures of groups.
    formula : dict, optional
        How rows are read from frames, as data.

    Raises
    ------
    TypeError
        If an argument is of a class that is not ebfed's, or labels are of a type that JSON has no
        form for.
    ValueError
        If the groups of a private fit are to be written, or groups that this fit does not have.
    """
    if not isinstance(groups, bool | np.bool_):
        raise TypeError(f"groups must be True or False; got {groups!r}.")
    view = fit.__ebfed_view__()
    private = is_private(view.ledger)
    if fit._kept is None:
        raise ValueError("this is the copy of a node; the copy of the server can be saved.")
    if groups and view.totals is not None and len(view.sizes) <= view.totals[0]:
        raise ValueError("this fit was saved without groups: save it with groups=False.")
    if groups and private and not (view.is_server or fit.keep_rows):
        raise ValueError(
            "this fit is private, and the figures of its groups are exact: save it with "
            "groups=False, or set keep_rows = True to write them."
        )
    # without groups, what left them
    shown = fit if groups or view.is_server else published(fit)
    file = fit._file
    content = {
        "format": FORMAT,
        "version": VERSION,
        "estimator": _name_of(type(fit)),
        "arguments": _arguments(fit, private, groups),
        "population": file.population(shown),
        "size": {"groups": view.n_groups, "rows": view.n_rows},
        "columns": file.columns(fit, groups),
        "formula": formula,
        "ledger": shown.__ebfed_view__().ledger,
        "simulated": fit._simulated,
        "groups": file.groups(shown) if groups else None,
    }
    try:
        _write(content, path)
    except TypeError as error:
        raise TypeError(f"{error} Make labels of such a type text, or pickle the fit.") from None


def save_population(prior: Any, path: str | Path) -> None:
    """Write a fitted population to a file, which `load` reads.

    Raises
    ------
    TypeError
        If it is of a class that is not ebfed's, or a formula uses a function of the caller.
    """
    _write({"format": POPULATION, "version": VERSION, "population": prior}, path)


def _write(content: Mapping[str, Any], path: str | Path) -> None:
    """Write a file with a line for each part, so that a person finds them."""
    parts = [wire.write({name: _plain(part)})[1:-1] for name, part in content.items()]
    with replaced(path) as new:
        new.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


def describe(estimator: Any, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the class of an estimator, and its arguments, as data.

    Parameters
    ----------
    estimator : Estimator
    without : collection of str
        Arguments to leave out.

    Raises
    ------
    TypeError
        If an argument is of a class that is not ebfed's.
    """
    arguments = _of_any_process(estimator.get_params(deep=False))
    kept = {name: x for name, x in arguments.items() if name not in without and name[0] != "_"}
    return {"object": _name_of(type(estimator)), "arguments": _plain(kept)}


def make(described: Any, classes: Mapping[str, type]) -> Any:
    """Make an estimator from what `describe` returned.

    Raises
    ------
    ValueError
        If it names a class that is not among `classes`, or none that can be fitted.
    """
    made = _rebuilt(described, classes)
    if not isinstance(made, Estimator):
        raise ValueError("the method is no estimator.")
    return made


def load(
    path: str | Path, classes: Mapping[str, type], with_formula: Callable[[Any, Any], Any]
) -> Any:
    """Read a fit from a file.

    Parameters
    ----------
    path : str or Path
    classes : mapping
        Classes that may be made, by the names that files have for them.
    with_formula : callable
        Makes what is returned of an estimator and the data of its formula, where a file has one.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is torn, of something else, of a newer version, or names another class.
    """
    text = Path(path).read_bytes().decode("utf-8", "replace")
    found = _read(path, text, wire.read)
    try:
        content = _rebuilt(found, classes)
        if content["format"] == POPULATION:
            return content["population"]
        if missing := [name for name in PARTS if name not in content]:
            raise ValueError(f"it has no {missing[0]!r}")
        fit, formula = _restored(content, classes), content["formula"]
        return fit if formula is None else with_formula(fit, formula)
    except Exception as error:  # whatever a hand or a foreign program has written
        raise ValueError(f"{str(path)!r} is damaged: {_reason(error)}") from error


def _read(path: str | Path, text: str, reader: Callable[[str], Any]) -> dict[str, Any]:
    """Read the content of a file of this format and version."""
    try:
        found = reader(text)
    except (ValueError, RecursionError) as error:
        if reader is not json.loads:  # a newer version may write numbers in another way
            _read(path, text, json.loads)
        raise ValueError(f"{str(path)!r} is not a whole file of a fit: {error}.") from None
    if not isinstance(found, dict) or found.get("format") not in (FORMAT, POPULATION):
        raise ValueError(f"{str(path)!r} is no file of a fit: its format is not {FORMAT!r}.")
    version = found.get("version")
    if type(version) is not int or version < 1:
        raise ValueError(f"{str(path)!r} has no version that can be read; got {version!r}.")
    if version > VERSION:
        raise ValueError(
            f"{str(path)!r} has version {version}, and this ebfed reads up to {VERSION}: read it "
            "with a newer one."
        )
    return found


def _reason(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else f"{str(error).rstrip('.')}."


def _restored(content: dict[str, Any], classes: Mapping[str, type]) -> Any:
    cls = _class_of(content["estimator"], classes)
    if not hasattr(cls, "_file"):
        raise ValueError(f"{content['estimator']!r} is no estimator")
    fit = cls(**content["arguments"])
    fit._simulated = bool(content["simulated"])
    groups = content["groups"]
    if groups is None or len(groups.get("n", ())) > content["size"]["groups"]:
        # of a server that has not the answers of all, whose numbers of rows it knows
        fit._totals = content["size"]["groups"], content["size"]["rows"]
    elif (figures := groups.get("figures")) is not None:
        _check(figures, groups["memory"])
        fit.keep_rows = is_private(content["ledger"])
    fit._file.restore(fit, content["population"], content["columns"], groups)
    fit.__ebfed_view__().ledger[:] = content["ledger"]
    return fit


def _check(figures: Any, memory: Any) -> None:
    """Refuse blocks of clients whose arrays do not belong together: kernels do not check them."""
    n = len(figures.ids)
    for name, values in (vars(figures) | memory).items():
        rows = isinstance(figures, Clients) and name in ("indptr", "X", "y", "weight")
        if isinstance(values, np.ndarray) and not rows and len(values) != n:
            raise ValueError(f"{name} has {len(values)} entries for {n} groups")
    if isinstance(figures, Clients):
        ends = figures.indptr
        if not (
            ends.dtype == np.int64
            and ends.shape == (n + 1,)
            and ends[0] == 0
            and (np.diff(ends) >= 0).all()
            and ends[-1] == len(figures.X) == len(np.asarray(figures.y)) == len(figures.weights())
        ):
            raise ValueError("rows do not belong to the groups")


# Objects -----------------------------------------------------------------------------------------


def _name_of(cls: type) -> str:
    """Name a class of ebfed, with the part of the package that it is of.

    Examples
    --------
    >>> _name_of(Clients)
    'tables.Clients'
    """
    package, *parts = cls.__module__.split(".")
    if package != "ebfed" or not parts:
        raise TypeError(
            f"{cls.__name__} is a class of {cls.__module__!r}: only classes of ebfed can be read "
            "again. Pickle this fit."
        )
    return f"{parts[0]}.{cls.__name__}"


def _class_of(name: Any, classes: Mapping[str, type]) -> type:
    if not isinstance(name, str) or name not in classes:
        raise ValueError(f"class {name!r} is not one that a fit is made of")
    return classes[name]


def _arguments(fit: Any, private: bool, groups: bool) -> dict[str, Any]:
    """Arguments of an estimator, without what belongs to a process, to a seed or to groups."""
    arguments = fit.get_params(deep=False)
    if not groups:
        arguments = {
            name: x for name, x in arguments.items() if name not in OF_GROUPS or np.ndim(x) == 0
        }
    if private:
        arguments.pop("random_state", None)
    arguments.pop("checkpoint", None)  # a folder of this machine
    return _of_any_process(arguments)


def _of_any_process(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments without engines, and without generators, which another process has moved on."""
    seed = arguments.get("random_state")
    left = {"engine"} | ({"random_state"} if not (seed is None or is_fixed(seed)) else set())
    return {name: x for name, x in arguments.items() if name not in left}


def _plain(obj: Any) -> Any:
    """Return nested data whose objects are dicts of a name and arguments."""
    if isinstance(obj, wire.Later):
        obj = obj()
    if isinstance(obj, dict):
        return {name: _plain(value) for name, value in obj.items()}
    if type(obj) in (list, tuple):
        return type(obj)(map(_plain, obj))
    if isinstance(obj, np.ndarray) and obj.dtype.kind == "O":
        values = [_plain(value) for value in obj.ravel().tolist()]
        return {"object": "labels", "arguments": {"shape": list(obj.shape), "values": values}}
    if (label := _plain_label(obj)) is not None:
        return label
    if isinstance(obj, Design):
        described = {"text": obj.text, "context": obj.context.as_data()}
        return {"object": "Design", "arguments": described | {"data": _plain(obj.as_data())}}
    learned: dict[str, Any] = {}
    if isinstance(obj, BaseEstimator):
        arguments = obj.get_params(deep=False)
        learned = {name: x for name, x in vars(obj).items() if name.endswith(LEARNED)}
    elif dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        arguments = {each.name: getattr(obj, each.name) for each in dataclasses.fields(obj)}
    else:
        return obj
    described = {"object": _name_of(type(obj)), "arguments": _plain(_of_any_process(arguments))}
    return described | ({"learned": _plain(learned)} if learned else {})


def _plain_label(obj: Any) -> dict[str, Any] | None:
    """Return a label as a dict of its kind and arguments; None if it is data, or of no known kind.

    Examples
    --------
    >>> import pandas as pd
    >>> _plain_label(pd.Interval(0.5, 1))["arguments"]
    {'left': 0.5, 'right': 1, 'closed': 'right'}
    """
    kind, name = type(obj), type(obj).__name__
    arguments: dict[str, Any]
    if kind in WRITTEN:
        arguments = {"text": WRITTEN[kind][0](obj)}
    elif kind is dt.timedelta:
        arguments = {"days": obj.days, "seconds": obj.seconds, "microseconds": obj.microseconds}
    elif not kind.__module__.startswith("pandas"):
        return None
    elif name == "Timestamp":
        arguments = {"at": obj.asm8, "zone": None if obj.tz is None else str(obj.tz)}
    elif name == "Timedelta":
        arguments = {"span": obj.asm8}
    elif name == "Period":
        arguments = {"ordinal": obj.ordinal, "freq": obj.freqstr}
    elif name == "Interval":
        ends = {"left": _plain(obj.left), "right": _plain(obj.right)}
        arguments = {**ends, "closed": obj.closed}
    else:
        return None
    return {"object": name, "arguments": arguments}


def _label(name: str, arguments: dict[str, Any]) -> Any:
    """Make a label again; None if this is no kind of label.

    Examples
    --------
    >>> _label("Decimal", {"text": "0.10"})
    Decimal('0.10')
    """
    for kind, (_, from_text) in WRITTEN.items():
        if name == kind.__name__:
            return from_text(arguments["text"])
    if name == "timedelta":
        return dt.timedelta(**arguments)
    if name not in ("Timestamp", "Timedelta", "Period", "Interval"):
        return None
    import pandas as pd

    if name == "Timestamp":
        at, zone = pd.Timestamp(arguments["at"]), arguments["zone"]
        return at if zone is None else at.tz_localize("UTC").tz_convert(zone)
    if name == "Timedelta":
        return pd.Timedelta(arguments["span"])
    return getattr(pd, name)(**arguments)


def _rebuilt(obj: Any, classes: Mapping[str, type]) -> Any:
    """Make the objects of nested data again."""
    if isinstance(obj, list | tuple):
        return type(obj)(_rebuilt(value, classes) for value in obj)
    if not isinstance(obj, dict):
        return obj
    obj = {name: _rebuilt(value, classes) for name, value in obj.items()}
    if obj.keys() - {"learned"} != {"object", "arguments"} or not isinstance(obj["object"], str):
        return obj
    name, arguments = obj["object"], obj["arguments"]
    if name == "labels":
        labels = np.empty(len(arguments["values"]), object)
        for i, value in enumerate(arguments["values"]):  # a tuple is one label
            labels[i] = value
        return labels.reshape(arguments["shape"])
    if name == "Design":
        context = Context(arguments["context"])
        return Design.of_data(arguments["text"], context, arguments["data"])
    if (label := _label(name, arguments)) is not None:
        return label
    made = _class_of(name, classes)(**arguments)
    for attribute, value in obj.get("learned", {}).items():  # a fitted prior is used as it is
        if not attribute.endswith(LEARNED):
            raise ValueError(f"{attribute!r} is nothing that {name} learns")
        setattr(made, attribute, value)
    return made
