import re
from pathlib import Path
from typing import Any

from tests.report.conftest import evaluated, result

from privset.report.sources import Result, add_evaluations, read_subjects
from privset.report.trends import trends


def test_one_point_is_no_trend(release: Path, written: Any) -> None:
    subjects = add_evaluations(read_subjects([release]), [written(evaluated(release))])
    assert "--results DIR" in trends(subjects, [])
    assert "<svg" not in trends(subjects, [Result(**result())])


def test_accuracy_is_drawn_against_what_varies(release: Path, written: Any) -> None:
    subjects = add_evaluations(read_subjects([release]), [written(evaluated(release))])
    against_epsilon = trends(subjects, [Result(**result(epsilon=value)) for value in (0.5, 5.0)])
    assert "accuracy against epsilon" in against_epsilon
    assert "accuracy against images a class" not in against_epsilon
    against_size = trends(subjects, [Result(**result(per_class=value)) for value in (4, 40)])
    assert "accuracy against images a class" in against_size
    assert "accuracy against epsilon" not in against_size
    # The release is a diamond among circles, and the numbers are written down.
    assert against_size.count("<path") == 1
    assert "81.0 ± 1.4" in against_size
    assert "this page" in against_size


def test_releases_alone_make_a_trend(release: Path, distilled: Path, written: Any) -> None:
    paths = [written(evaluated(release)), written(evaluated(distilled))]
    shown = trends(add_evaluations(read_subjects([release, distilled]), paths), [])
    assert "accuracy against images a class" in shown  # 4 and 3
    assert "Circles" not in shown


def test_other_data_and_no_privacy_are_left_out(release: Path) -> None:
    subjects = read_subjects([release])
    results = [Result(**result(data="other", epsilon=value)) for value in (1.0, 2.0)]
    results += [Result(**result(epsilon="inf")), Result(**result())]
    assert "<svg" not in trends(subjects, results)


def test_of_too_many_series_the_pages_own_and_the_longest_are_drawn(release: Path, written: Any) -> None:
    subjects = add_evaluations(read_subjects([release]), [written(evaluated(release))])
    results = [
        Result(**result(method=f"m{number}", epsilon=value))
        for number in range(8)
        for value in ((1.0, 2.0, 4.0) if number == 7 else (1.0, 2.0))
    ]
    shown = trends(subjects, results)
    names = re.findall(r"</svg>([^<]*)</li>", shown)
    assert len(names) == 6
    assert names[:2] == ["psg", "m7"]
    assert "3 more series are not drawn" in shown
