"""Who watches a run: the terminal, a picture of the set as it forms, and TensorBoard if it is asked for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from PIL import Image

from privset.cli import console
from privset.errors import ReleaseError
from privset.facts import PublicFacts
from privset.methods import Synthesis
from privset.observer import Glimpse, Observer, Observers
from privset.privacy.kept import write_whole
from privset.release import SyntheticSet, preview

PREVIEW_SECONDS = 5.0
"""A picture is drawn this often at most."""


@contextlib.contextmanager
def watched(bars: console.Bars, out: Path, facts: PublicFacts, tensorboard: Path | None) -> Iterator[Observer]:
    """The observer of a run that writes the release ``out``; what it draws beside that is gone at the end.

    Raises:
        ConfigError: The folder for TensorBoard cannot be written.
    """
    with contextlib.ExitStack() as stack:
        watchers: list[Observer] = [bars, stack.enter_context(PreviewFile(preview_beside(out), facts, bars))]
        if tensorboard is not None:
            from privset.cli.tensorboard import TensorBoard

            watchers.append(stack.enter_context(contextlib.closing(TensorBoard(tensorboard, facts))))
        yield Observers(*watchers)


def preview_beside(out: Path) -> Path:
    """Where a run that writes the release ``out`` shows the set as it forms."""
    return out.with_name(out.name + ".preview.png")


class Pace:
    """Says when something is due that must not happen at every step.

    Args:
        seconds: From the end of one time to the next; longer where each takes long, so that they take no more than a
            twentieth of the time. 0: always.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._next, self._begun = seconds, 0.0, 0.0

    def due(self) -> bool:
        """Whether it is time; it is the first time."""
        self._begun = time.monotonic()
        return self._begun >= self._next

    def rest(self) -> None:
        """It is done; wait for the next time."""
        now = time.monotonic()
        self._next = now + (max(self._seconds, 20 * (now - self._begun)) if self._seconds else 0.0)


class PreviewFile(Observer):
    """One picture of the set as it forms, replaced every few seconds and removed when the run ends, however it does.

    It is for whoever runs it: the finished release has a preview of its own. A picture that cannot be drawn or written
    never ends a run, whose budget is spent. Where it is, is noted, and behind it what it costs to look, if it does.
    """

    def __init__(self, path: Path, facts: PublicFacts, bars: console.Bars) -> None:
        self._path, self._facts, self._bars, self._price = path, facts, bars, ""
        self._pace, self._failed = Pace(PREVIEW_SECONDS), False

    def __enter__(self) -> PreviewFile:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def irrevocable(self, epsilon: float, ledger: Path) -> contextlib.AbstractContextManager[object]:
        """Say beside the picture what it costs to look."""
        self._price = "; once it is looked at, this run counts, even if it is stopped"
        return super().irrevocable(epsilon, ledger)

    def show(self, look: Callable[[], Glimpse]) -> None:
        """Draw it, if it is time."""
        if self._failed or not self._pace.due():
            return
        try:
            drawn = draw(look(), self._facts)
            if drawn is not None:
                write_whole(self._path, preview.encode(drawn))
                self._bars.note("preview", f"preview in {self._path}, of {time.strftime('%H:%M:%S')}{self._price}")
        # Whatever it is, memory that ran out for example: the run is paid for, and a picture is not worth it.
        except Exception as error:
            self._failed = True
            console.warn(f"No preview: {self._path} cannot be drawn or written ({reason(error)}); the run goes on.")
        self._pace.rest()


def reason(error: Exception) -> str:
    """Why something failed, in one line.

    >>> reason(OSError(28, "No space left on device")), reason(RuntimeError("out of memory")), reason(KeyError())
    ('No space left on device', 'out of memory', 'KeyError')
    """
    words = error.strerror if isinstance(error, OSError) else None
    return words or str(error).partition("\n")[0] or type(error).__name__


def draw(glimpse: Glimpse, facts: PublicFacts) -> Image.Image | None:
    """A sheet of the first images of each class; None while they are not finite."""
    labels = glimpse.labels.cpu()
    # A large set need not come from the device as a whole.
    chosen = torch.cat([(labels == k).nonzero()[: preview.MOST_COLUMNS, 0] for k in range(len(facts.classes))])
    images = glimpse.images[chosen.to(glimpse.images.device)]
    try:
        return preview.draw(SyntheticSet.from_synthesis(Synthesis(images, labels[chosen]), facts))
    except ReleaseError:
        return None
