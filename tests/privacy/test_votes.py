import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import facts_for, records_for, resized, without

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
from privset.privacy.ledger import read
from privset.privacy.votes import tallied

FREE = PrivacyBudget(epsilon=math.inf)
QUESTIONS = {
    "vectors": VotesQuestion(kind="vectors", bound=0.7, noise_multiplier=2.0),
    "choices": VotesQuestion(kind="choices", histograms=6, noise_multiplier=2.0),
    "lead": VotesQuestion(kind="lead", histograms=6, noise_multiplier=2.0),
}
GROUP = (*QUESTIONS.values(), VotesQuestion(kind="vectors", bound=5.0, noise_multiplier=3.0))
"""All of them, and one of a kind that is there already, with another bound."""
SAID = (2, 3, 5)
"""What one ward says in these tests: six histograms of five bins."""


def begin(numbers):
    return {"w": torch.zeros(len(numbers), *SAID)}


def learn(state, images, labels, public):
    """From the records alone, loud, and different with every other record."""
    return {"w": 1e3 * torch.sin(37 * images.mean() + torch.arange(30.0).view(SAID) * (1 + labels.sum()))}


def say(state, public):
    return state["w"]


def curator_for(records, facts, budget=FREE, path=None, seed=0, **more):
    return Curator(records, facts, Ledger(budget, path), seeded_noise(seed), **more)


def clean(question):
    return VotesQuestion(kind=question.kind, bound=question.bound, histograms=question.histograms, noise_multiplier=0.0)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([0.0, 1e-3, 1.0, 1e6, 1e30, math.nan, math.inf]),
    wards=st.integers(1, 6),
)
def test_whatever_one_ward_says_moves_each_answer_by_its_sensitivity_at_most(seed, size, wards):
    generator = torch.Generator().manual_seed(seed)
    before = 3 * torch.randn(wards, *SAID, generator=generator)
    after = before.clone()
    after[seed % wards] = size * torch.randn(SAID, generator=generator)
    parts = [after[:1], after[1:]] if wards > 1 else [after]
    answers = zip(GROUP, tallied(GROUP, [before]), tallied(GROUP, parts), strict=True)
    for question, (clean, _), (other, _) in answers:
        assert float((clean - other).norm()) <= question.sensitivity * (1 + 1e-6)


def test_votes_are_added_up_in_float64_from_part_to_part():
    for total, _ in tallied(GROUP, [torch.ones(1, *SAID)] * 3):
        assert total.dtype == torch.float64


def test_the_sensitivities_are_reached():
    ahead, behind = torch.zeros(1, *SAID), torch.zeros(1, *SAID)
    ahead[..., 0], behind[..., 1] = 5.0, 5.0
    others = torch.zeros(2, *SAID)
    others[..., 0] = 1.0
    for kind, question in QUESTIONS.items():
        one, two = (ahead, -ahead) if kind == "vectors" else (ahead, behind)
        ((before, _),), ((after, _),) = (tallied((question,), [torch.cat([others, said])]) for said in (one, two))
        assert float((before - after).norm()) == pytest.approx(question.sensitivity, rel=1e-6)


def test_sensitivities_are_those_of_the_proof():
    assert QUESTIONS["vectors"].sensitivity == pytest.approx(1.4)
    assert QUESTIONS["choices"].sensitivity == pytest.approx(math.sqrt(12))
    assert QUESTIONS["lead"].sensitivity == pytest.approx(math.sqrt(6))


@pytest.mark.parametrize("kind", QUESTIONS)
def test_one_record_moves_the_clean_answer_by_the_sensitivity_at_most(kind):
    # The last record is left out, so that the others draw the same shards from the same seed.
    facts, question, moved = facts_for(30), QUESTIONS[kind], []
    for seed in range(12):
        records, answers = records_for(facts, seed), []
        for some in (records, without(records, 29)):
            curator = curator_for(some, resized(facts, len(some)), seed=seed)
            wards = curator.appoint(8, begin, batch_size=3)
            curator.teach(wards, learn, {})
            curator.teach(wards, learn, {})
            answers.append(curator.votes(clean(question), wards, say, {}))
        moved.append(float((answers[0] - answers[1]).norm()))
    assert max(moved) <= question.sensitivity * (1 + 1e-5)
    assert max(moved) > 0.4 * question.sensitivity


def test_choices_count_wards_and_lead_is_the_largest_count(facts, records):
    curator = curator_for(records, facts)
    wards = curator.appoint(9, begin, batch_size=4)
    curator.teach(wards, learn, {})
    counts = curator.votes(clean(QUESTIONS["choices"]), wards, say, {})
    assert counts.shape == SAID
    assert counts.sum(-1).unique().tolist() == [9.0]
    lead = curator.votes(clean(QUESTIONS["lead"]), wards, say, {})
    assert torch.equal(lead, counts.amax(-1))


@pytest.mark.parametrize("kind", QUESTIONS)
def test_the_noise_is_normal_with_the_stated_deviation(kind, facts, records):
    question = QUESTIONS[kind]
    curator = curator_for(records, facts)
    wards = curator.appoint(5, begin, batch_size=4)
    exact = curator.votes(clean(question), wards, say, {})
    residues = torch.stack([curator.votes(question, wards, say, {}) - exact for _ in range(150)])
    scaled = residues / (question.noise_multiplier * question.sensitivity)
    assert float(scaled.std()) == pytest.approx(1, abs=5 / math.sqrt(2 * scaled.numel()))
    assert float(scaled.mean()) == pytest.approx(0, abs=5 / math.sqrt(scaled.numel()))


def test_an_answer_is_charged_before_a_ward_is_heard_and_past_the_budget_none_is(facts, records, tmp_path):
    path, heard = tmp_path / "ledger.jsonl", []

    def listening(state, public):
        heard.append(read(path)[1] if path.exists() else ())
        return state["w"]

    question = QUESTIONS["vectors"]
    dear = VotesQuestion(kind="vectors", bound=0.7, noise_multiplier=0.5)
    curator = curator_for(records, facts, PrivacyBudget(epsilon=5.0), path)
    wards = curator.appoint(3, begin, batch_size=4)
    curator.votes(question, wards, listening, {})
    assert heard == [(), (question.event(1),)]  # first a ward that has learned nothing, which is no one's
    with pytest.raises(BudgetExceeded):
        curator.votes(dear, wards, listening, {})
    assert len(heard) == 2  # rehearsed before, and no one else was heard
    assert read(path)[1] == (question.event(1),)


@pytest.mark.parametrize(
    "saying",
    [
        lambda state, public: state["w"].half(),
        lambda state, public: state["w"].argmax(-1),
        lambda state, public: state["w"].sum(),
    ],
    ids=["half", "integers", "scalar"],
)
def test_what_cannot_be_bounded_is_refused_before_it_is_charged(facts, records, saying):
    curator = curator_for(records, facts)
    wards = curator.appoint(3, begin, batch_size=4)
    with pytest.raises(ConfigError, match="would not be bounded"):
        curator.votes(QUESTIONS["vectors"], wards, saying, {})
    with pytest.raises(ConfigError, match="choose in 2 histograms, but the question is about 6"):
        curator.votes(QUESTIONS["choices"], wards, lambda state, public: state["w"].flatten(1), {})
    assert curator._ledger.events == ()


def changing(form):
    """Says what can be bounded, until a public value of the same form tells it to say something else."""
    return lambda state, public: form(state["w"]) if public["now"] > 0 else state["w"]


@pytest.mark.parametrize(
    ("kind", "form", "complaint"),
    [
        ("vectors", lambda said: said.half(), "would not be bounded"),
        ("choices", lambda said: said[:1], "choose in"),
        ("lead", lambda said: torch.cat([said, said]), "choose in"),
    ],
)
def test_what_passes_the_rehearsal_only_is_not_answered(facts, records, kind, form, complaint):
    curator = curator_for(records, facts)
    wards = curator.appoint(3, begin, batch_size=4)
    saying = changing(form)
    curator.votes(QUESTIONS[kind], wards, saying, {"now": torch.tensor(0.0)})
    with pytest.raises(ConfigError, match=complaint):
        curator.votes(QUESTIONS[kind], wards, saying, {"now": torch.tensor(1.0)})


def test_wards_that_are_not_finite_count_as_nothing_and_are_tallied(facts, records):
    tally = Tally()
    curator = curator_for(records, facts, tally=tally)
    wards = curator.appoint(
        4, lambda numbers: {"w": torch.tensor([[1.0, 2.0 if n else math.nan] for n in numbers])}, batch_size=2
    )
    vectors = VotesQuestion(kind="vectors", bound=100.0, noise_multiplier=0.0)
    choices = VotesQuestion(kind="choices", histograms=1, noise_multiplier=0.0)
    assert curator.votes(vectors, wards, say, {}).tolist() == [3.0, 6.0]
    assert curator.votes(choices, wards, say, {}).tolist() == [0.0, 3.0]
    assert tally.not_finite == 2


def test_votes_are_not_kept(facts, records, tmp_path):
    curator = curator_for(records, facts, kept=KeptAnswers(tmp_path))
    wards = curator.appoint(4, begin, batch_size=2)
    with pytest.raises(ConfigError, match="not kept"):
        curator.votes(QUESTIONS["vectors"], wards, say, {})


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"kind": "vectors"}, "have a bound"),
        ({"kind": "vectors", "histograms": 3}, "have a bound"),
        ({"kind": "choices", "bound": 1.0}, "number of histograms"),
        ({"kind": "vectors", "bound": 1.0, "histograms": 3}, "have a bound"),
        ({"kind": "vectors", "bound": 1e9}, "between 1e-6 and 1e6"),
        ({"kind": "lead", "histograms": 0}, "at least one histogram"),
    ],
)
def test_a_question_without_its_bound_is_refused(fields, complaint):
    with pytest.raises(ConfigError, match=complaint):
        VotesQuestion(noise_multiplier=1.0, **fields)
