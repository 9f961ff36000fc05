import dataclasses
import re
from pathlib import Path
from typing import Any

from tests.report.conftest import evaluated, result

from privset.report import accuracy
from privset.report.sources import Result, Subject, add_evaluations, read_subjects


def subject(release: Path, written: Any, *documents: dict[str, Any]) -> Subject:
    (found,) = add_evaluations(read_subjects([release]), [written(one) for one in documents])
    return found


def text(markup: str) -> str:
    return re.sub(r"<[^>]*>", " ", markup)


def test_each_architecture_has_a_table_beside_real_records_and_noise(release: Path, written: Any) -> None:
    one = subject(release, written, evaluated(release), evaluated(release, classifier="mlp", accuracy=60))
    shown = accuracy.accuracies([one], [])
    assert shown.count("<table") == 2
    assert [float(found) for found in re.findall(r"<strong>([\d.]+) %</strong>", shown)] == [
        *(81.0, 97.2, 12.5),
        *(61.0, 97.2, 12.5),
    ]
    assert "convnet, recipe quick: tested on 15 real images of toy" in shown


def test_the_same_reference_is_shown_once(release: Path, written: Any) -> None:
    one = subject(release, written, evaluated(release), evaluated(release, accuracy=70))
    assert accuracy.accuracies([one], []).count("real records</th>") == 1


def test_studies_of_the_same_budget_and_size_stand_beside_it(release: Path, written: Any) -> None:
    one = subject(release, written, evaluated(release))
    fitting = result(method="dp-merf")
    others = [result(epsilon=2.0), result(per_class=5), result(data="other"), result(classifier="mlp")]
    shown = text(accuracy.accuracies([one], [Result(**document) for document in (fitting, *others)]))
    assert shown.count("study trial") == 1
    assert "dp-merf, study trial, epsilon 0.5" in shown
    assert shown.count("best published") == 1
    assert "61.5 %" in shown


def test_without_evaluation_the_page_says_how_to_get_one(release: Path) -> None:
    (one,) = read_subjects([release])
    assert "privset evaluate RELEASE --data DATA --json" in accuracy.accuracies([one], [])
    assert "Not measured" in accuracy.confusion(one)


def test_the_confusion_matrix_is_in_percent_of_the_truth(release: Path, written: Any) -> None:
    counts = [[6, 2, 0], [0, 5, 5], [0, 0, 0]]
    one = subject(release, written, evaluated(release, confusion=counts))
    shown = accuracy.confusion(one)
    rows = [re.findall(r"<td[^>]*>(?:<[^>]*>)?([^<]*)", row) for row in re.findall(r"<tr>(.*?)</tr>", shown)[1:]]
    assert rows == [["75", "25", "·"], ["·", "50", "50"], ["–", "–", "–"]]
    assert re.findall(r"<li>(.*?)</li>", text(shown.replace("<li>", "[").replace("</li>", "]"))) == []
    mistakes = [" ".join(text(one).split()) for one in re.findall(r"<li>(.*?)</li>", shown)]
    assert mistakes == ["one taken for two : 50 %", "zero taken for one : 25 %"]


def test_a_matrix_that_no_one_could_read_is_left_out(release: Path, written: Any) -> None:
    one = subject(release, written, evaluated(release))
    size = accuracy.MOST_CLASSES + 1
    many = dataclasses.replace(
        one.evaluations[0],
        classes=tuple(map(str, range(size))),
        confusion=tuple(tuple(int(a == b or a == 0) for b in range(size)) for a in range(size)),
    )
    shown = accuracy.confusion(dataclasses.replace(one, evaluations=(many,)))
    assert "<table" not in shown
    assert "Most often mistaken" in shown
