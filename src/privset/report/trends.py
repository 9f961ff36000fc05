"""How accuracy grows with epsilon, and with images a class, as far as it is known."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from privset.report import charts
from privset.report.charts import Point, Series
from privset.report.markup import Markup, join, table, tag
from privset.report.sources import Result, Subject


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Known:
    """One accuracy, and all that it depends on."""

    data: str
    method: str
    classifier: str
    recipe: str
    epsilon: float
    per_class: int
    mean: float
    std: float
    ours: bool


CAUTION = (
    "For the data holder: studies are measured on real images, the test images of the data they name, which no "
    "guarantee covers. Those of a public benchmark are public. If yours is not, decide whether these accuracies may be "
    "shown before you pass this page on."
)


def trends(subjects: Sequence[Subject], results: Sequence[Result]) -> Markup:
    """Two drawings for each data set, or a sentence on what they would need."""
    known = _known(subjects, results)
    found = _drawings(known)
    if not found:
        return tag(
            "p",
            "Accuracy is known at one epsilon and one size at most. Give this report more releases with their "
            "evaluations, or a folder of studies with ",
            tag("code", "--results DIR"),
            ", to see how it grows.",
        )
    note = "Diamonds are releases on this page. " if any(one.ours for one in known) else ""
    if any(not one.ours for one in known):
        note += "Circles are studies: the mean over several sets, whose noise was seeded so that it can be repeated."
    caution = tag("p", CAUTION, class_="caution") if any(not one.ours for one in known) else None
    return join([tag("div", found, class_="beside"), tag("p", note, class_="note"), caution])


def shows_studies(subjects: Sequence[Subject], results: Sequence[Result]) -> bool:
    """Whether `trends` has an accuracy that a study measured."""
    known = _known(subjects, results)
    return any(not one.ours for one in known) and bool(_drawings(known))


def _known(subjects: Sequence[Subject], results: Sequence[Result]) -> list[_Known]:
    return [*_of_releases(subjects), *_of_studies(subjects, results)]


def _drawings(known: Sequence[_Known]) -> list[Markup]:
    drawn = []
    for data in dict.fromkeys(one.data for one in known):
        about = [one for one in known if one.data == data]
        drawn.append(_drawing(about, data, across="epsilon", beside="per_class"))
        drawn.append(_drawing(about, data, across="per_class", beside="epsilon"))
    return [one for one in drawn if one is not None]


def _of_releases(subjects: Sequence[Subject]) -> Iterable[_Known]:
    for subject in subjects:
        for one in subject.evaluations:
            if subject.per_class is not None:
                yield _Known(
                    data=one.data,
                    method=subject.certificate.method,
                    classifier=one.classifier,
                    recipe=one.recipe_name,
                    epsilon=subject.certificate.guarantee.epsilon_budgeted,
                    per_class=subject.per_class,
                    mean=one.mean,
                    std=one.std,
                    ours=True,
                )


def _of_studies(subjects: Sequence[Subject], results: Sequence[Result]) -> Iterable[_Known]:
    wanted = {subject.certificate.facts.name for subject in subjects}
    for one in results:
        for recipe, measured in one.recipes.items():
            if one.data in wanted and one.per_class is not None:
                yield _Known(
                    **{name: getattr(one, name) for name in ("data", "method", "classifier", "epsilon", "per_class")},
                    recipe=recipe,
                    mean=measured.accuracy.mean,
                    std=measured.accuracy.std,
                    ours=False,
                )


def _weight(known: Sequence[_Known], across: str) -> tuple[bool, int]:
    """Which series to draw first: those with a release of this page, then the longest."""
    return any(one.ours for one in known), len({getattr(one, across) for one in known})


def _beside(one: _Known, beside: str) -> str:
    return f"epsilon {one.epsilon:g}" if beside == "epsilon" else f"{one.per_class:,} a class"


_WORDS = {"epsilon": "epsilon", "per_class": "images a class"}


def _drawing(known: Sequence[_Known], data: str, *, across: str, beside: str) -> Markup | None:
    """Accuracy against ``across``, a line for each way of measuring and each ``beside``; None if there is one x."""
    finite = [one for one in known if math.isfinite(getattr(one, across))]
    if len({getattr(one, across) for one in finite}) < 2:
        return None
    groups: dict[tuple[str, ...], list[_Known]] = {}
    for one in sorted(finite, key=lambda one: (one.ours, one.method, one.classifier, one.recipe, one.per_class)):
        words = (one.method, one.classifier, f"recipe {one.recipe}", _beside(one, beside))
        groups.setdefault(words, []).append(one)
    shown = sorted(groups, key=lambda words: _weight(groups[words], across), reverse=True)[: charts.COLOURS]
    vary = [place for place in range(4) if len({words[place] for words in shown}) > 1]
    series = [
        Series(
            name=", ".join(words[place] for place in vary) or words[0],
            points=tuple(
                Point(x=getattr(one, across), mean=one.mean, std=one.std, ours=one.ours) for one in groups[words]
            ),
        )
        for words in shown
    ]
    common = ", ".join(words for place, words in enumerate(shown[0]) if place not in vary)
    title = f"{data}: accuracy against {_WORDS[across]}"
    left = len(groups) - len(shown)
    legend = [tag("li", charts.key(number), one.name) for number, one in enumerate(series)]
    rows = [
        (one.name, f"{point.x:g}", f"{point.mean:.1f} ± {point.std:.1f}", "this page" if point.ours else "study")
        for one in series
        for point in sorted(one.points, key=lambda point: point.x)
    ]
    numbers = table(("series", _WORDS[across], "accuracy, %", "from"), rows, caption=title, kind="numbers")
    return tag(
        "figure",
        tag("figcaption", tag("strong", title), tag("small", common, class_="under")),
        charts.lines(series, across=_WORDS[across], label=f"{title}; the numbers are in the table below"),
        tag("ul", legend, class_="legend"),
        tag("p", f"{left} more series are not drawn.", class_="note") if left else None,
        tag("details", tag("summary", "The numbers"), numbers),
        class_="trend",
    )
