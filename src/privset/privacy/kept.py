"""Noisy answers of a run that may be stopped and taken up again: on disk before the method sees them.

An answer leaves the curator only after it was kept durably. So a run that is taken up again gives the kept
answers once more, which tells nobody anything new, and draws noise only for questions that no one has ever seen
an answer to: in all, each question is answered once, and its one charge pays for it. docs/proofs/total.md has
the argument, and what it assumes.
"""

from __future__ import annotations

import dataclasses
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
from privset.privacy.budget import PrivacyBudget
from privset.privacy.ledger import Ledger, sync_folder


class KeptAnswers:
    """The answers of one run, numbered in the order of its questions, one file each.

    Args:
        folder: Where; nothing in it that was there before is changed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        found = sorted(path.name for path in folder.glob("answer-*.safetensors"))
        if found != [_name(number) for number in range(len(found))]:
            raise BudgetError(
                f"{folder}: kept answers are missing, and to answer the same questions again would not be paid for; "
                "put them back, or choose another --out and count what this run charged in addition"
            )
        self._kept, self._asked = len(found), 0

    def __len__(self) -> int:
        return self._kept

    def recall(self, question: Any) -> Tensor | None:
        """The answer kept for the question whose turn it is, or None if there is none yet.

        Raises:
            BudgetError: It is damaged, or was given to another question.
        """
        if self._asked == self._kept:
            return None
        path = self._folder / _name(self._asked)
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                asked, answer = (file.metadata() or {}).get("question"), file.get_tensor("answer")
        except (safetensors.SafetensorError, OSError, KeyError, ValueError) as error:
            raise BudgetError(f"{path}: the kept answer cannot be read ({error})") from error
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
        except OSError as error:
            raise BudgetError(
                f"{path}: an answer cannot be kept ({error.strerror}), so no one gets it; mend that and run the same "
                "command again, which goes on from here"
            ) from error
        self._asked += 1
        self._kept += 1
        return answer


def take_up(budget: PrivacyBudget, ledger_path: Path, folder: Path) -> tuple[Ledger, KeptAnswers]:
    """Ledger and answers of a run, as far as it got; both empty for one that is new.

    They are opened together because only together they are sound: the charges on file pay for the answers on
    file and for those still to be given, not for a second answer to any question.

    Raises:
        BudgetError: There are answers that nothing on file paid for, or the ledger is for another budget.
    """
    kept, ledger = KeptAnswers(folder), Ledger.reopened(budget, ledger_path)
    if len(kept) > sum(event.count for event in ledger.events):
        raise BudgetError(
            f"{folder} holds {len(kept)} answer(s), more than {ledger_path} was charged for; put the ledger back, or "
            "choose another --out and count the epsilon of that run in addition"
        )
    return ledger, kept


def write_whole(path: Path, content: bytes) -> None:
    """Write or replace a file: whole and durable when this returns, untouched if it does not."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(partial, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def _name(number: int) -> str:
    return f"answer-{number:06}.safetensors"


def _spelled(question: Any) -> str:
    return json.dumps({"kind": type(question).__name__} | dataclasses.asdict(question), sort_keys=True)
