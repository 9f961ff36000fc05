"""A release of another party, and whether it goes together with data."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from privset.data import Dataset
from privset.errors import ReleaseError
from privset.facts import PublicFacts
from privset.release import Certificate, ClassifierRelease, Release, load_published
from privset.release.issuing import readable


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Received:
    """One release of an earlier party, verified.

    Attributes:
        release: As loaded.
        classes: The classes that its party has.
    """

    release: Release | ClassifierRelease
    classes: tuple[str, ...]

    @property
    def certificate(self) -> Certificate:
        """Of the release."""
        return self.release.certificate


def loaded(path: Path) -> Received:
    """A release that was verified.

    Raises:
        ReleaseError: It is a classifier that does not say whose it is.
    """
    release = load_published(path)
    return Received(release=release, classes=_classes(path, release))


def as_certified(dataset: Dataset) -> Dataset:
    """The data under the names that certificates have for it and its classes, so that the two can be compared."""
    facts = dataset.facts
    classes = tuple(map(readable, facts.classes))
    return dataclasses.replace(dataset, facts=dataclasses.replace(facts, name=readable(facts.name), classes=classes))


def check_form(where: Path | str, released: PublicFacts, data: PublicFacts) -> None:
    """Refuse to put a release together with data whose images have another size or other constants.

    Args:
        where: The release, as the message names it.
        released: Of the release.
        data: Of the data.

    Raises:
        ReleaseError: With what is different, and the options that would mend it.
    """
    there, here = _form(released), _form(data)
    odd = [name for name in there if there[name] != here[name]]
    if odd:
        what = ", ".join(f"{name} {_said(name, there)} and not {_said(name, here)}" for name in odd)
        options = ", ".join(f"--{name}" for name in odd)
        raise ReleaseError(
            f"{where} is of images of another form than {data.name}: {what}; read the data as for that release "
            f"({options})"
        )


def _classes(path: Path, release: Release | ClassifierRelease) -> tuple[str, ...]:
    certificate = release.certificate
    if isinstance(release, Release):
        classes = certificate.facts.classes
    elif certificate.party is not None:
        classes = certificate.party.classes
    else:
        raise ReleaseError(
            f"{path}: its certificate does not say what classes its party has, and a classifier has outputs for others "
            "too; train it with `privset continual stage`"
        )
    return classes


def _form(facts: PublicFacts) -> dict[str, tuple[float, ...]]:
    """What decides whether images go together, by the option that sets it."""
    size = (facts.height, facts.width)
    return {"size": size, "channels": (facts.channels,), "mean": facts.mean, "std": facts.std}


def _said(name: str, form: dict[str, tuple[float, ...]]) -> str:
    return ("x" if name == "size" else " ").join(map(str, form[name]))
