"""How long a run would take on this machine, by its beginning: on random images, before a record is read or charged.

A run that asks as it goes is charged as a whole before its first step. Whoever finds out only then that it takes a week
has paid for it. What the pixels of an image are changes no time, so the beginning of a run is timed on random ones of
the same number and size; phases that come before the longest one, in which critics or teachers learn by themselves, are
cut to a few steps and counted in full.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from privset.data import Records, facts_of
from privset.errors import ConfigError
from privset.facts import PublicFacts
from privset.methods import Execution, Method, SetMethod, TrainingMethod
from privset.methods.measuring import MeasuringMethod
from privset.observer import Observer
from privset.privacy import Curator, Ledger, PrivacyBudget, system_noise

FEW = {"cuda": 4, "cpu": 2}
"""Steps that a phase before the longest one is cut to; on a processor they may take minutes each."""
UNCOUNTED = 3
"""First steps of a phase, in which kernels are compiled and chosen; of a phase of fewer, all but the last."""
PATIENCE = 12
"""So many times the seconds that a phase is to be timed for are waited for its first steps, or its first round."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timed:
    """A phase of a run.

    Attributes:
        steps: That it has.
        step_seconds: Of one of them.
        timed: Steps that this was measured by.
    """

    steps: int
    step_seconds: float
    timed: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What a run would take.

    Attributes:
        before: Seconds until the first phase, in which critics or teachers are made.
        phases: By name.
    """

    before: float
    phases: Mapping[str, Timed]

    @property
    def seconds(self) -> float:
        """Of the whole run; drawing and saving what was made, which take seconds, are not in it."""
        return self.before + sum(phase.steps * phase.step_seconds for phase in self.phases.values())


def require_rehearsable(method: Method[Any]) -> None:
    """Raise a `ConfigError` if the method measures first, and has no long run to be paid for."""
    if isinstance(method, MeasuringMethod):
        raise ConfigError(
            f"{method.name} pays for a few answers at once and makes a set of them at no further cost, so there is no "
            "run to be timed before it is paid for; time methods that ask as they go, such as psg"
        )


def rehearse(
    data: PublicFacts | str | Path,
    *,
    method: Method[Any],
    budget: PrivacyBudget,
    execution: Execution | None = None,
    seconds: float = 10.0,
) -> Rehearsal:
    """Run the beginning of a method on random images, and tell how long all of it would take.

    No record is read, nothing is charged and nothing is made. It needs the memory of the run itself.

    Args:
        data: What is public about the data, the name of a data set, or a path.
        method: With its settings. One that measures first has no long run to pay for, and is refused.
        budget: Of the run.
        execution: Where to compute.
        seconds: That the longest phase is timed for; longer where its steps are, or come in rounds, of which one or two
            are waited for. What comes before it takes as long as it takes.

    Raises:
        ConfigError: The method measures first, or the seconds are none.
    """
    require_rehearsable(method)
    if not 0 < seconds < math.inf:
        raise ConfigError(f"seconds to time a run for must be a positive number, not {seconds}")
    facts = data if isinstance(data, PublicFacts) else facts_of(data)
    execution, cut = execution or Execution(), dict(method.prelude)
    whole = {phase: getattr(method.config, setting) for setting, phase in cut.items()}
    few = FEW[torch.device(execution.device).type]
    changed = {setting: min(getattr(method.config, setting), few) for setting in cut}
    short = type(method)(dataclasses.replace(method.config, **changed))
    plan, records = short.plan(facts, budget), random_records(facts)
    # Without a limit, since nothing is released; the noise is that of a release nonetheless, which takes its time.
    ledger = Ledger(PrivacyBudget(epsilon=math.inf))
    curator = Curator(records, facts, ledger, system_noise(), device=execution.device, chunk=execution.chunk)
    clock = _Clock(torch.device(execution.device), seconds, earlier=frozenset(whole))
    with contextlib.suppress(_Enough):
        if isinstance(short, TrainingMethod):
            short.train(curator, plan, execution=execution, observer=clock)
        else:
            assert isinstance(short, SetMethod)
            short.run(curator, plan, execution=execution, observer=clock)
    clock.halt()
    found = {
        name: Timed(steps=whole.get(name, phase.total), step_seconds=phase.seconds / phase.counted, timed=phase.counted)
        for name, phase in clock.phases.items()
        if phase.counted
    }
    return Rehearsal(before=clock.before, phases=found)


def random_records(facts: PublicFacts) -> Records:
    """As many as the facts say, and of their size."""
    random = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (facts.size, *facts.shape), generator=random, dtype=torch.uint8)
    return Records(pixels, torch.randint(0, len(facts.classes), (facts.size,), generator=random))


class _Enough(Exception):  # noqa: N818 - nothing went wrong
    """The phase was timed for long enough."""


@dataclasses.dataclass
class _Phase:
    """Steps of a phase that are counted, and their seconds."""

    total: int
    taken: int = 0
    counted: int = 0
    seconds: float = 0.0
    laps: int = 0
    began: float = 0.0


class _Clock(Observer):
    """Times the steps of each phase, and stops the run in the last one.

    Args:
        device: What is waited for, before a look at the clock.
        seconds: That the longest phase is timed for.
        earlier: Phases that are not stopped, since they are short.
    """

    def __init__(self, device: torch.device, seconds: float, earlier: frozenset[str] = frozenset()) -> None:
        self._device, self._seconds, self._earlier = device, seconds, earlier
        self._start = self._began = self._now()
        self.before = 0.0
        self.phases: dict[str, _Phase] = {}

    def phase(self, name: str, total: int) -> None:
        """End the phase before, and begin another."""
        self.halt()
        self._start = self._now()
        if not self.phases:
            self.before = self._start - self._began
        self.phases[name] = _Phase(total, began=self._start)

    def step(self, count: int = 1, **values: float) -> None:  # noqa: ARG002 - as an observer is called
        """Count it, unless it is one of the first, or of a round, which is counted when it is done."""
        phase = self._phase
        phase.taken += count
        first = phase.taken <= min(UNCOUNTED, phase.total - 1)
        if not (phase.laps or first):
            phase.counted += count
            self._end()
        elif not phase.laps:
            self._give_up()
            self._start = self._now()

    def lap(self) -> None:
        """Count the steps of a round, unless it is the first: what comes before a round is part of it from then on."""
        phase = self._phase
        phase.laps += 1
        if phase.laps <= 2 and phase.taken < phase.total:
            self._give_up()
            phase.taken, self._start = 0, self._now()
            return
        phase.counted = phase.taken
        self._end()

    def halt(self) -> None:
        """End the phase, if one has begun."""
        if self.phases:
            self._phase.seconds = self._now() - self._start

    def _give_up(self) -> None:
        """Count the first steps, too, where others would take too long."""
        phase = self._phase
        if phase.taken and self._ends and time.perf_counter() - phase.began > PATIENCE * self._seconds:
            phase.counted, self._start = phase.taken, phase.began
            raise _Enough

    def _end(self) -> None:
        if self._ends and time.perf_counter() - self._start > self._seconds:
            raise _Enough

    @property
    def _ends(self) -> bool:
        return self._name not in self._earlier

    @property
    def _name(self) -> str:
        return next(reversed(self.phases))

    @property
    def _phase(self) -> _Phase:
        return self.phases[self._name]

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()
