import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import facts_for, records_for, resized, without

from privset.data import Records
from privset.errors import ConfigError
from privset.privacy import BudgetExceeded, Curator, Ledger, PrivacyBudget, PullbackQuestion, Tally, seeded_noise
from privset.privacy.noise import NoiseSource
from privset.privacy.pullback import places_for, shortened_sum
from privset.privacy.sampling import fixed_sample, poisson_sample, seated

FREE = PrivacyBudget(epsilon=math.inf)


def curator_for(records, facts, budget=FREE, seed=0, tally=None):
    return Curator(records, facts, Ledger(budget), seeded_noise(seed), tally=tally)


def clean(rate=1.0, clip_norm=0.5, **options):
    return PullbackQuestion(sampling_rate=rate, clip_norm=clip_norm, noise_multiplier=0.0, **options)


def images(count=4, seed=0):
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def slope_of(loss):
    """The pull of a loss."""

    def pull(generated, *others):
        leaf = generated.detach().requires_grad_()
        return torch.autograd.grad(loss(leaf, *others), leaf)[0]

    return pull


@slope_of
def nearest(generated, records, labels, weights):
    """A loss in which records compete, so that one of them changes what the others do."""
    distances = torch.cdist(generated.flatten(1), records.flatten(1)) + 1e9 * (weights == 0)
    return distances.amin(1).sum() + (weights * labels).sum() * generated.sum()


@slope_of
def by_majority(generated, records, labels, weights):
    """The worst there is: one record turns the whole gradient around."""
    side = 1.0 if int((weights > 0).sum()) % 2 else -1.0
    return side * generated.sum()


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 100),
    index=st.integers(0, 9),
    clip_norm=st.sampled_from([0.01, 0.5, 20.0]),
    each_image=st.booleans(),
)
def test_one_record_moves_an_answer_by_at_most_twice_the_clip_norm_over_all_images(seed, index, clip_norm, each_image):
    facts = facts_for(10)
    records, generated = records_for(facts, seed), images(seed=seed)
    question = clean(clip_norm=clip_norm, each_image=each_image)
    for loss in (nearest, by_majority):
        before = curator_for(records, facts).pullback(question, loss, generated)
        after = curator_for(without(records, index), resized(facts, 9)).pullback(question, loss, generated)
        assert float(before.norm()) <= clip_norm * (1 + 1e-6)
        assert float((before - after).norm()) <= question.sensitivity * (1 + 1e-6)
    # And no smaller bound would do.
    if clip_norm < 1:
        assert float((before - after).norm()) == pytest.approx(question.sensitivity, rel=1e-5)


def test_the_noise_has_the_stated_deviation_on_every_image(facts, records):
    question = PullbackQuestion(sampling_rate=1.0, clip_norm=0.5, noise_multiplier=3.0)
    curator, generated = curator_for(records, facts), images()
    truth = curator.pullback(clean(), nearest, generated)
    answers = torch.stack([curator.pullback(question, nearest, generated) for _ in range(40)])
    residues = (answers - truth) / (3.0 * 2 * 0.5)
    for part in residues.unbind(1):
        assert float(part.std()) == pytest.approx(1.0, abs=5 / math.sqrt(2 * part.numel()))
    assert float(residues.mean()) == pytest.approx(0.0, abs=5 / math.sqrt(residues.numel()))
    assert float((residues[0] * residues[1]).mean().abs()) < 5 / math.sqrt(residues[0].numel())


def test_a_short_gradient_stays_as_it_is_and_a_long_one_keeps_its_direction(facts, records):
    @slope_of
    def loss(generated, records, labels, weights):
        return (weights[:, None] * records.flatten(1)).sum(0) @ generated.flatten(1).sum(0)

    curator, generated = curator_for(records, facts), images()
    whole = curator.pullback(clean(clip_norm=1e5), loss, generated)
    short = curator.pullback(clean(clip_norm=0.1), loss, generated)
    mean = (records.images.float() / 255 - 0.5).div(0.5).mean(0)
    assert torch.allclose(whole, mean.expand_as(whole), atol=1e-5)
    assert float(short.norm()) == pytest.approx(0.1, rel=1e-6)
    assert torch.allclose(short / short.norm(), whole / whole.norm(), atol=1e-5)


def test_records_that_were_not_drawn_are_not_there_and_the_shape_tells_nothing(facts, records):
    seen = []

    @slope_of
    def loss(generated, records, labels, weights):
        seen.append((records.clone(), labels.clone(), weights.clone()))
        return (generated * records.sum()).sum()

    curator, question = curator_for(records, facts), clean(rate=0.2)
    for _ in range(30):
        curator.pullback(question, loss, images())
    everyone = (records.images.float() / 255 - 0.5) / 0.5
    sizes = set()
    for shown, labels, weights in seen:
        drawn = weights > 0
        assert shown.shape == (places_for(40, 0.2), 1, 8, 8)
        assert float(weights.sum()) == pytest.approx(1.0, abs=1e-6)
        assert not shown[~drawn].any()
        assert not labels[~drawn].any()
        assert torch.cdist(shown[drawn].flatten(1), everyone.flatten(1)).amin(1).max() < 0.02
        sizes.add(int(drawn.sum()))
    assert len(sizes) > 3


def test_every_record_is_drawn_as_often_as_is_charged_and_by_itself(facts, records):
    rate, times, seen = 0.2, 400, []

    @slope_of
    def loss(generated, records, labels, weights):
        seen.append(records[weights > 0].flatten(1))
        return generated.sum()

    curator = curator_for(records, facts)
    for _ in range(times):
        curator.pullback(clean(rate=rate), loss, images())
    everyone = ((records.images.float() / 255 - 0.5) / 0.5).flatten(1)
    drawn = torch.stack([torch.cdist(everyone, shown).amin(1) < 0.02 for shown in seen if len(shown)]).double()
    drawn = torch.cat([drawn, drawn.new_zeros(times - len(drawn), len(everyone))])
    of_one = math.sqrt(rate * (1 - rate) / times)
    assert float((drawn.mean(0) - rate).abs().max()) < 5 * of_one
    assert float(drawn.mean()) == pytest.approx(rate, abs=5 * of_one / math.sqrt(len(everyone)))
    # As many as independent coins give: not always the same number, nor all or none.
    counts = drawn.sum(1)
    assert float(counts.var()) == pytest.approx(rate * (1 - rate) * len(everyone), rel=0.4)


def test_a_label_that_was_not_drawn_is_not_there_either(facts, records):
    labelled = Records(records.images, torch.full_like(records.labels, 2))

    @slope_of
    def loss(generated, records, labels, weights):
        return generated.sum() * (labels[weights == 0] != 0).sum()

    curator = curator_for(labelled, facts)
    for _ in range(10):
        assert not curator.pullback(clean(rate=0.2), loss, images()).any()


class CardNoise(NoiseSource):
    """Draws on a processor what a graphics card would draw."""

    def normals(self, count, device):
        return self.counted.normals(count, device)


def drawn_as_on_a_card(source, size, rate, places, device):
    return seated(source.chosen(size, rate, device), places)


class Walk:
    """Images that follow the answers, in place; all answers are kept."""

    def __init__(self, device="cpu"):
        self.images, self.at = images().to(device), torch.zeros(1, dtype=torch.int64, device=device)
        self.answers = torch.zeros(40, *self.images.shape, device=device)

    def make(self):
        return (self.images,)

    def learn(self, answer):
        self.answers.index_copy_(0, self.at, answer[None])
        self.images -= 0.1 * answer
        self.at += 1

    @property
    def tensors(self):
        return self.images, self.at, self.answers


def questions(noise=0.1):
    return [PullbackQuestion(sampling_rate=0.2, clip_norm=clip, noise_multiplier=noise) for clip in (0.5, 2.0, 0.5)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card")
@pytest.mark.parametrize("noise", [0.0, 0.7])
def test_answers_on_a_card_are_those_of_a_processor_for_the_same_samples(facts, records, monkeypatch, noise):
    """The first are written, the others played back: each on a sample and with noise of its own."""
    monkeypatch.setattr("privset.privacy.pullback.seated_sample", drawn_as_on_a_card)
    walks = []
    for device in ("cpu", "cuda"):
        curator, walk = Curator(records, facts, Ledger(FREE), CardNoise(0), device=device), Walk(device)
        for question in questions(noise):
            for steps in (1, 4):
                curator.train_by_pullback(question, nearest, walk.make, walk.learn, steps=steps)
        walks.append(walk)
    ours, theirs = (walk.answers.cpu() for walk in walks)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    assert int((ours.flatten(1).norm(dim=1) > 0).sum()) == 15


def test_what_is_played_back_has_a_sample_and_noise_of_its_own_each_time(facts, records, monkeypatch, stand_in):
    """Of several questions in turn; and again, from where the noise was moved to."""
    monkeypatch.setattr("privset.privacy.pullback.seated_sample", drawn_as_on_a_card)
    walks, ends = [], []
    for way in (lambda step, *_: step, stand_in):
        monkeypatch.setattr("privset.privacy.pullback.recorded", way)
        noise, walk = CardNoise(3), Walk()
        stand_in.unmoved = walk.tensors
        curator = Curator(records, facts, Ledger(FREE), noise)

        def train(question, steps, curator=curator, walk=walk):
            curator.train_by_pullback(question, nearest, walk.make, walk.learn, steps=steps)

        for asked in questions():
            train(asked, 6)
            train(asked, 3)
        question = questions()[-1]
        before, stood = noise.state(), walk.images.clone()
        train(question, 1)
        noise.restore(before)
        walk.images.copy_(stood)
        train(question, 1)
        assert torch.equal(walk.answers[int(walk.at) - 1], walk.answers[int(walk.at) - 2])
        noise.restore(CardNoise(4).state())
        train(question, 2)
        walks.append(walk)
        ends.append(noise.state())
    for ours, theirs in zip(*(walk.tensors for walk in walks), strict=True):
        assert torch.equal(ours, theirs)
    assert ends[0] == ends[1]
    assert stand_in.replays > 20
    different = {tuple(answer.flatten().tolist()) for answer in walks[1].answers[:31]}
    assert int(walks[1].at) == 31
    assert len(different) == 30


def test_each_answer_is_given_before_the_next_is_asked_for(facts, records):
    """As many as one by one, each to what the last one made."""
    curator, walk, other = curator_for(records, facts), Walk(), Walk()
    curator.train_by_pullback(questions()[0], nearest, walk.make, walk.learn, steps=4)
    one_by_one = curator_for(records, facts)
    for _ in range(4):
        other.learn(one_by_one.pullback(questions()[0], nearest, other.images.clone()))
    for ours, theirs in zip(walk.tensors, other.tensors, strict=True):
        assert torch.equal(ours, theirs)


def test_a_step_is_recorded_once_for_all_calls_with_the_same(facts, records, monkeypatch):
    given = []

    def record(step, device, generators):
        given.append(device.type)
        return step

    monkeypatch.setattr("privset.privacy.pullback.recorded", record)
    curator, walk, other = curator_for(records, facts), Walk(), Walk()
    for one in (walk, walk, walk, other):
        curator.train_by_pullback(clean(), nearest, one.make, one.learn, steps=2)
    assert given == ["cpu", "cpu"]
    assert (int(walk.at), int(other.at)) == (6, 2)


@pytest.mark.parametrize("pull", [lambda g, *_: g[:1], lambda g, *_: g.double(), lambda g, *_: g.sum()])
def test_a_pull_that_is_not_of_the_form_of_the_images_is_not_answered(facts, records, pull):
    with pytest.raises(ConfigError, match="of the form of what is generated"):
        curator_for(records, facts).pullback(clean(), pull, images())


def test_an_empty_sample_is_answered_by_noise_alone_whatever_the_loss(facts, records):
    calls = []

    @slope_of
    def loss(generated, records, labels, weights):
        calls.append(int((weights > 0).sum()))
        return generated.sum()

    curator = curator_for(records, facts)
    answers = [curator.pullback(clean(rate=0.02), loss, images()) for _ in range(30)]
    assert 0 in calls
    for count, answer in zip(calls, answers, strict=True):
        assert float(answer.norm()) == pytest.approx(0.5 if count else 0.0, abs=1e-6)


@pytest.mark.parametrize(("each_image", "left"), [(False, 0.0), (True, 0.5 * math.sqrt(3) / 2)])
def test_what_is_not_finite_counts_as_zero_and_is_told_to_the_data_holder_alone(facts, records, each_image, left):
    @slope_of
    def loss(generated, records, labels, weights):
        return (generated[0] * math.inf).sum() + generated[1:].sum()

    tally = Tally()
    answer = curator_for(records, facts, tally=tally).pullback(clean(each_image=each_image), loss, images())
    assert float(answer.norm()) == pytest.approx(left, rel=1e-6)
    assert tally.not_finite == 1


def test_a_question_past_the_budget_is_not_answered_and_no_record_is_looked_at(facts, records):
    def pull(*_):
        raise AssertionError("looked at records")

    curator, walk = curator_for(records, facts, PrivacyBudget(epsilon=1)), Walk()
    question = PullbackQuestion(sampling_rate=1.0, clip_norm=1.0, noise_multiplier=10.0)
    with pytest.raises(BudgetExceeded):
        curator.train_by_pullback(question, pull, walk.make, walk.learn, steps=100)
    curator.train_by_pullback(question, nearest, walk.make, walk.learn, steps=2)
    with pytest.raises(BudgetExceeded):
        curator.pullback(PullbackQuestion(sampling_rate=1.0, clip_norm=1.0, noise_multiplier=1.0), pull, images())
    assert int(walk.at) == 2


def test_what_could_not_be_bounded_or_is_about_others_is_refused_uncharged(facts, records):
    ledger = Ledger(FREE)
    curator = Curator(records, facts, ledger, seeded_noise(0))
    wards = curator.appoint(4, begin, batch_size=2)
    public, walk = {"fakes": images()}, Walk()

    def train(question, steps):
        curator.train_by_pullback(question, nearest, walk.make, walk.learn, steps=steps)

    for refused, sentence in (
        (lambda: curator.pullback(clean(), nearest, images().half()), "float32 or float64"),
        (lambda: curator.pullback(clean(of_wards=True), nearest, images()), "about wards"),
        (lambda: train(clean(of_wards=True), steps=1), "about wards"),
        (lambda: train(clean(), steps=0), "at least one"),
        (lambda: curator.pullback_by(clean(), wards, say, public), "about records"),
        (lambda: curator.pullback_by(clean(0.2, of_wards=True), wards, say, public), "no whole number"),
        (lambda: curator.pullback_by(clean(of_wards=True), wards, lambda s, p: s["id"].long(), public), "float32"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            refused()
    assert not ledger.events


def test_what_passes_the_rehearsal_only_is_not_answered(facts, records):
    curator = Curator(records, facts, Ledger(FREE), seeded_noise(0))
    wards = curator.appoint(4, begin, batch_size=2)

    def changing(state, public):
        said = say(state, public)
        return said.half() if public["now"] > 0 else said

    public = {"fakes": images(), "now": torch.tensor(0.0)}
    curator.pullback_by(clean(of_wards=True), wards, changing, public)
    with pytest.raises(ConfigError, match="would not be bounded"):
        curator.pullback_by(clean(of_wards=True), wards, changing, public | {"now": torch.tensor(1.0)})


def test_a_sample_that_is_made_on_a_card_gives_the_same_answers_as_one_from_the_processor(facts, records, monkeypatch):
    """The card's way, on a processor: everything after the draw is the same."""

    def by_mask(source, size, rate, places, device):
        mask = torch.zeros(size, dtype=torch.bool)
        mask[poisson_sample(source, size, rate)] = True
        return seated(mask, places)

    usual = [curator_for(records, facts, seed=seed).pullback(clean(rate=0.1), nearest, images()) for seed in range(8)]
    monkeypatch.setattr("privset.privacy.pullback.seated_sample", by_mask)
    other = [curator_for(records, facts, seed=seed).pullback(clean(rate=0.1), nearest, images()) for seed in range(8)]
    assert any(bool(answer.any()) for answer in usual)
    for ours, theirs in zip(other, usual, strict=True):
        assert torch.equal(ours, theirs)


def begin(numbers):
    return {"id": torch.tensor([float(n) for n in numbers]), "taught": torch.zeros(len(numbers))}


def learn(state, images, labels, public):
    return {"id": state["id"], "taught": state["taught"] + 1}


def say(state, public):
    """A direction of its own for every ward, as long as 1 for each image."""
    return torch.nn.functional.one_hot(state["id"].long(), 64).float().view(1, 8, 8).expand_as(public["fakes"])


@pytest.mark.parametrize("asked", [1, 3])
def test_as_many_wards_as_charged_take_part_each_as_often_as_any_other(facts, records, asked):
    curator = curator_for(records, facts)
    wards = curator.appoint(10, begin, batch_size=2)
    question = clean(asked / 10, clip_norm=2.0, of_wards=True, each_image=True)
    answers = torch.stack([curator.pullback_by(question, wards, say, {"fakes": images()}) for _ in range(200)])
    heard = answers[:, 0].flatten(1)[:, :10]
    assert torch.allclose(heard.sum(1), torch.full((200,), float(asked)))
    assert torch.equal(heard, heard.round())
    share, drawn = asked / 10, heard.mean(0)
    assert float((drawn - share).abs().max()) < 5 * math.sqrt(share * (1 - share) / 200)


def test_all_wards_are_added_up_each_shortened_by_itself(facts, records):
    curator = curator_for(records, facts)
    wards = curator.appoint(10, begin, batch_size=2)
    public = {"fakes": images()}
    for each_image in (False, True):
        question = clean(clip_norm=0.5, of_wards=True, each_image=each_image)
        answer = curator.pullback_by(question, wards, say, public)
        assert torch.allclose(answer[0].flatten()[:10], torch.full((10,), 0.5 / math.sqrt(4)))


def test_noise_on_what_wards_say_has_the_stated_deviation(facts, records):
    curator = curator_for(records, facts)
    wards = curator.appoint(5, begin, batch_size=2)
    question = PullbackQuestion(sampling_rate=0.2, clip_norm=0.1, noise_multiplier=50.0, of_wards=True)
    answers = torch.stack([curator.pullback_by(question, wards, say, {"fakes": images()}) for _ in range(20)])
    assert float(answers.std()) == pytest.approx(10.0, rel=5 / math.sqrt(2 * answers.numel()))


def test_only_the_wards_of_the_given_numbers_are_taught(facts):
    facts = facts_for(200)
    curator = curator_for(records_for(facts), facts)
    wards = curator.appoint(4, begin, batch_size=2)
    curator.teach(wards, learn, {}, which=torch.tensor([1, 3]))
    curator.teach(wards, learn, {}, which=torch.tensor([3]))

    def lessons(state, public):
        return (say(state, public) * state["taught"]).clone()

    answer = curator.pullback_by(clean(clip_norm=100.0, of_wards=True), wards, lessons, {"fakes": images()})
    assert answer[0].flatten()[:4].tolist() == [0.0, 1.0, 0.0, 2.0]


def test_one_record_moves_what_wards_say_by_at_most_twice_the_clip_norm():
    facts = facts_for(30)
    records = records_for(facts)

    def remember(state, images, labels, public):
        # Of all records of the shard, whatever their order: it fits into a batch.
        return {"id": state["id"], "taught": images.mean((1, 2, 3)).amax()}

    def opinion(state, public):
        return torch.sign(torch.sin(1e6 * state["taught"])) * torch.ones_like(public["fakes"])

    def answer(records, facts, seed):
        curator = curator_for(records, facts, seed=seed)
        wards = curator.appoint(5, begin, batch_size=30)
        curator.teach(wards, remember, {})
        return curator.pullback_by(clean(clip_norm=0.5, of_wards=True), wards, opinion, {"fakes": images()})

    last = resized(facts, 29)
    moved = [
        float((answer(records, facts, seed) - answer(without(records, 29), last, seed)).norm()) for seed in range(20)
    ]
    assert max(moved) == pytest.approx(2 * 0.5, rel=1e-6)


def test_a_sum_of_shortened_gradients_is_bounded_in_each_part():
    wild = torch.randn(5, 4, 3) * torch.tensor([1e-3, 1.0, 1e3, 1e6, math.inf])[:, None, None]
    total, bad = shortened_sum(wild, 2.0, each_image=False)
    rest, _ = shortened_sum(wild[1:], 2.0, each_image=False)
    assert int(bad) == 1
    assert total.dtype == torch.float64
    assert float((total - rest).norm()) <= 2.0
    assert bool(total.isfinite().all())


@given(size=st.integers(1, 12), seed=st.integers(0, 1000), data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_fixed_sample_has_that_many_different_numbers(size, seed, data):
    count = data.draw(st.integers(1, size))
    drawn = fixed_sample(seeded_noise(seed), size, count).tolist()
    assert len(set(drawn)) == count
    assert drawn == sorted(drawn)
    assert set(drawn) <= set(range(size))
