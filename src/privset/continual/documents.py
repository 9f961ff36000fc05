"""Small files that a run of several stages writes beside its releases: whole or not at all, and the same way always."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from privset.errors import ReleaseError


def write(path: Path, content: bytes) -> None:
    """Write or replace a file, whole or not at all.

    Raises:
        ReleaseError: It cannot be written.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f".{path.name}.*.partial"):  # by a process that was killed just then
            left.unlink()
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        raise ReleaseError(f"{path} cannot be written ({error.strerror}); mend that, and run it again") from error
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, document: Any) -> None:
    """Write or replace a JSON file, whole or not at all; there is no infinity in JSON."""
    write(path, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())
