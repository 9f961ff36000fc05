"""What the terminal shows: results on standard output, progress and errors on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
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

from privset.observer import Observer
from privset.release.statement import rounded_up

OUT = Console(highlight=False, soft_wrap=True)
ERR = Console(stderr=True, highlight=False, soft_wrap=True)

_QUIET_SECONDS = 10.0
"""Without a terminal, a line of progress this often at most."""


def show(text: str) -> None:
    """A line of results, without markup."""
    OUT.print(text, markup=False)


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
    """Progress on standard error: bars on a terminal, now and then a line elsewhere.

    It shows the phase, its steps, the time gone, the time it will end and figures; below, what was noted: the budget
    spent, and where the set can be seen as it forms.
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
        self._begun, self._paced, self._warm = self._told, self._told, 0

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def phase(self, name: str, total: int) -> None:
        """A new bar; the last one is done, also if no one knew how long it would be."""
        if self._task is not None and not self._total:
            self._bars.update(self._task, total=1, completed=1)
        self._name, self._total, self._done, self._warm = name, total, 0, 0
        self._begun = time.monotonic()
        self._task = self._bars.add_task(name, total=total or None, values="")

    def step(self, count: int = 1, **values: float) -> None:
        """Move the bar, and show the figures beside it."""
        first, self._done = not self._done, self._done + count
        words = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        if self._task is not None:
            self._bars.update(self._task, advance=count, values=words)
        if first:  # what came before it says nothing about the pace: preparations, or steps of a run that was stopped
            self._paced, self._warm = time.monotonic(), count
            if self._task is not None and count > 1:
                self._bars.reset(self._task, total=self._total or None, completed=count)
        if not ERR.is_terminal and time.monotonic() - self._told > _QUIET_SECONDS:
            self._told = time.monotonic()
            warn("; ".join(part for part in (self._line(), words, *self._bars.notes.values()) if part))

    def spent(self, epsilon: float, budget: float) -> None:
        """Note it, rounded up."""
        self.note("budget", f"epsilon {rounded_up(epsilon)} of {budget:g} spent")

    def going_on(self, folder: Path) -> None:
        """Say so, in a line that stays."""
        warn(f"Going on from {folder}: what that paid for is not charged again.")

    def note(self, about: str, text: str) -> None:
        """Keep a line in sight until something else is noted about the same."""
        self._bars.notes[about] = text

    def _line(self) -> str:
        now = time.monotonic()
        words = f"{self._name}: {self._done:,} of {self._total:,}, {_spell(now - self._begun)} gone"
        new = self._done - self._warm
        if new <= 0 or not self._total:
            return words
        left = (self._total - self._done) * (now - self._paced) / new
        return f"{words}, about {_spell(left)} left, until {_clock(left)}"


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
        left = task.time_remaining
        if task.finished or left is None:
            return Text("")
        return Text(f"{_spell(left)} left, until {_clock(left)}")


def _spell(seconds: float) -> str:
    """A duration.

    >>> _spell(75.2), _spell(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _clock(left: float) -> str:
    end = datetime.now() + timedelta(seconds=left)
    return f"{end:%H:%M}" if left < 12 * 3600 else f"{end:%d %b %H:%M}"
