"""`privset report`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from privset.cli import console
from privset.cli.arguments import parse
from privset.report import write_report


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportArguments:
    """One self-contained HTML page about a release, or about several side by side; it opens offline and prints well."""

    releases: tyro.conf.Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RELEASE [RELEASE ...]")]]
    """Folders of releases, each of which must verify."""
    evaluation: tuple[Path, ...] = ()
    """Files that `privset evaluate RELEASE --data DATA --json > FILE` wrote, for any of the releases."""
    results: Path | None = None
    """Folder of studies (`privset study run`): adds how accuracy grows with epsilon and with images a class."""
    out: Path = Path("report.html")
    """The file to write."""
    replace: bool = False
    """Write over the file if it exists."""
    json: bool = False
    """Print one JSON object."""


def report(arguments: Sequence[str]) -> int:
    """Write a page to look at: images, guarantee, accuracy, how to use it."""
    parsed = parse(ReportArguments, arguments, "privset report")
    with console.Bars() as bars:
        bars.phase("recomputing", 0)
        written = write_report(
            parsed.releases,
            parsed.out,
            evaluations=parsed.evaluation,
            results=parsed.results,
            replace=parsed.replace,
        )
    if written.accuracies:
        console.warn("For the data holder: accuracies on real images are on the page, and carry no guarantee.")
    if parsed.json:
        console.show_json({"report": str(written.path), "bytes": written.path.stat().st_size})
    else:
        console.show(f"The report is in {written.path}")
    return 0
