"""certificate.json: what was asked of the private records, what that cost, and what it guarantees.

How the format may change, so that a certificate can still be read and believed in ten years:

- A field is never removed, and its meaning never changes. What needs that becomes version 2.
- A new field is optional, and left out of certificates that do not have it; it changes neither seal nor
  bytes of those already written.
- An unknown version, or an unknown field, is refused with a sentence that says to upgrade privset: what a
  reader does not understand it must not vouch for.
- The statement and the list of what is not accounted for are frozen with the version: see
  `privset.release.statement`.
- JSON has no infinity: an infinite epsilon is the string "inf".

The seal is the SHA-256 of everything else in the certificate, as JSON with sorted keys, no spaces and ASCII
only. It shows accidents and careless edits. It does not stop a forger, who can compute it anew: against one,
`verify` recomputes epsilon from the recorded events and plans them again from the configuration. What is left
to a forger, such as another date or other class names, shows only if the data holder publishes the seal where
the forger cannot write.

The JSON Schema is printed by ``python -m privset.release.schema``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue, ValidationError

from privset.errors import PrivsetError, ReleaseError
from privset.facts import PublicFacts
from privset.methods.method import Plan
from privset.privacy.accounting import GaussianEvent
from privset.privacy.budget import RELATION, PrivacyBudget
from privset.release import card, preview, synthetic
from privset.release.sections import (
    Contents,
    Digest,
    Document,
    EpsilonByAccountant,
    Event,
    Facts,
    Guarantee,
)
from privset.release.software import versions
from privset.release.statement import NOT_ACCOUNTED, statement_of
from privset.release.synthetic import SyntheticSet

FILE = "certificate.json"
LEDGER_FILE = "ledger.jsonl"


class Certificate(Document):
    """The record of one release."""

    format: Literal["privset-certificate"]
    version: Literal[1]
    created: str = Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", description="When, in UTC")
    seconds: int = Field(ge=0, description="Wall-clock time that making the set took, in whole seconds")
    statement: str = Field(description="The guarantee in words, generated from the numbers")
    guarantee: Guarantee
    noise_source: Literal["system", "seeded"] = Field(
        description="system: cryptographic, keyed by the operating system; seeded: repeatable, not private"
    )
    events: tuple[Event, ...] = Field(description="Every question that was asked of the private records")
    not_accounted: tuple[str, ...] = Field(description="What the guarantee does not cover")
    facts: Facts
    method: str
    configuration: dict[str, JsonValue] = Field(description="Every setting of the method")
    seeds: dict[str, int] = Field(description="Seeds of public randomness; never of private noise")
    contents: Contents
    files: dict[str, Digest] = Field(description="SHA-256 of every other file of the release")
    software: dict[str, str]
    seal: Digest = Field(description="SHA-256 of everything else in this certificate")

    @classmethod
    def from_plan(
        cls,
        plan: Plan,
        synthetic_set: SyntheticSet,
        noise_source: Literal["system", "seeded"],
        *,
        ledger: Path | None,
        seconds: float,
        created: datetime | None = None,
    ) -> Certificate:
        """The sealed certificate of a set that was made by following ``plan``.

        Args:
            plan: What was asked, at which noise.
            synthetic_set: What came of it.
            noise_source: The kind of noise the curator used.
            ledger: The curator's ledger; None only where there is no guarantee to account for.
            seconds: Wall-clock time of the run.
            created: Now, unless given.

        Raises:
            ReleaseError: A private release without a ledger, or something that cannot be written down.
        """
        private = noise_source == "system" and plan.budget.private and math.isfinite(plan.epsilon)
        if private and ledger is None:
            raise ReleaseError("a private release needs the curator's ledger beside its certificate")
        facts = _facts(plan.facts)
        fields: dict[str, Any] = {
            "format": "privset-certificate",
            "version": 1,
            "created": (created or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "seconds": round(seconds),  # no finer: time depends on the records, and this is published
            "statement": "",
            "guarantee": Guarantee(
                private=private,
                epsilon_budgeted=plan.budget.epsilon,
                epsilon_spent=plan.epsilon,
                delta=plan.budget.delta,
                relation=RELATION,
                accountant=plan.budget.accountant,
                epsilon_by=EpsilonByAccountant(rdp=plan.spending.rdp, pld=plan.spending.pld),
            ),
            "noise_source": noise_source,
            "events": tuple(Event(**dataclasses.asdict(event)) for event in plan.events),
            "not_accounted": NOT_ACCOUNTED,
            "facts": facts,
            "method": plan.method,
            "configuration": plain(dataclasses.asdict(plan.config)),
            "seeds": {"public": plan.config.seed},
            "contents": Contents(
                images=len(synthetic_set),
                per_class=synthetic_set.per_class,
                pixel_form=synthetic_set.pixel_form,
                digest=synthetic_set.digest(),
            ),
            "files": {},
            "software": versions(),
            "seal": "0" * 64,
        }
        try:
            draft = cls(**fields)
        except ValidationError as error:
            raise ReleaseError(f"the certificate cannot be written: {_first(error)}") from error
        draft = draft.model_copy(update={"statement": draft.regenerated_statement()})
        files = {
            synthetic.FILE: sha256(synthetic_set.to_bytes()),
            preview.FILE: sha256(preview.encode(preview.draw(synthetic_set))),
            card.FILE: sha256(card.write(draft).encode()),
        }
        if ledger is not None:
            files[LEDGER_FILE] = sha256(read_ledger(ledger))
        return draft.model_copy(update={"files": files}).resealed()

    @classmethod
    def parse(cls, text: bytes, where: str = FILE) -> Certificate:
        """The certificate in a file's bytes; form alone is checked here, `verify` checks the content.

        Raises:
            ReleaseError: Not JSON, not a certificate, or of a version that this privset does not know.
        """
        try:
            document = json.loads(text.decode("utf-8"), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ReleaseError(f"{where}: not JSON ({error}); get the release again from its source") from error
        if not isinstance(document, dict) or document.get("format") != "privset-certificate":
            raise ReleaseError(f"{where}: not a privset certificate (its format is not 'privset-certificate')")
        if document.get("version") != 1:
            raise ReleaseError(
                f"{where}: has version {document.get('version')!r}, and this privset knows version 1; "
                "upgrade privset to read it"
            )
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            hint = "; upgrade privset, or get the release again from its source"
            raise ReleaseError(f"{where}: {_first(error)}{hint}") from error

    def to_bytes(self) -> bytes:
        """The file's bytes; one certificate has one spelling."""
        return (json.dumps(self._document(), indent=2, allow_nan=False) + "\n").encode("ascii")

    def _document(self) -> dict[str, Any]:
        # A later optional field that this certificate does not have must stay out, or its seal would change.
        return self.model_dump(mode="json", exclude_unset=True)

    def expected_seal(self) -> str:
        """The seal that the content has, whatever seal is written in it."""
        document = {name: value for name, value in self._document().items() if name != "seal"}
        return sha256(json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii"))

    def resealed(self) -> Certificate:
        """This certificate with the seal that fits it."""
        return self.model_copy(update={"seal": self.expected_seal()})

    def regenerated_statement(self) -> str:
        """What the statement has to say, given the numbers."""
        return statement_of(
            private=self.guarantee.private,
            seeded=self.noise_source == "seeded",
            epsilon_budgeted=self.guarantee.epsilon_budgeted,
            epsilon_spent=self.guarantee.epsilon_spent,
            delta=self.guarantee.delta,
            images=self.contents.images,
            records=self.facts.size,
            data=self.facts.name,
        )

    def public_facts(self) -> PublicFacts:
        """The public facts, checked as those of any data are."""
        try:
            return PublicFacts(**self.facts.model_dump())
        except PrivsetError as error:
            raise ReleaseError(f"{FILE}: impossible public facts: {error}") from error

    def budget(self) -> PrivacyBudget:
        """The budget that the release was made with."""
        stated = self.guarantee
        return PrivacyBudget(epsilon=stated.epsilon_budgeted, delta=stated.delta, accountant=stated.accountant)

    def gaussian_events(self) -> tuple[GaussianEvent, ...]:
        """The events in the form that accounting takes."""
        return tuple(GaussianEvent(**event.model_dump()) for event in self.events)


def sha256(content: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def plain(value: Any) -> Any:
    """Settings as JSON has them: tuples become lists, infinity the string "inf"."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _facts(facts: PublicFacts) -> Facts:
    """Names of files need not be valid Unicode; a release that is paid for must not fail for that."""

    def readable(name: str) -> str:
        return name.encode("utf-8", "backslashreplace").decode("utf-8")

    fields = dataclasses.asdict(facts)
    fields |= {"name": readable(facts.name), "classes": tuple(map(readable, facts.classes))}
    return Facts(**fields)


def read_ledger(path: Path) -> bytes:
    """The bytes of the curator's ledger, which become a file of the release."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ReleaseError(f"{path}: the ledger cannot be read ({error.strerror})") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc'])) or 'the document'}: {problem['msg']}"
