"""How the published layer stacks, drawn for 28 and 32 pixels, fit images of other sizes.

All rules work on each axis by itself, so images need not be square, and they reproduce the published
networks exactly at 28x28 and 32x32.
"""

from __future__ import annotations

Size = tuple[int, int]
"""(height, width) in pixels, or the same pair of a kernel, a stride or a padding."""


def extra_padding(size: Size) -> Size:
    """Zeros to add on each side of an image so that its size gets as near to a multiple of 8 as it can.

    The published code pads single-channel images because those were 28 pixels wide; what matters to the
    three poolings that follow is the size, not the channels.

    >>> extra_padding((28, 32))
    (2, 0)
    """
    height, width = size
    return (-height % 8) // 2, (-width % 8) // 2


def plus(size: Size, amount: int | Size) -> Size:
    """``size + amount`` on both axes.

    >>> plus((28, 32), 1), plus((28, 32), (4, 0))
    ((29, 33), (32, 32))
    """
    high, wide = (amount, amount) if isinstance(amount, int) else amount
    return size[0] + high, size[1] + wide


def padded(size: Size, padding: Size) -> Size:
    """The size after ``padding`` zeros on each side.

    >>> padded((28, 32), (2, 0))
    (32, 32)
    """
    return size[0] + 2 * padding[0], size[1] + 2 * padding[1]


def halving(size: Size, least: int) -> Size:
    """The factor, 2 or 1, by which a pooling or a stride may shrink each axis and leave ``least`` pixels.

    A normalisation of each channel over its own pixels maps a single pixel to zero whatever its value, so
    everything before a further norm is asked to leave two; after the last norm one is enough.

    >>> halving((8, 3), least=2)
    (2, 1)
    """
    height, width = size
    return 2 if height // 2 >= least else 1, 2 if width // 2 >= least else 1


def divided(size: Size, factor: Size) -> Size:
    """The size after a pooling by ``factor``, which drops an odd last row or column.

    >>> divided((7, 7), (2, 1))
    (3, 7)
    """
    return size[0] // factor[0], size[1] // factor[1]
