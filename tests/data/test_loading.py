from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privset.data import facts_of, load
from privset.data.named import catalogue
from privset.errors import ConfigError, DataError


def test_named_idx_set(tmp_path: Path, tiny_mnist: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.SETS, "mnist", tiny_mnist.named)
    tiny_mnist.write(tmp_path / "mnist")
    data = load("mnist", data_dir=tmp_path)
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (20, 10)
    assert data.facts == facts_of("mnist")


@pytest.mark.parametrize("options", [{}, {"size": 8}, {"channels": 1}, {"size": 40, "channels": 1}])
def test_named_cifar_set(
    tmp_path: Path, tiny_cifar: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setitem(catalogue.SETS, "cifar10", tiny_cifar.named)
    tiny_cifar.write(tmp_path)
    data = load("cifar10", data_dir=str(tmp_path), **options)
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (50, 10)
    assert data.facts == facts_of("cifar10", **options)


@pytest.mark.parametrize(
    "options", [{}, {"size": 16}, {"channels": 3}, {"mean": 0.1, "std": 0.2}, {"size": 9, "channels": 3}]
)
def test_digits_with_options(options: dict[str, Any]) -> None:
    data = load("digits", **options)
    assert data.facts == facts_of("digits", **options)
    assert tuple(data.train.images.shape[1:]) == data.facts.shape


def test_facts_of_named_sets_need_no_files() -> None:
    assert facts_of("cifar10", size=16).shape == (3, 16, 16)
    assert facts_of("mnist", data_dir="/absent").size == 60000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("mnits", "'mnits' is neither a named data set nor a file or folder. Did you mean mnist?"),
        ("Fashion_MNIST", "Did you mean fashion-mnist?"),
        ("imagenet", "folder. The names are digits, mnist, fashion-mnist, cifar10; a path is to a folder of"),
        ("./mnist", "'./mnist' is neither .*folder. The names are"),
        (Path("absent.npz"), "'absent.npz' is neither"),
    ],
)
def test_unknown_data(data: str | Path, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for ask in (load, facts_of):
        with pytest.raises(DataError, match=message):
            ask(data)


def test_unreadable_kind_of_file(tmp_path: Path) -> None:
    path = tmp_path / "data.pkl"
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"data.pkl: cannot be read as images; data is a folder of .*npz.*parquet"):
        load(path)


def test_data_dir_is_for_named_sets(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.zeros((2, 8, 8), np.uint8), y=[0, 1])
    with pytest.raises(ConfigError, match=r"own.npz is a path: leave data-dir out"):
        load(tmp_path / "own.npz", data_dir=tmp_path)
    with pytest.raises(ConfigError, match=r"digits is built in"):
        load("digits", data_dir=tmp_path)


def test_a_variable_that_names_no_folder_is_an_error_and_nothing_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVSET_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"nowhere: \$PRIVSET_DATA is no folder"):
        load("mnist")


def test_name_wins_over_folder_and_dot_slash_wins_over_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("digits").facts.size == 1438
    for folder in ("./digits", Path("digits")):
        with pytest.raises(DataError, match=r"digits: the folder holds no class folders"):
            load(folder)


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    np.savez(tmp_path / "own.npz", x=np.zeros((2, 8, 8), np.uint8), y=[0, 1])
    assert load("~/own.npz").facts.name == "own.npz"


def test_test_fraction_holds_out(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    np.savez(path, x=np.zeros((20, 8, 8), np.uint8), y=[0, 1] * 10)
    data = load(path, test_fraction=0.25)
    assert data.test is not None
    assert (len(data.train), len(data.test), data.facts.size) == (15, 5, 15)
    assert load(path).test is None
    assert torch.bincount(data.train.labels).sum() == 15
