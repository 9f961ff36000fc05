"""The loop against torch's optimiser on one network, and side by side against alone."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from privset import recording
from privset.data.records import Dataset
from privset.evaluation import training
from privset.evaluation.augmentation import ROTATE, Draw, augment
from privset.evaluation.recipes import Recipe
from privset.evaluation.training import DivergedError, TrainingSet, _mixed, group_size, train, training_bytes
from privset.facts import normalise
from privset.networks import build
from privset.networks.fused import fused_for_a_card
from privset.observer import Observer

RECIPE = Recipe(name="short", epochs=5, full_rate_epochs=3, augment=False, learning_rate=0.05, batch_size=8)


class Counter(Observer):
    def __init__(self) -> None:
        self.phases: list[tuple[str, int]] = []
        self.steps = 0

    def phase(self, name: str, total: int) -> None:
        self.phases.append((name, total))

    def step(self, count: int = 1, **values: float) -> None:
        self.steps += count


def set_of(dataset: Dataset, count: int, dtype: torch.dtype = torch.float64) -> TrainingSet:
    images = normalise(dataset.train.images[:count], dataset.facts, dtype)
    return TrainingSet(images=images, labels=dataset.train.labels[:count], facts=dataset.facts)


def weights(network: nn.Module) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in network.parameters()])


def test_a_network_alone_takes_the_steps_of_the_published_loop(halves: Dataset) -> None:
    """Full batches, so that the order does not matter: SGD, made anew with a tenth of the rate."""
    given = set_of(halves, 20)
    recipe = dataclasses.replace(RECIPE, batch_size=256)

    (trained,) = train(given, classifier="lenet", recipe=recipe, seeds=[4])

    expected = build("lenet", halves.facts, seed=4).double()
    for epochs, rate in ((3, 0.05), (2, 0.005)):
        optimiser = torch.optim.SGD(expected.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4)
        for _ in range(epochs):
            optimiser.zero_grad()
            F.cross_entropy(expected(given.images), given.labels).backward()
            optimiser.step()
    torch.testing.assert_close(weights(trained), weights(expected))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Falling(Recipe):
    """A rate of its own at every step, and no restart."""

    def rate(self, epoch: float) -> float:
        return self.learning_rate / (1 + epoch)

    def restarts(self, epoch: int) -> bool:
        return False


@pytest.mark.parametrize("side_by_side", [1, 2])
def test_a_recipe_may_change_the_rate_at_every_step(digits: Dataset, side_by_side: int) -> None:
    """All minibatches alike, so that the order does not matter."""
    given = set_of(digits, 4)
    given = dataclasses.replace(given, images=given.images[:1].expand(4, -1, -1, -1), labels=given.labels[:1].expand(4))
    recipe = Falling(name="falling", epochs=3, full_rate_epochs=1, augment=False, learning_rate=0.05, batch_size=2)

    trained = train(given, classifier="mlp", recipe=recipe, seeds=[4, 5], side_by_side=side_by_side)[0]

    expected = build("mlp", digits.facts, seed=4).double()
    optimiser = torch.optim.SGD(expected.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    for step in range(6):
        optimiser.param_groups[0]["lr"] = 0.05 / (1 + step / 2)
        optimiser.zero_grad()
        F.cross_entropy(expected(given.images), given.labels).backward()
        optimiser.step()
    torch.testing.assert_close(weights(trained), weights(expected))


@pytest.mark.parametrize("classifier", ["mlp", "lenet"])
@pytest.mark.parametrize("augment", [False, True])
def test_side_by_side_is_as_alone(digits: Dataset, classifier: str, augment: bool) -> None:
    """With minibatches (the last one short), so that each network has its own order."""
    given = set_of(digits, 19)
    recipe = dataclasses.replace(RECIPE, augment=augment)
    seeds = [3, 1, 2]

    together = train(given, classifier=classifier, recipe=recipe, seeds=seeds, side_by_side=3)
    pairs = train(given, classifier=classifier, recipe=recipe, seeds=seeds, side_by_side=2)

    for seed, *networks in zip(seeds, together, pairs, strict=True):
        (alone,) = train(given, classifier=classifier, recipe=recipe, seeds=[seed], side_by_side=1)
        for network in networks:
            torch.testing.assert_close(weights(network), weights(alone))
    assert not torch.allclose(weights(together[0]), weights(together[1]))


def test_convnets_side_by_side_are_as_alone(halves: Dataset) -> None:
    given = set_of(halves, 4)
    recipe = dataclasses.replace(RECIPE, epochs=2, full_rate_epochs=1)

    together = train(given, classifier="convnet", recipe=recipe, seeds=[0, 1], side_by_side=2)

    for seed, network in enumerate(together):
        (alone,) = train(given, classifier="convnet", recipe=recipe, seeds=[seed])
        torch.testing.assert_close(weights(network), weights(alone))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no graphics card")
@pytest.mark.parametrize("classifier", ["mlp", "convnet", "resnet18"])
def test_a_recorded_step_is_as_written_alone_and_beside_others(
    digits: Dataset, classifier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Augmented minibatches, the last one short, for more epochs than it takes to record both shapes."""
    given = set_of(digits, 19)
    given = dataclasses.replace(given, images=given.images.cuda(), labels=given.labels.cuda())
    recipe = dataclasses.replace(RECIPE, epochs=9, augment=True)

    together = train(given, classifier=classifier, recipe=recipe, seeds=[3, 1], side_by_side=2)
    alone = [train(given, classifier=classifier, recipe=recipe, seeds=[seed])[0] for seed in (3, 1)]
    monkeypatch.setattr(recording, "WRITTEN_STEPS", 1000)
    written = [train(given, classifier=classifier, recipe=recipe, seeds=[seed])[0] for seed in (3, 1)]

    for first, second, third in zip(together, alone, written, strict=True):
        torch.testing.assert_close(weights(first), weights(third))
        torch.testing.assert_close(weights(second), weights(third))


@pytest.mark.parametrize(
    ("classifier", "most", "changes"), [("convnet", 0.25, True), ("alexnet", 0.045, True), ("lenet", 0.0, False)]
)
def test_in_half_width_networks_learn_nearly_the_same_and_shallow_ones_the_same(
    halves: Dataset, classifier: str, most: float, changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor, in the forms that a graphics card has."""
    given = set_of(halves, 24, torch.float32)
    recipe = dataclasses.replace(RECIPE, epochs=1, full_rate_epochs=1, batch_size=24)
    monkeypatch.setattr(training, "half_width", lambda _, dtype: torch.autocast("cpu", dtype))
    monkeypatch.setattr(training, "fused", fused_for_a_card)

    (exact,) = train(given, classifier=classifier, recipe=recipe, seeds=[4])
    (halved,) = train(given, classifier=classifier, recipe=dataclasses.replace(recipe, half_width=True), seeds=[4])

    begun = weights(build(classifier, halves.facts, seed=4))
    error = (weights(halved) - weights(exact)).norm() / (weights(exact) - begun).norm()
    assert next(halved.parameters()).dtype == torch.float32
    assert error <= most  # of maps of 2 x 2 pixels; of larger images less, see tests/networks/test_fused.py
    assert (error > 0) == changes


def test_losses_are_magnified_for_float16_and_slopes_are_not(halves: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    given, totals = set_of(halves, 8, torch.float32), []
    differentiate = torch.autograd.grad

    def grad(total: torch.Tensor, *words, **settings):
        totals.append(float(total.detach()))
        return differentiate(total, *words, **settings)

    monkeypatch.setattr(torch.autograd, "grad", grad)
    recipe = dataclasses.replace(RECIPE, epochs=1, full_rate_epochs=1, batch_size=24)
    (plain,) = train(given, classifier="alexnet", recipe=recipe, seeds=[4])
    (halved,) = train(given, classifier="alexnet", recipe=dataclasses.replace(recipe, half_width=True), seeds=[4])
    assert totals[1] == 1024 * totals[0]
    assert torch.equal(weights(plain), weights(halved))  # a power of two rounds nothing, in float32


def test_slopes_lie_as_their_weights_do(halves: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """The optimiser of a graphics card takes no others, and the form of AlexNet there has channels last."""
    given, steps = set_of(halves, 8, torch.float32), []

    class Watched(torch.optim.SGD):
        def step(self, closure=None):
            weights = [weight for group in self.param_groups for weight in group["params"]]
            steps.append([weight.grad is None or weight.grad.stride() == weight.stride() for weight in weights])
            return super().step(closure)

    monkeypatch.setattr(training, "fused", fused_for_a_card)
    monkeypatch.setattr(torch.optim, "SGD", Watched)
    train(given, classifier="alexnet", recipe=dataclasses.replace(RECIPE, epochs=1, full_rate_epochs=1), seeds=[4])
    assert len(steps) >= 1
    assert all(map(all, steps))


@pytest.mark.parametrize("change", [{"augment": True}, {"batch_size": 7}, {"full_rate_epochs": 5}])
def test_every_setting_counts(digits: Dataset, change: dict) -> None:
    given = set_of(digits, 19)

    (before,) = train(given, classifier="mlp", recipe=RECIPE, seeds=[0])
    (after,) = train(given, classifier="mlp", recipe=dataclasses.replace(RECIPE, **change), seeds=[0])

    assert (weights(before) - weights(after)).abs().max() > 1e-5


@pytest.mark.parametrize("rotate", [False, True])
def test_images_are_turned_only_if_the_recipe_says_so(
    digits: Dataset, rotate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Draw] = []

    def seen(images: torch.Tensor, draw: Draw) -> torch.Tensor:
        shown.append(draw)
        return augment(images, draw)

    monkeypatch.setattr(training, "augment", seen)
    recipe = dataclasses.replace(RECIPE, augment=True, rotate=rotate)
    train(set_of(digits, 19), classifier="mlp", recipe=recipe, seeds=[0])

    assert any((draw.choice == ROTATE).any() for draw in shown) == rotate


def test_the_same_seed_trains_the_same_network_and_leaves_the_global_state(digits: Dataset) -> None:
    given = set_of(digits, 19, torch.float32)
    recipe = dataclasses.replace(RECIPE, augment=True)
    torch.manual_seed(5)
    expected = torch.rand(1)

    torch.manual_seed(5)
    (first,) = train(given, classifier="mlp", recipe=recipe, seeds=[9])
    assert torch.equal(torch.rand(1), expected)
    (second,) = train(given, classifier="mlp", recipe=recipe, seeds=[9])

    assert torch.equal(weights(first), weights(second))


@pytest.mark.parametrize("side_by_side", [1, 2])
def test_divergence_is_an_error(halves: Dataset, side_by_side: int) -> None:
    given = set_of(halves, 20, torch.float32)
    recipe = dataclasses.replace(RECIPE, learning_rate=1e20)

    with pytest.raises(DivergedError, match=r"lenet by the recipe short diverged.*epoch \d of 5"):
        train(given, classifier="lenet", recipe=recipe, seeds=[0, 1], side_by_side=side_by_side)


def test_more_bits_are_advised_only_where_there_were_fewer() -> None:
    recipe = dataclasses.replace(RECIPE, half_width=True)
    for narrow in (False, True):
        with pytest.raises(training.DivergedError, match="Check the set for extreme values") as caught:
            training._check_finite([torch.tensor(math.inf)], "alexnet", recipe, 0, narrow=narrow)
        assert ("try the recipe float32" in str(caught.value)) == narrow


def test_a_divergence_in_the_very_last_step_is_an_error(halves: Dataset) -> None:
    """The last loss is still finite then, and only the weights tell."""
    given = set_of(halves, 20, torch.float32)
    recipe = dataclasses.replace(RECIPE, epochs=1, batch_size=256, learning_rate=3e38, weight_decay=10.0)

    with pytest.raises(DivergedError):
        train(given, classifier="lenet", recipe=recipe, seeds=[0])


def test_the_observer_is_told_of_every_minibatch_of_every_network(digits: Dataset) -> None:
    observer = Counter()

    train(
        set_of(digits, 19),
        classifier="mlp",
        recipe=RECIPE,
        seeds=[0, 1, 2],
        side_by_side=2,
        observer=observer,
    )

    assert observer.phases == [("training 3 x mlp", 3 * 5 * 3)]
    assert observer.steps == 3 * 5 * 3


def test_on_a_processor_only_networks_without_convolutions_go_side_by_side(digits: Dataset) -> None:
    given = set_of(digits, 19)

    assert group_size(build("mlp", digits.facts), given, RECIPE, 5) == 5
    assert group_size(build("convnet", digits.facts), given, RECIPE, 5) == 1


def test_training_bytes_grow_with_the_batch_and_hold_all_weights(digits: Dataset) -> None:
    network = build("lenet", digits.facts)
    count = sum(weight.numel() for weight in network.parameters())

    one, two, three = (training_bytes(network, digits.facts, batch) for batch in (1, 2, 3))

    assert two - one == three - two > 0
    assert one - (two - one) == 4 * 4 * count
    assert next(network.parameters()).device.type == "cpu"


def test_mixtures_keep_labels_and_images_together_and_are_mostly_the_image_itself():
    generators = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    aims = torch.eye(6).expand(2, 6, 6)
    images = aims[..., None, None]  # an image that says which it is, as its aim does
    mixed, mixed_aims = _mixed(images, aims, generators)
    assert torch.equal(mixed[..., 0, 0], mixed_aims)
    assert torch.allclose(mixed_aims.sum(2), torch.ones(2, 6))
    own = mixed_aims.diagonal(dim1=1, dim2=2)
    assert bool((own >= 0.5).all())
    assert not torch.equal(mixed_aims[0], mixed_aims[1])  # each network draws for itself
    assert bool((own < 1).any())
