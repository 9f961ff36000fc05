import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from privset.errors import BudgetError, InUseError, ReleaseError
from privset.privacy import GaussianEvent, Ledger, PrivacyBudget
from privset.release.unfinished import Unfinished, check_free, folder_beside, ledger_beside

RUN = {"command": "measure", "records": "abc", "settings": {"per_class": 10, "seed": 0}, "noise": "system"}


def fail(out: Path, error: BaseException, run: dict = RUN) -> None:
    """A run that keeps something and then fails."""
    with Unfinished(out, run) as work:
        work.checkpoint.save(b"state")
        raise error


def stopped(out: Path) -> None:
    with pytest.raises(RuntimeError):
        fail(out, RuntimeError())


def test_the_folder_is_private_and_gone_when_all_is_done(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "set"
    with Unfinished(out, RUN) as work:
        assert work.folder == tmp_path / "deep" / "set.unfinished"
        assert stat.S_IMODE(work.folder.stat().st_mode) == 0o700
        assert work.checkpoint.load() is None
        work.checkpoint.save(b"state")
    assert list(out.parent.iterdir()) == []


def test_the_folder_and_its_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder_beside(tmp_path / "set").mkdir(mode=0o755)
    with Unfinished(tmp_path / "set", RUN) as work:
        work.checkpoint.save(b"state")
        for path in (work.folder, *work.folder.iterdir()):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def release(out: Path, ledger: bytes = b"charges") -> None:
    out.mkdir()
    (out / "certificate.json").write_text("{}")
    (out / "ledger.jsonl").write_bytes(ledger)


@pytest.mark.parametrize("ledger", [None, b"charges"])
def test_work_left_beside_a_finished_release_is_removed(tmp_path: Path, ledger: bytes | None) -> None:
    out = tmp_path / "set"
    stopped(out)
    if ledger is not None:
        ledger_beside(out).write_bytes(ledger)
    release(out)
    with pytest.raises(ReleaseError, match="exists already"):
        check_free(out, resumable=True)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_charges_left_beside_a_finished_release_are_removed_if_they_are_in_it(tmp_path: Path) -> None:
    """As by a run that cannot be taken up, and was killed between its release and the end: it has no work folder."""
    out = tmp_path / "set"
    release(out)
    for charges, left in ((b"charges", ["set"]), (b"other charges", ["set", "set.ledger.jsonl"])):
        ledger_beside(out).write_bytes(charges)
        with pytest.raises(ReleaseError, match="exists already"):
            check_free(out)
        assert sorted(path.name for path in tmp_path.iterdir()) == left


@pytest.mark.parametrize("by", ["finishing", "asking again"])
def test_what_was_half_written_goes_once_the_release_is_there_and_what_is_whole_and_anothers_stays(
    tmp_path: Path, by: str
) -> None:
    out = tmp_path / "set"
    halves = [tmp_path / f".set.partial-{number:08x}" for number in range(3)]
    halves[0].mkdir()
    release(halves[1])
    release(halves[2], b"other charges")
    others = {".set.partial-mine", ".other.partial-00000000"}
    for name in others:
        (tmp_path / name).mkdir()
    if by == "finishing":
        with Unfinished(out, RUN):
            release(out)
    else:
        release(out)
        with pytest.raises(ReleaseError, match="exists already"):
            check_free(out)
    assert {path.name for path in tmp_path.iterdir()} == {"set", halves[2].name, *others}


def test_work_beside_a_release_that_is_not_its_own_stays(tmp_path: Path) -> None:
    out = tmp_path / "set"
    stopped(out)
    ledger_beside(out).write_bytes(b"other charges")
    release(out)
    with pytest.raises(ReleaseError, match="exists already"):
        check_free(out, resumable=True)
    assert (folder_beside(out) / "state.safetensors").exists()
    assert ledger_beside(out).exists()


def test_work_beside_a_release_that_is_still_being_finished_is_named(tmp_path: Path) -> None:
    out = tmp_path / "set"
    with Unfinished(out, RUN) as work:
        release(out)
        with pytest.raises(ReleaseError, match=r"still at work in .*set\.unfinished"):
            check_free(out, resumable=True)
        assert (work.folder / "run.json").exists()


def test_a_drive_that_does_not_let_go_does_not_undo_a_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object, **__: object) -> None:
        raise OSError(39, "Directory not empty")

    with Unfinished(tmp_path / "set", RUN) as work:
        (work.folder / "answer-000000.safetensors").write_bytes(b"answer")
        (work.folder / "answers.jsonl").write_bytes(b"journal")
        monkeypatch.setattr(os, "rmdir", busy)
    assert list(work.folder.iterdir()) == []


def test_a_file_in_the_way_is_a_sentence(tmp_path: Path) -> None:
    folder_beside(tmp_path / "set").write_text("mine")
    with pytest.raises(ReleaseError, match="cannot hold work in progress"), Unfinished(tmp_path / "set", RUN):
        pytest.fail("it was let in")


def test_a_folder_that_vanished_is_a_sentence(tmp_path: Path) -> None:
    def vanish() -> None:
        with Unfinished(tmp_path / "set", RUN) as work:
            shutil.rmtree(work.folder)
            work.checkpoint.save(b"state")

    with pytest.raises(ReleaseError, match="No such file"):
        vanish()
    with Unfinished(tmp_path / "set", RUN) as work:
        shutil.rmtree(work.folder)  # when all is done, no one misses it


def test_a_run_that_kept_nothing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), Unfinished(tmp_path / "set", RUN):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_the_same_run_goes_on(tmp_path: Path) -> None:
    stopped(tmp_path / "set")
    with Unfinished(tmp_path / "set", RUN) as work:
        assert work.checkpoint.load() == b"state"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings": {"per_class": 20, "seed": 0}}, "per_class was 10 and is 20"),
        ({"noise": "seeded with 7"}, "noise was system and is seeded with 7"),
        ({"command": "distil"}, "command was measure and is distil"),
        ({"records": "def"}, "other records"),
        ({"more": 1}, "more was None and is 1"),
    ],
)
def test_another_run_is_refused_with_what_differs(tmp_path: Path, change: dict, words: str) -> None:
    stopped(tmp_path / "set")
    with (
        pytest.raises(ReleaseError, match="Repeat the command of that run") as found,
        Unfinished(tmp_path / "set", RUN | change),
    ):
        pytest.fail("it was let in")
    assert words in str(found.value)
    assert "abc" not in str(found.value)  # a digest of private records is not for a log
    with Unfinished(tmp_path / "set", RUN):
        pass


def test_two_processes_cannot_be_at_it(tmp_path: Path) -> None:
    with Unfinished(tmp_path / "set", RUN) as work:
        with pytest.raises(InUseError, match="another process is writing"), Unfinished(tmp_path / "set", RUN):
            pytest.fail("it was let in")
        assert work.folder.is_dir()


def test_a_release_that_appeared_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    with pytest.raises(ReleaseError, match="exists already"), Unfinished(tmp_path / "set", RUN):
        pytest.fail("it was let in")
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_an_interrupt_says_how_to_go_on_if_there_is_anything_to_go_on_from(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt, match="the same command goes on from there"):
        fail(tmp_path / "set", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt) as found, Unfinished(tmp_path / "other", RUN):
        raise KeyboardInterrupt
    assert str(found.value) == ""


def interrupt(out: Path, begin: Callable[[Unfinished], None], run: dict = RUN) -> None:
    """A run that does something, and is then interrupted."""
    with Unfinished(out, run) as work:
        begin(work)
        raise KeyboardInterrupt


def test_an_interrupt_says_until_when_work_is_kept_and_not_that_all_of_it_is(tmp_path: Path) -> None:
    """States are written every few seconds: what came after the last one is done again."""

    def keep(work: Unfinished) -> None:
        for name, minutes in (("state.safetensors", 7), ("answer-000000.safetensors", 9)):
            (work.folder / name).write_bytes(b"kept")
            os.utime(work.folder / name, (0, time.mktime((2026, 1, 2, 3, minutes, 5, 0, 0, -1))))

    words = r"^what was done until 03:09:05 is kept in \S+set.unfinished, as secret as the records; the same command"
    with pytest.raises(KeyboardInterrupt, match=words):
        interrupt(tmp_path / "set", keep)
    distilling = {name: value for name, value in RUN.items() if name != "records"}  # of what is published already
    with pytest.raises(KeyboardInterrupt, match=r"other.unfinished; the same command goes on"):
        interrupt(tmp_path / "other", keep, distilling)


def test_an_interrupt_before_anything_was_kept_says_that_only_charges_are(tmp_path: Path) -> None:
    def pay(work: Unfinished) -> None:
        (work.folder / "noise.secret").write_bytes(b"key")
        charge(work.ledger)

    with pytest.raises(KeyboardInterrupt, match=r"ledger.jsonl, but no state .* lost; the same command begins again"):
        interrupt(tmp_path / "set", pay)
    assert (folder_beside(tmp_path / "set") / "noise.secret").exists()


def charge(path: Path) -> None:
    event = GaussianEvent(question="total", sampling_rate=1.0, noise_multiplier=9.0)
    Ledger(PrivacyBudget(epsilon=1.0, accountant="rdp"), path).charge(event)


def test_charges_without_the_answers_they_paid_for_stop_every_run(tmp_path: Path) -> None:
    out = tmp_path / "set"
    charge(ledger_beside(out))
    for resumable in (False, True):
        with pytest.raises(BudgetError, match="by a run that did not finish"):
            check_free(out, resumable=resumable)
    with pytest.raises(BudgetError, match="by a run that did not finish"), Unfinished(out, RUN):
        pytest.fail("it was let in")


def test_a_run_that_cannot_be_taken_up_again_keeps_off_one_that_can(tmp_path: Path) -> None:
    out = tmp_path / "set"
    stopped(out)
    check_free(out, resumable=True)
    with pytest.raises(ReleaseError, match="repeat its command"):
        check_free(out)


def test_a_damaged_note_is_a_sentence(tmp_path: Path) -> None:
    stopped(tmp_path / "set")
    (folder_beside(tmp_path / "set") / "run.json").write_text("[]")
    ledger_beside(tmp_path / "set").touch()
    with pytest.raises(ReleaseError, match=r"cannot be read.*in addition$"), Unfinished(tmp_path / "set", RUN):
        pytest.fail("it was let in")


def test_a_full_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with Unfinished(tmp_path / "set", RUN) as work:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ReleaseError, match="No space left on device"):
            work.checkpoint.save(b"state")
