"""`privset generate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tyro

from privset import pipeline
from privset.cli import console
from privset.cli.arguments import Config, PlanArguments, parse_planned
from privset.cli.interrupts import saying
from privset.cli.plan import describe
from privset.cli.tensorboard import require_tensorboard
from privset.cli.watching import watched
from privset.data.records import Dataset
from privset.errors import ConfigError
from privset.methods import Execution, Method, SetMethod, TrainingMethod, require_measuring, require_snapshots
from privset.methods.settings import require_room
from privset.privacy import NoiseSource, Tally
from privset.release import ClassifierRelease, Release, StatisticsRelease
from privset.release.preview import FILE as PREVIEW

Made = TypeVar("Made")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateArguments(PlanArguments[Config]):
    """A synthetic set from private records, or a classifier trained on them, as a release with its certificate."""

    out: Path
    """Folder to write the release to; it must not exist."""
    execution: tyro.conf.OmitArgPrefixes[Execution] = dataclasses.field(default_factory=Execution)
    noise_seed: int | None = None
    """Make the noise repeatable, for tests and studies: the release then says that it is NOT private."""
    snapshots: int = 0
    """Also publish the set as it was at so many evenly spaced moments of the run, at no further cost (psg, psg-prior);
    `privset evaluate --along` shows how accuracy grew with epsilon."""
    tell_votes: bool = False
    """Tell the data holder, on standard error, what the votes would be counted as by an accountant that looks at them
    (g-pate with a separate check). It is no guarantee, depends on the records, and is not to be published."""
    tensorboard: Path | None = None
    """Folder to write curves and previews to as they form, for TensorBoard (pip install 'privset[tensorboard]')."""


def generate(arguments: Sequence[str]) -> int:
    """Make a synthetic set from private records, or train a classifier on them, and write the release."""
    release, parsed = spend(GenerateArguments, arguments, "privset generate", make_any)
    show_made(release, parsed.json, planned=True)
    return 0


def make_any(data: Dataset, *, method: Method[Any], **how: Any) -> Release | ClassifierRelease:
    """Whatever the method makes: a set, or a classifier."""
    if isinstance(method, TrainingMethod):
        return pipeline.train(data, method=method, **how)
    return pipeline.generate(data, method=method, **how)


def spend(kind: Any, arguments: Sequence[str], program: str, make: Callable[..., Made]) -> tuple[Made, Any]:
    """Parse, plan, say what it will cost, and do it; whatever can go wrong before a record is asked does so first."""
    parsed = parse_planned(kind, arguments, program, out=tyro.MISSING)
    budget, method, tally = parsed.budget, parsed.make_method(), Tally()
    measuring = make is pipeline.measure
    if measuring:
        require_measuring(type(method))
    if parsed.snapshots:
        require_snapshots(method)
    if parsed.tell_votes and not method.winners_only:
        raise ConfigError(
            "only g-pate with a separate check (--check, preset paper) has votes to tell of; leave --tell-votes out"
        )
    noise = NoiseSource(parsed.noise_seed)
    if parsed.tensorboard is not None:
        require_tensorboard()
    # Before the data is read: that may take a while.
    check_apart(parsed.out, parsed.data)
    pipeline.check_free(parsed.out, resumable=method.resumable)
    with console.Bars() as bars:
        with saying("nothing was released, and this command has charged nothing"):
            dataset = parsed.reading.load(parsed.data, bars)
            if isinstance(method, SetMethod) and not measuring:
                require_room(dataset.facts, method.config.per_class)
            bars.phase("calibrating the noise", 0)
            planned = pipeline.plan(dataset.facts, method=method, budget=budget)
        if parsed.snapshots:
            planned = require_snapshots(method).with_snapshots(planned, parsed.snapshots)
        if not parsed.json:
            console.show(describe(planned, measuring=measuring))
        bars.stopping = stopping(method)
        with watched(bars, parsed.out, dataset.facts, parsed.tensorboard) as observer:
            release = make(
                dataset,
                method=method,
                budget=budget,
                out=parsed.out,
                noise=noise,
                execution=parsed.execution,
                observer=observer,
                tally=tally,
                **({"snapshots": parsed.snapshots} if parsed.snapshots else {}),
            )
    warn_of_contributions(tally)
    if parsed.tell_votes:
        tell_of_agreement(tally, budget.delta)
    return release, parsed


def stopping(method: Method[Any]) -> str:
    """What becomes of a run that is stopped, for whoever learns that it will take long."""
    if method.resumable:
        return "Ctrl-C stops it; the same command goes on from what was kept, and what was paid for is not paid again."
    return "It cannot be stopped and gone on with: what it has charged by then is lost."


def warn_of_contributions(tally: Tally) -> None:
    """Tell the data holder of records that counted as zero, or not at all."""
    if tally.left_out:
        console.warn(
            f"For the data holder only, not to be published: {tally.left_out:,} record(s) of classes that are larger "
            "than others of the same data were in no shard. With --no-by-class, all are in one."
        )
    if tally.not_finite:
        console.warn(
            f"For the data holder only, not to be published: {tally.not_finite:,} contribution(s) were not finite and "
            "counted as zero. Look for broken images, or lower the learning rates."
        )


def tell_of_agreement(tally: Tally, delta: float) -> None:
    """Tell the data holder what the votes cost by an accountant that looks at them, and what that is worth."""
    if (epsilon := tally.agreement.epsilon(delta)) is not None:
        console.warn(
            f"For the data holder only, not to be published: by PATE's accountant, which looks at the votes, those of "
            f"this run would be counted as epsilon {epsilon:.3g} (delta {delta:g}). That is no guarantee, for these "
            "records or any others: it is added up along the way that this run took, depends on the records, and tells "
            "about them."
        )


def show_made(release: Release | ClassifierRelease, as_json: bool, *, planned: bool = False) -> None:
    """The new set or classifier, for a person, who may have been shown its plan before, or for a program."""
    if isinstance(release, Release) and release.set.looks_alike:
        console.warn(
            f"CAUTION: on average images of all classes look the same; look at {release.path / PREVIEW} before anyone "
            "learns from this set. The noise may have drowned what there was to learn; with a larger epsilon there is "
            "less of it."
        )
    if as_json:
        count = {"images": len(release.set)} if isinstance(release, Release) else {"weights": len(release.trained)}
        console.show_json(summary(release) | count)
    else:
        console.show(release.certificate.statement)
        if release.certificate.claim is not None and not planned:  # a plan names it, too
            console.show(release.certificate.claim.claim().explained())
        console.show(f"The release is in {release.path}")


def check_apart(out: Path, data: str) -> None:
    """Refuse to write into the folder that records are read from, where a release would be taken for some of them."""
    if (folder := Path(data)).is_dir() and out.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"{out} lies in {data}, where the records are; choose a place outside of it")


def summary(release: Release | StatisticsRelease | ClassifierRelease) -> dict[str, object]:
    """What a program wants to know of a new release."""
    guarantee = release.certificate.guarantee
    return {
        "release": str(release.path),
        "private": guarantee.private,
        "epsilon": guarantee.model_dump(mode="json")["epsilon_spent"],
        "delta": guarantee.delta,
        "relation": guarantee.relation,
        "claim": None if release.certificate.claim is None else release.certificate.claim.model_dump(mode="json"),
        "digest": release.certificate.contents.digest,
        "seconds": release.certificate.seconds,
    }
