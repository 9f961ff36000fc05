import io
import xml.etree.ElementTree as ET

import pytest
from PIL import Image

from privset.evaluation.figure import Curve, draw

CURVES = [
    Curve(name="moments <&>", points=((99.0, 0.5), (90.0, 1.0), (85.0, 0.0))),
    Curve(name="dp-sgd", points=((95.0, 0.0), (50.0, 0.0), (30.0, 0.0)), dashed=True),
]
SVG = "{http://www.w3.org/2000/svg}"


def test_the_svg_has_a_curve_a_legend_and_whiskers_where_there_is_a_deviation():
    root = ET.fromstring(draw(CURVES, title="A title").svg())
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert {"A title", "moments <&>", "dp-sgd", "1", "2", "3"} <= set(texts)
    paths = [
        [tuple(map(float, p.split(","))) for p in one.get("points", "").split()] for one in root.iter(f"{SVG}polyline")
    ]
    moments, forgetting = (path for path in paths if len(path) == 3)
    assert [x for x, _ in moments] == [x for x, _ in forgetting]
    assert moments[0][1] < moments[1][1] < forgetting[1][1] < forgetting[2][1]  # downwards is worse
    assert len(list(root.iter(f"{SVG}circle"))) == 6
    upright = [path for path in paths if len(path) == 2 and path[0][0] == path[1][0]]
    assert len(upright) == 2


def test_the_png_shows_the_same_at_twice_the_size():
    figure = draw(CURVES, title="A title")
    image = Image.open(io.BytesIO(figure.png()))
    assert image.size == (2 * figure.width, 2 * figure.height)
    colours = {colour for _, colour in image.getcolors(2**20) or []}
    assert {(0x0B, 0x6E, 0x99), (0xC2, 0x57, 0x1A)} <= colours  # both curves are there


def test_one_stage_and_one_curve_is_a_figure_too():
    assert draw([Curve(name="only", points=((50.0, 0.0),))], title="").svg().count("<circle") == 1


def test_over_epsilon_points_lie_where_their_epsilon_is_and_round_numbers_are_below():
    curve = Curve(name="psg", points=((50.0, 1.0), (70.0, 1.0), (80.0, 0.0)), at=(2.0, 4.0, 9.5))
    root = ET.fromstring(draw([curve], title="", axis="epsilon so far").svg())
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert [text for text in texts if text in [str(number) for number in range(11)]] == [str(n) for n in range(10)]
    assert "epsilon so far" in texts
    places = [float(one.get("cx", "")) for one in root.iter(f"{SVG}circle")]
    assert (places[1] - places[0]) / (places[2] - places[1]) == pytest.approx(2 / 5.5, abs=0.01)


@pytest.mark.parametrize(
    ("last", "ticks"), [(0.8, 9), (1.0, 11), (1.5, 8), (10.0, 11), (9.998, 11), (19.9, 11), (40.0, 9), (99.0, 10)]
)
def test_a_readable_number_of_epsilons_is_written_below(last, ticks):
    drawn = draw([Curve(name="c", points=((50.0, 0.0),), at=(last,))], title="").svg()
    assert drawn.count('text-anchor="middle"') == ticks + 1


def test_of_two_curves_that_agree_the_dashed_one_lies_on_top_with_hollow_dots():
    points = ((90.0, 0.0), (80.0, 0.0))
    drawn = draw(
        [Curve(name="a", points=points, colour=0, dashed=True), Curve(name="b", points=points, colour=0)], title=""
    )
    lines = drawn.svg().splitlines()
    circles = [line for line in lines if "<circle" in line]
    assert ['fill="#ffffff"' in line for line in circles] == [False, False, True, True]
    assert [">a<" in line for line in lines if ">a<" in line or ">b<" in line] == [
        False,
        True,
    ]  # drawn, not placed, last
    place = {name: next(line for line in lines if f">{name}<" in line).split('y="')[1].split('"')[0] for name in "ab"}
    assert float(place["a"]) < float(place["b"])
