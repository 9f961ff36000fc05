"""Trains fresh classifiers on one small labelled set: one after the other, or several side by side.

Stochastic gradient descent works on each weight by itself, so networks whose losses are added up take the very steps
that each would take alone. One loop serves all ways; each network draws its weights, its order of images and its
augmentation from a seed of its own. On a processor the weights of networks side by side are stacked along a new first
dimension. On a graphics card one step of them all is recorded, and played back from then on.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows it by
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from privset.convolutions import lying_like
from privset.errors import PrivsetError
from privset.evaluation.augmentation import Draw, augment
from privset.evaluation.recipes import Recipe
from privset.facts import PublicFacts
from privset.networks import build
from privset.networks.fused import fused, half_type
from privset.networks.precision import half_width, magnified
from privset.observer import Observer
from privset.recording import recorded

CHECK_EVERY = 50
"""Epochs between looks at the loss: each look makes a graphics card wait for the host."""

COPIES = 4
"""Of each weight (value, gradient, momentum, step) and of each activation (gradient, workspace)."""


class DivergedError(PrivsetError):
    """The loss of a network is no longer a number; there is no accuracy to report."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainingSet:
    """What the networks are trained on, in memory of the device they train on.

    Attributes:
        images: Normalised floats ``[n, channels, height, width]``.
        labels: ``[n]`` of int64.
        facts: What is public about the data; shape and classes decide the network.
    """

    images: Tensor
    labels: Tensor
    facts: PublicFacts


def train(
    given: TrainingSet,
    *,
    classifier: str,
    recipe: Recipe,
    seeds: Sequence[int],
    side_by_side: int | None = None,
    observer: Observer | None = None,
) -> list[nn.Module]:
    """Networks, one for each of ``seeds``, trained on ``given`` on its device and in its precision.

    Args:
        given: The set to train on.
        classifier: Name of the network.
        recipe: How to train.
        seeds: One for each network; the same seed gives the same network, whatever it is trained beside.
        side_by_side: How many networks at once; None lets `group_size` choose.
        observer: Told of one phase, in steps of one minibatch of one network.

    Raises:
        DivergedError: A loss became infinite or not a number.
    """
    observer = observer or Observer()
    networks = [build(classifier, given.facts, seed=seed).to(given.images.device, given.images.dtype) for seed in seeds]
    batches = -(-len(given.images) // recipe.batch_size)
    observer.phase(f"training {len(seeds)} x {classifier}", len(seeds) * recipe.epochs * batches)
    group = side_by_side or group_size(networks[0], given, recipe, len(seeds))
    for start in range(0, len(seeds), group):
        _train_group(networks[start : start + group], given, classifier, recipe, seeds[start : start + group], observer)
    return networks


def group_size(network: nn.Module, given: TrainingSet, recipe: Recipe, runs: int) -> int:
    """How many networks to train at once, of ``runs``.

    On a graphics card, as many as half of its free memory holds: they share what is not their own. Milliseconds an
    epoch of each network on an H200 (torch 2.11), alone / 3 / 10 side by side, on 100 grey images of 28x28, augmented:
    MLP 0.35 / 0.23, LeNet 0.49 / 0.37 / 0.35, ConvNet 0.76 / 0.63 / 0.59, AlexNet 2.2 / 2.0, ResNet18 6.2 / 6.0;
    ConvNet on 256 images 1.31 / 1.17, on 500 2.60 / 2.34.

    On a processor only networks without convolutions gain: the others keep all cores busy by themselves.
    Milliseconds a step of each network on 2 cores, alone / 3 side by side: ConvNet on 100 images of 8x8 25 /
    29, on 256 of them 60 / 82, on 100 of 28x28 503 / 576; LeNet 3.9 / 3.9 and 11.5 / 12.8; MLP 0.97 / 0.70.
    """
    if given.images.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(given.images.device)
        batch = min(len(given.images), recipe.batch_size)
        return max(1, min(runs, free // 2 // training_bytes(network, given.facts, batch)))
    convolves = any(isinstance(module, nn.Conv2d) for module in network.modules())
    return 1 if convolves else runs


def training_bytes(network: nn.Module, facts: PublicFacts, batch: int) -> int:
    """Bytes that one step of ``network`` on ``batch`` images takes, estimated from its layers' outputs.

    On the high side on purpose: measured on an H200, 0.3 to 0.5 of it for networks with convolutions.
    """
    activations = 0

    def count(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        nonlocal activations
        activations += output.numel()

    # Without storage: only the shapes are asked for.
    shadow = copy.deepcopy(network).to("meta")
    for module in shadow.modules():
        if not list(module.children()):
            module.register_forward_hook(count)
    weights = list(shadow.parameters())
    shadow(torch.empty(2, *facts.shape, device="meta", dtype=weights[0].dtype))
    numbers = sum(weight.numel() for weight in weights) + activations // 2 * batch
    return COPIES * weights[0].element_size() * numbers


def _train_group(
    networks: Sequence[nn.Module],
    given: TrainingSet,
    classifier: str,
    recipe: Recipe,
    seeds: Sequence[int],
    observer: Observer,
) -> None:
    """Train ``networks`` in place, side by side if there are several."""
    images, labels = given.images, given.labels
    # Not the stream of the initial weights. The CPU's generator heeds the low 32 bits only, so those change.
    generators = [torch.Generator(images.device).manual_seed(seed ^ 0xFFFFFFFF) for seed in seeds]
    weights, forward = _join(networks)
    optimiser, half = _optimiser(weights, recipe), half_type(networks[0]) if recipe.half_width else None

    def step(index: Tensor) -> Tensor:
        """Minibatches ``[e, n]``, one for each network -> their losses ``[e]`` before the step."""
        batch, truth = images[index], labels[index]
        if recipe.augment:
            size, rotate = given.facts.shape[1:], recipe.rotate
            draws = [Draw.random(index.shape[1], size, generator, rotate=rotate) for generator in generators]
            batch = augment(batch, Draw.stack(draws))
        if recipe.mixup:
            batch, aims = _mixed(batch, F.one_hot(truth, len(given.facts.classes)).to(batch.dtype), generators)
        else:
            aims = truth
        with half_width(images.device, half) if half else contextlib.nullcontext():
            logits = forward(batch).to(batch.dtype)
        losses = F.cross_entropy(logits.flatten(0, 1), aims.flatten(0, 1), reduction="none")
        loss = losses.view_as(truth).mean(dim=1)
        slopes = torch.autograd.grad(magnified(half) * loss.sum(), weights, allow_unused=True)
        if half == torch.float16:
            found = [slope for slope in slopes if slope is not None]
            torch._foreach_div_(found, magnified(half))  # type: ignore[attr-defined] - as torch.optim does
        for weight, slope in zip(weights, slopes, strict=True):
            # The fused optimiser takes no others.
            weight.grad = None if slope is None else lying_like(weight, slope)
        optimiser.step()
        return loss.detach()

    take = recorded(step, images.device, generators)
    rate, loss = 0.0, torch.zeros(len(networks), device=images.device)
    for epoch in range(recipe.epochs):
        if recipe.restarts(epoch):
            _forget_momentum(optimiser)
        minibatches = _minibatches(len(images), recipe.batch_size, generators)
        for number, index in enumerate(minibatches):
            if (now := recipe.rate(epoch + number / len(minibatches))) != rate:
                _set_rate(optimiser, rate := now)
            loss = take(index)
            observer.step(len(networks))
        # A weight that is not a number never becomes one again, so a look now and then misses nothing.
        if epoch % CHECK_EVERY == 0 or epoch == recipe.epochs - 1:
            _check_finite([loss, *weights], classifier, recipe, epoch, narrow=bool(half) and images.is_cuda)
    optimiser.zero_grad()  # gradients would keep the memory of a recording
    _part(networks, weights)


def _mixed(batch: Tensor, aims: Tensor, generators: Sequence[torch.Generator]) -> tuple[Tensor, Tensor]:
    """Images ``[e, n, c, h, w]`` and their aims ``[e, n, classes]``, each 50 to 100 % itself, the rest another one."""
    images, targets = [], []
    for own, aim, generator in zip(batch, aims, generators, strict=True):
        share = 0.5 + 0.5 * torch.rand((), generator=generator, device=own.device, dtype=own.dtype)
        other = torch.rand(
            len(own), generator=generator, device=own.device
        ).argsort()  # can be recorded; randperm cannot
        images.append(share * own + (1 - share) * own[other])
        targets.append(share * aim + (1 - share) * aim[other])
    return torch.stack(images), torch.stack(targets)


def _check_finite(values: Sequence[Tensor], classifier: str, recipe: Recipe, epoch: int, *, narrow: bool) -> None:
    if not bool(torch.stack([value.isfinite().all() for value in values]).all()):
        wider = ", or try the recipe float32, whose maps have more bits" if narrow else ""
        raise DivergedError(
            f"training {classifier} by the recipe {recipe.name} diverged: a loss or weight was not a finite "
            f"number after epoch {epoch + 1} of {recipe.epochs}. Check the set for extreme values{wider}."
        )


def _optimiser(weights: Sequence[Tensor], recipe: Recipe) -> torch.optim.Optimizer:
    # In a recording a plain number would stay what it was.
    rate = torch.zeros((), device=weights[0].device) if weights[0].is_cuda else recipe.learning_rate
    decay = recipe.weight_decay
    return torch.optim.SGD(weights, rate, recipe.momentum, weight_decay=decay, fused=weights[0].is_cuda or None)


def _set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def _forget_momentum(optimiser: torch.optim.Optimizer) -> None:
    for state in optimiser.state.values():
        if state.get("momentum_buffer") is not None:
            state["momentum_buffer"].zero_()


def _minibatches(count: int, batch_size: int, generators: Sequence[torch.Generator]) -> Sequence[Tensor]:
    """One epoch of indices ``[networks, batch]``, shuffled for each network by its own generator."""
    device = generators[0].device
    if count <= batch_size:
        # The order within a batch changes nothing.
        return [torch.arange(count, device=device).expand(len(generators), -1)]
    order = torch.stack([torch.randperm(count, generator=generator, device=device) for generator in generators])
    return order.split(batch_size, dim=1)


def _join(networks: Sequence[nn.Module]) -> tuple[Sequence[Tensor], Callable[[Tensor], Tensor]]:
    """The weights to optimise, and the map from ``[e, n, c, h, w]`` to logits ``[e, n, classes]``."""
    weights = [weight for network in networks for weight in network.parameters()]
    if len(networks) == 1 or weights[0].is_cuda:
        quick = [fused(network) for network in networks]
        return weights, lambda batch: torch.stack([one(part) for one, part in zip(quick, batch, strict=True)])
    stacked, _ = stack_module_state(list(networks))
    skeleton = copy.deepcopy(networks[0]).to("meta")
    fixed = dict(networks[0].named_buffers())  # not learned, so that all networks have the same

    def one(own: dict[str, Tensor], batch: Tensor) -> Tensor:
        return functional_call(skeleton, own | fixed, (batch,))

    together = torch.vmap(one)
    return list(stacked.values()), lambda batch: together(stacked, batch)


def _part(networks: Sequence[nn.Module], weights: Sequence[Tensor]) -> None:
    """Put the weights of `_join` back where they came from, if they are not there."""
    own = [list(network.parameters()) for network in networks]
    if weights[0] is own[0][0]:
        return
    with torch.no_grad():
        for stacked, *parts in zip(weights, *own, strict=True):
            for value, weight in zip(stacked, parts, strict=True):
                weight.copy_(value)
