import pytest

from privset.continual import score
from privset.evaluation import Evaluation

PARTIES = (("a", "b"), ("c",), ("d",))


def evaluation(classes, confusion, accuracies=(50.0, 60.0)):
    return Evaluation(
        data="toy", trained_on="set", images=1, classifier="mlp", recipe=None, accuracies=accuracies,
        confusion=tuple(map(tuple, confusion)), classes=tuple(classes), seeds=(), seconds=1.0, device="cpu",
    )  # fmt: skip


def test_averages_and_forgetting_by_hand():
    first, second, third = score(
        PARTIES,
        [
            evaluation("ab", [[8, 2], [0, 30]]),  # 38 of 40
            evaluation("abc", [[10, 0, 0], [0, 30, 0], [5, 0, 15]]),  # 40 of 40, 15 of 20
            evaluation("abcd", [[0, 0, 0, 10], [0, 20, 0, 10], [0, 0, 20, 0], [0, 0, 0, 10]]),
        ],
    )
    assert first.parties == (95.0,)
    assert (first.forgotten, first.forgetting) == ((), 0.0)
    assert second.parties == (100.0, 75.0)
    assert second.forgotten == (-5.0,)  # better than before
    assert second.average == 87.5  # each party counts alike, however many test images it has
    assert third.parties == (50.0, 100.0, 100.0)
    assert third.forgotten == (50.0, -25.0)  # against the best so far, which for the first party was stage 2
    assert third.forgetting == 12.5
    assert third.classes == (0.0, pytest.approx(200 / 3), 100.0, 100.0)
    assert third.seen == ("a", "b", "c", "d")
    assert (third.mean, third.deviation) == (55.0, pytest.approx(7.0710678))


def test_outputs_for_classes_not_seen_yet_count_as_wrong():
    """A classifier that travels has an output for every class from the start."""
    (only,) = score(PARTIES[:1], [evaluation("abcd", [[5, 0, 5, 0], [0, 10, 0, 0], [0] * 4, [0] * 4], (75.0,))])
    assert only.parties == (75.0,)
    assert only.seen == ("a", "b")
    assert only.to_json()["class_accuracy"] == {"a": 50.0, "b": 100.0}
    assert only.deviation == 0.0
