import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tests.conftest import facts_for
from torch.func import grad, vmap

from privset.facts import PublicFacts
from privset.networks.adversaries import ConditionalDcgan, ConditionalDiscriminator, convolved_with_marks
from privset.networks.patches import convolved_by_products

MNIST = facts_for(60_000, classes=10, side=28)


def facts_of(channels, height, width):
    return PublicFacts(
        name="toy",
        channels=channels,
        height=height,
        width=width,
        classes=("a", "b", "c"),
        size=9,
        mean=(0.5,) * channels,
        std=(0.5,) * channels,
    )


def test_the_published_networks():
    shapes = {name: tuple(value.shape) for name, value in ConditionalDiscriminator(MNIST).begin(0).items()}
    assert shapes["first"] == (11, 11 * 25)
    assert shapes["second"] == (42, 21 * 25)
    assert shapes["hidden"] == (256, 42 * 7 * 7 + 10)
    assert shapes["last"] == (1, 266)
    generator = ConditionalDcgan(MNIST, length=50, seed=0)
    shapes = {name: tuple(value.shape) for name, value in generator.named_parameters()}
    assert shapes["hidden.weight"] == (1024, 60)
    assert shapes["spread.weight"] == (7 * 7 * 128, 1034)
    assert shapes["first.weight"] == (138, 128, 5, 5)
    assert shapes["last.weight"] == (138, 1, 5, 5)


@pytest.mark.parametrize("form", [(1, 8, 8), (3, 12, 9), (1, 28, 28), (3, 33, 64)])
def test_they_fit_images_of_all_forms(form):
    facts, labels = facts_of(*form), torch.tensor([0, 1, 2, 2])
    generator = ConditionalDcgan(facts, length=4, seed=0, width=6, maps=3)
    pixels = generator(generator.draw(labels, torch.Generator())).detach()
    assert pixels.shape == (4, *form)
    assert 0 < float(pixels.min()) < float(pixels.max()) < 1
    discriminator = ConditionalDiscriminator(facts, maps=3, width=5)
    assert discriminator(discriminator.begin(0), pixels, labels).shape == (4,)


@pytest.mark.parametrize(("norm", "weight"), [(True, 1.0), (False, 1.0), (False, 4.0)])
def test_the_discriminator_is_two_convolutions_and_two_layers_with_batch_norm_or_without(norm, weight):
    facts = facts_of(1, 9, 8)
    discriminator = ConditionalDiscriminator(facts, maps=3, width=5, norm=norm, label_weight=weight)
    random = torch.Generator().manual_seed(0)
    weights = {
        name: torch.randn(value.shape, generator=random, dtype=torch.float64)
        for name, value in discriminator.begin(0).items()
    }
    pixels = torch.rand(6, 1, 9, 8, generator=random, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    marks = weight * F.one_hot(labels, 3).double()

    def marked(maps):
        return torch.cat([maps, marks[:, :, None, None] * torch.ones_like(maps[:, :1])], dim=1)

    def convolved(maps, name):
        kernel = weights[name].view(weights[name].shape[0], -1, 5, 5)
        return F.conv2d(marked(maps), kernel, weights[f"{name} bias"], stride=2, padding=2)

    def normed(values, name):
        if not norm:
            shape = (1, -1, 1, 1)[: values.ndim]
            return values * weights[f"{name} scale"].view(shape) + weights[f"{name} bias"].view(shape)
        return F.batch_norm(values, None, None, weights[f"{name} scale"], weights[f"{name} bias"], training=True)

    maps = F.leaky_relu(convolved(pixels, "first"), 0.2)
    flat = F.leaky_relu(normed(convolved(maps, "second"), "second"), 0.2).flatten(1)
    hidden = F.leaky_relu(normed(torch.cat([flat, marks], 1) @ weights["hidden"].T, "hidden"), 0.2)
    expected = torch.cat([hidden, marks], 1) @ weights["last"].T + weights["last bias"]
    assert torch.allclose(discriminator(weights, pixels, labels), expected[:, 0])


@pytest.mark.parametrize("side", [8, 9])
@pytest.mark.parametrize("card", [False, True])
def test_a_class_counts_as_a_constant_map_of_its_own_does(side, card, monkeypatch):
    random = torch.Generator().manual_seed(0)
    maps, marks, kernel, bias = (
        torch.randn(shape, generator=random, dtype=torch.float64)
        for shape in ((2, 4, side, 7), (2, 3), (5, 7 * 25), (5,))
    )
    whole = torch.cat([maps, marks[:, :, None, None].expand(-1, -1, side, 7)], dim=1)
    expected = F.conv2d(whole, kernel.view(5, 7, 5, 5), bias, stride=2, padding=2)
    if card:  # where convolutions are done by products
        monkeypatch.setattr("privset.networks.adversaries.convolved", convolved_by_products)
    assert torch.allclose(convolved_with_marks(maps, marks, kernel, bias), expected)


def test_many_side_by_side_are_as_one_after_the_other():
    facts, labels = facts_of(3, 8, 10), torch.tensor([0, 1, 2, 1])
    discriminator = ConditionalDiscriminator(facts, maps=3, width=5)
    pixels = torch.rand(4, 3, 8, 10, generator=torch.Generator().manual_seed(0))
    several = [discriminator.begin(seed) for seed in range(3)]

    def slopes(weights):
        return grad(lambda some: discriminator(some, pixels, labels).square().sum())(weights)

    together = vmap(slopes)({name: torch.stack([one[name] for one in several]) for name in several[0]})
    for number, one in enumerate(several):
        for name, slope in slopes(one).items():
            assert torch.allclose(together[name][number], slope, rtol=1e-3, atol=1e-6), name


@pytest.mark.parametrize("norm", [True, False])
def test_several_batches_of_the_same_labels_are_as_one_after_the_other(norm):
    facts, labels, random = facts_of(3, 8, 10), torch.tensor([0, 1, 2, 1]), torch.Generator().manual_seed(0)
    discriminator = ConditionalDiscriminator(facts, maps=3, width=5, norm=norm)
    weights = {
        name: torch.randn(value.shape, generator=random).double() for name, value in discriminator.begin(0).items()
    }
    pixels = torch.rand(3, 4, 3, 8, 10, generator=random, dtype=torch.float64)
    expected = torch.stack([discriminator(weights, some, labels) for some in pixels])
    assert torch.allclose(discriminator(weights, pixels, labels), expected)


def test_the_label_reaches_every_layer_and_weights_are_known_by_the_seed():
    facts = facts_of(1, 8, 8)
    first, second, other = (ConditionalDcgan(facts, length=4, seed=seed, width=6, maps=3).eval() for seed in (0, 0, 1))
    codes, others = (first.draw(torch.tensor([k, k]), torch.Generator().manual_seed(0)) for k in (0, 1))
    assert torch.equal(codes[:, :4], others[:, :4])
    assert torch.equal(first(codes), second(codes))
    assert not torch.equal(first(codes), other(codes))
    assert not torch.equal(first(codes), first(others))
    weights = ConditionalDiscriminator(facts, maps=3, width=5).begin(0)
    for name in ("first", "second", "hidden", "last"):
        assert float(weights[name].std()) == pytest.approx(0.02, rel=0.5)
