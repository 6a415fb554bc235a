"""Nested data as bytes, and back, to the last bit.

Clients and a server exchange dicts, lists and tuples of arrays, numbers and strings. Packed data
are a JSON header with the structure, followed by the bytes of the arrays. Unlike a pickle, they
cannot be executed: unpacking data from an unknown sender gives data or a `ValueError`.
"""

from __future__ import annotations

import json
import math
import re
import struct
from typing import Any

import numpy as np

__all__ = ["pack", "unpack"]

MAGIC = b"ebfed\x00\x01\n"
PREFIX = struct.Struct("<8sQ")
# Booleans, integers, floats, complex numbers, text, bytes and times: types without pointers.
KINDS = "biufcUSmM"
NAME = re.compile(
    r"[<>|=](?:b1|[iu][1248]|f(?:2|4|8|16)|c(?:8|16|32)|[US][1-9]\d{0,8}|[mM]8\[\w{1,8}\])"
)


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


def _encode(obj: Any, arrays: list[bytes], place: str) -> Any:
    """Describe data in JSON, every container and array as ``{kind: what}``; collect the bytes."""
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
