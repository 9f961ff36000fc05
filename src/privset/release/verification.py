"""Is a release what it says? Everything that can be computed again is, from the files alone.

Three kinds of check. Integrity: every file against the digest in the certificate, the certificate against its
seal and the one spelling it may have, so that any changed byte shows. Accounting: epsilon again from the
recorded events, by each accountant. Consistency: the events again from method, settings, public facts and
budget, and against the ledger; statement, card and preview again from what they are made of. The last two
kinds hold even if digests and seal were computed anew. What no file can show is that the software was run as
recorded, on the records and with the noise it names.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from privset.errors import PrivsetError, ReleaseError
from privset.privacy import ledger
from privset.privacy.accounting import merge, spend
from privset.privacy.budget import RELATION
from privset.release import card, preview, replanning, synthetic
from privset.release.artefact import read_file
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.release.certificate import LEDGER_FILE, Certificate, sha256
from privset.release.statement import NOT_ACCOUNTED, rounded_up
from privset.release.synthetic import SyntheticSet
from privset.version import PUBLISHED, __version__

_FILES = {CERTIFICATE_FILE, synthetic.FILE, card.FILE, preview.FILE, LEDGER_FILE}
_HOLDERS_OWN = {"LICENSE", "LICENSE.md", "LICENSE.txt", ".gitattributes"}
"""What the data holder, or the place of publication, may put beside a release; nothing vouches for it."""

_EPSILON_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at, whether it holds, and what was found."""

    name: str
    ok: bool
    detail: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verification:
    """The outcome of `verify`.

    Attributes:
        path: The release folder.
        checks: Every check, in the order they were made.
        certificate: As read, and not to be believed unless `ok`; None if it could not be read.
    """

    path: Path
    checks: tuple[Check, ...]
    certificate: Certificate | None

    @property
    def ok(self) -> bool:
        """Whether every check holds. It does not mean private: see ``certificate.guarantee.private``."""
        return all(check.ok for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that do not hold."""
        return tuple(check for check in self.checks if not check.ok)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "path": str(self.path),
            "ok": self.ok,
            "checks": [dataclasses.asdict(check) for check in self.checks],
        }


def verify(folder: str | Path) -> Verification:
    """Check a release. Whatever was done to it, this returns; only a missing folder raises `ReleaseError`."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ReleaseError(f"{folder} is not a folder; give the folder of a release, with its {CERTIFICATE_FILE}")
    try:
        text = read_file(folder, CERTIFICATE_FILE)
        certificate = Certificate.parse(text)
    except PrivsetError as error:
        return Verification(
            path=folder, checks=(Check(name="certificate", ok=False, detail=str(error)),), certificate=None
        )
    examination = _Examination(folder, text, certificate)
    return Verification(
        path=folder,
        checks=tuple(_attempt(name, check) for name, check in examination.all()),
        certificate=certificate,
    )


class _Failed(Exception):  # noqa: N818 - not an error of the program: a finding
    """A check does not hold, and why."""


def _attempt(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name=name, ok=True, detail=check())
    except _Failed as finding:
        return Check(name=name, ok=False, detail=str(finding))
    # A hostile file may make any library raise anything; for the reader that is one more failed check.
    except Exception as error:
        return Check(name=name, ok=False, detail=str(error) or type(error).__name__)


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise _Failed(otherwise)


class _Examination:
    """The checks of one release; each returns what it found, or raises."""

    def __init__(self, folder: Path, text: bytes, certificate: Certificate) -> None:
        self.folder = folder
        self.text = text
        self.certificate = certificate

    def all(self) -> list[tuple[str, Callable[[], str]]]:
        """Name and function of every check, cheap ones first."""
        return [
            ("certificate", self.seal),
            ("files", self.files),
            ("set", self.tensors),
            ("relation", self.relation),
            ("noise", self.noise),
            ("statement", self.statement),
            ("ledger", self.ledger),
            ("card", self.card),
            ("preview", self.preview),
            ("epsilon", self.epsilon),
            ("plan", self.plan),
        ]

    def seal(self) -> str:
        certificate = self.certificate
        _expect(
            certificate.seal == certificate.expected_seal(),
            "the certificate was changed: its seal does not fit it",
        )
        _expect(
            self.text == certificate.to_bytes(),
            "the certificate's file was changed: it says the same, but is not spelled as privset writes it",
        )
        return f"seal {certificate.seal}"

    def files(self) -> str:
        present = {path.name: path for path in self.folder.iterdir()}
        expected = {CERTIFICATE_FILE, synthetic.FILE, card.FILE, preview.FILE} | self.certificate.files.keys()
        unexpected = sorted(present.keys() - (expected & _FILES) - _HOLDERS_OWN)
        _expect(not unexpected, f"not part of a release, and vouched for by nothing: {', '.join(unexpected)}")
        missing = sorted(expected - present.keys())
        _expect(not missing, f"missing: {', '.join(missing)}")
        odd = sorted(name for name, path in present.items() if path.is_symlink() or not path.is_file())
        _expect(not odd, f"not an ordinary file: {', '.join(odd)}")
        return f"{len(expected)} files, and no others that matter"

    def tensors(self) -> str:
        content = self._undamaged(synthetic.FILE)
        found, stated = self._set(content), self.certificate.contents
        _expect(
            found.digest() == stated.digest,
            "the tensors are not those of the certificate: their digest differs",
        )
        _expect(found.pixel_form == stated.pixel_form, f"holds {found.pixel_form}, not {stated.pixel_form}")
        _expect(
            (len(found), found.per_class) == (stated.images, stated.per_class),
            f"holds {len(found)} images, {list(found.per_class)} by class, not what the certificate says",
        )
        return f"{len(found):,} images, {found.pixel_form}, digest {stated.digest}"

    def relation(self) -> str:
        relation = self.certificate.guarantee.relation
        _expect(
            relation == RELATION,
            f"the relation is {relation!r}; the accounting here is for {RELATION!r} only",
        )
        return relation

    def noise(self) -> str:
        guarantee, source = self.certificate.guarantee, self.certificate.noise_source
        finite = math.isfinite(guarantee.epsilon_budgeted) and math.isfinite(guarantee.epsilon_spent)
        private = source == "system" and finite
        _expect(
            guarantee.private == private,
            f"the certificate says private: {guarantee.private}, but {source} noise at epsilon "
            f"{rounded_up(guarantee.epsilon_spent)} is {'' if private else 'not '}private",
        )
        return f"{source} noise: {'private' if private else 'NOT PRIVATE, as the certificate says'}"

    def statement(self) -> str:
        certificate = self.certificate
        _expect(
            certificate.statement == certificate.regenerated_statement(),
            "the statement does not say what the numbers say",
        )
        _expect(
            certificate.not_accounted[: len(NOT_ACCOUNTED)] == NOT_ACCOUNTED,
            "the list of what the guarantee does not cover was changed",
        )
        return "says what the numbers say"

    def ledger(self) -> str:
        certificate = self.certificate
        if LEDGER_FILE not in certificate.files:
            _expect(not certificate.guarantee.private, "a private release must have the ledger of its charges")
            return "none, and none is needed without a guarantee"
        self._undamaged(LEDGER_FILE)
        budget, charges = ledger.read(self.folder / LEDGER_FILE)
        _expect(budget == certificate.budget(), "the ledger was kept for another budget than the certificate's")
        _expect(
            merge(charges) == merge(certificate.gaussian_events()),
            "the charges in the ledger are not the events in the certificate",
        )
        return f"{sum(charge.count for charge in charges):,} answers charged, all in the certificate"

    def card(self) -> str:
        content = self._undamaged(card.FILE)
        return self._regenerated(content == card.write(self.certificate).encode(), "card")

    def preview(self) -> str:
        content = self._undamaged(preview.FILE)
        sheet = preview.draw(self._set(read_file(self.folder, synthetic.FILE)))
        return self._regenerated(preview.same_pixels(content, sheet), "preview")

    def epsilon(self) -> str:
        stated = self.certificate.guarantee
        found = spend(self.certificate.gaussian_events(), stated.delta)
        for name, recorded, recomputed in (
            ("by rdp", stated.epsilon_by.rdp, found.rdp),
            ("by pld", stated.epsilon_by.pld, found.pld),
            ("spent", stated.epsilon_spent, found.by(stated.accountant)),
        ):
            _expect(
                _same(recorded, recomputed),
                f"epsilon {name} is recorded as {recorded}, but the recorded events cost {recomputed}",
            )
        spent = found.by(stated.accountant)
        _expect(
            spent <= stated.epsilon_budgeted * (1 + _EPSILON_TOLERANCE),
            f"the recorded events cost epsilon {spent}, more than the budget of {stated.epsilon_budgeted}",
        )
        return (
            f"epsilon {rounded_up(spent)} of {rounded_up(stated.epsilon_budgeted)} at delta "
            f"{stated.delta:g}, recomputed"
        )

    def plan(self) -> str:
        replanning.check(self.certificate)
        return f"{self.certificate.method} with these settings asks exactly the recorded questions"

    def _undamaged(self, name: str) -> bytes:
        content = read_file(self.folder, name)
        _expect(
            self.certificate.files.get(name) == sha256(content),
            f"{name} was changed: its digest is not the recorded one",
        )
        return content

    def _set(self, content: bytes) -> SyntheticSet:
        return SyntheticSet.from_bytes(content, self.certificate.public_facts())

    def _regenerated(self, same: bool, what: str) -> str:
        """Another published version may word a card or draw a preview differently; its digest holds all the same."""
        theirs, ours = self.certificate.software.get("privset"), __version__
        _expect(theirs in PUBLISHED, f"this privset {ours} does not know the version {theirs} that made it; upgrade")
        if not same and theirs != ours:
            return f"unchanged since privset {theirs} made it; not made again, because this is privset {ours}"
        _expect(same, f"the {what} is not what set and certificate give")
        return "unchanged, and what set and certificate give"


def _same(recorded: float | None, recomputed: float | None) -> bool:
    if recorded is None or recomputed is None:
        return recorded is recomputed
    return math.isclose(recorded, recomputed, rel_tol=_EPSILON_TOLERANCE)
