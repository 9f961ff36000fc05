"""The synthetic images by class, each a button that enlarges it. Nothing else is ever drawn: no real image is at hand.

Images are in the page itself, at their own size; the browser enlarges them without smoothing, so that every pixel of
the set is a clean square. Where many or large ones would make the page heavy they are compressed, and the page says so.
"""

from __future__ import annotations

import base64
import dataclasses
import io

import numpy as np
from PIL import Image

from privset.release import SyntheticSet
from privset.report.markup import Markup, join, named, tag

MOST_IMAGES = 500
"""Of one release on a page; beyond, the first of each class stand for the others."""

_FEW = 10
"""Up to so many of a class are drawn larger."""

MOST_CHARACTERS = 1_500_000
"""For the images of one release, as they are written into the page."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoding:
    """A way to write an image into the page.

    Attributes:
        quality: Of lossy compression; None keeps every pixel.
        longest: Side in pixels that larger images are shrunk to.
    """

    quality: int | None = None
    longest: int | None = None

    def uri(self, pixels: np.ndarray) -> str:
        """A ``data:`` address for pixels ``[channels, height, width]``."""
        image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
        if self.longest is not None:
            image.thumbnail((self.longest, self.longest))
        file = io.BytesIO()
        if self.quality is None:
            image.save(file, format="PNG", optimize=True)
        else:
            image.save(file, format="WEBP", quality=self.quality)
        kind = "png" if self.quality is None else "webp"
        return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


LADDER = (Encoding(), Encoding(quality=92), Encoding(quality=80, longest=96), Encoding(quality=60, longest=48))
"""From the best to the smallest; the first that fits is used, and the last in any case."""


def gallery(made: SyntheticSet, label: str) -> Markup:
    """Every class with its images, and a note on whatever is not shown as it is."""
    pixels, labels = made.pixels().numpy(), made.labels.numpy()
    classes = made.facts.classes[:MOST_IMAGES]
    each = max(1, MOST_IMAGES // len(classes))
    chosen = [np.flatnonzero(labels == number)[:each] for number in range(len(classes))]
    encoding, uris = _encode(pixels, [int(index) for indices in chosen for index in indices])
    rows, start = [], 0
    for name, count, indices in zip(classes, made.per_class, chosen, strict=False):
        tiles = [_tile(uri, name, number + 1, count) for number, uri in enumerate(uris[start : start + len(indices)])]
        start += len(indices)
        rows.append(
            tag(
                "div",
                tag("h4", named(name), " ", tag("small", f"{count:,}")),
                tag("ul", tiles, class_="tiles") if tiles else tag("p", "no image of this class", class_="note"),
                class_="class",
            )
        )
    size = "few" if max(map(len, chosen)) <= _FEW else "many"
    grid = tag(
        "div",
        rows,
        class_=f"gallery {size}",
        role="group",
        aria_label=f"Synthetic images, {label}",
        style=f"--ratio: {made.facts.width} / {made.facts.height}",
    )
    return join([grid, tag("p", _note(made, encoding, len(classes), each), class_="note")])


def _encode(pixels: np.ndarray, indices: list[int]) -> tuple[Encoding, list[str]]:
    for encoding in LADDER:
        uris = [encoding.uri(pixels[index]) for index in indices]
        if encoding == LADDER[-1] or sum(map(len, uris)) <= MOST_CHARACTERS:
            return encoding, uris
    raise AssertionError("the last one is used in any case")


def _tile(uri: str, name: str, number: int, count: int) -> Markup:
    what = f"{name}, image {number:,} of {count:,}"
    return tag("li", tag("button", tag("img", src=uri, alt=""), class_="tile", type="button", aria_label=what))


def _note(made: SyntheticSet, encoding: Encoding, classes: int, each: int) -> str:
    sentences = ["Every image here is synthetic; no real image is on this page."]
    if max(made.per_class) > each or classes < len(made.facts.classes):
        among = f"{classes:,} of the {len(made.facts.classes):,}" if classes < len(made.facts.classes) else "the"
        sentences.append(f"Shown: up to {each:,} images of each of {among} classes, of {len(made):,} in all.")
    if made.pixel_form != "8-bit":
        sentences.append("The set holds unbounded floats; here they are cut to what a screen can show.")
    if encoding != LADDER[0]:
        sentences.append("They are compressed to keep this page small; the exact pixels are in set.safetensors.")
    return " ".join(sentences)
