"""NumPy archives: images ``x`` and labels ``y``, perhaps ``x_test``, ``y_test`` and ``classes``."""

from __future__ import annotations

import dataclasses
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch

from privset.data.labels import check_labels, count_classes
from privset.data.options import ReadingOptions
from privset.data.outline import Outline, check_classes
from privset.data.pixels import channels_first, eight_bit, fit, layout
from privset.data.records import Records
from privset.errors import DataError
from privset.facts import PublicFacts
from privset.observer import Observer

_KNOWN = ("x", "y", "x_test", "y_test", "classes")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArchiveSource:
    """A labelled image set in one ``.npz`` file; pickled objects inside are refused, never loaded.

    Attributes:
        path: The file.
        options: How to read it.
    """

    path: Path
    options: ReadingOptions

    def outline(self, observer: Observer) -> Outline:
        """Describe the archive: headers of the images, and ``classes`` or else the labels themselves."""
        del observer  # headers take no time
        shapes = self._shapes()
        where = f"{self.path}: x"
        _, channels, height, width = layout(shapes["x"], where)
        for images, labels in (("x", "y"), ("x_test", "y_test")):
            if images in shapes and shapes[images][:1] == (0,):
                raise DataError(f"{self.path}: {images} holds no images")
            if images in shapes and shapes[images][:1] != shapes[labels][:1]:
                raise DataError(
                    f"{self.path}: {images} has {shapes[images][0]} images but {labels} has shape "
                    f"{shapes[labels]}; give one label for each image"
                )
        if "x_test" in shapes:
            form = layout(shapes["x_test"], f"{self.path}: x_test")[1:]
            if form != (channels, height, width) and not self.options.fixes_form:
                raise DataError(
                    f"{self.path}: x and x_test differ in shape ({shapes['x']} and {shapes['x_test']}); "
                    "give size and channels to make them the same"
                )
        return Outline(
            name=self.path.name,
            channels=channels,
            height=height,
            width=width,
            classes=self._classes("classes" in shapes),
            train=shapes["x"][0],
            test=shapes["x_test"][0] if "x_test" in shapes else 0,
        )

    def read(self, facts: PublicFacts, observer: Observer) -> tuple[Records, Records | None]:
        """The records of ``x`` and ``y``, and those of ``x_test`` and ``y_test``."""
        names = self._shapes()
        observer.phase("reading images", 1 + ("x_test" in names))
        train = self._records("x", "y", facts)
        observer.step()
        if "x_test" not in names:
            return train, None
        test = self._records("x_test", "y_test", facts)
        observer.step()
        return train, test

    def _records(self, images: str, labels: str, facts: PublicFacts) -> Records:
        pixels = channels_first(eight_bit(self._array(images), f"{self.path}: {images}"), f"{self.path}: {images}")
        checked = check_labels(self._array(labels), f"{self.path}: {labels}", len(facts.classes))
        return Records(fit(pixels, *facts.shape), torch.from_numpy(checked))

    def _classes(self, declared: bool) -> tuple[str, ...]:
        if declared:
            names = self._array("classes")
            if names.ndim != 1 or names.dtype.kind != "U":
                raise DataError(f"{self.path}: classes must be a list of strings, not {names.dtype} {names.shape}")
            return check_classes([str(name) for name in names], f"{self.path}: classes")
        labels = check_labels(self._array("y"), f"{self.path}: y")
        count = count_classes(labels, f"{self.path}: y", "name every class in an array `classes`")
        return tuple(str(label) for label in range(count))

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every array that is used, from the headers alone."""
        shapes: dict[str, tuple[int, ...]] = {}
        try:
            with zipfile.ZipFile(self.path) as archive:
                for info in archive.infolist():
                    name = info.filename.removesuffix(".npy")
                    if name not in _KNOWN:
                        continue
                    with archive.open(info) as file:
                        version = np.lib.format.read_magic(file)
                        one = version == (1, 0)
                        read = np.lib.format.read_array_header_1_0 if one else np.lib.format.read_array_header_2_0
                        shape, _, dtype = read(file)
                        if dtype.hasobject:
                            raise DataError(f"{self.path}: {name} holds pickled objects, which are never loaded")
                        if info.file_size != file.tell() + int(np.prod(shape, dtype=object)) * dtype.itemsize:
                            raise DataError(f"{self.path}: {name} is truncated; write the file again")
                    shapes[name] = shape
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{self.path}: not a readable .npz file ({error}); write it with numpy.savez") from error
        for name, partner in (("x", "y"), ("y", "x"), ("x_test", "y_test"), ("y_test", "x_test")):
            if name not in shapes and (partner in shapes or name in ("x", "y")):
                raise DataError(f"{self.path}: has no array {name!r}; it needs x (images) and y (labels)")
        return shapes

    def _array(self, name: str) -> np.ndarray:
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                return archive[name]
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise DataError(f"{self.path}: {name} cannot be read ({error}); write the file again") from error
