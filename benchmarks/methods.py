"""How long a method's run takes, of which only the beginning is run.

As `privset plan --time` does, for images of MNIST's size: the method itself runs on random ones, with system noise, and
is stopped after some seconds in its longest phase. So every method's settings can be timed in a minute, however long
they take.

    python benchmarks/methods.py gs-wgan:standard:10 g-pate:paper:1 --device cuda --seconds 20

names a method, a preset and an epsilon each time, and writes results/speed/method-NAME-PRESET-epsE-ipcN-DEVICE.json;
what is on file is skipped (--again measures anew). Sets are of 6,000 images a class; psg-prior:paper:10:20 names
another number. Making critics or teachers at the start is in the time; drawing the images at the end, and saving them,
is not.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from typing import Any

import torch

import machine
from machine import FACTS, described, peak_memory_mib
from privset.errors import ConfigError, PrivsetError
from privset.facts import PublicFacts
from privset.methods import Execution, SetMethod, get
from privset.methods.measuring import MeasuringMethod
from privset.privacy import PrivacyBudget
from privset.rehearsal import rehearse
from privset.studies.results import write

PER_CLASS = 6000
"""Images of each class, unless told: as many as the paper compares methods with."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What is to be timed: a method with the settings of a preset, for a budget and a set."""

    method: SetMethod[Any]
    preset: str
    epsilon: float

    @classmethod
    def read(cls, words: str) -> Run:
        """From METHOD:PRESET:EPSILON or METHOD:PRESET:EPSILON:PER_CLASS."""
        try:
            whole = words if words.count(":") > 2 else f"{words}:{PER_CLASS}"
            name, preset, epsilon, per_class = whole.split(":")
            kind, budget = get(name), PrivacyBudget(epsilon=float(epsilon))
            if not issubclass(kind, SetMethod) or issubclass(kind, MeasuringMethod):
                raise ConfigError(f"{name} is not one long loop; time it by benchmarks/release.py, or by its study")
            method = kind(kind.preset(preset, per_class=int(per_class), epsilon=budget.epsilon))
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{words!r} is not METHOD:PRESET:EPSILON[:PER_CLASS]") from error
        except PrivsetError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return cls(method, preset, budget.epsilon)

    @property
    def per_class(self) -> int:
        """Images of each class."""
        return self.method.config.per_class

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.method.name}-{self.preset}-eps{self.epsilon:g}-ipc{self.per_class}"


def measure(run: Run, *, device: torch.device, seconds: float, facts: PublicFacts) -> Any:
    """Seconds a step of each phase, and minutes of all of them."""
    name, preset, epsilon, per_class = run.method.name, run.preset, run.epsilon, run.per_class
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    budget, execution, start = PrivacyBudget(epsilon=epsilon), Execution(device=str(device)), time.perf_counter()
    found = rehearse(facts, method=run.method, budget=budget, execution=execution, seconds=seconds)
    phases = {
        phase: {"steps": one.steps, "seconds a step": one.step_seconds, "timed": one.timed}
        for phase, one in found.phases.items()
    }
    return {
        "what": f"{name}, preset {preset}, epsilon {epsilon:g}, {per_class:,} a class, MNIST's size: a run",
        "method": name,
        "preset": preset,
        "epsilon": epsilon,
        "per_class": per_class,
        "value": found.seconds / 60,
        "unit": "min",
        "ratio_to": None,
        "before": found.before,
        "phases": phases,
        "peak_memory_mib": peak_memory_mib(device),
        "seconds": time.perf_counter() - start,
        **described(device),
    }


def main(words: Sequence[str] | None = None, facts: PublicFacts = FACTS) -> None:
    """Measure and put on file."""
    parser = machine.parser(__doc__)
    parser.add_argument("runs", nargs="+", metavar="METHOD:PRESET:EPSILON[:PER_CLASS]", type=Run.read)
    parser.add_argument("--seconds", type=float, default=20, help="that the longest phase is timed for")
    parser.add_argument("--again", action="store_true", help="also what is on file")
    args = parser.parse_args(words)
    for run in args.runs:
        path = args.results / "speed" / f"method-{run.name}-{args.device}.json"
        if path.exists() and not args.again:
            print(f"{path} is on file")
            continue
        device = torch.device(args.device)
        try:
            found = measure(run, device=device, seconds=args.seconds, facts=facts)
        except PrivsetError as error:
            parser.error(f"{run.name}: {error}")
        write(path, (json.dumps(found, indent=2) + "\n").encode())
        print(f"{found['what']}: {found['value']:.1f} min, {found['peak_memory_mib']:.0f} MiB: {path}", flush=True)


if __name__ == "__main__":
    main()
