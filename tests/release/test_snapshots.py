"""A set that is published with what it was along its run."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting
import jsonschema
import pytest
import safetensors.torch
import torch
from dp_accounting.rdp import RdpAccountant
from tests.release.conftest import FACTS

from privset.errors import ReleaseError
from privset.methods import Psg
from privset.methods.method import Synthesis
from privset.methods.plan import Plan
from privset.release import Certificate, SyntheticSet, load, merge, verify
from privset.release.schema import schema
from privset.release.snapshots import FILE

ANSWERS = (5, 15, 30)


@pytest.fixture
def along(plan: Plan) -> Plan:
    return Psg(plan.config).with_snapshots(plan, 4)  # type: ignore[arg-type]


def made(answers: tuple[int, ...], *, keep_floats: bool = False) -> SyntheticSet:
    labels = torch.arange(3).repeat_interleave(4)
    random = torch.Generator().manual_seed(1)
    states = {number: torch.randn(12, *FACTS.shape, generator=random) for number in answers}
    last = states[answers[-1]]
    return SyntheticSet.from_synthesis(Synthesis(last, labels, keep_floats=keep_floats, snapshots=states), FACTS)


@pytest.fixture
def release(tmp_path: Path, along: Plan, workshop: Any) -> Path:
    return workshop.publish(tmp_path / "release", along, made(along.snapshots))


def failed(folder: Path) -> set[str]:
    return {check.name for check in verify(folder).failures}


def test_they_are_published_read_again_and_vouched_for(release: Path, along: Plan) -> None:
    loaded, stated = load(release), json.loads((release / "certificate.json").read_text())

    assert failed(release) == set()
    assert along.snapshots == (5, 15, 20, 30)
    assert stated["contents"]["snapshots"]["answers"] == [5, 15, 20, 30]
    assert FILE in stated["files"]
    expected, found = made(along.snapshots).snapshots, loaded.set.snapshots
    assert expected is not None
    assert found is not None
    assert found.digest() == expected.digest() == stated["contents"]["snapshots"]["digest"]
    assert all(torch.equal(found.images[number], expected.images[number]) for number in along.snapshots)
    assert "also holds the images as they were along the run; the guarantee covers them" in loaded.certificate.statement
    assert "after 5, 15, 20, 30 answers" in (release / "README.md").read_text()
    text = (release / "certificate.json").read_bytes()
    assert Certificate.parse(text).to_bytes() == text
    jsonschema.Draft202012Validator(json.loads(schema())).validate(stated)


def test_what_each_costs_is_that_of_its_answers_by_the_accountant_and_delta_of_the_release(release: Path) -> None:
    loaded = load(release)
    steps = loaded.along()

    (event,) = loaded.certificate.events
    sampled = dp_accounting.PoissonSampledDpEvent(
        event.sampling_rate, dp_accounting.GaussianDpEvent(event.noise_multiplier)
    )
    for step in steps:
        oracle = RdpAccountant().compose(sampled, step.answers).get_epsilon(1e-5)
        assert step.epsilon == pytest.approx(oracle, rel=1e-9)
    assert steps[-1].epsilon == loaded.certificate.guarantee.epsilon_spent
    assert torch.equal(steps[-1].set.images, loaded.set.images)
    costs = [step.epsilon for step in steps]
    assert sorted(set(costs)) == costs


def test_a_set_without_them_says_nothing_of_them(tmp_path: Path, plan: Plan, workshop: Any) -> None:
    folder = workshop.publish(tmp_path / "plain", plan)

    assert not any("snapshot" in path.read_text() for path in (folder / "certificate.json", folder / "README.md"))
    with pytest.raises(ReleaseError, match=r"--snapshots 10`, with the method psg or psg-prior"):
        load(folder).along()


def test_a_joint_set_has_none(tmp_path: Path, release: Path, workshop: Any) -> None:
    plain = workshop.publish(tmp_path / "plain", workshop.plan(seed=2))
    joined = merge([release, plain], out=tmp_path / "both")

    assert joined.set.snapshots is None
    assert failed(joined.path) == set()
    document = json.loads((release / "certificate.json").read_text())
    (joined.path / FILE).write_bytes((release / FILE).read_bytes())

    def claim(joint: dict[str, Any]) -> None:
        joint["contents"]["snapshots"] = document["contents"]["snapshots"]
        joint["files"][FILE] = "0" * 64

    workshop.forge(joined.path, claim)
    assert "joint" in failed(joined.path)


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], set[str]]] = {
    "none": (lambda d: d["contents"].pop("snapshots"), {"files"}),
    "other digest": (lambda d: d["contents"]["snapshots"].update(digest="0" * 64), {"snapshots"}),
    "cheaper ones": (lambda d: d["contents"]["snapshots"].update(answers=[1, 2, 3, 30]), {"snapshots", "plan"}),
    "fewer": (lambda d: d["contents"]["snapshots"].update(answers=[30]), {"snapshots"}),
    "more than asked": (lambda d: d["contents"]["snapshots"].update(answers=[5, 15, 20, 99]), {"snapshots", "plan"}),
    "another order": (lambda d: d["contents"]["snapshots"].update(answers=[20, 15, 5, 30]), {"snapshots", "plan"}),
    "a distilled set": (
        lambda d: d.update(drawn={"certificate": "0" * 64, "generator": "0" * 64}),
        {"snapshots", "plan"},
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_are_noticed_though_the_seal_fits(release: Path, workshop: Any, name: str) -> None:
    edit, expected = FORGERIES[name]
    workshop.forge(release, edit)

    assert failed(release) == expected


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda found: found | {"after-05": 255 - found["after-05"]}, "is not the file that certificate.json is about"),
        (lambda found: found | {"after-06": 1 * found["after-05"]}, "holds 5 snapshots, not 4"),
        (lambda found: {f"{name}0": images for name, images in found.items()}, "of other numbers of answers"),
        (lambda found: found | {"after-05": found["after-05"].float()}, "is not the file"),
    ],
)
def test_other_snapshots_than_the_certificates_are_not_loaded(release: Path, change: Any, sentence: str) -> None:
    path = release / FILE
    path.write_bytes(safetensors.torch.save(change(safetensors.torch.load(path.read_bytes()))))

    with pytest.raises(ReleaseError, match=sentence):
        load(release)
    assert failed(release) == {"snapshots"}


def test_what_cannot_have_become_the_set_is_refused() -> None:
    fine = made(ANSWERS)
    kept = fine.snapshots
    assert kept is not None
    wrong = {
        "the last of them is the set": {5: fine.images, 30: 255 - fine.images},
        "growing numbers": {30: fine.images, 5: fine.images},
        "after 5 answers is not of the form": {5: fine.images.float(), 30: fine.images},
    }
    for sentence, images in wrong.items():
        with pytest.raises(ReleaseError, match=sentence):
            dataclasses.replace(fine, snapshots=dataclasses.replace(kept, images=images))
    floats = made(ANSWERS, keep_floats=True)
    broken = Synthesis(
        floats.images, floats.labels, keep_floats=True, snapshots={5: floats.images * torch.nan, 30: floats.images}
    )
    with pytest.raises(ReleaseError, match="not finite"):
        SyntheticSet.from_synthesis(broken, FACTS)
