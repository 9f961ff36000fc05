"""How a certificate comes to be: from the plan that was followed, or from the release that a set was made from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from privset.errors import ReleaseError
from privset.facts import PublicFacts
from privset.methods.plan import Plan
from privset.methods.settings import MethodConfig
from privset.privacy.budget import RELATION
from privset.release import card, classifier, configuration, generator, preview, snapshots, statistics, synthetic
from privset.release.certificate import LEDGER_FILE, Certificate, first_problem, plain, sha256
from privset.release.classifier import Classifier
from privset.release.sections import (
    Claimed,
    ClassifierContents,
    Contents,
    Drawn,
    EpsilonByAccountant,
    Event,
    Facts,
    GeneratorContents,
    Guarantee,
    Joined,
    Party,
    SetContents,
    SnapshotsContents,
    Source,
    StatisticsContents,
)
from privset.release.software import versions
from privset.release.statement import NOT_ACCOUNTED
from privset.release.statistics import NoisyStatistics
from privset.release.synthetic import SyntheticSet

Content = SyntheticSet | NoisyStatistics | Classifier
"""What a release is about."""


def certify(
    plan: Plan,
    content: Content,
    noise_source: Literal["system", "seeded"],
    *,
    ledger: Path | None,
    seconds: float,
    config_file: bytes | None = None,
    also_not_accounted: tuple[str, ...] = (),
    party: Party | None = None,
    created: datetime | None = None,
) -> Certificate:
    """The sealed certificate of what was made by following ``plan``.

    Args:
        plan: What was asked, at which noise.
        content: What came of it.
        noise_source: The kind of noise the curator used.
        ledger: The curator's ledger; None only where there is no guarantee to account for.
        seconds: Wall-clock time of the run.
        config_file: The bytes of its configuration file; None if there is to be none.
        also_not_accounted: What else the guarantee does not cover, a sentence each.
        party: Whose release it is, if it is one of several parties'.
        created: Now, unless given.

    Raises:
        ReleaseError: A private release without a ledger, or something that cannot be written down.
    """
    guarantee = Guarantee(
        private=noise_source == "system" and plan.budget.private and math.isfinite(plan.epsilon),
        epsilon_budgeted=plan.budget.epsilon,
        epsilon_spent=plan.epsilon,
        delta=plan.budget.delta,
        relation=RELATION,
        accountant=plan.budget.accountant,
        epsilon_by=EpsilonByAccountant(rdp=plan.spending.rdp, pld=plan.spending.pld),
    )
    asked: dict[str, Any] = {
        "guarantee": guarantee,
        "noise_source": noise_source,
        "events": tuple(Event(**event.to_json()) for event in plan.events),
        "not_accounted": NOT_ACCOUNTED + also_not_accounted,
        "facts": _facts(plan.facts),
        "method": plan.method,
    }
    if plan.claim is not None:
        asked["claim"] = Claimed(**dataclasses.asdict(plan.claim))
    if party is not None:  # left out of the others, whose seal would be another with it
        asked["party"] = party
    files = given_files(ledger, config_file)
    return _issue(asked, plan.config, {"public": plan.config.seed}, content, files, seconds, created)


def certify_distilled(
    source: Certificate,
    config: MethodConfig,
    synthetic_set: SyntheticSet,
    *,
    ledger: Path | None,
    seconds: float,
    config_file: bytes | None = None,
    created: datetime | None = None,
) -> Certificate:
    """The sealed certificate of a set distilled from published statistics: their questions, and their guarantee.

    Args:
        source: The certificate of the statistics.
        config: The settings the set was distilled with.
        synthetic_set: The set.
        ledger: The ledger of the statistics, if they have one.
        seconds: Wall-clock time of distilling.
        config_file: The bytes of its configuration file; None if there is to be none.
        created: Now, unless given.
    """
    asked = _asked_of(source)
    asked["source"] = Source(certificate=source.seal, digest=source.contents.digest)
    seeds = {"public": config.seed, "measured": source.seeds["public"]}
    files = given_files(ledger, config_file)
    return _issue(asked, config, seeds, synthetic_set, files, seconds, created)


def certify_drawn(
    source: Certificate,
    seed: int,
    synthetic_set: SyntheticSet,
    *,
    ledger: Path | None,
    seconds: float,
    config_file: bytes | None = None,
    created: datetime | None = None,
) -> Certificate:
    """The sealed certificate of a set drawn from a published generator: the questions and the guarantee of that.

    Args:
        source: The certificate of the release that holds the generator.
        seed: Of the codes that the images were made of.
        synthetic_set: The set.
        ledger: The ledger of that release, if it has one.
        seconds: Wall-clock time of drawing.
        config_file: The bytes of its configuration file; None if there is to be none.
        created: Now, unless given.

    Raises:
        ReleaseError: That release holds no generator.
    """
    contents, asked = source.contents, _asked_of(source)
    if not isinstance(contents, SetContents) or contents.generator is None:
        raise ReleaseError("images can only be drawn from a release that holds a generator")
    if source.source is not None:
        asked["source"] = source.source
    asked["drawn"] = Drawn(certificate=source.seal, generator=contents.generator.digest)
    files = given_files(ledger, config_file)
    seeds = source.seeds | {"drawn": seed}
    return _issue(asked, source.configuration, seeds, synthetic_set, files, seconds, created)


def _asked_of(source: Certificate) -> dict[str, Any]:
    """What the certificate of a set says of questions and guarantee that was made from another release for free."""
    names = ["guarantee", "noise_source", "events", "not_accounted", "facts", "method"]
    if source.claim is not None:
        names.append("claim")
    return {name: getattr(source, name) for name in names}


def certify_joined(
    asked: dict[str, Any],
    joined: Joined,
    synthetic_set: SyntheticSet,
    given: dict[str, bytes],
    *,
    seconds: float,
    created: datetime | None = None,
) -> Certificate:
    """The sealed certificate of a set that was joined from several releases.

    Args:
        asked: What `privset.release.joint.joint_asked` says of the parts together.
        joined: The parts.
        synthetic_set: All their images.
        given: Certificate and ledger of each part, by name in the folder.
        seconds: Wall-clock time of joining.
        created: Now, unless given.
    """
    return _issue(asked | {"joined": joined}, None, {}, synthetic_set, given, seconds, created)


def content_files(content: Content) -> dict[str, bytes]:
    """Name and bytes of the files that hold or show what is published."""
    if isinstance(content, NoisyStatistics):
        return {statistics.FILE: content.to_bytes()}
    if isinstance(content, Classifier):
        return {classifier.FILE: content.to_bytes()}
    files = {synthetic.FILE: content.to_bytes(), preview.FILE: preview.encode(preview.draw(content))}
    if content.generator is not None:
        files[generator.FILE] = content.generator.to_bytes()
    return files if content.snapshots is None else files | {snapshots.FILE: content.snapshots.to_bytes()}


def given_files(ledger: Path | None, config: bytes | None) -> dict[str, bytes]:
    """Name and bytes of the files that do not follow from content and certificate: ledger and configuration."""
    files = {}
    if ledger is not None:
        try:
            files[LEDGER_FILE] = ledger.read_bytes()
        except OSError as error:
            raise ReleaseError(f"{ledger}: the ledger cannot be read ({error.strerror})") from error
    return files if config is None else files | {configuration.FILE: config}


def _issue(
    asked: dict[str, Any],
    config: MethodConfig | Mapping[str, Any] | None,
    seeds: dict[str, int],
    content: Content,
    given: dict[str, bytes],
    seconds: float,
    created: datetime | None,
) -> Certificate:
    if asked["guarantee"].private and LEDGER_FILE not in given and "joined" not in asked:
        raise ReleaseError("a private release needs the curator's ledger beside its certificate")
    settings = dataclasses.asdict(config) if isinstance(config, MethodConfig) else config or {}
    try:
        draft = Certificate(
            format="privset-certificate",
            version=1,
            created=(created or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            seconds=round(seconds),  # no finer: time depends on the records, and this is published
            statement="",
            **asked,
            configuration=plain(settings),
            seeds=seeds,
            contents=_contents(content),
            files={},
            software=versions(),
            seal="0" * 64,
        )
    except ValidationError as error:
        raise ReleaseError(f"the certificate cannot be written: {first_problem(error)}") from error
    draft = draft.model_copy(update={"statement": draft.regenerated_statement()})
    files = content_files(content) | {card.FILE: card.write(draft).encode()} | given
    digests = {name: sha256(file) for name, file in files.items()}
    return draft.model_copy(update={"files": digests}).resealed()


def _contents(content: Content) -> Contents:
    if isinstance(content, NoisyStatistics):
        return StatisticsContents(
            kind="statistics", numbers=len(content), shapes=content.shapes, digest=content.digest()
        )
    if isinstance(content, Classifier):
        architecture = dataclasses.asdict(content.architecture)
        return ClassifierContents(kind="classifier", **architecture, weights=len(content), digest=content.digest())
    # What a set does not have must stay out of its certificate, not be null in it.
    with_it: dict[str, Any] = {} if content.generator is None else {"generator": _generator(content.generator)}
    if content.snapshots is not None:
        along = content.snapshots
        with_it["snapshots"] = SnapshotsContents(answers=along.answers, digest=along.digest())
    return SetContents(
        kind="set",
        images=len(content),
        per_class=content.per_class,
        pixel_form=content.pixel_form,
        digest=content.digest(),
        **with_it,
    )


def _generator(published: generator.Generator) -> GeneratorContents:
    form = published.trained.form
    return GeneratorContents(
        architecture=form.architecture,
        settings=dict(form.settings),
        numbers=len(published),
        digest=published.digest(),
    )


def readable(name: str) -> str:
    """A name as a certificate has it: names of files need not be valid Unicode, and a paid release must not fail."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _facts(facts: PublicFacts) -> Facts:
    fields = dataclasses.asdict(facts)
    fields |= {"name": readable(facts.name), "classes": tuple(map(readable, facts.classes))}
    return Facts(**fields)
