"""Image folders: one subfolder for each class, with or without ``train/`` and ``test/`` around them."""

from __future__ import annotations

import dataclasses
import functools
import os
from pathlib import Path

import torch

from privset.data.encoded import SUFFIXES, Encoded, decode, several, survey
from privset.data.options import ReadingOptions
from privset.data.outline import Outline, check_classes
from privset.data.records import Records
from privset.errors import DataError
from privset.facts import PublicFacts
from privset.observer import Observer

# Left behind by file managers; nobody put them there on purpose.
_LITTER = ("thumbs.db", "desktop.ini", "__macosx")
UNUSED_SPLITS = ("val", "valid", "validation", "dev")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderSource:
    """PNG and JPEG files in class-named folders, in the order of their sorted names.

    A folder named ``train`` makes its siblings splits: ``test`` is the test split, a validation split is
    left out. Without one, every subfolder is a class.

    Attributes:
        path: The folder.
        options: How to read it.
    """

    path: Path
    options: ReadingOptions

    def outline(self, observer: Observer) -> Outline:
        """Describe the folder: file names, and image headers unless size and channels are both given."""
        train, test = self._splits
        items = _items(train) + (_items(test) if test else [])
        channels, height, width = survey(items, len(items), self.options, observer)
        return Outline(
            name=self.path.resolve().name,
            channels=channels,
            height=height,
            width=width,
            classes=check_classes(list(train), str(self.path)),
            train=len(_items(train)),
            test=len(_items(test)) if test else 0,
        )

    def read(self, facts: PublicFacts, observer: Observer) -> tuple[Records, Records | None]:
        """Decode every image of both splits."""
        train, test = self._splits
        return self._records(train, facts, observer), self._records(test, facts, observer) if test else None

    def _records(self, split: dict[str, list[Path]], facts: PublicFacts, observer: Observer) -> Records:
        items = _items(split)
        labels = [facts.classes.index(name) for name, files in split.items() for _ in files]
        return Records(decode(items, len(items), facts, self.options, observer), torch.tensor(labels))

    @functools.cached_property
    def _splits(self) -> tuple[dict[str, list[Path]], dict[str, list[Path]] | None]:
        """Class name -> its files, for the training images and for the test images."""
        names = [folder.name for folder in _subfolders(self.path)]
        if "train" not in names:
            return _training_classes(self.path), None
        strangers = sorted(set(names) - {"train", "test", *UNUSED_SPLITS})
        if strangers:
            raise DataError(
                f"{self.path / strangers[0]}: stands beside train/, so it is not a class; move it into "
                "train/ if it is one, or away if not"
            )
        train = _training_classes(self.path / "train")
        if "test" not in names:
            return train, None
        test = _classes(self.path / "test")
        unseen = sorted(set(test) - set(train))
        if unseen:
            raise DataError(
                f"{self.path / 'test' / unseen[0]}: a class of test/ that train/ does not have; add training "
                "images of it, or remove it"
            )
        return train, test


def _items(split: dict[str, list[Path]]) -> list[Encoded]:
    return [Encoded(name=str(file), content=file) for files in split.values() for file in files]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in ``folder``, sorted by name, without hidden files and litter."""
    try:
        with os.scandir(folder) as entries:
            kept = [e for e in entries if not e.name.startswith(".") and e.name.lower() not in _LITTER]
    except OSError as error:
        raise DataError(f"{folder}: cannot be listed ({error.strerror})") from error
    return sorted(kept, key=lambda entry: entry.name)


def _subfolders(folder: Path) -> list[Path]:
    entries = _entries(folder)
    folders = [folder / entry.name for entry in entries if entry.is_dir()]
    images = [entry.name for entry in entries if entry.is_file() and entry.name.lower().endswith(SUFFIXES)]
    if images:
        raise DataError(
            f"{folder / images[0]}: an image outside a class folder has no label; put every image into a "
            "subfolder named after its class"
        )
    if not folders:
        raise DataError(
            f"{folder}: the folder holds no class folders; put the PNG or JPEG images of each class into a "
            "subfolder named after the class"
        )
    return folders


def _training_classes(root: Path) -> dict[str, list[Path]]:
    classes = _classes(root)
    if len(classes) < 2:
        raise DataError(f"{root}: found one class, {next(iter(classes))!r}; at least two class folders are needed")
    return classes


def _classes(root: Path) -> dict[str, list[Path]]:
    return {folder.name: _images(folder) for folder in _subfolders(root)}


def _images(folder: Path) -> list[Path]:
    files: list[Path] = []
    others: list[DataError] = []
    for entry in _entries(folder):
        path = folder / entry.name
        if entry.is_dir():
            raise DataError(
                f"{path}: a folder inside the class folder {folder.name!r}; only images belong there (splits "
                "are named train and test)"
            )
        if not entry.name.lower().endswith(SUFFIXES):
            others.append(DataError(f"{path}: not a PNG or JPEG file; remove it, or convert it if it is an image"))
        files.append(path)
    if others:
        raise several(others, len(others))
    if not files:
        raise DataError(f"{folder}: the class folder is empty; add images or remove it")
    return files
