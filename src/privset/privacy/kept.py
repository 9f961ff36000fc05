"""Noisy answers of a run that may be stopped and taken up again: on disk before the method sees them.

An answer leaves the curator only after it was kept durably. So a run that is taken up again gives the kept
answers once more, which tells nobody anything new, and draws noise only for questions that no one has ever seen
an answer to: in all, each question is answered once, and its one charge pays for it. A journal lists the answers
that were given, so that one that is lost or changed is noticed. docs/proofs/total.md has the argument, and what it
assumes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from privset.errors import BudgetError
from privset.observer import Observer
from privset.privacy.budget import PrivacyBudget
from privset.privacy.ledger import Ledger, sync_folder

_JOURNAL = "answers.jsonl"
_AMENDS = (
    "put back what was there, and delete nothing: another answer to the same question would not be paid for. If it is "
    "lost, choose another --out and count what this run charged in addition"
)


class KeptAnswers:
    """The answers of one run, numbered in the order of its questions, one file each, and the journal of them.

    An answer is given once the journal has it. One in place that the journal lacks was written by a process that was
    killed just then: no one has seen it, and it is taken into the journal. What that process had half written goes.

    Args:
        folder: Where; for one process at a time.

    Raises:
        BudgetError: Answers are missing, at the end too, or the journal of them is damaged or missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._asked = folder, 0
        for partial in folder.glob(".answer*.partial"):
            partial.unlink()
        self._digests = _read_journal(folder / _JOURNAL)
        found = sorted(path.name for path in folder.glob("answer-*.safetensors"))
        given = len(self._digests)
        if len(found) < given or found != [_name(number) for number in range(len(found))]:
            raise BudgetError(f"{folder}: kept answers are missing; {_AMENDS}")
        if len(found) > given + 1:
            raise BudgetError(f"{folder / _JOURNAL} has {given} of {len(found)} kept answers; {_AMENDS}")
        if len(found) > given:
            self._enter(_sha256((folder / found[-1]).read_bytes()))

    def __len__(self) -> int:
        return len(self._digests)

    def recall(self, question: Any) -> Tensor | None:
        """The answer kept for the question whose turn it is, or None if there is none yet.

        Raises:
            BudgetError: It was changed, or was given to another question.
        """
        if self._asked == len(self):
            return None
        path = self._folder / _name(self._asked)
        try:
            if _sha256(path.read_bytes()) != self._digests[self._asked]:
                raise ValueError("its digest is not that of the journal")
            with safetensors.safe_open(path, framework="pt") as file:
                asked, answer = (file.metadata() or {}).get("question"), file.get_tensor("answer")
        except (safetensors.SafetensorError, OSError, KeyError, ValueError) as error:
            raise BudgetError(f"{path}: the kept answer cannot be read, or was changed ({error}); {_AMENDS}") from error
        if asked != _spelled(question) or answer.dtype != torch.float32:
            raise BudgetError(f"{path}: was given to {asked}, and now {_spelled(question)} is asked in its place")
        self._asked += 1
        return answer

    def keep(self, question: Any, answer: Tensor) -> Tensor:
        """The answer, once it is durable as that to the question whose turn it is."""
        content = safetensors.torch.save(
            {"answer": answer.cpu().contiguous()}, metadata={"question": _spelled(question)}
        )
        path = self._folder / _name(self._asked)
        try:
            write_whole(path, content)
            self._enter(_sha256(content))
        except OSError as error:
            raise BudgetError(
                f"{path}: an answer cannot be kept ({error.strerror}), so no one gets it; mend that and run the same "
                "command again, which goes on from here"
            ) from error
        self._asked += 1
        return answer

    def _enter(self, digest: str) -> None:
        """Put the next answer into the journal, durably; it is replaced as a whole, so that no line is ever torn."""
        digests = [*self._digests, digest]
        lines = [json.dumps({"answered": number, "sha256": known}) + "\n" for number, known in enumerate(digests)]
        write_whole(self._folder / _JOURNAL, "".join(lines).encode())
        self._digests = digests


def take_up(
    budget: PrivacyBudget, ledger_path: Path, folder: Path, observer: Observer | None = None
) -> tuple[Ledger, KeptAnswers]:
    """Ledger and answers of a run, as far as it got; both empty for one that is new.

    They are opened together because only together they are sound: the charges on file pay for the answers on
    file and for those still to be given, not for a second answer to any question.

    Raises:
        BudgetError: There are answers that nothing on file paid for, or the ledger is for another budget.
    """
    kept, ledger = KeptAnswers(folder), Ledger.reopened(budget, ledger_path, observer)
    if len(kept) > sum(event.count for event in ledger.events):
        raise BudgetError(
            f"{folder} holds {len(kept)} answer(s), more than {ledger_path} was charged for; put the ledger back, or "
            "choose another --out and count the epsilon of that run in addition"
        )
    return ledger, kept


def write_whole(path: Path, content: bytes) -> None:
    """Write or replace a file for its owner's eyes: whole and durable when this returns, untouched if it does not."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def _read_journal(path: Path) -> list[str]:
    """The digests of the answers that were given, in order; none if there is no journal yet."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if [line["answered"] for line in lines] != list(range(len(lines))):
            raise ValueError("lines are missing")
        return [line["sha256"] for line in lines]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BudgetError(f"{path}: the journal of kept answers cannot be read ({error}); {_AMENDS}") from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _name(number: int) -> str:
    return f"answer-{number:06}.safetensors"


def _spelled(question: Any) -> str:
    return json.dumps({"kind": type(question).__name__} | dataclasses.asdict(question), sort_keys=True)
