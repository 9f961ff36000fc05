import pytest
import torch
from torch import nn

from privset.networks.stacking import Stack


def networks(count):
    made = []
    for seed in range(count):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made.append(nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten()))
        made[-1].eval()
        made[-1][1].running_mean.fill_(seed)  # a buffer, which is stacked like a weight
    return made


def test_a_number_chooses_the_network():
    some, images = networks(3), torch.rand(4, 1, 6, 6)
    stack = Stack(some)
    assert len(stack) == 3
    for number, network in enumerate(some):
        assert torch.allclose(stack(torch.tensor([number]), images), network(images), atol=1e-6)


def test_gradients_reach_the_images_and_no_weight():
    stack, images = Stack(networks(2)), torch.rand(4, 1, 6, 6, requires_grad=True)
    said = stack(torch.tensor([1]), images)
    (slope,) = torch.autograd.grad(said.square().sum(), images)
    assert float(slope.abs().max()) > 0


def test_training_a_network_later_does_not_change_the_stack():
    some, images = networks(2), torch.rand(4, 1, 6, 6)
    stack = Stack(some)
    before = stack(torch.tensor([0]), images)
    with torch.no_grad():
        some[0][0].weight.zero_()
    assert torch.equal(stack(torch.tensor([0]), images), before)


def test_a_number_beyond_the_last_is_refused():
    with pytest.raises((IndexError, RuntimeError)):
        Stack(networks(2))(torch.tensor([2]), torch.rand(1, 1, 6, 6))
