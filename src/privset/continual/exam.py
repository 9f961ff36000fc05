"""How much all releases so far teach: one classifier for all classes seen, tested on images of all of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from privset import networks
from privset.continual.documents import EVALUATIONS, write_json
from privset.continual.received import Received, as_certified, check_form
from privset.data import Dataset, of_labels
from privset.errors import ConfigError, ReleaseError
from privset.evaluation import Evaluation
from privset.evaluation.protocol import run_seeds, score_as_trained, train_and_test
from privset.evaluation.recipes import fit_recipe
from privset.facts import PublicFacts
from privset.methods import Method, SetMethod
from privset.observer import Observer
from privset.release import ClassifierRelease, Release


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exam:
    """How classifiers are trained on what was released; a classifier that was released is tested as it is.

    Attributes:
        classifier: The network.
        recipes: The ways to train it; each is measured.
        networks: How many are trained in each way.
        seed: Public seed of their weights and their training.
    """

    classifier: str = "convnet"
    recipes: tuple[str, ...] = ("paper",)
    networks: int = 3
    seed: int = 0

    def check(
        self,
        dataset: Dataset,
        method: Method[Any],
        seen: Sequence[str] | None = None,
        made: PublicFacts | None = None,
    ) -> None:
        """Refuse what could not be examined, before anything is paid for.

        Args:
            dataset: Whose test split is to be classified.
            method: Makes what is to be examined.
            seen: The classes that will be; by default all of the data's.
            made: The form of what will be examined, if it is made from other data.

        Raises:
            PrivsetError: There are no test images of a class, they are of another form, or there is no such network or
                recipe.
        """
        dataset = as_certified(dataset)
        facts, test = dataset.facts, dataset.test
        if made is not None:
            check_form("the release", made, facts)
        present = set() if test is None else {facts.classes[label] for label in torch.unique(test.labels).tolist()}
        missing = [name for name in seen or facts.classes if name not in present]
        if missing:
            raise ConfigError(
                f"{facts.name} has no test images of {', '.join(missing)}, and each stage is tested on all classes "
                "seen; give data that has some (a test split, or --test-fraction to hold some out)"
            )
        if not isinstance(method, SetMethod):
            return
        if self.networks < 1 or not self.recipes:
            raise ConfigError("at least one network and one recipe are needed to see how good a set is")
        for recipe in self.recipes:
            fit_recipe(recipe, channels=facts.channels, images_per_class=10)
        run_seeds(self.seed, self.networks)
        with torch.device("meta"):  # costs nothing, and refuses images that the network cannot take
            networks.build(self.classifier, facts)


def examine(
    releases: Sequence[Received],
    dataset: Dataset,
    exam: Exam,
    *,
    device: str = "cpu",
    observer: Observer | None = None,
) -> dict[str, Evaluation]:
    """Test what was released so far on the test images of all classes seen.

    Args:
        releases: Of all stages so far, in their order: sets are trained on together, of classifiers the last counts.
        dataset: Whose test split is classified; its training records are not touched.
        exam: How.
        device: Where to compute.
        observer: Told about progress.

    Returns:
        An evaluation for each recipe, or the one of a classifier as it is.
    """
    dataset = as_certified(dataset)
    seen = tuple(name for one in releases for name in one.classes)
    last = releases[-1].release
    assert dataset.test is not None  # `Exam.check` has seen to it
    if isinstance(last, ClassifierRelease):
        facts = last.trained.facts
        check_form(last.path, facts, dataset.facts)
        test = of_labels(dataset.test, dataset.facts.classes, seen, among=facts.classes)
        found = score_as_trained(last, facts, test, device=device, observer=observer)
        return {found.recipe_name: found}
    facts = dataclasses.replace(dataset.facts, classes=seen, size=sum(one.certificate.facts.size for one in releases))
    images, labels = [], []
    for one in releases:
        assert isinstance(one.release, Release)
        check_form(one.release.path, one.release.set.facts, dataset.facts)
        images.append(one.release.set.normalised())
        labels.append(one.release.set.labels + seen.index(one.classes[0]))
    test = of_labels(dataset.test, dataset.facts.classes, seen)
    return {
        recipe: train_and_test(
            torch.cat(images),
            torch.cat(labels),
            facts,
            test,
            classifier=exam.classifier,
            recipe=recipe,
            runs=exam.networks,
            seed=exam.seed,
            device=device,
            observer=observer,
        )
        for recipe in exam.recipes
    }


def file_of(course: Path, stage: int) -> Path:
    """Where what was measured after a stage is kept, in the folder of the whole."""
    return course / EVALUATIONS / f"stage-{stage}.json"


def kept(path: Path, releases: Sequence[Received], dataset: Dataset, exam: Exam) -> dict[str, Evaluation] | None:
    """The evaluations in a file, if they are of these releases, test images and this exam; None if they are not.

    Raises:
        ReleaseError: It cannot be read.
    """
    try:
        found = json.loads(path.read_bytes())
        if found.get("of") != _identity(releases, dataset, exam):
            return None
        return {recipe: Evaluation.from_json(one) for recipe, one in found["recipes"].items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, AttributeError) as error:  # a DataError is a ValueError
        raise ReleaseError(f"{path} cannot be read ({error}); delete it to have it made again") from error


def keep(path: Path, found: dict[str, Evaluation], releases: Sequence[Received], dataset: Dataset, exam: Exam) -> None:
    """Write the evaluations to a file, whole or not at all."""
    document = {
        "of": _identity(releases, dataset, exam),
        "recipes": {recipe: one.to_json() for recipe, one in found.items()},
    }
    write_json(path, document)


def _identity(releases: Sequence[Received], dataset: Dataset, exam: Exam) -> dict[str, Any]:
    """What the accuracies depend on but the code; of a classifier as it is, nothing of the exam."""
    trained = isinstance(releases[-1].release, ClassifierRelease)
    assert dataset.test is not None  # `Exam.check` has seen to it
    found = {
        "digests": [one.certificate.contents.digest for one in releases],
        "test": dataset.test.fingerprint(),
        "classes": dataset.facts.classes,
        "exam": {} if trained else dataclasses.asdict(exam),
    }
    return json.loads(json.dumps(found))
