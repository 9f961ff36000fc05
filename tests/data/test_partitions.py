from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privset.data.partitions import by_class, held_out_count, split
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


def test_split_is_the_same_for_ever_and_for_any_content() -> None:
    _, held = split(_numbered(20), 0.2)
    assert held.labels.tolist() == [1, 8, 18, 19]
    other = Records(torch.full((20, 1, 8, 8), 9, dtype=torch.uint8), torch.arange(20))
    assert split(other, 0.2)[1].labels.tolist() == held.labels.tolist()
    assert split(_numbered(20), 0.2, seed=1)[1].labels.tolist() != held.labels.tolist()


def test_by_class_keeps_labels_and_order() -> None:
    records = Records(torch.arange(5, dtype=torch.uint8).view(5, 1, 1, 1), torch.tensor([2, 0, 1, 2, 0]))
    chosen = by_class(records, [2, 0])
    assert chosen.labels.tolist() == [2, 0, 2, 0]
    assert chosen.images.flatten().tolist() == [0, 1, 3, 4]
    assert len(by_class(records, [])) == 0
