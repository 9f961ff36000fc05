import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from privset import methods
from privset.errors import ReleaseError
from privset.facts import PublicFacts
from privset.methods.method import Execution, SetMethod, Synthesis
from privset.methods.plan import Plan
from privset.methods.settings import SetConfig
from privset.observer import Observer
from privset.privacy.accounting import GaussianEvent
from privset.privacy.budget import PrivacyBudget
from privset.privacy.calibration import calibrate
from privset.privacy.curator import Curator
from privset.release import load, replanning, verify


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwiceConfig(SetConfig):
    """Settings of every kind that JSON has no word for."""

    widths: tuple[int, ...] = (1, 2)
    limit: float = math.inf
    rate: float | None = None


class Twice(SetMethod[TwiceConfig]):
    """Asks two kinds of question, as a method with a measured prior would."""

    name = "twice"
    summary = reference = "for tests"
    config_type = TwiceConfig

    @classmethod
    def preset(cls, name: str, *, per_class: int, epsilon: float) -> TwiceConfig:
        return TwiceConfig(per_class=per_class)

    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> Plan:
        def events(noise: float) -> tuple[GaussianEvent, ...]:
            total = GaussianEvent(question="total", sampling_rate=1.0, noise_multiplier=2 * noise)
            gradient = GaussianEvent(question="gradient", sampling_rate=0.1, noise_multiplier=noise, count=3)
            return total, gradient

        noise = calibrate(events, budget)
        return Plan.make(self, facts, budget, noise, events(noise))

    def _synthesise(self, curator: Curator, plan: Plan, execution: Execution, observer: Observer) -> Synthesis:
        raise NotImplementedError


@pytest.fixture
def release(tmp_path: Path, workshop: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(methods.METHODS, "twice", Twice)
    config = TwiceConfig(per_class=4, widths=(3, 4, 5))
    plan = Twice(config).plan(workshop.facts, PrivacyBudget(epsilon=0.5, accountant="rdp"))
    ledger = tmp_path / "ledger"
    workshop.ledger(ledger, dataclasses.replace(plan, events=(plan.events[1],)))
    # The full-batch question is asked once, so the workshop's splitting of charges does not apply to it.
    lines = ledger.read_text().splitlines(keepends=True)
    total = lines[1].replace('"gradient"', '"total"').replace('"sampling_rate": 0.1', '"sampling_rate": 1.0')
    noise, double = (repr(event.noise_multiplier) for event in (plan.events[1], plan.events[0]))
    ledger.write_text("".join([lines[0], total.replace(noise, double), *lines[1:]]))
    made = workshop.set()
    from privset.release import save

    return save(tmp_path / "release", made, workshop.certify(plan, made, ledger), ledger)


def test_settings_of_every_kind_come_back(release: Path) -> None:
    certificate = load(release).certificate

    assert certificate.configuration == {
        "per_class": 4,
        "seed": 0,
        "widths": [3, 4, 5],
        "limit": "inf",
        "rate": None,
    }
    assert verify(release).ok, verify(release).failures


def test_one_of_two_events_left_out_is_noticed(release: Path) -> None:
    certificate = load(release).certificate
    replanning.check(certificate)

    for kept in (certificate.events[:1], certificate.events[1:], certificate.events[::-1]):
        with pytest.raises(ReleaseError, match="twice with these settings asks 1 x total"):
            replanning.check(certificate.model_copy(update={"events": kept}))


def test_noise_may_differ_by_the_precision_of_its_calibration_only(release: Path) -> None:
    certificate = load(release).certificate

    def with_noise(factor: float) -> Any:
        events = tuple(
            event.model_copy(update={"noise_multiplier": event.noise_multiplier * factor})
            for event in certificate.events
        )
        return certificate.model_copy(update={"events": events})

    replanning.check(with_noise(1 + 1e-6))
    with pytest.raises(ReleaseError, match="asks"):
        replanning.check(with_noise(1 + 1e-4))


def test_settings_with_new_names_or_forms_are_refused(release: Path) -> None:
    certificate = load(release).certificate
    for change, sentence in (
        ({"colour": "red"}, "unknown settings: colour"),
        ({"widths": "wide"}, "impossible settings: widths"),
        ({"per_class": 0}, "impossible settings: .*per-class must be at least 1"),
        ({"per_class": "4"}, "cannot have been used: per_class"),
    ):
        settings = certificate.configuration | change
        with pytest.raises(ReleaseError, match=sentence):
            replanning.check(certificate.model_copy(update={"configuration": settings}))


def test_a_setting_that_came_later_is_what_was_done_before_it(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = load(release).certificate
    older = {name: value for name, value in certificate.configuration.items() if name != "rate"}
    older = certificate.model_copy(update={"configuration": older})
    assert replanning.method_of(older).config.rate is None  # as by default
    monkeypatch.setattr(TwiceConfig, "earlier", {"rate": 0.5, "limit": 1.0})
    assert replanning.method_of(older).config.rate == 0.5
    assert replanning.method_of(older).config.limit == math.inf  # which is recorded
