"""A classifier as a release: written, read, verified, used, and what a forger would try."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from privset.errors import DataError, ReleaseError
from privset.facts import PublicFacts, normalise
from privset.methods import Architecture, DpSgd, DpSgdConfig, Trained
from privset.methods.plan import Plan
from privset.privacy.budget import PrivacyBudget
from privset.release import (
    Classifier,
    ClassifierRelease,
    Release,
    load,
    load_classifier,
    load_published,
    load_statistics,
    verify,
)


def plan_for(facts: PublicFacts, **settings: Any) -> Plan:
    return DpSgd(DpSgdConfig(**settings)).plan(facts, PrivacyBudget(epsilon=0.5, accountant="rdp"))


def weights_for(architecture: Architecture, facts: PublicFacts) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(shape, generator=generator) for name, shape in architecture.shapes(facts).items()}


def publish(folder: Path, workshop: Any, **settings: Any) -> Path:
    plan = plan_for(workshop.facts, **settings)
    assert isinstance(plan.config, DpSgdConfig)
    architecture = DpSgd(plan.config).architecture
    trained = Trained(architecture, weights_for(architecture, workshop.facts))
    return workshop.publish(folder, plan, Classifier.from_training(trained, workshop.facts))


@pytest.fixture(scope="module", params=[{"network": "scattering"}, {"network": "convnet", "width": 6, "depth": 2}])
def settings(request) -> dict[str, Any]:
    return request.param


@pytest.fixture
def model(tmp_path: Path, workshop: Any, settings: dict[str, Any]) -> Path:
    return publish(tmp_path / "model", workshop, epochs=2, **settings)


def test_it_comes_back_as_it_was_and_holds(model: Path, workshop: Any, settings: dict[str, Any]) -> None:
    back = load_classifier(model)
    assert back.trained.architecture == Architecture(**settings)
    expected = weights_for(Architecture(**settings), workshop.facts)
    assert list(back.trained.weights) == list(expected)
    assert all(torch.equal(back.trained.weights[name], value) for name, value in expected.items())
    outcome = verify(model)
    assert outcome.ok, outcome.failures
    assert "classifier" in [check.name for check in outcome.checks]
    names = {"certificate.json", "README.md", "classifier.safetensors", "ledger.jsonl"}
    assert {path.name for path in model.iterdir()} == names


def test_the_statement_and_the_card_say_what_it_is(model: Path) -> None:
    certificate, text = load_classifier(model).certificate, (model / "README.md").read_text()
    assert "This release holds a classifier, of " in certificate.statement
    assert "trained on the 1,000 private records" in certificate.statement
    assert certificate.statement in text
    assert text.startswith('---\npretty_name: "A classifier of toy"\n')
    assert "- classifier\n- privset\n- differential-privacy\n" in text
    assert "Classes, in the order of the labels: zero, one, two." in text


def test_it_classifies_pixels_and_floats_alike_and_its_network_takes_normalised_ones(
    model: Path, workshop: Any
) -> None:
    release = load_classifier(model)
    images = torch.randint(0, 256, (7, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    labels = release.predict(images)
    assert labels.shape == (7,)
    assert torch.equal(release.predict(images.float() / 255), labels)
    assert torch.equal(release.predict(images.numpy()), labels)
    assert torch.equal(release.classifier()(normalise(images, workshop.facts)).argmax(dim=1), labels)
    assert release.predict(images[:0]).shape == (0,)
    for wrong in (images[0], images[:, :, :4], images.long(), images.long().numpy()):
        with pytest.raises(DataError, match="images"):
            release.predict(wrong)
    resized = images.float() / 255 * 1.1 - 0.05
    assert torch.equal(release.predict(resized), release.predict(resized.clamp(0, 1)))
    broken = images.float() / 255
    broken[0, 0, 0, 0] = torch.nan
    for wrong in (images.float(), 2 * broken.nan_to_num(), broken):
        with pytest.raises(DataError, match=r"floats far outside \[0, 1\]"):
            release.predict(wrong)


def test_code_in_the_card_classifies_as_privset_does(model: Path, settings: dict[str, Any]) -> None:
    snippets = re.findall(r"```python\n(.*?)```", (model / "README.md").read_text(), flags=re.DOTALL)
    assert len(snippets) == (2 if settings["network"] == "convnet" else 1)
    images = torch.randint(0, 256, (5, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    expected = load_classifier(model).predict(images)
    for snippet in snippets:
        own, count = re.subn(r"images = torch.zeros\(.*\)", "images = given", snippet)
        assert count == 1
        names: dict[str, Any] = {"given": images}
        with _inside(model):
            exec(snippet, {})
            exec(own, names)
        assert torch.equal(names["labels"], expected)
        assert "privset" not in snippet or snippet is snippets[0]


@pytest.mark.parametrize("network", ["lenet", "alexnet", "vgg11", "mlp", "resnet18"])
def test_every_network_can_be_published(tmp_path: Path, workshop: Any, network: str) -> None:
    folder = publish(tmp_path / "model", workshop, epochs=2, network=network)
    assert verify(folder).ok
    snippets = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), flags=re.DOTALL)
    assert len(snippets) == (1 if network == "resnet18" else 2)
    with _inside(folder):
        exec(snippets[-1], {})


def test_each_release_is_loaded_as_what_it_is(model: Path, release: Path, statistics: Path) -> None:
    assert isinstance(load_published(model), ClassifierRelease)
    assert isinstance(load_published(release), Release)
    with pytest.raises(ReleaseError, match="holds a classifier, and no images"):
        load(model)
    with pytest.raises(ReleaseError, match="holds a classifier, and no set can be distilled"):
        load_statistics(model)
    with pytest.raises(ReleaseError, match="holds a synthetic set, and no classifier"):
        load_classifier(release)
    with pytest.raises(ReleaseError, match="holds statistics, and no classifier"):
        load_classifier(statistics)
    with pytest.raises(ReleaseError, match="holds statistics, not images"):
        load_published(statistics)


def test_weights_that_do_not_belong_are_refused(workshop: Any) -> None:
    architecture, facts = Architecture(network="mlp", width=4), workshop.facts
    good = weights_for(architecture, facts)
    bad = {
        "not the weights of a mlp: head.bias": {name: value for name, value in good.items() if name != "head.bias"},
        "not the weights of a mlp: more": good | {"more": torch.zeros(1)},
        "not the weights of a mlp: head.weight": good | {"head.weight": good["head.weight"][:, :2]},
        "must be float32": {name: value.double() for name, value in good.items()},
        "not finite": good | {"head.bias": good["head.bias"] * torch.nan},
    }
    for sentence, weights in bad.items():
        with pytest.raises(ReleaseError, match=sentence):
            Classifier(architecture, weights, facts)
    with pytest.raises(ReleaseError, match="no such classifier"):
        Classifier(Architecture(network="transformer"), good, facts)
    turned = Classifier(architecture, dict(reversed(good.items())), facts)
    assert turned.digest() == Classifier(architecture, good, facts).digest()


@pytest.mark.parametrize("name", ["certificate.json", "README.md", "classifier.safetensors", "ledger.jsonl"])
def test_any_changed_byte_shows(model: Path, name: str) -> None:
    path = model / name
    content = path.read_bytes()
    for position in [*range(0, len(content), max(1, len(content) // 20)), len(content) - 1]:
        changed = bytearray(content)
        changed[position] ^= 1
        path.write_bytes(changed)
        assert not verify(model).ok, f"byte {position} of {name}"
    path.unlink()
    assert not verify(model).ok


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], set[str]]] = {
    "fewer answers": (lambda d: d["events"][0].update(count=1), {"epsilon", "ledger", "plan"}),
    "other epochs": (lambda d: d["configuration"].update(epochs=3), {"plan"}),
    "other network": (lambda d: d["configuration"].update(network="lenet", width=None, depth=None), {"plan"}),
    "another network inside": (
        lambda d: d["contents"].update(network="mlp", width=None, depth=None),
        {"classifier", "plan"},
    ),
    "other method": (lambda d: d.update(method="psg"), {"plan"}),
    "other seed": (lambda d: d["seeds"].update(public=4), {"plan"}),
    "fewer weights": (lambda d: d["contents"].update(weights=7), {"classifier"}),
    "other digest": (lambda d: d["contents"].update(digest="0" * 64), {"classifier"}),
    "a source": (lambda d: d.update(source={"certificate": "0" * 64, "digest": "0" * 64}), {"classifier", "plan"}),
    "private in spite of a seed": (lambda d: d.update(noise_source="seeded"), {"noise"}),
    "other classes": (lambda d: d["facts"].update(classes=["a", "b"]), {"classifier"}),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_careful_forger_is_found_out(model: Path, workshop: Any, name: str) -> None:
    edit, expected = FORGERIES[name]
    workshop.forge(model, edit)
    assert {check.name for check in verify(model).failures} == expected


def test_a_set_cannot_claim_a_method_that_trains(release: Path, workshop: Any) -> None:
    config = dataclasses.asdict(DpSgdConfig())
    workshop.forge(release, lambda d: d.update(method="dp-sgd", configuration=config))
    assert "dp-sgd makes no set" in {check.name: check.detail for check in verify(release).failures}["plan"]


@contextlib.contextmanager
def _inside(folder: Path):
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
