"""`privset datasets`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from privset.cli import console
from privset.cli.arguments import parse
from privset.data.named import catalogue


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetsArguments:
    """The data sets known by name."""

    json: bool = False
    """Print one JSON object."""


def datasets(arguments: Sequence[str]) -> int:
    """The data sets known by name, and what else can be given in their place."""
    parsed = parse(DatasetsArguments, arguments, "privset datasets")
    known = catalogue.SETS.values()
    if parsed.json:
        described = [dataclasses.asdict(catalogue.facts(entry.name)) | {"test": entry.test} for entry in known]
        console.show_json({"datasets": described})
        return 0
    rows = [
        [
            entry.name,
            f"{entry.train:,} + {entry.test:,}",
            "x".join(map(str, entry.shape)),
            str(len(entry.classes)),
            entry.description,
        ]
        for entry in known
    ]
    console.show_table(["name", "train + test", "shape", "classes", "what it is"], rows)
    console.show(
        "Your own data: a folder of class-named subfolders of PNG or JPEG files (with or without train/ and test/), an "
        ".npz with x and y, or a parquet file or folder in the Hugging Face image layout (pip install 'privset[hub]')."
    )
    return 0
