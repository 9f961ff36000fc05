"""The snippets are run, in the folder of a release, as whoever got it would."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.release.conftest import FACTS, Workshop
from tests.report.conftest import FACTS_HOSTILE

from privset.release import SyntheticSet, load, load_statistics
from privset.report.loading import loading, snippets


@pytest.fixture(scope="module", params=["grey", "colour", "floats"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, workshop: Workshop) -> Path:
    facts = FACTS_HOSTILE
    if request.param == "colour":
        facts = dataclasses.replace(FACTS, channels=3, mean=(0.25,) * 3, std=(0.5, 0.25, 0.5))
    keep = request.param == "floats"
    made = workshop.set(facts, keep_floats=keep)
    plan = workshop.plan(facts=facts, keep_floats=keep)
    return workshop.publish(tmp_path_factory.mktemp("loading") / "release", plan, made)


def run(folder: Path, tool: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], SyntheticSet]:
    release = load(folder)
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(snippets(release.certificate)[tool], names)
    return names, release.set


def test_torch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, made = run(folder, "PyTorch", monkeypatch)
    inputs, labels = names["dataset"].tensors
    assert torch.allclose(inputs, made.normalised(), atol=1e-6)
    assert torch.equal(labels, made.labels)


def test_numpy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, made = run(folder, "NumPy", monkeypatch)
    assert np.allclose(names["inputs"], made.normalised().numpy(), atol=1e-6)


def test_scikit_learn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, made = run(folder, "scikit-learn", monkeypatch)
    assert names["model"].score(made.normalised().flatten(1).numpy(), made.labels.numpy()) == 1


def test_hugging_face(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, made = run(folder, "Hugging Face", monkeypatch)
    dataset = names["dataset"]
    assert dataset.features["label"].names == list(made.facts.classes)
    assert dataset["label"] == made.labels.tolist()
    shown = np.asarray(dataset[5]["image"])
    expected = made.pixels()[5].numpy()
    assert np.array_equal(shown, expected[0] if len(expected) == 1 else expected.transpose(1, 2, 0))


def test_privset(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, made = run(folder, "privset", monkeypatch)
    assert torch.allclose(names["dataset"][5][0], made.normalised()[5], atol=1e-6)
    assert names["rows"].shape == (len(made), made.images[0].numel())


def test_statistics_are_distilled(statistics: Path) -> None:
    certificate = load_statistics(statistics).certificate
    assert snippets(certificate) == {}
    assert "privset distil" in loading(certificate)
