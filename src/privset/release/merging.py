"""Joins releases of several parties into one set with one certificate.

The joint release holds all images, and in ``parts/N/`` certificate and ledger of each release that it was joined from,
so that `verify` needs nothing else: it checks each part's certificate as that of any release, takes the images of each
part out of the set again and compares their digest, and computes the joint guarantee anew.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from privset.errors import ReleaseError
from privset.facts import PublicFacts
from privset.release import joint
from privset.release.artefact import Release
from privset.release.certificate import FILE as CERTIFICATE_FILE
from privset.release.certificate import LEDGER_FILE
from privset.release.folder import check_writable, release_in
from privset.release.issuing import certify_joined
from privset.release.loading import load, read_file
from privset.release.saving import save_with
from privset.release.sections import Facts, Joined, Part
from privset.release.verification import require_verified


def merge(releases: Sequence[str | Path], *, out: str | Path, disjoint: bool = False) -> Release:
    """Join the synthetic sets of several releases, each verified first, into one release in the folder ``out``.

    Args:
        releases: Folders of two or more sets, or of stages that hold one each; images must be of the same form, classes
            are joined by name.
        out: Folder to write; it must not exist.
        disjoint: Your word that no record is in the data of two of them: the largest epsilon then holds for all.
            Otherwise what was asked adds up.

    Raises:
        ReleaseError: One does not verify or cannot be joined with the others; nothing is written.
    """
    folders, started = [Path(folder) for folder in releases], time.perf_counter()
    if len(folders) < 2:
        raise ReleaseError("give two or more releases to join")
    check_writable(Path(out))
    loaded = [_part(folder) for folder in folders]
    certificates = [one.certificate for one in loaded]
    named = [(str(folder), one.certificate) for folder, one in zip(folders, loaded, strict=True)]
    joint.check_different(named, disjoint=disjoint)
    forms = {one.set.pixel_form for one in loaded}
    if len(forms) > 1:
        raise ReleaseError(f"{' and '.join(sorted(forms))} do not go into one set; make all releases in one form")
    asked = joint.joint_asked(certificates, disjoint=disjoint)
    made = joint.joint_set([one.set for one in loaded], _public(asked["facts"]))
    parts = tuple(
        Part(certificate=one.certificate.seal, digest=one.certificate.contents.digest, images=len(one.set))
        for one in loaded
    )
    given = {
        f"parts/{number}/{name}": read_file(one.path, name)
        for number, one in enumerate(loaded, 1)
        for name in (CERTIFICATE_FILE, LEDGER_FILE)
        if name == CERTIFICATE_FILE or name in one.certificate.files
    }
    seconds = time.perf_counter() - started
    issued = certify_joined(asked, Joined(disjoint=disjoint, parts=parts), made, given, seconds=seconds)
    save_with(Path(out), made, issued, given)
    return load(out)


def _part(folder: Path) -> Release:
    folder = release_in(folder)
    require_verified(folder, "joined with it")
    release = load(folder)
    if release.certificate.joined is not None:
        raise ReleaseError(f"{folder} was joined from others itself; give the releases that it was joined from")
    return release


def _public(facts: Facts) -> PublicFacts:
    return PublicFacts(**facts.model_dump())
