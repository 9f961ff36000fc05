import pytest
import torch

from privset.methods import replay
from privset.methods.replay import Replay


def pools(count, classes=2, k=2):
    """Pool ``n`` has the number n in every pixel, and the class in its first."""
    for number in range(count):
        pool = torch.full((classes, k, 1, 2, 2), float(number))
        pool[:, :, 0, 0, 0] = torch.arange(float(classes))[:, None]
        yield pool


def test_so_many_more_of_each_class_are_of_pools_so_far():
    old, seen = Replay(torch.Generator().manual_seed(0)), set()
    for number, pool in enumerate(pools(50)):
        mixed = old.beside(pool, 3)
        assert mixed.shape == (2, 5, 1, 2, 2)
        assert bool((mixed[:, :, 0, 0, 0] == torch.tensor([[0.0], [1.0]])).all())  # of their own class
        assert bool((mixed[:, :2, 0, 1, 1] == number).all())
        assert bool((mixed[:, 2:, 0, 1, 1] <= number).all())
        seen |= set(mixed[:, 2:, 0, 1, 1].flatten().tolist())
    assert len(seen) > 25


def test_what_is_kept_is_of_all_pools_alike(monkeypatch):
    monkeypatch.setattr(replay, "SLOTS", 50)
    kept = []
    for seed in range(40):
        old = Replay(torch.Generator().manual_seed(seed))
        for pool in pools(200):
            old.beside(pool, 2)
        assert old._kept is not None
        assert len(old._kept) == 50
        kept.append(old._kept[:, 0, 0, 1, 1])
    numbers = torch.cat(kept)
    # 2000 of 200 numbers: the mean of uniform ones is 99.5, with a deviation of 58 / sqrt(2000) = 1.3.
    assert float(numbers.mean()) == pytest.approx(99.5, abs=5)
    assert float(numbers.std()) == pytest.approx(57.7, abs=4)


def test_it_keeps_copies_since_a_recorded_step_makes_the_next_images_in_the_same_place():
    old, place, seen = Replay(torch.Generator().manual_seed(0)), torch.zeros(2, 2, 1, 2, 2), set()
    for number in range(20):
        place.fill_(number)
        seen |= set(old.beside(place, 2)[:, 2:].flatten().tolist())
        assert max(seen) <= number
    assert len(seen) > 10
    assert old._kept is not None
    assert set(old._kept[:20].flatten().tolist()) == set(range(20))


def test_where_none_are_wanted_nothing_is_kept_and_no_number_drawn():
    random = torch.Generator().manual_seed(0)
    before, pool = random.get_state(), torch.rand(2, 2, 1, 2, 2)
    old = Replay(random)
    assert old.beside(pool, 0) is pool
    assert old._kept is None
    assert torch.equal(random.get_state(), before)
