"""Columns of labels, checked: one integer for each image, counted from 0 with none left out."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from privset.errors import DataError


def check_labels(labels: np.ndarray, where: str, classes: int | None = None) -> np.ndarray:
    """``labels`` as int64 ``[n]``.

    Args:
        labels: Whatever was stored.
        where: File and column, for the message.
        classes: Number of declared classes; labels must be below it.

    >>> check_labels(np.array([0, -1]), "y")
    Traceback (most recent call last):
    privset.errors.DataError: y[1] is -1; labels count from 0 (-1 often means "missing": leave those out)
    """
    if labels.ndim != 1:
        raise DataError(f"{where} has shape {labels.shape}; it must hold one label for each image, shape [n]")
    if labels.dtype.kind not in "iu":
        raise DataError(f"{where} is {labels.dtype}; labels must be whole numbers, stored as integers")
    if len(labels) and labels.min() < 0:
        index = int((labels < 0).argmax())
        advice = 'labels count from 0 (-1 often means "missing": leave those out)'
        raise DataError(f"{where}[{index}] is {labels[index]}; {advice}")
    if classes is not None and len(labels) and labels.max() >= classes:
        index = int((labels >= classes).argmax())
        raise DataError(f"{where}[{index}] is {labels[index]}, but {classes} classes are named")
    if len(labels) and labels.max() > np.iinfo(np.int64).max:
        raise DataError(f"{where} has labels beyond 64 bits")
    return labels.astype(np.int64)


def count_classes(labels: np.ndarray, where: str, remedy: str) -> int:
    """Number of classes in ``labels`` where nobody declared it: 0, 1, 2, ... without a gap."""
    present = np.unique(labels)
    expected = np.arange(len(present))
    if not np.array_equal(present, expected):
        missing = int(expected[present != expected][0])
        raise DataError(
            f"{where} has labels up to {present[-1]} but none that is {missing}; number the classes from 0 "
            f"without gaps, or {remedy}"
        )
    return len(present)


def check_unseen(train: Tensor, test: Tensor, classes: tuple[str, ...], where: str) -> None:
    """Refuse a test split with a class that no training record has: no classifier could be right about it."""
    unseen = sorted(set(torch.unique(test).tolist()) - set(torch.unique(train).tolist()))
    if unseen:
        names = ", ".join(repr(classes[label]) for label in unseen)
        raise DataError(
            f"{where}: the test split has class(es) {names} that no training record has; add training "
            "images of it, remove it from the test split, or hold out a smaller test_fraction"
        )
