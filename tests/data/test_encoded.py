from __future__ import annotations

import io
import struct
import warnings
import zlib
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image

from privset.data.encoded import Encoded, survey
from privset.data.options import ReadingOptions
from privset.errors import DataError
from privset.observer import Observer


def _encode(image: Image.Image, kind: str = "PNG", **options: object) -> Encoded:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return Encoded(name="dir/file", content=buffer.getvalue())


def _bomb(side: int) -> bytes:
    """A PNG whose header promises ``side`` x ``side`` pixels; the pixels themselves are not there."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("mode", "channels"),
    [("1", 1), ("L", 1), ("LA", 1), ("P", 3), ("RGB", 3), ("RGBA", 3)],
)
def test_every_eight_bit_mode_is_read(mode: str, channels: int) -> None:
    item = _encode(Image.new("RGB", (10, 12), (255, 255, 255)).convert(mode))
    assert item.form() == (channels, 12, 10)
    for wanted in (1, 3):
        assert torch.equal(item.pixels(wanted), torch.full((1, wanted, 12, 10), 255, dtype=torch.uint8))


def test_palette_with_transparency_makes_no_noise() -> None:
    image = Image.new("P", (8, 8))
    image.putpalette([200, 10, 10] * 4)
    assert _encode(image, transparency=b"\x00\x10").pixels(3)[0, :, 0, 0].tolist() == [200, 10, 10]


def test_cmyk_jpeg_is_read() -> None:
    item = _encode(Image.new("CMYK", (8, 8)), "JPEG")
    assert item.form() == (3, 8, 8)
    assert int(item.pixels(1).min()) > 250


def test_jpeg_is_turned_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    item = _encode(Image.new("L", (20, 10)), "JPEG", exif=exif)
    assert item.form() == (1, 20, 10)
    assert item.pixels(1).shape == (1, 1, 20, 10)


def test_deep_pixels_are_refused() -> None:
    item = _encode(Image.fromarray(np.zeros((8, 8), np.uint16)))
    with pytest.raises(DataError, match=r"dir/file: pixels have mode 'I;16'.*convert the image to 8 bits"):
        item.form()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"dir/file: the file is empty \(0 bytes\)"),
        (b"hello", "dir/file: not a readable PNG or JPEG image"),
        (b"GIF89a" + bytes(100), "not a readable PNG or JPEG image"),
        (b"\x89PNG\r\n\x1a\n", "not a readable PNG or JPEG image"),
    ],
)
def test_what_is_no_image_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Encoded(name="dir/file", content=content).form()


def test_an_image_that_may_not_be_read_is_not_said_to_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Image, "open", forbidden)
    with pytest.raises(DataError, match=r"dir/file: cannot be read \(Permission denied\); make it readable"):
        Encoded(name="dir/file", content=b"any").form()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_truncated_image_is_refused(kind: str, pixels: np.ndarray) -> None:
    whole = _encode(Image.fromarray(pixels.reshape(72, 10, 3)), kind).content
    assert isinstance(whole, bytes)
    with pytest.raises(DataError, match=r"dir/file: not a readable PNG or JPEG image .*; mend or remove it"):
        Encoded(name="dir/file", content=whole[: len(whole) * 2 // 3]).pixels(3)


@pytest.mark.parametrize("side", [9000, 10000, 60000])
@pytest.mark.parametrize("action", ["ignore", "error"])
def test_decompression_bomb_is_refused(side: int, action: Literal["ignore", "error"]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        with pytest.raises(DataError, match=r"dir/file: .* decompression bomb"):
            Encoded(name="dir/file", content=_bomb(side)).form()


def test_survey_opens_nothing_where_the_form_is_given(tmp_path: Path) -> None:
    options = ReadingOptions(size=16, channels=1)
    absent = Encoded(name="absent", content=tmp_path / "absent.png")
    assert survey([absent], 1, options, Observer()) == (1, 16, 16)
