import dataclasses
import math

import pytest
import torch
from tests.conftest import TINY, facts_for, records_for, resized, without

from privset.data import Records, facts_of
from privset.errors import BudgetError, ConfigError
from privset.facts import normalise
from privset.methods import Checkpoint, DpMerf, DpMerfConfig, Execution
from privset.methods.dp_merf import MeanEmbedding
from privset.networks.generators import UpsamplingGenerator, draw_codes
from privset.observer import Observer
from privset.privacy import Curator, Ledger, PrivacyBudget, seeded_noise

TINY_MERF = TINY["dp-merf"]
CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card")
MNIST = facts_for(60_000, classes=10, side=28, name="mnist")


def measured(config, records, facts, *, epsilon=math.inf):
    method, budget = DpMerf(config), PrivacyBudget(epsilon=epsilon)
    curator = Curator(records, facts, Ledger(budget), seeded_noise(0))
    return method, method.measure(curator, method.plan(facts, budget))


def means_of(found):
    return MeanEmbedding(found.config, found.facts, Execution()).means(found.statistics["embedding_sums"])


def halves(count, side=8, classes=2):
    """Images whose upper or left half is bright, and their labels, most of them of the first class."""
    images = torch.full((count, 1, side, side), 20, dtype=torch.uint8)
    labels = (torch.arange(count) % 4 == 3).long()
    images[labels == 0, :, : side // 2] = 230
    images[labels == 1, :, :, : side // 2] = 230
    return Records(images, labels), facts_for(count, classes=classes, side=side)


@pytest.mark.parametrize(("epsilon", "noise"), [(1.0, 3.731), (10.0, 0.500)])
def test_it_is_one_gaussian_mechanism_with_the_exact_noise(epsilon, noise):
    plan = DpMerf(DpMerfConfig()).plan(MNIST, PrivacyBudget(epsilon=epsilon))
    assert plan.questions == 1
    assert plan.noise_multiplier == pytest.approx(noise, abs=1e-3)
    assert plan.epsilon == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize(("claimed", "noise", "proven"), [(1.0, 10.0, 0.341), (10.0, 1.136, 3.779)])
def test_the_published_noise_and_what_it_costs_here(claimed, noise, proven):
    config = DpMerf.preset("paper", per_class=10, epsilon=claimed)
    plan = DpMerf(config).plan(MNIST, PrivacyBudget(epsilon=claimed))
    assert plan.noise_multiplier == noise
    assert plan.epsilon == pytest.approx(proven, abs=1e-3)
    assert plan.epsilon < claimed
    assert (config.count_share, config.waves, config.steps, config.batch_size, config.rate) == (0, 500, 3000, 100, 0.01)
    assert (config.code, config.width) == (5, 200)


@pytest.mark.parametrize(("named", "claimed", "proven"), [(1.0, 0.9797, 0.341), (10.0, 9.998, 3.779)])
def test_the_published_analysis_claims_what_was_published_and_is_for_replacing_a_record(named, claimed, proven):
    config = DpMerf.preset("paper", per_class=10, epsilon=named)
    plan = DpMerf(config).plan(MNIST, PrivacyBudget(epsilon=named))
    assert plan.claim is not None
    assert plan.claim.epsilon == pytest.approx(claimed, abs=1e-3)
    assert plan.claim.epsilon == pytest.approx(_by_search(plan.noise_multiplier / 2), rel=1e-4)
    assert (plan.claim.relation, plan.claim.delta, plan.claim.unsound) == ("replace-one-record", 1e-5, None)
    assert plan.epsilon == pytest.approx(proven, abs=1e-3)
    assert f"{claimed:.2g}" in DpMerf.claims
    assert f"{proven:.3g}" in DpMerf.claims


def _by_search(sigma):
    """What the published code computes: RDP of one Gaussian answer, at the best of many orders."""
    orders = [1 + step / 1000 for step in range(1, 100_000)]
    return min(order / (2 * sigma**2) + math.log(1e5) / (order - 1) for order in orders)


def test_published_noise_that_is_too_little_for_a_budget_is_refused():
    with pytest.raises(BudgetError, match=r"would cost epsilon 0\.3407"):
        DpMerf(DpMerfConfig.paper(epsilon=0.2)).plan(MNIST, PrivacyBudget(epsilon=0.2))
    with pytest.raises(ConfigError, match="without privacy there is no noise"):
        DpMerf(DpMerfConfig(noise_multiplier=1.0)).plan(MNIST, PrivacyBudget(epsilon=math.inf))
    assert DpMerfConfig.paper(epsilon=math.inf).noise_multiplier is None


@pytest.mark.parametrize("share", [0.0, 0.02])
def test_every_record_moves_the_sums_by_exactly_one(share):
    config = dataclasses.replace(TINY_MERF, count_share=share)
    facts = facts_for(20, channels=3)
    records = records_for(facts)
    whole = measured(config, records, facts)[1].statistics["embedding_sums"]
    for index in (0, 7):
        less = measured(config, without(records, index), resized(facts, 19))[1].statistics["embedding_sums"]
        assert float((whole - less).norm()) == pytest.approx(1, abs=1e-5)
        moved = (whole - less).norm(dim=1)
        assert int((moved > 1e-4).sum()) == 1  # of the other classes no more than the last digits, on some processors


def test_waves_have_length_one_and_the_gaussian_kernel_of_pixels_as_their_product():
    embedding = MeanEmbedding(DpMerfConfig(waves=20_000, bandwidth=1.5), facts_for(9), Execution())
    pixels = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    pixels = pixels[:1] + 0.3 * (pixels - pixels[:1])
    waves = embedding.waves(pixels)
    assert torch.allclose(waves.norm(dim=1), torch.ones(4), atol=1e-5)
    kernel = torch.exp(-torch.cdist(pixels.flatten(1), pixels.flatten(1)).square() / (2 * 1.5**2))
    assert torch.allclose(waves @ waves.T, kernel, atol=0.03)


@pytest.mark.parametrize(
    ("facts", "squared"),
    [
        (MNIST, 105),
        (dataclasses.replace(MNIST, name="fashion-mnist"), 127),
        (facts_for(50_000, side=32, channels=3, name="cifar10"), 105 * 3072 / 784),
    ],
)
def test_the_bandwidth_is_the_published_one_or_in_proportion(facts, squared):
    def of(bandwidth):
        pixels = torch.linspace(0, 1, math.prod(facts.shape)).view(1, *facts.shape)
        return MeanEmbedding(DpMerfConfig(waves=3, bandwidth=bandwidth), facts, Execution()).waves(pixels)

    assert torch.allclose(of(None), of(math.sqrt(squared)), atol=1e-5)
    assert not torch.allclose(of(None), of(1.1 * math.sqrt(squared)), atol=1e-2)


def test_waves_are_not_the_numbers_that_codes_begin_with():
    found = MeanEmbedding(DpMerfConfig(waves=1, bandwidth=1.0, seed=3), facts_for(9), Execution())
    numbers = math.prod(facts_for(9).shape)
    codes = torch.randn(numbers, 1, generator=torch.Generator().manual_seed(3))
    pixels = torch.rand(5, *facts_for(9).shape)
    of_codes = torch.cat([(pixels.flatten(1) @ codes).cos(), (pixels.flatten(1) @ codes).sin()], dim=1)
    assert not torch.allclose(found.waves(pixels), of_codes, atol=1e-3)


def test_without_noise_the_means_are_those_of_the_classes_whatever_their_size():
    facts = facts_for(21, classes=4)
    records = Records(records_for(facts).images, torch.tensor([0] * 18 + [1, 1, 3]))
    _, found = measured(TINY_MERF, records, facts)
    embedding = MeanEmbedding(TINY_MERF, facts, Execution())
    images = normalise(records.images, facts)
    waves = embedding.waves(images / 2 + 0.5)
    for label in (0, 1, 3):
        assert torch.allclose(means_of(found)[label], waves[records.labels == label].mean(0), atol=1e-5)
    assert float(means_of(found)[2].abs().sum()) == 0  # nobody is there


def test_with_no_share_for_counting_the_embedding_is_divided_by_the_public_size():
    facts = facts_for(30)
    config = dataclasses.replace(TINY_MERF, count_share=0.0)
    _, found = measured(config, records_for(facts), facts)
    assert torch.allclose(means_of(found) / 3, found.statistics["embedding_sums"] / 30, atol=1e-6)


def test_rows_that_noise_made_longer_than_a_mean_can_be_are_shortened():
    embedding = MeanEmbedding(TINY_MERF, facts_for(30), Execution())
    sums = torch.full((3, 13), 50.0)
    sums[0, :-1] = 500.0
    sums[1, -1] = -2.0  # fewer than none
    sums[2] = torch.cat([torch.full((12,), 1.0), torch.tensor([20 * math.sqrt(0.02)])])
    means = embedding.means(sums)
    assert means.norm(dim=1)[:2].tolist() == pytest.approx([1, 1])
    assert torch.allclose(means[2], torch.full((12,), 1 / 20 / math.sqrt(0.98)))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CARD)])
def test_the_generator_learns_classes_of_unequal_size_and_of_any_number_of_images(device):
    records, facts = halves(80)
    config = dataclasses.replace(TINY_MERF, waves=100, width=20, steps=150, batch_size=40, per_class=7)
    method, found = measured(config, records, facts)
    made = method.distil(found, execution=Execution(device=device))
    assert made.labels.tolist() == [0] * 7 + [1] * 7
    pixels = made.images / 2 + 0.5
    assert 0 <= float(pixels.min()) <= float(pixels.max()) <= 1
    upper, left = torch.zeros(8, 8, dtype=torch.bool), torch.zeros(8, 8, dtype=torch.bool)
    upper[:4], left[:, :4] = True, True
    for images, bright in ((pixels[:7, 0], upper), (pixels[7:, 0], left)):
        assert float(images[:, bright].mean()) > 0.7
        assert float(images[:, ~bright].mean()) < 0.3


class Losses(Observer):
    """Remembers the loss of each step."""

    def __init__(self):
        self.values = []

    def show(self, look):
        self.values.append(float(look().values["loss"]))


@pytest.fixture
def _in_float64():
    """Adam makes a step of some length of a slope that is nothing but rounding, as that of a bias before a norm."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("_in_float64")
@pytest.mark.parametrize("even", [True, False])
def test_training_is_adam_down_the_squared_distance_from_the_mean_features_of_the_classes(even):
    (records, facts), steps, batch, classes = halves(40), 10, 9, 2
    config = dataclasses.replace(TINY_MERF, even=even, steps=steps, batch_size=batch)
    method, found = measured(config, records, facts)
    losses = Losses()
    made = method.distil(found, observer=losses)

    features = MeanEmbedding(config, facts, Execution()).waves
    pixels = records.images / 255
    targets = torch.stack([features(pixels[records.labels == label]).mean(0) for label in range(classes)]) / classes
    random = torch.Generator().manual_seed(config.seed)
    seed = int(torch.randint(2**31, (), generator=random))
    network = UpsamplingGenerator(facts, length=config.code, width=config.width, seed=seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=config.rate)
    falling = torch.optim.lr_scheduler.StepLR(optimiser, step_size=steps // 5, gamma=0.9)
    for shown in losses.values:
        if even:
            labels = torch.cat([torch.randperm(classes, generator=random) for _ in range(5)])[:batch]
        else:
            labels = torch.randint(classes, (batch,), generator=random)
        one_hot = torch.eye(classes)[labels]
        codes = torch.cat([torch.randn(batch, config.code, generator=random), one_hot], dim=1)
        embedded = (one_hot[:, :, None] * features(network(codes))[:, None, :]).sum(0) / batch
        loss = ((embedded - targets) ** 2).sum()
        assert shown == pytest.approx(float(loss.detach()), rel=1e-5)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        falling.step()
    assert len(losses.values) == steps
    assert made.generator is not None
    for name, value in network.state_dict().items():
        assert torch.allclose(made.generator.state[name], value, rtol=1e-5, atol=1e-6), name
    published = torch.eye(classes).repeat_interleave(config.per_class, dim=0)
    codes = torch.cat([torch.randn(len(published), config.code, generator=random), published], dim=1)
    assert torch.allclose(made.images, 2 * network.eval()(codes).detach() - 1, atol=1e-5)


class Killed(BaseException):
    """What no `except Exception` catches."""


class Stopping(Observer):
    """Stops, as by a kill, after a number of steps."""

    def __init__(self, after):
        self.left = after

    def step(self, count=1, **values):
        self.left -= count
        if self.left == 0:
            raise Killed


class Memory(Checkpoint):
    """Keeps every state."""

    seconds = 0.0
    state = None

    def load(self):
        return self.state

    def save(self, state):
        self.state = state


@pytest.mark.parametrize("stop", [1, 4, 6])
def test_training_that_was_stopped_at_any_step_ends_with_the_same_bits(stop):
    method, found = measured(dataclasses.replace(TINY_MERF, steps=6), *halves(40))
    whole, memory = method.distil(found), Memory()
    with pytest.raises(Killed):
        method.distil(found, checkpoint=memory, observer=Stopping(stop))
    resumed = method.distil(found, checkpoint=memory)
    assert torch.equal(whole.images, resumed.images)
    assert whole.generator is not None
    assert resumed.generator is not None
    assert all(torch.equal(value, resumed.generator.state[name]) for name, value in whole.generator.state.items())


def test_more_images_than_are_drawn_at_once():
    method, found = measured(dataclasses.replace(TINY_MERF, per_class=700), *halves(40))
    made = method.distil(found)
    assert made.images.shape == (1400, 1, 8, 8)
    assert len(made.images.unique(dim=0)) > 1300


def test_large_coloured_images_of_many_classes():
    facts = facts_for(300, classes=100, side=64, channels=3)
    method, found = measured(dataclasses.replace(TINY_MERF, per_class=1), records_for(facts), facts)
    made = method.distil(found)
    assert made.images.shape == (100, 3, 64, 64)
    assert made.images.is_contiguous()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"waves": 0}, "waves must be at least 1"),
        ({"code": 0}, "code must lie between 1 and 65,536"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"batch_size": 1}, "batch-size must be at least 2"),
        ({"bandwidth": 0.0}, "bandwidth must be a positive number"),
        ({"rate": math.inf}, "rate must be a positive number"),
        ({"count_share": 1.0}, "count-share must lie in"),
        ({"count_share": -0.1}, "count-share must lie in"),
        ({"noise_multiplier": 0.0}, "leave it out to have it calibrated"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields, words):
    with pytest.raises(ConfigError, match=words):
        DpMerfConfig(**fields)


@pytest.mark.parametrize("even", [False, True])
def test_a_step_has_as_many_images_of_every_class_only_if_it_is_to(even, monkeypatch):
    asked = []

    def watched(labels, **options):
        asked.append(labels.bincount(minlength=3).tolist())
        return draw_codes(labels, **options)

    monkeypatch.setattr("privset.methods.dp_merf.draw_codes", watched)
    facts = facts_for(40)
    method = DpMerf(dataclasses.replace(TINY_MERF, even=even, batch_size=12, steps=6))
    curator = Curator(records_for(facts), facts, Ledger(PrivacyBudget(epsilon=math.inf)), seeded_noise(0))
    method.run(curator, method.plan(facts, PrivacyBudget(epsilon=math.inf)))
    assert [sum(counts) for counts in asked] == [12] * 6
    assert (asked == [[4, 4, 4]] * 6) == even


@pytest.mark.parametrize("settle", [False, True])
def test_settled_norms_are_those_of_many_images_of_all_classes_by_the_last_weights(settle):
    method, found = measured(dataclasses.replace(TINY_MERF, steps=6, settle=settle), *halves(40))
    trained = method.distil(found).generator
    assert trained is not None
    network = trained.network(found.facts)
    norms = [layer for layer in network.modules() if isinstance(layer, torch.nn.BatchNorm1d)]
    seen = []
    norms[0].register_forward_hook(lambda _, given, __: seen.append(given[0]))
    with torch.no_grad():
        network(network.draw(torch.arange(3000) % 2, torch.Generator().manual_seed(7)))
    apart = (norms[0].running_mean - seen[0].mean(0)).norm() / seen[0].std(0).norm()
    assert (float(apart) < 0.1) == settle  # of the last steps, a tenth each


def test_classes_are_drawn_where_the_published_code_is_followed():
    drawn = {name: not DpMerf.preset(name, per_class=10, epsilon=10).even for name in DpMerf.presets}
    assert drawn == {"standard": False, "paper": True, "wide": True}


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_more_waves_cost_no_more(epsilon):
    budget, facts = PrivacyBudget(epsilon=epsilon), facts_of("mnist")
    paper, wide = (DpMerf(DpMerf.preset(name, per_class=10, epsilon=epsilon)) for name in ("paper", "wide"))
    assert wide.plan(facts, budget).epsilon == paper.plan(facts, budget).epsilon
    assert wide.shapes(facts) == {"embedding_sums": (10, 10_000)}  # as in the later version of the public code


def test_unknown_presets_and_budgets_too_small_for_the_classes_are_refused():
    with pytest.raises(ConfigError, match="presets standard, paper, wide"):
        DpMerf.preset("large", per_class=10, epsilon=1)
    with pytest.raises(BudgetError, match="cannot be paid for"):
        DpMerf(TINY_MERF).plan(facts_for(40), PrivacyBudget(epsilon=0.05))
