"""README.md of a release, a dataset or model card: what it holds, whom the guarantee protects, how to use it.

The card is a function of the certificate alone. It leaves out the seal and the digests of files, which are
made after it.
"""

from __future__ import annotations

import json
import re

from privset.release import generator_card, model_card, snapshots
from privset.release.certificate import Certificate
from privset.release.sections import ClassifierContents, Event, Joined, SetContents, StatisticsContents
from privset.release.statement import rounded_up

FILE = "README.md"

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_MOST_CLASSES = 100


def write(certificate: Certificate) -> str:
    """The whole card, as Markdown with YAML front matter in the Hugging Face layout."""
    contents = certificate.contents
    if isinstance(contents, SetContents):
        more = generator_card.DRAWING if contents.generator is not None else ""
        middle = [_contents(certificate, contents), _origin(certificate), _loading(certificate, contents), more]
    elif isinstance(contents, ClassifierContents):
        middle = [_classifier(certificate, contents), model_card.loading(certificate, contents)]
    else:
        middle = [_statistics(certificate, contents), _DISTILLING]
    parts = [
        _front_matter(certificate),
        f"# {escape(title(certificate))}",
        warning(certificate),
        escape(certificate.statement),
        guarantee(certificate),
        claim(certificate),
        *middle,
        limits(certificate),
        _verifying(),
        _LICENCE,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def title(certificate: Certificate) -> str:
    """What a release is called, in words; not yet safe to be shown by Markdown."""
    what = {"set": "Synthetic images in place", "statistics": "Statistics", "classifier": "A classifier"}
    return f"{what[certificate.contents.kind]} of {certificate.facts.name}"


def size_category(images: int) -> str:
    """How Hugging Face calls a set of this size."""
    return next((name for most, name in _SIZES if images < most), "n>1M")


def tags(certificate: Certificate) -> list[str]:
    """What a release can be found by."""
    kind = {"set": "synthetic"}.get(certificate.contents.kind, certificate.contents.kind)
    return [kind, "privset", "differential-privacy" if certificate.guarantee.private else "not-private"]


def _front_matter(certificate: Certificate) -> str:
    contents = certificate.contents
    sizes = [size_category(contents.images)] if isinstance(contents, SetContents) else []
    # A JSON string is a YAML string, whatever characters the name of the data has.
    name = json.dumps(title(certificate), ensure_ascii=False)
    lines = [
        "---",
        f"pretty_name: {name}",
        "task_categories:",
        "- image-classification",
        *(line for size in sizes for line in ("size_categories:", f"- {size}")),
        "tags:",
        *(f"- {tag}" for tag in tags(certificate)),
        "viewer: false",
        "---",
    ]
    return "\n".join(lines)


def warning(certificate: Certificate) -> str:
    """A heading that cannot be overlooked, if there is no guarantee; otherwise nothing."""
    if certificate.guarantee.private:
        return ""
    reason = "seeded noise" if certificate.noise_source == "seeded" else "epsilon is infinite"
    return f"## NOT PRIVATE: {reason}\n\n**Do not publish this if the records behind it are private.**"


def guarantee(certificate: Certificate) -> str:
    """The section with every number of the guarantee, and what was asked of the records."""
    stated = certificate.guarantee
    pld = "not computed" if stated.epsilon_by.pld is None else rounded_up(stated.epsilon_by.pld)
    noise = "operating system's entropy" if certificate.noise_source == "system" else "**from a seed**"
    rows = [
        ("private", "yes" if stated.private else "**no**"),
        ("epsilon spent", rounded_up(stated.epsilon_spent)),
        ("epsilon budgeted", rounded_up(stated.epsilon_budgeted)),
        ("delta", f"{stated.delta:g}"),
        ("neighbouring relation", stated.relation),
        ("accountant", stated.accountant),
        ("epsilon by RDP", rounded_up(stated.epsilon_by.rdp)),
        ("epsilon by PLD", pld),
        ("source of noise", noise),
    ]
    events = [
        (event.question, f"{event.count:,}", _rate(event), f"{event.noise_multiplier:.6g}")
        for event in certificate.events
    ]
    heading = "The guarantee" if stated.private else "The numbers, which guarantee nothing here"
    return (
        f"## {heading}\n\n{_table(('', ''), rows)}\n\n{_asked(certificate)}:\n\n"
        f"{_table(('question', 'answers', 'sampling rate', 'noise multiplier'), events)}"
    )


def claim(certificate: Certificate) -> str:
    """The section with the epsilon of another analysis, if there is one; otherwise nothing."""
    if certificate.claim is None:
        return ""
    return (
        "## Another epsilon, which does not count\n\n"
        f"{escape(certificate.claim.claim().sentence())} It is named here for whoever compares this release with what "
        f"was published. Proven is epsilon {rounded_up(certificate.guarantee.epsilon_spent)} "
        f"({certificate.guarantee.relation}), as stated above."
        + ("" if certificate.guarantee.private else " Without secret noise, neither holds.")
    )


def _rate(event: Event) -> str:
    return f"{event.sampling_rate:.6g}{'' if event.sampling == 'poisson' else ' of the shards'}"


def _asked(certificate: Certificate) -> str:
    if certificate.joined is None:
        return "What was asked of the private records"
    if certificate.joined.disjoint:
        return "What was asked of the private records, part by part; of a record, what its own part asked and no more"
    return "What was asked of the private records, part by part; of a record, what each part asked that it is in"


def _contents(certificate: Certificate, contents: SetContents) -> str:
    facts = certificate.facts
    names = [f"{escape(name)} ({count:,})" for name, count in zip(facts.classes, contents.per_class, strict=False)]
    more = [f"and {len(names) - _MOST_CLASSES:,} more"] if len(names) > _MOST_CLASSES else []
    along = () if contents.snapshots is None else contents.snapshots.answers
    form = (
        "Pixels are 8-bit, in the form of the data itself."
        if contents.pixel_form == "8-bit"
        else "**The values are unbounded floats in the normalised space, not 8-bit pixels.** They may lie "
        "outside the range of any image; what an 8-bit image file could show of them is in `preview.png`."
    )
    return (
        f"## What is in it\n\n{contents.images:,} images of {facts.channels} x {facts.height} x "
        f"{facts.width} (channels, height, width) in {len(facts.classes):,} classes, made by the method "
        f"{escape(certificate.method)} on {certificate.created[:10]}.\n\n{form}\n\n"
        "Classes, in the order of the labels, with the number of images: "
        f"{', '.join(names[:_MOST_CLASSES] + more)}.\n\n![One row of images for each class](preview.png)\n\n"
        "- `set.safetensors`: the tensors `images` and `labels`\n"
        f"{generator_card.file_line(contents.generator)}{snapshots.file_line(along)}"
        "- `certificate.json`: every number behind the guarantee, for machines and experts\n"
        f"{_JOINED_FILES if certificate.joined is not None else _OWN_FILES}"
        "- `preview.png`: the first images of each class"
    )


_OWN_FILES = (
    "- `ledger.jsonl`: the charges as they were recorded before each answer (private releases have one)\n"
    "- `config.toml`: what was chosen, for whoever makes another set (most releases have one)\n"
)
_JOINED_FILES = (
    "- `parts/N/certificate.json`: that of each release this was joined from\n"
    "- `parts/N/ledger.jsonl`: its charges, as they were recorded before each answer (private releases have one); this "
    "release asked nothing itself\n"
)


def _origin(certificate: Certificate) -> str:
    if certificate.joined is not None:
        return _parts(certificate.joined)
    if certificate.drawn is not None:
        return generator_card.origin(certificate, certificate.drawn)
    if certificate.source is None:
        return ""
    return (
        "## Where it comes from\n\nThe private records were asked once, for statistics; this set was distilled from "
        "them without looking at a record again. Guarantee, questions and ledger are those of the statistics. With "
        "their release at hand, `privset verify FOLDER --source STATISTICS` checks that the two belong together.\n\n"
        f"- seal of their certificate: `{certificate.source.certificate}`\n"
        f"- digest of their content: `{certificate.source.digest}`"
    )


def _parts(joined: Joined) -> str:
    rows = [
        (str(number), f"{one.images:,}", f"`{one.certificate}`", f"`{one.digest}`")
        for number, one in enumerate(joined.parts, 1)
    ]
    claim = (
        "Whoever joined them says that no record is in two of them; no file can show it."
        if joined.disjoint
        else "Nothing is said about whether their records overlap, so everything that was asked adds up, and the "
        "number of private records is at most the one stated."
    )
    return (
        "## Where it comes from\n\nThis set was joined from several releases, whose images follow one another in it. "
        f"{claim} Their certificates and ledgers are in `parts/`, and `privset verify` checks each of them.\n\n"
        f"{_table(('part', 'images', 'seal of its certificate', 'digest of its content'), rows)}"
    )


def _statistics(certificate: Certificate, contents: StatisticsContents) -> str:
    facts = certificate.facts
    rows = [(escape(name), " x ".join(map(str, shape))) for name, shape in contents.shapes.items()]
    return (
        f"## What is in it\n\n{contents.numbers:,} numbers, measured by the method {escape(certificate.method)} on "
        f"{certificate.created[:10]} on images of {facts.channels} x {facts.height} x {facts.width} (channels, height, "
        f"width). There is no image in it.\n\n{_table(('tensor', 'shape'), rows)}\n\n"
        f"{_class_names(certificate)}\n\n"
        "- `statistics.safetensors`: the tensors, float32\n"
        "- `certificate.json`: every number behind the guarantee, and every setting they were measured with; what "
        "the images were looked at with is known by the seed there\n"
        "- `ledger.jsonl`: the charges as they were recorded before each answer (private releases have one)\n"
        "- `config.toml`: what was chosen, for whoever measures again (most releases have one)"
    )


def _classifier(certificate: Certificate, contents: ClassifierContents) -> str:
    facts = certificate.facts
    return (
        f"## What is in it\n\nA {escape(contents.network)} of {contents.weights:,} weights, trained by the method "
        f"{escape(certificate.method)} on {certificate.created[:10]} on images of {facts.channels} x {facts.height} x "
        f"{facts.width} (channels, height, width). There is no image in it.\n\n{_class_names(certificate)}\n\n"
        "- `classifier.safetensors`: the weights, float32\n"
        "- `certificate.json`: every number behind the guarantee, for machines and experts\n"
        "- `ledger.jsonl`: the charges as they were recorded before each answer (private releases have one)\n"
        "- `config.toml`: what was chosen, for whoever trains another one (most releases have one)"
    )


def _class_names(certificate: Certificate) -> str:
    classes = certificate.facts.classes
    names = [escape(name) for name in classes[:_MOST_CLASSES]]
    more = [f"and {len(classes) - _MOST_CLASSES:,} more"] if len(classes) > _MOST_CLASSES else []
    return f"Classes, in the order of the labels: {', '.join(names + more)}."


_DISTILLING = (
    "## How to use it\n\nWith privset installed, and no data:\n\n```\n"
    "privset distil FOLDER --per-class 50 --out SET\n```\n\n"
    "This makes a synthetic set, as often as you like, of any size, and costs no privacy. Every such set carries the "
    "guarantee above."
)


def _loading(certificate: Certificate, contents: SetContents) -> str:
    return (
        "## How to load it\n\n`inputs` are what a network should be trained on: images normalised with the "
        "public constants below. Test images must be normalised with the same ones.\n\n"
        f"```python\n{in_torch(certificate, contents)}\n```\n\n"
        f"Without PyTorch:\n\n```python\n{in_numpy(certificate, contents)}\n```"
    )


def in_torch(certificate: Certificate, contents: SetContents) -> str:
    """Python that loads the set as tensors ``inputs`` and ``labels``, beside the release's files."""
    facts = certificate.facts
    if contents.pixel_form == "8-bit":
        use = "inputs = (images.float() / 255 - mean) / std"
    else:
        use = (
            "inputs = images  # as they are\n"
            "pixels = ((images * std + mean) * 255).round().clamp(0, 255).byte()  # to look at"
        )
    return f"""\
import torch
from safetensors.torch import load_file

{_tensors(certificate, contents)}
mean = torch.tensor({list(facts.mean)}).view(-1, 1, 1)
std = torch.tensor({list(facts.std)}).view(-1, 1, 1)
{use}"""


def in_numpy(certificate: Certificate, contents: SetContents) -> str:
    """Python that loads the set as arrays ``inputs`` and ``labels``, beside the release's files."""
    facts = certificate.facts
    if contents.pixel_form == "8-bit":
        use = 'inputs = (images.astype("float32") / 255 - mean) / std'
    else:
        use = (
            "inputs = images  # as they are\n"
            'pixels = ((images * std + mean) * 255).round().clip(0, 255).astype("uint8")  # to look at'
        )
    return f"""\
import numpy as np
from safetensors.numpy import load_file

{_tensors(certificate, contents)}
mean = np.array({list(facts.mean)}, dtype="float32").reshape(-1, 1, 1)
std = np.array({list(facts.std)}, dtype="float32").reshape(-1, 1, 1)
{use}"""


def _tensors(certificate: Certificate, contents: SetContents) -> str:
    facts = certificate.facts
    form = "uint8" if contents.pixel_form == "8-bit" else "normalised float32"
    shape = [contents.images, facts.channels, facts.height, facts.width]
    return f"""\
tensors = load_file("set.safetensors")
images = tensors["images"]  # {form} {shape}
labels = tensors["labels"]  # int64 [{contents.images}]"""


def limits(certificate: Certificate) -> str:
    """The section with what the guarantee does not cover."""
    return "\n".join(["## What the guarantee does not cover", "", *(f"- {line}" for line in certificate.not_accounted)])


def _verifying() -> str:
    return (
        "## How to verify it\n\nWith privset installed:\n\n```\nprivset verify FOLDER\n```\n\n"
        "This recomputes epsilon from the recorded questions, plans them again from the recorded settings, "
        "and compares every file with its digest. It shows damage, careless edits and numbers that do not "
        "fit together. It cannot show that the software was run as recorded: for that you trust whoever made "
        "the release."
    )


_LICENCE = (
    "## Licence\n\nThe holder of the private data decides under which licence this is published, and "
    "puts it beside this file as `LICENSE`. This file must stay as it is, or `privset verify` will say "
    "that it was changed. privset claims no rights in it."
)


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *(tuple(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escape(text: str) -> str:
    """``text`` on one line, shown by Markdown as it is: a class name must not become a heading or a link."""
    one_line = " ".join(text.split())
    return re.sub(r"([\\`*_\[\]<>|#~!&])", r"\\\1", one_line)
