"""Several questions about the same words: wards speak once, and each answer is what it would be by itself."""

import json
import math

import pytest
import torch
from tests.privacy.test_votes import FREE, GROUP, QUESTIONS, begin, changing, clean, curator_for, learn, say

from privset.errors import ConfigError
from privset.privacy import (
    BudgetExceeded,
    Curator,
    KeptAnswers,
    Ledger,
    PrivacyBudget,
    Tally,
    VotesQuestion,
    seeded_noise,
)
from privset.privacy.accounting import merge
from privset.privacy.ledger import read
from privset.privacy.standing import go_on

COUNTS = VotesQuestion(kind="choices", histograms=6, noise_multiplier=3.0)
LEAD = VotesQuestion(kind="lead", histograms=6, noise_multiplier=4.0)


@pytest.mark.parametrize(("chunk", "parts"), [(None, 1), (128, 2)])
def test_wards_speak_once_for_all_questions(facts, records, chunk, parts):
    curator, spoken = curator_for(records, facts, chunk=chunk), []

    def speaking(state, public):
        spoken.append(state)
        return state["w"]

    wards = curator.appoint(4, begin, batch_size=4)
    curator.votes_together(GROUP, wards, speaking, {})
    assert len(spoken) == 1 + parts  # first a ward that has learned nothing
    curator.votes_together(GROUP, wards, speaking, {})
    assert len(spoken) == 1 + 2 * parts


def test_each_answer_is_that_to_its_question_alone_and_so_is_what_the_data_holder_is_told(facts, records):
    def begin_some(numbers):
        state = begin(numbers)
        state["w"][[number == 1 for number in numbers]] = math.nan
        return state

    def run(ask):
        tally = Tally()
        curator = curator_for(records, facts, PrivacyBudget(epsilon=1000), tally=tally, chunk=256)
        wards = curator.appoint(60, begin_some, batch_size=4)  # more than records: the one that says no number stays so
        curator.teach(wards, learn, {})
        return [*ask(curator, wards), *ask(curator, wards)], tally, curator._ledger.events

    alone, tally, events = run(lambda curator, wards: [curator.votes(one, wards, say, {}) for one in GROUP])
    together, told, charged = run(lambda curator, wards: curator.votes_together(GROUP, wards, say, {}))
    assert [answer.shape for answer in together] == [answer.shape for answer in alone]
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))
    assert told.not_finite == tally.not_finite == 2 * len(GROUP)  # one ward, in every answer
    assert told.agreement.epsilon(1e-5) == tally.agreement.epsilon(1e-5) is not None
    assert charged == events == merge(question.event(2) for question in GROUP)


def test_each_answer_has_noise_of_its_own_and_of_its_own_deviation(facts, records):
    curator = curator_for(records, facts)
    wards = curator.appoint(5, begin, batch_size=4)
    curator.teach(wards, learn, {})
    exact = curator.votes_together(tuple(clean(question) for question in GROUP), wards, say, {})
    asked = [curator.votes_together(GROUP, wards, say, {}) for _ in range(150)]
    noises = []
    for number, question in enumerate(GROUP):
        residues = torch.stack([answers[number] - exact[number] for answers in asked]).flatten(1)
        noises.append(residues / (question.noise_multiplier * question.sensitivity))
    for scaled in noises:
        assert float(scaled.std()) == pytest.approx(1, abs=5 / math.sqrt(2 * scaled.numel()))
        assert float(scaled.mean()) == pytest.approx(0, abs=5 / math.sqrt(scaled.numel()))
    between = torch.corrcoef(torch.cat(noises, dim=1).T)  # of every number of every answer with every other
    assert float((between - torch.eye(len(between))).abs().max()) < 6 / math.sqrt(150)


def test_all_are_charged_in_their_order_before_a_ward_is_heard(facts, records, tmp_path):
    path, heard = tmp_path / "ledger.jsonl", []

    def listening(state, public):
        heard.append([json.loads(line) for line in path.read_text().splitlines()[1:]] if path.exists() else [])
        return state["w"]

    vectors = VotesQuestion(kind="vectors", bound=1.0, noise_multiplier=LEAD.noise_multiplier)
    curator = curator_for(records, facts, PrivacyBudget(epsilon=50.0), path)
    wards = curator.appoint(3, begin, batch_size=4)
    curator.votes_together((LEAD, COUNTS, vectors), wards, listening, {})
    before, during = heard
    assert before == []
    assert [(line["noise_multiplier"], line["count"]) for line in during] == [(4.0, 1), (3.0, 1), (4.0, 1)]
    assert read(path)[1] == curator._ledger.events == (LEAD.event(2), COUNTS.event(1))


@pytest.mark.parametrize("prepaid", [True, False])
def test_past_the_budget_none_is_charged_heard_or_answered(facts, records, tmp_path, prepaid):
    path, heard, budget = tmp_path / "ledger.jsonl", [], PrivacyBudget(epsilon=1.5)
    for question in (COUNTS, LEAD):
        Ledger(budget).charge(question.event(1))  # each would fit

    def listening(state, public):
        heard.append(state)
        return state["w"]

    noise = seeded_noise(0)
    curator = Curator(records, facts, Ledger(budget, path), noise)
    wards = curator.appoint(3, begin, batch_size=4)
    if prepaid:
        curator.prepay(COUNTS, 1)
    before = noise.state()
    with pytest.raises(BudgetExceeded):
        curator.votes_together((COUNTS, LEAD), wards, listening, {})
    assert len(heard) == 1  # who has learned nothing
    assert noise.state() == before
    assert curator._ledger.events == ((COUNTS.event(1),) if prepaid else ())
    assert path.exists() == prepaid
    curator.votes(COUNTS, wards, listening, {})  # what was paid before is there still
    assert read(path)[1] == (COUNTS.event(1),)


def test_prepaid_questions_are_not_charged_again_and_not_more_is_answered_than_paid(facts, records):
    curator = curator_for(records, facts)
    wards = curator.appoint(3, begin, batch_size=4)
    curator.prepay(COUNTS, 3)
    curator.prepay(LEAD, 1)
    charges = []
    for group in ((COUNTS, LEAD), (COUNTS, LEAD, COUNTS), (COUNTS, LEAD)):
        curator.votes_together(group, wards, say, {})
        charges.append(curator._ledger.events)
    assert charges == [
        (COUNTS.event(3), LEAD.event(1)),
        (COUNTS.event(3), LEAD.event(2)),
        (COUNTS.event(4), LEAD.event(3)),
    ]


def test_each_is_counted_as_used_where_a_run_stands_and_what_is_used_pays_for_no_other(facts, records, tmp_path):
    path = tmp_path / "ledger.jsonl"
    for times in (1, 2):
        ledger, standing, noise = go_on(FREE, path, tmp_path, seeded_noise(0), "a run")
        curator = Curator(records, facts, ledger, noise, standing=standing)
        wards = curator.appoint(3, begin, batch_size=4)
        curator.votes_together((COUNTS, LEAD, COUNTS), wards, say, {})
        assert standing.debts() == {COUNTS.event(1): -2 * times, LEAD.event(1): -times}
        assert read(path)[1] == (COUNTS.event(2 * times), LEAD.event(times))
        standing.save(b"")


def test_what_is_refused_is_not_counted_as_used_where_a_run_stands(facts, records, tmp_path):
    budget = PrivacyBudget(epsilon=1.5)
    ledger, standing, noise = go_on(budget, tmp_path / "ledger.jsonl", tmp_path, seeded_noise(0), "a run")
    curator = Curator(records, facts, ledger, noise, standing=standing)
    wards = curator.appoint(3, begin, batch_size=4)
    with pytest.raises(BudgetExceeded):
        curator.votes_together((COUNTS, LEAD), wards, say, {})
    assert standing.debts() == {}


@pytest.mark.parametrize("group", [(QUESTIONS["vectors"], COUNTS), (COUNTS, QUESTIONS["vectors"])])
def test_if_one_cannot_be_bounded_none_is_charged(facts, records, group):
    curator = curator_for(records, facts)
    wards = curator.appoint(3, begin, batch_size=4)
    with pytest.raises(ConfigError, match="choose in 2 histograms, but the question is about 6"):
        curator.votes_together(group, wards, lambda state, public: state["w"].flatten(1), {})
    assert curator._ledger.events == ()


@pytest.mark.parametrize("group", [(QUESTIONS["vectors"], COUNTS), (COUNTS, QUESTIONS["vectors"])])
def test_if_one_passes_the_rehearsal_only_none_is_answered(facts, records, group):
    curator = curator_for(records, facts)
    wards, saying = curator.appoint(3, begin, batch_size=4), changing(lambda said: said[:1])
    curator.votes_together(group, wards, saying, {"now": torch.tensor(0.0)})
    with pytest.raises(ConfigError, match="choose in"):
        curator.votes_together(group, wards, saying, {"now": torch.tensor(1.0)})


def test_what_is_answered_is_what_was_paid_for_whatever_becomes_of_the_list(facts, records):
    curator, asked = curator_for(records, facts), [COUNTS]

    def greedy(state, public):
        asked.append(LEAD)
        return state["w"]

    wards = curator.appoint(3, begin, batch_size=4)
    assert len(curator.votes_together(asked, wards, greedy, {})) == 1  # pyright: ignore[reportArgumentType]
    assert len(asked) == 3
    assert curator._ledger.events == (COUNTS.event(1),)


def test_random_numbers_that_wards_draw_as_they_speak_are_the_same_in_all_answers(facts, records):
    loud = VotesQuestion(kind="vectors", bound=100.0, noise_multiplier=0.0)
    curator = curator_for(records, facts)
    wards = curator.appoint(3, begin, batch_size=4)

    def throwing(state, public):
        return state["w"] + torch.rand(state["w"].shape)

    one, same = curator.votes_together((loud, loud), wards, throwing, {})
    assert torch.equal(one, same)
    assert not torch.equal(one, curator.votes(loud, wards, throwing, {}))


def test_no_question_and_answers_that_would_be_kept_are_refused(facts, records, tmp_path):
    curator = curator_for(records, facts)
    with pytest.raises(ConfigError, match="at least one question"):
        curator.votes_together((), curator.appoint(3, begin, batch_size=4), say, {})
    keeping = curator_for(records, facts, kept=KeptAnswers(tmp_path))
    with pytest.raises(ConfigError, match="not kept"):
        keeping.votes_together((COUNTS, LEAD), keeping.appoint(3, begin, batch_size=4), say, {})
