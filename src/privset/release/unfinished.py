"""What a run keeps beside its target until it is done, so that it can be stopped and taken up again.

``OUT.unfinished/`` holds what the run is (``run.json``), its noisy answers so far and the state of its
optimisation; charges are in ``OUT.ledger.jsonl``, as for every run. The folder is for the data holder alone: it
knows the records by their digest, which no noise protects, and that of a run of gradient questions has the key of its
noise. It is removed when the run is done, the key first, or, if that was cut short, when someone next asks for the
same release.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from privset.errors import InUseError, ReleaseError
from privset.methods import Checkpoint
from privset.privacy.kept import write_whole
from privset.privacy.ledger import sync_folder, unfinished
from privset.privacy.standing import SECRET, erase, is_secret
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.release.certificate import LEDGER_FILE
from privset.release.folder import check_writable, partials

_RUN, _LOCK, _STATE = "run.json", "lock", "state.safetensors"
_ELSEWHERE = "choose another --out"
PLACE = "place"
"""The name, in what a run is, of where its release goes: that of a run whose copy must not go on."""
_RECORDS = "records"
"""The name, in what a run is, of the digest of its records; one that only distils has none."""
_UNQUOTED = {
    _RECORDS: "other records",
    "questions": "other questions",
    "received": "other releases are named as received",
    PLACE: "one of the two is private and the other is not",
}
"""What a message does not quote: digests of private records are not for a log, and lists of questions are long. Only
private runs have a place."""


class Unfinished:
    """The work folder of the one process that writes ``out``; a context that removes it once all is done.

    Args:
        out: The release that is being made.
        run: What the run is, as JSON has it; one that is something else is refused.

    Attributes:
        taken_up: Once entered, whether the same run was stopped before and left its work here.

    Raises:
        InUseError: On entering: another process is at it.
        ReleaseError: On entering: another run left its work here, or nothing can be kept.
    """

    def __init__(self, out: Path, run: Mapping[str, Any]) -> None:
        self.out, self.folder, self.ledger = out, folder_beside(out), ledger_beside(out)
        self.checkpoint = _FileCheckpoint(self.folder / _STATE)
        self._run = json.loads(json.dumps(run, allow_nan=False))
        self._handle = -1
        self.taken_up = False

    @property
    def words(self) -> str:
        """What the run is, in one line that no other run has."""
        return json.dumps(self._run, sort_keys=True)

    def __enter__(self) -> Unfinished:
        try:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self.folder.chmod(0o700)  # it may have been there
            self._handle = _locked(self.folder)
        except OSError as error:
            raise ReleaseError(
                f"{self.folder} cannot hold work in progress ({error.strerror}); {_ELSEWHERE}"
            ) from error
        if self._handle < 0:
            raise InUseError(f"another process is writing {self.out}; wait until it is done, or {_ELSEWHERE}")
        try:
            check_writable(self.out)  # again: whoever held the lock may have written it
            self._claim()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            _remove_partials(self.out)
            _remove(self.folder)
            os.close(self._handle)
            return
        words = self._words() if isinstance(error, KeyboardInterrupt) else ""
        if self._leave() and words:
            raise KeyboardInterrupt(words)

    def _claim(self) -> None:
        path = self.folder / _RUN
        if not path.exists():
            if self.ledger.exists():
                raise unfinished(self.ledger)
            try:
                write_whole(path, (json.dumps(self._run, indent=2) + "\n").encode())
                sync_folder(self.folder.parent)
            except OSError as error:
                raise ReleaseError(f"{path} cannot be written ({error.strerror}); {_ELSEWHERE}") from error
            return
        try:
            found = json.loads(path.read_bytes())
            changes = _changes(found, self._run)
        except (OSError, ValueError, TypeError) as error:
            count = f" and count what this run charged, which is in {self.ledger}, in addition"
            more = count if self.ledger.exists() else ""
            raise ReleaseError(f"{path} cannot be read ({error}); restore it, or {_ELSEWHERE}{more}") from error
        was, now = found.get(PLACE), self._run.get(PLACE)
        if was != now and None not in (was, now):
            raise ReleaseError(
                f"{self.folder} was moved or copied: it is the work of a run that writes {was}, and that goes on there "
                f"alone, because two copies would answer the same questions twice. Move it back to "
                f"{folder_beside(Path(was))}, and {self.ledger} to {ledger_beside(Path(was))}; or, if the run is still "
                "there, delete these copies"
            )
        if changes:
            stay = f"; what it charged stays in {self.ledger}" if self.ledger.exists() else ""
            raise ReleaseError(
                f"{self.folder} belongs to a run that was stopped, and this is another: {'; '.join(changes)}. Repeat "
                f"the command of that run to go on with it, or choose another --out. To give it up, delete the folder"
                f"{stay}."
            )
        self.taken_up = True

    def _kept(self) -> list[Path]:
        """The files of what was done: answers, and states."""
        # Noise that nothing was charged for has not been used.
        return [path for path in self.folder.glob("*") if path.name not in (_RUN, _LOCK) and not is_secret(path)]

    def _words(self) -> str:
        """What there is to go on from: states are written now and then, and what came after the last one is lost."""
        kept = self._kept()
        if not kept:
            return (
                f"charges are kept in {self.ledger}, but no state had been written yet, and what was done is lost; the "
                "same command begins again, and what was charged is not charged twice"
            )
        last = time.strftime("%H:%M:%S", time.localtime(max(path.stat().st_mtime for path in kept)))
        secret = ", as secret as the records" if _RECORDS in self._run else ""
        return f"what was done until {last} is kept in {self.folder}{secret}; the same command goes on from there"

    def _leave(self) -> bool:
        """Let go of the folder; False, and no folder, if there is nothing in it to take up."""
        kept = self.ledger.exists() or bool(self._kept())
        if not kept:
            _remove(self.folder)
        os.close(self._handle)
        return kept


class _FileCheckpoint(Checkpoint):
    """The last state, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> bytes | None:
        try:
            return self.path.read_bytes() if self.path.exists() else None
        except OSError as error:
            raise ReleaseError(f"{self.path} cannot be read ({error.strerror}); mend that and run it again") from error

    def save(self, state: bytes) -> None:
        try:
            write_whole(self.path, state)
        except OSError as error:
            raise ReleaseError(
                f"{self.path} cannot be written ({error.strerror}); mend that and run the same command again, which "
                "goes on from the last state"
            ) from error


def check_free(out: Path, *, resumable: bool = False) -> None:
    """Refuse a folder that a release cannot be written to, or that a run that was stopped has a claim on.

    Args:
        out: The release to be.
        resumable: Whether the run may be the one that was stopped; it is looked at more closely when it begins.
    """
    out = Path(os.path.abspath(out))  # "." and "a/.." have no name, and nothing beside them
    if not out.name:
        check_writable(out)
    clear_finished(out)
    check_writable(out)
    if resumable and folder_beside(out).exists():
        return
    if folder_beside(out).exists():
        raise ReleaseError(
            f"{folder_beside(out)} belongs to a run that was stopped; repeat its command to go on with it, or choose "
            "another --out"
        )
    if ledger_beside(out).exists():
        raise unfinished(ledger_beside(out))


def ledger_beside(out: Path) -> Path:
    """Where a run that writes the release ``out`` keeps its ledger until it is done."""
    return out.with_name(out.name + ".ledger.jsonl")


def folder_beside(out: Path) -> Path:
    """Where such a run, if it can be taken up again, keeps everything else."""
    return out.with_name(out.name + ".unfinished")


def left_beside(out: Path) -> list[Path]:
    """What runs that write ``out`` have left beside it: none of it is anyone else's business."""
    return [path for path in (folder_beside(out), ledger_beside(out), *partials(out)) if os.path.lexists(path)]


def place_of(out: Path) -> str:
    """Where ``out`` is, however it was spelled; the work of a run that writes it lies beside it."""
    return str(out.parent.resolve() / out.name)


def _locked(folder: Path) -> int:
    """The handle of its lock, which is let go with it; -1 if another process has it."""
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_nlink:  # else its owner has just finished, and removed it
            return handle
    except OSError:
        pass
    os.close(handle)
    return -1


def _remove(folder: Path) -> None:
    """Delete what no one else may see first; that a network drive holds on to the rest is no one's loss."""
    for path in (folder / SECRET, *folder.glob(f".{SECRET}.*.partial")):
        with contextlib.suppress(OSError):
            erase(path)
    for path in (folder / _RUN, *folder.glob("answer*"), *folder.glob(".*.partial")):
        with contextlib.suppress(OSError):
            path.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def clear_finished(out: Path) -> None:
    """Remove the work of a run that was killed after it had written ``out``: all that is worth keeping is in there."""
    folder, ledger = folder_beside(out), ledger_beside(out)
    if not (out / CERTIFICATE_FILE).is_file():
        return
    if ledger.exists() and not _same_file(ledger, out / LEDGER_FILE):
        return  # a release that was put in the way of a run that was stopped
    if not folder.is_dir():
        _remove_partials(out)
        ledger.unlink(missing_ok=True)
        return
    try:
        handle = _locked(folder)
    except OSError as error:
        raise ReleaseError(f"{out} is done, but {folder} cannot be removed ({error.strerror}); delete it") from error
    if handle < 0:
        raise ReleaseError(f"{out} exists already, and the process that wrote it is still at work in {folder}")
    _remove_partials(out)
    ledger.unlink(missing_ok=True)
    _remove(folder)
    os.close(handle)


def _remove_partials(out: Path) -> None:
    """Delete what is half-written of ``out``, now that it is there; what is whole, and was paid for apart, stays."""
    for path in partials(out):
        if not (path / CERTIFICATE_FILE).is_file() or _same_file(path / LEDGER_FILE, out / LEDGER_FILE):
            shutil.rmtree(path, ignore_errors=True)


def _same_file(one: Path, other: Path) -> bool:
    return one.is_file() and other.is_file() and one.read_bytes() == other.read_bytes()


def _changes(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs, a few words each; settings by their own names."""
    words = []
    for name in {**then, **now}:
        a, b = then.get(name), now.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            words += _changes(a, b)
        elif a != b:
            words.append(_UNQUOTED.get(name, f"{name} was {a} and is {b}"))
    return words
