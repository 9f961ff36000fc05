"""README.md of an export, a dataset card: the guarantee first, then how this format is loaded."""

from __future__ import annotations

import json

from privset.exports.statement import of_export
from privset.release import card
from privset.release.certificate import Certificate
from privset.release.sections import SetContents

FILE = "README.md"

_LOADING = {
    "png": """\
Every class has a folder of its own; `metadata.csv` has the path, the label and the class of each image.

```python
from torchvision.datasets import ImageFolder

data = ImageFolder("{here}")  # numbers the classes by the order of their names; metadata.csv has the labels below
```""",
    "npz": """\
```python
import numpy as np

with np.load("{here}/set.npz") as data:
    images, labels, classes = data["x"], data["y"], data["classes"]  # uint8 pixels, int64, names
```""",
    "parquet": """\
```python
from datasets import load_dataset

data = load_dataset("{here}", split="train")  # columns image and label
```""",
    "torch": """\
```python
import torch

data = torch.load("{here}/set.pt", weights_only=True)
images, labels, classes = data["images"], data["labels"], data["classes"]
```""",
}


def write(certificate: Certificate, to: str) -> str:
    """The whole card, as Markdown with YAML front matter in the Hugging Face layout."""
    parts = [
        _front_matter(certificate, to),
        f"# {card.escape(card.title(certificate))}",
        card.warning(certificate),
        card.escape(of_export(certificate)),
        card.guarantee(certificate),
        card.claim(certificate),
        _contents(certificate, to),
        f"## How to load it\n\n{_LOADING[to].format(here='FOLDER')}\n\n{_constants(certificate)}",
        card.limits(certificate),
        _origin(certificate),
        _LICENCE,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front_matter(certificate: Certificate, to: str) -> str:
    """YAML in which every string is a JSON string: these are YAML too, whatever characters they have."""
    assert isinstance(certificate.contents, SetContents)
    lines = [
        "---",
        f"pretty_name: {_text(card.title(certificate))}",
        "task_categories:",
        "- image-classification",
        "size_categories:",
        f"- {_text(card.size_category(certificate.contents.images))}",
        "tags:",
        *(f"- {tag}" for tag in card.tags(certificate)),
    ]
    if to == "parquet":
        lines += [
            "configs:",
            "- config_name: default",
            "  data_files:",
            "  - split: train",
            '    path: "data/train-*.parquet"',
            "dataset_info:",
            "  features:",
            "  - name: image",
            "    dtype: image",
            "  - name: label",
            "    dtype:",
            "      class_label:",
            "        names:",
            *(f'          "{label}": {_text(name)}' for label, name in enumerate(certificate.facts.classes)),
        ]
    return "\n".join([*lines, "---"])


def _text(words: str) -> str:
    return json.dumps(words, ensure_ascii=False)


def _contents(certificate: Certificate, to: str) -> str:
    facts, contents = certificate.facts, certificate.contents
    assert isinstance(contents, SetContents)
    text = (
        f"## What is in it\n\n{contents.images:,} images of {facts.channels} x {facts.height} x {facts.width} "
        f"(channels, height, width) in {len(facts.classes):,} classes, made by the method "
        f"{card.escape(certificate.method)} on {certificate.created[:10]}."
    )
    if contents.pixel_form == "8-bit":
        return text
    return f"{text}\n\n{_CUT[to]}"


_SEEN = "**The set is made of unbounded floats, and what is here was rounded and cut to 8-bit pixels.**"
_CUT = {
    "png": f"{_SEEN} To train on it as it was meant, use the release, or its export to torch.",
    "parquet": f"{_SEEN} To train on it as it was meant, use the release, or its export to torch.",
    "npz": f"{_SEEN} That holds for `x`; as it was meant, the set is in `normalised`, float32.",
    "torch": "**The values are unbounded floats in the normalised space, not 8-bit pixels.**",
}


def _constants(certificate: Certificate) -> str:
    mean, std = list(certificate.facts.mean), list(certificate.facts.std)
    return (
        f"Pixels, divided by 255, are normalised with the public constants mean {mean} and std {std}, one number for "
        "each channel. Whatever is done to these images must be done to the test images too."
    )


def _origin(certificate: Certificate) -> str:
    return (
        "## Where it comes from\n\nThis is a converted copy of a privset release, which was verified just before. "
        "`certificate.json` is the certificate of that release: its digests are those of the files there, and `privset "
        "verify` is for that folder, not for this one.\n\n"
        f"- seal of the certificate: `{certificate.seal}`\n"
        f"- digest of the tensors: `{certificate.contents.digest}`"
    )


_LICENCE = (
    "## Licence\n\nThe holder of the private data decides under which licence this is published, and says so here. "
    "privset claims no rights in it."
)
