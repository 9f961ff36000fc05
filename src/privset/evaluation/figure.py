"""Accuracy against stage or epsilon, or time against size, as a drawing: laid out once, written as SVG and as PNG."""

from __future__ import annotations

import dataclasses
import html
import io
import itertools
import math
from collections.abc import Iterator, Sequence

from PIL import Image, ImageDraw, ImageFont

_COLOURS = ("#0b6e99", "#c2571a", "#3f7d3a", "#8a4fa3", "#8c6d1f", "#a8324a")
_INK, _GRID = "#333333", "#dddddd"
_WIDTH, _PLOT, _TOP, _LEFT, _RIGHT = 560, 280, 44, 56, 20
_LEGEND = 20
_SMOOTH, _SHARP = 4, 2
"""A PNG is drawn this many times as large, and shrunk to so many pixels for each unit of the SVG."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """Accuracy after each stage, or at each epsilon, in percent.

    Attributes:
        name: For the legend.
        points: (mean, deviation) after stage 1, 2, ..., or at the epsilons of ``at``.
        at: Where the points are, positive and in their order; none for stages.
        colour: Number of its colour; by default that of its place.
        dashed: Whether it is drawn with dashes, and hollow dots.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    at: tuple[float, ...] = ()
    colour: int | None = None
    dashed: bool = False

    @property
    def places(self) -> tuple[float, ...]:
        """Where each point is."""
        return self.at or tuple(range(1, len(self.points) + 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Line:
    points: tuple[tuple[float, float], ...]
    colour: str
    width: float = 1.0
    dashed: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Dot:
    x: float
    y: float
    colour: str
    hollow: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Text:
    x: float
    y: float
    text: str
    anchor: str = "start"
    size: int = 12


@dataclasses.dataclass(frozen=True)
class Figure:
    """Shapes on paper of ``width`` x ``height``."""

    width: int
    height: int
    shapes: tuple[_Line | _Dot | _Text, ...]

    def svg(self) -> str:
        """As a file of its own, with its colours in it."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" font-family="sans-serif">'
        )
        paper = f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>'
        return "\n".join([head, paper, *map(_svg, self.shapes), "</svg>"]) + "\n"

    def png(self) -> bytes:
        """Drawn large and shrunk, so that edges are smooth."""
        image = Image.new("RGB", (self.width * _SMOOTH, self.height * _SMOOTH), "#ffffff")
        canvas = ImageDraw.Draw(image)
        for shape in self.shapes:
            _paint(canvas, shape)
        small = image.resize((self.width * _SHARP, self.height * _SHARP), Image.Resampling.LANCZOS)
        file = io.BytesIO()
        small.save(file, format="PNG")
        return file.getvalue()


def draw(
    curves: Sequence[Curve],
    *,
    title: str,
    axis: str = "stage; test accuracy on all classes seen so far",
    unit: str = "%",
) -> Figure:
    """The curves over stages 1, 2, ... or over epsilons from 0, with whiskers of one deviation and a legend below.

    Args:
        curves: All over stages, or all over epsilons.
        title: Above them.
        axis: What the axis below is.
        unit: Of the values.
    """
    ticks = _ticks(curves)
    bounds = [value for curve in curves for mean, std in curve.points for value in (mean - std, mean + std)]
    sizes = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    step = next(size for size in sizes if (max(bounds) - min(bounds)) / size <= 6 or size == sizes[-1])
    low = max(0, step * math.floor(min(bounds) / step))
    high = max(low + step, step * math.ceil(max(bounds) / step))
    high = min(high, max(low + step, 100)) if unit == "%" else high
    first, last = ticks[0], max(ticks[-1], *(place for curve in curves for place in curve.places))

    def x(place: float) -> float:
        room = _WIDTH - _LEFT - _RIGHT - 40
        return round(_LEFT + 20 + room * (place - first) / ((last - first) or 1), 1)

    def y(value: float) -> float:
        return round(_TOP + _PLOT * (high - min(high, max(low, value))) / (high - low), 1)

    shapes: list[_Line | _Dot | _Text] = [_Text(x=_LEFT, y=24, text=title, size=14)]
    for tick in range(low, high + 1, step):
        shapes.append(_Line(points=((_LEFT, y(tick)), (_WIDTH - _RIGHT, y(tick))), colour=_GRID))
        shapes.append(_Text(x=_LEFT - 8, y=y(tick) + 4, text=f"{tick} {unit}", anchor="end"))
    for place in ticks:
        shapes.append(_Text(x=x(place), y=_TOP + _PLOT + 20, text=f"{place:g}", anchor="middle"))
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    shapes.append(_Text(x=middle, y=_TOP + _PLOT + 40, text=axis, anchor="middle"))
    # What is dashed comes last, on top of what is whole: of two curves that agree, both are seen.
    for number, curve in sorted(enumerate(curves), key=lambda one: one[1].dashed):
        colour = _COLOURS[(number if curve.colour is None else curve.colour) % len(_COLOURS)]
        path = tuple((x(place), y(mean)) for place, (mean, _) in zip(curve.places, curve.points, strict=True))
        shapes.append(_Line(points=path, colour=colour, width=2.0, dashed=curve.dashed))
        for (across, up), (mean, std) in zip(path, curve.points, strict=True):
            if std > 0:
                shapes.append(
                    _Line(points=((across, y(mean - std)), (across, y(mean + std))), colour=colour, width=1.2)
                )
            shapes.append(_Dot(x=across, y=up, colour=colour, hollow=curve.dashed))
        place = _TOP + _PLOT + 64 + _LEGEND * number
        shapes.append(
            _Line(points=((_LEFT, place), (_LEFT + 32, place)), colour=colour, width=2.0, dashed=curve.dashed)
        )
        shapes.append(_Text(x=_LEFT + 42, y=place + 4, text=curve.name))
    return Figure(_WIDTH, _TOP + _PLOT + 70 + _LEGEND * len(curves), tuple(shapes))


def _ticks(curves: Sequence[Curve]) -> list[float]:
    """What is written below: every stage; of epsilons, round ones from 0 on."""
    last = max(place for curve in curves for place in curve.places)
    if not any(curve.at for curve in curves):
        return [float(stage) for stage in range(1, int(last) + 1)]
    size = 10.0 ** math.floor(math.log10(last))
    step = next(size * part for part in (0.1, 0.2, 0.5, 1) if last / (size * part) <= 10)
    # A budget is hardly ever spent to the last digit: what is nearly a round number ends the axis there.
    return [round(step * number, 9) for number in range(math.floor(last / step + 0.05) + 1)]


def _svg(shape: _Line | _Dot | _Text) -> str:
    if isinstance(shape, _Dot):
        fill = "#ffffff" if shape.hollow else shape.colour
        return f'<circle cx="{shape.x:g}" cy="{shape.y:g}" r="3" fill="{fill}" stroke="{shape.colour}"/>'
    if isinstance(shape, _Text):
        where = f'x="{shape.x:g}" y="{shape.y:g}" text-anchor="{shape.anchor}" font-size="{shape.size}"'
        return f'<text {where} fill="{_INK}">{html.escape(shape.text)}</text>'
    points = " ".join(f"{x:g},{y:g}" for x, y in shape.points)
    dashes = ' stroke-dasharray="6 4"' if shape.dashed else ""
    return f'<polyline points="{points}" fill="none" stroke="{shape.colour}" stroke-width="{shape.width:g}"{dashes}/>'


def _paint(canvas: ImageDraw.ImageDraw, shape: _Line | _Dot | _Text) -> None:
    if isinstance(shape, _Dot):
        centre, radius = (shape.x * _SMOOTH, shape.y * _SMOOTH), 3 * _SMOOTH
        box = (centre[0] - radius, centre[1] - radius, centre[0] + radius, centre[1] + radius)
        canvas.ellipse(box, "#ffffff" if shape.hollow else shape.colour, shape.colour, width=_SMOOTH)
    elif isinstance(shape, _Text):
        font = ImageFont.load_default(shape.size * _SMOOTH)
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
        canvas.text((shape.x * _SMOOTH, shape.y * _SMOOTH), shape.text, fill=_INK, font=font, anchor=anchor)
    else:
        for part in _dashes(shape.points) if shape.dashed else [shape.points]:
            line = [(x * _SMOOTH, y * _SMOOTH) for x, y in part]
            canvas.line(line, fill=shape.colour, width=round(shape.width * _SMOOTH), joint="curve")


def _dashes(points: Sequence[tuple[float, float]]) -> Iterator[Sequence[tuple[float, float]]]:
    """Strokes of 6 with gaps of 4, begun anew at each point."""
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        length = math.dist((x0, y0), (x1, y1))
        for number in range(math.ceil(length / 10)):
            first, last = 10 * number / length, min(1.0, (10 * number + 6) / length)
            yield (
                (x0 + first * (x1 - x0), y0 + first * (y1 - y0)),
                (x0 + last * (x1 - x0), y0 + last * (y1 - y0)),
            )
