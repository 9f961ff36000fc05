import dataclasses
import json
import math

import pytest
import torch

from privset import load_data, pipeline
from privset.errors import ConfigError, ReleaseError
from privset.evaluation import RECIPES, Recipe, evaluate_along, evaluate_release, figure_along
from privset.methods import Psg, PsgConfig
from privset.privacy import PrivacyBudget, seeded_noise

HOW = {"classifier": "mlp", "recipe": "quick", "runs": 2}
METHOD = Psg(dataclasses.replace(PsgConfig.small(per_class=1), runs=4, batches_per_step=2, width=4))


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setitem(RECIPES, "quick", lambda **_: Recipe(name="quick", epochs=2, full_rate_epochs=1, augment=False))


def generate(out, epsilon=10.0, snapshots=4):
    budget = PrivacyBudget(epsilon=epsilon, accountant="rdp")
    return pipeline.generate(
        "digits", method=METHOD, budget=budget, out=out, noise=seeded_noise(0), snapshots=snapshots
    )


def test_each_point_is_an_evaluation_of_the_set_as_it_was_and_the_last_of_the_release(tmp_path):
    release, dataset = generate(tmp_path / "set"), load_data("digits")
    points = evaluate_along(tmp_path / "set", "digits", **HOW)
    assert [point.answers for point in points] == [2, 4, 6, 8]
    assert [point.epsilon for point in points] == [release.certificate.epsilon_after(n) for n in (2, 4, 6, 8)]
    assert points[-1].evaluation.accuracies == evaluate_release(release, dataset, **HOW).accuracies
    second = dataclasses.replace(release, set=release.along()[1].set)
    assert not torch.equal(second.set.images, release.set.images)
    assert points[1].evaluation.confusion == evaluate_release(second, dataset, **HOW).confusion
    document = json.loads(json.dumps([point.to_json() for point in points]))
    assert document[1]["accuracy"]["runs"] == list(points[1].evaluation.accuracies)
    assert figure_along(points, "psg").svg().count("<circle") == 4


def test_without_snapshots_or_without_privacy_there_is_no_curve(tmp_path):
    plain = generate(tmp_path / "plain", snapshots=0)
    with pytest.raises(ReleaseError, match="holds no sets along its run"):
        evaluate_along(plain, "nowhere", **HOW)  # found before any data is looked for
    points = evaluate_along(generate(tmp_path / "inf", epsilon=math.inf, snapshots=1), "digits", **HOW)
    assert points[0].to_json()["epsilon"] == "inf"
    with pytest.raises(ConfigError, match="no curve to draw"):
        figure_along(points, "psg")


def test_the_first_answers_of_several_kinds_or_too_many_have_no_cost(tmp_path):
    certificate = generate(tmp_path / "set").certificate
    assert certificate.epsilon_after(0) == 0.0
    for answers in (-1, 9):
        with pytest.raises(ReleaseError, match="this run asked 8 question"):
            certificate.epsilon_after(answers)
    (one,) = certificate.events
    halves = [one.model_copy(update={"count": count}) for count in (3, 5)]
    assert certificate.model_copy(update={"events": halves}).epsilon_after(4) == certificate.epsilon_after(4)
    others = [one, one.model_copy(update={"noise_multiplier": 2 * one.noise_multiplier})]
    with pytest.raises(ReleaseError, match="this run asked 8 and 8 question"):
        certificate.model_copy(update={"events": others}).epsilon_after(4)
