"""Releases made without private data, and evaluations as `privset evaluate --json` prints them."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.release.conftest import FACTS, Workshop

from privset.evaluation import Evaluation
from privset.evaluation.recipes import quick
from privset.release import load

HOSTILE = "<script>alert(1)</script>"
"""A class name that must never become anything but text."""

FACTS_HOSTILE = dataclasses.replace(FACTS, classes=("zero", HOSTILE, '" onload="alert(2)'))


def evaluated(release: Path, *, classifier: str = "convnet", accuracy: float = 80.0, **changes: Any) -> dict[str, Any]:
    """An evaluation of a release, beside real records and noise."""
    loaded = load(release)
    classes = loaded.certificate.facts.classes
    confusion = tuple(tuple(8 if a == b else 1 for b in range(len(classes))) for a in range(len(classes)))
    one = Evaluation(
        data=loaded.certificate.facts.name,
        trained_on="set",
        images=len(loaded.set),
        classifier=classifier,
        recipe=quick(channels=1, images_per_class=4),
        accuracies=(accuracy, accuracy + 2),
        confusion=confusion,
        classes=classes,
        seeds=(1, 2),
        seconds=1.0,
        device="cpu",
    )
    beside = {
        "real": dataclasses.replace(one, trained_on="real", images=1000, accuracies=(97.25,)),
        "noise": dataclasses.replace(one, trained_on="noise", accuracies=(12.5,)),
    }
    document = one.to_json() | {"release": str(release), "digest": loaded.certificate.contents.digest}
    return document | {"beside": {name: other.to_json() for name, other in beside.items()}} | changes


def result(**changes: Any) -> dict[str, Any]:
    """A result as a study writes it."""
    measured = {"accuracy": {"mean": 70.0, "std": 1.0, "runs": [69.0, 71.0]}}
    fields: dict[str, Any] = {
        "study": "trial",
        "method": "moments",
        "data": FACTS.name,
        "epsilon": 0.5,
        "per_class": 4,
        "classifier": "convnet",
        "recipes": {"quick": measured},
        "published": 61.5,
        **measured,
    }
    return fields | changes


@pytest.fixture(scope="session")
def workshop() -> Workshop:
    return Workshop()


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory, workshop: Workshop) -> Path:
    return workshop.publish(tmp_path_factory.mktemp("report") / "release", workshop.plan())


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory, workshop: Workshop) -> Path:
    """A release whose class names are HTML."""
    plan = workshop.plan(facts=FACTS_HOSTILE)
    return workshop.publish(tmp_path_factory.mktemp("report") / "hostile", plan)


@pytest.fixture(scope="session")
def statistics(tmp_path_factory: pytest.TempPathFactory, workshop: Workshop) -> Path:
    return workshop.measure(tmp_path_factory.mktemp("report") / "statistics")


@pytest.fixture(scope="session")
def distilled(tmp_path_factory: pytest.TempPathFactory, workshop: Workshop, statistics: Path) -> Path:
    return workshop.distil(tmp_path_factory.mktemp("report") / "distilled", statistics, per_class=3)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Any], Path]:
    """Writes a document to a file of its own, and says where."""

    def write(document: Any) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return write
