"""What has been asked so far, on disk before it is answered.

A ledger is a text file of JSON lines: the budget first, then one line for every charge. A charge is
appended and fsynced before any noise is drawn, so a crash can only count too much.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

from privset.errors import BudgetError, ReleaseError
from privset.observer import Observer
from privset.privacy.accounting import GaussianEvent, merge, spend
from privset.privacy.budget import RELATION, PrivacyBudget


class BudgetExceeded(BudgetError):  # noqa: N818 - what happened, as the design names it
    """A question that would pass the budget: it was neither charged nor answered."""


class Ledger:
    """The charges against one budget, in memory and, given a path, on disk.

    The file is created by the first charge, exclusively: two runs can never share one. Only a run that kept its
    answers may open it again, to go on with itself: see `privset.privacy.kept`.

    >>> ledger = Ledger(PrivacyBudget(epsilon=1.0))
    >>> ledger.charge(GaussianEvent(question="total", sampling_rate=1.0, noise_multiplier=1.0))
    Traceback (most recent call last):
        ...
    privset.privacy.ledger.BudgetExceeded: ... would bring the cost to epsilon 4.38, past the budget of 1...
    """

    def __init__(self, budget: PrivacyBudget, path: Path | None = None, observer: Observer | None = None) -> None:
        self.budget = budget
        self.path = path
        self._observer = observer or Observer()  # told what is spent: a function of the charges, not of a record
        self._events: tuple[GaussianEvent, ...] = ()
        self._carried: dict[GaussianEvent, int] = {}
        self._damaged = False

    @classmethod
    def reopened(cls, budget: PrivacyBudget, path: Path, observer: Observer | None = None) -> Ledger:
        """The ledger of a run that was stopped, for this same run to go on; a new one if it had charged nothing.

        What is on file was charged and stays charged. The run asks the same questions again from the first on, so
        each charge it repeats is taken from those on file while they last, and only the rest is written. That is
        sound only if no question gets a second answer: a `Curator` takes such a ledger with kept answers only.

        A last line without its end was cut off while it was written; its charge never returned, so nothing was
        answered on it, and it is dropped.
        """
        ledger = cls(budget, path, observer)
        if not path.exists() or not _mended(path):
            return ledger
        found, ledger._events = read(path)
        if found != budget:
            raise BudgetError(f"{path} was kept for another budget: {found}, not {budget}")
        ledger._carried = {dataclasses.replace(event, count=1): event.count for event in ledger._events}
        ledger._observer.spent(spend(ledger._events, budget.delta).by(budget.accountant), budget.epsilon)
        return ledger

    @property
    def is_reopened(self) -> bool:
        """Whether charges of an earlier process are in it."""
        return bool(self._carried)

    @property
    def events(self) -> tuple[GaussianEvent, ...]:
        """Every charge so far, like ones added up."""
        return self._events

    def charge(self, *events: GaussianEvent) -> None:
        """Record the events durably, each in a line of its own, or raise `BudgetExceeded` and record none of them.

        Where they cannot be written, what was written of them is taken back; if that fails too, no charge is taken any
        more. A crash in between may leave some of them on file: too much is counted then, never too little.
        """
        if self._damaged:
            raise BudgetError(
                f"{self.path}: an earlier charge was written in part, and could not be taken back; nothing is answered "
                "any more. Make room on the disk and begin another run; what is on file stays charged."
            )
        carried, due = dict(self._carried), []
        for event in events:
            single = dataclasses.replace(event, count=1)
            paid = min(carried.get(single, 0), event.count)
            if paid:
                carried[single] -= paid
            if paid < event.count:
                due.append(dataclasses.replace(event, count=event.count - paid))
        if not due:
            self._carried = carried
            return
        after = merge([*self._events, *due])
        cost = spend(after, self.budget.delta).by(self.budget.accountant)
        if cost > self.budget.epsilon:
            asked = " and ".join(
                f"{event.count:,} more {event.question!r} answer(s) at noise multiplier {event.noise_multiplier:.4g}"
                for event in due
            )
            raise BudgetExceeded(
                f"{asked} would bring the cost to epsilon {cost:.3g}, past the budget of {self.budget.epsilon:g}; "
                "nothing was answered"
            )
        if self.path is not None:
            self._append(self.path, due)
        self._events, self._carried = after, carried
        self._observer.spent(cost, self.budget.epsilon)

    def _append(self, path: Path, events: Sequence[GaussianEvent]) -> None:
        time = {"time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds")}
        lines = "".join(json.dumps(event.to_json() | time) + "\n" for event in events)
        first, before = not self._events, None
        try:
            size = 0 if first else path.stat().st_size
            with open(path, "x" if first else "a", encoding="utf-8") as file:
                before = size  # from here on the file is ours
                if first:
                    file.write(json.dumps(_header(self.budget)) + "\n")
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
        except FileExistsError:
            raise unfinished(path) from None
        except OSError as error:
            self._damaged = before is not None and not _taken_back(path, before)
            raise BudgetError(
                f"{path}: the charge cannot be written ({error.strerror}); nothing was answered"
            ) from error
        if first:
            sync_folder(path.parent)


def _taken_back(path: Path, size: int) -> bool:
    """Whether a file that could not be written to could be cut to the size it had, or removed if it was not there."""
    try:
        if size:
            with open(path, "r+b") as file:
                file.truncate(size)
                os.fsync(file.fileno())
        else:
            path.unlink(missing_ok=True)
            sync_folder(path.parent)
    except OSError:
        return False
    return True


def _header(budget: PrivacyBudget) -> dict[str, object]:
    epsilon = budget.epsilon if math.isfinite(budget.epsilon) else "inf"
    return {
        "ledger": 1,
        "epsilon": epsilon,
        "delta": budget.delta,
        "accountant": budget.accountant,
        "relation": RELATION,
    }


def sync_folder(folder: Path) -> None:
    """Make the new file's name durable too, not only its bytes."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _mended(path: Path) -> bool:
    """Drop what a crash left of a last line; False, and no file, if no charge is left."""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole.count(b"\n") < 2:  # the header alone: nothing was ever charged
        path.unlink()
        sync_folder(path.parent)
        return False
    if whole != content:
        with open(path, "r+b") as file:
            file.truncate(len(whole))
            os.fsync(file.fileno())
    return True


def read(path: Path) -> tuple[PrivacyBudget, tuple[GaussianEvent, ...]]:
    """The budget and the charges of a ledger file; a damaged one is a `ReleaseError` that names the line."""
    number = 0
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        header = json.loads(lines[0])
        if header["ledger"] != 1 or header["relation"] != RELATION:
            raise ValueError(f"not a version 1 ledger for the relation {RELATION}")
        budget = PrivacyBudget(epsilon=float(header["epsilon"]), delta=header["delta"], accountant=header["accountant"])
        events = []
        for number, line in enumerate(lines[1:], start=1):  # noqa: B007 - the error below names the line
            charge = json.loads(line)
            charge.pop("time")
            events.append(GaussianEvent(**charge))
    except OSError as error:
        raise ReleaseError(f"{path}: the ledger cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, IndexError, BudgetError) as error:
        raise ReleaseError(f"{path}: line {number + 1} of the ledger is damaged ({error})") from error
    return budget, merge(events)


def unfinished(path: Path) -> BudgetError:
    """The error for a ledger that an earlier run left behind: what it charged, and what may be done."""
    try:
        budget, events = read(path)
        charges = f"charges of epsilon {spend(events, budget.delta).by(budget.accountant):.4g}"
    except ReleaseError:  # the crash tore its last line
        charges = "charges (its last line is torn)"
    preview = f"{path.name.removesuffix('.ledger.jsonl')}.preview.png"
    return BudgetError(
        f"{path} holds {charges} by a run that did not finish. If nothing that run computed has been seen by anyone, "
        f"delete the file and run again. A preview picture ({preview}) and curves in TensorBoard, if it left any, are "
        "such things: if anyone looked at them, or at anything else of it, keep the file, count its epsilon in "
        "addition, and choose another --out."
    )
