"""The record of a release: what is in it, how it was made, what was checked, and every digest."""

from __future__ import annotations

import json

from privset.release import Certificate
from privset.release.sections import ClassifierContents, StatisticsContents
from privset.release.statement import rounded_up
from privset.report.markup import Child, Markup, join, named, table, tag
from privset.report.sources import Subject


def figures(subject: Subject) -> Markup:
    """The few numbers to see first."""
    pairs = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts(subject).items()]
    return tag("dl", pairs, class_="figures")


def facts(subject: Subject) -> dict[str, Child]:
    """The few numbers to see first, by name."""
    certificate = subject.certificate
    stated, contents = certificate.guarantee, certificate.contents
    found: dict[str, Child] = {
        "Epsilon": rounded_up(stated.epsilon_spent) if stated.private else tag("strong", "not private"),
        "Delta": f"{stated.delta:g}" if stated.private else "–",
    }
    if isinstance(contents, StatisticsContents):
        found["Noisy numbers"] = f"{contents.numbers:,}"
    elif isinstance(contents, ClassifierContents):
        found["Learned weights"] = f"{contents.weights:,}"
    else:
        found["Synthetic images"] = f"{contents.images:,}"
    found |= {
        "Private records": f"{certificate.facts.size:,}",
        "Classes": f"{len(certificate.facts.classes):,}",
        **_accuracy(subject),
        "Method": certificate.method,
        "Made on": certificate.created[:10],
    }
    return found


def _accuracy(subject: Subject) -> dict[str, Child]:
    """Of the first evaluation that was given, and how it was measured; the best of several would be chosen by test."""
    return {
        join(["Test accuracy (", named(one.classifier), ", recipe ", named(one.recipe_name), ")"]): f"{one.mean:.1f} %"
        for one in subject.evaluations[:1]
    }


def compared(subjects: list[Subject]) -> Markup:
    """The few numbers of several releases, side by side; an epsilon that others claim stands below the proven one."""
    columns = {subject.label: {"Data": named(subject.certificate.facts.name), **facts(subject)} for subject in subjects}
    if any(subject.certificate.claim is not None for subject in subjects):
        for subject in subjects:
            found = columns[subject.label]
            proven = {name: found.pop(name) for name in ("Data", "Epsilon")}
            claimed = {"Epsilon claimed, not the guarantee": _claimed(subject.certificate)}
            columns[subject.label] = proven | claimed | found
    names = dict.fromkeys(name for column in columns.values() for name in column)
    rows = [(name, *(column.get(name, "–") for column in columns.values())) for name in names]
    return table(("release", *map(named, columns)), rows, caption="The releases side by side", kind="numbers")


def _claimed(certificate: Certificate) -> str:
    if certificate.claim is None or not certificate.guarantee.private:
        return "–"
    return certificate.claim.claim().brief()


def statistics(contents: StatisticsContents) -> Markup:
    """What noisy statistics hold."""
    rows = [(named(name), " x ".join(map(str, shape))) for name, shape in contents.shapes.items()]
    return table(("tensor", "shape"), rows, caption=f"{contents.numbers:,} noisy numbers; there is no image among them")


def classifier(contents: ClassifierContents) -> Markup:
    """What a published classifier is."""
    rows = [("architecture", named(contents.network))]
    rows += [(name, str(value)) for name in ("width", "depth") if (value := getattr(contents, name)) is not None]
    return table(("", "value"), rows, caption=f"A network of {contents.weights:,} weights; there is no image in it")


def record(subject: Subject) -> Markup:
    """Everything else that the certificate has on file, folded up."""
    certificate = subject.certificate
    parts = [
        (
            "Checked when this page was made",
            ("check", "found"),
            [(one.name, one.detail) for one in subject.checks],
        ),
        ("Settings", ("setting", "value"), [(name, _shown(v)) for name, v in certificate.configuration.items()]),
        ("Public facts", ("fact", "value"), _public(certificate)),
        ("Software and seeds", ("name", "value"), [*certificate.software.items(), *_seeds(certificate)]),
        ("Digests (SHA-256)", ("of", "digest"), _digests(certificate)),
    ]
    return join(
        [
            tag("details", tag("summary", title), table(columns, rows, caption=title, kind="pairs"), class_="record")
            for title, columns, rows in parts
        ]
    )


def _public(certificate: Certificate) -> list[tuple[str, Child]]:
    facts = certificate.facts
    return [
        ("data", named(facts.name)),
        ("records", f"{facts.size:,}"),
        ("image", f"{facts.channels} x {facts.height} x {facts.width} (channels, height, width)"),
        ("mean, taken out", ", ".join(f"{value:g}" for value in facts.mean)),
        ("deviation, divided by", ", ".join(f"{value:g}" for value in facts.std)),
    ]


def _seeds(certificate: Certificate) -> list[tuple[str, str]]:
    return [(f"{name} seed", str(seed)) for name, seed in certificate.seeds.items()]


def _digests(certificate: Certificate) -> list[tuple[str, Child]]:
    rows = [("this certificate (its seal)", certificate.seal), ("the content", certificate.contents.digest)]
    if certificate.source is not None:
        rows.append(("the certificate of its statistics", certificate.source.certificate))
    if certificate.drawn is not None:
        rows.append(("the certificate of its generator", certificate.drawn.certificate))
    rows += certificate.files.items()
    return [(name, tag("code", digest)) for name, digest in rows]


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
