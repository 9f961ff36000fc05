"""Convolutions of few channels against those of torch; the kernel where something can run it.

That is a graphics card, or Triton's interpreter: TRITON_INTERPRET=1, with Triton installed.
"""

import os

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from privset import thin
from privset.networks import ConvNet
from privset.networks.fused import fuse

INTERPRETED = thin.AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
RUNS = INTERPRETED or (thin.AVAILABLE and torch.cuda.is_available())
KERNEL = pytest.mark.skipif(not RUNS, reason="neither a graphics card nor the interpreter")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

CASES = [
    ((4, 1, 28, 28), (6, 1, 3, 3), (1, 1), (3, 3)),
    ((2, 3, 9, 7), (130, 3, 3, 3), (1, 1), (1, 1)),
    ((3, 2, 8, 11), (5, 2, 3, 5), (2, 1), (1, 0)),
    ((1, 1, 4, 4), (1, 1, 1, 1), (1, 1), (0, 0)),
]


def inputs_for(images, weight, stride, padding):
    generator = torch.Generator().manual_seed(0)
    images, weight = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in (images, weight))
    maps = F.conv2d(images, weight, None, stride, padding)
    return images, weight, maps, torch.randn(maps.shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("last", [False, True])
def test_gradients_are_those_of_the_convolution(case, last):
    images, weight, _, slope = inputs_for(*case)
    stride, padding = case[2:]
    backward = torch.ops.aten.convolution_backward
    how = (None, stride, padding, (1, 1), False, (0, 0), 1, (True, True, False))
    expected = backward(slope, images, weight, *how)
    if last:
        slope = slope.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(thin.by_weight(slope, images, weight, stride, padding), expected[1])
    size = (images.shape[2], images.shape[3])
    torch.testing.assert_close(thin.by_images([(slope, weight)], size, stride, padding), expected[0])
    other, pairs = backward(2 * slope, images, weight + 1, *how)[0], [(slope, weight), (2 * slope, weight + 1)]
    torch.testing.assert_close(thin.by_images(pairs, size, stride, padding), expected[0] + other)


@KERNEL
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_kernel_convolves_and_leaves_channels_last(case, dtype):
    images, weight, expected, _ = inputs_for(*case)
    found = thin.convolve(images.to(DEVICE, dtype), weight.to(DEVICE, dtype), *case[2:])
    assert found.is_contiguous(memory_format=torch.channels_last)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(found.cpu().double(), expected, rtol=tolerance, atol=tolerance)


@KERNEL
def test_a_fused_network_has_the_gradients_of_the_plain_one(monkeypatch):
    network = ConvNet((1, 8, 8), 3, width=4, depth=2).double().to(DEVICE)
    images = torch.randn(3, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    images.requires_grad_()
    wanted = [images, *network.features.parameters()]
    expected = torch.autograd.grad(network.features(images).square().sum(), wanted, allow_unused=True)
    monkeypatch.setattr(thin, "fits", lambda _, weight: weight.shape[1] == 1)
    found = torch.autograd.grad(fuse(network.features)(images).square().sum(), wanted, allow_unused=True)
    for weight, ours, theirs in zip(wanted, found, expected, strict=True):
        if ours is None:  # a bias before a norm
            assert weight.shape == (4,)
            assert float(theirs.abs().max()) < 1e-12
        else:
            torch.testing.assert_close(ours, theirs)


def test_only_a_card_and_few_products_are_for_it():
    assert not thin.fits(torch.zeros(1, 1, 4, 4), torch.zeros(2, 1, 3, 3))
    with torch.device("meta"):
        assert not thin.fits(torch.zeros(1, 1, 4, 4), torch.zeros(2, 1, 3, 3))
