"""Kernels that convolve without patches in memory, against the library: on a card, or in Triton's interpreter.

That is TRITON_INTERPRET=1, with Triton installed.
"""

import pytest
import torch
from tests.networks.test_patch_kernels import CARD, INTERPRETED, hidden, needs_kernels
from tests.networks.test_patches import (
    assert_derivatives_are_those_of_the_library,
    assert_derivatives_are_true,
    assert_networks_are_apart,
    by_library,
    drawn,
)
from torch.func import vjp, vmap

from privset import convolutions
from privset.networks import direct, patch_kernels, patches
from privset.networks.patches import convolved_by_products
from privset.networks.precision import tensor_cores

DTYPE, CLOSE = (torch.float64, 1e-9) if INTERPRETED else (torch.float32, 1e-4)
CASES = [  # networks, images, height, width, channels, outs
    (2, 2, 7, 5, 11, 42),
    (2, 3, 6, 4, 16, 3),
    (2, 1, 5, 8, 42, 11),  # several blocks of channels, the last not whole
    (2, 2, 1, 3, 3, 35),  # no odd row
    (3, 2, 3, 1, 1, 1),
    (1, 1, 2, 2, 64, 20),
    (2, 5, 12, 11, 8, 9),  # several tiles of rows
    (1, 2, 3, 3, 20, 130),  # several tiles of columns
    (2, 0, 4, 4, 2, 3),
]


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """What nobody writes is no number."""
    empty = torch.Tensor.new_empty

    def filled(values, *shape, **how):
        found = empty(values, *shape, **how)
        return found.fill_(float("nan") if found.is_floating_point() else 2**30)

    monkeypatch.setattr(torch.Tensor, "new_empty", filled)
    monkeypatch.setattr(convolutions, "fits", lambda _: True)


@pytest.fixture(params=[0, 2**10], ids=["apart", "joined"])
def joined(request, monkeypatch):
    """Each of 2 x 2 pixels by itself, or all four together."""
    monkeypatch.setattr(direct, "MOST_JOINED", request.param)


@pytest.fixture
def direct_everywhere(monkeypatch):
    monkeypatch.setattr(patches, "DIRECT", 1)
    monkeypatch.setattr(direct, "fits", lambda *_: True)
    monkeypatch.setattr(patch_kernels, "fits", lambda _: True)
    monkeypatch.setattr(patch_kernels, "patches", lambda *_: pytest.fail("patches were put into memory"))


def given(case, *shared):
    """Maps, kernels and slopes of a case; those shared are of one network."""
    networks, images, height, width, channels, outs = case
    shapes = {
        "maps": (images, height, width, channels),
        "kernels": (outs, channels, 5, 5),
        "slopes": (images, (height + 1) // 2, (width + 1) // 2, outs),
    }
    return [
        drawn(1 if name in shared else networks, *shape, seed=seed).to(CARD, DTYPE)
        for seed, (name, shape) in enumerate(shapes.items())
    ]


def expected(maps, kernels, slopes):
    """All three by the library, in double precision."""

    def each(maps, kernel, slope):
        found, back, *_ = vjp(lambda x, k: by_library(x.permute(0, 3, 1, 2), k).permute(0, 2, 3, 1), maps, kernel)
        return found, *back(slope)

    count = max(len(maps), len(kernels), len(slopes))
    values = (value.double().expand(count, *value.shape[1:]) for value in (maps, kernels, slopes))
    return vmap(each)(*values)


def by_kernels(maps, kernels, slopes):
    """All three by our kernels."""
    channels = maps.shape[-1]
    by_kernel = direct.by_kernel(slopes, maps).unflatten(-1, (5, 5, channels)).permute(0, 1, 4, 2, 3)
    by_maps = direct.spread(slopes, patch_kernels.lines(kernels.transpose(1, 2)), tuple(maps.shape[2:4]))
    return direct.convolve(maps, patch_kernels.lines(kernels)), by_maps, by_kernel


def assert_alike(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        assert torch.allclose(one.double(), other, rtol=CLOSE, atol=CLOSE)


@needs_kernels
@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_three_are_those_of_the_library(case):
    values = given(case)
    if case[1]:
        assert_alike(by_kernels(*values), expected(*values))
    else:  # of no images, a sum over nothing
        maps, by_maps, by_kernel = by_kernels(*values)
        assert maps.numel() == by_maps.numel() == 0
        assert torch.equal(by_kernel, torch.zeros_like(by_kernel))


@needs_kernels
@pytest.mark.parametrize(
    "shared", [("maps",), ("kernels",), ("slopes",), ("maps", "slopes"), ("maps", "kernels")], ids=str
)
def test_what_is_shared_is_read_by_all(shared):
    values = given((3, 2, 5, 4, 5, 6), *shared)
    wanted = expected(*values)
    for found, other in zip(by_kernels(*values), wanted, strict=True):
        assert_alike([found.expand_as(other)], [other])  # of two that are shared, once for all


@needs_kernels
def test_numbers_may_lie_anywhere():
    values = given((2, 2, 5, 3, 6, 4))
    assert_alike(by_kernels(*map(hidden, values)), expected(*values))


@needs_kernels
@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("case", [(3, 2, 5, 4, 11, 3), (4, 1, 6, 6, 16, 5)], ids=str)
def test_what_one_network_is_given_changes_no_bit_of_another(case):
    values = given(case)
    before = by_kernels(*values)
    for number in (0, case[0] - 2, case[0] - 1):
        changed = [value.clone() for value in values]
        for value in changed:
            value[number] = float("nan")
        others = [other for other in range(case[0]) if other != number]
        for old, new in zip(before, by_kernels(*changed), strict=True):
            assert torch.equal(old[others], new[others])
            assert new[number].isnan().any()


@needs_kernels
def test_what_lies_before_and_behind_is_never_looked_at():
    """In a table that else holds none: what is read but multiplied with 0 would show, too."""
    values = given((2, 2, 5, 3, 11, 7))
    framed = []
    for value in values:
        table = torch.full((len(value) + 2, *value.shape[1:]), float("nan"), dtype=value.dtype, device=value.device)
        table[1:-1] = value
        framed.append(table[1:-1])
    for old, new in zip(by_kernels(*values), by_kernels(*framed), strict=True):
        assert torch.equal(old, new)


@needs_kernels
def test_what_does_not_go_together_is_refused():
    maps, kernels, slopes = given((3, 2, 5, 4, 5, 6))
    lines = patch_kernels.lines(kernels)
    for wrong in (
        lambda: direct.convolve(maps, lines[:2]),
        lambda: direct.convolve(maps, lines[:, :, 1:]),
        lambda: direct.spread(slopes, patch_kernels.lines(kernels.transpose(1, 2)), (7, 4)),
        lambda: direct.by_kernel(slopes[:, :1], maps),
        lambda: direct.by_kernel(slopes[:2], maps),
        lambda: direct.convolve(maps[:, :1].expand(-1, 2**20, -1, -1, -1), lines),  # more than is counted
    ):
        with pytest.raises(ValueError, match="not"):
            wrong()


@needs_kernels
@pytest.mark.usefixtures("direct_everywhere")
@pytest.mark.skipif(not INTERPRETED, reason="derivatives are checked in double precision")
@pytest.mark.parametrize("own_maps", [True, False])
def test_directly_derivatives_of_many_networks_are_those_of_the_library(own_maps):
    kernels = drawn(3, 4, 2, 5, 5, seed=1)
    maps = drawn(3, 2, 2, 5, 4) if own_maps else drawn(2, 2, 5, 4)
    assert torch.allclose(
        convolved_by_products(maps.flatten(0, -4), kernels[0]), by_library(maps.flatten(0, -4), kernels[0])
    )
    assert_derivatives_are_those_of_the_library(kernels, maps, (0, 0 if own_maps else None))


@needs_kernels
@pytest.mark.usefixtures("direct_everywhere")
@pytest.mark.skipif(not INTERPRETED, reason="derivatives are checked in double precision")
def test_directly_derivatives_are_true_to_the_second_order():
    maps, kernel, slope = drawn(1, 3, 1, 2), drawn(1, 2, 5, 5, seed=1), drawn(1, 2, 1, 1, seed=2)
    assert_derivatives_are_true(maps, kernel, slope, fast_mode=True)


@needs_kernels
@pytest.mark.usefixtures("direct_everywhere")
@pytest.mark.skipif(not INTERPRETED, reason="derivatives are checked in double precision")
def test_directly_what_one_network_is_shown_changes_no_other():
    assert_networks_are_apart(CARD)


class OnACard(torch.Tensor):
    """Numbers that say so."""

    is_cuda = True  # type: ignore[assignment]


def test_they_are_used_for_many_networks_of_many_channels_that_may_be_rounded(monkeypatch):
    monkeypatch.setattr(direct, "AVAILABLE", True)
    maps, kernels = torch.zeros(20, 2, 4, 4, 8).as_subclass(OnACard), torch.zeros(20, 3, 8, 5, 5)
    assert not patches._direct(maps, kernels)  # products in full precision are left to the library
    with tensor_cores(torch.device("cuda")):
        assert patches._direct(maps, kernels)
        assert patches._direct(maps[0], kernels)
        assert patches._direct(maps, kernels[0])
        assert not patches._direct(maps[0], kernels[0])
        assert not patches._direct(maps[:2], kernels[:2])
        assert not patches._direct(maps[..., :1], kernels[:, :, :1])
        assert not patches._direct(maps.double(), kernels.double())
        assert not patches._direct(maps.as_subclass(torch.Tensor), kernels)
