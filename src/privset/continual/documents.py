"""Small files that a run of several stages writes beside its releases: whole or not at all, and the same way always."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from privset import files
from privset.errors import ReleaseError

RESULTS = "continual.json"
"""What came of a course: accuracies and counts."""
FIGURES = ("accuracy.svg", "accuracy.png")
"""Accuracies after each stage of a course, drawn."""
EVALUATIONS = "evaluations"
"""Folder of a course with what was measured on real test images: beside the stages, not in them, for a stage is handed
on, and accuracies on real images have no guarantee."""


def write(path: Path, content: bytes) -> None:
    """Write or replace a file, whole or not at all.

    Raises:
        ReleaseError: It cannot be written.
    """
    try:
        files.write(path, content, alone=True)
    except OSError as error:
        raise ReleaseError(f"{path} cannot be written ({error.strerror}); mend that, and run it again") from error


def write_json(path: Path, document: Any) -> None:
    """Write or replace a JSON file, whole or not at all."""
    write(path, files.as_json(document))
