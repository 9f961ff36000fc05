"""The note of a stage, ``stage.json``: the certificate's words for people and programs, and compared with it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privset import files
from privset.continual.received import Received, loaded
from privset.errors import ReleaseError
from privset.release.folder import NOTE, RELEASE, release_in
from privset.release.unfinished import left_beside


def read_note(stage: Path) -> dict[str, Any] | None:
    """What ``stage.json`` in a folder says, or None if there is none.

    Raises:
        ReleaseError: It is something else.
    """
    path = stage / NOTE
    try:
        if path.exists() and not path.is_file():
            raise TypeError("not a file")
        found = json.loads(path.read_bytes())
        if found["format"] != "privset-stage" or not all(isinstance(name, str) for name in found["classes"]):
            raise TypeError("not the note of a stage")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ReleaseError(f"{path} cannot be read ({error}); get the stage again from its source") from error
    return found


def mention(one: Received) -> dict[str, Any]:
    """What the note of a stage says of a release; all of it follows from the certificate."""
    guarantee, facts = one.certificate.guarantee.model_dump(mode="json"), one.certificate.facts
    return {
        "classes": list(one.classes),
        "records": facts.size,
        "private": guarantee["private"],
        "epsilon": guarantee["epsilon_spent"],
        "delta": guarantee["delta"],
        "relation": guarantee["relation"],
        "seal": one.certificate.seal,
        "digest": one.certificate.contents.digest,
    }


def note_of(own: Received, number: int, received: Any) -> dict[str, Any]:
    """What goes to the next party with a release; it follows from certificates, and is as free to publish.

    Args:
        own: The release.
        number: Of its stage.
        received: Each release that its party had received, as in `mention`.
    """
    return {"format": "privset-stage", "version": 1, "stage": number, **mention(own), "received": received}


def check_note(folder: Path, among: Sequence[Path] = ()) -> bool:
    """Whether a release lies in a stage, with its note beside it.

    Args:
        folder: The release, or its stage, as it was given; verified.
        among: Releases at hand, of which the note may say that they were received.

    Raises:
        ReleaseError: It does, and the note says something else of one of them than its certificate; or, note or not,
            something lies there too that should not (`check_alone`).
    """
    check_alone(folder)
    release = release_in(folder)
    stage = _stage_of(release)
    if stage is None or read_note(stage) is None:
        return False
    one = loaded(release)
    check_own(one)
    check_mentions(one, [loaded(path) for path in among])
    return True


def check_own(one: Received) -> None:
    """Refuse a stage whose note says more than the certificate, or something else, as one beside another release does.

    It has one spelling, so that nothing is said twice in it.
    """
    stage, party = _stage_of(one.release.path), one.certificate.party
    note = None if stage is None else read_note(stage)
    if stage is None or note is None:
        return
    path, told, seals = stage / NOTE, _told(note, one), () if party is None else party.received
    expected = note_of(one, len(seals) + 1, note.get("received"))
    odd = [name for name in {**expected, **note} if note.get(name) != expected.get(name)]
    if told is None or tuple(each["seal"] for each in told) != seals:
        odd.append("received")
    if not odd and path.read_bytes() != files.as_json(expected):
        odd.append("its spelling")
    if odd:
        raise ReleaseError(
            f"{path} says something else than the certificate of {one.release.path} ({', '.join(odd)}), so one of them "
            "was changed or lies in the wrong place; get the stage again from its source"
        )


def check_mentions(one: Received, others: Sequence[Received]) -> None:
    """Refuse a stage whose note says of a release it received something else than the certificate of that one.

    The stage's own certificate has the seals alone, so of releases that are not at hand nothing is compared.
    """
    stage = _stage_of(one.release.path)
    note = None if stage is None else read_note(stage)
    if stage is None or note is None:
        return
    for other in others:
        for said in (each for each in _told(note, one) or [] if each["seal"] == other.certificate.seal):
            odd = [name for name, value in mention(other).items() if said[name] != value]
            if odd:
                raise ReleaseError(
                    f"{stage / NOTE} says something else of what was received than the certificate of "
                    f"{other.release.path} ({', '.join(odd)}), so one of them was changed; get both again from their "
                    "sources"
                )


def check_alone(folder: Path) -> None:
    """Refuse a stage that has more in it than its release and its note, for nothing vouches for what that says of whom.

    The work of its run is worst: with it, its noise is known. A release that was given by itself, and has no note, may
    have anything else beside it, since nothing says that it is a stage's.

    Args:
        folder: The release, or its stage, as it was given.
    """
    release = release_in(folder)
    stage = _stage_of(release)
    if stage is None:
        return
    work = [path.name for path in left_beside(stage / RELEASE)]
    if work:
        raise ReleaseError(
            f"{stage} has {' and '.join(work)} beside its release: work of its party, as secret as its records. Delete "
            "that, tell the party, and have it repeat its command, which removes it there"
        )
    noted = (stage / NOTE).is_file()
    others = foreign(stage) if noted or release != folder else []
    if others:
        raise ReleaseError(
            f"{stage} has {', '.join(others)} beside its release{' and its note' if noted else ''}, and no certificate "
            "vouches for that; take it out, or ask its party what it is"
            + ("" if noted else f". If this is no stage, give {release}")
        )


def foreign(stage: Path) -> list[str]:
    """Names of what is in a stage beside its release and its note.

    Raises:
        ReleaseError: It cannot be looked into.
    """
    try:
        return sorted(
            path.name for path in stage.iterdir() if path.name not in (RELEASE, NOTE) and not files.litter(path)
        )
    except OSError as error:
        raise ReleaseError(f"{stage} cannot be read ({error.strerror}); mend that, and run it again") from error


def _stage_of(release: Path) -> Path | None:
    """The stage that a release lies in, if it is where stages have theirs."""
    release = Path(os.path.abspath(release))
    return release.parent if release.name == RELEASE else None


def _told(note: dict[str, Any], one: Received) -> list[dict[str, Any]] | None:
    """What a note says of what was received; None unless all of that is in the words of a `mention`."""
    told, words = note.get("received"), mention(one).keys()
    plain = isinstance(told, list) and all(isinstance(each, dict) and each.keys() == words for each in told)
    return told if plain else None
