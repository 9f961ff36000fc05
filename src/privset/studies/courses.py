"""Cells whose sets are made in stages, by parties with disjoint classes: means over all courses, and their curves."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from privset import continual
from privset.continual import Course, Curve, Exam
from privset.data.records import Dataset
from privset.methods import Execution
from privset.observer import Observer
from privset.studies.study import Cell


def follow(
    cell: Cell,
    number: int,
    dataset: Dataset,
    folder: Path,
    *,
    execution: Execution,
    observer: Observer,
    tester: Observer | None = None,
) -> Course:
    """Run the stages of course ``number`` of a cell that are not in the folder yet; tests are told to ``tester``."""
    assert cell.stages is not None
    method = cell.make_method(number)
    for stage in folder.glob("stage-*"):
        # What cannot be taken up again begins anew. Noise is seeded here, so the same answers come again.
        if not method.resumable and not (stage / "release").is_dir():
            shutil.rmtree(stage)
    exam = Exam(
        classifier=cell.classifier,
        recipes=cell.recipes,
        networks=cell.networks,
        seed=number,
    )
    parties = continual.divide(continual.class_order(dataset), cell.stages)
    stages = continual.prepare(
        dataset, parties, method=method, budget=cell.budget, out=folder, exam=exam, noise_seed=number
    )
    return continual.run(dataset, stages, exam=exam, execution=execution, observer=observer, tester=tester)


def measured(course: Course) -> dict[str, Any]:
    """What is put on file of one course, recipe by recipe."""
    return {
        recipe: {
            "accuracies": list(scores[-1].accuracy),
            "seconds": sum(one.seconds for one in course.evaluations[recipe]),
            "stages": [one.to_json() for one in scores],
        }
        for recipe, scores in course.scores.items()
    }


def summary(courses: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Stage by stage, the mean over all courses, each given by its scores after each stage."""
    found = []
    for number, stage in enumerate(zip(*courses, strict=True), 1):
        runs = [accuracy for one in stage for accuracy in one["accuracy"]["runs"]]
        found.append(
            {
                "stage": number,
                "seen": stage[0]["seen"],
                "accuracy": {"mean": statistics.fmean(runs), "std": _deviation(runs), "runs": runs},
                "average_accuracy": _mean_and_deviation(one["average_accuracy"] for one in stage),
                "forgetting": _mean_and_deviation(one["forgetting"] for one in stage),
                "party_accuracy": [
                    statistics.fmean(values) for values in zip(*(one["party_accuracy"] for one in stage), strict=True)
                ],
                "class_accuracy": {
                    name: statistics.fmean(one["class_accuracy"][name] for one in stage) for name in stage[0]["seen"]
                },
            }
        )
    return found


def figures(cells: Iterable[dict[str, Any]]) -> dict[str, continual.Figure]:
    """Accuracy against stage for each data set, by its name; a curve for each finished cell of several stages."""
    drawn: dict[str, continual.Figure] = {}
    several = [cell for cell in cells if cell.get("stages", 1) > 1]
    names = list(dict.fromkeys(_name(cell) for cell in several))
    for data in dict.fromkeys(cell["data"] for cell in several):
        here = [cell for cell in several if cell["data"] == data]
        largest = max(float(cell["epsilon"]) for cell in here)  # "inf" is a word in JSON
        curves = [
            Curve(
                name=f"{_name(cell)}, epsilon {float(cell['epsilon']):g}",
                points=tuple(
                    (stage["accuracy"]["mean"], stage["accuracy"]["std"])
                    for stage in cell["recipes"][cell["recipe"]]["stages"]
                ),
                colour=names.index(_name(cell)),
                dashed=float(cell["epsilon"]) < largest,
            )
            for cell in here
        ]
        drawn[data] = continual.draw(curves, title=f"{data}: parties with disjoint classes, one after the other")
    return drawn


def _name(cell: dict[str, Any]) -> str:
    """The method, and what the cell's name says of its settings."""
    _, named, rest = cell["cell"].partition(cell["method"])
    settings = rest.removeprefix("-") if named else cell["cell"]
    return f"{cell['method']} ({settings})" if settings else cell["method"]


def _mean_and_deviation(values: Iterable[float]) -> dict[str, float]:
    found = list(values)
    return {"mean": statistics.fmean(found), "std": _deviation(found)}


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
