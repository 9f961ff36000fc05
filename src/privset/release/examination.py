"""The checks of one release; `privset.release.verification` says what kinds there are."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from privset.files import litter
from privset.privacy import ledger
from privset.privacy.accounting import merge, spend
from privset.privacy.budget import RELATION
from privset.release import (
    card,
    classifier,
    configuration,
    generator,
    preview,
    replanning,
    snapshots,
    statistics,
    synthetic,
)
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.release.certificate import LEDGER_FILE, Certificate, sha256
from privset.release.classifier import Classifier
from privset.release.generator import Generator
from privset.release.loading import read_file
from privset.release.sections import ClassifierContents, GeneratorContents, SetContents, StatisticsContents
from privset.release.snapshots import Snapshots
from privset.release.statement import NOT_ACCOUNTED, WENT_ON, rounded_up
from privset.release.statistics import NoisyStatistics
from privset.release.synthetic import SyntheticSet
from privset.version import PUBLISHED, __version__

_SHOWN = {
    "set": {CERTIFICATE_FILE, card.FILE, synthetic.FILE, preview.FILE},
    "statistics": {CERTIFICATE_FILE, card.FILE, statistics.FILE},
    "classifier": {CERTIFICATE_FILE, card.FILE, classifier.FILE},
}
"""The files of a release, by what it holds; a generator, snapshots and those of `_OPTIONAL` may come to them."""

_OPTIONAL = {LEDGER_FILE, configuration.FILE}

_HOLDERS_OWN = {"LICENSE", "LICENSE.md", "LICENSE.txt", ".gitattributes"}
"""What the data holder, or the place of publication, may put beside a release; nothing vouches for it."""

_EPSILON_TOLERANCE = 1e-6


class Failed(Exception):  # noqa: N818 - not an error of the program: a finding
    """A check does not hold, and why."""


def expect(condition: bool, otherwise: str) -> None:
    """Raise `Failed` with the sentence ``otherwise`` unless the condition holds."""
    if not condition:
        raise Failed(otherwise)


class Examination:
    """The checks of one release; each returns what it found, or raises."""

    def __init__(self, folder: Path, text: bytes, certificate: Certificate) -> None:
        self.folder = folder
        self.text = text
        self.certificate = certificate

    def all(self) -> list[tuple[str, Callable[[], str]]]:
        """Name and function of every check, cheap ones first."""
        kind = self.certificate.contents.kind
        look = {"set": self._check_set, "statistics": self._check_statistics, "classifier": self._check_classifier}
        return [
            ("certificate", self._check_seal),
            ("files", self._check_files),
            (kind, look[kind]),
            *([("generator", self._check_generator)] if self._generator is not None else []),
            *([("snapshots", self._check_snapshots)] if self.certificate.snapshots is not None else []),
            ("relation", self._check_relation),
            ("noise", self._check_noise),
            ("statement", self._check_statement),
            ("ledger", self._check_ledger),
            ("configuration", self._check_configuration),
            ("card", self._check_card),
            *([("preview", self._check_preview)] if kind == "set" else []),
            ("epsilon", self._check_epsilon),
            ("claim", self._check_claim),
            ("plan", self._check_plan),
            *([("party", self._check_party)] if self.certificate.party is not None else []),
        ]

    def _check_seal(self) -> str:
        certificate = self.certificate
        expect(
            certificate.seal == certificate.expected_seal(),
            "the certificate was changed: its seal does not fit it",
        )
        expect(
            self.text == certificate.to_bytes(),
            "the certificate's file was changed: it says the same, but is not spelled as privset writes it",
        )
        return f"seal {certificate.seal}"

    def of_part(self) -> list[tuple[str, Callable[[], str]]]:
        """The checks of a certificate that only its ledger is beside; whatever else there was is not here."""
        return [
            ("certificate", self._check_seal),
            ("relation", self._check_relation),
            ("noise", self._check_noise),
            ("statement", self._check_statement),
            ("ledger", self._check_ledger),
            ("epsilon", self._check_epsilon),
            ("claim", self._check_claim),
            ("plan", self._check_plan),
            *([("party", self._check_party)] if self.certificate.party is not None else []),
        ]

    def possible_files(self) -> set[str]:
        """Names of the files that such a release may have, all told."""
        return self._shown() | _OPTIONAL

    @property
    def _generator(self) -> GeneratorContents | None:
        """What the certificate says of a generator that is published with a set."""
        contents = self.certificate.contents
        return contents.generator if contents.kind == "set" else None

    def _shown(self) -> set[str]:
        """Names of the files that this release must have."""
        shown = _SHOWN[self.certificate.contents.kind] | (set() if self._generator is None else {generator.FILE})
        return shown | (set() if self.certificate.snapshots is None else {snapshots.FILE})

    def _check_files(self) -> str:
        expected = self._shown() | self.certificate.files.keys()
        possible = expected & self.possible_files()
        inner = {parent.as_posix() for name in possible for parent in PurePosixPath(name).parents}
        present = {path.relative_to(self.folder).as_posix(): path for path in self.folder.rglob("*")}
        left = sorted(name for name, path in present.items() if litter(path))
        present = {name: path for name, path in present.items() if name not in left}
        present = {
            name: path for name, path in present.items() if path.is_symlink() or not path.is_dir() or name not in inner
        }
        unexpected = sorted(present.keys() - possible - _HOLDERS_OWN)
        expect(
            not unexpected, f"not part of a release, and vouched for by nothing: {', '.join(unexpected)}; take it out"
        )
        missing = sorted(expected - present.keys())
        expect(not missing, f"missing: {', '.join(missing)}")
        odd = sorted(name for name, path in present.items() if path.is_symlink() or not path.is_file())
        expect(not odd, f"not an ordinary file: {', '.join(odd)}")
        others = f"not looked into: {', '.join(left)}, which may be taken out" if left else "no others that matter"
        return f"{len(expected)} files, and {others}"

    def _check_set(self) -> str:
        content = self._undamaged(synthetic.FILE)
        found, stated = self._set(content), self.certificate.contents
        assert isinstance(stated, SetContents)
        self._digest(found)
        expect(found.pixel_form == stated.pixel_form, f"holds {found.pixel_form}, not {stated.pixel_form}")
        expect(
            (len(found), found.per_class) == (stated.images, stated.per_class),
            f"holds {len(found)} images, {list(found.per_class)} by class, not what the certificate says",
        )
        return f"{len(found):,} images, {found.pixel_form}, digest {stated.digest}"

    def _check_statistics(self) -> str:
        found, stated = NoisyStatistics.from_bytes(self._undamaged(statistics.FILE)), self.certificate.contents
        assert isinstance(stated, StatisticsContents)
        self._digest(found)
        expect(
            (len(found), found.shapes) == (stated.numbers, stated.shapes),
            f"holds {len(found)} numbers, {found}, not what the certificate says",
        )
        expect(self._made_first(), "statistics cannot have been made from another release")
        return f"{len(found):,} numbers, digest {stated.digest}"

    def _check_classifier(self) -> str:
        content, stated = self._undamaged(classifier.FILE), self.certificate.contents
        assert isinstance(stated, ClassifierContents)
        architecture, facts = replanning.architecture_of(stated), self.certificate.public_facts()
        found = Classifier.from_bytes(content, architecture, facts)
        self._digest(found)
        expect(len(found) == stated.weights, f"holds {len(found):,} weights, not what the certificate says")
        expect(self._made_first(), "a classifier cannot have been made from another release")
        return f"{stated.network} of {len(found):,} weights, digest {stated.digest}"

    def _check_generator(self) -> str:
        content, stated = self._undamaged(generator.FILE), self._generator
        assert stated is not None
        found = Generator.from_bytes(content, replanning.form_of(stated), self.certificate.public_facts())
        expect(found.digest() == stated.digest, "the weights are not those of the certificate: their digest differs")
        expect(len(found) == stated.numbers, f"holds {len(found):,} numbers, not what the certificate says")
        expect(self.certificate.drawn is None, "a set that was drawn has no generator of its own")
        return f"{stated.architecture} of {len(found):,} numbers, digest {stated.digest}"

    def _check_snapshots(self) -> str:
        content, stated = self._undamaged(snapshots.FILE), self.certificate.snapshots
        assert stated is not None
        found = Snapshots.from_bytes(content, stated.answers)
        expect(found.digest() == stated.digest, "the images are not those of the certificate: their digest differs")
        found.check(self._set(read_file(self.folder, synthetic.FILE)).images)
        expect(self._made_first(), "only what asked the records itself has snapshots")
        return f"{len(stated.answers)} of them, the last of them the set, digest {stated.digest}"

    def _made_first(self) -> bool:
        return self.certificate.source is None and self.certificate.drawn is None

    def _digest(self, found: SyntheticSet | NoisyStatistics | Classifier) -> None:
        expect(
            found.digest() == self.certificate.contents.digest,
            "the tensors are not those of the certificate: their digest differs",
        )

    def _check_relation(self) -> str:
        relation = self.certificate.guarantee.relation
        expect(
            relation == RELATION,
            f"the relation is {relation!r}; the accounting here is for {RELATION!r} only",
        )
        return relation

    def _check_noise(self) -> str:
        guarantee, source = self.certificate.guarantee, self.certificate.noise_source
        finite = math.isfinite(guarantee.epsilon_budgeted) and math.isfinite(guarantee.epsilon_spent)
        private = source == "system" and finite
        expect(
            guarantee.private == private,
            f"the certificate says private: {guarantee.private}, but {source} noise at epsilon "
            f"{rounded_up(guarantee.epsilon_spent)} is {'' if private else 'not '}private",
        )
        return f"{source} noise: {'private' if private else 'NOT PRIVATE, as the certificate says'}"

    def _check_statement(self) -> str:
        certificate = self.certificate
        expect(
            certificate.statement == certificate.regenerated_statement(),
            "the statement does not say what the numbers say",
        )
        expect(
            certificate.not_accounted[: len(NOT_ACCOUNTED)] == NOT_ACCOUNTED,
            "the list of what the guarantee does not cover was changed",
        )
        return "says what the numbers say"

    def _check_ledger(self) -> str:
        certificate = self.certificate
        if LEDGER_FILE not in certificate.files:
            expect(not certificate.guarantee.private, "a private release must have the ledger of its charges")
            return "none, and none is needed without a guarantee"
        self._undamaged(LEDGER_FILE)
        budget, charges = ledger.read(self.folder / LEDGER_FILE)
        expect(budget == certificate.budget(), "the ledger was kept for another budget than the certificate's")
        expect(
            merge(charges) == merge(certificate.gaussian_events()),
            "the charges in the ledger are not the events in the certificate",
        )
        return f"{sum(charge.count for charge in charges):,} answers charged, all in the certificate"

    def _check_configuration(self) -> str:
        if configuration.FILE not in self.certificate.files:
            return "none; the certificate has every setting as well"
        content = self._undamaged(configuration.FILE)
        same = content == configuration.regenerated(self.certificate, content)
        return self._regenerated(same, "configuration")

    def _check_card(self) -> str:
        content = self._undamaged(card.FILE)
        return self._regenerated(content == card.write(self.certificate).encode(), "card")

    def _check_preview(self) -> str:
        content = self._undamaged(preview.FILE)
        sheet = preview.draw(self._set(read_file(self.folder, synthetic.FILE)))
        return self._regenerated(preview.same_pixels(content, sheet), "preview")

    def _check_epsilon(self) -> str:
        stated = self.certificate.guarantee
        found = spend(self.certificate.gaussian_events(), stated.delta)
        for name, recorded, recomputed in (
            ("by rdp", stated.epsilon_by.rdp, found.rdp),
            ("by pld", stated.epsilon_by.pld, found.pld),
            ("spent", stated.epsilon_spent, found.by(stated.accountant)),
        ):
            expect(
                same_number(recorded, recomputed),
                f"epsilon {name} is recorded as {recorded}, but the recorded events cost {recomputed}",
            )
        spent = found.by(stated.accountant)
        expect(
            spent <= stated.epsilon_budgeted * (1 + _EPSILON_TOLERANCE),
            f"the recorded events cost epsilon {spent}, more than the budget of {stated.epsilon_budgeted}",
        )
        return (
            f"epsilon {rounded_up(spent)} of {rounded_up(stated.epsilon_budgeted)} at delta "
            f"{stated.delta:g}, recomputed"
        )

    def _check_claim(self) -> str:
        if self.certificate.claim is None:
            return "no epsilon of another analysis is named"
        replanning.check_claim(self.certificate)
        claim = self.certificate.claim
        return f"epsilon {claim.epsilon:.4g} is claimed by {claim.by}, as recorded; not the guarantee"

    def _check_plan(self) -> str:
        replanning.check(self.certificate)
        return f"{self.certificate.method} with these settings asks exactly the recorded questions"

    def _check_party(self) -> str:
        """That the party's classes are among those of the release, all of them if it is a set."""
        certificate, party = self.certificate, self.certificate.party
        assert party is not None
        expect(
            len(set(party.classes)) == len(party.classes) and set(party.classes) <= set(certificate.facts.classes),
            f"the party's classes ({', '.join(party.classes)}) are not among those of the release",
        )
        expect(
            certificate.contents.kind == "classifier" or set(party.classes) == set(certificate.facts.classes),
            f"the release has other classes than its party ({', '.join(party.classes)})",
        )
        expect(len(set(party.received)) == len(party.received), "one release is named twice among those received")
        expect(certificate.seal not in party.received, "it cannot have received itself")
        if certificate.contents.kind == "classifier":
            said = " ".join(certificate.not_accounted[len(NOT_ACCOUNTED) :])
            expect(
                tuple(re.findall(rf"{WENT_ON} ([0-9a-f]+)", said)) == party.received[-1:],
                "what it says training went on from is not the last classifier that it names as received",
            )
        return f"{', '.join(party.classes)}, after {len(party.received)} release(s) of others"

    def _undamaged(self, name: str) -> bytes:
        content = read_file(self.folder, name)
        expect(
            self.certificate.files.get(name) == sha256(content),
            f"{name} was changed: its digest is not the recorded one",
        )
        return content

    def _set(self, content: bytes) -> SyntheticSet:
        return SyntheticSet.from_bytes(content, self.certificate.public_facts())

    def _regenerated(self, same: bool, what: str) -> str:
        """Another published version may word a card or draw a preview differently; its digest holds all the same."""
        theirs, ours = self.certificate.software.get("privset"), __version__
        expect(theirs in PUBLISHED, f"this privset {ours} does not know the version {theirs} that made it; upgrade")
        if not same and theirs != ours:
            return f"unchanged since privset {theirs} made it; not made again, because this is privset {ours}"
        expect(same, f"the {what} is not what contents and certificate give")
        return "unchanged, and what contents and certificate give"


def same_number(recorded: float | None, recomputed: float | None) -> bool:
    """Whether two numbers are the same but for how an accountant's arithmetic is rounded."""
    if recorded is None or recomputed is None:
        return recorded is recomputed
    return math.isclose(recorded, recomputed, rel_tol=_EPSILON_TOLERANCE)
