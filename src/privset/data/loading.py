"""From what the user typed to records and public facts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from privset.data.labels import check_unseen
from privset.data.named import catalogue
from privset.data.named.publications import NamedSource
from privset.data.options import ReadingOptions, per_channel
from privset.data.outline import Source
from privset.data.partitions import split
from privset.data.readers import FORMATS, source_of
from privset.data.records import Dataset
from privset.errors import ConfigError, DataError, did_you_mean
from privset.facts import PublicFacts
from privset.observer import Observer


def load(
    data: str | Path,
    *,
    data_dir: str | Path | None = None,
    size: int | None = None,
    channels: int | None = None,
    test_fraction: float = 0.0,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    observer: Observer | None = None,
) -> Dataset:
    """Read a named set, or a user's own folder, ``.npz`` or parquet.

    Args:
        data: A name of the catalogue, or a path. A string that is a name is never taken for a path: write
            ``./mnist`` for a folder of that name.
        data_dir: Where a named set is looked for first.
        size: Resize images to ``size`` x ``size``, antialiased.
        channels: 1 for greyscale, 3 for colour.
        test_fraction: Hold out this share of data that comes without a test split.
        mean: Normalisation mean; a published constant for named sets and 0.5 otherwise.
        std: Normalisation standard deviation, likewise.
        observer: Told about progress.

    Raises:
        DataError: Something is wrong with the data; the message names the file and says what to do.
        ConfigError: The options make no sense together.

    >>> load("digits").train
    Records(1438 images 1x8x8)
    """
    observer = observer or Observer()
    options = ReadingOptions(
        size=size,
        channels=channels,
        test_fraction=test_fraction,
        mean=per_channel(mean),
        std=per_channel(std),
    )
    source = _source(data, data_dir, options)
    facts = source.outline(observer).facts(options)
    train, test = source.read(facts, observer)
    if test_fraction:
        train, test = split(train, test_fraction)
    if test is not None:
        check_unseen(train.labels, test.labels, facts.classes, str(data))
    named = {"data": data} if isinstance(data, str) and data in catalogue.SETS else {}
    return Dataset(facts, train, test, named | options.chosen)


def facts_of(
    data: str | Path,
    *,
    data_dir: str | Path | None = None,
    size: int | None = None,
    channels: int | None = None,
    test_fraction: float = 0.0,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    observer: Observer | None = None,
) -> PublicFacts:
    """The public facts that `load` would give with the same arguments, without reading a record.

    A named set needs no data at all. A folder is listed, and the headers of its images are read unless size
    and channels are both given. Of an ``.npz`` the array headers are read, and the names in ``classes``;
    where it has none, the labels are read to count the classes. Of parquet the metadata and image headers
    are read, and the labels where the metadata names no classes. No pixel is ever decoded.

    >>> facts_of("fashion-mnist").size
    60000
    """
    options = ReadingOptions(
        size=size,
        channels=channels,
        test_fraction=test_fraction,
        mean=per_channel(mean),
        std=per_channel(std),
    )
    return _source(data, data_dir, options).outline(observer or Observer()).facts(options)


def is_built_in(data: str) -> bool:
    """Whether a data set comes with privset, so that no folder is looked into.

    >>> is_built_in("digits"), is_built_in("mnist")
    (True, False)
    """
    return data in catalogue.SETS and catalogue.named(data).form == "bundled"


def _source(data: str | Path, data_dir: str | Path | None, options: ReadingOptions) -> Source:
    if isinstance(data, str) and data in catalogue.SETS:
        entry = catalogue.named(data)
        if data_dir is not None and is_built_in(data):
            raise ConfigError(f"{data} is built in and not looked for; leave out data-dir")
        return NamedSource(named=entry, data_dir=None if data_dir is None else Path(data_dir))
    path = Path(data).expanduser()
    if not path.exists():
        raise DataError(_unknown(str(data)))
    if data_dir is not None:
        raise ConfigError(f"data-dir is where named data sets are looked for; {data} is a path: leave data-dir out")
    return source_of(path, options)


def _unknown(data: str) -> str:
    names = ", ".join(catalogue.SETS)
    hint = "" if os.sep in data else did_you_mean(data, catalogue.SETS)
    return (
        f"{data!r} is neither a named data set nor a file or folder.{hint} The names are {names}; a path is "
        f"to {FORMATS}"
    )
