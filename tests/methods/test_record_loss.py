import pytest
import torch
from tests.conftest import facts_for
from torch import nn

from privset import networks
from privset.methods.record_loss import record_loss
from privset.privacy.layered import LayeredLoss


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
