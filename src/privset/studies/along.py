"""Cells whose sets are also measured along the run that makes them: accuracy against epsilon, and its curves."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from privset.data.records import Dataset
from privset.evaluation import evaluate_along
from privset.evaluation.along import AXIS
from privset.evaluation.figure import Curve, Figure, draw
from privset.observer import Observer
from privset.release import Release
from privset.studies.study import Cell


def measured(
    cell: Cell, number: int, release: Release, dataset: Dataset, *, device: str, observer: Observer
) -> list[dict[str, Any]]:
    """What is put on file of set ``number``: one network trained on each set along the run, by the first recipe."""
    points = evaluate_along(
        release,
        dataset,
        classifier=cell.classifier,
        recipe=cell.recipes[0],
        runs=1,
        seed=number,
        device=device,
        observer=observer,
    )
    return [point.to_json() for point in points]


def summary(cell: Cell, runs: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Point by point, mean and deviation over all sets, each given by its points."""
    found = []
    for points in zip(*runs, strict=True):
        accuracies = [accuracy for point in points for accuracy in point["accuracy"]["runs"]]
        found.append(
            {
                "answers": points[0]["answers"],
                "epsilon": points[0]["epsilon"],
                "recipe": cell.recipes[0],
                "accuracy": {
                    "mean": statistics.fmean(accuracies),
                    "std": statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0,
                    "runs": accuracies,
                },
            }
        )
    return found


def figures(cells: Iterable[dict[str, Any]]) -> dict[str, Figure]:
    """Accuracy against epsilon for each data set, by its name; a curve for each finished cell that has one."""
    with_curve = [cell for cell in cells if "along" in cell]
    drawn = {}
    for data in dict.fromkeys(cell["data"] for cell in with_curve):
        curves = [
            Curve(
                name=f"{cell['method']}, {cell['per_class']} a class, {cell['along'][0]['recipe']}",
                points=tuple((point["accuracy"]["mean"], point["accuracy"]["std"]) for point in cell["along"]),
                at=tuple(point["epsilon"] for point in cell["along"]),
            )
            for cell in with_curve
            if cell["data"] == data
        ]
        drawn[data] = draw(curves, title=f"{data}: accuracy along the run", axis=AXIS)
    return drawn
