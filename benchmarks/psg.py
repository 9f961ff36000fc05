"""How long a step of PSG takes, and so a whole run with the paper's settings.

Times the loop of `privset.methods.gradient_matching` itself, piece by piece, on random images of MNIST's size (what the
pixels are changes no time): the private gradients of one outer step, the matching steps that use them, and the updates
of the network between two outer steps.

    python benchmarks/psg.py --device cuda --seconds 60

writes results/speed/psg-ipcN-DEVICE.json for each set size, as soon as it is measured; sizes that are on file are
skipped, so that a stopped measurement goes on where it was (--again measures anew).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

import torch

import machine
from machine import FACTS, at_least_one, described, peak_memory_mib
from privset.methods import Psg, PsgConfig
from privset.methods.gradient_matching import _matching, _training
from privset.methods.record_loss import record_loss
from privset.privacy import Curator, GradientQuestion, Ledger, PrivacyBudget, system_noise
from privset.rehearsal import random_records
from privset.studies.results import write

TOGETHER = 5
"""Outer steps that are timed in one go: samples are drawn while a card still trains, so that a halt would cost time."""


class Loop:
    """The three parts of PSG's loop, each to be taken as often as wanted."""

    def __init__(self, config: PsgConfig, device: torch.device) -> None:
        generator, records = torch.Generator().manual_seed(0), random_records(FACTS)
        # Without a limit, since nothing is released; the noise is that of a release nonetheless.
        ledger = Ledger(PrivacyBudget(epsilon=math.inf))
        self.config = config
        self._curator = Curator(records, FACTS, ledger, system_noise(), device=str(device))
        self._question = GradientQuestion(
            sampling_rate=config.batch_size / FACTS.size, clip_norm=config.clip_norm, noise_multiplier=1.0
        )
        self._curator.prepay(self._question, 10**6)
        self._labels = torch.arange(10).repeat_interleave(config.per_class).to(device)
        method = Psg(config)
        matched, self._network = method._start(FACTS, self._labels, generator), method._network(FACTS, 0).to(device)
        self._loss = record_loss(self._network)
        self._match = _matching(self._network, matched)
        self._train = _training(self._network, matched.images, self._labels, config)
        self._generator, self._answers = generator, []

    def gradients(self) -> int:
        """All private gradients of an outer step; how many."""
        parameters = {name: value.detach() for name, value in self._network.named_parameters()}
        draws = self.config.batches_per_step
        self._answers = self._curator.gradient(self._question, self._loss, parameters, draws=draws)
        return draws

    def matching(self) -> int:
        """As many matching steps as there are gradients."""
        for answer in self._answers:
            self._match(torch.cat([total.flatten() for total in answer.values()]) / self.config.batch_size)
        return len(self._answers)

    def training(self) -> int:
        """The updates of the network between two outer steps; how many."""
        self._train(self._generator)
        return self.config.inner_epochs * -(-len(self._labels) // self.config.inner_batch_size)


def per_step(part: Callable[[], int], device: torch.device, seconds: float) -> float:
    """Milliseconds of a step of this part, in the fastest of the turns that fit into so many seconds."""
    best, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end or best == math.inf:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        count = part()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, 1e3 * (time.perf_counter() - start) / count)
    return best


def measure(per_class: int, device: torch.device, *, seconds: float) -> dict[str, Any]:
    """Milliseconds of each part, of whole outer steps, and hours of a whole run at epsilon 10."""
    config = PsgConfig.paper(per_class=per_class, epsilon=10)
    loop = Loop(config, device)
    parts = {"gradient": loop.gradients, "matching": loop.matching, "update": loop.training}
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        for _ in range(5):  # the first ones compile, choose and record kernels
            for part in parts.values():
                part()
    else:
        loop.gradients()
    share = seconds / (len(parts) + 1)
    found = {name: per_step(part, device, share) for name, part in parts.items()}

    def outer_steps() -> int:
        for _ in range(TOGETHER):
            loop.gradients()
            loop.matching()
            loop.training()
        return TOGETHER

    steps, updates = config.runs * config.outer_steps, config.runs * (config.outer_steps - 1) * config.inner_epochs
    updates *= -(-10 * per_class // config.inner_batch_size)
    draws = config.batches_per_step
    by_parts = steps * draws * (found["gradient"] + found["matching"]) + updates * found["update"]
    whole = None
    if device.type == "cuda":  # in one go, without a halt between the parts
        whole = steps * per_step(outer_steps, device, share)
    return {
        "what": f"PSG, {per_class} a class, MNIST's size: private gradient and matching step",
        "per_class": per_class,
        "value": found["gradient"] + found["matching"],
        "unit": "ms",
        "ratio_to": None,
        "milliseconds": found,
        "hours": {"sum of parts": by_parts / 3.6e6, "in one go": None if whole is None else whole / 3.6e6},
        "steps": {"matching": steps * draws, "updates": updates},
        "peak_memory_mib": peak_memory_mib(device),
        "seconds": seconds,
        **described(device),
    }


def main() -> None:
    """Measure and put on file."""
    parser = machine.parser(__doc__)
    parser.add_argument("--per-class", type=at_least_one, nargs="+", default=[10, 20])
    parser.add_argument("--seconds", type=float, default=60, help="for each set size")
    parser.add_argument("--again", action="store_true", help="also what is on file")
    args = parser.parse_args()
    for per_class in args.per_class:
        path = args.results / "speed" / f"psg-ipc{per_class}-{args.device}.json"
        if path.exists() and not args.again:
            print(f"{path} is on file")
            continue
        found = measure(per_class, torch.device(args.device), seconds=args.seconds)
        write(path, (json.dumps(found, indent=2) + "\n").encode())
        parts = ", ".join(f"{name} {value:.2f} ms" for name, value in found["milliseconds"].items())
        hours = {name: value for name, value in found["hours"].items() if value is not None}
        print(f"{found['what']}: {parts}; a run: {hours} hours; {found['peak_memory_mib']:.0f} MiB: {path}", flush=True)


if __name__ == "__main__":
    main()
