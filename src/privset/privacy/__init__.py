"""The trusted kernel: all that an auditor must read to believe a guarantee.

budget -> what may be spent; questions -> what may be asked; accounting -> what that costs; ledger -> what was
asked, on disk; kept -> answers that outlive a stopped run; noise (by chacha on a graphics card) -> secret
randomness; sampling -> who takes part; clipping, layered, gradients -> what one record may contribute; curator -> the
only holder of records.
"""

from privset.privacy.accounting import GaussianEvent, Spending, calibrate, spend
from privset.privacy.budget import RELATION, PrivacyBudget
from privset.privacy.curator import Curator, Tally
from privset.privacy.kept import KeptAnswers, take_up
from privset.privacy.ledger import BudgetExceeded, Ledger
from privset.privacy.noise import NoiseSource, seeded_noise, system_noise
from privset.privacy.questions import GradientQuestion, TotalQuestion

__all__ = [
    "RELATION",
    "BudgetExceeded",
    "Curator",
    "GaussianEvent",
    "GradientQuestion",
    "KeptAnswers",
    "Ledger",
    "NoiseSource",
    "PrivacyBudget",
    "Spending",
    "Tally",
    "TotalQuestion",
    "calibrate",
    "seeded_noise",
    "spend",
    "system_noise",
    "take_up",
]
