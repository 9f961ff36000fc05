"""Reads a release folder, with suspicion."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from privset.errors import ReleaseError
from privset.release import classifier, generator, replanning, snapshots, statistics, synthetic
from privset.release.artefact import ClassifierRelease, Release, StatisticsRelease
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.release.certificate import Certificate
from privset.release.classifier import Classifier
from privset.release.folder import release_in, releases_in, was_release
from privset.release.generator import Generator
from privset.release.issuing import Content
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


def load(folder: str | Path) -> Release:
    """Read a synthetic set, from its folder or that of a stage which holds it.

    Only JSON and safetensors are read, so a hostile folder cannot run code. The form of everything is checked, and that
    the set is the one the certificate is about. Whether the numbers in the certificate are right is for `verify`.

    Raises:
        ReleaseError: A missing or unreadable file, an unknown version, a changed certificate, another thing than
            a set, or another set than the certificate's.
    """
    folder = release_in(folder)
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
        ReleaseError: A missing or unreadable file, an unknown version, a changed certificate, a set in place of
            statistics, or others than the certificate's.
    """
    folder = release_in(folder)
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
        ReleaseError: A missing or unreadable file, an unknown version, a changed certificate, another thing than
            a classifier, or other weights than the certificate's.
    """
    folder = release_in(folder)
    parsed, where = _certificate(folder), folder / classifier.FILE
    if not isinstance(parsed.contents, ClassifierContents):
        raise ReleaseError(f"{folder} holds {_WORDS[parsed.holding]}, and no classifier; load it with privset.load")
    architecture, facts = replanning.architecture_of(parsed.contents), parsed.public_facts()
    loaded = Classifier.from_bytes(read_file(folder, classifier.FILE), architecture, facts, str(where))
    _check_digest(loaded, parsed, where)
    return ClassifierRelease(folder, loaded, parsed)


def load_published(folder: str | Path) -> Release | ClassifierRelease:
    """Read a synthetic set or a classifier, whichever it is; see `load` and `load_classifier`."""
    folder = release_in(folder)
    trained = isinstance(_certificate(folder).contents, ClassifierContents)
    return load_classifier(folder) if trained else load(folder)


def _certificate(folder: Path) -> Certificate:
    where = folder / CERTIFICATE_FILE
    found = Certificate.parse(read_file(folder, CERTIFICATE_FILE), str(where))
    if found.seal != found.expected_seal():
        raise ReleaseError(
            f"{where}: was changed, and its seal does not fit it; `privset verify {folder}` says more, and the release "
            "should be got again from its source"
        )
    return found


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
    if not os.path.isdir(folder):
        raise ReleaseError(f"{folder} is not a folder; a release is a folder with a {CERTIFICATE_FILE}")
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        raise ReleaseError(f"{folder} has no {name}, so {_instead(folder)}") from None
    except OSError as error:
        raise ReleaseError(f"{folder / name} cannot be read ({error.strerror})") from error


def _instead(folder: Path) -> str:
    """What a folder is that lacks a file of a release, and what to do."""
    within = [] if was_release(folder) else sorted(path.name for path in folder.glob("*") if releases_in(path))
    if within:
        few = ", ".join([*within[:3], *(["..."] if within[3:] else [])])
        return f"it is no release, but a folder of such ({few}); give one of them"
    return "it is not a complete release; get it again"
