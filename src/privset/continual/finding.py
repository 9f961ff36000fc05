"""Where releases are in folders that were received: everything there is one, or is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from privset.continual.documents import EVALUATIONS, FIGURES, RESULTS
from privset.continual.guarantee import FILE as GUARANTEE
from privset.continual.notes import check_alone
from privset.errors import ReleaseError
from privset.exports import Format, format_of
from privset.files import litter
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.release.folder import NOTE, RELEASE, releases_in


def find(folders: Sequence[Path], *, own: Path | None = None) -> list[Path]:
    """The release folders in these, in order: each is a release, a stage, or a folder of such, by number and name.

    In a folder of such everything is taken: one that is not whole is not passed over as if it had not been received.

    Args:
        folders: Where to look.
        own: The stage that receives, which may lie in such a folder with the others and is passed over there.

    Raises:
        ReleaseError: There is no release in one of them, or something that is none, or a stage has more in it than
            its release and its note.
    """
    return [release for folder in folders for release in _releases(folder, own)]


def _releases(folder: Path, own: Path | None) -> list[Path]:
    try:
        entries = [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise ReleaseError(
            f"{folder} cannot be read ({error.strerror}); give a release, a stage, or a folder of such"
        ) from error
    names = {path.name for path in entries}
    inner = sorted((path for path in entries if _is_received(path, own)), key=_natural)
    # Whatever files are in it too; but where one's own stage lies as well, it is a folder of such.
    inside = {path.name for path in inner if not path.is_file()}
    stage = bool(inside) and inside <= _OF_A_STAGE and not _holds(folder, own)
    if CERTIFICATE_FILE in names or NOTE in names or stage:
        if to := format_of(folder):
            raise ReleaseError(f"{folder} is {_export(to)}; give that release")
        if here := releases_in(folder):
            check_alone(folder)
            return here
        raise ReleaseError(
            f"{folder} has {', '.join(sorted(names))}, and no release that is whole; get it again from its source, or "
            "have the stage finished there"
        )
    if not inner:
        raise ReleaseError(f"{folder}: there is no release in it; give a release, a stage, or a folder of such")
    for path in inner:
        if to := format_of(path):
            raise ReleaseError(
                f"{folder} has {path.name}, {_export(to)}; move it out of there, or name the releases that are meant "
                "one by one"
            )
    odd = [path.name for path in inner if not releases_in(path)]
    if odd:
        raise ReleaseError(
            f"{folder} has {', '.join(odd)}, with no release that is whole; get it again from its source, or take out "
            "what does not belong there, or name the releases that are meant one by one"
        )
    for path in inner:
        check_alone(path)
    return [release for path in inner for release in releases_in(path)]


def _export(to: Format) -> str:
    return f"an export to {to}: a copy for other tools, which cannot be verified as the release it was made from can"


_OF_A_STAGE = {RELEASE, f"{RELEASE}.unfinished"}
_OF_A_COURSE = {GUARANTEE, RESULTS, *FIGURES}
"""Files that lie beside the stages of a course."""


def _is_received(path: Path, own: Path | None) -> bool:
    """Whether a path in a folder of releases ought to be one of them."""
    if _holds(path, own):
        return False
    if path.is_file():
        return path.name not in _OF_A_COURSE and not litter(path)
    return path.name != EVALUATIONS or bool(releases_in(path))


def _holds(path: Path, own: Path | None) -> bool:
    return own is not None and own.resolve().is_relative_to(path.resolve())


def _natural(path: Path) -> list[tuple[int, str]]:
    """``stage-2`` before ``stage-10``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]
