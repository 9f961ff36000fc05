"""Where a run of gradient questions stands, so that it can be stopped and taken up again.

Its answers are too many and too large to be kept. What is kept, every few seconds, is the method's own state (made of
noisy answers and public values), how many answers it is made of, and the position of the noise stream. A run that is
taken up again asks the questions after that point once more, and each is answered with the sample and the noise that
it was answered with before: the same answer, not a second one. docs/proofs/gradient.md has the argument, and what
becomes of it where arithmetic does not repeat itself, as on a graphics card.

The position holds the key of the noise. It is the data holder's secret, like the records: a file for its owner's eyes,
which is never part of a release, and is overwritten before it is deleted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any, ClassVar

from privset.errors import BudgetError, ConfigError
from privset.observer import Observer
from privset.privacy.accounting import GaussianEvent
from privset.privacy.budget import PrivacyBudget
from privset.privacy.kept import write_whole
from privset.privacy.ledger import Ledger, sync_folder
from privset.privacy.noise import NoiseSource

SECRET = "noise.secret"
_STATES = "standing-*.safetensors"
_AMENDS = (
    "put back what was there, all of it: questions that were answered before would get other answers, and those would "
    "not be paid for. If it is lost, choose another --out and count what this run charged in addition"
)


class Checkpoint:
    """Keeps nothing, so that a run that was stopped begins anew; the pipeline has some that keep files."""

    seconds = 10.0
    """A state is kept this often; more rarely where keeping one takes long, and with 0 after every step."""
    shown_once_kept: ClassVar[bool] = False
    """Whether a state may be shown to anyone only once it is kept."""
    amends: ClassVar[str] = (
        "delete state.safetensors in the folder of that run to begin this part anew, which costs nothing"
    )
    """What to do if the state is of no use."""
    otherwise: ClassVar[str] = "with other settings this part begins anew, which costs nothing"
    """What it means to go on with other settings."""

    def load(self) -> bytes | None:
        """The state that was kept last."""
        return None

    def save(self, state: bytes) -> None:
        """Keep this state in place of the last one."""


class Standing(Checkpoint):
    """The last point that a run can go on from: state, number of answers, noise; all of it or none.

    The secret file is what counts: it names the state that belongs to it, by its digest. A state without it was written
    by a process that was killed just then, and goes.

    Args:
        folder: Where; for one process at a time.
        noise: The run's alone (`NoiseSource.apart`), which is moved to where it stood.
        run: What the run is, in words that no other run has.

    Raises:
        BudgetError: What is in the folder was damaged, is incomplete, or belongs to another run.
    """

    shown_once_kept = True  # what was shown and not kept might be computed a little differently the next time
    amends = _AMENDS
    otherwise = "other settings are another run: choose another --out, and count what this one charged in addition"

    def __init__(self, folder: Path, noise: NoiseSource, run: str) -> None:
        self._folder, self._noise, self._run = folder, noise, _sha256(run.encode())
        self._used: dict[GaussianEvent, int] = {}
        self._digest: str | None = None
        _clear(folder)
        for partial in folder.glob(f".{_STATES}.*.partial"):  # a state that a kill cut short
            partial.unlink()
        self.is_new = not (folder / SECRET).exists()
        if self.is_new:
            return
        try:
            self._take_up(json.loads((folder / SECRET).read_bytes()))
        except (OSError, KeyError, TypeError, ValueError, ConfigError, BudgetError) as error:
            raise BudgetError(f"{folder / SECRET}: cannot be taken up ({error}); {_AMENDS}") from error
        for path in folder.glob(_STATES):
            if self._digest is None or path.name != _name(self._digest):
                path.unlink()

    def begin(self) -> None:
        """Make where the noise starts durable, before anything is charged."""
        self._write()
        self.is_new = False

    @property
    def answered(self) -> int:
        """How many answers are used up."""
        return sum(self._used.values())

    def debts(self) -> dict[GaussianEvent, int]:
        """Minus the answers that are used up, by question: what is taken from the charges on file beforehand."""
        return {single: -count for single, count in self._used.items()}

    def use(self, single: GaussianEvent, count: int) -> None:
        """Count answers that are about to be given."""
        self._used[single] = self._used.get(single, 0) + count

    def load(self) -> bytes | None:
        """The state that was kept last, if it is what it was.

        Raises:
            BudgetError: It was changed, or is missing.
        """
        if self._digest is None:
            return None
        path = self._folder / _name(self._digest)
        try:
            state = path.read_bytes()
        except OSError as error:
            raise BudgetError(f"{path}: where the run stood cannot be read ({error.strerror}); {_AMENDS}") from error
        if _sha256(state) != self._digest:
            raise BudgetError(f"{path}: where the run stood was changed; {_AMENDS}")
        return state

    def save(self, state: bytes) -> None:
        """Keep the state of a method that has seen all answers given so far, and the noise after them."""
        last, self._digest = self._digest, _sha256(state)
        try:
            write_whole(self._folder / _name(self._digest), state)
            self._write()
            if last not in (None, self._digest):
                (self._folder / _name(last)).unlink(missing_ok=True)
        except OSError as error:
            raise BudgetError(
                f"{self._folder}: where the run stands cannot be kept ({error.strerror}); mend that and run the same "
                "command again, which goes on from the last point that could"
            ) from error

    def _write(self) -> None:
        """Replace the secret as a whole, and overwrite the last one: it has the key too.

        Until it is overwritten the last one has a second name, by which it is found and erased after a kill.
        """
        path, content = self._folder / SECRET, self._content()
        content |= {"check": _check(content)}
        last = self._folder / f".{SECRET}.{secrets.token_hex(4)}.partial"
        with contextlib.ExitStack() as stack:
            old = stack.enter_context(open(path, "r+b")) if path.exists() else None
            if old is not None:
                with contextlib.suppress(OSError):  # a file system without second names
                    os.link(path, last)
                    if not last.samefile(path):  # or one that cannot tell that it is the same file
                        last.unlink()
            write_whole(path, json.dumps(content).encode())
            if old is not None:
                _overwrite(old.fileno())
                last.unlink(missing_ok=True)  # not if that failed: it has to be found the next time

    def _content(self) -> dict[str, Any]:
        used = [dataclasses.asdict(event) | {"count": count} for event, count in self._used.items()]
        return {"run": self._run, "answered": used, "state": self._digest, "noise": self._noise.state()}

    def _take_up(self, content: dict[str, Any]) -> None:
        check = content.pop("check")
        if _check(content) != check:
            raise ValueError("it was changed")
        if content["run"] != self._run:
            raise ValueError("it belongs to another run")
        for line in content["answered"]:
            event = GaussianEvent(**line)
            self._used[dataclasses.replace(event, count=1)] = event.count
        self._digest = content["state"]
        self._noise.restore(content["noise"])


def go_on(
    budget: PrivacyBudget,
    ledger_path: Path,
    folder: Path,
    noise: NoiseSource,
    run: str,
    observer: Observer | None = None,
) -> tuple[Ledger, Standing, NoiseSource]:
    """Ledger, standing and noise of a run, as far as it got; of a new one, where its noise starts is on file by then.

    The noise is the run's own, of the kind of the one that is given, which no one else can have drawn from.

    They are opened together because only together they are sound: the charges on file pay for one answer to each
    question, and the noise on file is what makes the next answer to it the same one.

    Raises:
        BudgetError: There are charges and no place to go on from, or answers that nothing on file paid for.
    """
    noise = noise.apart()
    standing = Standing(folder, noise, run)
    if standing.is_new and ledger_path.exists():
        raise BudgetError(
            f"{ledger_path} holds charges, and {folder / SECRET}, where the noise of that run stood, is missing; "
            f"{_AMENDS}"
        )
    ledger = Ledger.reopened(budget, ledger_path, observer)
    if standing.answered > sum(event.count for event in ledger.events):
        raise BudgetError(
            f"{folder} has used {standing.answered:,} answer(s), more than {ledger_path} was charged for; put the "
            "ledger back, or choose another --out and count the epsilon of that run in addition"
        )
    if standing.is_new:
        try:
            standing.begin()
        except OSError as error:
            raise BudgetError(f"{folder / SECRET} cannot be written ({error.strerror}); nothing was charged") from error
    return ledger, standing, noise


def is_secret(path: Path) -> bool:
    """Whether this is where noise stood, or what a process that was stopped left of an earlier place."""
    return path.name == SECRET or path.match(f".{SECRET}.*.partial")


def _clear(folder: Path) -> None:
    """Erase what processes that were stopped left of secrets; the one that counts stays, also if it has two names."""
    secret = folder / SECRET
    content = secret.read_bytes() if secret.exists() else None
    for partial in folder.glob(f".{SECRET}.*.partial"):
        if content is not None and partial.samefile(secret):
            partial.unlink()
        else:
            erase(partial)
    if content is not None and secret.read_bytes() != content:  # a file system on which samefile could not tell
        write_whole(secret, content)


def erase(path: Path) -> None:
    """Overwrite a secret and delete it; a file system or a disk that keeps old blocks may still have it somewhere."""
    with contextlib.suppress(FileNotFoundError):
        with open(path, "r+b") as file:
            _overwrite(file.fileno())
        path.unlink()
        sync_folder(path.parent)


def _overwrite(handle: int) -> None:
    os.pwrite(handle, bytes(os.fstat(handle).st_size), 0)
    os.fsync(handle)


def _check(content: dict[str, Any]) -> str:
    return _sha256(json.dumps(content, sort_keys=True).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _name(digest: str) -> str:
    return _STATES.replace("*", digest[:16])
