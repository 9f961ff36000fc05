"""The files of a named set as they are kept: plain, in gzip, or in one tar archive; all verified."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from privset.data.named.catalogue import NamedFile, NamedSet
from privset.errors import DataError

_DAMAGE = (OSError, EOFError, zlib.error, tarfile.TarError)


def verify(file: NamedFile, content: bytes, where: str) -> bytes:
    """``content`` if it is the published file ``file``, byte for byte.

    >>> verify(NamedFile(name="a", size=3, sha256=""), b"ab", "/data/a")
    Traceback (most recent call last):
    privset.errors.DataError: /data/a: truncated: 2 bytes of 3; remove it and fetch it again
    """
    if len(content) < file.size:
        raise DataError(f"{where}: truncated: {len(content)} bytes of {file.size}; remove it and fetch it again")
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise DataError(
            f"{where}: not the published file (wrong sha256); remove it and fetch it again (data sets share "
            "file names: keep each in a folder of its own name)"
        )
    return content


def unpack(file: NamedFile, packed: bytes, where: str) -> bytes:
    """The verified content of ``file`` from its gzip form."""
    try:
        with gzip.open(io.BytesIO(packed)) as stream:
            # One byte more than expected is enough to tell, however much a malicious file would unpack to.
            content = stream.read(file.size + 1)
    except _DAMAGE as error:
        raise DataError(f"{where}: damaged or truncated gzip ({error}); remove it and fetch it again") from error
    return verify(file, content, where)


def unpack_archive(named: NamedSet, archive: io.BufferedIOBase, where: str) -> dict[str, bytes]:
    """Name -> verified content of every file of ``named``, from the tar archive of its release.

    Members are read into memory under the catalogue's names; nothing is extracted to disk.
    """
    wanted = {file.name: file for file in named.files}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=archive, mode="r:gz") as members:
            for member in members:
                file = wanted.get(PurePosixPath(member.name).name)
                stream = members.extractfile(member) if file and member.isfile() else None
                if file and stream:
                    found[file.name] = verify(file, stream.read(file.size + 1), f"{where}: {member.name}")
    except _DAMAGE as error:
        raise DataError(f"{where}: damaged or truncated archive ({error}); remove it and fetch it again") from error
    missing = [name for name in wanted if name not in found]
    if missing:
        raise DataError(f"{where}: has no {missing[0]}; it is not the release of {named.name}")
    # The archive has its own order; training files come before test files only in the catalogue's.
    return {name: found[name] for name in wanted}


def present(named: NamedSet, folder: Path) -> bool:
    """Whether ``folder`` has anything of ``named``."""
    names = [variant for file in named.files for variant in (file.name, f"{file.name}.gz")]
    return any((folder / name).is_file() for name in (*names, *((named.archive,) if named.archive else ())))


def read_folder(named: NamedSet, folder: Path) -> dict[str, bytes]:
    """Name -> verified content of every file of ``named`` in ``folder``.

    Raises:
        DataError: A file is missing or is not what it should be; the message names it.
    """
    try:
        return _read_folder(named, folder)
    except OSError as error:
        raise DataError(f"{error.filename or folder}: cannot be read ({error.strerror})") from error


def _read_folder(named: NamedSet, folder: Path) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for file in named.files:
        plain, packed = folder / file.name, folder / f"{file.name}.gz"
        if plain.is_file():
            contents[file.name] = verify(file, plain.read_bytes(), str(plain))
        elif packed.is_file():
            contents[file.name] = unpack(file, packed.read_bytes(), str(packed))
        elif named.archive and (folder / named.archive).is_file():
            with (folder / named.archive).open("rb") as stream:
                return unpack_archive(named, stream, str(folder / named.archive))
        else:
            either = f"{file.name} or {file.name}.gz" if named.form == "idx" else file.name
            raise DataError(f"{folder}: has no {either}, but has other files of {named.name}; add it")
    return contents
