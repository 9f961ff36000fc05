"""`privset evaluate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro

from privset.cli import console
from privset.cli.arguments import DataArguments, parse
from privset.errors import ConfigError
from privset.evaluation import Evaluation, evaluate_noise, evaluate_real, evaluate_release
from privset.release import ClassifierRelease, Release, load_published


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
    """How to train it: paper (as the published numbers), quick, or long."""
    runs: int = 3
    """How many networks, each from its own initial weights."""
    seed: int = 0
    """Seed of the evaluation."""
    beside: tuple[Literal["real", "noise"], ...] = ()
    """Also train the same classifier on the real training records, or on random noise."""
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
        _check_as_trained(parsed)
    with console.Bars() as bars:
        dataset = parsed.reading.load(parsed.data, bars)
        how = {"device": parsed.device, "observer": bars}
        result = evaluate_release(release, dataset, **how, **(settings if isinstance(release, Release) else {}))
        others = []
        for reference in parsed.beside:
            if reference == "real":
                others.append(evaluate_real(dataset, **how, **settings))
            elif isinstance(release, Release):
                others.append(evaluate_noise(dataset, release.set.labels, **how, **settings))
    if "real" in parsed.beside:
        console.warn("For the data holder only: accuracies after training on the real records carry no guarantee.")
    if parsed.json:
        console.show_json(
            result.to_json()
            | {"release": str(parsed.release), "digest": release.certificate.contents.digest}
            | {"beside": {other.trained_on: other.to_json() for other in others}}
        )
    else:
        show(result, others)
    return 0


_TRAINING = ("classifier", "recipe", "runs", "seed")

_WORDS = {
    "set": "the release",
    "private": "private records, by the release",
    "real": "real records",
    "noise": "random noise",
}


def _check_as_trained(parsed: EvaluateArguments) -> None:
    """Refuse what says how to train, for a classifier that is tested as it is, unless real data is to be trained on."""
    if "noise" in parsed.beside:
        raise ConfigError(f"{parsed.release} holds a classifier, and no images that noise could stand in for")
    defaults = {field.name: field.default for field in dataclasses.fields(EvaluateArguments)}
    given = [f"--{name}" for name in _TRAINING if getattr(parsed, name) != defaults[name]]
    if given and "real" not in parsed.beside:
        raise ConfigError(
            f"{parsed.release} holds a classifier, which is tested as it is; leave out {', '.join(given)}"
        )


def show(result: Evaluation, others: Sequence[Evaluation]) -> None:
    """Accuracies side by side, then the confusion matrix of the set."""
    console.show_table(
        ["trained on", "images", "test accuracy", "each network"],
        [
            [
                _WORDS[one.trained_on],
                f"{one.images:,}",
                f"{one.mean:.1f} %" + (f" ± {one.std:.1f}" if len(one.accuracies) > 1 else ""),
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
