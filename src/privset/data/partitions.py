"""Public ways to take a set of records apart."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence

import torch

from privset.data.records import Dataset, Records
from privset.errors import ConfigError, DataError


def held_out_count(size: int, fraction: float) -> int:
    """Number of records held out of ``size``; a function of the public size alone.

    >>> held_out_count(10, 0.25)
    2
    """
    count = round(size * fraction)
    if not 0 < count < size:
        raise ConfigError(f"holding out {fraction:g} of {size} records leaves one side empty")
    return count


def split(records: Records, fraction: float, seed: int = 0) -> tuple[Records, Records]:
    """The records kept and the share ``fraction`` held out, each in its old order.

    Every record has a rank of its own, a hash of its pixels and label, and the lowest ranks are held out. For a
    given number held out, one record more therefore changes the kept records by one: neighbours stay neighbours,
    and the guarantee for the records kept is one for all of them. The held-out records themselves are for
    evaluation and get no guarantee.

    >>> records = Records(torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.arange(10))
    >>> split(records, 0.2)
    (Records(8 images 1x8x8), Records(2 images 1x8x8))
    """
    count = held_out_count(len(records), fraction)
    salt = f"privset test split {seed}".encode()
    ranks = [
        hashlib.sha256(salt + int(label).to_bytes(8, "little") + image.numpy().tobytes()).digest()
        for image, label in zip(records.images, records.labels, strict=True)
    ]
    order = sorted(range(len(records)), key=ranks.__getitem__)
    return _take(records, sorted(order[count:])), _take(records, sorted(order[:count]))


def of_classes(dataset: Dataset, names: Sequence[str], *, among: Sequence[str] | None = None) -> Dataset:
    """The part of a data set that has these classes, as someone holds it who has no other.

    A record belongs to the part or not by its own label alone, so one record more changes the part by one record or
    not at all. How many records the part has is public, like the size of any data set here.

    Args:
        dataset: All of it.
        names: The classes of the part.
        among: The classes that its labels are numbered by, if more are named than it has.

    Raises:
        DataError: A class is not in the data, is named twice, or there are no records at all.

    >>> from privset.facts import PublicFacts
    >>> facts = PublicFacts(name="toy", channels=1, height=8, width=8, classes=("a", "b", "c"), size=3, mean=(0.5,),
    ...                     std=(0.5,))
    >>> blank = Records(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 2]))
    >>> of_classes(Dataset(facts, blank, None), ["c", "a"]).train.labels
    tensor([1, 0])
    """
    facts, target = dataset.facts, tuple(among or names)
    train = of_labels(dataset.train, facts.classes, names, among=target)
    test = None if dataset.test is None else of_labels(dataset.test, facts.classes, names, among=target)
    if not len(train):
        raise DataError(f"{facts.name} has no training records of the classes {', '.join(names)}")
    own = dataclasses.replace(facts, classes=target, size=len(train))
    # The name of the whole is not where this part can be read from.
    return Dataset(own, train, test, {name: value for name, value in dataset.reading.items() if name != "data"})


def of_labels(
    records: Records, classes: Sequence[str], names: Sequence[str], *, among: Sequence[str] | None = None
) -> Records:
    """The records of the classes ``names``, in their old order, numbered as in ``among``; by default as in ``names``.

    Args:
        records: Labelled by ``classes``.
        classes: What their labels mean.
        names: The classes that are kept.
        among: What the new labels mean.
    """
    target = tuple(among or names)
    for name in names:
        if name not in classes:
            raise DataError(f"there is no class {name!r}; there are {', '.join(classes)}")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"the class {', '.join(twice)} is named twice; name each once")
    if other := [name for name in names if name not in target]:
        raise DataError(f"the class {', '.join(other)} is not among those named: {', '.join(target)}")
    renamed = torch.full((len(classes),), -1)
    for name in names:
        renamed[list(classes).index(name)] = target.index(name)
    labels = renamed[records.labels]
    return Records(records.images[labels >= 0], labels[labels >= 0])


def shared(some: Records, others: Records) -> int:
    """How many of the first have exactly the pixels of one of the others; of records, so for their holder's eyes.

    >>> blank = Records(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1]))
    >>> shared(blank, Records(blank.images + 1, blank.labels)), shared(blank, blank)
    (0, 2)
    """
    known = set(_fingerprints(others))
    return sum(fingerprint in known for fingerprint in _fingerprints(some))


def _fingerprints(records: Records) -> Iterator[bytes]:
    return (hashlib.blake2b(image.numpy().tobytes(), digest_size=16).digest() for image in records.images)


def _take(records: Records, positions: list[int]) -> Records:
    index = torch.tensor(positions, dtype=torch.int64)
    return Records(records.images[index], records.labels[index])
