"""The kernels of a graphics card, there or in Triton's interpreter, against torch's own operations in float64."""

import math
import os

import pytest
import torch
from tests.privacy.test_layered import batch, moved, plain, sums
from tests.test_convolutions import random, whole_interpreter  # noqa: F401 - a fixture

from privset import convolutions
from privset.methods import record_loss as record_loss_module
from privset.methods.record_loss import record_loss
from privset.networks import ConvNet, LeNet, kernels
from privset.networks.fused import norm_relu_pool
from privset.privacy import clipping_kernels, layered
from privset.privacy.clipping import Shares
from privset.privacy.held import Held
from privset.privacy.layered import LayeredLoss, record_gradients

INTERPRETED = clipping_kernels.AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
RUNS = INTERPRETED or (clipping_kernels.AVAILABLE and torch.cuda.is_available())
CARD = "cuda" if torch.cuda.is_available() else "cpu"
needs_kernels = pytest.mark.skipif(not RUNS, reason="neither a graphics card nor the interpreter")


@pytest.fixture
def kernels_everywhere(monkeypatch):
    """The interpreter has no card, so that all is taken for one that fits there."""
    for module in (kernels, clipping_kernels, convolutions):
        monkeypatch.setattr(module, "fits", lambda _: True)
    monkeypatch.setattr(record_loss_module, "norm_relu_pool_last", norm_relu_pool)
    monkeypatch.setattr(record_loss_module, "FEW", 0)  # a card takes the first block layer by layer


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
    weights[:, [0, 4]] = 0  # the first is where a place that has no row points
    rows[[0, 4]] = math.nan
    weights[1, : count // 2], weights[2], weights[3] = 0, 0, 1.5  # one that begins late, of nobody, of all but two
    weights[3, [0, 4]] = 0
    start = random(4, columns + 300, seed=2)
    added = weights @ rows.nan_to_num().double()
    if last is not None:
        added = added.unflatten(1, (-1, 2, 5)).transpose(2, 3).flatten(1)
    expected = start.clone()
    expected[:, 100 : 100 + columns] += added
    found = start.to(CARD)
    Held(rows[:, None].to(CARD), last).add(Shares(weights.to(CARD)), found[:, 100 : 100 + columns])
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-12, atol=1e-12)


def test_shares_name_the_rows_of_each_sum_one_after_the_other():
    order, counts = Shares(torch.tensor([[0.0, 0.5, 0.0, 1.0], [0.0] * 4, [1.0, 2.0, 3.0, 4.0]])).taken
    assert counts.tolist() == [2, 0, 4]
    assert [row[:count].tolist() for row, count in zip(order, counts, strict=True)] == [[1, 3], [], [0, 1, 2, 3]]


def test_rows_that_do_not_fit_into_the_sums_are_refused_before_a_kernel_writes_beyond_them():
    rows, shares, where = torch.zeros(2, 12), Shares(torch.ones(3, 2)), {"taps": 1, "channels": 12}
    wide = torch.zeros(3, 24, dtype=torch.float64)
    for totals in (wide, wide[:2, :12], wide[:, :11], wide[:, ::2], wide[:, :12].float()):
        with pytest.raises(ValueError, match=r"fit|shares"):
            clipping_kernels.add(rows, shares, totals, **where)
    with pytest.raises(ValueError, match="do not fit"):
        clipping_kernels.add(rows, shares, wide[:, :12], taps=5, channels=1)
    with pytest.raises(ValueError, match="3 rows have 2 shares"):
        clipping_kernels.add(torch.zeros(3, 12), shares, wide[:, :12], **where)


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
    monkeypatch.setattr(layered, "_coarse", lambda *_: torch.autocast(CARD, torch.bfloat16))
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
    images[2, 0, 1, 1] = math.nan
    members = torch.tensor([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]).bool()
    fewer = members.clone()
    fewer[:, 2] = False
    broken, bad = sums(loss, network, images, labels, members, chunk=6)
    assert bad == 1
    assert torch.equal(broken, sums(loss, network, images, labels, fewer, chunk=6)[0])


@needs_kernels
def test_maps_and_slopes_are_turned_once_for_the_library_and_for_the_products(kernels_everywhere, monkeypatch):
    """There and back, forwards and backwards, of the one block that is given maps; images are taken as they lie."""
    monkeypatch.setattr(layered, "_coarse", lambda *_: torch.autocast(CARD, torch.bfloat16))
    turned, turn = [], convolutions._turn
    monkeypatch.setattr(
        convolutions, "_turn", lambda given, *rest: (turned.append(tuple(given.shape[1:])), turn(given, *rest))
    )
    network = ConvNet((1, 12, 12), 3, width=32, depth=2).to(CARD)
    images, labels = (values.to(CARD) for values in batch((1, 12, 12), 4, dtype=torch.float32))
    loss = record_loss(network)
    assert isinstance(loss, LayeredLoss)
    found = record_gradients(loss, dict(network.named_parameters()), images, labels)
    assert turned == [(32, 8, 8)] * 4
    images[2] = math.nan
    broken = record_gradients(loss, dict(network.named_parameters()), images, labels)
    for name, part in found.items():  # no other record has seen it
        if isinstance(part, Held):
            others = broken[name]
            assert isinstance(others, Held)
            assert torch.equal(others.rows[[0, 1, 3]], part.rows[[0, 1, 3]])
            assert bool(others.rows[2].isnan().any())


def network_shape(network):
    return (1, 12, 12) if isinstance(network, ConvNet) else (1, 16, 16)
