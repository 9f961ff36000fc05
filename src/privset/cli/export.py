"""`privset export`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from privset import exports
from privset.cli import console
from privset.cli.arguments import parse
from privset.exports.statement import of_export
from privset.release import load


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportArguments:
    """The set of a release in the form that people's tools take, with its certificate and a card.

    The release is verified first. The export is a copy: keep the release, which is what can be verified.
    """

    release: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RELEASE")]]
    """The folder of the release."""
    to: exports.Format
    """png (folders by class), npz (NumPy), parquet (Hugging Face), torch (a file for torch.load)."""
    out: Path | None = None
    """Folder to write; it must not exist. By default RELEASE-FORMAT, beside the release."""
    json: bool = False
    """Print one JSON object."""


def export(arguments: Sequence[str]) -> int:
    """Write the set of a release as PNG files, for NumPy, for Hugging Face or for PyTorch."""
    parsed = parse(ExportArguments, arguments, "privset export")
    with console.Bars() as bars:
        folder = exports.export(parsed.release, to=parsed.to, out=parsed.out, observer=bars)
    release = load(parsed.release)
    private = release.certificate.guarantee.private
    if parsed.json:
        console.show_json(
            {
                "export": str(folder),
                "format": parsed.to,
                "images": len(release.set),
                "private": private,
                "statement": of_export(release.certificate),
                "files": sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()),
            }
        )
        return 0
    if not private:
        console.warn("NOT PRIVATE: this release has no guarantee, and its export says so.")
    console.show(f"{len(release.set):,} images, their certificate and a card are in {folder}")
    return 0
