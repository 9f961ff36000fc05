"""`privset generate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import tyro

from privset import pipeline
from privset.cli import console
from privset.cli.arguments import Config, PlanArguments, parse_planned
from privset.cli.plan import describe
from privset.methods import Execution
from privset.privacy import NoiseSource, Tally
from privset.release import Release


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateArguments(PlanArguments[Config]):
    """A synthetic set from private records, as a release with its certificate."""

    out: Path
    """Folder to write the release to; it must not exist."""
    execution: tyro.conf.OmitArgPrefixes[Execution] = dataclasses.field(default_factory=Execution)
    noise_seed: int | None = None
    """Make the noise repeatable, for tests and studies: the release then says that it is NOT private."""


def generate(arguments: Sequence[str]) -> int:
    """Make a synthetic set from private records and write the release."""
    parsed = parse_planned(GenerateArguments, arguments, "privset generate", out=tyro.MISSING)
    budget, method, tally = parsed.budget, parsed.make_method(), Tally()
    noise = NoiseSource(parsed.noise_seed)
    pipeline.check_free(parsed.out)  # before the data is read: that may take a while
    with console.Bars() as bars:
        dataset = parsed.reading.load(parsed.data, bars)
        bars.phase("calibrating the noise", 0)
        planned = pipeline.plan(dataset.facts, method=method, budget=budget)
        if not parsed.json:
            console.show(describe(planned))
        release = pipeline.generate(
            dataset,
            method=method,
            budget=budget,
            out=parsed.out,
            noise=noise,
            execution=parsed.execution,
            observer=bars,
            tally=tally,
        )
    if tally.not_finite:
        console.warn(
            f"For the data holder only, not to be published: {tally.not_finite:,} contribution(s) were not finite and "
            "counted as zero. Look for broken images, or lower the learning rates."
        )
    if parsed.json:
        console.show_json(summary(release))
    else:
        console.show(release.certificate.statement)
        console.show(f"The release is in {release.path}")
    return 0


def summary(release: Release) -> dict[str, object]:
    """What a program wants to know of a new release."""
    guarantee = release.certificate.guarantee
    return {
        "release": str(release.path),
        "images": len(release.set.labels),
        "private": guarantee.private,
        "epsilon": guarantee.model_dump(mode="json")["epsilon_spent"],
        "delta": guarantee.delta,
        "relation": guarantee.relation,
        "digest": release.certificate.contents.digest,
        "seconds": release.certificate.seconds,
    }
