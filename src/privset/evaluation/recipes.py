"""How a classifier is trained on the set that is being evaluated.

A recipe is chosen by name and then fitted to the set, because the published protocol trains grey images
longer, and with augmentation, and full-size sets shorter. The published numbers were made with the code that
came with the paper, and where the paper says otherwise the code is what `paper` follows:

* ``range(Epoch + 1)`` trains one epoch more than it is told to, so 1001, 301 and 41.
* The learning rate falls to a tenth after the epoch of *index* ``Epoch // 2 + 1``, hence after
  ``Epoch // 2 + 2`` epochs, and the optimiser is made anew there, so that its momentum starts from zero.
* The code augments whatever has "MNIST" in its name; we augment what has one channel.
* The paper trains sets of full size (6000 images a class) for 40 epochs, and the published small sets end at
  100 images a class. Nothing is published in between; here more than `FULL_SIZE` images a class is full size.

Of full size, a graphics card keeps the maps of a ConvNet in bfloat16, and those of AlexNet, VGG11 and ResNet18 in
float16 (``half_width``), in any recipe but `float32`, so that half as much goes to memory: docs/methods/real.md has
what it changes.

Where its text says otherwise, `stated` follows the text in epochs and augmentation, and `plain` has no
augmentation. What that changes is on docs/methods/real.md and docs/methods/dp-merf.md.

`long` is ours: what a small set can teach when it is trained on with patience. It is the same for every method and
every data set, and was chosen on training records of Fashion-MNIST that were held out (docs/methods/moments.md).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

from privset.errors import ConfigError, did_you_mean

FULL_SIZE = 500
"""Sets with more images a class than this are trained for 40 epochs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """Stochastic gradient descent on the cross-entropy, fitted to one set.

    Attributes:
        name: What the command line calls it.
        epochs: Passes over the set, all told.
        full_rate_epochs: Passes before the learning rate falls to a tenth and the momentum to zero.
        augment: Whether every image is cropped, scaled or rotated anew each time it is seen.
        learning_rate: Of the first ``full_rate_epochs`` passes.
        momentum: Share of the last step that is taken again.
        weight_decay: Coefficient of the weights themselves in their gradient.
        batch_size: Images a step.
        rotate: Whether rotating is among these changes.
        mixup: Whether images are shown as mixtures of two, with their labels mixed alike (Zhang et al. 2018).
        cosine: Whether the learning rate falls along a cosine instead, and the momentum never.
        half_width: Whether a graphics card keeps the maps of a ConvNet in bfloat16, and those of deep networks in
            float16, half the bits of float32; weights are float32, and so are sums before they are rounded. Elsewhere,
            and for other networks, nothing changes.
    """

    name: str
    epochs: int
    full_rate_epochs: int
    augment: bool
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch_size: int = 256
    rotate: bool = True
    mixup: bool = False
    cosine: bool = False
    half_width: bool = False

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1 or self.full_rate_epochs < 0:
            raise ConfigError(f"recipe {self.name}: epochs and batch size must be at least 1")
        if not (self.learning_rate > 0 and 0 <= self.momentum < 1 and self.weight_decay >= 0):
            raise ConfigError(
                f"recipe {self.name}: the learning rate must be positive, the momentum in [0, 1) "
                "and the weight decay at least 0"
            )

    def rate(self, epoch: float) -> float:
        """The learning rate when ``epoch`` passes have been made; between whole ones, part of the way through the next.

        >>> recipe = paper(channels=1, images_per_class=10)
        >>> recipe.rate(501.9), recipe.rate(502)
        (0.01, 0.001)
        """
        if self.cosine:
            return self.learning_rate * 0.5 * (1 + math.cos(math.pi * epoch / self.epochs))
        return self.learning_rate if epoch < self.full_rate_epochs else self.learning_rate / 10

    def restarts(self, epoch: int) -> bool:
        """Whether the momentum is forgotten before the pass of index ``epoch``."""
        return not self.cosine and epoch == self.full_rate_epochs


def _published(name: str, *, told: int, channels: int, images_per_class: float) -> Recipe:
    full_size = images_per_class > FULL_SIZE
    told = 40 if full_size else told
    return Recipe(
        name=name,
        epochs=told + 1,
        full_rate_epochs=told // 2 + 2,
        augment=channels == 1,
        half_width=full_size,
    )


def paper(*, channels: int, images_per_class: float) -> Recipe:
    """What the published numbers were made with.

    >>> paper(channels=1, images_per_class=10)  # doctest: +ELLIPSIS
    Recipe(name='paper', epochs=1001, full_rate_epochs=502, augment=True, learning_rate=0.01, ...)
    >>> paper(channels=3, images_per_class=10).epochs, paper(channels=1, images_per_class=6000).epochs
    (301, 41)
    """
    told = 1000 if channels == 1 else 300
    return _published("paper", told=told, channels=channels, images_per_class=images_per_class)


def quick(*, channels: int, images_per_class: float) -> Recipe:
    """The same in 300 epochs (as the published code, asked to evaluate only, has 301), 40 for full-size sets.

    >>> quick(channels=1, images_per_class=10).epochs
    300
    """
    published = _published("quick", told=300, channels=channels, images_per_class=images_per_class)
    return dataclasses.replace(published, epochs=published.epochs - 1)


def stated(*, channels: int, images_per_class: float) -> Recipe:
    """As the paper's text has it: 300 epochs, 40 for full-size sets; cropping and re-scaling, of any image.

    The learning rate falls when the code has it fall, two epochs later than the text.

    >>> recipe = stated(channels=3, images_per_class=10)
    >>> recipe.epochs, recipe.augment, recipe.rotate
    (300, True, False)
    """
    as_quick = quick(channels=channels, images_per_class=images_per_class)
    return dataclasses.replace(as_quick, name="stated", augment=True, rotate=False)


def plain(*, channels: int, images_per_class: float) -> Recipe:
    """The same epochs without any augmentation.

    >>> plain(channels=1, images_per_class=6000)  # doctest: +ELLIPSIS
    Recipe(name='plain', epochs=40, full_rate_epochs=22, augment=False, ...)
    """
    as_quick = quick(channels=channels, images_per_class=images_per_class)
    return dataclasses.replace(as_quick, name="plain", augment=False)


def float32(*, channels: int, images_per_class: float) -> Recipe:
    """As `paper`, with all maps in float32: what `half_width` changes is the difference.

    >>> recipe = float32(channels=1, images_per_class=6000)
    >>> recipe.epochs, recipe.half_width, paper(channels=1, images_per_class=6000).half_width
    (41, False, True)
    """
    as_paper = paper(channels=channels, images_per_class=images_per_class)
    return dataclasses.replace(as_paper, name="float32", half_width=False)


def long(*, channels: int, images_per_class: float) -> Recipe:  # noqa: ARG001 - the same for every data set
    """Mixtures of augmented images for up to 4000 epochs; fewer for large sets, whose epochs have more steps.

    >>> [long(channels=1, images_per_class=size).epochs for size in (1, 10, 50, 500, 6000)]
    [4000, 4000, 1789, 566, 163]
    """
    epochs = round(4000 * min(1.0, math.sqrt(10 / images_per_class)))
    return Recipe(
        name="long",
        epochs=epochs,
        full_rate_epochs=epochs,
        augment=True,
        mixup=True,
        cosine=True,
        half_width=images_per_class > FULL_SIZE,
    )


RECIPES: Mapping[str, Callable[..., Recipe]] = {
    "paper": paper,
    "quick": quick,
    "stated": stated,
    "plain": plain,
    "float32": float32,
    "long": long,
}
"""Every recipe by name; call one with ``channels`` and ``images_per_class``."""


def fit_recipe(name: str, *, channels: int, images_per_class: float) -> Recipe:
    """The recipe called ``name``, fitted to a set.

    Args:
        name: One of `RECIPES`.
        channels: Of the images, 1 or 3.
        images_per_class: Size of the set divided by the number of classes.
    """
    if name not in RECIPES:
        known = ", ".join(sorted(RECIPES))
        raise ConfigError(f"there is no recipe {name!r}.{did_you_mean(name, RECIPES)} Known: {known}.")
    return RECIPES[name](channels=channels, images_per_class=images_per_class)
