"""What the card of a set says of the generator that is published with it, or that it was drawn from."""

from __future__ import annotations

from privset.release.certificate import Certificate
from privset.release.sections import Drawn, GeneratorContents

DRAWING = (
    "## How to get more images\n\nWith privset installed, and no data:\n\n```\n"
    "privset sample FOLDER --per-class 100 --out SET\n```\n\n"
    "This draws fresh images from the generator, as often as you like, and costs no privacy. Every such set carries "
    "the guarantee above. It may teach less than the images here do: evaluate it before you rely on it."
)


def file_line(contents: GeneratorContents | None) -> str:
    """Its line in the list of files; nothing if there is no generator."""
    if contents is None:
        return ""
    return f"- `generator.safetensors`: the generator that made the images, {contents.numbers:,} numbers\n"


def origin(certificate: Certificate, drawn: Drawn) -> str:
    """The section on where a set comes from that was drawn."""
    return (
        "## Where it comes from\n\nThe images were drawn from a generator that another release holds, without looking "
        "at a record again; they may teach less than the images there. Guarantee, questions, settings and ledger are "
        "those of that release. With it at hand, `privset verify FOLDER --source RELEASE` checks that the two belong "
        "together, and draws the images again.\n\n"
        f"- seal of its certificate: `{drawn.certificate}`\n- digest of its generator: `{drawn.generator}`\n"
        f"- seed of the codes: {certificate.seeds.get('drawn')}"
    )
