"""Makes and measures the sets of a study, one job a set, until all are on file or the time is up."""

from __future__ import annotations

import dataclasses
import math
import shutil
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from privset import data, pipeline
from privset.data.records import Dataset
from privset.errors import BudgetError, ConfigError, InUseError
from privset.evaluation import AS_TRAINED, Evaluation, evaluate_real, evaluate_release
from privset.files import write
from privset.methods import METHODS, Execution, MeasuringMethod, TrainingMethod
from privset.observer import Observer
from privset.privacy import Tally, seeded_noise
from privset.recording import settled
from privset.release import ClassifierRelease, Release, distil, load_published
from privset.release.preview import FILE as PREVIEW_FILE
from privset.release.software import versions
from privset.studies import along, courses
from privset.studies.origin import commit
from privset.studies.pieces import OutOfTime, Piece
from privset.studies.results import Results
from privset.studies.study import Cell, Study


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of the jobs of one run, each named ``<cell>.<set>``.

    Attributes:
        finished: Made and measured now.
        skipped: Were on file already.
        failed: The error of each that could not be made; the next run tries them again.
        left: Not started, or not finished, because the time was up.
        elsewhere: Left to another process, which is making it.
    """

    finished: list[str] = dataclasses.field(default_factory=list)
    skipped: list[str] = dataclasses.field(default_factory=list)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    left: list[str] = dataclasses.field(default_factory=list)
    elsewhere: list[str] = dataclasses.field(default_factory=list)


def jobs(cells: Sequence[Cell], shard: tuple[int, int] = (0, 1)) -> list[tuple[Cell, int]]:
    """The (cell, set) pairs of shard ``(index, count)``, index from 0; finished ones too, so that shards stay put.

    Cells that train different networks on the same set are one after the other, and in the same shard.
    """
    index, count = shard
    if not 0 <= index < count:
        raise ConfigError(f"there is no shard {index + 1} of {count}; the first is 1/{max(count, 1)}")
    of_set: dict[str, list[tuple[Cell, int]]] = {}
    for cell in cells:
        for number in range(cell.sets):
            of_set.setdefault(cell.set_key(number), []).append((cell, number))
    return [job for some in list(of_set.values())[index::count] for job in some]


def run(
    study: Study,
    *,
    cells: Sequence[str] = (),
    results: Path,
    device: str = "cpu",
    budget_minutes: float | None = None,
    shard: tuple[int, int] = (0, 1),
    observer: Observer | None = None,
    data_dir: Path | None = None,
    command: str | None = None,
) -> Outcome:
    """Make and measure the sets that are not on file.

    Killed at any moment it loses what it was measuring and, of a set that it was making, all or, if its method is
    resumable, the last seconds; a set that is made is not made again. Run in several processes with different shards
    of one results folder, the one that finishes a cell's last set writes the cell's file.

    Args:
        study: What to measure.
        cells: Names or patterns of its cells; all if none are given.
        results: Folder that the study's folder is in.
        device: Where to compute.
        budget_minutes: No set is started after this, nor one that is known to take longer than what is left; one that
            can be made in several calls is started, and stopped where it is by then. Training on a set that is made is
            not stopped; how long it takes is allowed for from the second set of a cell on.
        shard: Which of how many shares of the jobs, from 0.
        observer: Told about progress.
        data_dir: Where named data sets are looked for first.
        command: The command line to put on file.
    """
    if budget_minutes is not None and not 0 <= budget_minutes < math.inf:
        raise ConfigError(f"budget-minutes must be 0 or more, not {budget_minutes}")
    with tempfile.TemporaryDirectory(prefix="privset-study-") as folder:
        bench = _Bench(Execution(device=device), data_dir, command, observer or Observer(), Path(folder))
        shelf = Results(Path(results), study, device)
        shelf.require_writable()
        with settled(torch.device(device)):  # a set may be stopped in the midst of its steps
            outcome = _run(jobs(study.choose(cells), shard), bench, shelf, budget_minutes)
    shelf.draw()
    return outcome


def in_pieces(cell: Cell) -> bool:
    """Whether a set of the cell can be made in several calls, of which each goes on."""
    return not cell.is_real and METHODS[cell.method].resumable


def _run(todo: list[tuple[Cell, int]], bench: _Bench, shelf: Results, budget_minutes: float | None) -> Outcome:
    outcome, device = Outcome(), bench.execution.device
    until = None if budget_minutes is None else time.monotonic() + 60 * budget_minutes
    for position, (cell, number) in enumerate(todo):
        job = f"{cell.name}.{number}"
        try:
            if shelf.is_done(cell, number):
                outcome.skipped.append(job)
                shelf.assemble(cell)  # a run that was killed at the last moment left this undone
                continue
            alike = [part for part in shelf.parts(cell) if part["device_asked"] == device]
            needed = 0.0 if in_pieces(cell) else max((part["job_seconds"] for part in alike), default=0.0)
            if until is not None and time.monotonic() + needed >= until:
                outcome.left.append(job)
                continue  # sets of another cell may be shorter
            bench.observer.phase(f"{job}, {position + 1} of {len(todo)}", 0)
            tested = max((sum(one["seconds"] for one in part["recipes"].values()) for part in alike), default=0.0)
            shelf.keep_part(cell, number, bench.measure(cell, number, shelf, until, tested))
            shelf.assemble(cell)
            outcome.finished.append(job)
        except OutOfTime:
            outcome.left.append(job)
        except InUseError:
            outcome.elsewhere.append(job)
        except Exception as error:  # whatever it was: one cell must not end a night's run
            again = ""
            if isinstance(error, BudgetError):  # of sets that protect no one: there is nothing to count
                again = f" (in a study: delete {shelf.work_folder(cell, number)}, and the set is made again)"
            outcome.failed[job] = f"{type(error).__name__}: {error}{again}"
            shelf.keep_error(cell, number, traceback.format_exc())
    return outcome


class _Bench:
    """What all jobs of a run share.

    Each data set is read once, and each question that several sets have in common is asked once: sets of the same
    seed that differ in what a measuring method distils, such as their size, are distilled from the same statistics.
    A set is remembered until the next one is made, for cells that train another network on it.
    """

    def __init__(
        self, execution: Execution, data_dir: Path | None, command: str | None, observer: Observer, folder: Path
    ) -> None:
        self.execution, self.observer = execution, observer
        self._data_dir, self._folder = data_dir, folder
        # At the start: the files may change while the code that was read runs on.
        self._origin = {"command": command, "commit": commit(), "versions": versions()}
        self._datasets: dict[str, Dataset] = {}
        self._measured: dict[Any, tuple[Path, float]] = {}
        self._made: dict[str, tuple[Release | ClassifierRelease, float]] = {}
        self._by_votes: dict[str, float | None] = {}

    def measure(
        self, cell: Cell, number: int, shelf: Results, until: float | None = None, tested: float = 0.0
    ) -> dict[str, Any]:
        """Make set ``number`` of a cell and train on it by every recipe; the set itself is thrown away.

        Args:
            cell: Of which study's.
            number: Of the set.
            shelf: Where results, and sets that are not finished, are.
            until: When the time is up; None for never.
            tested: Seconds that training on a set of this cell is known to take, which cannot be stopped.

        Raises:
            OutOfTime: It is not finished by then, and goes on in the next call.
        """
        if cell.data not in self._datasets:
            place = None if data.is_built_in(cell.data) else self._data_dir
            self._datasets[cell.data] = data.load(cell.data, data_dir=place, observer=self.observer)
        dataset = self._datasets[cell.data]
        if cell.held_out:
            dataset = dataset.held_out()
        started, origin = time.perf_counter(), self._origin
        work, piece, at_hand = shelf.work_folder(cell, number), None, cell.set_key(number) in self._made
        if not cell.is_real:
            note, until = shelf.pieces_note(cell, number), until if in_pieces(cell) else None
            piece = Piece(note, self.observer, until=until, commit=origin["commit"])
        if cell.stages is None:
            evaluations, generated = self._evaluate(cell, number, dataset, shelf.preview(cell), work, piece, tested)
            found: dict[str, Any] = {
                recipe: {"accuracies": list(one.accuracies), "seconds": one.seconds}
                for recipe, one in evaluations.items()
            }
            more = self._costs(cell, dataset)
            if cell.set_key(number) in self._by_votes:
                more["by_votes"] = self._by_votes[cell.set_key(number)]
            if cell.snapshots:
                release, _ = self._made[cell.set_key(number)]
                assert isinstance(release, Release)
                how = {"device": self.execution.device, "observer": self.observer}
                more["along"] = along.measured(cell, number, release, dataset, **how)
        else:
            assert piece is not None  # real records have no stages
            with piece:
                course = courses.follow(
                    cell,
                    number,
                    dataset,
                    work,
                    execution=self.execution,
                    observer=piece,
                    tester=self.observer,
                )
            evaluations = {recipe: several[-1] for recipe, several in course.evaluations.items()}
            found, generated = courses.measured(course), course.seconds
            # A certificate knows of the last piece only.
            generated = max(generated, round(piece.seconds - sum(one["seconds"] for one in found.values())))
            more = {"parties": [list(party) for party in course.parties]}
        any_of_them = evaluations[cell.recipes[0]]  # all have the same device and seeds
        if piece is not None:
            started -= 0.0 if at_hand else piece.earlier
            origin = origin | {"commit": ", ".join(piece.commits) or None}
        return {
            "recipes": found,
            **more,
            "network_seeds": list(any_of_them.seeds),
            "generate_seconds": generated,
            "job_seconds": time.perf_counter() - started,
            "device": any_of_them.device,
            "device_asked": self.execution.device,
            **origin,
        }

    def _evaluate(
        self,
        cell: Cell,
        number: int,
        dataset: Dataset,
        preview: Path | None,
        work: Path,
        piece: Piece | None,
        tested: float,
    ) -> tuple[dict[str, Evaluation], float]:
        """What is measured by each recipe, and the seconds it took to make what is measured."""
        device = {"device": self.execution.device, "observer": self.observer}
        how = {"classifier": cell.classifier, "runs": cell.networks, "seed": number} | device
        if cell.is_real:
            real = {
                recipe: evaluate_real(dataset, per_class=cell.per_class, recipe=recipe, **how)
                for recipe in cell.recipes
            }
            return real, 0.0
        assert piece is not None
        key = cell.set_key(number)
        if key not in self._made:
            made = self._go_on(cell, number, dataset, work, piece)
            piece.check(tested)
            self._made = {key: made}
            if number == 0 and preview is not None and not isinstance(made[0], ClassifierRelease):
                write(preview, (made[0].path / PREVIEW_FILE).read_bytes())
        release, generated = self._made[key]
        if isinstance(release, ClassifierRelease):
            return {AS_TRAINED: evaluate_release(release, dataset, **device)}, generated
        return {recipe: evaluate_release(release, dataset, recipe=recipe, **how) for recipe in cell.recipes}, generated

    @staticmethod
    def _costs(cell: Cell, dataset: Dataset) -> dict[str, Any]:
        """What is proven, and what the original analysis claims, where that is something else."""
        if cell.is_real:
            return {}
        planned = cell.make_method(0).plan(dataset.facts, cell.budget).to_json()
        return {} if planned["claim"] is None else {"proven": planned["epsilon"], "claim": planned["claim"]}

    def _go_on(
        self, cell: Cell, number: int, dataset: Dataset, work: Path, piece: Piece
    ) -> tuple[Release | ClassifierRelease, float]:
        """What earlier calls have made in the folder ``work``, or made now, and the seconds it took."""
        out = work / "release"
        with piece:
            if out.is_dir():
                return load_published(out), piece.seconds
            return self._make(cell, number, dataset, out, piece), piece.seconds

    def _make(self, cell: Cell, number: int, dataset: Dataset, out: Path, piece: Piece) -> Release | ClassifierRelease:
        """A set in the folder ``out``; noise is seeded, so all calls that it takes have the same."""
        method = cell.make_method(number)
        how: dict[str, Any] = {"noise": seeded_noise(number), "execution": self.execution, "observer": piece}
        if isinstance(method, MeasuringMethod):
            source = self._statistics(cell, number, method, dataset, out.parent / "statistics", piece)
            asked = method.measured_with | {"seed"}
            free = {name: value for name, value in dataclasses.asdict(method.config).items() if name not in asked}
            return distil(source, out=out, execution=self.execution, observer=piece, **free)
        if not method.resumable:
            shutil.rmtree(out.parent, ignore_errors=True)  # what a call that was killed left of it
            piece.anew()
        if isinstance(method, TrainingMethod):
            return pipeline.train(dataset, method=method, budget=cell.budget, out=out, **how)
        tally, how["snapshots"] = Tally(), cell.snapshots
        made = pipeline.generate(dataset, method=method, budget=cell.budget, out=out, tally=tally, **how)
        if method.winners_only:
            self._by_votes = {cell.set_key(number): tally.agreement.epsilon(cell.delta)}
        return made

    def _statistics(
        self, cell: Cell, number: int, method: MeasuringMethod[Any], dataset: Dataset, folder: Path, piece: Piece
    ) -> Path:
        """The statistics of a set, in its own folder: it is distilled from the same ones in all calls it takes.

        Measured for one set, they are those of all others made of them by this run; the seconds count for each.
        """
        settings = dataclasses.asdict(method.config)
        asked = frozenset((name, settings[name]) for name in method.measured_with)
        key = (cell.method, asked, cell.data, cell.held_out, cell.budget, number)
        if not folder.is_dir() and key in self._measured:
            kept, seconds = self._measured[key]
            shutil.copytree(kept, arriving := folder.with_name("arriving"), dirs_exist_ok=True)
            arriving.rename(folder)  # whole, or not there
            piece.add(seconds)
        elif not folder.is_dir():
            how = {"noise": seeded_noise(number), "execution": self.execution, "observer": piece}
            pipeline.measure(dataset, method=method, budget=cell.budget, out=folder, **how)
            kept = Path(tempfile.mkdtemp(dir=self._folder)) / "statistics"
            self._measured[key] = shutil.copytree(folder, kept), piece.seconds
        return folder
