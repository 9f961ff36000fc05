"""What every export states: the words of the certificate, which are about the release, and what of that is not here."""

from __future__ import annotations

from privset.release.certificate import Certificate
from privset.release.sections import SetContents


def of_export(certificate: Certificate) -> str:
    """The statement of the certificate as it is; where the release holds more than its set, that this is not exported.

    Args:
        certificate: Of the release.
    """
    left = _left_out(certificate)
    if not left:
        return certificate.statement
    return f"{certificate.statement} This is an export of the set alone: {' and '.join(left)} are in the release only."


def _left_out(certificate: Certificate) -> list[str]:
    contents = certificate.contents
    assert isinstance(contents, SetContents)
    held = {
        "the weights of the generator": contents.generator is not None,
        "the images as they were along the run": contents.snapshots is not None,
    }
    return [what for what, there in held.items() if there]
