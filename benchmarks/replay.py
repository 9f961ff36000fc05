"""Whether a later party's set gets better if it measures with networks that were trained on what it received.

Two parties have half of the classes each. The second has the first one's set, which is public: networks trained on it
cost no privacy, and could take the place of the random ones that `moments` measures with. Here the second party makes
its set with random networks, with trained ones, and with every other one trained; each time a ConvNet is trained on
the sets of both and tested, as in `privset continual`.

    python benchmarks/replay.py --data fashion-mnist --epsilon 1 --seeds 5

writes results/replay/fashion-mnist-eps1.json after each seed, and does not run seeds again that are on file. By default
the settings are those of preset `light`; an hour of one core asks for fewer. The test split is never looked at: every
sixth training record is held out before anything is measured, and tested on. All three variants of a seed have the
same first set, noise and classifier seeds, so that their differences can be paired. A trained network has the fixed
view of the random one whose place it takes, and first weights of its own; it is the same in `trained` and `half`.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

import machine
from privset import networks
from privset.continual import Exam, Received, Stage, class_order, divide, examine
from privset.data import Dataset, PublicFacts, Records, load
from privset.methods import Execution, Moments, MomentsConfig, moment_matching
from privset.methods.refining import trained_features
from privset.networks.features import RandomFeatures
from privset.observer import Observer
from privset.privacy import PrivacyBudget
from privset.release import Release
from privset.release.software import versions
from privset.studies.origin import commit
from privset.studies.results import NOISE, write

WHAT = "accuracy in percent of a ConvNet trained on two parties' sets; the second's networks random, trained or half"
HELD_OUT = "every sixth of the training records used, held out before anything was measured; never the test split"
VARIANTS = {"random": 0, "trained": 2, "half": 1}
"""Of every two networks of the second party, how many are trained."""
EXECUTION = Execution(chunk=256)
moments_map = moment_matching.feature_map


def prepared(data: str, records: int | None, data_dir: Path | None) -> Dataset:
    """The first training records, or all; each sixth of them is what is tested on."""
    whole = load(data, data_dir=data_dir)
    some = Records(whole.train.images[:records], whole.train.labels[:records])
    facts = dataclasses.replace(whole.facts, size=len(some))
    return dataclasses.replace(whole, facts=facts, train=some, test=None).held_out()


def trained_on(received: Received, config: MomentsConfig, steps: int) -> list[nn.Module]:
    """The blocks of as many networks as are measured with, of their form, trained to tell apart what was received."""
    assert isinstance(received.release, Release)
    kept = trained_features(
        received.release.set.normalised(),
        received.release.set.labels,
        classes=len(received.classes),
        width=config.width,
        depth=config.depth,
        count=config.networks,
        steps=steps,
        seed=config.seed,
        observer=Observer(),
    )
    ages = len(kept) // config.networks  # each is kept at several; the last is the fully trained one
    return kept[ages - 1 :: ages]


def replayed(
    config: MomentsConfig, facts: PublicFacts, number: int, *, trained: Sequence[nn.Module], of_two: int
) -> RandomFeatures:
    """In place of `moment_matching.feature_map`: some of the networks have trained weights, and all else as it was.

    Features are taken and scaled to unit length as ever, so a record still adds one unit vector to one row: the
    sensitivity is 1 and the noise the same. The weights are a function of a set that is public, not of these records.
    """
    features = moments_map(config, facts, number)
    if number % 2 < of_two:
        features.blocks.load_state_dict(trained[number].state_dict())
    return features


def measure(dataset: Dataset, args: argparse.Namespace, seed: int) -> dict[str, float]:
    """The accuracy of each variant; the seed is that of sets, of noise and of the classifier alike."""
    config = dataclasses.replace(method_config(args), seed=seed)
    exam = Exam(recipes=(args.recipe,), networks=args.trainings, seed=seed)
    classes, found = divide(class_order(dataset), 2), {}
    narrow = functools.partial(networks.ConvNet, width=args.classifier_width)
    with tempfile.TemporaryDirectory() as folder:

        def party(number: int, name: str, received: Sequence[Received]) -> Received:
            stage = Stage.prepare(
                dataset,
                classes[number - 1],
                number=number,
                method=Moments(config),
                budget=PrivacyBudget(epsilon=args.epsilon),
                out=Path(folder, name),
                noise_seed=seed,
            )
            return stage.run(received, execution=EXECUTION)

        first = party(1, "first", [])
        trained = trained_on(first, config, args.training)
        for variant, of_two in VARIANTS.items():
            maps = functools.partial(replayed, trained=trained, of_two=of_two)
            with mock.patch.object(moment_matching, "feature_map", maps):
                second = party(2, variant, [first])
            with mock.patch.dict(networks.CLASSIFIERS, convnet=narrow):  # type: ignore[arg-type]
                found[variant] = examine([first, second], dataset, exam)[args.recipe].mean
    return found


def method_config(args: argparse.Namespace) -> MomentsConfig:
    """Preset `light`, with whatever was asked for in its place; images are averaged over the same share of steps."""
    asked = {name: getattr(args, name) for name in ("networks", "width", "steps", "waves")}
    light = MomentsConfig.light(per_class=args.per_class)
    config = dataclasses.replace(light, **{name: value for name, value in asked.items() if value is not None})
    averaging = max(0.0, 1 - (1 - light.averaging) * light.steps / config.steps)
    return dataclasses.replace(config, averaging=averaging)


def compared(runs: Sequence[dict[str, Any]], variant: str) -> dict[str, Any]:
    """How much better a variant is than random networks, seed by seed, with the mean and its standard error."""
    apart = [run["accuracy"][variant] - run["accuracy"]["random"] for run in runs]
    error = statistics.stdev(apart) / math.sqrt(len(apart)) if len(apart) > 1 else None
    return {"differences": apart, "mean": statistics.mean(apart), "standard_error": error}


def document(settings: dict[str, Any], dataset: Dataset, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All that is put on file; it names no folder of this machine."""
    asked = ((name, value) for name, value in settings.items() if name not in ("parties", "moments"))
    words = [f"--{name.replace('_', '-')} {value}" for name, value in asked if value is not None]
    return {
        "what": WHAT,
        "settings": settings,
        "records": {"measured": len(dataset.train), "held out": len(dataset.test or ())},
        "tested_on": HELD_OUT,
        "noise": NOISE,
        "seeds": [run["seed"] for run in runs],
        "runs": runs,
        "against_random": {variant: compared(runs, variant) for variant in VARIANTS if variant != "random"},
        "seconds": sum(run["seconds"] for run in runs),
        "device": "cpu",
        "threads": torch.get_num_threads(),
        "command": " ".join(["python benchmarks/replay.py", *words, f"--seeds {len(runs)}"]),
        "commit": runs[-1]["commit"],
        "versions": versions(),
    }


def main(words: Sequence[str] | None = None) -> None:
    """Measure the seeds that are not on file, and put each on file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="fashion-mnist", help="name of a data set")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--per-class", type=int, default=10)
    parser.add_argument("--records", type=int, help="how many training records are used, those held out among them")
    for name in ("networks", "width", "waves", "steps"):
        parser.add_argument(f"--{name}", type=int, help="of moments, in place of preset `light`")
    parser.add_argument("--training", type=int, default=200, help="minibatches that each trained network has seen")
    parser.add_argument("--recipe", default="quick", help="how classifiers are trained on both sets")
    parser.add_argument("--classifier-width", type=int, default=128, help="channels of their blocks")
    parser.add_argument("--trainings", type=int, default=1, help="how many are trained on each pair of sets")
    parser.add_argument("--seeds", type=int, default=5, help="from 0 up to this number")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--results", type=machine.results_folder, default="results")
    args = parser.parse_args(words)
    torch.set_num_threads(1)
    code = commit()  # at the start: files may change while the code that was read runs on
    dataset = prepared(args.data, args.records, args.data_dir)
    settings = {name: value for name, value in vars(args).items() if name not in ("data_dir", "results", "seeds")}
    settings["parties"] = [list(classes) for classes in divide(class_order(dataset), 2)]
    settings["moments"] = {k: v for k, v in dataclasses.asdict(method_config(args)).items() if k != "seed"}
    path = args.results / "replay" / f"{args.data}-eps{args.epsilon:g}.json"
    known = json.loads(path.read_bytes()) if path.exists() else {"settings": settings, "runs": []}
    if known["settings"] != settings:
        parser.error(f"{path} was measured with other settings; repeat those, or choose another --results")
    runs: list[dict[str, Any]] = known["runs"]
    for seed in sorted(set(range(args.seeds)) - {run["seed"] for run in runs}):
        start = time.perf_counter()
        found = measure(dataset, args, seed)
        seconds = round(time.perf_counter() - start, 1)
        runs.append({"seed": seed, "accuracy": found, "seconds": seconds, "commit": code})
        write(path, (json.dumps(document(settings, dataset, runs), indent=2) + "\n").encode())
        print(f"seed {seed}: {found}, {seconds} s: {path}", flush=True)


if __name__ == "__main__":
    main()
