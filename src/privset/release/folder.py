"""A folder that is written whole or not at all.

Everything is first written into a hidden folder beside the target, ``.NAME.partial-XXXXXXXX``; then that folder is
renamed. A killed run leaves nothing half-written under the target's name, and what it does leave is known by its name.
"""

from __future__ import annotations

import glob
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

from privset.errors import ReleaseError
from privset.privacy.ledger import sync_folder
from privset.release import classifier, statistics, synthetic
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.release.certificate import LEDGER_FILE

RELEASE = "release"
"""Where a stage of continual learning, which is handed on as a whole, has its release."""


NOTE = "stage.json"
"""What such a stage says of it, for people and programs."""


def releases_in(folder: Path) -> list[Path]:
    """The folder itself if it is a release, the one it holds if it is a stage, or nothing.

    A release that has lost its certificate is no stage: what is nested in it, whoever put it there, is not what it was.
    """
    # By os.path, which takes what it may not look into for nothing; whoever reads it then says so.
    within = [folder] if was_release(folder) else [folder, folder / RELEASE]
    return [path for path in within if os.path.isfile(path / CERTIFICATE_FILE)][:1]


def in_stage(folder: Path) -> bool:
    """Whether it lies where a stage, which has a note, has its release."""
    whole = Path(os.path.abspath(folder))
    return whole.name == RELEASE and os.path.isfile(whole.parent / NOTE)


def was_release(folder: Path) -> bool:
    """Whether it lies where a stage has its release, or holds what only releases do."""
    if in_stage(folder):
        return True
    if os.path.isfile(folder / NOTE):
        return False
    return any(os.path.isfile(folder / name) for name in _OF_RELEASES)


_OF_RELEASES = (LEDGER_FILE, synthetic.FILE, statistics.FILE, classifier.FILE)


def release_in(folder: str | Path) -> Path:
    """As `releases_in`; the folder itself if there is no release in it."""
    return (releases_in(Path(folder)) or [Path(folder)])[0]


class CompleteElsewhereError(ReleaseError):
    """A release is whole, but under another name; it says which."""


def check_writable(folder: Path) -> None:
    """Make sure that ``folder`` can be written; to be called before any budget is charged.

    Nothing is left behind: missing parents are not created yet.

    Raises:
        ReleaseError: The target exists or lies in a release, or its parent cannot be written to.
    """
    folder = Path(os.path.abspath(folder))
    if os.path.lexists(folder):
        raise ReleaseError(f"{folder} exists already, and nothing is ever replaced; choose another folder")
    inside = next((one for one in folder.parents if os.path.isfile(one / CERTIFICATE_FILE)), None)
    if inside is not None:
        raise ReleaseError(f"{folder} would lie in {inside}, which is whole as it is; choose a place outside of it")
    ancestor = folder.parent
    while not os.path.lexists(ancestor):
        ancestor = ancestor.parent
    if not ancestor.is_dir():
        raise ReleaseError(f"{folder} cannot be made, because {ancestor} is not a folder; choose another place")
    # The very name that will be used: this finds read-only places, and names that are too long, alike.
    probe = ancestor / _partial(folder.name).name
    try:
        probe.mkdir()
        probe.rmdir()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ReleaseError(
            f"{folder} cannot be written in {ancestor} ({reason}); choose a place where you may write"
        ) from error


def write_folder(folder: Path, files: Iterable[tuple[str, bytes]], *, durable: bool = True) -> Path:
    """Write these files, given by their path in the folder and their bytes, or nothing.

    Args:
        folder: Where; it must not exist.
        files: They may be made as they are written.
        durable: Wait until everything is on the disk. What can be made again need not be.

    Returns:
        The folder, as an absolute path.

    Raises:
        ReleaseError: It exists or cannot be written.
    """
    folder = Path(os.path.abspath(folder))
    check_writable(folder)
    partial = folder.parent / _partial(folder.name)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        for name, content in files:
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, content, durable)
        if durable:
            sync_folder(partial)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise ReleaseError(
                f"{folder} cannot be written ({error.strerror}); nothing of it was left there"
            ) from error
        raise
    try:
        if os.path.lexists(folder):  # rename would silently take the place of an empty folder
            raise FileExistsError(None, "it exists now, and did not when this run began")
        os.rename(partial, folder)
    except OSError as error:
        # A budget may be spent on it, and it is complete: it must not be thrown away for want of a name.
        raise CompleteElsewhereError(
            f"{folder} cannot be given its name ({error.strerror}); all of it is complete in {partial}: move it"
        ) from error
    if durable:
        sync_folder(folder.parent)
    return folder


def partials(folder: Path) -> list[Path]:
    """What runs that were killed while they wrote ``folder`` left beside it."""
    return sorted(folder.parent.glob(f".{glob.escape(folder.name)}.partial-{'[0-9a-f]' * 8}"))


def _partial(name: str) -> Path:
    return Path(f".{name}.partial-{secrets.token_hex(4)}")


def _write(path: Path, content: bytes, durable: bool) -> None:
    with open(path, "xb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
