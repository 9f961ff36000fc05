import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.report.conftest import evaluated, result

from privset.errors import DataError, PrivsetError, ReleaseError
from privset.report.sources import add_evaluations, read_results, read_subjects


def test_a_release_that_does_not_hold_is_refused(release: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(release, changed)
    (changed / "README.md").write_text("epsilon is 0")
    with pytest.raises(ReleaseError, match=r"changed is not what it claims to be.*privset verify"):
        read_subjects([changed])


def test_a_release_is_named_once(release: Path, tmp_path: Path) -> None:
    shutil.copytree(release, tmp_path / "copy")
    with pytest.raises(ReleaseError, match="are the same release"):
        read_subjects([release, tmp_path / "copy"])


def test_labels_show_no_more_of_a_path_than_tells_releases_apart(
    release: Path, distilled: Path, tmp_path: Path
) -> None:
    assert [one.label for one in read_subjects([release, distilled])] == ["release", "distilled"]
    shutil.copytree(release, tmp_path / "a" / "set")
    shutil.copytree(distilled, tmp_path / "b" / "set")
    labels = [one.label for one in read_subjects([tmp_path / "a" / "set", tmp_path / "b" / "set"])]
    assert labels == ["a/set", "b/set"]


def test_evaluations_find_their_release(release: Path, distilled: Path, written: Any) -> None:
    subjects = read_subjects([release, distilled])
    paths = [written(evaluated(distilled, classifier="mlp")), written(evaluated(release)), written(evaluated(release))]
    first, second = add_evaluations(subjects, paths)
    assert [one.classifier for one in first.evaluations] == ["convnet", "convnet"]
    assert [one.classifier for one in second.evaluations] == ["mlp"]
    assert [one.trained_on for one in second.beside] == ["real", "noise"]


def test_the_same_images_under_other_class_names_are_another_set(release: Path, hostile: Path, written: Any) -> None:
    first, second = add_evaluations(read_subjects([release, hostile]), [written(evaluated(hostile))])
    assert first.certificate.contents.digest == second.certificate.contents.digest
    assert (len(first.evaluations), len(second.evaluations)) == (0, 1)


def test_an_evaluation_of_another_set_is_refused(release: Path, distilled: Path, written: Any) -> None:
    path = written(evaluated(distilled))
    with pytest.raises(DataError, match=r"evaluation of another set than release .*privset evaluate RELEASE"):
        add_evaluations(read_subjects([release]), [path])


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("trained on digits: 97 %", "is not JSON"),
        ("[]", "holds no JSON object"),
        ({}, "'data' is missing"),
        ({"confusion": [[1, 2], [3, 4]]}, "confusion: not counts of 3 by 3 classes"),
        ({"confusion": [[1, 2, -1]] * 3}, "confusion: not counts"),
        ({"accuracy": {"runs": [math.nan]}}, "accuracy: not percentages"),
        ({"accuracy": {"runs": []}}, "accuracy: not percentages"),
        ({"accuracy": {"runs": [101.0]}}, "accuracy: not percentages"),
        ({"images": "many"}, "images: "),
        ({"classifier": "\ud800"}, "Invalid JSON"),
        ({"recipe_settings": {}}, "recipe"),
        ({"beside": [1]}, "beside: not an object"),
        ({"beside": {"real": 3}}, "not an object"),
        ({"digest": None}, "another set"),
        ({"trained_on": "real"}, "has other classes than the release"),
        ({"classes": ["a", "b", "c"]}, "has other classes than the release"),
    ],
)
def test_what_is_no_evaluation_is_refused(release: Path, written: Any, document: Any, words: str) -> None:
    if isinstance(document, dict) and document:
        document = evaluated(release) | document
    path = written(document)
    with pytest.raises(DataError, match=words) as refusal:
        add_evaluations(read_subjects([release]), [path])
    assert str(path) in str(refusal.value)


def test_a_release_given_as_an_evaluation_is_told_apart(release: Path, distilled: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="name releases before --evaluation"):
        add_evaluations(read_subjects([release]), [distilled])
    with pytest.raises(DataError, match="cannot be read"):
        add_evaluations(read_subjects([release]), [tmp_path / "missing.json"])


def put(folder: Path, document: Any) -> Path:
    (folder / "study").mkdir(exist_ok=True)
    path = folder / "study" / f"{len(list((folder / 'study').iterdir()))}.json"
    path.write_text(json.dumps(document))
    return path


def test_results_are_read_and_benchmarks_are_not(tmp_path: Path) -> None:
    put(tmp_path, result(epsilon="inf"))
    put(tmp_path, {"what": "speed", "value": 3})
    (found,) = read_results(tmp_path)
    assert math.isinf(found.epsilon)
    assert found.recipes["quick"].accuracy.mean == 70
    assert read_results(None) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"epsilon": -1}, "epsilon"), ({"recipes": {"quick": {}}}, "accuracy"), ({"published": 200}, "published")],
)
def test_a_result_that_is_none_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = put(tmp_path, result(**changes))
    with pytest.raises(DataError, match=words) as refusal:
        read_results(tmp_path)
    assert str(path) in str(refusal.value)


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PrivsetError, match="holds no results"):
        read_results(tmp_path)
