"""One .npz for NumPy, which privset reads as data too; nothing in it is pickled."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np

from privset.exports.statement import of_export
from privset.observer import Observer
from privset.release import Release

NAME = "set.npz"


def files(release: Release, observer: Observer) -> Iterator[tuple[str, bytes]]:
    """``x`` uint8 ``[m, h, w]`` or ``[m, h, w, 3]``, ``y`` int64 ``[m]``, ``classes``, and the statement.

    A set of unbounded floats also has ``normalised``, float32 ``[m, c, h, w]``: 8 bits cannot hold it.
    """
    observer.phase("writing arrays", 1)
    facts = release.set.facts
    pixels = release.set.pixels().numpy()
    arrays = {
        "x": pixels[:, 0] if facts.channels == 1 else np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)),
        "y": release.set.labels.numpy(),
        "classes": np.array(facts.classes, dtype=np.str_),
        "mean": np.array(facts.mean),
        "std": np.array(facts.std),
        "statement": np.array(of_export(release.certificate), dtype=np.str_),
    }
    if release.set.pixel_form != "8-bit":
        arrays["normalised"] = release.set.images.numpy()
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type] - its other parameter is a flag
    yield NAME, file.getvalue()
    observer.step()
