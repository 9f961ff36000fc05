"""One self-contained page: panels in their order, with style and script in it, and no way out to any network."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from importlib.resources import files

from privset.release import card
from privset.release.sections import ClassifierContents, SetContents, StatisticsContents
from privset.report import accuracy, gallery, guarantee, loading, record, trends
from privset.report.markup import Markup, join, named, tag
from privset.report.sources import Result, Subject
from privset.version import __version__

_HELP = "Click an image to enlarge it; with the keyboard, move with the arrow keys, Enter enlarges, Escape closes."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Panel:
    """One part of the page; the contents link to its name, which is also the word they have for it."""

    name: str
    title: str
    lead: str | None
    body: Markup


def page(subjects: Sequence[Subject], results: Sequence[Result] = ()) -> bytes:
    """The whole page; the same releases, evaluations and results give the same bytes.

    Args:
        subjects: The releases, at least one.
        results: What studies measured; those of other data are left out.
    """
    subjects = list(subjects)
    shown = panels(subjects, results)
    style, script = _own("style.css"), _own("script.js")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"privset {__version__}"),
        tag("title", f"{_title(subjects)} · privset report"),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        tag("a", "Skip to the report", href="#report", class_="skip"),
        _header(subjects),
        tag(
            "nav",
            tag("ul", [tag("li", tag("a", p.name.capitalize(), href=f"#{p.name}")) for p in shown]),
            aria_label="Contents",
        ),
        tag("main", [_section(panel) for panel in shown], id="report"),
        _footer(accuracies=shows_accuracies(subjects, results)),
        _ZOOM,
        tag("script", Markup(script)),
    )
    # What cannot be encoded, half a character in some hostile name, is written as its number.
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n".encode("utf-8", "xmlcharrefreplace")


def shows_accuracies(subjects: Sequence[Subject], results: Sequence[Result]) -> bool:
    """Whether any accuracy is on the page, of a release or of a study: all of them are measured on real images."""
    return any(subject.evaluations for subject in subjects) or trends.shows_studies(_sets(subjects), results)


def panels(subjects: list[Subject], results: Sequence[Result]) -> list[Panel]:
    """Every panel that the releases have something for."""
    sets = _sets(subjects)
    measured, trained = (
        [subject for subject in subjects if isinstance(subject.certificate.contents, kind)]
        for kind in (StatisticsContents, ClassifierContents)
    )
    found = []
    if sets:
        found.append(Panel(name="images", title="Images", lead=_HELP, body=_beside(sets, _gallery)))
    if measured:
        body = _beside(measured, _statistics)
        found.append(Panel(name="statistics", title="Statistics", lead="What was measured on the records.", body=body))
    if trained:
        body = _beside(trained, _classifier)
        found.append(Panel(name="classifier", title="Classifier", lead="What was trained on the records.", body=body))
    found += [
        Panel(
            name="guarantee",
            title="What is guaranteed",
            lead=None,
            body=join(
                [
                    [tag("p", sentence, class_="caution") for sentence in guarantee.together(subjects)],
                    _beside(subjects, guarantee.stated),
                ]
            ),
        ),
        Panel(
            name="limits",
            title="What is not covered",
            lead="No guarantee says everything. This one was not made to cover the following.",
            body=_beside(subjects, lambda one: guarantee.limits(one.certificate)),
        ),
        Panel(
            name="budget",
            title="Where the budget went",
            lead="Every question that was asked of the private records. No others were asked for this.",
            body=_beside(subjects, guarantee.budget),
        ),
    ]
    if tested := [subject for subject in subjects if subject not in measured]:
        found += [
            Panel(
                name="accuracy",
                title="Is it useful",
                lead=_tested(sets=bool(sets), classifiers=bool(trained)),
                body=accuracy.accuracies(tested, results),
            ),
            Panel(
                name="confusion",
                title="What is mistaken for what",
                lead=None,
                body=_beside(tested, accuracy.confusion),
            ),
        ]
    if sets:
        found.append(
            Panel(
                name="trends",
                title="How accuracy grows",
                lead="With a larger epsilon, which means less privacy, and with more images.",
                body=trends.trends(sets, results),
            )
        )
    found += [
        Panel(
            name="use",
            title="How to use it",
            lead="In the folder of the release. Only the last of these needs privset." if sets else None,
            body=_beside(subjects, lambda one: loading.loading(one.certificate)),
        ),
        Panel(
            name="record",
            title="The record",
            lead="For whoever wants to check: settings, software, and the digest of every file.",
            body=_beside(subjects, record.record),
        ),
    ]
    return found


def _sets(subjects: Sequence[Subject]) -> list[Subject]:
    return [subject for subject in subjects if isinstance(subject.certificate.contents, SetContents)]


def _tested(*, sets: bool, classifiers: bool) -> str:
    if sets and classifiers:
        return (
            "Of a set: a classifier that was trained on nothing but the synthetic images. Of a published classifier: "
            "itself, which was trained on the private records. Both were tested on real images."
        )
    if sets:
        return "A classifier that was trained on nothing but the synthetic images, tested on real ones."
    return "The published classifier, tested on real images."


def _title(subjects: Sequence[Subject]) -> str:
    if len(subjects) > 1:
        return f"{len(subjects)} releases side by side"
    return card.title(subjects[0].certificate)


def _header(subjects: list[Subject]) -> Markup:
    many = len(subjects) > 1
    warnings = [guarantee.banner(one.certificate, one.label if many else "This release") for one in subjects]
    return tag(
        "header",
        tag("p", "Release report", class_="kind"),
        tag("h1", named(_title(subjects))),
        warnings,
        record.compared(subjects) if many else record.figures(subjects[0]),
    )


def _footer(*, accuracies: bool) -> Markup:
    free = (
        "The accuracies on this page were measured on real images; all else was computed from the release alone."
        if accuracies
        else "Everything on this page was computed from the release alone, so it may be passed on wherever the release "
        "may."
    )
    return tag(
        "footer",
        tag("p", free),
        tag(
            "p",
            f"Made by privset {__version__} from releases that hold: every digest, epsilon and plan was recomputed. "
            "What no file can show is that the software was run as recorded; for that you trust whoever made it.",
        ),
    )


def _section(panel: Panel) -> Markup:
    heading = f"{panel.name}-heading"
    return tag(
        "section",
        tag("h2", panel.title, id=heading),
        tag("p", panel.lead, class_="lead") if panel.lead else None,
        panel.body,
        id=panel.name,
        aria_labelledby=heading,
    )


def _beside(subjects: Sequence[Subject], build: Callable[[Subject], Markup]) -> Markup:
    """The same for every release: side by side where there is room, and by name; once, if all have the same."""
    built = [build(subject) for subject in subjects]
    if len(set(built)) == 1:
        return built[0]
    return tag(
        "div",
        [tag("article", tag("h3", named(one.label)), body) for one, body in zip(subjects, built, strict=True)],
        class_="beside two" if len(subjects) in (2, 4) else "beside",
    )


def _gallery(subject: Subject) -> Markup:
    assert subject.set is not None
    return gallery.gallery(subject.set, subject.label)


def _statistics(subject: Subject) -> Markup:
    assert isinstance(subject.certificate.contents, StatisticsContents)
    return record.statistics(subject.certificate.contents)


def _classifier(subject: Subject) -> Markup:
    assert isinstance(subject.certificate.contents, ClassifierContents)
    return record.classifier(subject.certificate.contents)


def _own(name: str) -> str:
    return (files("privset.report") / name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """What the browser may do: show what is in the page, run this one script, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


_ZOOM = tag(
    "dialog",
    tag("img", alt="", src="data:,"),
    tag("p", id="zoom-name", aria_live="polite"),
    tag(
        "div",
        tag("button", "← Previous", type="button", data_step="-1"),
        tag("button", "Close", type="button", data_close=True),
        tag("button", "Next →", type="button", data_step="1"),
        class_="steps",
    ),
    id="zoom",
    aria_labelledby="zoom-name",
)
