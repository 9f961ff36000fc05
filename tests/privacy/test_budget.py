import pytest

from privset.errors import BudgetError
from privset.privacy import PrivacyBudget


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"epsilon": -1.0}, "epsilon must be above 0"),
        ({"epsilon": float("nan")}, "epsilon must be above 0"),
        ({"epsilon": 1001.0}, "guarantees nothing at all"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta must lie strictly between 0 and 1"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta must lie strictly between 0 and 1"),
        ({"epsilon": 1.0, "accountant": "moments"}, "accountant must be one of best, pld, rdp"),
    ],
)
def test_impossible_budgets_are_refused_with_a_sentence(fields, words):
    with pytest.raises(BudgetError, match=words):
        PrivacyBudget(**fields)


def test_a_delta_that_would_allow_publishing_a_record_is_refused():
    budget = PrivacyBudget(epsilon=1.0, delta=1e-3)
    budget.check_size(999)
    with pytest.raises(BudgetError, match="publishing one record in the clear"):
        budget.check_size(1000)
    PrivacyBudget(epsilon=float("inf"), delta=1e-3).check_size(10**6)  # no guarantee, so none to undermine


def test_a_whole_number_is_a_budget_like_any_other():
    """It is written into releases as a float, and verified as one."""
    budget = PrivacyBudget(epsilon=1)
    assert isinstance(budget.epsilon, float)
    assert budget == PrivacyBudget(epsilon=1.0)
