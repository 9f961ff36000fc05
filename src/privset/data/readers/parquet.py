"""Parquet files in the Hugging Face image layout: a column of encoded images and a column of labels."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from privset.data.encoded import SUFFIXES, Encoded, decode, survey
from privset.data.labels import check_labels, count_classes
from privset.data.options import ReadingOptions
from privset.data.outline import Outline, check_classes
from privset.data.readers.folder import UNUSED_SPLITS
from privset.data.records import Records
from privset.errors import DataError
from privset.facts import PublicFacts
from privset.observer import Observer

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_SPLIT = re.compile(r"(train|test|" + "|".join(UNUSED_SPLITS) + r")(?:[-_.].*)?", re.IGNORECASE)


def files_in(folder: Path) -> list[Path]:
    """Parquet files of ``folder`` and of its direct subfolders, sorted, hidden ones left out."""
    found = [*folder.glob("*.parquet"), *folder.glob("*/*.parquet")]
    return sorted(file for file in found if not any(part[0] == "." for part in file.relative_to(folder).parts))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParquetSource:
    """A parquet file, or a folder of them: column ``image`` (struct of bytes and path), column ``label``.

    Files named ``train-...`` and ``test-...``, or in folders of that name, are splits; a validation split is
    left out. Class names come from the features that Hugging Face writes into the schema.

    Attributes:
        path: The file or the folder.
        options: How to read it.
    """

    path: Path
    options: ReadingOptions

    def outline(self, observer: Observer) -> Outline:
        """Describe the data: file metadata, image headers unless size and channels are both given.

        The label column is read where the metadata names no classes.
        """
        train, test = self._splits
        counts = [sum(_rows(file) for file in files) for files in (train, test)]
        if not counts[0]:
            raise DataError(f"{train[0]}: holds no rows")
        items = (item for file in (*train, *test) for item in _images(file))
        channels, height, width = survey(items, sum(counts), self.options, observer)
        return Outline(
            name=self.path.resolve().name,
            channels=channels,
            height=height,
            width=width,
            classes=self._classes(),
            train=counts[0],
            test=counts[1],
        )

    def read(self, facts: PublicFacts, observer: Observer) -> tuple[Records, Records | None]:
        """Decode every image of both splits."""
        train, test = self._splits
        has_test = sum(_rows(file) for file in test) > 0
        return self._records(train, facts, observer), self._records(test, facts, observer) if has_test else None

    def _records(self, files: list[Path], facts: PublicFacts, observer: Observer) -> Records:
        labels = np.concatenate([_labels(file, len(facts.classes)) for file in files])
        items = (item for file in files for item in _images(file))
        return Records(decode(items, len(labels), facts, self.options, observer), torch.from_numpy(labels))

    def _classes(self) -> tuple[str, ...]:
        train, _ = self._splits
        names = _declared(train[0])
        if names is not None:
            return check_classes(names, f"{train[0]}: the features of the schema")
        labels = np.concatenate([_labels(file, None) for file in train])
        count = count_classes(labels, f"{self.path}: label", "declare a ClassLabel feature")
        return tuple(str(label) for label in range(count))

    @functools.cached_property
    def _splits(self) -> tuple[list[Path], list[Path]]:
        if self.path.is_file():
            return [self.path], []
        splits: dict[str, list[Path]] = {"": [], "train": [], "test": []}
        for file in files_in(self.path):
            stray = [f for f in sorted(file.parent.iterdir()) if f.suffix.lower() in SUFFIXES]
            if stray:
                raise DataError(f"{stray[0]}: an image beside parquet files; keep one of the two")
            # The file's own name says more than its folder's: data/train-00000-of-00001.parquet.
            parts = (file.name, *file.relative_to(self.path).parts[:-1])
            match = next((m for part in parts if (m := _SPLIT.fullmatch(part))), None)
            splits.setdefault(match[1].lower() if match else "", []).append(file)
        if not splits["train"] and splits["test"]:
            raise DataError(f"{self.path}: has a test split but no train-*.parquet; add it")
        if splits["train"] and splits[""]:
            raise DataError(f"{splits[''][0]}: neither train nor test by its name, beside files that are; rename it")
        train = splits["train"] or splits[""]
        if not train:
            raise DataError(f"{self.path}: holds no train-*.parquet")
        return train, splits["test"]


def _open(file: Path) -> ParquetFile:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise DataError(f"{file}: reading parquet needs pyarrow; pip install 'privset[hub]'") from error
    try:
        opened = ParquetFile(file)
    except (OSError, ArrowException) as error:
        raise DataError(f"{file}: not a readable parquet file ({error}); fetch it again") from error
    names = opened.schema_arrow.names
    for column in ("image", "label"):
        if column not in names:
            raise DataError(f"{file}: has no column {column!r} (it has {', '.join(names)}); rename or add it")
    return opened


def _rows(file: Path) -> int:
    with _open(file) as opened:
        return opened.metadata.num_rows


def _declared(file: Path) -> list[str] | None:
    """Class names in the features that Hugging Face keeps in the schema, or None."""
    with _open(file) as opened:
        metadata = opened.schema_arrow.metadata or {}
    if b"huggingface" not in metadata:
        return None
    try:
        features: Any = json.loads(metadata[b"huggingface"])["info"]["features"]["label"]
        names = features.get("names")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(names, list) or not names:
        return None
    return [str(name) for name in names]


def _labels(file: Path, classes: int | None) -> np.ndarray:
    with _open(file) as opened:
        column = _column(opened, file, "label")
    if column.null_count:
        row = column.is_null().index(True).as_py()
        raise DataError(f"{file}: label[{row}] is missing; leave out the rows without a label")
    return check_labels(column.to_numpy(), f"{file}: label", classes)


def _column(opened: ParquetFile, file: Path, name: str) -> Any:
    from pyarrow import ArrowException

    try:
        return opened.read([name]).column(name)
    except (OSError, ArrowException) as error:
        raise DataError(f"{file}: column {name!r} cannot be read ({error}); fetch the file again") from error


def _images(file: Path) -> Iterator[Encoded]:
    from pyarrow import ArrowException, types

    with _open(file) as opened:
        kind = opened.schema_arrow.field("image").type
        if not types.is_struct(kind) or kind.get_field_index("bytes") < 0:
            raise DataError(f"{file}: column 'image' is {kind}; it must be a struct with bytes and path")
        row = 0
        try:
            for batch in opened.iter_batches(batch_size=256, columns=["image"]):
                for value in batch.column(0).to_pylist():
                    content = value and value["bytes"]
                    if content is None:
                        raise DataError(f"{file}: image[{row}] has no bytes; save the data set with images embedded")
                    yield Encoded(name=f"{file}: image[{row}]", content=content)
                    row += 1
        except (OSError, ArrowException) as error:
            raise DataError(f"{file}: column 'image' cannot be read ({error}); fetch the file again") from error
