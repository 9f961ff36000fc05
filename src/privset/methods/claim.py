"""What someone else says a method costs: shown beside the guarantee, and never in its place.

Some methods were published with an analysis that gives another epsilon than the one that is proven here: under another
relation, by a looser bound, or by mistake. Whoever compares with the paper has to see both.
"""

from __future__ import annotations

import dataclasses
import functools
import math

from privset.privacy.accounting import GaussianEvent, order_warnings_silenced
from privset.privacy.budget import RELATION

REPLACE = "replace-one-record"
"""The relation of many papers: neighbours are of the same size. Never that of a guarantee here."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """The epsilon that the original analysis of a method gives for some settings; claimed, not proven.

    Its words are part of the certificate, and `verify` compares them: what was published once stays as it is.

    Attributes:
        epsilon: As claimed.
        delta: As claimed.
        relation: Which data sets are neighbours in that analysis.
        by: Whose analysis it is.
        unsound: One sentence on why it does not hold; None where it does, for its own relation.
    """

    epsilon: float
    delta: float
    relation: str
    by: str
    unsound: str | None = None

    def sentence(self) -> str:
        """The claim in words that no one can take for the guarantee.

        >>> Claim(epsilon=9.6, delta=1e-5, relation=REPLACE, by="someone").sentence()[:63]
        'Claimed by someone for these settings: epsilon 9.6, delta 1e-05'
        """
        words = (
            f"Claimed by {self.by} for these settings: epsilon {self.epsilon:.4g}, delta {self.delta:g} "
            f"({self.relation}); {'another bound' if self.unsound is None else 'not proven'}, and not the guarantee."
        )
        if self.unsound is not None:
            return f"{words} {self.unsound}"
        return words if self.relation == RELATION else f"{words} Its relation is another one: do not compare the two."

    def explained(self) -> str:
        """The claim in words, and whether it is right; for whoever reads a plan or a report.

        Not in what is published: `verify` makes cards again, so theirs stay as they are.

        >>> Claim(epsilon=9.6, delta=1e-5, relation=RELATION, by="someone").explained()[-73:]
        'That analysis is right for what is asked here: its epsilon holds as well.'
        """
        if self.unsound is not None:
            verdict = "So do not take the published epsilon for a guarantee."
        elif self.relation == RELATION:
            verdict = "That analysis is right for what is asked here: its epsilon holds as well."
        else:
            verdict = (
                "That analysis is right for what is asked here: its epsilon holds where one record is replaced by "
                "another, the guarantee where one is added or removed."
            )
        return f"{self.sentence()} {verdict}"

    def brief(self) -> str:
        """The claimed epsilon, its relation and whether it holds, for a table.

        >>> Claim(epsilon=9.99, delta=1e-5, relation=REPLACE, by="someone", unsound="It miscounts.").brief()
        '9.99, replace one record: does not hold as published'
        """
        verdict = "holds as well" if self.unsound is None else "does not hold as published"
        return f"{self.epsilon:.4g}, {self.relation.replace('-', ' ')}: {verdict}"


@functools.lru_cache(maxsize=64)
def classic_epsilon(events: tuple[GaussianEvent, ...], delta: float, orders: tuple[float, ...]) -> float:
    """Epsilon by RDP with the conversion of Mironov 2017, as published code of its time computes it; for claims only.

    Args:
        events: What is taken to be asked.
        delta: Of the claim.
        orders: The Renyi orders that are tried.
    """
    import dp_accounting  # as in `privset.privacy.accounting`: it takes a second
    from dp_accounting import rdp

    accountant = rdp.RdpAccountant(orders)
    with order_warnings_silenced():
        for event in events:
            answer = dp_accounting.GaussianDpEvent(event.noise_multiplier)
            accountant.compose(dp_accounting.PoissonSampledDpEvent(event.sampling_rate, answer), event.count)
    return float(min(cost - math.log(delta) / (order - 1) for cost, order in zip(accountant.rdp, orders, strict=True)))
