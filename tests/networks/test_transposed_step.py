"""A step of the generator written out, beside autograd."""

import contextlib
import copy
import os

import pytest
import torch
from tests.conftest import facts_for

from privset.networks import batch_kernels, image_kernels, transposed_step
from privset.networks.transposed import TransposedGenerator
from privset.networks.transposed_step import _ByAutograd, _ByHand, generator_step
from privset.recording import WRITTEN_STEPS, Beside, recorded

INTERPRETED = batch_kernels.AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
CARD = "cuda" if torch.cuda.is_available() else "cpu"
needs_kernels = pytest.mark.skipif(
    not (INTERPRETED or (batch_kernels.AVAILABLE and torch.cuda.is_available())),
    reason="needs a graphics card, or Triton's interpreter",
)


def generator(side=8, channels=1, width=8):
    facts = facts_for(40, side=side, channels=channels)
    network = TransposedGenerator(facts, length=3, seed=0, width=width)
    random = torch.Generator().manual_seed(1)
    for layer in network.layers:
        if isinstance(layer, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(layer.weight, generator=random)
            torch.nn.init.normal_(layer.bias, generator=random)
    codes = network.draw(torch.arange(7) % 3, random)
    return network, codes, torch.randn(7, *facts.shape, generator=random)


def compare(network, codes, slope, device, narrow, *, near):
    """Two steps by hand, and by autograd in float64."""
    plain, given = _ByAutograd(copy.deepcopy(network).double()), network.to(device)
    hand = _ByHand(given, narrow)
    for _ in range(2):
        theirs, ours = plain.images(codes.double()), hand.images(codes.to(device, next(given.parameters()).dtype))
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours.cpu().double(), theirs, rtol=near, atol=near)
        expected, found = plain.slopes(slope.double()), hand.slopes(slope.to(ours))
        for one, weight, other in zip(found, given.parameters(), expected, strict=True):
            assert (one.shape, one.dtype) == (weight.shape, weight.dtype)
            # By their lengths: where a number is nearly 0, a leaky ReLU takes it for positive or for negative.
            assert float((one.cpu().double() - other).norm()) < near * float(other.norm())
    for name, value in plain._network.state_dict().items():
        torch.testing.assert_close(given.state_dict()[name].cpu().to(value), value, rtol=near, atol=near)


NARROW = 0.125
"""How far from float64 the gradient by a weight may be, relative to its length, if maps lie as bfloat16."""
SIZES = pytest.mark.parametrize(("side", "channels", "width"), [(8, 1, 8), (10, 3, 4), (12, 1, 5)])


@SIZES
@pytest.mark.parametrize(("narrow", "near"), [(torch.float64, 1e-8), (torch.bfloat16, NARROW)])
def test_a_step_by_hand_is_that_of_autograd(side, channels, width, narrow, near):
    network, codes, slope = generator(side, channels, width)
    compare(network.double(), codes, slope, "cpu", narrow, near=near)


@needs_kernels
@SIZES
@pytest.mark.parametrize(("narrow", "near", "tile"), [(torch.float32, 1e-4, 16), (torch.bfloat16, NARROW, 4096)])
def test_a_step_by_kernels_is_that_of_autograd(side, channels, width, narrow, near, tile, monkeypatch):
    monkeypatch.setattr(batch_kernels, "fits", lambda maps: True)
    monkeypatch.setattr(image_kernels, "fits", lambda maps, weight: True)
    monkeypatch.setattr(batch_kernels, "TILE", tile)
    # On a card convolutions are of numbers with ten bits behind the point at most.
    compare(*generator(side, channels, width), CARD, narrow, near=near if CARD == "cpu" else max(near, 0.02))


@needs_kernels
@pytest.mark.parametrize("shape", [(3, 5, 7, 7), (60, 64, 4, 4), (2, 1, 1, 1)])
def test_a_norm_far_from_zero_keeps_its_digits(shape):
    maps, slope = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    maps = maps + 300
    exact = maps.double().requires_grad_()
    theirs = torch.nn.functional.batch_norm(exact, None, None, training=True)
    weight, bias, *running = torch.tensor([1.0, 0.0, 0.0, 1.0], device=CARD)[:, None].repeat(1, shape[1])
    how = {"eps": 1e-5, "leak": 1.0}  # which bends nothing
    ours, moments = batch_kernels.norm_leaky(maps.to(CARD), weight, bias, *running, momentum=0.1, **how)
    torch.testing.assert_close(ours.cpu().double(), theirs.detach(), rtol=1e-3, atol=1e-3)
    by_maps, _, _ = batch_kernels.slopes(slope.to(CARD), maps.to(CARD), weight, bias, moments, **how)
    (expected,) = torch.autograd.grad(theirs, exact, slope.double())
    if shape != (2, 1, 1, 1):  # of two numbers, normed to -1 and 1, nothing is left of a slope but rounding
        near = 2e-3 * float(expected.abs().max())
        torch.testing.assert_close(by_maps.cpu().double(), expected, rtol=1e-3, atol=near)


@needs_kernels
def test_moments_of_maps_in_few_bits_are_summed_in_all():
    maps = torch.randn(60, 16, 14, 14, generator=torch.Generator().manual_seed(0)).bfloat16().to(CARD)
    weight, bias, *running = torch.tensor([1.0, 0.0, 0.0, 1.0], device=CARD)[:, None].repeat(1, 16)
    _, moments = batch_kernels.norm_leaky(maps, weight, bias, *running, momentum=0.1, eps=1e-5, leak=0.2)
    exact = maps.double().movedim(1, 0).flatten(1)
    expected = torch.stack([exact.mean(1), exact.var(1, correction=0)])
    torch.testing.assert_close(moments.view(2, 16).double().cpu(), expected.cpu(), rtol=1e-4, atol=1e-4)


def test_all_that_is_begun_beside_is_joined_before_a_step_ends(monkeypatch):
    open_ones = set()

    class Noting(Beside):
        @contextlib.contextmanager
        def begin(self):
            open_ones.add(self)
            with super().begin():
                yield

        def join(self, *values):
            open_ones.discard(self)
            super().join(*values)

    monkeypatch.setattr(transposed_step, "Beside", Noting)
    network, codes, slope = generator()
    step = _ByHand(network, torch.float32)
    step.images(codes)
    step.slopes(slope)
    assert len(step._beside) > 2
    assert not open_ones


def test_on_a_processor_autograd_takes_the_step():
    network, codes, slope = generator()
    step, other = generator_step(network), copy.deepcopy(network)
    assert isinstance(step, _ByAutograd)
    images = step.images(codes)
    assert not images.requires_grad
    found = step.slopes(slope)
    for one, weight in zip(found, torch.autograd.grad(other(codes), list(other.parameters()), slope), strict=True):
        assert torch.equal(one, weight)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card")
def test_on_a_card_a_recorded_step_is_the_step():
    found = []
    for way in (lambda step, _: step, recorded):
        network, codes, slope = generator()
        step, slope = generator_step(network.to("cuda")), slope.to("cuda")
        assert isinstance(step, _ByHand)

        def descend(codes, network=network, step=step, slope=slope):
            images = step.images(codes)
            slopes = step.slopes(slope * images)
            with torch.no_grad():
                for weight, by in zip(network.parameters(), slopes, strict=True):
                    weight -= 1e-3 * by
            return images

        take = way(descend, torch.device("cuda"))
        found.append([take(codes.to("cuda") * number).cpu() for number in range(WRITTEN_STEPS + 4)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)  # a rounding to bfloat16 may go either way
