"""The guarantee in words, made from its numbers, and what it does not cover.

Both texts belong to version 1 of the certificate: `verify` writes them again and compares, so that no one can
soften a sentence. Their wording is therefore frozen with that version; a test holds them to the letter.
"""

from __future__ import annotations

import decimal
import math
from typing import Literal

WENT_ON = "Training went on from the classifier whose certificate has the seal"
"""How a certificate says what its classifier goes on from; the seal follows."""

NOT_ACCOUNTED = (
    "The number of private records is treated as public knowledge; the guarantee does not hide it.",
    "The class names, the shape of the images and the constants they are normalised with are treated as "
    "public. If any of these was taken from the private records, that was not paid for.",
    "The settings of the method are treated as chosen without looking at these records. A choice made by "
    "running several times on the same records, and keeping the best result, costs the epsilon of every run.",
    "The unit of protection is one record. A person with several records in the data is protected less: for "
    "k records together, the proven bound on epsilon is k times as large, and delta grows as well.",
    "Records that were kept apart from the start, a test split for example, were not used, and nothing is said of "
    "them.",
    "What was asked of the same records for other releases adds up; this certificate counts its own questions alone.",
    "Noise is sampled in floating-point arithmetic. The guarantee is proven for exact Gaussian noise; "
    "attacks on the last bits of floating-point numbers, and on running times, are not covered.",
    "What is true of the population is not hidden: conclusions that would be reached just as well without "
    "any one record are what the release is for.",
)
"""What no guarantee here covers, a sentence each; a certificate may have more of them, never fewer."""

Holding = Literal["set", "distilled set", "drawn set", "joined set", "joined disjoint set", "statistics", "classifier"]
"""What a release holds; a distilled set was made from statistics that are, or may be, a release of their own, a drawn
one by the generator of another release, a joined one from other releases, of which it is said, or not, that no record
lies in two."""

_WEAK = 0.99

_HELD = {
    "set": "{count:,} synthetic images made from the {records:,} private records of ",
    "distilled set": "{count:,} synthetic images distilled from statistics of the {records:,} private records of ",
    "drawn set": "{count:,} synthetic images drawn from a generator that was made from the {records:,} private records "
    "of ",
    "joined set": "{count:,} synthetic images of several releases, made from at most {records:,} private records of ",
    "joined disjoint set": "{count:,} synthetic images of several releases, made from {records:,} private records of ",
    "statistics": "{count:,} numbers measured on the {records:,} private records of ",
    "classifier": "a classifier, of {count:,} weights, trained on the {records:,} private records of ",
}
_REVEALING = {"statistics": "numbers", "classifier": "weights"}
_TOGETHER = {
    "distilled set": "This epsilon was spent once, on the statistics: the guarantee covers them, this set and every "
    "other set distilled from them, all together.",
    "drawn set": "This epsilon was spent once, on the generator: the guarantee covers it, the set it was published "
    "with, this set and every other set drawn from it, all together.",
    "joined set": "A record may be in several of the releases joined here, so this epsilon counts the questions of all "
    "of them, for a record that is in each.",
    "joined disjoint set": "Whoever joined these releases says that no record is in two of them. Then each record is "
    "touched by one release alone, their epsilons do not add up, and this is the largest of them.",
    "statistics": "This epsilon is spent once: the guarantee covers these numbers and every set distilled from them, "
    "all together.",
}
_GENERATOR = (
    "This release also holds the generator that made the images; the guarantee covers it, and every set drawn from it, "
    "all together."
)

_SNAPSHOTS = "This release also holds the images as they were along the run; the guarantee covers them, all together."


def statement_of(
    *,
    private: bool,
    seeded: bool,
    epsilon_budgeted: float,
    epsilon_spent: float,
    delta: float,
    holding: Holding,
    count: int,
    records: int,
    data: str,
    generator: bool = False,
    snapshots: bool = False,
) -> str:
    """One paragraph that a review board can read, saying exactly what the numbers say.

    Args:
        private: Whether any guarantee holds.
        seeded: Whether the noise came from a seed.
        epsilon_budgeted: What might be spent.
        epsilon_spent: What was, by the accountant of the budget.
        delta: Probability that is exempt from the bound.
        holding: What the release holds.
        count: Number of synthetic images, of measured numbers, or of weights.
        records: Number of private records.
        data: Name of the private data.
        generator: Whether a generator is published with a set.
        snapshots: Whether the images as they were along the run are published with a set.

    >>> statement_of(private=False, seeded=True, epsilon_budgeted=1.0, epsilon_spent=0.9996, delta=1e-5,
    ...              holding="set", count=20, records=1000, data="toy")[:42]
    'NOT PRIVATE. Seeded noise: not private. Th'
    """
    held = _HELD[holding].format(count=count, records=records) + f'"{data}"'
    if not private:
        images = "images, also those along the run," if snapshots else "images"
        reveal = _REVEALING.get(holding, f"{images} and its generator" if generator else images)
        return " ".join(["NOT PRIVATE.", *_reasons(seeded, epsilon_budgeted, epsilon_spent), _treat(held, reveal)])
    epsilon = rounded_up(epsilon_spent)
    sentences = [
        f"This release holds {held}.",
        f"It is differentially private with epsilon {epsilon} and delta {delta:g}, where neighbouring data "
        "sets differ by adding or removing one record.",
        "In plain words: had any one record been left out, or one more been put in, every possible outcome "
        f"would have been as likely, to within a factor of e^{epsilon} and except for a probability of "
        f"{delta:g}.",
        "So someone who wants to know whether a certain record was used, and would otherwise have to toss a "
        f"coin, can guess right with a probability of at most {percent_up(best_guess(epsilon_spent, delta))} "
        "by studying this release, whatever else they know and however much they compute.",
    ]
    if best_guess(epsilon_spent, delta) > _WEAK:
        sentences.append(
            "This worst-case bound is weak: an epsilon this large rules out very little, and any protection "
            "beyond it is not proven."
        )
    if holding in _TOGETHER:
        sentences.append(_TOGETHER[holding])
    if generator:
        sentences.append(_GENERATOR)
    if snapshots:
        sentences.append(_SNAPSHOTS)
    sentences.append("What the guarantee does not cover is listed with it.")
    return " ".join(sentences)


def _reasons(seeded: bool, budgeted: float, spent: float) -> list[str]:
    reasons = []
    if seeded:
        reasons.append(
            "Seeded noise: not private. The noise was drawn from a seed, so whoever knows or guesses the "
            "seed can take it away again; such a release serves tests and studies only."
        )
    if math.isinf(budgeted) or math.isinf(spent):
        reasons.append(
            "No privacy budget: epsilon is inf, so no noise had to be added and no differential-privacy "
            "guarantee holds."
        )
    elif seeded:
        reasons.append(
            f"The accounted epsilon of {rounded_up(spent)} would need noise that no one can know; it does "
            "not hold here."
        )
    return reasons


def _treat(held: str, reveal: str) -> str:
    return f"This release holds {held}; its {reveal} may reveal them, so it must be kept as safe as they are."


def best_guess(epsilon: float, delta: float) -> float:
    """Largest probability of telling two neighbouring data sets apart, each being as likely beforehand.

    An (epsilon, delta) guarantee bounds the total variation distance by (e^epsilon - 1 + 2 delta) /
    (e^epsilon + 1); a guess is right with probability half of one plus that.

    >>> round(best_guess(1.0, 0.0), 3)
    0.731
    """
    return min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))


def rounded_up(value: float) -> str:
    """Four significant digits, never below the value: a printed bound must still be a bound.

    >>> rounded_up(9.99823), rounded_up(0.0), rounded_up(float("inf"))
    ('9.999', '0', 'inf')
    """
    if math.isinf(value):
        return "inf"
    with decimal.localcontext(decimal.Context(prec=4, rounding=decimal.ROUND_CEILING)):
        return f"{float(+decimal.Decimal(repr(value))):g}"


def percent_up(probability: float) -> str:
    """A probability as a percentage, rounded up, with as many digits as it takes to tell it from 100%."""
    short = 1 - probability
    if short < 1e-9:
        return "practically 100%"
    digits = max(2, -math.floor(math.log10(short)) - 1)
    step = decimal.Decimal(1).scaleb(-digits)
    return f"{(decimal.Decimal(repr(probability)) * 100).quantize(step, rounding=decimal.ROUND_CEILING)}%"
