from __future__ import annotations

import numpy as np
import pytest
import torch

from privset.data.labels import check_labels, check_unseen, count_classes
from privset.errors import DataError


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([[0], [1]]), r"a: y has shape \(2, 1\); it must hold one label for each image"),
        (np.array([0.0, 1.0]), "a: y is float64; labels must be whole numbers"),
        (np.array(["cat"]), "labels must be whole numbers"),
        (np.array([True]), "a: y is bool"),
        (np.array([0, 1, -1]), r"a: y\[2\] is -1; labels count from 0"),
        (np.array([2**64 - 1], np.uint64), "beyond 64 bits"),
    ],
)
def test_bad_labels_are_refused(labels: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_labels(labels, "a: y")


def test_labels_beyond_the_named_classes_are_refused() -> None:
    with pytest.raises(DataError, match=r"a: y\[1\] is 7, but 3 classes are named"):
        check_labels(np.array([0, 7]), "a: y", 3)


def test_gaps_are_refused() -> None:
    with pytest.raises(DataError, match=r"labels up to 5 but none that is 1; .* or name them"):
        count_classes(np.array([0, 2, 5]), "a: y", "name them")
    assert count_classes(np.array([1, 0, 1]), "a: y", "") == 2


def test_class_only_in_test_is_refused() -> None:
    with pytest.raises(DataError, match=r"a: the test split has class.* 'dog' that no training record has"):
        check_unseen(torch.tensor([0, 0]), torch.tensor([0, 1]), ("cat", "dog"), "a")
