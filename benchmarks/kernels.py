"""How long our kernels take on a graphics card, beside torch's own operations that give the same.

    python benchmarks/kernels.py

writes results/speed/kernels-cuda.json: for each kernel and number of images, the median of many turns in milliseconds,
and how far apart the two results are. Layers have the channels of the PSG paper's ConvNet, patches are those of
GS-WGAN's critics, of so many images for each of a few critics.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor

import machine
from machine import FACTS, at_least_one, described
from privset import convolutions
from privset.convolutions import Form
from privset.methods import transport_kernels
from privset.methods.matching import _STABILISER, row_cosine_distance
from privset.methods.matching_kernels import row_cosine
from privset.methods.transport import Transport, potentials
from privset.networks import patch_kernels, patches
from privset.privacy import clipping_kernels
from privset.privacy.clipping import Shares
from privset.studies.results import write

WIDTH, NETWORKS = 128, 32
Work = Callable[[], Tensor]


def pairs(count: int, device: torch.device) -> Iterator[tuple[str, Work, Work]]:
    """Name, ours and torch's, for so many images; both give a tensor of the same shape."""
    torch.manual_seed(0)
    images, weight = torch.randn(count, 1, 28, 28, device=device), torch.randn(WIDTH, 1, 3, 3, device=device)
    form, slope = Form.of(images, weight, (1, 1), (1, 1)), torch.randn(count, WIDTH, 28, 28, device=device)
    half = slope.bfloat16()

    def backwards(slope: Tensor, images: Tensor, weight: Tensor) -> Tensor:
        wanted = (False, True, False)
        return torch.ops.aten.convolution_backward(
            slope, images, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1, wanted
        )[1]

    def torch_half() -> Tensor:
        return F.conv2d(images.bfloat16(), weight.bfloat16(), None, 1, 1)

    yield (
        "images, float32",
        lambda: convolutions.convolve(images, weight, form),
        lambda: F.conv2d(images, weight, None, 1, 1),
    )
    yield "images, bfloat16", lambda: convolutions.convolve(images, weight, form, torch.bfloat16), torch_half
    yield (
        "slope by weight, float32",
        lambda: convolutions.by_weight(slope, images, form),
        lambda: backwards(slope, images, weight),
    )
    yield (
        "slope by weight, bfloat16",
        lambda: convolutions.by_weight(half, images, form),
        lambda: backwards(half, images.bfloat16(), weight.bfloat16()).float(),
    )
    for side in (28, 14, 7):
        maps = torch.randn(count, WIDTH, side, side, device=device).bfloat16()
        yield (
            f"channels turned to be last, {side}x{side}",
            lambda maps=maps: convolutions.channels_last(maps),
            lambda maps=maps: maps.contiguous(memory_format=torch.channels_last),
        )
    other = torch.randn_like(weight)
    yield (
        "slope by images of two weights, bfloat16",
        lambda: convolutions.by_images([(half, weight), (half, other)], form),
        lambda: F.conv_transpose2d(half, (weight + other).bfloat16(), None, 1, 1).float(),
    )
    for side in (14, 7):
        maps, by = (
            torch.randn(count, WIDTH, side, side, device=device)
            .bfloat16()
            .contiguous(memory_format=torch.channels_last)
            for _ in range(2)
        )
        inner = Form((side, side), (3, 3), (1, 1), (1, 1))
        unfolded, lines = F.unfold(maps, 3, padding=1), by.flatten(2).contiguous()

        def ours(by: Tensor = by, maps: Tensor = maps, inner: Form = inner) -> Tensor:
            return convolutions.products(by, maps, inner)[0].unflatten(2, (9, WIDTH)).transpose(2, 3)

        def theirs(lines: Tensor = lines, unfolded: Tensor = unfolded) -> Tensor:
            rows = torch.bmm(lines, unfolded.transpose(1, 2))
            rows.float().square().sum((1, 2))
            return rows.unflatten(2, (WIDTH, 9))

        yield f"gradient of each image and its length, {side}x{side}; torch's without taking patches", ours, theirs
    rows, members = torch.randn(count, WIDTH * 9 * WIDTH, device=device).bfloat16(), torch.rand(10, count) < 0.1
    shares = Shares(members.double().to(device))

    def added() -> Tensor:
        totals = torch.zeros(10, rows.shape[1], dtype=torch.float64, device=device)
        clipping_kernels.add(rows, shares, totals, taps=1, channels=rows.shape[1])
        return totals

    yield "sums of ten samples, float64", added, lambda: shares.each @ rows.double()
    first, second = (torch.randn(WIDTH, WIDTH, 3, 3, device=device) for _ in range(2))

    def slopes() -> Tensor:
        given = first.detach().requires_grad_()
        return torch.autograd.grad(row_cosine_distance([given], [second]), given)[0]

    yield "distance of two gradients", lambda: row_cosine(first, second, _STABILISER)[1], slopes

    yield from _of_transport(device)
    for side, channels, taps, step in ((28, 1, 5, 2), (14, WIDTH // 4, 5, 2), (7, WIDTH // 2, 3, 1)):
        seen = torch.randn(NETWORKS, count, side, side, channels, device=device)
        yield (
            f"patches of {taps}x{taps} of {channels} maps, {side}x{side}",
            lambda seen=seen, taps=taps, step=step: patch_kernels.patches(seen, taps, step).flatten(0, 1),
            lambda seen=seen, taps=taps, step=step: patches.patches(seen.flatten(0, 1), taps, step),
        )
    critics = torch.randn(NETWORKS, WIDTH, WIDTH // 2, 5, 5, device=device)
    yield (
        "weights of critics laid out to go back",
        lambda: patch_kernels.taps(critics),
        lambda: patches.taps_by_torch(critics),
    )


def _of_transport(device: torch.device) -> Iterator[tuple[str, Work, Work]]:
    """What DP-Sinkhorn asks of 50 images and 83 others."""
    transport = Transport(FACTS, label_scale=15.0, l1_weight=1.0)
    images, others = (torch.rand(size, 784, device=device) * 2 - 1 for size in (50, 83))
    labels, other_labels = (torch.randint(10, (size,), device=device) for size in (50, 83))
    given, how = (images, labels, others, other_labels), {"l1_weight": 1.0, "other_label": transport.other_label}
    costs, weights = transport.costs(*given), torch.full((83,), 1 / 83, device=device)
    yield (
        "costs of a transport of 50 images",
        lambda: transport_kernels.costs(*given, **how)[0],
        lambda: transport.costs(*given),
    )
    turned = costs.T.contiguous()
    blur, logs, other_logs = transport.temperatures[-1], torch.full((50,), 1 / 50, device=device).log(), weights.log()

    def plan() -> Tensor:
        _, other = potentials(costs, logs, other_logs, transport.temperatures)
        return (other_logs + (other - costs) / blur).softmax(1) / 50

    yield (
        "plan of a transport of 50 images",
        lambda: transport_kernels.plans(costs, turned, weights, transport.temperatures)[0],
        plan,
    )
    cheapest = plan()

    def slope() -> Tensor:
        leaf = images.detach().requires_grad_()
        return torch.autograd.grad((cheapest * transport.costs(leaf, *given[1:])).sum(), leaf)[0]

    yield (
        "slope of a transport of 50 images",
        lambda: transport_kernels.slopes(images, others, cheapest, l1_weight=1.0),
        slope,
    )


def median(work: Work, turns: int) -> float:
    """Milliseconds of one turn."""
    for _ in range(3):
        work()
    begun, ended = ([torch.cuda.Event(enable_timing=True) for _ in range(turns)] for _ in range(2))
    for start, end in zip(begun, ended, strict=True):
        start.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in zip(begun, ended, strict=True))


def main() -> None:
    """Measure and put on file."""
    parser = machine.parser(__doc__, anywhere=False)
    parser.add_argument("--images", type=at_least_one, nargs="+", default=[20, 100, 677])
    parser.add_argument("--turns", type=at_least_one, default=50)
    args = parser.parse_args()
    if not (torch.cuda.is_available() and convolutions.AVAILABLE):
        parser.error("there is no graphics card here, or no Triton, and kernels run nowhere else")
    device, found = torch.device("cuda"), []
    for count in args.images:
        for name, ours, theirs in pairs(count, device):
            expected, got = theirs().double(), ours().double()
            one: dict[str, Any] = {
                "kernel": name,
                "images": count,
                "milliseconds": {"ours": median(ours, args.turns), "torch": median(theirs, args.turns)},
                "apart": float((got - expected).norm() / expected.norm()),
            }
            found.append(one)
            took = one["milliseconds"]
            print(f"{count:5} {name}: {took['ours']:.3f} ms, torch {took['torch']:.3f} ms; apart {one['apart']:.1e}")
    document = {"what": "kernels beside torch's own operations", "kernels": found, **described(device)}
    write(args.results / "speed" / "kernels-cuda.json", (json.dumps(document, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
