"""Accuracy against epsilon along a run: classifiers trained on the set as it was after some of its answers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from privset.data import load as load_data
from privset.data.records import Dataset
from privset.errors import ConfigError
from privset.evaluation.figure import Curve, Figure, draw
from privset.evaluation.protocol import evaluate_release
from privset.evaluation.scores import Evaluation
from privset.release import Release, load

AXIS = "epsilon of the answers so far; test accuracy"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """How good the set was after some of its answers.

    Attributes:
        answers: How many.
        epsilon: What these cost; published together, all points cost what the last does.
        evaluation: Of classifiers trained on the set as it was then.
    """

    answers: int
    epsilon: float
    evaluation: Evaluation

    def to_json(self) -> dict[str, Any]:
        """Numbers and accuracies; an infinite epsilon is the word "inf"."""
        epsilon = "inf" if math.isinf(self.epsilon) else self.epsilon
        return {"answers": self.answers, "epsilon": epsilon, "accuracy": self.evaluation.to_json()["accuracy"]}


def evaluate_along(release: Release | str | Path, data: Dataset | str | Path, **settings: Any) -> tuple[Point, ...]:
    """Train fresh classifiers on every set that a release holds of its run; the last point is the release itself.

    Args:
        release: A set that was generated with ``snapshots``, or its folder.
        data: The data it stands in for, loaded or by name or path; its test split is classified.
        settings: As in `privset.evaluate`; the same networks are trained on each set.

    Raises:
        ReleaseError: The release holds no snapshots.
    """
    return tuple(points_along(release, data, **settings))


def points_along(release: Release | str | Path, data: Dataset | str | Path, **settings: Any) -> Iterator[Point]:
    """As `evaluate_along`, one point after the other, as they are measured."""
    release = load(release) if isinstance(release, str | Path) else release
    steps = release.along()
    dataset = data if isinstance(data, Dataset) else load_data(data)
    for step in steps:
        evaluation = evaluate_release(dataclasses.replace(release, set=step.set), dataset, **settings)
        yield Point(answers=step.answers, epsilon=step.epsilon, evaluation=evaluation)


def figure_along(points: Sequence[Point], name: str) -> Figure:
    """The curve of accuracy against epsilon, with whiskers of one deviation between networks.

    Raises:
        ConfigError: Without privacy there is no epsilon that grows.
    """
    if any(math.isinf(point.epsilon) for point in points):
        raise ConfigError("without privacy epsilon is infinite from the first answer on, and there is no curve to draw")
    curve = Curve(
        name=name,
        points=tuple((point.evaluation.mean, point.evaluation.std) for point in points),
        at=tuple(point.epsilon for point in points),
    )
    return draw([curve], title=f"{points[0].evaluation.data}: accuracy along the run", axis=AXIS)
