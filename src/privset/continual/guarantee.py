"""The guarantee of the whole: what all parties' releases together say of a record (docs/proofs/parallel.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privset.continual.received import Received
from privset.release import Certificate
from privset.release.joint import check_different, joint_guarantee
from privset.release.sections import Guarantee
from privset.release.statement import NOT_ACCOUNTED, rounded_up

FILE = "guarantee.json"

NOT_COVERED = (
    "That each record lies with the party of its class, and with no other, is the parties' word; no file can show it. "
    "Different classes do not make it so: two parties may hold the same image under different labels.",
    "A person with records of several classes may have them at several parties: for that person the epsilons of these "
    "parties add up, and so do their deltas.",
    "A record whose label is wrong, or was changed, lies with another party; it is protected by that party's epsilon.",
    "The number of records of each party is public, and with it how many records the classes of a party have together.",
    "Accuracies on test images are no release: they say something of these images, which have no guarantee.",
)
"""What the guarantee does not cover, beside what that of each release does not."""


def guarantee(releases: Sequence[Received]) -> dict[str, Any]:
    """All parties' guarantees and the one of the whole, as plain values; the certificates must have been verified.

    Args:
        releases: Of all parties so far, in the order of the stages.
    """
    certificates = [one.certificate for one in releases]
    check_different([(str(one.release.path), one.certificate) for one in releases], disjoint=True)
    joint = joint_guarantee(certificates, disjoint=True)
    spelled = joint.model_dump(mode="json")
    return {
        "format": "privset-continual-guarantee",
        "version": 1,
        "statement": _statement(certificates, joint),
        "private": joint.private,
        "epsilon": spelled["epsilon_spent"],
        "epsilon_budgeted": spelled["epsilon_budgeted"],
        "delta": joint.delta,
        "relation": joint.relation,
        "composition": "parallel: records are said to be disjoint, so that none lies behind two of these releases",
        "parties": [
            {
                "stage": number,
                "classes": list(one.classes),
                "records": one.certificate.facts.size,
                "private": one.certificate.guarantee.private,
                "epsilon": one.certificate.guarantee.model_dump(mode="json")["epsilon_spent"],
                "delta": one.certificate.guarantee.delta,
                "method": one.certificate.method,
                "seal": one.certificate.seal,
                "digest": one.certificate.contents.digest,
            }
            for number, one in enumerate(releases, 1)
        ],
        "not_covered": [*NOT_COVERED, *NOT_ACCOUNTED],
    }


def _statement(certificates: Sequence[Certificate], joint: Guarantee) -> str:
    """In words; a release that was joined from others is of as many parties as it has parts, or of fewer."""
    count, parts = len(certificates), [len(one.joined.parts) for one in certificates if one.joined is not None]
    cost = f"differentially private with epsilon {rounded_up(joint.epsilon_spent)} and delta {joint.delta:g} for every"
    if not joint.private:
        return (
            f"NOT PRIVATE. Of the {count} release(s) at least one has no guarantee: its certificate says why. So "
            "there is none for all of them together."
        )
    if parts:
        return (
            f"Up to {count - len(parts) + sum(parts)} parties are behind {count} release(s), of which {len(parts)} "
            "joined those of several parties, whose records may overlap unless its certificate says otherwise. The "
            "records behind different releases are said to be disjoint. If each record lies behind one of them, all "
            f"releases together are {cost} record, the largest of any release, where neighbouring data sets differ by "
            "adding or removing one record behind one release. Epsilons of different releases then do not add up, "
            "except for a person with records behind several. What the guarantee does not cover is listed with it."
        )
    if count == 1:
        return (
            f"One party published one release so far: it is {cost} record, as its certificate says. Releases of other "
            "parties, whose records are disjoint from its own, leave that as it is."
        )
    return (
        f"{count} parties, whose records are said to be disjoint, published one release each, made from their own "
        "records and from the releases they had received, nothing else. If each record lies with one party, all "
        f"releases together are {cost} record, the largest of any party, where neighbouring data sets differ by adding "
        "or removing one record at one party. Epsilons of different parties then do not add up, except for a person "
        "with records at several. What the guarantee does not cover is listed with it."
    )
