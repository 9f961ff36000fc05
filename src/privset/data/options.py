"""The choices a user makes about how data is read; every one of them is public."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from privset.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How to turn whatever is on disk into records of one shape.

    Attributes:
        size: Resize every image to ``size`` x ``size`` pixels; without it images keep their own size.
        channels: 1 for greyscale, 3 for colour; without it, what the images need.
        test_fraction: Hold this share out as a test split, for data that comes without one.
        mean: Normalisation mean, one for each channel or one for all.
        std: Normalisation standard deviation, likewise.

    >>> ReadingOptions(size=4)
    Traceback (most recent call last):
    privset.errors.ConfigError: size must be at least 8, not 4
    """

    size: int | None = None
    channels: int | None = None
    test_fraction: float = 0.0
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 8:
            raise ConfigError(f"size must be at least 8, not {self.size}")
        if self.channels not in (None, 1, 3):
            raise ConfigError(f"channels must be 1 (greyscale) or 3 (colour), not {self.channels}")
        if not 0 <= self.test_fraction < 1:
            raise ConfigError(f"test-fraction must be at least 0 and below 1, not {self.test_fraction}")
        if (self.mean is None) != (self.std is None):
            raise ConfigError("mean and std belong together: give both or neither")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and (len(values) not in (1, 3) or not all(map(math.isfinite, values))):
                raise ConfigError(f"{name} must be one finite number, or one for each channel, not {values}")
        if self.std is not None and min(self.std) <= 0:
            raise ConfigError(f"std must be positive, not {self.std}")

    @property
    def chosen(self) -> dict[str, Any]:
        """The options that are not as they would be by default, by name."""
        given = {field.name: (getattr(self, field.name), field.default) for field in dataclasses.fields(self)}
        return {name: value for name, (value, default) in given.items() if value != default}

    @property
    def fixes_form(self) -> bool:
        """Whether channels, height and width are settled without looking at an image."""
        return self.size is not None and self.channels is not None


def per_channel(value: float | Sequence[float] | None) -> tuple[float, ...] | None:
    """One number or several -> a tuple of floats.

    >>> per_channel(0.5), per_channel([0.1, 0.2, 0.3]), per_channel(None)
    ((0.5,), (0.1, 0.2, 0.3), None)
    """
    if value is None:
        return None
    if isinstance(value, (int, float)):
        return (float(value),)
    return tuple(float(number) for number in value)


def spread(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """Normalisation constants for ``channels`` channels from those for another number of channels.

    Grey pixels copied into three channels keep their constants; colour made grey weighs its constants as
    it weighs its pixels. The second is an approximation of the spread, and a public one.

    >>> spread((0.25,), 3), spread((0.5, 0.5, 0.5), 1)
    ((0.25, 0.25, 0.25), (0.5,))
    """
    if len(values) == channels:
        return values
    if len(values) == 1:
        return values * channels
    red, green, blue = values
    return (round(0.299 * red + 0.587 * green + 0.114 * blue, 6),)
