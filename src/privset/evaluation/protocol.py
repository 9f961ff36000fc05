"""What every accuracy in this project means: trained on this set, tested on real images."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privset.data import load as load_data
from privset.data.records import Dataset, Records
from privset.errors import ConfigError, DataError
from privset.evaluation.recipes import fit_recipe
from privset.evaluation.scores import Evaluation, confusion
from privset.evaluation.training import TrainingSet, train
from privset.facts import PublicFacts
from privset.observer import Observer
from privset.release import ClassifierRelease, Release, load_published


def evaluate(images: Tensor, labels: Tensor, dataset: Dataset, **settings: Any) -> Evaluation:
    """Train fresh classifiers on ``images`` and test them on ``dataset.test``.

    Args:
        images: Normalised floats ``[n, channels, height, width]`` to train on.
        labels: ``[n]``, numbered as in ``dataset``.
        dataset: Whose test split is classified; its training records are not touched.
        settings: As in `train_and_test`.
    """
    return train_and_test(images, labels, dataset.facts, _test_split(dataset), **settings)


def train_and_test(
    images: Tensor,
    labels: Tensor,
    facts: PublicFacts,
    test: Records,
    *,
    classifier: str = "convnet",
    recipe: str = "paper",
    runs: int = 3,
    seed: int = 0,
    device: str = "cpu",
    observer: Observer | None = None,
    trained_on: str = "set",
) -> Evaluation:
    """Train fresh classifiers on ``images`` and test them on ``test``.

    Args:
        images: Normalised floats ``[n, channels, height, width]`` to train on.
        labels: ``[n]``, numbered as in ``facts``.
        facts: What is public about the images that are classified.
        test: These images, with their labels.
        classifier: Name of the network.
        recipe: Name of the way to train it.
        runs: How many networks, each from its own initial weights.
        seed: Public seed that everything random here comes from.
        device: Where to train and test.
        observer: Told of the progress.
        trained_on: A word for what ``images`` are, kept in the result.
    """
    observer = observer or Observer()
    _check_set(images, labels, facts)
    if runs < 1:
        raise ConfigError(f"at least one run is needed to evaluate, not {runs}")
    fitted = fit_recipe(recipe, channels=facts.channels, images_per_class=len(images) / len(facts.classes))
    seeds = run_seeds(seed, runs)
    place = _device(device)

    started = time.perf_counter()
    given = TrainingSet(images=images.to(place, torch.float32), labels=labels.to(place, torch.int64), facts=facts)
    networks = train(given, classifier=classifier, recipe=fitted, seeds=seeds, observer=observer)
    observer.phase("testing", runs)
    counts = torch.zeros(len(facts.classes), len(facts.classes), dtype=torch.int64)
    accuracies = []
    for network in networks:
        one = confusion(network, test, facts)
        accuracies.append(100 * int(one.trace()) / len(test))
        counts += one
        observer.step(accuracy=accuracies[-1])
    return Evaluation(
        data=facts.name,
        trained_on=trained_on,
        images=len(images),
        classifier=classifier,
        recipe=fitted,
        accuracies=tuple(accuracies),
        confusion=tuple(tuple(row) for row in counts.tolist()),
        classes=facts.classes,
        seeds=seeds,
        seconds=time.perf_counter() - started,
        device=_spelled(place),
    )


def _spelled(place: torch.device) -> str:
    return torch.cuda.get_device_name(place) if place.type == "cuda" else str(place)


def run_seeds(seed: int, runs: int) -> tuple[int, ...]:
    """A 32-bit seed for each run, unlike those of any other ``seed``.

    More runs leave the first ones as they are:

    >>> run_seeds(0, 2) == run_seeds(0, 3)[:2]
    True
    """
    if seed < 0:
        raise ConfigError(f"the seed must not be negative, and {seed} is")
    return tuple(int(np.random.SeedSequence([seed, run]).generate_state(1)[0]) for run in range(runs))


def _test_split(dataset: Dataset) -> Records:
    if dataset.test is None or not len(dataset.test):
        raise ConfigError(
            f"{dataset.facts.name} has no test images to evaluate on. Hold some out with --test-fraction, when the "
            "release is made and again here, or put them into a test/ folder beside train/."
        )
    return dataset.test


def _check_set(images: Tensor, labels: Tensor, facts: PublicFacts) -> None:
    """Refuses a set that does not belong to the data it is to be tested on."""
    if images.ndim != 4 or not images.is_floating_point():
        raise DataError("the set to evaluate must be normalised floats of shape [n, channels, height, width]")
    if labels.shape != images.shape[:1] or labels.is_floating_point():
        raise DataError(f"the set to evaluate has {len(images)} images but labels {tuple(labels.shape)}")
    if not len(images):
        raise DataError("the set to evaluate is empty")
    if tuple(images.shape[1:]) != facts.shape:
        ours, theirs = ("x".join(map(str, shape)) for shape in (images.shape[1:], facts.shape))
        raise DataError(
            f"the set to evaluate has {ours} images, and those of {facts.name} are {theirs}; "
            "give the --size and --channels that the set was made with"
        )
    if not 0 <= int(labels.min()) <= int(labels.max()) < len(facts.classes):
        raise DataError(
            f"the set to evaluate has labels {int(labels.min())}..{int(labels.max())}, "
            f"and those of {facts.name} are 0..{len(facts.classes) - 1}"
        )
    if not bool(images.isfinite().all()):
        raise DataError("the set to evaluate has pixels that are infinite or not a number")


def _device(name: str) -> torch.device:
    try:
        place = torch.device(name)
        torch.zeros(1, device=place)
    # A misspelt name, a torch without CUDA and a machine without a card each raise an error of their own.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(f"cannot train on the device {name!r}: {str(error).splitlines()[0]}") from error
    return place


def evaluate_release(
    release: Release | ClassifierRelease | str | Path, data: Dataset | str | Path, **settings: Any
) -> Evaluation:
    """Test a release on the real test split of ``data``: fresh classifiers trained on a set, or the one published.

    Args:
        release: A release, or its folder.
        data: The data it stands in for, loaded or by name or path.
        settings: As in `evaluate`; for a published classifier ``device`` and ``observer`` only.
    """
    release = load_published(release) if isinstance(release, str | Path) else release
    dataset = data if isinstance(data, Dataset) else load_data(data)
    if isinstance(release, ClassifierRelease):
        if odd := sorted(settings.keys() - {"device", "observer"}):
            raise ConfigError(f"a published classifier is tested as it is, and not trained: leave out {', '.join(odd)}")
        return evaluate_classifier(release, dataset, **settings)
    ours, theirs = release.set.facts, dataset.facts
    if set(ours.classes) == set(theirs.classes):  # in whatever order: labels are told by their names
        ours = dataclasses.replace(ours, classes=theirs.classes)
    _check_belongs(ours, theirs, sized=release.certificate.joined is None)
    labels = torch.tensor([theirs.classes.index(name) for name in release.set.facts.classes])[release.set.labels]
    return evaluate(release.set.normalised(), labels, dataset, **settings)


def evaluate_classifier(
    release: ClassifierRelease, dataset: Dataset, *, device: str = "cpu", observer: Observer | None = None
) -> Evaluation:
    """Test a published classifier, as it is, on ``dataset.test``.

    Args:
        release: The classifier.
        dataset: Whose test split is classified; its training records are not touched.
        device: Where to test.
        observer: Told of the progress.
    """
    _check_belongs(release.trained.facts, dataset.facts)
    return score_as_trained(release, dataset.facts, _test_split(dataset), device=device, observer=observer)


def score_as_trained(
    release: ClassifierRelease,
    facts: PublicFacts,
    test: Records,
    *,
    device: str = "cpu",
    observer: Observer | None = None,
) -> Evaluation:
    """Test a published classifier on ``test``, whose labels and form are those of ``facts``; the rest is as above."""
    observer = observer or Observer()
    if release.trained.facts.shape != facts.shape:
        ours, theirs = ("x".join(map(str, shape)) for shape in (release.trained.facts.shape, facts.shape))
        raise DataError(
            f"the classifier is for {ours} images, and those of {facts.name} are {theirs}; give the --size and "
            "--channels that it was trained with"
        )
    place, started = _device(device), time.perf_counter()
    observer.phase("testing", 1)
    counts = confusion(release.classifier().to(place), test, facts)
    accuracy = 100 * int(counts.trace()) / len(test)
    observer.step(accuracy=accuracy)
    return Evaluation(
        data=facts.name,
        trained_on="private",
        images=release.trained.facts.size,
        classifier=release.trained.architecture.network,
        recipe=None,
        accuracies=(accuracy,),
        confusion=tuple(tuple(row) for row in counts.tolist()),
        classes=facts.classes,
        seeds=(),
        seconds=time.perf_counter() - started,
        device=_spelled(place),
    )


def _check_belongs(ours: PublicFacts, theirs: PublicFacts, *, sized: bool = True) -> None:
    """Refuse test data whose classes, size or normalisation are not those the set was made for.

    ``sized`` is false for a joined set: the number of its records is a sum, in which a record may count twice.
    """
    if ours.classes != theirs.classes:
        raise DataError(
            f"the release has the classes {', '.join(ours.classes)}, and {theirs.name} has "
            f"{', '.join(theirs.classes)}: labels would not mean the same"
        )
    if sized and ours.name == theirs.name and ours.size != theirs.size:
        raise DataError(
            f"the release was made from {ours.size:,} training records of {ours.name}, and here it has "
            f"{theirs.size:,}: images to test on may have been trained on. Split the data (--test-fraction) as it was "
            "split for the release."
        )
    if (ours.mean, ours.std) != (theirs.mean, theirs.std):
        raise DataError(
            f"the release is normalised with mean {ours.mean} and std {ours.std}, and {theirs.name} with "
            f"{theirs.mean} and {theirs.std}; load the data with the release's constants (--mean, --std)"
        )
