"""What a report is made from: releases that hold, evaluations that belong to them, results on file."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from privset.errors import DataError, ReleaseError
from privset.evaluation import Evaluation
from privset.release import Certificate, Check, SyntheticSet, load, verify
from privset.release.certificate import first_problem
from privset.release.sections import SetContents, StatisticsContents


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """One release that the report is about.

    Attributes:
        label: What the page calls it: its folder's name, with the folder around it where two have the same.
        certificate: Of the release; every check of it held.
        checks: What was recomputed.
        set: The synthetic set; None for statistics, and for a classifier.
        evaluations: Those that were given for it, in the order they were given.
        beside: What these evaluations trained on for comparison.
    """

    label: str
    certificate: Certificate
    checks: tuple[Check, ...]
    set: SyntheticSet | None
    evaluations: tuple[Evaluation, ...] = ()
    beside: tuple[Evaluation, ...] = ()

    @property
    def per_class(self) -> int | None:
        """Images a class, if all classes have as many."""
        contents = self.certificate.contents
        counts = set(contents.per_class) if isinstance(contents, SetContents) else set()
        return counts.pop() if len(counts) == 1 else None


def read_subjects(folders: Sequence[Path]) -> list[Subject]:
    """Every release, verified.

    Raises:
        ReleaseError: One that is none, does not hold, or is given twice.
    """
    subjects: list[Subject] = []
    seals: dict[str, Path] = {}
    for folder, label in zip(folders, _labels(folders), strict=True):
        outcome = verify(folder)
        if not outcome.ok or outcome.certificate is None:
            first = outcome.failures[0]
            raise ReleaseError(
                f"{folder} is not what it claims to be, and a report would spread the claim: {first.name}: "
                f"{first.detail}. `privset verify {folder}` says more; get the release again from its source."
            )
        certificate = outcome.certificate
        if certificate.seal in seals:
            raise ReleaseError(f"{seals[certificate.seal]} and {folder} are the same release; name it once")
        seals[certificate.seal] = folder
        made = load(folder).set if isinstance(certificate.contents, SetContents) else None
        subjects.append(Subject(label=label, certificate=certificate, checks=outcome.checks, set=made))
    return subjects


def _labels(folders: Sequence[Path]) -> list[str]:
    """As little of each path as tells them apart; a page that is handed on should not show more of a disk."""
    paths = [folder.resolve() for folder in folders]
    names = [path.name for path in paths]
    return [path.name if names.count(path.name) == 1 else f"{path.parent.name}/{path.name}" for path in paths]


def add_evaluations(subjects: Sequence[Subject], paths: Sequence[Path]) -> list[Subject]:
    """The releases with what `privset evaluate RELEASE --json` printed for them.

    Raises:
        DataError: A file that cannot be read, is no evaluation, or one of another set.
    """
    found = list(subjects)
    for path in paths:
        document = _read(path, "an evaluation")
        digest = str(document.get("digest"))
        ours, beside = _evaluation(document, path)
        tested = [one for one in subjects if not isinstance(one.certificate.contents, StatisticsContents)]
        if not any(subject.certificate.contents.digest == digest for subject in tested):
            known = ", ".join(subject.label for subject in tested) or "any given here"
            raise DataError(
                f"{path} is an evaluation of another set than {known} ({document.get('release') or 'unknown'}, digest "
                f"{digest[:12]}); name that release too, or evaluate this one: "
                "privset evaluate RELEASE --data DATA --json > FILE"
            )
        # The tensors may be the same and the classes not: then the labels do not mean the same. Their order may differ:
        # `evaluate` numbers them as the test data does.
        owners = [place for place, subject in enumerate(found) if _is_about(ours, digest, subject)]
        if not owners:
            raise DataError(f"{path} has other classes than the release, or was not trained on it; evaluate it again")
        for place in owners:
            one = found[place]
            found[place] = dataclasses.replace(one, evaluations=(*one.evaluations, ours), beside=(*one.beside, *beside))
    return found


def _is_about(evaluation: Evaluation, digest: str, subject: Subject) -> bool:
    certificate = subject.certificate
    same = certificate.contents.digest == digest and sorted(certificate.facts.classes) == sorted(evaluation.classes)
    return same and evaluation.trained_on == {"set": "set", "classifier": "private"}.get(certificate.contents.kind)


def _evaluation(document: dict[str, Any], path: Path) -> tuple[Evaluation, list[Evaluation]]:
    try:
        beside = document.get("beside", {})
        if not isinstance(beside, dict):
            raise DataError("beside: not an object")
        return Evaluation.from_json(document), [Evaluation.from_json(other) for other in beside.values()]
    except DataError as error:
        raise DataError(
            f"{path} is not an evaluation ({error}); write one with `privset evaluate RELEASE --data DATA --json > "
            f"{path.name}`"
        ) from error


class Accuracy(BaseModel):
    """In percent, over the networks and sets that were measured."""

    mean: float = Field(ge=0, le=100)
    std: float = Field(ge=0)


class Measured(BaseModel):
    """The accuracy of sets made by one recipe, as a study measured it."""

    accuracy: Accuracy


class Result(BaseModel):
    """A file of ``results/<study>/``, as far as a report needs it."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    study: str
    method: str
    data: str
    epsilon: Annotated[
        float, Field(gt=0, allow_inf_nan=True), BeforeValidator(lambda value: math.inf if value == "inf" else value)
    ]
    per_class: int | None = Field(ge=1)
    classifier: str
    recipes: dict[str, Measured]
    published: float | None = Field(default=None, ge=0, le=100)


def read_results(folder: Path | None) -> list[Result]:
    """Every accuracy in a folder of results, ``FOLDER/<study>/<cell>.json``; no folder has none.

    Raises:
        DataError: There is none in it, or a file that is not one.
    """
    if folder is None:
        return []
    found = []
    for path in sorted(folder.glob("*/*.json")):
        document = _read(path, "a result")
        if "accuracy" not in document:  # a benchmark
            continue
        try:
            found.append(Result.model_validate(document))
        except ValidationError as error:
            raise DataError(f"{path} is not the result of a study: {first_problem(error)}; move it away") from error
    if not found:
        raise DataError(f"{folder} holds no results; give the folder that `privset study run` writes to")
    return found


def _read(path: Path, what: str) -> dict[str, Any]:
    if path.is_dir():
        raise DataError(f"{path} is a folder, not the file of {what}; name releases before --evaluation")
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); give the file of {what}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON ({error}), and so not {what}; was it written with --json?") from error
    if not isinstance(document, dict):
        raise DataError(f"{path} is not {what}: it holds no JSON object")
    return document
