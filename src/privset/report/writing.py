"""From folders and files to one file that can be opened anywhere."""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from privset.errors import ConfigError
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.report.page import page, shows_accuracies
from privset.report.sources import add_evaluations, read_results, read_subjects


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """A page that was written.

    Attributes:
        path: The file.
        accuracies: Whether any accuracy is on it, of a release or of a study; these carry no guarantee.
    """

    path: Path
    accuracies: bool


def write_report(
    releases: Sequence[str | Path],
    out: str | Path = "report.html",
    *,
    evaluations: Sequence[str | Path] = (),
    results: str | Path | None = None,
    replace: bool = False,
) -> Report:
    """Write one self-contained HTML page about one release, or about several side by side.

    Args:
        releases: Their folders: sets, or statistics. Each is verified first.
        out: The file to write.
        evaluations: Files that `privset evaluate RELEASE --json` printed, each for one of the releases.
        results: Folder of studies, to draw how accuracy grows; only those of the same data are used.
        replace: Whether ``out`` may exist.

    Returns:
        The file, and whether it shows what was measured on real images.

    Raises:
        ReleaseError: A release that cannot be read, or does not hold.
        DataError: An evaluation or a result that cannot be read, or belongs to another set.
        ConfigError: No release, or a file that cannot be written. Nothing half-written is left.
    """
    out = Path(out)
    if not releases:
        raise ConfigError("a report is about one release or more, and none was given: privset report RELEASE")
    _check_writable(out, replace=replace)
    subjects = read_subjects([Path(one) for one in releases])
    subjects = add_evaluations(subjects, [Path(one) for one in evaluations])
    studied = read_results(None if results is None else Path(results))
    _write(out, page(subjects, studied), replace=replace)
    return Report(path=out, accuracies=shows_accuracies(subjects, studied))


def _check_writable(out: Path, *, replace: bool) -> None:
    """Before any work: verifying may take a while."""
    if out.is_dir():
        raise ConfigError(f"{out} is a folder; name the file to write, such as {out / 'report.html'}")
    if out.exists() and not replace:
        raise ConfigError(f"{out} exists already; say --replace to write over it, or choose another --out")
    if (out.parent / CERTIFICATE_FILE).exists():
        raise ConfigError(f"{out} lies inside a release, which would not verify with it; write it beside the folder")
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"{out} cannot be written, because {out.parent} is not a folder; make it, or choose another")


def _write(out: Path, content: bytes, *, replace: bool) -> None:
    """Whole or not at all; without ``replace`` not even over a file that has appeared since."""
    partial = out.with_name(f".{out.name}.partial-{secrets.token_hex(4)}")
    try:
        partial.write_bytes(content)
        if replace:
            os.replace(partial, out)
        else:
            _claim_and_replace(partial, out)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written ({error.strerror}); choose another --out") from error
    finally:
        partial.unlink(missing_ok=True)


def _claim_and_replace(partial: Path, out: Path) -> None:
    """Like a rename that fails where there is a file; not every file system could do it with a hard link."""
    os.close(os.open(out, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        os.replace(partial, out)
    except BaseException:
        out.unlink(missing_ok=True)
        raise
