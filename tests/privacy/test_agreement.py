"""What is counted by looking at votes, against divergences of the winners' distributions computed by integration."""

import math

import pytest
import torch
from tests.conftest import facts_for, records_for

from privset.privacy import Curator, Ledger, PrivacyBudget, Tally, VotesQuestion, seeded_noise
from privset.privacy.agreement import ORDERS, Agreement, log_surprise, winner_divergence


def winners(counts: torch.Tensor, deviation: float) -> torch.Tensor:
    """How likely each bin ``[bins]`` has the largest of the noisy counts, as logarithms: an integral over its noise."""
    noise = torch.linspace(-60, 60, 30_001, dtype=torch.float64)
    density = -noise.square() / 2 - math.log(2 * math.pi) / 2 + math.log(float(noise[1] - noise[0]))
    found = []
    for own in range(len(counts)):
        others = [number for number in range(len(counts)) if number != own]
        ahead = (counts[own] - counts[others])[:, None] / deviation + noise
        found.append((density + torch.special.log_ndtr(ahead).sum(0)).logsumexp(0))
    return torch.stack(found)


def divergence(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """At each order, of distributions that are given as logarithms."""
    orders = torch.tensor(ORDERS, dtype=torch.float64)[:, None]
    return (orders * one + (1 - orders) * other).logsumexp(1) / (orders[:, 0] - 1)


@pytest.mark.parametrize("deviation", [3.0, 10.0, 40.0])
@pytest.mark.parametrize("counts", [[52, 48], [70, 30], [100, 0], [40, 35, 25], [70, 20, 10], [90, 10, 0, 0]])
def test_no_ward_can_move_the_winner_by_more_than_is_counted(counts, deviation):
    votes = torch.tensor(counts, dtype=torch.float64)
    counted = winner_divergence(log_surprise(votes[None], deviation), deviation)[0]
    before = winners(votes, deviation)
    for first in range(len(counts)):
        for second in range(len(counts)):
            if first != second and counts[first]:
                moved = votes.clone()
                moved[first] -= 1
                moved[second] += 1
                exact = divergence(before, winners(moved, deviation))
                assert (exact <= counted + 1e-9).all()
    assert (counted <= torch.tensor(ORDERS, dtype=torch.float64) / deviation**2 + 1e-12).all()


def test_agreement_is_cheaper_and_a_tie_costs_what_noisy_counts_cost():
    always = torch.tensor(ORDERS, dtype=torch.float64) / 100
    tie, clear = winner_divergence(log_surprise(torch.tensor([[50.0, 50.0], [100.0, 0.0]]), 10.0), 10.0)
    assert torch.equal(tie, always)
    low = torch.tensor(ORDERS) < 5
    assert (clear[low] < 1e-3 * always[low]).all()
    assert torch.equal(clear[-1], always[-1])  # no order is too high for what it costs otherwise


def test_where_there_is_one_bin_nothing_can_be_learned():
    assert (winner_divergence(log_surprise(torch.tensor([[40.0]]), 10.0), 10.0) == 0).all()


@pytest.mark.parametrize(("counts", "deviation"), [([97, 1, 1, 1], 12.0), ([60, 40], 3.0)])
def test_surprise_is_at_least_how_likely_another_bin_wins(counts, deviation):
    votes = torch.tensor(counts, dtype=torch.float64)
    exact = winners(votes, deviation)[1:].exp().sum()
    assert exact <= log_surprise(votes[None], deviation).exp()[0] * (1 + 1e-6)
    assert log_surprise(votes.flip(0)[None], deviation) == log_surprise(votes[None], deviation)


def test_parts_add_up_and_no_votes_cost_nothing_that_is_known():
    votes = torch.tensor([[60.0, 40.0]]).expand(5000, 2)
    whole, parts = Agreement(), Agreement()
    assert whole.epsilon(1e-5) is None
    whole.add_winners(votes.view(50, 100, 2), 1000.0)
    for part in votes.split(1250):
        parts.add_winners(part, 1000.0)
    assert whole.epsilon(1e-5) == pytest.approx(parts.epsilon(1e-5), rel=1e-12)
    before = whole.epsilon(1e-5) or math.inf
    whole.add_lead(5000, 1000.0)
    assert (whole.epsilon(1e-5) or 0.0) > before


@pytest.mark.parametrize("agree", [True, False])
def test_a_curator_counts_for_the_data_holder_what_its_wards_chose(agree):
    """Without agreement as the accountant that does not look; with it, less."""
    facts, tally = facts_for(40), Tally()
    records, free = records_for(facts), PrivacyBudget(epsilon=1000)
    curator = Curator(records, facts, Ledger(free), seeded_noise(0), tally=tally)

    def begin(numbers):
        return {"bin": torch.tensor([0 if agree else number % 2 for number in numbers])}

    def say(state, public):
        return (state["bin"] == torch.arange(2)).to(torch.float32).expand(3, 2)

    wards = curator.appoint(40, begin, batch_size=2)
    choices = VotesQuestion(kind="choices", histograms=3, noise_multiplier=4.0)
    lead = VotesQuestion(kind="lead", histograms=3, noise_multiplier=7.0)
    for _ in range(2):
        curator.votes(choices, wards, say, {})
        curator.votes(lead, wards, say, {})
    found = tally.agreement.epsilon(1e-5) or math.inf
    blind = Agreement()
    blind._add(torch.tensor(ORDERS, dtype=torch.float64) * 2 * (1 / (2 * 4.0**2) + 1 / (2 * 7.0**2)))
    if agree:
        assert found < 0.8 * (blind.epsilon(1e-5) or 0.0)
    else:
        assert found == pytest.approx(blind.epsilon(1e-5), rel=1e-9)


def test_votes_that_are_vectors_and_answers_without_noise_are_not_counted():
    facts, tally = facts_for(40), Tally()
    curator = Curator(records_for(facts), facts, Ledger(PrivacyBudget(epsilon=math.inf)), seeded_noise(0), tally=tally)
    wards = curator.appoint(4, lambda numbers: {"w": torch.ones(len(numbers), 1, 2)}, batch_size=2)
    curator.votes(VotesQuestion(kind="vectors", bound=1.0, noise_multiplier=1.0), wards, lambda s, p: s["w"], {})
    curator.votes(VotesQuestion(kind="choices", histograms=1, noise_multiplier=0.0), wards, lambda s, p: s["w"], {})
    assert tally.agreement.epsilon(1e-5) is None
