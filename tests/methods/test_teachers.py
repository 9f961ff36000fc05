import dataclasses
import math

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for
from torch.utils._python_dispatch import TorchDispatchMode

from privset.errors import BudgetError, ConfigError
from privset.facts import scale
from privset.methods import DataLens, DataLensConfig, GPate, GPateConfig, GsWgan, teachers
from privset.methods.drawing import drawn, even_labels, settled
from privset.methods.lessons import Lessons
from privset.methods.teachers import claimed_epsilon, discriminator_of, teaching, wishes
from privset.networks.adversaries import ConditionalDcgan, ConditionalDiscriminator
from privset.networks.critics import Critic
from privset.observer import Observer
from privset.privacy import Curator, GaussianEvent, Ledger, PrivacyBudget, seeded_noise, spend

FACTS = facts_for(40)
CONFIG = TINY["datalens"]
METHODS = {"g-pate": GPate, "datalens": DataLens}


def test_one_teacher_for_every_fifteen_records_unless_told():
    assert GPateConfig(steps=1).teachers_for(facts_for(60_000)) == 4000
    assert GPateConfig(steps=1).teachers_for(facts_for(3)) == 1
    assert GPateConfig(steps=1, teachers=7).teachers_for(facts_for(60_000)) == 7


@pytest.mark.parametrize("name", METHODS)
def test_given_noise_asks_for_as_many_steps_as_the_budget_pays_for(name):
    config = dataclasses.replace(TINY[name], steps=None, sigma=300.0)
    budget = PrivacyBudget(epsilon=2.0)
    method = METHODS[name](config)
    plan = method.plan(FACTS, budget)
    (question, *_) = method._questions(FACTS, plan.noise_multiplier)
    assert question.noise_multiplier * question.sensitivity == pytest.approx(300)
    assert len({event.count for event in plan.events}) == 1
    more = [dataclasses.replace(event, count=event.count + 1) for event in plan.events]
    assert plan.epsilon <= 2.0 < spend(more, budget.delta).best
    fewer = METHODS[name](dataclasses.replace(config, steps=plan.events[0].count - 1)).plan(FACTS, budget)
    assert fewer.epsilon < plan.epsilon


@pytest.mark.parametrize("name", METHODS)
def test_noise_that_is_too_little_or_without_need_is_refused(name):
    config = dataclasses.replace(TINY[name], steps=None, sigma=1.0)
    with pytest.raises(BudgetError, match="a single step costs epsilon"):
        METHODS[name](config).plan(FACTS, PrivacyBudget(epsilon=1.0))
    with pytest.raises(BudgetError, match="would cost epsilon"):
        METHODS[name](dataclasses.replace(config, steps=3)).plan(FACTS, PrivacyBudget(epsilon=1.0))
    with pytest.raises(ConfigError, match="without privacy there is no noise"):
        METHODS[name](config).plan(FACTS, PrivacyBudget(epsilon=math.inf))
    with pytest.raises(BudgetError, match="cannot be paid for"):
        METHODS[name](TINY[name]).plan(FACTS, PrivacyBudget(epsilon=0.01))


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"steps": None}, "give steps"),
        ({"teachers": 0}, "teachers must be at least 1"),
        ({"images": 1}, "at least 2, for batch norm"),
        ({"pretraining": -1}, "pretraining must be 0 or more"),
        ({"threshold": 1.5}, "threshold must lie in"),
        ({"sigma": 0.0}, "sigma must be a positive number"),
        ({"label_weight": 0.0}, "label-weight must be a positive number"),
        ({"generator_steps": 0}, "generator-steps must be at least 1"),
        ({"steps": 10**6}, "steps must be at most"),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields, complaint):
    for kind in (GPateConfig, DataLensConfig):
        with pytest.raises(ConfigError, match=complaint):
            kind(**{"steps": 5} | fields)


def test_a_step_of_a_teacher_is_a_step_of_adam_on_its_records_against_images_of_their_classes():
    begin, learn = teaching(CONFIG, FACTS, 3)
    state = {name: value[0] for name, value in begin(range(2)).items()}
    discriminator, random = discriminator_of(CONFIG, FACTS), torch.Generator().manual_seed(0)
    weights = {name: value.clone().requires_grad_() for name, value in discriminator.begin(3).items()}
    adam = torch.optim.Adam(weights.values(), lr=CONFIG.rate, betas=(0.5, 0.999))
    ones, zeros = torch.ones(4), torch.zeros(4)
    for taken in range(3):
        images, labels = torch.randn(4, *FACTS.shape, generator=random), torch.tensor([2, 0, 2, 1])
        made = torch.rand(3, 4, *FACTS.shape, generator=random)
        state = learn(state, images, labels, {"made": made, "taken": torch.tensor(float(taken))})
        chosen = torch.stack([made[label, place] for place, label in enumerate(labels.tolist())])
        bce = torch.nn.functional.binary_cross_entropy_with_logits
        loss = bce(discriminator(weights, scale(images, FACTS), labels), ones)
        loss = loss + bce(discriminator(weights, chosen, labels), zeros)
        adam.zero_grad()
        loss.backward()
        adam.step()
    for name, value in weights.items():
        assert torch.allclose(state[name], value, rtol=1e-3, atol=2e-5), name


def test_teachers_learn_side_by_side_as_each_does_alone():
    begin, learn = teaching(CONFIG, FACTS, 3)
    random, labels = torch.Generator().manual_seed(0), torch.tensor([[2, 0, 2, 1], [1, 1, 0, 2]])
    images = torch.randn(2, 4, *FACTS.shape, generator=random, dtype=torch.float64)
    made = torch.rand(3, 4, *FACTS.shape, generator=random, dtype=torch.float64)
    together = {name: value.double() for name, value in begin(range(2)).items()}
    alone = [{name: value[number].clone() for name, value in together.items()} for number in range(2)]
    for taken in range(3):
        public = {"made": made, "taken": torch.tensor(float(taken))}
        torch.func.vmap(lambda state, x, y, public=public: learn(state, x, y, public))(together, images, labels)
        for number in range(2):
            learn(alone[number], images[number], labels[number], public)
    for name, value in together.items():
        assert torch.allclose(value, torch.stack([one[name] for one in alone]), rtol=1e-9, atol=1e-12), name


def test_a_card_multiplies_the_matrices_of_teachers_on_its_tensor_cores(monkeypatch):
    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, call, types, given=(), named=None):
            if call.__name__.startswith(("mm", "bmm", "addmm", "convolution")):
                found.append(torch.get_float32_matmul_precision())
            return call(*given, **(named or {}))

    cores = teachers.tensor_cores
    monkeypatch.setattr(teachers, "tensor_cores", lambda _: cores(torch.device("cuda")))  # as if it were one
    begin, learn = teaching(CONFIG, FACTS, 3)
    state, found = {name: value[0] for name, value in begin(range(1)).items()}, []
    pixels, labels = torch.rand(4, *FACTS.shape, generator=torch.Generator().manual_seed(0)), torch.tensor([2, 0, 2, 1])
    with Noting():
        learn(state, pixels, labels, {"made": torch.rand(3, 4, *FACTS.shape), "taken": torch.zeros(())})
        learned = len(found)
        wishes(discriminator_of(CONFIG, FACTS), state, pixels, labels)
    assert 0 < learned < len(found)
    assert set(found) == {"high"}
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("name", METHODS)
def test_teachers_are_told_how_many_steps_they_have_taken(name):
    class Listening(Curator):
        def teach(self, wards, learn, public, *, which=None):
            told.append(float(public["taken"]))
            super().teach(wards, learn, public, which=which)

    config, budget, told = dataclasses.replace(TINY[name], pretraining=2), PrivacyBudget(epsilon=5.0), []
    method = METHODS[name](config)
    method.run(Listening(records_for(FACTS), FACTS, Ledger(budget), seeded_noise(0)), method.plan(FACTS, budget))
    assert told == list(range(2 + config.steps * config.teacher_steps))


NETWORKS = {"g-pate": ConditionalDiscriminator, "datalens": ConditionalDiscriminator, "gs-wgan": Critic}
CARD = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no graphics card"))


@pytest.mark.parametrize("name", NETWORKS)
def test_wards_begin_where_the_run_computes(name, monkeypatch):
    # To draw thousands of networks by the processor, and send them, takes longer than some runs.
    begun, kind = [], NETWORKS[name]
    function = "first_weights" if kind is Critic else "begin"
    original = getattr(kind, function)

    def watched(self, seed, device=None):
        begun.append(device)
        return original(self, seed, device)

    monkeypatch.setattr(kind, function, watched)
    method, budget = (METHODS | {"gs-wgan": GsWgan})[name](TINY[name]), PrivacyBudget(epsilon=5.0)
    method.run(Curator(records_for(FACTS), FACTS, Ledger(budget), seeded_noise(0)), method.plan(FACTS, budget))
    assert set(begun) - {None} == {torch.device("cpu")}


@pytest.mark.parametrize("device", ["cpu", CARD])
def test_first_states_lie_on_the_device_and_are_known_by_the_seed(device):
    device = torch.device(device)
    begin, _ = teaching(CONFIG, FACTS, 5, device)
    lessons = Lessons(TINY["gs-wgan"], FACTS)
    for one in (begin, lambda numbers: lessons.begin(5, numbers, device)):
        states, again = one(range(3)), one(range(2, 3))
        assert {value.device.type for value in states.values()} == {device.type}
        assert all(torch.equal(value[2:], again[name]) for name, value in states.items())
        random = [value for value in states.values() if value.is_floating_point() and value[0].unique().numel() > 1]
        assert random
        assert not any(torch.equal(value[0], value[1]) for value in random)


@pytest.mark.parametrize("norm", [True, False])
def test_teachers_that_have_learned_nothing_do_not_agree(norm):
    config = dataclasses.replace(CONFIG, teacher_norm=norm)
    begin, _ = teaching(config, FACTS, 5)
    discriminator, states = discriminator_of(config, FACTS), begin(range(200))
    later = begin(range(150, 200))
    # However many are begun at once.
    assert all(torch.equal(value[150:], later[name]) for name, value in states.items())
    pixels, labels = torch.rand(6, *FACTS.shape, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3
    said = torch.func.vmap(lambda state: wishes(discriminator, state, pixels, labels).sign())(states)
    assert float(said.mean(0).square().mean().sqrt()) < 0.2  # a coin each would have 0.07, and teachers alike 1


def test_a_question_is_about_every_class_as_often_as_can_be():
    random = torch.Generator().manual_seed(0)
    drawn = torch.stack([even_labels(8, 3, random) for _ in range(50)])
    counts = torch.stack([row.bincount(minlength=3) for row in drawn])
    assert set(counts.unique().tolist()) == {2, 3}
    assert len(drawn.unique(dim=0)) > 10


@pytest.mark.parametrize("name", METHODS)
def test_more_steps_towards_an_answer_ask_nothing_more(name):
    budget, made = PrivacyBudget(epsilon=5.0), []
    for number in (1, 4):
        method = METHODS[name](dataclasses.replace(TINY[name], generator_steps=number))
        ledger = Ledger(budget)
        plan = method.plan(FACTS, budget)
        assert plan.events == METHODS[name](TINY[name]).plan(FACTS, budget).events
        made.append(method.run(Curator(records_for(FACTS), FACTS, ledger, seeded_noise(0)), plan).images)
    assert not torch.equal(*made)


def test_wishes_point_to_what_a_teacher_takes_for_true():
    discriminator = discriminator_of(CONFIG, FACTS)
    state = discriminator.begin(0)
    pixels, labels = torch.rand(3, *FACTS.shape, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2])
    moved = pixels + 1e-2 * torch.nn.functional.normalize(
        wishes(discriminator, state, pixels, labels).flatten(1)
    ).view_as(pixels)

    def loss(some):
        return float(torch.nn.functional.softplus(-discriminator(state, some, labels)).mean())

    assert loss(moved) < loss(pixels)


def test_what_is_drawn_is_in_range_and_leaves_the_generator_as_it_is():
    generator = ConditionalDcgan(FACTS, length=CONFIG.code, seed=0, width=5, maps=2)
    generator(generator.draw(torch.arange(8) % 3, torch.Generator().manual_seed(1)))
    before = {name: value.clone() for name, value in generator.state_dict().items()}
    labels = torch.tensor([0, 0, 1, 2])
    network = settled(generator, torch.Generator().manual_seed(0))
    images = drawn(network, labels, torch.Generator().manual_seed(0))
    assert images.shape == (4, *FACTS.shape)
    assert -1 <= float(images.min()) < float(images.max()) <= 1
    assert generator.training
    assert not network.training
    assert all(torch.equal(value, before[name]) for name, value in generator.state_dict().items())


@pytest.mark.parametrize("name", METHODS)
def test_without_noise_images_move_as_the_teachers_wish(name):
    config, budget = dataclasses.replace(TINY[name], limit=1e-6), PrivacyBudget(epsilon=math.inf)
    method = METHODS[name](config)
    curator = Curator(records_for(FACTS), FACTS, Ledger(budget), seeded_noise(0))
    begin, _ = teaching(config, FACTS, 5)
    alike = begin(range(1))

    def begin_alike(numbers):  # and none has learned yet: all wish the same
        return {name: value.expand(len(numbers), *value.shape[1:]) for name, value in alike.items()}

    wards = curator.appoint(12, begin_alike, batch_size=4)
    moves = method._moves(curator, method.plan(FACTS, budget), wards, torch.Generator().manual_seed(0))
    discriminator, random = discriminator_of(config, FACTS), torch.Generator().manual_seed(1)
    pixels, labels = torch.rand(3, *FACTS.shape, generator=random), torch.tensor([0, 1, 2])
    wished = wishes(discriminator, discriminator.begin(5), pixels, labels)
    for _ in range(10):
        assert float((moves(pixels, labels) * wished).sum()) > 0


def test_it_shows_the_set_as_it_forms():
    class Watching(Observer):
        seen = 0

        def show(self, look):
            glimpse = look()
            assert glimpse.images.shape == (6, *FACTS.shape)
            self.seen += 1

    watching, method, budget = Watching(), DataLens(CONFIG), PrivacyBudget(epsilon=5.0)
    plan = method.plan(FACTS, budget)
    shown = method.run(Curator(records_for(FACTS), FACTS, Ledger(budget), seeded_noise(0)), plan, observer=watching)
    plain = method.run(Curator(records_for(FACTS), FACTS, Ledger(budget), seeded_noise(0)), plan)
    assert watching.seen == 3
    assert torch.equal(shown.images, plain.images)  # to look changes nothing


class _Stopped(Exception):  # noqa: N818 - not an error
    pass


class _Stopper(Observer):
    def step(self, count: int = 1, **values: float) -> None:
        raise _Stopped


@pytest.mark.parametrize("name", METHODS)
def test_until_teachers_have_learned_nothing_is_charged(name):
    """Nothing is asked of them before, so a run that is stopped there has cost nothing."""
    method, ledger = METHODS[name](dataclasses.replace(TINY[name], pretraining=2)), Ledger(PrivacyBudget(epsilon=5.0))
    plan = method.plan(FACTS, PrivacyBudget(epsilon=5.0))
    with pytest.raises(_Stopped):
        method.run(Curator(records_for(FACTS), FACTS, ledger, seeded_noise(0)), plan, observer=_Stopper())
    assert not ledger.events


def test_the_published_conversion_is_the_smallest_over_its_orders():
    by_hand = [0.02 * order + math.log(1e5) / (order - 1) for order in range(2, 200)]
    event = GaussianEvent(question="votes", sampling_rate=1.0, noise_multiplier=10.0, count=4)
    assert claimed_epsilon((event,), 1e-5) == pytest.approx(min(by_hand))


@pytest.mark.parametrize(("method", "what"), [(GPate, "teachers"), (DataLens, "teachers"), (GsWgan, "critics")])
def test_each_network_needs_a_record_of_its_own(method, what):
    facts, budget = facts_for(100), PrivacyBudget(epsilon=10)
    with pytest.raises(ConfigError, match=f"{what} must be at most 100, the number of records, not 101"):
        method(method.config_type(**{what: 101, "steps": 2})).plan(facts, budget)
    method(method.config_type(**{what: 100, "steps": 2})).plan(facts, budget)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("kind", [GPateConfig, DataLensConfig])
def test_all_that_is_generated_in_a_step_has_the_same_codes_where_that_was_published(kind, same):
    name = "g-pate" if kind is GPateConfig else "datalens"
    assert kind.paper().same_codes
    assert not kind.standard().same_codes
    config = dataclasses.replace(TINY[name], same_codes=same, pretraining=1, teacher_steps=2, steps=2, images=4)
    method, shown, asked = METHODS[name](config), [], []

    class Watched(Curator):
        def teach(self, wards, learn, public, *, which=None):
            shown.append(public["made"].clone())
            super().teach(wards, learn, public, which=which)

        def votes_together(self, questions, wards, say, public):
            asked.append((public["pixels"].clone(), public["labels"].clone()))
            return super().votes_together(questions, wards, say, public)

    budget = PrivacyBudget(epsilon=50.0)
    method.run(Watched(records_for(FACTS), FACTS, Ledger(budget), seeded_noise(0)), method.plan(FACTS, budget))

    first, *others = shown
    assert [torch.equal(first, other) for other in others[:2]] == [same, same]  # the generator has not learned yet
    assert not torch.allclose(first, others[2])
    assert torch.equal(others[2], others[3]) == same


def test_the_same_codes_are_those_of_every_class_and_of_the_question():
    config = dataclasses.replace(TINY["g-pate"], same_codes=True, batch_size=3, images=5, code=2)
    method, random = METHODS["g-pate"](config), torch.Generator().manual_seed(0)
    generator = method._form.build(FACTS, seed=0)

    codes, later = (method._codes(generator, 3, random) for _ in range(2))

    lessons, question = codes(torch.arange(3).repeat_interleave(3), 3), codes(torch.tensor([2, 0, 1, 1, 2]), 5)
    assert torch.equal(lessons[:, :2].view(3, 3, 2), question[:3, :2].expand(3, 3, 2))
    assert torch.equal(lessons[:, 2:].argmax(1), torch.arange(3).repeat_interleave(3))
    assert question[:, 2:].argmax(1).tolist() == [2, 0, 1, 1, 2]
    assert len(question[:, :2].unique(dim=0)) == 5
    assert not torch.equal(later(torch.tensor([2, 0, 1, 1, 2]), 5), question)
