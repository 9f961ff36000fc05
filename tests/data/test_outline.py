from __future__ import annotations

import pytest

from privset.data.options import ReadingOptions
from privset.data.outline import Outline, check_classes
from privset.errors import ConfigError, DataError

PETS = Outline(name="pets", channels=3, height=12, width=10, classes=("cat", "dog"), train=10, test=0)


def test_facts_are_those_of_the_outline() -> None:
    facts = PETS.facts(ReadingOptions())
    assert facts.shape == (3, 12, 10)
    assert (facts.mean, facts.std) == ((0.5,) * 3, (0.5,) * 3)


def test_options_win() -> None:
    options = ReadingOptions(size=8, channels=1, test_fraction=0.3, mean=(0.1,), std=(0.2,))
    facts = PETS.facts(options)
    assert (facts.shape, facts.size, facts.mean, facts.std) == ((1, 8, 8), 7, (0.1,), (0.2,))


def test_constants_must_fit_the_channels() -> None:
    with pytest.raises(ConfigError, match=r"pets: 3 values of mean for 1 channel"):
        PETS.facts(ReadingOptions(channels=1, mean=(0.1, 0.2, 0.3), std=(1.0, 1.0, 1.0)))


@pytest.mark.parametrize("fraction", [0.01, 0.99])
def test_fraction_that_leaves_nothing_is_refused(fraction: float) -> None:
    with pytest.raises(ConfigError, match=r"of 10 records leaves one side empty"):
        PETS.facts(ReadingOptions(test_fraction=fraction))


@pytest.mark.parametrize(
    ("names", "message"),
    [(["a", "a"], "'a' is given twice"), (["a", " "], "is empty"), (["a", "\udcff"], "not valid UTF-8")],
)
def test_bad_class_names_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_classes(names, "pets")
