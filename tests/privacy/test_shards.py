import collections
import fractions
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import facts_for

from privset.privacy import Tally, seeded_noise
from privset.privacy.shards import NONE, _shuffled, dealt, drawn, seats_for
from privset.privacy.wards import Guardian


class Dice:
    """Noise whose words come to these orders, one after the other."""

    def __init__(self, *orders):
        self._orders = iter(orders)

    def bits(self, count):
        order = next(self._orders)
        assert len(order) == count
        words = np.empty(count, dtype=np.uint64)
        words[list(order)] = np.arange(count, dtype=np.uint64)
        return words


def seatings(labels, wards, seats):
    """Every seating of records of these classes, 0 and 1, as shards by record, with its probability."""
    found: dict[tuple[int, ...], fractions.Fraction] = collections.defaultdict(fractions.Fraction)
    numbers = [number for name in (0, 1) for number in (wards * seats, labels.count(name))]
    orders = [list(itertools.permutations(range(number))) for number in numbers]
    each = fractions.Fraction(1, math.prod(map(len, orders)))
    for chosen in itertools.product(*orders):
        dice: Any = Dice(*chosen)
        shards = dealt(dice, torch.tensor(labels, dtype=torch.int64), wards, classes=2, seats=seats)
        found[tuple(shards.tolist())] += each
    return found


@pytest.mark.parametrize(
    ("labels", "wards", "seats"),
    [
        ([0], 2, 1),
        ([0, 0, 0], 2, 1),
        ([0, 0, 0, 0], 2, 1),
        ([0, 0, 0], 3, 1),
        ([0, 0], 2, 2),
        ([0, 1], 2, 1),
        ([0, 1, 0, 1], 2, 1),
        ([0, 0, 1, 0], 2, 1),
    ],
)
def test_one_record_more_changes_one_shard_at_most(labels, wards, seats):
    """The pairs of Lemma 0, all of them, whichever record is z."""
    for z, mine_of in enumerate(labels):
        rest = [*labels[:z], *labels[z + 1 :]]
        without: dict[tuple[int, ...], fractions.Fraction] = collections.defaultdict(fractions.Fraction)
        for shards, probability in seatings(labels, wards, seats).items():
            others, mine = [*shards[:z], *shards[z + 1 :]], shards[z]
            waiting = [number for number, shard in enumerate(others) if shard == NONE and rest[number] == mine_of]
            for lucky in waiting if mine != NONE and waiting else [None]:
                after = [mine if number == lucky else shard for number, shard in enumerate(others)]
                without[tuple(after)] += probability / (len(waiting) if lucky is not None else 1)
                moved = [pair for pair in zip(others, after, strict=True) if pair[0] != pair[1]]
                assert {shard for pair in moved for shard in pair} <= {NONE, mine}
        assert without == seatings(rest, wards, seats)
        assert sum(without.values()) == 1


def test_words_that_are_the_same_are_drawn_again():
    class Stuttering:
        def __init__(self):
            self._words = iter([np.array([5, 5, 7], dtype=np.uint64), np.array([9, 1, 4], dtype=np.uint64)])

        def bits(self, count):
            return next(self._words)

    noise: Any = Stuttering()
    assert _shuffled(noise, 3).tolist() == [1, 2, 0]


def test_how_many_seats_there_are_is_known_to_everyone():
    """It follows from the public size and the public classes, whatever records there are."""
    tally, facts = Tally(), facts_for(60)
    images, labels = torch.zeros(30, 1, 8, 8, dtype=torch.uint8), torch.zeros(30, dtype=torch.int64)
    guardian = Guardian(images, labels, facts, seeded_noise(0), None, tally)
    for times in (1, 2):
        wards = guardian.appoint(5, lambda numbers: {"w": torch.zeros(len(numbers))}, 4, by_class=True)
        assert guardian._of(wards).sizes.tolist() == [4] * 5  # ceil(60 / (5 wards x 3 classes))
        assert tally.left_out == 10 * times


@pytest.mark.parametrize("sizes", [(30, 30, 30), (50, 10, 30), (90, 0, 0)])
def test_no_shard_has_more_than_its_seats_and_no_seat_stays_empty_for_nothing(sizes):
    labels = torch.arange(3).repeat_interleave(torch.tensor(sizes))
    wards, seats = 10, seats_for(90, 10, 3)
    shards = dealt(seeded_noise(1), labels, wards, classes=3, seats=seats)
    assert seats == 3
    for name, size in enumerate(sizes):
        mine = shards[labels == name]
        assert int((mine != NONE).sum()) == min(size, wards * seats)
        assert torch.bincount(mine[mine != NONE], minlength=wards).max() <= seats


def test_seats_are_uniform_and_drawn_anew():
    labels, noise = torch.zeros(6, dtype=torch.int64), seeded_noise(0)
    table = torch.stack([dealt(noise, labels, 4, classes=1, seats=1) for _ in range(4000)])
    assert float((table == NONE).double().mean()) == pytest.approx(1 / 3)
    for number in range(6):
        counts = torch.bincount(table[:, number] + 1, minlength=5)[1:]
        assert float(((counts - 4000 / 6) ** 2 / (4000 / 6)).sum()) < 25  # chi squared, 4 degrees or so
    alone = drawn(noise, 4000, 4)
    assert float(((torch.bincount(alone) - 1000) ** 2 / 1000).sum()) < 20


def test_of_mnist_half_of_the_teachers_know_all_classes_by_class_and_few_by_lot():
    """As docs/methods/datalens.md says of 4,000 teachers."""
    labels = torch.arange(10).repeat_interleave(
        torch.tensor([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
    )
    by_class = dealt(seeded_noise(0), labels, 4000, classes=10, seats=seats_for(60_000, 4000, 10))
    for shard, one, whole in ((by_class, 15 / 16, 0.51), (drawn(seeded_noise(0), 60_000, 4000), 0.78, 1 / 13)):
        knows = torch.zeros(4000, 10)
        knows[shard[shard != NONE], labels[shard != NONE]] = 1
        assert float(knows.mean()) == pytest.approx(one, abs=0.01)
        assert float((knows.sum(1) == 10).float().mean()) == pytest.approx(whole, abs=0.03)


def test_wards_by_class_learn_from_their_own_records_and_from_none_that_is_left_out():
    size, labels = 60, torch.arange(3).repeat_interleave(torch.tensor([40, 10, 10]))
    images = torch.zeros(size, 1, 8, 8, dtype=torch.uint8)
    images[:, 0, 0, 0] = torch.arange(size)
    tally, facts = Tally(), facts_for(size)
    guardian = Guardian(images, labels, facts, seeded_noise(0), None, tally)

    def note(state, images, labels, public):
        shown = ((images[:, 0, 0, 0] * 0.5 + 0.5) * 255).round()
        return {"seen": torch.maximum(state["seen"], (shown[:, None] == torch.arange(size)).any(0).float())}

    wards = guardian.appoint(5, lambda numbers: {"seen": torch.zeros(len(numbers), size)}, 12, by_class=True)
    for _ in range(3):
        guardian.teach(wards, note, {})
    seen = torch.cat(list(guardian.hear(wards, lambda state, public: state["seen"], {})))
    assert set(seen.sum(0).tolist()) == {0.0, 1.0}  # of some no one learns, of others one ward
    by_class = torch.stack([seen[:, labels == name].sum(1) for name in range(3)])
    assert by_class[0].tolist() == [4.0] * 5
    assert by_class[1:].max() <= 4
    assert tally.left_out == 20 == int((seen.sum(0) == 0).sum())
    assert math.isclose(float(by_class.sum()), 40)
