"""Drawings as inline SVG: bars in the cells of tables, and accuracies as lines.

They take their colours from the page's style sheet, so that they follow it into the dark and onto paper. Each number
that is drawn is also written down somewhere near: a drawing may be left out by whoever reads the page aloud.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from privset.report.markup import Markup, join, tag

COLOURS = 6
"""Series that the style sheet has a colour for."""

_WIDTH, _HEIGHT = 380, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 14, 14, 44
_APART = 24
"""Least distance between two marks of the horizontal axis, so that their numbers do not touch."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """An accuracy in percent at ``x``, with its deviation; ``ours`` if it is that of a release on the page."""

    x: float
    mean: float
    std: float
    ours: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """Points that belong together, and what they have in common."""

    name: str
    points: tuple[Point, ...]


def bar(share: float, *, deviation: float = 0.0, kind: str = "set") -> Markup:
    """A horizontal bar of ``share`` of the room it is given; what it stands for is written beside it."""
    share, low, high = (100 * min(1.0, max(0.0, one)) for one in (share, share - deviation, share + deviation))
    return tag(
        "svg",
        tag("rect", class_="track", width=100, height=10),
        tag("rect", class_=f"bar {kind}", width=round(share, 3), height=10),
        tag("line", class_="whisker", x1=round(low, 3), x2=round(high, 3), y1=5, y2=5) if deviation > 0 else None,
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        class_="bars",
        aria_hidden="true",
    )


def lines(series: Sequence[Series], *, across: str, label: str) -> Markup:
    """Accuracy upwards, ``across`` on a logarithmic axis.

    Args:
        series: At least two points in all; drawn in the colours of the style sheet, in their order.
        across: What the horizontal axis is.
        label: The whole drawing in a sentence.
    """
    points = [point for one in series for point in one.points]
    axis = _Axis([point.x for point in points], [bound for p in points for bound in (p.mean - p.std, p.mean + p.std)])
    drawn = [_series(one, axis, f"s{number % COLOURS}") for number, one in enumerate(series)]
    return tag(
        "svg",
        axis.drawn(across),
        drawn,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        class_="lines",
        role="img",
        aria_label=label,
    )


def key(number: int) -> Markup:
    """The sign of a series in a legend."""
    return tag(
        "svg",
        tag("line", x1=0, x2=24, y1=6, y2=6),
        tag("circle", cx=12, cy=6, r=3.5),
        viewBox="0 0 24 12",
        class_=f"key s{number % COLOURS}",
        aria_hidden="true",
    )


class _Axis:
    """Where numbers are on the paper."""

    def __init__(self, across: Sequence[float], upwards: Sequence[float]) -> None:
        self.across = sorted(set(across))
        self._first, self._last = math.log10(self.across[0]), math.log10(self.across[-1])
        step = next(size for size in (1, 2, 5, 10, 20, 25) if (max(upwards) - min(upwards)) / size <= 5)
        self._low = max(0, step * math.floor(min(upwards) / step))
        self._high = min(100, max(step * math.ceil(max(upwards) / step), self._low + step))
        self._step = step

    def x(self, value: float) -> float:
        room = _WIDTH - _LEFT - _RIGHT - 24
        return round(_LEFT + 12 + room * (math.log10(value) - self._first) / (self._last - self._first), 1)

    def y(self, value: float) -> float:
        share = (min(100.0, max(0.0, value)) - self._low) / (self._high - self._low)
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share, 1)

    def drawn(self, across: str) -> Markup:
        """Lines and numbers."""
        ticks = range(self._low, self._high + 1, self._step)
        parts = [
            join(
                [
                    tag("line", class_="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=self.y(tick), y2=self.y(tick)),
                    tag("text", f"{tick} %", x=_LEFT - 6, y=self.y(tick) + 4, text_anchor="end"),
                ]
            )
            for tick in ticks
        ]
        last = -math.inf
        for value in self.across:
            place = self.x(value)
            if place - last >= _APART:
                parts.append(tag("text", f"{value:g}", x=place, y=_HEIGHT - _BOTTOM + 18, text_anchor="middle"))
                last = place
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        parts.append(tag("text", across, class_="axis", x=middle, y=_HEIGHT - 6, text_anchor="middle"))
        return join(parts)


def _series(series: Series, axis: _Axis, colour: str) -> Markup:
    points = sorted(series.points, key=lambda point: point.x)
    path = " ".join(f"{axis.x(point.x):g},{axis.y(point.mean):g}" for point in points if not point.ours)
    marks = [
        join(
            [
                tag("line", x1=axis.x(p.x), x2=axis.x(p.x), y1=axis.y(p.mean - p.std), y2=axis.y(p.mean + p.std)),
                _diamond(axis.x(p.x), axis.y(p.mean))
                if p.ours
                else tag("circle", cx=axis.x(p.x), cy=axis.y(p.mean), r=3.5),
            ]
        )
        for p in points
    ]
    return tag("g", tag("polyline", points=path), marks, class_=colour)


def _diamond(x: float, y: float, r: float = 6.5) -> Markup:
    return tag("path", d=f"M{x:g} {y - r:g}L{x + r:g} {y:g}L{x:g} {y + r:g}L{x - r:g} {y:g}Z")
