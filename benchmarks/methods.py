"""How long a method's run takes, of which only the beginning is run.

Runs a method itself on random images of MNIST's size (what the pixels are changes no time), with system noise, and
stops it after some seconds in its longest phase. Phases before that, in which critics or teachers learn by themselves,
are cut to a few steps and counted in full. So every method's settings can be timed in a minute, however long they take.

    python benchmarks/methods.py gs-wgan:standard:10 g-pate:paper:1 --device cuda --seconds 20

names a method, a preset and an epsilon each time, and writes results/speed/method-NAME-PRESET-epsE-ipcN-DEVICE.json;
what is on file is skipped (--again measures anew). Sets are of 6,000 images a class; psg-prior:paper:10:20 names
another number. Making critics or teachers at the start is in the time; drawing the images at the end, and saving them,
is not.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from machine import FACTS, described, peak_memory_mib, random_records
from privset.facts import PublicFacts
from privset.methods import METHODS, Execution, SetMethod
from privset.methods.measuring import MeasuringMethod
from privset.observer import Observer
from privset.privacy import Curator, Ledger, PrivacyBudget, system_noise
from privset.studies.results import write

EARLIER = {"warm_up": "warming up critics", "pretraining": "teaching teachers"}
"""Settings that say how long a phase before the longest one takes, and the phase."""
PER_CLASS = 6000
"""Images of each class, unless told: as many as the paper compares methods with."""
FEW = 4
"""Steps that such a phase is cut to."""
UNCOUNTED = 3
"""First steps of a phase, in which kernels are compiled and chosen; a phase of fewer has none."""


class Enough(Exception):  # noqa: N818 - nothing went wrong
    """The phase was timed for long enough."""


@dataclasses.dataclass
class Phase:
    """Steps of a phase that are counted, and their seconds."""

    total: int
    taken: int = 0
    counted: int = 0
    seconds: float = 0.0


class Clock(Observer):
    """Times the steps of each phase, and stops the run in the last one.

    Args:
        device: What is waited for, before a look at the clock.
        seconds: That the longest phase is timed for at most.
    """

    def __init__(self, device: torch.device, seconds: float) -> None:
        self._device, self._seconds = device, seconds
        self._start = self._began = self._now()
        self.before = 0.0  # seconds until the first phase, in which critics or teachers are made
        self.phases: dict[str, Phase] = {}

    def phase(self, name: str, total: int) -> None:
        """End the phase before, and begin another."""
        self.halt()
        self._start = self._now()
        self.before = self.before or self._start - self._began
        self.phases[name] = Phase(total)

    def step(self, count: int = 1, **values: float) -> None:  # noqa: ARG002 - as an observer is called
        """Count it, unless it is one of the first."""
        phase = self._phase
        phase.taken += count
        if phase.taken <= UNCOUNTED < phase.total:
            self._start = self._now()
            return
        phase.counted += count
        if self._name not in EARLIER.values() and time.perf_counter() - self._start > self._seconds:
            raise Enough

    @property
    def _name(self) -> str:
        return next(reversed(self.phases))

    @property
    def _phase(self) -> Phase:
        return self.phases[self._name]

    def halt(self) -> None:
        """End the phase, if one has begun."""
        if self.phases:
            self._phase.seconds = self._now() - self._start

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def measure(
    name: str,
    preset: str,
    epsilon: float,
    per_class: int,
    *,
    device: torch.device,
    seconds: float,
    facts: PublicFacts,
) -> Any:
    """Seconds a step of each phase, and minutes of all of them."""
    kind = METHODS[name]
    if not issubclass(kind, SetMethod) or issubclass(kind, MeasuringMethod):
        raise SystemExit(f"{name} is not one long loop; time it by benchmarks/release.py, or by its study")
    config = kind.presets[preset](per_class, epsilon)
    full = {phase: getattr(config, setting) for setting, phase in EARLIER.items() if hasattr(config, setting)}
    cut = {setting: min(getattr(config, setting), FEW) for setting in EARLIER if hasattr(config, setting)}
    method = kind(dataclasses.replace(config, **cut))
    plan = method.plan(facts, PrivacyBudget(epsilon=epsilon))
    generator = torch.Generator().manual_seed(0)
    records = random_records(facts, generator)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    # Without a limit, since nothing is released; the noise is that of a release nonetheless.
    curator = Curator(records, facts, Ledger(PrivacyBudget(epsilon=math.inf)), system_noise(), device=str(device))
    clock, start = Clock(device, seconds), time.perf_counter()
    with contextlib.suppress(Enough):
        method.run(curator, plan, execution=Execution(device=str(device)), observer=clock)
    clock.halt()
    spent = time.perf_counter() - start
    phases = {
        phase: {"steps": full.get(phase, one.total), "seconds a step": one.seconds / one.counted, "timed": one.counted}
        for phase, one in clock.phases.items()
        if one.counted
    }
    minutes = (clock.before + sum(one["steps"] * one["seconds a step"] for one in phases.values())) / 60
    return {
        "what": f"{name}, preset {preset}, epsilon {epsilon:g}, {per_class:,} a class, MNIST's size: a run",
        "method": name,
        "preset": preset,
        "epsilon": epsilon,
        "per_class": per_class,
        "value": minutes,
        "unit": "min",
        "ratio_to": None,
        "before": clock.before,
        "phases": phases,
        "peak_memory_mib": peak_memory_mib(device),
        "seconds": spent,
        **described(device),
    }


def main(words: Sequence[str] | None = None, facts: PublicFacts = FACTS) -> None:
    """Measure and put on file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="METHOD:PRESET:EPSILON[:PER_CLASS]")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=20, help="that the longest phase is timed for")
    parser.add_argument("--again", action="store_true", help="also what is on file")
    parser.add_argument("--results", type=Path, default=Path("results"))
    args = parser.parse_args(words)
    for run in args.runs:
        name, preset, epsilon, per_class = (run if run.count(":") > 2 else f"{run}:{PER_CLASS}").split(":")
        path = args.results / "speed" / f"method-{name}-{preset}-eps{epsilon}-ipc{per_class}-{args.device}.json"
        if path.exists() and not args.again:
            print(f"{path} is on file")
            continue
        device = torch.device(args.device)
        found = measure(name, preset, float(epsilon), int(per_class), device=device, seconds=args.seconds, facts=facts)
        write(path, (json.dumps(found, indent=2) + "\n").encode())
        print(f"{found['what']}: {found['value']:.1f} min, {found['peak_memory_mib']:.0f} MiB: {path}", flush=True)


if __name__ == "__main__":
    main()
