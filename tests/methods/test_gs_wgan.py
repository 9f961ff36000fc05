import contextlib
import dataclasses
import math

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for

import privset
from privset import recording
from privset.data import Dataset
from privset.errors import BudgetError, ConfigError, ReleaseError
from privset.facts import normalise
from privset.methods import Execution, gs_wgan
from privset.methods import lessons as lessons_of_critics
from privset.methods.claim import REPLACE
from privset.methods.gs_wgan import GsWgan, GsWganConfig, claimed_epsilon
from privset.methods.lessons import Lessons
from privset.methods.replay import Replay
from privset.networks.critics import Critic
from privset.networks.generator_forms import GeneratorForm
from privset.networks.residual import ResidualGenerator
from privset.observer import Observer
from privset.privacy import Curator, GaussianEvent, Ledger, PrivacyBudget, calibrate, seeded_noise, spend
from privset.release import replanning

FREE = PrivacyBudget(epsilon=math.inf)
MNIST = facts_for(60_000, classes=10, side=28, name="mnist")
PUBLISHED = 1.07 / math.sqrt(32)
"""The published noise over what one record can do to the gradients of all 32 images."""


def in_secret(noise, count):
    return GaussianEvent(
        question="pullback", sampling_rate=1 / 1000, noise_multiplier=noise, count=count, sampling="without-replacement"
    )


def test_the_published_settings_are_claimed_to_cost_ten_and_cost_hundreds():
    asked = in_secret(PUBLISHED, 20_000)
    claim = GsWgan(GsWganConfig.paper()).claim(MNIST, (asked,), 1e-5)
    assert claim.epsilon == claimed_epsilon((asked,), 32, 1e-5) == pytest.approx(9.99, abs=0.01)
    assert claim.unsound is not None
    assert "the same critics answer for all" in claim.unsound
    assert claim.relation == REPLACE
    assert spend([asked], 1e-5).best == pytest.approx(386, abs=0.5)
    assert "9.99; proven is 386" in GsWgan.claims
    # In turn, in public: a record takes part in 20 of the answers, and those compose exactly.
    in_turn = GaussianEvent(question="pullback", sampling_rate=1.0, noise_multiplier=PUBLISHED, count=20)
    assert spend([in_turn], 1e-5).rdp == pytest.approx(390, abs=0.5)


def test_at_epsilon_ten_drawing_in_secret_needs_less_noise_than_asking_in_turn():
    budget = PrivacyBudget(epsilon=10)
    drawn = calibrate(lambda noise: [in_secret(noise, 20_000)], budget)
    in_turn = 0.4999 * math.sqrt(20)  # exactly: a Gaussian mechanism of epsilon 10, 20 times
    assert in_turn / drawn == pytest.approx(4.4, abs=0.05)


def test_the_question_is_measured_against_the_gradients_of_all_images_together():
    config = GsWganConfig.paper()
    question = GsWgan(dataclasses.replace(config, noise_multiplier=PUBLISHED))._question(PUBLISHED)
    assert question.event(20_000) == in_secret(PUBLISHED, 20_000)
    # In units of one image's gradient that is the published deviation, 2 * 1.07.
    assert question.noise_multiplier * question.sensitivity == pytest.approx(2 * 1.07)


def test_the_published_noise_is_refused_at_the_epsilon_it_is_claimed_for():
    method = GsWgan(dataclasses.replace(GsWganConfig.paper(), noise_multiplier=PUBLISHED))
    with pytest.raises(BudgetError, match=r"would cost epsilon 385\.9"):
        method.plan(MNIST, PrivacyBudget(epsilon=10))


def test_the_paper_preset_has_the_published_noise_where_the_budget_covers_it():
    assert GsWganConfig.paper(epsilon=385.5).noise_multiplier is None
    assert GsWganConfig.paper(epsilon=math.inf).noise_multiplier is None
    method = GsWgan(GsWgan.preset("paper", per_class=1, epsilon=386))
    plan = method.plan(MNIST, PrivacyBudget(epsilon=386))
    assert plan.events == (in_secret(PUBLISHED, 20_000),)
    assert 385 < plan.epsilon < 386
    assert plan.claim is not None
    assert plan.claim.epsilon < 10


def test_where_all_critics_are_asked_the_claim_is_that_of_a_gaussian_mechanism_and_not_called_unsound():
    """As many answers with that much more noise each are one answer: then taking images apart changes nothing."""
    asked = GaussianEvent(question="pullback", sampling_rate=1.0, noise_multiplier=20.0, count=100)
    claim = GsWgan(GsWganConfig()).claim(MNIST, (asked,), 1e-5)
    by_hand = min(order * 100 / (2 * 20.0**2) + math.log(1e5) / (order - 1) for order in range(2, 33))
    assert claim.epsilon == pytest.approx(by_hand, rel=1e-6)
    assert claim.unsound is None
    assert claim.sentence().endswith("Its relation is another one: do not compare the two.")


def test_asking_all_critics_is_one_exact_gaussian_mechanism():
    plan = GsWgan(GsWganConfig()).plan(MNIST, PrivacyBudget(epsilon=10))
    (event,) = plan.events
    assert (event.sampling_rate, event.sampling) == (1.0, "poisson")
    assert event.noise_multiplier / math.sqrt(event.count) == pytest.approx(0.4999, rel=1e-3)


@pytest.mark.parametrize("shallow", [False, True])
def test_a_critic_learns_to_tell_records_from_generated_images_and_points_to_them(shallow):
    facts = facts_for(40, classes=2)
    config = dataclasses.replace(TINY["gs-wgan"], critic_width=4, critic_rate=5e-3, shallow=shallow)
    lessons = Lessons(config, facts)
    state = {name: value[0] for name, value in lessons.begin(0, range(1)).items()}
    bright, labels = torch.ones(16, 1, 8, 8), torch.arange(16) % 2
    pool = -torch.ones(2, 4, 1, 8, 8)
    torch.manual_seed(0)
    for number in range(40):
        state = lessons.learn(state, bright, labels, {"pool": pool, "taken": torch.tensor(float(number))})
    slope = lessons.say(state, {"fakes": torch.zeros(3, 1, 8, 8), "labels": torch.tensor([0, 1, 0])})
    assert float(slope.mean()) < 0  # down this slope images become brighter
    lengths = slope.flatten(1).norm(dim=1)
    assert bool(((lengths > 0.3) & (lengths < 3)).all())  # the penalty holds them near 1


def test_the_adam_of_a_critic_is_that_of_torch(monkeypatch):
    """Slopes that do not depend on the weights, so that both see the same ones."""
    facts = facts_for(40, classes=2)
    lessons = Lessons(dataclasses.replace(TINY["gs-wgan"], critic_rate=1e-2), facts)
    state = {name: value[0] for name, value in lessons.begin(3, range(1)).items()}
    names = ("conv 1", "classes", "bias")
    expected = [state[name].clone().requires_grad_() for name in names]
    optimiser = torch.optim.Adam(expected, lr=1e-2, betas=(0.5, 0.9))
    images, labels = torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 1, 0])
    given = [{name: torch.randn(state[name].shape) for name in lessons._critic.shapes} for _ in range(4)]
    for number, slopes in enumerate(given):
        monkeypatch.setattr(lessons, "_slopes", lambda *_, slopes=slopes: slopes)
        public = {"pool": images[:2, None], "taken": torch.tensor(float(number))}
        before = {name: value.clone() for name, value in lessons._critic.directions(state).items()}
        state = lessons.learn(state, images, labels, public)
        followed = lessons._critic.followed(state | before)  # by the weights after the step
        torch.testing.assert_close(lessons._critic.directions(state), followed)
        for weight, name in zip(expected, names, strict=True):
            weight.grad = slopes[name]
        optimiser.step()
    for weight, name in zip(expected, names, strict=True):
        torch.testing.assert_close(state[name], weight.detach())


@pytest.mark.parametrize(("critics", "taught"), [(4, 2), (5, 2), (3, 3)])
def test_critics_that_learn_together_have_taken_as_many_steps_as_adam_is_told(critics, taught):
    facts, config = facts_for(40), dataclasses.replace(TINY["gs-wgan"], critics=critics, taught=taught)
    method = GsWgan(dataclasses.replace(config, steps=8, critic_steps=2, warm_up=3))
    taken = [0] * critics

    class Watched(Curator):
        def teach(self, wards, learn, public, *, which=None):
            for number in range(critics) if which is None else which.tolist():
                assert taken[number] == int(public["taken"])
                taken[number] += 1
            super().teach(wards, learn, public, which=which)

    method.run(Watched(records_for(facts), facts, Ledger(FREE), seeded_noise(0)), method.plan(facts, FREE))
    assert min(taken) >= 5  # after the warm-up all of them had a turn


@pytest.mark.parametrize("shallow", [False, True])
def test_the_generator_follows_the_answers(shallow):
    facts = facts_for(40, classes=2)
    wanted = torch.tensor([-0.8, 0.8]).view(2, 1, 1, 1)

    class Guide(Curator):
        """Says the way to a grey for each class, and teaches no one."""

        def teach(self, wards, learn, public, *, which=None):
            pass

        def pullback_by(self, question, wards, say, public):
            return public["fakes"] - wanted[public["labels"]]

    config = dataclasses.replace(
        TINY["gs-wgan"], per_class=3, steps=80, batch_size=16, width=8, rate=0.05 if shallow else 0.01
    )
    method = GsWgan(dataclasses.replace(config, shallow=shallow))
    made = method.run(Guide(records_for(facts), facts, Ledger(FREE), seeded_noise(0)), method.plan(facts, FREE))
    assert float(made.images[:3].mean()) < -0.4
    assert float(made.images[3:].mean()) > 0.4
    assert made.generator is not None
    network = made.generator.network(facts)
    codes = network.draw(torch.arange(2), torch.Generator().manual_seed(1))
    with torch.no_grad():
        as_published = network(codes)
        network.train()
        for _ in range(100):  # steps of the power method, of which none is left to do
            network(codes)
        torch.testing.assert_close(as_published, network(codes), rtol=1e-3, atol=1e-3)
    for name, value in made.generator.state.items():
        if name.endswith(("_u", "_v")):  # of spectral norm
            assert float(value.norm()) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("published", [False, True])
def test_critics_are_shown_pixels_where_that_was_published(monkeypatch, published):
    facts, seen = facts_for(40), []
    look = Critic.look

    def watched(self, state, stretches, images, labels):
        seen.append(images)
        return look(self, state, stretches, images, labels)

    monkeypatch.setattr(Critic, "look", watched)
    lessons = Lessons(dataclasses.replace(TINY["gs-wgan"], published_critics=published), facts)
    state = {name: value[0] for name, value in lessons.begin(0, range(1)).items()}
    assert (float(state["classes"].std()) == pytest.approx(1, abs=0.3)) == published
    pixels = torch.randint(0, 256, (3, 1, 8, 8), dtype=torch.uint8)
    public = {"pool": torch.rand(3, 4, 1, 8, 8), "taken": torch.zeros(())}
    lessons.learn(state, normalise(pixels, facts), torch.tensor([0, 1, 2]), public)
    torch.testing.assert_close(seen[0][:3], pixels / 255 if published else normalise(pixels, facts))
    assert len(seen) == 1  # records, images and what lies between them, together
    assert len(seen[0]) == 9


def test_lessons_may_be_far_between():
    facts, taught = facts_for(40), []
    method = GsWgan(dataclasses.replace(TINY["gs-wgan"], steps=5, between=2, critic_steps=2, warm_up=0))

    class Watched(Curator):
        def teach(self, wards, learn, public, *, which=None):
            assert which is not None
            taught.append(which.tolist())
            super().teach(wards, learn, public, which=which)

    method.run(Watched(records_for(facts), facts, Ledger(FREE), seeded_noise(0)), method.plan(facts, FREE))
    assert taught == [[0, 1], [0, 1], [2, 3], [2, 3], [0, 1], [0, 1]]


def test_with_the_published_noise_every_critic_learns_four_thousand_steps_along_with_the_generator():
    config = GsWganConfig.paper()
    assert config.published_critics
    assert config.steps // config.between * config.critic_steps * config.taught == 4000 * config.critics
    assert (config.warm_up, config.replayed, config.least_slope) == (100, 0.5, 1e-6)


def test_critics_are_shown_what_the_generator_made_before_as_the_public_seed_has_it(monkeypatch):
    facts, beside = facts_for(40), Replay.beside

    def origins(seed, of_torch):
        """For each lesson the step whose image is replayed."""
        fresh, shown = [], []

        def watched(self, pool, old):
            fresh.append(pool.clone())
            return beside(self, pool, old)

        class Watched(Curator):
            def teach(self, wards, learn, public, *, which=None):
                shown.append(public["pool"].clone())
                super().teach(wards, learn, public, which=which)

        monkeypatch.setattr(Replay, "beside", watched)
        torch.manual_seed(of_torch)
        method = GsWgan(dataclasses.replace(TINY["gs-wgan"], steps=12, rate=0.1, replayed=0.25, seed=seed))
        method.run(Watched(records_for(facts), facts, Ledger(FREE), seeded_noise(0)), method.plan(facts, FREE))
        assert len(shown) == len(fresh) == 13  # one of the warm-up
        for pool, now in zip(shown, fresh, strict=True):
            assert torch.equal(pool[:, :3], now)
        made = [list(now[0]) for now in fresh]
        return [
            next(step for step, images in enumerate(made) if any(torch.equal(pool[0, 3], image) for image in images))
            for pool in shown
        ]

    found = origins(0, 0)
    assert all(step <= number for number, step in enumerate(found))
    assert sum(step < number for number, step in enumerate(found)) > 6
    assert origins(0, 1) == found
    assert origins(1, 0) != found


def test_the_share_that_is_replayed_is_rounded():
    config = dataclasses.replace(TINY["gs-wgan"], critic_batch_size=9)
    assert dataclasses.replace(config, replayed=0.25).old == 2
    assert dataclasses.replace(config, replayed=0.3).old == 3


@pytest.mark.parametrize("shallow", [False, True])
def test_a_generator_of_black_images_finds_its_way_back_by_the_least_slope_alone(monkeypatch, shallow):
    facts = facts_for(40, classes=2)

    class Brighter(Curator):
        def teach(self, wards, learn, public, *, which=None):
            pass

        def pullback_by(self, question, wards, say, public):
            return -torch.ones_like(public["fakes"])

    build = GeneratorForm.build

    def black(self, facts, *, seed):
        network = build(self, facts, seed=seed)
        with torch.no_grad():
            dict(network.named_parameters())["layer.bias" if shallow else "end.bias"].fill_(-200.0)
        return network

    monkeypatch.setattr(GeneratorForm, "build", black)
    config = dataclasses.replace(TINY["gs-wgan"], steps=60, width=8, rate=5.0, averaging=0.0, shallow=shallow)
    darkest = {}
    for least in (0.0, 1e-6):
        method = GsWgan(dataclasses.replace(config, least_slope=least, publish_generator=False))
        curator = Brighter(records_for(facts), facts, Ledger(FREE), seeded_noise(0))
        darkest[least] = float(method.run(curator, method.plan(facts, FREE)).images.mean())
    assert darkest[0.0] == pytest.approx(-1.0, abs=1e-3)  # black
    assert darkest[1e-6] == pytest.approx(1.0, abs=1e-2)  # white


def test_some_critics_can_be_asked_and_all_of_them_learn_in_turn():
    facts = facts_for(40)
    method = GsWgan(dataclasses.replace(TINY["gs-wgan"], asked=2, steps=3))
    taught = []

    class Watched(Curator):
        def teach(self, wards, learn, public, *, which=None):
            taught.append(None if which is None else which.tolist())
            super().teach(wards, learn, public, which=which)

    budget = PrivacyBudget(epsilon=50)
    ledger = Ledger(budget)
    plan = method.plan(facts, budget)
    method.run(Watched(records_for(facts), facts, ledger, seeded_noise(0)), plan)
    assert taught == [None, [0, 1], [2, 3], [0, 1]]
    (event,) = ledger.events
    assert (event.sampling_rate, event.sampling, event.count) == (0.5, "without-replacement", 3)


def test_a_release_says_that_critics_were_drawn_and_verify_believes_nothing_cheaper(tmp_path):
    facts = facts_for(40)
    method = GsWgan(dataclasses.replace(TINY["gs-wgan"], asked=1, critics=40))
    release = privset.generate(
        Dataset(facts, records_for(facts), None), method=method, budget=PrivacyBudget(epsilon=5), out=tmp_path / "set"
    )
    certificate = release.certificate
    assert [event.sampling for event in certificate.events] == ["without-replacement"]
    assert certificate.guarantee.epsilon_by.pld is None
    assert "0.025 of the shards" in (tmp_path / "set" / "README.md").read_text()
    assert privset.verify(tmp_path / "set").ok
    # As a Poisson sample the same noise would look cheaper.
    assert '"without-replacement"' in (tmp_path / "set" / "ledger.jsonl").read_text()
    cheaper = [event.model_copy(update={"sampling": "poisson"}) for event in certificate.events]
    with pytest.raises(ReleaseError, match="without-replacement"):
        replanning.check(certificate.model_copy(update={"events": tuple(cheaper)}))


@pytest.mark.parametrize(
    "settings",
    [
        {"critics": 0},
        {"asked": 1001},
        {"asked": 0},
        {"taught": 1001},
        {"warm_up": -1},
        {"replayed": 1.0},
        {"replayed": -0.1},
        {"replayed": math.nan},
        {"replayed": 0.01},
        {"replayed": 0.99},
        {"least_slope": 0.3},
        {"least_slope": -1e-6},
        {"clip_norm": 0.0},
        {"rate": math.inf},
        {"noise_multiplier": 1e-9},
        {"averaging": 1.0},
    ],
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ConfigError):
        GsWganConfig(**settings)


def test_an_unknown_preset_is_refused():
    with pytest.raises(ConfigError, match="gs-wgan has the presets standard, paper, small"):
        GsWgan.preset("large", per_class=1, epsilon=1.0)


def test_critics_learn_and_speak_on_tensor_cores_if_there_are_any(monkeypatch):
    entered = []

    @contextlib.contextmanager
    def watched(device):
        entered.append(device)
        yield

    monkeypatch.setattr(lessons_of_critics, "tensor_cores", watched)
    facts = facts_for(40)
    lessons = Lessons(TINY["gs-wgan"], facts)
    state = {name: value[0] for name, value in lessons.begin(0, range(1)).items()}
    images, labels = torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 2])
    lessons.learn(state, images, labels, {"pool": torch.rand(3, 4, 1, 8, 8), "taken": torch.zeros(())})
    lessons.say(state, {"fakes": images, "labels": labels})
    assert entered == [images.device] * 2


def test_norms_follow_once_for_the_images_of_a_step_and_averages_follow_its_weights(monkeypatch):
    facts = facts_for(60)
    config = GsWganConfig(
        per_class=2, critics=10, steps=6, taught=4, warm_up=2, critic_batch_size=4, batch_size=5, width=4, averaging=0.3
    )
    calls, shares = [], []
    forward, approach = ResidualGenerator.forward, gs_wgan.approach

    def watched(self, codes):
        calls.append((torch.is_grad_enabled(), self.training))
        return forward(self, codes)

    def followed(averages, values, share):
        shares.append(float(share))
        approach(averages, values, share)

    monkeypatch.setattr(ResidualGenerator, "forward", watched)
    monkeypatch.setattr(gs_wgan, "approach", followed)
    method, budget = GsWgan(config), PrivacyBudget(epsilon=50.0)
    curator = Curator(records_for(facts), facts, Ledger(budget), seeded_noise(0))
    method._synthesise(curator, method.plan(facts, budget), Execution(), Observer())
    assert calls.count((True, False)) == config.steps  # for slopes, of what was made before
    assert (True, True) not in calls
    kept = [min(0.3, (1 + number) / (10 + number)) for number in range(config.steps)]
    assert shares == pytest.approx([1 - one for one in kept])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card")
@pytest.mark.parametrize("asked", [None, 1])
def test_on_a_card_a_run_that_is_played_back_is_the_one_that_is_written(asked, monkeypatch):
    facts = facts_for(200, side=12)
    config = GsWganConfig(
        per_class=4, critics=20, asked=asked, steps=12, taught=7, warm_up=5, critic_batch_size=4, batch_size=6, width=8
    )

    def made():
        method, budget = GsWgan(config), PrivacyBudget(epsilon=1000.0)
        curator = Curator(records_for(facts), facts, Ledger(budget), seeded_noise(0), device="cuda")
        plan = method.plan(facts, budget)
        return method._synthesise(curator, plan, Execution(device="cuda"), Observer()).images

    played = made()
    monkeypatch.setattr(recording, "WRITTEN_STEPS", 1000)
    torch.testing.assert_close(played, made(), rtol=1e-3, atol=1e-3)
