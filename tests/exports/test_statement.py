"""Whoever receives an export alone is not told that it holds what only the release does."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from privset.exports import FORMATS, Format, export
from privset.exports.statement import of_export
from privset.release import load
from privset.release.sections import GeneratorContents

ALONG = "This is an export of the set alone: the images as they were along the run are in the release only."


def stated(folder: Path, to: Format) -> list[str]:
    """Every place of an export that states what it is."""
    found = [(folder / "README.md").read_text(encoding="utf-8")]
    if (folder / "croissant.json").exists():
        document = json.loads((folder / "croissant.json").read_text(encoding="utf-8"))
        found += [document["description"], document["rai:personalSensitiveInformation"]]
    if to == "npz":
        with np.load(folder / "set.npz") as data:
            found.append(str(data["statement"]))
    if to == "torch":
        found.append(torch.load(folder / "set.pt", weights_only=True)["statement"])
    return found


@pytest.mark.parametrize("to", FORMATS)
def test_an_export_says_that_the_images_along_the_run_are_in_the_release(
    releases: dict[str, Path], tmp_path: Path, to: Format
) -> None:
    out = export(releases["along"], to=to, out=tmp_path / "out")

    assert not list(out.rglob("*snapshots*"))
    words = load(releases["along"]).certificate.statement
    assert "also holds the images as they were along the run" in words
    assert all(f"{words} {ALONG}" in text for text in stated(out, to))


def test_a_generator_is_in_the_release_only_too(releases: dict[str, Path]) -> None:
    certificate = load(releases["along"]).certificate
    form = GeneratorContents(architecture="linear", settings={"length": 4}, numbers=1, digest="0" * 64)
    both = certificate.model_copy(update={"contents": certificate.contents.model_copy(update={"generator": form})})
    words = "the weights of the generator and the images as they were along the run are in the release only."
    assert of_export(both).endswith(words)


def test_of_a_set_alone_the_words_of_the_certificate_are_enough(release: Path) -> None:
    certificate = load(release).certificate
    assert of_export(certificate) == certificate.statement
