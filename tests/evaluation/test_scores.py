import json
from typing import Any

import pytest
import torch
from torch import nn

from privset.data.records import Dataset
from privset.errors import DataError
from privset.evaluation import scores
from privset.evaluation.recipes import quick
from privset.evaluation.scores import Evaluation, confusion
from privset.facts import normalise


def evaluation(**changes: Any) -> Evaluation:
    fields: dict[str, Any] = {
        "data": "toy",
        "trained_on": "set",
        "images": 4,
        "classifier": "mlp",
        "recipe": quick(channels=1, images_per_class=2),
        "accuracies": (80.0, 90.0, 70.0),
        "confusion": ((3, 1, 0), (2, 6, 0), (0, 0, 0)),
        "classes": ("a", "b", "c"),
        "seeds": (1, 2, 3),
        "seconds": 1.5,
        "device": "cpu",
    }
    return Evaluation(**(fields | changes))


def test_mean_and_sample_deviation() -> None:
    assert evaluation().mean == pytest.approx(80)
    assert evaluation().std == pytest.approx(10)
    assert evaluation(accuracies=(55.0,)).std == 0


def test_class_accuracies_leave_out_classes_without_test_images() -> None:
    assert evaluation().class_accuracies == (75.0, 75.0, None)


def test_json() -> None:
    written = json.loads(json.dumps(evaluation().to_json(), allow_nan=False))

    assert written["accuracy"] == {"mean": 80.0, "std": 10.0, "runs": [80.0, 90.0, 70.0]}
    assert written["confusion"] == [[3, 1, 0], [2, 6, 0], [0, 0, 0]]
    assert written["class_accuracy"] == [75.0, 75.0, None]
    assert written["recipe"] == "quick"
    assert written["recipe_settings"]["epochs"] == 300
    assert written["seeds"] == [1, 2, 3]


def test_what_was_written_is_read_again() -> None:
    written = json.loads(json.dumps(evaluation().to_json()))
    assert Evaluation.from_json(written) == evaluation()
    # Numbers that follow from others are computed, not believed.
    written["accuracy"]["mean"] = written["class_accuracy"][0] = 100.0
    assert Evaluation.from_json(written).mean == pytest.approx(80)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"confusion": [[1, 2, 3], [4, 5, 6]]}, "confusion: not counts of 3 by 3 classes"),
        ({"confusion": [[1, 2, 3], [4, 5, 6], [7, 8, -9]]}, "confusion"),
        ({"accuracy": {"runs": [-1]}}, "accuracy: not percentages"),
        ({"accuracy": [80]}, "not an object"),
        ({"seeds": ["one"]}, "seeds.0: "),
        ({"recipe_settings": {"name": "x", "epochs": 0, "full_rate_epochs": 0, "augment": True}}, "at least 1"),
    ],
)
def test_what_is_no_evaluation_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        Evaluation.from_json(evaluation().to_json() | changes)


class Brightness(nn.Module):
    """Says class 1 where the lower half is the brighter one, but never for the brightest images."""

    def __init__(self) -> None:
        super().__init__()
        self.zero = nn.Parameter(torch.zeros(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        below = images[:, :, 4:].mean(dim=(1, 2, 3)) - images[:, :, :4].mean(dim=(1, 2, 3))
        below = below.where(images.amax(dim=(1, 2, 3)) < 1.118, -1)
        return torch.stack([-below, below], dim=1)


def test_confusion_counts_truth_by_row_and_does_not_depend_on_the_chunks(
    halves: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert halves.test is not None
    whole = confusion(Brightness(), halves.test, halves.facts)
    monkeypatch.setattr(scores, "CHUNK", 3)
    parts = confusion(Brightness(), halves.test, halves.facts)

    bright = normalise(halves.test.images, halves.facts).amax(dim=(1, 2, 3)) >= 1.118
    missed = int((bright & (halves.test.labels == 1)).sum())
    assert 0 < missed < 10
    assert whole.tolist() == [[10, 0], [missed, 10 - missed]]
    assert torch.equal(whole, parts)
