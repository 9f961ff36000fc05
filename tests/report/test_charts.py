import re

import pytest

from privset.report.charts import Point, Series, bar, lines


def points(*pairs: tuple[float, float], std: float = 0.0) -> tuple[Point, ...]:
    return tuple(Point(x=x, mean=mean, std=std) for x, mean in pairs)


@pytest.mark.parametrize(("share", "width"), [(0.0, "0"), (0.25, "25"), (1.0, "100"), (1.7, "100"), (-1.0, "0")])
def test_a_bar_is_as_long_as_its_share_and_stays_in_its_room(share: float, width: str) -> None:
    assert f'class="bar set" width="{width}"' in bar(share)


def test_a_whisker_is_drawn_only_where_there_is_a_deviation() -> None:
    assert "whisker" not in bar(0.5)
    assert 'x1="40" x2="60"' in bar(0.5, deviation=0.1)


def places(drawn: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawn)]


def test_the_horizontal_axis_is_logarithmic_and_accuracy_points_upwards() -> None:
    drawn = lines([Series(name="a", points=points((1, 60), (10, 70), (100, 80)))], across="epsilon", label="x")
    (x1, y1), (x2, y2), (x3, y3) = places(drawn)
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y1 > y2 > y3


@pytest.mark.parametrize("accuracies", [(0, 100), (99.9, 100), (50, 50), (12, 97.3)])
def test_everything_lies_inside_the_drawing(accuracies: tuple[float, float]) -> None:
    drawn = lines(
        [Series(name="a", points=points(*zip((0.1, 10.0), accuracies, strict=True), std=3))], across="x", label="x"
    )
    numbers = re.findall(r' (?:x1|x2|cx|x)="(-?[\d.]+)"', drawn), re.findall(r' (?:y1|y2|cy|y)="(-?[\d.]+)"', drawn)
    assert all(0 <= float(number) <= 380 for number in numbers[0])
    assert all(0 <= float(number) <= 250 for number in numbers[1])


def test_a_release_of_the_page_has_a_sign_of_its_own() -> None:
    study, ours = points((1, 60), (10, 70)), Point(x=1, mean=65, std=0, ours=True)
    drawn = lines([Series(name="a", points=(*study, ours))], across="x", label="x")
    assert drawn.count("<circle") == 2
    assert drawn.count("<path") == 1
    assert len(re.search(r'polyline points="([^"]*)"', drawn)[1].split()) == 2  # type: ignore[index]


def test_numbers_of_the_axis_do_not_touch() -> None:
    drawn = lines([Series(name="a", points=points((1, 60), (1.05, 61), (10, 70)))], across="x", label="x")
    assert ">1</text>" in drawn
    assert ">1.05</text>" not in drawn
