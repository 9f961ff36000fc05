import math

import pytest
import torch
from scipy import stats

from privset.privacy import seeded_noise, system_noise
from privset.privacy.sampling import joined, poisson_sample, poisson_samples, seated, seated_sample


def test_each_record_enters_independently_at_the_stated_rate():
    source, size, rate, draws = system_noise(), 500, 0.03, 4000
    hits = torch.zeros(draws, size)
    for row in hits:
        row[poisson_sample(source, size, rate)] = 1
    expected = draws * rate
    # Every record's own count, every draw's size, and pairs of neighbours.
    counts = torch.arange(draws + 1)
    found = (hits.sum(0)[:, None] <= counts).double().mean(0)  # not kstest, whose distance ties make larger
    assert (found - torch.from_numpy(stats.binom(draws, rate).cdf(counts.numpy()))).abs().max() < 0.1
    assert (hits.sum(0) - expected).abs().max() < 6 * math.sqrt(expected)
    sizes = hits.sum(1)
    assert float(sizes.mean()) == pytest.approx(size * rate, abs=5 * math.sqrt(size * rate / draws))
    assert float(sizes.var()) == pytest.approx(size * rate * (1 - rate), rel=0.15)
    pairs = float((hits[:, 1:] * hits[:, :-1]).mean())
    assert pairs == pytest.approx(rate**2, rel=0.2)


def test_samples_run_over_block_borders():
    chosen = poisson_sample(seeded_noise(0), 200_000, 0.5)
    assert len(chosen) == pytest.approx(100_000, abs=1200)
    assert torch.equal(chosen, chosen.unique())
    assert int(chosen.max()) > 199_000


def test_full_and_empty_samples():
    assert torch.equal(poisson_sample(seeded_noise(0), 5, 1.0), torch.arange(5))
    empty = poisson_sample(seeded_noise(0), 50, 1e-12)
    assert empty.shape == (0,)
    assert empty.dtype == torch.int64


def test_the_inclusion_probability_is_never_above_the_rate():
    class LargestWords:
        """A source whose every word is the largest below the threshold of rate 0.1, or that threshold itself."""

        def __init__(self, word):
            self.word = word

        def bits(self, count):
            import numpy as np

            return np.full(count, self.word, dtype=np.uint64)

    threshold = int(0.1 * 2**64)
    assert len(poisson_sample(LargestWords(threshold - 1), 4, 0.1)) == 4  # type: ignore[arg-type]
    assert len(poisson_sample(LargestWords(threshold), 4, 0.1)) == 0  # type: ignore[arg-type]
    assert threshold / 2**64 <= 0.1


def test_samples_made_on_a_device_are_independent_and_at_the_rate():
    source, size, rate, draws = system_noise(), 400, 0.05, 1000
    samples = poisson_samples(source, size, rate, draws, torch.device("cpu"))
    hits = torch.zeros(draws, size)
    for row, sample in zip(hits, samples, strict=True):
        assert torch.equal(sample, sample.unique())  # sorted, none twice
        row[sample] = 1
    expected = draws * rate
    assert (hits.sum(0) - expected).abs().max() < 6 * math.sqrt(expected)
    assert float(hits.sum(1).var()) == pytest.approx(size * rate * (1 - rate), rel=0.2)
    assert float((hits[1:] * hits[:-1]).mean()) == pytest.approx(rate**2, rel=0.25)
    everyone, nobody = (poisson_samples(source, 5, rate, 3, torch.device("cpu")) for rate in (1.0, 1e-12))
    assert [sample.tolist() for sample in everyone] == [[0, 1, 2, 3, 4]] * 3
    assert [sample.tolist() for sample in nobody] == [[]] * 3


def test_joined_samples_have_every_record_once_and_know_where_it_is():
    generator = torch.Generator().manual_seed(0)
    masks = torch.rand(6, 50, generator=generator) < torch.tensor([0.3, 0.0, 0.5, 1.0, 0.1, 0.3])[:, None]
    samples = [mask.nonzero().flatten() for mask in masks]
    records, members = joined(samples)
    assert sorted(records.tolist()) == masks.any(0).nonzero().flatten().tolist()
    assert torch.equal(members, masks[:, records])
    first = members.int().argmax(0)
    assert torch.equal(first, first.sort().values)
    none, members = joined([torch.empty(0, dtype=torch.int64)] * 2)
    assert (none.shape, members.shape) == ((0,), (2, 0))


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 1.0])
def test_the_first_of_a_sample_are_seated_in_order_and_no_one_else(rate):
    random = torch.Generator().manual_seed(0)
    for places in (1, 7, 40):
        for _ in range(20):
            mask = torch.rand(40, generator=random) < rate
            numbers, count = seated(mask, places)
            expected = mask.nonzero().flatten()[:places]
            assert int(count) == len(expected)
            assert torch.equal(numbers[: len(expected)], expected)
            assert not numbers[len(expected) :].any()


class Card:
    """A device that is taken for a graphics card."""

    type = "cuda"


class OnCard:
    """A source whose card is the processor."""

    def __init__(self, source):
        self.source, self.asked = source, []

    def chosen(self, count, rate, device):
        self.asked.append((count, rate, device.type))
        return self.source.chosen(count, rate, torch.device("cpu"))

    def __getattr__(self, name):
        raise AssertionError(f"{name} of the processor's stream is not to be used")


def test_on_a_card_a_sample_is_drawn_once_for_every_record_at_the_rate():
    source, other = OnCard(seeded_noise(3)), seeded_noise(3)
    for _ in range(3):
        numbers, count = seated_sample(source, 300, 0.1, 60, Card())  # type: ignore[arg-type]
        (expected,) = poisson_samples(other, 300, 0.1, 1, torch.device("cpu"))
        assert torch.equal(numbers[: int(count)], expected)
        assert not numbers[int(count) :].any()
    assert source.asked == [(300, 0.1, "cuda")] * 3
    assert source.source.state() == other.state()


def test_a_seated_sample_is_a_poisson_sample():
    expected = poisson_sample(seeded_noise(3), 200, 0.1)
    numbers, count = seated_sample(seeded_noise(3), 200, 0.1, 60, torch.device("cpu"))
    assert torch.equal(numbers[: int(count)], expected)
    assert not numbers[int(count) :].any()
    few, count = seated_sample(seeded_noise(3), 200, 0.1, 5, torch.device("cpu"))
    assert int(count) == 5
    assert torch.equal(few, expected[:5])
