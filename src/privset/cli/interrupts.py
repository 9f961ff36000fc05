"""Ctrl-C: a step that goes on is finished, so that what was done can be kept, and what is left is said."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

WORDS = "Stopping after this step, to keep what was done; Ctrl-C again stops at once."


@contextlib.contextmanager
def held_back(
    say: Callable[[str], None],
    words: str = WORDS,
    left: str = "",
    *,
    costs: Callable[[], bool] = lambda: True,
    nothing: str = "",
) -> Iterator[Callable[[], bool]]:
    """Within, a first interrupt is told by the function, and by ``say``; a second one interrupts.

    Where something else decides what becomes of interrupts, or ignores them, it is left to that.

    Args:
        say: Tells whoever interrupted.
        words: What they are told.
        left: What a second interrupt says of what is left.
        costs: Whether an interrupt would cost anything by now; as long as it does not, the first one interrupts.
        nothing: What that one says.
    """
    asked = False

    def hold(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if not costs():
            raise KeyboardInterrupt(nothing)
        if asked:
            raise KeyboardInterrupt(left)
        asked = True
        say(words)

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    signal.signal(signal.SIGINT, hold)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def saying(words: str) -> Iterator[None]:
    """Within, an interrupt that says nothing of what is left says this."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(str(stop) or words) from stop
