import json
from pathlib import Path
from typing import Any

import mlcroissant
import numpy as np
import pytest

from privset.exports import export
from privset.release import load

# rdflib, which mlcroissant reads JSON-LD with, calls its own old names.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def described(release: Path, out: Path, to: Any) -> tuple[mlcroissant.Dataset, dict[str, Any]]:
    path = export(release, to=to, out=out) / "croissant.json"
    return mlcroissant.Dataset(jsonld=path), json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("to", ["png", "parquet"])
def test_it_validates_and_its_records_are_the_set(release: Path, tmp_path: Path, to: str) -> None:
    found, _ = described(release, tmp_path / "out", to)

    assert not found.metadata.ctx.issues.errors
    made = load(release).set
    records = list(found.records("images"))
    # As RGB: mlcroissant makes that of grey PNG files.
    images = np.stack([np.asarray(record["images/image"].convert("RGB")) for record in records])
    labels = [int(record["images/label"]) for record in records]
    expected = made.pixels().expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy()
    order = np.lexsort(images.reshape(len(images), -1).T), np.lexsort(expected.reshape(len(expected), -1).T)
    assert np.array_equal(images[order[0]], expected[order[1]])
    assert np.array_equal(np.array(labels)[order[0]], made.labels.numpy()[order[1]])
    classes = [record["classes/name"] for record in found.records("classes")]
    assert [name.decode() if isinstance(name, bytes) else name for name in classes] == list(made.facts.classes)


@pytest.mark.parametrize("to", ["png", "parquet"])
def test_it_carries_the_privacy_statement_and_no_licence(release: Path, tmp_path: Path, to: str) -> None:
    found, document = described(release, tmp_path / "out", to)

    certificate = load(release).certificate
    assert found.metadata.description == certificate.statement
    assert document["rai:personalSensitiveInformation"] == certificate.statement
    assert document["rai:dataLimitations"] == list(certificate.not_accounted)
    assert certificate.seal in document["rai:dataCollection"]
    assert "license" not in document
    if not certificate.guarantee.private:
        assert document["description"].startswith("NOT PRIVATE.")
        assert "not-private" in document["keywords"]


def test_a_changed_file_is_noticed(releases: dict[str, Path], tmp_path: Path) -> None:
    found, document = described(releases["private"], tmp_path / "out", "parquet")
    (file,) = document["distribution"]
    (tmp_path / "out" / file["contentUrl"]).write_bytes(b"something else")
    with pytest.raises(mlcroissant.GenerationError):
        list(found.records("images"))
