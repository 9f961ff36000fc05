"""Methods that ask everything at once: noisy statistics first, and then as many sets from them as one likes.

What was measured is free to publish and to use again, since its noise was drawn once and for all. So these
methods come apart into `measure`, which needs the records and spends the budget, and `distil`, which needs
neither: on another machine, with another size or seed, any number of times.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Generic

import torch
from torch import Tensor

from privset.errors import ConfigError
from privset.facts import PublicFacts
from privset.methods.checkpoint import Checkpoint
from privset.methods.method import Execution, Method, SetMethod, Synthesis
from privset.methods.plan import Plan
from privset.methods.settings import Config, require
from privset.observer import Observer
from privset.privacy.curator import Curator

Statistics = dict[str, Tensor]
"""Noisy answers by name, float32 and on the CPU; free to publish."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Measured(Generic[Config]):
    """Noisy statistics, with everything public that is needed to use them.

    Attributes:
        config: The settings they were measured with; networks are known by its seed.
        facts: What is public about the data.
        statistics: The noisy answers.
    """

    config: Config
    facts: PublicFacts
    statistics: Statistics


class MeasuringMethod(SetMethod[Config]):
    """A method that asks `total` questions about all records only, and makes sets from the answers afterwards."""

    resumable = True
    measured_with: ClassVar[frozenset[str]]
    """The settings that decide what is asked. With the seed, which networks and the like are made from, they are all
    that `measure` and `plan` look at; whatever else is set is for `distil` alone."""

    def measure(
        self,
        curator: Curator,
        plan: Plan,
        *,
        execution: Execution | None = None,
        observer: Observer | None = None,
    ) -> Measured[Config]:
        """Ask exactly the planned questions, each once, always in the same order."""
        self._check(curator, plan)
        asked = {(event.question, event.sampling_rate) for event in plan.events}
        require(asked == {("total", 1.0)}, f"{self.name} may ask for totals over all records only")
        found = self._measure(curator, plan, execution or Execution(), observer or Observer())
        statistics = {name: value.detach().to("cpu", torch.float32).contiguous() for name, value in found.items()}
        measured = Measured(config=self.config, facts=plan.facts, statistics=statistics)
        self.check_form(measured)
        return measured

    def distil(
        self,
        measured: Measured[Config],
        *,
        execution: Execution | None = None,
        observer: Observer | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Synthesis:
        """A set from what was measured; needs no record and costs nothing.

        Networks and the like are made from the seed they were measured with, images from this method's own. On a
        CPU the same settings give the same bits, however often the run was stopped and taken up in between.
        """
        self.check_settings(measured)
        self.check_form(measured)
        return self._distil(measured, execution or Execution(), observer or Observer(), checkpoint or Checkpoint())

    def check_settings(self, measured: Measured[Config]) -> None:
        """Refuse settings that these statistics were not measured with, and say which."""
        for name in sorted(self.measured_with):
            then, now = getattr(measured.config, name), getattr(self.config, name)
            require(
                then == now,
                f"these statistics were measured with {name.replace('_', '-')} {then}, and no set can be distilled "
                f"from them with {now}: leave it out, or measure again, which costs its own epsilon",
            )

    def check_form(self, measured: Measured[Config]) -> None:
        """Refuse statistics that are not of the form these settings and facts give, or not finite."""
        expected = {name: list(shape) for name, shape in self.shapes(measured.facts).items()}
        found = {name: list(value.shape) for name, value in measured.statistics.items()}
        if found != expected:
            raise ConfigError(f"{self.name} with these settings measures {_spell(expected)}, not {_spell(found)}")
        odd = sorted(name for name, value in measured.statistics.items() if not bool(value.isfinite().all()))
        require(not odd, f"statistics that are not finite: {', '.join(odd)}")

    @abc.abstractmethod
    def shapes(self, facts: PublicFacts) -> dict[str, tuple[int, ...]]:
        """Name and shape of every statistic, from the settings that are measured with."""

    @abc.abstractmethod
    def _measure(self, curator: Curator, plan: Plan, execution: Execution, observer: Observer) -> Statistics:
        """Ask the questions. Must be a function of the answers: a run that was stopped gives the first ones again."""

    @abc.abstractmethod
    def _distil(
        self, measured: Measured[Config], execution: Execution, observer: Observer, checkpoint: Checkpoint
    ) -> Synthesis:
        """Make the set; `distil` has checked that settings and statistics belong together."""

    def _synthesise(self, curator: Curator, plan: Plan, execution: Execution, observer: Observer) -> Synthesis:
        measured = self.measure(curator, plan, execution=execution, observer=observer)
        return self.distil(measured, execution=execution, observer=observer)


def require_measuring(method: type[Method[Any]]) -> type[MeasuringMethod[Any]]:
    """The method, if measuring and distilling are two things in it."""
    if not issubclass(method, MeasuringMethod):
        raise ConfigError(
            f"{method.name} asks as it goes, so there is nothing to measure first and distil later; use "
            f"`privset generate --method {method.name}`, or a method that measures"
        )
    return method


def _spell(shapes: Mapping[str, list[int]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in sorted(shapes.items())) or "nothing"
