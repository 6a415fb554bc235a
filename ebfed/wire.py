"""Nested data as bytes, and back, to the last bit.

Clients and a server exchange dicts, lists and tuples of arrays, numbers and strings. Packed data
are a JSON header with the structure, followed by the bytes of the arrays. Unlike a pickle, they
cannot be executed: unpacking data from an unknown sender gives data or a `ValueError`.

Written data are the same structure as plain JSON, with the numbers of arrays in it, for files that
other programs read.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, cast

import numpy as np

__all__ = ["Later", "WhenAsked", "pack", "read", "unpack", "write"]

MAGIC = b"ebfed\x00\x01\n"
PREFIX = struct.Struct("<8sQ")
# What a description says of a container, an array or a number, ``{kind: what}``.
TAGS = ("array", "dict", "list", "number", "scalar", "tuple")
# Numbers that JSON has no form for.
UNUSUAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# Booleans, integers, floats, complex numbers, text, bytes and times: types without pointers.
KINDS = "biufcUSmM"
Value = TypeVar("Value")
NAME = re.compile(
    r"[<>|=](?:b1|[iu][1248]|f(?:2|4|8|16)|c(?:8|16|32)|[US][1-9]\d{0,8}|[mM]8\[\w{1,8}\])"
)


class Later:
    """Data that are computed when they are first asked for, packed or pickled.

    Examples
    --------
    >>> later = Later(lambda: {"n": 3})
    >>> later(), unpack(pack([later]))
    ({'n': 3}, [{'n': 3}])
    """

    def __init__(self, compute: Callable[[], Any]):
        self._compute: Callable[[], Any] | None = compute
        self._found: Any = None

    def __call__(self) -> Any:
        """Return the data."""
        if self._compute is not None:
            self._found = self._compute()
            self._compute = None
        return self._found

    def __reduce__(self) -> tuple:
        return _itself, (self(),)


def _itself(obj: Any) -> Any:
    return obj


class WhenAsked(Generic[Value]):
    """An attribute that may be set to a `Later`, whose data are what it is; None if never set.

    Examples
    --------
    >>> class Fit:
    ...     notes_ = WhenAsked()
    >>> fit = Fit()
    >>> fit.notes_ = Later(lambda: ["few groups"])
    >>> fit.notes_
    ['few groups']
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, obj: Any, owner: type | None = None) -> Value:
        found = vars(obj).get(self._name)
        if isinstance(found, Later):
            found = vars(obj)[self._name] = found()
        return cast(Value, found)

    def __set__(self, obj: Any, value: Value | Later) -> None:
        vars(obj)[self._name] = value

    def __delete__(self, obj: Any) -> None:
        del vars(obj)[self._name]


def pack(obj: Any) -> bytes:
    """Turn nested data into bytes.

    Parameters
    ----------
    obj : dict, list, tuple, ndarray, number, str, bool or None
        Data of any depth; keys of dicts are strings, numbers or None.

    Returns
    -------
    bytes
        Equal for equal data.

    Raises
    ------
    TypeError
        If it contains another type. The message names type and place, not the value.

    Examples
    --------
    >>> unpack(pack({"n": np.arange(3), "range": (0.0, np.inf), "why": None}))
    {'n': array([0, 1, 2]), 'range': (0.0, inf), 'why': None}
    """
    arrays: list[bytes] = []
    tree = json.dumps(_encode(obj, arrays, "obj"), separators=(",", ":")).encode()
    return b"".join([PREFIX.pack(MAGIC, len(tree)), tree, *arrays])


def unpack(data: bytes) -> Any:
    """Turn bytes of `pack` into the data they were.

    Parameters
    ----------
    data : bytes

    Returns
    -------
    dict, list, tuple, ndarray, number, str, bool or None
        Arrays are copies, which may be written to.

    Raises
    ------
    ValueError
        If the bytes are not what `pack` makes: cut short, too long, or of something else.

    Examples
    --------
    >>> unpack(b"PK")
    Traceback (most recent call last):
    ValueError: data must be bytes of ebfed.wire.pack; got 2 bytes of something else.
    """
    if len(data) < PREFIX.size or not data.startswith(MAGIC):
        raise ValueError(
            f"data must be bytes of ebfed.wire.pack; got {len(data)} bytes of something else."
        )
    body = memoryview(data)[PREFIX.size :]
    size = PREFIX.unpack_from(data)[1]
    try:
        tree = json.loads(bytes(_take(body, 0, size)))
        obj, end = _decode(tree, body, size)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"data is damaged: {error}") from None
    if end != len(body):
        raise ValueError(f"data is damaged: {len(body) - end} bytes too many")
    return obj


def write(obj: Any) -> str:
    """Turn nested data into JSON, to the last digit.

    Dicts with names and lists are what they are in JSON. The rest has a tag:
    ``{"array": [type, shape, values]}`` in C order, ``{"scalar": [type, value]}``,
    ``{"tuple": values}``, ``{"dict": pairs}`` where keys are not text, and ``{"number": "NaN"}``.
    In arrays, ``"NaN"``, ``"Infinity"`` and ``"-Infinity"`` stand for themselves, times are whole
    numbers of their unit, and complex numbers are pairs.

    Parameters
    ----------
    obj : as in `pack`

    Returns
    -------
    str
        The payload of a NaN is lost; everything else is kept.

    Raises
    ------
    TypeError
        If it contains another type. The message names type and place, not the value.

    Examples
    --------
    >>> write({"mean": np.array([0.1, np.nan]), "ends": (0, 1.5)})
    '{"mean":{"array":["<f8",[2],[0.1,"NaN"]]},"ends":{"tuple":[0,1.5]}}'
    """
    arrays: list[bytes] = []
    tree = _encode(obj, arrays, "obj")
    shown = _shown(tree, iter(arrays))
    return json.dumps(shown, separators=(",", ":"), allow_nan=False)


def read(text: str) -> Any:
    """Turn JSON of `write` into the data they were.

    Parameters
    ----------
    text : str

    Raises
    ------
    ValueError
        If the text is not what `write` makes: cut short, or of something else.

    Examples
    --------
    >>> read('{"mean": {"array": ["<f8", [2], [0.5, "Infinity"]]}, "n": [3, 4]}')
    {'mean': array([0.5, inf]), 'n': [3, 4]}
    >>> read('{"mean": {"array": ["<f8", [2], [0.5]]}}')
    Traceback (most recent call last):
    ValueError: data is damaged: an array of shape [2] has 1 values
    """
    arrays: list[bytes] = []
    try:
        tree = _hidden(json.loads(text, parse_constant=_refuse), arrays)
        return _decode(tree, memoryview(b"".join(arrays)), 0)[0]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"data is damaged: {error}") from None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _shown(tree: Any, arrays: Iterator[bytes]) -> Any:
    """Write a description as plain JSON, with the values of the arrays that follow it."""
    if isinstance(tree, float) and not math.isfinite(tree):
        return {"number": _name_of(tree)}
    if not isinstance(tree, dict):
        return tree
    ((kind, what),) = tree.items()
    if kind == "dict":
        pairs = [[key, _shown(value, arrays)] for key, value in what]
        named = all(isinstance(key, str) for key, _ in pairs)
        if named and not (len(pairs) == 1 and pairs[0][0] in TAGS):
            return dict(pairs)
        return {"dict": pairs}
    if kind == "array":
        name, shape = what
        return {"array": [name, shape, _values(name, next(arrays))]}
    if kind == "scalar":
        return {"scalar": [what, *_values(what, next(arrays))]}
    items = [_shown(value, arrays) for value in what]
    return items if kind == "list" else {"tuple": items}


def _hidden(shown: Any, arrays: list[bytes]) -> Any:
    """Describe plain JSON as `_encode` does; collect the bytes of arrays."""
    if isinstance(shown, list):
        return {"list": [_hidden(value, arrays) for value in shown]}
    if not isinstance(shown, dict):
        return shown
    if len(shown) != 1 or (kind := next(iter(shown))) not in TAGS:
        return {"dict": [[key, _hidden(value, arrays)] for key, value in shown.items()]}
    what = shown[kind]
    if kind == "number":
        return UNUSUAL[what]
    if kind == "dict":
        return {"dict": [[key, _hidden(value, arrays)] for key, value in what]}
    if kind == "array":
        name, shape, values = what
        if len(values) != math.prod(shape):
            raise ValueError(f"an array of shape {shape} has {len(values)} values")
        arrays.append(_bytes(name, values))
        return {"array": [name, shape]}
    if kind == "scalar":
        name, value = what
        arrays.append(_bytes(name, [value]))
        return {"scalar": name}
    return {kind: [_hidden(value, arrays) for value in what]}


def _values(name: str, raw: bytes) -> list:
    """Values of an array as JSON has them, in C order."""
    array = np.frombuffer(raw, name)
    if array.dtype.kind in "mM":
        return array.view(array.dtype.byteorder + "i8").tolist()
    if array.dtype.kind == "S":
        return [value.decode("latin-1") for value in array.tolist()]
    if array.dtype.kind == "c":
        return [[_number(x.real), _number(x.imag)] for x in array.tolist()]
    if array.dtype.kind == "f":
        return [_number(x) for x in array.tolist()]
    return array.tolist()


def _bytes(name: str, values: list) -> bytes:
    """Return the bytes of an array of these values, none of which is rounded or cut."""
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        raise ValueError(f"arrays of {str(name)[:20]!r} are not read")
    dtype = np.dtype(name)
    if dtype.kind == "c":
        values = [part for real, imaginary in values for part in (real, imaginary)]
    if dtype.kind in "fc":
        values = [UNUSUAL[value] if isinstance(value, str) else value for value in values]
    kinds = {"b": (bool,), "U": (str,), "S": (str,), "f": (int, float), "c": (int, float)}
    if not all(type(value) in kinds.get(dtype.kind, (int,)) for value in values):
        raise ValueError(f"a value is none of an array of {name!r}")
    if dtype.kind in "US":
        room = dtype.itemsize // (4 if dtype.kind == "U" else 1)
        if max(map(len, values), default=0) > room:
            raise ValueError(f"a value is too long for an array of {name!r}")
        values = [value.encode("latin-1") for value in values] if dtype.kind == "S" else values
    stored = {"m": "i8", "M": "i8", "c": f"f{dtype.itemsize // 2}"}.get(dtype.kind)
    return np.array(values, dtype.byteorder + stored if stored else dtype).tobytes()


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else _name_of(value)


def _name_of(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _encode(obj: Any, arrays: list[bytes], place: str) -> Any:
    """Describe data in JSON, every container and array as ``{kind: what}``; collect the bytes."""
    if isinstance(obj, Later):
        obj = obj()
    if isinstance(obj, np.generic):
        return {"scalar": _encode(np.asarray(obj), arrays, place)["array"][0]}
    if obj is None or isinstance(obj, bool | int | float | str):
        return obj
    if isinstance(obj, dict):
        pairs = []
        for key, value in obj.items():
            if not (key is None or type(key) in (str, int, float, bool)):
                raise TypeError(f"{place} has a key of type {type(key).__name__}; use strings.")
            pairs.append([key, _encode(value, arrays, f"{place}[{key!r}]")])
        return {"dict": pairs}
    if type(obj) in (list, tuple):
        items = [_encode(value, arrays, f"{place}[{i}]") for i, value in enumerate(obj)]
        return {type(obj).__name__: items}
    if type(obj) is np.ndarray and obj.dtype.kind in KINDS:
        arrays.append(obj.tobytes())
        return {"array": [obj.dtype.str, list(obj.shape)]}
    kind = f"array of {obj.dtype}" if isinstance(obj, np.ndarray) else type(obj).__name__
    raise TypeError(
        f"{place} is of type {kind}; dicts, lists, tuples, arrays of numbers or text, numbers, "
        "strings, bools and None can be packed."
    )


def _decode(tree: Any, body: memoryview, place: int) -> tuple[Any, int]:
    """Rebuild what a description says from the bytes at `place`; also returns where they end."""
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree, place
    if not isinstance(tree, dict) or len(tree) != 1:
        raise ValueError("its header describes no data")
    ((kind, what),) = tree.items()
    if kind == "scalar":
        array, place = _decode_array(what, [], body, place)
        return array[()], place
    if kind == "array":
        name, shape = what
        return _decode_array(name, shape, body, place)
    if kind == "dict":
        pairs = {}
        for key, value in what:
            pairs[key], place = _decode(value, body, place)
        return pairs, place
    if kind in ("list", "tuple"):
        items = []
        for value in what:
            item, place = _decode(value, body, place)
            items.append(item)
        return (items if kind == "list" else tuple(items)), place
    raise ValueError(f"its header names the kind {kind!r}")


def _decode_array(
    name: str, shape: list[int], body: memoryview, place: int
) -> tuple[np.ndarray, int]:
    # the name is matched first: numpy reads others as small programs
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        raise ValueError(f"arrays of {str(name)[:20]!r} are not read")
    dtype = np.dtype(name)
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"no array has the shape {shape}")
    # Python's integers do not overflow: no shape is too large to be recognised as such
    raw = _take(body, place, dtype.itemsize * math.prod(shape))
    if dtype.kind == "b" and np.any(np.frombuffer(raw, np.uint8) > 1):
        raise ValueError("a truth value is neither 0 nor 1")
    if dtype.kind == "U" and np.any(np.frombuffer(raw, dtype.byteorder + "u4") > 0x10FFFF):
        raise ValueError("a character is none")
    return np.ndarray(tuple(shape), dtype, raw).copy(), place + len(raw)


def _take(body: memoryview, place: int, size: int) -> memoryview:
    if size > len(body) - place:
        raise ValueError(f"{size} bytes should follow, {len(body) - place} do")
    return body[place : place + size]
