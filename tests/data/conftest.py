"""Small data sets on disk, and an environment in which nothing of the real machine is found."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from privset.data.named import catalogue, idx
from privset.data.named.catalogue import NamedFile, NamedSet
from privset.observer import Observer

ImageTree = Callable[..., Path]


@pytest.fixture(autouse=True)
def isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data folder, an empty cache; the real mirrors and the real pip are never asked by a test."""
    monkeypatch.delenv("PRIVSET_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    for name, entry in catalogue.SETS.items():
        cut_off = dataclasses.replace(entry, mirrors=(), wheel=None, system_folders=())
        monkeypatch.setitem(catalogue.SETS, name, cut_off)


class Progress(Observer):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, int]] = []
        self.steps = 0

    def phase(self, name: str, total: int) -> None:
        self.phases.append((name, total))
        self.steps = 0

    def step(self, count: int = 1, **values: float) -> None:
        del values
        self.steps += count


@pytest.fixture
def progress() -> Progress:
    return Progress()


@pytest.fixture
def pixels() -> np.ndarray:
    """Colour images [6, 12, 10, 3]."""
    return np.random.default_rng(0).integers(0, 256, (6, 12, 10, 3), dtype=np.uint8)


@pytest.fixture
def tree(tmp_path: Path) -> ImageTree:
    """Writes images into class folders: ``tree({"cat": [array, ...], "test/dog": [...]})``."""

    def write(classes: dict[str, list[np.ndarray]], name: str = "pets", suffix: str = "png") -> Path:
        root = tmp_path / name
        for folder, images in classes.items():
            (root / folder).mkdir(parents=True)
            for index, image in enumerate(images):
                Image.fromarray(image).save(root / folder / f"{index:03d}.{suffix}")
        return root

    return write


def _named_file(name: str, content: bytes) -> NamedFile:
    return NamedFile(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """A tiny release: the catalogue's entry and the bytes it stands for."""

    named: NamedSet
    contents: dict[str, bytes]

    def write(self, folder: Path) -> Path:
        """Put the unpacked files into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.contents.items():
            (folder / name).write_bytes(content)
        return folder


@pytest.fixture
def tiny_mnist() -> Published:
    """Twenty training and ten test images in the files of MNIST."""
    random = np.random.default_rng(1)
    contents: dict[str, bytes] = {}
    for split, count in (("train", 20), ("t10k", 10)):
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        contents[f"{split}-images-idx3-ubyte"] = idx.build(images)
        contents[f"{split}-labels-idx1-ubyte"] = idx.build((np.arange(count) % 10).astype(np.uint8))
    files = tuple(_named_file(name, content) for name, content in contents.items())
    named = dataclasses.replace(catalogue.SETS["mnist"], files=files, train=20, test=10)
    return Published(named=named, contents=contents)


@pytest.fixture
def tiny_cifar() -> Published:
    """Five training batches and a test batch of ten records each."""
    random = np.random.default_rng(2)
    contents: dict[str, bytes] = {}
    for file in catalogue.SETS["cifar10"].files:
        records = random.integers(0, 256, (10, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(10)
        contents[file.name] = records.tobytes()
    files = tuple(_named_file(name, content) for name, content in contents.items())
    named = dataclasses.replace(catalogue.SETS["cifar10"], files=files, train=50, test=10)
    return Published(named=named, contents=contents)
