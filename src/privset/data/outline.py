"""What can be said about data before a record of it is read, and the source that says it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from privset.data.options import ReadingOptions, spread
from privset.data.partitions import held_out_count
from privset.data.records import Records
from privset.errors import ConfigError, DataError
from privset.facts import PublicFacts
from privset.observer import Observer

# Half of the range of a pixel in [0, 1]: what is used for data nobody has published constants for. Constants
# measured on private records would have to be paid for.
MIDDLE = (0.5,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outline:
    """Names, counts and image form of a data set, taken from file names, headers and label columns.

    Attributes:
        name: What the data set is called.
        channels: Channels of the images, as stored or as asked for.
        height: Height of the images, as stored or as asked for.
        width: Width of the images, as stored or as asked for.
        classes: Class names in the order of their labels.
        train: Number of records outside the test split that comes with the data.
        test: Number of records of that test split; 0 where there is none.
        mean: Published normalisation mean.
        std: Published normalisation standard deviation.
    """

    name: str
    channels: int
    height: int
    width: int
    classes: tuple[str, ...]
    train: int
    test: int
    mean: tuple[float, ...] = MIDDLE
    std: tuple[float, ...] = MIDDLE

    def held_out(self, options: ReadingOptions) -> int:
        """Number of records that ``options.test_fraction`` takes out of the training records.

        Raises:
            ConfigError: There is a test split already, or the fraction leaves one side empty.
        """
        if options.test_fraction == 0:
            return 0
        if self.test:
            raise ConfigError(f"{self.name}: comes with a test split of {self.test} records; leave out test-fraction")
        return held_out_count(self.train, options.test_fraction)

    def facts(self, options: ReadingOptions) -> PublicFacts:
        """The public facts of this data set once read with ``options``."""
        channels = options.channels or self.channels
        for name, values in (("mean", options.mean), ("std", options.std)):
            if values is not None and len(values) not in (1, channels):
                raise ConfigError(f"{self.name}: {len(values)} values of {name} for {channels} channel(s)")
        return PublicFacts(
            name=self.name,
            channels=channels,
            height=options.size or self.height,
            width=options.size or self.width,
            classes=self.classes,
            size=self.train - self.held_out(options),
            mean=spread(options.mean or self.mean, channels),
            std=spread(options.std or self.std, channels),
        )


class Source(Protocol):
    """One place that labelled images come from."""

    def outline(self, observer: Observer) -> Outline:
        """Describe the data without decoding a pixel."""
        ...

    def read(self, facts: PublicFacts, observer: Observer) -> tuple[Records, Records | None]:
        """The records outside the test split, and the test split or None, in the shape of ``facts``."""
        ...


def check_classes(names: Sequence[str], where: str) -> tuple[str, ...]:
    """Class names as a tuple, refused where two are the same, one is empty, or one cannot be written down.

    >>> check_classes(["cat", "cat"], "pets.npz")
    Traceback (most recent call last):
    privset.errors.DataError: pets.npz: the class name 'cat' is given twice
    """
    seen: set[str] = set()
    for name in names:
        if not name.strip():
            raise DataError(f"{where}: a class name is empty")
        if name in seen:
            raise DataError(f"{where}: the class name {name!r} is given twice")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"{where}: the class name {name!r} is not valid UTF-8; rename it") from error
        seen.add(name)
    return tuple(names)
