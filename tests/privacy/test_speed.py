"""What clipping costs, as ratios of what runs beside it in the same seconds: a busy machine slows all of it down."""

import time

import torch
import torch.nn.functional as F  # noqa: N812
from torch.func import functional_call

from privset.methods.record_loss import record_loss
from privset.networks import ConvNet
from privset.privacy.clipping import clipped_gradient_sum
from privset.privacy.gradients import clipped_gradient_sums


def test_a_clipped_gradient_costs_little_more_than_one_that_nobody_clips_and_less_than_by_vmap():
    network = ConvNet((1, 28, 28), 10, width=64)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(16, 1, 28, 28, generator=generator)
    labels = torch.randint(0, 10, (16,), generator=generator)
    weights = list(network.parameters())
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    layered, everyone = record_loss(network), torch.ones(1, 16, dtype=torch.bool)

    def loss(parameters, image, label):
        return F.cross_entropy(functional_call(network, parameters, (image[None],)), label[None])

    ways = {
        "ours": lambda: clipped_gradient_sums(
            layered, parameters, [(images, labels, everyone)], samples=1, clip_norm=0.1
        ),
        "vmap": lambda: clipped_gradient_sum(loss, parameters, [(images, labels)], clip_norm=0.1),
        "not clipped": lambda: torch.autograd.grad(F.cross_entropy(network(images), labels), weights),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(12):
        for name, work in ways.items():
            start = time.thread_time()  # of this thread alone, which does all the work: other processes do not count
            work()
            best[name] = min(best[name], time.thread_time() - start)
        # As soon as it is fast enough it is; what is slow stays so however often it is asked.
        if best["ours"] < 1.3 * best["not clipped"] and best["ours"] < 0.9 * best["vmap"]:
            break
    assert best["ours"] < 1.5 * best["not clipped"], best
    assert best["ours"] < best["vmap"], best
