"""The release folder: written whole or not at all, and read with suspicion.

Everything is first written into a hidden folder beside the target, ``.NAME.partial-XXXXXXXX``, and made
durable there; then that folder is renamed. A killed run leaves no half release under the release's name, and
what it does leave is known by its name.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from privset import methods
from privset.errors import ConfigError, ReleaseError
from privset.methods import Measured, MeasuringMethod, require_measuring
from privset.privacy.ledger import sync_folder
from privset.release import card, replanning, statistics, synthetic
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.release.certificate import LEDGER_FILE, Certificate, sha256
from privset.release.issuing import Content, content_files, read_ledger
from privset.release.sections import SetContents
from privset.release.statistics import NoisyStatistics
from privset.release.synthetic import SyntheticSet


@dataclasses.dataclass(frozen=True, eq=False)
class Release:
    """A synthetic set as read from its folder.

    Attributes:
        path: The folder.
        set: The synthetic set.
        certificate: What was asked, what it cost, what it guarantees.
    """

    path: Path
    set: SyntheticSet
    certificate: Certificate


@dataclasses.dataclass(frozen=True, eq=False)
class StatisticsRelease:
    """Noisy statistics as read from their folder.

    Attributes:
        path: The folder.
        statistics: What sets can be distilled from.
        certificate: What was asked, what it cost, what it guarantees.
    """

    path: Path
    statistics: NoisyStatistics
    certificate: Certificate

    def measured(self) -> Measured[Any]:
        """The statistics with the settings and the facts they were measured with.

        Raises:
            ReleaseError: The settings are impossible, or statistics measured with them have another form.
        """
        config = replanning.method_of(self.certificate).config
        found = Measured(config=config, facts=self.certificate.public_facts(), statistics=self.statistics.tensors)
        try:
            require_measuring(methods.get(self.certificate.method))(config).check_form(found)
        except ConfigError as error:
            raise ReleaseError(f"{self.path}: {error}; get the release again from its source") from error
        return found

    def method(self, **settings: Any) -> MeasuringMethod[Any]:
        """The method they were measured with, with some of its settings changed.

        Raises:
            ConfigError: There is no such setting, or they were measured with another value of it.
        """
        measured = self.measured()
        known = {field.name for field in dataclasses.fields(measured.config)}
        if unknown := ", ".join(sorted(settings.keys() - known)):
            raise ConfigError(f"{self.certificate.method} has no setting {unknown}; it has {', '.join(sorted(known))}")
        kind = require_measuring(methods.get(self.certificate.method))
        chosen = kind(dataclasses.replace(measured.config, **settings))
        chosen.check_settings(measured)
        return chosen


def check_writable(folder: Path) -> None:
    """Make sure that a release can be written to ``folder``; to be called before any budget is charged.

    Nothing is left behind: missing parents are not created yet.

    Raises:
        ReleaseError: The target exists, or its parent cannot be written to.
    """
    folder = Path(os.path.abspath(folder))
    if os.path.lexists(folder):
        raise ReleaseError(f"{folder} exists already, and a release never replaces anything; choose another folder")
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


def save(folder: Path, content: Content, certificate: Certificate, ledger_path: Path | None) -> Path:
    """Write the whole release, or nothing.

    Args:
        folder: Where; it must not exist.
        content: The set or the statistics that the certificate was made for.
        certificate: Its certificate.
        ledger_path: The curator's ledger, which is copied; None if the certificate was made without one.

    Returns:
        The folder, as an absolute path.

    Raises:
        ReleaseError: It exists, cannot be written, or content, ledger and certificate do not belong together.
    """
    folder = Path(os.path.abspath(folder))
    files = _files(content, certificate, ledger_path)
    check_writable(folder)
    partial = folder.parent / _partial(folder.name)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        for name, written in files.items():
            _write_durably(partial / name, written)
        sync_folder(partial)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise ReleaseError(f"{folder} cannot be written ({error.strerror}); nothing was left there") from error
        raise
    try:
        if os.path.lexists(folder):  # rename would silently take the place of an empty folder
            raise FileExistsError(None, "it exists now, and did not when this run began")
        os.rename(partial, folder)
    except OSError as error:
        # The budget is spent, and the release is complete: it must not be thrown away for want of a name.
        raise ReleaseError(
            f"{folder} cannot be given its name ({error.strerror}); the complete release is in {partial}: move it"
        ) from error
    sync_folder(folder.parent)
    return folder


def load(folder: str | Path) -> Release:
    """Read a synthetic set. Only JSON and safetensors are read, so a hostile folder cannot run code.

    The form of everything is checked, and that the set is the one the certificate is about. Whether the
    numbers in the certificate are right is for `verify`.

    Raises:
        ReleaseError: A missing or unreadable file, an unknown version, statistics in place of a set, or another set
            than the certificate's.
    """
    folder = Path(folder)
    parsed, where = _certificate(folder), folder / synthetic.FILE
    if not isinstance(parsed.contents, SetContents):
        raise ReleaseError(
            f"{folder} holds statistics, not images; make a set from them with `privset distil {folder} --out SET`"
        )
    loaded = SyntheticSet.from_bytes(read_file(folder, synthetic.FILE), parsed.public_facts(), str(where))
    if loaded.pixel_form != parsed.contents.pixel_form:
        raise ReleaseError(f"{where}: holds {loaded.pixel_form}, but the certificate says {parsed.contents.pixel_form}")
    _check_digest(loaded, parsed, where)
    return Release(folder, loaded, parsed)


def load_statistics(folder: str | Path) -> StatisticsRelease:
    """Read noisy statistics, with the same suspicion as `load` reads a set.

    Raises:
        ReleaseError: A missing or unreadable file, an unknown version, a set in place of statistics, or others than
            the certificate's.
    """
    folder = Path(folder)
    parsed, where = _certificate(folder), folder / statistics.FILE
    if isinstance(parsed.contents, SetContents):
        raise ReleaseError(
            f"{folder} holds a synthetic set, and no set can be distilled from another; give the folder that "
            "`privset measure` wrote"
        )
    loaded = NoisyStatistics.from_bytes(read_file(folder, statistics.FILE), str(where))
    if loaded.shapes != parsed.contents.shapes:
        raise ReleaseError(f"{where}: holds {loaded}, and the certificate is about other shapes; get the release again")
    _check_digest(loaded, parsed, where)
    return StatisticsRelease(folder, loaded, parsed)


def _certificate(folder: Path) -> Certificate:
    return Certificate.parse(read_file(folder, CERTIFICATE_FILE), str(folder / CERTIFICATE_FILE))


def _check_digest(content: Content, certificate: Certificate, where: Path) -> None:
    if content.digest() != certificate.contents.digest:
        what = "set" if isinstance(content, SyntheticSet) else "content"
        raise ReleaseError(
            f"{where}: is not the {what} that {CERTIFICATE_FILE} is about; `privset verify {where.parent}` says more, "
            "and the release should be got again from its source"
        )


def read_file(folder: Path, name: str) -> bytes:
    """The bytes of one file of a release, or a `ReleaseError` that names it."""
    if not folder.is_dir():
        raise ReleaseError(f"{folder} is not a folder; a release is a folder with a {CERTIFICATE_FILE}")
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        raise ReleaseError(f"{folder} has no {name}, so it is not a complete release; get it again") from None
    except OSError as error:
        raise ReleaseError(f"{folder / name} cannot be read ({error.strerror})") from error


def _files(content: Content, certified: Certificate, ledger_path: Path | None) -> dict[str, bytes]:
    """Name and content of every file; refuses what the certificate does not vouch for."""
    files = content_files(content) | {card.FILE: card.write(certified).encode()}
    if ledger_path is not None:
        files[LEDGER_FILE] = read_ledger(ledger_path)
    digests = {name: sha256(content) for name, content in files.items()}
    if digests != certified.files:
        odd = sorted({name for name, _ in digests.items() ^ certified.files.items()})
        raise ReleaseError(f"the certificate was made for something else: {', '.join(odd)} differ")
    return files | {CERTIFICATE_FILE: certified.to_bytes()}


def _partial(name: str) -> Path:
    return Path(f".{name}.partial-{secrets.token_hex(4)}")


def _write_durably(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
