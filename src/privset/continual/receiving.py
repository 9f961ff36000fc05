"""What a party receives from earlier ones: releases, each verified before anything is done with it.

A stage folder holds ``release/`` and ``stage.json``, a note for people and programs. The certificate says whose the
release is, under ``party``; it has to for a classifier, which has outputs for classes of parties to come.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privset.continual.documents import EVALUATIONS
from privset.errors import ReleaseError
from privset.exports import Format, format_of
from privset.facts import PublicFacts
from privset.privacy.budget import PrivacyBudget
from privset.release import Certificate, ClassifierRelease, Release, load_published, require_verified
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.release.folder import NOTE, RELEASE, releases_in
from privset.release.statement import rounded_up
from privset.release.unfinished import folder_beside, ledger_beside


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Received:
    """One release of an earlier party, verified.

    Attributes:
        release: As loaded.
        classes: The classes that its party has.
    """

    release: Release | ClassifierRelease
    classes: tuple[str, ...]

    @property
    def certificate(self) -> Certificate:
        """Of the release."""
        return self.release.certificate


def find(folders: Sequence[Path], *, own: Path | None = None) -> list[Path]:
    """The release folders in these, in order: each is a release, a stage, or a folder of such, by number and name.

    In a folder of such everything is taken: one that is not whole is not passed over as if it had not been received.

    Args:
        folders: Where to look.
        own: The stage that receives, which may lie in such a folder with the others and is passed over there.

    Raises:
        ReleaseError: There is no release in one of them, or something that is none.
    """
    return [release for folder in folders for release in _releases(folder, own)]


def _releases(folder: Path, own: Path | None) -> list[Path]:
    try:
        entries = [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise ReleaseError(
            f"{folder} cannot be read ({error.strerror}); give a release, a stage, or a folder of such"
        ) from error
    names = {path.name for path in entries}
    if CERTIFICATE_FILE in names or NOTE in names or (names and names <= _OF_A_STAGE):
        if to := format_of(folder):
            raise ReleaseError(f"{folder} is {_export(to)}; give that release")
        if here := releases_in(folder):
            return here
        raise ReleaseError(
            f"{folder} has {', '.join(sorted(names))}, and no release that is whole; get it again from its source, or "
            "have the stage finished there"
        )
    inner = sorted((path for path in entries if _is_received(path, own)), key=_natural)
    if not inner:
        raise ReleaseError(f"{folder}: there is no release in it; give a release, a stage, or a folder of such")
    for path in inner:
        if to := format_of(path):
            raise ReleaseError(
                f"{folder} has {path.name}, {_export(to)}; move it out of there, or name the releases that are meant "
                "one by one"
            )
    odd = [path.name for path in inner if not releases_in(path)]
    if odd:
        raise ReleaseError(
            f"{folder} has {', '.join(odd)}, with no release that is whole; get it again from its source, or take out "
            "what does not belong there, or name the releases that are meant one by one"
        )
    return [release for path in inner for release in releases_in(path)]


def _export(to: Format) -> str:
    return f"an export to {to}: a copy for other tools, which cannot be verified as the release it was made from can"


_OF_A_STAGE = {NOTE, RELEASE, f"{RELEASE}.unfinished", f"{RELEASE}.ledger.jsonl"}
_BESIDE_STAGES = {".json", ".svg", ".png", ".md", ".txt"}
"""Endings of files that may lie in a folder of releases, as results and figures of a course do."""


def _is_received(path: Path, own: Path | None) -> bool:
    """Whether a path in a folder of releases ought to be one of them."""
    if own is not None and own.resolve().is_relative_to(path.resolve()):
        return False
    if path.is_file():
        return path.suffix not in _BESIDE_STAGES
    return path.name != EVALUATIONS or bool(releases_in(path))


def receive(
    folders: Sequence[Path], budget: PrivacyBudget, *, private: bool, own: Path | None = None
) -> list[Received]:
    """Verify and load the releases in these folders, in the order of their stages.

    Of sets that is the order in which they are given. A classifier goes on from the ones before it, and its certificate
    names them: all of them must be there, since its weights say something of their records as well.

    Args:
        folders: As for `find`.
        budget: What each of them may have cost.
        private: Whether one without any guarantee is refused.
        own: As for `find`.

    Raises:
        ReleaseError: One does not verify, costs more, has a class of another, or goes on from one that is missing.
    """
    received: list[Received] = []
    owners: dict[str, Path] = {}
    seals: dict[str, Path] = {}
    for path in find(folders, own=own):
        require_verified(path, "learned from it")
        release = load_published(path)
        _check_cost(path, release.certificate, budget, private)
        one = Received(release=release, classes=_classes(path, release))
        _check_note(one)
        _check_no_work(path)
        if one.certificate.seal in seals:
            raise ReleaseError(f"{path} and {seals[one.certificate.seal]} are the same release; give it once")
        seals[one.certificate.seal] = path
        for name in one.classes:
            if name in owners:
                raise ReleaseError(
                    f"{path} and {owners[name]} both have the class {name!r}; here each class belongs to one party. To "
                    "join sets of parties that share classes, use `privset merge`"
                )
            owners[name] = path
        received.append(one)
    for one in received:
        _check_mentions(one, received)
    return in_line(received, own=own)


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


def in_line(received: Sequence[Received], *, own: Path | None = None) -> list[Received]:
    """Classifiers in the order in which they went on from each other; sets as they are.

    A certificate that was forged may be silent about what its classifier went on from; nothing could show that.

    Args:
        received: Verified.
        own: The stage that receives, which a later one may go on from.

    Raises:
        ReleaseError: Sets and classifiers are mixed, one that a classifier went on from is missing, or they are not one
            line.
    """
    kinds = {isinstance(one.release, ClassifierRelease): one.release.path for one in received}
    if len(kinds) > 1:
        raise ReleaseError(f"{kinds[False]} is a set and {kinds[True]} a classifier; parties publish one kind")
    if True not in kinds:
        return list(received)
    before = {one.certificate.seal: one.certificate.party.received if one.certificate.party else () for one in received}
    ordered = sorted(received, key=lambda one: len(before[one.certificate.seal]))
    seals = [one.certificate.seal for one in ordered]
    for number, one in enumerate(ordered):
        earlier, path = before[one.certificate.seal], one.release.path
        if earlier == tuple(seals[:number]):
            continue
        missing = [seal for seal in earlier if seal not in seals]
        if own is not None and (read_note(own) or {}).get("seal") in missing:
            raise ReleaseError(f"{path} is a later stage than {own}, and goes on from it; name the earlier ones singly")
        if missing:
            raise ReleaseError(
                f"{path} goes on from a classifier that was not received, with the seal {missing[0]}: its weights say "
                "something of those records too; get all stages before it"
            )
        raise ReleaseError(
            f"{path} does not go on from {ordered[number - 1].release.path}; classifiers go from one party to the "
            "next, so give the stages of one such line"
        )
    return ordered


def check_form(where: Path | str, released: PublicFacts, data: PublicFacts) -> None:
    """Refuse to put a release together with data whose images have another size or other constants.

    Args:
        where: The release, as the message names it.
        released: Of the release.
        data: Of the data.

    Raises:
        ReleaseError: With what is different, and the options that would mend it.
    """
    there, here = _form(released), _form(data)
    odd = [name for name in there if there[name] != here[name]]
    if odd:
        what = ", ".join(f"{name} {_said(name, there)} and not {_said(name, here)}" for name in odd)
        options = ", ".join(f"--{name}" for name in odd)
        raise ReleaseError(
            f"{where} is of images of another form than {data.name}: {what}; read the data as for that release "
            f"({options})"
        )


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


def _natural(path: Path) -> list[tuple[int, str]]:
    """``stage-2`` before ``stage-10``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def _check_cost(path: Path, certificate: Certificate, budget: PrivacyBudget, private: bool) -> None:
    stated = certificate.guarantee
    if private and not stated.private:
        raise ReleaseError(
            f"{path} is not private, so what is learned from it would not be either: {certificate.statement}"
        )
    above = []
    if stated.epsilon_spent > budget.epsilon:
        above.append(("epsilon", rounded_up(stated.epsilon_spent), rounded_up(budget.epsilon)))
    if stated.delta > budget.delta:
        above.append(("delta", f"{stated.delta:g}", f"{budget.delta:g}"))
    if above:
        cost = " and ".join(f"{name} {spent}" for name, spent, _ in above)
        most = " and ".join(f"{name} {accepted}" for name, _, accepted in above)
        options = ", ".join(f"--accept-{name}" for name, _, _ in above)
        raise ReleaseError(
            f"{path} cost {cost}, and here each party may spend {most}; refuse it, or accept more ({options})"
        )


def _classes(path: Path, release: Release | ClassifierRelease) -> tuple[str, ...]:
    certificate = release.certificate
    if isinstance(release, Release):
        classes = certificate.facts.classes
    elif certificate.party is not None:
        classes = certificate.party.classes
    else:
        raise ReleaseError(
            f"{path}: its certificate does not say what classes its party has, and a classifier has outputs for others "
            "too; train it with `privset continual stage`"
        )
    return classes


def _form(facts: PublicFacts) -> dict[str, tuple[float, ...]]:
    """What decides whether images go together, by the option that sets it."""
    size = (facts.height, facts.width)
    return {"size": size, "channels": (facts.channels,), "mean": facts.mean, "std": facts.std}


def _said(name: str, form: dict[str, tuple[float, ...]]) -> str:
    return ("x" if name == "size" else " ").join(map(str, form[name]))


def check_note(release: Path, among: Sequence[Path] = ()) -> bool:
    """Whether a release lies in a stage, with its note beside it.

    Args:
        release: Verified.
        among: Releases at hand, of which the note may say that they were received.

    Raises:
        ReleaseError: It does, and the note says something else of one of them than its certificate, or secrets lie
            there too.
    """
    stage = _stage_of(release)
    if stage is None or read_note(stage) is None:
        return False
    _check_no_work(stage / RELEASE)
    one = _loaded(release)
    _check_note(one)
    _check_mentions(one, [_loaded(path) for path in among])
    return True


def _loaded(path: Path) -> Received:
    release = load_published(path)
    return Received(release=release, classes=_classes(path, release))


def _stage_of(release: Path) -> Path | None:
    """The stage that a release lies in, if it is where stages have theirs."""
    release = release.resolve()
    return release.parent if release.name == RELEASE else None


def _check_note(one: Received) -> None:
    """Refuse a stage whose note says something else than the certificate, such as one beside another release."""
    stage, party = _stage_of(one.release.path), one.certificate.party
    note = None if stage is None else read_note(stage)
    if stage is None or note is None:
        return
    path = stage / NOTE
    odd = [name for name, value in mention(one).items() if note.get(name) != value]
    if party is not None:
        odd += ["received"] if _seals(note.get("received")) != list(party.received) else []
        odd += ["stage"] if note.get("stage") != len(party.received) + 1 else []
    if odd:
        raise ReleaseError(
            f"{path} says something else than the certificate of {one.release.path} ({', '.join(odd)}), so one of them "
            "was changed or lies in the wrong place; get the stage again from its source"
        )


def _check_mentions(one: Received, others: Sequence[Received]) -> None:
    """Refuse a stage whose note says of a release it received something else than the certificate of that one.

    The stage's own certificate has the seals alone, so of releases that are not at hand nothing is compared.
    """
    stage = _stage_of(one.release.path)
    note = None if stage is None else read_note(stage)
    if stage is None or note is None:
        return
    mentions = [] if _seals(note.get("received")) is None else note["received"]
    for other in others:
        for said in (each for each in mentions if each.get("seal") == other.certificate.seal):
            odd = [name for name, value in mention(other).items() if said.get(name) != value]
            if odd:
                raise ReleaseError(
                    f"{stage / NOTE} says something else of what was received than the certificate of "
                    f"{other.release.path} ({', '.join(odd)}), so one of them was changed; get both again from their "
                    "sources"
                )


def _check_no_work(release: Path) -> None:
    """Refuse a stage that was handed on with the work of its run, and with it what makes its noise known."""
    work = [path.name for path in (folder_beside(release), ledger_beside(release)) if path.exists()]
    if release.name == RELEASE and work:
        raise ReleaseError(
            f"{release.parent} has {' and '.join(work)} beside its release: work of its party, as secret as its "
            "records. Delete that, tell the party, and have it repeat its command, which removes it there"
        )


def _seals(mentions: Any) -> list[Any] | None:
    plain = isinstance(mentions, list) and all(isinstance(one, dict) for one in mentions)
    return [one.get("seal") for one in mentions] if plain else None
