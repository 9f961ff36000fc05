"""Is a release what it says? Everything that can be computed again is, from the files alone.

Three kinds of check. Integrity: every file against the digest in the certificate, the certificate against its
seal and the one spelling it may have, so that any changed byte shows. Accounting: epsilon again from the
recorded events, by each accountant. Consistency: the events again from method, settings, public facts and
budget, and against the ledger; statement, card and preview again from what they are made of. The last two
kinds hold even if digests and seal were computed anew. A set that was joined from others is checked from their
certificates and ledgers, which it holds. What no file can show is that the software was run as recorded, on the
records and with the noise it names.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from privset.errors import PrivsetError, ReleaseError
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.release.certificate import Certificate
from privset.release.examination import Examination, Failed, expect
from privset.release.folder import release_in
from privset.release.joint_examination import JointExamination
from privset.release.loading import load, read_file
from privset.release.origin import named, same_measurement, same_questions, same_training
from privset.release.software import versions
from privset.release.synthetic import SyntheticSet


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


def verify(folder: str | Path, *, source: str | Path | None = None) -> Verification:
    """Check a release. Whatever was done to it, this returns; only a missing folder raises `ReleaseError`.

    Args:
        folder: The release: a set, statistics or a classifier; or a stage that holds one.
        source: The release that the set was made from: the statistics it was distilled from, or the set whose generator
            it was drawn from. It is checked too, and that the two belong together.
    """
    folder = release_in(folder)
    if not os.path.isdir(folder):
        raise ReleaseError(f"{folder} is not a folder; give the folder of a release, with its {CERTIFICATE_FILE}")
    origin = None if source is None else verify(source)
    try:
        text = read_file(folder, CERTIFICATE_FILE)
        certificate = Certificate.parse(text)
    except PrivsetError as error:
        return Verification(
            path=folder, checks=(Check(name="certificate", ok=False, detail=str(error)),), certificate=None
        )
    examination = Examination if certificate.joined is None else JointExamination
    checks = examination(folder, text, certificate).all()
    if origin is not None:
        checks.append(("source", lambda: _belongs(certificate, origin, folder)))
    return Verification(
        path=folder,
        checks=tuple(_attempt(name, check) for name, check in checks),
        certificate=certificate,
    )


def require_verified(folder: Path, done: str) -> None:
    """Raise `ReleaseError` unless every check of the release holds; ``done`` names what is not, such as "made from it".

    Raises:
        ReleaseError: Something does not hold, and what.
    """
    bad = [f"{check.name}: {check.detail}" for check in verify(folder).failures]
    if bad:
        raise ReleaseError(f"{folder} is not what it claims to be, so nothing is {done} ({'; '.join(bad)})")


def _belongs(made: Certificate, origin: Verification, folder: Path) -> str:
    """That a set says of the release it was made from what this says of itself."""
    bad = ", ".join(check.name for check in origin.failures)
    expect(origin.ok, f"{origin.path} does not hold by itself: {bad}; `privset verify` says more")
    theirs = origin.certificate
    assert theirs is not None
    return _drawn(made, theirs, origin, folder) if made.drawn is not None else _distilled(made, theirs, origin)


def _distilled(made: Certificate, theirs: Certificate, statistics: Verification) -> str:
    expect(made.source is not None, "it was neither distilled nor drawn from another release: leave --source out")
    expect(theirs.holding == "statistics", f"{statistics.path} does not hold statistics")
    assert made.source is not None
    expect(
        (made.source.certificate, made.source.digest) == (theirs.seal, theirs.contents.digest),
        f"this set was distilled from other statistics than those in {statistics.path}",
    )
    odd = named(same_questions(made, theirs), same_measurement(made, theirs))
    expect(not odd, f"the set differs from its statistics in {odd}")
    return f"distilled from the statistics in {statistics.path}, which hold"


def _drawn(made: Certificate, theirs: Certificate, origin: Verification, folder: Path) -> str:
    assert made.drawn is not None
    release, made_set = load(origin.path), load(folder).set
    expect(release.generator is not None, f"{origin.path} holds no generator")
    assert release.generator is not None
    expect(
        (made.drawn.certificate, made.drawn.generator) == (theirs.seal, release.generator.digest()),
        f"this set was drawn from the generator of another release than {origin.path}",
    )
    form = {"form of pixels": made_set.pixel_form == release.set.pixel_form}
    odd = named(same_questions(made, theirs), same_training(made, theirs), form)
    expect(not odd, f"the set differs from the release it was drawn from in {odd}")
    theirs_torch, ours = made.software.get("torch"), versions()["torch"]
    if theirs_torch != ours:
        return f"belongs to {origin.path}, which holds; not drawn again, because torch is {ours}, not {theirs_torch}"
    again = release.generator.draw(per_class=made_set.per_class[0], seed=made.seeds["drawn"])
    images = SyntheticSet.from_synthesis(
        dataclasses.replace(again, keep_floats=release.set.keeps_floats), made_set.facts
    )
    # Sums of floats are not the same on every processor: one level of 8-bit pixels, or a thousandth.
    apart = (images.images.float() - made_set.images.float()).abs().max() if len(images) == len(made_set) else math.inf
    expect(
        float(apart) <= (1e-3 * max(1.0, float(images.images.abs().max())) if release.set.keeps_floats else 1.0),
        "the generator, drawn from with the recorded seed, makes other images",
    )
    return f"drawn from the generator in {origin.path}, which holds; drawn again, and the same images"


def _attempt(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name=name, ok=True, detail=check())
    except Failed as finding:
        return Check(name=name, ok=False, detail=str(finding))
    # A hostile file may make any library raise anything; for the reader that is one more failed check.
    except Exception as error:
        return Check(name=name, ok=False, detail=str(error) or type(error).__name__)
