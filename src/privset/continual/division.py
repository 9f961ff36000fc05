"""Which party has which classes: their order, and how it is divided into stages."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from privset.data import Dataset
from privset.errors import ConfigError

PUBLISHED = (5, 6, 1, 2, 0, 8, 9, 3, 4, 7)
"""Labels of ten classes in the order of the published experiments, whatever the data."""

LEAST = 2
"""Classes of a party: what tells one class from another is what all methods but a few learn, and what none can be
tested on with one class alone."""


def class_order(dataset: Dataset, *, names: Sequence[str] | None = None, seed: int | None = None) -> tuple[str, ...]:
    """All classes of a data set in the order in which they are seen.

    Args:
        dataset: Named sets of ten classes have the published order, others that of their labels.
        names: The order, if it is chosen.
        seed: Of a random order, if that is wanted.

    Raises:
        ConfigError: An order and a seed are given, or the order is not one of all classes.

    >>> from privset.data import load
    >>> class_order(load("digits"))
    ('5', '6', '1', '2', '0', '8', '9', '3', '4', '7')
    """
    classes = dataset.facts.classes
    if names is not None and seed is not None:
        raise ConfigError("give class-order or order-seed, not both")
    if names is not None:
        wrong = {
            "it has no": sorted(set(names) - set(classes)),
            "missing:": sorted(set(classes) - set(names)),
            "named twice:": sorted({name for name in names if names.count(name) > 1}),
        }
        if any(wrong.values()):
            said = "; ".join(f"{what} {', '.join(found)}" for what, found in wrong.items() if found)
            raise ConfigError(f"class-order must name each class of {dataset.facts.name} once ({said})")
        return tuple(names)
    if seed is not None:
        if not 0 <= seed < 2**32:
            raise ConfigError(f"order-seed must be 0 or more, and below 2**32, not {seed}")
        shuffled = torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))
        return tuple(classes[int(label)] for label in shuffled)
    if "data" in dataset.reading and len(classes) == len(PUBLISHED):  # read by a name of the catalogue
        return tuple(classes[label] for label in PUBLISHED)
    return classes


def divide(order: Sequence[str], stages: int) -> tuple[tuple[str, ...], ...]:
    """The classes of each stage: neighbours in the order, as equal in number as can be, more in the first ones.

    Raises:
        ConfigError: There are too few classes for so many stages.

    >>> divide("abcde", 2)
    (('a', 'b', 'c'), ('d', 'e'))
    >>> divide("abc", 3)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    privset.errors.ConfigError: 3 classes cannot be divided into 3 stages: each party needs at least 2 classes, ...
    """
    if stages < 1:
        raise ConfigError(f"stages must be at least 1, not {stages}")
    if len(order) < LEAST * stages:
        raise ConfigError(
            f"{len(order)} classes cannot be divided into {stages} stages: each party needs at least {LEAST} classes, "
            f"because what is learned is what tells them apart; choose at most {len(order) // LEAST} stage(s)"
        )
    each, more = divmod(len(order), stages)
    ends = [each * number + min(number, more) for number in range(stages + 1)]
    return tuple(tuple(order[first:last]) for first, last in itertools.pairwise(ends))
