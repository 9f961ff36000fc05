"""The whole way of the data, in one file: records -> curator -> method -> set or classifier -> release.

This is the only code that is handed records and hands them to a curator. Everything that can go wrong without
spending privacy is made to go wrong first: the output folder, the data and the plan are checked before the
first question is charged.

A method that measures can stop half-way: `measure` publishes the noisy statistics, and sets are made from them without
any data, by release/distilling.py. All of these calls may be killed at any moment; the same call goes on where they
stood. A run of `total` questions keeps its answers, one of `gradient` questions where it stands, its noise included;
only a method that says it is not resumable has to be paid for again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from privset import data as data_room
from privset.data.records import Dataset
from privset.errors import BudgetError, ConfigError, ReleaseError
from privset.facts import PublicFacts
from privset.methods import (
    DpMerf,
    DpSgd,
    DpSgdConfig,
    Execution,
    Measured,
    MeasuringMethod,
    Method,
    Moments,
    MomentsConfig,
    Plan,
    SetMethod,
    Synthesis,
    TrainingMethod,
    require_measuring,
    require_snapshots,
)
from privset.methods.settings import require_room
from privset.observer import Observer
from privset.privacy import Curator, Ledger, NoiseSource, PrivacyBudget, Standing, Tally, go_on, system_noise, take_up
from privset.privacy.accounting import merge
from privset.release import (
    Classifier,
    ClassifierRelease,
    NoisyStatistics,
    Release,
    StatisticsRelease,
    SyntheticSet,
    Unfinished,
    certify,
    configuration,
    load,
    load_classifier,
    load_statistics,
    require_verified,
    save,
)
from privset.release.certificate import plain
from privset.release.folder import CompleteElsewhereError
from privset.release.sections import Party
from privset.release.software import deciding_versions
from privset.release.statement import WENT_ON, Holding, rounded_up
from privset.release.unfinished import PLACE, check_free, ledger_beside, place_of

Chosen = TypeVar("Chosen", bound=Method[Any])


def plan(
    data: PublicFacts | str | Path,
    *,
    method: Method[Any] | None = None,
    budget: PrivacyBudget,
    execution: Execution | None = None,
) -> Plan:
    """What ``method`` would ask, at which noise and at what cost; looks at no image.

    Without a method it is the one that `generate` would choose for the device of ``execution``.

    >>> from privset.methods import Psg, PsgConfig
    >>> budget = PrivacyBudget(epsilon=10, accountant="rdp")
    >>> round(plan("mnist", method=Psg(PsgConfig.paper(per_class=10)), budget=budget).noise_multiplier, 3)
    0.966
    """
    method = _checked(method or _default(execution), budget)
    facts = data if isinstance(data, PublicFacts) else data_room.facts_of(data)
    return method.plan(facts, budget)


def generate(
    data: Dataset | str | Path,
    *,
    method: Method[Any] | None = None,
    budget: PrivacyBudget,
    out: str | Path,
    noise: NoiseSource | None = None,
    execution: Execution | None = None,
    observer: Observer | None = None,
    tally: Tally | None = None,
    party: Party | None = None,
    snapshots: int = 0,
) -> Release:
    """Make a synthetic set from private records and publish it, with its certificate, in the folder ``out``.

    Questions are charged to ``OUT.ledger.jsonl`` beside the release before they are answered. A run that is
    killed leaves that file, and no release; a run that finishes moves it into the release. With a method that is
    resumable, the same call takes a killed run up again, and ends as that would have.

    Args:
        data: A loaded data set, the name of one, or a path.
        method: The method, with its settings; by default moments, with the preset for the device.
        budget: What the release may cost.
        out: Folder to write; it must not exist.
        noise: Where noise comes from; by default the operating system's entropy, which is the only private one.
        execution: Device and chunking.
        observer: Told about progress.
        tally: Receives what the data holder alone may see.
        party: Whose release it is, for the certificate, if it is one of several parties' with disjoint classes.
        snapshots: How many sets along the run are published with the one at its end, which is the last of them; at
            evenly spaced numbers of answers, so that it costs nothing. For methods that keep them, such as psg.

    Raises:
        PrivsetError: Whatever was wrong, found before any budget was spent wherever that is possible.
    """
    method = _checked(method or _default(execution), budget)
    if not isinstance(method, SetMethod):
        raise ConfigError(f"{method.name} makes no synthetic set, but a classifier; call privset.train with it")
    if snapshots:
        require_snapshots(method)
    job = _Job.prepare(data, method, budget, Path(out), noise, execution, observer, tally, party)
    require_room(job.dataset.facts, method.config.per_class)
    job = dataclasses.replace(job, planned=method.with_snapshots(job.planned, snapshots))
    if isinstance(method, MeasuringMethod):
        with Unfinished(job.out, job.identity("generate")) as work:
            measured, ledger = job.measure(method, work)
            how = {"execution": job.execution, "observer": job.observer, "checkpoint": work.checkpoint}
            return job.publish_set(method.distil(measured, **how), ledger)
    along = {"snapshots": snapshots} if snapshots else {}  # without, a run is what it was before there were any
    with job.asking("generate", **along) as asked:
        synthesis = method.run(asked.curator, job.planned, execution=job.execution, observer=job.observer)
        return job.publish_set(synthesis, asked.ledger, asked.standing)


def train(
    data: Dataset | str | Path,
    *,
    method: TrainingMethod[Any] | None = None,
    budget: PrivacyBudget,
    out: str | Path,
    start: ClassifierRelease | None = None,
    noise: NoiseSource | None = None,
    execution: Execution | None = None,
    observer: Observer | None = None,
    tally: Tally | None = None,
    party: Party | None = None,
) -> ClassifierRelease:
    """Train a classifier on private records and publish it, with its certificate, in the folder ``out``.

    Arguments and charges are those of `generate`; by default the method is dp-sgd with its strong settings. The same
    call takes a killed run up again. With ``start``, a published classifier of the same form, training goes
    on from its weights, once they are verified; a private one cannot go on from one that is not. What ``start`` cost
    is not in this certificate, which says so: where records were used for both, epsilons add up. A ``party`` names
    it last among what it received.
    """
    method = _checked(method or DpSgd(DpSgdConfig()), budget)
    if not isinstance(method, TrainingMethod):
        raise ConfigError(f"{method.name} trains no classifier, but makes a synthetic set; call privset.generate")
    job = _Job.prepare(data, method, budget, Path(out), noise, execution, observer, tally, party)
    start, limits = (None, ()) if start is None else _verified_start(start, job)
    if party is not None and party.received[-1:] != (() if start is None else (start.certificate.seal,)):
        raise ConfigError("a party's classifier goes on from the last one that it received, and from no other")
    with job.asking("train", start=None if start is None else start.certificate.seal) as asked:
        trained = method.train(
            asked.curator,
            job.planned,
            start=None if start is None else start.trained.weights,
            execution=job.execution,
            observer=job.observer,
        )
        job.publish(Classifier.from_training(trained, job.dataset.facts), asked.ledger, limits, asked.standing)
    return load_classifier(job.out)


def measure(
    data: Dataset | str | Path,
    *,
    method: MeasuringMethod[Any] | None = None,
    budget: PrivacyBudget,
    out: str | Path,
    noise: NoiseSource | None = None,
    execution: Execution | None = None,
    observer: Observer | None = None,
    tally: Tally | None = None,
) -> StatisticsRelease:
    """Ask for noisy statistics of private records and publish them, with their certificate, in the folder ``out``.

    All of the budget is spent here. Any number of sets can be distilled from the statistics afterwards, and
    none of them costs anything. Arguments and charges are those of `generate`; the same call takes a killed run
    up again, and asks only what has not been answered.
    """
    method = _checked(method or _default(execution), budget)
    require_measuring(type(method))
    job = _Job.prepare(data, method, budget, Path(out), noise, execution, observer, tally)
    with Unfinished(job.out, job.identity("measure")) as work:
        measured, ledger = job.measure(method, work)
        job.publish(NoisyStatistics(measured.statistics), ledger)
    return load_statistics(job.out)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Asking:
    """What a method asks as it goes: the curator, its ledger and, if it can be taken up again, where the run stands."""

    curator: Curator
    ledger: Ledger
    standing: Standing | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Job:
    """One run on private records, all of its parts checked, nothing charged."""

    method: Method[Any]
    dataset: Dataset
    planned: Plan
    out: Path
    noise: NoiseSource
    execution: Execution
    observer: Observer
    tally: Tally
    started: float
    party: Party | None

    @classmethod
    def prepare(
        cls,
        data: Dataset | str | Path,
        method: Method[Any],
        budget: PrivacyBudget,
        out: Path,
        noise: NoiseSource | None,
        execution: Execution | None,
        observer: Observer | None,
        tally: Tally | None,
        party: Party | None = None,
    ) -> _Job:
        observer = observer or Observer()
        check_free(out, resumable=method.resumable)
        dataset = data if isinstance(data, Dataset) else data_room.load(data, observer=observer)
        return cls(
            method=method,
            dataset=dataset,
            planned=plan(dataset.facts, method=method, budget=budget),
            out=out,
            noise=noise or system_noise(),
            execution=execution or Execution(),
            observer=observer,
            tally=tally or Tally(),
            started=time.perf_counter(),
            party=party,
        )

    @contextlib.contextmanager
    def asking(self, command: str, **more: Any) -> Iterator[_Asking]:
        """A curator for a method that asks as it goes; one that is resumable goes on where it stood.

        Args:
            command: What was called.
            more: What else a run that takes this one up again must have in common with it.
        """
        if not self.method.resumable:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            path = ledger_beside(self.out)
            ledger = Ledger(self.planned.budget, path, self.observer)
            asking = _Asking(curator=self.curator(ledger), ledger=ledger)
            if self.noise.seed is None and self.planned.budget.private:
                with self.observer.irrevocable(self.planned.epsilon, path):
                    yield asking
                return
            try:
                yield asking
            except KeyboardInterrupt:
                path.unlink(missing_ok=True)
                raise KeyboardInterrupt(
                    "nothing was released, and it was not private: nothing is to be counted"
                ) from None
            return
        # The libraries that make noise of a key, too: another version might make other noise of it.
        identity = self.identity(command) | {"software": deciding_versions("numpy", "randomgen")} | more
        with Unfinished(self.out, identity) as work:
            ledger, standing, noise = go_on(
                self.planned.budget, work.ledger, work.folder, self.noise, work.words, self.observer
            )
            self.tell(work)
            yield _Asking(curator=self.curator(ledger, noise, standing=standing), ledger=ledger, standing=standing)

    def curator(self, ledger: Ledger, noise: NoiseSource | None = None, **options: Any) -> Curator:
        return Curator(
            self.dataset.train,
            self.dataset.facts,
            ledger,
            noise or self.noise,
            device=self.execution.device,
            chunk=self.execution.chunk,
            tally=self.tally,
            **options,
        )

    def measure(self, method: MeasuringMethod[Any], work: Unfinished) -> tuple[Measured[Any], Ledger]:
        """Ask what has not been answered yet; what has is taken from the work folder."""
        ledger, kept = take_up(self.planned.budget, work.ledger, work.folder, self.observer)
        self.tell(work)
        curator = self.curator(ledger, kept=kept)
        return method.measure(curator, self.planned, execution=self.execution, observer=self.observer), ledger

    def tell(self, work: Unfinished) -> None:
        """Say that a run is taken up, now that nothing of what it left is refused any more."""
        if work.taken_up:
            self.observer.going_on(work.folder)

    def identity(self, command: str) -> dict[str, Any]:
        """Everything that a run which takes this one up again must have in common with it."""
        planned = self.planned
        # What is not private may be copied as often as one likes.
        place = {PLACE: place_of(self.out)} if self.noise.seed is None else {}
        return place | {
            "command": command,
            "records": self.dataset.train.fingerprint(),
            "data": plain(dataclasses.asdict(self.dataset.facts)),
            "method": planned.method,
            "settings": plain(dataclasses.asdict(planned.config)),
            "budget": plain(dataclasses.asdict(planned.budget)),
            "questions": [plain(event.to_json()) for event in planned.events],
            "noise": self.noise.kind if self.noise.seed is None else f"{self.noise.kind} with {self.noise.seed}",
            "software": deciding_versions(),
            # What the certificate will say must not depend on which process writes it.
            "party": None if self.party is None else self.party.model_dump(mode="json"),
        }

    def publish_set(self, synthesis: Synthesis, ledger: Ledger, standing: Standing | None = None) -> Release:
        try:
            made = SyntheticSet.from_synthesis(synthesis, self.dataset.facts)
        except ReleaseError as error:
            then = "another run, with lower learning rates and another --out, is charged in addition"
            raise self._still_charged(error, then) from error
        self.publish(made, ledger, standing=standing)
        return load(self.out)

    def publish(
        self,
        content: SyntheticSet | NoisyStatistics | Classifier,
        ledger: Ledger,
        limits: tuple[str, ...] = (),
        standing: Standing | None = None,
    ) -> None:
        """Write the release, if the method asked exactly what it planned; ``limits`` are not covered either."""
        planned, path = self.planned, ledger_beside(self.out)
        if ledger.events != merge(planned.events):
            raise BudgetError(
                f"{planned.method} asked other questions than it planned: {ledger.events} instead of {planned.events}. "
                f"Nothing is released; what was charged is in {path}. This is a bug: please report it."
            )
        if standing is not None and standing.answered != planned.questions:
            raise BudgetError(
                f"{planned.method} used {standing.answered:,} answers and planned {planned.questions:,}: some were "
                f"left out, or asked for twice. Nothing is released; what was charged is in {path}. This is a bug: "
                "please report it."
            )
        stage = self.party is not None
        config_file = configuration.of_plan(planned, _holding(content), self.dataset.reading, stage=stage)
        seconds = time.perf_counter() - self.started
        issued = certify(
            planned,
            content,
            self.noise.kind,
            ledger=path,
            seconds=seconds,
            config_file=config_file,
            also_not_accounted=limits,
            party=self.party,
        )
        try:
            save(self.out, content, issued, path, config_file)
        except CompleteElsewhereError:
            raise
        except ReleaseError as error:
            again = "mend that and run the same command again, which goes on at no further cost"
            lost = "what was made is lost, and a new run needs another --out and is charged again"
            words = again if self.method.resumable else lost
            raise self._still_charged(error, words) from error
        path.unlink(missing_ok=True)  # its copy in the release is durable by now

    def _still_charged(self, error: ReleaseError, then: str) -> ReleaseError:
        path = ledger_beside(self.out)
        return ReleaseError(f"{error}; what was charged stays charged, in {path}: {then}")


def _checked(method: Chosen, budget: Any) -> Chosen:
    """What was given as method and budget, unless it is something else: in Python anything can be given."""
    if not isinstance(method, Method):
        kind = method if isinstance(method, type) and issubclass(method, Method) else DpMerf
        example = f"privset.{kind.__name__}(privset.{kind.config_type.__name__}())"
        raise ConfigError(f"method must be a method with its settings, such as {example}, not {method!r}")
    if not isinstance(budget, PrivacyBudget):
        raise ConfigError(f"budget must be a privset.PrivacyBudget, such as PrivacyBudget(epsilon=1), not {budget!r}")
    return method


def _holding(content: SyntheticSet | NoisyStatistics | Classifier) -> Holding:
    if isinstance(content, SyntheticSet):
        return "set"
    return "statistics" if isinstance(content, NoisyStatistics) else "classifier"


def _verified_start(start: ClassifierRelease, job: _Job) -> tuple[ClassifierRelease, tuple[str, ...]]:
    """What is in the folder of ``start``, and what a certificate has to say about having gone on from it."""
    require_verified(start.path, "trained from it")
    start = load_classifier(start.path)
    found, private = start.certificate.guarantee, job.planned.budget.private and job.noise.kind == "system"
    if private and not found.private:
        raise ConfigError(
            f"{start.path} is not private, and what goes on from it would not be either; start from a private "
            "classifier, or from none"
        )
    return start, (
        f"{WENT_ON} {start.certificate.seal}, of epsilon "
        f"{rounded_up(found.epsilon_spent)} and delta {found.delta:g}. That is not part of this guarantee: records of "
        "that classifier, of which this one says something too, are protected by that epsilon and not by this one; for "
        "a record that was used for both, the epsilons add up, and so do the deltas.",
    )


def _default(execution: Execution | None = None) -> Moments:
    preset = Moments.preset_for((execution or Execution()).device)
    return Moments(Moments.preset(preset, per_class=MomentsConfig.per_class, epsilon=1.0))
