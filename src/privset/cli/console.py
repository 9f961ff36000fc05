"""What the terminal shows: results on standard output, progress and errors on standard error."""

from __future__ import annotations

import json
import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from privset.observer import Observer

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
    """A table for reading, not for parsing."""
    table = Table(*columns, title=title, title_justify="left", header_style="bold")
    for row in rows:
        table.add_row(*row)
    OUT.print(table, markup=False)


class Bars(Observer):
    """Progress on standard error: bars on a terminal, now and then a line elsewhere."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[values]}"),
            console=ERR,
            disable=not ERR.is_terminal,
        )
        self._task: Any = None
        self._name, self._total, self._done, self._told = "", 0, 0, time.monotonic()

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def phase(self, name: str, total: int) -> None:
        """A new bar."""
        self._name, self._total, self._done = name, total, 0
        self._task = self._bars.add_task(name, total=total or None, values="")

    def step(self, count: int = 1, **values: float) -> None:
        """Move the bar, and show the figures beside it."""
        self._done += count
        words = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        if self._task is not None:
            self._bars.update(self._task, advance=count, values=words)
        if not ERR.is_terminal and time.monotonic() - self._told > _QUIET_SECONDS:
            self._told = time.monotonic()
            warn(f"{self._name}: {self._done:,} of {self._total:,}  {words}".rstrip())
