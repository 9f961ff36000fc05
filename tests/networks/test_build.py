import pytest
import torch
from torch import Tensor, nn

from privset.errors import ConfigError
from privset.facts import PublicFacts
from privset.networks import CLASSIFIERS, build

FACTS = PublicFacts(
    name="toy",
    channels=3,
    height=8,
    width=10,
    classes=("a", "b", "c"),
    size=9,
    mean=(0.5,) * 3,
    std=(0.5,) * 3,
)


def weights(network: nn.Module) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in network.parameters()])


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_built_for_the_facts(name: str) -> None:
    network = build(name, FACTS, seed=1)

    assert isinstance(network, CLASSIFIERS[name])  # type: ignore[arg-type]
    assert network(torch.zeros(2, 3, 8, 10)).shape == (2, 3)


def test_the_seed_alone_decides_the_weights() -> None:
    torch.manual_seed(1)
    first = weights(build("lenet", FACTS, seed=7))
    torch.manual_seed(2)
    second = weights(build("lenet", FACTS, seed=7))

    assert torch.equal(first, second)
    assert not torch.equal(first, weights(build("lenet", FACTS, seed=8)))


@pytest.mark.parametrize("seed", [None, 3])
def test_the_global_random_state_is_left_alone(seed: int | None) -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)

    build("mlp", FACTS, seed=seed)

    assert torch.equal(torch.rand(3), expected)


def test_without_a_seed_every_network_differs_whatever_the_global_state() -> None:
    torch.manual_seed(0)
    first = weights(build("mlp", FACTS))
    torch.manual_seed(0)

    assert not torch.equal(first, weights(build("mlp", FACTS)))


def test_width_and_depth_are_passed_on() -> None:
    network = build("convnet", FACTS, seed=0, width=5, depth=2)

    assert sum(weight.numel() for weight in network.parameters()) < 1000


def test_unknown_names_are_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"'convent'\. Did you mean convnet\? Known: alexnet, convnet, lenet"):
        build("convent", FACTS)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lenet", {"width": 3}, "width of lenet cannot be chosen"),
        ("mlp", {"depth": 3}, "depth of mlp cannot be chosen"),
        ("convnet", {"width": 0}, "at least 1"),
        ("convnet", {"depth": -1}, "at least 1"),
    ],
)
def test_impossible_sizes_are_refused(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(name, FACTS, **options)  # type: ignore[arg-type]
