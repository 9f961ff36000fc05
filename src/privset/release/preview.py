"""preview.png: one row of images for each class, large enough to be seen, small enough to be mailed."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from privset.release.synthetic import SyntheticSet

FILE = "preview.png"

MOST_COLUMNS = 20
_WIDEST, _HIGHEST = 1600, 2400
_LARGEST_TILE, _SMALLEST_TILE = 64, 8
_GAP = 2
_BACKGROUND = 128  # neither the ink nor the paper of most images


def draw(synthetic: SyntheticSet) -> Image.Image:
    """One row for each class, up to 20 images in it; at most 1600 x 2400 pixels.

    Small images are enlarged by a whole factor without smoothing, so that every pixel of the set is a clean
    square; large ones are shrunk. Should the rows still not fit, only the first classes are shown.
    """
    pixels, labels = synthetic.pixels().numpy(), synthetic.labels.numpy()
    columns = min(MOST_COLUMNS, max(synthetic.per_class))
    rows = min(len(synthetic.facts.classes), _HIGHEST // (_SMALLEST_TILE + _GAP))
    room = min(_LARGEST_TILE, (_WIDEST - _GAP) // columns - _GAP, (_HIGHEST - _GAP) // rows - _GAP)
    width, height = _tile_size(synthetic.facts.width, synthetic.facts.height, room)

    grey = synthetic.facts.channels == 1
    size = (_GAP + columns * (width + _GAP), _GAP + rows * (height + _GAP))
    sheet = Image.new("L" if grey else "RGB", size, _BACKGROUND if grey else (_BACKGROUND,) * 3)
    for row in range(rows):
        for column, index in enumerate(np.flatnonzero(labels == row)[:columns]):
            image = pixels[index]
            tile = Image.fromarray(image[0] if grey else np.ascontiguousarray(image.transpose(1, 2, 0)))
            enlarge = width >= tile.width
            tile = tile.resize((width, height), Image.Resampling.NEAREST if enlarge else Image.Resampling.BOX)
            sheet.paste(tile, (_GAP + column * (width + _GAP), _GAP + row * (height + _GAP)))
    return sheet


def _tile_size(width: int, height: int, room: int) -> tuple[int, int]:
    """(width, height) of one image as drawn: a whole multiple if it fits into the room, else shrunk to it."""
    longer = max(width, height)
    if longer <= room:
        factor = room // longer
        return width * factor, height * factor
    return max(1, width * room // longer), max(1, height * room // longer)


def encode(sheet: Image.Image) -> bytes:
    """The sheet as PNG; without a time stamp, so the same sheet gives the same bytes."""
    file = io.BytesIO()
    sheet.save(file, format="PNG")
    return file.getvalue()


def same_pixels(content: bytes, sheet: Image.Image) -> bool:
    """Whether a PNG file shows the sheet; how another version of Pillow compressed it does not matter."""
    with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
        return image.mode == sheet.mode and image.size == sheet.size and image.tobytes() == sheet.tobytes()
