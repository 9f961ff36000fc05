import json
import math
from pathlib import Path
from typing import Any

import pytest

from privset.errors import ReleaseError
from privset.methods.plan import Plan
from privset.privacy.budget import RELATION
from privset.release import Certificate, load


def document_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "certificate.json").read_text())


def test_certificate_records_the_plan(release: Path, plan: Plan) -> None:
    document = document_of(release)

    assert (document["format"], document["version"]) == ("privset-certificate", 1)
    assert document["created"] == "2026-01-02T03:04:05Z"
    assert document["guarantee"] == {
        "private": True,
        "epsilon_budgeted": 0.5,
        "epsilon_spent": plan.epsilon,
        "delta": 1e-5,
        "relation": RELATION,
        "accountant": "rdp",
        "epsilon_by": {"rdp": plan.spending.rdp, "pld": plan.spending.pld},
    }
    assert document["guarantee"]["epsilon_by"]["pld"] < 0.5
    assert document["events"] == [
        {
            "question": "gradient",
            "sampling_rate": 0.05,
            "noise_multiplier": plan.noise_multiplier,
            "count": 30,
        }
    ]
    assert document["configuration"]["batches_per_step"] == 5
    assert document["configuration"]["noise_multiplier"] is None
    assert document["facts"]["classes"] == ["zero", "one", "two"]
    assert document["seeds"] == {"public": 0}
    assert set(document["software"]) == {"python", "privset", "torch", "numpy", "scipy", "dp-accounting", "randomgen"}
    assert set(document["files"]) == {"set.safetensors", "README.md", "preview.png", "ledger.jsonl"}
    assert document["contents"]["per_class"] == [4, 4, 4]


def test_infinite_epsilon_is_json_all_the_same(tmp_path: Path, workshop: Any) -> None:
    folder = workshop.publish(tmp_path / "set", workshop.plan(math.inf))
    text = (folder / "certificate.json").read_text()
    guarantee = json.loads(text, parse_constant=pytest.fail)["guarantee"]

    assert guarantee["epsilon_budgeted"] == guarantee["epsilon_spent"] == guarantee["epsilon_by"]["rdp"] == "inf"
    assert guarantee["epsilon_by"]["pld"] is None
    assert guarantee["private"] is False
    assert load(folder).certificate.guarantee.epsilon_budgeted == math.inf
    assert not load(folder).certificate.budget().private


def test_seeded_noise_is_stamped(tmp_path: Path, plan: Plan, workshop: Any) -> None:
    certificate = load(workshop.publish(tmp_path / "set", plan, noise="seeded")).certificate

    assert certificate.noise_source == "seeded"
    assert not certificate.guarantee.private
    assert "seeded noise: not private" in certificate.statement.lower()


def test_private_release_needs_a_ledger(plan: Plan, workshop: Any) -> None:
    made = workshop.set()

    with pytest.raises(ReleaseError, match="ledger"):
        workshop.certify(plan, made, None)
    assert "ledger.jsonl" not in workshop.certify(plan, made, None, "seeded").files


def test_bytes_come_back_and_the_seal_covers_every_field(release: Path) -> None:
    text = (release / "certificate.json").read_bytes()
    certificate = Certificate.parse(text)

    assert certificate.to_bytes() == text
    assert certificate.seal == certificate.expected_seal()
    for name, value in {"method": "x", "created": "y", "seeds": {}, "not_accounted": ()}.items():
        assert certificate.model_copy(update={name: value}).expected_seal() != certificate.seal


def test_seal_can_be_computed_without_privset(release: Path) -> None:
    import hashlib

    document = document_of(release)
    seal = document.pop("seal")

    assert hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest() == seal


def test_fields_a_certificate_does_not_have_stay_out_of_it(release: Path) -> None:
    class Later(Certificate):
        remark: str | None = None

    text = (release / "certificate.json").read_bytes()

    assert Later.parse(text).to_bytes() == text
    assert Later.parse(text).expected_seal() == Certificate.parse(text).seal


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        ({"version": 2}, "version 2, and this privset knows version 1; upgrade privset"),
        ({"format": "other"}, "not a privset certificate"),
        ({"new_field": 1}, "new_field: Extra inputs are not permitted; upgrade privset"),
        ({"events": "none"}, "events: Input should be a valid array"),
        ({"seconds": -1}, "seconds: Input should be greater than or equal to 0"),
        ({"method": 3}, "method: Input should be a valid string"),
    ],
)
def test_other_documents_are_refused(release: Path, edit: dict[str, object], sentence: str) -> None:
    with pytest.raises(ReleaseError, match=f"a/certificate.json: .*{sentence}"):
        Certificate.parse(json.dumps(document_of(release) | edit).encode(), "a/certificate.json")


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[NaN]", b"[" * 100_000])
def test_what_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(ReleaseError, match="not JSON"):
        Certificate.parse(text)
