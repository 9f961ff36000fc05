import json
from pathlib import Path

import pytest
import safetensors.torch
import torch

from privset.errors import ReleaseError
from privset.release import load


@pytest.mark.parametrize("name", ["certificate.json", "set.safetensors"])
def test_loading_names_the_missing_file(release: Path, name: str) -> None:
    (release / name).unlink()
    with pytest.raises(ReleaseError, match=f"has no {name}"):
        load(release)


def test_loading_refuses_other_things(release: Path, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="is not a folder"):
        load(tmp_path / "nowhere")
    document = json.loads((release / "certificate.json").read_text())
    (release / "certificate.json").write_text(json.dumps(document | {"version": 9}))
    with pytest.raises(ReleaseError, match=r"certificate\.json: has version 9"):
        load(release)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "Infinity", "NaN"])
def test_loading_refuses_numbers_that_are_none(release: Path, number: str) -> None:
    text = (release / "certificate.json").read_text()
    (release / "certificate.json").write_text(
        text.replace('"configuration": {', f'"configuration": {{"x": {number}, ', 1)
    )
    assert number in (release / "certificate.json").read_text()
    with pytest.raises(ReleaseError, match=r"certificate\.json: not JSON"):
        load(release)


def test_loading_refuses_a_certificate_that_was_changed(release: Path) -> None:
    document = json.loads((release / "certificate.json").read_text())
    document["guarantee"]["epsilon_spent"] = 0.1
    (release / "certificate.json").write_text(json.dumps(document))
    with pytest.raises(ReleaseError, match=r"certificate\.json: was changed, and its seal does not fit it"):
        load(release)


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        (torch.zeros(12, 1, 8, 8, dtype=torch.uint8), "is not the set"),
        (torch.zeros(12, 1, 8, 8), "holds unbounded floats, but the certificate says 8-bit"),
        (torch.zeros(12, 3, 8, 8, dtype=torch.uint8), "shape"),
        (torch.zeros(12, 1, 8, 8, dtype=torch.int16), "uint8 pixels or float32"),
        (torch.full((12, 1, 8, 8), float("nan")), "not finite"),
    ],
)
def test_loading_refuses_surprising_tensors(release: Path, images: torch.Tensor, sentence: str) -> None:
    labels = torch.arange(3).repeat_interleave(4)
    safetensors.torch.save_file({"images": images, "labels": labels}, release / "set.safetensors")
    with pytest.raises(ReleaseError, match=rf"set\.safetensors: .*{sentence}"):
        load(release)
