"""What a method will ask and what that costs, known before any record is looked at."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from privset.errors import BudgetError, ConfigError, UnaffordableError
from privset.facts import PublicFacts
from privset.methods.claim import Claim
from privset.methods.settings import MethodConfig, require
from privset.privacy.accounting import GaussianEvent, Spending, spend
from privset.privacy.budget import RELATION, PrivacyBudget
from privset.privacy.calibration import calibrate

if TYPE_CHECKING:
    from privset.methods.method import Method


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
                f"{budget.epsilon:g}: ask fewer questions, or let the noise be calibrated: leave out "
                "--noise-multiplier or --sigma, or a preset that sets them, such as `paper`"
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
            caution=method.caution(facts, noise_multiplier, events),
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
        try:
            noise = calibrate(events, budget, most=most) if given is None else given
        except UnaffordableError as error:
            words = [str(error), *_instead(method, facts, budget, events(1.0), most)]
            raise UnaffordableError(" ".join(words)) from error
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


def _instead(
    method: Method[Any], facts: PublicFacts, budget: PrivacyBudget, events: tuple[GaussianEvent, ...], most: float
) -> list[str]:
    """What else to do about a budget that does not pay for ``events``, a sentence each."""
    everyone = all(event.sampling_rate == 1 for event in events)
    by_class = everyone and most < facts.size  # only a class's records count
    words = ["Fewer classes would help, too."] if by_class and len(facts.classes) > 2 else []
    if method.paced_by:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in method.paced_by)
        presets = presets_that_ask_fewer(method, facts, budget, sum(event.count for event in events))
        sampled = "" if everyone else ", or questions to more records at a time"
        words.append(f"Fewer questions would help, too ({options}){sampled}; {presets}.")
    return words


def presets_that_ask_fewer(method: Method[Any], facts: PublicFacts, budget: PrivacyBudget, questions: int) -> str:
    """In a few words, which of the method's presets ask fewer than so many questions.

    Presets that give the noise instead of having it calibrated are left out.
    """
    without_end = dataclasses.replace(budget, epsilon=float("inf"))  # plans are quick where no noise is sought
    found = []
    for name in method.presets:
        config = method.preset(name, per_class=getattr(method.config, "per_class", 1), epsilon=budget.epsilon)
        with contextlib.suppress(ConfigError):
            if type(method)(config).plan(facts, without_end).questions < questions:
                found.append(name)
    return f"--preset {' or '.join(found)} asks fewer" if found else f"no preset of {method.name} asks fewer"
