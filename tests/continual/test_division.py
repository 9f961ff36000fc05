import dataclasses

import pytest
from tests.continual.conftest import CLASSES, dataset_of

from privset.continual import PUBLISHED, class_order, divide
from privset.errors import ConfigError


def test_the_order_is_that_of_the_labels_or_the_one_given(dataset):
    assert class_order(dataset) == CLASSES
    assert class_order(dataset, names=CLASSES[::-1]) == CLASSES[::-1]


def test_named_sets_have_the_published_order_and_folders_of_that_name_do_not():
    ten = dataset_of([2] * 6)
    facts = dataclasses.replace(ten.facts, name="mnist", classes=tuple("0123456789"))
    own, named = (dataclasses.replace(ten, facts=facts, reading=reading) for reading in ({}, {"data": "mnist"}))
    assert class_order(own) == tuple("0123456789")
    assert class_order(named) == tuple(map(str, PUBLISHED)) == tuple("5612089347")


def test_a_seeded_order_is_one_of_all_classes_and_always_the_same(dataset):
    orders = {class_order(dataset, seed=seed) for seed in range(5)}
    assert len(orders) > 1
    assert all(sorted(order) == sorted(CLASSES) for order in orders)
    assert class_order(dataset, seed=3) == class_order(dataset, seed=3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"names": CLASSES[:-1]}, r"each class of zoo once \(missing: fox\)"),
        ({"names": (*CLASSES, "gnu")}, r"once \(it has no gnu\)"),
        ({"names": (*CLASSES, "ant")}, r"once \(named twice: ant\)"),
        ({"names": (*CLASSES[:-1], "ant")}, r"once \(missing: fox; named twice: ant\)"),
        ({"names": CLASSES, "seed": 1}, "not both"),
        ({"seed": -1}, "order-seed must be 0 or more"),
    ],
)
def test_an_order_that_is_none_is_refused(dataset, options, words):
    with pytest.raises(ConfigError, match=words):
        class_order(dataset, **options)


def test_classes_are_divided_as_evenly_as_can_be():
    assert divide("abcdefgh", 4) == (("a", "b"), ("c", "d"), ("e", "f"), ("g", "h"))
    assert [len(party) for party in divide("abcdefgh", 3)] == [3, 3, 2]
    assert divide("ab", 1) == (("a", "b"),)


@pytest.mark.parametrize(
    ("classes", "stages", "words"),
    [("abcd", 3, "at most 2 stage"), ("abcd", 4, "at least 2 classes"), ("ab", 0, "least 1")],
)
def test_a_party_with_one_class_is_refused_with_the_reason(classes, stages, words):
    with pytest.raises(ConfigError, match=words):
        divide(classes, stages)
