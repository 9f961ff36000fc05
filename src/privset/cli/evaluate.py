"""`privset evaluate`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro

from privset.cli import console
from privset.cli.arguments import DataArguments, parse
from privset.errors import ConfigError
from privset.evaluation import (
    Evaluation,
    Point,
    evaluate_noise,
    evaluate_real,
    evaluate_release,
    figure_along,
    points_along,
)
from privset.files import unwritable
from privset.release import ClassifierRelease, Release, load_published
from privset.release.statement import rounded_up


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateArguments:
    """Train fresh classifiers on a release and test them on real images; a published classifier is tested as it is."""

    release: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RELEASE")]]
    """The folder of the release."""
    data: str
    """The data it stands in for: its test split is classified."""
    classifier: str = "convnet"
    """The network to train; see `privset methods`."""
    recipe: str = "paper"
    """How to train it: paper (as the code that came with it), quick, stated (as its text), plain, float32
    (as paper, without maps of 16 bits on a card), or long."""
    runs: int = 3
    """How many networks, each from its own initial weights."""
    seed: int = 0
    """Seed of the evaluation."""
    beside: tuple[Literal["real", "noise"], ...] = ()
    """Also train the same classifier on the real training records, or on random noise."""
    along: bool = False
    """Train on each set along the run as well, if the release holds them (`privset generate --snapshots`): accuracy
    against epsilon."""
    curve: Path | None = None
    """With --along: file to draw that to, .svg or .png."""
    device: str = "cpu"
    """cpu, cuda or cuda:N."""
    reading: tyro.conf.OmitArgPrefixes[DataArguments] = dataclasses.field(default_factory=DataArguments)
    json: bool = False
    """Print one JSON object."""


def evaluate(arguments: Sequence[str]) -> int:
    """Train classifiers on a release and test them on real images."""
    parsed = parse(EvaluateArguments, arguments, "privset evaluate")
    release = load_published(parsed.release)
    settings = {name: getattr(parsed, name) for name in _TRAINING}
    if isinstance(release, ClassifierRelease):
        _check_as_trained(parsed, arguments)
    _check_curve(parsed, release)
    with console.Bars() as bars:
        dataset = parsed.reading.load(parsed.data, bars)
        how = {"device": parsed.device, "observer": bars}
        points: list[Point] = []
        if parsed.along and isinstance(release, Release):
            for point in points_along(release, dataset, **how, **settings):
                points.append(point)
                console.warn(f"After {point.answers:,} answers: {_accuracy(point.evaluation)}")
            result = points[-1].evaluation
        else:
            result = evaluate_release(release, dataset, **how, **(settings if isinstance(release, Release) else {}))
            if parsed.beside:  # otherwise it is shown now, anyway
                _tell(result)
        others = []
        for reference in parsed.beside:
            if reference == "real":
                console.warn(
                    "For the data holder only: accuracies after training on the real records carry no guarantee."
                )
                others.append(evaluate_real(dataset, **how, **settings))
            elif isinstance(release, Release):
                others.append(evaluate_noise(dataset, release.set.labels, **how, **settings))
            _tell(others[-1])
    if parsed.json:
        console.show_json(
            result.to_json()
            | ({"along": [point.to_json() for point in points]} if points else {})
            | {"private": release.certificate.guarantee.private}
            | {"release": str(parsed.release), "digest": release.certificate.contents.digest}
            | {"beside": {other.trained_on: other.to_json() for other in others}}
        )
    else:
        show(result, others)
        if points:
            show_along(points, private=release.certificate.guarantee.private)
    if parsed.curve is not None:
        _draw(points, parsed.curve, f"{release.certificate.method}, {result.classifier}, recipe {result.recipe_name}")
        if not parsed.json:
            console.show(f"The curve is in {parsed.curve}")
    return 0


_TRAINING = ("classifier", "recipe", "runs", "seed")

_WORDS = {
    "set": "the release",
    "private": "private records, by the release",
    "real": "real records",
    "noise": "random noise",
}


def _check_as_trained(parsed: EvaluateArguments, arguments: Sequence[str]) -> None:
    """Refuse what says how to train, for a classifier that is tested as it is, unless real data is to be trained on.

    Also where a default is typed: whoever types it means it.
    """
    if "noise" in parsed.beside:
        raise ConfigError(f"{parsed.release} holds a classifier, and no images that noise could stand in for")
    typed = {word.partition("=")[0] for word in arguments}
    given = [f"--{name}" for name in _TRAINING if f"--{name}" in typed]
    if given and "real" not in parsed.beside:
        raise ConfigError(
            f"{parsed.release} holds a classifier, which is tested as it is; leave out {', '.join(given)}"
        )


def _check_curve(parsed: EvaluateArguments, release: Release | ClassifierRelease) -> None:
    """Refuse, before anything is trained, what has no sets along its run, or a curve that could not be drawn."""
    if parsed.along and isinstance(release, ClassifierRelease):
        raise ConfigError(f"{parsed.release} holds a classifier, and no sets along its run; leave out --along")
    if parsed.along and isinstance(release, Release) and release.set.snapshots is None:
        release.along()  # says what is missing
    if parsed.curve is None:
        return
    if not parsed.along:
        raise ConfigError("--curve draws what --along measures; give both")
    if parsed.curve.suffix not in (".svg", ".png"):
        raise ConfigError(f"{parsed.curve}: a curve is drawn to a file that ends in .svg or .png")
    if parsed.curve.exists():
        raise ConfigError(f"{parsed.curve} exists already, and nothing is ever replaced; choose another file")
    if not (folder := parsed.curve.absolute().parent).is_dir():
        raise ConfigError(f"{parsed.curve}: there is no such folder to draw a curve to")
    if why := unwritable(folder):
        raise ConfigError(f"{why}; choose another place for the curve")
    if math.isinf(release.certificate.guarantee.epsilon_spent):
        raise ConfigError(f"{parsed.release} has no finite epsilon to draw accuracy against; leave --curve out")


def _draw(points: Sequence[Point], path: Path, name: str) -> None:
    figure = figure_along(points, name)
    try:
        path.write_bytes(figure.svg().encode() if path.suffix == ".svg" else figure.png())
    except OSError as error:
        raise ConfigError(
            f"{path}: the curve cannot be written ({error.strerror}); choose another place for it"
        ) from error


def show_along(points: Sequence[Point], *, private: bool) -> None:
    """Accuracy against epsilon, for a person."""
    console.show_table(
        ["answers so far", "epsilon so far", "test accuracy"],
        [[f"{point.answers:,}", rounded_up(point.epsilon), _accuracy(point.evaluation)] for point in points],
        title="Along the run",
    )
    console.show(
        "Epsilon so far is what the answers up to there cost. The release, with all sets along its run, costs epsilon "
        f"{rounded_up(points[-1].epsilon)}."
        if private
        else "NOT PRIVATE: epsilon so far is what such answers would cost if their noise were secret."
    )


def _tell(one: Evaluation) -> None:
    """At once, on standard error: what comes after it may take long, or be stopped."""
    console.warn(f"Trained on {_WORDS[one.trained_on]}: {_accuracy(one)}")


def _accuracy(one: Evaluation) -> str:
    return f"{one.mean:.1f} %" + (f" ± {one.std:.1f}" if len(one.accuracies) > 1 else "")


def show(result: Evaluation, others: Sequence[Evaluation]) -> None:
    """Accuracies side by side, then the confusion matrix of the set."""
    console.show_table(
        ["trained on", "images", "test accuracy", "each network"],
        [
            [
                _WORDS[one.trained_on],
                f"{one.images:,}",
                _accuracy(one),
                ", ".join(f"{accuracy:.1f}" for accuracy in one.accuracies),
            ]
            for one in (result, *others)
        ],
        title=f"{result.classifier} tested on {result.data}, recipe {result.recipe_name}",
    )
    if len(result.classes) <= 20:
        console.show_table(
            ["truth \\ answer", *result.classes],
            [[name, *map(str, row)] for name, row in zip(result.classes, result.confusion, strict=True)],
            title=f"Confusion of the release, summed over {len(result.accuracies)} network(s)",
        )
