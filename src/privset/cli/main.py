"""`privset COMMAND ...`: which command is meant, and how errors end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence

from privset.cli import console
from privset.cli.completion import completion
from privset.cli.continual import continual
from privset.cli.datasets import datasets
from privset.cli.distil import distil
from privset.cli.evaluate import evaluate
from privset.cli.export import export
from privset.cli.generate import generate
from privset.cli.measure import measure
from privset.cli.memory import keep_freed_memory
from privset.cli.merge import merge
from privset.cli.methods import methods
from privset.cli.plan import plan
from privset.cli.report import report
from privset.cli.sample import sample
from privset.cli.study import study
from privset.cli.verify import verify
from privset.errors import PrivsetError, did_you_mean
from privset.version import __version__

COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "datasets": datasets,
    "methods": methods,
    "plan": plan,
    "generate": generate,
    "measure": measure,
    "distil": distil,
    "sample": sample,
    "evaluate": evaluate,
    "verify": verify,
    "merge": merge,
    "continual": continual,
    "export": export,
    "report": report,
    "study": study,
    "completion": completion,
}


_CHARGED = "nothing was released; what was charged, if anything was, stays in the ledger"
_KEPT = {
    "generate": _CHARGED,
    "measure": _CHARGED,
    "distil": "nothing had been kept yet; to begin again costs nothing",
    "continual": "finished stages stay; of one that was begun, what was charged, if anything was, stays in its ledger",
}
"""What is left of a command that was interrupted."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Exits with 0 if all is well, 1 if a check failed, 2 for what the user can mend."""
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever reads it has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at the very end
        return 128 + signal.SIGPIPE


def _run(arguments: Sequence[str] | None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        console.show(overview())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        console.show(f"privset {__version__}")
        return 0
    command = COMMANDS.get(arguments[0])
    if command is None:
        near, known = did_you_mean(arguments[0], COMMANDS), ", ".join(COMMANDS)
        console.warn(f"privset: there is no command {arguments[0]!r}; the commands are {known}.{near}")
        return 2
    keep_freed_memory()
    try:
        return command(arguments[1:])
    except PrivsetError as error:
        console.warn(f"privset: {error}")
        return 2
    except (MemoryError, RuntimeError) as error:
        if not _is_for_want_of_memory(error):
            raise
        reason = str(error).splitlines()[0] if str(error) else "MemoryError"
        charged = (
            " What was charged by then, if anything, is in the ledger beside --out, and the same command goes on, with "
            "more memory, where its method can."
        )
        console.warn(
            f"privset: there is not enough memory ({reason}). Ask for fewer images, smaller samples or a smaller "
            "network." + (charged if arguments[0] in ("generate", "measure", "continual") else "")
        )
        return 2
    except KeyboardInterrupt as stop:
        kept = str(stop) or _KEPT.get(arguments[0], "")  # a run that can go on says so itself
        console.warn(f"privset: stopped{'; ' if kept else ''}{kept}")
        return 130


def _is_for_want_of_memory(error: Exception) -> bool:
    """Whether it says so: torch has a type of its own for a graphics card only."""
    words = ("can't allocate memory", "out of memory", "not enough memory")
    return isinstance(error, MemoryError) or any(one in str(error).lower() for one in words)


def overview() -> str:
    """One line a command."""
    lines = [f"  privset {name:<10} {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "privset: a small synthetic set in place of private images, with a differential-privacy guarantee.",
            "",
            *lines,
            "",
            "`privset COMMAND --help` shows every setting of a command. Exit codes: 0 all is well, 1 a check failed,",
            "2 something you can mend, with a sentence that says what.",
        ]
    )
