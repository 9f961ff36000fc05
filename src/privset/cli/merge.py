"""`privset merge`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from privset.cli import console
from privset.cli.arguments import parse
from privset.cli.generate import show_made
from privset.continual import check_note, find
from privset.release import load_published
from privset.release import merge as merge_releases


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergeArguments:
    """The sets of several releases as one release, with one certificate; needs no data.

    Images must be of the same form; classes are joined by name. Each release is verified first.
    """

    releases: tyro.conf.Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RELEASE RELEASE [RELEASE ...]")]]
    """The folders of the releases, or of stages, or folders of such."""
    out: Path
    """Folder to write the joint release to; it must not exist."""
    disjoint: bool = False
    """Your word that no record is in the data of two of them, on which the largest epsilon holds for all. Without it
    everything that was asked adds up."""
    json: bool = False
    """Print one JSON object."""


def merge(arguments: Sequence[str]) -> int:
    """Join the sets of several releases into one release, with one certificate."""
    parsed = parse(MergeArguments, arguments, "privset merge")
    with console.Bars() as bars:
        bars.phase("verifying and joining", 0)
        releases = find(parsed.releases)
        for folder in releases:
            check_note(folder, releases)
        if parsed.disjoint:
            _warn_of_same_data(releases)
        release = merge_releases(releases, out=parsed.out, disjoint=parsed.disjoint)
    if not (parsed.disjoint or parsed.json):
        console.warn(
            "The epsilon is that of all questions together, as if of the same records. If no record is in two of these "
            "releases, say so with --disjoint: the largest of theirs then holds for all."
        )
    show_made(release, parsed.json)
    return 0


def _warn_of_same_data(releases: Sequence[Path]) -> None:
    """Where two releases are of data with the same name, classes and number of records, it may be the same data."""
    seen: dict[object, Path] = {}
    for folder in releases:
        facts = load_published(folder).certificate.facts
        other = seen.setdefault((facts.name, facts.classes, facts.size), folder)
        if other is not folder:
            console.warn(
                f"{other} and {folder} are both of {facts.size:,} records called {facts.name!r}, of the same classes. "
                "If these are the same records, they are not disjoint, and the epsilon stated is too small: leave "
                "--disjoint out."
            )
