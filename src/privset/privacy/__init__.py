"""The trusted kernel: all that an auditor must read to believe a guarantee.

budget -> what may be spent; questions -> what may be asked; accounting -> what that costs; calibration -> the noise
that a budget affords; ledger -> what was asked, on disk; kept -> answers that outlive a stopped run; standing -> where
a run stands that keeps none; noise (by chacha on a graphics card) -> secret randomness; sampling -> who takes part;
clipping, layered, held, gradients -> what one record may contribute; wards -> networks that are private state; sums,
votes, pullback -> the answers; agreement -> what the data holder may know of votes; curator -> the only holder of
records.
"""

from privset.privacy.accounting import GaussianEvent, Spending, spend
from privset.privacy.budget import RELATION, PrivacyBudget
from privset.privacy.calibration import calibrate
from privset.privacy.curator import Curator, Tally
from privset.privacy.kept import KeptAnswers, take_up
from privset.privacy.ledger import BudgetExceeded, Ledger
from privset.privacy.noise import NoiseSource, seeded_noise, system_noise
from privset.privacy.questions import GradientQuestion, PullbackQuestion, TotalQuestion, VotesQuestion
from privset.privacy.standing import Standing, go_on
from privset.privacy.wards import Wards

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
    "PullbackQuestion",
    "Spending",
    "Standing",
    "Tally",
    "TotalQuestion",
    "VotesQuestion",
    "Wards",
    "calibrate",
    "go_on",
    "seeded_noise",
    "spend",
    "system_noise",
    "take_up",
]
