"""The whole way of the data, in one file: records -> curator -> method -> synthetic set -> release.

This is the only code that is handed records and hands them to a curator. Everything that can go wrong without
spending privacy is made to go wrong first: the output folder, the data and the plan are checked before the
first question is charged.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from privset import data as data_room
from privset.data.records import Dataset
from privset.errors import BudgetError
from privset.facts import PublicFacts
from privset.methods import Execution, Method, Plan
from privset.observer import Observer
from privset.privacy import Curator, Ledger, NoiseSource, PrivacyBudget, Tally, system_noise
from privset.privacy.accounting import merge
from privset.privacy.ledger import unfinished
from privset.release import Certificate, Release, SyntheticSet, check_writable, load, save


def plan(data: PublicFacts | str | Path, *, method: Method[Any], budget: PrivacyBudget) -> Plan:
    """What ``method`` would ask, at which noise and at what cost; looks at no image.

    >>> from privset.methods import Psg, PsgConfig
    >>> budget = PrivacyBudget(epsilon=10, accountant="rdp")
    >>> round(plan("mnist", method=Psg(PsgConfig.paper(per_class=10)), budget=budget).noise_multiplier, 3)
    0.966
    """
    return method.plan(data if isinstance(data, PublicFacts) else data_room.facts_of(data), budget)


def generate(
    data: Dataset | str | Path,
    *,
    method: Method[Any],
    budget: PrivacyBudget,
    out: str | Path,
    noise: NoiseSource | None = None,
    execution: Execution | None = None,
    observer: Observer | None = None,
    tally: Tally | None = None,
) -> Release:
    """Make a synthetic set from private records and publish it, with its certificate, in the folder ``out``.

    Questions are charged to ``OUT.ledger.jsonl`` beside the release before they are answered. A run that is
    killed leaves that file, and no release; a run that finishes moves it into the release.

    Args:
        data: A loaded data set, the name of one, or a path.
        method: The method, with its settings.
        budget: What the release may cost.
        out: Folder to write; it must not exist.
        noise: Where noise comes from; by default the operating system's entropy, which is the only private one.
        execution: Device and chunking.
        observer: Told about progress.
        tally: Receives what the data holder alone may see.

    Raises:
        PrivsetError: Whatever was wrong, found before any budget was spent wherever that is possible.
    """
    out, execution, observer = Path(out), execution or Execution(), observer or Observer()
    ledger_path = ledger_beside(out)
    check_free(out)
    dataset = data if isinstance(data, Dataset) else data_room.load(data, observer=observer)
    planned = plan(dataset.facts, method=method, budget=budget)

    started = time.perf_counter()
    noise = noise or system_noise()
    out.parent.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(budget, ledger_path)
    curator = Curator(
        dataset.train,
        dataset.facts,
        ledger,
        noise,
        device=execution.device,
        chunk=execution.chunk,
        tally=tally,
    )
    synthesis = method.run(curator, planned, execution=execution, observer=observer)
    if ledger.events != merge(planned.events):
        raise BudgetError(
            f"{method.name} asked other questions than it planned: {ledger.events} instead of {planned.events}. "
            f"Nothing is released; what was charged is in {ledger_path}. This is a bug: please report it."
        )
    made = SyntheticSet.from_synthesis(synthesis, dataset.facts)
    certificate = Certificate.from_plan(
        planned, made, noise.kind, ledger=ledger_path, seconds=time.perf_counter() - started
    )
    save(out, made, certificate, ledger_path)
    ledger_path.unlink()  # its copy in the release is durable by now
    return load(out)


def check_free(out: Path) -> None:
    """Refuse a folder that a release cannot be written to, or that an unfinished run has charged for."""
    check_writable(out)
    if ledger_beside(out).exists():
        raise unfinished(ledger_beside(out))


def ledger_beside(out: Path) -> Path:
    """Where a run that writes the release ``out`` keeps its ledger until it is done."""
    return out.with_name(out.name + ".ledger.jsonl")
