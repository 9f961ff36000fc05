"""The release folder: written whole or not at all, and read with suspicion."""

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
from privset.release import card, classifier, generator, replanning, snapshots, statistics, synthetic
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.release.certificate import Certificate, sha256
from privset.release.classifier import Classifier
from privset.release.dataset import LabelledImages
from privset.release.folder import write_folder
from privset.release.generator import Generator
from privset.release.issuing import Content, content_files, given_files
from privset.release.sections import (
    ClassifierContents,
    GeneratorContents,
    SetContents,
    SnapshotsContents,
    StatisticsContents,
)
from privset.release.snapshots import Snapshots
from privset.release.statistics import NoisyStatistics
from privset.release.synthetic import SyntheticSet

_WORDS = {
    "set": "a synthetic set",
    "distilled set": "a synthetic set",
    "drawn set": "a synthetic set",
    "joined set": "a synthetic set",
    "joined disjoint set": "a synthetic set",
    "statistics": "statistics",
    "classifier": "a classifier",
}


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

    def predict(self, images: Tensor) -> Tensor:
        """Images ``[n, c, h, w]``, 8-bit pixels or floats in [0, 1] -> labels ``[n]``, as the certificate has them."""
        return self.trained.predict(images)


def save(
    folder: Path,
    content: Content,
    certificate: Certificate,
    ledger_path: Path | None,
    config_file: bytes | None = None,
) -> Path:
    """Write the whole release, or nothing.

    Args:
        folder: Where; it must not exist.
        content: The set, the statistics or the classifier that the certificate was made for.
        certificate: Its certificate.
        ledger_path: The curator's ledger, which is copied; None if the certificate was made without one.
        config_file: The bytes of the configuration file, likewise.

    Returns:
        The folder, as an absolute path.

    Raises:
        ReleaseError: It exists, cannot be written, or content, ledger and certificate do not belong together.
    """
    return save_with(folder, content, certificate, given_files(ledger_path, config_file))


def save_with(folder: Path, content: Content, certificate: Certificate, given: dict[str, bytes]) -> Path:
    """Like `save`, with the files that do not follow from content and certificate, by name in the folder."""
    return write_folder(folder, _files(content, certificate, given).items())


def load(folder: str | Path) -> Release:
    """Read a synthetic set. Only JSON and safetensors are read, so a hostile folder cannot run code.

    The form of everything is checked, and that the set is the one the certificate is about. Whether the
    numbers in the certificate are right is for `verify`.

    Raises:
        ReleaseError: A missing or unreadable file, an unknown version, something else in place of a set, or another
            set than the certificate's.
    """
    folder = Path(folder)
    parsed, where = _certificate(folder), folder / synthetic.FILE
    if isinstance(parsed.contents, ClassifierContents):
        raise ReleaseError(
            f"{folder} holds a classifier, and no images; see how good it is with `privset evaluate {folder} --data "
            "DATA`, use it with privset.load"
        )
    if not isinstance(parsed.contents, SetContents):
        raise ReleaseError(
            f"{folder} holds statistics, not images; make a set from them with `privset distil {folder} --out SET`"
        )
    loaded = SyntheticSet.from_bytes(read_file(folder, synthetic.FILE), parsed.public_facts(), str(where))
    if loaded.pixel_form != parsed.contents.pixel_form:
        raise ReleaseError(f"{where}: holds {loaded.pixel_form}, but the certificate says {parsed.contents.pixel_form}")
    _check_digest(loaded, parsed, where)
    if parsed.contents.generator is not None:
        loaded = dataclasses.replace(loaded, generator=_generator(folder, parsed, parsed.contents.generator))
    if parsed.contents.snapshots is not None:
        loaded = _with_snapshots(folder, loaded, parsed.contents.snapshots)
    return Release(folder, loaded, parsed)


def _with_snapshots(folder: Path, loaded: SyntheticSet, stated: SnapshotsContents) -> SyntheticSet:
    where = folder / snapshots.FILE
    found = Snapshots.from_bytes(read_file(folder, snapshots.FILE), stated.answers, str(where))
    if found.digest() != stated.digest:
        raise _another(where, "file")
    try:
        return dataclasses.replace(loaded, snapshots=found)
    except ReleaseError as error:
        raise ReleaseError(f"{where}: {error}; get the release again from its source") from error


def _generator(folder: Path, certificate: Certificate, stated: GeneratorContents) -> Generator:
    where, form = folder / generator.FILE, replanning.form_of(stated)
    loaded = Generator.from_bytes(read_file(folder, generator.FILE), form, certificate.public_facts(), str(where))
    if loaded.digest() != stated.digest:
        raise _another(where, "generator")
    return loaded


def load_statistics(folder: str | Path) -> StatisticsRelease:
    """Read noisy statistics, with the same suspicion as `load` reads a set.

    Raises:
        ReleaseError: A missing or unreadable file, an unknown version, a set in place of statistics, or others than
            the certificate's.
    """
    folder = Path(folder)
    parsed, where = _certificate(folder), folder / statistics.FILE
    if not isinstance(parsed.contents, StatisticsContents):
        raise ReleaseError(
            f"{folder} holds {_WORDS[parsed.holding]}, and no set can be distilled from that; give the folder that "
            "`privset measure` wrote"
        )
    loaded = NoisyStatistics.from_bytes(read_file(folder, statistics.FILE), str(where))
    if loaded.shapes != parsed.contents.shapes:
        raise ReleaseError(f"{where}: holds {loaded}, and the certificate is about other shapes; get the release again")
    _check_digest(loaded, parsed, where)
    return StatisticsRelease(folder, loaded, parsed)


def load_classifier(folder: str | Path) -> ClassifierRelease:
    """Read a classifier, with the same suspicion as `load` reads a set.

    Raises:
        ReleaseError: A missing or unreadable file, an unknown version, something else in place of a classifier, or
            other weights than the certificate's.
    """
    folder = Path(folder)
    parsed, where = _certificate(folder), folder / classifier.FILE
    if not isinstance(parsed.contents, ClassifierContents):
        raise ReleaseError(f"{folder} holds {_WORDS[parsed.holding]}, and no classifier; load it with privset.load")
    architecture, facts = replanning.architecture_of(parsed.contents), parsed.public_facts()
    loaded = Classifier.from_bytes(read_file(folder, classifier.FILE), architecture, facts, str(where))
    _check_digest(loaded, parsed, where)
    return ClassifierRelease(folder, loaded, parsed)


def load_published(folder: str | Path) -> Release | ClassifierRelease:
    """Read a synthetic set or a classifier, whichever it is; see `load` and `load_classifier`."""
    folder = Path(folder)
    trained = isinstance(_certificate(folder).contents, ClassifierContents)
    return load_classifier(folder) if trained else load(folder)


def _certificate(folder: Path) -> Certificate:
    return Certificate.parse(read_file(folder, CERTIFICATE_FILE), str(folder / CERTIFICATE_FILE))


def _check_digest(content: Content, certificate: Certificate, where: Path) -> None:
    if content.digest() != certificate.contents.digest:
        raise _another(where, "set" if isinstance(content, SyntheticSet) else "content")


def _another(where: Path, what: str) -> ReleaseError:
    return ReleaseError(
        f"{where}: is not the {what} that {CERTIFICATE_FILE} is about; `privset verify {where.parent}` says more, and "
        "the release should be got again from its source"
    )


def read_file(folder: Path, name: str) -> bytes:
    """The bytes of one file of a release, or a `ReleaseError` that names it."""
    if not folder.is_dir():
        raise ReleaseError(f"{folder} is not a folder; a release is a folder with a {CERTIFICATE_FILE}")
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        raise ReleaseError(f"{folder} has no {name}, so it is not a complete release; get it again") from None
    except OSError as error:
        raise ReleaseError(f"{folder / name} cannot be read ({error.strerror})") from error


def _files(content: Content, certified: Certificate, given: dict[str, bytes]) -> dict[str, bytes]:
    """Name and content of every file; refuses what the certificate does not vouch for."""
    files = content_files(content) | {card.FILE: card.write(certified).encode()} | given
    digests = {name: sha256(content) for name, content in files.items()}
    if digests != certified.files:
        odd = sorted({name for name, _ in digests.items() ^ certified.files.items()})
        raise ReleaseError(f"the certificate was made for something else: {', '.join(odd)} differ")
    return files | {CERTIFICATE_FILE: certified.to_bytes()}
