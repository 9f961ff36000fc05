"""One stage: a party with its own records, and the releases it received, makes a release of its own.

Nothing else is read. A set is made from the party's records alone; a classifier goes on from the last one received.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privset import pipeline
from privset.continual.documents import write_json
from privset.continual.notes import foreign, mention, note_of, read_note
from privset.continual.received import Received, as_certified, check_form
from privset.continual.receiving import in_line
from privset.data import Dataset, of_classes
from privset.errors import ConfigError, ReleaseError
from privset.methods import Execution, Method, Plan, SetMethod, TrainingMethod
from privset.methods.training import Architecture
from privset.observer import Observer
from privset.privacy import NoiseSource, PrivacyBudget, Tally
from privset.release import ClassifierRelease, Release, load_published, require_verified
from privset.release.certificate import Certificate, plain
from privset.release.folder import NOTE, RELEASE
from privset.release.issuing import readable
from privset.release.joint import check_delta
from privset.release.sections import Party
from privset.release.unfinished import check_free, clear_finished, left_beside


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """What one party is about to do, checked; nothing is charged yet.

    Attributes:
        number: From 1.
        classes: The classes of the party.
        party: Its records; a classifier has outputs for more classes, so their labels may be numbered by more.
        method: How the release is made.
        planned: What will be asked, and what that costs.
        out: Folder of the stage.
        noise: Where noise comes from.
    """

    number: int
    classes: tuple[str, ...]
    party: Dataset
    method: Method[Any]
    planned: Plan
    out: Path
    noise: NoiseSource

    @classmethod
    def prepare(
        cls,
        dataset: Dataset,
        classes: Sequence[str],
        *,
        number: int,
        method: Method[Any],
        budget: PrivacyBudget,
        out: Path,
        known: Sequence[str] | None = None,
        noise_seed: int | None = None,
    ) -> Stage:
        """Plan one stage.

        Args:
            dataset: Data that has the party's classes; of others nothing is looked at.
            classes: Those of the party.
            number: Of the stage, from 1.
            method: How the release is made.
            budget: What it may cost.
            out: Folder of the stage.
            known: All classes of all parties, for a classifier that has an output for each; by default those of the
                data.
            noise_seed: Makes noise repeatable, and the release not private; each stage has its own noise all the same.
        """
        dataset, classes = as_certified(dataset), tuple(map(readable, classes))
        if len(classes) < 2:
            raise ConfigError(
                f"the party of stage {number} has the class {', '.join(classes)} only, and needs two or more: what is "
                "learned is what tells classes apart"
            )
        among = tuple(map(readable, known or dataset.facts.classes)) if isinstance(method, TrainingMethod) else None
        if among is not None and len(set(among)) < len(among):
            raise ConfigError(f"known must name each class once, and has one twice: {', '.join(among)}")
        party = of_classes(dataset, classes, among=among)
        return cls(
            number=number,
            classes=classes,
            party=party,
            method=method,
            planned=pipeline.plan(party.facts, method=method, budget=budget),
            out=out,
            noise=stage_noise(noise_seed, number),
        )

    @property
    def release(self) -> Path:
        """Where the release is to be."""
        return self.out / RELEASE

    def check_free(self) -> None:
        """Refuse a folder that cannot be written to; one with a release is looked at when the stage is run."""
        begun = any(map(os.path.lexists, (self.out / NOTE, self.release, *left_beside(self.release))))
        others = foreign(self.out) if self.out.is_dir() and not begun else []
        if others:
            raise ReleaseError(f"{self.out} holds something else ({others[0]}); move it away, or choose another --out")
        if not self.release.is_dir():
            check_free(self.release, resumable=self.method.resumable)

    def run(
        self,
        received: Sequence[Received],
        *,
        execution: Execution | None = None,
        observer: Observer | None = None,
        tally: Tally | None = None,
    ) -> Received:
        """Make the release, unless it is there, and the note beside it.

        Args:
            received: From earlier parties, verified.
            execution: Where to compute.
            observer: Told about progress.
            tally: Receives what the data holder alone may see.

        Raises:
            ReleaseError: What was received is of no use here, or what is in the folder was made otherwise; or all is
                done, and something lies there for which whoever receives the folder would refuse it.
        """
        start = self._start(received)
        if self.release.is_dir():
            release = self._finished(received)
        else:
            how: dict[str, Any] = {
                "party": self._party(received),
                "budget": self.planned.budget,
                "out": self.release,
                "noise": self.noise,
                "execution": execution,
                "observer": observer,
                "tally": tally,
            }
            if isinstance(self.method, TrainingMethod):
                release = pipeline.train(self.party, method=self.method, start=start, **how)
            else:
                release = pipeline.generate(self.party, method=self.method, **how)
        own = Received(release=release, classes=self.classes)
        if read_note(self.out) is None:
            write_json(self.out / NOTE, self._note(own, received))
        if others := foreign(self.out):
            raise ReleaseError(
                f"the stage is done, but {self.out} has {', '.join(others)} in it as well: no certificate vouches for "
                "that, and whoever receives the folder would refuse it. Move it out, and run the same command again, "
                "which costs nothing"
            )
        return own

    def check(self, received: Sequence[Received]) -> None:
        """Refuse what does not go together with this stage; nothing is charged.

        Raises:
            PrivsetError: It does not.
        """
        self._start(received)

    def _start(self, received: Sequence[Received]) -> ClassifierRelease | None:
        """The classifier to go on from, if there is one; what does not go together is refused."""
        if self.number != len(received) + 1:
            raise ConfigError(f"this is stage {len(received) + 1}, after {len(received)} release(s), not {self.number}")
        if in_line(received) != list(received):
            raise ReleaseError("classifiers are received from the first to the last; see `receive`")
        making = "sets" if isinstance(self.method, SetMethod) else "classifiers"
        for one in received:
            where = one.release.path
            if isinstance(one.release, Release) != isinstance(self.method, SetMethod):
                raise ReleaseError(f"{where} holds something else than the {making} that {self.method.name} makes")
            check_form(where, one.certificate.public_facts(), self.party.facts)
            if shared := sorted(set(one.classes) & set(self.classes)):
                raise ReleaseError(
                    f"{where} has the class {', '.join(shared)} as well, and here each class belongs to one party; to "
                    "join sets of parties that share classes, use `privset merge`"
                )
        stated = [one.certificate.guarantee for one in received]
        private = self.noise.kind == "system" and self.planned.budget.private
        if private and all(one.private for one in stated):
            theirs = [(one.certificate.guarantee.delta, one.certificate.facts.size) for one in received]
            check_delta([*theirs, (self.planned.budget.delta, self.planned.facts.size)], disjoint=True)
        last = received[-1].release if received else None
        if not isinstance(last, ClassifierRelease):
            return None
        assert isinstance(self.method, TrainingMethod)
        if (last.trained.architecture, last.trained.facts.classes) != (
            self.method.architecture,
            self.party.facts.classes,
        ):
            theirs, ours = last.trained, self.party.facts.classes
            odd = []
            if theirs.facts.classes != ours:
                odd.append(f"has outputs for {', '.join(theirs.facts.classes)}, not for {', '.join(ours)} (--known)")
            if theirs.architecture != self.method.architecture:
                options = "--preset, --network, --width, --depth"
                odd.append(f"is {_spelled(theirs.architecture)}, not {_spelled(self.method.architecture)} ({options})")
            raise ReleaseError(f"{last.path} cannot be gone on from, as it {' and '.join(odd)}; do as its party did")
        return last

    def _finished(self, received: Sequence[Received]) -> Release | ClassifierRelease:
        """The release that is there already, if it is the one that would be made."""
        clear_finished(self.release)  # of what a run that was killed right after it left: nobody else may have that
        require_verified(self.release, "built on it")
        release = load_published(self.release)
        odd = _differences(release.certificate, self.planned, self.noise.kind)
        found, expected = release.certificate.party, self._party(received)
        if found is None or found.classes != expected.classes:
            odd.append("other classes")
        elif found.received != expected.received:  # it may have died before its note was written
            odd.append("other releases received")
        note = read_note(self.out)
        if note is not None and note != self._note(Received(release=release, classes=self.classes), received):
            odd.append(f"another {NOTE}")
        if odd:
            raise ReleaseError(
                f"{self.release} exists, and this would be another: {', '.join(odd)}. Repeat the very command "
                "that made it, or choose another --out"
            )
        return release

    def _party(self, received: Sequence[Received]) -> Party:
        """What the certificate says of the stage."""
        return Party(classes=self.classes, received=tuple(one.certificate.seal for one in received))

    def _note(self, own: Received, received: Sequence[Received]) -> dict[str, Any]:
        return note_of(own, self.number, [mention(one) for one in received])


def _spelled(architecture: Architecture) -> str:
    sizes = [f"{name} {size}" for name in ("width", "depth") if (size := getattr(architecture, name)) is not None]
    return ", ".join([f"a {architecture.network}", *sizes])


def stage_noise(seed: int | None, number: int) -> NoiseSource:
    """The system's noise; with a seed, a stream that no other stage has."""
    if seed is None:
        return NoiseSource()
    if seed < 0:
        raise ConfigError(f"a noise seed must be 0 or more, not {seed}")
    words = np.random.SeedSequence([seed, number]).generate_state(4, np.uint64)
    return NoiseSource(int.from_bytes(words.tobytes(), "little"))


def _differences(certificate: Certificate, planned: Plan, noise: str) -> list[str]:
    said = {
        "method": certificate.method == planned.method,
        "settings": certificate.configuration == plain(dataclasses.asdict(planned.config)),
        "budget": certificate.budget() == planned.budget,
        "data": certificate.public_facts() == planned.facts,
        "noise": certificate.noise_source == noise,
    }
    return [f"other {name}" for name, same in said.items() if not same]
