from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privset.data.partitions import held_out_count, split
from privset.data.records import Records
from privset.errors import ConfigError


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
