"""The generators of DP-Sinkhorn and GS-WGAN, and the critic."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from tests.conftest import facts_for

from privset.networks.critics import Critic
from privset.networks.linear import LinearGenerator
from privset.networks.residual import ResidualGenerator, draw_bits, pixel_norm
from privset.networks.transposed import TransposedGenerator, draw_uniform_codes


@pytest.mark.parametrize(("side", "channels"), [(8, 1), (11, 3), (28, 1), (32, 3), (64, 3)])
@pytest.mark.parametrize("kind", [TransposedGenerator, ResidualGenerator])
def test_generators_make_images_of_every_size_within_the_range_of_pixels(kind, side, channels):
    facts = facts_for(40, side=side, channels=channels)
    network = kind(facts, length=5, seed=0, width=8)
    images = network(torch.rand(4, 8)).detach()
    assert images.shape == (4, channels, side, side)
    low = -1 if kind is TransposedGenerator else 0
    assert low <= float(images.min()) <= float(images.max()) <= 1
    again = kind(facts, length=5, seed=0, width=8)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))


def test_the_published_generator_of_dp_sinkhorn_has_these_layers():
    network = TransposedGenerator(facts_for(40, classes=10, side=28), length=16, seed=0)
    shapes = [tuple(weight.shape) for weight in network.parameters() if weight.ndim > 1]
    assert shapes == [(10, 8), (24, 256, 7, 7), (256, 128, 4, 4), (128, 64, 4, 4), (1, 64, 3, 3)]


@torch.no_grad()
def test_the_generator_of_gs_wgan_computes_what_was_published():
    network: Any = ResidualGenerator(facts_for(40, classes=10, side=28), length=10, seed=0, width=6).eval()
    codes = network.draw(torch.arange(3), torch.Generator().manual_seed(0))
    assert len(network.blocks) == 3

    def normed(maps):
        return maps / (maps.square().mean(1, keepdim=True) + 1e-10).sqrt()

    maps = normed((codes @ network.start.weight.T + network.start.bias).view(3, 6, 4, 4).relu())
    for block in network.blocks:
        larger = maps.repeat_interleave(2, 2).repeat_interleave(2, 3)
        first = F.conv2d(normed(larger), block.first.weight, block.first.bias, padding=1)
        second = F.conv2d(normed(first).relu(), block.second.weight, block.second.bias, padding=1)
        maps = second + F.conv2d(larger, block.beside.weight, block.beside.bias)
    image = F.conv2d(maps, network.end.weight, network.end.bias).sigmoid()
    assert image.shape == (3, 1, 30, 30)
    torch.testing.assert_close(network(codes), image[:, :, :-2, :-2])


def test_what_the_generator_of_gs_wgan_made_it_makes_again_while_its_norms_rest():
    network = ResidualGenerator(facts_for(40, side=8), length=3, seed=0, width=4)
    codes = network.draw(torch.arange(3), torch.Generator().manual_seed(0))
    with torch.no_grad():
        network(codes)  # at first norms follow fast
        made = network(codes)
    network.eval()
    again = network(codes)
    assert torch.equal(again, made)
    assert torch.equal(network(codes), made)
    network.train()
    assert not torch.equal(network(codes), made)


def test_codes_are_uniform_or_coins_with_the_label_behind():
    labels, generator = torch.tensor([0, 2, 1]).repeat(100), torch.Generator().manual_seed(0)
    uniform = draw_uniform_codes(labels, classes=3, length=4, generator=generator)
    coins = draw_bits(labels, classes=3, length=4, generator=generator)
    for codes in (uniform, coins):
        assert torch.equal(codes[:, 4:].argmax(1), labels)
        assert float(codes[:, :4].mean()) == pytest.approx(0.5, abs=0.1)
    assert set(coins[:, :4].unique().tolist()) == {0.0, 1.0}
    assert float(uniform[:, :4].std()) == pytest.approx(12**-0.5, abs=0.05)


def test_pixel_norm_brings_every_pixel_to_mean_square_one():
    maps = pixel_norm(torch.randn(2, 7, 3, 3) * 9)
    assert torch.allclose(maps.square().mean(1), torch.ones(2, 3, 3))


def test_the_published_critic_has_about_a_million_weights():
    critic = Critic(facts_for(40, classes=10, side=28))
    weights = critic.first_weights([0])
    assert sum(weights[name].numel() for name in critic.shapes) == 1_071_105


@pytest.mark.parametrize(("side", "channels"), [(8, 1), (11, 3)])
def test_a_linear_generator_makes_one_image_for_each_class_and_a_change_for_each_coin(side, channels):
    facts = facts_for(40, side=side, channels=channels)
    network = LinearGenerator(facts, length=2, seed=0)
    images = network(torch.tensor([[0, 0, 1, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0, 1, 0], [1, 0, 0, 1, 0.0]])).detach()
    assert images.shape == (4, channels, side, side)
    assert 0 < float(images.min()) < float(images.max()) < 1
    before = images.logit()
    assert torch.allclose(before[1] - before[0], before[3] - before[2], atol=1e-5)


def test_a_dense_critic_is_a_hidden_layer_and_two_products_all_of_stretch_one():
    critic = Critic(facts_for(40), width=6, dense=True)
    state = {name: value[0] for name, value in critic.first_weights([1]).items()}
    for _ in range(500):
        state |= critic.followed(state)
    images, labels = torch.randn(5, 1, 8, 8), torch.tensor([0, 1, 2, 1, 1])
    normed = {name: state[name] / torch.linalg.matrix_norm(state[name], 2) for name in ("dense", "linear", "classes")}
    hidden = (images.flatten(1) @ normed["dense"].T + state["bias of dense"]).relu()
    expected = (hidden * (normed["linear"] + normed["classes"][labels])).sum(1) + state["bias"]
    assert torch.allclose(critic(state, images, labels), expected, atol=1e-4)


def test_power_steps_bring_every_weight_to_stretch_by_one():
    critic = Critic(facts_for(40), width=4)
    state = {name: value[0] for name, value in critic.first_weights([1]).items()}
    for _ in range(200):
        state |= critic.followed(state)
    for name, stretch in critic.stretches(state).items():
        normed = stretch.divided(state[name]).flatten(1)
        assert float(torch.linalg.matrix_norm(normed, 2)) == pytest.approx(1.0, rel=1e-3)
