"""When records are so few that little but noise is heard; decided by public numbers, before anything is paid.

What a record adds to an answer is no longer than 1, in the unit of noise multipliers. Answers on a share of N records,
added up, are therefore, on average over samples, no longer than their number times the share times N; their noise is
about as long as the noise multiplier times the root of how many numbers were asked for in all. Where the second is
larger, most of what is paid for is noise, whatever the records are. Where it is smaller, nothing is promised.
"""

from __future__ import annotations

import math

from privset.privacy.accounting import GaussianEvent


def counted(records: float) -> str:
    """So many records, in words.

    >>> counted(1.0), counted(1437.6)
    ('1 record', '1,438 records')
    """
    return f"{records:,.0f} record{'' if round(records) == 1 else 's'}"


def few_records(records: float, numbers: int, event: GaussianEvent, *, by_class: bool = False) -> str | None:
    """Words for a plan whose noise is longer than all that the records can add to its answers; None if it is not.

    Args:
        records: Who can take part in an answer: all records, or those of a class if each class has an answer.
        numbers: How many numbers such an answer has.
        event: What is asked.
        by_class: Whether each class has an answer of its own.

    >>> asked = GaussianEvent(question="total", sampling_rate=1.0, noise_multiplier=2.0)
    >>> few_records(100.0, 1000, asked) is None
    True
    >>> few_records(10.0, 1000, asked, by_class=True)[:51]
    'about 10 records a class are few for this budget: a'
    """
    noise = event.noise_multiplier * math.sqrt(event.count * numbers)
    longest = event.count * event.sampling_rate * records
    if noise <= longest:
        return None
    whose, fewer = (" a class", ", or fewer classes") if by_class else ("", "")
    return (
        f"about {counted(records)}{whose} are few for this budget: all answers together carry noise "
        f"{noise / longest:.2g} times as long as what these can add to them, and little may be learned; "
        f"about {noise / longest * records:,.0f} or more would do better, or a larger epsilon{fewer}"
    )


def faint(length: float, numbers: int, event: GaussianEvent, *, remedies: str) -> str | None:
    """Words for a plan whose answers, however many records there are, can be no longer than their noise; or None.

    Args:
        length: Of one answer at most, in the unit of noise multipliers.
        numbers: How many numbers an answer has.
        event: What is asked.
        remedies: What would do better than this.

    >>> asked = GaussianEvent(question="pullback", sampling_rate=0.1, noise_multiplier=2.0, count=100)
    >>> faint(10.0, 25, asked, remedies="a larger epsilon") is None
    True
    >>> faint(0.5, 25, asked, remedies="a larger epsilon")[:47]
    'all answers together carry noise 2 times as lon'
    """
    noise = event.noise_multiplier * math.sqrt(event.count * numbers)
    longest = event.count * length
    if noise <= longest:
        return None
    return (
        f"all answers together carry noise {noise / longest:.2g} times as long as they can be themselves, and little "
        f"may be learned; {remedies} would do better"
    )
