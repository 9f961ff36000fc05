from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from privset.data.named.packing import present, read_folder, unpack, unpack_archive, verify
from privset.errors import DataError


def test_only_the_published_bytes_are_verified(tiny_mnist: Any) -> None:
    for file in tiny_mnist.named.files:
        content = tiny_mnist.contents[file.name]
        assert verify(file, content, "here") is content
        with pytest.raises(DataError, match=r"here: truncated"):
            verify(file, content[:-1], "here")
        with pytest.raises(DataError, match=r"here: not the published file \(wrong sha256\)"):
            verify(file, content + b"\0", "here")


def test_any_gzip_header_will_do(tiny_mnist: Any) -> None:
    """Debian strips the time and the name from the header; the content is what counts."""
    file = tiny_mnist.named.files[0]
    content = tiny_mnist.contents[file.name]
    buffer = io.BytesIO()
    with gzip.GzipFile("some-name", "wb", 1, buffer, mtime=12345) as stream:
        stream.write(content)
    assert unpack(file, buffer.getvalue(), "here") == unpack(file, gzip.compress(content, mtime=0), "here")


def test_archive_members_never_reach_the_disk(tmp_path: Path, tiny_cifar: Any) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in {**tiny_cifar.contents, "evil": b"x"}.items():
            info = tarfile.TarInfo(f"../../{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    buffer.seek(0)
    assert unpack_archive(tiny_cifar.named, buffer, "here") == tiny_cifar.contents
    assert list(tmp_path.iterdir()) == []


def test_presence_is_any_file(tmp_path: Path, tiny_mnist: Any) -> None:
    assert not present(tiny_mnist.named, tmp_path)
    assert not present(tiny_mnist.named, tmp_path / "absent")
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(b"")
    assert present(tiny_mnist.named, tmp_path)


def test_unreadable_file_is_named(tmp_path: Path, tiny_mnist: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    tiny_mnist.write(tmp_path)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte: cannot be read \(Permission denied\)"):
        read_folder(tiny_mnist.named, tmp_path)
