import itertools

import numpy as np
import pytest
import torch
from torch import nn

from privset.methods.refining import AGES, RIDGE, ridge_loss, trained_features
from privset.networks import ConvNet
from privset.networks.fused import fuse
from privset.observer import Observer

CLASSES, SIDE = 3, 6


def pool_of(count, seed=0, noise=0.6):
    """Images of three classes, each a pattern under noise, in float64."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randn(CLASSES, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    labels = torch.arange(CLASSES).repeat_interleave(count)
    noisy = noise * torch.randn(len(labels), 1, SIDE, SIDE, generator=generator, dtype=torch.float64)
    return patterns[labels] + noisy, labels


def noise_of(count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    images = 0.5 * torch.randn(CLASSES * count, 1, SIDE, SIDE, generator=generator, dtype=torch.float64)
    return images, torch.arange(CLASSES).repeat_interleave(count)


@pytest.fixture
def features():
    """A small network in the form that is kept after training, in float64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return fuse(ConvNet((1, SIDE, SIDE), CLASSES, width=6, depth=1).features).double().requires_grad_(False)


def by_hand(own, labels, seen, seen_labels, ridge):
    """Error and predictions of ridge regression, by its weights on the features and not by a kernel of images."""
    own, seen = own.detach().numpy(), seen.detach().numpy()
    aims, wanted = (np.eye(CLASSES)[some.numpy()] - 1 / CLASSES for some in (labels, seen_labels))
    weights = np.linalg.inv(own.T @ own + ridge * np.eye(own.shape[1])) @ own.T @ aims
    predicted = seen @ weights
    return float(0.5 * ((predicted - wanted) ** 2).sum(1).mean()), predicted.argmax(1)


def ridge_of(own):
    return RIDGE * float(own.detach().square().sum())


@pytest.mark.parametrize("count", [1, 4])
def test_the_loss_is_that_of_ridge_regression_in_closed_form(features, count):
    (images, labels), (pool, pool_labels) = noise_of(count), pool_of(8)
    order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(0))
    pool, pool_labels = pool[order], pool_labels[order]
    own = features(images)
    expected, _ = by_hand(own, labels, features(pool), pool_labels, ridge_of(own))
    found = ridge_loss(features, images, labels, pool, pool_labels, classes=CLASSES)
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_a_set_is_right_about_itself(features):
    images, labels = noise_of(2)
    assert float(ridge_loss(features, images, labels, images, labels, classes=CLASSES)) < 1e-4


def test_the_gradient_by_pixels_is_that_of_finite_differences(features):
    (images, labels), (pool, pool_labels) = noise_of(2), pool_of(4)
    images.requires_grad_()
    ridge_loss(features, images, labels, pool, pool_labels, classes=CLASSES).backward()
    assert images.grad is not None
    seen, ridge = features(pool), ridge_of(features(images))  # the ridge is a constant to the gradient

    def moved(direction, far):
        return by_hand(features(images.detach() + far * direction), labels, seen, pool_labels, ridge)[0]

    generator = torch.Generator().manual_seed(2)
    for _ in range(5):
        direction = torch.randn(images.shape, generator=generator, dtype=torch.float64)
        slope = (moved(direction, 1e-6) - moved(direction, -1e-6)) / 2e-6
        assert float((images.grad * direction).sum()) == pytest.approx(slope, rel=1e-4)


def test_down_the_loss_a_small_set_comes_to_stand_in_for_the_pool(features):
    (images, labels), (pool, pool_labels) = noise_of(1), pool_of(30)
    fresh, fresh_labels = pool_of(30, seed=7)

    def accuracy():
        own = features(images)
        _, predicted = by_hand(own, labels, features(fresh), fresh_labels, ridge_of(own))
        return float((predicted == fresh_labels.numpy()).mean())

    images.requires_grad_()
    optimiser = torch.optim.Adam([images], lr=0.05)
    losses, before = [], accuracy()
    for _ in range(60):
        loss = ridge_loss(features, images, labels, pool, pool_labels, classes=CLASSES)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
    assert before < 0.8
    assert accuracy() > 0.95


class Steps(Observer):
    def __init__(self):
        self.name, self.total, self.done = "", 0, 0

    def phase(self, name, total):
        self.name, self.total = name, total

    def step(self, count=1, **values):
        self.done += count


def train(*, seed=0, count=2, steps=50, observer=None):
    images, labels = pool_of(10)
    return trained_features(
        images.float(),
        labels,
        classes=CLASSES,
        width=4,
        depth=2,
        count=count,
        steps=steps,
        seed=seed,
        observer=observer or Observer(),
    )


def weights_of(network: nn.Module):
    return torch.cat([value.detach().flatten() for value in network.parameters()])


def test_every_network_is_kept_at_every_age_and_stays_as_it_was():
    observer = Steps()
    kept = train(observer=observer)
    assert (observer.name, observer.total, observer.done) == ("training on the pool", 100, 100)
    assert len(kept) == 2 * len(AGES)
    assert not any(value.requires_grad for network in kept for value in network.parameters())
    assert kept[0](torch.zeros(5, 1, SIDE, SIDE)).ndim == 2
    for young, old in itertools.pairwise(kept):
        assert not torch.allclose(weights_of(young), weights_of(old), atol=1e-5)
    for ages in (kept[:4], kept[4:]):  # away from where it began, further and further
        apart = [float((weights_of(one) - weights_of(ages[0])).norm()) for one in ages]
        assert apart == sorted(apart)


def test_ages_of_the_same_step_are_kept_once():
    assert len(train(count=1, steps=1)) == 1
    assert len(train(count=3, steps=4)) == 3 * 2  # after the first step and after the last


def test_training_teaches_features_to_tell_classes_apart():
    pool, _ = pool_of(20, seed=3, noise=1.0)
    young, *_, old = train(count=1, steps=150)

    def spread(network):
        """Variance within classes over that between them."""
        seen = network(pool.float()).unflatten(0, (CLASSES, -1))
        return float(seen.var(1).sum() / seen.mean(1).var(0).sum())

    assert spread(old) < 0.8 * spread(young)


def test_the_seed_decides_and_the_global_state_is_left_alone():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = train(count=1, steps=10)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    for one, other in zip(first, train(count=1, steps=10), strict=True):
        assert torch.equal(weights_of(one), weights_of(other))
    for one, other in zip(first, train(count=1, steps=10, seed=1), strict=True):
        assert not torch.allclose(weights_of(one), weights_of(other), atol=1e-3)
