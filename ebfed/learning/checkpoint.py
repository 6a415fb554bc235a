"""What a fit has reached, on disk, so that one that was interrupted goes on from there.

The folder holds ``fit.ebfed``, the last state of the server and what clients keep, and
``ledger.jsonl``, to which every round is added *before* its messages are asked for: whatever was
released is in the ledger. A fit that goes on repeats the rounds since the state was written. It
draws the same numbers for them, so nothing new is released, and a round that is repeated is not
entered again. From the first round on that nobody was asked for, a private fit draws noise from a
new key, unless its seed is fixed; the state is written with that key before it is used.

Writing takes time where clients keep much. It is done when at least twenty times as long has passed
since, so that it costs a twentieth; and at the end.
"""

from __future__ import annotations

import hashlib
import re
import sysconfig
import time
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ebfed import wire
from ebfed.engines import journal
from ebfed.tables.clients import Clients
from ebfed.tables.replacing import replaced

__all__ = ["Checkpoint", "fingerprint"]

SPARE = 20.0
DIGEST = 32  # bytes of the checksum, which come first


class Checkpoint:
    """The folder of one fit.

    Parameters
    ----------
    folder : path
        Made if it does not exist.
    settings : dict
        Arguments of the estimator, as text.
    clients : Clients
        Their rows: a fit goes on only with the same rows and arguments.
    memory : dict of arrays
        What clients bring along besides, such as their choices.

    Notes
    -----
    What is kept includes the key of the noise: a reader of the folder can subtract the noise.
    """

    def __init__(self, folder: str | Path, settings: dict[str, str], clients: Clients, memory: Any):
        if not isinstance(folder, str | Path) or not str(folder):
            raise TypeError(f"checkpoint must be a path of a folder; got {folder!r}.")
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file, self._ledger = self._folder / "fit.ebfed", self._folder / "ledger.jsonl"
        self._identity = _digest([settings, memory], clients)
        self._entered = {(entry["fit"], entry["round"]) for entry in journal.read(self._ledger)}
        self._due = 0.0

    def load(self) -> tuple[Any, Any] | None:
        """Return the last state and what clients kept; None if there is nothing.

        Raises
        ------
        ValueError
            If what is there is of other rows or arguments.
        """
        if not self._file.exists():
            return None
        try:
            content = self._file.read_bytes()
            if hashlib.sha256(content[DIGEST:]).digest() != content[:DIGEST]:
                raise ValueError("it is damaged")
            kept = wire.unpack(content[DIGEST:])
        except ValueError as error:
            raise ValueError(
                f"checkpoint {str(self._file)!r} cannot be read; delete it to begin again: {error}"
            ) from None
        if kept["identity"] != self._identity:
            raise ValueError(
                f"checkpoint {str(self._folder)!r} is of a fit to other rows or with other "
                "arguments, or by another version; name another folder, or delete this one."
            )
        return kept["state"], kept["memory"]

    def has_entered(self, round_: int, key: NDArray) -> bool:
        """Whether a round with this noise is in the ledger."""
        return (_name(key), round_) in self._entered

    def enter(self, round_: int, key: NDArray) -> None:
        """Write a round in the ledger, unless it is there: its messages are about to be sent."""
        if not self.has_entered(round_, key):
            journal.append(self._ledger, [{"fit": _name(key), "round": round_}])
            self._entered.add((_name(key), round_))

    def keep(self, state: Any, memory: Any, *, now: bool = False) -> None:
        """Write what was reached, if it is time to.

        Parameters
        ----------
        state : dict
        memory : callable
            Returns what clients keep.
        now : bool
            Whether it is time in any case.
        """
        began = time.monotonic()
        if began < self._due and not (now or state["done"]):
            return
        content = {"identity": self._identity, "state": state, "memory": memory()}
        packed = wire.pack(content)
        with replaced(self._file, private=True) as new:
            new.write_bytes(hashlib.sha256(packed).digest() + packed)
        ended = time.monotonic()
        self._due = ended + SPARE * (ended - began)


def _name(key: NDArray) -> str:
    return hashlib.sha256(np.asarray(key, np.uint64).tobytes()).hexdigest()[:16]


def _digest(others: list, clients: Clients) -> str:
    """Name rows, and all else that a fit goes on with."""
    found = hashlib.sha256(wire.pack([others, clients.ids.astype(str), clients.indptr]))
    for values in (clients.X, np.asarray(clients.y), clients.weight):
        if values is None:
            continue
        plain = values.astype(str) if values.dtype.kind == "O" else values
        found.update(np.ascontiguousarray(plain).view(np.uint8).data)
    return found.hexdigest()


def fingerprint(value: Any) -> str:
    """Return a text that is the same for the same value in any process, and differs for others.

    The text of an object as it prints is not enough: functions print their names, and a module of
    PyTorch prints its layers without their numbers.

    Of what a function calls by a global name, functions of its own package are compared, and what
    these call; of an installed package, those of its own module. Not compared are functions of
    other packages, or of other files beside a script; what is reached through a module or a class,
    as in ``parts.error(x)``; and other global objects, such as numbers. The numbers of tensors that
    require gradients are left out too: they are, as a rule, drawn anew in every process, and a fit
    that continues has its own.

    Parameters
    ----------
    value : object
        Numbers, texts, arrays, tensors, functions, objects with attributes, and collections.

    Examples
    --------
    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 1)
    True
    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 2)
    False
    """
    return hashlib.sha256(_text(value, {}).encode()).hexdigest()


def _text(value: Any, seen: dict[int, tuple[int, Any]]) -> str:
    """Return the whole text; what was `seen`, by where it lies, has its number."""
    if value is None or isinstance(value, str | bytes | int | float | complex):
        return repr(value)
    if not isinstance(value, tuple | CodeType):  # these may be one object in some processes only
        if id(value) in seen:
            return f"object {seen[id(value)][0]}"
        seen[id(value)] = len(seen), value

    def each(values: Any) -> str:
        return ", ".join(_text(one, seen) for one in values)

    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind != "O":
        content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"{value.dtype} {value.shape} {content}"
    if isinstance(value, type | ModuleType):
        return repr(value)
    if hasattr(value, "detach") and hasattr(value, "requires_grad"):
        numbers = "trained" if value.requires_grad else _text(_numbers(value), seen)
        return f"{value.dtype} {tuple(value.shape)} {numbers}"
    if isinstance(value, Mapping):
        return f"{type(value).__name__}({each(value.items())})"
    if isinstance(value, Set):
        return f"{type(value).__name__}({sorted(map(fingerprint, value))})"
    if isinstance(value, list | tuple | np.ndarray):
        return f"{type(value).__name__}({each(value)})"
    if isinstance(value, CodeType):
        return f"{value.co_code.hex()} {value.co_names} ({each(value.co_consts)})"
    if isinstance(value, FunctionType):
        held = [_content(cell) for cell in value.__closure__ or ()]
        parts = value.__code__, value.__defaults__, value.__kwdefaults__, held, _called(value)
        return f"{value.__qualname__}({each(parts)})"
    if isinstance(value, MethodType):
        return f"method({each((value.__func__, value.__self__))})"
    if isinstance(value, partial):
        return f"partial({each((value.func, value.args, value.keywords))})"
    state = _text(_state_of(value), seen)
    return f"{type(value).__module__}.{type(value).__qualname__}({state})"


def _state_of(value: Any) -> Any:
    """Return what makes up an object, without what it may have found out since it was made."""
    if isinstance(value, BaseEstimator):
        return value.get_params(deep=False)
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if hasattr(value, "__dict__"):
        return vars(value)
    try:  # as it would be pickled
        return value.__reduce_ex__(4)
    except TypeError:
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _numbers(tensor: Any) -> Any:
    """Return the numbers of a tensor as an array, in 64 bits where NumPy lacks its precision."""
    plain = tensor.detach().cpu()
    try:
        return plain.numpy()
    except TypeError:
        return plain.double().numpy()


def _content(cell: CellType) -> Any:
    """Return what a cell of a closure holds; its type, if the variable has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return CellType


def _called(function: FunctionType) -> list[Any]:
    """Return the functions of the same package that a function, or one inside it, names."""
    names = dict.fromkeys(name for code in _codes(function.__code__) for name in code.co_names)
    named = (function.__globals__.get(name) for name in names)
    return [each for each in named if isinstance(each, FunctionType) and _is_near(each, function)]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code, and that of functions and comprehensions inside it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _is_near(other: FunctionType, function: FunctionType) -> bool:
    """Whether another function is of the same module, or of a package that is not installed."""
    one, two = (str(each.__module__) for each in (other, function))
    installed = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    own = not other.__code__.co_filename.startswith(tuple(installed))
    return one == two or (own and one.partition(".")[0] == two.partition(".")[0])
