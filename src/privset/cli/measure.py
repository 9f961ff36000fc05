"""`privset measure`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from privset import pipeline
from privset.cli import console
from privset.cli.arguments import Config
from privset.cli.generate import GenerateArguments, spend, summary


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureArguments(GenerateArguments[Config]):
    """Noisy statistics of private records, as a release with its certificate, to distil sets from.

    Settings that only distilling looks at are recorded, and are what `privset distil` starts from.
    """


def measure(arguments: Sequence[str]) -> int:
    """Spend the budget on noisy statistics that sets can be distilled from."""
    release, parsed = spend(MeasureArguments, arguments, "privset measure", pipeline.measure)
    if parsed.json:
        console.show_json(summary(release) | {"numbers": len(release.statistics)})
    else:
        console.show(release.certificate.statement)
        console.show(
            f"The statistics are in {release.path}; make sets from them with `privset distil {release.path} --out SET`"
        )
    return 0
