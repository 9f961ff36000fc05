"""A small release made without private data: a real plan, made-up images, a ledger like the curator's."""

import dataclasses
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from privset.facts import PublicFacts
from privset.methods import Moments, MomentsConfig, Psg, PsgConfig
from privset.methods.method import Synthesis
from privset.methods.plan import Plan
from privset.privacy.budget import PrivacyBudget
from privset.release import (
    Certificate,
    NoisyStatistics,
    SyntheticSet,
    card,
    certify,
    certify_distilled,
    load_statistics,
    save,
)
from privset.release.certificate import sha256

FACTS = PublicFacts(
    name="toy",
    channels=1,
    height=8,
    width=8,
    classes=("zero", "one", "two"),
    size=1000,
    mean=(0.25,),
    std=(0.5,),
)
CREATED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Workshop:
    """Makes what the tests need."""

    facts = FACTS

    @staticmethod
    def plan(epsilon: float = 0.5, accountant: str = "rdp", facts: PublicFacts = FACTS, **settings: object) -> Plan:
        # Calibrated by RDP, and to much noise, because PLD takes seconds where there is little.
        chosen = {
            "per_class": 4,
            "runs": 2,
            "outer_steps": 3,
            "batches_per_step": 5,
            "batch_size": 50,
        } | settings
        budget = PrivacyBudget(epsilon=epsilon, accountant=accountant)  # type: ignore[arg-type]
        return Psg(PsgConfig(**chosen)).plan(facts, budget)  # type: ignore[arg-type]

    @staticmethod
    def set(facts: PublicFacts = FACTS, *, per_class: int = 4, keep_floats: bool = False) -> SyntheticSet:
        labels = torch.arange(len(facts.classes)).repeat_interleave(per_class)
        images = torch.randn(len(labels), *facts.shape, generator=torch.Generator().manual_seed(1))
        return SyntheticSet.from_synthesis(Synthesis(images, labels, keep_floats=keep_floats), facts)

    @staticmethod
    def ledger(path: Path, plan: Plan) -> Path:
        """As the curator writes it, in two charges, so that adding them up is tested too."""
        budget = plan.budget
        header = {
            "ledger": 1,
            "epsilon": budget.epsilon if math.isfinite(budget.epsilon) else "inf",
            "delta": budget.delta,
            "accountant": budget.accountant,
            "relation": "add-or-remove-one-record",
        }
        charges = [
            dataclasses.asdict(event) | {"count": count, "time": "2026-01-02T03:04:05+00:00"}
            for event in plan.events
            for count in (1, event.count - 1)
            if count
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in [header, *charges]))
        return path

    def certify(
        self,
        plan: Plan,
        synthetic: SyntheticSet | NoisyStatistics,
        ledger: Path | None,
        noise: Literal["system", "seeded"] = "system",
    ) -> Certificate:
        return certify(plan, synthetic, noise, ledger=ledger, seconds=1.5, created=CREATED)

    def publish(
        self,
        folder: Path,
        plan: Plan,
        synthetic: SyntheticSet | NoisyStatistics | None = None,
        noise: Literal["system", "seeded"] = "system",
    ) -> Path:
        synthetic = synthetic or self.set(plan.facts)
        ledger = self.ledger(folder.parent / f"{folder.name}.ledger", plan)
        return save(folder, synthetic, self.certify(plan, synthetic, ledger, noise), ledger)

    @staticmethod
    def measuring_plan(epsilon: float = 0.5, **settings: object) -> Plan:
        chosen = {"per_class": 4, "networks": 2, "width": 4, "depth": 2, "resolution": 2} | settings
        budget = PrivacyBudget(epsilon=epsilon, accountant="rdp")
        return Moments(MomentsConfig(**chosen)).plan(FACTS, budget)  # type: ignore[arg-type]

    @staticmethod
    def statistics(plan: Plan, seed: int = 1) -> NoisyStatistics:
        """Made-up numbers of the right form."""
        generator = torch.Generator().manual_seed(seed)
        assert isinstance(plan.config, MomentsConfig)
        shapes = Moments(plan.config).shapes(plan.facts)
        return NoisyStatistics({name: torch.randn(shape, generator=generator) for name, shape in shapes.items()})

    def measure(self, folder: Path, **settings: object) -> Path:
        """A release of statistics."""
        plan = self.measuring_plan(**settings)  # type: ignore[arg-type]
        return self.publish(folder, plan, self.statistics(plan))

    def distil(self, folder: Path, source: Path, **settings: object) -> Path:
        """A release of a set that claims to be distilled from them."""
        statistics = load_statistics(source)
        config = dataclasses.replace(statistics.measured().config, **settings)
        made = self.set(per_class=config.per_class)
        ledger = source / "ledger.jsonl"
        certificate = certify_distilled(
            statistics.certificate, config, made, ledger=ledger, seconds=2.5, created=CREATED
        )
        return save(folder, made, certificate, ledger)

    @staticmethod
    def forge(release: Path, edit: Callable[[dict[str, Any]], object], *, statement: bool = True) -> None:
        """Edit the certificate as a careful forger would: statement, card, digests and seal fit."""
        document = json.loads((release / "certificate.json").read_text())
        edit(document)
        certificate = Certificate.parse(json.dumps(document).encode())
        if statement:
            certificate = certificate.model_copy(update={"statement": certificate.regenerated_statement()})
        (release / "README.md").write_bytes(card.write(certificate).encode())
        digests = {name: sha256((release / name).read_bytes()) for name in certificate.files}
        certificate = certificate.model_copy(update={"files": digests}).resealed()
        (release / "certificate.json").write_bytes(certificate.to_bytes())


@pytest.fixture(scope="session")
def workshop() -> Workshop:
    return Workshop()


@pytest.fixture(scope="session")
def plan(workshop: Workshop) -> Plan:
    return workshop.plan()


@pytest.fixture
def statistics(tmp_path: Path, workshop: Workshop) -> Path:
    return workshop.measure(tmp_path / "statistics")


@pytest.fixture
def distilled(tmp_path: Path, statistics: Path, workshop: Workshop) -> Path:
    return workshop.distil(tmp_path / "distilled", statistics, per_class=3, seed=5)


@pytest.fixture
def release(tmp_path: Path, plan: Plan, workshop: Workshop) -> Path:
    return workshop.publish(tmp_path / "release", plan)
