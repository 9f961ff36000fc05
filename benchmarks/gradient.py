"""How long the clipped gradient sum of a batch takes, beside others that compute the same, in one process.

Beside ours: `torch.func.vmap`, the hooks and the ghost clipping of Opacus (where it is installed), and the gradient
that nobody clips. Each takes the batch in pieces of several sizes, in turns, and its fastest turn of its best size
counts; so a busy machine delays all of them alike. All are checked to give the same sum first, up to rounding. On a
card, and on a processor with instructions for it, ours convolves in bfloat16 and so does one gradient that nobody
clips; all others multiply in TF32 on a card, and in float32 on a processor.

    python benchmarks/gradient.py --device cuda --curves

writes results/speed/gradient-DEVICE-bBATCH-wWIDTH-sSIDE.json, one for each point of the curves.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor
from torch.func import functional_call

import machine
from machine import at_least_one, described
from privset import processor
from privset.methods.record_loss import record_loss
from privset.networks import ConvNet
from privset.privacy.clipping import clipped_gradient_sum
from privset.privacy.gradients import RepeatedSums, clipped_gradient_sums
from privset.recording import recorded
from privset.studies.results import write

CLIP_NORM = 0.1
OURS, PLAIN, PLAIN_BFLOAT16 = "ours", "not private", "not private, bfloat16"
APART, APART_BFLOAT16 = 0.02, 0.1
"""How far from vmap, relative to its length, a clipped sum may be."""
POINT = {"batch": 256, "width": 128, "side": 28}
CURVES = {"batch": (32, 128, 1024), "width": (32, 64, 256), "side": (16, 32, 64)}
CURVE_POINTS = [POINT, *(POINT | {name: value} for name, values in CURVES.items() for value in values)]
"""What the documents show; what else is measured is put on file in other folders only."""

Contender = Callable[[int], Tensor]
"""From the size of a piece to the sum ``[d]`` of gradients."""


def contenders(batch: int, width: int, side: int, device: torch.device) -> tuple[dict[str, Contender], dict[str, str]]:
    """What is compared, and why what is not is not."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    shape = (1, side, side)
    network = ConvNet(shape, 10, width=width).to(device)
    images = torch.randn(batch, *shape, generator=generator).to(device)
    labels = torch.randint(0, 10, (batch,), generator=generator).to(device)
    parameters = {name: value.detach() for name, value in network.named_parameters()}

    def pieces(size: int) -> Any:
        return zip(images.split(size), labels.split(size), strict=True)

    loss, everyone = record_loss(network), torch.ones(1, batch, dtype=torch.bool, device=device)
    numbers = torch.arange(batch, device=device)

    @functools.cache
    def repeated(size: int) -> RepeatedSums:
        def look(part: Tensor) -> tuple[Tensor, Tensor]:
            return images[part], labels[part]

        return RepeatedSums(loss, parameters, look, samples=1, clip_norm=CLIP_NORM, chunk=size)

    def as_written(size: int) -> Tensor:
        chunks = zip(images.split(size), labels.split(size), everyone.split(size, dim=1), strict=True)
        return clipped_gradient_sums(loss, parameters, chunks, samples=1, clip_norm=CLIP_NORM)[0].flat[0]

    def played_back(size: int) -> Tensor:
        return repeated(size).sums(parameters, numbers, everyone)[0].flat[0]

    def by_vmap(size: int) -> Tensor:
        def loss(parameters: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
            return F.cross_entropy(functional_call(network, parameters, (image[None],)), label[None])

        found, _ = clipped_gradient_sum(loss, parameters, pieces(size), clip_norm=CLIP_NORM)
        return torch.cat([value.flatten() for value in found.values()])

    weights = list(network.parameters())

    def slopes(some: Tensor, theirs: Tensor) -> Tensor:
        found = torch.autograd.grad(F.cross_entropy(network(some), theirs, reduction="sum"), weights)
        return torch.cat([slope.flatten() for slope in found])

    def slopes_in_bfloat16(some: Tensor, theirs: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            total = F.cross_entropy(network(some), theirs, reduction="sum")
        return torch.cat([slope.flatten() for slope in torch.autograd.grad(total, weights)])

    def added_up(step: Callable[[Tensor, Tensor], Tensor]) -> Contender:
        recording = recorded(step, device)  # on a card, played back like ours

        def not_private(size: int) -> Tensor:
            total = torch.zeros_like(torch.cat([weight.flatten() for weight in weights]))
            for some, theirs in pieces(size):
                total += recording(some, theirs)
            return total

        return not_private

    found: dict[str, Contender] = {OURS: as_written, "vmap": by_vmap, PLAIN: added_up(slopes)}
    if device.type == "cuda" or processor.multiplies_bfloat16():
        found[PLAIN_BFLOAT16] = added_up(slopes_in_bfloat16)
    if device.type == "cuda":
        found |= {OURS: played_back, "ours, not played back": as_written}
    try:
        with quietly():
            found |= _opacus(network, pieces)
    except ImportError:
        return found, dict.fromkeys(("Opacus hooks", "Opacus ghost clipping"), "Opacus is not installed")
    return found, {}


def _opacus(network: ConvNet, pieces: Callable[[int], Any]) -> dict[str, Contender]:
    import copy

    from opacus import GradSampleModule
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer

    hooked = GradSampleModule(copy.deepcopy(network), loss_reduction="sum")
    ghostly = GradSampleModuleFastGradientClipping(
        copy.deepcopy(network),
        loss_reduction="sum",
        max_grad_norm=CLIP_NORM,  # type: ignore[arg-type]
        use_ghost_clipping=True,
    )
    optimiser = DPOptimizer(
        torch.optim.SGD(hooked.parameters(), lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=1,
        loss_reduction="sum",
    )

    def hooks(size: int) -> Tensor:
        weights = list(hooked.parameters())
        total = [torch.zeros_like(weight) for weight in weights]
        for images, labels in pieces(size):
            optimiser.zero_grad(set_to_none=True)
            F.cross_entropy(hooked(images), labels, reduction="sum").backward()
            optimiser.clip_and_accumulate()
            for sum_, weight in zip(total, weights, strict=True):
                sum_ += weight.summed_grad  # type: ignore[attr-defined]
        return torch.cat([value.flatten() for value in total])

    def ghost(size: int) -> Tensor:
        weights = list(ghostly.parameters())
        total = [torch.zeros_like(weight) for weight in weights]
        for images, labels in pieces(size):
            ghostly.enable_hooks()
            losses = F.cross_entropy(ghostly(images), labels, reduction="none")
            losses.sum().backward(retain_graph=True)
            for weight in weights:
                weight.grad = None
            ghostly.disable_hooks()
            (ghostly.get_clipping_coef() * losses).sum().backward()
            for sum_, weight in zip(total, weights, strict=True):
                sum_ += weight.grad  # type: ignore[operator]
        return torch.cat([value.flatten() for value in total])

    return {"Opacus hooks": hooks, "Opacus ghost clipping": ghost}


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call; on a graphics card of several in a row, for it is told what to do ahead of time."""
    count = 5 if device.type == "cuda" else 1
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    for _ in range(count):
        work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / count


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without what the hooks of Opacus have torch warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@quietly()
def measure(batch: int, width: int, side: int, device: torch.device, *, rounds: int) -> dict[str, Any]:
    """Milliseconds of each contender, and how ours compares."""
    compared, missing = contenders(batch, width, side, device)
    # On a card a piece is the whole batch, or a memory's worth; a processor's caches like small ones.
    sizes = sorted(
        {min(batch, size) for size in ((64, 256, 1024) if device.type == "cuda" else (8, 32, 64, 128, batch))}
    )
    clipped = {
        name: work(sizes[0]).double().clone() for name, work in compared.items() if name not in (PLAIN, PLAIN_BFLOAT16)
    }
    off = {name: float((sum_ - clipped["vmap"]).norm() / clipped["vmap"].norm()) for name, sum_ in clipped.items()}
    apart = APART_BFLOAT16 if PLAIN_BFLOAT16 in compared else APART
    assert max(off.values()) < apart, f"these do not compute the same: {off}"
    best = {name: (float("inf"), 0) for name in compared}
    for number in range(rounds + 1):
        for name, work in compared.items():
            for size in sizes:
                seconds = timed(lambda work=work, size=size: work(size), device)
                if number:  # the first round warms up
                    best[name] = min(best[name], (seconds, size))
    ours, common = best[OURS][0], described(device)
    return {
        "what": f"clipped gradient sum of {batch} records of {side}x{side}, ConvNet of width {width}",
        "value": 1e3 * ours,
        "unit": "ms",
        "ratio_to": {name: ours / seconds for name, (seconds, _) in best.items() if name != OURS},
        "milliseconds": {name: 1e3 * seconds for name, (seconds, _) in best.items()},
        "piece": {name: size for name, (_, size) in best.items()},
        "not_measured": missing,
        "apart_from_vmap": off,
        "settings": {"batch": batch, "width": width, "side": side, "rounds": rounds, "sizes": sizes},
        **common,
        "versions": common["versions"] | ({} if missing else {"opacus": version("opacus")}),
    }


def main(words: Sequence[str] | None = None) -> None:
    """Measure and put on file."""
    parser = machine.parser(__doc__)
    parser.add_argument("--batch", type=at_least_one, default=POINT["batch"])
    parser.add_argument("--width", type=at_least_one, default=POINT["width"])
    parser.add_argument("--side", type=at_least_one, default=POINT["side"])
    parser.add_argument("--curves", action="store_true", help="also vary batch, width and image size, one at a time")
    parser.add_argument("--rounds", type=at_least_one, default=5)
    args = parser.parse_args(words)
    if args.side < 8:
        parser.error(f"--side: images have at least 8 x 8 pixels, not {args.side} x {args.side}")
    if args.device != "cpu":
        torch.set_float32_matmul_precision("high")  # in TF32
    here = {"batch": args.batch, "width": args.width, "side": args.side}
    points = [here]
    if args.curves:
        points += [here | {name: value} for name, values in CURVES.items() for value in values]
    for point in points:
        found = measure(**point, device=torch.device(args.device), rounds=args.rounds)
        name = f"gradient-{args.device}-b{point['batch']}-w{point['width']}-s{point['side']}.json"
        known = str(args.results) != parser.get_default("results") or point in CURVE_POINTS
        if known:
            write(args.results / "speed" / name, (json.dumps(found, indent=2) + "\n").encode())
        others = ", ".join(f"{ratio:.2f} of {name}" for name, ratio in found["ratio_to"].items())
        print(f"{found['what']}: {found['value']:.2f} ms, {others}", flush=True)
        if not known:
            print("  not put on file: this is no point of the curves; --results names another folder", flush=True)
        for name, reason in found["not_measured"].items():
            print(f"  {name}: not measured ({reason})", flush=True)


if __name__ == "__main__":
    main()
