import pytest
import torch
from tests.conftest import facts_for

from privset.networks.features import RandomFeatures, _cells


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


@pytest.mark.parametrize("shape", [(8, 8), (9, 12), (16, 8), (2, 8), (4, 4), (3, 3)])
def test_cells_are_those_of_adaptive_pooling(shape):
    maps = torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.adaptive_avg_pool2d(maps, 4) if shape[1] > 4 else maps
    assert torch.allclose(_cells(maps, 4), expected, atol=1e-6)
