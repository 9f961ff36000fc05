"""The epsilon that someone else claims: recorded, recomputed, and never taken for the guarantee."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import TINY

from privset.exports import card as export_card
from privset.methods import DpMerf
from privset.methods.plan import Plan
from privset.privacy.budget import PrivacyBudget
from privset.release import Certificate, NoisyStatistics, load, load_statistics, merge, verify
from privset.report import guarantee, record
from privset.report.sources import read_subjects

SENTENCE = "Claimed by Harder, Adamczewski and Park (AISTATS 2021) for these settings: epsilon 1.286, delta 1e-05"


@pytest.fixture(scope="module")
def claimed_plan() -> Plan:
    from tests.release.conftest import FACTS

    return DpMerf(TINY["dp-merf"]).plan(FACTS, PrivacyBudget(epsilon=0.5, accountant="rdp"))


@pytest.fixture
def claimed(tmp_path: Path, claimed_plan: Plan, workshop: Any) -> Path:
    made = workshop.set(per_class=TINY["dp-merf"].per_class)
    return workshop.publish(tmp_path / "claimed", claimed_plan, made)


def failed(folder: Path) -> set[str]:
    return {check.name for check in verify(folder).failures}


def test_the_certificate_names_both_and_each_is_recomputed(claimed: Path, claimed_plan: Plan) -> None:
    certificate = load(claimed).certificate

    assert certificate.claim is not None
    assert certificate.claim.claim() == claimed_plan.claim
    assert certificate.guarantee.epsilon_spent == claimed_plan.epsilon
    assert certificate.claim.epsilon > 2 * certificate.guarantee.epsilon_spent
    assert "1.286" not in certificate.statement
    checks = {check.name: check for check in verify(claimed).checks}
    assert all(check.ok for check in checks.values()), checks
    assert "not the guarantee" in checks["claim"].detail


def test_card_export_and_report_say_that_it_is_not_proven(claimed: Path) -> None:
    certificate = load(claimed).certificate
    (subject,) = read_subjects([claimed])
    card, export = (claimed / "README.md").read_text(), export_card.write(certificate, "npz")
    for text in (card, export, str(guarantee.stated(subject))):
        assert SENTENCE in text
        assert "another bound, and not the guarantee" in text
    for text in (card, export):
        assert text.index("## The guarantee") < text.index("## Another epsilon, which does not count")
        assert "Proven is epsilon 0.5 (add-or-remove-one-record)" in text


def test_releases_side_by_side_have_both_epsilons(claimed: Path, release: Path) -> None:
    both = str(record.compared(read_subjects([claimed, release])))
    assert "Epsilon claimed, not the guarantee" in both
    assert both.index(">0.5<") < both.index("1.286, replace one record: holds as well")
    assert "claimed" not in str(record.compared(read_subjects([release])))


FORGERIES = {
    "smaller epsilon": {"epsilon": 0.1},
    "larger epsilon": {"epsilon": 2.0},
    "other delta": {"delta": 1e-6},
    "other relation": {"relation": "add-or-remove-one-record"},
    "other authors": {"by": "everyone"},
    "other reason": {"unsound": "It is fine."},
}


@pytest.mark.parametrize("name", FORGERIES)
def test_an_altered_claim_is_noticed_though_seal_and_card_fit(claimed: Path, workshop: Any, name: str) -> None:
    workshop.forge(claimed, lambda document: document["claim"].update(FORGERIES[name]))

    assert failed(claimed) == {"claim"}


def test_a_claim_that_no_method_makes_is_noticed(release: Path, claimed: Path, workshop: Any) -> None:
    foreign = json.loads((claimed / "certificate.json").read_text())["claim"]
    workshop.forge(release, lambda document: document.update(claim=foreign))

    assert failed(release) == {"claim"}
    assert "comes with no claim" in verify(release).failures[0].detail


def test_a_claim_without_noise_is_noticed(tmp_path: Path, claimed: Path, workshop: Any) -> None:
    plan = DpMerf(TINY["dp-merf"]).plan(workshop.facts, PrivacyBudget(epsilon=float("inf")))
    made = workshop.set(per_class=TINY["dp-merf"].per_class)
    folder = workshop.publish(tmp_path / "clean", plan, made)
    assert verify(folder).ok
    foreign = json.loads((claimed / "certificate.json").read_text())["claim"]
    workshop.forge(folder, lambda document: document.update(claim=foreign))

    assert failed(folder) == {"claim"}


def test_certificates_from_before_there_were_claims_still_hold(claimed: Path, release: Path, workshop: Any) -> None:
    workshop.forge(claimed, lambda document: document.pop("claim"))
    text = (claimed / "certificate.json").read_bytes()

    assert b"claim" not in text
    assert Certificate.parse(text).to_bytes() == text
    assert verify(claimed).ok
    assert "claim" not in json.loads((release / "certificate.json").read_text())


def test_a_set_has_the_claim_of_its_statistics(tmp_path: Path, claimed_plan: Plan, workshop: Any) -> None:
    import torch

    shapes = DpMerf(TINY["dp-merf"]).shapes(workshop.facts)
    numbers = NoisyStatistics({name: torch.randn(shape) for name, shape in shapes.items()})
    source = workshop.publish(tmp_path / "statistics", claimed_plan, numbers)
    distilled = workshop.distil(tmp_path / "distilled", source, per_class=3)

    assert load(distilled).certificate.claim == load_statistics(source).certificate.claim
    assert verify(distilled, source=source).ok, verify(distilled, source=source).failures
    workshop.forge(distilled, lambda document: document.pop("claim"))
    assert [check.name for check in verify(distilled, source=source).failures] == ["source"]


def test_a_joint_release_has_no_claim_and_its_parts_keep_theirs(
    tmp_path: Path, claimed: Path, release: Path, workshop: Any
) -> None:
    folder = merge([claimed, release], out=tmp_path / "merged", disjoint=False).path
    assert load(folder).certificate.claim is None
    assert verify(folder).ok, verify(folder).failures
    part = folder / "parts" / "1" / "certificate.json"
    foreign = json.loads(part.read_text())["claim"]
    workshop.forge(folder, lambda document: document.update(claim=foreign))

    assert failed(folder) == {"joint"}
