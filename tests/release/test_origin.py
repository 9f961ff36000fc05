"""Sets of the same answers are paid for once, and only they: certificates that say so and do not fit are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import TINY, facts_for, records_for
from tests.release.test_generator import failed, publish

from privset.data import Dataset
from privset.errors import ReleaseError
from privset.methods import DpMerf
from privset.pipeline import measure
from privset.privacy import PrivacyBudget
from privset.release import distil, load, load_statistics, merge, sample, verify
from privset.release.joint import paid
from privset.report import guarantee
from privset.report.sources import read_subjects


@pytest.fixture
def release(tmp_path: Path, workshop: Any) -> Path:
    return publish(workshop, tmp_path / "release")


def other_ledger(folder: Path) -> None:
    """What another run of the same plan would have written: the same charges, at another time."""
    path = folder / "ledger.jsonl"
    path.write_text(path.read_text().replace("2026-01-02T03", "2026-01-02T04"))


def say_drawn(workshop: Any, folder: Path, source: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """Rewrite a set of answers of its own as one drawn from the generator of another, so that it verifies."""
    theirs = load(source).certificate.model_dump(mode="json")
    (folder / "generator.safetensors").unlink()

    def forge(document: dict[str, Any]) -> None:
        document["files"].pop("generator.safetensors")
        document["contents"].pop("generator")
        digest = theirs["contents"]["generator"]["digest"]
        document["drawn"] = {"certificate": theirs["seal"], "generator": digest}
        document["seeds"]["drawn"] = 0
        edit(document)

    workshop.forge(folder, forge)
    assert verify(folder).ok, verify(folder).failures
    return folder


def assert_refused(monkeypatch: pytest.MonkeyPatch, parts: list[Path], out: Path, words: str) -> None:
    """By merge, and by verify if someone joined them all the same."""
    with pytest.raises(ReleaseError, match=words):
        merge(parts, out=out)
    assert not out.exists()
    with monkeypatch.context() as patched:
        patched.setattr("privset.release.joint.paid", _believe)
        merge(parts, out=out)
        assert verify(out).ok
    assert failed(out) == {"joint"}
    (check,) = verify(out).failures
    assert "get" in check.detail


def _believe(parts: Any) -> list[Any]:
    return list({part.payment: part for part in parts}.values())


def reseed(document: dict[str, Any]) -> None:
    document["configuration"]["seed"] = document["seeds"]["public"] = 1


DRAWN: dict[str, tuple[Callable[[Path], None], Callable[[dict[str, Any]], object], str]] = {
    "no such generator": (lambda _: None, lambda d: d["drawn"].update(generator="0" * 64), "differ in generator"),
    "another ledger": (other_ledger, lambda _: None, "differ in ledger"),
    "another seed": (lambda _: None, reseed, "differ in seeds, settings"),
    "other settings": (lambda _: None, lambda d: d["configuration"].update(inner_epochs=3), "differ in settings"),
    "more limits": (lambda _: None, lambda d: d["not_accounted"].append("And more."), "differ in limits"),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_set_of_answers_of_its_own_is_not_taken_for_a_drawn_one(
    tmp_path: Path, workshop: Any, release: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    change, edit, words = DRAWN[name]
    forged = publish(workshop, tmp_path / "forged", seed=2)
    change(forged)
    say_drawn(workshop, forged, release, edit)
    assert_refused(monkeypatch, [release, forged], tmp_path / "out", words)
    with pytest.raises(ReleaseError, match=words):
        paid([load(forged).certificate, load(release).certificate])


def test_two_that_name_the_same_generator_must_fit_each_other_too(
    tmp_path: Path, workshop: Any, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = sample(release, per_class=3, out=tmp_path / "drawn").path
    forged = publish(workshop, tmp_path / "forged", seed=2)
    other_ledger(forged)
    say_drawn(workshop, forged, release, lambda _: None)
    assert_refused(monkeypatch, [drawn, forged], tmp_path / "out", "differ in ledger")


def test_a_forger_who_copies_all_that_is_compared_is_found_with_the_source(
    tmp_path: Path, workshop: Any, release: Path
) -> None:
    forged = say_drawn(workshop, publish(workshop, tmp_path / "forged", seed=2), release, lambda _: None)
    assert verify(merge([release, forged], out=tmp_path / "out").path).ok
    assert failed(forged, source=release) == {"source"}


DISTILLED: dict[str, tuple[dict[str, Any], Callable[[Path], None], str]] = {
    "another ledger": ({}, other_ledger, "differ in ledger"),
    "another seed": ({"seed": 3}, lambda _: None, "differ in seed"),
    "other settings": ({"width": 5}, lambda _: None, "differ in settings"),
}


@pytest.mark.parametrize("name", DISTILLED)
def test_a_set_of_other_statistics_is_not_taken_for_one_of_these(
    tmp_path: Path, workshop: Any, distilled: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    settings, change, words = DISTILLED[name]
    forged = workshop.distil(tmp_path / "forged", workshop.measure(tmp_path / "others", **settings), seed=5)
    change(forged)
    source = json.loads((distilled / "certificate.json").read_text())["source"]
    workshop.forge(forged, lambda document: document.update(source=source))
    assert verify(forged).ok, verify(forged).failures
    assert_refused(monkeypatch, [distilled, forged], tmp_path / "out", words)


def test_statistics_of_another_digest_are_others(
    tmp_path: Path, workshop: Any, statistics: Path, distilled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = workshop.distil(tmp_path / "forged", statistics, seed=6)
    workshop.forge(forged, lambda document: document["source"].update(digest="0" * 64))
    assert_refused(monkeypatch, [distilled, forged], tmp_path / "out", "differ in statistics")


def test_a_set_is_no_statistics_that_another_could_be_distilled_from(
    tmp_path: Path, workshop: Any, distilled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = workshop.measuring_plan()
    first = workshop.publish(tmp_path / "first", plan)
    forged = workshop.distil(tmp_path / "forged", workshop.measure(tmp_path / "others"), seed=5)
    for one in (first, distilled):  # one whose answers were paid for by itself, and one of statistics
        theirs = load(one).certificate
        source = {"certificate": theirs.seal, "digest": theirs.contents.digest}
        workshop.forge(forged, lambda document, source=source: document.update(source=source))
        assert verify(forged).ok, verify(forged).failures
        assert_refused(monkeypatch, [one, forged], tmp_path / f"{one.name}-out", "holds no statistics")


def test_statistics_and_all_that_was_made_of_them_are_paid_for_once(tmp_path: Path) -> None:
    facts = facts_for(40)
    data = Dataset(facts, records_for(facts), None)
    budget = PrivacyBudget(epsilon=5.0, accountant="rdp")
    source = measure(data, method=DpMerf(TINY["dp-merf"]), budget=budget, out=tmp_path / "statistics").path
    first = distil(source, out=tmp_path / "first").path
    second = distil(source, out=tmp_path / "second", per_class=3, seed=7, steps=2).path
    drawn = [
        sample(one, per_class=2, seed=seed, out=tmp_path / f"drawn-{one.name}-{seed}").path
        for one in (first, second)
        for seed in (0, 1)
    ]
    alone = load_statistics(source).certificate
    for number, parts in enumerate(([first, second], [first, drawn[0]], drawn, [*drawn, second, first])):
        joined = merge(parts, out=tmp_path / f"joined-{number}")
        assert joined.certificate.events == alone.events
        assert joined.certificate.guarantee.epsilon_by.rdp == pytest.approx(alone.guarantee.epsilon_by.rdp)
        assert verify(joined.path).ok, verify(joined.path).failures
    certificates = [load(one).certificate for one in (first, second, *drawn)]
    assert paid([alone, *certificates]) == [alone]
    assert paid([*certificates, alone]) == certificates[:1]


def test_what_cannot_share_a_payment_counts_twice_in_a_report(tmp_path: Path, workshop: Any, release: Path) -> None:
    drawn = sample(release, per_class=3, out=tmp_path / "drawn").path
    (words,) = guarantee.together(read_subjects([release, drawn]))
    assert "share one epsilon" in words
    forged = publish(workshop, tmp_path / "forged", seed=2)
    other_ledger(forged)
    say_drawn(workshop, forged, release, lambda _: None)
    (words,) = guarantee.together(read_subjects([release, forged]))
    assert "faces the sum" in words
