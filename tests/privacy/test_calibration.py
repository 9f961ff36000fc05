import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privset.errors import BudgetError
from privset.privacy import GaussianEvent, PrivacyBudget, calibrate, spend
from privset.privacy.accounting import PLD_MOST_ANSWERS
from privset.privacy.calibration import PLD_BUDGET_CEILING


def gradient(noise_multiplier, count=1, rate=256 / 60_000):
    return GaussianEvent(question="gradient", sampling_rate=rate, noise_multiplier=noise_multiplier, count=count)


def full_batch(noise_multiplier, count=1):
    return GaussianEvent(question="total", sampling_rate=1.0, noise_multiplier=noise_multiplier, count=count)


@pytest.mark.parametrize(
    ("steps", "epsilon", "rdp", "pld"),
    [
        (100_000, 10, 0.966, 0.932),
        (200_000, 10, 1.214, 1.164),
        (20_000, 1, 2.553, 2.369),
        (40_000, 1, 3.533, 3.270),
    ],
)
def test_calibrated_noise_is_the_published_one_by_rdp_and_smaller_by_pld(steps, epsilon, rdp, pld):
    def noise(accountant):
        budget = PrivacyBudget(epsilon=epsilon, accountant=accountant)
        return calibrate(lambda z: [gradient(z, steps)], budget)

    assert round(noise("rdp"), 3) == rdp
    assert round(noise("pld"), 3) == pld
    assert noise("best") == min(noise("rdp"), noise("pld"))


@settings(max_examples=6, deadline=None)
@given(
    epsilon=st.floats(0.1, 4),
    delta=st.sampled_from([1e-6, 1e-5, 1e-3]),
    rate=st.sampled_from([0.01, 0.2, 1.0]),
    steps=st.integers(100, 500),
    accountant=st.sampled_from(["rdp", "pld", "best"]),
)
def test_calibration_never_passes_the_budget_and_wastes_little(epsilon, delta, rate, steps, accountant):
    budget = PrivacyBudget(epsilon=epsilon, delta=delta, accountant=accountant)
    noise = calibrate(lambda z: [gradient(z, steps, rate)], budget)
    assert spend([gradient(noise, steps, rate)], delta).by(accountant) <= epsilon
    assert spend([gradient(noise * 0.999, steps, rate)], delta).by(accountant) > epsilon * 0.99


def test_where_rdp_is_the_smaller_bound_its_noise_is_taken():
    many = gradient(1.0, PLD_MOST_ANSWERS, 50 / 60_000)

    def noise(accountant):
        budget = PrivacyBudget(epsilon=0.1, accountant=accountant)
        return calibrate(lambda z: [dataclasses.replace(many, noise_multiplier=z)], budget)

    assert noise("best") == noise("rdp")


def test_no_privacy_needs_no_noise():
    assert calibrate(lambda z: [gradient(z, 10)], PrivacyBudget(epsilon=math.inf)) == 0


def test_what_pld_would_take_too_long_for_is_refused_and_never_silently_left_to_rdp():
    few = PrivacyBudget(epsilon=PLD_BUDGET_CEILING + 1, accountant="pld")
    with pytest.raises(BudgetError, match="not calibrated by pld above epsilon 20"):
        calibrate(lambda z: [full_batch(z)], few)
    with pytest.raises(BudgetError, match="or 5,000,000 answers, and this is epsilon 1 and 5,000,001 answers"):
        calibrate(lambda z: [gradient(z, PLD_MOST_ANSWERS + 1)], PrivacyBudget(epsilon=1.0, accountant="pld"))


@pytest.mark.parametrize("epsilon", [PLD_BUDGET_CEILING, PLD_BUDGET_CEILING + 0.5, 100.0, 1000.0])
def test_large_budgets_are_calibrated_to_something_that_fits_them(epsilon):
    budget = PrivacyBudget(epsilon=epsilon)
    noise = calibrate(lambda z: [full_batch(z, 4)], budget)
    assert spend([full_batch(noise, 4)], budget.delta).by("best") <= epsilon


def test_noise_for_samples_of_shards_is_calibrated_by_rdp_and_never_by_pld():
    def shards(noise_multiplier, count):
        return dataclasses.replace(gradient(noise_multiplier, count, 1 / 50), sampling="without-replacement")

    budget = PrivacyBudget(epsilon=4.0)
    noise = calibrate(lambda z: [shards(z, 100)], budget)
    assert 3.9 < spend([shards(noise, 100)], budget.delta).best <= 4.0
    with pytest.raises(BudgetError, match="not known by pld"):
        calibrate(lambda z: [shards(z, 100)], PrivacyBudget(epsilon=4.0, accountant="pld"))
