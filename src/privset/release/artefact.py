"""A release as it is in memory: a set, statistics or a classifier, with its certificate and the folder it is from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from privset import methods
from privset.errors import ConfigError, ReleaseError
from privset.methods import Measured, MeasuringMethod, require_measuring
from privset.release import replanning
from privset.release.certificate import Certificate
from privset.release.classifier import Classifier
from privset.release.dataset import LabelledImages
from privset.release.generator import Generator
from privset.release.statistics import NoisyStatistics
from privset.release.synthetic import SyntheticSet


@dataclasses.dataclass(frozen=True, eq=False)
class Snapshot:
    """The set of a release as it was after some of its answers.

    Attributes:
        answers: How many.
        epsilon: What these cost, by the release's own accountant and delta; all snapshots together cost no more than
            the release.
        set: As it was.
    """

    answers: int
    epsilon: float
    set: SyntheticSet


@dataclasses.dataclass(frozen=True, eq=False)
class Release:
    """A synthetic set as read from its folder.

    Attributes:
        path: The folder.
        set: The synthetic set.
        certificate: What was asked, what it cost, what it guarantees.
    """

    path: Path
    set: SyntheticSet
    certificate: Certificate

    @property
    def generator(self) -> Generator | None:
        """The generator that made the set, if it was published with it; see `privset.sample`."""
        return self.set.generator

    def along(self) -> tuple[Snapshot, ...]:
        """The set as it was along the run that made it, in its order; the last is the set.

        Raises:
            ReleaseError: No snapshots were kept.
        """
        kept, made = self.set.snapshots, self.set
        if kept is None:
            able = " or ".join(name for name, method in methods.METHODS.items() if method.keeps_snapshots)
            raise ReleaseError(
                f"{self.path} holds no sets along its run, only the one at its end; they are kept by `privset generate "
                f"--snapshots 10`, with the method {able}"
            )
        return tuple(
            Snapshot(answers, self.certificate.epsilon_after(answers), SyntheticSet(images, made.labels, made.facts))
            for answers, images in kept.images.items()
        )

    def dataset(self, transform: Callable[[Tensor], Any] | None = None, *, normalised: bool = False) -> LabelledImages:
        """The set for PyTorch: pairs of an image, float32 ``[c, h, w]``, and its label, an int.

        Images are what torchvision's ``ToTensor`` gives, pixels in [0, 1], so the same further transforms suit these
        and your test images. A set of unbounded floats may go beyond that range; it is not cut.

        Args:
            transform: Applied to each image, for example ``Normalize(mean, std)`` or an augmentation.
            normalised: Take the public mean and deviation of ``set.facts`` out first, as privset's own evaluation
                does; test images must then be normalised with the same.
        """
        return LabelledImages(self.set, transform, normalised=normalised)

    def to_numpy(self, *, flat: bool = True, normalised: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """(float32 ``[m, c * h * w]``, int64 ``[m]``), to be given to ``fit`` of any scikit-learn estimator.

        Values are those of `dataset`: pixels in [0, 1], so test images of 8-bit pixels are divided by 255 and flattened
        in the order channel, row, column.

        Args:
            flat: One row for each image; otherwise ``[m, c, h, w]``.
            normalised: As for `dataset`.
        """
        images = self.dataset(normalised=normalised).images.numpy()
        return images.reshape(len(images), -1) if flat else images, self.set.labels.numpy()


@dataclasses.dataclass(frozen=True, eq=False)
class StatisticsRelease:
    """Noisy statistics as read from their folder.

    Attributes:
        path: The folder.
        statistics: What sets can be distilled from.
        certificate: What was asked, what it cost, what it guarantees.
    """

    path: Path
    statistics: NoisyStatistics
    certificate: Certificate

    def measured(self) -> Measured[Any]:
        """The statistics with the settings and the facts they were measured with.

        Raises:
            ReleaseError: The settings are impossible, or statistics measured with them have another form.
        """
        config = replanning.method_of(self.certificate).config
        found = Measured(config=config, facts=self.certificate.public_facts(), statistics=self.statistics.tensors)
        try:
            require_measuring(methods.get(self.certificate.method))(config).check_form(found)
        except ConfigError as error:
            raise ReleaseError(f"{self.path}: {error}; get the release again from its source") from error
        return found

    def method(self, **settings: Any) -> MeasuringMethod[Any]:
        """The method they were measured with, with some of its settings changed.

        Raises:
            ConfigError: There is no such setting, or they were measured with another value of it.
        """
        measured = self.measured()
        known = {field.name for field in dataclasses.fields(measured.config)}
        if unknown := ", ".join(sorted(settings.keys() - known)):
            raise ConfigError(f"{self.certificate.method} has no setting {unknown}; it has {', '.join(sorted(known))}")
        kind = require_measuring(methods.get(self.certificate.method))
        chosen = kind(dataclasses.replace(measured.config, **settings))
        chosen.check_settings(measured)
        return chosen


@dataclasses.dataclass(frozen=True, eq=False)
class ClassifierRelease:
    """A classifier as read from its folder.

    Attributes:
        path: The folder.
        trained: Its architecture and weights.
        certificate: What was asked, what it cost, what it guarantees.
    """

    path: Path
    trained: Classifier
    certificate: Certificate

    def classifier(self) -> nn.Module:
        """The network, on the CPU: normalised images ``[n, c, h, w]`` -> logits ``[n, classes]``."""
        return self.trained.network()

    def predict(self, images: Tensor | np.ndarray) -> Tensor:
        """Images ``[n, c, h, w]``, 8-bit pixels or floats in [0, 1] -> labels ``[n]``, as the certificate has them."""
        return self.trained.predict(images)
