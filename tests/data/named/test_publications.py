from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privset.data.named import cifar, idx
from privset.data.named.publications import NamedSource, digits
from privset.data.options import ReadingOptions
from privset.data.records import Records
from privset.errors import DataError
from privset.observer import Observer


def _read(published: Any, folder: Path, options: ReadingOptions | None = None) -> tuple[Records, Records]:
    source = NamedSource(named=published.named, data_dir=folder)
    facts = source.outline(Observer()).facts(options or ReadingOptions())
    train, test = source.read(facts, Observer())
    assert test is not None
    return train, test


def test_idx_files_become_records(tmp_path: Path, tiny_mnist: Any) -> None:
    train, test = _read(tiny_mnist, tiny_mnist.write(tmp_path))
    expected = idx.parse(tiny_mnist.contents["train-images-idx3-ubyte"], "x")
    assert np.array_equal(train.images[:, 0].numpy(), expected)
    assert test.labels.tolist() == list(range(10))


def test_batches_become_records_in_order(tmp_path: Path, tiny_cifar: Any) -> None:
    train, test = _read(tiny_cifar, tiny_cifar.write(tmp_path))
    second, _ = cifar.parse(tiny_cifar.contents["data_batch_2.bin"], "x")
    held, _ = cifar.parse(tiny_cifar.contents["test_batch.bin"], "x")
    assert np.array_equal(train.images[10:20].numpy(), second)
    assert np.array_equal(test.images.numpy(), held)


def test_named_sets_are_resized_and_recoloured(tmp_path: Path, tiny_mnist: Any) -> None:
    train, test = _read(tiny_mnist, tiny_mnist.write(tmp_path), ReadingOptions(size=32, channels=3))
    assert train.images.shape == (20, 3, 32, 32)
    assert test.images.shape == (10, 3, 32, 32)


def test_files_that_disagree_are_refused(tmp_path: Path, tiny_mnist: Any) -> None:
    """Checksums make this impossible for the real files; a wrong catalogue entry would be caught."""
    swapped = tuple(tiny_mnist.named.files[index] for index in (0, 3, 2, 1))
    wrong = dataclasses.replace(tiny_mnist, named=dataclasses.replace(tiny_mnist.named, files=swapped))
    with pytest.raises(DataError, match=r"mnist: 20 images but 10 labels"):
        _read(wrong, wrong.write(tmp_path))


def test_digits_keep_every_image_once() -> None:
    from sklearn.datasets import load_digits

    (images, labels), (held, held_labels) = digits()
    flat, _ = load_digits(return_X_y=True)
    original = np.rint(flat * 255 / 16).astype(np.uint8)
    both = np.concatenate([images, held])
    assert sorted(image.tobytes() for image in both) == sorted(image.tobytes() for image in original)
    shares = np.bincount(held_labels) / (np.bincount(labels) + np.bincount(held_labels))
    assert np.abs(shares - 0.2).max() < 0.005
