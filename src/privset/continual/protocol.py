"""The whole of it on one machine: the classes divided among parties, one stage after the other, tested after each.

The parties are kept apart as they would be on different machines: each stage is handed the part of the data that has
its classes, and folders of earlier stages, which it verifies. A course that was stopped goes on if it is called again:
a stage that has its release is not run again, and one that was stopped on the way goes on where it stood, if its method
is resumable. What is not is refused: its ledger says what was paid, and that is lost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from privset.continual import exam as exams
from privset.continual.documents import FIGURES, RESULTS, write, write_json
from privset.continual.exam import Exam, examine
from privset.continual.guarantee import FILE as GUARANTEE_FILE
from privset.continual.guarantee import guarantee
from privset.continual.received import Received
from privset.continual.receiving import receive
from privset.continual.scores import Score, score
from privset.continual.stage import Stage
from privset.data import Dataset
from privset.errors import ConfigError, ReleaseError
from privset.evaluation import Evaluation
from privset.evaluation.figure import Curve, draw
from privset.methods import Execution, Method
from privset.observer import Observer
from privset.privacy import PrivacyBudget, Tally
from privset.release.certificate import plain
from privset.release.joint import check_delta

CAUTION = (
    "For the holders of the test images only, unless these are public: accuracies and counts, here, in evaluations/ "
    "and in the figure, were measured on real images and have no guarantee. Hand on the folders of the stages alone."
)
"""Said beside whatever was measured on real images."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Course:
    """What came of all stages so far.

    Attributes:
        parties: Classes of each party.
        scores: After each stage, by recipe.
        evaluations: What they were computed from, by recipe.
        guarantee: Of the whole, as plain values.
        seconds: That making all releases took.
    """

    parties: tuple[tuple[str, ...], ...]
    scores: dict[str, list[Score]]
    evaluations: dict[str, list[Evaluation]]
    guarantee: dict[str, Any]
    seconds: int

    @property
    def best(self) -> str:
        """The recipe with the best accuracy at the end, on the test images: for a table, not for a choice."""
        return max(self.scores, key=lambda recipe: self.scores[recipe][-1].mean)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "parties": [list(party) for party in self.parties],
            "recipe": self.best,
            "recipes": {
                recipe: [{"stage": number, **one.to_json()} for number, one in enumerate(found, 1)]
                for recipe, found in self.scores.items()
            },
            "guarantee": self.guarantee,
        }


def prepare(
    dataset: Dataset,
    parties: Sequence[Sequence[str]],
    *,
    method: Method[Any],
    budget: PrivacyBudget,
    out: Path,
    exam: Exam,
    noise_seed: int | None = None,
) -> list[Stage]:
    """Plan all stages, and refuse what could not be done; nothing is charged, and nothing written.

    Args:
        dataset: All of the data, with a test split.
        parties: Classes of each party, in the order of the stages.
        method: How each makes its release.
        budget: What each may spend.
        out: Folder of the whole.
        exam: How what was released is tested.
        noise_seed: Makes noise repeatable, and nothing private.

    Raises:
        PrivsetError: Whatever was wrong.
    """
    if not parties:
        raise ConfigError("there is no party")
    exam.check(dataset, method)
    others = [path for path in out.iterdir() if not path.name.startswith(".")] if out.is_dir() else []
    if others and not any(path.is_dir() for path in out.glob("stage-*")):
        raise ReleaseError(f"{out} holds something else ({others[0].name}); move it away, or choose another --out")
    known = tuple(name for party in parties for name in party)
    stages = [
        Stage.prepare(
            dataset,
            party,
            number=number,
            method=method,
            budget=budget,
            out=out / f"stage-{number}",
            known=known,
            noise_seed=noise_seed,
        )
        for number, party in enumerate(parties, 1)
    ]
    if budget.private and noise_seed is None:
        check_delta([(budget.delta, stage.planned.facts.size) for stage in stages], disjoint=True)
    for stage in stages:
        stage.check_free()
    return stages


def run(
    dataset: Dataset,
    stages: Sequence[Stage],
    *,
    exam: Exam,
    execution: Execution | None = None,
    observer: Observer | None = None,
    tally: Tally | None = None,
    told: Callable[[int, Received, dict[str, Evaluation]], None] | None = None,
    tester: Observer | None = None,
) -> Course:
    """Run the stages that have not been run, test after each, and write what came of it into their common folder.

    Args:
        dataset: Its test split is what stages are tested on; of the records each stage has its own.
        stages: From `prepare`.
        exam: How what was released is tested.
        execution: Where to compute.
        observer: Told about progress.
        tally: Receives what the data holder alone may see.
        told: Called after each stage with its number, its release and what was measured.
        tester: Told about the progress of tests in place of the observer.
    """
    execution, observer = execution or Execution(), observer or Observer()
    released: list[Received] = []
    evaluations: dict[str, list[Evaluation]] = {}
    for stage in stages:
        observer.phase(f"stage {stage.number} of {len(stages)}: {', '.join(stage.classes)}", 0)
        private = stage.noise.kind == "system" and stage.planned.budget.private
        # Verified anew at each stage, as it would be by a party that has only now received them.
        received = receive(
            [earlier.out for earlier in stages[: stage.number - 1]], stage.planned.budget, private=private
        )
        own = stage.run(received, execution=execution, observer=observer, tally=tally)
        released = [*received, own]
        file = exams.file_of(stage.out.parent, stage.number)
        found = exams.kept(file, released, dataset, exam)
        if found is None:
            found = examine(released, dataset, exam, device=execution.device, observer=tester or observer)
            exams.keep(file, found, released, dataset, exam)
        for recipe, one in found.items():
            evaluations.setdefault(recipe, []).append(one)
        if told is not None:
            told(stage.number, own, found)
    parties = tuple(stage.classes for stage in stages)
    course = Course(
        parties=parties,
        scores={recipe: score(parties, found) for recipe, found in evaluations.items()},
        evaluations=evaluations,
        guarantee=guarantee(released),
        seconds=sum(one.certificate.seconds for one in released),
    )
    _publish(course, stages, exam)
    return course


def _publish(course: Course, stages: Sequence[Stage], exam: Exam) -> None:
    """The guarantee, the scores and their figure, beside the stages."""
    folder, planned = stages[0].out.parent, stages[0].planned
    write_json(folder / GUARANTEE_FILE, course.guarantee)
    settings = {
        "caution": CAUTION,
        "data": planned.facts.name,
        "method": planned.method,
        "settings": plain(dataclasses.asdict(planned.config)),
        "exam": dataclasses.asdict(exam),
    }
    write_json(folder / RESULTS, settings | course.to_json())
    curves = [
        Curve(name=f"{planned.method}, {recipe}", points=tuple((one.mean, one.deviation) for one in found))
        for recipe, found in course.scores.items()
    ]
    figure = draw(curves, title=f"{planned.facts.name}: {len(stages)} parties, one after the other")
    for name, content in zip(FIGURES, (figure.svg().encode(), figure.png()), strict=True):
        write(folder / name, content)
