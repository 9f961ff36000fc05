from typing import Any

import pytest
import torch

from privset.data import load
from privset.data.records import Dataset
from privset.errors import ConfigError
from privset.evaluation import evaluate_noise, evaluate_real
from privset.evaluation.references import choose_per_class

HOW: dict[str, Any] = {"classifier": "mlp", "recipe": "quick"}


def test_real_images_beat_noise() -> None:
    labels = torch.arange(10).repeat_interleave(3)

    real = evaluate_real("digits", per_class=3, classifier="mlp", recipe="quick", runs=2)
    assert real.accuracies == evaluate_real(load("digits"), per_class=3, **HOW, runs=2).accuracies
    noise = evaluate_noise("digits", labels, classifier="mlp", recipe="quick", runs=2)

    assert (real.trained_on, real.images) == ("real", 30)
    assert (noise.trained_on, noise.images) == ("noise", 30)
    assert real.mean > 60
    assert noise.mean < 35


def test_all_real_records_are_used_unless_told_otherwise(halves: Dataset) -> None:
    result = evaluate_real(halves, classifier="mlp", recipe="quick", runs=1)

    assert result.images == 20
    assert result.mean > 95


def test_chosen_records_are_distinct_random_members_of_each_class(digits: Dataset) -> None:
    chosen = choose_per_class(digits.train, 5, digits.facts, seed=0)

    assert chosen.labels.tolist() == [label for label in range(10) for _ in range(5)]
    assert len(chosen.images.flatten(1).unique(dim=0)) == 50
    again, other = (choose_per_class(digits.train, 5, digits.facts, seed=seed) for seed in (0, 1))
    assert torch.equal(again.images, chosen.images)
    assert not torch.equal(other.images, chosen.images)


@pytest.mark.parametrize(
    ("per_class", "message"), [(0, "at least one"), (11, "class above of halves has only 10 of 11")]
)
def test_impossible_choices_are_refused(halves: Dataset, per_class: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluate_real(halves, per_class=per_class, runs=1)
