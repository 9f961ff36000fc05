import pytest
import torch
from tests.conftest import facts_for
from torch import nn

from privset import networks
from privset.methods.record_loss import record_loss
from privset.privacy.clipping import Shares
from privset.privacy.layered import LayeredLoss, record_gradients


def test_every_classifier_is_taken_apart_or_taken_whole():
    facts = facts_for(4)
    kinds = {}
    for name in networks.CLASSIFIERS:
        with torch.device("meta"):
            kinds[name] = isinstance(record_loss(networks.build(name, facts)), LayeredLoss)
    whole = {"resnet18", "scattering"}
    assert kinds == {name: name not in whole for name in networks.CLASSIFIERS}
    assert isinstance(record_loss(networks.build("scattering", facts).get_submodule("head"), "head."), LayeredLoss)


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3)),
        nn.Sequential(nn.Conv2d(1, 4, 3, dilation=2), nn.Flatten(), nn.Linear(64, 3)),
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(256, 3)),
        nn.Sequential(nn.Conv2d(1, 4, 3, padding="same"), nn.Flatten(), nn.Linear(256, 3)),
        nn.Sequential(nn.GroupNorm(1, 1), nn.Flatten(), nn.Linear(64, 3)),
        nn.Sequential(nn.Flatten(), nn.ReLU()),
    ],
)
def test_what_is_not_known_to_keep_records_apart_is_left_to_vmap(network):
    assert not isinstance(record_loss(network), LayeredLoss)


def test_a_bias_that_a_norm_takes_away_is_idle_and_others_are_not():
    layers = [nn.Conv2d(1, 4, 3), nn.GroupNorm(4, 4), nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4), nn.Flatten()]
    loss = record_loss(nn.Sequential(*layers, nn.Linear(64, 3)), "net.")
    assert isinstance(loss, LayeredLoss)
    assert [stage.idle for stage in loss.stages] == [("net.0.bias",), (), ()]
    assert [stage.bias for stage in loss.stages] == [None, "net.2.bias", "net.5.bias"]
    assert [stage.scales for stage in loss.stages][:2] == [
        ("net.1.weight", "net.1.bias"),
        ("net.3.weight", "net.3.bias"),
    ]


@pytest.mark.parametrize(
    "pool",
    [
        nn.AvgPool2d(2),
        nn.AvgPool2d((2, 1)),
        nn.AvgPool2d([2, 2]),  # type: ignore[arg-type] - torch takes it
        nn.AvgPool2d(3, stride=1),
        nn.AvgPool2d(2, padding=1),
        nn.AvgPool2d(3, ceil_mode=True),
        nn.AvgPool2d(2, divisor_override=3),
        nn.MaxPool2d(2),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("norm", [nn.GroupNorm(4, 4, eps=0.01), nn.GroupNorm(4, 4, affine=False), nn.GroupNorm(2, 4)])
def test_a_network_of_ones_own_has_the_loss_that_it_has(pool, channels, norm):
    """What is taken at once is what follows, whichever way it is said."""
    convolution = nn.Conv2d(channels, 4, 3, padding=(1, 0), stride=(1, 2))
    network = nn.Sequential(convolution, norm, nn.ReLU(), pool, nn.Flatten(), nn.LazyLinear(3)).double()
    image, label = torch.randn(channels, 8, 17, dtype=torch.float64), torch.tensor(1)
    wanted = nn.functional.cross_entropy(network(image[None]), label[None])
    slopes = torch.autograd.grad(wanted, list(network.parameters()))
    loss, parameters = record_loss(network), {name: value.detach() for name, value in network.named_parameters()}
    assert isinstance(loss, LayeredLoss)
    torch.testing.assert_close(loss(parameters, image, label), wanted.detach())
    found = record_gradients(loss, parameters, image[None], label[None])
    whole = Shares(torch.ones(1, 1, dtype=torch.float64))
    for (name, value), slope in zip(parameters.items(), slopes, strict=True):
        total = torch.zeros(1, value.numel(), dtype=torch.float64)
        if name in found:
            found[name].add(whole, total)
        torch.testing.assert_close(total.view_as(slope), slope, rtol=1e-9, atol=1e-12)
