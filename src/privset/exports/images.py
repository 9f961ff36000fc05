"""PNG files in folders named after their classes, and a table of their labels."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image

from privset.exports import croissant
from privset.observer import Observer
from privset.release import Release

METADATA = "metadata.csv"

_TAKEN = {"train", "test", "val", "valid", "validation", "dev", "con", "prn", "aux", "nul"}
"""Names that tools, or a system, take for something else than a class."""
_LONGEST = 100


def files(release: Release, observer: Observer) -> Iterator[tuple[str, bytes]]:
    """``CLASS/LABEL-NUMBER.png`` for each image, `METADATA` with path, label and class, and a croissant.json."""
    facts = release.set.facts
    folders, digits = folder_names(facts.classes), len(str(len(facts.classes) - 1))
    rows = [("file_name", "label", "class")]
    observer.phase("writing images", len(release.set))
    for number, (content, label) in enumerate(zip(encoded(release), release.set.labels.tolist(), strict=True)):
        name = f"{folders[label]}/{label:0{digits}}-{number:05}.png"
        rows.append((name, str(label), facts.classes[label]))
        yield name, content
        observer.step()
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    yield METADATA, text.getvalue().encode()
    yield croissant.FILE, croissant.to_bytes(croissant.of_images(release.certificate, r"^(\d+)-\d+\.png$"))


def encoded(release: Release) -> Iterator[bytes]:
    """Each image of the set as a PNG file: 8-bit, grey or RGB, the same bytes for the same pixels."""
    for pixels in release.set.pixels().numpy():
        picture = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
        file = io.BytesIO()
        picture.save(file, format="PNG")
        yield file.getvalue()


def folder_names(classes: Sequence[str]) -> list[str]:
    """A folder name for each class: its own name, or, if any of them would not do, its label and what is left of it.

    >>> folder_names(["cat", "dog"]), folder_names(["a/b", "..", "A", "a"])
    (['cat', 'dog'], ['0-a-b', '1-..', '2-A', '3-a'])
    """
    if all(map(_is_safe, classes)) and len({name.casefold() for name in classes}) == len(classes):
        return list(classes)
    digits = len(str(len(classes) - 1))
    cleaned = (re.sub(r"[^\w. ()+-]", "-", name)[:_LONGEST].rstrip(". ") or ".." for name in classes)
    return [f"{label:0{digits}}-{name}" for label, name in enumerate(cleaned)]


def _is_safe(name: str) -> bool:
    fits = re.fullmatch(r"\w[\w. ()+-]*", name) and not name.endswith((".", " ")) and len(name) <= _LONGEST
    return bool(fits) and name.casefold() not in _TAKEN
