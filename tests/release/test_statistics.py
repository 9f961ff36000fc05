"""Releases of statistics, and sets distilled from them: written, read with suspicion, verified."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import safetensors.torch
import torch

from privset.errors import ReleaseError
from privset.release import NoisyStatistics, load, load_statistics, verify
from privset.release.examination import Examination
from privset.release.schema import schema

FILES = ("README.md", "certificate.json", "ledger.jsonl", "statistics.safetensors")


def failed(folder: Path, **options: Any) -> set[str]:
    return {check.name for check in verify(folder, **options).failures}


def document(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "certificate.json").read_text())


def test_round_trip(statistics: Path, workshop: Any) -> None:
    back = load_statistics(statistics)
    measured = back.measured()

    assert back.statistics.digest() == workshop.statistics(workshop.measuring_plan()).digest()
    assert measured.facts == workshop.facts
    assert measured.config == workshop.measuring_plan().config
    assert sorted(path.name for path in statistics.iterdir()) == sorted(FILES)
    assert document(statistics)["contents"]["kind"] == "statistics"
    assert "source" not in document(statistics)
    found = verify(statistics)
    assert found.ok, found.failures
    assert "preview" not in {check.name for check in found.checks}


def test_the_order_of_tensors_does_not_matter_and_everything_else_does() -> None:
    one, two = torch.ones(2, 3), torch.zeros(1)
    digest = NoisyStatistics({"a": one, "b": two}).digest()

    assert NoisyStatistics({"b": two, "a": one}).digest() == digest
    assert NoisyStatistics({"b": two, "a": one}).to_bytes() == NoisyStatistics({"a": one, "b": two}).to_bytes()
    for other in ({"a": one, "c": two}, {"a": one.view(3, 2), "b": two}, {"a": one * 2, "b": two}):
        assert NoisyStatistics(other).digest() != digest


def test_a_set_and_statistics_are_not_taken_for_each_other(release: Path, statistics: Path) -> None:
    with pytest.raises(ReleaseError, match=r"holds statistics, not images; make a set .*privset distil"):
        load(statistics)
    with pytest.raises(ReleaseError, match=r"holds a synthetic set.*privset measure"):
        load_statistics(release)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda found: found | {"class_sizes": found["class_sizes"] + 1}, "is not the content"),
        (lambda found: found | {"class_sizes": found["class_sizes"][:2]}, "about other shapes"),
        (lambda found: found | {"class_sizes": found["class_sizes"].double()}, "must be float32"),
        (lambda found: found | {"class_sizes": found["class_sizes"] * math.nan}, "not finite"),
        (lambda found: found | {"class_sizes": found["class_sizes"] * math.inf}, "not finite"),
        (lambda found: found | {"more": torch.zeros(1)}, "about other shapes"),
        (lambda found: {"class_sizes": found["class_sizes"]}, "about other shapes"),
        (lambda found: {}, "not a single statistic"),
    ],
)
def test_surprising_tensors_are_refused(statistics: Path, change: Callable[..., Any], sentence: str) -> None:
    path = statistics / "statistics.safetensors"
    safetensors.torch.save_file(change(safetensors.torch.load_file(path)), path)
    with pytest.raises(ReleaseError, match=rf"statistics\.safetensors: .*{sentence}"):
        load_statistics(statistics)
    assert not verify(statistics).ok


def test_no_pickle_is_read(statistics: Path) -> None:
    torch.save({"class_sizes": torch.zeros(3, 1)}, statistics / "statistics.safetensors")
    with pytest.raises(
        ReleaseError, match=r"^[^;]*statistics\.safetensors: not a readable safetensors file[^;]*; get[^;]*$"
    ):
        load_statistics(statistics)


@pytest.mark.parametrize("name", FILES)
def test_any_changed_byte_is_noticed(statistics: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Examination, "_check_epsilon", lambda _: "")
    monkeypatch.setattr(Examination, "_check_plan", lambda _: "")
    path = statistics / name
    content = path.read_bytes()
    assert verify(statistics).ok

    for position in [*range(0, len(content), max(1, len(content) // 20)), len(content) - 1]:
        changed = bytearray(content)
        changed[position] ^= 1
        path.write_bytes(changed)
        assert not verify(statistics).ok, f"byte {position} of {name}"
    path.unlink()
    assert not verify(statistics).ok


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], set[str]]] = {
    "fewer answers": (lambda d: d["events"][1].update(count=1), {"epsilon", "ledger", "plan"}),
    "other networks": (lambda d: d["configuration"].update(networks=3), {"plan"}),
    "other width": (lambda d: d["configuration"].update(width=5), {"plan"}),
    "a width without end": (lambda d: d["configuration"].update(width=10**12), {"plan"}),
    "a depth without end": (lambda d: d["configuration"].update(depth=10**12), {"plan"}),
    "other method": (lambda d: d.update(method="psg"), {"plan"}),
    "other seed": (lambda d: d["seeds"].update(public=4), {"plan"}),
    "a seed too many": (lambda d: d["seeds"].update(measured=0), {"plan"}),
    "other shapes": (lambda d: d["contents"]["shapes"].update(class_sizes=[3, 2]), {"statistics", "plan"}),
    "more numbers": (lambda d: d["contents"].update(numbers=7), {"statistics"}),
    "other digest": (lambda d: d["contents"].update(digest="0" * 64), {"statistics"}),
    "a source": (lambda d: d.update(source={"certificate": "0" * 64, "digest": "0" * 64}), {"statistics", "plan"}),
    "private in spite of a seed": (lambda d: d.update(noise_source="seeded"), {"noise"}),
    "no ledger": (lambda d: d["files"].pop("ledger.jsonl"), {"files", "ledger"}),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_statistics_are_noticed_though_the_seal_fits(statistics: Path, workshop: Any, name: str) -> None:
    edit, expected = FORGERIES[name]
    workshop.forge(statistics, edit)

    assert failed(statistics) == expected


def test_a_distilled_set_carries_the_guarantee_of_its_statistics(distilled: Path, statistics: Path) -> None:
    made, measured = load(distilled).certificate, load_statistics(statistics).certificate

    for name in ("guarantee", "events", "facts", "noise_source", "not_accounted", "method"):
        assert getattr(made, name) == getattr(measured, name)
    assert (distilled / "ledger.jsonl").read_bytes() == (statistics / "ledger.jsonl").read_bytes()
    assert made.seeds == {"public": 5, "measured": 0}
    assert made.configuration["per_class"] == 3
    assert made.source is not None
    assert (made.source.certificate, made.source.digest) == (measured.seal, measured.contents.digest)
    assert measured.seal in (distilled / "README.md").read_text()
    assert failed(distilled) == set()
    assert failed(distilled, source=statistics) == set()


DISTILLED_FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], set[str]]] = {
    "other networks": (lambda d: d["configuration"].update(networks=3), {"plan", "source"}),
    "other warp": (lambda d: d["configuration"].update(warp=0.5), {"source"}),
    "other seed": (lambda d: d["seeds"].update(public=4), {"plan"}),
    "other measured seed": (lambda d: d["seeds"].update(measured=4), {"source"}),
    "no measured seed": (lambda d: d["seeds"].pop("measured"), {"plan", "source"}),
    "another source": (lambda d: d["source"].update(certificate="0" * 64), {"source"}),
    "other statistics": (lambda d: d["source"].update(digest="0" * 64), {"source"}),
    "other facts": (lambda d: d["facts"].update(name="other"), {"source"}),
    "no limits": (lambda d: d["not_accounted"].append("nothing else"), {"source"}),
}


@pytest.mark.parametrize("name", DISTILLED_FORGERIES)
def test_a_set_that_does_not_fit_its_statistics_is_noticed(
    distilled: Path, statistics: Path, workshop: Any, name: str
) -> None:
    edit, expected = DISTILLED_FORGERIES[name]
    workshop.forge(distilled, edit)

    assert failed(distilled, source=statistics) == expected
    assert failed(distilled) == expected - {"source"}


def test_a_set_and_foreign_statistics_do_not_belong_together(
    tmp_path: Path, release: Path, distilled: Path, statistics: Path, workshop: Any
) -> None:
    other = workshop.measure(tmp_path / "other", epsilon=0.4)

    assert failed(distilled, source=other) == {"source"}
    assert failed(release, source=statistics) == {"source"}
    assert failed(distilled, source=release) == {"source"}
    workshop.forge(statistics, lambda d: d["guarantee"].update(epsilon_spent=0.1))
    (finding,) = verify(distilled, source=statistics).failures
    assert "does not hold by itself: epsilon" in finding.detail
    with pytest.raises(ReleaseError, match="is not a folder"):
        verify(distilled, source=tmp_path / "nowhere")


def test_certificates_of_every_kind_keep_to_the_schema(distilled: Path, statistics: Path) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(schema()))

    for folder in (distilled, statistics):
        validator.validate(document(folder))
        changed = document(folder)
        changed["contents"]["kind"] = "magic"
        assert not validator.is_valid(changed)


def test_the_card_of_statistics_says_how_to_use_them(statistics: Path) -> None:
    text = (statistics / "README.md").read_text()

    assert "privset distil FOLDER --per-class 50 --out SET" in text
    assert r"| class\_sizes | 3 x 1 |" in text
    assert "zero, one, two" in text
    assert "size_categories" not in text
    assert load_statistics(statistics).certificate.statement in text
