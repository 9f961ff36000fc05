"""PNG and JPEG images: their headers, their pixels, and many of them at once."""

from __future__ import annotations

import dataclasses
import io
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from privset.data.options import ReadingOptions
from privset.data.pixels import fit
from privset.errors import DataError
from privset.facts import PublicFacts
from privset.observer import Observer

SUFFIXES = (".png", ".jpg", ".jpeg")

# A few kilobytes of PNG can unpack to gigabytes. No data set for small synthetic images needs more than this.
_MOST_PIXELS = 64 * 2**20
_GREY_MODES = ("1", "L", "LA")
_EIGHT_BIT_MODES = (*_GREY_MODES, "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")
_ORIENTATION = 0x0112
_BLOCK = 512
_NAMED = 5

_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoded:
    """One image file that has not been decoded: its name for messages, and where its bytes are."""

    name: str
    content: Path | bytes

    def open(self) -> Image.Image:
        """The image with its header read and nothing else.

        Raises:
            DataError: Empty, not PNG or JPEG, too large, or deeper than 8 bits.
        """
        file = self.content if isinstance(self.content, Path) else io.BytesIO(self.content)
        try:
            if self._empty():
                raise DataError(f"{self.name}: the file is empty (0 bytes); replace or remove it")
            image = Image.open(file, formats=("PNG", "JPEG"))
        except DataError:
            raise
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise DataError(f"{self.name}: {_TOO_LARGE}") from error
        # Pillow's decoders answer damaged input with OSError, SyntaxError, struct.error, IndexError and more.
        except Exception as error:
            raise self._unreadable(error) from error
        if image.width * image.height > _MOST_PIXELS:
            image.close()
            raise DataError(f"{self.name}: {_TOO_LARGE}")
        if image.mode not in _EIGHT_BIT_MODES:
            image.close()
            raise DataError(f"{self.name}: pixels have mode {image.mode!r}; convert the image to 8 bits a channel")
        return image

    def form(self) -> tuple[int, int, int]:
        """(channels it needs, height, width), from the header alone."""
        with self.open() as image:
            width, height = image.size
            try:
                # Only JPEG: Pillow would decode a whole PNG to look for orientation behind its pixels.
                if image.format != "PNG" and image.getexif().get(_ORIENTATION, 1) >= 5:
                    width, height = height, width
            except Exception as error:
                raise self._unreadable(error) from error
            return (1 if image.mode in _GREY_MODES else 3), height, width

    def pixels(self, channels: int) -> Tensor:
        """8-bit ``[1, channels, h, w]``; transparency is dropped, as the usual image folders do."""
        with self.open() as image:
            try:
                upright = image if image.format == "PNG" else ImageOps.exif_transpose(image)
                if upright.mode in ("P", "PA"):
                    upright = upright.convert("RGBA")
                if channels == 1 and upright.mode not in (*_GREY_MODES, "RGB"):
                    upright = upright.convert("RGB")
                array = np.array(upright.convert("L" if channels == 1 else "RGB"))
            except Exception as error:
                raise self._unreadable(error) from error
        return torch.from_numpy(array).view(1, *array.shape[:2], channels).permute(0, 3, 1, 2).contiguous()

    def _empty(self) -> bool:
        return not (self.content.stat().st_size if isinstance(self.content, Path) else self.content)

    def _unreadable(self, error: Exception) -> DataError:
        if isinstance(error, PermissionError):  # not a word of removing it: it may be a fine record
            return DataError(f"{self.name}: cannot be read ({error.strerror}); make it readable for whoever runs this")
        reason = getattr(error, "strerror", None) or (str(error) or type(error).__name__).splitlines()[0]
        if isinstance(error, Image.UnidentifiedImageError):
            reason = "the content is neither"
        return DataError(f"{self.name}: not a readable PNG or JPEG image ({reason}); mend or remove it")


_TOO_LARGE = f"the image has more than {_MOST_PIXELS} pixels, which is refused as a decompression bomb"


def survey(items: Iterable[Encoded], total: int, options: ReadingOptions, observer: Observer) -> tuple[int, int, int]:
    """(channels, height, width) that ``total`` images will have, from their headers; no pixel is decoded.

    Images must agree in size and in being grey or in colour, unless the caller decides: otherwise a single record
    could change the shape of the release, and so be seen to take part.

    Raises:
        DataError: Images differ, and no size or no number of channels is asked for.
    """
    if options.size is not None and options.channels is not None:
        return options.channels, options.size, options.size
    observer.phase("reading image headers", total)
    kinds = {1: "grey", 3: "in colour"}
    first: tuple[str, int, int, int] | None = None
    for item, (channels, height, width) in _map(Encoded.form, items, observer):
        first = first or (item.name, channels, height, width)
        if options.size is None and (height, width) != first[2:]:
            raise DataError(
                f"{item.name} is {height}x{width} but {first[0]} is {first[2]}x{first[3]}; "
                "give a size (--size) to make all images the same"
            )
        if options.channels is None and channels != first[1]:
            raise DataError(
                f"{item.name} is {kinds[channels]} but {first[0]} is {kinds[first[1]]}; "
                "give the number of channels (--channels 1 or 3) to make all images the same"
            )
    assert first is not None, "sources refuse empty data before they are surveyed"
    return options.channels or first[1], options.size or first[2], options.size or first[3]


def decode(
    items: Iterable[Encoded], total: int, facts: PublicFacts, options: ReadingOptions, observer: Observer
) -> Tensor:
    """8-bit ``[total, channels, height, width]`` from as many image files."""
    images = torch.empty(total, *facts.shape, dtype=torch.uint8)

    def read(item: Encoded) -> Tensor:
        pixels = item.pixels(facts.channels)
        if options.size is None and tuple(pixels.shape[1:]) != facts.shape:
            height, width = pixels.shape[2:]
            raise DataError(f"{item.name} is {height}x{width}, not {facts.height}x{facts.width}; give a size")
        return fit(pixels, *facts.shape)

    observer.phase("reading images", total)
    for index, (_, pixels) in enumerate(_map(read, items, observer)):
        images[index] = pixels[0]
    return images


def _map(
    function: Callable[[Encoded], _Result], items: Iterable[Encoded], observer: Observer
) -> Iterator[tuple[Encoded, _Result]]:
    """``function`` of each item, in order, on a few threads; from a bad one on, only more of them are looked for.

    Raises:
        DataError: At the end, if any were bad: the first of them, and how many there are.
    """

    def attempt(item: Encoded) -> _Result | DataError:
        try:
            return function(item)
        except DataError as error:
            return error

    waiting, bad, count = iter(items), [], 0
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        # In blocks: the pool would otherwise queue every file of a large folder before the first is done.
        while block := list(itertools.islice(waiting, _BLOCK)):
            for item, found in zip(block, pool.map(attempt, block), strict=True):
                if isinstance(found, DataError):
                    count += 1
                    bad += [found] if count <= _NAMED else []  # an error holds on to its image
                elif not bad:
                    yield item, found
            observer.step(len(block))
    if bad:
        raise several(bad, count)


def several(bad: Sequence[DataError], count: int) -> DataError:
    """One error for all that is wrong with ``count`` files: the first few in words.

    >>> print(several([DataError(f"{name}.png: the file is empty") for name in "abcde"], 7))
    7 files cannot be used, of which these are the first:
      a.png: the file is empty
      b.png: the file is empty
      c.png: the file is empty
      d.png: the file is empty
      e.png: the file is empty
    """
    if count == 1:
        return bad[0]
    which = ", of which these are the first" if count > _NAMED else ""
    return DataError("\n  ".join([f"{count:,} files cannot be used{which}:", *map(str, bad[:_NAMED])]))
