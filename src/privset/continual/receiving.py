"""What a party receives from earlier ones: releases, each verified before anything is done with it.

A stage folder holds ``release/`` and ``stage.json``, a note for people and programs. The certificate says whose the
release is, under ``party``; it has to for a classifier, which has outputs for classes of parties to come.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from privset.continual.finding import find
from privset.continual.notes import check_mentions, check_own, read_note
from privset.continual.received import Received, loaded
from privset.errors import ReleaseError
from privset.privacy.budget import PrivacyBudget
from privset.release import Certificate, ClassifierRelease, require_verified
from privset.release.statement import rounded_up


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
        one = loaded(path)
        _check_cost(path, one.certificate, budget, private)
        check_own(one)
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
        check_mentions(one, received)
    return in_line(received, own=own)


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
            f"{path} cost {cost}, and here each party may spend {most}; get one that cost less, or accept more "
            f"({options})"
        )
