"""What every method promises: a plan that needs no data, and a run that asks exactly what was planned."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from privset import networks
from privset.errors import BudgetError, ConfigError
from privset.facts import PublicFacts
from privset.methods.claim import Claim
from privset.networks.generator_forms import MOST, GeneratorForm, TrainedGenerator
from privset.observer import Observer
from privset.privacy.accounting import LEAST_NOISE, GaussianEvent, Spending, calibrate, spend
from privset.privacy.budget import RELATION, PrivacyBudget
from privset.privacy.curator import Curator

Config = TypeVar("Config", bound="MethodConfig")

MOST_SNAPSHOTS = 100
"""All of them are held, kept with the state of a run that may be stopped, and published."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MethodConfig:
    """Settings that every method has. What a subclass adds may change utility and cost, never the guarantee."""

    seed: int = 0
    """Seed of everything public: initial images, networks, shuffling. Never of the noise."""

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**32, f"seed must be 0 or more, and below 2**32, not {self.seed}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SetConfig(MethodConfig):
    """Settings that every method has that makes a synthetic set."""

    per_class: int = 10
    """Synthetic images for each class."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(self, "per_class")


def require_shards(facts: PublicFacts, count: int, what: str) -> None:
    """Raise a `ConfigError` if there are fewer records than networks that each have some of their own."""
    require(count <= facts.size, f"{what} must be at most {facts.size:,}, the number of records, not {count:,}")


def require(condition: bool, otherwise: str) -> None:
    """Raise `ConfigError` with the sentence ``otherwise`` unless the condition holds."""
    if not condition:
        raise ConfigError(otherwise)


def require_at_least_one(config: MethodConfig, *names: str) -> None:
    """Raise `ConfigError` for the first of these settings that is below 1; one that is None is left to its default."""
    for name in names:
        value = getattr(config, name)
        require(value is None or value >= 1, f"{name.replace('_', '-')} must be at least 1, not {value}")


def require_noise(multiplier: float | None) -> None:
    """Raise `ConfigError` for a noise multiplier that is not None and not one that can be accounted for."""
    require(
        multiplier is None or LEAST_NOISE <= multiplier < math.inf,
        f"noise-multiplier must be at least {LEAST_NOISE:g}, not {multiplier}; leave it out to have it calibrated",
    )


def require_network(name: str, depth: int | None) -> None:
    """Raise `ConfigError` for a network that there is not, or one so deep that a hostile certificate must have it."""
    require(name in networks.CLASSIFIERS, f"network must be one of {', '.join(networks.CLASSIFIERS)}, not {name!r}")
    require(depth is None or depth <= 16, f"depth must be at most 16, not {depth}")


def require_generator(config: MethodConfig, *names: str) -> None:
    """Raise `ConfigError` for the first of these settings, sizes of a generator, with which none could be published."""
    for name in names:
        value = getattr(config, name)
        require(1 <= value <= MOST, f"{name.replace('_', '-')} must lie between 1 and {MOST:,}, not {value}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What a method will ask, at which noise, and what that costs; made from public facts alone.

    Attributes:
        method: Name of the method.
        config: Its settings.
        facts: What is public about the data.
        budget: What may be spent.
        noise_multiplier: Calibrated (or given) noise of the questions.
        events: Every question that will be asked.
        spending: Bounds on epsilon for these events.
        claim: What the original analysis says they cost, where that differs; see `Claim`.
        caution: What to know before it is paid for, if there is anything.
        snapshots: Numbers of answers after which the set is kept as it is then, the last of them all; see
            `SetMethod.with_snapshots`.
    """

    method: str
    config: MethodConfig
    facts: PublicFacts
    budget: PrivacyBudget
    noise_multiplier: float
    events: tuple[GaussianEvent, ...]
    spending: Spending
    claim: Claim | None = None
    caution: str | None = None
    snapshots: tuple[int, ...] = ()

    @classmethod
    def make(
        cls,
        method: Method[Any],
        facts: PublicFacts,
        budget: PrivacyBudget,
        noise_multiplier: float,
        events: tuple[GaussianEvent, ...],
    ) -> Plan:
        """Add up what the events cost; refuse a delta too large for the data, and a cost past the budget."""
        budget.check_size(facts.size)
        spending = spend(events, budget.delta)
        if spending.by(budget.accountant) > budget.epsilon:
            raise BudgetError(
                f"these settings would cost epsilon {spending.by(budget.accountant):.4g}, more than the budget "
                f"{budget.epsilon:g}: ask fewer questions, or let the noise be calibrated, without an option that sets "
                "it and by another preset than `paper`"
            )
        return cls(
            method=method.name,
            config=method.config,
            facts=facts,
            budget=budget,
            noise_multiplier=noise_multiplier,
            events=events,
            spending=spending,
            claim=method.claim(facts, events, budget.delta) if budget.private else None,
            caution=method.caution(facts, noise_multiplier),
        )

    @classmethod
    def calibrated(
        cls,
        method: Method[Any],
        facts: PublicFacts,
        budget: PrivacyBudget,
        events: Callable[[float], tuple[GaussianEvent, ...]],
        *,
        given: float | None,
        most: float,
    ) -> Plan:
        """The plan of ``events`` at the noise multiplier that is given or, if None is, calibrated to the budget.

        Args:
            method: Whose plan it is.
            facts: What is public about the data.
            budget: What may be spent.
            events: What is asked at a noise multiplier.
            given: The setting ``noise_multiplier``.
            most: As for `privset.privacy.calibrate`.
        """
        budget.check_size(facts.size)
        require(given is None or budget.private, "without privacy there is no noise; leave noise-multiplier out")
        noise = calibrate(events, budget, most=most) if given is None else given
        return cls.make(method, facts, budget, noise, events(noise))

    @property
    def epsilon(self) -> float:
        """The bound of the budget's own accountant."""
        return self.spending.by(self.budget.accountant)

    @property
    def questions(self) -> int:
        """How many noisy answers will be asked for in all."""
        return sum(event.count for event in self.events)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values; an infinite epsilon is written as the string "inf"."""

        def number(value: float | None) -> float | str | None:
            return "inf" if value == float("inf") else value

        return {
            "method": self.method,
            "data": dataclasses.asdict(self.facts),
            "noise_multiplier": self.noise_multiplier,
            "questions": self.questions,
            "epsilon": number(self.epsilon),
            "delta": self.budget.delta,
            "accountant": self.budget.accountant,
            "relation": RELATION,
            "budget": number(self.budget.epsilon),
            "epsilon_rdp": number(self.spending.rdp),
            "epsilon_pld": number(self.spending.pld),
            "caution": self.caution,
            "claim": self.claim and dataclasses.asdict(self.claim) | {"epsilon": number(self.claim.epsilon)},
            "events": [event.to_json() for event in self.events],
            "settings": dataclasses.asdict(self.config),
        }


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
    reference: ClassVar[str]
    """Where it was published."""
    config_type: ClassVar[type[MethodConfig]]
    presets: ClassVar[Mapping[str, Callable[[int, float], Any]]]
    """By name: its settings, of the images a class (if it makes a set) and epsilon. `preset_for` says the default."""
    claims: ClassVar[str] = ""
    """What the original analysis claims for the published settings, and what is proven for them; "" if they agree."""
    resumable: ClassVar[bool] = False
    """Whether a run that was stopped can go on: it measures first, or keeps its state in ``curator.checkpoint``."""
    keeps_snapshots: ClassVar[bool] = False
    """Whether the set is there all along, moved by each answer, and can be kept as it is after some of them."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @classmethod
    def preset_for(cls, device: str) -> str:  # noqa: ARG003 - for methods with a preset for slower machines
        """Name of the preset that is chosen on a device when none is asked for."""
        return next(iter(cls.presets))

    @classmethod
    def preset(cls, name: str, *, per_class: int, epsilon: float) -> Config:
        """The named preset's settings at this budget, and, if it makes one, for a set of this size."""
        if name not in cls.presets:
            raise ConfigError(f"{cls.name} has the presets {', '.join(cls.presets)}, not {name!r}")
        return cls.presets[name](per_class, epsilon)

    @abc.abstractmethod
    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> Plan:
        """Calibrate the noise for these public facts; reads no record."""

    def caution(self, facts: PublicFacts, noise_multiplier: float) -> str | None:  # noqa: ARG002 - for some methods
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
