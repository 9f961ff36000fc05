"""The benchmark of networks trained on what was received, with tiny settings on digits."""

import dataclasses
import functools
import json

import pytest

from privset import continual, networks
from privset.evaluation import RECIPES, Recipe
from privset.methods import Moments, MomentsConfig
from privset.privacy import PrivacyBudget

TINY = "--data digits --epsilon 10 --per-class 2 --records 600 --networks 2 --width 4 --waves 6 --steps 4 --training 60"
EXAM = "--recipe tiny --classifier-width 4"


@pytest.fixture
def replay(monkeypatch, benchmark_named):
    def tiny(**_):
        return Recipe(name="tiny", epochs=20, full_rate_epochs=20, augment=False)

    monkeypatch.setitem(RECIPES, "tiny", tiny)
    return benchmark_named("replay")


def run(replay, folder, *more):
    replay.main([*TINY.split(), *EXAM.split(), "--results", str(folder), *more])
    return json.loads((folder / "replay" / "digits-eps10.json").read_bytes())


def test_variants_are_on_file_and_the_random_one_is_plain_moments(replay, tmp_path, monkeypatch):
    found = run(replay, tmp_path, "--seeds", "2")
    assert found["seeds"] == [0, 1]
    assert found["records"] == {"measured": 500, "held out": 100}
    assert str(tmp_path) not in json.dumps(found)
    assert {"what", "command", "commit", "device", "seconds", "versions", "settings", "noise"} <= found.keys()
    runs = [one["accuracy"] for one in found["runs"]]
    for variant in ("trained", "half"):
        said = found["against_random"][variant]
        first, second = (one[variant] - one["random"] for one in runs)
        assert said["differences"] == [first, second]
        assert said["mean"] == pytest.approx((first + second) / 2)
        assert said["standard_error"] == pytest.approx(abs(first - second) / 2)

    monkeypatch.setitem(networks.CLASSIFIERS, "convnet", functools.partial(networks.ConvNet, width=4))
    dataset = replay.prepared("digits", 600, None)
    settings = {"networks": 2, "width": 4, "waves": 6, "steps": 4, "averaging": 0.0, "seed": 1}
    exam = continual.Exam(recipes=("tiny",), networks=1, seed=1)
    stages = continual.prepare(
        dataset,
        continual.divide(continual.class_order(dataset), 2),
        method=Moments(dataclasses.replace(MomentsConfig.light(per_class=2), **settings)),
        budget=PrivacyBudget(epsilon=10.0),
        out=tmp_path / "course",
        exam=exam,
        noise_seed=1,
    )
    course = continual.run(dataset, stages, exam=exam, execution=replay.EXECUTION)
    assert course.evaluations["tiny"][-1].mean == runs[1]["random"]


def test_seeds_on_file_are_not_run_again_and_other_settings_are_refused(replay, tmp_path, monkeypatch):
    asked = []

    def measure(_dataset, _args, seed):
        asked.append(seed)
        return {"random": 50.0, "trained": 51.0 + seed, "half": 49.0}

    monkeypatch.setattr(replay, "measure", measure)
    first = run(replay, tmp_path, "--seeds", "1")
    assert first["against_random"]["trained"]["standard_error"] is None
    found = run(replay, tmp_path, "--seeds", "3")
    assert asked == [0, 1, 2]
    assert found["runs"][0] == first["runs"][0]
    assert found["against_random"]["trained"]["mean"] == 2
    assert found["command"].endswith("--seeds 3")
    with pytest.raises(SystemExit):
        run(replay, tmp_path, "--seeds", "3", "--trainings", "2")


def test_as_many_networks_are_trained_as_the_variant_says(replay, tmp_path):
    config = MomentsConfig(per_class=2, networks=4, width=4, waves=6)
    dataset = replay.prepared("digits", 60, None)
    donor = [replay.moments_map(config, dataset.facts, 100 + number).blocks for number in range(4)]
    for variant, changed in (("random", []), ("half", [0, 2]), ("trained", [0, 1, 2, 3])):
        for number in range(4):
            plain = replay.moments_map(config, dataset.facts, number)
            found = replay.replayed(config, dataset.facts, number, trained=donor, of_two=replay.VARIANTS[variant])
            expected = donor[number] if number in changed else plain.blocks
            weights = zip(found.blocks.parameters(), expected.parameters(), strict=True)
            assert all(ours.equal(theirs) for ours, theirs in weights)
            assert found.view.equal(plain.view)
