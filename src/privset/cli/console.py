"""What the terminal shows: results on standard output, progress and errors on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column, Table
from rich.text import Text

from privset.cli.interrupts import held_back
from privset.observer import Observer
from privset.release.statement import rounded_up


class _Lines(Console):
    """Says nothing of its own where no one reads any more: not that a check failed, which an exit code of 1 would."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


OUT = _Lines(highlight=False, soft_wrap=True)
ERR = _Lines(stderr=True, highlight=False, soft_wrap=True)

_QUIET_SECONDS = 10.0
"""Without a terminal, a line of progress this often at most."""
_LONG_SECONDS = 600.0
"""Of a phase that will take longer it is said early, and what becomes of a run that is stopped."""


def show(text: str) -> None:
    """A line of results, without markup; at once, also where it is read by a program."""
    OUT.print(text, markup=False)
    OUT.file.flush()


def warn(text: str) -> None:
    """A line that programs reading standard output must not see."""
    ERR.print(text, markup=False)


def show_json(value: Any) -> None:
    """One JSON object on standard output; there is no infinity in JSON, so it must have been spelt before."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def show_table(columns: list[str], rows: list[list[str]], title: str | None = None) -> None:
    """A table for reading, not for parsing; where it is too wide, long words go on below, and none is cut."""
    folded = (Column(name, overflow="fold") for name in columns)
    table = Table(*folded, title=title, title_justify="left", header_style="bold")
    for row in rows:
        table.add_row(*row)
    OUT.print(table, markup=False)


class Bars(Observer):
    """Progress on standard error: bars on a terminal; elsewhere a line when a phase begins, and now and then.

    It shows the phase, its steps, the time gone, the time it will end and figures; below, what was noted: the budget
    spent, and where the set can be seen as it forms.

    Attributes:
        stopping: What becomes of a run that is stopped now; said once it is seen that a phase will take long.
    """

    def __init__(self) -> None:
        self._bars = _Display(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            _EndColumn(),
            TextColumn("{task.fields[values]}"),
            console=ERR,
            disable=not ERR.is_terminal,
        )
        self._task: Any = None
        self._name, self._total, self._done, self._told = "", 0, 0, time.monotonic()
        self._begun, self._pace = self._told, _Pace()
        self.stopping, self._foretold = "", False

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def phase(self, name: str, total: int) -> None:
        """A new bar, or a line; the last bar is done, also if no one knew how long it would be."""
        if self._task is not None and not self._total:
            self._bars.update(self._task, total=1, completed=1)
        self._name, self._total, self._done = name, total, 0
        self._begun, self._pace, self._foretold = time.monotonic(), _Pace(), False
        self._task = self._bars.add_task(name, total=total or None, values="", pace=self._pace)
        if not ERR.is_terminal:  # it may be long before the first step, and calibrating noise has none
            self._told = self._begun
            warn(f"{name} ...")

    def step(self, count: int = 1, **values: float) -> None:
        """Move the bar, and show the figures beside it."""
        self._done += count
        words = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        if self._task is not None:
            self._bars.update(self._task, advance=count, values=words)
        if not self._pace.by_laps:
            self._take_time()
        if not ERR.is_terminal and time.monotonic() - self._told > _QUIET_SECONDS:
            self._told = time.monotonic()
            warn("; ".join(part for part in (self._line(), words, *self._bars.notes.values()) if part))

    def lap(self) -> None:
        """Take the time here from now on, and at the steps no more."""
        if self._pace.by_laps:
            self._take_time()
        else:
            self._pace.begin_laps()

    def spent(self, epsilon: float, budget: float) -> None:
        """Note it, rounded up."""
        self.note("budget", f"epsilon {rounded_up(epsilon)} of {budget:g} spent")

    def going_on(self, folder: Path) -> None:
        """Say so, in a line that stays."""
        warn(f"Going on from {folder}: nothing is charged again.")

    def patience(self) -> contextlib.AbstractContextManager[Callable[[], bool]]:
        """Let Ctrl-C wait for the end of a step."""
        return held_back(warn)

    def irrevocable(self, epsilon: float, ledger: Path) -> contextlib.AbstractContextManager[object]:
        """Let Ctrl-C be meant: the first one only has it said what would be lost."""
        return held_back(
            warn,
            f"This run cannot be gone on with: what it charges, epsilon {rounded_up(epsilon)}, would be lost. Ctrl-C "
            "again stops it all the same.",
            f"nothing was released; what was charged stays in {ledger}, and a new run, with another --out, is charged "
            "in addition",
            costs=ledger.exists,  # it appears with the first charge, before that is answered
            nothing="nothing was released, and nothing was charged",
        )

    def note(self, about: str, text: str) -> None:
        """Keep a line in sight until something else is noted about the same."""
        self._bars.notes[about] = text

    def _take_time(self) -> None:
        self._pace.take(self._done, self._total)
        left = self._pace.left()
        if self.stopping and not self._foretold and self._pace.is_sound and left > _LONG_SECONDS:
            self._foretold = True
            warn(f"{self._name} will take about {spell(left)} more, until {_clock(left)}. {self.stopping}")

    def _line(self) -> str:
        words = f"{self._name}: {self._done:,} of {self._total:,}, {spell(time.monotonic() - self._begun)} gone"
        if not self._pace.is_known:
            return words
        left = self._pace.left()
        return f"{words}, about {spell(left)} left, until {_clock(left)}"


class _Pace:
    """How fast the steps of a phase come, from the first time that is taken to the last, and so when they will end.

    What comes before the first says nothing about that: preparations, or steps of a run that was stopped.
    """

    def __init__(self) -> None:
        self.by_laps = False
        self._first, self._count, self._end = (0.0, 0), 0, 0.0

    def begin_laps(self) -> None:
        """Forget the times that were taken."""
        self.by_laps, self._count = True, 0

    def take(self, done: int, total: int) -> None:
        """Now so many steps of the total are done."""
        now = time.monotonic()
        self._count += 1 if total else 0
        if self._count == 1:
            self._first = now, done
        elif self._count:
            begun, before = self._first
            self._end = now + (total - done) * (now - begun) / max(1, done - before)

    @property
    def is_known(self) -> bool:
        """Whether there is an estimate at all."""
        return self._count > 1

    @property
    def is_sound(self) -> bool:
        """Whether it rests on more than one step, or round of steps, and on more than a moment."""
        return self._count > 2 and time.monotonic() - self._first[0] > _QUIET_SECONDS

    def left(self) -> float:
        """Seconds to the end, if it is known."""
        return max(0.0, self._end - time.monotonic())


class _Display(Progress):
    """Bars, with notes below them."""

    def __init__(self, *columns: ProgressColumn, **options: Any) -> None:
        self.notes: dict[str, str] = {}  # before the first drawing, which is in the constructor
        super().__init__(*columns, **options)

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bars, then the notes."""
        yield self.make_tasks_table(self.tasks)
        if self.notes:
            yield Text("; ".join(self.notes.values()))


class _EndColumn(ProgressColumn):
    """When a phase will be over: how long it still takes, and what the clock will say then."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        pace: _Pace = task.fields["pace"]
        if task.finished or not pace.is_known:
            return Text("")
        left = pace.left()
        return Text(f"{spell(left)} left, until {_clock(left)}")


def spell(seconds: float) -> str:
    """A duration, to the second; of more than a day, to the hour.

    >>> spell(75.2), spell(3675), spell(200_000)
    ('1:15', '1:01:15', '2 days 8 hours')
    """
    if seconds >= 86_400:
        days, hours = divmod(round(seconds / 3600), 24)
        return f"{days} day{'s' * (days > 1)} {hours} hour{'s' * (hours != 1)}"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _clock(left: float) -> str:
    end = datetime.now() + timedelta(seconds=left)
    return f"{end:%H:%M}" if left < 12 * 3600 else f"{end:%d %b %H:%M}"
