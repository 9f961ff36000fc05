import dataclasses
import itertools
import math

import pytest
import torch
from tests.conftest import facts_for

from privset.networks.features import RandomFeatures, WaveLift, _cells, look, random_views, views


def images_for(facts, count=3, seed=0):
    return torch.randn(count, *facts.shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("side", "channels"), [(8, 1), (12, 3), (28, 1), (32, 3)])
def test_features_are_unit_vectors_of_every_block(side, channels):
    facts = facts_for(4, side=side, channels=channels)
    features = RandomFeatures(facts, seed=0, width=4, depth=3, resolution=4, warp=1.0)(images_for(facts))
    assert torch.allclose(features.norm(dim=1), torch.ones(3), atol=1e-5)
    thirds = features.split([*_sizes(side)], dim=1)
    for part in thirds:  # every block has the same say
        assert torch.allclose(part.norm(dim=1), torch.full((3,), 3**-0.5), atol=1e-5)


def _sizes(side):
    side = side + 2 * ((-side % 8) // 2)
    for _ in range(3):
        side = max(side // 2, 1)
        yield 4 * min(side, 4) ** 2


def test_the_seed_decides_everything_and_the_global_state_nothing():
    facts = facts_for(4, side=16)
    torch.manual_seed(1)
    first = RandomFeatures(facts, seed=5, width=4, warp=1.0)(images_for(facts))
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second = RandomFeatures(facts, seed=5, width=4, warp=1.0)(images_for(facts))
    assert torch.equal(first, second)
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.allclose(first, RandomFeatures(facts, seed=6, width=4, warp=1.0)(images_for(facts)))


def test_a_view_is_fixed_and_changes_what_is_seen():
    facts = facts_for(4, side=16)
    plain, warped = (RandomFeatures(facts, seed=5, width=4, warp=warp) for warp in (0.0, 1.0))
    images = images_for(facts)
    assert not torch.allclose(plain(images), warped(images), atol=1e-3)
    assert torch.equal(warped(images), warped(images))


def test_an_image_is_seen_by_itself_alone_or_in_company_and_under_vmap():
    facts = facts_for(4, side=16, channels=3)
    features = RandomFeatures(facts, seed=5, width=4, warp=1.0)
    images = images_for(facts, 5)
    together = features(images)
    assert torch.allclose(features(images[2:3])[0], together[2], atol=1e-5)
    assert torch.allclose(torch.func.vmap(lambda image: features(image[None])[0])(images), together, atol=1e-5)


def test_images_have_gradients_and_weights_have_none():
    facts = facts_for(4, side=16)
    features = RandomFeatures(facts, seed=5, width=4, warp=1.0)
    images = images_for(facts).requires_grad_()
    features(images)[:, 0].sum().backward()
    assert images.grad is not None
    assert float(images.grad.abs().sum()) > 0
    assert not any(parameter.requires_grad for parameter in features.parameters())


@pytest.mark.parametrize(
    ("shape", "grid"),
    [
        ((8, 8), (4, 4)),
        ((9, 12), (4, 4)),
        ((16, 8), (4, 4)),
        ((4, 4), (4, 4)),
        ((3, 3), (3, 3)),
        ((2, 8), (2, 4)),
        ((8, 2), (4, 2)),
        ((1, 31), (1, 4)),
        ((31, 1), (4, 1)),
    ],
)
def test_cells_are_averages_over_what_they_cover(shape, grid):
    maps = torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(0))
    expected = torch.empty(2, 3, *grid)
    for row, column in itertools.product(*map(range, grid)):
        rows, columns = (
            slice(place * side // cells, math.ceil((place + 1) * side / cells))
            for place, side, cells in zip((row, column), shape, grid, strict=True)
        )
        expected[:, :, row, column] = maps[:, :, rows, columns].mean(dim=(2, 3))
    assert torch.allclose(_cells(maps, 4), expected, atol=1e-6)


def test_tall_and_wide_images_have_as_many_features():
    square = facts_for(4, side=8)
    tall, wide = (dataclasses.replace(square, height=height, width=width) for height, width in [(64, 8), (8, 64)])
    sizes = [RandomFeatures(facts, seed=0, width=4)(images_for(facts)).shape[1] for facts in (tall, wide)]
    assert sizes == [4 * (4 * 4 + 4 * 2 + 4 * 1)] * 2


def directions(count, features=16, seed=0):
    """Unit vectors in float64."""
    found = torch.randn(count, features, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(found, dim=1)


@pytest.mark.parametrize(("waves", "bandwidth"), [(1, 0.7), (7, 0.01), (64, 100.0)])
def test_whatever_is_lifted_has_length_one_also_record_by_record(waves, bandwidth):
    lift = WaveLift(16, waves=waves, bandwidth=bandwidth, seed=3)
    centred = directions(6).float() * torch.tensor([1e-6, 1e-3, 0.5, 1.0, 2.0, 1e6])[:, None]
    together = lift(centred)
    one_by_one = torch.func.vmap(lambda record: lift(record[None])[0])(centred)
    assert together.shape == (6, 2 * waves + 16)
    for lifted in (together, one_by_one):
        assert torch.allclose(lifted.double().norm(dim=1), torch.ones(6, dtype=torch.float64), atol=1e-6)
        for half in lifted.split([2 * waves, 16], dim=1):  # waves and direction have the same say
            assert torch.allclose(half.norm(dim=1), torch.full((6,), 0.5**0.5), atol=1e-6)
    assert torch.allclose(together, one_by_one, atol=1e-4)
    nothing = lift(torch.zeros(1, 16))  # no direction: shorter, never longer
    assert float(nothing.norm()) == pytest.approx(0.5**0.5, abs=1e-6)


@pytest.mark.parametrize("bandwidth", [0.5, 0.7, 1.5])
def test_products_of_waves_are_a_gaussian_kernel_of_the_directions(bandwidth):
    lift = WaveLift(16, waves=20_000, bandwidth=bandwidth, seed=0)
    plane, _ = torch.linalg.qr(directions(2).T)
    angles = torch.linspace(0, math.pi, 6, dtype=torch.float64)  # from one direction to its opposite
    found = torch.stack([angles.cos(), angles.sin()], dim=1) @ plane.T
    waves = 2**0.5 * lift.double()(found * 3.0)[:, :40_000]
    expected = torch.exp(-torch.cdist(found, found).square() / (2 * bandwidth**2))
    assert float(expected.min()) < 0.5
    assert torch.allclose(waves @ waves.T, expected, atol=0.03)


def test_waves_are_known_by_their_seed_and_share_no_stream_with_a_network():
    torch.manual_seed(1)
    first = WaveLift(5, waves=9, bandwidth=0.5, seed=4).frequencies
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(WaveLift(5, waves=9, bandwidth=0.5, seed=4).frequencies, first)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.allclose(WaveLift(5, waves=9, bandwidth=0.5, seed=5).frequencies, first)
    of_a_network = torch.randn(5, 9, generator=torch.Generator().manual_seed(4)) / 0.5
    assert not torch.allclose(first, of_a_network)


def test_a_draw_in_the_middle_leaves_images_as_they_are():
    middle = views(torch.full((1, 5), 0.5), 1.0)
    assert torch.allclose(middle, torch.eye(2, 3)[None], atol=1e-7)
    images = images_for(facts_for(4, side=9, channels=3))
    assert torch.allclose(look(images, middle), images, atol=1e-5)


def test_views_turn_stretch_and_shift_as_far_as_documented():
    views = random_views(4000, torch.Generator().manual_seed(0))
    assert views.shape == (4000, 2, 3)
    scale = views[:, :, :2].norm(dim=2)
    turn = torch.atan2(views[:, 1, 0] / scale[:, 1], views[:, 0, 0] / scale[:, 0])
    assert torch.allclose((views[:, 0, :2] * views[:, 1, :2]).sum(1), torch.zeros(4000), atol=1e-6)  # no shear
    # Coordinates go from -1 to 1, so 6 % of the side is 0.12.
    for values, limit in ((turn, math.radians(15)), (scale.log(), 0.2), (views[:, :, 2], 0.12)):
        assert float(values.max()) <= limit + 1e-6
        assert float(values.min()) >= -limit - 1e-6
        assert float(values.max()) > 0.95 * limit
        assert float(values.min()) < -0.95 * limit
        assert abs(float(values.mean())) < 0.1 * limit


def test_all_images_through_one_view_or_each_through_its_own():
    images = images_for(facts_for(4, side=9, channels=3), 4)
    views = random_views(4, torch.Generator().manual_seed(1))
    one = look(images, views[:1])
    assert torch.equal(one, look(images, views[:1].repeat(4, 1, 1)))
    own = look(images, views)
    for number in range(4):
        alone = look(images[number : number + 1], views[number : number + 1])
        assert torch.allclose(own[number], alone[0], atol=1e-6)
    assert torch.equal(own[0], one[0])
    assert not torch.allclose(own[1], one[1], atol=1e-2)


def test_on_the_edge_pixels_go_on():
    images = images_for(facts_for(4, side=8))
    by_one_pixel = torch.tensor([[[1.0, 0.0, 2 / 8], [0.0, 1.0, 0.0]]])
    expected = torch.cat([images[..., 1:], images[..., -1:]], dim=3)
    assert torch.allclose(look(images, by_one_pixel), expected, atol=1e-5)
