from __future__ import annotations

import math
from typing import Any

import pytest

from privset.data.options import ReadingOptions, per_channel, spread
from privset.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 7}, "size must be at least 8, not 7"),
        ({"channels": 2}, "channels must be 1 .* or 3 .*, not 2"),
        ({"test_fraction": 1.0}, "test-fraction must be at least 0 and below 1"),
        ({"test_fraction": -0.1}, "test-fraction must be at least 0"),
        ({"test_fraction": math.nan}, "test-fraction"),
        ({"mean": (0.5,)}, "mean and std belong together"),
        ({"std": (0.5,)}, "mean and std belong together"),
        ({"mean": (0.5,), "std": (0.0,)}, "std must be positive"),
        ({"mean": (math.inf,), "std": (1.0,)}, "mean must be one finite number"),
        ({"mean": (0.5, 0.5), "std": (1.0,)}, "mean must be one finite number, or one for each channel"),
    ],
)
def test_nonsense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ReadingOptions(**settings)


def test_form_is_fixed_by_size_and_channels_together() -> None:
    assert ReadingOptions(size=8, channels=1).fixes_form
    assert not ReadingOptions(size=8).fixes_form


def test_constants() -> None:
    assert per_channel(1) == (1.0,)
    assert spread((0.2, 0.4, 0.6), 3) == (0.2, 0.4, 0.6)
    assert spread((0.2, 0.4, 0.6), 1) == (0.363,)
