"""`privset verify`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from privset.cli import console
from privset.cli.arguments import parse
from privset.continual import check_note
from privset.errors import ReleaseError
from privset.release import verify as verify_release
from privset.release.verification import Check, Verification


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyArguments:
    """Recompute everything in a release that can be, and say what does not hold."""

    release: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RELEASE")]]
    """The folder of the release: a set, statistics or a classifier; or of a stage, whose note is compared with it."""
    source: Path | None = None
    """The release that the set was made from, statistics or one with a generator: also check it, and that the two
    belong together."""
    json: bool = False
    """Print one JSON object."""


def verify(arguments: Sequence[str]) -> int:
    """Recompute a release's epsilon, digests and plan; exits with 1 if anything does not hold."""
    parsed = parse(VerifyArguments, arguments, "privset verify")
    with console.Bars() as bars:
        bars.phase("recomputing", 0)
        outcome = _with_note(verify_release(parsed.release, source=parsed.source), parsed.release)
    if parsed.json:
        console.show_json(outcome.to_json())
    else:
        rows = [["ok" if check.ok else "FAILED", check.name, check.detail] for check in outcome.checks]
        console.show_table(["", "check", "found"], rows)
        if outcome.ok and outcome.certificate is not None:
            console.show(outcome.certificate.statement)
            console.show(f"Seal of the certificate: {outcome.certificate.seal}")
        elif [check.name for check in outcome.failures] == ["source"]:
            console.show(f"{parsed.release} holds by itself, but not that it was made from {parsed.source}.")
        else:
            claims = "what it claims to be" if outcome.certificate is not None else "a release"
            console.show(f"{parsed.release} is NOT {claims}: {len(outcome.failures)} check(s) failed.")
    return 0 if outcome.ok else 1


def _with_note(outcome: Verification, folder: Path) -> Verification:
    """And whether the stage that it lies in, if it does, has nothing else in it but a note that says the same."""
    if not outcome.ok:
        return outcome
    try:
        if not check_note(folder):
            return outcome
        note = Check(name="stage", ok=True, detail="its note says of this release what the certificate says")
    except ReleaseError as error:
        note = Check(name="stage", ok=False, detail=str(error))
    return dataclasses.replace(outcome, checks=(*outcome.checks, note))
