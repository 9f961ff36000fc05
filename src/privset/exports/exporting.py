"""From a release to a folder in one of the formats."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, get_args

from privset.errors import ConfigError
from privset.exports import archive, card, images, table, tensors
from privset.observer import Observer
from privset.release import LEDGER_FILE, Release, check_writable, load, require_verified, synthetic
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.release.folder import in_stage, write_folder
from privset.release.loading import read_file

Format = Literal["png", "npz", "parquet", "torch"]

Files = Iterator[tuple[str, bytes]]
"""Path in the folder, and bytes, of one file after the other."""

FORMATS: dict[Format, Callable[[Release, Observer], Files]] = {
    "png": images.files,
    "npz": archive.files,
    "parquet": table.files,
    "torch": tensors.files,
}
"""What each format puts beside certificate, ledger, card and, of a joined set, the certificates of its parts."""


def export(
    release: Release | str | Path, *, to: Format, out: str | Path | None = None, observer: Observer | None = None
) -> Path:
    """Write the set of a release in the format ``to``, with its certificate and a card that says what it guarantees.

    Args:
        release: The release, or its folder; either way what is in the folder is verified, and used.
        to: ``png``, folders by class and a table of labels; ``npz`` for NumPy; ``parquet`` in the Hugging Face layout;
            ``torch``, a file for ``torch.load``. png and parquet come with a ``croissant.json``.
        out: Folder to write; it must not exist. By default ``RELEASE-FORMAT``, beside the release.
        observer: Told about progress.

    Returns:
        The folder.

    Raises:
        PrivsetError: The release does not verify, or the folder cannot be written; nothing is left of it then.
    """
    if to not in FORMATS:
        raise ConfigError(f"a release can be exported to {', '.join(get_args(Format))}, not to {to!r}")
    observer = observer or Observer()
    folder = release.path if isinstance(release, Release) else Path(release)
    where = default_out(folder, to) if out is None else Path(out)
    check_writable(where)
    observer.phase("verifying the release", 0)
    require_verified(folder, "exported from it")
    return write_folder(where, _files(load(folder), to, observer), durable=False)


def format_of(folder: Path) -> Format | None:
    """The format of a folder that looks like an export; None if it is anything else, such as a release.

    It is told by its files, and nothing shows that they are what they were.
    """
    if not os.path.isfile(folder / CERTIFICATE_FILE) or os.path.isfile(folder / synthetic.FILE):
        return None
    return next((to for to, name in _SIGNS.items() if os.path.isfile(folder / name)), None)


_SIGNS: dict[Format, str] = {
    "png": images.METADATA,
    "npz": archive.NAME,
    "parquet": table.NAME,
    "torch": tensors.NAME,
}
"""A file that each format has, and releases do not."""


def default_out(folder: Path, to: Format) -> Path:
    """Where an export goes if no one says: beside the release, or beside its stage, which is handed on whole."""
    folder = Path(os.path.abspath(folder))
    if in_stage(folder):
        folder = folder.parent
    return folder.with_name(f"{folder.name}-{to}")


def _files(release: Release, to: Format, observer: Observer) -> Files:
    yield card.FILE, card.write(release.certificate, to).encode()
    kept = (name for name in release.certificate.files if name == LEDGER_FILE or name.startswith("parts/"))
    for name in (CERTIFICATE_FILE, *kept):
        yield name, read_file(release.path, name)
    yield from FORMATS[to](release, observer)
