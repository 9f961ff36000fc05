"""`privset continual DATA` and `privset continual stage DATA`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from privset import continual as course
from privset.cli import console
from privset.cli.arguments import Config, PlanArguments, parse_planned
from privset.cli.generate import check_apart, stopping, warn_of_contributions
from privset.continual import Course, Exam, Received, Stage
from privset.data import Dataset, shared
from privset.errors import ConfigError
from privset.evaluation import Evaluation
from privset.methods import Execution, Method, TrainingMethod
from privset.privacy import Tally
from privset.release import ClassifierRelease
from privset.release.statement import rounded_up


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedArguments(PlanArguments[Config]):
    """What a stage and a whole course have in common."""

    out: Path
    """Folder to write to; given again, what is finished in it is not made again, and what was stopped goes on."""
    classifier: str = "convnet"
    """The network that learns all classes from the sets released so far; see `privset methods`."""
    recipe: tuple[str, ...] = ("paper",)
    """How it is trained: paper, quick or long; all that are named."""
    trainings: int = 3
    """How many such networks, each from its own initial weights, are trained on the same releases."""
    execution: tyro.conf.OmitArgPrefixes[Execution] = dataclasses.field(default_factory=Execution)
    noise_seed: int | None = None
    """Make the noise repeatable, for tests and studies: the releases then say that they are NOT private."""

    @property
    def exam(self) -> Exam:
        """How what was released is tested; its seed is that of the method."""
        return Exam(classifier=self.classifier, recipes=self.recipe, networks=self.trainings, seed=self.settings.seed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContinualArguments(SharedArguments[Config]):
    """Parties with disjoint classes publish one after the other; a classifier learns all classes seen so far.

    Each party has the whole of the budget for its own records, because no record lies with two parties: here all come
    from one data set, and each record has one label. `privset continual stage --help` shows how to run one stage alone,
    on the machine of its party.
    """

    stages: int = 5
    """Number of parties, among which the classes are divided; each gets two or more."""
    class_order: tuple[str, ...] | None = None
    """Names of all classes in the order in which they are seen; by default the published one for named sets of
    ten classes, and otherwise that of the labels."""
    order_seed: int | None = None
    """Seed of a random order instead."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageArguments(SharedArguments[Config]):
    """One party's stage: reads its own records and the releases it received, and nothing else.

    Received releases are verified first; one that does not hold, or that cost too much, is refused. The folder that is
    written goes to the next party. Of data that has other classes too, as a named set has, their records are left out
    as soon as it is read; a party has a file or folder of its own.
    """

    classes: tuple[str, ...] | None = None
    """The classes of this party; by default all that the data has."""
    received: tuple[Path, ...] = ()
    """Folders of earlier stages in their order, or folders of such folders; of classifiers, all stages so far."""
    disjoint: bool = False
    """The word of all parties that no record lies with two of them; needed if anything was received. Different classes
    do not make it so, and no file can show it."""
    accept_epsilon: float | None = None
    """The largest epsilon that a received release may have cost; by default this party's own."""
    accept_delta: float | None = None
    """The largest delta that a received release may have; by default this party's own."""
    known: tuple[str, ...] | None = None
    """For a classifier (dp-sgd): all classes of all parties, in the order agreed on; by default those of the classifier
    that was received, or of the data if there is none."""
    test: str | None = None
    """Data that has all classes seen so far, to see how good all releases are together: its test split, or all of it if
    it has none and is not DATA itself. It should share no image with any party's records. By default: no test."""


def continual(arguments: Sequence[str]) -> int:
    """Parties with disjoint classes publish in stages; a classifier learns all classes seen so far."""
    if arguments and arguments[0] == "stage":
        return stage(arguments[1:])
    parsed = parse_planned(ContinualArguments, arguments, "privset continual", out=tyro.MISSING)
    method, budget, exam, tally = parsed.make_method(), parsed.budget, parsed.exam, Tally()
    check_apart(parsed.out, parsed.data)
    _check_as_trained(method, arguments)
    with console.Bars() as bars:
        dataset = parsed.reading.load(parsed.data, bars)
        order = course.class_order(dataset, names=parsed.class_order, seed=parsed.order_seed)
        parties = course.divide(order, parsed.stages)
        bars.phase("calibrating the noise of every party", 0)
        stages = course.prepare(
            dataset,
            parties,
            method=method,
            budget=budget,
            out=parsed.out,
            exam=exam,
            noise_seed=parsed.noise_seed,
        )
        if not parsed.json:
            console.show_table(_PLANNED, [_planned(one) for one in stages], title="The stages would cost")

        def told(number: int, _release: Received, found: dict[str, Evaluation]) -> None:
            words = "; ".join(f"{one.mean:.1f} % by {recipe}" for recipe, one in found.items())
            bars.note("accuracy", f"after stage {number}: {words}")

        bars.stopping = stopping(method)
        found = course.run(
            dataset, stages, exam=exam, execution=parsed.execution, observer=bars, tally=tally, told=told
        )
    warn_of_contributions(tally)
    if parsed.json:
        console.show_json({"out": str(parsed.out)} | found.to_json())
    else:
        show(found)
        console.show(found.guarantee["statement"])
        console.show(f"Releases, guarantee, results and figure are in {parsed.out}")
    return 0


def stage(arguments: Sequence[str]) -> int:
    """`privset continual stage`: one stage alone."""
    parsed = parse_planned(StageArguments, arguments, "privset continual stage", out=tyro.MISSING)
    method, budget, tally = parsed.make_method(), parsed.budget, Tally()
    check_apart(parsed.out, parsed.data)
    _check_as_trained(method, arguments)
    if parsed.test is None and (given := _of_the_exam(arguments)):
        raise ConfigError(f"nothing is tested here, so {', '.join(given)} would do nothing; say on what (--test DATA)")
    if parsed.received and not parsed.disjoint:
        raise ConfigError(
            "the guarantee of all releases together rests on no record being with two parties, which different classes "
            "do not show: two parties may hold the same image under different labels. If the parties' records are "
            "disjoint, say so with --disjoint; if not, publish alone (`privset generate`), and epsilons add up "
            "(`privset merge`)"
        )
    accepted = dataclasses.replace(
        budget,
        epsilon=budget.epsilon if parsed.accept_epsilon is None else parsed.accept_epsilon,
        delta=budget.delta if parsed.accept_delta is None else parsed.accept_delta,
    )
    private = parsed.noise_seed is None and budget.private
    with console.Bars() as bars:
        if parsed.received:
            bars.phase("verifying what was received", 0)
        received = course.receive(parsed.received, accepted, private=private, own=parsed.out)
        dataset = parsed.reading.load(parsed.data, bars)
        tested = dataset if parsed.test == parsed.data else None  # with its own test split
        if parsed.test is not None and tested is None:
            tested = parsed.reading.load_to_test_on(parsed.test, bars)
        classes, known = parsed.classes or dataset.facts.classes, parsed.known or _known(received)
        alone = not received and set(known or dataset.facts.classes) <= set(classes)
        if isinstance(method, TrainingMethod) and alone:
            raise ConfigError(
                f"a classifier for {', '.join(classes)} alone has no outputs for the classes of other parties, and "
                "none could go on from it; name all classes of all parties, in the order agreed on (--known)"
            )
        bars.phase("calibrating the noise", 0)
        one = Stage.prepare(
            dataset,
            classes,
            number=len(received) + 1,
            method=method,
            budget=budget,
            out=parsed.out,
            known=known,
            noise_seed=parsed.noise_seed,
        )
        one.check(received)
        one.check_free()
        if tested is not None:
            seen = [name for earlier in received for name in earlier.classes]
            parsed.exam.check(tested, method, [*seen, *one.classes], made=one.party.facts)
            _warn_of_shared(tested, one)
        if not parsed.json:
            if received:
                console.show_table(_RECEIVED, [_had(each) for each in received], title="Received")
            console.show_table(_PLANNED, [_planned(one)], title="This stage would cost")
        bars.stopping = stopping(method)
        own = one.run(received, execution=parsed.execution, observer=bars, tally=tally)
        released = [*received, own]
        found = {}
        if tested is not None:
            found = course.examine(released, tested, parsed.exam, device=parsed.execution.device, observer=bars)
    warn_of_contributions(tally)
    whole = course.guarantee(released)
    if parsed.json:
        measured = {recipe: one.to_json() for recipe, one in found.items()}
        console.show_json({"out": str(parsed.out), "stage": one.number, "recipes": measured, "guarantee": whole})
        return 0
    console.show(own.certificate.statement)
    console.show(f"Of all {len(released)} release(s) together: {whole['statement']}")
    for recipe, measured in found.items():
        console.show(f"{measured.mean:.1f} % of the test images of all classes seen so far, by the recipe {recipe}")
    then = "hand it on as a whole" if own.certificate.guarantee.private else "it is NOT private: do not hand it on"
    console.show(f"The stage is in {parsed.out}; {then}")
    return 0


def _check_as_trained(method: Method[Any], arguments: Sequence[str]) -> None:
    """Refuse what says how to train a network on sets, where a classifier is published, and tested as it is."""
    if isinstance(method, TrainingMethod) and (given := _of_the_exam(arguments)):
        raise ConfigError(
            f"with {method.name} the classifier itself travels, and is tested as it is; leave out {', '.join(given)}"
        )


def _of_the_exam(arguments: Sequence[str]) -> list[str]:
    """Options among these that say how to train a network on sets."""
    typed = {word.partition("=")[0] for word in arguments}
    return [option for option in ("--classifier", "--recipe", "--trainings") if option in typed]


def _known(received: Sequence[Received]) -> tuple[str, ...] | None:
    """The classes that the last classifier received has outputs for."""
    last = received[-1].release if received else None
    return last.trained.facts.classes if isinstance(last, ClassifierRelease) else None


def _warn_of_shared(tested: Dataset, stage: Stage) -> None:
    assert tested.test is not None
    count = shared(tested.test, stage.party.train)
    if count:
        console.warn(
            f"{count:,} of the {len(tested.test):,} test images are among this party's own records: how good the "
            "releases are will look better than it is. Keep what is tested on out of every party's data."
        )


def show(found: Course) -> None:
    """Accuracies stage by stage, for a person."""
    for recipe, scores in found.scores.items():
        rows = [
            [
                str(number),
                ", ".join(party),
                f"{one.mean:.1f} %" + (f" ± {one.deviation:.1f}" if len(one.accuracy) > 1 else ""),
                f"{one.average:.1f} %",
                f"{one.forgetting:.1f}",
            ]
            for number, (party, one) in enumerate(zip(found.parties, scores, strict=True), 1)
        ]
        columns = ["stage", "new classes", "accuracy on all seen", "mean over parties", "forgotten, points"]
        console.show_table(columns, rows, title=f"Tested after each stage, recipe {recipe}")


_RECEIVED = ["classes", "records", "epsilon", "folder"]
_PLANNED = ["stage", "classes", "records", "epsilon", "noise"]


def _had(one: Received) -> list[str]:
    guarantee = one.certificate.guarantee
    cost = rounded_up(guarantee.epsilon_spent) if guarantee.private else "NOT private"
    return [", ".join(one.classes), f"{one.certificate.facts.size:,}", cost, str(one.release.path)]


def _planned(one: Stage) -> list[Any]:
    planned = one.planned
    return [
        str(one.number),
        ", ".join(one.classes),
        f"{planned.facts.size:,}",
        f"{rounded_up(planned.epsilon)} of {planned.budget.epsilon:g}",
        f"{planned.noise_multiplier:.4g}",
    ]
