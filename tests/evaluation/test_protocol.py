import dataclasses

import pytest
import torch

from privset.data.records import Dataset, Records
from privset.errors import ConfigError, DataError
from privset.evaluation import Evaluation, evaluate, evaluate_release
from privset.evaluation.protocol import run_seeds
from privset.facts import normalise
from privset.methods import DpSgd, DpSgdConfig
from privset.observer import Observer
from privset.pipeline import train
from privset.privacy import PrivacyBudget


def halves_set(halves: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    return normalise(halves.train.images, halves.facts), halves.train.labels


def test_an_easy_problem_is_solved_and_reported(halves: Dataset) -> None:
    images, labels = halves_set(halves)

    result = evaluate(images, labels, halves, classifier="mlp", recipe="quick", runs=3, seed=1)

    assert result.mean > 95
    assert len(result.accuracies) == len(result.seeds) == 3
    assert torch.tensor(result.confusion).sum(dim=1).tolist() == [30, 30]
    trace = sum(result.confusion[label][label] for label in range(2))
    assert trace / 60 * 100 == pytest.approx(result.mean)
    assert (result.data, result.classifier, result.recipe_name) == ("halves", "mlp", "quick")
    assert (result.device, result.images, result.trained_on) == ("cpu", 20, "set")
    assert result.seconds > 0


def test_wrong_labels_are_learnt_wrong(halves: Dataset) -> None:
    images, labels = halves_set(halves)

    result = evaluate(images, 1 - labels, halves, classifier="mlp", recipe="quick", runs=1)

    assert result.mean < 5


def test_the_seed_decides_everything(digits: Dataset) -> None:
    chosen = slice(0, 30)
    images = normalise(digits.train.images[chosen], digits.facts)

    def once(seed: int, runs: int = 2) -> tuple[float, ...]:
        labels = digits.train.labels[chosen]
        return evaluate(images, labels, digits, classifier="mlp", recipe="quick", runs=runs, seed=seed).accuracies

    first = once(0)
    assert once(0) == first
    assert once(1) != first
    assert first[0] != first[1]
    assert min(first) > 40


def test_training_records_are_not_looked_at(halves: Dataset) -> None:
    images, labels = halves_set(halves)
    other = Dataset(halves.facts, Records(255 - halves.train.images, halves.train.labels), halves.test)

    results = [evaluate(images, labels, data, classifier="mlp", recipe="quick", runs=1) for data in (halves, other)]

    assert results[0].confusion == results[1].confusion


def test_the_observer_hears_of_training_and_testing(halves: Dataset) -> None:
    heard = []

    class Listener(Observer):
        def phase(self, name: str, total: int) -> None:
            heard.append((name, total))

    images, labels = halves_set(halves)
    evaluate(images, labels, halves, classifier="mlp", recipe="quick", runs=2, observer=Listener())

    assert heard == [("training 2 x mlp", 600), ("testing", 2)]


@pytest.mark.parametrize("empty", [False, True])
def test_no_test_split_is_refused_with_advice(halves: Dataset, empty: bool) -> None:
    images, labels = halves_set(halves)
    test = Records(halves.train.images[:0], halves.train.labels[:0]) if empty else None

    with pytest.raises(ConfigError, match=r"halves has no test images.*--test-fraction.*test/ folder"):
        evaluate(images, labels, dataclasses.replace(halves, test=test))


def test_sets_of_other_data_are_refused(halves: Dataset) -> None:
    images, labels = halves_set(halves)
    refused = [
        (images[:, :1], labels, "has 1x8x8 images, and those of halves are 3x8x8"),
        (images[..., :7], labels, "3x8x7"),
        (images, labels + 1, r"labels 1\.\.2, and those of halves are 0\.\.1"),
        (images, labels - 1, r"labels -1\.\.0"),
        (images, labels[1:], r"20 images but labels \(19,\)"),
        (images[:0], labels[:0], "empty"),
        (halves.train.images, labels, "normalised floats"),
        (images.flatten(1), labels, r"\[n, channels, height, width\]"),
        (images * float("inf"), labels, "infinite or not a number"),
    ]
    for wrong_images, wrong_labels, message in refused:
        with pytest.raises(DataError, match=message):
            evaluate(wrong_images, wrong_labels, halves, recipe="quick")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"runs": 0}, "at least one run"),
        ({"seed": -1}, "must not be negative"),
        ({"recipe": "slow"}, "no recipe 'slow'"),
        ({"classifier": "resnet81"}, "Did you mean resnet18"),
        ({"device": "gpu"}, "device 'gpu'"),
        ({"device": "cuda:77"}, "device 'cuda:77'"),
    ],
)
def test_impossible_settings_are_refused(halves: Dataset, settings: dict, message: str) -> None:
    images, labels = halves_set(halves)
    with pytest.raises(ConfigError, match=message):
        evaluate(images, labels, halves, **settings)


def test_run_seeds_of_neighbouring_seeds_are_all_different() -> None:
    seeds = [seed for start in range(20) for seed in run_seeds(start, 20)]

    assert len(set(seeds)) == 400
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_a_published_classifier_is_tested_as_it_is(halves: Dataset, tmp_path) -> None:
    method, budget = DpSgd(DpSgdConfig.small()), PrivacyBudget(epsilon=float("inf"))
    release = train(halves, method=method, budget=budget, out=tmp_path / "model")

    result = evaluate_release(tmp_path / "model", halves)

    assert (result.trained_on, result.images, result.classifier) == ("private", 20, "scattering")
    assert (result.recipe, result.recipe_name, result.seeds) == (None, "as trained", ())
    answers = release.predict(halves.test.images) if halves.test else torch.empty(0)
    assert halves.test is not None
    assert result.accuracies == (100 * float((answers == halves.test.labels).double().mean()),)
    assert result.mean > 90
    assert Evaluation.from_json(result.to_json()) == result
    with pytest.raises(ConfigError, match="tested as it is, and not trained: leave out recipe, runs"):
        evaluate_release(release, halves, recipe="paper", runs=3)
    other = dataclasses.replace(halves, facts=dataclasses.replace(halves.facts, classes=("below", "above")))
    with pytest.raises(DataError, match="labels would not mean the same"):
        evaluate_release(release, other)
    without = dataclasses.replace(halves, test=None)
    with pytest.raises(ConfigError, match="no test images"):
        evaluate_release(release, without)


def test_scattering_can_be_trained_side_by_side(halves: Dataset) -> None:
    images, labels = halves_set(halves)
    together = evaluate(images, labels, halves, classifier="scattering", recipe="quick", runs=2)
    alone = evaluate(images, labels, halves, classifier="scattering", recipe="quick", runs=1)
    assert together.accuracies[0] == alone.accuracies[0]
