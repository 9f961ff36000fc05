import math

import pytest
import torch
from scipy import stats

from privset.privacy import seeded_noise, system_noise
from privset.privacy.sampling import poisson_sample


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
