import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from privset.errors import ReleaseError
from privset.methods.plan import Plan
from privset.release import check_writable, folder, load, save, verify


def test_round_trip(release: Path, workshop: Any) -> None:
    back = load(release)

    assert back.path == release
    assert back.set.digest() == workshop.set().digest()
    assert back.set.facts == workshop.facts
    assert sorted(path.name for path in release.iterdir()) == [
        "README.md",
        "certificate.json",
        "ledger.jsonl",
        "preview.png",
        "set.safetensors",
    ]
    assert [path.name for path in release.parent.glob(".*")] == []


def test_missing_parents_are_made_when_saving_not_when_checking(tmp_path: Path, plan: Plan, workshop: Any) -> None:
    target = tmp_path / "a" / "b" / "set"
    check_writable(target)
    assert list(tmp_path.iterdir()) == []

    made = workshop.set()
    ledger = workshop.ledger(tmp_path / "ledger", plan)
    assert save(target, made, workshop.certify(plan, made, ledger), ledger) == target
    assert verify(target).ok


def test_nothing_is_ever_replaced(tmp_path: Path, release: Path, plan: Plan, workshop: Any) -> None:
    before = {path.name: path.read_bytes() for path in release.iterdir()}
    made = workshop.set()
    ledger = workshop.ledger(tmp_path / "ledger", plan)
    certificate = workshop.certify(plan, made, ledger)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to("nowhere")

    for name in ("release", "empty", "file", "dangling"):
        with pytest.raises(ReleaseError, match="exists already"):
            check_writable(tmp_path / name)
        with pytest.raises(ReleaseError, match="exists already"):
            save(tmp_path / name, made, certificate, ledger)
    assert {path.name: path.read_bytes() for path in release.iterdir()} == before
    assert not [path for path in tmp_path.iterdir() if "partial" in path.name]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(ReleaseError, match="choose a place where you may write"):
        check_writable(tmp_path / "locked" / "deep" / "set")


def test_impossible_places_are_refused_before_any_budget_is_spent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReleaseError, match="file is not a folder"):
        check_writable(tmp_path / "file" / "set")
    with pytest.raises(ReleaseError, match="cannot be written"):
        check_writable(tmp_path / ("n" * 250))
    with pytest.raises(ReleaseError, match="cannot be written"):
        check_writable(Path("/proc/set"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


class Killed(BaseException):
    """What no `except Exception` catches."""


@pytest.mark.parametrize("files_before", [0, 1, 3, 4])
def test_interrupted_writing_leaves_no_release(
    tmp_path: Path, plan: Plan, workshop: Any, monkeypatch: pytest.MonkeyPatch, files_before: int
) -> None:
    written: list[Path] = []

    def write(path: Path, content: bytes, durable: bool) -> None:
        if len(written) == files_before:
            raise Killed
        written.append(path)
        path.write_bytes(content)

    monkeypatch.setattr(folder, "_write", write)
    # A killed process does not tidy up either.
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    with pytest.raises(Killed):
        workshop.publish(tmp_path / "set", plan)

    assert not (tmp_path / "set").exists()
    (left,) = tmp_path.glob(".*")
    assert left.name.startswith(".set.partial-")
    monkeypatch.undo()
    assert verify(workshop.publish(tmp_path / "set", plan)).ok


def test_full_disk_is_a_sentence_and_leaves_nothing(
    tmp_path: Path, plan: Plan, workshop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes, durable: bool) -> None:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, "_write", full)
    with pytest.raises(ReleaseError, match="No space left on device"):
        workshop.publish(tmp_path / "set", plan)
    assert [path.name for path in tmp_path.iterdir()] == ["set.ledger"]


def test_finished_release_is_kept_if_its_name_is_taken_meanwhile(
    tmp_path: Path, plan: Plan, workshop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "check_writable", lambda at: (at.mkdir(), (at / "x").touch()))
    with pytest.raises(ReleaseError, match=r"complete in .*\.set\.partial-"):
        workshop.publish(tmp_path / "set", plan)

    (kept,) = tmp_path.glob(".*")
    assert verify(kept).ok
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["x"]


def test_set_and_ledger_must_be_those_of_the_certificate(tmp_path: Path, plan: Plan, workshop: Any) -> None:
    made = workshop.set()
    ledger = workshop.ledger(tmp_path / "ledger", plan)
    certificate = workshop.certify(plan, made, ledger)

    with pytest.raises(ReleaseError, match=r"made for something else: preview\.png, set\.safetensors differ"):
        save(tmp_path / "set", workshop.set(per_class=3), certificate, ledger)
    with pytest.raises(ReleaseError, match=r"ledger\.jsonl differ"):
        save(tmp_path / "set", made, certificate, None)
    with pytest.raises(ReleaseError, match="the ledger cannot be read"):
        save(tmp_path / "set", made, certificate, tmp_path / "nowhere")
    assert [path.name for path in tmp_path.iterdir()] == ["ledger"]
