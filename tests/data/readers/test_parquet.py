from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from privset.data import facts_of, load
from privset.data.readers.parquet import files_in
from privset.errors import DataError

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def _png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def _write(path: Path, images: list[bytes | None], labels: list[Any], names: list[str] | None = None) -> Path:
    rows = [{"bytes": image, "path": "a.png"} for image in images]
    table = pa.table({"image": pa.array(rows, IMAGE), "label": pa.array(labels)})
    if names:
        features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


@pytest.fixture
def pngs(pixels: np.ndarray) -> list[bytes | None]:
    return [_png(image) for image in pixels]


@pytest.mark.parametrize("options", [{}, {"size": 8}, {"channels": 1}, {"test_fraction": 0.34}])
def test_single_file(tmp_path: Path, pngs: list[bytes | None], pixels: np.ndarray, options: dict[str, Any]) -> None:
    path = _write(tmp_path / "pets.parquet", pngs, [0, 1] * 3)
    data = load(path, **options)
    assert data.facts == facts_of(path, **options)
    assert data.facts.classes == ("0", "1")
    assert data.facts.name == "pets.parquet"
    np.savez(tmp_path / "own.npz", x=pixels, y=[0, 1] * 3)
    assert torch.equal(data.train.images, load(tmp_path / "own.npz", **options).train.images)


@pytest.mark.parametrize("layout", ["{split}-00000-of-00001.parquet", "data/{split}.parquet", "{split}/0.parquet"])
def test_splits_by_name(tmp_path: Path, pngs: list[bytes | None], layout: str) -> None:
    root = tmp_path / "pets"
    for split, count in (("train", 4), ("test", 2), ("validation", 1)):
        _write(root / layout.format(split=split), pngs[:count], ([0, 1] * 3)[:count], ["cat", "dog"])
    data = load(root)
    assert data.facts == facts_of(root)
    assert data.facts.classes == ("cat", "dog")
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (4, 2)


def test_shards_in_order(tmp_path: Path, pngs: list[bytes | None]) -> None:
    _write(tmp_path / "b.parquet", pngs[:2], [1, 0])
    _write(tmp_path / "a.parquet", pngs[:3], [0, 1, 1])
    assert [file.name for file in files_in(tmp_path)] == ["a.parquet", "b.parquet"]
    assert load(tmp_path).train.labels.tolist() == [0, 1, 1, 1, 0]


def test_without_pyarrow(tmp_path: Path, pngs: list[bytes | None], monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(tmp_path / "pets.parquet", pngs, [0, 1] * 3)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(DataError, match=r"pets.parquet: .*pip install 'privset\[hub\]'"):
        load(path)


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        ([0, 1, None, 0, 1, 0], None, r"label\[2\] is missing"),
        ([0, 1, -1, 0, 1, 0], None, r"label\[2\] is -1"),
        ([0, 2] * 3, None, "none that is 1.*ClassLabel"),
        ([0, 2] * 3, ["cat", "dog"], r"label\[1\] is 2, but 2 classes are named"),
        ([0.0, 1.0] * 3, None, "label is double|label is float64"),
        (["cat", "dog"] * 3, None, "labels must be whole numbers"),
        ([0] * 6, None, r"found 1 class\(es\)"),
        ([0, 1] * 3, ["cat", "cat"], "'cat' is given twice"),
    ],
)
def test_bad_labels(
    tmp_path: Path, pngs: list[bytes | None], labels: list[Any], names: list[str] | None, message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(_write(tmp_path / "pets.parquet", pngs, labels, names))
    assert "pets.parquet" in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (None, r"pets.parquet: image\[1\] has no bytes"),
        (b"", r"image\[1\]: the file is empty"),
        (b"hello", r"image\[1\]: not a readable PNG or JPEG"),
        (_png(np.zeros((20, 20), np.uint8)), r"image\[1\] is 20x20 but .*image\[0\] is 12x10; give a size"),
    ],
)
def test_bad_images(tmp_path: Path, pngs: list[bytes | None], bad: bytes | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(_write(tmp_path / "pets.parquet", [pngs[0], bad], [0, 1]))


def test_bad_columns(tmp_path: Path) -> None:
    path = tmp_path / "pets.parquet"
    pq.write_table(pa.table({"img": [1], "label": [0]}), path)
    with pytest.raises(DataError, match=r"has no column 'image' \(it has img, label\)"):
        load(path)
    pq.write_table(pa.table({"image": [1], "label": [0]}), path)
    with pytest.raises(DataError, match=r"column 'image' is int64; it must be a struct"):
        load(path)
    pq.write_table(pa.table({"image": pa.array([], IMAGE), "label": pa.array([], pa.int64())}), path)
    with pytest.raises(DataError, match=r"pets.parquet: holds no rows"):
        load(path)


def test_not_parquet(tmp_path: Path, pngs: list[bytes | None]) -> None:
    path = _write(tmp_path / "pets.parquet", pngs, [0, 1] * 3)
    for content in (b"", b"hello", path.read_bytes()[:-20]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"pets.parquet: not a readable parquet file"):
            load(path)


def test_damaged_pages(tmp_path: Path, pngs: list[bytes | None]) -> None:
    path = _write(tmp_path / "pets.parquet", pngs, [0, 1] * 3)
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"pets.parquet"):
        load(path)


def test_bad_folders(tmp_path: Path, pngs: list[bytes | None]) -> None:
    labels = [0, 1] * 3
    _write(tmp_path / "one" / "test.parquet", pngs, labels)
    with pytest.raises(DataError, match=r"one: has a test split but no train"):
        load(tmp_path / "one")
    _write(tmp_path / "two" / "train.parquet", pngs, labels)
    _write(tmp_path / "two" / "more.parquet", pngs, labels)
    with pytest.raises(DataError, match=r"more.parquet: neither train nor test"):
        load(tmp_path / "two")
    _write(tmp_path / "three" / "a.parquet", pngs, labels)
    (tmp_path / "three" / "b.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"b.png: an image beside parquet files"):
        load(tmp_path / "three")
    _write(tmp_path / "four" / "validation.parquet", pngs, labels)
    with pytest.raises(DataError, match=r"four: holds no train"):
        load(tmp_path / "four")
