"""A set that is published with its generator, and sets that are drawn from it."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import safetensors.torch
import torch
from tests.release.conftest import FACTS

from privset.errors import ConfigError, ReleaseError
from privset.methods import PsgPrior, PsgPriorConfig
from privset.methods.method import Synthesis
from privset.methods.plan import Plan
from privset.networks.generator_forms import TrainedGenerator
from privset.privacy.budget import PrivacyBudget
from privset.release import Certificate, SyntheticSet, load, merge, sample, verify
from privset.release.examination import Examination
from privset.release.schema import schema
from privset.release.statement import statement_of

CONFIG = PsgPriorConfig(
    per_class=4,
    runs=2,
    outer_steps=3,
    batches_per_step=5,
    batch_size=50,
    code=3,
    generator_width=4,
    keep_floats=False,
)


def planned(**settings: Any) -> Plan:
    return PsgPrior(dataclasses.replace(CONFIG, **settings)).plan(FACTS, PrivacyBudget(epsilon=0.5, accountant="rdp"))


def publish(workshop: Any, folder: Path, *, seed: int = 1, noise: str = "system", **settings: Any) -> Path:
    """As a run would, but for what the generator learned."""
    plan = planned(**settings)
    method = PsgPrior(plan.config)  # type: ignore[arg-type]
    form = method.generator_form
    assert form is not None
    network = form.build(FACTS, seed=seed).eval()
    labels = torch.arange(3).repeat_interleave(4)
    images = network.normalised(network.draw(labels, torch.Generator().manual_seed(9)))
    trained, floats = TrainedGenerator.of(form, network), plan.config.keep_floats  # type: ignore[attr-defined]
    made = Synthesis(images, labels, keep_floats=floats, generator=trained)
    return workshop.publish(folder, plan, SyntheticSet.from_synthesis(made, FACTS), noise)


@pytest.fixture
def release(tmp_path: Path, workshop: Any) -> Path:
    return publish(workshop, tmp_path / "release")


@pytest.fixture
def drawn(tmp_path: Path, release: Path) -> Path:
    return sample(release, per_class=3, seed=5, out=tmp_path / "drawn").path


def failed(folder: Path, **options: Any) -> set[str]:
    return {check.name for check in verify(folder, **options).failures}


def document(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "certificate.json").read_text())


def test_a_generator_is_published_and_read_again(release: Path) -> None:
    loaded = load(release)

    assert failed(release) == set()
    assert loaded.generator is not None
    assert loaded.generator.trained.form == PsgPrior(CONFIG).generator_form
    stated = document(release)["contents"]["generator"]
    assert (stated["architecture"], stated["numbers"]) == ("deconvolution", len(loaded.generator))
    assert stated["digest"] == loaded.generator.digest()
    again = loaded.generator.trained.network(FACTS)
    codes = again.draw(loaded.set.labels, torch.Generator().manual_seed(9))
    made = SyntheticSet.from_synthesis(Synthesis(again.normalised(codes), loaded.set.labels), FACTS)
    assert torch.equal(made.images, loaded.set.images)


def test_statement_and_card_say_that_the_guarantee_covers_the_generator(release: Path) -> None:
    certificate, card = load(release).certificate, (release / "README.md").read_text()

    assert "also holds the generator that made the images; the guarantee covers it" in certificate.statement
    assert "privset sample FOLDER --per-class 100 --out SET" in card
    assert "`generator.safetensors`" in card


def test_a_set_without_a_generator_says_nothing_of_one(tmp_path: Path, plan: Plan, workshop: Any) -> None:
    folder = workshop.publish(tmp_path / "plain", plan)

    assert "generator" not in (folder / "certificate.json").read_text()
    assert "generator" not in (folder / "README.md").read_text()
    assert load(folder).generator is None
    with pytest.raises(ReleaseError, match=r"holds no generator.*psg-prior, dp-merf"):
        sample(folder, per_class=1, out=tmp_path / "more")


def test_without_privacy_the_statement_says_that_the_generator_reveals_too() -> None:
    words = {"epsilon_budgeted": 1.0, "epsilon_spent": 1.0, "delta": 1e-5, "count": 1, "records": 9, "data": "toy"}
    said = statement_of(private=False, seeded=True, holding="set", generator=True, **words)  # type: ignore[arg-type]
    assert "its images and its generator may reveal them" in said


def test_drawn_sets_carry_the_guarantee_and_cost_nothing(release: Path, drawn: Path) -> None:
    made, theirs = load(drawn), load(release).certificate

    for name in ("guarantee", "events", "facts", "noise_source", "not_accounted", "method", "configuration"):
        assert getattr(made.certificate, name) == getattr(theirs, name)
    assert (drawn / "ledger.jsonl").read_bytes() == (release / "ledger.jsonl").read_bytes()
    assert made.certificate.seeds == {"public": 0, "drawn": 5}
    assert made.set.per_class == (3, 3, 3)
    assert made.set.pixel_form == "8-bit"
    assert made.generator is None
    assert made.certificate.payment == theirs.payment == theirs.seal
    assert "9 synthetic images drawn from a generator" in made.certificate.statement
    assert "spent once, on the generator" in made.certificate.statement
    assert theirs.seal in (drawn / "README.md").read_text()
    assert failed(drawn) == set()
    assert failed(drawn, source=release) == set()
    detail = next(check.detail for check in verify(drawn, source=release).checks if check.name == "source")
    assert "drawn again, and the same images" in detail


def test_the_same_seed_draws_the_same_set_and_another_another(tmp_path: Path, release: Path, drawn: Path) -> None:
    again = sample(str(release), per_class=3, seed=5, out=tmp_path / "again")
    other = sample(load(release), per_class=3, seed=6, out=tmp_path / "other")

    assert (again.path / "set.safetensors").read_bytes() == (drawn / "set.safetensors").read_bytes()
    assert not torch.equal(other.set.images, load(drawn).set.images)


def test_floats_are_drawn_where_floats_were_published(tmp_path: Path, workshop: Any) -> None:
    folder = publish(workshop, tmp_path / "floats", keep_floats=True)
    made = sample(folder, per_class=2, out=tmp_path / "drawn")

    assert made.set.pixel_form == "unbounded floats"
    assert failed(made.path, source=folder) == set()


def test_what_is_drawn_from_a_release_that_is_not_private_is_not_private(tmp_path: Path, workshop: Any) -> None:
    folder = publish(workshop, tmp_path / "seeded", noise="seeded")
    made = sample(folder, per_class=2, out=tmp_path / "drawn")

    assert not made.certificate.guarantee.private
    assert made.certificate.statement.startswith("NOT PRIVATE.")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"per_class": 0}, "per-class must be at least 1"),
        ({"per_class": "3"}, "per-class must be a whole number"),
        ({"per_class": 1, "seed": -1}, "seed must be 0 or more"),
        ({"per_class": 1, "seed": 0.5}, "seed must be a whole number"),
    ],
)
def test_what_cannot_be_drawn_is_refused(tmp_path: Path, release: Path, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        sample(release, out=tmp_path / "drawn", **given)
    assert not (tmp_path / "drawn").exists()


def test_nothing_is_drawn_over_something_or_from_what_does_not_verify(tmp_path: Path, release: Path) -> None:
    with pytest.raises(ReleaseError, match="exists already"):
        sample(release, per_class=1, out=release)
    (release / "README.md").write_text("hello")
    with pytest.raises(ReleaseError, match=r"nothing is drawn from it \(card"):
        sample(release, per_class=1, out=tmp_path / "drawn")
    assert not (tmp_path / "drawn").exists()


NAME = "first.0.weight"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda found: found | {NAME: found[NAME] + 1}, "is not the generator that certificate.json is about"),
        (lambda found: found | {NAME: found[NAME][:2]}, f"not the weights of a generator deconvolution: {NAME}"),
        (lambda found: found | {NAME: found[NAME].double()}, "not the weights of a generator"),
        (lambda found: found | {NAME: found[NAME] * torch.nan}, "not finite"),
        (lambda found: found | {"more": torch.zeros(1)}, "not the weights of a generator deconvolution: more"),
        (lambda found: {NAME: found[NAME]}, "not the weights of a generator"),
        (lambda found: {}, "not the weights of a generator"),
    ],
)
def test_surprising_tensors_are_refused(release: Path, change: Callable[..., Any], sentence: str) -> None:
    path = release / "generator.safetensors"
    safetensors.torch.save_file(change(safetensors.torch.load_file(path)), path)
    with pytest.raises(ReleaseError, match=rf"generator\.safetensors: .*{sentence}"):
        load(release)
    assert failed(release) == {"generator"}


def test_no_pickle_is_read(release: Path) -> None:
    torch.save({NAME: torch.zeros(3, 1)}, release / "generator.safetensors")
    with pytest.raises(ReleaseError, match="not a readable safetensors file"):
        load(release)
    assert failed(release) == {"generator"}


def test_a_generator_that_is_missing_or_that_no_one_vouches_for_is_noticed(
    tmp_path: Path, release: Path, plan: Plan, workshop: Any
) -> None:
    plain = workshop.publish(tmp_path / "plain", plan)
    (release / "generator.safetensors").rename(plain / "generator.safetensors")

    assert failed(release) == {"files", "generator"}
    assert failed(plain) == {"files"}


def test_any_changed_byte_of_it_is_noticed(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Examination, "_check_epsilon", lambda _: "")
    monkeypatch.setattr(Examination, "_check_plan", lambda _: "")
    path = release / "generator.safetensors"
    content = path.read_bytes()
    for position in [*range(0, len(content), len(content) // 15), len(content) - 1]:
        changed = bytearray(content)
        changed[position] ^= 1
        path.write_bytes(changed)
        assert failed(release) == {"generator"}, f"byte {position}"


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], set[str]]] = {
    "no generator": (lambda d: d["contents"].pop("generator"), {"files"}),
    "another generator": (
        lambda d: d["contents"]["generator"].update(architecture="upsampling"),
        {"generator", "plan"},
    ),
    "no such generator": (lambda d: d["contents"]["generator"].update(architecture="gpt"), {"generator", "plan"}),
    "other width": (lambda d: d["contents"]["generator"]["settings"].update(width=5), {"generator", "plan"}),
    "other settings": (lambda d: d["configuration"].update(generator_width=5), {"plan"}),
    "not published": (lambda d: d["configuration"].update(publish_generator=False), {"plan"}),
    "other method": (
        lambda d: (
            d.update(method="psg"),
            [d["configuration"].pop(name) for name in ("generator_rate", "code", "generator_width")],
            d["configuration"].pop("publish_generator"),
        ),
        {"plan"},
    ),
    "more numbers": (lambda d: d["contents"]["generator"].update(numbers=7), {"generator"}),
    "other digest": (lambda d: d["contents"]["generator"].update(digest="0" * 64), {"generator"}),
    "drawn from itself": (
        lambda d: d.update(drawn={"certificate": "0" * 64, "generator": "0" * 64}),
        {"generator", "plan"},
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_are_noticed_though_the_seal_fits(release: Path, workshop: Any, name: str) -> None:
    edit, expected = FORGERIES[name]
    workshop.forge(release, edit)

    assert failed(release) == expected


DRAWN_FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], set[str]]] = {
    "another release": (lambda d: d["drawn"].update(certificate="0" * 64), {"source"}),
    "another generator": (lambda d: d["drawn"].update(generator="0" * 64), {"source"}),
    "other facts": (lambda d: d["facts"].update(name="other"), {"source"}),
    "other seed": (lambda d: d["seeds"].update(drawn=6), {"configuration", "source"}),
    "no seed": (lambda d: d["seeds"].pop("drawn"), {"configuration", "plan", "source"}),
    "other public seed": (lambda d: d["seeds"].update(public=6), {"plan", "source"}),
    "other settings": (lambda d: d["configuration"].update(inner_epochs=7), {"source"}),
    "a method that has none": (lambda d: d["configuration"].update(publish_generator=False), {"plan", "source"}),
    "not drawn": (lambda d: d.pop("drawn"), {"configuration", "plan", "source"}),
    "cheaper": (lambda d: d["guarantee"].update(epsilon_spent=0.1), {"epsilon", "source"}),
}


@pytest.mark.parametrize("name", DRAWN_FORGERIES)
def test_a_set_that_does_not_fit_its_generator_is_noticed(release: Path, drawn: Path, workshop: Any, name: str) -> None:
    edit, expected = DRAWN_FORGERIES[name]
    workshop.forge(drawn, edit)

    assert failed(drawn, source=release) == expected
    assert failed(drawn) == expected - {"source"}


def test_images_that_the_generator_does_not_make_are_noticed(
    tmp_path: Path, release: Path, drawn: Path, workshop: Any
) -> None:
    other = sample(release, per_class=3, seed=6, out=tmp_path / "other")
    for name in ("set.safetensors", "preview.png"):
        (drawn / name).write_bytes((other.path / name).read_bytes())
    workshop.forge(drawn, lambda d: d["contents"].update(digest=other.certificate.contents.digest))

    assert failed(drawn) == set()
    assert failed(drawn, source=release) == {"source"}
    assert failed(drawn, source=tmp_path / "other") == {"source"}


def test_a_set_and_another_release_do_not_belong_together(tmp_path: Path, drawn: Path, workshop: Any) -> None:
    assert failed(drawn, source=publish(workshop, tmp_path / "foreign", seed=2)) == {"source"}


def test_a_release_and_what_was_drawn_from_it_are_paid_for_once(tmp_path: Path, release: Path, drawn: Path) -> None:
    joined = merge([release, drawn], out=tmp_path / "both")

    spent = [load(folder).certificate.guarantee.epsilon_by.rdp for folder in (joined.path, release)]
    assert spent[0] == pytest.approx(spent[1])
    assert joined.certificate.facts.size == FACTS.size
    assert joined.generator is None
    assert failed(joined.path) == set()
    with pytest.raises(ReleaseError, match="made from the same answers"):
        merge([release, drawn], out=tmp_path / "disjoint", disjoint=True)


def test_certificates_keep_to_the_schema_and_to_their_bytes(release: Path, drawn: Path) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(schema()))
    for folder in (release, drawn):
        validator.validate(document(folder))
        text = (folder / "certificate.json").read_bytes()
        assert Certificate.parse(text).to_bytes() == text
