from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privset.data.partitions import held_out_count, of_classes, of_labels, split
from privset.data.records import Dataset, Records
from privset.errors import ConfigError, DataError
from privset.facts import PublicFacts


def _numbered(count: int) -> Records:
    return Records(torch.zeros(count, 1, 8, 8, dtype=torch.uint8), torch.arange(count))


@settings(deadline=None)  # other work on the machine must not fail a test
@given(st.integers(2, 200), st.floats(0.01, 0.99), st.integers(0, 5))
def test_split_loses_and_repeats_nothing(count: int, fraction: float, seed: int) -> None:
    if not 0 < round(count * fraction) < count:
        with pytest.raises(ConfigError, match=r"leaves one side empty"):
            split(_numbered(count), fraction, seed)
        return
    kept, held = split(_numbered(count), fraction, seed)
    assert len(held) == held_out_count(count, fraction)
    assert sorted([*kept.labels.tolist(), *held.labels.tolist()]) == list(range(count))
    assert kept.labels.tolist() == sorted(kept.labels.tolist())


def test_split_is_the_same_for_ever_and_another_with_another_seed() -> None:
    _, held = split(_numbered(20), 0.2)
    assert held.labels.tolist() == HELD_FOR_EVER
    assert split(_numbered(20), 0.2, seed=1)[1].labels.tolist() != held.labels.tolist()


HELD_FOR_EVER = [3, 9, 11, 17]


@given(st.integers(0, 20))
def test_one_record_more_changes_the_kept_records_by_one(position: int) -> None:
    generator = torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (21, 1, 8, 8), generator=generator, dtype=torch.uint8)
    everyone = torch.arange(21)
    without = everyone[everyone != position]
    # Fractions that hold out the same number of 20 and of 21: that number is public, like the number of records.
    larger, _ = split(Records(images, everyone), 4 / 21)
    smaller, _ = split(Records(images[without], without), 4 / 20)
    assert len(set(larger.labels.tolist()) - set(smaller.labels.tolist())) == 1
    assert set(smaller.labels.tolist()) <= set(larger.labels.tolist())


def _toy(labels: list[int]) -> Dataset:
    facts = PublicFacts(
        name="toy",
        channels=1,
        height=8,
        width=8,
        classes=("a", "b", "c", "d"),
        size=len(labels),
        mean=(0.5,),
        std=(0.5,),
    )
    images = torch.arange(len(labels), dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 8, 8)
    records = Records(images, torch.tensor(labels))
    return Dataset(facts, records, records, {"data": "toy", "size": 8})


def test_the_part_of_some_classes_is_what_their_holder_would_have() -> None:
    part = of_classes(_toy([0, 1, 2, 3, 2, 0]), ["c", "a"])
    assert (part.facts.classes, part.facts.size) == (("c", "a"), 4)
    assert part.train.labels.tolist() == [1, 0, 0, 1]
    assert part.train.images[:, 0, 0, 0].tolist() == [0, 2, 4, 5]
    assert part.test is not None
    assert part.test.labels.tolist() == [1, 0, 0, 1]
    assert dict(part.reading) == {"size": 8}  # the name of the whole would read the whole


def test_labels_can_be_numbered_by_more_classes_than_the_part_has() -> None:
    part = of_classes(_toy([0, 1, 2, 3]), ["d", "b"], among=["d", "c", "b", "a"])
    assert part.facts.classes == ("d", "c", "b", "a")
    assert part.train.labels.tolist() == [2, 0]


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=20), st.integers(0, 3))
def test_one_record_more_changes_one_part_by_that_record_and_no_other(labels: list[int], new: int) -> None:
    """Neighbouring data sets have neighbouring parts, of which only one differs."""
    names = ("a", "b", "c", "d")
    for party in (names[:2], names[2:]):
        before, after = (of_labels(_toy(some).train, names, party).labels.tolist() for some in (labels, [*labels, new]))
        assert after == ([*before, party.index(names[new])] if names[new] in party else before)


@pytest.mark.parametrize(
    ("names", "words"),
    [(["a", "x"], "no class 'x'"), (["a", "a"], "the class a is named twice"), (["d", "c"], "no training records")],
)
def test_parts_that_there_are_not_are_refused(names: list[str], words: str) -> None:
    with pytest.raises(DataError, match=words):
        of_classes(_toy([0, 1]), names)
