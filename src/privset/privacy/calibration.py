"""The least noise that keeps a plan's questions within a budget, by the accounting of what they would cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from privset.errors import BudgetError, UnaffordableError
from privset.privacy.accounting import LEAST_NOISE, PLD_MOST_ANSWERS, GaussianEvent, epsilon_of, merge, of_shards
from privset.privacy.budget import PrivacyBudget

PLD_BUDGET_CEILING = 20.0
"""Budgets above this are calibrated by RDP alone; the gap to PLD_CEILING is for what RDP gives at PLD's noise."""

_TOLERANCE = 1e-6
"""Relative precision of a calibrated noise multiplier; the error is always on the side of more noise."""

_MOST_NOISE = 1e8
"""Where the search for a noise multiplier gives up."""


def calibrate(
    events_at: Callable[[float], Iterable[GaussianEvent]], budget: PrivacyBudget, *, most: float = math.inf
) -> float:
    """The smallest noise multiplier (to one part in a million, rounded up) that keeps the events in budget.

    Args:
        events_at: The events a method will ask for at a given noise multiplier; more noise must cost less.
        budget: What they may cost; an infinite epsilon needs no noise and gives 0.
        most: Noise above which the answers are useless, usually the number of records that take part: the noise on
            every coordinate then exceeds the longest sum there can be.

    Returns:
        A noise multiplier whose events cost at most ``budget.epsilon``: the bound is checked, not assumed.

    Raises:
        BudgetError: That would be more than ``most``.
    """
    if not budget.private:
        return 0.0
    noise = _smallest(events_at, budget, "rdp", start=1.0, stride=0.5)
    if noise > 2 * most:  # PLD would not save it, and would take long to say so
        raise _unaffordable(events_at(noise), budget, noise, most)
    tighter = _tighter(events_at, budget, noise)
    if tighter > most:
        raise _unaffordable(events_at(tighter), budget, tighter, most)
    return tighter


def _unaffordable(events: Iterable[GaussianEvent], budget: PrivacyBudget, noise: float, most: float) -> BudgetError:
    questions = sum(event.count for event in events)
    return UnaffordableError(
        f"{questions:,} question(s) cannot be paid for with epsilon {budget.epsilon:g}: each answer would carry noise "
        f"{noise:.3g} times one record's part, and only {most:.0f} record(s) take part. Raise epsilon, or give more "
        "records."
    )


def _tighter(events_at: Callable[[float], Iterable[GaussianEvent]], budget: PrivacyBudget, noise: float) -> float:
    """The noise by the budget's accountant, given that by RDP."""
    if budget.accountant == "rdp":
        return noise
    events = tuple(events_at(noise))
    answers = sum(event.count for event in events)
    if of_shards(events):
        if budget.accountant == "pld":
            raise BudgetError("what answers on some of many shards cost is not known by pld; use --accountant rdp")
        return noise
    if budget.epsilon > PLD_BUDGET_CEILING or answers > PLD_MOST_ANSWERS:
        if budget.accountant == "pld":
            raise BudgetError(
                f"noise is not calibrated by pld above epsilon {PLD_BUDGET_CEILING:g} or {PLD_MOST_ANSWERS:,} answers, "
                f"and this is epsilon {budget.epsilon:g} and {answers:,} answers; use --accountant rdp"
            )
        return noise
    if budget.accountant == "best" and epsilon_of(merge(events), budget.delta, "pld") > budget.epsilon:
        return noise  # PLD needs more: how much more would take long to find, and is not used
    # PLD is rarely more than a third below RDP, and slow where epsilon is large: approach it in small strides.
    tighter = _smallest(events_at, budget, "pld", start=noise, stride=0.08)
    return tighter if budget.accountant == "pld" else min(noise, tighter)


def _smallest(
    events_at: Callable[[float], Iterable[GaussianEvent]],
    budget: PrivacyBudget,
    accountant: str,
    start: float,
    stride: float,
) -> float:
    """Bracket the root from ``start``, find it on the log-log curve (nearly straight), end on the safe side."""
    from scipy.optimize import brentq

    def excess(log_noise: float) -> float:
        cost = epsilon_of(merge(events_at(max(math.exp(log_noise), LEAST_NOISE))), budget.delta, accountant)
        return math.log(max(cost, 1e-300) / budget.epsilon)

    high = math.log(start)
    while excess(high) > 0:
        high += stride
        if high > math.log(_MOST_NOISE):
            raise BudgetError(
                f"no amount of noise brings these questions within epsilon {budget.epsilon:g} at delta "
                f"{budget.delta:g}; ask fewer of them, or raise the budget"
            )
    least = math.log(LEAST_NOISE)
    low = max(high - stride, least)
    while excess(low) <= 0:
        if low == least:
            return LEAST_NOISE
        high, low = low, max(low - stride, least)
    root = float(brentq(excess, low, high, xtol=_TOLERANCE))  # pyright: ignore[reportArgumentType]
    while excess(root) > 0:
        root += _TOLERANCE
    return math.exp(root)
