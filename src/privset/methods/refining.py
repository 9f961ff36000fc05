"""A small set that stands in for a larger one: what ridge regression learns from the one should hold on the other.

The larger set, the pool, is synthetic too, so nothing here costs privacy. Networks are trained on the pool and kept
at several ages. Ridge regression on the features of such a network, fitted to the small set, has a solution in closed
form, and through it the error on the pool has a gradient by the pixels of the small set: what training would teach
is optimised without training. (After Zhou, Nezhadarya, Ba: Dataset Distillation using Neural Feature Regression,
NeurIPS 2022, where the larger set is the private one.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
from torch import Tensor, nn

from privset.networks.classifiers import ConvNet
from privset.networks.features import look, views
from privset.networks.fused import fuse
from privset.observer import Observer
from privset.recording import Step, recorded, sent

AGES = (0.02, 0.08, 0.3, 1.0)
"""Shares of its training after which a network is kept: hardly trained ones say what early training sees."""
RIDGE = 1e-5
"""Of the trace of the small set's kernel, on its diagonal."""
_BATCH = 256


def trained_features(
    images: Tensor,
    labels: Tensor,
    *,
    classes: int,
    width: int,
    depth: int,
    count: int,
    steps: int,
    seed: int,
    observer: Observer,
) -> list[nn.Module]:
    """Feature maps of ``count`` networks trained on a set, each kept at all `AGES`.

    Args:
        images: Normalised ``[n, c, h, w]``, on the device to train on.
        labels: ``[n]``.
        classes: Number of classes.
        width: Channels of each block of the networks.
        depth: Number of blocks.
        count: How many networks.
        steps: Minibatches each is trained on.
        seed: Of their weights, of the order of images and of the views of them.
        observer: Told of the progress.
    """
    kept: list[nn.Module] = []
    ages = {max(1, round(age * steps)) for age in AGES}
    observer.phase("training on the pool", count * steps)
    shape = (images.shape[1], images.shape[2], images.shape[3])
    for number in range(count):
        own = seed * 1_000_003 + 500_000 + number  # not the seeds that measured networks come from
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(own)
            network = ConvNet(shape, classes, width=width, depth=depth).to(images.device)
        features = fuse(network.features)
        take = recorded(_training(network, features, images, labels), images.device)
        generator = torch.Generator().manual_seed(own)
        for step in range(1, steps + 1):
            take(sent(torch.rand(min(_BATCH, len(images)), 6, generator=generator), images.device))
            if step in ages:
                kept.append(copy.deepcopy(features).requires_grad_(False))
            observer.step()
    return kept


def _training(network: ConvNet, features: nn.Module, images: Tensor, labels: Tensor) -> Step:
    """One step on a minibatch; of its draws ``[n, 6]``, one chooses an image and five the view of it."""
    weights = list(network.parameters())
    optimiser = torch.optim.SGD(weights, lr=0.01, momentum=0.9, weight_decay=5e-4)

    def train(draws: Tensor) -> Tensor:
        chosen = (draws[:, 0] * len(images)).long().clamp_max(len(images) - 1)
        logits = network.head(features(look(images[chosen], views(draws[:, 1:]))))
        loss = F.cross_entropy(logits, labels[chosen])
        for weight, slope in zip(weights, torch.autograd.grad(loss, weights, allow_unused=True), strict=True):
            weight.grad = slope
        optimiser.step()
        return loss.detach()

    return train


def ridge_loss(
    features: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    pool: Tensor,
    pool_labels: Tensor,
    *,
    classes: int,
) -> Tensor:
    """Squared error ``[]`` on the pool of ridge regression that was fitted to the images on these features.

    Args:
        features: Images ``[n, c, h, w]`` -> vectors ``[n, d]``.
        images: The small set, by whose pixels the loss is differentiated.
        labels: Its labels ``[n]``.
        pool: Images to be right about.
        pool_labels: Their labels.
        classes: Number of classes.
    """
    with torch.no_grad():
        seen = features(pool)
    own = features(images)
    aims, wanted = (F.one_hot(some, classes).to(own.dtype) - 1 / classes for some in (labels, pool_labels))
    kernel = own @ own.T
    eye = torch.eye(len(own), dtype=own.dtype, device=own.device)
    # Without a look at whether it could be factorised, which would make a graphics card wait: with a ridge it can.
    factor, _ = torch.linalg.cholesky_ex(kernel + RIDGE * kernel.detach().trace() * eye)
    weights = torch.cholesky_solve(aims, factor)
    return 0.5 * (seen @ (own.T @ weights) - wanted).square().sum(1).mean()
