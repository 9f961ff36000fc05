from __future__ import annotations

import hashlib
import socket

import pytest

from privset.data import load
from privset.data.named import catalogue
from privset.data.options import ReadingOptions
from privset.errors import ConfigError, DataError


@pytest.mark.parametrize(
    ("name", "shape", "train", "test"),
    [
        ("digits", (1, 8, 8), 1438, 359),
        ("mnist", (1, 28, 28), 60000, 10000),
        ("fashion-mnist", (1, 28, 28), 60000, 10000),
        ("cifar10", (3, 32, 32), 50000, 10000),
    ],
)
def test_facts_need_no_data(
    name: str, shape: tuple[int, int, int], train: int, test: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket, "socket", refuse)
    facts = catalogue.facts(name)
    assert (facts.name, facts.shape, facts.size) == (name, shape, train)
    assert len(facts.classes) == 10
    assert catalogue.named(name).test == test


def test_published_constants() -> None:
    assert (catalogue.facts("mnist").mean, catalogue.facts("mnist").std) == ((0.1307,), (0.3081,))
    assert catalogue.facts("fashion-mnist").mean == (0.2861,)
    assert catalogue.facts("cifar10").std == (0.2023, 0.1994, 0.2010)


def test_every_set_says_what_it_is_and_where_from() -> None:
    for entry in catalogue.SETS.values():
        assert entry.description
        assert entry.licence
        assert entry.origin.startswith("http")
        assert "\n" not in entry.description


def test_checksums_are_whole() -> None:
    files = [file for entry in catalogue.SETS.values() for file in entry.files]
    assert len(files) == 14
    assert all(len(file.sha256) == 64 for file in files)
    assert len({file.sha256 for file in files}) == 14


def test_facts_follow_the_options() -> None:
    grey = catalogue.facts("cifar10", ReadingOptions(channels=1, size=16))
    assert grey.shape == (1, 16, 16)
    assert len(grey.mean) == 1
    assert 0.4465 < grey.mean[0] < 0.4914
    colour = catalogue.facts("mnist", ReadingOptions(channels=3))
    assert colour.mean == (0.1307,) * 3


def test_unknown_name_lists_the_names() -> None:
    with pytest.raises(DataError, match=r"digits, mnist, fashion-mnist, cifar10"):
        catalogue.named("imagenet")


def test_digits_are_what_the_catalogue_says() -> None:
    data = load("digits")
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (1438, 359)
    assert data.facts == catalogue.facts("digits")
    assert int(data.train.images.max()) == 255
    assert set(data.test.labels.tolist()) == set(range(10))
    # Pinned: the split is part of every number measured on digits.
    assert hashlib.sha256(data.test.images.numpy().tobytes()).hexdigest()[:16] == "87f8ef92d987d458"


def test_named_sets_have_their_own_test_split() -> None:
    with pytest.raises(ConfigError, match=r"comes with a test split of 359"):
        catalogue.facts("digits", ReadingOptions(test_fraction=0.1))
