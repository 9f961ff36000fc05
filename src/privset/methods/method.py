"""What every method promises: a plan that needs no data, and a run that asks exactly what was planned."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic

import torch
from torch import Tensor

from privset.errors import ConfigError, did_you_mean
from privset.facts import PublicFacts
from privset.methods.claim import Claim
from privset.methods.plan import Plan
from privset.methods.settings import Config, MethodConfig, require
from privset.networks.generator_forms import GeneratorForm, TrainedGenerator
from privset.observer import Observer
from privset.privacy.accounting import GaussianEvent
from privset.privacy.budget import PrivacyBudget
from privset.privacy.curator import Curator

MOST_SNAPSHOTS = 100
"""All of them are held, kept with the state of a run that may be stopped, and published."""


@dataclasses.dataclass(frozen=True, eq=False)
class Synthesis:
    """What a method made: normalised images ``[m, c, h, w]`` and labels ``[m]``, both free to publish.

    Attributes:
        images: In the normalised space of the public facts.
        labels: int64.
        keep_floats: Publish the unbounded floats as they are, not 8-bit pixels.
        generator: To be published with the set, so that more images can be drawn from it; None if there is none.
        snapshots: The images as they were after so many answers, in their order; those of the plan.
    """

    images: Tensor
    labels: Tensor
    keep_floats: bool = False
    generator: TrainedGenerator | None = None
    snapshots: Mapping[int, Tensor] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """Where and how to compute: nothing here can change a guarantee."""

    device: str = "cpu"
    """cpu, cuda or cuda:N."""
    chunk: int | None = None
    """Private records looked at together; fewer need less memory. By default as many as suit the device."""

    def __post_init__(self) -> None:
        if self.device != "cpu" and not self.device.startswith("cuda"):
            raise ConfigError(f"device must be cpu, cuda or cuda:N, not {self.device!r}")
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise ConfigError(f"device {self.device} was asked for, but this machine shows no CUDA device; use cpu")
        require(self.chunk is None or self.chunk >= 1, f"chunk must be at least 1, not {self.chunk}")


class Method(abc.ABC, Generic[Config]):
    """A public optimiser that may ask the private records only what its plan says."""

    name: ClassVar[str]
    """As typed on the command line."""
    summary: ClassVar[str]
    """One line for `privset methods`."""
    makes: ClassVar[str]
    """What is published: a set, or a classifier."""
    reference: ClassVar[str]
    """Where it was published."""
    config_type: ClassVar[type[MethodConfig]]
    presets: ClassVar[Mapping[str, Callable[[int, float], Any]]]
    """By name: its settings, of the images a class (if it makes a set) and epsilon. `preset_for` says the default."""
    claims: ClassVar[str] = ""
    """What the original analysis claims for the published settings, and what is proven for them; "" if they agree."""
    paced_by: ClassVar[tuple[str, ...]] = ()
    """Settings that say how many questions are asked, if fewer of them would each get less noise."""
    prelude: ClassVar[Mapping[str, str]] = {}
    """Settings that say how many steps phases before the longest one have, and what such a phase is called."""
    resumable: ClassVar[bool] = False
    """Whether a run that was stopped can go on: it measures first, or keeps its state in ``curator.checkpoint``."""
    keeps_snapshots: ClassVar[bool] = False
    """Whether the set is there all along, moved by each answer, and can be kept as it is after some of them."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @property
    def winners_only(self) -> bool:
        """Whether of what wards choose only the winners are made use of, and, asked apart, whether enough chose them.

        Then an accountant that looks at the votes has something to say, to the data holder.
        """
        return False

    @classmethod
    def preset_for(cls, device: str) -> str:  # noqa: ARG003 - for methods with a preset for slower machines
        """Name of the preset that is chosen on a device when none is asked for."""
        return next(iter(cls.presets))

    @classmethod
    def preset(cls, name: str, *, per_class: int, epsilon: float) -> Config:
        """The named preset's settings at this budget, and, if it makes one, for a set of this size."""
        if name not in cls.presets:
            known = ", ".join(cls.presets)
            raise ConfigError(f"{cls.name} has the presets {known}, not {name!r}.{did_you_mean(name, cls.presets)}")
        return cls.presets[name](per_class, epsilon)

    @abc.abstractmethod
    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> Plan:
        """Calibrate the noise for these public facts; reads no record."""

    def caution(
        self,
        facts: PublicFacts,  # noqa: ARG002 - for some methods
        noise_multiplier: float,  # noqa: ARG002
        events: tuple[GaussianEvent, ...],  # noqa: ARG002
    ) -> str | None:
        """What whoever pays should know about what such a plan is likely to give; from public values alone."""
        return None

    def claim(
        self,
        facts: PublicFacts,  # noqa: ARG002 - for methods that do claim something
        events: tuple[GaussianEvent, ...],  # noqa: ARG002
        delta: float,  # noqa: ARG002
    ) -> Claim | None:
        """What the original analysis says these questions cost, if it is not what is proven; from public values alone.

        Args:
            facts: What is public about the data.
            events: What is asked, all of it with noise.
            delta: Of the budget.
        """
        return None

    def _check(self, curator: Curator, plan: Plan) -> None:
        require(plan.method == self.name and plan.config == self.config, "this plan was made for other settings")
        require(plan.facts == curator.facts, f"this plan was made for {plan.facts}, not for {curator.facts}")


class SetMethod(Method[Config]):
    """A method that makes a synthetic set."""

    makes = "a set"

    @property
    def generator_form(self) -> GeneratorForm | None:
        """Of the generator that is published with the set, decided by the settings alone; None if there is none."""
        return None

    @property
    def answers_per_step(self) -> int:
        """How many answers are used together; snapshots are taken between two steps."""
        return 1

    def with_snapshots(self, plan: Plan, count: int) -> Plan:
        """The plan of a run that keeps its set at ``count`` evenly spaced steps, the last of them its end; 0 for none.

        When, is a function of the plan alone, and what is kept one of the answers up to there: post-processing.

        Raises:
            ConfigError: The run has fewer steps, or these are too many to hold.
        """
        steps = plan.questions // self.answers_per_step
        most = min(steps, MOST_SNAPSHOTS)
        require(
            type(count) is int and 0 <= count <= most,
            f"snapshots must be a number from 0 to {most:,} here: {self.name} takes {steps:,} step(s); not {count}",
        )
        moments = (self.answers_per_step * (steps * number // count) for number in range(1, count + 1))
        return dataclasses.replace(plan, snapshots=tuple(moments))

    def run(
        self,
        curator: Curator,
        plan: Plan,
        *,
        execution: Execution | None = None,
        observer: Observer | None = None,
    ) -> Synthesis:
        """Ask exactly the planned questions and make the set from the answers."""
        self._check(curator, plan)
        return self._synthesise(curator, plan, execution or Execution(), observer or Observer())

    @abc.abstractmethod
    def _synthesise(self, curator: Curator, plan: Plan, execution: Execution, observer: Observer) -> Synthesis:
        """The method itself; `run` has checked that plan, settings and curator belong together."""
