"""What was guaranteed: in words for a board, in numbers for an expert, question by question, and what it leaves out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from privset.errors import PrivsetError
from privset.privacy.accounting import GaussianEvent, spend
from privset.release import Certificate, joint
from privset.release.sections import Event
from privset.release.statement import best_guess, percent_up, rounded_up
from privset.report import charts
from privset.report.markup import Markup, join, named, table, tag
from privset.report.sources import Subject

_ASKED = {
    "gradient": "in which direction a network should learn: the sum of the records' clipped gradients",
    "total": "a sum over the records of numbers that each record can change only so much",
    "pullback": "how generated images should change to look more like the records, or more real to critics",
    "votes": "what networks, each taught by its own share of the records, say of generated images: the sum of votes",
}
"""The questions in plain words; one that is not here is shown by its name alone."""

_ACCOUNTANTS = {"best": "the smaller of the two bounds, both valid", "pld": "PLD", "rdp": "RDP"}


def stated(subject: Subject) -> Markup:
    """In words for a board, beside the numbers for an expert."""
    return tag("div", tag("div", in_words(subject)), tag("div", in_numbers(subject)), class_="pair")


def in_words(subject: Subject) -> Markup:
    """The guarantee as a board reads it: one sentence, one drawing, and the certificate's own statement."""
    certificate = subject.certificate
    stated = certificate.guarantee
    own = tag("blockquote", certificate.statement)
    if not stated.private:
        return join([banner(certificate), own])
    chance = best_guess(stated.epsilon_spent, stated.delta)
    most = percent_up(chance)
    return join(
        [
            tag(
                "p",
                "Someone who could only toss a coin to say whether one particular record was used can, after studying "
                "this release, be right ",
                tag("strong", f"at most {most}"),
                " of the time.",
                class_="headline",
            ),
            tag(
                "figure",
                charts.bar(2 * chance - 1, kind="guess"),
                tag("div", tag("span", "50% a coin toss"), tag("span", "100% certainty"), class_="scale"),
                tag("figcaption", f"How sure an attacker can become: at most {most}."),
                class_="guess",
            ),
            tag("p", "The certificate says it like this:"),
            own,
        ]
    )


def banner(certificate: Certificate, name: str = "This release") -> Markup | None:
    """The warning that no one can miss, for a release without a guarantee."""
    if certificate.guarantee.private:
        return None
    reason = "its noise came from a seed" if certificate.noise_source == "seeded" else "its epsilon is infinite"
    return tag(
        "p",
        tag("strong", "NOT PRIVATE."),
        " ",
        named(name),
        f" has no guarantee: {reason}. Do not publish it, or this page, if the records are private.",
        class_="banner",
    )


def in_numbers(subject: Subject) -> Markup:
    """Every number that an expert asks for, as the certificate has it; bounds are rounded up."""
    certificate = subject.certificate
    stated = certificate.guarantee
    pld = "not computed" if stated.epsilon_by.pld is None else rounded_up(stated.epsilon_by.pld)
    noise = "the operating system's entropy" if certificate.noise_source == "system" else "a seed: not private"
    rows = [
        ("Private", "yes" if stated.private else "NO"),
        ("Epsilon spent", rounded_up(stated.epsilon_spent)),
        ("Epsilon budgeted", rounded_up(stated.epsilon_budgeted)),
        ("Delta", f"{stated.delta:g}"),
        ("Neighbouring data sets", stated.relation.replace("-", " ")),
        ("Accounted by", _ACCOUNTANTS[stated.accountant]),
        ("Epsilon by RDP", rounded_up(stated.epsilon_by.rdp)),
        ("Epsilon by PLD", pld),
        ("Noise from", noise),
        ("Answers given", f"{sum(event.count for event in certificate.events):,}"),
        ("Private records", _records(certificate)),
    ]
    shown = table(("number", "value"), rows, caption="The guarantee in numbers", kind="pairs")
    rounded = tag("p", "Recomputed when this page was made. Bounds are rounded up.", class_="note")
    return join([shown, rounded, claimed(certificate)])


def claimed(certificate: Certificate) -> Markup | None:
    """The epsilon of another analysis, outside the table of those that count; None if there is none."""
    if certificate.claim is None:
        return None
    return tag("p", tag("strong", "Not part of the guarantee. "), certificate.claim.claim().explained(), class_="note")


def _records(certificate: Certificate) -> str:
    overlapping = certificate.joined is not None and not certificate.joined.disjoint
    return f"at most {certificate.facts.size:,}" if overlapping else f"{certificate.facts.size:,}"


def budget(subject: Subject) -> Markup:
    """What was asked of the records, and what each question would have cost alone."""
    certificate = subject.certificate
    stated, rows = certificate.guarantee, []
    for event in certificate.events:
        alone = spend([GaussianEvent(**event.model_dump())], stated.delta).best
        share = 1.0 if math.isinf(alone) else alone / max(stated.epsilon_spent, alone)
        rows.append(
            (
                join([tag("strong", event.question), tag("small", _ASKED.get(event.question, ""), class_="under")]),
                f"{event.count:,}",
                _asked_of(event),
                "none" if event.noise_multiplier == 0 else f"{event.noise_multiplier:.4g}",
                join([rounded_up(alone), charts.bar(share, kind="budget")]),
            )
        )
    columns = ("question", "answers", "records asked", "noise multiplier", "epsilon if alone")
    shown = table(columns, rows, caption="Budget spent by question", kind="numbers")
    return join([shown, tag("p", _sum(certificate))])


def _asked_of(event: Event) -> str:
    if event.sampling_rate == 1:
        return "everyone"
    return f"{event.sampling_rate:.4g}{' of the shards' if event.sampling == 'without-replacement' else ''}"


def _sum(certificate: Certificate) -> str:
    stated = certificate.guarantee
    spent, budgeted = rounded_up(stated.epsilon_spent), rounded_up(stated.epsilon_budgeted)
    if math.isinf(stated.epsilon_spent):
        return "There was no budget, so nothing was held back by noise."
    if not stated.private:
        return f"This would be epsilon {spent} of {budgeted} budgeted, if the noise were such that no one can know it."
    if certificate.joined is not None and certificate.joined.disjoint:
        return (
            f"The questions are those of {len(certificate.joined.parts)} parts, whose records are said to be disjoint: "
            "a record was asked the questions of its own part alone. So they do not add up across parts, and the most "
            f"that any part cost is epsilon {spent} of {budgeted} budgeted."
        )
    if len(certificate.events) == 1:
        return f"That is epsilon {spent} of {budgeted} budgeted."
    return (
        f"All questions together cost epsilon {spent} of {budgeted} budgeted. The costs of single questions do not "
        "simply add up."
    )


def limits(certificate: Certificate) -> Markup:
    """What the guarantee does not cover, in the certificate's words."""
    return tag("ul", [tag("li", sentence) for sentence in certificate.not_accounted], class_="limits")


def together(subjects: Sequence[Subject]) -> list[str]:
    """What releases on one page cost whose records may be the same: epsilons and deltas add up, once for each source.

    Sets that were distilled from the same statistics, or drawn from the same generator, cost one epsilon together.
    """
    groups: dict[tuple[str, int], list[Certificate]] = {}
    for subject in subjects:
        facts = subject.certificate.facts
        groups.setdefault((facts.name, facts.size), []).append(subject.certificate)
    return [_together(name, group) for (name, _), group in groups.items() if len(group) > 1]


def _together(name: str, group: Sequence[Certificate]) -> str:
    if not all(one.guarantee.private for one in group):
        return f"Not every release of {name} on this page is private: together they have no guarantee."
    try:
        paid = [one.guarantee for one in joint.paid(group)]
    except PrivsetError:  # some say that they share a payment, and cannot: each counts
        paid = [one.guarantee for one in {one.seal: one for one in group}.values()]
    if len(paid) == 1:
        return f"The releases of {name} share one epsilon: all come from the same answers."
    epsilon = rounded_up(math.fsum(one.epsilon_spent for one in paid))
    delta = math.fsum(one.delta for one in paid)
    return (
        f"If the releases of {name} were made from the same records, whoever has all of them faces the sum: epsilon "
        f"{epsilon}, delta {delta:g}."
    )
