"""Small files that are written whole or not at all.

Nothing here is durable, or for its owner's eyes alone: for what must be, see `privset.privacy.kept.write_whole`.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any


def write(path: Path, content: bytes, *, alone: bool = False) -> None:
    """Write or replace a file, whole or not at all; its folder is made where there is none.

    Args:
        path: The file.
        content: All of it.
        alone: Whether no other process writes it; then what one that was killed left half-written goes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if alone:
        for left in path.parent.glob(f".{path.name}.*.partial"):
            left.unlink()
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def unwritable(folder: Path) -> str | None:
    """Why nothing could be put into a folder, which may not be there yet; None if it could."""
    place = next(one for one in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(one))
    if not place.is_dir():
        return f"{place} is not a folder"
    return None if os.access(place, os.W_OK | os.X_OK) else f"{place} cannot be written to"


def litter(path: Path) -> bool:
    """Whether it is what file managers leave wherever they look."""
    return path.name in (".DS_Store", "Thumbs.db", "desktop.ini") and path.is_file() and not path.is_symlink()


def as_json(document: Any) -> bytes:
    """As JSON for people to read too; there is no infinity in JSON."""
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()
