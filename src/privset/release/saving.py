"""Writes a release folder: whole or not at all, and nothing that its certificate does not vouch for."""

from __future__ import annotations

from pathlib import Path

from privset.errors import ReleaseError
from privset.release import card
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.release.certificate import Certificate, sha256
from privset.release.folder import write_folder
from privset.release.issuing import Content, content_files, given_files


def save(
    folder: Path,
    content: Content,
    certificate: Certificate,
    ledger_path: Path | None,
    config_file: bytes | None = None,
) -> Path:
    """Write the whole release, or nothing.

    Args:
        folder: Where; it must not exist.
        content: The set, the statistics or the classifier that the certificate was made for.
        certificate: Its certificate.
        ledger_path: The curator's ledger, which is copied; None if the certificate was made without one.
        config_file: The bytes of the configuration file, likewise.

    Returns:
        The folder, as an absolute path.

    Raises:
        ReleaseError: It exists, cannot be written, or content, ledger and certificate do not belong together.
    """
    return save_with(folder, content, certificate, given_files(ledger_path, config_file))


def save_with(folder: Path, content: Content, certificate: Certificate, given: dict[str, bytes]) -> Path:
    """Like `save`, with the files that do not follow from content and certificate, by name in the folder."""
    return write_folder(folder, _files(content, certificate, given).items())


def _files(content: Content, certified: Certificate, given: dict[str, bytes]) -> dict[str, bytes]:
    """Name and content of every file; refuses what the certificate does not vouch for."""
    files = content_files(content) | {card.FILE: card.write(certified).encode()} | given
    digests = {name: sha256(content) for name, content in files.items()}
    if digests != certified.files:
        odd = sorted({name for name, _ in digests.items() ^ certified.files.items()})
        raise ReleaseError(f"the certificate was made for something else: {', '.join(odd)} differ")
    return files | {CERTIFICATE_FILE: certified.to_bytes()}
