import pytest
import torch

from privset.methods import replay
from privset.methods.replay import Replay


def pools(count, classes=2, k=4):
    """Pool ``n`` has the number n in every pixel, and the class in its first."""
    for number in range(count):
        pool = torch.full((classes, k, 1, 2, 2), float(number))
        pool[:, :, 0, 0, 0] = torch.arange(float(classes))[:, None]
        yield pool


def test_the_share_of_each_class_is_of_earlier_pools_and_the_rest_of_this_one():
    old, seen = Replay(0.5, torch.Generator().manual_seed(0)), set()
    for number, pool in enumerate(pools(50)):
        mixed = old.mixed(pool)
        assert mixed.shape == pool.shape
        assert bool((mixed[:, :, 0, 0, 0] == torch.tensor([[0.0], [1.0]])).all())  # of their own class
        assert bool((mixed[:, :2, 0, 1, 1] == number).all())
        assert bool((mixed[:, 2:, 0, 1, 1] <= number).all())
        seen |= set(mixed[:, 2:, 0, 1, 1].flatten().tolist())
    assert len(seen) > 25


def test_what_is_kept_is_of_all_pools_alike(monkeypatch):
    monkeypatch.setattr(replay, "SLOTS", 50)
    kept = []
    for seed in range(40):
        old = Replay(0.5, torch.Generator().manual_seed(seed))
        for pool in pools(200):
            old.mixed(pool)
        assert old._kept is not None
        assert len(old._kept) == 50
        kept.append(old._kept[:, 0, 0, 1, 1])
    numbers = torch.cat(kept)
    # 2000 of 200 numbers: the mean of uniform ones is 99.5, with a deviation of 58 / sqrt(2000) = 1.3.
    assert float(numbers.mean()) == pytest.approx(99.5, abs=5)
    assert float(numbers.std()) == pytest.approx(57.7, abs=4)


def test_it_keeps_copies_since_a_recorded_step_makes_the_next_images_in_the_same_place():
    old, place, seen = Replay(0.5, torch.Generator().manual_seed(0)), torch.zeros(2, 4, 1, 2, 2), set()
    for number in range(20):
        place.fill_(number)
        seen |= set(old.mixed(place)[:, 2:].flatten().tolist())
        assert max(seen) <= number
    assert len(seen) > 10
    assert old._kept is not None
    assert set(old._kept[:20].flatten().tolist()) == set(range(20))


def test_without_a_share_nothing_is_kept_and_no_number_drawn():
    random = torch.Generator().manual_seed(0)
    before, pool = random.get_state(), torch.rand(2, 4, 1, 2, 2)
    old = Replay(0.0, random)
    assert old.mixed(pool) is pool
    assert old._kept is None
    assert torch.equal(random.get_state(), before)
