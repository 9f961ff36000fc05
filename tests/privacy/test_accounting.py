import math
import time

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from dp_accounting.pld import privacy_loss_distribution as losses
from scipy import stats

from privset.errors import BudgetError
from privset.privacy import GaussianEvent, spend
from privset.privacy.accounting import (
    _SHARD_ORDERS,
    PLD_AT_ONCE,
    PLD_CEILING,
    PLD_MOST_ANSWERS,
    _divergences_of_shards,
    merge,
)


def gradient(noise_multiplier, count=1, rate=256 / 60_000):
    return GaussianEvent(question="gradient", sampling_rate=rate, noise_multiplier=noise_multiplier, count=count)


def full_batch(noise_multiplier, count=1):
    return GaussianEvent(question="total", sampling_rate=1.0, noise_multiplier=noise_multiplier, count=count)


def test_full_batch_answers_compose_to_one_gaussian_mechanism():
    # The exact values of the Gaussian mechanism at delta 1e-5 (Balle and Wang 2018).
    assert spend([full_batch(3.7304)], 1e-5).best == pytest.approx(1.0, abs=2e-3)
    assert spend([full_batch(0.49990)], 1e-5).best == pytest.approx(10.0, abs=2e-2)
    once = spend([full_batch(3.0)], 1e-5)
    split = spend([full_batch(3.0 * math.sqrt(40), 30), full_batch(3.0 * math.sqrt(40), 10)], 1e-5)
    assert split.pld == pytest.approx(once.pld, rel=1e-9)
    assert split.rdp == pytest.approx(once.rdp, rel=1e-9)


@pytest.mark.parametrize("noise", [0.5, 1.0, 3.73, 20.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-8])
def test_the_cost_of_one_gaussian_mechanism_is_exact_and_below_what_discretising_gives(noise, delta):
    exact = spend([full_batch(noise)], delta).pld
    assert exact is not None
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    discretised = accountant.compose(dp_accounting.GaussianDpEvent(noise)).get_epsilon(delta)
    assert exact == pytest.approx(discretised, abs=1e-3)
    assert exact <= discretised * (1 + 1e-8)
    # Its definition: delta is what the two normal tails leave.
    left = stats.norm.cdf(0.5 / noise - exact * noise) - math.exp(exact) * stats.norm.cdf(-0.5 / noise - exact * noise)
    assert left == pytest.approx(delta, rel=1e-3)
    assert left <= delta


@pytest.mark.parametrize(("noise", "delta"), [(1e8, 1e-300), (1e7, 1e-12), (1e8, 1e-15), (1e4, 1e-5), (2.0, 1e-5)])
def test_the_exact_cost_is_rounded_up_and_silent_at_the_edge_of_floats(noise, delta):
    mpmath = pytest.importorskip("mpmath")
    found = spend([full_batch(noise)], delta).pld
    assert found is not None
    with mpmath.workdps(400):
        epsilon, sigma = mpmath.mpf(found), mpmath.mpf(noise)
        left = mpmath.ncdf(1 / (2 * sigma) - epsilon * sigma)
        assert left - mpmath.exp(epsilon) * mpmath.ncdf(-1 / (2 * sigma) - epsilon * sigma) <= delta


def test_a_cost_of_nothing_is_still_rounded_up():
    assert spend([full_batch(1e8)], 1e-5).pld == 1e-11


def test_more_answers_cost_more_and_more_noise_costs_less():
    base = spend([gradient(1.0, 1000)], 1e-5)
    for cost in (spend([gradient(1.0, 2000)], 1e-5), spend([gradient(0.9, 1000)], 1e-5)):
        assert cost.rdp > base.rdp
        assert cost.pld is not None
        assert base.pld is not None
        assert cost.pld > base.pld


@pytest.mark.parametrize(
    "answers", [(gradient(1.0, 1),), (gradient(1.0, 30_000),), (gradient(3.0, 900), full_batch(2))]
)
def test_pld_composes_as_the_librarys_own_accountant_does(answers):
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    for event in answers:
        answer = dp_accounting.GaussianDpEvent(event.noise_multiplier)
        sampled = dp_accounting.PoissonSampledDpEvent(event.sampling_rate, answer)
        accountant.compose(answer if event.sampling_rate == 1 else sampled, event.count)
    assert spend(answers, 1e-5).pld == accountant.get_epsilon(1e-5)


@pytest.mark.parametrize("noise", [1.1, 3.0, 7.5])
def test_pld_of_millions_of_answers_is_quick_below_rdp_and_no_less_than_a_finer_grid_gives(noise):
    counts = (PLD_AT_ONCE, PLD_AT_ONCE + 1, 2_000_001, 3_446_400, PLD_MOST_ANSWERS)
    start = time.process_time()
    found = [spend([gradient(noise, count, 50 / 60_000)], 1e-5) for count in counts]
    assert time.process_time() - start < 60  # composed at once, one of them alone took half a minute
    costs = [cost.pld for cost in found]
    assert None not in costs
    assert costs == sorted(costs)  # pyright: ignore[reportArgumentType] - none is None
    assert all(0.9 * cost.rdp < cost.by("pld") < cost.rdp for cost in found)
    # Up to rounding a grid twice as fine gives a smaller bound: neither is below what the answers cost.
    finer = losses.from_gaussian_mechanism(noise, value_discretization_interval=5e-5, sampling_prob=50 / 60_000)
    composed = finer.self_compose(PLD_MOST_ANSWERS // 100).self_compose(100).get_epsilon_for_delta(1e-5)
    assert 0.9 * found[-1].by("pld") < composed < found[-1].by("pld")


def test_above_so_many_answers_pld_is_left_out():
    assert spend([gradient(3.0, PLD_MOST_ANSWERS + 1, 50 / 60_000)], 1e-5).pld is None


def test_a_clean_answer_costs_everything_and_no_answer_nothing():
    assert spend([gradient(1.0), gradient(0.0)], 1e-5).best == math.inf
    assert spend([], 1e-5).best == 0


def test_events_that_differ_in_count_alone_are_added_up():
    assert merge([gradient(1.0, 2), full_batch(1.0), gradient(1.0, 3)]) == (gradient(1.0, 5), full_batch(1.0))


def test_above_its_ceiling_pld_is_left_out_and_never_silently_replaced():
    cost = spend([full_batch(0.1)], 1e-5)
    assert cost.rdp > PLD_CEILING
    assert cost.pld is None
    assert cost.best == cost.rdp
    assert cost.by("pld") == math.inf


def test_the_accountants_log_level_is_left_as_it_was():
    from absl import logging

    logging.set_verbosity(logging.INFO)
    spend([gradient(1.2345, 3, 0.3)], 1e-5)
    assert logging.get_verbosity() == logging.INFO
    logging.set_verbosity(logging.WARNING)


def shards(noise_multiplier, count=1, rate=1 / 50):
    return GaussianEvent(
        question="pullback",
        sampling_rate=rate,
        noise_multiplier=noise_multiplier,
        count=count,
        sampling="without-replacement",
    )


def test_some_of_many_shards_cost_what_dp_accounting_says_and_more_than_a_poisson_sample():
    found = spend([shards(0.8, 300)], 1e-5)
    event = dp_accounting.SampledWithoutReplacementDpEvent(50, 1, dp_accounting.GaussianDpEvent(0.8))
    accountant = rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    assert found.rdp == pytest.approx(accountant.compose(event, 300).get_epsilon(1e-5), rel=1e-9)
    assert found.pld is None
    assert found.best == found.rdp
    assert found.by("pld") == math.inf
    assert found.rdp > spend([gradient(0.8, 300, 1 / 50)], 1e-5).rdp


@pytest.mark.parametrize("order", [2.0, 3.0, 4.0, 8.0, 16.0])
@pytest.mark.parametrize(("noise", "rate"), [(0.7, 0.1), (0.189, 0.001), (0.3, 0.9)])
def test_replacing_a_shard_diverges_by_no_more_than_is_charged(noise, rate, order):
    """Each of the three bounds is the least of them somewhere here; the second pair is GS-WGAN's published one."""
    x = np.linspace(-24, 24, 400_001)

    def answers(own, others):
        asked, passed_over = (math.log(share) for share in (rate, 1 - rate))
        return np.logaddexp(passed_over + stats.norm.logpdf(x, others, noise), asked + stats.norm.logpdf(x, own, noise))

    def divergence(p, q):
        values = order * p + (1 - order) * q
        most = values.max()
        return (most + math.log(np.trapezoid(np.exp(values - most), x))) / (order - 1)

    # In units of twice the clip norm every answer is within half of zero.
    pairs = [(answers(-0.5, others), answers(0.5, others)) for others in (0.0, -0.5, 0.5)]
    worst = max(divergence(*way) for one, other in pairs for way in ((one, other), (other, one)))
    charged = _divergences_of_shards([shards(noise, rate=rate)])[_SHARD_ORDERS.index(order)]
    assert worst <= charged * (1 + 1e-9)
    if order == 16:
        assert worst > 0.99 * charged


def test_samples_of_shards_add_up_with_other_questions_by_rdp():
    mixed = spend([shards(1.0, 50), gradient(1.5, 100, 0.1), full_batch(4.0)], 1e-5)
    parts = [[shards(1.0, 50)], [gradient(1.5, 100, 0.1)], [full_batch(4.0)]]
    assert max(spend(part, 1e-5).rdp for part in parts) < mixed.rdp < sum(spend(part, 1e-5).rdp for part in parts)
    assert mixed.pld is None


def test_how_shards_are_drawn_is_written_down_and_the_usual_way_is_not():
    assert "sampling" not in gradient(1.0).to_json()
    assert shards(1.0).to_json()["sampling"] == "without-replacement"
    for event in (gradient(1.0), shards(1.0)):
        assert GaussianEvent(**event.to_json()) == event


@pytest.mark.parametrize(
    "fields",
    [
        {"sampling": "with-replacement"},
        {"sampling": "without-replacement", "sampling_rate": 1.0},
        {"sampling_rate": 0.0},
        {"sampling_rate": 1.1},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": math.nan},
        {"noise_multiplier": math.inf},
        {"noise_multiplier": 1e-153},
        {"count": 0},
    ],
)
def test_impossible_events_are_refused(fields):
    with pytest.raises(BudgetError):
        GaussianEvent(**{"question": "gradient", "sampling_rate": 0.5, "noise_multiplier": 1.0, **fields})


@pytest.mark.parametrize("noise", [1e5, 1e6, 1e7])
def test_much_noise_is_not_accounted_as_none_lost(noise):
    # Divergences that rounding makes negative are an epsilon of 0 to the library; these answers cost more than that.
    event = GaussianEvent(question="gradient", sampling_rate=0.004, noise_multiplier=noise, count=10**5)
    assert spend([event], 1e-5).rdp == pytest.approx(0.0035, abs=2e-5)
