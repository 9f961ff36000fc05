"""The kernels of a graphics card, there or in Triton's interpreter, against torch's own operations in float64."""
# pyright: reportMissingImports=false

import math
import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tests.privacy.test_layered import batch, moved, plain, sums

from privset.methods.record_loss import record_loss
from privset.networks import ConvNet, LeNet, kernels
from privset.privacy import clipping_kernels, layered
from privset.privacy.clipping import Shares
from privset.privacy.clipping_kernels import Form
from privset.privacy.layered import LayeredLoss, _Held, record_gradients

INTERPRETED = clipping_kernels.AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
RUNS = INTERPRETED or (clipping_kernels.AVAILABLE and torch.cuda.is_available())
CARD = "cuda" if torch.cuda.is_available() else "cpu"
needs_kernels = pytest.mark.skipif(not RUNS, reason="neither a graphics card nor the interpreter")

FORMS = [
    Form((13, 9), (3, 3), (1, 1), (1, 1)),
    Form((9, 13), (5, 2), (2, 1), (0, 2)),
    Form((2, 3), (3, 3), (1, 1), (1, 1)),
]


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(autouse=True)
def whole_interpreter(monkeypatch):
    """Triton's interpreter multiplies the bits of bfloat16 as if they were numbers."""
    if not INTERPRETED:
        return
    from triton import language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    multiply = InterpreterBuilder.create_dot

    def widened(values):
        if values.dtype.scalar != tl.bfloat16:
            return values
        return TensorHandle((values.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    monkeypatch.setattr(
        InterpreterBuilder, "create_dot", lambda self, a, b, *rest: multiply(self, widened(a), widened(b), *rest)
    )


@pytest.fixture
def kernels_everywhere(monkeypatch):
    """The interpreter has no card, so that all is taken for one that fits there."""
    for module in (kernels, clipping_kernels):
        monkeypatch.setattr(module, "fits", lambda _: True)


def patches(given, form):
    """``[n, c kh kw, places]``"""
    return F.unfold(given, form.kernel, padding=form.padding, stride=form.stride)


@pytest.mark.parametrize("form", FORMS)
def test_a_form_knows_how_large_maps_come_out(form):
    maps = F.conv2d(torch.zeros(1, 1, *form.given), torch.zeros(1, 1, *form.kernel), None, form.stride, form.padding)
    assert form.found == tuple(maps.shape[2:])
    assert form.taps == form.kernel[0] * form.kernel[1]


@needs_kernels
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("channels", "outs"), [(1, 40), (3, 5)])
def test_images_are_convolved_in_float32(form, channels, outs):
    images, weight = random(3, channels, *form.given), random(outs, channels, *form.kernel, seed=1)
    strange = weight.flip(0).transpose(2, 3).contiguous().transpose(2, 3)  # does not lie row by row
    for kernel in (weight, strange):
        expected = F.conv2d(images, kernel, None, form.stride, form.padding)
        found = clipping_kernels.convolve(images.float().to(CARD), kernel.float().to(CARD), form).cpu()
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.double(), expected, rtol=2**-7, atol=1e-5)  # the interpreter cuts digits off


@needs_kernels
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("channels", "outs"),
    [
        (1, 20),
        (3, 16),
        (16, 130),
        (48, 7),
        (256, 33),
    ],  # columns of several pixels of a kernel, and of one; several tiles
)
def test_gradients_are_products_of_slopes_and_patches_and_their_lengths_those_of_what_is_held(form, channels, outs):
    slope, given = random(3, outs, *form.found).bfloat16(), random(3, channels, *form.given, seed=1).bfloat16()
    slope[2] *= 1e-3
    rows, squares = (part.cpu() for part in clipping_kernels.products(slope.to(CARD), given.to(CARD), form))
    exact = slope.double().flatten(2) @ patches(given.double(), form).transpose(1, 2)
    expected = exact.unflatten(2, (channels, form.taps)).transpose(2, 3).flatten(2)
    torch.testing.assert_close(rows.double(), expected, rtol=2**-7, atol=1e-4 * float(expected.abs().max()))
    torch.testing.assert_close(squares, rows.double().square().sum((1, 2)), rtol=1e-6, atol=0.0)
    assert float((squares / exact.square().sum((1, 2)) - 1).abs().max()) > 1e-6  # not of what they were rounded from


@needs_kernels
def test_a_record_whose_slope_is_not_finite_is_seen_and_alone():
    form = FORMS[0]
    slope, given = random(3, 16, *form.found).bfloat16(), random(3, 16, *form.given, seed=1).bfloat16()
    slope[1, 3, 2, 2] = math.nan
    rows, squares = clipping_kernels.products(slope.to(CARD), given.to(CARD), form)
    assert squares.isfinite().tolist() == [True, False, True]
    assert bool(rows[[0, 2]].isfinite().all())


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(("count", "columns"), [(21, 700), (150, 70), (19, 8300)])  # short rows, and long ones
@pytest.mark.parametrize("last", [None, (1, 2, 5)])
def test_the_kernel_adds_up_the_rows_that_have_a_share(dtype, count, columns, last, kernels_everywhere):
    rows = random(count, columns).to(dtype)
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(4, count, generator=generator, dtype=torch.float64) * (
        torch.rand(4, count, generator=generator) < 0.5
    )
    weights[:, 4] = 0
    rows[4] = math.nan
    weights[1, : count // 2], weights[2], weights[3] = 0, 0, 1.5  # one that begins late, of nobody, of all but one
    weights[3, 4] = 0
    start = random(4, columns + 300, seed=2)
    added = weights @ rows.nan_to_num().double()
    if last is not None:
        added = added.unflatten(1, (-1, 2, 5)).transpose(2, 3).flatten(1)
    expected = start.clone()
    expected[:, 100 : 100 + columns] += added
    found = start.to(CARD)
    _Held(rows[:, None].to(CARD), last).add(Shares(weights.to(CARD)), found[:, 100 : 100 + columns])
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-12, atol=1e-12)


def test_shares_name_the_rows_of_each_sum_one_after_the_other():
    order, counts = Shares(torch.tensor([[0.0, 0.5, 0.0, 1.0], [0.0] * 4, [1.0, 2.0, 3.0, 4.0]])).taken
    assert counts.tolist() == [2, 0, 4]
    assert [row[:count].tolist() for row, count in zip(order, counts, strict=True)] == [[1, 3], [], [0, 1, 2, 3]]


@needs_kernels
def test_the_way_of_a_graphics_card_gives_the_sums_of_vmap(kernels_everywhere):
    network = moved(ConvNet((1, 8, 8), 3, width=4, depth=2).double()).to(CARD)
    images, labels = (values.to(CARD) for values in batch((1, 8, 8), 5))
    members = torch.tensor([[1, 0, 1, 1, 0], [1, 1, 0, 1, 0]]).bool()
    expected, _ = sums(plain(network), network, images, labels, members)
    found, _ = sums(record_loss(network, fused=True), network, images, labels, members)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)


@needs_kernels
@pytest.mark.parametrize("build", [lambda: ConvNet((1, 12, 12), 3, width=32, depth=2), lambda: LeNet((1, 16, 16), 3)])
def test_in_bfloat16_the_kernels_stay_near_vmap_and_bounds_hold(build, kernels_everywhere, monkeypatch):
    """By all kernels at once; in float64, where matrix units do not serve, the test above."""
    monkeypatch.setattr(layered, "_coarse", lambda _: torch.autocast(CARD, torch.bfloat16))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = build()
    images, labels = batch(network_shape(network), 6, dtype=torch.float32)
    exact, _ = sums(plain(network), network.double(), images.double(), labels)
    network, images, labels = network.float().to(CARD), images.to(CARD), labels.to(CARD)
    loss = record_loss(network)
    assert isinstance(loss, LayeredLoss)
    found, bad = sums(loss, network, images, labels)
    assert bad == 0
    assert 1e-4 < float((found.cpu() - exact).norm() / exact.norm()) < 0.08
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    parts = record_gradients(loss, parameters, images, labels)
    assert any(getattr(part, "lengths", None) is not None for part in parts.values())  # the kernel did it
    for clip_norm in (1e-5, 1e-2):
        for index in range(len(images)):
            one = slice(index, index + 1)
            alone, _ = sums(loss, network, images[one], labels[one], clip_norm=clip_norm)
            assert float(alone.norm()) == pytest.approx(clip_norm, rel=1e-6)


def network_shape(network):
    return (1, 12, 12) if isinstance(network, ConvNet) else (1, 16, 16)
