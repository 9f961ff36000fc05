"""Every format in the tool it is for: what that reads is the set of the release."""

import csv
import gc
import sys
import warnings
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

import privset
from privset.errors import ConfigError
from privset.exports import export
from privset.exports.images import folder_names
from privset.release import Release, load


@pytest.fixture
def made(release: Path) -> Release:
    return load(release)


def test_npz_is_read_by_numpy_without_pickle_and_by_privset(made: Release, tmp_path: Path) -> None:
    out = export(made, to="npz", out=tmp_path / "out")
    with np.load(out / "set.npz", allow_pickle=False) as data:
        arrays = dict(data)
    assert arrays["x"].dtype == np.uint8
    assert arrays["y"].dtype == np.int64
    assert arrays["classes"].tolist() == list(made.set.facts.classes)
    assert str(arrays["statement"]) == made.certificate.statement
    assert ("normalised" in arrays) == (made.set.pixel_form != "8-bit")
    if "normalised" in arrays:
        assert np.array_equal(arrays["normalised"], made.set.images.numpy())
    back = privset.load_data(out / "set.npz")
    assert torch.equal(back.train.images, made.set.pixels())
    assert torch.equal(back.train.labels, made.set.labels)
    assert back.facts.classes == made.set.facts.classes


def test_torch_opens_without_running_code(made: Release, tmp_path: Path) -> None:
    out = export(made, to="torch", out=tmp_path / "out")
    data = torch.load(out / "set.pt", weights_only=True)
    assert torch.equal(data["images"], made.set.images)
    assert torch.equal(data["labels"], made.set.labels)
    assert data["classes"] == list(made.set.facts.classes)
    assert data["private"] is made.certificate.guarantee.private
    assert data["statement"] == made.certificate.statement


def test_png_folders_have_every_pixel_and_the_labels(made: Release, tmp_path: Path) -> None:
    out = export(made, to="png", out=tmp_path / "out")
    with open(out / "metadata.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["label"]) for row in rows] == made.set.labels.tolist()
    assert [row["class"] for row in rows] == [made.set.facts.classes[label] for label in made.set.labels.tolist()]
    for row, pixels in zip(rows, made.set.pixels().numpy(), strict=True):
        with Image.open(out / row["file_name"]) as image:
            found = np.asarray(image)
        assert np.array_equal(found, pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    back = privset.load_data(out)
    assert len(back.train) == len(made.set)
    assert len(back.facts.classes) == len(made.set.facts.classes)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (("cat", "dog 2"), ["cat", "dog 2"]),
        (("../x", "y"), ["0-..-x", "1-y"]),
        (("train", "y"), ["0-train", "1-y"]),
        (("A", "a"), ["0-A", "1-a"]),
        ((".hidden", "y"), ["0-.hidden", "1-y"]),
        (("été", "x" * 300), ["0-été", "1-" + "x" * 100]),
        (tuple(f"/{k}" for k in range(11)), [f"{k:02}--{k}" for k in range(11)]),
    ],
)
def test_class_names_become_folders_that_every_system_can_have(classes: tuple[str, ...], expected: list[str]) -> None:
    assert folder_names(classes) == expected


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    return {"split": "train", "cache_dir": str(tmp_path / "cache")}


def test_parquet_is_what_hugging_face_loads(made: Release, tmp_path: Path, offline: dict[str, Any]) -> None:
    out = export(made, to="parquet", out=tmp_path / "out")
    data: Any = datasets.load_dataset(str(out), **offline)
    assert data.features["label"].names == list(made.set.facts.classes)
    assert isinstance(data.features["image"], datasets.Image)
    assert data["label"][:] == made.set.labels.tolist()
    pixels = np.stack([np.asarray(row["image"]) for row in data])
    expected = made.set.pixels().numpy()
    assert np.array_equal(pixels, expected[:, 0] if expected.shape[1] == 1 else expected.transpose(0, 2, 3, 1))
    back = privset.load_data(out)
    assert torch.equal(back.train.images, made.set.pixels())
    assert back.facts.classes == made.set.facts.classes


def test_the_card_of_parquet_is_a_dataset_card(made: Release, tmp_path: Path) -> None:
    from huggingface_hub import DatasetCard

    out = export(made, to="parquet", out=tmp_path / "out")
    data = DatasetCard.load(out / "README.md").data.to_dict()
    assert data["pretty_name"] == f"Synthetic images in place of {made.set.facts.name}"
    assert data["task_categories"] == ["image-classification"]
    assert "license" not in data
    names = data["dataset_info"]["features"][1]["dtype"]["class_label"]["names"]
    assert names == {str(label): name for label, name in enumerate(made.set.facts.classes)}


def test_png_folders_are_loaded_by_hugging_face_too(
    releases: dict[str, Path], tmp_path: Path, offline: dict[str, Any]
) -> None:
    out = export(releases["colour"], to="png", out=tmp_path / "out")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves metadata.csv open
        data: Any = datasets.load_dataset(str(out), **offline)
        gc.collect()
    assert data["label"][:] == load(releases["colour"]).set.labels.tolist()


def test_parquet_without_pyarrow_says_what_to_install(
    releases: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'privset\[hub\]'"):
        export(releases["private"], to="parquet", out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
