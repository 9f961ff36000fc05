"""Kernels for convolutions, on a graphics card or in Triton's interpreter, against torch's own in float64."""
# pyright: reportMissingImports=false

import math
import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from privset import convolutions
from privset.convolutions import Form
from privset.networks import ConvNet, fused, kernels
from privset.networks.set_gradients import set_gradient

INTERPRETED = convolutions.AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
RUNS = INTERPRETED or (convolutions.AVAILABLE and torch.cuda.is_available())
CARD = "cuda" if torch.cuda.is_available() else "cpu"
needs_kernels = pytest.mark.skipif(not RUNS, reason="neither a graphics card nor the interpreter")

FORMS = [
    Form((13, 9), (3, 3), (1, 1), (1, 1)),
    Form((9, 13), (5, 2), (2, 1), (0, 2)),
    Form((2, 3), (3, 3), (1, 1), (1, 1)),
    Form((20, 17), (3, 3), (1, 1), (1, 1)),  # more places than one program takes
]


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def strange(values):
    """The same numbers ``[n, c, h, w]``, which do not lie row by row."""
    return values.transpose(2, 3).contiguous().transpose(2, 3)


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
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.bfloat16, 2**-7), (torch.float16, 2**-10), (torch.float32, 1e-5)]
)  # digits are cut off
def test_images_are_convolved_in_float32(form, channels, outs, dtype, tolerance):
    images, weight = random(3, channels, *form.given), random(outs, channels, *form.kernel, seed=1)
    expected = F.conv2d(images, weight, None, form.stride, form.padding)
    given, kernel = (values.float().to(CARD) for values in (images, weight))
    for lie in (lambda values: values, strange):
        found = convolutions.convolve(lie(given), lie(kernel), form, dtype).cpu()
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=1e-5)


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
    found = convolutions.products(strange(slope.to(CARD)), strange(given.to(CARD)), form)
    rows, squares = (part.cpu() for part in found)
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
    rows, squares = convolutions.products(slope.to(CARD), given.to(CARD), form)
    assert squares.isfinite().tolist() == [True, False, True]
    assert bool(rows[[0, 2]].isfinite().all())


@pytest.mark.parametrize(
    ("given", "weight"), [((1, 3, 8, 8), (4, 1, 3, 3)), ((1, 1, 8, 8), (4, 3, 3, 3)), ((1, 1, 2, 8), (4, 1, 5, 5))]
)
def test_a_weight_that_does_not_go_with_the_maps_is_refused_before_a_kernel_reads_beyond_it(given, weight):
    with pytest.raises(ValueError, match="cannot convolve"):
        Form.of(torch.zeros(given), torch.zeros(weight), (1, 1), (0, 0))


@needs_kernels
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("channels", "outs"), [(1, 40), (3, 5)])
def test_slopes_by_the_weight_are_those_of_torch(form, channels, outs):
    images, weight = random(3, channels, *form.given), random(outs, channels, *form.kernel, seed=1).requires_grad_()
    slope = random(3, outs, *form.found, seed=2)
    expected = torch.autograd.grad(F.conv2d(images, weight, None, form.stride, form.padding), weight, slope)[0]
    given, by = (strange(values.float().to(CARD)) for values in (images, slope))
    found = convolutions.by_weight(by, given, form)
    assert found.dtype == torch.float32
    assert found.is_contiguous()
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    for dtype, tolerance in ((torch.bfloat16, 0.02), (torch.float16, 0.0025)):
        coarse = convolutions.by_weight(by.to(dtype), given, form).cpu().double()
        torch.testing.assert_close(coarse, expected, rtol=0.0, atol=tolerance * float(expected.abs().max()))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("channels", "outs"), [(1, 40), (3, 5)])
def test_slopes_by_the_images_are_those_of_torch(form, channels, outs):
    images = random(3, channels, *form.given).requires_grad_()
    terms = [
        (random(3, outs, *form.found, seed=seed), random(outs, channels, *form.kernel, seed=seed + 1))
        for seed in (1, 3)
    ]
    each = [
        torch.autograd.grad(F.conv2d(images, weight, None, form.stride, form.padding), images, slope)[0]
        for slope, weight in terms
    ]
    expected = torch.stack(each).sum(0)
    placed = [(slope.to(CARD), strange(weight.to(CARD))) for slope, weight in terms]
    found = convolutions.by_images(placed, form).cpu()
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    coarse = convolutions.by_images([(slope.bfloat16(), weight.float()) for slope, weight in placed], form).cpu()
    assert coarse.dtype == torch.float32
    assert 1e-4 < float((coarse - expected).norm() / expected.norm()) < 0.01


@pytest.fixture
def kernels_everywhere(monkeypatch):
    """The interpreter has no card, so that all is taken for one that fits there."""
    for module in (kernels, convolutions):
        monkeypatch.setattr(module, "fits", lambda _: True)


def network_and_images():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = ConvNet((1, 12, 10), 3, width=4, depth=2)
    return network.to(CARD), random(5, 1, 12, 10).float().to(CARD), torch.tensor([0, 1, 2, 0, 1], device=CARD)


@pytest.fixture
def used(monkeypatch):
    """How often each kernel was asked for."""
    count = dict.fromkeys(("convolve", "by_weight", "by_images"), 0)

    def counted(name, function):
        def ask(*given):
            count[name] += 1
            return function(*given)

        return ask

    for name in count:
        monkeypatch.setattr(convolutions, name, counted(name, getattr(convolutions, name)))
    return count


@needs_kernels
@pytest.mark.parametrize("coarse", [False, True])
def test_a_network_whose_first_block_convolves_images_has_the_same_gradients(coarse, kernels_everywhere, used):
    network, images, labels = network_and_images()
    weights = list(network.parameters())
    plain = torch.autograd.grad(F.cross_entropy(network(images), labels), weights, allow_unused=True)
    blocks = fused.fuse(network.features, first=True)  # as `fused` does on a card
    with torch.autocast(CARD, torch.bfloat16, enabled=coarse):
        loss = F.cross_entropy(network.head(blocks(images)), labels)
    quick = torch.autograd.grad(loss, weights, allow_unused=True)
    for ours, theirs in zip(quick, plain, strict=True):
        if ours is not None and theirs is not None:  # of a bias before a norm there is none, or zeros
            error = float((ours - theirs).norm() / theirs.norm().clamp_min(1e-3))
            assert error < (0.1 if coarse else 1e-3)
    assert used == {"convolve": 1, "by_weight": 1, "by_images": 0}


@needs_kernels
@pytest.mark.parametrize("alone", [True, False])
def test_maps_and_slopes_of_a_network_that_is_called_alone_are_turned_once_each(alone, kernels_everywhere, monkeypatch):
    network, images, labels = network_and_images()  # of two blocks, so that one is given maps
    turned, turn = [], convolutions.channels_last
    monkeypatch.setattr(
        convolutions, "channels_last", lambda maps: (turned.append(tuple(maps.shape[1:])), turn(maps))[1]
    )
    blocks = fused.fuse(network.features, first=alone)
    with torch.autocast(CARD, torch.bfloat16):
        loss = F.cross_entropy(network.head(blocks(images)), labels)
    torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
    assert turned == [(4, 8, 8)] * (2 if alone else 0)


@needs_kernels
def test_where_a_slope_by_images_is_wanted_the_first_block_convolves_as_torch_does(kernels_everywhere, used):
    network, images, labels = network_and_images()
    blocks, images = fused.fuse(network.features, first=True), images.requires_grad_()
    found, plain = (
        torch.autograd.grad(F.cross_entropy(network.head(layers(images)), labels), images)[0]
        for layers in (blocks, network.features)
    )
    torch.testing.assert_close(found, plain, rtol=0.0, atol=1e-3 * float(plain.abs().max()))
    assert not any(used.values())


def test_a_block_of_a_network_that_is_not_the_first_convolves_as_torch_does(monkeypatch):
    network, images, _ = network_and_images()
    monkeypatch.setattr(convolutions, "fits", lambda _: pytest.fail("vmap would reach a kernel"))
    fused.fuse(network.features)(images)


@needs_kernels
@pytest.mark.parametrize("shape", [(1, 12, 10), (3, 16, 16)])
def test_the_gradient_of_a_set_and_its_slope_by_images_are_nearly_those_in_float64(
    shape, kernels_everywhere, used, monkeypatch
):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = ConvNet(shape, 3, width=16, depth=2).to(CARD)
    images, labels = random(12, *shape).to(CARD), (torch.arange(12) % 3).to(CARD)
    directions = [
        random(*weight.shape, seed=number).to(CARD) if weight.ndim > 1 else None
        for number, weight in enumerate(network.parameters())
    ]
    found = set_gradient(network, images.float(), labels)
    ours = [*found.weights, found.pull([None if towards is None else towards.float() for towards in directions])]
    assert used == {"convolve": 2, "by_weight": 1, "by_images": 1}
    for module in (convolutions, kernels):
        monkeypatch.setattr(module, "fits", lambda _: False)
    plain = set_gradient(network.double(), images, labels)
    pairs = zip(ours, [*plain.weights, plain.pull(directions)], strict=True)
    counted = [(one, other) for one, other in pairs if one is not None and other is not None]
    assert len(counted) == 4
    for one, other in counted:
        assert one.dtype == torch.float32
        error = float((one - other).norm() / other.norm())
        assert 1e-5 < error < 0.1  # maps are bfloat16, and a ReLU may go the other way


@pytest.mark.parametrize("shape", [(3, 5, 9, 7), (2, 128, 14, 14), (1, 70, 1, 66), (2, 1, 4, 4), (0, 3, 4, 4)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", [False, pytest.param(True, marks=needs_kernels)])
def test_channels_are_turned_to_be_last_and_back(shape, dtype, kernel, monkeypatch):
    monkeypatch.setattr(convolutions, "fits", lambda _: kernel)
    maps = random(*shape).to(CARD, dtype)
    for given in (maps, strange(maps), maps.contiguous(memory_format=torch.channels_last)):
        last = convolutions.channels_last(given)
        assert last.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(last, maps)
        assert convolutions.channels_last(last).data_ptr() == last.data_ptr()
        assert convolutions.channels_first(last).is_contiguous()
        assert torch.equal(convolutions.channels_first(last), maps)
        assert torch.equal(convolutions.channels_first(given), maps)


@pytest.mark.parametrize("last", [True, False])
def test_slopes_of_turned_maps_are_turned_back(last):
    one, other = torch.channels_last, torch.contiguous_format
    if not last:
        one, other = other, one
    maps = random(2, 3, 4, 5).to(memory_format=other).requires_grad_()
    slope = random(2, 3, 4, 5, seed=1)
    found = convolutions.turned(maps, last=last)
    assert found.is_contiguous(memory_format=one)
    assert torch.equal(found, maps)
    (back,) = torch.autograd.grad(found, maps, slope.to(memory_format=one))
    assert back.is_contiguous(memory_format=other)
    assert torch.equal(back, slope)
