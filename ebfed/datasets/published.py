"""Files of images as their owners publish them: CIFAR batches, LEAF, TensorFlow Federated, IDX.

Nothing here asks for the network: a folder or a file is given. A file that is not what it should
be is refused by its name. Pixels are float32 in [0, 1].
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.datasets.images import parse_idx

if TYPE_CHECKING:
    from sklearn.utils import Bunch

__all__ = ["read_cifar", "read_idx", "read_leaf", "read_tff"]

COLOURS = 3 * 32 * 32
_TRAIN = tuple(f"data_batch_{k}" for k in range(1, 6))
# Training files, test file, key of the labels, bytes of labels before an image of the binary form.
_CIFAR: dict[int, tuple[tuple[str, ...], str, bytes, int]] = {
    10: (_TRAIN, "test_batch", b"labels", 1),
    100: (("train",), "test", b"fine_labels", 2),
}
# MD5 of the files of Python, as torchvision has them too.
_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}


def read_idx(path: str | Path) -> NDArray[np.uint8]:
    """Read a file of unsigned bytes in the IDX format, as those of MNIST; ``.gz`` or not.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    uint8 ndarray
        Of the shape that its header states.

    Raises
    ------
    FileNotFoundError
    ValueError
        If it is no such file, or truncated.

    References
    ----------
    Y. LeCun, C. Cortes and C. Burges, *The MNIST database*, section "file formats".
    """
    path = Path(path)
    with _naming(path):
        content = path.read_bytes()
        return parse_idx(gzip.decompress(content) if path.suffix == ".gz" else content)


def read_cifar(folder: str | Path, *, classes: int = 10, published: bool = True) -> Bunch:
    """Read CIFAR-10 or CIFAR-100 from the folder of its batches, as published.

    Either form will do: files for Python (``data_batch_1``, …, ``test_batch``; ``train``,
    ``test``), whose pickles are read without running what is in them, or binary files (the same
    names with ``.bin``).

    Parameters
    ----------
    folder : str or Path
        Such as ``cifar-10-batches-py`` or ``cifar-100-binary``.
    classes : {10, 100}
        Which of the two; the 100 are the fine ones.
    published : bool
        Whether to refuse other files than the published ones: those for Python by their MD5, binary
        ones by their numbers of images.

    Returns
    -------
    Bunch
        ``data``: float32 of shape (50000, 3072), all red pixels row by row, then green and blue
        ones; ``target``: int64; ``data_test``, ``target_test``: the same of 10,000 test images.

    Raises
    ------
    FileNotFoundError
    ValueError
        If a file is no batch, is truncated, or is another one than published.

    References
    ----------
    A. Krizhevsky (2009), *Learning multiple layers of features from tiny images*; its page has the
    two forms.
    """
    if classes not in _CIFAR:
        raise ValueError(f"classes must be 10 or 100; got {classes!r}.")
    folder = Path(folder)
    names, test, key, n_labels = _CIFAR[classes]
    binary = (folder / f"{test}.bin").is_file()

    def read(name: str) -> tuple[NDArray, NDArray]:
        path = folder / (f"{name}.bin" if binary else name)
        with _naming(path):
            content = path.read_bytes()
            if binary:
                images, labels = _binary_batch(content, n_labels, classes)
                size = 10_000 if name == test else 50_000 // len(names)
                if published and len(labels) != size:
                    raise ValueError(f"it has {len(labels)} images; the published file has {size}")
                return images, labels
            found = hashlib.md5(content, usedforsecurity=False).hexdigest()
            if published and found != _MD5[name]:
                raise ValueError(f"its MD5 is {found}, that of the published file {_MD5[name]}")
            return _pickled_batch(content, key, classes)

    parts = [read(name) for name in names]
    data, target = (np.concatenate(each) for each in zip(*parts, strict=True))
    data_test, target_test = read(test)
    return _bunch(data=data, target=target, data_test=data_test, target_test=target_test)


def read_leaf(folder: str | Path) -> Bunch:
    """Read a federated data set of LEAF, such as FEMNIST, from its JSON shards.

    Parameters
    ----------
    folder : str or Path
        Folder with ``train`` and ``test``, which hold files ``*.json``: as the scripts of LEAF
        write them to ``data``.

    Returns
    -------
    Bunch
        ``data``: float32 of shape (n, d); ``target``: int64 of shape (n,); ``groups``: the user of
        each row; the same with ``_test`` behind. Users are sorted.

    Raises
    ------
    FileNotFoundError
    ValueError
        If a file is no shard, or is truncated.

    References
    ----------
    Caldas, Duddu, Wu, Li, Konečný, McMahan, Smith and Talwalkar (2018), LEAF: a benchmark for
    federated settings.
    """
    arrays = dict[str, NDArray]()
    for part, end in (("train", ""), ("test", "_test")):
        paths = sorted((Path(folder) / part).glob("*.json"))
        if not paths:
            raise FileNotFoundError(f"{Path(folder) / part} has no files *.json.")
        users = dict[str, tuple[NDArray, NDArray]]()
        for path in paths:
            with _naming(path):
                for user, rows in _shard(json.loads(path.read_bytes())):
                    if user in users:
                        raise ValueError(f"the user {user!r} is in another file too")
                    users[user] = rows
        arrays |= {f"{name}{end}": x for name, x in _stacked(users).items()}
    return _bunch(**arrays)


def read_tff(train: str | Path, test: str | Path) -> Bunch:
    """Read federated images of TensorFlow Federated from their HDF5 files. Needs h5py.

    Parameters
    ----------
    train, test : str or Path
        Such as ``fed_emnist_train.h5`` and ``fed_emnist_test.h5``.

    Returns
    -------
    Bunch
        As of `read_leaf`: ``data``, of shape (n, 784), with 1 for the background as in the file,
        ``target``, ``groups``, and the same with ``_test`` behind.

    Raises
    ------
    FileNotFoundError
    ImportError
        If h5py is not installed.
    ValueError
        If a file is none of HDF5, truncated, or holds no clients with ``pixels`` and ``label``.

    References
    ----------
    TensorFlow Federated, ``tff.simulation.datasets.emnist.load_data``: groups ``examples/client``.
    """
    try:
        import h5py
    except ImportError as error:
        raise ImportError('read_tff needs h5py: pip install "ebfed[data]"') from error
    arrays = dict[str, NDArray]()
    for given, end in ((train, ""), (test, "_test")):
        path, users = Path(given), dict[str, tuple[NDArray, NDArray]]()
        with _naming(path), path.open("rb") as stream, h5py.File(stream, "r") as file:
            if "examples" not in file:
                raise ValueError("it has no group 'examples'")
            for user, rows in file["examples"].items():
                if not {"pixels", "label"} <= set(rows):
                    raise ValueError(f"the client {user!r} has no pixels, or no label")
                pixels = np.asarray(rows["pixels"])
                users[user] = _checked(pixels.reshape(len(pixels), -1), rows["label"])
            arrays |= {f"{name}{end}": x for name, x in _stacked(users).items()}
    return _bunch(**arrays)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in errors of what it holds.

    Raises
    ------
    ValueError
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (
        *(ValueError, KeyError, TypeError, AttributeError, IndexError, EOFError, OSError),
        *(pickle.UnpicklingError, zlib.error),
    ) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from error


def _binary_batch(content: bytes, n_labels: int, classes: int) -> tuple[NDArray, NDArray]:
    """Images and labels of a binary batch: labels, then pixels, image by image."""
    length = n_labels + COLOURS
    if not content or len(content) % length:
        raise ValueError(f"it has {len(content)} bytes, which are no images of {length} each")
    rows = np.frombuffer(content, np.uint8).reshape(-1, length)
    return _pixels(rows[:, n_labels:], rows[:, n_labels - 1], classes)


def _pickled_batch(content: bytes, key: bytes, classes: int) -> tuple[NDArray, NDArray]:
    """Images and labels of a batch for Python."""
    batch = _Plain(io.BytesIO(content), encoding="bytes").load()
    if not isinstance(batch, dict) or not {b"data", key} <= batch.keys():
        raise ValueError(f"it is no batch of data and {key.decode()}")
    return _pixels(np.asarray(batch[b"data"]), np.asarray(batch[key]), classes)


def _pixels(data: NDArray, target: NDArray, classes: int) -> tuple[NDArray, NDArray]:
    """Check images and labels."""
    if data.dtype != np.uint8 or data.shape != (len(target), COLOURS) or not len(target):
        raise ValueError(f"{len(target)} images need {COLOURS} bytes each; got {data.shape}")
    if target.min() < 0 or target.max() >= classes:
        raise ValueError(f"labels must be 0 to {classes - 1}; got up to {target.max()}")
    return data, target


class _Plain(pickle.Unpickler):
    """Reads numpy arrays and plain data, and nothing that would run code."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "ndarray" and module == "numpy":
            return np.ndarray
        if name == "dtype" and module == "numpy":
            return np.dtype
        if name == "_reconstruct" and module.endswith("core.multiarray"):
            return np.empty(0).__reduce__()[0]
        if (module, name) == ("_codecs", "encode"):
            import _codecs

            return _codecs.encode
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which is no array")


def _shard(content: Any) -> Iterator[tuple[str, tuple[NDArray, NDArray]]]:
    """Users of a shard of LEAF, with their rows."""
    users, sizes, held = content["users"], content["num_samples"], content["user_data"]
    if len(users) != len(sizes) or set(users) != set(held):
        raise ValueError("users, num_samples and user_data are not about the same users")
    for user, size in zip(users, sizes, strict=True):
        rows = _checked(held[user]["x"], held[user]["y"])
        if len(rows[1]) != size:
            raise ValueError(f"the user {user!r} has {len(rows[1])} rows; {size} are stated")
        yield user, rows


def _checked(x: Any, y: Any) -> tuple[NDArray, NDArray]:
    """Pixels and labels of one client."""
    data, target = np.asarray(x, np.float32), np.asarray(y)
    if target.ndim != 1 or target.dtype.kind not in "iu" or data.shape[:1] != target.shape:
        raise ValueError(f"pixels of shape {data.shape} have labels of shape {target.shape}")
    if data.ndim != 2 or not np.all((data >= 0) & (data <= 1)):
        raise ValueError("pixels must be numbers from 0 to 1, one row for each image")
    return data, target.astype(np.int64)


def _stacked(users: dict[str, tuple[NDArray, NDArray]]) -> dict[str, NDArray]:
    """Rows of all clients, sorted by client."""
    names = sorted(user for user, (_, target) in users.items() if len(target))
    if not names:
        raise ValueError("no client has rows")
    data, target = zip(*(users[name] for name in names), strict=True)
    groups = np.repeat(np.array(names), [len(each) for each in target])
    return {"data": np.concatenate(data), "target": np.concatenate(target), "groups": groups}


def _bunch(**arrays: NDArray) -> Bunch:
    """Give arrays to the user, bytes divided by 255."""
    from sklearn.utils import Bunch

    found = dict[str, NDArray]()
    for name, x in arrays.items():
        found[name] = x.astype(np.float32) / 255 if x.dtype == np.uint8 and x.ndim == 2 else x
        if name.startswith("target"):
            found[name] = x.astype(np.int64)
    return Bunch(**found)
