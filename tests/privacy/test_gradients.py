import math

import pytest
import torch
from tests.privacy.test_layered import batch, moved

from privset.methods.record_loss import record_loss
from privset.networks import ConvNet
from privset.privacy.gradients import RepeatedSums, clipped_gradient_sums


def test_chunks_of_one_size_give_the_same_and_drop_no_record():
    network = moved(ConvNet((1, 8, 8), 3, width=4, depth=2).double())
    images, labels = batch((1, 8, 8), 30)
    generator = torch.Generator().manual_seed(0)
    loss = record_loss(network)
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    for chunk in (4, 7, 50):
        repeated = RepeatedSums(
            loss, parameters, lambda part: (images[part], labels[part]), samples=2, clip_norm=0.1, chunk=chunk
        )
        for count in (0, 1, 21, 30):  # none, few, and more than a chunk has room for
            records = torch.randperm(30, generator=generator)[:count]
            members = torch.rand(2, count, generator=generator) < 0.6
            other = {name: value * (1 + count / 100) for name, value in parameters.items()}
            totals, bad = repeated.sums(other, records, members)
            chunks = [(images[records], labels[records], members)]
            expected, _ = clipped_gradient_sums(loss, other, chunks, samples=2, clip_norm=0.1)
            torch.testing.assert_close(totals.flat, expected.flat, rtol=1e-10, atol=1e-13)
            assert int(bad) == 0


def test_a_chunk_that_is_filled_up_does_not_count_the_record_that_fills_it():
    network = moved(ConvNet((1, 8, 8), 3, width=4, depth=2).double())
    images, labels = batch((1, 8, 8), 5)
    images[0] = math.nan
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    repeated = RepeatedSums(
        record_loss(network), parameters, lambda part: (images[part], labels[part]), samples=1, clip_norm=0.1, chunk=4
    )
    totals, bad = repeated.sums(parameters, torch.tensor([2]), torch.ones(1, 1, dtype=torch.bool))
    assert int(bad) == 0
    assert float(totals.flat.norm()) == pytest.approx(0.1, rel=1e-9)
