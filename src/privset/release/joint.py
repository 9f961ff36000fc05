"""The guarantee of several releases taken together, from their certificates alone (proof: docs/proofs/parallel.md).

Two rules. If no record lies in the data of two releases, a record is touched by one of them, and all together cost it
what that one does: the largest epsilon and the largest delta hold for everyone (parallel composition). If records may
be in several, what was asked adds up: the sum of the epsilons, or less where the accountant finds less for all
questions together, at the sum of the deltas (sequential composition). Sets that were distilled from the same
statistics, or drawn from the same generator, were paid for once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from privset.errors import ReleaseError
from privset.facts import PublicFacts
from privset.privacy.accounting import merge, spend
from privset.privacy.budget import RELATION
from privset.release import origin
from privset.release.certificate import Certificate
from privset.release.sections import EpsilonByAccountant, Facts, Guarantee, SetContents
from privset.release.statement import NOT_ACCOUNTED
from privset.release.synthetic import SyntheticSet

ON_TRUST = (
    "That no record lies in two of the parts is the word of whoever joined them; no file can show it.",
    "The unit of protection is one record in one part. A person with a record in each of several parts is protected "
    "less: the epsilons of these parts add up, and so do their deltas.",
)
"""What the guarantee of disjoint parts does not cover, beside what no guarantee does."""

COUNTED = (
    "A record that is in several parts is counted in each of them: the number of private records stated here is at "
    "most that many, and may be less.",
)
"""What is said beside the number of records of parts that may overlap."""


def joint_guarantee(parts: Sequence[Certificate], *, disjoint: bool) -> Guarantee:
    """What the releases with these certificates guarantee together.

    Args:
        parts: Their certificates, which are believed; verify them first.
        disjoint: Whether no record lies in the data of two of them.

    Raises:
        ReleaseError: There are none, or the delta of all together would allow publishing a record outright.
    """
    if not parts:
        raise ReleaseError("there is no release to join")
    parts = paid(parts)
    stated = [part.guarantee for part in parts]
    private = all(one.private for one in stated)
    if private:
        check_delta([(one.delta, part.facts.size) for one, part in zip(stated, parts, strict=True)], disjoint=disjoint)
    if disjoint:
        pld = [one.epsilon_by.pld for one in stated]
        by = EpsilonByAccountant(
            rdp=max(one.epsilon_by.rdp for one in stated),
            pld=None if None in pld else max(value for value in pld if value is not None),
        )
        return Guarantee(
            private=private,
            epsilon_budgeted=max(one.epsilon_budgeted for one in stated),
            epsilon_spent=max(one.epsilon_spent for one in stated),
            delta=max(one.delta for one in stated),
            relation=RELATION,
            accountant=stated[0].accountant if len({one.accountant for one in stated}) == 1 else "best",
            epsilon_by=by,
        )
    delta = math.fsum(one.delta for one in stated)
    if delta >= 1:
        raise ReleaseError(f"the deltas of these releases add up to {delta:g}, which guarantees nothing")
    found = spend(merge(event for part in parts for event in part.gaussian_events()), delta)
    return Guarantee(
        private=private,
        epsilon_budgeted=math.fsum(one.epsilon_budgeted for one in stated),
        epsilon_spent=min(found.best, math.fsum(one.epsilon_spent for one in stated)),
        delta=delta,
        relation=RELATION,
        accountant="best",
        epsilon_by=EpsilonByAccountant(rdp=found.rdp, pld=found.pld),
    )


def check_delta(parts: Sequence[tuple[float, int]], *, disjoint: bool) -> None:
    """Refuse a joint delta that is not below one over the number of records.

    Args:
        parts: Delta and number of records of each.
        disjoint: Whether no record lies in the data of two of them: the records of all then count. Otherwise all of
            them might be in the smallest part, at the sum of the deltas, or none in two.

    Raises:
        ReleaseError: It is too large.

    >>> check_delta([(1e-5, 60_000), (1e-5, 60_000)], disjoint=True)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    privset.errors.ReleaseError: the delta of these releases together, 1e-05, is not below 1/120,000: ...
    >>> check_delta([(1e-5, 576), (1e-3, 576)], disjoint=False)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    privset.errors.ReleaseError: the delta of these releases together, 0.001, is not below 1/1,152: ...
    """
    deltas, sizes = zip(*parts, strict=True)
    apart, shared = (max(deltas), sum(sizes)), (math.fsum(deltas), min(sizes))
    for delta, records in [apart] if disjoint else [shared, apart]:
        if delta * records >= 1:
            raise ReleaseError(
                f"the delta of these releases together, {delta:g}, is not below 1/{records:,}: publishing one record "
                f"in the clear would satisfy it. Make them with deltas well below {1 / records:.1g} in all"
            )


def paid(parts: Sequence[Certificate]) -> list[Certificate]:
    """One certificate for each time that records were asked: sets of the same answers were paid for once.

    That two come from the same answers is what they say themselves, and is believed as far as certificates can show it:
    ledger, questions, settings, seeds and generator must be the same. Whoever copies all of these into a forged
    certificate is found by `verify` with the source, and not here.

    Raises:
        ReleaseError: Two name the same release as their source, or one the other, and they do not fit together.
    """
    payments: dict[str, Certificate] = {}
    makers: dict[str, Certificate] = {}
    others = {part.seal for part in parts if part.holding != "statistics"}
    for part in parts:
        if part.source is not None and part.source.certificate in others:
            raise ReleaseError(
                "one part says that it was distilled from another, and that one holds no statistics; get both again "
                "from where they came from"
            )
        for first in (payments.setdefault(part.payment, part), makers.setdefault(origin.maker(part), part)):
            odd = origin.differences(first, part) if first is not part else ""
            if odd:
                raise ReleaseError(
                    f"two parts name the same release as their source, or one names the other, and differ in {odd}: "
                    "they cannot come from the same answers. Check each with `privset verify --source`, or get them "
                    "again from where they came from"
                )
    return list(payments.values())


def check_different(parts: Sequence[tuple[str, Certificate]], *, disjoint: bool) -> None:
    """Refuse a release that is given twice, and sets of the same answers that are said to be of disjoint records.

    Args:
        parts: What each is called in messages, and its certificate.
        disjoint: Whether their records are said to be disjoint.

    Raises:
        ReleaseError: Two of them are the same, or cannot be disjoint.
    """
    seals: dict[str, str] = {}
    sources: dict[str, str] = {}
    for name, part in parts:
        if part.seal in seals:
            raise ReleaseError(f"{name} is the same release as {seals[part.seal]}; give each once")
        seals[part.seal] = name
        if disjoint and part.payment in sources:
            raise ReleaseError(
                f"{name} and {sources[part.payment]} were made from the same answers, so their records are the same "
                "ones and not disjoint"
            )
        sources[part.payment] = name


def joint_asked(parts: Sequence[Certificate], *, disjoint: bool) -> dict[str, Any]:
    """What a joint certificate says of questions and guarantee, of data and method: a function of the parts' alone.

    Args:
        parts: Certificates of sets.
        disjoint: Whether no record lies in the data of two of them.

    Raises:
        ReleaseError: Their images are of different form.
    """
    asked = paid(parts)
    return {
        "guarantee": joint_guarantee(parts, disjoint=disjoint),
        "noise_source": "seeded" if any(part.noise_source == "seeded" for part in parts) else "system",
        # Part by part: the same question to the records of two parts is not asked twice of one record.
        "events": tuple(event for part in asked for event in part.events),
        "not_accounted": NOT_ACCOUNTED + (ON_TRUST if disjoint else COUNTED),
        "facts": _joint_facts([part.facts for part in asked]),
        "method": _all(part.method for part in parts),
    }


def _joint_facts(facts: Sequence[Facts]) -> Facts:
    first = facts[0]
    for one in facts[1:]:
        for name in ("channels", "height", "width", "mean", "std"):
            if getattr(one, name) != getattr(first, name):
                raise ReleaseError(
                    f"images of different form do not make one set: {name} is {getattr(first, name)} in one release "
                    f"and {getattr(one, name)} in another; read the data alike (--size, --channels, --mean, --std)"
                )
    return first.model_copy(
        update={
            "name": _all(one.name for one in facts),
            "classes": tuple(dict.fromkeys(name for one in facts for name in one.classes)),
            "size": sum(one.size for one in facts),
        }
    )


def _all(names: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(names))


def joint_set(sets: Sequence[SyntheticSet], facts: PublicFacts) -> SyntheticSet:
    """All images of the sets, in their order; classes of the same name are one.

    Args:
        sets: The parts.
        facts: Public facts of the joint set; its labels mean their classes.
    """
    labels = [torch.tensor([facts.classes.index(name) for name in one.facts.classes])[one.labels] for one in sets]
    return SyntheticSet(torch.cat([one.images for one in sets]), torch.cat(labels), facts)


def part_of(joined: SyntheticSet, first: int, part: Certificate) -> SyntheticSet:
    """The images of a part, from number ``first`` on, labelled as they were there.

    Raises:
        ReleaseError: They are not of its classes, or not so many.
    """
    contents, facts = part.contents, part.public_facts()
    if not isinstance(contents, SetContents):
        raise ReleaseError("a part is not a set")
    back = torch.full((len(joined.facts.classes),), -1)
    for label, name in enumerate(facts.classes):
        back[joined.facts.classes.index(name)] = label
    chosen = slice(first, first + contents.images)
    return SyntheticSet(joined.images[chosen].contiguous(), back[joined.labels[chosen]], facts)
