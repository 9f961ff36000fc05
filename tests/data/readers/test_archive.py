from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privset.data import facts_of, load
from privset.errors import ConfigError, DataError

X = np.random.default_rng(0).integers(0, 256, (6, 9, 10, 3), dtype=np.uint8)
Y = np.array([0, 1, 2, 0, 1, 2])


def _save(folder: Path, **arrays: Any) -> Path:
    path = folder / "own.npz"
    np.savez(path, **arrays)
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(
    layout=st.sampled_from(["hw", "hwc", "chw", "hw1"]),
    dtype=st.sampled_from([np.uint8, np.int16, np.int64, np.float32, np.float64]),
    compressed=st.booleans(),
    size=st.sampled_from([None, 8, 13]),
    channels=st.sampled_from([None, 1, 3]),
    test=st.sampled_from(["none", "given", "fraction"]),
)
def test_every_form_is_read_and_foretold(
    tmp_path: Path,
    layout: str,
    dtype: type,
    compressed: bool,
    size: int | None,
    channels: int | None,
    test: str,
) -> None:
    x = {"hw": X[..., 0], "hwc": X, "chw": np.moveaxis(X, 3, 1), "hw1": X[..., :1]}[layout]
    stored = x.astype(dtype) / 255 if np.issubdtype(dtype, np.floating) else x.astype(dtype)
    path = tmp_path / "own.npz"
    extra = {"x_test": stored[:2], "y_test": Y[:2]} if test == "given" else {}
    (np.savez_compressed if compressed else np.savez)(path, x=stored, y=Y, **extra)
    options: dict[str, Any] = {"size": size, "channels": channels}
    options["test_fraction"] = 0.17 if test == "fraction" else 0.0
    data = load(path, **options)
    assert data.facts == facts_of(path, **options)
    assert len(data.train) == (5 if test == "fraction" else 6)
    assert (data.test is None) == (test == "none")
    stored_channels = 3 if layout in ("hwc", "chw") else 1
    if size is None and channels in (None, stored_channels) and test != "fraction":
        assert np.array_equal(data.train.images[0, 0].numpy(), X[0, ..., 0])


def test_classes_are_named_or_numbered(tmp_path: Path) -> None:
    assert load(_save(tmp_path, x=X, y=Y)).facts.classes == ("0", "1", "2")
    named = load(_save(tmp_path, x=X, y=Y, classes=["a", "b", "c", "d"]))
    assert named.facts.classes == ("a", "b", "c", "d")
    assert named.facts.name == "own.npz"
    assert named.train.labels.tolist() == Y.tolist()


def test_facts_read_neither_images_nor_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _save(tmp_path, x=X, y=Y, classes=["a", "b", "c"], unused=Y)
    touched: list[str] = []
    read = np.lib.npyio.NpzFile.__getitem__
    monkeypatch.setattr(
        np.lib.npyio.NpzFile, "__getitem__", lambda self, key: (touched.append(key), read(self, key))[1]
    )
    assert facts_of(path).size == 6
    assert touched == ["classes"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X}, r"own.npz: has no array 'y'"),
        ({"y": Y}, r"own.npz: has no array 'x'"),
        ({"a": Y}, r"has no array 'x'; it needs x \(images\) and y \(labels\)"),
        ({"x": X, "y": Y, "x_test": X}, "has no array 'y_test'"),
        ({"x": X, "y": Y[:5]}, r"x has 6 images but y has shape \(5,\)"),
        ({"x": X, "y": np.array(3)}, "one label for each image"),
        ({"x": X, "y": np.eye(6)}, r"y has shape \(6, 6\)"),
        ({"x": X, "y": Y, "x_test": X, "y_test": Y[:1]}, "x_test has 6 images but y_test"),
        ({"x": X, "y": Y, "x_test": X[:, :8], "y_test": Y}, "x and x_test differ in shape"),
        ({"x": X, "y": Y, "x_test": X[:1], "y_test": [3]}, r"y_test\[0\] is 3, but 3 classes"),
        ({"x": X, "y": Y * 0}, r"found 1 class\(es\); at least two"),
        ({"x": X, "y": Y - 1}, r"y\[0\] is -1"),
        ({"x": X, "y": Y * 2}, "labels up to 4 but none that is 1.*array `classes`"),
        ({"x": X, "y": Y / 2}, "y is float64"),
        ({"x": X, "y": Y, "classes": ["a", "b"]}, r"y\[2\] is 2, but 2 classes are named"),
        ({"x": X, "y": Y, "classes": ["a", "b", "b"]}, "'b' is given twice"),
        ({"x": X, "y": Y, "classes": [1, 2, 3]}, "classes must be a list of strings"),
        ({"x": X[:0], "y": Y[:0]}, "x holds no images"),
        ({"x": X, "y": Y, "x_test": X[:0], "y_test": Y[:0]}, "x_test holds no images"),
        ({"x": X[:, :7], "y": Y}, "images are 7x10; the smallest size is 8x8"),
        ({"x": X / np.float32(255) * np.nan, "y": Y}, r"x\[0\] has NaN"),
        ({"x": X * 1.0, "y": Y}, r"outside \[0, 1\]; divide by 255"),
        ({"x": X.astype(int) * 2, "y": Y}, "outside 0..255"),
        ({"x": X[..., :2], "y": Y}, "is none of"),
        ({"x": np.array([object()] * 6), "y": Y}, "x holds pickled objects, which are never loaded"),
    ],
)
def test_bad_archives_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(_save(tmp_path, **arrays))
    assert "own.npz" in str(caught.value)


def test_class_only_in_test_is_refused(tmp_path: Path) -> None:
    path = _save(tmp_path, x=X, y=[0, 0, 0, 1, 1, 1], x_test=X[:1], y_test=[2], classes=["a", "b", "c"])
    with pytest.raises(DataError, match=r"the test split has class.* 'c' that no training record has"):
        load(path)


def test_not_a_zip(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    for content in (b"", b"hello", _save(tmp_path, x=X, y=Y).read_bytes()[:500]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"own.npz: not a readable .npz file"):
            load(path)


def test_truncated_member(tmp_path: Path) -> None:
    whole = _save(tmp_path, x=X, y=Y)
    cut = tmp_path / "cut.npz"
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(cut, "w") as target:
        target.writestr("x.npy", source.read("x.npy")[:-10])
        target.writestr("y.npy", source.read("y.npy"))
    with pytest.raises(DataError, match=r"cut.npz: x is truncated"):
        facts_of(cut)


def test_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = _save(tmp_path, x=X, y=Y)
    content = bytearray(path.read_bytes())
    content[600] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"own.npz: .*CRC"):
        load(path)


def test_test_fraction_beside_a_test_split_is_refused(tmp_path: Path) -> None:
    path = _save(tmp_path, x=X, y=Y, x_test=X[:2], y_test=Y[:2])
    with pytest.raises(ConfigError, match=r"comes with a test split of 2 records"):
        load(path, test_fraction=0.5)


def test_same_split_every_time(tmp_path: Path) -> None:
    path = _save(tmp_path, x=X, y=Y % 2)
    first, second = load(path, test_fraction=0.34), load(path, test_fraction=0.34)
    assert torch.equal(first.train.images, second.train.images)
