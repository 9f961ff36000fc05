"""Settings of methods, and the sentences with which impossible ones are refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from privset import networks
from privset.errors import ConfigError
from privset.facts import PublicFacts
from privset.networks.generator_forms import MOST
from privset.privacy.accounting import LEAST_NOISE
from privset.processor import free_memory

Config = TypeVar("Config", bound="MethodConfig")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MethodConfig:
    """Settings that every method has. What a subclass adds may change utility and cost, never the guarantee."""

    earlier: ClassVar[Mapping[str, Any]] = {}
    """By the name of a setting that came later, what was done before: certificates and results from then lack it."""

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
    most = f"{facts.size:,}, the number of records"
    require(count <= facts.size, f"{what} must be at most {most}, not {count:,}; give fewer (--{what})")


def require_room(facts: PublicFacts, per_class: int) -> None:
    """Raise a `ConfigError` if so many images find no room in this machine's memory; before any budget is charged.

    They are there as floats, normalised and as pixels, and once more as what is written.
    """
    count, there = per_class * len(facts.classes), free_memory()
    needed = 12 * count * math.prod(facts.shape)
    require(
        needed <= there,
        f"{count:,} images take about {needed / 2**30:,.0f} GiB of memory while they are made, and "
        f"{there / 2**30:,.0f} are free; ask for fewer (--per-class)",
    )


def require(condition: bool, otherwise: str) -> None:
    """Raise `ConfigError` with the sentence ``otherwise`` unless the condition holds."""
    if not condition:
        raise ConfigError(otherwise)


def require_at_least_one(config: MethodConfig, *names: str) -> None:
    """Raise `ConfigError` for the first of these settings that is below 1; one that is None is left to its default."""
    for name in names:
        value = getattr(config, name)
        require(value is None or value >= 1, f"{name.replace('_', '-')} must be at least 1, not {value}")


FASTEST = 1e4
"""No learning rate above this teaches anything; a slip of the keys would cost a budget."""


def require_positive(config: MethodConfig, *names: str) -> None:
    """Raise `ConfigError` for the first of these settings that is no positive number, or a rate that is absurd.

    One that is None is left to its default.
    """
    for name in names:
        value, words = getattr(config, name), name.replace("_", "-")
        if value is None:
            continue
        require(0 < value < math.inf, f"{words} must be a positive number, not {value}")
        slow = value <= FASTEST or not name.endswith("rate")
        require(slow, f"{words} must be at most {FASTEST:,.0f}, not {value:g}: nothing is learned so fast")


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
