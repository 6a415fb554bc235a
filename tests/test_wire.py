"""The wire: what is packed comes back to the last bit, and nothing else comes at all."""

import json
import math
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ebfed.wire import MAGIC, PREFIX, Later, pack, read, unpack, write

dtypes = st.one_of(
    st.sampled_from(["f8", "f4", "i8", "i1", "u8", "?", "c16", ">f8", ">i4"]).map(np.dtype),
    hnp.unicode_string_dtypes(min_len=1),
)
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | arrays
    | st.floats().map(np.float64)
    | st.integers(0, 2**64 - 1).map(np.uint64)
)
keys = st.text(max_size=5) | st.integers() | st.booleans() | st.none()
data = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


def same(a, b):
    """Equal in type, shape and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(map(repr, a)) == list(map(repr, b)) and all(
            same(x, y) for x, y in zip(a.values(), b.values(), strict=True)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b if a == a else b != b


@given(data)
def test_comes_back_to_the_last_bit(obj):
    packed = pack(obj)
    assert same(obj, unpack(packed))
    assert pack(unpack(packed)) == packed


@pytest.mark.parametrize(
    "array",
    [
        np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 5e-324]),
        np.frombuffer(struct.pack("<Q", 0x7FF8_0000_0000_BEEF), "f8"),
        np.array([2**64 - 1], np.uint64),
        np.array([[True, False]]),
        np.array(["", "ä", "名前", "\U0001f600"]),
        np.zeros((0, 3)),
        np.zeros((3, 0), "U4"),
        np.array(4.0),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(10)[::-2],
        np.array(["2020-01-01", "NaT"], "M8[ns]"),
    ],
    ids=repr,
)
def test_arrays_come_back_and_may_be_written_to(array):
    back = unpack(pack({"a": [array]}))["a"][0]
    assert same(np.ascontiguousarray(array).reshape(array.shape), back)
    assert back.flags.writeable
    assert back.flags.aligned


@pytest.mark.parametrize(
    ("obj", "what"),
    [
        (np.array([None]), "obj is of type array of object"),
        ({"a": (0, {1, 2})}, r"obj\['a'\]\[1\] is of type set"),
        ({"a": b"bytes"}, "type bytes"),
        ({(1, 2): 0}, "obj has a key of type tuple"),
        (np.zeros(2, [("a", "f8")]), "array of"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "array of float64"),
        (lambda: 0, "type function"),
    ],
)
def test_refuses_what_is_not_plain(obj, what):
    with pytest.raises(TypeError, match=what):
        pack(obj)


def test_names_no_value():
    with pytest.raises(TypeError) as caught:
        pack({"rows": np.array([{"secret": "Quirin"}])})
    assert "Quirin" not in str(caught.value)


@given(data, st.data())
def test_damage_is_refused_or_is_data(obj, draw):
    packed = pack(obj)
    cut = draw.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(ValueError, match="data"):
        unpack(packed[:cut])
    with pytest.raises(ValueError, match="too many"):
        unpack(packed + b"\0")
    damaged = bytearray(packed)
    damaged[cut] ^= draw.draw(st.integers(1, 255))
    try:
        unpack(bytes(damaged))
    except ValueError:
        return


@given(st.binary(max_size=200))
def test_bytes_of_something_else_are_refused(noise):
    with pytest.raises(ValueError, match="data"):
        unpack(noise)
    with pytest.raises(ValueError, match="data is damaged"):
        unpack(PREFIX.pack(MAGIC, len(noise) + 1) + noise)


def forged(tree, body=b""):
    header = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
    return PREFIX.pack(MAGIC, len(header)) + header + body


@pytest.mark.parametrize(
    ("tree", "body"),
    [
        ({"array": ["<f8", [2**62]]}, b""),
        ({"array": ["<f8", [10**30, 10**30]]}, b"12345678"),
        ({"array": ["<f8", [-1]]}, b""),
        ({"array": ["<f8", [10**30, 0]]}, b""),
        ({"array": ["<f8", [1.0]]}, b"12345678"),
        ({"array": ["<f8", [True]]}, b"12345678"),
        ({"array": ["<f8", "1"]}, b"12345678"),
        ({"array": ["<f8"]}, b""),
        ({"array": ["|O", [1]]}, b"12345678"),
        ({"array": ["f8,f8", [1]]}, b"1234567812345678"),
        ({"array": ["nonsense", [1]]}, b""),
        ({"array": ["|b1", [1]]}, b"\x02"),
        ({"array": ["<U1", [1]]}, b"\xff\xff\xff\x7f"),
        ({"array": ["<S0", [10**9]]}, b""),
        ({"array": ["|S0", [10**9]]}, b""),
        ({"array": ["<U0", [10**15]]}, b""),
        ({"array": ["01234", [1]]}, b"12345678"),
        ({"array": ["(2,3)f8,)", [1]]}, b"12345678"),
        ({"array": ["\x00", [1]]}, b"\x01"),
        ({"scalar": "|O"}, b"12345678"),
        ({"dict": [[[], 1]]}, b""),
        ({"dict": [["a"]]}, b""),
        ({"dict": 1}, b""),
        ({"list": None}, b""),
        ({"set": []}, b""),
        ({"list": [], "tuple": []}, b""),
        ([1], b""),
        (b"[" * 100_000, b""),
        (b'{"list":[' * 5_000 + b"]}" * 5_000, b""),
        (b"1" * 10_000, b""),
        (b"\xff", b""),
    ],
)
def test_forged_headers_are_refused(tree, body):
    with pytest.raises(ValueError, match="data is damaged"):
        unpack(forged(tree, body))


# JSON --------------------------------------------------------------------------------------------


@given(data)
def test_json_comes_back_to_the_last_digit(obj):
    text = write(obj)
    json.loads(text, parse_constant=pytest.fail)
    assert same(obj, read(text))
    assert write(read(text)) == text


@pytest.mark.parametrize(
    "obj",
    [
        {"array": 1},
        {"dict": [["a", 1]]},
        {"number": "NaN"},
        {"tuple": []},
        {1: "a", None: 2.5, "x": 3},
        [(), [], {}, ((),)],
        [0.1 + 0.2, 5e-324, 1.7976931348623157e308, -0.0, math.inf, -math.inf],
        np.float32(0.1),
        np.array([2**64 - 1], np.uint64),
        np.array([0.1, np.nan, np.inf, -np.inf, -0.0], np.float32),
        np.array([1 + 2j, complex(np.inf, -0.0)]),
        np.array(["", "ä", "名前", "\U0001f600", '"\n'], "U5"),
        np.array([b"a", b"\xff"]),
        np.array(["2020-01-01", "NaT"], "M8[ns]"),
        np.array([3, 4], "m8[h]"),
        np.array([[True], [False]]),
        np.array([1.5, 2.5], ">f8"),
        np.array([2**40, -1], ">i8"),
        np.array(["2020-01-01"], ">M8[D]"),
        np.zeros((0, 3)),
        np.array(4.0),
    ],
    ids=repr,
)
def test_json_of_what_is_unusual(obj):
    text = write(obj)
    json.loads(text, parse_constant=pytest.fail)
    assert same(obj, read(text))


@given(data, st.data())
def test_json_that_is_cut_is_refused(obj, draw):
    text = write([obj])
    cut = draw.draw(st.integers(0, len(text) - 1))
    with pytest.raises(ValueError, match="data is damaged"):
        read(text[:cut])


@given(st.text(max_size=50))
def test_text_of_something_else_is_refused_or_is_data(noise):
    try:
        assert write(read(noise))
    except ValueError:
        return


@pytest.mark.parametrize(
    "text",
    [
        "[NaN]",
        "[Infinity]",
        '{"number": "nan"}',
        '{"array": ["<f8", [1]]}',
        '{"array": ["<f8", [1], [1, 2]]}',
        '{"array": ["<f8", [1], ["1"]]}',
        '{"array": ["<f8", [1], [true]]}',
        '{"array": ["<f8", [-1, -1], [1]]}',
        '{"array": ["<i8", [1], [1.5]]}',
        '{"array": ["<i8", [1], [9223372036854775808]]}',
        '{"array": ["|b1", [1], [2]]}',
        '{"array": ["<U1", [1], ["ab"]]}',
        '{"array": ["|S1", [1], ["名"]]}',
        '{"array": ["<c16", [1], [[1, 2, 3]]]}',
        '{"array": ["|O", [1], [1]]}',
        '{"array": ["f8,f8", [1], [1]]}',
        '{"scalar": ["<f8"]}',
        '{"scalar": ["<f8", "x"]}',
        '{"dict": [["a"]]}',
        '{"dict": 1}',
        '{"tuple": 1}',
        "[" * 100_000,
    ],
)
def test_damaged_json_is_refused(text):
    with pytest.raises(ValueError, match="data is damaged"):
        read(text)


def test_json_names_no_value():
    with pytest.raises(TypeError, match=r"obj\['rows'\] is of type array of object") as caught:
        write({"rows": np.array([{"secret": "Quirin"}])})
    assert "Quirin" not in str(caught.value)


def test_what_is_computed_later_is_computed_once_and_packed_as_it_is():
    calls = []

    def compute():
        calls.append(1)
        return {"n": np.arange(3)}

    later = Later(compute)
    assert not calls
    assert pack([later]) == pack([compute()])
    again = pickle.loads(pickle.dumps(later))
    assert type(again) is dict
    assert again["n"].tolist() == [0, 1, 2]
    assert later() is later()
    assert len(calls) == 2
