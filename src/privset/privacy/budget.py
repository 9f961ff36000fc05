"""How much privacy may be spent: the (epsilon, delta) a data holder has agreed to."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, get_args

from privset.errors import BudgetError

Accountant = Literal["best", "pld", "rdp"]

RELATION = "add-or-remove-one-record"
"""Two data sets are neighbours if one has one record more than the other; every epsilon here means this."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyBudget:
    """The (epsilon, delta) that a release may cost, under the add-or-remove-one-record relation.

    >>> PrivacyBudget(epsilon=1.0)
    PrivacyBudget(epsilon=1.0, delta=1e-05, accountant='best')
    >>> PrivacyBudget(epsilon=float("inf")).private
    False
    """

    epsilon: float
    """The privacy loss that may be spent; smaller is more private, inf means no privacy at all."""
    delta: float = 1e-5
    """The probability with which the loss may be larger; keep it well below 1 / number of records."""
    accountant: Accountant = "best"
    """How the noise is calibrated: rdp (as the paper), pld (tighter), or the better of these two valid bounds."""

    def __post_init__(self) -> None:
        # A whole number is written down as JSON and TOML write a float, so that it is found again as it was.
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))
        if math.isnan(self.epsilon) or self.epsilon <= 0:
            raise BudgetError(
                f"epsilon must be above 0, not {self.epsilon:g}: no answer about the data is free. "
                "Common choices are 1 to 10; inf switches privacy off."
            )
        if 1000 < self.epsilon < math.inf:
            raise BudgetError(
                f"epsilon {self.epsilon:g} guarantees nothing at all; the largest accepted is 1000, and inf says "
                "honestly that there is no privacy"
            )
        if math.isnan(self.delta) or not 0 < self.delta < 1:
            raise BudgetError(f"delta must lie strictly between 0 and 1, not {self.delta:g}; 1e-5 is customary")
        if self.accountant not in get_args(Accountant):
            raise BudgetError(f"accountant must be one of {', '.join(get_args(Accountant))}, not {self.accountant!r}")

    @property
    def private(self) -> bool:
        """Whether there is any guarantee at all."""
        return math.isfinite(self.epsilon)

    def check_size(self, records: int) -> None:
        """Refuse a delta that would allow publishing a record outright, given the public number of records."""
        if self.private and self.delta * records >= 1:
            raise BudgetError(
                f"delta {self.delta:g} is not below 1/{records:,}: publishing one record in the clear would satisfy "
                f"it. Choose a delta well below {1 / records:.1g}."
            )
