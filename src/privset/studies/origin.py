"""Where a result comes from: the code and the command that made it."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def command_of(program: str, arguments: Sequence[str]) -> str:
    """A command for a file of results, without where things are on this machine.

    >>> command_of("privset study run", ["real", "--results", "/home/me/results", "--jobs", "2", "--data-dir=/data"])
    'privset study run real --jobs 2'
    """
    words, place = [], False
    for word in arguments:
        name = word.partition("=")[0].replace("_", "-")
        if not place and name not in ("--results", "--data-dir"):
            words.append(word)
        place = not place and "=" not in word and name in ("--results", "--data-dir")
    return f"{program} {shlex.join(words)}"


def commit() -> str | None:
    """The commit of privset's source, with "+" if the package differs from it; None where it is not in git.

    A copy that has not its history, or another one, is told by the variable PRIVSET_COMMIT.
    """
    told = os.environ.get("PRIVSET_COMMIT")
    if told:
        return told

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=PACKAGE, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # Installed into some other project's folder, the commit there would say nothing about this code.
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
