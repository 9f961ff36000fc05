"""Sets that take longer than one call of the runner: made in pieces, whose seconds add up."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from privset.errors import ConfigError
from privset.files import as_json, write
from privset.observer import Observer, Observers

_NOTED = 5.0
"""The seconds so far are put on file this often, so that a kill forgets no more than these."""


class OutOfTime(Exception):  # noqa: N818 - nothing went wrong
    """The time of this call is up; what was made so far is kept, and the next call goes on."""


class Piece(Observers):
    """One call's share of making a set: counts the seconds, and ends it when the time is up.

    Args:
        note: File that says what earlier calls spent on it.
        observer: Told all that this is told.
        until: On the clock of `time.monotonic`; None for as long as it takes.
        commit: Of the code that makes this piece.
    """

    def __init__(self, note: Path, observer: Observer, *, until: float | None, commit: str | None) -> None:
        super().__init__(observer)
        self._path, self._until = note, until
        found = _read(self._path)
        self._before, self._begun, self._shared = float(found["seconds"]), time.monotonic(), 0.0
        self._noted = self._begun
        self.commits: list[str] = [*dict.fromkeys([*found["commits"], *([commit] if commit else [])])]

    @property
    def seconds(self) -> float:
        """All that was spent on the set, by this call and by earlier ones."""
        return self._before + self._shared + time.monotonic() - self._begun

    @property
    def earlier(self) -> float:
        """What was spent by earlier calls."""
        return self._before

    def __enter__(self) -> Piece:
        self._note()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._note()

    def step(self, count: int = 1, **values: float) -> None:
        """Tell of it; raises `OutOfTime` if it is time to stop."""
        super().step(count, **values)
        now = time.monotonic()
        if now - self._noted >= _NOTED:
            self._note()
        self.check()

    def add(self, seconds: float) -> None:
        """Count what was spent for this set and others together."""
        self._shared += seconds
        self._note()

    def anew(self) -> None:
        """Forget earlier calls: nothing of what they made is used."""
        self._before, self._begun, self._shared = 0.0, time.monotonic(), 0.0
        self.commits = self.commits[-1:]
        self._note()

    def check(self, ahead: float = 0.0) -> None:
        """Raise `OutOfTime` if it is time to stop, or will be before what takes ``ahead`` seconds is done."""
        if self._until is not None and time.monotonic() + ahead >= self._until:
            raise OutOfTime

    def _note(self) -> None:
        self._noted = time.monotonic()
        write(self._path, as_json({"seconds": self.seconds, "commits": self.commits}))


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
        return {"seconds": float(found["seconds"]), "commits": list(found["commits"])}
    except FileNotFoundError:
        return {"seconds": 0.0, "commits": []}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is damaged ({type(error).__name__}: {error}); delete it, and the seconds of earlier calls are "
            "forgotten"
        ) from error
