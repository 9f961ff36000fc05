"""What a list of questions costs: dp-accounting's RDP and PLD bounds.

Every mechanism of this package is a (subsampled) Gaussian one, so a question is charged as a
`GaussianEvent`; what was asked is kept apart from how it is accounted, as in dp-accounting itself. Both
bounds hold; the smaller of two valid upper bounds is a valid upper bound. Answers on everyone alone are one Gaussian
mechanism, whose privacy loss is known: there PLD is exact, up to a rounding that is always upwards. The relation is
add-or-remove-one-record throughout; for answers on a few of many shards that is to replace one shard, and only RDP
knows what it costs (docs/proofs/pullback.md).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args

import numpy as np

from privset.errors import BudgetError
from privset.privacy.budget import Accountant

PLD_INTERVAL = 1e-4
"""Discretisation of the privacy loss; coarser intervals are still valid but can be worse than RDP."""

PLD_CEILING = 30.0
"""Above this epsilon (by RDP) PLD is not computed: it takes minutes, for an epsilon that guarantees nothing."""

LEAST_NOISE = 0.01
"""Smaller noise multipliers are refused: their epsilon is astronomical, and the accountants' arithmetic fails."""

MOST_ANSWERS = 10_000_000
"""In one event: twenty times PSG's longest run; accounting for more could be made to take for ever."""

PLD_MOST_ANSWERS = 5_000_000
"""With more answers in all, PLD is not computed either: rounding in its transforms has been looked at up to here."""

PLD_AT_ONCE = 500_000
"""PLD composes more answers than these of one kind in equal parts: at once they can take minutes, and round worse."""

Sampling = Literal["poisson", "without-replacement"]

_SHARD_ORDERS = tuple(
    [1 + x / 10 for x in range(1, 20)] + [3 + x / 4 for x in range(28)] + [10, 11, 12, 14, 16, 20, 24, 32]
)
"""Renyi orders for samples of shards, where each takes long; a bound from fewer orders is valid too."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianEvent:
    """``count`` answers with Gaussian noise, each on its own sample: as a rule a Poisson sample of the records.

    Guarantee: an answer whose sensitivity is s under add/remove, with noise of standard deviation
    ``noise_multiplier * s``, on a sample that each record enters independently with probability at most
    ``sampling_rate``, costs no more than one such event. So does, if the sampling is without replacement, one on a
    fixed number of disjoint shards, that share of all of them, drawn uniformly and in secret, where s is how far
    the answer moves if any one shard is replaced. A noise multiplier of 0 means the clean answer.
    """

    question: str
    """Which of the curator's questions was asked."""
    sampling_rate: float
    """Probability with which each record takes part; 1 is the full batch."""
    noise_multiplier: float
    """Standard deviation of the noise divided by the sensitivity."""
    count: int = 1
    """How many such answers."""
    sampling: Sampling = "poisson"
    """How those who take part are chosen: each record by itself, or a fixed number of shards without replacement."""

    def __post_init__(self) -> None:
        if not 0 < self.sampling_rate <= 1:
            raise BudgetError(f"sampling rate must lie in (0, 1], not {self.sampling_rate!r}")
        if self.sampling not in get_args(Sampling):
            raise BudgetError(f"sampling must be one of {', '.join(get_args(Sampling))}, not {self.sampling!r}")
        if self.sampling_rate == 1 and self.sampling != "poisson":
            raise BudgetError("where all shards take part nothing is sampled; say poisson, with the rate 1")
        if self.noise_multiplier != 0 and not LEAST_NOISE <= self.noise_multiplier < math.inf:
            raise BudgetError(
                f"a noise multiplier must be at least {LEAST_NOISE:g}, not {self.noise_multiplier!r}; "
                "for no privacy at all, ask for epsilon inf"
            )
        if not 1 <= self.count <= MOST_ANSWERS:
            raise BudgetError(f"from 1 to {MOST_ANSWERS:,} answers can be accounted for, not {self.count:,}")

    def to_json(self) -> dict[str, Any]:
        """As plain values. Poisson sampling is left out: it was all there was before there was a word for it."""
        fields = dataclasses.asdict(self)
        return fields if self.sampling != "poisson" else {k: v for k, v in fields.items() if k != "sampling"}


def merge(events: Iterable[GaussianEvent]) -> tuple[GaussianEvent, ...]:
    """Events that differ in their count alone, added up; the order of first appearance is kept."""
    counts: dict[GaussianEvent, int] = {}
    for event in events:
        single = dataclasses.replace(event, count=1)
        counts[single] = counts.get(single, 0) + event.count
    return tuple(dataclasses.replace(event, count=count) for event, count in counts.items())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spending:
    """Upper bounds on epsilon for the same events by each accountant.

    Attributes:
        rdp: By Renyi differential privacy.
        pld: By the privacy loss distribution; None above `PLD_CEILING` and `PLD_MOST_ANSWERS`, where it takes too long,
            and for sampling without replacement, which it does not know.
    """

    rdp: float
    pld: float | None

    @property
    def best(self) -> float:
        """The smaller of the valid bounds."""
        return self.rdp if self.pld is None else min(self.rdp, self.pld)

    def by(self, accountant: Accountant) -> float:
        """The bound of one accountant (for pld above its ceiling: infinite, that is, never within a budget)."""
        if accountant == "pld":
            return math.inf if self.pld is None else self.pld
        return self.rdp if accountant == "rdp" else self.best


def spend(events: Iterable[GaussianEvent], delta: float) -> Spending:
    """Both bounds on epsilon for the composition of all events at ``delta``.

    >>> spend([GaussianEvent(question="total", sampling_rate=1.0, noise_multiplier=3.731)], 1e-5).best < 1
    True
    """
    merged = merge(events)
    rdp = epsilon_of(merged, delta, "rdp")
    known = not of_shards(merged) and sum(event.count for event in merged) <= PLD_MOST_ANSWERS
    computed = known and rdp <= PLD_CEILING
    return Spending(rdp=rdp, pld=epsilon_of(merged, delta, "pld") if computed else None)


_ROUNDING = 1e-13
"""More than what rounding takes from the Renyi divergence of one answer."""


@functools.lru_cache(maxsize=1024)
def epsilon_of(events: tuple[GaussianEvent, ...], delta: float, accountant: str) -> float:
    """An upper bound on epsilon for merged events by ``rdp`` or by ``pld``, however long that takes."""
    if not events:
        return 0.0
    if any(event.noise_multiplier == 0 for event in events):
        return math.inf
    if accountant == "pld" and of_shards(events):
        return math.inf
    # Imported here: it takes a second, and commands that account for nothing should not wait for it.
    import dp_accounting
    from dp_accounting import rdp

    joined = _full_batches_joined(events)
    if accountant == "pld" and [rate for rate, *_ in joined] == [1.0]:
        # One Gaussian mechanism: its privacy loss is normal, and nothing needs to be discretised. On the way it may
        # leave the range of floats, where it knows what to do; what is added is its own precision.
        with np.errstate(all="ignore"):
            return _known(dp_accounting.get_epsilon_gaussian(joined[0][1], delta) * (1 + 1e-9) + 1e-11, events)
    if accountant == "pld":
        return _known(_privacy_loss(joined).get_epsilon_for_delta(delta), events)
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    bound = rdp.RdpAccountant(_SHARD_ORDERS if of_shards(events) else None, relation)
    with order_warnings_silenced():
        for rate, noise, count in joined:
            event = dp_accounting.GaussianDpEvent(noise)
            bound.compose(event if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, event), count)
        divergences = bound.rdp
        if of_shards(events):  # of one pair of neighbours divergences add up at each order, however each is bounded
            divergences = divergences + _divergences_of_shards(events)
        # With very much noise rounding leaves less than there is, even less than nothing, which would count as nothing.
        divergences = np.maximum(divergences, _ROUNDING * sum(event.count for event in events)).tolist()
        return _known(rdp.compute_epsilon(bound.orders.tolist(), divergences, delta)[0], events)


def _privacy_loss(joined: Iterable[tuple[float, float, int]]) -> Any:
    """The privacy loss distribution of (rate, noise, count), as dp-accounting's own accountant composes it.

    But for many answers: one answer with much noise has a short list of losses, and the library raises its length, as a
    whole number of millions of digits, to the power of their count, only to see that it is large. So they are composed
    in equal parts, and the parts with each other; what is cut off of the tails is counted as lost each time.
    """
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as losses

    whole = losses.identity(value_discretization_interval=PLD_INTERVAL)
    for rate, noise, count in joined:
        one = losses.from_gaussian_mechanism(
            noise,
            value_discretization_interval=PLD_INTERVAL,
            sampling_prob=rate,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        )
        parts = math.ceil(count / PLD_AT_ONCE)
        length, left = divmod(count, parts)
        all_of_them = one if rate == 1 else one.self_compose(length)  # full batches are one answer
        if parts > 1:
            all_of_them = all_of_them.self_compose(parts)
        if left:
            all_of_them = all_of_them.compose(one.self_compose(left))
        whole = whole.compose(all_of_them)
    return whole


def _divergences_of_shards(events: Iterable[GaussianEvent]) -> np.ndarray:
    """RDP at `_SHARD_ORDERS` of answers on some of many shards, the least of three valid bounds at each order.

    A record more or less replaces the content of one shard, which is the relation that the first bound is for (Wang,
    Balle, Kasiviswanathan 2019). The second is that of a Poisson sample, and what it lacks: better where there is
    little noise. The third takes no notice of the sampling. docs/proofs/pullback.md has all three.
    """
    import dp_accounting
    from dp_accounting import rdp

    relations, total = dp_accounting.NeighboringRelation, np.zeros(len(_SHARD_ORDERS))
    for event in events:
        if event.sampling != "without-replacement":
            continue
        answer = dp_accounting.GaussianDpEvent(event.noise_multiplier)
        asked, shards = event.sampling_rate.as_integer_ratio()  # all that counts is their ratio
        replaced = rdp.RdpAccountant(_SHARD_ORDERS, relations.REPLACE_ONE)
        replaced.compose(dp_accounting.SampledWithoutReplacementDpEvent(shards, asked, answer))
        added = rdp.RdpAccountant(_SHARD_ORDERS, relations.ADD_OR_REMOVE_ONE)
        added.compose(dp_accounting.PoissonSampledDpEvent(event.sampling_rate, answer))
        known = rdp.RdpAccountant(_SHARD_ORDERS).compose(answer)
        lacking = -math.log1p(-event.sampling_rate)
        total += event.count * np.minimum.reduce([replaced.rdp, added.rdp + lacking, known.rdp])
    return total


def of_shards(events: Iterable[GaussianEvent]) -> bool:
    """Whether any of them asks some of many shards, which only RDP knows the cost of."""
    return any(event.sampling == "without-replacement" for event in events)


def _known(epsilon: float, events: tuple[GaussianEvent, ...]) -> float:
    if math.isnan(epsilon):
        raise BudgetError(f"the accountant could not evaluate {events}; change the settings")
    return float(epsilon)


@contextlib.contextmanager
def order_warnings_silenced() -> Iterator[None]:
    """RDP leaves out Renyi orders that do not converge, and warns of each; the bound from the others is valid."""
    from absl import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _full_batches_joined(events: Iterable[GaussianEvent]) -> list[tuple[float, float, int]]:
    """(rate, noise, count), but for samples of shards; answers on everyone are jointly one Gaussian mechanism."""
    sampled = (e for e in events if e.sampling_rate < 1 and e.sampling == "poisson")
    parts = [(e.sampling_rate, e.noise_multiplier, e.count) for e in sampled]
    precision = sum(e.count / e.noise_multiplier**2 for e in events if e.sampling_rate == 1)
    return [*parts, (1.0, 1 / math.sqrt(precision), 1)] if precision else parts
