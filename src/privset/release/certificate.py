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
from typing import Any, Literal

from pydantic import Field, JsonValue, ValidationError

from privset.errors import PrivsetError, ReleaseError
from privset.facts import PublicFacts
from privset.privacy.accounting import GaussianEvent, merge, spend
from privset.privacy.budget import PrivacyBudget
from privset.release.sections import (
    Claimed,
    ClassifierContents,
    Contents,
    Digest,
    Document,
    Drawn,
    Event,
    Facts,
    Guarantee,
    Joined,
    Party,
    SetContents,
    SnapshotsContents,
    Source,
    StatisticsContents,
)
from privset.release.statement import Holding, statement_of

FILE = "certificate.json"
LEDGER_FILE = "ledger.jsonl"


class Certificate(Document):
    """The record of one release."""

    format: Literal["privset-certificate"]
    version: Literal[1]
    created: str = Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", description="When, in UTC")
    seconds: int = Field(
        ge=0, description="Wall-clock time that making it took, in whole seconds; since it was last taken up again"
    )
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
    seeds: dict[str, int] = Field(
        description="Seeds of public randomness, never of private noise; measured: that of a distilled set's "
        "statistics; drawn: that of the codes of images drawn from a published generator"
    )
    contents: Contents
    source: Source | None = Field(default=None, description="Only if the set was distilled from published statistics")
    joined: Joined | None = Field(default=None, description="Only if the set was joined from several releases")
    claim: Claimed | None = Field(
        default=None, description="Only if the method's original analysis claims another epsilon; not the guarantee"
    )
    drawn: Drawn | None = Field(default=None, description="Only if the images were drawn from a published generator")
    party: Party | None = Field(default=None, description="Only if it is one of several parties' with disjoint classes")
    files: dict[str, Digest] = Field(description="SHA-256 of every other file of the release")
    software: dict[str, str]
    seal: Digest = Field(description="SHA-256 of everything else in this certificate")

    @classmethod
    def parse(cls, text: bytes, where: str = FILE) -> Certificate:
        """The certificate in a file's bytes; form alone is checked here, `verify` checks the content.

        Raises:
            ReleaseError: Not JSON, not a certificate, or of a version that this privset does not know.
        """
        try:
            document = json.loads(text.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
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
            raise ReleaseError(f"{where}: {first_problem(error)}{hint}") from error

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
            holding=self.holding,
            generator=isinstance(self.contents, SetContents) and self.contents.generator is not None,
            snapshots=self.snapshots is not None,
            count=self._count,
            records=self.facts.size,
            data=self.facts.name,
        )

    @property
    def _count(self) -> int:
        """How many images, numbers or weights are published."""
        if isinstance(self.contents, StatisticsContents):
            return self.contents.numbers
        return self.contents.weights if isinstance(self.contents, ClassifierContents) else self.contents.images

    @property
    def snapshots(self) -> SnapshotsContents | None:
        """What is said of sets along the run that are published with the one at its end."""
        return self.contents.snapshots if isinstance(self.contents, SetContents) else None

    def epsilon_after(self, answers: int) -> float:
        """What the first ``answers`` of a run with one kind of question cost, by the accountant of its budget.

        Whoever published nothing but a function of these would have spent so much. Published with the rest, it is part
        of what the whole run costs.
        """
        events = merge(self.gaussian_events())
        if len(events) != 1 or not 0 <= answers <= events[0].count:
            asked = " and ".join(f"{event.count:,}" for event in events)
            raise ReleaseError(f"this run asked {asked} question(s), of which the first {answers:,} have no cost alone")
        first = [dataclasses.replace(events[0], count=answers)] if answers else []
        return spend(first, self.guarantee.delta).by(self.guarantee.accountant)

    @property
    def holding(self) -> Holding:
        """What is published: a set, whether distilled, joined or drawn from others, statistics, or a classifier."""
        if isinstance(self.contents, StatisticsContents):
            return "statistics"
        if isinstance(self.contents, ClassifierContents):
            return "classifier"
        if self.joined is not None:
            return "joined disjoint set" if self.joined.disjoint else "joined set"
        if self.drawn is not None:
            return "drawn set"
        return "set" if self.source is None else "distilled set"

    @property
    def payment(self) -> str:
        """The seal of the certificate under which the records were asked; releases that share it cost it once."""
        if self.source is not None:
            return self.source.certificate
        return self.seal if self.drawn is None else self.drawn.certificate

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


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(word: str) -> float:
    if not math.isfinite(value := float(word)):
        raise ValueError(f"{word} is too large a number")
    return value


def first_problem(error: ValidationError) -> str:
    """Where a document is wrong, and how."""
    problem = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc'])) or 'the document'}: {problem['msg']}"
