"""Kernels that lay out patches, weights and pixels, against torch's operations: on a card, or in Triton's interpreter.

That is TRITON_INTERPRET=1, with Triton installed.
"""

import os

import pytest
import torch
from tests.networks.test_patches import (
    SHAPES,
    assert_derivatives_are_those_of_the_library,
    assert_derivatives_are_true,
    assert_networks_are_apart,
    by_library,
    drawn,
)

from privset import convolutions
from privset.networks import patch_kernels, patches
from privset.networks.patches import convolved_by_products

INTERPRETED = patch_kernels.AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
RUNS = INTERPRETED or (patch_kernels.AVAILABLE and torch.cuda.is_available())
CARD = "cuda" if torch.cuda.is_available() else "cpu"
needs_kernels = pytest.mark.skipif(not RUNS, reason="neither a graphics card nor the interpreter")

FORMS = [(5, 2), (3, 1), (3, 2), (1, 1)]
MAPS = [
    (2, 3, 7, 4, 1),
    (1, 5, 8, 8, 3),  # more images than one program looks at
    (3, 2, 1, 2, 5),
    (2, 1, 5, 3, 32),  # several tiles of columns
    (1, 1, 47, 45, 1),  # several tiles of places
    (2, 0, 4, 4, 2),
]


def hidden(values):
    """The same numbers, every second one along each axis of a table that else holds none, and in another order."""
    table = torch.full([2 * side for side in reversed(values.shape)], float("nan"), dtype=values.dtype)
    table = table.to(values.device)[(slice(1, None, 2),) * values.ndim].permute(*reversed(range(values.ndim)))
    return table.copy_(values)


LIES = [lambda values: values, hidden, lambda values: values[:1].expand_as(values)]


def torch_patches(maps, side, step):
    return torch.stack([patches.patches(own, side, step) for own in maps])


@needs_kernels
@pytest.mark.parametrize("shape", MAPS)
@pytest.mark.parametrize(("side", "step"), FORMS)
@pytest.mark.parametrize("lie", LIES)
def test_patches_are_those_of_torch_however_maps_lie(shape, side, step, lie):
    maps = lie(drawn(*shape).to(CARD))
    found = patch_kernels.patches(maps, side, step)
    assert found.is_contiguous()
    assert torch.equal(found, torch_patches(maps, side, step))


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_no_bit_of_a_number_is_changed(dtype):
    maps, kernel = drawn(2, 2, 6, 5, 4).to(CARD, dtype), drawn(2, 3, 4, 5, 5).to(CARD, dtype)
    assert torch.equal(patch_kernels.patches(maps, 5, 2), torch_patches(maps, 5, 2))
    assert torch.equal(patch_kernels.taps(kernel), patches._taps(kernel.cpu()).to(CARD))
    assert torch.equal(patch_kernels.lines(kernel), patches._lines(kernel.cpu()).to(CARD))


@needs_kernels
@pytest.mark.parametrize("shape", [(2, 3, 1), (1, 2, 3), (2, 1, 40), (3, 2, 32), (0, 2, 3)])
@pytest.mark.parametrize("lie", LIES)
def test_weights_are_laid_out_as_by_torch(shape, lie):
    kernel = lie(drawn(*shape, 5, 5).to(CARD))
    for ours, theirs in ((patch_kernels.taps, patches._taps), (patch_kernels.lines, patches._lines)):
        found = ours(kernel)
        assert found.is_contiguous()
        assert torch.equal(found.cpu(), theirs(kernel.cpu()))


@needs_kernels
@pytest.mark.parametrize("size", [(8, 6), (7, 6), (7, 5), (1, 1), (48, 50)])
@pytest.mark.parametrize("channels", [1, 3, 130])
def test_pixels_are_put_in_their_places(size, channels):
    high, wide = ((side + 1) // 2 for side in size)
    count = 1 if max(size) > 8 else 3
    found = drawn(2, count * high * wide, 4 * channels)
    maps = patch_kernels.pixels(found.to(CARD), count, high, wide, size)
    assert maps.is_contiguous()
    assert torch.equal(maps.cpu(), patches._pixels(found, torch.Size((count, high, wide)), torch.Size(size)))


@pytest.fixture
def kernels_everywhere(monkeypatch):
    for module in (patch_kernels, convolutions):
        monkeypatch.setattr(module, "fits", lambda _: True)


@needs_kernels
@pytest.mark.usefixtures("kernels_everywhere")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("own_maps", [True, False])
def test_by_kernels_derivatives_of_many_networks_are_those_of_the_library(shape, own_maps):
    channels, height, width = shape[0], min(shape[1], 9), min(shape[2], 9)
    kernels = drawn(3, 4, channels, 5, 5, seed=1).to(CARD)
    maps = (drawn(3, 2, channels, height, width) if own_maps else drawn(2, channels, height, width)).to(CARD)
    assert torch.allclose(
        convolved_by_products(maps.flatten(0, -4), kernels[0]), by_library(maps.flatten(0, -4), kernels[0])
    )
    assert_derivatives_are_those_of_the_library(kernels, maps, (0, 0 if own_maps else None))


@needs_kernels
@pytest.mark.usefixtures("kernels_everywhere")
def test_by_kernels_derivatives_are_true_to_the_second_order():
    maps, kernel = drawn(1, 3, 2, 2).to(CARD), drawn(2, 2, 5, 5, seed=1).to(CARD)
    slope = drawn(1, 2, 1, 2, seed=2).to(CARD)
    assert_derivatives_are_true(maps, kernel, slope, fast_mode=True)


@needs_kernels
@pytest.mark.usefixtures("kernels_everywhere")
def test_by_kernels_what_one_network_is_shown_changes_no_other():
    assert_networks_are_apart(CARD)


def test_a_processor_has_no_use_for_the_kernels():
    assert not patch_kernels.fits(drawn(1, 1, 1, 1))
