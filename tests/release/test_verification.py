import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, PngImagePlugin

from privset.errors import ReleaseError
from privset.methods.plan import Plan
from privset.privacy.accounting import GaussianEvent, spend
from privset.release import examination, verify
from privset.release.certificate import sha256
from privset.release.examination import Examination

FILES = ("certificate.json", "set.safetensors", "README.md", "preview.png", "ledger.jsonl")


def failed(release: Path) -> set[str]:
    return {check.name for check in verify(release).failures}


@pytest.mark.parametrize("accountant", ["rdp", "pld", "best"])
def test_untouched_release_passes(tmp_path: Path, workshop: Any, accountant: str) -> None:
    found = verify(workshop.publish(tmp_path / "set", workshop.plan(accountant=accountant)))

    assert found.ok, found.failures
    assert found.certificate is not None
    assert json.loads(json.dumps(found.to_json()))["ok"] is True
    assert len(found.checks) == 13


def test_releases_without_a_guarantee_pass_and_say_so(tmp_path: Path, plan: Plan, workshop: Any) -> None:
    infinite = verify(workshop.publish(tmp_path / "infinite", workshop.plan(math.inf)))
    seeded = verify(workshop.publish(tmp_path / "seeded", plan, noise="seeded"))
    floats = verify(workshop.publish(tmp_path / "floats", plan, workshop.set(keep_floats=True)))

    for found in (infinite, seeded, floats):
        assert found.ok, found.failures
    for found in (infinite, seeded):
        assert any("NOT PRIVATE" in check.detail for check in found.checks)


@pytest.mark.parametrize("left", ["set.safetensors", "ledger.jsonl", "../stage.json"])
def test_a_release_nested_in_one_without_certificate_is_not_taken_for_it(
    tmp_path: Path, plan: Plan, workshop: Any, left: str
) -> None:
    """As a stage that holds a release is; what it says of itself is gone, and another's words do not stand for it."""
    release = tmp_path / "stage" / "release"
    release.mkdir(parents=True)
    workshop.publish(release / "release", plan)
    assert verify(release).path == release / "release"  # a stage, if nothing says otherwise
    (release / left).touch()

    found = verify(release)

    assert found.path == release
    assert [check.detail for check in found.checks] == [
        f"{release} has no certificate.json, so it is not a complete release; get it again"
    ]


def test_a_folder_of_releases_is_said_to_be_one(tmp_path: Path, plan: Plan, workshop: Any) -> None:
    for number in range(1, 5):
        (tmp_path / f"stage-{number}").mkdir()
        workshop.publish(tmp_path / f"stage-{number}" / "release", plan)
    (found,) = verify(tmp_path).checks
    assert found.detail == (
        f"{tmp_path} has no certificate.json, so it is no release, but a folder of such (stage-1, stage-2, stage-3, "
        "...); give one of them"
    )


def test_what_lies_beside_the_note_of_a_stage_does_not_hide_its_release(
    tmp_path: Path, plan: Plan, workshop: Any
) -> None:
    (tmp_path / "stage").mkdir()
    workshop.publish(tmp_path / "stage" / "release", plan)
    for name in ("stage.json", "ledger.jsonl"):
        (tmp_path / "stage" / name).touch()
    assert verify(tmp_path / "stage").ok


def test_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="is not a folder"):
        verify(tmp_path / "nowhere")


@pytest.mark.parametrize("name", FILES)
def test_any_changed_byte_is_noticed(release: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Integrity alone must notice it; without this, forty calibrations would take most of the test's time.
    monkeypatch.setattr(Examination, "_check_epsilon", lambda _: "")
    monkeypatch.setattr(Examination, "_check_plan", lambda _: "")
    path = release / name
    content = path.read_bytes()
    assert verify(release).ok

    step = max(1, len(content) // 40)
    for position in [*range(0, len(content), step), len(content) - 1]:
        for bit in (1, 32):
            changed = bytearray(content)
            changed[position] ^= bit
            path.write_bytes(changed)
            assert not verify(release).ok, f"byte {position} of {name}"
    for changed in (content + b" ", content + b"\n", content[:-1], b""):
        path.write_bytes(changed)
        assert not verify(release).ok


@pytest.mark.parametrize("name", FILES)
def test_missing_files_are_noticed(release: Path, name: str) -> None:
    (release / name).unlink()

    assert failed(release)
    assert any(name in check.detail for check in verify(release).failures)


def test_extra_files_and_links_are_noticed(release: Path, tmp_path: Path) -> None:
    (release / "notes.txt").write_text("trust me")
    (release / "more").mkdir()
    assert failed(release) == {"files"}
    assert "more, notes.txt" in verify(release).failures[0].detail

    (release / "notes.txt").unlink()
    (release / "more").rmdir()
    (release / "preview.png").rename(tmp_path / "elsewhere.png")
    (release / "preview.png").symlink_to(tmp_path / "elsewhere.png")
    assert failed(release) == {"files"}


def test_the_holder_may_add_a_licence(release: Path) -> None:
    (release / "LICENSE").write_text("CC0")

    assert verify(release).ok


def test_what_a_file_manager_leaves_where_it_looks_is_no_sign_of_forgery(release: Path, tmp_path: Path) -> None:
    (release / ".DS_Store").write_bytes(b"where icons are")
    found = verify(release)
    assert found.ok
    assert any("not looked into: .DS_Store" in check.detail for check in found.checks)
    (release / "Thumbs.db").symlink_to(tmp_path)
    assert failed(release) == {"files"}


def test_certificate_cannot_vouch_for_foreign_files(release: Path, workshop: Any) -> None:
    (release / "run.sh").write_text("rm -rf /")
    workshop.forge(release, lambda document: document["files"].update({"run.sh": "0" * 64}))

    assert failed(release) == {"files"}


def test_second_spelling_of_the_same_certificate_is_noticed(release: Path) -> None:
    path = release / "certificate.json"
    text = path.read_text()
    # For most readers the last of two equal names wins; a person reads the first.
    path.write_text(text.replace('"version": 1,', '"statement": "Perfectly private.",\n  "version": 1,', 1))

    assert failed(release) == {"certificate"}


def set_epsilon(document: dict[str, Any], value: float) -> None:
    document["guarantee"]["epsilon_spent"] = value


def cheaper(document: dict[str, Any], **changes: object) -> None:
    """Change the events, and make all accounting fit them."""
    document["events"] = [event | changes for event in document["events"]]
    recount(document)


def recount(document: dict[str, Any]) -> None:
    guarantee = document["guarantee"]
    cost = spend([GaussianEvent(**event) for event in document["events"]], guarantee["delta"])
    guarantee["epsilon_by"] = {"rdp": cost.rdp, "pld": cost.pld}
    guarantee["epsilon_spent"] = cost.rdp


def drop_events(document: dict[str, Any]) -> None:
    document["events"] = []
    recount(document)


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], set[str]]] = {
    "smaller epsilon": (lambda d: set_epsilon(d, 0.1), {"epsilon"}),
    "smaller epsilon by pld": (lambda d: d["guarantee"]["epsilon_by"].update(pld=0.1), {"epsilon"}),
    "no epsilon by pld": (lambda d: d["guarantee"]["epsilon_by"].update(pld=None), {"epsilon"}),
    "smaller budget": (lambda d: d["guarantee"].update(epsilon_budgeted=0.1), {"epsilon", "ledger", "plan"}),
    "smaller delta": (lambda d: d["guarantee"].update(delta=1e-9), {"epsilon", "ledger", "plan"}),
    "other accountant": (lambda d: d["guarantee"].update(accountant="pld"), {"epsilon", "ledger", "plan"}),
    "other relation": (lambda d: d["guarantee"].update(relation="replace-one-record"), {"relation"}),
    "no events": (drop_events, {"ledger", "plan"}),
    "more noise": (lambda d: cheaper(d, noise_multiplier=9.0), {"ledger", "plan"}),
    "fewer answers": (lambda d: cheaper(d, count=1), {"ledger", "plan"}),
    "smaller sampling rate": (lambda d: cheaper(d, sampling_rate=0.001), {"ledger", "plan"}),
    "other question": (lambda d: cheaper(d, question="total"), {"ledger", "plan"}),
    "other settings": (lambda d: d["configuration"].update(runs=1), {"plan"}),
    "unknown setting": (lambda d: d["configuration"].update(magic=1), {"plan"}),
    "impossible setting": (lambda d: d["configuration"].update(runs=0), {"plan"}),
    "setting of another type": (lambda d: d["configuration"].update(runs="2"), {"plan"}),
    "other seed": (lambda d: d["seeds"].update(public=1), {"plan"}),
    "unknown method": (lambda d: d.update(method="magic"), {"plan"}),
    "more records": (lambda d: d["facts"].update(size=50_000), {"plan"}),
    "impossible facts": (lambda d: d["facts"].update(mean=[]), {"plan", "set", "preview"}),
    "seeded noise called private": (lambda d: d.update(noise_source="seeded"), {"noise"}),
    "no guarantee": (lambda d: d["guarantee"].update(private=False), {"noise"}),
    "a limit left out": (lambda d: d["not_accounted"].pop(3), {"statement"}),
    "other digest": (lambda d: d["contents"].update(digest="0" * 64), {"set"}),
    "other pixel form": (lambda d: d["contents"].update(pixel_form="unbounded floats"), {"set"}),
    "other size": (lambda d: d["contents"].update(images=500), {"set"}),
    "no ledger": (lambda d: d["files"].pop("ledger.jsonl"), {"files", "ledger"}),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_certificate_is_noticed_though_its_seal_fits(release: Path, workshop: Any, name: str) -> None:
    edit, expected = FORGERIES[name]
    workshop.forge(release, edit)

    assert failed(release) == expected


def test_edited_statement_is_noticed_though_its_seal_fits(release: Path, workshop: Any) -> None:
    workshop.forge(release, lambda document: document.update(statement="Perfectly private."), statement=False)

    assert failed(release) == {"statement"}


def test_edited_ledger_is_noticed_though_its_digest_fits(release: Path, workshop: Any) -> None:
    path = release / "ledger.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    workshop.forge(release, lambda _: None)

    assert failed(release) == {"ledger"}


def test_other_card_and_preview_are_noticed_though_their_digests_fit(release: Path, workshop: Any) -> None:
    workshop.forge(release, lambda _: None)
    assert verify(release).ok
    Image.new("L", (20, 20)).save(release / "preview.png")
    (release / "README.md").write_text("Perfectly private.")

    def fit_digests(document: dict[str, Any]) -> None:
        document["files"] = {name: sha256((release / name).read_bytes()) for name in document["files"]}

    document = json.loads((release / "certificate.json").read_text())
    fit_digests(document)
    from privset.release import Certificate

    certificate = Certificate.parse(json.dumps(document).encode()).resealed()
    (release / "certificate.json").write_bytes(certificate.to_bytes())
    assert failed(release) == {"card", "preview"}


def test_preview_may_be_compressed_by_another_pillow(release: Path, workshop: Any) -> None:
    with Image.open(release / "preview.png") as image:
        image.load()
        image.save(release / "preview.png", compress_level=1, pnginfo=PngImagePlugin.PngInfo())
    workshop.forge(release, lambda _: None)

    assert verify(release).ok


def test_releases_of_other_versions_are_compared_by_digest(
    release: Path, workshop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination.card, "write", lambda _: "other words")
    assert failed(release) == {"card"}
    monkeypatch.setattr(examination, "__version__", "99.0")
    assert verify(release).ok
    (release / "README.md").write_text("something else")
    assert failed(release) == {"card"}


def test_releases_of_versions_that_never_were_are_not_believed(release: Path, workshop: Any) -> None:
    def backdate(document: dict[str, Any]) -> None:
        document["software"]["privset"] = "0.0.9"

    workshop.forge(release, backdate)
    assert "card" in failed(release)


def test_events_are_compared_after_adding_them_up(tmp_path: Path, plan: Plan, workshop: Any) -> None:
    (event,) = plan.events
    split = dataclasses.replace(event, count=10), dataclasses.replace(event, count=20)
    plan = dataclasses.replace(plan, events=split)

    assert verify(workshop.publish(tmp_path / "set", plan)).ok
