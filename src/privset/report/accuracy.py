"""Is the set useful: accuracy by architecture beside real data and other methods, and what is mistaken for what."""

from __future__ import annotations

from collections.abc import Sequence

from privset.evaluation import Evaluation
from privset.report import charts
from privset.report.markup import Child, Markup, framed, join, named, table, tag
from privset.report.sources import Result, Subject

MOST_CLASSES = 30
"""A confusion matrix of more classes than this cannot be read."""

_MOST_PAIRS = 8
_SHORT = 3
"""Letters of a class name that need not be turned to stand above a column."""
_WORDS = {"real": "real records", "noise": "random noise"}

CAUTION = (
    "For the data holder: these accuracies were measured on real images, which the guarantee does not cover. Decide "
    "whether they may be shown before you pass this page on."
)
CAUTION_REAL = " Those of real records come from training on the private records themselves."

Row = tuple[Child, Child, Child]


def accuracies(subjects: Sequence[Subject], results: Sequence[Result]) -> Markup:
    """A table for each architecture and recipe: every release, what stands beside it, and what studies measured."""
    groups = dict.fromkeys(_kind(one) for subject in subjects for one in subject.evaluations)
    if not groups:
        return tag(
            "p",
            "Not measured. Train on the set and test it on real images with ",
            tag("code", "privset evaluate RELEASE --data DATA --json > FILE"),
            ", and give the file to this report with ",
            tag("code", "--evaluation FILE"),
            ".",
        )
    caution = CAUTION + (CAUTION_REAL if any(o.trained_on == "real" for s in subjects for o in s.beside) else "")
    return join([[_group(kind, subjects, results) for kind in groups], tag("p", caution, class_="caution")])


def _kind(evaluation: Evaluation) -> tuple[str, str, str]:
    return evaluation.data, evaluation.classifier, evaluation.recipe_name


def _group(kind: tuple[str, str, str], subjects: Sequence[Subject], results: Sequence[Result]) -> Markup:
    data, classifier, recipe = kind
    rows = [
        _row(_release(subject, many=len(subjects) > 1), one, "set")
        for subject in subjects
        for one in subject.evaluations
        if _kind(one) == kind
    ]
    rows += _studied(kind, subjects, results)
    # Releases that are evaluated on the same data bring the same references with them.
    others = {(o.trained_on, o.images, o.accuracies): o for s in subjects for o in s.beside if _kind(o) == kind}
    rows += [
        _row(_WORDS.get(one.trained_on, one.trained_on), one, "real" if one.trained_on == "real" else "other")
        for one in others.values()
    ]
    tests = next(one for subject in subjects for one in subject.evaluations if _kind(one) == kind)
    tested = sum(map(sum, tests.confusion)) // len(tests.accuracies)
    columns = ("trained on", "images", join(["test accuracy", charts.bar(0, kind="none")]))
    caption = f"{classifier}, recipe {recipe}: tested on {tested:,} real images of {data}"
    return tag("div", table(columns, rows, caption=caption), class_="accuracy")


def _release(subject: Subject, *, many: bool) -> Markup:
    return tag("strong", named(subject.label) if many else "this release")


def _row(name: Child, evaluation: Evaluation, kind: str) -> Row:
    return name, f"{evaluation.images:,}", _measured(evaluation.mean, evaluation.std, len(evaluation.accuracies), kind)


def _measured(mean: float, std: float, runs: int, kind: str) -> Markup:
    spread = f" ± {std:.1f}" if runs > 1 else ""
    drawn = charts.bar(mean / 100, deviation=std / 100 if runs > 1 else 0.0, kind=kind)
    return tag("div", tag("span", tag("strong", f"{mean:.1f} %"), spread), drawn, class_="measured")


def _studied(kind: tuple[str, str, str], subjects: Sequence[Subject], results: Sequence[Result]) -> list[Row]:
    """What studies measured for sets of the same budget and size: by any method, and the best published."""
    data, classifier, recipe = kind
    wanted = {(s.certificate.facts.name, s.certificate.guarantee.epsilon_budgeted, s.per_class) for s in subjects}
    rows: list[Row] = []
    for one in results:
        if (one.data, one.epsilon, one.per_class) not in wanted or one.data != data or one.classifier != classifier:
            continue
        size = "all" if one.per_class is None else f"{one.per_class:,} a class"
        if recipe in one.recipes:
            found = one.recipes[recipe].accuracy
            drawn = _measured(found.mean, found.std, 2 if found.std else 1, "other")
            rows.append((f"{one.method}, study {one.study}, epsilon {one.epsilon:g}", size, drawn))
        if one.published is not None:
            drawn = _measured(one.published, 0.0, 1, "other")
            rows.append((f"best published, epsilon {one.epsilon:g}", size, drawn))
    return rows


def confusion(subject: Subject) -> Markup:
    """What is mistaken for what, in percent of the truth; of the first evaluation that was given."""
    if not subject.evaluations:
        return tag("p", "Not measured.")
    one = subject.evaluations[0]
    runs = len(one.accuracies)
    networks = "one network" if runs == 1 else f"{runs} networks together"
    reading = "Rows are the truth, columns the answers, in percent of the test images of each class."
    source = tag("p", f"{one.classifier}, recipe {one.recipe_name}, {networks}. {reading}", class_="note")
    matrix = _matrix(one) if len(one.classes) <= MOST_CLASSES else None
    return tag("div", tag("div", source, matrix), tag("div", _mistakes(one)), class_="pair wide")


def _matrix(one: Evaluation) -> Markup:
    names = [tag("th", tag("span", named(name)), scope="col") for name in one.classes]
    rows = []
    for truth, counts in enumerate(one.confusion):
        total = sum(counts)
        cells = [
            tag(
                "td",
                f"{100 * count / total:.0f}" if count else tag("span", "·", aria_label="0"),
                style=f"--share: {count / total:.3f}" if count else None,
                class_=" ".join(["right"] * (answer == truth) + ["deep"] * (bool(total) and count / total > 0.5))
                or None,
            )
            if total
            else tag("td", "–")
            for answer, count in enumerate(counts)
        ]
        rows.append(tag("tr", tag("th", named(one.classes[truth]), scope="row"), cells))
    caption = "Confusion matrix: answers (columns) in percent of the test images of each true class (rows)"
    size = "short" if max(map(len, one.classes)) <= _SHORT else "long"
    head = tag("thead", tag("tr", tag("th", "truth \\ answer", scope="col"), names))
    return framed(tag("table", tag("caption", caption), head, tag("tbody", rows), class_=f"matrix {size}"), caption)


def _mistakes(one: Evaluation) -> Markup:
    """The pairs that are mistaken most often, as sentences."""
    pairs = sorted(
        (
            (count / sum(counts), truth, answer)
            for truth, counts in enumerate(one.confusion)
            for answer, count in enumerate(counts)
            if count and truth != answer
        ),
        reverse=True,
    )[:_MOST_PAIRS]
    if not pairs:
        return tag("p", "Nothing was mistaken.")
    sentences = [
        tag("li", named(one.classes[truth]), " taken for ", named(one.classes[answer]), f": {100 * share:.0f} %")
        for share, truth, answer in pairs
    ]
    return join([tag("h4", "Most often mistaken"), tag("ol", sentences, class_="mistakes")])
