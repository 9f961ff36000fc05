"""`privset study list`, `privset study run NAME` and `privset study show NAME`."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from _thread import interrupt_main
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from privset import studies
from privset.cli import console
from privset.cli.arguments import parse
from privset.errors import ConfigError
from privset.methods import Claim
from privset.release.statement import rounded_up
from privset.studies import STUDIES, Cell, Outcome, Results
from privset.studies.origin import command_of
from privset.studies.results import percent

Name = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="NAME")]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListArguments:
    """The studies."""

    json: bool = False
    """Print one JSON object."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowArguments:
    """What a study has measured, and what is missing."""

    name: Name
    """The study; see `privset study list`."""
    results: Path = Path("results")
    """Folder of the results."""
    json: bool = False
    """Print one JSON object."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunArguments:
    """Make and measure what a study has not on file; can be killed and started again at any time."""

    name: Name
    """The study; see `privset study list`."""
    cells: tuple[str, ...] = ()
    """Names of cells, or patterns such as 'mnist-*'; by default all."""
    results: Path = Path("results")
    """Folder of the results."""
    budget_minutes: float | None = None
    """Start nothing after this time, nor what is known to take longer than what is left of it. A set whose
    method is resumable is stopped where it is by then, and goes on in the next call. Training on a set that is made
    is not stopped; how long that takes is known from the second set of a cell on."""
    shard: str = "1/1"
    """i/n: do the i-th of n shares of the work; the others may run elsewhere, on the same folder."""
    jobs: int = 1
    """Processes to start, for several sets at once on one device."""
    device: str = "cpu"
    """cpu, cuda or cuda:N."""
    data_dir: Path | None = None
    """Folder to look for a named data set in; the variable PRIVSET_DATA says the same."""
    json: bool = False
    """Print one JSON object."""


def study(arguments: Sequence[str]) -> int:
    """List, run or show the studies that measured this project's accuracies."""
    actions = {"list": list_studies, "run": run, "show": show}
    if not arguments or arguments[0] in ("-h", "--help"):
        console.show("privset study list | run NAME | show NAME; each has --help and --json.")
        return 0 if arguments else 2
    if arguments[0] not in actions:
        raise ConfigError(f"study can {', '.join(actions)}, not {arguments[0]!r}")
    return actions[arguments[0]](arguments[1:])


def list_studies(arguments: Sequence[str]) -> int:
    """`privset study list`."""
    parsed = parse(ListArguments, arguments, "privset study list")
    if parsed.json:
        known = [
            {"name": one.name, "what": one.what, "cells": [cell.name for cell in one.cells]} for one in STUDIES.values()
        ]
        console.show_json({"studies": known})
    else:
        rows = [[one.name, str(len(one.cells)), one.what] for one in STUDIES.values()]
        console.show_table(["name", "cells", "what it measures"], rows)
    return 0


def run(arguments: Sequence[str]) -> int:
    """`privset study run NAME`; exits with 1 if anything failed."""
    parsed = parse(RunArguments, arguments, "privset study run")
    if os.environ.get(_WORKER):
        end_with_parent()
    chosen = studies.get(parsed.name)
    chosen.choose(parsed.cells)  # a name that is not one is refused before any process starts
    shard = parse_shard(parsed.shard)
    if parsed.jobs < 1:
        raise ConfigError(f"jobs must be at least 1, not {parsed.jobs}")
    if parsed.jobs > 1:
        outcome = run_workers(parsed, shard)
    else:
        with console.Bars() as bars:
            outcome = studies.run(
                chosen,
                cells=parsed.cells,
                results=parsed.results,
                device=parsed.device,
                budget_minutes=parsed.budget_minutes,
                shard=shard,
                observer=bars,
                data_dir=parsed.data_dir,
                command=command_of("privset study run", arguments),
            )
    if parsed.json:
        console.show_json(dataclasses.asdict(outcome))
    else:
        for job, error in outcome.failed.items():
            console.show(f"FAILED {job}: {error}")
        console.show(
            f"{len(outcome.finished)} set(s) finished, {len(outcome.skipped)} on file already, "
            f"{len(outcome.failed)} failed, {len(outcome.left)} left for want of time, {len(outcome.elsewhere)} being "
            "made by another process."
        )
        if not outcome.failed:
            _show_outdated(Results(parsed.results, chosen), chosen.choose(parsed.cells))
    return 1 if outcome.failed else 0


def _show_outdated(shelf: Results, cells: Sequence[Cell]) -> None:
    """Say which files are of another definition of their cell."""
    for cell in cells:
        if shelf.is_outdated(cell):
            console.show(f"outdated: {cell.name} was measured with other settings; delete its file to measure it again")


def parse_shard(text: str) -> tuple[int, int]:
    """The share ``i/n``, from 1, as (index from 0, count).

    >>> parse_shard("2/3")
    (1, 3)
    """
    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise ConfigError(f"shard must be i/n with i from 1 to n, not {text!r}")
    return int(index) - 1, int(count)


_WORKER = "PRIVSET_WORKER"
"""Is set for the processes that share one's work."""


def end_with_parent() -> None:
    """Stop this process, as by Ctrl-C, when its standard input ends: whoever started it is gone, however that came.

    Not by the signal of Ctrl-C itself, which what a shell starts in the background ignores.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def wait() -> None:
        os.read(0, 1)  # nothing is ever written to it
        interrupt_main(signal.SIGTERM)
        time.sleep(10)
        os._exit(130)

    threading.Thread(target=wait, daemon=True).start()


def run_workers(parsed: RunArguments, shard: tuple[int, int]) -> Outcome:
    """Share this process's jobs out to ``parsed.jobs`` others, and add up what became of them."""
    index, count = shard
    words = [parsed.name, "--results", str(parsed.results), "--device", parsed.device, "--json"]
    words += ["--cells", *parsed.cells] if parsed.cells else []
    words += ["--budget-minutes", str(parsed.budget_minutes)] if parsed.budget_minutes is not None else []
    words += ["--data-dir", str(parsed.data_dir)] if parsed.data_dir else []
    # Workers that each use every core wait for each other most of the time.
    more = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // parsed.jobs)), _WORKER: "1"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    workers: list[subprocess.Popen[str]] = []
    total = Outcome()
    try:
        for number in range(parsed.jobs):
            # Every jobs-th of every count-th job.
            share = f"{index + count * number + 1}/{count * parsed.jobs}"
            command = [sys.executable, "-m", "privset", "study", "run", *words, "--shard", share]
            workers.append(subprocess.Popen(command, text=True, env=more | os.environ, **pipes))
        for number, worker in enumerate(workers):
            assert worker.stdout is not None
            output, code = worker.stdout.read(), worker.wait()  # communicate() would end its standard input
            if code not in (0, 1) or not output:
                total.failed[f"worker {number + 1}"] = f"ended with code {code}"
                continue
            part = Outcome(**json.loads(output))
            total.failed.update(part.failed)
            for field in dataclasses.fields(part):
                if field.name != "failed":
                    getattr(total, field.name).extend(getattr(part, field.name))
    finally:
        # Only after an interruption is one still running: it is asked to clean up, then made to stop.
        for worker in workers:
            worker.terminate()
        for worker in workers:
            with worker:  # which closes its pipes
                try:
                    worker.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    worker.kill()
    return total


_NAMED = 6
"""So many cells that nobody has begun are named."""


def show(arguments: Sequence[str]) -> int:
    """`privset study show NAME`."""
    parsed = parse(ShowArguments, arguments, "privset study show")
    chosen = studies.get(parsed.name)
    if not parsed.results.is_dir():
        raise ConfigError(f"there is no folder {parsed.results}; run this where results are, or say --results")
    shelf = Results(parsed.results, chosen)
    found = {cell.name: result for cell in chosen.cells if (result := shelf.cell(cell)) is not None}
    missing = {cell.name: f"{len(shelf.parts(cell))} of {cell.sets}" for cell in chosen.cells if cell.name not in found}
    failed = {cell.name: errors for cell in chosen.cells if (errors := shelf.errors(cell))}
    if parsed.json:
        outdated = [cell.name for cell in chosen.cells if shelf.is_outdated(cell)]
        words = {"missing": list(missing), "failed": failed, "outdated": outdated}
        console.show_json({"study": chosen.name, "cells": list(found.values()), **words})
        return 0
    recipes = list(dict.fromkeys(recipe for result in found.values() for recipe in result["recipes"]))
    rows = [["cell", "epsilon", "per class", *recipes, "published", "seconds to make + evaluate a set"]]
    rows += [[name, *describe(result, recipes)] for name, result in found.items()]
    if any("claim" in result for result in found.values()):
        rows[0] += ["proven", "claimed, not the guarantee"]
        for row, result in zip(rows[1:], found.values(), strict=True):
            row += epsilons(result)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    console.show(f"{chosen.name}: {chosen.what}")
    for row in rows:  # in plain lines: a table would cut the cells' names to fit the terminal
        console.show("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())
    for name, errors in failed.items():
        for error in errors:
            console.show(f"failed: {name}, {error}")
    begun = {cell.name for cell in chosen.cells if shelf.parts(cell) or shelf.is_begun(cell)} | failed.keys()
    for name in (name for name in missing if name in begun):
        console.show(f"missing: {name}, {missing[name]} sets finished")
    rest = [name for name in missing if name not in begun]
    if rest:
        some = ", ".join(rest[:_NAMED]) + (", ... (all in --json)" if len(rest) > _NAMED else "")
        console.show(f"missing: {len(rest)} of {len(chosen.cells)} cells, not begun: {some}")
    _show_outdated(shelf, chosen.cells)
    return 0


def epsilons(result: dict[str, Any]) -> list[str]:
    """What is proven, rounded up, and what the original analysis claims; nothing where they are the same."""
    if "claim" not in result:
        return ["", ""]
    claim = result["claim"] | {"epsilon": float(result["claim"]["epsilon"])}  # infinity is a word in JSON
    return [rounded_up(float(result["proven"])), Claim(**claim).brief()]


def describe(result: dict[str, Any], recipes: Sequence[str]) -> list[str]:
    """One row of the table: the accuracy by each recipe in percent, the one that counts marked with a star."""

    def accuracy(recipe: str) -> str:
        if recipe not in result["recipes"]:
            return ""
        measured = result["recipes"][recipe]["accuracy"]
        star = " *" if recipe == result["recipe"] and len(result["recipes"]) > 1 else ""
        return f"{percent(measured)}{star}"

    published, seconds = result["published"], result["seconds"]
    return [
        f"{result['epsilon']}" if result["epsilon"] == "inf" else f"{result['epsilon']:g}",
        "all" if result["per_class"] is None else str(result["per_class"]),
        *map(accuracy, recipes),
        "" if published is None else f"{published:.1f}",
        f"{seconds['generate']:.0f} + {seconds['evaluate']:.0f}",
    ]
