"""Readers of published files: what was written by the text of a format comes back, or an error."""

import gzip
import json
import os
import pickle
import struct

import numpy as np
import pytest

from ebfed.datasets import read_cifar, read_idx, read_leaf, read_tff

RNG = np.random.default_rng(7)


def images(n, classes):
    return RNG.integers(256, size=(n, 3072), dtype=np.uint8), RNG.integers(classes, size=n)


def write_cifar(folder, classes, form):
    """Batches of 4 images: rows of red, green and blue; labels before them in the binary form."""
    names = [f"data_batch_{k}" for k in range(1, 6)] if classes == 10 else ["train"]
    written = {}
    for name in [*names, "test_batch" if classes == 10 else "test"]:
        data, y = written[name] = images(4, classes)
        if form == "binary":
            coarse = [] if classes == 10 else [7]
            rows = [
                bytes([*coarse, label]) + row.tobytes() for label, row in zip(y, data, strict=True)
            ]
            (folder / f"{name}.bin").write_bytes(b"".join(rows))
            continue
        batch = {b"data": data, b"batch_label": b"of a test", b"filenames": [b"a.png"] * 4}
        batch |= {b"labels": y.tolist()} if classes == 10 else {b"fine_labels": y.tolist()}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return written


@pytest.mark.parametrize("form", ["python", "binary"])
@pytest.mark.parametrize("classes", [10, 100])
def test_cifar(tmp_path, classes, form):
    written = write_cifar(tmp_path, classes, form)
    found = read_cifar(tmp_path, classes=classes, published=False)
    *train, test = written.values()
    for name, parts in {"": train, "_test": [test]}.items():
        pixels = np.concatenate([data for data, _ in parts])
        assert found[f"data{name}"].dtype == np.float32
        np.testing.assert_array_equal(np.round(found[f"data{name}"] * 255), pixels)
        np.testing.assert_array_equal(found[f"target{name}"], np.concatenate([y for _, y in parts]))


@pytest.mark.parametrize("form", ["python", "binary"])
def test_wrong_batches_are_named(tmp_path, form):
    write_cifar(tmp_path, 10, form)
    name = "data_batch_3" + ".bin" * (form == "binary")
    whole = (tmp_path / name).read_bytes()
    for wrong in (whole[:-100], b"", b"not a batch", whole[: len(whole) // 3]):
        (tmp_path / name).write_bytes(wrong)
        with pytest.raises(ValueError, match=f"{name} cannot be read"):
            read_cifar(tmp_path, published=False)
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        read_cifar(tmp_path, published=False)


def test_other_files_than_published_are_refused(tmp_path):
    write_cifar(tmp_path, 10, "python")
    with pytest.raises(ValueError, match=r"data_batch_1 cannot be read: its MD5 is .* published"):
        read_cifar(tmp_path)
    (tmp_path / "binary").mkdir()
    write_cifar(tmp_path / "binary", 100, "binary")
    with pytest.raises(ValueError, match=r"train.bin cannot be read: it has 4 images; .* 50000"):
        read_cifar(tmp_path / "binary", classes=100)
    with pytest.raises(ValueError, match="classes must be 10 or 100; got 20"):
        read_cifar(tmp_path, classes=20)


class Command:
    def __reduce__(self):
        return os.system, ("touch here",)


def test_pickles_run_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_cifar(tmp_path, 10, "python")
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": Command()}))
    with pytest.raises(ValueError, match=r"data_batch_1 cannot be read: it holds .*system"):
        read_cifar(tmp_path, published=False)
    assert not (tmp_path / "here").exists()


def test_labels_out_of_range(tmp_path):
    for name in ("test_batch", *(f"data_batch_{k}" for k in range(1, 6))):
        (tmp_path / f"{name}.bin").write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(ValueError, match=r"data_batch_1.bin cannot be read: labels must be 0 to 9"):
        read_cifar(tmp_path, published=False)


# LEAF -----------------------------------------------------------------------------------------

USERS = {
    part: {name: (RNG.random((n, 784)), RNG.integers(62, size=n)) for name, n in sizes.items()}
    for part, sizes in {
        "train": {"f02": 3, "f01": 2, "f09": 4},
        "test": {"f01": 1, "f09": 2},
    }.items()
}


def shard(users):
    return {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x.tolist(), "y": y.tolist()} for name, (x, y) in users.items()},
    }


def write_leaf(folder, change=lambda content: content):
    for part, users in USERS.items():
        (folder / part).mkdir(exist_ok=True)
        names = list(users)
        for number, some in enumerate((names[:1], names[1:])):
            content = shard({name: users[name] for name in some})
            text = json.dumps(change(content) if (part, number) == ("train", 1) else content)
            (folder / part / f"all_data_{number}_niid_0_keep_0_{part}_9.json").write_text(text)


def expected(part):
    users = sorted(USERS[part])
    data, target = (np.concatenate([USERS[part][name][k] for name in users]) for k in range(2))
    return data, target, np.repeat(users, [len(USERS[part][name][1]) for name in users])


def check_federated(found):
    for part, end in (("train", ""), ("test", "_test")):
        data, target, groups = expected(part)
        np.testing.assert_allclose(found[f"data{end}"], data, rtol=1e-6)
        np.testing.assert_array_equal(found[f"target{end}"], target)
        assert found[f"groups{end}"].tolist() == groups.tolist()


def test_leaf(tmp_path):
    write_leaf(tmp_path)
    check_federated(read_leaf(tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c | {"num_samples": [2, 5]}, "'f09' has 4 rows; 5 are stated"),
        (lambda c: c | {"users": ["f01"]}, "not about the same users"),
        (lambda c: {"users": c["users"]}, "num_samples"),
        (lambda c: [c], "cannot be read"),
        (lambda c: c | {"user_data": c["user_data"] | {"f01": {"x": [[2.0]], "y": [0]}}}, "0 to 1"),
        (lambda c: c | {"user_data": c["user_data"] | {"f01": {"x": [[0.0]], "y": []}}}, "shape"),
    ],
)
def test_wrong_shards_are_named(tmp_path, change, message):
    write_leaf(tmp_path, change)
    with pytest.raises(ValueError, match=rf"all_data_1_niid_0_keep_0_train_9.json.*{message}"):
        read_leaf(tmp_path)


def test_truncated_and_missing_shards(tmp_path):
    write_leaf(tmp_path)
    path = tmp_path / "train" / "all_data_0_niid_0_keep_0_train_9.json"
    path.write_text(path.read_text()[:-9])
    with pytest.raises(ValueError, match=r"all_data_0_niid_0_keep_0_train_9\.json cannot be read"):
        read_leaf(tmp_path)
    path.write_text(json.dumps(shard({"f09": USERS["train"]["f09"]})))
    with pytest.raises(ValueError, match="'f09' is in another file too"):
        read_leaf(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"train has no files \*.json"):
        read_leaf(tmp_path / "train")


# TensorFlow Federated -------------------------------------------------------------------------


def write_tff(folder):
    h5py = pytest.importorskip("h5py")
    paths = []
    for part, users in USERS.items():
        paths.append(folder / f"fed_emnist_{part}.h5")
        with h5py.File(paths[-1], "w") as file:
            for name, (x, y) in users.items():
                client = file.create_group(f"examples/{name}")
                client["pixels"] = x.reshape(-1, 28, 28).astype(np.float32)
                client["label"] = y.astype(np.int32)
    return paths


def test_tff(tmp_path):
    check_federated(read_tff(*write_tff(tmp_path)))


def test_wrong_files_of_tff_are_named(tmp_path):
    train, test = write_tff(tmp_path)
    whole = test.read_bytes()
    for wrong in (whole[:500], b"nothing", b""):
        test.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"fed_emnist_test\.h5 cannot be read"):
            read_tff(train, test)
    with pytest.importorskip("h5py").File(test, "w") as file:
        file["other"] = 1
    with pytest.raises(ValueError, match=r"fed_emnist_test\.h5 cannot be read: it has no group"):
        read_tff(train, test)
    with pytest.raises(FileNotFoundError, match=r"none\.h5"):
        read_tff(train, tmp_path / "none.h5")


# IDX ------------------------------------------------------------------------------------------


def test_idx(tmp_path):
    """By the text of the format: two zeros, the type, the number of axes, sizes, numbers."""
    values = RNG.integers(256, size=(3, 4, 5), dtype=np.uint8)
    content = struct.pack(">HBB3I", 0, 8, 3, 3, 4, 5) + values.tobytes()
    (tmp_path / "plain").write_bytes(content)
    (tmp_path / "packed.gz").write_bytes(gzip.compress(content))
    for name in ("plain", "packed.gz"):
        np.testing.assert_array_equal(read_idx(tmp_path / name), values)
    for name, wrong in {
        "plain": content[:-1],
        "other": b"\x00\x00\x0d\x01" + bytes(8),
        "packed.gz": gzip.compress(content)[:-9],
        "cut.gz": b"\x1f\x8b",
    }.items():
        (tmp_path / name).write_bytes(wrong)
        with pytest.raises(ValueError, match=f"{name} cannot be read"):
            read_idx(tmp_path / name)
