"""How long the convolutions of many critics or teachers take on a graphics card: with patches in memory, and without.

    python benchmarks/critics.py

writes results/speed/critics-cuda.json: for each layer of GS-WGAN's critics and G-PATE's teachers, and each of the three
operations (the convolution, its gradients by maps and by kernels), the median of both ways in milliseconds, and how far
each is from float64. It says what `privset.networks.patches.DIRECT` should be.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor

import machine
from kernels import median
from machine import at_least_one, described
from privset.networks import patches
from privset.networks.precision import tensor_cores
from privset.studies.results import write

Layer = tuple[int, int, int, int, int]
LAYERS: dict[str, Layer] = {
    "gs-wgan paper, layer 1": (250, 64, 28, 1, 64),
    "gs-wgan paper, layer 2": (500, 64, 14, 64, 128),
    "gs-wgan paper, layer 3": (500, 64, 7, 128, 256),
    "gs-wgan standard, layer 2": (1000, 32, 14, 32, 64),
    "gs-wgan standard, layer 3": (1000, 32, 7, 64, 128),
    "g-pate, layer 2": (800, 30, 14, 11, 42),
}
"""Networks, images of each, their side, channels and outs."""
FEWEST = 8
"""Channels below which an operation goes by patches in either case."""


def operations(layer: Layer, device: torch.device) -> Iterator[tuple[str, Callable[[], Tensor], Tensor]]:
    """Name, work and what the first network should come to in float64, of those that are done without patches."""
    networks, images, side, channels, outs = layer
    torch.manual_seed(0)
    maps = torch.randn(networks, images, side, side, channels, device=device)
    kernel = torch.randn(networks, outs, channels, 5, 5, device=device)
    slope = torch.randn(networks, images, (side + 1) // 2, (side + 1) // 2, outs, device=device)
    leaves = [maps[0].double().requires_grad_(), kernel[0].double().requires_grad_()]
    found = F.conv2d(leaves[0].permute(0, 3, 1, 2), leaves[1], stride=2, padding=2).permute(0, 2, 3, 1)
    by_maps, by_kernel = torch.autograd.grad(found, leaves, slope[0].double())
    if channels >= FEWEST:
        yield "convolved", lambda: patches._Convolved.apply(maps, kernel), found.detach()
        yield "by kernel", lambda: patches._ByKernel.apply(slope, maps), by_kernel
    yield "by maps", lambda: patches._ByMaps.apply(slope, kernel, maps.shape[-3:-1]), by_maps


def measure(layer: Layer, device: torch.device, turns: int) -> Iterator[dict[str, Any]]:
    """Both ways of each operation."""
    before = patches.DIRECT
    try:
        for name, work, expected in operations(layer, device):
            took, apart = {}, {}
            for way, fewest in (("patches", math.inf), ("direct", FEWEST)):
                patches.DIRECT = fewest
                with tensor_cores(device):
                    took[way] = median(work, turns)
                    apart[way] = float((work()[0].double() - expected).norm() / expected.norm())
            yield {"operation": name, "milliseconds": took, "apart": apart}
    finally:
        patches.DIRECT = before


def main() -> None:
    """Measure and put on file."""
    parser = machine.parser(__doc__, anywhere=False)
    parser.add_argument("--turns", type=at_least_one, default=20)
    args = parser.parse_args()
    if not (torch.cuda.is_available() and patches.direct.AVAILABLE):
        parser.error("there is no graphics card here, or no Triton, and kernels run nowhere else")
    device, found = torch.device("cuda"), []
    for layer, form in LAYERS.items():
        for one in measure(form, device, args.turns):
            found.append({"layer": layer, **one})
            took, apart = one["milliseconds"], one["apart"]
            print(
                f"{layer}, {one['operation']}: {took['direct']:.3f} ms, by patches {took['patches']:.3f} ms; "
                f"apart {apart['direct']:.1e} and {apart['patches']:.1e}",
                flush=True,
            )
        torch.cuda.empty_cache()
    document = {"what": "convolutions of many networks, with and without patches", "layers": found}
    write(
        args.results / "speed" / "critics-cuda.json",
        (json.dumps(document | described(device), indent=2) + "\n").encode(),
    )


if __name__ == "__main__":
    main()
